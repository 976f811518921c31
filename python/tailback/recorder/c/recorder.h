/* What the wrappers of MPI calls and the parts of the recorder share.
 *
 * A rank writes three kinds of files into a folder of its program, in the one that TAILBACK_RECORD
 * names: rank-R.meta, lines of text for what is rare (host, communicators, call sites, clock
 * offsets), rank-R.sizes, the bytes to each partner of collectives (sizes.c), and rank-R-T.events,
 * the records of thread T. A record is a header of 8 bytes and as many words of 8 bytes as its kind
 * has; python/tailback/recorder/c/convert.c reads them.
 */
#ifndef TAILBACK_RECORDER_H
#define TAILBACK_RECORDER_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "records.h"

struct tb_comm {
  uint64_t key;
  struct tb_comm *next;
  uint64_t name; /* the same on all its members */
  uint32_t id;
  int size; /* of the group this rank sends to: the remote one of an intercommunicator */
  int rank;
  int inter;
};

struct tb_thread {
  unsigned char *at, *end, *begin;
  int depth; /* inside a wrapper: MPI calls of the library itself are not recorded */
  int fd;
  uint32_t number;
  uint64_t comm_epoch;
  struct tb_comm *comm;
  uint64_t left;     /* processor time of the thread when it left the latest call, ns */
  uint64_t computed; /* processor time between that call and the present one, ns */
  struct tb_range *ranges; /* of the present call */
  uint32_t n_ranges, range_room;
  struct tb_thread *next;
};

struct tb_range { /* bytes of a connection that a call wrote */
  uint64_t first, bytes;
  uint32_t stream;
};

extern int tb_recording;
extern int tb_threaded;
extern int tb_alone; /* some ranks are not recorded */
extern int tb_shared; /* ranks of this host share cores: processor times are recorded, too */
extern int tb_ranges; /* the bytes that calls write to connections are recorded */
extern volatile uint64_t tb_comm_epoch;
extern __thread struct tb_thread *tb_self __attribute__((tls_model("initial-exec")));

/* Recorder (recorder.c) */
struct tb_thread *tb_new_thread(void);
void tb_flush(struct tb_thread *thread);
void tb_meta(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint32_t tb_new_site(void *address, unsigned region);
void tb_lock(void);
void tb_unlock(void);
void tb_start(uint64_t enter, uint64_t leave, uint16_t region, void *site);
void tb_finish(uint64_t enter, uint16_t region, void *site);
void tb_give_up(void);
int tb_world_rank(void);
int tb_create(const char *suffix); /* a file of this rank; its descriptor, negative: none */
void tb_stop(int reason); /* writes nothing any more; the recorder goes on as before */
int tb_write(int fd, const void *data, size_t bytes); /* whether all was written; else the last */
/* Which ranks are recorded (gather.c) */
const char *tb_program_folder(void); /* NULL: nothing is recorded */
int tb_decided_before(void); /* whether this folder is that of an earlier program */
int tb_all_recorded(int size); /* waits for the others, with a limit */
int tb_first_of_host(const char *host);
/* Clocks (clock.c) */
void tb_start_clocks(void);
void tb_compare_cores(MPI_Comm host); /* sets tb_shared */
/* Times messages between the ranks of a host (copies.c). */
void tb_time_copies(MPI_Comm host);
void tb_measure_again(struct tb_thread *, enum tb_collective_op, const struct tb_comm *);
void tb_end_clocks(void);
int tb_leads_host(void);
/* Communicators and windows (comms.c) */
struct tb_comm *tb_find_comm(MPI_Comm comm);
void tb_new_comm(MPI_Comm comm, MPI_Comm of);
void tb_forget_comm(MPI_Comm comm);
void tb_new_window(MPI_Win window, MPI_Comm comm);
void tb_forget_window(MPI_Win window);
uint32_t tb_find_window(MPI_Win window);
/* Counters of the host's adapters (counters.c) */
void tb_sample_counters(const char *folder);
void tb_stop_counters(void);
/* Statistics of network drivers (ethtool.c) */
void tb_find_driver(const char *interface);
int tb_has_drivers(void);
void tb_write_drivers(FILE *out, const char *now, const char *host, int all);

/* Bytes that calls write to TCP connections (streams.c) */
void tb_log_ranges(struct tb_thread *);
void tb_check_streams(void);
void tb_record_ranges(void); /* writes.c is loaded */
void tb_wrote(int fd, size_t bytes);
void tb_renew_socket(int fd); /* the descriptor is, or will be, of another socket */

static inline uint64_t tb_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Processor time of the calling thread. The clock is a system call, which the other one is not. */
static inline uint64_t tb_processor_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void tb_end_computation(struct tb_thread *thread) {
  if (__builtin_expect(tb_shared, 0)) thread->computed = tb_processor_time() - thread->left;
}

/* The thread's buffer, NULL where this call is not to be recorded. */
static inline struct tb_thread *tb_enter(void) {
  struct tb_thread *thread = tb_self;
  if (__builtin_expect(!tb_recording, 0)) return NULL;
  if (__builtin_expect(!thread, 0)) thread = tb_new_thread();
  if (!thread || thread->depth) return NULL;
  thread->depth = 1;
  tb_end_computation(thread);
  return thread;
}

static inline uint64_t *tb_put(struct tb_thread *thread, enum tb_kind kind, unsigned op,
                               unsigned region, uint32_t peer) {
  size_t bytes = 8 + 8 * (size_t)tb_words[kind];
  if (__builtin_expect(thread->at + bytes > thread->end, 0)) tb_flush(thread);
  struct tb_header *header = (struct tb_header *)thread->at;
  header->kind = (uint8_t)kind;
  header->op = (uint8_t)op;
  header->region = (uint16_t)region;
  header->peer = peer;
  thread->at += bytes;
  return (uint64_t *)(header + 1);
}

struct tb_site {
  void *address;
  uint32_t id;
};
#define TB_SITES 8192
extern struct tb_site tb_sites[TB_SITES];

static inline uint32_t tb_site_of(void *address, unsigned region) {
  size_t at = (size_t)(((uintptr_t)address * 0x9E3779B97F4A7C15ull) >> 51);
  struct tb_site *site = &tb_sites[at];
  /* The id is stored before the address. */
  if (__atomic_load_n(&site->address, __ATOMIC_ACQUIRE) == address) return site->id;
  return tb_new_site(address, region);
}

static inline void tb_call(struct tb_thread *thread, unsigned region, void *site, uint64_t enter,
                           uint64_t leave) {
  if (__builtin_expect(tb_shared, 0)) *tb_put(thread, TB_COMPUTED, 0, 0, 0) = thread->computed;
  uint64_t *word = tb_put(thread, TB_CALL, 0, region, tb_site_of(site, region));
  word[0] = enter;
  word[1] = leave;
  if (__builtin_expect(thread->n_ranges, 0)) tb_log_ranges(thread);
}

static inline void tb_exit(struct tb_thread *thread) {
  thread->depth = 0;
  thread->n_ranges = 0; /* of messages of the recorder itself */
  if (__builtin_expect(tb_shared, 0)) thread->left = tb_processor_time();
}

static inline uint64_t tb_key(const void *handle, size_t bytes) {
  uint64_t key = 0;
  memcpy(&key, handle, bytes < 8 ? bytes : 8);
  return key;
}
#define TB_KEY(handle) tb_key(&(handle), sizeof(handle))

static inline struct tb_comm *tb_comm_of(struct tb_thread *thread, MPI_Comm comm) {
  uint64_t key = TB_KEY(comm);
  if (thread->comm && thread->comm->key == key && thread->comm_epoch == tb_comm_epoch)
    return thread->comm;
  thread->comm_epoch = tb_comm_epoch;
  return thread->comm = tb_find_comm(comm);
}

static inline uint64_t tb_bytes(long long count, MPI_Datatype datatype) {
  int size = 0;
  if (count <= 0 || datatype == MPI_DATATYPE_NULL) return 0;
  PMPI_Type_size(datatype, &size);
  if (__builtin_expect(size < 0, 0)) { /* MPI_UNDEFINED: more than an int can say */
    MPI_Count large = 0;
    PMPI_Type_size_x(datatype, &large);
    return (uint64_t)count * (uint64_t)(large > 0 ? large : 0);
  }
  return (uint64_t)count * (uint64_t)size;
}

/* What happened in a call (messages.c): recorded after it. */
void tb_send(struct tb_thread *, MPI_Comm, int dest, int tag, long long count, MPI_Datatype);
void tb_receive(struct tb_thread *, MPI_Comm, const MPI_Status *);
void tb_post_send(struct tb_thread *, MPI_Request, MPI_Comm, int dest, int tag, long long count,
                  MPI_Datatype);
void tb_post_receive(struct tb_thread *, MPI_Request, MPI_Comm, int source);
struct tb_pair { /* the send and the receive of MPI_Isendrecv */
  int dest, tag;
  long long count;
  MPI_Datatype type;
  int source, source_tag;
  long long receives;
  MPI_Datatype receive_type;
};
void tb_post_pair(struct tb_thread *, MPI_Request, MPI_Comm, const struct tb_pair *);
void tb_init_send(MPI_Request, MPI_Comm, int dest, int tag, long long count, MPI_Datatype);
void tb_init_receive(MPI_Request, MPI_Comm, int source);
void tb_init_partitioned(MPI_Request, MPI_Comm, int peer, int tag, long long count, MPI_Datatype,
                         enum tb_kind);
void tb_begin_request(struct tb_thread *, MPI_Request);
void tb_complete(struct tb_thread *, MPI_Request, const MPI_Status *);
void tb_forget_request(MPI_Request);
void tb_matched(MPI_Message, MPI_Comm);
void tb_receive_matched(struct tb_thread *, MPI_Message, const MPI_Status *);
void tb_post_matched(struct tb_thread *, MPI_Request, MPI_Message);
void tb_rma(struct tb_thread *, MPI_Win, int target, enum tb_rma_op, long long count, MPI_Datatype);
void tb_sync(struct tb_thread *, MPI_Win, int target, int is_fence);

struct tb_vectors {
  const void *send, *receive; /* counts: int, or MPI_Count if wide */
  const MPI_Datatype *send_types, *receive_types;
  int wide;
};
struct tb_collective {
  MPI_Comm comm;
  enum tb_collective_op op;
  int root;
  long long sends, receives; /* counts */
  MPI_Datatype send_type, receive_type;
  struct tb_vectors vectors;
  int in_place;
};

/* What a rank moves in one collective (collectives.c). */
struct tb_moved {
  uint64_t sent, received; /* bytes, in total */
  uint32_t sizes; /* number of the vector of bytes to each partner, 0: all are equal, or no vector */
};
struct tb_moved tb_moved_by(const struct tb_collective *, const struct tb_comm *);
/* Counts and types of the parts for each of n partners, and the bytes they make (sizes.c). */
struct tb_parts {
  const void *counts; /* NULL: none */
  const MPI_Datatype *types; /* NULL: all of this type */
  MPI_Datatype type;
  int wide;
  uint64_t n;
};
uint64_t tb_total(const struct tb_parts *);
uint32_t tb_number_sizes(const struct tb_parts *, uint64_t *total);
void tb_flush_sizes(void);
void tb_collect(struct tb_thread *, const struct tb_collective *);
void tb_post_collective(struct tb_thread *, MPI_Request, const struct tb_collective *);
void tb_init_collective(MPI_Request, const struct tb_collective *);

/* A neighbourhood collective, as messages (neighbours.c). */
struct tb_part {
  int peer;
  uint64_t channel; /* comm << 32 | tag */
  uint64_t bytes;
};
struct tb_exchange {
  int ins, messages; /* receives come first; without those of MPI_PROC_NULL */
  struct tb_part part[];
};
struct tb_exchange *tb_exchange_of(struct tb_thread *, const struct tb_collective *); /* to free */
void tb_post_exchange(struct tb_thread *, const struct tb_exchange *, uint64_t first);
void tb_complete_exchange(struct tb_thread *, const struct tb_exchange *, uint64_t first);
void tb_neighbours(struct tb_thread *, const struct tb_collective *);
void tb_post_neighbours(struct tb_thread *, MPI_Request, const struct tb_collective *);
void tb_init_neighbours(struct tb_thread *, MPI_Request, const struct tb_collective *);
MPI_Datatype *tb_neighbour_types(const MPI_Fint *types, MPI_Comm, int sends); /* to free */
uint64_t tb_new_ids(uint64_t n); /* numbers of n requests; returns the first */
int tb_is_in_place(const void *buffer);

#endif
