"""A large archive of port counters, alone and on Dask: ``python bench/archive.py [--write]``.

Writes an archive of intervals of 60 s of a fabric in the shape of Yellowstone (29,808 ports), one
Parquet file an hour, with a list of 300 jobs, and measures on one core, each in its own process:

tailback   ``tailback counters ARCHIVE --fabric --jobs --html --out``: all tables, figures, tables
           by job
duckdb     one table of the same files, in the same run: stalled time, largest stall and bytes of
           each port; needs ``pip install duckdb``
dask       ``--dask`` only: the same tables on one worker of a local cluster, and its memory

``--write`` puts the table into docs/measurements/speed.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _shared import machine, put

from tailback.port_counters.targets import read_targets
from tests.factories.ibsim_subnet import YELLOWSTONE, write_net

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "speed.md"
SECOND, BEGUN_S, INTERVAL_S = 10**9, 1_700_000_000, 60
AN_HOUR, JOBS, YEAR_INTERVALS = 60, 300, 365 * 24 * 60
GBPS = 54.545

_TIMED = """
import json, resource, sys, time
from pathlib import Path
begun = time.perf_counter()
{work}
# Not ru_maxrss: that begins with the memory of the process that started this one.
status = Path("/proc/self/status").read_text()
use = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({{"cpu_s": use.ru_utime + use.ru_stime, "wall_s": time.perf_counter() - begun,
    "peak_gb": int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9, "more": more}}))
"""
_TAILBACK = """
import contextlib, io
from tailback.cli import run
with contextlib.redirect_stdout(io.StringIO()):
    code = run(["counters", "archive", "--fabric", "fabric.txt", "--jobs", "jobs.csv",
                "--html", "page.html", "--out", "tables", "--force"])
assert code == 0
more = sorted(path.name for path in Path("tables").iterdir())
"""
_DUCKDB = """
import duckdb
base = duckdb.connect()
base.execute("SET threads = 1")
more = base.execute('''
    SELECT count(*) FROM (
        SELECT node_guid, port, sum(stall_fraction * interval_ns), max(stall_fraction),
               sum(data_bytes), count(*)
        FROM 'archive/*.parquet' GROUP BY node_guid, port)''').fetchone()[0]
"""
_DASK = """
import tailback as tb
from distributed import Client, LocalCluster
one = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
with LocalCluster(**one) as local:
    with Client(local) as client:
        result = tb.counters("archive", fabric="fabric.txt", jobs="jobs.csv", course=True,
                             cluster=local.scheduler_address)
        def used():
            use = resource.getrusage(resource.RUSAGE_SELF)
            peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
            return use.ru_utime + use.ru_stime, int(peak) * 1024 / 1e9
        ((worker_s, worker_gb),) = client.run(used).values()
more = {"worker_cpu_s": worker_s, "worker_gb": worker_gb, "ports": result.frame.height}
"""


def write(folder: Path, shape: dict[str, int], intervals: int) -> int:
    """Fabric, jobs and archive; the number of rows."""
    write_net(folder / "fabric.txt", **shape)
    text = (folder / "fabric.txt").read_text().replace("lid 0", "lid 1")
    (folder / "fabric.txt").write_text(text)
    ports = read_targets(folder / "fabric.txt", tick_ns=18.77).targets
    hosts = [f"ys{t:03d}n{h + 1:02d}" for t in range(shape["tors"]) for h in range(shape["hosts"])]
    rng = np.random.Generator(np.random.Philox(key=[1, len(ports)]))
    write_jobs(folder / "jobs.csv", hosts, intervals, rng)
    frame = pl.DataFrame(
        {
            "node_guid": [port.guid for port in ports],
            "node_name": [port.node_name for port in ports],
            "port": [port.port for port in ports],
            "interval_ns": INTERVAL_S * SECOND,
            "capacity_gbps": GBPS,
            "flags": 0,
        },
        schema_overrides={"node_guid": pl.UInt64, "port": pl.UInt16, "flags": pl.UInt32},
    )
    stalls = np.where(rng.random(len(ports)) < 0.02, rng.random(len(ports)) * 0.5, 0.0)
    (folder / "archive").mkdir()
    for start in range(0, intervals, AN_HOUR):
        hour = [
            _interval(frame, number, stalls, rng)
            for number in range(start, min(start + AN_HOUR, intervals))
        ]
        pl.concat(hour).write_parquet(folder / f"archive/{start:06}.parquet")
    return len(ports) * intervals


def _interval(
    frame: pl.DataFrame, number: int, stalls: np.ndarray[Any, Any], rng: np.random.Generator
) -> pl.DataFrame:
    """One interval of every port; a port that stalls does so in half of them."""
    used = rng.random(frame.height) * 0.5
    share = stalls * (rng.random(frame.height) < 0.5)
    sent = (used * GBPS / 8 * SECOND * INTERVAL_S).astype(np.uint64)
    return frame.with_columns(
        time_ns=(BEGUN_S + INTERVAL_S * (number + 1)) * SECOND,
        data_bytes=sent,
        received_bytes=sent,
        packets=sent // np.uint64(2048),
        stall_ns=share * INTERVAL_S * SECOND,
        stall_fraction=share,
        utilization=used,
    )


def write_jobs(path: Path, hosts: list[str], intervals: int, rng: np.random.Generator) -> None:
    """Jobs, one after the other on each part of the machine."""
    parts = max(1, JOBS // 10)
    width = max(1, len(hosts) // parts)
    lines = ["job,name,start,end,hosts"]
    for number in range(JOBS):
        part, turn = number % parts, number // parts
        edges = [BEGUN_S + intervals * INTERVAL_S * (turn + k) // (JOBS // parts) for k in (0, 1)]
        mine = hosts[part * width : (part + 1) * width]
        lines.append(f'{1000 + number},app{part},{edges[0]},{edges[1]},"{",".join(mine)}"')
    path.write_text("\n".join(lines) + "\n")


def timed(work: str, folder: Path) -> dict[str, Any]:
    """Times and memory of statements in their own process on one core."""
    threads = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "TAILBACK_THREADS")
    core = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(
        ["taskset", "-c", core, sys.executable, "-c", _TIMED.format(work=work)],
        cwd=folder,
        env={**os.environ, **dict.fromkeys(threads, "1")},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table(rows: dict[str, dict[str, float]], intervals: int) -> str:
    """The figures in Markdown."""
    lines = [
        "| what | intervals | CPU s | wall-clock s | peak memory |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {intervals / 1e6:,.1f} M | {row['cpu_s']:.1f} | {row['wall_s']:.1f} | "
            f"{row['peak_gb']:.2f} GB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Write, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="14 switches instead of 738")
    parser.add_argument("--intervals", type=int, default=1007, help="of 60 s, of each port")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dask", action="store_true", help="on Dask instead")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    chosen = parser.parse_args()
    shape = {"tors": 6, "hosts": 18, "orcas": 1, "leaves": 6, "spines": 2}
    works = {"Dask": _DASK} if chosen.dask else {"tailback": _TAILBACK, "DuckDB": _DUCKDB}
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in works}
    with tempfile.TemporaryDirectory(prefix="tailback-bench-") as name:
        folder = Path(name)
        count = write(folder, shape if chosen.small else YELLOWSTONE, chosen.intervals)
        size = sum(file.stat().st_size for file in (folder / "archive").iterdir())
        for _ in range(chosen.rounds):
            for what, work in works.items():
                rounds[what].append(timed(work, folder))
    rows = {
        what: {
            key: statistics.median(row[key] for row in runs)
            for key in ("cpu_s", "wall_s", "peak_gb")
        }
        for what, runs in rounds.items()
    }
    facts = {"intervals": count, "archive_gb": size / 1e9, "machine": machine(), **rows}
    if chosen.dask:
        workers = [run["more"] for run in rounds["Dask"]]
        worker_s = statistics.median(worker["worker_cpu_s"] for worker in workers)
        facts |= {
            "worker_cpu_s": worker_s,
            "worker_gb": max(worker["worker_gb"] for worker in workers),
            "year_worker_hours": worker_s * YEAR_INTERVALS / chosen.intervals / 3600,
        }
    if chosen.write:
        put(PAGE, {"archive": table(rows, count)})
    print(json.dumps(facts, indent=1) if chosen.json else f"{facts}\n{table(rows, count)}")


if __name__ == "__main__":
    main()
