/* Clocks of hosts against that of rank 0: the round trip that was shortest tells the offset.
 *
 * Ranks that share memory share CLOCK_MONOTONIC_RAW, so one rank of each host asks and tells the
 * others. Measured at start and end, and now and then after a collective of all ranks, where these
 * have just waited for one another; OTF2 draws a line from each measurement to the next.
 */
#include "recorder.h"

#define ROUNDS 20
#define TAG 4711
/* Measurements in between take at most this share of the time, but are not more seldom than that:
 * a host that was busy at the start would put them off for good. */
#define ONE_IN 1000
#define SELDOM 3
/* After how many collectives rank 0 looks at its clock again, at most: the others learn of it by a
 * broadcast, which takes about as long as a collective does. */
#define MOST_CALLS 1024

static int leads;
static int hosts = 1, world_size = 1;
static MPI_Comm everyone = MPI_COMM_NULL;
static uint64_t seen, next = 16, last_time, took = UINT64_MAX, every_ns = 30000000000u;
/* When rank 0 last looked at its clock, and after how many collectives. */
static uint64_t looked, looked_at;

int tb_leads_host(void) { return leads; }

/* Returns what the rounds take on hosts that are not busy: the shortest, times their number. */
static uint64_t answer(int peer, MPI_Comm comm) {
  uint64_t shortest = UINT64_MAX / ROUNDS, before = 0;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t time;
    PMPI_Recv(&time, 1, MPI_UINT64_T, peer, TAG, comm, MPI_STATUS_IGNORE);
    time = tb_now();
    if (before && time - before < shortest) shortest = time - before;
    before = time;
    PMPI_Send(&time, 1, MPI_UINT64_T, peer, TAG, comm);
  }
  return ROUNDS * shortest;
}

/* found: own time, what rank 0's clock has more than ours, the round trip. */
static void ask(MPI_Comm comm, int64_t found[3]) {
  found[2] = INT64_MAX;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t theirs, from = tb_now();
    PMPI_Send(&from, 1, MPI_UINT64_T, 0, TAG, comm);
    PMPI_Recv(&theirs, 1, MPI_UINT64_T, 0, TAG, comm, MPI_STATUS_IGNORE);
    uint64_t to = tb_now();
    if ((int64_t)(to - from) < found[2]) {
      uint64_t middle = from + (to - from) / 2;
      found[0] = (int64_t)middle;
      found[1] = (int64_t)(theirs - middle);
      found[2] = (int64_t)(to - from);
    }
  }
}

void tb_synchronise(void) {
  static MPI_Comm host = MPI_COMM_NULL, leaders = MPI_COMM_NULL;
  int rank, size;
  int64_t found[3] = {(int64_t)tb_now(), 0, 0};
  if (host == MPI_COMM_NULL) {
    int local;
    const char *seconds = getenv("TAILBACK_RECORD_CLOCKS");
    if (seconds && *seconds) every_ns = (uint64_t)(atof(seconds) * 1e9);
    PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    PMPI_Comm_rank(host, &local);
    leads = local == 0;
    PMPI_Comm_split(MPI_COMM_WORLD, leads ? 0 : MPI_UNDEFINED, 0, &leaders);
    PMPI_Allreduce(&leads, &hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (hosts > 1) PMPI_Comm_dup(MPI_COMM_WORLD, &everyone);
  }
  if (leaders != MPI_COMM_NULL) {
    PMPI_Comm_rank(leaders, &rank);
    PMPI_Comm_size(leaders, &size);
    PMPI_Barrier(leaders);
    if (rank == 0) {
      uint64_t sum = 0;
      for (int peer = 1; peer < size; peer++) sum += answer(peer, leaders);
      if (sum < took) took = sum;
    } else {
      ask(leaders, found);
    }
  }
  PMPI_Bcast(found, 3, MPI_INT64_T, 0, host);
  last_time = looked = tb_now();
  looked_at = seen;
  tb_meta("offset %lld %lld %lld", (long long)found[0], (long long)found[1], (long long)found[2]);
}

/* Whether all ranks leave this collective after all have entered it. */
static int waits_for_all(enum tb_collective_op op) {
  return op == TB_BARRIER || op == TB_ALLREDUCE || op == TB_ALLGATHER || op == TB_ALLTOALL;
}

/* All ranks take part in these collectives in the same order, so all count alike, and agree after
 * which one they measure without a message. With calls of several threads there is no such order. */
void tb_synchronise_again(struct tb_thread *thread, enum tb_collective_op op,
                          const struct tb_comm *comm) {
  if (hosts < 2 || comm->size != world_size || comm->inter || tb_threaded || !waits_for_all(op))
    return;
  if (++seen < next) return;
  uint64_t from = tb_now(), agreed[2] = {0, 1};
  if (tb_world_rank() == 0) {
    uint64_t due = took * ONE_IN > every_ns ? took * ONE_IN : every_ns, passed = from - last_time;
    if (due > SELDOM * every_ns) due = SELDOM * every_ns;
    uint64_t left = passed < due ? due - passed : due, time = from - looked + 1;
    double calls = (double)(seen - looked_at) * (double)left / (double)time;
    agreed[0] = passed >= due;
    agreed[1] = calls < 1 ? 1 : calls < MOST_CALLS ? (uint64_t)calls : MOST_CALLS;
    looked = from;
    looked_at = seen;
  }
  PMPI_Bcast(agreed, 2, MPI_UINT64_T, 0, everyone);
  next = seen + agreed[1];
  if (agreed[0]) tb_synchronise();
  uint64_t *word = tb_put(thread, TB_PAUSE, 0, 0, 0);
  word[0] = from;
  word[1] = tb_now();
}
