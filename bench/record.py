"""Cost of ``tailback record``: CPU time of an MPI call without it, with it, EZTrace and Score-P.

    python bench/record.py [--calls 300000] [--pairs 5]

EZTrace and Score-P are run where ``eztrace`` and ``scorep`` are on PATH; Score-P traces MPI calls
only.
A rank sends messages to itself (Isend, Recv, Wait), so that nothing waits. Compared is the time,
user and system, of all its threads. Runs alternate, in a random order; printed are medians as JSON,
with the machine. What recorders add to a program that computes is measured by ``record_halo.py``.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300_000)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    tailback = [sys.executable, "-m", "tailback", "record", "--quiet", "--out"]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "loop.c").write_text(PROGRAM)
        subprocess.run(["mpicc", "-O2", "loop.c", "-o", "loop"], cwd=work, check=True)
        plain = ["mpirun", "--oversubscribe", "-np", "1"]
        arguments = [str(options.calls), str(work / "ns")]
        program = [str(work / "loop"), *arguments]
        commands = {
            "plain": lambda turn: [*plain, *program],
            "record": lambda turn: [*tailback, str(work / f"out{turn}"), "--", *plain, *program],
        }
        if shutil.which("eztrace"):
            commands["eztrace"] = lambda turn: [*plain, "eztrace", "-t", "openmpi", *program]
        linked = _score_p.compiled(work, "loop.c")
        if linked:
            commands["scorep"] = lambda turn: [*plain, str(linked), *arguments]
        timings: dict[str, list[float]] = {way: [] for way in commands}
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
                    timings[way].append(float((work / "ns").read_text()))
    absent = [tool for tool in ("eztrace", "scorep") if shutil.which(tool) is None]
    medians = {way: round(statistics.median(ns), 1) for way, ns in timings.items() if ns}
    added = {way: round(ns - medians["plain"], 1) for way, ns in medians.items() if way != "plain"}
    print(
        json.dumps(
            {"machine": machine(), "ns_per_call": medians, "added_ns": added, "absent": absent},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
