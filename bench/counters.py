"""All tables and figures of an archive of port counters: ``python bench/counters.py --records N``.

Prints seconds, peak resident memory and rows per second of the analysis (Parquet to Tables I to III
and Figures 4 to 7 as files), beside a plain pandas version of the same tables without figures and a
NumPy version of Table II alone. Each runs in a separate process, imports included, on the first
``--cores`` cores; their tables are compared. ``--study torus`` does the torus study instead:
distributions, correlations, I/O links, evolution, figures, beside distributions, correlations and
means of links with pandas. The archive is synthetic and made first; that time is not counted.
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

from tailback import TailbackError


def ours(archive: Path) -> dict[str, Any]:
    """Every table and figure with the library."""
    import polars as pl

    from tailback.port_counters.analysis import rounds, study
    from tailback.port_counters.analysis.study_folder import write_study

    found = study.infiniband(
        rounds.archive(archive), pl.read_parquet(archive / "classes.parquet"), title="benchmark"
    )
    with tempfile.TemporaryDirectory() as folder:
        files = write_study(found, Path(folder) / "out")

    def column(table: str, *names: str) -> dict[Any, Any]:
        return {
            (row["category"], row["port_type"]): row[names[0]]
            if len(names) == 1
            else tuple(row[name] for name in names)
            for row in found.tables[table].iter_rows(named=True)
            if row[names[-1]] is not None
        }

    two = {k: v for k, v in column("table_ii", "min", "max", "outliers").items() if v[2]}
    seven = {k: v for k, v in column("figure_7", "outliers").items() if v}
    ones = dict.fromkeys(column("table_i", "rounds"), 0) | column("table_ii", "at_least_one")
    return {
        "files": len(files),
        "check": _check(
            column("table_i", "rounds"),
            column("figure_5", "nonzero_percent"),
            two,
            seven,
            ones,
            found.tables["table_iii"]["fraction"][0],
        ),
    }


def plain_numpy(archive: Path) -> dict[str, Any]:
    """The same tables in the obvious way: all columns in memory, no figure."""
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
    kind = (classes["category"] + " " + classes["port_type"]).to_numpy()[link[starts]]
    table_ii = {}
    for name in sorted(set(kind.tolist())):
        values = maximum[(kind == name) & (maximum > 0)]
        if len(values) == 0:
            continue
        low, high = np.quantile(values, [0.25, 0.75])
        spread = 1.5 * (high - low)
        outliers = values[(values > high + spread) | (values < low - spread)]
        if len(outliers):
            least, most = round(float(outliers.min()), 9), round(float(outliers.max()), 9)
            table_ii[name] = [least, most, len(outliers)]
    return {"files": 0, "check": {"table_ii": table_ii}}


def plain_pandas(archive: Path) -> dict[str, Any]:
    """Tables I to III and the numbers of Figures 5 to 7 in plain pandas."""
    import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]

    columns = ["round", "node_name", "port", "time_ns", "turnaround_ns", "xmit_wait_ticks"]
    files = sorted(archive.glob("part-*.parquet"))
    frame = pd.concat([pd.read_parquet(file, columns=columns) for file in files])
    # Differences become floats, which cannot represent nanoseconds since 1970 exactly.
    frame["time_ns"] -= frame["time_ns"].iloc[0]
    steps = frame.groupby("round")[["time_ns", "xmit_wait_ticks"]].diff()
    frame["fraction"] = 22.0 * steps["xmit_wait_ticks"] / steps["time_ns"]
    frame["stalled"] = frame["fraction"].where(frame["fraction"] > 0)
    known = pd.read_parquet(archive / "classes.parquet")
    rounds = frame.groupby("round").agg(
        node_name=("node_name", "first"),
        port=("port", "first"),
        intervals=("fraction", "count"),
        nonzero=("stalled", "count"),
        maximum=("fraction", "max"),
        average=("stalled", "mean"),
    )
    rounds = rounds.merge(known, on=["node_name", "port"])
    group = ["category", "port_type"]
    by_class = rounds.groupby(group)
    table_i = by_class.size()
    figure_5 = 100 * by_class["nonzero"].sum() / by_class["intervals"].sum()
    some = rounds[rounds["nonzero"] > 0].copy()
    tables = {}
    for value in ("maximum", "average"):  # Figures 6 and 7
        quarters = some.groupby(group)[value].quantile([0.25, 0.5, 0.75]).unstack()
        some = some.merge(quarters.reset_index(), on=group)
        spread = 1.5 * (some[0.75] - some[0.25])
        some["out"] = (some[value] > some[0.75] + spread) | (some[value] < some[0.25] - spread)
        tables[value] = some[some["out"]].groupby(group)[value].agg(["min", "max", "size"])
        some = some.drop(columns=[0.25, 0.5, 0.75])
    at_least_one = (rounds["maximum"] >= 1).groupby([rounds[g] for g in group]).sum()
    worst = frame.loc[frame["round"] == frame["round"].iloc[frame["fraction"].argmax()]]
    table_iii = float(worst["fraction"].max())
    table_ii = tables["maximum"]
    return {
        "files": 0,
        "check": _check(
            {key: int(n) for key, n in table_i.items()},
            {key: float(v) for key, v in figure_5.items()},
            {
                key: (float(r["min"]), float(r["max"]), int(r["size"]))
                for key, r in table_ii.iterrows()
            },
            {key: int(r["size"]) for key, r in tables["average"].iterrows()},
            {key: int(n) for key, n in at_least_one.items()},
            table_iii,
        ),
    }


def _check(
    table_i: dict[Any, int],
    figure_5: dict[Any, float],
    table_ii: dict[Any, tuple[float, float, int]],
    figure_7: dict[Any, int],
    at_least_one: dict[Any, int],
    table_iii: float,
) -> dict[str, Any]:
    """The values on which two versions must agree."""

    def plain(table: dict[Any, Any]) -> dict[str, Any]:
        def short(value: Any) -> Any:
            return round(value, 9) if isinstance(value, float) else value

        return {
            " ".join(key): [short(v) for v in value] if isinstance(value, tuple) else short(value)
            for key, value in sorted(table.items())
        }

    return {
        "table_i": plain(table_i),
        "figure_5": plain(figure_5),
        "table_ii": plain(table_ii),
        "figure_7_outliers": plain(figure_7),
        "at_least_one": plain(at_least_one),
        "table_iii": round(table_iii, 9),
    }


def plain_pandas_torus(archive: Path) -> dict[str, Any]:
    """Distributions, Table I and the means of links of the torus study with pandas."""
    import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]

    values = ["stall_fraction", "internal_stall_fraction", "utilization"]
    files = sorted(archive.glob("part-*.parquet"))
    frame = pd.concat(
        [pd.read_parquet(f, columns=["node_name", "port", "direction", *values]) for f in files]
    )
    frame["axis"] = frame["direction"].str[0]
    by_axis = frame.groupby("axis")
    # A complementary distribution: of each value the share that is above.
    above = {v: {a: 1 - x.rank(method="max", pct=True) for a, x in by_axis[v]} for v in values}
    pairs = {a: x[values].corr()["utilization"] for a, x in by_axis}
    means = frame.groupby(["node_name", "port"])["stall_fraction"].mean()
    assert len(above) == 3 and len(means) > 0
    return {
        "files": 0,
        "check": {
            a: [round(float(r["stall_fraction"]), 7), round(float(r["internal_stall_fraction"]), 7)]
            for a, r in sorted(pairs.items())
        },
    }


def torus(archive: Path) -> dict[str, Any]:
    """Distributions, correlations, I/O comparison and evolution graph of the torus study."""
    import polars as pl

    from tailback.port_counters.analysis import study
    from tailback.port_counters.analysis.passes import Archive
    from tailback.port_counters.analysis.study_folder import write_study

    where = pl.read_parquet(archive / "coordinates.parquet")
    files = sorted(archive.glob("part-*.parquet"))
    found = study.torus(
        Archive(pl.scan_parquet(files), tuple(str(file) for file in files)),
        where,
        io_nodes=where["node_name"].to_list()[::24],
    )
    with tempfile.TemporaryDirectory() as folder:
        written = write_study(found, Path(folder) / "out")
    check = {
        row["group"]: [round(row["credit"], 7), round(row["inq"], 7)]
        for row in found.tables["table_i"].iter_rows(named=True)
    }
    return {"files": len(written), "check": check}


STUDIES = {"infiniband": ("tailback", "pandas", "numpy"), "torus": ("torus", "pandas-torus")}
KINDS = {
    "tailback": ours,
    "pandas": plain_pandas,
    "numpy": plain_numpy,
    "torus": torus,
    "pandas-torus": plain_pandas_torus,
}


def measure(kind: str, archive: Path) -> None:
    """Run one version in this process and print its time and memory."""
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
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),
            env={**os.environ, "POLARS_MAX_THREADS": str(len(allowed))},
        )
        if child.returncode != 0:
            return {"error": child.stderr.strip().split("\n")[-1]}
        results.append(json.loads(child.stdout))
    best: dict[str, Any] = min(results, key=lambda r: r["seconds"])
    best["all_seconds"] = [r["seconds"] for r in results]
    best["rows_per_s"] = round(records / best["seconds"])
    return best


def _agrees(first: dict[str, Any], other: dict[str, Any]) -> bool | None:
    """Whether the tables of both are the same; None for a table that only one made."""
    if "error" in first or "error" in other:
        return None
    return all(first["check"][name] == table for name, table in other["check"].items())


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
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from studies.archives import torus, yellowstone

    records = options.records
    with tempfile.TemporaryDirectory() as folder:
        where: Path = options.archive or Path(folder) / "archive"
        if options.study == "torus":
            links = 6 * torus.SHAPE[0] * torus.SHAPE[1] * torus.SHAPE[2]
            minutes = -(-records // links)
            records = minutes * links
        if not where.exists() and options.study == "torus":
            torus.write(where, minutes)
        elif not where.exists():
            yellowstone.write(where, records)
        results = {
            kind: run(kind, where, records, options.cores, options.repeat)
            for kind in STUDIES[options.study]
        }
    first = results[STUDIES[options.study][0]]
    agree = {kind: _agrees(first, other) for kind, other in list(results.items())[1:]}
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
    out["tables_agree_with"] = agree
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
        for kind, same in agree.items():
            if same is not None:
                print(f"tables {'agree with' if same else 'DIFFER FROM'} {kind}")
    return 1 if False in agree.values() or "error" in first else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TailbackError as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)
