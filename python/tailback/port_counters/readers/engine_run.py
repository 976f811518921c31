"""Simulated runs: simulated port counters, or the true traffic of every link.

A simulated port gives the same rows as a real one, so every analysis of counters can be checked
where the truth is known. A run with counters (``[probes] counters`` of its scenario) gives
readings. A run without gives its time windows as intervals.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tailback.errors import RunError, TailbackError
from tailback.port_counters.readers.model import CounterData
from tailback.port_counters.schema import INTERVALS, READINGS, SIMULATED, CounterError, conform
from tailback.run.run import Run, run_folder

HAS_TIME_STAMPS = True

_PS_PER_NS = 1000


def sniff(path: Path) -> bool:
    """A run directory, or a result of ``diagnose``, which contains a run."""
    return path.is_dir() and (run_folder(path) / "run.json").is_file()


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read a run directory.

    Args:
        path: Output folder of ``tailback simulate --out`` or ``tailback diagnose``.
        time_ns: UTC time of the start of the run; 1970 when None.

    Raises:
        RunError: It is no run directory or is damaged.
    """
    path = run_folder(path)
    try:
        return from_run(Run.read(path), time_ns=time_ns or 0)
    except TailbackError as error:
        raise error.located(path) from None
    except (AttributeError, KeyError, TypeError) as error:  # JSON of another shape
        raise RunError(
            f"damaged run directory: {error!r}",
            file=path / "run.json",
            remedy="run the scenario again",
        ) from None


def from_run(run: Run, *, time_ns: int = 0) -> CounterData:
    """The counters of a run, one row for every link and reading or window, idle ones included.

    Args:
        run: A simulated run.
        time_ns: UTC time of its start, nanoseconds.

    Raises:
        RunError: It is of the fluid model, which has neither packets nor stalls.
    """
    if run.summary.get("model", "packet") != "packet":
        raise RunError(
            "a run of the fluid model has no packets and no stalls to count",
            remedy="simulate the scenario with packets",
        )
    if run.summary.get("counters_ps"):
        return CounterData(readings=_readings(run, time_ns), notes=run.skip_notes)
    return CounterData(intervals=_intervals(run, time_ns), notes=run.skip_notes)


def _readings(run: Run, time_ns: int) -> pl.DataFrame:
    """Table ``counters`` with a row for every link and instant, including the start."""
    end, step = int(run.summary["end_ps"]), int(run.summary["counters_ps"])
    instants = np.append(np.arange(0, end, step, dtype=np.uint64), np.uint64(end))
    counted = ("data_bytes", "packets", "stall_ps", "inq_ps")
    table = run.tables["counters"].select("link", "time_ps", *counted)
    # Runs of earlier versions lack some counters.
    available = [name for name in counted if not table[name].null_count()]
    links = run.tables["links"].select("link", "src_name", "src_port", "direction", "rate_gbps")
    frame = (
        links.lazy()
        .join(pl.LazyFrame({"time_ps": instants}), how="cross")
        .join(table.lazy(), on=["link", "time_ps"], how="left")
        .sort("link", "time_ps")
        # No row means no change.
        .with_columns(pl.col(*available).forward_fill().over("link").fill_null(0))
        .select(
            time_ns=(pl.col("time_ps") // _PS_PER_NS).cast(pl.Int64) + time_ns,
            port=pl.col("src_port"),
            node_name=pl.col("src_name"),
            link=pl.col("link"),
            direction=pl.col("direction"),
            data_bytes=pl.col("data_bytes"),
            packets=pl.col("packets"),
            stall_ns=pl.col("stall_ps") // _PS_PER_NS,
            internal_stall_ns=pl.col("inq_ps") // _PS_PER_NS,
            capacity_gbps=pl.col("rate_gbps"),
            source=pl.lit(SIMULATED),
        )
    )
    return conform(READINGS, frame.collect())


def _intervals(run: Run, time_ns: int) -> pl.DataFrame:
    """The truth of a run by time window, with stalls divided among the windows they span."""
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
            source=pl.lit(SIMULATED),
        )
    )
    return spread_stalls(conform(INTERVALS, frame.collect()))


def spread_stalls(intervals: pl.DataFrame) -> pl.DataFrame:
    """Divide stalls among the windows they span.

    The engine records a stall when it ends, so a long one gives a fraction above 1 there and 0 in
    the windows before. A link stalls for one packet at a time, so the excess of a window belongs
    directly before it.

    Args:
        intervals: Rows of ``counter_intervals`` of a simulation, the same windows for every link.

    Returns:
        The same rows, in order of link and time, no fraction above 1.

    Raises:
        CounterError: Links have different numbers of windows.
    """
    rows = intervals.sort("link", "time_ns")
    counts = rows.group_by("link").len()["len"]
    if rows.is_empty():
        return rows
    windows = int(counts[0])
    if (counts != windows).any():
        raise CounterError("links have different windows", remedy="give the rows of one run")
    stall = rows["stall_ns"].to_numpy().reshape(-1, windows).copy()
    length = rows["interval_ns"].to_numpy().reshape(-1, windows)
    carried = np.zeros(len(stall))
    for window in range(windows - 1, -1, -1):
        owed = stall[:, window] + carried
        stall[:, window] = np.minimum(owed, length[:, window])
        carried = owed - stall[:, window]
    return rows.with_columns(stall_ns=pl.Series(stall.ravel())).with_columns(
        stall_fraction=pl.col("stall_ns") / pl.col("interval_ns")
    )
