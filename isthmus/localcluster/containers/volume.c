/* Makes (as volume-setup) or removes (as volume-teardown) the folder of a provisioned volume. local-path-provisioner runs
   it on the node in a helper pod and gives the folder in VOL_DIR. Making what is there and removing what is not are no
   errors. Statically linked, so that its image needs neither a shell nor a C library. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int fail(const char *what, const char *path) {
  fprintf(stderr, "volume: %s %s: %s\n", what, path, strerror(errno));
  return EXIT_FAILURE;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info;
  (void)kind;
  (void)walk;
  return remove(path);
}

static int setup(const char *folder) {
  if (mkdir(folder, 0777) != 0 && errno != EEXIST) return fail("cannot make", folder);
  if (chmod(folder, 0777) != 0) return fail("cannot open to all users", folder); /* mkdir's mode is cut by the umask */
  return EXIT_SUCCESS;
}

static int teardown(const char *folder) {
  struct stat info;
  if (lstat(folder, &info) != 0 && errno == ENOENT) return EXIT_SUCCESS;
  if (nftw(folder, remove_entry, 64, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0) return fail("cannot remove", folder);
  return EXIT_SUCCESS;
}

int main(int count, char **arguments) {
  const char *folder = getenv("VOL_DIR");
  if (folder == NULL || folder[0] != '/' || count < 1) {
    fputs("volume: VOL_DIR must name a folder\n", stderr);
    return EXIT_FAILURE;
  }
  return strstr(arguments[0], "teardown") != NULL ? teardown(folder) : setup(folder);
}
