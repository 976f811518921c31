"""What a run would have been with the steps that were left out of it.

What was simulated stays as it is, but later by the time of what is left out before it. Each skip
adds a window, which holds the traffic of its steps: that of the steps it is extrapolated from, as
often as they are repeated. Samples of packets that were not simulated are drawn: the number of a
label's packets that pass a link is known, and each is sampled there with the probability that it
would have had, so that estimators and their intervals mean what they mean elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback import _core
from tailback.fabric.model import Fabric
from tailback.simulation.outcome import Columns, ExtrapolatedOutcome

NEVER = np.iinfo(np.uint64).max

TRUTH = ("packets", "bytes", "observed_packets", "congested_packets", "observed_congested_packets",
         "busy_ps", "stall_ps")  # fmt: skip
"""Columns of table ``truth`` that add up."""

STREAM = 0x736B6970
"""Key of the random numbers that draw samples, besides the seed: a run's others are its own."""


@dataclass(frozen=True, eq=False)
class JobSkip:
    """Steps of one job that were left out at one place.

    Attributes:
        ranks: Its ranks, in the program of all jobs.
        shift_ps: Time that they would have taken.
        compute_ps: Computation of each rank among it, shape (R,).
        marks: Numbers of the simulated steps that stand for them.
        factor: How often each of those is repeated.
        packets: Data packets of the steps, those of messages within hosts included.
        messages: Messages of the steps.
        observed: Whether it is an observed job.
        hops: Switches that their packets visit, estimated.
    """

    ranks: slice
    shift_ps: int
    compute_ps: NDArray[np.int64]
    marks: NDArray[np.int64]
    factor: float
    packets: int
    messages: int
    hops: float
    observed: bool = True


@dataclass(frozen=True, eq=False)
class Skip:
    """Time that was left out of a run, of all jobs.

    Attributes:
        at_ps: Where, in the time of what was simulated.
        shift_ps: How long.
        jobs: Steps of each job.
    """

    at_ps: int
    shift_ps: int
    jobs: Sequence[JobSkip]


def parallel_links(fabric: Fabric) -> NDArray[np.int64]:
    """Links of a tree among which routing spreads the same packets.

    Up, those of a switch; down, those that lead to a switch: whatever goes there may come by each.

    Returns:
        Number of the group of each link, -1 where it is in none, shape (L,).
    """
    between = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    up, down = between & (fabric.link_up > 0), between & (fabric.link_up < 0)
    out = np.full(fabric.n_links, -1, np.int64)
    ends = np.concatenate([fabric.link_src[up].astype(np.int64),
                           -1 - fabric.link_dst[down].astype(np.int64)])  # fmt: skip
    out[np.concatenate([np.flatnonzero(up), np.flatnonzero(down)])] = np.unique(
        ends, return_inverse=True
    )[1]
    return out


@dataclass(frozen=True, eq=False)
class _Timeline:
    """Where the time of what was simulated lies in the whole run."""

    border_ps: NDArray[np.int64]
    shift_ps: NDArray[np.int64]
    width_ps: int

    @staticmethod
    def of(skips: Sequence[Skip], width_ps: int) -> _Timeline:
        at = np.array([skip.at_ps for skip in skips], np.int64)
        if width_ps:
            # Windows that were simulated stay whole.
            at = (at + width_ps // 2) // width_ps * width_ps
        return _Timeline(at, np.array([skip.shift_ps for skip in skips], np.int64), width_ps)

    def later(self, time_ps: NDArray[np.integer]) -> NDArray[np.int64]:
        """By how much each time is later in the whole run."""
        total = np.concatenate([[0], np.cumsum(self.shift_ps)])
        return total[np.searchsorted(self.border_ps, time_ps.astype(np.int64), side="right")]

    def window(self, window: NDArray[np.integer]) -> NDArray[np.uint32]:
        """Number of each simulated window in the whole run."""
        first = self.border_ps // max(self.width_ps, 1)
        moved = np.searchsorted(first, window.astype(np.int64), side="right")
        return (window + moved).astype(np.uint32)

    def skip_windows(self) -> list[int]:
        """Window of each skip."""
        return [int(at) // max(self.width_ps, 1) + i for i, at in enumerate(self.border_ps)]

    def starts(self, end_ps: int) -> NDArray[np.uint64]:
        """First picosecond of each window of the whole run; ``end_ps`` is of what was simulated."""
        if not self.width_ps:
            return np.zeros(0, np.uint64)
        simulated = np.arange(0, max(end_ps, 1, *(self.border_ps + 1)), self.width_ps)
        moved = self.border_ps + np.concatenate([[0], np.cumsum(self.shift_ps)[:-1]])
        return np.sort(np.concatenate([simulated + self.later(simulated), moved])).astype(np.uint64)


def with_skips(
    outcome: _core.PacketOutcome,
    skips: Sequence[Skip],
    n_labels: int,
    start_ps: NDArray[np.uint64],
    *,
    seed: int,
    one_in: float,
    alike: NDArray[np.int64],
) -> ExtrapolatedOutcome:
    """The outcome of a run with what was left out of it.

    Args:
        outcome: What was simulated; labels above ``n_labels`` are those of marked steps.
        skips: What was left out, in order of time.
        n_labels: Labels of the program.
        start_ps: When each rank starts, shape (R,).
        seed: Seed of the samples that are drawn.
        one_in: Packets for each one of which a sample arrives.
        alike: Group of each link among which routing spreads the same packets, -1 for none.
    """
    line = _Timeline.of(skips, outcome.window_ps)
    ranks = _ranks(outcome, skips, start_ps)
    messages = _messages(outcome, line, n_labels)
    truth = pl.DataFrame(outcome.truth).with_columns(pl.col("window").cast(pl.UInt32))
    samples = pl.DataFrame(outcome.samples)
    if outcome.window_ps:
        samples = _folded(samples, n_labels, line)
        generator = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
        truth = truth.with_columns(pl.Series("window", line.window(truth["window"].to_numpy())))
        traffic = [_traffic(outcome, skip, alike) for skip in skips]
        truth = pl.concat([truth, *_truth(traffic, line, truth.columns)], how="vertical_relaxed")
        passes = [_passes(outcome, skip, n_labels, one) for skip, one in
                  zip(skips, traffic, strict=True)]  # fmt: skip
        drawn = _samples(samples, passes, line, one_in, generator)
        truth = truth.group_by("window", "link").agg(pl.all().sum()).sort("window", "link")
        samples = pl.concat([samples, *drawn], how="vertical_relaxed")
        keys = ["window", "label", "link"]
        samples = samples.group_by(keys).agg(pl.all().sum()).sort(keys)
    jobs = [job for skip in skips for job in skip.jobs]
    later = int(line.shift_ps.sum())
    packets = sum(job.packets for job in jobs)
    return ExtrapolatedOutcome(
        packets=outcome.packets + packets,
        packet_hops=outcome.packet_hops + round(sum(job.hops for job in jobs)),
        vc_refused=outcome.vc_refused,
        marked_packets=outcome.marked_packets,
        events=outcome.events,
        end_ps=max(outcome.end_ps + later, int(ranks["finish_ps"].max(initial=0))),
        complete=outcome.complete,
        window_ps=outcome.window_ps,
        window_starts=line.starts(outcome.end_ps),
        skip_windows=line.skip_windows(),
        messages_left_out=sum(job.messages for job in jobs),
        observed_left_out=sum(job.packets for job in jobs if job.observed),
        ranks=ranks,
        computations=_computations(outcome, line),
        messages=messages,
        samples=_columns(samples),
        truth=_columns(truth),
    )


def _columns(frame: pl.DataFrame) -> dict[str, Any]:
    return {name: frame[name].to_numpy() for name in frame.columns}


def _ranks(
    outcome: _core.PacketOutcome, skips: Sequence[Skip], start_ps: NDArray[np.uint64]
) -> dict[str, NDArray[Any]]:
    """Table of ranks: what does not compute waits, as no operation takes time but these."""
    finish = np.asarray(outcome.ranks["finish_ps"]).astype(np.int64)
    compute = np.asarray(outcome.ranks["compute_ps"]).astype(np.int64)
    for job in (job for skip in skips for job in skip.jobs):
        finish[job.ranks] += job.shift_ps
        compute[job.ranks] += job.compute_ps
    wait = np.maximum(finish - start_ps.astype(np.int64) - compute, 0)
    return {"finish_ps": finish.astype(np.uint64), "compute_ps": compute.astype(np.uint64),
            "wait_ps": wait.astype(np.uint64)}  # fmt: skip


def _messages(
    outcome: _core.PacketOutcome, line: _Timeline, n_labels: int
) -> dict[str, NDArray[Any]]:
    """Messages that were simulated, each as a whole at its time in the whole run."""
    columns = {name: np.asarray(column) for name, column in outcome.messages.items()}
    later = line.later(columns["post_ps"]).astype(np.uint64)
    for name in ("post_ps", "start_ps", "arrival_ps"):
        columns[name] = np.where(columns[name] == NEVER, NEVER, columns[name] + later)
    columns["label"] = columns["label"] % np.uint32(n_labels)
    return columns


def _computations(outcome: _core.PacketOutcome, line: _Timeline) -> dict[str, NDArray[Any]]:
    rank = np.asarray(outcome.computations["rank"])
    start = np.asarray(outcome.computations["start_ps"])
    return {"rank": rank, "start_ps": start + line.later(start).astype(np.uint64)}


def _folded(samples: pl.DataFrame, n_labels: int, line: _Timeline) -> pl.DataFrame:
    """Samples by their labels in the program and their windows in the whole run."""
    wide = [name for name in samples.columns if name not in ("window", "label", "link")]
    return samples.with_columns(
        pl.Series("window", line.window(samples["window"].to_numpy())),
        (pl.col("label").cast(pl.UInt32) % n_labels).cast(pl.UInt32),
        pl.col("link").cast(pl.UInt32),
        *(pl.col(name).cast(pl.UInt64) for name in wide),
    )


def _by_step(table: Columns, skip: Skip) -> tuple[pl.DataFrame, NDArray[np.float64]]:
    """Rows of the steps that stand for those of a skip, and how often each is repeated."""
    frame = pl.DataFrame(dict(table))
    step = frame["window"].to_numpy().astype(np.int64)
    marks = max((int(job.marks.max(initial=0)) for job in skip.jobs), default=0)
    factor = np.zeros(max(marks, int(step.max(initial=0)) + 1))
    for job in skip.jobs:
        factor[job.marks - 1] = job.factor
    kept = factor[step] > 0
    return frame.filter(kept), factor[step][kept]


def _traffic(
    outcome: _core.PacketOutcome, skip: Skip, alike: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Traffic of the steps that a skip leaves out, by link, columns of :data:`TRUTH`."""
    frame, factor = _by_step(outcome.step_truth, skip)
    link = frame["link"].to_numpy().astype(np.int64)
    mark = frame["window"].to_numpy().astype(np.int64) + 1
    of_job = [(np.isin(mark, job.marks), len(job.marks)) for job in skip.jobs if len(job.marks)]
    out = {}
    for name in TRUTH:
        value = frame[name].to_numpy().astype(np.float64) * factor
        total, variance = np.zeros(len(alike)), np.zeros(len(alike))
        for own, marks in of_job:
            sums = np.bincount(link[own], value[own], len(alike))
            squares = np.bincount(link[own], value[own] ** 2, len(alike))
            total += sums
            # Of a sum of so many steps, of which some may have no row.
            variance += np.maximum(squares - sums**2 / marks, 0) * marks / max(marks - 1, 1)
        out[name] = _shrunk(total, variance, alike)
    return out


def _shrunk(
    total: NDArray[np.float64], variance: NDArray[np.float64], alike: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Totals of links moved toward the mean of their group, by how little is known of each.

    Empirical Bayes (Morris, 1983): what the links of a group differ by beyond what their variances
    explain is taken for real. Of routing without choices there are no variances, and nothing moves.
    """
    member = alike >= 0
    group, groups = alike[member], int(alike.max(initial=-1)) + 1
    size = np.maximum(np.bincount(group, minlength=groups), 1)
    mean = np.bincount(group, total[member], groups) / size
    noise = np.bincount(group, variance[member], groups) / size
    off = total[member] - mean[group]
    spread = np.bincount(group, off**2, groups) / np.maximum(size - 1, 1)
    real = np.maximum(spread - noise, 0)
    share = real / np.maximum(real + noise, 1e-300)
    share[noise == 0] = 1.0
    out = total.copy()
    out[member] = mean[group] + share[group] * off
    return out


def _truth(
    traffic: list[dict[str, NDArray[np.float64]]], line: _Timeline, columns: list[str]
) -> list[pl.DataFrame]:
    """Rows of the steps that were left out, in a window for each skip."""
    out = []
    for one, window in zip(traffic, line.skip_windows(), strict=True):
        rows = pl.DataFrame(
            {name: np.rint(value).astype(np.uint64) for name, value in one.items()}
        ).with_row_index("link")
        rows = rows.filter(pl.col("packets") + pl.col("congested_packets") > 0)
        out.append(rows.with_columns(window=pl.lit(window, pl.UInt32)).select(columns))
    return out


def _passes(
    outcome: _core.PacketOutcome, skip: Skip, n_labels: int, traffic: dict[str, NDArray[np.float64]]
) -> pl.DataFrame:
    """Packets of observed jobs by label and link that could sample them in the steps left out.

    They add up to those of each link in ``traffic``.
    """
    frame, factor = _by_step(outcome.step_passes, skip)
    frame = frame.select(
        (pl.col("label").cast(pl.UInt32) % n_labels).cast(pl.UInt32).alias("label"),
        pl.col("link").cast(pl.UInt32),
        (pl.col("hop_samples").cast(pl.Float64) * pl.Series(factor)).alias("passed"),
        (pl.col("congested_samples").cast(pl.Float64) * pl.Series(factor)).alias("met"),
    )
    frame = frame.group_by("label", "link").agg(pl.all().sum()).sort("label", "link")
    link = frame["link"].to_numpy().astype(np.int64)
    counted = (("passed", "observed_packets"), ("met", "observed_congested_packets"))
    for name, of_link in counted:
        value = frame[name].to_numpy()
        total = np.bincount(link, value, len(traffic[of_link]))
        ratio = np.where(total > 0, traffic[of_link] / np.maximum(total, 1e-300), 1.0)
        frame = frame.with_columns(pl.Series(name, value * ratio[link]))
    return frame


def _samples(
    samples: pl.DataFrame, passes: list[pl.DataFrame], line: _Timeline, one_in: float,
    generator: np.random.Generator,
) -> list[pl.DataFrame]:  # fmt: skip
    """Samples of packets that were left out, drawn for each label and link.

    A packet with l switches on its path is sampled at each with probability 1 / l. Of the packets
    of a label that pass a link so many are sampled there as a binomial distribution draws, and each
    of these counts for l packets: the sum over them has the number that passed as its expectation,
    and the variance that the sum of l (l - 1) estimates. The same holds for the switches where
    packets met congestion. l is the mean of the samples that were simulated, of that label and link
    where there are any.
    """
    keys = ["label", "link"]
    mean = samples.group_by(keys).agg(pl.all().exclude("window").sum())
    of_label = mean.group_by("label").agg(pl.all().exclude("link").sum())
    out = []
    for frame, window in zip(passes, line.skip_windows(), strict=True):
        known = frame.join(mean, on=keys, how="left").join(
            of_label, on="label", how="left", suffix="_of_label"
        )
        out.append(_drawn(known, window, one_in, generator))
    return out


def _drawn(
    known: pl.DataFrame, window: int, one_in: float, generator: np.random.Generator
) -> pl.DataFrame:
    """Rows of samples of one skip; ``known`` has what passed and what samples are like."""

    def column(name: str) -> NDArray[np.float64]:
        return known[name].cast(pl.Float64).fill_null(0.0).to_numpy()

    def alike(about: str, name: str) -> NDArray[np.float64]:
        """The mean of a sum per sample, of the label and link or else of the label."""
        own, others = column(f"{about}_samples"), column(f"{about}_samples_of_label")
        sums = np.where(own > 0, column(name), column(f"{name}_of_label"))
        return sums / np.maximum(np.where(own > 0, own, others), 1)

    out = {"window": np.full(known.height, window, np.uint32), "label": known["label"].to_numpy(),
           "link": known["link"].to_numpy()}  # fmt: skip
    for about, passed in (("hop", "passed"), ("congested", "met")):
        weight = np.maximum(alike(about, f"{about}_weight"), 1.0)
        packets = np.rint(column(passed)).astype(np.int64)
        drawn = generator.binomial(packets, 1 / (weight * one_in))
        whole = np.floor(weight)
        # So many of them have one more, that their mean is as it should be.
        more = generator.binomial(drawn, weight - whole)
        out[f"{about}_samples"] = drawn
        out[f"{about}_weight"] = drawn * whole + more
        out[f"{about}_variance"] = np.rint(drawn * alike(about, f"{about}_variance"))
        if about == "hop":
            out["hop_bytes"] = np.rint(drawn * alike("hop", "hop_bytes"))
    frame = pl.DataFrame(out).filter(pl.col("hop_samples") + pl.col("congested_samples") > 0)
    order = ["window", "label", "link", "hop_samples", "hop_weight", "hop_variance", "hop_bytes",
             "congested_samples", "congested_weight", "congested_variance"]  # fmt: skip
    return frame.select(
        pl.col(name).cast(pl.UInt32 if name in order[:3] else pl.UInt64) for name in order
    )
