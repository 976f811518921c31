"""What ``tailback record``, EZTrace and Score-P add to whole ranks of a halo code.

    python bench/record_halo.py [--ranks 1] [--steps 2000] [--pairs 3] [--cells 2048]
    python bench/record_halo.py --instructions [--steps 20]

Times of two runs differ by more than a recorder adds to one, so each run compares itself: a step
(halo exchange, computation, allreduce; ten calls) calls MPI by ``MPI_`` names, which a preloaded
recorder intercepts, or by ``PMPI_`` names, which it does not, one of each in every pair of steps
and in random order. All ranks switch together. Everything that recording does to a step is in the
difference, also to its computation, whose data it evicts from the caches. To this belongs the time
of threads that do not compute (one thread of each host samples its counters). Runs without a
recorder, whose difference should be zero, are the control.

Times are of the processor, user and system, or elapsed; both are printed, in per cent of a step,
as the median of the pairs with its 95 % interval, and as their mean, which contains what happens in
few steps (a full buffer is written) and is less exact. Waiting ranks poll, so that processor time
contains waits.

With ``--instructions``, whole programs run under Valgrind with and without the recorder: counted
are the instructions that all threads of a rank execute for a step, from the difference of a run of
*n* pairs of steps and one of 2 *n*. They hardly vary, but do not show what the caches cost. One
rank, which exchanges with itself: with several, polls would be counted.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import _score_p
import numpy as np
from _shared import machine

HALO = r"""
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
static double now(int clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static double cpu(int whose) {
  struct rusage used;
  getrusage(whose, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
         1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}
static int to[4];
static MPI_Comm grid;
static double *a, *b, halo[8][N], local, sum;
#define STEP(name, P) \
static void name(void) { \
  MPI_Request r[8]; \
  for (int k = 0; k < 4; k++) P##Irecv(halo[k], N, MPI_DOUBLE, to[k], k ^ 1, grid, &r[k]); \
  for (int k = 0; k < 4; k++) P##Isend(halo[4 + k], N, MPI_DOUBLE, to[k], k, grid, &r[4 + k]); \
  P##Waitall(8, r, MPI_STATUSES_IGNORE); \
  compute(); \
  local = a[N + 1]; \
  P##Allreduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, grid); \
}
__attribute__((noinline)) static void compute(void) {
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
}
STEP(recorded, MPI_)
STEP(unrecorded, PMPI_)
int main(int argc, char **argv) {
  int pairs = atoi(argv[1]), mixed = atoi(argv[3]);
  int size, rank, dims[2] = {0, 0}, wraps[2] = {1, 1};
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, wraps, 0, &grid);
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_shift(grid, 0, 1, &to[0], &to[1]);
  MPI_Cart_shift(grid, 1, 1, &to[2], &to[3]);
  a = malloc(sizeof(double) * N * N), b = malloc(sizeof(double) * N * N);
  for (long i = 0; i < (long)N * N; i++) a[i] = b[i] = (i * 7 + rank) % 13;
  for (int k = 0; k < 8; k++) for (int i = 0; i < N; i++) halo[k][i] = k;
  double *time = calloc(sizeof(double) * 4, pairs), *all = calloc(sizeof(double) * 4, pairs);
  recorded();
  unrecorded();
  srand48(1);
  double others = cpu(RUSAGE_SELF) - cpu(RUSAGE_THREAD), begun = now(CLOCK_MONOTONIC);
  for (int pair = 0; pair < pairs; pair++) {
    int first = lrand48() & 1;
    for (int turn = 0; turn < 2; turn++) {
      int bare = mixed && turn ^ first;
      PMPI_Barrier(grid);
      double elapsed = now(CLOCK_MONOTONIC), used = now(CLOCK_THREAD_CPUTIME_ID);
      bare ? unrecorded() : recorded();
      time[4 * pair + 2 * bare] += now(CLOCK_THREAD_CPUTIME_ID) - used;
      time[4 * pair + 2 * bare + 1] += now(CLOCK_MONOTONIC) - elapsed;
    }
  }
  others = (cpu(RUSAGE_SELF) - cpu(RUSAGE_THREAD) - others) / (now(CLOCK_MONOTONIC) - begun);
  PMPI_Reduce(time, all, 4 * pairs, MPI_DOUBLE, MPI_SUM, 0, grid);
  double of_all;
  PMPI_Reduce(&others, &of_all, 1, MPI_DOUBLE, MPI_SUM, 0, grid);
  if (rank == 0) {
    FILE *file = fopen(argv[2], "w");
    fprintf(file, "%.9f\n", of_all / size);
    for (int i = 0; i < 4 * pairs; i++)
      fprintf(file, "%.9f%c", all[i] / size, i % 4 == 3 ? '\n' : ' ');
    fclose(file);
  }
  MPI_Finalize();
  return sum < -1;
}
"""
"""Arguments: pairs of steps, the file of times, and 1 for steps of both kinds."""


def recorder_commands(
    work: Path, ranks: int, cells: int, wrapper: list[str]
) -> dict[str, list[str]]:
    """Command of each recorder, program included; their folders are new for each run."""
    launch = ["mpirun", "--oversubscribe", "-np", str(ranks)]
    tailback = [sys.executable, "-m", "tailback", "record", "--quiet", "--out"]
    program = str(work / "halo")
    commands = {
        "plain": [*launch, *wrapper, program],
        "record": [*tailback, str(work / "recording"), "--", *launch, *wrapper, program],
    }
    if shutil.which("eztrace") and not wrapper:
        commands["eztrace"] = [*launch, "eztrace", "-t", "openmpi", program]
    linked = None if wrapper else _score_p.compiled(work, "halo.c", f"-DN={cells}")
    if linked:
        settings = [
            f"{key}={value}" for key, value in _score_p.environment(work / "scorep").items()
        ]
        commands["scorep"] = ["env", *settings, *launch, str(linked)]
    return commands


def build(work: Path, cells: int) -> None:
    """Compile the program."""
    (work / "halo.c").write_text(HALO)
    subprocess.run(["mpicc", "-O2", f"-DN={cells}", "halo.c", "-o", "halo"], cwd=work, check=True)


def run(work: Path, command: list[str]) -> None:
    """Runs one command; a recorder that crashes in MPI_Finalize has done its work by then."""
    for folder in ("recording", "scorep"):
        shutil.rmtree(work / folder, ignore_errors=True)
    subprocess.run(command, cwd=work, check="eztrace" not in command, capture_output=True)


def interval_of_median(values: np.ndarray, draws: int = 2000) -> list[float]:
    """95 % interval of the median, by bootstrap."""
    draw = np.random.default_rng(1)
    medians = [np.median(draw.choice(values, len(values))) for _ in range(draws)]
    return [round(float(bound), 3) for bound in np.percentile(medians, (2.5, 97.5))]


def added(times: np.ndarray, at: int) -> dict[str, object]:
    """Per cent that recorded steps take longer than others, column *at* of both."""
    percent = 100 * (times[:, at] - times[:, 2 + at]) / np.median(times[:, 2 + at])
    mean, half = float(percent.mean()), 1.96 * float(percent.std()) / len(percent) ** 0.5
    return {
        "median": round(float(np.median(percent)), 3),
        "interval_95": interval_of_median(percent),
        "mean": round(mean, 3),
        "interval_95_of_mean": [round(mean - half, 3), round(mean + half, 3)],
    }


def timed(work: Path, options: argparse.Namespace) -> dict[str, object]:
    """What recorders add to the time of steps, and of threads that do not compute."""
    commands = recorder_commands(work, options.ranks, options.cells, [])
    times: dict[str, list[np.ndarray]] = {way: [] for way in commands}
    others: dict[str, list[float]] = {way: [] for way in commands}
    for turn in range(options.pairs):
        for way, command in random.Random(turn).sample(sorted(commands.items()), len(commands)):
            (work / "times").unlink(missing_ok=True)
            run(work, [*command, str(options.steps), str(work / "times"), "1"])
            if (work / "times").is_file():
                first, *rows = (work / "times").read_text().splitlines()
                others[way].append(100 * float(first))
                times[way].append(np.array([row.split() for row in rows], np.float64))
    out: dict[str, object] = {"ranks": options.ranks, "pairs_of_steps": {}}
    for way, steps in times.items():
        if not steps:
            continue
        rows = np.concatenate(steps)
        out["pairs_of_steps"][way] = len(rows)  # type: ignore[index]
        out[way] = {
            "cpu_ms_a_step": round(float(np.median(rows[:, 2])) * 1000, 3),
            "added_percent_of_cpu_time": added(rows, 0),
            "added_percent_of_elapsed_time": added(rows, 1),
            "other_threads_percent_of_a_core": round(statistics.median(others[way]), 3),
        }
    return out


def counted(work: Path, options: argparse.Namespace) -> dict[str, object]:
    """Instructions of a rank a step, with and without the recorder."""
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={work}/out"]
    instructions: dict[str, list[float]] = {}
    for way, command in recorder_commands(work, 1, options.cells, tool).items():
        for _ in range(options.pairs):
            totals = []
            for steps in (options.steps, 2 * options.steps):
                run(work, [*command, str(steps), str(work / "times"), "0"])
                summary = re.search(r"^summary: (\d+)", (work / "out").read_text(), re.MULTILINE)
                assert summary, "cachegrind wrote no summary"
                totals.append(int(summary[1]))
            instructions.setdefault(way, []).append((totals[1] - totals[0]) / options.steps / 2)
    plain = statistics.median(instructions["plain"])
    return {
        "instructions_a_step": {
            way: [round(count) for count in all_] for way, all_ in instructions.items()
        },
        "added_percent": round(100 * (statistics.median(instructions["record"]) / plain - 1), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000, help="pairs of steps in a run")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each recorder")
    parser.add_argument("--cells", type=int, default=2048, help="of a rank, along one side")
    parser.add_argument("--instructions", action="store_true", help="count them under Valgrind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        build(work, options.cells)
        figures = (counted if options.instructions else timed)(work, options)
    print(json.dumps({"machine": machine(), **figures}, indent=1))


if __name__ == "__main__":
    main()
