"""The engine's own runs: what really crossed every link, as intervals of port counters.

A simulated port gives the same rows as a real one, so every analysis of measured counters can be
checked against a fabric where the truth is known.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tailback.counters.readers.model import Counters
from tailback.counters.schema import INTERVALS, conform
from tailback.run import Run

_PS_PER_NS = 1000


def sniff(path: Path) -> bool:
    """A run directory."""
    return path.is_dir() and (path / "run.json").is_file()


def read(path: Path, *, time_ns: int | None = None) -> Counters:
    """Read a run directory.

    Args:
        path: What ``tailback simulate --out`` wrote.
        time_ns: UTC time of the start of the run; 1970 when None.

    Raises:
        RunError: It is no run directory or is damaged.
    """
    return from_run(Run.read(path), time_ns=time_ns or 0)


def from_run(run: Run, *, time_ns: int = 0) -> Counters:
    """The truth of a run, one row for every link and window, idle ones included.

    Args:
        run: A simulated run.
        time_ns: UTC time of its start, nanoseconds.
    """
    windows = run.tables["windows"].with_columns(
        interval_ps=(pl.col("end_ps") - pl.col("start_ps")).cast(pl.Float64)
    )
    links = run.tables["links"].select("link", "src_name", "src_port", "direction", "rate_gbps")
    length = pl.col("interval_ps")
    frame = (
        windows.lazy()
        .join(links.lazy(), how="cross")
        .join(run.tables["truth"].lazy(), on=["window", "link"], how="left")
        .filter(length > 0)
        .sort("link", "window")
        .select(
            time_ns=(pl.col("end_ps") // _PS_PER_NS).cast(pl.Int64) + time_ns,
            interval_ns=(length / _PS_PER_NS).round().cast(pl.Int64).clip(lower_bound=1),
            port=pl.col("src_port"),
            node_name=pl.col("src_name"),
            link=pl.col("link"),
            direction=pl.col("direction"),
            data_bytes=pl.col("bytes").fill_null(0),
            packets=pl.col("packets").fill_null(0),
            stall_ns=pl.col("stall_ps").fill_null(0) / _PS_PER_NS,
            stall_fraction=pl.col("stall_ps").fill_null(0) / length,
            utilization=pl.col("busy_ps").fill_null(0) / length,
            capacity_gbps=pl.col("rate_gbps"),
            source=pl.lit("simulation"),
        )
    )
    return Counters(intervals=conform(INTERVALS, frame.collect()))
