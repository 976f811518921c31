/* Messages, requests, matched probes, collectives: what the wrappers record after a call. */
#include "recorder.h"

#include <pthread.h>

struct request {
  uint64_t key;
  struct request *next;
  uint64_t id, bytes, received;
  MPI_Comm comm;
  int peer, tag;
  int source, source_tag; /* of the receive of a pair */
  uint32_t sizes;         /* of a collective */
  const struct tb_thread *by; /* thread that posted it */
  struct tb_exchange *exchange; /* of a neighbourhood collective, else NULL */
  enum tb_kind kind; /* of its completion */
  uint8_t op, persistent, active, partitioned;
  uint8_t pair; /* a send and a receive in one request: MPI_Isendrecv */
};

/* Some libraries give every send that is done at once the same handle, so a key may be there many
 * times; they are all complete, and it does not matter which of them is taken. */
static struct request **table, *spare;
static size_t n_buckets, n_requests;
static uint64_t n_ids;

/* Its own: communicators are looked up while it is held. */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) {
  if (tb_threaded) pthread_mutex_lock(&guard);
}

static void unlock(void) {
  if (tb_threaded) pthread_mutex_unlock(&guard);
}

static size_t bucket(uint64_t key, size_t buckets) {
  return (size_t)((key * 0x9E3779B97F4A7C15ull) >> 32) & (buckets - 1);
}

static void grow(void) {
  size_t more = n_buckets ? n_buckets * 2 : 1024;
  struct request **wider = calloc(more, sizeof *wider);
  if (!wider) abort();
  for (size_t i = 0; i < n_buckets; i++)
    for (struct request *one = table[i], *next; one; one = next) {
      next = one->next;
      struct request **at = &wider[bucket(one->key, more)];
      one->next = *at;
      *at = one;
    }
  free(table);
  table = wider;
  n_buckets = more;
}

static struct request *add(uint64_t key, MPI_Comm comm, int peer, int tag, enum tb_kind kind) {
  if (n_requests >= n_buckets) grow();
  struct request *one = spare;
  if (one)
    spare = one->next;
  else if (!(one = malloc(sizeof *one)))
    abort();
  struct request **at = &table[bucket(key, n_buckets)];
  *one = (struct request){.key = key, .next = *at, .comm = comm, .peer = peer, .tag = tag,
                          .kind = kind};
  *at = one;
  n_requests++;
  return one;
}

static struct request **find(uint64_t key) {
  if (!n_buckets) grow();
  struct request **at = &table[bucket(key, n_buckets)];
  while (*at && (*at)->key != key) at = &(*at)->next;
  return at;
}

/* The request that `thread` found complete. A library may give its handle to another thread's new
 * request before this thread gets here. Of two with one handle, that of this thread is meant, which
 * threads that wait for their own requests have; else the older one. */
static struct request **find_complete(const struct tb_thread *thread, uint64_t key) {
  struct request **found = find(key);
  if (!tb_threaded || !*found) return found;
  int mine = 0;
  for (struct request **at = found; *at; at = &(*at)->next) {
    if ((*at)->key != key || !(*at)->active || (mine && (*at)->by != thread)) continue;
    mine = (*at)->by == thread;
    found = at; /* The chain starts with the newest. */
  }
  return found;
}

static void drop(struct request **at) {
  struct request *one = *at;
  *at = one->next;
  free(one->exchange);
  one->next = spare;
  spare = one;
  n_requests--;
}

uint64_t tb_new_ids(uint64_t n) {
  lock();
  uint64_t first = n_ids + 1;
  n_ids += n;
  unlock();
  return first;
}

static uint64_t channel(struct tb_thread *thread, MPI_Comm comm, int tag) {
  return (uint64_t)tb_comm_of(thread, comm)->id << 32 | (uint32_t)tag;
}

void tb_send(struct tb_thread *thread, MPI_Comm comm, int dest, int tag, long long count,
             MPI_Datatype datatype) {
  if (dest == MPI_PROC_NULL) return;
  uint64_t at = channel(thread, comm, tag);
  uint64_t *word = tb_put(thread, TB_SEND, 0, 0, (uint32_t)dest);
  word[0] = at;
  word[1] = tb_bytes(count, datatype);
}

static uint64_t bytes_of(const MPI_Status *status) {
  int count = 0;
  PMPI_Get_count(status, MPI_BYTE, &count);
  if (count >= 0) return (uint64_t)count;
  MPI_Count large = 0;
  PMPI_Get_elements_x(status, MPI_BYTE, &large);
  return large > 0 ? (uint64_t)large : 0;
}

void tb_receive(struct tb_thread *thread, MPI_Comm comm, const MPI_Status *status) {
  if (status->MPI_SOURCE == MPI_PROC_NULL || status->MPI_SOURCE < 0) return;
  uint64_t at = channel(thread, comm, status->MPI_TAG);
  uint64_t *word = tb_put(thread, TB_RECEIVE, 0, 0, (uint32_t)status->MPI_SOURCE);
  word[0] = at;
  word[1] = bytes_of(status);
}

static void put_isend(struct tb_thread *thread, const struct request *one, uint64_t id) {
  uint64_t at = channel(thread, one->comm, one->tag);
  uint64_t *word = tb_put(thread, TB_ISEND, 0, 0, (uint32_t)one->peer);
  word[0] = at;
  word[1] = one->bytes;
  word[2] = id;
}

static void begin(struct tb_thread *thread, struct request *one) {
  one->id = n_ids + 1;
  n_ids += one->exchange ? (uint64_t)one->exchange->messages : 1u + one->pair;
  one->by = thread;
  one->active = 1;
  if (one->exchange)
    tb_post_exchange(thread, one->exchange, one->id);
  else if (one->kind == TB_SENT)
    put_isend(thread, one, one->id);
  else if (one->kind == TB_IRECEIVE)
    *tb_put(thread, TB_RECEIVING, 0, 0, 0) = one->id;
  else
    *tb_put(thread, TB_COLLECTING, 0, 0, 0) = one->id;
  if (one->pair && one->peer != MPI_PROC_NULL) put_isend(thread, one, one->id + 1);
}

void tb_post_send(struct tb_thread *thread, MPI_Request request, MPI_Comm comm, int dest, int tag,
                  long long count, MPI_Datatype datatype) {
  if (dest == MPI_PROC_NULL) return;
  lock();
  struct request *one = add(TB_KEY(request), comm, dest, tag, TB_SENT);
  one->bytes = tb_bytes(count, datatype);
  begin(thread, one);
  unlock();
}

void tb_post_receive(struct tb_thread *thread, MPI_Request request, MPI_Comm comm, int source) {
  if (source == MPI_PROC_NULL) return;
  lock();
  begin(thread, add(TB_KEY(request), comm, source, 0, TB_IRECEIVE));
  unlock();
}

void tb_post_pair(struct tb_thread *thread, MPI_Request request, MPI_Comm comm,
                  const struct tb_pair *pair) {
  if (pair->source == MPI_PROC_NULL) {
    tb_post_send(thread, request, comm, pair->dest, pair->tag, pair->count, pair->type);
    return;
  }
  lock();
  struct request *one = add(TB_KEY(request), comm, pair->dest, pair->tag, TB_IRECEIVE);
  one->pair = 1;
  one->bytes = tb_bytes(pair->count, pair->type);
  one->source = pair->source;
  one->source_tag = pair->source_tag;
  one->received = tb_bytes(pair->receives, pair->receive_type);
  begin(thread, one);
  unlock();
}

static void init(MPI_Request request, MPI_Comm comm, int peer, int tag, uint64_t bytes,
                 enum tb_kind kind, int partitioned) {
  if (peer == MPI_PROC_NULL) return;
  lock();
  struct request *one = add(TB_KEY(request), comm, peer, tag, kind);
  one->bytes = bytes;
  one->persistent = 1;
  one->partitioned = (uint8_t)partitioned;
  unlock();
}

void tb_init_send(MPI_Request request, MPI_Comm comm, int dest, int tag, long long count,
                  MPI_Datatype datatype) {
  init(request, comm, dest, tag, tb_bytes(count, datatype), TB_SENT, 0);
}

void tb_init_receive(MPI_Request request, MPI_Comm comm, int source) {
  init(request, comm, source, 0, 0, TB_IRECEIVE, 0);
}

/* All partitions together are one message. Its receive allows no wildcards. */
void tb_init_partitioned(MPI_Request request, MPI_Comm comm, int peer, int tag, long long count,
                         MPI_Datatype datatype, enum tb_kind kind) {
  init(request, comm, peer, tag, tb_bytes(count, datatype), kind, 1);
}

void tb_begin_request(struct tb_thread *thread, MPI_Request request) {
  lock();
  struct request *one = *find(TB_KEY(request));
  if (one && one->persistent && !one->active) begin(thread, one);
  unlock();
}

static void put_receive(struct tb_thread *thread, const struct request *one, int source, int tag,
                        uint64_t bytes) {
  uint64_t from = channel(thread, one->comm, tag);
  uint64_t *word = tb_put(thread, TB_IRECEIVE, 0, 0, (uint32_t)source);
  word[0] = from;
  word[1] = bytes;
  word[2] = one->id;
}

/* Whether the status of MPI_Isendrecv is that of its receive: MPICH 4 and 5 do not fill it. */
#ifdef OPEN_MPI
static const int fills_pairs = 1;
#else
static const int fills_pairs = 0;
#endif

/* Where the bytes to each partner of the next collective are. */
static void put_sizes(struct tb_thread *thread, uint32_t sizes) {
  if (sizes) *tb_put(thread, TB_SIZES, 0, 0, 0) = sizes;
}

static void put_completion(struct tb_thread *thread, const struct request *one,
                           const MPI_Status *status) {
  int cancelled = 0;
  if (one->exchange) {
    tb_complete_exchange(thread, one->exchange, one->id);
    return;
  }
  if (one->kind == TB_COLLECTED) {
    uint32_t comm = tb_comm_of(thread, one->comm)->id;
    put_sizes(thread, one->sizes);
    uint64_t *word = tb_put(thread, TB_COLLECTED, one->op, 0, (uint32_t)one->peer);
    word[0] = comm;
    word[1] = one->bytes;
    word[2] = one->received;
    word[3] = one->id;
    return;
  }
  if (one->kind == TB_SENT) {
    *tb_put(thread, TB_SENT, 0, 0, 0) = one->id;
    return;
  }
  if (one->partitioned) {
    /* Libraries do not fill the status alike. */
    put_receive(thread, one, one->peer, one->tag, one->bytes);
    return;
  }
  if (one->pair) {
    if (one->peer != MPI_PROC_NULL) *tb_put(thread, TB_SENT, 0, 0, 0) = one->id + 1;
    if (!fills_pairs) {
      /* A wildcard stays open: readers find the message that nobody else receives. */
      if (one->source != MPI_ANY_SOURCE && one->source_tag != MPI_ANY_TAG)
        put_receive(thread, one, one->source, one->source_tag, one->received);
      return;
    }
  }
  PMPI_Test_cancelled(status, &cancelled);
  if (cancelled || status->MPI_SOURCE < 0) {
    *tb_put(thread, TB_CANCELLED, 0, 0, 0) = one->id;
    return;
  }
  put_receive(thread, one, status->MPI_SOURCE, status->MPI_TAG, bytes_of(status));
}

/* A request that a Wait or Test call found complete. */
void tb_complete(struct tb_thread *thread, MPI_Request request, const MPI_Status *status) {
  if (request == MPI_REQUEST_NULL) return;
  lock();
  struct request **at = find_complete(thread, TB_KEY(request)), *one = *at;
  if (one && one->active) {
    one->active = 0;
    put_completion(thread, one, status);
    if (!one->persistent) drop(at);
  }
  unlock();
}

/* MPI_Request_free: nobody will learn when it completes. */
void tb_forget_request(MPI_Request request) {
  if (request == MPI_REQUEST_NULL) return;
  lock();
  struct request **at = find(TB_KEY(request));
  if (*at) drop(at);
  unlock();
}

/* Messages that a matched probe took out of the queue, by their handle. */
void tb_matched(MPI_Message message, MPI_Comm comm) {
  if (message == MPI_MESSAGE_NO_PROC || message == MPI_MESSAGE_NULL) return;
  lock();
  add(~TB_KEY(message), comm, 0, 0, TB_RECEIVE);
  unlock();
}

static MPI_Comm take_message(MPI_Message message) {
  MPI_Comm comm = MPI_COMM_NULL;
  lock();
  struct request **at = find(~TB_KEY(message));
  if (*at) {
    comm = (*at)->comm;
    drop(at);
  }
  unlock();
  return comm;
}

void tb_receive_matched(struct tb_thread *thread, MPI_Message message, const MPI_Status *status) {
  MPI_Comm comm = take_message(message);
  if (comm != MPI_COMM_NULL) tb_receive(thread, comm, status);
}

void tb_post_matched(struct tb_thread *thread, MPI_Request request, MPI_Message message) {
  MPI_Comm comm = take_message(message);
  if (comm != MPI_COMM_NULL) tb_post_receive(thread, request, comm, MPI_ANY_SOURCE);
}

void tb_rma(struct tb_thread *thread, MPI_Win window, int target, enum tb_rma_op op,
            long long count, MPI_Datatype datatype) {
  uint32_t id = tb_find_window(window);
  if (target == MPI_PROC_NULL || id == UINT32_MAX) return;
  uint64_t *word = tb_put(thread, TB_RMA, op, 0, (uint32_t)target);
  word[0] = id;
  word[1] = tb_bytes(count, datatype);
}

/* A call that opens or closes an epoch; target: of a lock or flush, else -1. */
void tb_sync(struct tb_thread *thread, MPI_Win window, int target, int is_fence) {
  uint32_t id = tb_find_window(window);
  if (id == UINT32_MAX) return;
  tb_put(thread, TB_SYNC, (uint8_t)is_fence, 0, (uint32_t)target)[0] = id;
}

/* Collectives ---------------------------------------------------------------------------------- */

void tb_collect(struct tb_thread *thread, const struct tb_collective *call) {
  struct tb_comm *comm = tb_comm_of(thread, call->comm);
  struct tb_moved moved = tb_moved_by(call, comm);
  put_sizes(thread, moved.sizes);
  uint64_t *word = tb_put(thread, TB_COLLECTIVE, call->op, 0, (uint32_t)call->root);
  word[0] = comm->id;
  word[1] = moved.sent;
  word[2] = moved.received;
  tb_measure_again(thread, call->op, comm);
}

static struct request *add_collective(MPI_Request request, const struct tb_collective *call,
                                      const struct tb_moved *moved) {
  struct request *one = add(TB_KEY(request), call->comm, call->root, 0, TB_COLLECTED);
  one->bytes = moved->sent;
  one->received = moved->received;
  one->sizes = moved->sizes;
  one->op = (uint8_t)call->op;
  return one;
}

void tb_post_collective(struct tb_thread *thread, MPI_Request request,
                        const struct tb_collective *call) {
  struct tb_moved moved = tb_moved_by(call, tb_comm_of(thread, call->comm));
  lock();
  begin(thread, add_collective(request, call, &moved));
  unlock();
}

void tb_init_collective(MPI_Request request, const struct tb_collective *call) {
  struct tb_moved moved = tb_moved_by(call, tb_find_comm(call->comm));
  lock();
  add_collective(request, call, &moved)->persistent = 1;
  unlock();
}

static void add_neighbours(struct tb_thread *thread, MPI_Request request,
                           const struct tb_collective *call, int persistent) {
  struct tb_exchange *all = tb_exchange_of(thread, call);
  if (!all->messages) {
    free(all);
    return;
  }
  lock();
  struct request *one = add(TB_KEY(request), call->comm, 0, 0, TB_NOTHING);
  one->exchange = all;
  one->persistent = (uint8_t)persistent;
  if (!persistent) begin(thread, one);
  unlock();
}

void tb_post_neighbours(struct tb_thread *thread, MPI_Request request,
                        const struct tb_collective *call) {
  add_neighbours(thread, request, call, 0);
}

void tb_init_neighbours(struct tb_thread *thread, MPI_Request request,
                        const struct tb_collective *call) {
  add_neighbours(thread, request, call, 1);
}
