"""Predicted and measured gain of a remedy: was the run as much faster as its diagnosis predicted?

The measured gain compares two recordings of the same program. Its interval comes from the
iterations of the program: blocks of iterations are drawn with replacement, the same ones of both
runs, so that iterations that always take long do not count as chance (paired circular block
bootstrap; Politis and Romano 1992). Several recordings of the run with the remedy also show how
much runs differ from one another.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from pydantic import Field

from tailback.arrays import Floats
from tailback.diagnosis.model import Diagnosis, Estimate
from tailback.evidence.iterations import CallSequence
from tailback.evidence.model import Measured
from tailback.evidence.split import PARTS
from tailback.evidence.waits import KINDS
from tailback.frozen_model import FrozenModel
from tailback.traffic.step_detection import FEWEST_STEPS

DRAWS, SEED = 4000, 20
"""Draws of the bootstrap, so that 100 are beyond each end of the interval; and their seed."""

MIN_BLOCKS = 5
"""Smallest number of blocks that iterations are divided into: a variance from m blocks has the
relative error √(2/m), which exceeds 63 % with fewer."""

Outcome = Literal["confirmed", "refuted", "undetermined"]

GROUPS: Final = {
    "computation": ("computation",),
    "waits for computation": ("imbalance", "noise"),
    "waits for messages": KINDS,
    "transfers": ("transfer", "one_sided"),
}
"""Parts of the measured time that are shown together; the others are ``other``."""

INSIDE_CALLS: Final = ("waits for computation", "waits for messages", "transfers")
"""Groups that divide the time inside calls by when partners began theirs."""

BY_DURATIONS: Final = (
    ("computation", "waits for computation"),
    ("waits for messages", "transfers"),
)
"""Groups that durations alone do not tell apart: when calls began is not recorded."""

JOINED: Final = {
    BY_DURATIONS[0]: "computation and waits for it",
    INSIDE_CALLS[:2]: "waits",
    INSIDE_CALLS: "waits and transfers",
}
"""Names of groups together; the others are joined by "and"."""


class PartChange(FrozenModel):
    """A part of the measured time in both runs, averaged over the ranks.

    Groups that the recordings do not tell apart are one part.

    Attributes:
        name: Key of :data:`GROUPS`, several together (:data:`JOINED`), or ``other``.
        before_ps: Its time without the remedy, ps.
        after_ps: Its time with the remedy, ps; mean over the recordings.
        change_low_ps: Lower bound of the change, given the uncertainty of the clocks, ps.
        change_high_ps: Upper bound of the change.
    """

    name: str
    before_ps: int
    after_ps: int
    change_low_ps: int
    change_high_ps: int


class CostCheck(FrozenModel):
    """Whether the remedy saved what its cause was said to cost.

    Attributes:
        cause: The cause.
        ps: What the diagnosis said that it costs, ps.
        low_ps: Lower bound of it.
        high_ps: Upper bound of it.
        saved_ps: Time that the run saved, ps.
        saved_low_ps: Lower bound of it, 95 %.
        saved_high_ps: Upper bound of it.
        verdict: Whether the interval of the saved time overlaps the range of the cost (``within``),
            or is below or above it.
    """

    cause: str
    ps: int
    low_ps: int
    high_ps: int
    saved_ps: int
    saved_low_ps: int
    saved_high_ps: int
    verdict: Literal["within", "less", "more"]


class Confirmation(FrozenModel):
    """Comparison of the predicted with the measured gain of a remedy.

    Gains are shares of the measured time without the remedy; intervals are 95 %.

    Attributes:
        outcome: ``refuted``: the interval of the difference of predicted and measured gain does not
            contain 0, or the run with the remedy is certainly slower; ``confirmed``: neither, and
            the run with the remedy is certainly faster; ``undetermined``: otherwise, without a
            prediction, or if the recordings cannot be compared.
        reason: Why nothing can be said; empty unless ``undetermined``.
        remedy: Name of the recommended remedy; empty if none was recommended.
        cause: Verdict of the diagnosis.
        before_ps: Measured time without the remedy, ps.
        after_ps: Measured time with it, ps; mean over the recordings.
        recordings: Number of recordings with the remedy.
        iterations: Number of iterations compared; 0 if the runs have none.
        block: Length of the drawn blocks of iterations; 0 without iterations.
        predicted: Predicted gain; None without a prediction.
        measured: Measured gain; None if the recordings cannot be compared.
        difference: Predicted minus measured gain; None if either is unknown.
        parts: Parts of the measured time in both runs.
        cost: Whether the cost of the cause was right; None if it is unknown.
        caveats: What the measured times are not, as sentences without a full stop.
    """

    outcome: Outcome
    reason: str = ""
    remedy: str
    cause: str
    before_ps: int
    after_ps: int
    recordings: int
    iterations: int = 0
    block: int = 0
    predicted: Estimate | None
    measured: Estimate | None
    difference: Estimate | None
    parts: list[PartChange]
    cost: CostCheck | None
    caveats: list[str] = Field(default_factory=list)

    @property
    def harms(self) -> bool:
        """Whether the run with the remedy is certainly slower."""
        return self.measured is not None and self.measured.high < 0


@dataclass(frozen=True)
class MeasuredTimes:
    """Measured times of one recording.

    Attributes:
        measured: Their summary.
        calls: The calls of its ranks.
        hosts: Host of each rank, shape (R,); None where unknown.
    """

    measured: Measured
    calls: CallSequence
    hosts: Sequence[str | None]

    def is_same(self, other: MeasuredTimes) -> bool:
        """Whether all times are those of the other recording, as no two runs have."""
        mine, theirs = self.measured, other.measured
        same_times = (mine.elapsed_ps, mine.parts) == (theirs.elapsed_ps, theirs.parts)
        return same_times and self.calls.equals(other.calls)


def confirm_gain(
    diagnosis: Diagnosis,
    before: MeasuredTimes,
    after: Sequence[MeasuredTimes],
    placed: Sequence[str] = (),
) -> Confirmation:
    """Compare the predicted gain of a remedy with the measured one.

    Args:
        diagnosis: Diagnosis of the run without the remedy.
        before: That run.
        after: Recordings of the run with the remedy, at least one.
        placed: Host of each rank by the rank file of the remedy; empty without a placement.
    """
    remedy = diagnosis.remedy
    predicted = None if remedy is None else remedy.predicted_gain
    reason, measured, iterations, block = _measured_gain(before, after)
    if not reason:
        reason = _why_not_applied(diagnosis, before, after, placed)
    difference: Estimate | None = None
    outcome: Outcome = "undetermined"
    if measured is not None and predicted is not None and not reason:
        difference = _difference(predicted, measured)
        if measured.high < 0 or not difference.low <= 0 <= difference.high:
            outcome = "refuted"
        elif measured.low > 0:
            outcome = "confirmed"
        else:
            reason = "the measured gain may be none as well as the predicted one"
    return Confirmation(
        outcome=outcome,
        reason=reason,
        remedy="" if remedy is None else remedy.name,
        cause=diagnosis.cause,
        before_ps=before.measured.elapsed_ps,
        after_ps=round(np.mean([run.measured.elapsed_ps for run in after])),
        recordings=len(after),
        iterations=iterations,
        block=block,
        predicted=predicted,
        measured=measured,
        difference=difference,
        parts=_parts(before, after),
        cost=None if measured is None else _cost_check(diagnosis, measured),
        caveats=list(
            dict.fromkeys(run.measured.caveat for run in (before, *after) if run.measured.caveat)
        ),
    )


def _why_not_applied(
    diagnosis: Diagnosis,
    before: MeasuredTimes,
    after: Sequence[MeasuredTimes],
    placed: Sequence[str],
) -> str:
    """Why the runs cannot show what the remedy gains; empty if they can."""
    remedy = diagnosis.remedy
    if remedy is None or not remedy.name:
        return f"the diagnosis recommends no change (verdict: {diagnosis.cause})"
    if remedy.predicted_gain is None:
        return "the diagnosis predicts no gain of a measured run: diagnose again"
    # Names of hosts that are written otherwise are not compared.
    if remedy.placement in remedy.parts and set(placed) <= set(before.hosts):
        apart = (
            f"rank {rank} ran on {ran}, not on {asked}"
            for run in after
            for rank, (asked, ran) in enumerate(zip(placed, run.hosts, strict=False))
            if ran not in (None, asked)
        )
        if where := next(apart, ""):
            return f"ranks were not placed as {remedy.placement} says: {where}"
    unmoved = any(list(run.hosts) == list(before.hosts) for run in after)
    if remedy.placement in remedy.parts and unmoved and None not in before.hosts:
        return f"placement {remedy.placement!r} was not applied: every rank is on the same host"
    moved = (
        (rank, host, other)
        for run in after
        for rank, (host, other) in enumerate(zip(before.hosts, run.hosts, strict=True))
        if None not in (host, other) and host != other
    )
    if remedy.placement not in remedy.parts and (first := next(moved, None)) is not None:
        rank, host, other = first
        return (
            f"ranks ran on other hosts, which {remedy.name} does not change: "
            f"rank {rank} on {host} before, on {other} after"
        )
    return ""


def _measured_gain(
    before: MeasuredTimes, after: Sequence[MeasuredTimes]
) -> tuple[str, Estimate | None, int, int]:
    """Why runs cannot be compared; else the gain, iterations, and the length of blocks."""
    for run in after:
        if run.is_same(before):
            return "BEFORE and AFTER are one and the same recording", None, 0, 0
        if run.measured.n_ranks != before.measured.n_ranks:
            ranks = f"{before.measured.n_ranks} and {run.measured.n_ranks}"
            return f"the recordings have {ranks} ranks", None, 0, 0
        if run.measured.durations_only != before.measured.durations_only:
            return "only some of the recordings show when calls began", None, 0, 0
        if run.measured.not_recorded != before.measured.not_recorded:
            return "the recordings are not of the same ranks", None, 0, 0
        if not run.calls.equals(before.calls):
            return "the recordings are of different programs or inputs", None, 0, 0
    times = [run.calls.iteration_times() for run in (before, *after)]
    n = len(times[0])
    total = np.array([run.measured.elapsed_ps for run in (before, *after)], np.float64)
    if n:
        block = block_length(times)
        logs = np.log(_drawn_times(np.array(times), total, block))
    elif len(after) > 1:
        block, logs = 0, np.log(total)[:, None]
    else:
        few = f"fewer than {FEWEST_STEPS} iterations"
        return f"the program has {few}, so one recording shows no interval", None, 0, 0
    center = math.log(total[1:].mean() / total[0])
    drawn = np.log(np.exp(logs[1:]).mean(axis=0)) - logs[0]
    low, high = (np.percentile(drawn, (2.5, 97.5)) - drawn.mean()) * _stretch(n, block)
    runs = _spread_of_runs(np.log(total[1:]), float(logs[1:].var(axis=1).mean()))
    low, high = center - math.hypot(low, runs), center + math.hypot(high, runs)
    error = math.hypot(float(drawn.std()), runs / 1.96)
    gain = Estimate(
        value=-math.expm1(center),
        standard_error=error * math.exp(center),
        low=-math.expm1(high),
        high=-math.expm1(low),
    )
    return "", gain, n, block


def block_length(times: Sequence[Floats]) -> int:
    """Length of blocks of iterations, which grows with the correlation of neighbours.

    The optimal length for the variance of a mean if times follow an autoregression of first order
    (Carlstein 1986), for the most correlated of several runs; at least 1, and short enough for
    :data:`MIN_BLOCKS` blocks.

    Args:
        times: Times of the iterations of each run, each of shape (n,).
    """
    n = len(times[0])
    correlation = 0.0
    for series in times:
        deviation = series - series.mean()
        variance = float(deviation @ deviation)
        if variance > 0:
            correlation = max(correlation, float(deviation[1:] @ deviation[:-1]) / variance)
    correlation = min(correlation, 0.99)
    optimal = (2 * correlation / (1 - correlation**2)) ** (2 / 3) * n ** (1 / 3)
    return int(max(min(math.ceil(optimal), n // MIN_BLOCKS), 1))


def _stretch(n: int, block: int) -> float:
    """Factor on the interval of a bootstrap of few blocks, which is too short: Student's t.

    Args:
        n: Number of iterations; 0 without a bootstrap.
        block: Iterations in a block.
    """
    if n == 0:
        return 1.0
    from scipy.special import stdtrit  # takes a third of a second to import

    blocks = n / block
    return float(stdtrit(blocks - 1, 0.975)) / 1.96 * math.sqrt(blocks / (blocks - 1))


def _drawn_times(times: Floats, total: Floats, block: int) -> Floats:
    """Times of the runs with iterations drawn in blocks, the same ones of all runs.

    Args:
        times: Times of the iterations of each run, ps, shape (runs, n).
        total: Measured times of the runs, ps, shape (runs,); what is not in an iteration stays.
        block: Iterations in a block.

    Returns:
        Shape (runs, DRAWS).
    """
    n = times.shape[1]
    circular = np.concatenate([times, times[:, : block - 1]], axis=1)
    sums = np.concatenate([np.zeros((len(times), 1)), np.cumsum(circular, axis=1)], axis=1)
    of_block = sums[:, block:] - sums[:, :-block]
    blocks = -(-n // block)
    starts = np.random.default_rng(SEED).integers(0, n, (DRAWS, blocks))
    loop = np.stack([run[starts].sum(axis=1) for run in of_block]) * (n / (blocks * block))
    return np.asarray(loop + (total - times.sum(axis=1))[:, None], np.float64)


def _spread_of_runs(logs: Floats, within: float) -> float:
    """Half of the 95 % interval of the logarithmic ratio of runs, due to how much runs differ.

    Student's t. The run without the remedy is taken to differ from its mean as much as those with
    it. What the iterations within a run explain is left out; 0 for a single run.

    Args:
        logs: Logarithms of the times of the runs with the remedy.
        within: Variance of these by the iterations.
    """
    count = len(logs)
    if count < 2:
        return 0.0
    from scipy.special import stdtrit  # takes a third of a second to import

    between = max(float(logs.var(ddof=1)) - within, 0.0)
    return float(stdtrit(count - 1, 0.975)) * math.sqrt(between * (1.0 + 1.0 / count))


def _difference(predicted: Estimate, measured: Estimate) -> Estimate:
    """Predicted minus measured gain; interval by recovered variances (Zou and Donner 2008)."""
    value = predicted.value - measured.value
    return Estimate(
        value=value,
        standard_error=math.hypot(predicted.standard_error, measured.standard_error),
        low=value - math.hypot(predicted.value - predicted.low, measured.high - measured.value),
        high=value + math.hypot(predicted.high - predicted.value, measured.value - measured.low),
    )


def _parts(before: MeasuredTimes, after: Sequence[MeasuredTimes]) -> list[PartChange]:
    shown = {part for parts in GROUPS.values() for part in parts}
    groups = {**GROUPS, "other": tuple(part for part in PARTS if part not in shown)}
    runs = [run.measured for run in (before, *after)]
    alone = [_change((name,), groups, runs) for name in groups]
    together: Sequence[tuple[str, ...]]
    if any(run.durations_only for run in runs):
        together = BY_DURATIONS
    elif any(run.not_recorded for run in runs):
        together = [INSIDE_CALLS]
    else:
        # Which of these grew and which shrank is within the errors of the clocks.
        changes = [each for each in alone if each.change_low_ps < 0 < each.change_high_ps]
        together = [tuple(each.name for each in changes if each.name in INSIDE_CALLS)]
    rows = dict.fromkeys(
        next((names for names in together if name in names), (name,)) for name in groups
    )
    return [_change(names, groups, runs) for names in rows]


def _change(
    names: tuple[str, ...], groups: Mapping[str, tuple[str, ...]], runs: Sequence[Measured]
) -> PartChange:
    """The change of some groups together, from the first run to the mean of the others."""
    parts = {part for name in names for part in groups[name]}
    bounds = np.array([_bounds(parts, run) for run in runs], np.float64)
    without, with_remedy = bounds[0], bounds[1:].mean(axis=0)
    return PartChange(
        name=JOINED.get(names, " and ".join(names)),
        before_ps=round(without[1]),
        after_ps=round(with_remedy[1]),
        change_low_ps=round(with_remedy[0] - without[2]),
        change_high_ps=round(with_remedy[2] - without[0]),
    )


def _bounds(names: Collection[str], run: Measured) -> tuple[int, int, int]:
    """Lower bound, value and upper bound of parts together: what the other parts leave of a run."""
    chosen = [part for part in run.parts if part.name in names]
    others = [part for part in run.parts if part.name not in names]
    value = sum(part.ps for part in chosen)
    below = sum(part.ps - part.low_ps for part in chosen)
    above = sum(part.high_ps - part.ps for part in chosen)
    less = sum(part.high_ps - part.ps for part in others)
    more = sum(part.ps - part.low_ps for part in others)
    return value - min(below, less), value, value + min(above, more)


def _cost_check(diagnosis: Diagnosis, measured: Estimate) -> CostCheck | None:
    explanation = diagnosis.explanation
    cost = None if explanation is None else explanation.cost(diagnosis.cause)
    if explanation is None or cost is None:
        return None
    saved, low, high = (
        round(share * explanation.elapsed_ps)
        for share in (measured.value, measured.low, measured.high)
    )
    outside: Literal["less", "more"] = "less" if high < cost.low_ps else "more"
    within = low <= cost.high_ps and high >= cost.low_ps
    return CostCheck(
        cause=cost.cause,
        ps=cost.ps,
        low_ps=cost.low_ps,
        high_ps=cost.high_ps,
        saved_ps=saved,
        saved_low_ps=low,
        saved_high_ps=high,
        verdict="within" if within else outside,
    )
