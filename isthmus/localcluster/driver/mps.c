/*
 * nvidia-cuda-mps-control for a machine without NVIDIA cards.
 *
 *     nvidia-cuda-mps-control -d      start the control daemon in the background
 *     nvidia-cuda-mps-control         send commands, a line each, from standard input to the daemon; print its answers
 *
 * The daemon keeps and gives back what it is told (the default share of the threads, the memory limits of devices), under
 * the directories that CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY name, as the real one does. Nothing computes
 * here, so no limit is enforced and no server ever starts; the log says so. Linked statically: it runs in any container.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NOTICE "isthmus stand-in for nvidia-cuda-mps-control: the protocol is real, limits are not enforced"
#define DEVICES 16
#define ARGUMENT 64

static char thread_percentage[ARGUMENT] = "100.0";
static char memory_limits[DEVICES][ARGUMENT];
static FILE *log_file;

static const char *folder(const char *variable, const char *otherwise)
{
    const char *named = getenv(variable);
    return named != NULL && *named != '\0' ? named : otherwise;
}

static void file_in(const char *directory, const char *name, char *path, size_t size)
{
    if (snprintf(path, size, "%s/%s", directory, name) >= (int)size) {
        fprintf(stderr, "%s is too long a name for a pipe directory\n", directory);
        exit(1);
    }
}

static struct sockaddr_un control(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    file_in(folder("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control", address.sun_path, sizeof address.sun_path);
    return address;
}

/* A connection to the daemon, or -1. */
static int daemon_connection(void)
{
    struct sockaddr_un address = control();
    int handle = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (handle >= 0 && connect(handle, (struct sockaddr *)&address, sizeof address) == 0)
        return handle;
    if (handle >= 0)
        close(handle);
    return -1;
}

/* ---- the daemon ---- */

/* One command; its answer goes to `answers`. Returns 0 for `quit`. */
static int obey(char *line, FILE *answers)
{
    char command[ARGUMENT] = "", first[ARGUMENT] = "", second[ARGUMENT] = "";
    sscanf(line, "%63s %63s %63s", command, first, second);
    unsigned long device = strtoul(first, NULL, 10);
    if (*command == '\0')
        return 1;
    fprintf(log_file, "command: %s\n", line);
    fflush(log_file);
    if (strcmp(command, "quit") == 0)
        return 0;
    if (strcmp(command, "get_default_active_thread_percentage") == 0)
        fprintf(answers, "%s\n", thread_percentage);
    else if (strcmp(command, "set_default_active_thread_percentage") == 0 && *first != '\0')
        fprintf(answers, "%s\n", strcpy(thread_percentage, first));
    else if (strcmp(command, "get_default_device_pinned_mem_limit") == 0 && *first != '\0' && device < DEVICES)
        fprintf(answers, "%s\n", memory_limits[device]);
    else if (strcmp(command, "set_default_device_pinned_mem_limit") == 0 && *second != '\0' && device < DEVICES)
        fprintf(answers, "%s\n", strcpy(memory_limits[device], second));
    else if (strcmp(command, "get_server_list") != 0) /* there is never a server: an empty answer */
        fprintf(answers, "Unknown command or argument: %s\n", line);
    return 1;
}

static int serve_one(int listening)
{
    int handle = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (handle < 0)
        return errno == EINTR || errno == ECONNABORTED;
    FILE *commands = fdopen(handle, "r"), *answers = fdopen(dup(handle), "w");
    if (commands == NULL || answers == NULL) {
        close(handle);
        return 1;
    }
    char line[512];
    int go_on = 1;
    while (go_on && fgets(line, sizeof line, commands) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        go_on = obey(line, answers);
    }
    fclose(answers);
    fclose(commands);
    return go_on;
}

static int listen_for_commands(void)
{
    struct sockaddr_un address = control();
    unlink(address.sun_path); /* of a daemon that was killed */
    int handle = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (handle < 0 || bind(handle, (struct sockaddr *)&address, sizeof address) != 0 || listen(handle, 16) != 0) {
        fprintf(stderr, "cannot listen on %s: %s\n", address.sun_path, strerror(errno));
        exit(1);
    }
    return handle;
}

static int start(void)
{
    char path[PATH_MAX];
    int there = daemon_connection();
    if (there >= 0) {
        close(there);
        fprintf(stderr, "An instance of this daemon is already running\n");
        return 1;
    }
    file_in(folder("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"), "control.log", path, sizeof path);
    log_file = fopen(path, "ae");
    if (log_file == NULL) {
        fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
        return 1;
    }
    int listening = listen_for_commands();
    if (daemon(1, 0) != 0)
        return 1;
    fprintf(log_file, "%s\n", NOTICE);
    fflush(log_file);
    while (serve_one(listening)) {
    }
    struct sockaddr_un address = control();
    unlink(address.sun_path);
    return 0;
}

/* ---- the client ---- */

static void copy(int from, int to)
{
    char bytes[4096];
    ssize_t length;
    while ((length = read(from, bytes, sizeof bytes)) > 0)
        for (ssize_t done = 0, part; done < length; done += part)
            if ((part = write(to, bytes + done, (size_t)(length - done))) <= 0)
                return;
}

static int send_commands(void)
{
    int handle = daemon_connection();
    if (handle < 0) {
        fprintf(stderr, "Cannot find MPS control daemon process\n");
        return 1;
    }
    copy(STDIN_FILENO, handle);
    shutdown(handle, SHUT_WR);
    copy(handle, STDOUT_FILENO);
    close(handle);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return send_commands();
    if (argc == 2 && strcmp(argv[1], "-d") == 0)
        return start();
    fprintf(stderr, "usage: nvidia-cuda-mps-control [-d]\n%s\n", NOTICE);
    return 1;
}
