/* Clocks of hosts against that of rank 0: the round trip that was shortest tells the offset.
 *
 * Ranks that share memory share CLOCK_MONOTONIC_RAW, so one rank of each host asks and tells the
 * others. Measured at start and end; OTF2 draws a line through both.
 */
#include "recorder.h"

#define ROUNDS 20
#define TAG 4711

static int leads;

int tb_leads_host(void) { return leads; }

static void answer(int peer, MPI_Comm comm) {
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t time;
    PMPI_Recv(&time, 1, MPI_UINT64_T, peer, TAG, comm, MPI_STATUS_IGNORE);
    time = tb_now();
    PMPI_Send(&time, 1, MPI_UINT64_T, peer, TAG, comm);
  }
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
    PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    PMPI_Comm_rank(host, &local);
    leads = local == 0;
    PMPI_Comm_split(MPI_COMM_WORLD, leads ? 0 : MPI_UNDEFINED, 0, &leaders);
  }
  if (leaders != MPI_COMM_NULL) {
    PMPI_Comm_rank(leaders, &rank);
    PMPI_Comm_size(leaders, &size);
    PMPI_Barrier(leaders);
    if (rank == 0)
      for (int peer = 1; peer < size; peer++) answer(peer, leaders);
    else
      ask(leaders, found);
  }
  PMPI_Bcast(found, 3, MPI_INT64_T, 0, host);
  tb_meta("offset %lld %lld %lld", (long long)found[0], (long long)found[1], (long long)found[2]);
}
