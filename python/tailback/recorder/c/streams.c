/* Which bytes of its TCP connections each MPI call writes.
 *
 * writes.c, which is preloaded only with this recording, reports what the C library writes to
 * descriptors. A byte's number in its connection counts from the first after the SYN, so a packet in
 * a capture has it as its sequence number less that of the SYN and 1.
 */
#define _GNU_SOURCE
#include "recorder.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#define DESCRIPTORS 65536 /* those above are not recorded: few programs may open as many */

enum kind { UNSEEN, OTHER, CONNECTION };

struct stream {
  uint64_t end; /* bytes written so far */
  uint32_t number;
  uint8_t kind, named;
};

int tb_ranges;
static struct stream streams[DESCRIPTORS];
static uint32_t n_streams;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

void tb_record_ranges(void) { tb_ranges = 1; }

/* Bytes that were ever written to a connection, by the system; whether it tells (Linux 4.19). */
static int written(int fd, uint64_t *bytes) {
  struct tcp_info info;
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size)) return 0;
  if (size < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans)
    return 0;
  *bytes = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
  return 1;
}

/* An address as captures have it: IPv4 also where the socket is of IPv6. */
static int text_of(const struct sockaddr_storage *at, char *text, unsigned *port) {
  const struct sockaddr_in *v4 = (const void *)at;
  const struct sockaddr_in6 *v6 = (const void *)at;
  if (at->ss_family == AF_INET) {
    *port = ntohs(v4->sin_port);
    return inet_ntop(AF_INET, &v4->sin_addr, text, INET6_ADDRSTRLEN) != NULL;
  }
  if (at->ss_family != AF_INET6) return 0;
  *port = ntohs(v6->sin6_port);
  int mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
  const void *address = mapped ? v6->sin6_addr.s6_addr + 12 : v6->sin6_addr.s6_addr;
  return inet_ntop(mapped ? AF_INET : AF_INET6, address, text, INET6_ADDRSTRLEN) != NULL;
}

/* Writes the ends of a connection into the text file, once. */
static void name(int fd, struct stream *stream) {
  struct sockaddr_storage ends[2];
  char text[2][INET6_ADDRSTRLEN];
  unsigned port[2];
  socklen_t size = sizeof ends[0], peer_size = sizeof ends[1];
  if (stream->named) return;
  stream->named = 1;
  if (getsockname(fd, (struct sockaddr *)&ends[0], &size) ||
      getpeername(fd, (struct sockaddr *)&ends[1], &peer_size))
    return;
  for (int end = 0; end < 2; end++)
    if (!text_of(&ends[end], text[end], &port[end])) return;
  tb_meta("stream %u %s %u %s %u", stream->number, text[0], port[0], text[1], port[1]);
}

/* What a descriptor is, at its first write: of this many bytes, which the system has counted. */
static int kind_of(int fd, struct stream *stream, size_t bytes) {
  uint64_t total;
  if (stream->kind != UNSEEN) return stream->kind;
  int kind = written(fd, &total) ? CONNECTION : OTHER;
  if (kind == CONNECTION) {
    pthread_mutex_lock(&guard);
    *stream = (struct stream){.end = total - bytes, .number = n_streams++, .kind = CONNECTION};
    pthread_mutex_unlock(&guard);
  } else {
    stream->kind = OTHER;
  }
  return kind;
}

static void note(struct tb_thread *thread, const struct stream *stream, uint64_t first,
                 size_t bytes) {
  /* A call mostly goes on where it stopped. */
  for (uint32_t i = thread->n_ranges; i-- > 0;) {
    struct tb_range *range = &thread->ranges[i];
    if (range->stream != stream->number) continue;
    if (range->first + range->bytes != first) break;
    range->bytes += bytes;
    return;
  }
  if (thread->n_ranges == thread->range_room) {
    uint32_t room = thread->range_room ? 2 * thread->range_room : 16;
    struct tb_range *more = realloc(thread->ranges, room * sizeof *more);
    if (!more) abort();
    thread->ranges = more;
    thread->range_room = room;
  }
  thread->ranges[thread->n_ranges++] = (struct tb_range){first, bytes, stream->number};
}

void tb_wrote(int fd, size_t bytes) {
  struct tb_thread *thread = tb_self;
  int error = errno;
  if (fd < 0 || fd >= DESCRIPTORS) return;
  struct stream *stream = &streams[fd];
  if (kind_of(fd, stream, bytes) == CONNECTION) {
    pthread_mutex_lock(&guard);
    uint64_t first = stream->end;
    stream->end += bytes;
    pthread_mutex_unlock(&guard);
    if (tb_recording) {
      name(fd, stream);
      if (thread && thread->depth) note(thread, stream, first, bytes);
    }
  }
  errno = error;
}

void tb_log_ranges(struct tb_thread *thread) {
  for (uint32_t i = 0; i < thread->n_ranges; i++) {
    uint64_t *word = tb_put(thread, TB_WROTE, 0, 0, thread->ranges[i].stream);
    word[0] = thread->ranges[i].first;
    word[1] = thread->ranges[i].bytes;
  }
  thread->n_ranges = 0;
}

/* Bytes that came past the C library, as by io_uring, make the numbers of a connection wrong. */
static void check(int fd, struct stream *stream) {
  uint64_t total;
  if (stream->kind != CONNECTION) return;
  name(fd, stream);
  if (written(fd, &total) && total != stream->end) tb_meta("stream_gap %u", stream->number);
}

void tb_check_streams(void) {
  for (int fd = 0; tb_ranges && fd < DESCRIPTORS; fd++) check(fd, &streams[fd]);
}

void tb_renew_socket(int fd) {
  int error = errno;
  if (fd < 0 || fd >= DESCRIPTORS) return;
  if (tb_ranges && tb_recording) check(fd, &streams[fd]);
  streams[fd].kind = UNSEEN;
  errno = error;
}
