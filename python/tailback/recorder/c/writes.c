/* Tells the recorder what a program writes to descriptors: preloaded beside it, and only then does
 * any call of the C library pass through here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

extern void tb_record_ranges(void) __attribute__((weak));
extern void tb_wrote(int fd, size_t bytes) __attribute__((weak));
extern void tb_renew_socket(int fd) __attribute__((weak));

#define NEXT(name)                          \
  static __typeof__(&name) next;            \
  if (!next) next = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void start(void) {
  if (tb_record_ranges) tb_record_ranges();
}

static ssize_t told(int fd, ssize_t done) {
  if (done > 0 && tb_wrote) tb_wrote(fd, (size_t)done);
  return done;
}

static int renewed(int fd) {
  if (fd >= 0 && tb_renew_socket) tb_renew_socket(fd);
  return fd;
}

ssize_t write(int fd, const void *data, size_t bytes) {
  NEXT(write);
  return told(fd, next(fd, data, bytes));
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
  NEXT(writev);
  return told(fd, next(fd, parts, n));
}

ssize_t send(int fd, const void *data, size_t bytes, int flags) {
  NEXT(send);
  return told(fd, next(fd, data, bytes, flags));
}

ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to,
               socklen_t size) {
  NEXT(sendto);
  return told(fd, next(fd, data, bytes, flags, to, size));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  NEXT(sendmsg);
  return told(fd, next(fd, message, flags));
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags) {
  NEXT(sendmmsg);
  int done = next(fd, messages, n, flags);
  for (int i = 0; i < done; i++) told(fd, (ssize_t)messages[i].msg_len);
  return done;
}

int socket(int domain, int type, int protocol) {
  NEXT(socket);
  return renewed(next(domain, type, protocol));
}

int accept(int fd, struct sockaddr *from, socklen_t *size) {
  NEXT(accept);
  return renewed(next(fd, from, size));
}

int accept4(int fd, struct sockaddr *from, socklen_t *size, int flags) {
  NEXT(accept4);
  return renewed(next(fd, from, size, flags));
}

int close(int fd) {
  NEXT(close);
  renewed(fd);
  return next(fd);
}
