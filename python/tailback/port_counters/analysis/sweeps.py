"""Time steps: which intervals belong together although each port is read at a different instant.

A collector reads one port after another, and samplers that are started "synchronously across all
nodes" use clocks whose skew is not corrected (Jha et al., *Characterizing Supercomputer Traffic
Networks Through Link-Level Analysis*, HPCMASPA 2018, II-D). The readings within one sampling period
are one *sweep*. Sweeps are numbered by periods, so a period without any interval leaves a gap
across which no feature can continue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


def usual_interval() -> pl.Expr:
    """The sampling period: the median length of an interval, nanoseconds; 0 where none is known."""
    return pl.col("interval_ns").median().fill_null(0).cast(pl.Int64)


def instant(period_ns: pl.Expr) -> pl.Expr:
    """Instant that represents an interval, nanoseconds: the middle of its last period.

    Its end would not do: the last interval of a simulated run is shorter, and would be counted as a
    second one of the sweep before.
    """
    length = pl.col("interval_ns").fill_null(0)
    return pl.col("time_ns") - pl.min_horizontal(length, period_ns) // 2


@dataclass(frozen=True, eq=False)
class Sweeps:
    """The sweeps of some intervals, in order; those without any are left out.

    Attributes:
        period_ns: Usual length of an interval. Where it is unknown it is 0, and every distinct time
            is a sweep.
        start_ns: Instant from which intervals belong to each sweep, shape (sweeps,).
        number: Number of each sweep, counting empty periods, shape (sweeps,).
        time_ns: Earliest end of an interval in each, shape (sweeps,).
    """

    period_ns: int
    start_ns: NDArray[np.int64]
    number: NDArray[np.int64]
    time_ns: NDArray[np.int64]

    @classmethod
    def of(cls, intervals: pl.DataFrame) -> Sweeps:
        """Find the sweeps.

        Args:
            intervals: Columns ``time_ns`` and ``interval_ns`` of ``counter_intervals``.
        """
        period = int(intervals.select(usual_interval()).item())
        times = intervals["time_ns"].to_numpy()
        if period <= 0 or not len(times):
            distinct = np.unique(times).astype(np.int64)
            return cls(0, distinct, np.arange(len(distinct)), distinct)
        instants = _instants(intervals, period)
        number, start = _split_by_gaps(instants, period) or _split_by_period(instants, period)
        earliest = np.full(len(number), np.iinfo(np.int64).max)
        np.minimum.at(earliest, np.searchsorted(start, instants, "right") - 1, times)
        return cls(period, start, number, earliest)

    def at(self, intervals: pl.DataFrame) -> NDArray[np.int64]:
        """The row of ``start_ns`` that each interval belongs to, shape (intervals,)."""
        following = np.searchsorted(self.start_ns, _instants(intervals, self.period_ns), "right")
        return np.asarray(following - 1, np.int64)


def _split_by_gaps(
    instants: NDArray[np.int64], period_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Number and start of sweeps separated by half a period without readings; None if they are not.

    These need no common clock, so a sampler may drift by sleeping between sweeps.
    """
    at = np.unique(instants)
    pause = np.diff(at) > period_ns // 2
    first, last = at[np.append(True, pause)], at[np.append(pause, True)]
    if (last - first).max() >= period_ns // 2:
        return None
    passed = np.maximum(np.rint(np.diff(first) / period_ns).astype(np.int64), 1)
    # A subset of the rows may lack the first of a sweep.
    return np.append(0, np.cumsum(passed)), first - period_ns // 4


def _split_by_period(
    instants: NDArray[np.int64], period_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number and start of sweeps by the clock, divided in the longest pause of a period."""
    phase = np.unique(instants % period_ns)
    pause = np.diff(phase, append=phase[0] + period_ns)
    longest = int(pause.argmax())
    border = int(phase[longest] + (pause[longest] + 1) // 2)
    number = np.unique((instants - border) // period_ns)
    return number, border + number * period_ns


def _instants(intervals: pl.DataFrame, period_ns: int) -> NDArray[np.int64]:
    at = intervals.select(instant(pl.lit(period_ns, pl.Int64)).alias("at"))["at"]
    return np.asarray(at.to_numpy(), np.int64)
