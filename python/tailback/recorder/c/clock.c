/* Clocks of hosts against that of rank 0: the round trip that was shortest tells the offset.
 *
 * Ranks that share memory share CLOCK_MONOTONIC_RAW, so one rank of each host asks for all of it.
 * Measured at start and end, and now and then after a collective of all ranks, where these have just
 * waited for one another; OTF2 draws a line from each measurement to the next.
 *
 * Nobody waits without a limit: a rank may never come (it calls MPI by names that the recorder does
 * not see, say). A measurement is then missing, and the run goes on.
 */
#include "recorder.h"

#include <sched.h>

#define ROUNDS 20
/* A tag for each measurement: a late question of one is not taken for one of the next. */
enum { TAG_PLAN = 1, TAG_START, TAG_END, TAG_AGAIN, TAGS_AGAIN = 4096 };
/* Measurements in between take at most this share of the time, but are not more seldom than that:
 * a host that was busy at the start would put them off for good. */
#define ONE_IN 1000
#define SELDOM 3
/* Rank 0 announces a measurement this many collectives before it: the others know of it in time. */
#define AHEAD 3

#define SECOND 1000000000ull
#define START_LIMIT (60 * SECOND)
#define AGAIN_LIMIT (5 * SECOND)
#define ANSWER_LIMIT (5 * SECOND)
/* At the end, ranks wait for one another as long as the run took, within these. */
#define END_LEAST (10 * SECOND)
#define END_MOST (300 * SECOND)

static int leads, hosts = 1, own, world_size = 1;
static MPI_Comm leaders = MPI_COMM_NULL;
static int planned, given_up;
static uint64_t seen, plan, begun, last_time, took = UINT64_MAX, every_ns = 30 * SECOND;

int tb_leads_host(void) { return leads; }

static void rest(unsigned tries) {
  struct timespec nap = {0, 50000};
  if (tries > 20000)
    nanosleep(&nap, NULL);
  else if (tries > 200)
    sched_yield();
}

struct pending {
  MPI_Request request;
  uint64_t value;
};

/* Whether the value has left before the deadline; if it has not, its buffer stays. */
static int send_by(uint64_t deadline, uint64_t value, int peer, int tag) {
  struct pending *one = malloc(sizeof *one);
  if (!one) return 0;
  one->value = value;
  PMPI_Isend(&one->value, 1, MPI_UINT64_T, peer, tag, leaders, &one->request);
  for (unsigned tries = 0;; tries++) {
    int done = 0;
    PMPI_Test(&one->request, &done, MPI_STATUS_IGNORE);
    if (done) break;
    if (tb_now() > deadline) return 0;
    rest(tries);
  }
  free(one);
  return 1;
}

/* The rank a value came from, negative at the deadline. */
static int receive_by(uint64_t deadline, uint64_t *value, int peer, int tag) {
  for (unsigned tries = 0;; tries++) {
    int there = 0;
    MPI_Status status;
    PMPI_Iprobe(peer, tag, leaders, &there, &status);
    if (there) {
      PMPI_Recv(value, 1, MPI_UINT64_T, status.MPI_SOURCE, tag, leaders, MPI_STATUS_IGNORE);
      return status.MPI_SOURCE;
    }
    if (tb_now() > deadline) return -1;
    rest(tries);
  }
}

/* Answers the ranks of all other hosts in the order in which they ask. Returns whether all did, and
 * what the rounds take on hosts that are not busy: the shortest, times their number. */
static int answer_all(uint64_t deadline, int tag, uint64_t *rounds_ns) {
  *rounds_ns = 0;
  for (int peer = 1; peer < hosts; peer++) {
    uint64_t value, before = 0, shortest = UINT64_MAX / ROUNDS;
    int from = receive_by(deadline, &value, MPI_ANY_SOURCE, tag);
    if (from < 0) return 0;
    for (int round = 0; round < ROUNDS; round++) {
      uint64_t limit = tb_now() + ANSWER_LIMIT;
      if (round && receive_by(limit, &value, from, tag) < 0) return 0;
      uint64_t time = tb_now();
      if (before && time - before < shortest) shortest = time - before;
      before = time;
      if (!send_by(limit, time, from, tag)) return 0;
    }
    *rounds_ns += ROUNDS * shortest;
  }
  return 1;
}

/* found: own time, what rank 0's clock has more than ours, the round trip. */
static int ask(uint64_t deadline, int tag, int64_t found[3]) {
  found[2] = INT64_MAX;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t theirs, from = tb_now();
    uint64_t limit = round ? from + ANSWER_LIMIT : deadline;
    if (!send_by(limit, from, 0, tag) || receive_by(limit, &theirs, 0, tag) < 0) return 0;
    uint64_t to = tb_now();
    if ((int64_t)(to - from) < found[2]) {
      uint64_t middle = from + (to - from) / 2;
      found[0] = (int64_t)middle;
      found[1] = (int64_t)(theirs - middle);
      found[2] = (int64_t)(to - from);
    }
  }
  return 1;
}

static void measure(uint64_t limit, int tag) {
  uint64_t rounds_ns = 0, deadline = tb_now() + limit;
  int64_t found[3] = {(int64_t)tb_now(), 0, 0};
  int complete;
  if (own == 0) {
    complete = answer_all(deadline, tag, &rounds_ns);
    if (complete && rounds_ns < took) took = rounds_ns;
  } else {
    complete = ask(deadline, tag, found);
  }
  last_time = tb_now();
  /* What rank 0 says of its own clock is true in any case. */
  if (complete || own == 0)
    tb_meta("offset %lld %lld %lld", (long long)found[0], (long long)found[1],
            (long long)found[2]);
  if (!complete) given_up = 1;
}

/* All ranks of the world take part. */
void tb_start_clocks(void) {
  MPI_Comm host;
  int local, leader = tb_world_rank();
  const char *seconds = getenv("TAILBACK_RECORD_CLOCKS");
  if (seconds && *seconds) every_ns = (uint64_t)(atof(seconds) * 1e9);
  PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
  PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  PMPI_Comm_rank(host, &local);
  PMPI_Bcast(&leader, 1, MPI_INT, 0, host);
  tb_compare_cores(host);
  tb_time_copies(host);
  PMPI_Comm_free(&host);
  leads = local == 0;
  tb_meta("clock_of %d", leader);
  PMPI_Comm_split(MPI_COMM_WORLD, leads ? 0 : MPI_UNDEFINED, 0, &leaders);
  begun = tb_now();
  if (!leads) return;
  PMPI_Comm_rank(leaders, &own);
  PMPI_Comm_size(leaders, &hosts);
  measure(START_LIMIT, TAG_START);
}

void tb_end_clocks(void) {
  uint64_t run = tb_now() - begun;
  if (leaders == MPI_COMM_NULL) return;
  measure(run < END_LEAST ? END_LEAST : run > END_MOST ? END_MOST : run, TAG_END);
}

/* Whether all ranks leave this collective after all have entered it. */
static int waits_for_all(enum tb_collective_op op) {
  return op == TB_BARRIER || op == TB_ALLREDUCE || op == TB_ALLGATHER || op == TB_ALLTOALL;
}

/* Rank 0 says after which collective it will measure. */
static void announce(uint64_t now) {
  uint64_t due = took > SELDOM * every_ns / ONE_IN ? SELDOM * every_ns : took * ONE_IN;
  if (now - last_time < (due > every_ns ? due : every_ns)) return;
  planned = 1;
  plan = seen + AHEAD;
  for (int peer = 1; peer < hosts && !given_up; peer++)
    if (!send_by(tb_now() + ANSWER_LIMIT, plan, peer, TAG_PLAN)) given_up = 1;
}

/* All ranks take part in these collectives in the same order, so all count alike, and agree after
 * which one they measure. With calls of several threads there is no such order. */
void tb_measure_again(struct tb_thread *thread, enum tb_collective_op op,
                      const struct tb_comm *comm) {
  if (hosts < 2 || given_up || comm->size != world_size || comm->inter || tb_threaded ||
      !waits_for_all(op))
    return;
  seen++;
  uint64_t from = tb_now();
  if (!planned && own == 0) {
    announce(from);
  } else if (!planned && from - last_time >= every_ns / 2) {
    int there = 0;
    PMPI_Iprobe(0, TAG_PLAN, leaders, &there, MPI_STATUS_IGNORE);
    planned = there && receive_by(from + ANSWER_LIMIT, &plan, 0, TAG_PLAN) == 0;
  }
  if (!planned || seen < plan) return;
  planned = 0;
  if (seen > plan)
    given_up = 1; /* heard of too late: the others wait in vain, once */
  else
    measure(AGAIN_LIMIT, TAG_AGAIN + (int)(plan % TAGS_AGAIN));
  uint64_t *word = tb_put(thread, TB_PAUSE, 0, 0, 0);
  word[0] = from;
  word[1] = tb_now();
}
