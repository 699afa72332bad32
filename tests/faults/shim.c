// A library for LD_PRELOAD that makes one call of a process, or of a whole tree of processes, fail: the k-th of a class, on a file below a
// folder. It counts the calls of every class meanwhile. What to do stands in a file that all processes map (struct control below, written
// by faults.py); its name is in FAULTS_CONTROL, or is given to faults_attach() by a process that was there before.
//
// Calls on files elsewhere are left alone: how Python and its libraries start does not matter. glibc's own stdio does not come by here, so
// that fopen, fread, fwrite, fflush and fclose have their turn themselves.
//
// Build: gcc -shared -fPIC -O1 -o shim.so shim.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum class { OPEN, CREATE, WRITE, FSYNC, RENAME, MMAP, READ, SEND, RECEIVE, CLASSES };
enum kind { NONE, ERROR, SHORT, FLIP, KILL, TORN, STOP, DELAY };  // TORN: half of what was to be written, then SIGKILL

struct control {
  char root[512];   // files below it count
  char match[128];  // and have this in their names
  int32_t class, kind, error, delay_ms;
  int64_t k;        // which call of the class, from 1; 0: only count
  uint64_t bit;     // that FLIP turns, modulo the length
  int64_t counts[CLASSES];
  int32_t fired, pid;
  char function[32], file[512];
};

static struct control *control;

void faults_attach(const char *name) {
  int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *map = (void *)syscall(SYS_mmap, NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (map != MAP_FAILED) control = map;
}

__attribute__((constructor)) static void start(void) {
  const char *name = getenv("FAULTS_CONTROL");
  if (name != NULL) faults_attach(name);
}

static int below(const char *path) {
  size_t length = strlen(control->root);
  return strncmp(path, control->root, length) == 0 && (path[length] == '/' || path[length] == 0) &&
         (control->match[0] == 0 || strstr(path + length, control->match) != NULL);
}

static const char *of_fd(int fd, char *buffer, size_t size) {
  char link[40];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, size - 1);
  buffer[length < 0 ? 0 : length] = 0;
  return buffer;
}

static const char *of_name(int folder, const char *name, char *buffer, size_t size) {
  if (name[0] == '/') return name;
  char base[400];
  if (folder == AT_FDCWD) {
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/cwd", base, sizeof base - 1);
    base[length < 0 ? 0 : length] = 0;
  } else {
    of_fd(folder, base, sizeof base);
  }
  while (strncmp(name, "./", 2) == 0) name += 2;
  snprintf(buffer, size, "%s/%s", base, name);
  return buffer;
}

// Counts a call on a file; returns what is to happen to it, once in the control's life.
static enum kind counted(enum class class, const char *function, const char *path) {
  if (!below(path)) return NONE;
  int64_t number = __sync_add_and_fetch(&control->counts[class], 1);
  if (class != (enum class)control->class || number != control->k) return NONE;
  control->pid = (int32_t)getpid();
  snprintf(control->function, sizeof control->function, "%s", function);
  snprintf(control->file, sizeof control->file, "%s", path);
  control->fired = 1;
  switch (control->kind) {
    case KILL: syscall(SYS_kill, getpid(), SIGKILL); break;
    case STOP: syscall(SYS_kill, getpid(), SIGSTOP); return NONE;
    case DELAY: poll(NULL, 0, control->delay_ms); return NONE;
    default: break;
  }
  return (enum kind)control->kind;
}

static enum kind by_fd(enum class class, const char *function, int fd) {
  if (control == NULL) return NONE;
  int before = errno;
  char buffer[600];
  const char *path = of_fd(fd, buffer, sizeof buffer);
  enum kind kind = NONE;
  if (path[0] == '/') {
    kind = counted(class, function, path);
  } else if (strncmp(path, "socket:", 7) == 0 && (class == READ || class == WRITE || class == SEND || class == RECEIVE)) {
    int domain = 0;
    socklen_t size = sizeof domain;
    if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && (domain == AF_INET || domain == AF_INET6)) {
      class = class == WRITE || class == SEND ? SEND : RECEIVE;
      int64_t number = __sync_add_and_fetch(&control->counts[class], 1);
      if (class == (enum class)control->class && number == control->k) {
        control->pid = (int32_t)getpid();
        snprintf(control->function, sizeof control->function, "%s", function);
        control->fired = 1;
        if (control->kind == KILL) syscall(SYS_kill, getpid(), SIGKILL);
        if (control->kind == STOP) syscall(SYS_kill, getpid(), SIGSTOP);
        if (control->kind == DELAY) poll(NULL, 0, control->delay_ms);
        if (control->kind == ERROR) {
          syscall(SYS_shutdown, fd, SHUT_RDWR);
          kind = ERROR;
        }
      }
    }
  }
  errno = before;
  return kind;
}

static enum kind by_name(enum class class, const char *function, int folder, const char *name) {
  if (control == NULL || name == NULL) return NONE;
  int before = errno;
  char buffer[1000];
  enum kind kind = counted(class, function, of_name(folder, name, buffer, sizeof buffer));
  errno = before;
  return kind;
}

static long failed(void) {
  errno = control->error;
  return -1;
}

static void flip(void *data, ssize_t length) {
  if (length > 0) ((char *)data)[(control->bit / 8) % (uint64_t)length] ^= (char)(1 << control->bit % 8);
}

static size_t half(size_t length) { return length > 1 ? length / 2 : length; }

// --- open

static int opened(const char *function, int folder, const char *name, int flags, mode_t mode) {
  enum class class = flags & (O_CREAT | O_TRUNC) || (flags & O_ACCMODE) != O_RDONLY ? CREATE : OPEN;
  if (by_name(class, function, folder, name) == ERROR) return (int)failed();
  return (int)syscall(SYS_openat, folder, name, flags, mode);
}

#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *name, int flags, ...) { MODE(flags) return opened("open", AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened("open", AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE(flags) return opened("openat", folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags) return opened("openat", folder, name, flags, mode); }
int __open_2(const char *name, int flags) { return opened("open", AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return opened("open", AT_FDCWD, name, flags, 0); }
int __openat_2(int folder, const char *name, int flags) { return opened("openat", folder, name, flags, 0); }
int __openat64_2(int folder, const char *name, int flags) { return opened("openat", folder, name, flags, 0); }
int creat(const char *name, mode_t mode) { return opened("creat", AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return opened("creat", AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

#define NEXT(type, name, ...) static type (*next)(__VA_ARGS__); if (next == NULL) next = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

FILE *fopen(const char *name, const char *mode) {
  NEXT(FILE *, "fopen", const char *, const char *);
  if (by_name(mode[0] == 'r' && strchr(mode, '+') == NULL ? OPEN : CREATE, "fopen", AT_FDCWD, name) == ERROR) { failed(); return NULL; }
  return next(name, mode);
}
FILE *fopen64(const char *name, const char *mode) { return fopen(name, mode); }

// --- write

ssize_t write(int fd, const void *data, size_t length) {
  switch (by_fd(WRITE, "write", fd)) {
    case ERROR: return failed();
    case SHORT: length = half(length); break;
    case TORN: syscall(SYS_write, fd, data, half(length)); syscall(SYS_kill, getpid(), SIGKILL);
    default: break;
  }
  return syscall(SYS_write, fd, data, length);
}

static ssize_t at(int fd, const void *data, size_t length, off_t offset) {
  switch (by_fd(WRITE, "pwrite", fd)) {
    case ERROR: return failed();
    case SHORT: length = half(length); break;
    case TORN: syscall(SYS_pwrite64, fd, data, half(length), offset); syscall(SYS_kill, getpid(), SIGKILL);
    default: break;
  }
  return syscall(SYS_pwrite64, fd, data, length, offset);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return at(fd, data, length, offset); }
ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) { return at(fd, data, length, offset); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
  switch (by_fd(WRITE, "writev", fd)) {
    case ERROR: return failed();
    case SHORT: return syscall(SYS_write, fd, parts[0].iov_base, half(parts[0].iov_len));
    case TORN: syscall(SYS_write, fd, parts[0].iov_base, half(parts[0].iov_len)); syscall(SYS_kill, getpid(), SIGKILL);
    default: break;
  }
  return syscall(SYS_writev, fd, parts, count);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t length) {
  switch (by_fd(WRITE, "sendfile", to)) {
    case ERROR: return failed();
    case SHORT: length = length > 64 ? 64 : half(length); break;
    case TORN: syscall(SYS_sendfile, to, from, offset, 64); syscall(SYS_kill, getpid(), SIGKILL);
    default: break;
  }
  return syscall(SYS_sendfile, to, from, offset, length);
}
ssize_t sendfile64(int to, int from, off_t *offset, size_t length) { return sendfile(to, from, offset, length); }

ssize_t copy_file_range(int from, off_t *in, int to, off_t *out, size_t length, unsigned flags) {
  switch (by_fd(WRITE, "copy_file_range", to)) {
    case ERROR: return failed();
    case SHORT: length = length > 64 ? 64 : half(length); break;
    case TORN: syscall(SYS_copy_file_range, from, in, to, out, 64, flags); syscall(SYS_kill, getpid(), SIGKILL);
    default: break;
  }
  return syscall(SYS_copy_file_range, from, in, to, out, length, flags);
}

int ftruncate(int fd, off_t length) {
  return by_fd(WRITE, "ftruncate", fd) == ERROR ? (int)failed() : (int)syscall(SYS_ftruncate, fd, length);
}
int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }
int posix_fallocate(int fd, off_t offset, off_t length) {
  if (by_fd(WRITE, "posix_fallocate", fd) == ERROR) return control->error;
  return syscall(SYS_fallocate, fd, 0, offset, length) == 0 ? 0 : errno;
}
int posix_fallocate64(int fd, off_t offset, off_t length) { return posix_fallocate(fd, offset, length); }

// stdio: an error that loses what is buffered, as one of write() below it would
static int flushed(const char *function, FILE *stream) {
  if (control == NULL || stream == NULL || __fpending(stream) == 0) return 0;
  enum kind kind = by_fd(WRITE, function, fileno(stream));
  if (kind == TORN) syscall(SYS_kill, getpid(), SIGKILL);
  if (kind != ERROR) return 0;
  __fpurge(stream);
  stream->_flags |= 0x20;  // glibc's mark of an error
  failed();
  return EOF;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
  NEXT(size_t, "fwrite", const void *, size_t, size_t, FILE *);
  if (control != NULL && size * count > 4096) {  // what is smaller goes by fflush or fclose
    enum kind kind = by_fd(WRITE, "fwrite", fileno(stream));
    if (kind == ERROR || kind == TORN) {
      next(data, size, count / 2, stream);
      if (kind == TORN) syscall(SYS_kill, getpid(), SIGKILL);
      stream->_flags |= 0x20;
      failed();
      return count / 2;
    }
  }
  return next(data, size, count, stream);
}

int fflush(FILE *stream) {
  NEXT(int, "fflush", FILE *);
  return flushed("fflush", stream) ? EOF : next(stream);
}

int fclose(FILE *stream) {
  NEXT(int, "fclose", FILE *);
  int lost = flushed("fclose", stream), before = errno, status = next(stream);
  if (lost) errno = before;
  return lost ? EOF : status;
}

int fsync(int fd) { return by_fd(FSYNC, "fsync", fd) == ERROR ? (int)failed() : (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return by_fd(FSYNC, "fdatasync", fd) == ERROR ? (int)failed() : (int)syscall(SYS_fdatasync, fd); }

// --- rename

static int renamed(const char *function, int folder, const char *from, int other, const char *to, unsigned flags) {
  if (by_name(RENAME, function, other, to) == ERROR) return (int)failed();
  return (int)syscall(SYS_renameat2, folder, from, other, to, flags);
}
int rename(const char *from, const char *to) { return renamed("rename", AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int folder, const char *from, int other, const char *to) { return renamed("renameat", folder, from, other, to, 0); }
int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
  return renamed("renameat2", folder, from, other, to, flags);
}

// --- mmap

static void *mapped(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  enum kind kind = fd >= 0 ? by_fd(MMAP, "mmap", fd) : NONE;
  if (kind == ERROR) { failed(); return MAP_FAILED; }
  if (kind != FLIP || protection & PROT_WRITE) return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
  void *map = (void *)syscall(SYS_mmap, address, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, offset);
  if (map == MAP_FAILED) return map;
  struct stat status;
  size_t size = fstat(fd, &status) == 0 && status.st_size > offset ? (size_t)(status.st_size - offset) : length;
  flip(map, (ssize_t)(size < length ? size : length));
  mprotect(map, length, protection);
  return map;
}
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  return mapped(address, length, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  return mapped(address, length, protection, flags, fd, offset);
}

// --- read

ssize_t read(int fd, void *data, size_t length) {
  enum kind kind = by_fd(READ, "read", fd);
  if (kind == ERROR) return failed();
  ssize_t got = syscall(SYS_read, fd, data, kind == SHORT ? half(length > 64 ? 64 : length) : length);
  if (kind == FLIP) flip(data, got);
  return got;
}
ssize_t __read_chk(int fd, void *data, size_t length, size_t size) { (void)size; return read(fd, data, length); }

ssize_t pread(int fd, void *data, size_t length, off_t offset) {
  enum kind kind = by_fd(READ, "pread", fd);
  if (kind == ERROR) return failed();
  ssize_t got = syscall(SYS_pread64, fd, data, kind == SHORT ? half(length > 64 ? 64 : length) : length, offset);
  if (kind == FLIP) flip(data, got);
  return got;
}
ssize_t pread64(int fd, void *data, size_t length, off_t offset) { return pread(fd, data, length, offset); }
ssize_t __pread64_chk(int fd, void *data, size_t length, off_t offset, size_t size) { (void)size; return pread(fd, data, length, offset); }

ssize_t readv(int fd, const struct iovec *parts, int count) {
  enum kind kind = by_fd(READ, "readv", fd);
  if (kind == ERROR) return failed();
  if (kind == SHORT) return syscall(SYS_read, fd, parts[0].iov_base, half(parts[0].iov_len));
  ssize_t got = syscall(SYS_readv, fd, parts, count);
  if (kind == FLIP && got > 0) flip(parts[0].iov_base, got < (ssize_t)parts[0].iov_len ? got : (ssize_t)parts[0].iov_len);
  return got;
}

size_t fread(void *data, size_t size, size_t count, FILE *stream) {
  NEXT(size_t, "fread", void *, size_t, size_t, FILE *);
  enum kind kind = control == NULL ? NONE : by_fd(READ, "fread", fileno(stream));
  if (kind == ERROR) {
    stream->_flags |= 0x20;
    failed();
    return 0;
  }
  size_t got = next(data, size, count, stream);  // a short read below it is stdio's to mend
  if (kind == FLIP) flip(data, (ssize_t)(got * size));
  return got;
}

// --- sockets; read and write come by here too

ssize_t send(int fd, const void *data, size_t length, int flags) {
  if (by_fd(SEND, "send", fd) == ERROR) return failed();
  return syscall(SYS_sendto, fd, data, length, flags, NULL, 0);
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  if (by_fd(SEND, "sendmsg", fd) == ERROR) return failed();
  return syscall(SYS_sendmsg, fd, message, flags);
}
ssize_t recv(int fd, void *data, size_t length, int flags) {
  if (by_fd(RECEIVE, "recv", fd) == ERROR) return failed();
  return syscall(SYS_recvfrom, fd, data, length, flags, NULL, NULL);
}
ssize_t __recv_chk(int fd, void *data, size_t length, size_t size, int flags) { (void)size; return recv(fd, data, length, flags); }
ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  if (by_fd(RECEIVE, "recvmsg", fd) == ERROR) return failed();
  return syscall(SYS_recvmsg, fd, message, flags);
}
