"""Quantities of the two measurement studies, as their papers define them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.port_counters import CounterError

FDR_TICK_NS: Final = 22.0
"""Tick of PortXmitWait that Alali et al. take for their FDR switches (III-D)."""


def forced_idle_fraction(
    wait_ticks: NDArray[np.int64],
    query_ns: NDArray[np.int64],
    turnaround_ns: NDArray[np.int64],
    tick_ns: float = FDR_TICK_NS,
) -> NDArray[np.float64]:
    """Equation 3 for one round.

    Args:
        wait_ticks: PortXmitWait of each reading, shape (n,).
        query_ns: When each query was issued, nanoseconds, shape (n,).
        turnaround_ns: Time from query to answer, nanoseconds, shape (n,).
        tick_ns: Length of a tick, nanoseconds.

    Returns:
        The fractions, shape (n − 1,); above 1 if the two times were estimated inaccurately.
    """
    # Twice the time keeps nanoseconds of the epoch exact in integers.
    twice = 2 * query_ns.astype(np.int64) + turnaround_ns.astype(np.int64)
    return np.asarray(tick_ns * np.diff(wait_ticks) / (np.diff(twice) / 2.0), np.float64)


def percent_time_stalled(
    stalled_ns: NDArray[np.float64], interval_ns: NDArray[np.float64]
) -> float:
    """Percent time stalled of a link of several tiles (definitions 2.1 and 2.2).

    The average over the tiles of the time stalled, of the time they were observed. (The paper
    divides by the interval in both equations; its percentages result from dividing once.)

    Args:
        stalled_ns: Time each tile was stalled, nanoseconds, shape (tiles,).
        interval_ns: Time each tile was observed, nanoseconds, shape (tiles,).
    """
    observed = float(np.sum(interval_ns))
    if observed <= 0:
        raise CounterError("no time observed", remedy="an interval is longer than 0 ns")
    return 100.0 * float(np.sum(stalled_ns)) / observed


def percent_bandwidth_used(
    bytes_before: int, bytes_now: int, interval_ns: int, tile_gbps: float, tiles: int
) -> float:
    """Percentage of a link's bandwidth that was used (definition 2.3).

    Args:
        bytes_before: Byte count of the link at the start.
        bytes_now: Byte count at the end.
        interval_ns: Nanoseconds between them.
        tile_gbps: Data rate of a tile, gigabits per second.
        tiles: Number of tiles of the link.
    """
    if interval_ns <= 0 or tile_gbps <= 0 or tiles <= 0:
        raise CounterError(
            f"interval {interval_ns} ns, {tiles} tiles of {tile_gbps} Gb/s",
            remedy="all three are above 0",
        )
    return 100.0 * (bytes_now - bytes_before) * 8 / (interval_ns * tile_gbps * tiles)


def share_above(distribution: pl.DataFrame, percent: float) -> dict[str, float]:
    """Of each group, the share of link-intervals above ``percent``, from :func:`ccdf`."""
    at = distribution.filter(pl.col("percent") <= percent).group_by("group", maintain_order=True)
    out = {str(name): 1.0 for name in distribution["group"].unique(maintain_order=True)}
    return out | {str(key[0]): float(rows["ccdf"][-1]) for key, rows in at}


def run_time_correlation(
    run_seconds: NDArray[np.float64], stall_percent: NDArray[np.float64]
) -> tuple[float, float]:
    """Correlation of an application's run time with the mean stall of its links (section III).

    Args:
        run_seconds: Run time of each run, shape (runs,).
        stall_percent: Mean percent time stalled of the links of each run, shape (runs,).

    Returns:
        Pearson's coefficient and its two-sided p-value.

    Raises:
        CounterError: Fewer than three runs, or no variation.
    """
    x, y = np.asarray(run_seconds, np.float64), np.asarray(stall_percent, np.float64)
    if x.shape != y.shape or len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        raise CounterError(
            f"{len(x)} runs cannot be correlated",
            remedy="give three or more runs that differ in run time and in stall",
        )
    from scipy import stats  # takes a second to import: only where it is needed

    correlation = stats.pearsonr(x, y)
    return float(correlation.statistic), float(correlation.pvalue)
