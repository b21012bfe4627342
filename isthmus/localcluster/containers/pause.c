/* The process of a pod's sandbox: it holds the pod's namespaces, reaps what is left to it, and ends when asked to.
   Written for this project; statically linked, the whole content of the image. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  for (;;) {
    int received = 0;
    if (sigwait(&signals, &received) != 0) return EXIT_FAILURE;
    if (received != SIGCHLD) return EXIT_SUCCESS;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
  }
}
