// A stand-in for the Python interpreter: has zygote.py fork a process with this one's arguments, environment, folder and open files, hands
// signals on to it, and ends as it ends. Under the name `pykaldist` it is `python -m pykaldist`. FAULTS_ZYGOTE names the zygote's socket.
//
// Build: gcc -O1 -o python client.c
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 200 };
extern char **environ;
static int server;

static void hand_on(int number) {
  unsigned char byte = (unsigned char)number;
  int before = errno;
  (void)!write(server, &byte, 1);
  errno = before;
}

static char *payload;
static size_t length;

static void add(const char *text) {
  size_t size = strlen(text) + 1;
  payload = realloc(payload, length + size);
  memcpy(payload + length, text, size);
  length += size;
}

static void fail(const char *what) {
  fprintf(stderr, "client.c: ERROR: %s: %s.\n", what, strerror(errno));
  exit(125);
}

int main(int argc, char **argv) {
  int fds[MOST], count = 0;
  if (getenv("PYKALDIST_JOB") != NULL) prctl(PR_SET_PDEATHSIG, SIGKILL);  // as a process of a job does: the fork has another parent
  DIR *folder = opendir("/proc/self/fd");
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL && count < MOST;)
    if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder)) fds[count++] = atoi(entry->d_name);
  closedir(folder);

  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *name = getenv("FAULTS_ZYGOTE");
  strncpy(address.sun_path, name ? name : "", sizeof address.sun_path - 1);
  server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  while (connect(server, (struct sockaddr *)&address, sizeof address) != 0)
    if (errno != EAGAIN && errno != EINTR) fail("no zygote");

  char text[4096];
  const char *own = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
  int module = strcmp(own, "pykaldist") == 0;
  if (getcwd(text, sizeof text) == NULL) fail("no folder");
  add(text);
  snprintf(text, sizeof text, "%d", count);
  add(text);
  for (int i = 0; i < count; i++) { snprintf(text, sizeof text, "%d", fds[i]); add(text); }
  snprintf(text, sizeof text, "%d", argc - 1 + 2 * module);
  add(text);
  if (module) { add("-m"); add("pykaldist"); }
  for (int i = 1; i < argc; i++) add(argv[i]);
  for (char **one = environ; *one != NULL; one++) add(*one);

  uint32_t size = (uint32_t)length;
  char control[CMSG_SPACE(sizeof(int) * MOST)];
  struct iovec part = {&size, sizeof size};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                           .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count)};
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
  memcpy(CMSG_DATA(rights), fds, sizeof(int) * (size_t)count);
  if (sendmsg(server, &message, 0) != sizeof size) fail("no request");
  for (size_t sent = 0; sent < length;) {
    ssize_t more = write(server, payload + sent, length - sent);
    if (more < 0 && errno != EINTR) fail("no request");
    if (more > 0) sent += (size_t)more;
  }
  int handed_on[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};
  for (unsigned i = 0; i < sizeof handed_on / sizeof *handed_on; i++) {
    struct sigaction before;
    sigaction(handed_on[i], NULL, &before);
    if (before.sa_handler != SIG_IGN) signal(handed_on[i], hand_on);
  }
  for (int i = 0; i < count; i++) close(fds[i]);  // a pipe's other end is to see when the process is gone

  int32_t status;
  for (size_t got = 0; got < sizeof status;) {
    ssize_t more = read(server, (char *)&status + got, sizeof status - got);
    if (more == 0) return 125;
    if (more > 0) got += (size_t)more;
  }
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  return WEXITSTATUS(status);
}
