"""Adds the skipped steps to the outcome of a simulation.

Simulated events are kept but shifted by the time skipped before them. Each skip adds a window with
the traffic of its steps: the traffic of the simulated steps it is extrapolated from, scaled by the
number of repetitions. Samples of skipped packets are drawn at random. The number of packets of a
label on a link is known. Each is sampled there with the same probability as in a simulation, so
estimates and their intervals keep their statistical meaning.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.simulation.link_traffic import LinkTraffic
from tailback.simulation.outcome import Columns, ExtrapolatedOutcome

NEVER = np.iinfo(np.uint64).max

TRUTH = (
    "packets",
    "bytes",
    "observed_packets",
    "congested_packets",
    "observed_congested_packets",
    "busy_ps",
    "stall_ps",
)
"""Additive columns of table ``truth``."""

KEYS = ("window", "label", "link")
"""Key columns of tables by window. The others are sums."""

STREAM = 0x736B6970
"""Second key, beside the seed, of the generator that draws samples, which keeps it independent of
the engine's random numbers."""


@dataclass(frozen=True, eq=False)
class JobSkip:
    """Consecutive steps of one job that were skipped.

    Attributes:
        ranks: Ranks of the job in the program of all jobs.
        shift_ps: Extrapolated time of the steps.
        compute_ps: Computation time of each rank in these steps, shape (R,).
        marks: Marks of the simulated steps that they are extrapolated from, shape (K,).
        mark_steps: Number of steps that have each of these marks, shape (K,).
        factor: Number of skipped steps per marked one.
        packets: Data packets of the skipped steps, including those within hosts.
        messages: Messages of the skipped steps.
        observed: Whether the job is observed.
        hops: Estimated number of switch visits of their packets.
        apart: Ranks without messages in these steps or later, shape (R,): they take the time of
            their computations whatever others do. None if there are none.
    """

    ranks: slice
    shift_ps: int
    compute_ps: NDArray[np.int64]
    marks: NDArray[np.int64]
    mark_steps: NDArray[np.int64]
    factor: float
    packets: int
    messages: int
    hops: float
    observed: bool = True
    apart: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class Skip:
    """An interval of the whole run, of all jobs, that was not simulated.

    Attributes:
        at_ps: Its position in simulated time.
        shift_ps: Its duration.
        jobs: Skipped steps of each job.
    """

    at_ps: int
    shift_ps: int
    jobs: Sequence[JobSkip]


@dataclass(frozen=True, eq=False)
class _Timeline:
    """Maps simulated time to time in the whole run."""

    border_ps: NDArray[np.int64]
    shift_ps: NDArray[np.int64]
    width_ps: int

    @staticmethod
    def of(skips: Sequence[Skip], width_ps: int) -> _Timeline:
        at = np.array([skip.at_ps for skip in skips], np.int64)
        if width_ps:
            # Simulated windows are not split.
            at = (at + width_ps // 2) // width_ps * width_ps
        return _Timeline(at, np.array([skip.shift_ps for skip in skips], np.int64), width_ps)

    def shift(self, time_ps: NDArray[np.integer]) -> NDArray[np.int64]:
        """Shift of each simulated time in the whole run."""
        total = np.concatenate([[0], np.cumsum(self.shift_ps)])
        return total[np.searchsorted(self.border_ps, time_ps.astype(np.int64), side="right")]

    def window(self, window: NDArray[np.integer]) -> NDArray[np.uint32]:
        """Index in the whole run of each simulated window."""
        first = self.border_ps // max(self.width_ps, 1)
        moved = np.searchsorted(first, window.astype(np.int64), side="right")
        return (window + moved).astype(np.uint32)

    def skip_windows(self) -> list[int]:
        """Index of the window of each skip."""
        return [int(at) // max(self.width_ps, 1) + i for i, at in enumerate(self.border_ps)]

    def starts(self, end_ps: int) -> NDArray[np.uint64]:
        """Start of each window of the whole run; ``end_ps`` is the end of the simulated time."""
        if not self.width_ps:
            return np.zeros(0, np.uint64)
        simulated = np.arange(0, max(end_ps, 1, *(self.border_ps + 1)), self.width_ps)
        moved = self.border_ps + np.concatenate([[0], np.cumsum(self.shift_ps)[:-1]])
        return np.sort(np.concatenate([simulated + self.shift(simulated), moved])).astype(np.uint64)


def with_skips(
    outcome: _core.PacketOutcome,
    skips: Sequence[Skip],
    n_labels: int,
    start_ps: NDArray[np.uint64],
    *,
    seed: int,
    one_in: float,
    link_group: NDArray[np.int64],
) -> ExtrapolatedOutcome:
    """The outcome of a run with its skipped steps added.

    Args:
        outcome: Outcome of the simulated steps; labels of messages from ``n_labels`` on are of
            marked steps.
        skips: The skips, in order of time.
        n_labels: Number of labels of the program.
        start_ps: Start time of each rank, shape (R,).
        seed: Seed of the samples that are drawn.
        one_in: Number of packets per sample that arrives.
        link_group: Group of interchangeable links that each link belongs to, -1 for none.
    """
    timeline = _Timeline.of(skips, outcome.window_ps)
    ranks = _ranks(outcome, skips, start_ps)
    messages = _messages(outcome, timeline, n_labels)
    truth: Columns = outcome.truth
    samples: Columns = outcome.samples
    links_half = None
    if outcome.window_ps:
        generator = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
        skipped_traffic = [_traffic(outcome, skip, link_group) for skip in skips]
        traffic = [
            {name: column.estimate()[0] for name, column in of.items()} for of in skipped_traffic
        ]
        total = sum((columns["bytes"] for columns in skipped_traffic), LinkTraffic.none(link_group))
        links_half = total.precision().half
        passes = [
            _passing_packets(outcome, skip, estimate)
            for skip, estimate in zip(skips, traffic, strict=True)
        ]
        drawn = draw_samples(samples, passes, one_in, generator)
        truth = _add_skip_windows(truth, [_truth_rows(estimate) for estimate in traffic], timeline)
        samples = _add_skip_windows(samples, drawn, timeline)
    jobs = [job for skip in skips for job in skip.jobs]
    packets = sum(job.packets for job in jobs)
    return ExtrapolatedOutcome(
        packets=outcome.packets + packets,
        packet_hops=outcome.packet_hops + round(sum(job.hops for job in jobs)),
        vc_refused=outcome.vc_refused,
        marked_packets=outcome.marked_packets,
        notifications=outcome.notifications,
        pauses=outcome.pauses,
        paused_ps=outcome.paused_ps,
        events=outcome.events,
        end_ps=_end(outcome, skips, int(ranks["finish_ps"].max(initial=0))),
        complete=outcome.complete,
        window_ps=outcome.window_ps,
        window_starts=timeline.starts(outcome.end_ps),
        skip_windows=timeline.skip_windows(),
        messages_left_out=sum(job.messages for job in jobs),
        observed_left_out=sum(job.packets for job in jobs if job.observed),
        links_half=links_half,
        ranks=ranks,
        computations=_computations(outcome, timeline),
        messages=messages,
        samples=samples,
        truth=truth,
    )


def _ranks(
    outcome: _core.PacketOutcome, skips: Sequence[Skip], start_ps: NDArray[np.uint64]
) -> dict[str, NDArray[Any]]:
    """Table of ranks: time without computation is waiting, as no other operation takes time."""
    if not skips:
        return {name: np.asarray(column) for name, column in outcome.ranks.items()}
    finish = np.asarray(outcome.ranks["finish_ps"]).astype(np.int64)
    compute = np.asarray(outcome.ranks["compute_ps"]).astype(np.int64)
    for job in (job for skip in skips for job in skip.jobs):
        apart = np.zeros(len(job.compute_ps), np.bool_) if job.apart is None else job.apart
        finish[job.ranks] += np.where(apart, job.compute_ps, job.shift_ps)
        compute[job.ranks] += job.compute_ps
    wait = np.maximum(finish - start_ps.astype(np.int64) - compute, 0)
    return {
        "finish_ps": finish.astype(np.uint64),
        "compute_ps": compute.astype(np.uint64),
        "wait_ps": wait.astype(np.uint64),
    }


def _end(outcome: _core.PacketOutcome, skips: Sequence[Skip], finish_ps: int) -> int:
    """End of the whole run, the last rank of which ends at ``finish_ps``."""
    later = sum(skip.shift_ps for skip in skips)
    if not any(job.apart is not None and job.apart.any() for skip in skips for job in skip.jobs):
        return max(outcome.end_ps + later, finish_ps)
    arrival = np.asarray(outcome.messages["arrival_ps"])
    return max(int(arrival[arrival != NEVER].max(initial=0)) + later, finish_ps)


def _messages(
    outcome: _core.PacketOutcome, timeline: _Timeline, n_labels: int
) -> dict[str, NDArray[Any]]:
    """Simulated messages, each shifted as a whole to its time in the whole run."""
    columns = {name: np.asarray(column) for name, column in outcome.messages.items()}
    later = timeline.shift(columns["post_ps"]).astype(np.uint64)
    for name in ("post_ps", "start_ps", "arrival_ps"):
        columns[name] = np.where(columns[name] == NEVER, NEVER, columns[name] + later)
    columns["label"] = columns["label"] % np.uint32(n_labels)
    return columns


def _computations(outcome: _core.PacketOutcome, timeline: _Timeline) -> dict[str, NDArray[Any]]:
    rank = np.asarray(outcome.computations["rank"])
    start = np.asarray(outcome.computations["start_ps"])
    return {"rank": rank, "start_ps": start + timeline.shift(start).astype(np.uint64)}


def _add_skip_windows(
    table: Columns, skipped: Sequence[Columns], timeline: _Timeline
) -> dict[str, NDArray[Any]]:
    """A table by window with the rows of skips: those of each skip are a window of their own."""
    window = timeline.window(np.asarray(table["window"]))
    numbers = timeline.skip_windows()
    edges = [0, *np.searchsorted(window, numbers).tolist(), len(window)]
    out = {}
    for name, column in table.items():
        simulated = window if name == "window" else np.asarray(column)
        parts = []
        for i, (begin, end) in enumerate(itertools.pairwise(edges)):
            parts.append(simulated[begin:end])
            if i < len(numbers):
                rows = skipped[i]
                extrapolated = (
                    np.full(len(rows["link"]), numbers[i]) if name == "window" else rows[name]
                )
                parts.append(extrapolated.astype(np.uint32 if name in KEYS else np.uint64))
        out[name] = np.concatenate(parts)
    return out


def _factors(table: Columns, skip: Skip) -> NDArray[np.float64]:
    """Number of skipped steps for each simulated one, by row of a table by step."""
    step = np.asarray(table["window"]).astype(np.int64)
    marks = max((int(job.marks.max(initial=0)) for job in skip.jobs), default=0)
    factor = np.zeros(max(marks, int(step.max(initial=0)) + 1))
    for job in skip.jobs:
        factor[job.marks - 1] = job.factor
    return factor[step]


def _traffic(
    outcome: _core.PacketOutcome, skip: Skip, link_group: NDArray[np.int64]
) -> dict[str, LinkTraffic]:
    """Traffic of the steps of a skip, by column of :data:`TRUTH`."""
    table = outcome.step_truth
    out = {name: LinkTraffic.none(link_group) for name in TRUTH}
    for job in skip.jobs:
        if not len(job.marks):
            continue
        for name in TRUTH:
            out[name] += marked_traffic(
                table, name, job.marks, job.mark_steps, job.factor, link_group
            )
    return out


def marked_traffic(
    table: Columns,
    name: str,
    marks: NDArray[np.int64],
    mark_steps: NDArray[np.int64],
    factor: float,
    link_group: NDArray[np.int64],
) -> LinkTraffic:
    """Traffic of skipped steps, extrapolated from a column of the traffic of marked steps.

    Args:
        table: Traffic by link and mark; the window is the mark minus 1.
        name: The column.
        marks: Marks of the steps that it is extrapolated from, ascending.
        mark_steps: Number of steps that have each of these marks.
        factor: Number of skipped steps for each of those.
        link_group: Group of interchangeable links that each link belongs to, -1 for none.
    """
    mark = np.asarray(table["window"]).astype(np.int64) + 1
    at = np.full(max(int(mark.max(initial=0)), int(marks.max(initial=0))) + 1, -1)
    at[marks] = np.arange(len(marks))
    part = at[mark]
    is_marked = part >= 0
    link = np.asarray(table["link"]).astype(np.int64)[is_marked]
    value = np.asarray(table[name]).astype(np.float64)[is_marked]
    return LinkTraffic.of_marks(link, part[is_marked], value, mark_steps, factor, link_group)


def _truth_rows(traffic: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[Any]]:
    """Rows of the skipped steps of one skip."""
    rounded = {name: np.rint(value) for name, value in traffic.items()}
    link = np.flatnonzero(rounded["packets"] + rounded["congested_packets"] > 0)
    return {"link": link, **{name: value[link] for name, value in rounded.items()}}


def _passing_packets(
    outcome: _core.PacketOutcome, skip: Skip, traffic: dict[str, NDArray[np.float64]]
) -> LabelPasses:
    """Packets of observed jobs in the skipped steps that each link could sample, by label and link.

    Summed over labels they equal the packets of each link in ``traffic``.
    """
    table: Columns = outcome.step_passes
    factor = _factors(table, skip)
    used = np.flatnonzero(factor > 0)
    links = len(traffic["packets"])
    label, link = (np.asarray(table[name])[used].astype(np.int64) for name in ("label", "link"))
    key, row = np.unique(label * links + link, return_inverse=True)
    counts = []
    for name, of_link in (
        ("hop_samples", "observed_packets"),
        ("congested_samples", "observed_congested_packets"),
    ):
        value = np.bincount(row, np.asarray(table[name])[used] * factor[used], len(key))
        total = np.bincount(key % links, value, links)
        ratio = np.where(total > 0, traffic[of_link] / np.maximum(total, 1e-300), 1.0)
        counts.append(value * ratio[key % links])
    return LabelPasses(key // links, key % links, *counts)


# --- samples of skipped steps ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelPasses:
    """Packets of observed jobs that pass switches which could sample them, by label and link.

    Attributes:
        label: Label of each row, ascending, shape (M,).
        link: Link that the packets leave the switch by, ascending for each label, shape (M,).
        passed: Estimated number of packets, shape (M,).
        met: Estimated number of those that meet congestion there, shape (M,).
    """

    label: NDArray[np.int64]
    link: NDArray[np.int64]
    passed: NDArray[np.float64]
    met: NDArray[np.float64]


def draw_samples(
    samples: Columns, passes: Sequence[LabelPasses], one_in: float, generator: np.random.Generator
) -> list[dict[str, NDArray[Any]]]:
    """Samples of skipped packets, drawn for each label and link.

    A packet with l switches on its path is sampled at each with probability 1 / l. The number of
    samples of a label on a link is therefore drawn from a binomial distribution, and each sample
    counts for l packets: their sum has the number of passing packets as its expectation, and its
    variance is estimated by the sum of l (l - 1). The same holds for samples of congested hops. l
    is the mean over the simulated samples of the label and link, or of the label if there are none.

    Args:
        samples: Samples of simulated packets, as table ``samples``.
        passes: Packets by label and link in each skip.
        one_in: Number of packets per sample that arrives.
        generator: Draws them.

    Returns:
        Rows of table ``samples`` for each skip, without their window.
    """
    means = _Means.of(samples)
    return [_draw_rows(skip, means, one_in, generator) for skip in passes]


@dataclass(frozen=True, eq=False)
class _Means:
    """Simulated samples summed over windows.

    Attributes:
        width: More than the number of any link.
        key: Label times ``width`` plus link, ascending, shape (K,).
        sums: Sums of each column by key, shape (K,).
        of_label: Sums of each column by label.
    """

    width: int
    key: NDArray[np.int64]
    sums: dict[str, NDArray[np.float64]]
    of_label: dict[str, NDArray[np.float64]]

    @staticmethod
    def of(samples: Columns) -> _Means:
        label, link = (np.asarray(samples[name]).astype(np.int64) for name in ("label", "link"))
        width = int(link.max(initial=0)) + 1
        key, row = np.unique(label * width + link, return_inverse=True)
        names = [name for name in samples if name not in ("window", "label", "link")]
        sums = {name: _summed(row, samples[name], len(key)) for name in names}
        of_label = {name: _summed(key // width, value) for name, value in sums.items()}
        return _Means(width, key, sums, of_label)

    def per_sample(self, passes: LabelPasses, about: str, name: str) -> NDArray[np.float64]:
        """Mean of a column per sample, of each label and link or else of the label."""
        wanted = passes.label * self.width + passes.link
        if not len(self.key):
            return np.zeros(len(wanted))
        at = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        is_sampled = (self.key[at] == wanted) & (passes.link < self.width)
        samples = f"{about}_samples"
        of_link = np.where(is_sampled, self.sums[samples][at], 0.0)
        label = np.minimum(passes.label, len(self.of_label[samples]) - 1)
        has_label = passes.label == label
        others, of_label = (
            np.where(has_label, self.of_label[column][label], 0.0) for column in (samples, name)
        )
        sums = np.where(of_link > 0, self.sums[name][at], of_label)
        return np.asarray(sums / np.maximum(np.where(of_link > 0, of_link, others), 1))


def _summed(row: NDArray[np.int64], value: Any, length: int = 0) -> NDArray[np.float64]:
    """Sums of values by row number."""
    return np.asarray(np.bincount(row, value, length), np.float64)


def _draw_rows(
    passes: LabelPasses, means: _Means, one_in: float, generator: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Rows of samples of one skip."""
    out: dict[str, NDArray[Any]] = {"label": passes.label, "link": passes.link}
    for about, passed in (("hop", passes.passed), ("congested", passes.met)):
        weight = np.maximum(means.per_sample(passes, about, f"{about}_weight"), 1.0)
        packets = np.rint(passed).astype(np.int64)
        drawn = generator.binomial(packets, 1 / (weight * one_in))
        integer = np.floor(weight)
        # Weights are whole numbers: randomized rounding preserves their mean.
        more = generator.binomial(drawn, weight - integer)
        out[f"{about}_samples"] = drawn
        out[f"{about}_weight"] = drawn * integer + more
        out[f"{about}_variance"] = np.rint(
            drawn * means.per_sample(passes, about, f"{about}_variance")
        )
        if about == "hop":
            out["hop_bytes"] = np.rint(drawn * means.per_sample(passes, "hop", "hop_bytes"))
    there = out["hop_samples"] + out["congested_samples"] > 0
    return {name: column[there] for name, column in out.items()}
