/* Marks the sockets of MPI processes with rank + 1, so that receivers know whose samples they have.
 * What a listening socket accepts inherits its mark. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int socket(int domain, int type, int protocol) {
  int made = (int)syscall(SYS_socket, domain, type, protocol);
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (made >= 0 && rank != NULL && (domain == AF_INET || domain == AF_INET6)) {
    int before = errno;
    unsigned mark = (unsigned)atoi(rank) + 1;
    setsockopt(made, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
    errno = before;
  }
  return made;
}
