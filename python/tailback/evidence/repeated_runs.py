"""Whether runs of one job take longer the more its adapters stall, and what that costs.

Runs of one job have one name and as many hosts. Their times are compared with the stall of their
adapters by Spearman's rank correlation, whose chance is that of other orders of the times (Alali et
al. 2017, VI, propose this comparison). What a stall costs follows from the Theil–Sen slope.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import permutations
from typing import Any, Final

import numpy as np
import polars as pl

from tailback.arrays import Floats
from tailback.run.schema import Column, Table
from tailback.units import percent

LEAST_RUNS: Final = 5
"""Fewest runs that are compared: the best order of four has p = 1/24, which is no finding."""
SIGNIFICANCE: Final = 0.05
"""Largest p, over all jobs compared, with which a cost is given."""
ORDERS: Final = 9_999
"""Orders that are drawn where there are more."""
RESAMPLINGS: Final = 1_000

JOB_RUNS: Final = Table(
    "job_runs",
    "runs of one job: one name, and as many hosts",
    (
        Column("name", pl.String, "name of the job"),
        Column("hosts", pl.UInt32, "hosts of each run"),
        Column("runs", pl.UInt32, "runs that began and ended in the time of the counters"),
        Column("seconds", pl.Float64, "median time of a run"),
        Column("slowest", pl.Float64, "longest time over the shortest"),
        Column("stall_fraction", pl.Float64, "median over runs of the stall of its adapters"),
        Column("correlation", pl.Float64, "of time and stall over the runs (Spearman)"),
        Column("p", pl.Float64, "chance of it, over all jobs compared"),
        Column("lost_node_hours", pl.Float64, "time lost to stalls; null: not significant"),
        Column("lost_low", pl.Float64, "lower end of its 95 % interval"),
        Column("lost_high", pl.Float64, "upper end"),
    ),
)


def repeated_runs(runs: pl.DataFrame, *, seed: int = 1) -> pl.DataFrame:
    """Compare the runs of each job.

    Args:
        runs: ``name, hosts, seconds, stall_fraction`` of each run.
        seed: Of the orders and resamplings.

    Returns:
        Rows of :data:`JOB_RUNS`, smallest p first; none of jobs with fewer than five runs.
    """
    groups = [
        (name, hosts, group["seconds"].to_numpy(), group["stall_fraction"].to_numpy())
        for (name, hosts), group in runs.sort("name", "hosts", "seconds").group_by(
            "name", "hosts", maintain_order=True
        )
        if group.height >= LEAST_RUNS
    ]
    rows = []
    for name, hosts, seconds, stall in groups:
        rng = np.random.default_rng(seed)
        correlation, p = _rank_test(seconds, stall, rng)
        p = min(1.0, p * len(groups))
        lost = low = high = None
        if p <= SIGNIFICANCE:
            to_hours = float(hosts) / 3600
            lost = _lost_seconds(seconds, stall) * to_hours
            drawn = rng.integers(0, len(seconds), (RESAMPLINGS, len(seconds)))
            again = [_lost_seconds(seconds[at], stall[at]) for at in drawn]
            low, high = (np.quantile(again, [0.025, 0.975]) * to_hours).tolist()
        middle, slowest = float(np.median(seconds)), float(seconds.max() / seconds.min())
        share = float(np.median(stall))
        rows.append(
            (name, hosts, len(seconds), middle, slowest, share, correlation, p, lost, low, high)
        )
    table = pl.DataFrame(rows, schema=JOB_RUNS.polars_schema, orient="row")
    return table.sort("p", "name", "hosts")


def _rank_test(seconds: Floats, stall: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Rank correlation, and the share of other orders with at least as large a one."""
    times, stalls = _ranks(seconds), _ranks(stall)
    scale = math.sqrt(float((times**2).sum() * (stalls**2).sum()))
    if scale == 0:
        return 0.0, 1.0
    observed = float(times @ stalls)
    count = len(times)
    if math.factorial(count) <= ORDERS:
        orders = np.array(list(permutations(range(count))))
        drawn, extra = times[orders] @ stalls, 0
    else:
        drawn, extra = rng.permuted(np.tile(times, (ORDERS, 1)), axis=1) @ stalls, 1
    least = observed - 1e-9 * scale
    return observed / scale, (extra + int((drawn >= least).sum())) / (extra + len(drawn))


def _ranks(values: Floats) -> Floats:
    """Ranks without their mean; equal values share one."""
    ranks = pl.Series(values).rank("average").to_numpy()
    centred: Floats = ranks - ranks.mean()
    return centred


def _lost_seconds(seconds: Floats, stall: Floats) -> float:
    """Time of all runs beyond that without a stall, by the median slope of pairs of runs."""
    first, second = np.triu_indices(len(seconds), 1)
    step = stall[second] - stall[first]
    slopes = (seconds[second] - seconds[first])[step != 0] / step[step != 0]
    slope = float(np.median(slopes)) if len(slopes) else 0.0
    return max(slope, 0.0) * float(stall.sum())


def run_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the table of repeated runs, in words: one cell for each column that is shown."""
    return (
        row["name"],
        f"{row['runs']:,}",
        f"{row['hosts']:,}",
        f"{row['slowest']:.3g} ×",
        percent(row["stall_fraction"]),
        f"{row['correlation']:.2f}",
        f"{row['p']:.2g}",
        _lost_node_hours(row),
    )


def _lost_node_hours(row: Mapping[str, Any]) -> str:
    """Node-hours that the runs of a job lost, with the interval; ``?`` where it is not known."""
    if row["lost_node_hours"] is None:
        return "?"
    low, high = row["lost_low"], row["lost_high"]
    return f"{row['lost_node_hours']:,.3g} ({low:,.3g} to {high:,.3g})"
