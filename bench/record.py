"""Cost of ``tailback record``: CPU time of an MPI call without it, with it, EZTrace and Score-P.

    python bench/record.py [--calls 300000] [--pairs 5]
    python bench/record.py --halo [--pairs 5] [--ranks 1] [--steps 100] [--cells 2048]

EZTrace and Score-P are run where ``eztrace`` and ``scorep`` are on PATH; Score-P traces MPI calls
only.
A rank sends messages to itself (Isend, Recv, Wait), so that nothing waits. With ``--halo`` ranks
compute on a grid and exchange its halo instead. Compared is the time, user and system, of the
threads that compute and call MPI, and of whole ranks, with the thread that samples the counters of
the host: ten times a second of elapsed time, so more often than on an idle machine where others
compete for the processors. One rank by default, which exchanges with itself: several wait for each
other, and MPI polls. Runs alternate, in a random order; printed are medians as JSON, with the
machine, and for the halo the 95 % interval of the median of the ratios of runs that follow one
another. On a machine that does other work too, the time of the exchange alone (nine calls a step)
says more than that of the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import _score_p
from _shared import machine

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}
int main(int argc, char **argv) {
  int in, out = 0, n = atoi(argv[1]) / 3;
  MPI_Request request;
  MPI_Init(&argc, &argv);
  double start = now();
  for (int i = 0; i < n; i++) {
    MPI_Isend(&out, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
    MPI_Recv(&in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  FILE *file = fopen(argv[2], "w");
  fprintf(file, "%f", (now() - start) / n / 3);
  fclose(file);
  MPI_Finalize();
  return 0;
}
"""

HALO = r"""
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static double cpu(int whose) {
  struct rusage used;
  getrusage(whose, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
         1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}
int main(int argc, char **argv) {
  int steps = atoi(argv[1]), size, rank, dims[2] = {0, 0}, wraps[2] = {1, 1}, to[4];
  MPI_Comm grid;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, wraps, 0, &grid);
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_shift(grid, 0, 1, &to[0], &to[1]);
  MPI_Cart_shift(grid, 1, 1, &to[2], &to[3]);
  double *a = malloc(sizeof(double) * N * N), *b = malloc(sizeof(double) * N * N);
  double halo[8][N], local, sum = 0;
  for (long i = 0; i < (long)N * N; i++) a[i] = (i * 7 + rank) % 13;
  for (int k = 0; k < 8; k++) for (int i = 0; i < N; i++) halo[k][i] = k;
  MPI_Barrier(grid);
  double process = cpu(RUSAGE_SELF), thread = cpu(RUSAGE_THREAD), exchange = 0, all[3];
  for (int step = 0; step < steps; step++) {
    MPI_Request r[8];
    double begin = now();
    for (int k = 0; k < 4; k++) MPI_Irecv(halo[k], N, MPI_DOUBLE, to[k], k ^ 1, grid, &r[k]);
    for (int k = 0; k < 4; k++) MPI_Isend(halo[4 + k], N, MPI_DOUBLE, to[k], k, grid, &r[4 + k]);
    MPI_Waitall(8, r, MPI_STATUSES_IGNORE);
    exchange += now() - begin;
    for (int y = 1; y < N - 1; y++)
      for (int x = 1; x < N - 1; x++)
        b[y * N + x] = 0.2 * (a[y * N + x] + a[y * N + x - 1] + a[y * N + x + 1] +
                              a[(y - 1) * N + x] + a[(y + 1) * N + x]);
    double *other = a;
    a = b;
    b = other;
    for (int i = 0; i < N; i++) {
      halo[4][i] = a[N + i];
      halo[5][i] = a[(N - 2) * N + i];
    }
    if (step % 10 == 9) {
      local = a[N + 1];
      MPI_Allreduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, grid);
    }
  }
  double used[3] = {cpu(RUSAGE_SELF) - process, cpu(RUSAGE_THREAD) - thread, exchange};
  PMPI_Reduce(used, all, 3, MPI_DOUBLE, MPI_SUM, 0, grid);
  if (rank == 0) {
    FILE *file = fopen(argv[2], "w");
    fprintf(file, "%f %f %f", all[0], all[1], all[2]);
    fclose(file);
  }
  MPI_Finalize();
  return sum < -1;
}
"""


def interval_of_median(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of the median, by bootstrap."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(draws))
    return medians[round(0.025 * draws)], medians[round(0.975 * draws) - 1]


def fastest(runs: list[list[float]], at: int) -> float:
    """Least time of the runs: what else runs on a machine only adds to it."""
    return min(run[at] for run in runs)


def compared(timings: dict[str, list[list[float]]], ranks: int, steps: int) -> dict[str, object]:
    """CPU seconds of the runs with a halo, and what each recorder adds in per cent."""
    n = len(timings["plain"])
    plain = statistics.median(ranks_and_threads[1] for ranks_and_threads in timings["plain"])
    out: dict[str, object] = {
        "cpu_ms_a_step_and_rank": round(1e3 * plain / ranks / steps, 3),
        "runs": n,
    }
    for at, what in enumerate(("added_percent_of_ranks", "added_percent_of_mpi_threads")):
        added = {}
        least = fastest(timings["plain"], at)
        for way, runs in timings.items():
            if way == "plain" or len(runs) != n:
                continue
            ratios = [
                100 * (run[at] / other[at] - 1)
                for run, other in zip(runs, timings["plain"], strict=True)
            ]
            low, high = interval_of_median(ratios)
            added[way] = {
                "median": round(statistics.median(ratios), 2),
                "interval_95": [round(low, 2), round(high, 2)],
                "fastest": round(100 * (fastest(runs, at) / least - 1), 2),
                "pairs": [round(ratio, 2) for ratio in ratios],
            }
        out[what] = added
    exchange = {}
    for way, runs in timings.items():
        if way != "plain" and len(runs) == n:
            us = [
                1e6 * (run[2] - other[2]) / ranks / steps
                for run, other in zip(runs, timings["plain"], strict=True)
            ]
            low, high = interval_of_median(us)
            exchange[way] = {
                "median": round(statistics.median(us), 2),
                "interval_95": [round(low, 2), round(high, 2)],
            }
    out["added_us_of_an_exchange"] = exchange
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--halo", action="store_true")
    parser.add_argument("--ranks", type=int, default=1, help="of the halo")
    parser.add_argument("--cells", type=int, default=2048, help="of a rank, along one side")
    parser.add_argument("--steps", type=int, default=100, help="of the halo")
    options = parser.parse_args()
    tailback = [sys.executable, "-m", "tailback", "record", "--quiet", "--out"]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "loop.c").write_text(HALO if options.halo else PROGRAM)
        subprocess.run(
            ["mpicc", "-O2", f"-DN={options.cells}", "loop.c", "-o", "loop"], cwd=work, check=True
        )
        plain = ["mpirun", "--oversubscribe", "-np", str(options.ranks if options.halo else 1)]
        amount = options.steps if options.halo else options.calls
        arguments = [str(amount), str(work / "ns")]
        program = [str(work / "loop"), *arguments]
        commands = {
            "plain": lambda turn: [*plain, *program],
            "record": lambda turn: [*tailback, str(work / f"out{turn}"), "--", *plain, *program],
        }
        if shutil.which("eztrace"):
            commands["eztrace"] = lambda turn: [*plain, "eztrace", "-t", "openmpi", *program]
        linked = _score_p.compiled(work, "loop.c", f"-DN={options.cells}")
        if linked:
            commands["scorep"] = lambda turn: [*plain, str(linked), *arguments]
        timings: dict[str, list[list[float]]] = {way: [] for way in commands}
        for turn in range(options.pairs):
            for way, command in random.Random(turn).sample(sorted(commands.items()), len(commands)):
                # EZTrace 2.0 sometimes crashes in MPI_Finalize; by then the time of the loop is
                # known.
                (work / "ns").unlink(missing_ok=True)
                extra = _score_p.environment(work / f"scorep{turn}") if way == "scorep" else {}
                subprocess.run(
                    command(turn),
                    cwd=work,
                    check=way != "eztrace",
                    env={**os.environ, **extra},
                    capture_output=True,
                )
                if (work / "ns").is_file():
                    timings[way].append([float(word) for word in (work / "ns").read_text().split()])
    absent = [tool for tool in ("eztrace", "scorep") if shutil.which(tool) is None]
    if options.halo:
        halo = compared(timings, options.ranks, options.steps)
        print(
            json.dumps(
                {"machine": machine(), "ranks": options.ranks, **halo, "absent": absent}, indent=1
            )
        )
        return
    medians = {
        way: round(statistics.median(ns for (ns,) in values), 1)
        for way, values in timings.items()
        if values
    }
    added = {way: round(ns - medians["plain"], 1) for way, ns in medians.items() if way != "plain"}
    print(
        json.dumps(
            {"machine": machine(), "ns_per_call": medians, "added_ns": added, "absent": absent},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
