"""One program, three recorders: `python bench/recorders.py [--ranks 64] [--steps 4] [--json]`.

A 3-D FFT on a grid of ranks (MPI_Alltoall along rows, then along columns, a halo exchange, one
MPI_Sendrecv and an MPI_Allreduce a step) runs on this machine under ``tailback record``, EZTrace
and Open MPI's monitoring, with more ranks than processors. Prints the point-to-point messages and
bytes between ranks that each recorded, how many pairs of ranks differ, the verdict on each
recording, and what it lacks.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from _shared import machine

from tailback import TailbackError
from tailback.traffic.readers import read_trace

SOURCE = r"""
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#define CELLS 512
int main(int argc, char **argv) {
  int rank, size, steps = atoi(argv[1]), width = atoi(argv[2]);
  MPI_Comm row, column;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split(MPI_COMM_WORLD, rank / width, rank, &row);
  MPI_Comm_split(MPI_COMM_WORLD, rank % width, rank, &column);
  double *a = calloc(CELLS * size, sizeof(double)), *b = calloc(CELLS * size, sizeof(double));
  double sum, part;
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int step = 0; step < steps; step++) {
    MPI_Request r[4];
    for (int i = 0; i < CELLS * width; i++) a[i] = sin(a[i] + i);
    MPI_Alltoall(a, CELLS, MPI_DOUBLE, b, CELLS, MPI_DOUBLE, row);
    for (int i = 0; i < CELLS * width; i++) b[i] = sin(b[i] + i);
    MPI_Alltoall(b, CELLS, MPI_DOUBLE, a, CELLS, MPI_DOUBLE, column);
    MPI_Irecv(b, CELLS, MPI_DOUBLE, previous, 1, MPI_COMM_WORLD, &r[0]);
    MPI_Irecv(b + CELLS, CELLS, MPI_DOUBLE, next, 2, MPI_COMM_WORLD, &r[1]);
    MPI_Isend(a, CELLS, MPI_DOUBLE, next, 1, MPI_COMM_WORLD, &r[2]);
    MPI_Isend(a + CELLS, CELLS, MPI_DOUBLE, previous, 2, MPI_COMM_WORLD, &r[3]);
    MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(a, 1, MPI_DOUBLE, next, 3, b, 1, MPI_DOUBLE, previous, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    part = a[0];
    MPI_Allreduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
"""


def point_to_point(program: Any) -> dict[tuple[int, int], list[int]]:
    """Messages and bytes of each pair of ranks, without those of collectives."""
    wanted = [label.tag >= 0 or label.phase == "point-to-point" for label in program.labels]
    rank, totals = program.op_rank, dict[tuple[int, int], list[int]]()
    for at in program.sends.nonzero()[0].tolist():
        if wanted[int(program.label[at])]:
            pair = totals.setdefault((int(rank[at]), int(program.peer[at])), [0, 0])
            pair[0] += 1
            pair[1] += int(program.amount[at])
    return totals


def calls(program: Any) -> dict[str, int]:
    """Sends by the call that posts them."""
    sends = program.label[program.sends]
    return dict(Counter(program.labels[int(label)].call for label in sends))


def recorded(work: Path, ranks: int, steps: int) -> dict[str, Path]:
    """The trace of each recorder; those that are not installed or fail are left out."""
    (work / "fft.c").write_text(SOURCE)
    subprocess.run(["mpicc", "-g", "-O2", "fft.c", "-o", "fft", "-lm"], cwd=work, check=True)
    mpirun = ["mpirun", "--oversubscribe", "--mca", "btl", "self,vader", "-np", str(ranks)]
    program = [str(work / "fft"), str(steps), str(math.isqrt(ranks))]
    profile = work / "prof"
    profile.mkdir()
    tailback = [sys.executable, "-m", "tailback", "record", "--quiet", "--out", "evidence", "--"]
    monitoring = [
        word
        for key, value in (
            ("pml_monitoring_enable", "2"),
            ("pml_monitoring_enable_output", "3"),
            ("pml_monitoring_filename", str(profile / "prof")),
        )
        for word in ("--mca", key, value)
    ]
    commands = {
        "record": ([*tailback, *mpirun, *program], work / "evidence"),
        "eztrace": (
            [*mpirun, "eztrace", "-t", "openmpi", "-o", str(work / "eztrace"), *program],
            work / "eztrace" / "fft_trace",
        ),
        "monitoring": ([*mpirun, *monitoring, *program], profile),
    }
    out = {}
    for name, (command, path) in commands.items():
        if name == "eztrace" and shutil.which("eztrace") is None:
            continue
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if path.is_dir() and any(path.iterdir()):
            out[name] = path
        else:
            print(f"{name} wrote nothing: {done.stderr[-400:]}", file=sys.stderr)
    return out


def verdict(work: Path, recording: Path) -> dict[str, object]:
    """Cause that a diagnosis of a recording gives, and what the recording lacks."""
    command = [
        sys.executable,
        "-m",
        "tailback",
        "diagnose",
        str(recording),
        "--fabric",
        "tapered",
        "--format",
        "json",
        "--out",
        str(work / f"diagnosis-{recording.name}"),
    ]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    # An undetermined cause has an exit code of its own.
    if not done.stdout.startswith("{"):
        return {"failed": done.stderr[-600:]}
    diagnosis = json.loads(done.stdout)
    return {key: diagnosis.get(key) for key in ("cause", "headline", "not_recorded")}


def main() -> int:
    parser = argparse.ArgumentParser(description="One program, three recorders")
    parser.add_argument("--ranks", type=int, default=64, help="a square number")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        recorders: dict[str, dict[str, object]] = {}
        pairs: dict[str, dict[tuple[int, int], list[int]]] = {}
        paths = recorded(work, options.ranks, options.steps)
        for tool, path in paths.items():
            try:
                program = read_trace(path)
            except TailbackError as error:
                recorders[tool] = {"failed": str(error)}
                continue
            pairs[tool] = point_to_point(program)
            totals = [sum(counts[k] for counts in pairs[tool].values()) for k in (0, 1)]
            recorders[tool] = {
                "messages": totals[0],
                "bytes": totals[1],
                "sends": calls(program),
                "notes": program.notes,
            }
        reference = pairs.get("record", {})
        for tool, theirs in pairs.items():
            different = [
                pair
                for pair in sorted(reference.keys() | theirs.keys())
                if reference.get(pair) != theirs.get(pair)
            ]
            recorders[tool]["pairs_unlike_record"] = len(different)
            recorders[tool]["example"] = [
                {"pair": pair, "record": reference.get(pair), tool: theirs.get(pair)}
                for pair in different[:1]
            ]
        for tool in pairs:
            recorders[tool]["verdict"] = verdict(work, paths[tool])
    print(
        json.dumps(
            {
                "machine": machine(),
                "ranks": options.ranks,
                "steps": options.steps,
                "recorders": recorders,
            },
            indent=None if options.json else 1,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
