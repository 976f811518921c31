"""What ``tailback record`` adds to a call of MPI_Alltoallv, by the number of ranks.

    python bench/record_alltoallv.py [--ranks 16 64 256 1024] [--calls 5000] [--pairs 5]

The exchange itself takes far longer than recording it, and differs from call to call by more. So
the program has an MPI_Alltoallv of its own that does nothing, below the recorder, on a communicator
that states as many ranks as are asked for: what is left is the wrapper, the recorder, and the
writing of its files. Three cases: all counts are equal (no vector is kept), they differ and are the
same in every call, and they differ from call to call (every call has a vector of its own). Printed
as JSON: CPU nanoseconds of a call with the recorder less those without it, medians of alternating
pairs of runs, and the bytes of the trace for a call.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _machine import machine

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static int ranks;
/* The recorder calls these: the program's come before the library's. */
int PMPI_Alltoallv(const void *a, const int b[], const int c[], MPI_Datatype d, void *e,
                   const int f[], const int g[], MPI_Datatype h, MPI_Comm i) {
  return MPI_SUCCESS;
}
int PMPI_Comm_size(MPI_Comm comm, int *size) {
  *size = comm == MPI_COMM_SELF ? ranks : 1;
  return MPI_SUCCESS;
}
#ifdef PLAIN
#define MPI_Alltoallv PMPI_Alltoallv
#endif
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}
int main(int argc, char **argv) {
  int calls = atoi(argv[2]);
  char kind = argv[3][0];
  ranks = atoi(argv[1]);
  int *counts = calloc(ranks, sizeof(int)), *at = calloc(ranks, sizeof(int));
  for (int i = 0; i < ranks; i++) counts[i] = kind == 'e' ? 100 : 100 + 7 * i % 50;
  MPI_Init(&argc, &argv);
  double start = now();
  for (int i = 0; i < calls; i++) {
    if (kind == 'n') counts[i % ranks] = i;
    MPI_Alltoallv(NULL, counts, at, MPI_INT, NULL, counts, at, MPI_INT, MPI_COMM_SELF);
  }
  FILE *file = fopen(argv[4], "w");
  fprintf(file, "%f", (now() - start) / calls);
  fclose(file);
  MPI_Finalize();
  return 0;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    tailback = [sys.executable, "-m", "tailback", "record", "--quiet", "--out"]
    found: dict[int, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "loop.c").write_text(PROGRAM)
        for way, more in (("plain", ["-DPLAIN"]), ("record", [])):
            subprocess.run(
                ["mpicc", "-O2", "-rdynamic", *more, "loop.c", "-o", way], cwd=work, check=True
            )
        for ranks in options.ranks:
            found[ranks] = {}
            for kind in ("equal", "same", "new"):
                added, size = [], 0
                for _ in range(options.pairs):
                    ns = {}
                    for way in ("plain", "record"):
                        folder = work / "out"
                        command = [str(work / way), str(ranks), str(options.calls), kind]
                        before = [*tailback, str(folder), "--"] if way == "record" else []
                        command = [*before, "mpirun", "-np", "1", *command, str(work / "ns")]
                        subprocess.run(command, check=True, capture_output=True)
                        ns[way] = float((work / "ns").read_text())
                    files = [folder / "traces.def", *(folder / "traces").iterdir()]
                    size = sum(file.stat().st_size for file in files)
                    shutil.rmtree(folder)
                    added.append(ns["record"] - ns["plain"])
                found[ranks][kind] = {
                    "added_ns": round(statistics.median(added)),
                    "bytes": round(size / options.calls, 1),
                }
    print(json.dumps({"machine": machine(), "of_a_call": found}, indent=1))


if __name__ == "__main__":
    main()
