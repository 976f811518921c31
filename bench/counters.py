"""All tables and figures of an archive of port counters: ``python bench/counters.py --records N``.

Prints seconds, peak resident memory and rows per second of the analysis (Parquet to Tables I to
III and Figures 4 to 7 as files), beside a plain NumPy version of the same tables that reads the
whole archive at once, and beside pandas where it is installed. Each runs in a process of its own.
``--study torus`` does the torus study instead: distributions, correlations, I/O links, evolution.
The archive is synthetic and made first; that time is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tailback.errors import TailbackError


def ours(archive: Path) -> dict[str, Any]:
    """Every table and figure with the library."""
    import polars as pl

    from tailback.counters.analysis import rounds, study

    found = study.infiniband(
        rounds.scan(archive), pl.read_parquet(archive / "classes.parquet"), title="benchmark"
    )
    with tempfile.TemporaryDirectory() as folder:
        files = study.write(found, Path(folder) / "out")
    table = found.tables["table_ii"]
    return {
        "files": len(files),
        "check": [round(v, 9) for v in table["max"]] + table["outliers"].to_list(),
    }


def plain_numpy(archive: Path) -> dict[str, Any]:
    """The same tables as one writes them first: all columns in memory, no figure."""
    import numpy as np
    import polars as pl

    parts = [
        pl.read_parquet(file, columns=["round", "link", "time_ns", "xmit_wait_ticks"])
        for file in sorted(archive.glob("part-*.parquet"))
    ]
    whole = pl.concat(parts)
    number, link = whole["round"].to_numpy(), whole["link"].to_numpy()
    time_ns, wait = whole["time_ns"].to_numpy(), whole["xmit_wait_ticks"].to_numpy()
    same = number[1:] == number[:-1]
    fraction = 22.0 * np.diff(wait.astype(np.int64)) / np.diff(time_ns)
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    fraction[~same] = 0.0
    maximum = np.maximum.reduceat(np.append(fraction, 0.0), starts)
    classes = pl.read_parquet(archive / "classes.parquet")
    kind = (classes["category"] + classes["port_type"]).to_numpy()[link[starts]]
    check_max, check_out = [], []
    order = ["Spine", "Leaf", "ToR", "DAVSpine", "DAVLeaf", "GladeSpine", "GladeLeaf"]
    for name in (c + t for c in order for t in ("down", "up")):
        values = maximum[(kind == name) & (maximum > 0)]
        if len(values) == 0:
            continue
        low, high = np.quantile(values, [0.25, 0.75])
        spread = 1.5 * (high - low)
        outliers = values[(values > high + spread) | (values < low - spread)]
        check_max.append(round(float(outliers.max()), 9) if len(outliers) else None)
        check_out.append(len(outliers))
    return {"files": 0, "check": check_max + check_out}


def plain_pandas(archive: Path) -> dict[str, Any]:
    """Table II with pandas, where somebody has installed it."""
    import pandas as pd  # type: ignore[import-untyped, import-not-found]

    frame = pd.concat(
        pd.read_parquet(file, columns=["round", "time_ns", "xmit_wait_ticks"])
        for file in sorted(archive.glob("part-*.parquet"))
    )
    steps = frame.groupby("round")[["time_ns", "xmit_wait_ticks"]].diff()
    frame["fraction"] = 22.0 * steps["xmit_wait_ticks"] / steps["time_ns"]
    return {"files": 0, "check": [float(frame.groupby("round")["fraction"].max().max())]}


def torus(archive: Path) -> dict[str, Any]:
    """Distributions, correlations, I/O comparison and evolution graph of the torus study."""
    import polars as pl

    from tailback.counters.analysis import study

    where = pl.read_parquet(archive / "coordinates.parquet")
    found = study.torus(
        pl.scan_parquet(sorted(archive.glob("part-*.parquet"))), where,
        io_nodes=where["node_name"].to_list()[::24],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        files = study.write(found, Path(folder) / "out")
    return {"files": len(files), "check": None}


STUDIES = {"infiniband": ("tailback", "numpy", "pandas"), "torus": ("torus",)}
KINDS = {"tailback": ours, "numpy": plain_numpy, "pandas": plain_pandas, "torus": torus}


def measure(kind: str, archive: Path) -> None:
    """Run one version in this process and print what it took."""
    start = time.perf_counter()
    out = KINDS[kind](archive)
    out["seconds"] = round(time.perf_counter() - start, 3)
    used = resource.getrusage(resource.RUSAGE_SELF)
    out["cpu_seconds"] = round(used.ru_utime + used.ru_stime, 3)
    out["peak_rss_bytes"] = used.ru_maxrss * 1024
    print(json.dumps(out))


def run(kind: str, archive: Path, records: int, cores: int, repeat: int) -> dict[str, Any]:
    """The best of ``repeat`` processes on the first ``cores`` cores that we may use."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    results = []
    for _ in range(repeat):
        child = subprocess.run(
            [sys.executable, __file__, "--measure", kind, "--archive", str(archive)],
            capture_output=True, text=True, check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),
            env={**os.environ, "POLARS_MAX_THREADS": str(len(allowed))},
        )  # fmt: skip
        if child.returncode != 0:
            return {"error": child.stderr.strip().split("\n")[-1]}
        results.append(json.loads(child.stdout))
    best: dict[str, Any] = min(results, key=lambda r: r["seconds"])
    best["all_seconds"] = [r["seconds"] for r in results]
    best["rows_per_s"] = round(records / best["seconds"])
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description="All tables and figures of counter archives.")
    parser.add_argument("--records", type=int, default=30_000_000)
    parser.add_argument("--study", choices=STUDIES, default="infiniband")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--archive", type=Path, help="an archive made before; kept")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.archive)
        return 0
    from tailback.counters import archive, archive_torus

    records = options.records
    with tempfile.TemporaryDirectory() as folder:
        where: Path = options.archive or Path(folder) / "archive"
        if options.study == "torus":
            links = 6 * archive_torus.SHAPE[0] * archive_torus.SHAPE[1] * archive_torus.SHAPE[2]
            minutes = -(-records // links)
            records = minutes * links
        if not where.exists() and options.study == "torus":
            archive_torus.write(where, minutes)
        elif not where.exists():
            archive.write(where, records)
        results = {
            kind: run(kind, where, records, options.cores, options.repeat)
            for kind in STUDIES[options.study]
        }
    first = results[STUDIES[options.study][0]]
    agree = options.study == "torus" or first.get("check") == results["numpy"].get("check")
    for result in results.values():
        result.pop("check", None)
    out = {
        "study": options.study,
        "records": records,
        "cores": options.cores,
        **{k: first.get(k) for k in ("seconds", "peak_rss_bytes", "rows_per_s")},
        "versions": results,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_version()}",
    }
    if options.study == "infiniband":
        out["tables_agree_with_numpy"] = agree
    if options.json:
        print(json.dumps(out, indent=2))
    else:
        for kind, result in results.items():
            if "error" in result:
                print(f"{kind:10} not measured: {result['error']}")
            else:
                print(
                    f"{kind:10} {result['seconds']:7.2f} s {result['peak_rss_bytes'] / 1e6:7.0f} "
                    f"MB {result['rows_per_s'] / 1e6:6.1f} M rows/s"
                )
        if options.study == "infiniband":
            print("tables agree with the NumPy version" if agree else "TABLES DIFFER")
    return 0 if agree and "error" not in first else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TailbackError as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)
