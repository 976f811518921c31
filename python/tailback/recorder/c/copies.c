/* How fast the MPI library copies messages within a host: one alone, and one to each rank at once.
 *
 * Measured after MPI_Init, with messages that fit in a cache and that do not: a program's may be
 * either. It takes some ten milliseconds.
 */
#define _GNU_SOURCE
#include "recorder.h"

#include <sched.h>

/* Of each size so many copies, several times: other processes may delay some of them. */
enum { SIZES = 2, TIMES = 5 };
static const struct {
  int bytes, copies;
} sizes[SIZES] = {{64 << 10, 64}, {4 << 20, 4}};

/* Whether each rank of this host can have a core: otherwise it would measure the scheduler. */
static int has_cores(MPI_Comm host, int ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores)) CPU_ZERO(&cores);
  PMPI_Allreduce(MPI_IN_PLACE, &cores, (int)sizeof cores, MPI_BYTE, MPI_BOR, host);
  return CPU_COUNT(&cores) >= ranks;
}

/* Time of the copies from each rank to the next, or from the first rank to the second alone. */
static uint64_t time_copies(MPI_Comm host, char *buffer, int bytes, int copies, int alone) {
  int rank, ranks;
  uint64_t begin, end, first, last;
  PMPI_Comm_rank(host, &rank);
  PMPI_Comm_size(host, &ranks);
  int to = alone && rank ? MPI_PROC_NULL : (rank + 1) % ranks;
  int from = alone && rank != 1 ? MPI_PROC_NULL : (rank + ranks - 1) % ranks;
  PMPI_Barrier(host);
  begin = tb_now();
  for (int copy = 0; copy < copies; copy++)
    PMPI_Sendrecv(buffer, bytes, MPI_BYTE, to, 0, buffer + bytes, bytes, MPI_BYTE, from, 0, host,
                  MPI_STATUS_IGNORE);
  end = tb_now();
  if (alone && rank > 1) begin = UINT64_MAX, end = 0;
  PMPI_Allreduce(&begin, &first, 1, MPI_UINT64_T, MPI_MIN, host);
  PMPI_Allreduce(&end, &last, 1, MPI_UINT64_T, MPI_MAX, host);
  return last - first;
}

/* All ranks of the host take part; the first one writes the results. */
void tb_time_copies(MPI_Comm host) {
  int rank, ranks;
  PMPI_Comm_rank(host, &rank);
  PMPI_Comm_size(host, &ranks);
  if (ranks < 2 || !has_cores(host, ranks)) return;
  char *buffer = calloc(2, (size_t)sizes[SIZES - 1].bytes);
  int there = buffer != NULL;
  PMPI_Allreduce(MPI_IN_PLACE, &there, 1, MPI_INT, MPI_MIN, host);
  for (int size = 0; there && size < SIZES; size++) {
    int bytes = sizes[size].bytes, copies = sizes[size].copies;
    for (int alone = 0; alone < 2; alone++) {
      /* The first time sets up what the library needs for the pair. */
      time_copies(host, buffer, bytes, copies, alone);
      for (int time = 0; time < TIMES; time++) {
        uint64_t took = time_copies(host, buffer, bytes, copies, alone);
        uint64_t all = (uint64_t)bytes * (uint64_t)copies * (uint64_t)(alone ? 1 : ranks);
        if (rank == 0)
          tb_meta("copies %d %llu %llu", alone ? 1 : ranks, (unsigned long long)all,
                  (unsigned long long)took);
      }
    }
  }
  free(buffer);
}
