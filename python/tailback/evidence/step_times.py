"""Network time of the steps of collectives, by sender and receiver, measured and simulated.

All ranks of a ring end a collective together, whichever of its links is slow. The steps tell them
apart: over the slow link they take longest, elsewhere senders wait for data or for a buffer. Times
are means for a byte: steps need not be cut alike in the simulation, and how long each takes varies
with how many are under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from tailback.arrays import Floats, Ints
from tailback.evidence.site_quantiles import alternate
from tailback.identity_cache import PerObject
from tailback.run.run import Run


@dataclass(frozen=True)
class StepProfile:
    """Steps between pairs of ranks on different hosts, K pairs.

    Attributes:
        src_rank: Sender of each pair, shape (K,).
        dst_rank: Receiver, shape (K,).
        count: Bytes of its steps, as a share of all, shape (K,).
        mean_ps: Mean network time for a byte, shape (K,).
    """

    src_rank: Ints
    dst_rank: Ints
    count: Floats
    mean_ps: Floats
    _simulated: PerObject[tuple[Ints, Floats] | None]
    """Pair and time for a byte of each message of a simulation, shape (M,) each."""

    def of_run(self, run: Run) -> Floats | None:
        """Means of the same pairs in a simulation, shape (K,); None if one sends nothing."""
        return self.of_alternating(run, run, 0.0)

    def of_alternating(self, run: Run, other: Run, share: float) -> Floats | None:
        """The same with a share of the messages as in another simulation, shape (K,)."""
        steps, other_steps = self._simulated(run), self._simulated(other)
        if steps is None or other_steps is None or len(steps[0]) != len(other_steps[0]):
            return None
        mixed = alternate(steps[0], steps[1], other_steps[1], share)
        return _means(steps[0], mixed, len(self.count))

    def with_times_of(self, run: Run) -> StepProfile | None:
        """The same with the times of a simulation; None if it does not predict them."""
        simulated = self.of_run(run)
        return None if simulated is None else replace(self, mean_ps=simulated)


def step_profile(tables: Mapping[str, pl.DataFrame], run: Run) -> StepProfile | None:
    """The profile of a measured run.

    Args:
        tables: Tables ``steps`` and ``hosts`` of the run.
        run: A simulation of the same program with a table of messages.

    Returns:
        The profile; None without steps, or if the simulation has other pairs.
    """
    steps = tables["steps"].filter((pl.col("size_bytes") > 0) & (pl.col("network_ps") > 0))
    if not steps.height:
        return None
    pairs = steps.group_by("src_rank", "dst_rank").agg(pl.col("size_bytes").sum())
    pairs = pairs.sort("src_rank", "dst_rank").with_row_index("site")
    rows = steps.join(pairs.select("site", "src_rank", "dst_rank"), on=("src_rank", "dst_rank"))
    site = rows["site"].to_numpy().astype(np.int64)
    times = (rows["network_ps"] / rows["size_bytes"]).to_numpy()
    total = pairs["size_bytes"].to_numpy().astype(np.float64)
    numbers = pairs.select("site", "src_rank", "dst_rank")
    profile = StepProfile(
        pairs["src_rank"].to_numpy().astype(np.int64),
        pairs["dst_rank"].to_numpy().astype(np.int64),
        total / total.sum(),
        _means(site, times, pairs.height),
        PerObject(partial(_times_in, numbers)),
    )
    return None if profile.of_run(run) is None else profile


def _means(site: Ints, ps: Floats, sites: int) -> Floats:
    """Mean of the times of each pair, shape (K,)."""
    count = np.bincount(site, minlength=sites)
    return np.asarray(np.bincount(site, ps, sites) / np.maximum(count, 1), np.float64)


def _times_in(pairs: pl.DataFrame, run: Run) -> tuple[Ints, Floats] | None:
    """Pair of each message of the simulation and its time for a byte, in order of their posts."""
    observed = run.tables["jobs"].filter("observed").select("job")
    ranks = run.tables["ranks"].join(observed, on="job", how="semi").select("rank", "job_rank")
    rows = (
        run.tables["messages"]
        .filter((pl.col("size_bytes") > 0) & pl.col("arrival_ps").is_not_null())
        .join(ranks.rename({"job_rank": "src"}), left_on="src_rank", right_on="rank")
        .join(ranks.rename({"job_rank": "dst"}), left_on="dst_rank", right_on="rank")
        .join(
            pairs.select("site", src=pl.col("src_rank"), dst=pl.col("dst_rank")),
            on=("src", "dst"),
        )
        .sort("post_ps", "message")
    )
    if rows["site"].n_unique() < pairs.height:
        return None
    took = (rows["arrival_ps"] - rows["post_ps"]) / rows["size_bytes"]
    return rows["site"].to_numpy().astype(np.int64), took.to_numpy().astype(np.float64)
