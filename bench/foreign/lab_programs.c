/* Programs that are no halo exchange, for runs on real packets (run_lab.py).
 *
 *   mpicc -O2 -o programs lab_programs.c
 *   programs NAME ITERATIONS BYTES COMPUTE_MS
 *
 * Compute is a wait on the clock, as in examples/lab/halo.c, and so are the variables of the lab:
 * TAILBACK_LAB_SLOW, TAILBACK_LAB_NOISE and TAILBACK_LAB_NOTES.
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, size, bytes;
static double compute_ms, noise_share, noise_ms, computed;
static uint64_t state;
static char *out, *in;

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double uniform(void) { /* xorshift64* */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (double)((state * 2685821657736338717u) >> 11) / 9007199254740992.0;
}

static void compute(double share) {
  double start = seconds(CLOCK_MONOTONIC);
  double until = start + 1e-3 * share * (compute_ms + (uniform() < noise_share ? noise_ms : 0.0));
  struct timespec end = {(time_t)until, (long)((until - floor(until)) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0) {
  }
  computed += seconds(CLOCK_MONOTONIC) - start;
}

static void send(int to, int tag) {
  MPI_Send(out, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

static void receive(int from, int tag) {
  MPI_Recv(in, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* EZTrace records no messages of MPI_Sendrecv. */
static void exchange(int to, int from) {
  MPI_Request both[2];
  MPI_Irecv(in, bytes, MPI_BYTE, from, 7, MPI_COMM_WORLD, &both[0]);
  MPI_Isend(out, bytes, MPI_BYTE, to, 7, MPI_COMM_WORLD, &both[1]);
  MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
}

static int columns(void) {
  int wide = (int)sqrt((double)size);
  while (size % wide != 0) wide--;
  return size / wide;
}

/* Sweeps of a grid from two corners, in blocks. */
static void wavefront(int iteration) {
  int wide = columns(), high = size / wide, x = rank % wide, y = rank / wide;
  for (int corner = 0; corner < 2; corner++) {
    int step = corner == 0 ? 1 : -1, first_x = corner == 0 ? 0 : wide - 1;
    int first_y = corner == 0 ? 0 : high - 1, last_x = wide - 1 - first_x;
    int last_y = high - 1 - first_y;
    for (int block = 0; block < 3; block++) {
      if (x != first_x) receive(rank - step, block);
      if (y != first_y) receive(rank - step * wide, block);
      compute(1.0 / 6.0);
      if (x != last_x) send(rank + step, block);
      if (y != last_y) send(rank + step * wide, block);
    }
  }
  (void)iteration;
}

/* Every iteration passes through all ranks; several are under way. */
static void pipeline(int iteration) {
  if (rank > 0) receive(rank - 1, iteration & 1023);
  compute(1.0);
  if (rank < size - 1) send(rank + 1, iteration & 1023);
}

/* Rank 0 gives the next task to the worker that is ready first; an iteration is one task for each
 * worker on average. */
static void serve(int iterations) {
  int tasks = iterations * (size - 1), sent = 0, done = 0;
  char result[64];
  MPI_Status status;
  for (int worker = 1; worker < size; worker++, sent++) send(worker, 1);
  while (done < tasks) {
    MPI_Recv(result, sizeof result, MPI_BYTE, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status);
    done++;
    if (sent < tasks) {
      send(status.MPI_SOURCE, 1);
      sent++;
    } else {
      MPI_Send(out, 0, MPI_BYTE, status.MPI_SOURCE, 3, MPI_COMM_WORLD);
    }
  }
}

static void work(void) {
  char result[64] = {0};
  MPI_Status status;
  for (;;) {
    MPI_Recv(in, bytes, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    if (status.MPI_TAG == 3) return;
    compute(1.0);
    MPI_Send(result, sizeof result, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
  }
}

/* One rank of four writes for its group, every second iteration. */
static void writer(int iteration) {
  compute(1.0);
  if (iteration % 2 != 0) {
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  int root = rank / 4 * 4;
  if (rank != root) {
    send(root, 4);
    return;
  }
  for (int k = 1; k < 4 && root + k < size; k++) receive(root + k, 4);
}

/* All-reduce around a ring of ranks, a chunk at a time. */
static void ring(int iteration) {
  (void)iteration;
  compute(1.0);
  for (int step = 0; step < 2 * (size - 1); step++)
    exchange((rank + 1) % size, (rank + size - 1) % size);
}

static void transpose(int iteration) {
  (void)iteration;
  compute(1.0);
  MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void pairwise(int iteration) {
  (void)iteration;
  compute(1.0);
  for (int step = 1; step < size; step++)
    exchange((rank + step) % size, (rank + size - step) % size);
}

/* Conjugate gradient: neighbours in a row, the transposed rank, two dot products. */
static void gradient(int iteration) {
  (void)iteration;
  double mine = 1.0, all;
  int wide = columns(), x = rank % wide, y = rank / wide;
  for (int apart = 1; apart < wide; apart *= 2) {
    int peer = y * wide + (x ^ apart);
    if ((x ^ apart) < wide) exchange(peer, peer);
  }
  int mirror = wide * wide == size ? x * wide + y : size - 1 - rank;
  if (mirror != rank) exchange(mirror, mirror);
  compute(1.0);
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(int iteration) {
  compute(1.0);
  MPI_Bcast(out, bytes, MPI_BYTE, iteration * 5 % size, MPI_COMM_WORLD);
}

static const struct {
  const char *name;
  void (*step)(int);
} PROGRAMS[] = {
    {"wavefront", wavefront}, {"pipeline", pipeline},
    {"writer", writer},       {"ring", ring},         {"transpose", transpose},
    {"pairwise", pairwise},   {"gradient", gradient}, {"broadcast", broadcast},
};

static double slowness(void) {
  const char *text = getenv("TAILBACK_LAB_SLOW");
  int who, used;
  double factor;
  while (text != NULL && sscanf(text, " %d:%lf%n", &who, &factor, &used) == 2) {
    if (who == rank) return factor;
    text += used;
  }
  return 1.0;
}

static void note(double zero_unix, double start_unix, double elapsed) {
  const char *folder = getenv("TAILBACK_LAB_NOTES");
  char path[4096];
  if (folder == NULL) return;
  snprintf(path, sizeof path, "%s/rank-%d", folder, rank);
  FILE *notes = fopen(path, "w");
  if (notes == NULL) return;
  fprintf(notes, "%d %.9f %.9f %.9f %.6f %.6f %.6f\n", rank, zero_unix, start_unix,
          start_unix + elapsed, computed, elapsed - computed, 0.0);
  fclose(notes);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  void (*step)(int) = NULL;
  int master = argc == 5 && strcmp(argv[1], "master") == 0;
  for (size_t k = 0; argc == 5 && k < sizeof PROGRAMS / sizeof *PROGRAMS; k++)
    if (strcmp(argv[1], PROGRAMS[k].name) == 0) step = PROGRAMS[k].step;
  if (step == NULL && !master) {
    if (rank == 0) fprintf(stderr, "usage: programs NAME ITERATIONS BYTES COMPUTE_MS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int iterations = atoi(argv[2]);
  bytes = atoi(argv[3]);
  compute_ms = atof(argv[4]) * slowness();
  unsigned long long seed = 0;
  if (getenv("TAILBACK_LAB_NOISE") != NULL)
    sscanf(getenv("TAILBACK_LAB_NOISE"), "%lf %lf %llu", &noise_share, &noise_ms, &seed);
  state = (seed + 1) * 1000003u + (uint64_t)rank * 7919u;
  for (int k = 0; k < 20; k++) uniform();
  out = calloc((size_t)size, (size_t)bytes + 1);
  in = calloc((size_t)size, (size_t)bytes + 1);
  if (out == NULL || in == NULL) MPI_Abort(MPI_COMM_WORLD, 1);

  double zero_unix = seconds(CLOCK_REALTIME);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = seconds(CLOCK_MONOTONIC), start_unix = seconds(CLOCK_REALTIME);
  if (master && rank == 0) serve(iterations);
  if (master && rank != 0) work();
  for (int iteration = 0; !master && iteration < iterations; iteration++) step(iteration);
  MPI_Barrier(MPI_COMM_WORLD);
  note(zero_unix, start_unix, seconds(CLOCK_MONOTONIC) - start);
  MPI_Finalize();
  return 0;
}
