"""CPU seconds and memory of the readers of traces: `python bench/readers.py [FORMAT …] [--json]`.

Writes a trace of each format of a ring of ranks that exchange messages and compute, reads it in a
separate process on one thread, and prints events compiled per second of CPU time and bytes of peak
memory per event, beyond what the interpreter and its libraries take. An event is an operation of
the trace: a call, a node, a line, a record. A path in place of a format reads that trace; its
events are the operations of the program. Memory is also given per operation of the program: a
blocking call becomes a message, a wait for it and the computation before it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from _shared import machine, put

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "measurements" / "speed.md"
sys.path.insert(0, str(ROOT))


def goal(folder: Path, ranks: int, rounds: int) -> int:
    """Text of LogGOPSim: computation, a send and a receive, each after the round before."""
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        lines.append(f"rank {rank} {{")
        for k in range(rounds):
            lines += [
                f"c{k}: calc 1000",
                f"s{k}: send 8192b to {(rank + 1) % ranks} tag {k}",
                f"r{k}: recv 8192b from {(rank - 1) % ranks} tag {k}",
                f"s{k} requires c{k}",
            ]
            if k:
                lines += [f"c{k} requires r{k - 1}", f"r{k} requires r{k - 1}"]
        lines.append("}")
    (folder / "ring.goal").write_text("\n".join(lines) + "\n")
    return 3 * ranks * rounds


def simgrid_ti(folder: Path, ranks: int, rounds: int) -> int:
    """One file of a time-independent trace: compute, isend, irecv, waitall."""
    lines = [f"{rank} init" for rank in range(ranks)]
    for rank in range(ranks):
        to, source = (rank + 1) % ranks, (rank - 1) % ranks
        lines += [
            f"{rank} compute 1000",
            f"{rank} isend {to} 5 8192 0",
            f"{rank} irecv {source} 5 8192 0",
            f"{rank} waitall 2",
        ] * rounds
    lines += [f"{rank} finalize" for rank in range(ranks)]
    (folder / "ti.txt").write_text("\n".join(lines) + "\n")
    return 4 * ranks * rounds


def chakra(folder: Path, ranks: int, rounds: int) -> int:
    """Nodes of a rank each: computation, a send and a receive with their dependencies."""
    from tests.factories import chakra_traces as made

    for rank in range(ranks):
        nodes = []
        for k in range(rounds):
            before = [3 * k - 1] if k else []
            nodes += [
                made.compute(3 * k, 1, after=before),
                made.send(3 * k + 1, (rank + 1) % ranks, 8192, k, after=[3 * k]),
                made.node(
                    3 * k + 2,
                    6,
                    after=before,
                    comm_size=8192,
                    comm_tag=k,
                    comm_src=(rank - 1) % ranks,
                ),
            ]
        parts = (made.METADATA, *nodes)
        content = b"".join(made.varint(len(part)) + part for part in parts)
        (folder / f"ring.{rank}.et").write_bytes(content)
    return 3 * ranks * rounds


def dumpi(folder: Path, ranks: int, rounds: int) -> int:
    """Binary files: MPI_Send and MPI_Recv in turn, even ranks first."""
    from tests.factories import dumpi_traces as made

    scripts = []
    for rank in range(ranks):
        script = []
        for k in range(rounds):
            to, source = (rank + 1) % ranks, (rank - 1) % ranks
            message = {"count": 99, "datatype": made.INT, "tag": k, "comm": made.WORLD}
            pair = [
                ("MPI_Send", {**message, "dest": to}),
                ("MPI_Recv", {**message, "source": source}),
            ]
            for half, (name, fields) in enumerate(pair if rank % 2 == 0 else pair[::-1]):
                at = 100 * (2 * k + half)
                script.append((at, at + 50, name, fields))
        scripts.append(script)
    made.write(folder, *scripts)
    return 2 * ranks * rounds


def otf2(folder: Path, ranks: int, rounds: int) -> int:
    """OTF2: MPI_Irecv, MPI_Isend, MPI_Waitall with both neighbours, at times an MPI_Allreduce."""
    from tests.factories.otf2_halo import write

    return write(folder, ranks, rounds)


FORMATS: dict[str, Callable[[Path, int, int], int]] = {
    "dumpi": dumpi,
    "goal": goal,
    "simgrid-ti": simgrid_ti,
    "chakra": chakra,
    "otf2": otf2,
}

_CHILD = """
import json, sys, time
from pathlib import Path
from tailback.traffic.readers import read_trace
import polars, scipy.sparse
def peak():
    # Not ru_maxrss: that begins with the memory of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
before, start = peak(), time.process_time()
program = read_trace(Path(sys.argv[1]))
print(json.dumps({"cpu_s": time.process_time() - start, "bytes": peak() - before,
                  "peak_bytes": peak(), "operations": len(program.kind),
                  "ranks": program.n_ranks}))
"""


_MEASURED = (
    _CHILD.replace("program = read_trace(", "program = measure(")
    .replace(
        "from tailback.traffic.readers import read_trace", "from tailback.evidence import measure"
    )
    .replace("len(program.kind)", "len(program.tables['calls'])")
    .replace("program.n_ranks", "program.measured.n_ranks")
)


def measure(path: Path, child: str = _CHILD) -> dict[str, float]:
    """CPU seconds, memory and size of the program of one trace, read in a separate process."""
    threads = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "TAILBACK_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-c", child, str(path)],
        env={**os.environ, **threads},
        check=True,
        capture_output=True,
        text=True,
    )
    costs: dict[str, float] = json.loads(done.stdout)
    return costs


TITLES = {
    "dumpi": "DUMPI, binary",
    "goal": "GOAL, text",
    "simgrid-ti": "SimGrid",
    "chakra": "Chakra",
    "otf2": "OTF2, one thread of each rank calls MPI",
}
"""What the page calls the formats."""


def table(rows: list[dict[str, float | str]]) -> str:
    """Speed and memory by format, in Markdown."""
    lines = [
        "| trace | events | million events per CPU s | bytes per event |",
        "|---|" + "---:|" * 3,
    ]
    for row in rows:
        events = float(row["events"])
        speed = events / float(row["cpu_s"]) / 1e6
        each = float(row["bytes"]) / events
        lines.append(f"| {TITLES[str(row['trace'])]} | {events:,.0f} | {speed:.1f} | {each:.0f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed and memory of the readers of traces")
    parser.add_argument("what", nargs="*", help="formats, or paths of traces; all formats if none")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument(
        "--measured",
        action="store_true",
        help="split the measured time of OTF2 traces instead; an operation is a call",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}, all formats")
    options = parser.parse_args()
    rows: list[dict[str, float | str]] = []
    for what in options.what or list(FORMATS):
        with tempfile.TemporaryDirectory() as folder:
            path, events = Path(what), 0
            if what in FORMATS:
                events = FORMATS[what](Path(folder), options.ranks, options.rounds)
                path = (
                    next(Path(folder).iterdir()) if what in ("goal", "simgrid-ti") else Path(folder)
                )
            costs = measure(path, _MEASURED if options.measured else _CHILD)
        events = events or int(costs["operations"])
        rows.append(
            {"trace": path.name if what not in FORMATS else what, "events": events, **costs}
        )
    if options.write:
        put(PAGE, {"readers": table(rows)})
    if options.json:
        print(json.dumps({"machine": machine(), "rows": rows}))
        return 0
    print(machine() + "; one thread, CPU time")
    for row in rows:
        events = float(row["events"])
        print(
            f"{row['trace']:>14}: {events:12,.0f} events, {row['cpu_s']:7.2f} s, "
            f"{events / float(row['cpu_s']) / 1e6:6.2f} M events/s, "
            f"{float(row['bytes']) / events:7.0f} B an event, "
            f"{float(row['bytes']) / float(row['operations']):4.0f} B an operation, "
            f"peak {float(row['peak_bytes']) / 1e9:.2f} GB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
