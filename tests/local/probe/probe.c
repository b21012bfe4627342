/* What tests run in pods: one statically linked program, so that its image needs neither a shell nor a C library.
     probe say TEXT            print TEXT
     probe resolve NAME        print the address of NAME, as the C library resolves it (resolv.conf of the pod)
     probe connect HOST PORT   print "connected" when something listens there
     probe listen PORT TEXT    send TEXT to everyone who connects, for ever
     probe fetch HOST PORT     print what HOST sends
     probe environment NAME    print an environment variable
     probe write FILE TEXT     write TEXT to FILE, then print the file
     probe read FILE           print FILE
     probe libraries           print "driver" when the NVIDIA library is mounted, else "none"
   With `stay` as the first word it sleeps after that instead of ending. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int print_file(const char *path) {
  char buffer[4096];
  FILE *file = fopen(path, "r");
  if (file == NULL) { perror(path); return 1; }
  size_t got = fread(buffer, 1, sizeof buffer - 1, file);
  buffer[got] = '\0';
  fclose(file);
  puts(buffer);
  return 0;
}

static struct addrinfo *look_up(const char *name, const char *port) {
  struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
  int problem = getaddrinfo(name, port, &wanted, &found);
  if (problem != 0) fprintf(stderr, "%s: %s\n", name, gai_strerror(problem));
  return problem == 0 ? found : NULL;
}

static int listen_for_ever(const char *port, const char *text) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
  int door = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(door, (struct sockaddr *)&here, sizeof here) != 0 || listen(door, 8) != 0) { perror("listen"); return 1; }
  for (;;) {
    int guest = accept(door, NULL, NULL);
    if (guest < 0) { perror("accept"); return 1; }
    if (write(guest, text, strlen(text)) < 0) perror("write");
    close(guest);
  }
}

static int run(int count, char **words) {
  const char *what = count > 0 ? words[0] : "";
  if (strcmp(what, "say") == 0 && count == 2) return puts(words[1]) < 0;
  if (strcmp(what, "read") == 0 && count == 2) return print_file(words[1]);
  if (strcmp(what, "libraries") == 0)
    return puts(access("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", R_OK) == 0 ? "driver" : "none") < 0;
  if (strcmp(what, "write") == 0 && count == 3) {
    FILE *file = fopen(words[1], "w");
    if (file == NULL) { perror(words[1]); return 1; }
    fputs(words[2], file);
    fclose(file);
    return print_file(words[1]);
  }
  if (strcmp(what, "resolve") == 0 && count == 2) {
    char text[64];
    struct addrinfo *found = look_up(words[1], NULL);
    if (found == NULL) return 1;
    getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    return puts(text) < 0;
  }
  if (strcmp(what, "environment") == 0 && count == 2) {
    const char *value = getenv(words[1]);
    return puts(value == NULL ? "" : value) < 0;
  }
  if (strcmp(what, "listen") == 0 && count == 3) return listen_for_ever(words[1], words[2]);
  if ((strcmp(what, "connect") == 0 || strcmp(what, "fetch") == 0) && count == 3) {
    struct addrinfo *found = look_up(words[1], words[2]);
    if (found == NULL) return 1;
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection, found->ai_addr, found->ai_addrlen) != 0) { perror("connect"); return 1; }
    if (strcmp(what, "connect") == 0) return puts("connected") < 0;
    char text[256];
    ssize_t got = read(connection, text, sizeof text - 1);
    text[got > 0 ? got : 0] = '\0';
    return puts(text) < 0;
  }
  fputs("usage: see probe.c\n", stderr);
  return 2;
}

int main(int count, char **words) {
  int stay = count > 1 && strcmp(words[1], "stay") == 0, code = run(count - 1 - stay, words + 1 + stay);
  fflush(stdout);
  while (stay && code == 0) sleep(3600);
  return code;
}
