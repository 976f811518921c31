"""What the rows of a run stand for where steps were left out (table ``skips``).

Only simulated messages have rows. Those of the steps that skipped ones were extrapolated from stand
for the messages of these, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.run.run import Run


@dataclass(frozen=True)
class SkippedTime:
    """A window that stands for steps left out.

    Attributes:
        start_ps: Its start; the simulated steps that stand for it end here.
        end_ps: Its end.
        basis_ps: Time of those simulated steps.
    """

    start_ps: int
    end_ps: int
    basis_ps: int


def skipped_times(tables: Mapping[str, pl.DataFrame]) -> list[SkippedTime]:
    """The windows that stand for steps left out, in order of time; none without telemetry."""
    skips = tables.get("skips")
    if skips is None or skips.is_empty():
        return []
    windows = (
        skips.filter(pl.col("window").is_not_null())
        .group_by("window")
        .agg(basis=(pl.col("basis").cast(pl.Int64) * pl.col("step_ps").cast(pl.Int64)).max())
        .join(tables["windows"], on="window")
        .sort("start_ps")
    )
    return [SkippedTime(*row) for row in windows.select("start_ps", "end_ps", "basis").iter_rows()]


def simulated_ps(run: Run) -> int:
    """Elapsed time of a run less the time of the steps that were left out, at least 1 ps."""
    skips = run.tables.get("skips")
    if skips is None or skips.is_empty():
        return run.elapsed_ps
    # The jobs of a skip leave out the same time.
    of_job = skips.group_by("job").agg(pl.col("time_ps").sum())["time_ps"].to_numpy()
    return max(run.elapsed_ps - int(of_job.max()), 1)


def copies(tables: Mapping[str, pl.DataFrame]) -> NDArray[np.float64]:
    """Number of messages of the whole run that each row of table ``messages`` stands for.

    Without telemetry, the times of the steps that stand for others are not recorded. Then all rows
    of a job share the steps that were left out.

    Args:
        tables: The tables of a run of M messages in the log.

    Returns:
        At least 1, shape (M,).
    """
    log = tables["messages"]
    out = np.ones(log.height)
    skips = tables.get("skips")
    if skips is None or skips.is_empty() or not log.height:
        return out
    ranks = tables["ranks"].sort("rank")
    job = ranks["job"].to_numpy()[log["src_rank"].to_numpy()]
    posted = log["post_ps"].cast(pl.Int64).to_numpy()
    windows = dict(tables["windows"].select("window", "start_ps").iter_rows())
    for row in skips.iter_rows(named=True):
        covered = job == row["job"]
        if row["window"] is None:
            out[covered] += row["steps"] / max(row["first_step"], 1)
            continue
        start = int(windows[row["window"]])
        begin = start - row["basis"] * row["step_ps"]
        covered &= (posted >= begin) & (posted < start)
        out[covered] += row["steps"] / row["basis"]
    return out


def whole_messages(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Table ``messages`` with the bytes of those left out.

    What a message stands for besides itself is one more row, as large as all of these together and
    in flight during the time of the steps left out.
    """
    log = tables["messages"]
    skips = skipped_times(tables)
    if not skips:
        return log
    counted = copies(tables) - 1
    posted = log["post_ps"].cast(pl.Int64).to_numpy()
    out = [log]
    for skip in skips:
        chosen = (
            (posted >= skip.start_ps - skip.basis_ps) & (posted < skip.start_ps) & (counted > 0)
        )
        more = log.filter(pl.Series(chosen))
        size = np.rint(more["size_bytes"].to_numpy() * counted[chosen]).astype(np.uint64)
        times = {"post_ps": skip.start_ps, "start_ps": skip.start_ps, "arrival_ps": skip.end_ps}
        out.append(
            more.with_columns(
                pl.Series("size_bytes", size).cast(log.schema["size_bytes"]),
                *(
                    pl.lit(value).cast(log.schema[name]).alias(name)
                    for name, value in times.items()
                ),
            )
        )
    return pl.concat(out)
