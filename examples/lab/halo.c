/* A periodic two-dimensional halo exchange, for `tailback lab`.
 *
 *   mpicc -O2 -o halo halo.c
 *   tailback lab run --out case -- ./halo 4 4 60 40000 15
 *
 * Arguments: columns, rows, iterations, bytes a message, compute time in milliseconds.
 * Each iteration: compute, exchange with four neighbours, agree on eight bytes.
 *
 * Compute is a wait on the clock, so ranks need not have a core each. The lab hands over what
 * disturbs it in the environment:
 *   TAILBACK_LAB_SLOW   "5:3.0 9:2.0"   rank 5 computes 3 times as long, rank 9 twice
 *   TAILBACK_LAB_NOISE  "0.05 60 7"     in 5 % of iterations a rank computes 60 ms longer; seed 7
 *   TAILBACK_LAB_NOTES  a folder; each rank writes rank-N there: what it measured itself
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void compute_for(double milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  int64_t ns = until.tv_nsec + (int64_t)(milliseconds * 1e6);
  until.tv_sec += ns / 1000000000;
  until.tv_nsec = ns % 1000000000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
  }
}

/* splitmix64: the same sequence on every machine. */
static double uniform(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double slowness(int rank) {
  const char *text = getenv("TAILBACK_LAB_SLOW");
  int who, used;
  double factor;
  while (text != NULL && sscanf(text, " %d:%lf%n", &who, &factor, &used) == 2) {
    if (who == rank) return factor;
    text += used;
  }
  return 1.0;
}

static int argument(char **argv, int index, const char *name) {
  char *end;
  long value = strtol(argv[index], &end, 10);
  if (*end != '\0' || value < 0 || value > 1 << 30) {
    fprintf(stderr, "halo: %s: %s is not a number from 0 to 2^30\n", name, argv[index]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return (int)value;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 6) {
    if (rank == 0) fprintf(stderr, "usage: halo COLUMNS ROWS ITERATIONS BYTES COMPUTE_MS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int columns = argument(argv, 1, "columns"), rows = argument(argv, 2, "rows");
  int iterations = argument(argv, 3, "iterations"), bytes = argument(argv, 4, "bytes");
  double compute_ms = argument(argv, 5, "compute time") * slowness(rank);
  if ((int64_t)columns * rows != size) {
    if (rank == 0) fprintf(stderr, "halo: %d x %d is not %d ranks\n", columns, rows, size);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  double noise_p = 0, noise_ms = 0;
  unsigned long long seed = 0;
  if (getenv("TAILBACK_LAB_NOISE") != NULL)
    sscanf(getenv("TAILBACK_LAB_NOISE"), "%lf %lf %llu", &noise_p, &noise_ms, &seed);
  uint64_t state = seed * 1000003u + (uint64_t)rank;

  int x = rank % columns, y = rank / columns;
  int peers[4] = {
      y * columns + (x + columns - 1) % columns, y * columns + (x + 1) % columns,
      ((y + rows - 1) % rows) * columns + x, ((y + 1) % rows) * columns + x,
  };
  char *out = calloc(4, (size_t)bytes + 1), *in = calloc(4, (size_t)bytes + 1);
  if (out == NULL || in == NULL) MPI_Abort(MPI_COMM_WORLD, 1);

  double zero_unix = seconds(CLOCK_REALTIME);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = seconds(CLOCK_MONOTONIC), start_unix = seconds(CLOCK_REALTIME);
  double computed = 0, waited = 0, agreed = 0;
  for (int i = 0; i < iterations; i++) {
    double t0 = seconds(CLOCK_MONOTONIC);
    compute_for(compute_ms + (uniform(&state) < noise_p ? noise_ms : 0));
    double t1 = seconds(CLOCK_MONOTONIC);
    MPI_Request requests[8];
    for (int k = 0; k < 4; k++)
      MPI_Irecv(in + k * (size_t)bytes, bytes, MPI_BYTE, peers[k], k ^ 1, MPI_COMM_WORLD,
                &requests[k]);
    for (int k = 0; k < 4; k++)
      MPI_Isend(out + k * (size_t)bytes, bytes, MPI_BYTE, peers[k], k, MPI_COMM_WORLD,
                &requests[4 + k]);
    MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
    double t2 = seconds(CLOCK_MONOTONIC);
    double mine = 1, all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double t3 = seconds(CLOCK_MONOTONIC);
    computed += t1 - t0;
    waited += t2 - t1;
    agreed += t3 - t2;
  }
  double end = seconds(CLOCK_MONOTONIC);

  const char *folder = getenv("TAILBACK_LAB_NOTES");
  if (folder != NULL) {
    char path[4096];
    snprintf(path, sizeof path, "%s/rank-%d", folder, rank);
    FILE *notes = fopen(path, "w");
    if (notes != NULL) {
      fprintf(notes, "%d %.9f %.9f %.9f %.6f %.6f %.6f\n", rank, zero_unix, start_unix,
              start_unix + end - start, computed, waited, agreed);
      fclose(notes);
    }
  }
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
