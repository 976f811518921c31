"""When ranks began their steps in a simulated run, and whether steps have become stationary."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tailback.simulation.outcome import Columns
from tailback.traffic.program import Op, Program

FEWEST = 4
"""Steps from which a mean is taken at least: fewer say nothing of their spread."""

ENOUGH = 23
"""Steps, those at both ends included, below which only exact repetition is believed: what seems
stationary for fewer may be a state that ranks leave once small differences have grown."""

LONGEST_PERIOD = 4
"""Steps after which a run may repeat exactly."""

TREND = 0.005
"""Difference of the two halves' mean step time, as a share of it, that is no trend."""

SPREADING = 0.015
"""Difference of a rank's step time from the mean, as a share, that does not count."""

FAR = 4
"""Standard deviations of the ranks' distances from their mean that a rank may move."""

PRECISION = 0.02
"""Half the 95 % interval of the extrapolated time, as a share of it, at most."""

GROWTH = 1.25
"""Growth of the differences between ranks, from half the steps to the other, that is none."""

MOST_BATCHES = 6
"""Batches of steps whose means are compared: few, so that they are long and what lasts for many
steps shows."""

MORE = 2.5
"""How many times as many steps are simulated where so many are not stationary."""


@dataclass(frozen=True, eq=False)
class StepTimes:
    """What a run says of m consecutive steps of a job of R ranks.

    Attributes:
        post: When each rank posted its first send of each step, -1 where it has none, shape (R, m).
        latency: Mean time from posting a message to its arrival, by step, shape (m,).
        pattern: Post, start and arrival of every message of each step as times after its rank's
            first post; None where steps differ in their messages, shape (m, messages, 3).
        counts: Messages, data packets and switches visited in each step, shape (3, m).
    """

    post: NDArray[np.int64]
    latency: NDArray[np.float64]
    pattern: NDArray[np.int64] | None
    counts: NDArray[np.int64]

    @property
    def sending(self) -> NDArray[np.bool_]:
        """Ranks that send in every step, shape (R,)."""
        return np.asarray((self.post >= 0).all(axis=1))

    @property
    def begin_ps(self) -> NDArray[np.float64]:
        """When steps began, mean over the ranks that send in all of them, shape (m,)."""
        sends = self.sending
        return self.post[sends].mean(axis=0) if sends.any() else np.zeros(self.post.shape[1])

    def part(self, steps: slice) -> StepTimes:
        """The times of some of the steps."""
        pattern = None if self.pattern is None else self.pattern[steps]
        return StepTimes(self.post[:, steps], self.latency[steps], pattern, self.counts[:, steps])

    @staticmethod
    def of(
        program: Program, bounds: NDArray[np.int64], messages: Columns, first_message: int
    ) -> StepTimes:
        """Read the times of a job's steps.

        Args:
            program: The job's program that was run.
            bounds: Where steps begin and end in it, shape (R, m + 1).
            messages: Messages of the run.
            first_message: Number of the job's first message among them.
        """
        count = np.concatenate([[0], np.cumsum(program.sends)])[bounds]
        begin, end = count[:, :-1] + first_message, count[:, 1:] + first_message
        columns = [np.asarray(messages[name]).astype(np.int64)
                   for name in ("post_ps", "start_ps", "arrival_ps")]  # fmt: skip
        there = end > begin
        post = np.where(there, columns[0][np.minimum(begin, len(columns[0]) - 1)], -1)
        total = np.concatenate([[0.0], np.cumsum((columns[2] - columns[0]).astype(np.float64))])
        counts = [(end - begin).sum(axis=0)]
        for name in ("packets", "switch_hops"):
            sums = np.concatenate([[0], np.cumsum(np.asarray(messages[name]).astype(np.int64))])
            counts.append((sums[end] - sums[begin]).sum(axis=0))
        latency = (total[end] - total[begin]).sum(axis=0) / np.maximum(counts[0], 1)
        pattern = None
        if (np.diff(end - begin, axis=1) == 0).all():
            pattern = np.stack([
                _relative(columns, begin[:, step], end[:, step], post[:, step])
                for step in range(post.shape[1])
            ])  # fmt: skip
        return StepTimes(post, latency, pattern, np.stack(counts))


def _relative(
    columns: list[NDArray[np.int64]], begin: NDArray[np.int64], end: NDArray[np.int64],
    post: NDArray[np.int64],
) -> NDArray[np.int64]:  # fmt: skip
    """Times of the messages ``begin:end`` of each rank after ``post``, shape (messages, 3)."""
    length = end - begin
    index = np.repeat(begin - (np.cumsum(length) - length), length) + np.arange(length.sum())
    after = np.repeat(post, length)
    return np.stack([column[index] - after for column in columns], axis=1)


@dataclass(frozen=True, eq=False)
class Extrapolation:
    """Time of steps that were left out.

    Attributes:
        shift_ps: The time.
        half_ps: Half the 95 % interval of it.
        step_ps: Mean time of a step that was left out.
        exact: Whether the run repeats itself exactly.
        first: First of the steps it is taken from.
        count: Their number.
        why_not: Why it cannot be relied on; empty if it can.
        wanted: Steps that may be enough, if it cannot.
    """

    shift_ps: int
    half_ps: float
    step_ps: float
    exact: bool
    first: int
    count: int
    why_not: str = ""
    wanted: int = 0


@dataclass(frozen=True, eq=False)
class Dependencies:
    """Which ranks of a job wait for which others in a step.

    Attributes:
        source: The rank that is waited for, shape (E,).
        target: The rank that waits, ascending, shape (E,).
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]

    @staticmethod
    def of(step: Program, eager: int) -> Dependencies:
        """The dependencies of a step whose operations are ``step``."""
        sends = step.sends
        rank, peer = step.op_rank[sends], step.peer[sends].astype(np.int64)
        # A sender waits for its receiver too where the message needs a handshake.
        both = (step.amount[sends] > eager) | (step.kind[sends] != Op.ISEND)
        pairs = np.stack([np.concatenate([peer, rank[both]]), np.concatenate([rank, peer[both]])])
        target, source = np.unique(pairs, axis=1)
        return Dependencies(source, target)


@dataclass(frozen=True, eq=False)
class Computations:
    """What is known beforehand of the steps of a stretch.

    Attributes:
        steps: Computation of each rank in each step, those left out included, shape (n, R); None
            where it is the same in every step.
        dependencies: Which ranks wait for which others.
    """

    steps: NDArray[np.int64] | None
    dependencies: Dependencies
    _models: list[NDArray[np.float64]] = field(default_factory=list)

    def models(self) -> list[NDArray[np.float64]]:
        """Times of the steps on networks without delay, shape (n,) each.

        In the first every rank waits for those it receives from, in the second for all.
        """
        if self.steps is not None and not self._models:
            source, target = self.dependencies.source, self.dependencies.target
            begin = np.flatnonzero(np.diff(target, prepend=-1))
            now = np.zeros(self.steps.shape[1])
            mean = [0.0]
            for step in self.steps:
                done = now + step
                now = done.copy()
                if len(source):
                    latest = np.maximum.reduceat(done[source], begin)
                    now[target[begin]] = np.maximum(now[target[begin]], latest)
                mean.append(float(now.mean()))
            self._models.append(np.diff(mean))
            self._models.append(self.steps.max(axis=1).astype(np.float64))
        return self._models


def extrapolate(
    times: StepTimes, skipped: int, known: Computations, *, alone: bool
) -> Extrapolation:
    """Extrapolate ``skipped`` steps that follow those of ``times``.

    ``alone``: no other job runs, so that a run may repeat itself exactly.

    The last step may be influenced by what follows it and is not used, nor are the first. Of
    several numbers of first steps the smallest is taken after which steps are stationary: neither
    their times nor the latencies of messages have a trend, and ranks that exchange messages do not
    drift apart.
    """
    m = times.post.shape[1]
    if alone and known.steps is None:
        exact = _exactly(times, skipped)
        if exact is not None:
            return exact
    # Their differences are the times of steps, of which there is one less.
    if m < ENOUGH:
        few = _statistically(times, skipped, known, min(2, m - 2), "few steps say little")
        return replace(few, wanted=ENOUGH)
    tries = [_statistically(times, skipped, known, first)
             for first in sorted({2, m // 4, m // 2}) if m - 1 - first >= FEWEST]  # fmt: skip
    good = [one for one in tries if not one.why_not]
    return good[0] if good else tries[-1]


def _exactly(times: StepTimes, skipped: int) -> Extrapolation | None:
    """Extrapolation of a run that repeats itself to the picosecond; None if it does not."""
    m = times.post.shape[1]
    sends = times.sending
    if times.pattern is None or not sends.any():
        return None
    for period in range(1, min(LONGEST_PERIOD, (m - 2) // 2) + 1):
        last, before, first = (times.post[sends, m - 1 - period * i] for i in range(3))
        # All ranks together: those that are faster than others would be through sooner.
        same = len(np.unique(np.stack([last - before, before - first]))) == 1
        steps = [times.pattern[m - 2 - i] for i in range(period)]
        earlier = [times.pattern[m - 2 - period - i] for i in range(period)]
        if same and all((a == b).all() for a, b in zip(steps, earlier, strict=True)):
            step = int(last[0] - before[0]) / period
            whole = skipped % period == 0
            half = 0.0 if whole else step
            shift = int(last[0] - before[0]) * skipped // period
            return Extrapolation(shift, half, step, whole, m - 1 - period, period)
    return None


def _statistically(
    times: StepTimes, skipped: int, known: Computations, first: int, why: str = ""
) -> Extrapolation:
    """Extrapolation from the steps ``first`` on but the last."""
    post = times.post[times.sending, first:].astype(np.float64)
    n = post.shape[1] - 1
    spans = np.diff(post.mean(axis=0))
    total, half, trend = _mean_of(spans, skipped, known.models(), first)
    why = why or trend or _latencies(times.latency[first:-1], float(spans.mean()))
    why = why or _restless(np.diff(post, axis=1)) or _moving_apart(post, float(spans.mean()))
    wanted = ceil(MORE * (n + 1 + first))
    if not why and half > PRECISION * total:
        why = f"the time of a step is known to {half / total:.1%} only"
        # The interval narrows with the root of the number of steps; a third more, to be safe.
        wanted = ceil(first + 1 + n * max(1.33 * (half / (PRECISION * total)) ** 2, 1.5))
    return Extrapolation(round(total), half, total / skipped, False, first, n, why, wanted)


def _mean_of(
    spans: NDArray[np.float64], skipped: int, models: list[NDArray[np.float64]], first: int
) -> tuple[float, float, str]:
    """Time of the skipped steps, half its 95 % interval, and why it cannot be relied on.

    Where computations differ from step to step, what a network without delay would take is known
    for all steps, and only the difference to it is extrapolated (a control variate).
    """
    n = len(spans)
    known = 0.0
    rest = spans
    for model in models:
        after = spans - model[first : first + n]
        if after.std() < rest.std():
            rest, known = after, float(model[len(model) - skipped :].sum())
    mean, spread = float(rest.mean()), float(rest.std(ddof=1))
    step = float(spans.mean())
    half = n // 2
    trend = float(rest[n - half :].mean() - rest[:half].mean())
    total = known + skipped * mean
    if abs(trend) > max(TREND * step, 2 * spread * np.sqrt(4 / n)):
        return total, 0.0, "step times have a trend"
    if n >= 8:
        # Steps are alike for some time: means of batches of them differ more than steps would.
        batches = min(n // 4, MOST_BATCHES)
        means = np.array([part.mean() for part in np.array_split(rest, batches)])
        spread = max(spread, float(means.std(ddof=1)) * np.sqrt(n / batches))
        freedom = batches - 1
    else:
        freedom = n - 1
    width = float(stats.t.ppf(0.975, freedom)) * spread * np.sqrt(skipped**2 / n + skipped)
    # A trend that was seen, and one that passes for none: halves that differ by so much differ by
    # twice as much from end to end, and may do so once more.
    unseen = 2 * TREND * step * skipped
    return total, float(np.linalg.norm([width, skipped * trend / 2, unseen])), ""


def _restless(spans: NDArray[np.float64]) -> str:
    """Whether the step times of ranks differ more and more, shape (R, n), as the mean hides.

    Ranks in step may be out of it soon: small differences grow by a factor from step to step.
    """
    apart = np.sqrt(((spans - spans.mean(axis=0)) ** 2).mean(axis=0))
    half = len(apart) // 2
    before, after = apart[:half].mean(), apart[len(apart) - half :].mean()
    # As a step more or less would change it, of which there are few.
    noise = 2 * np.diff(apart).std() / np.sqrt(half)
    if after > GROWTH * before + noise:
        return "differences between ranks grow from step to step"
    return ""


def _moving_apart(post: NDArray[np.float64], step: float) -> str:
    """Whether ranks get further away from their mean, as those do that wait for no others."""
    distance = post - post.mean(axis=0)
    spread = distance.std(axis=0)
    n, half = len(spread) - 1, len(spread) // 2
    growth = float(spread[-half:].mean() - spread[:half].mean())
    noise = 2 * float(np.diff(spread).std()) * np.sqrt(2 / half)
    moved = np.abs(distance[:, -1] - distance[:, 0])
    if (moved > max(SPREADING * step * n, FAR * spread.mean())).any():
        return "ranks repeat the step at different speeds"
    # A hundredth of a step within half of them: who drifts on takes another order some day.
    if growth > max(0.01 * step, noise):
        return "ranks move apart"
    return ""


def _latencies(latency: NDArray[np.float64], step: float) -> str:
    """Whether messages take longer and longer: queues that grow."""
    n, half = len(latency), len(latency) // 2
    if half == 0:
        return ""
    growth = float(latency[n - half :].mean() - latency[:half].mean())
    noise = float(np.diff(latency).std()) if n > 2 else 0.0
    # Over half of the steps, queues that take up a hundredth of each step's time.
    if growth > max(0.01 * step * half, 2 * noise * np.sqrt(2 / half)):
        return "messages take longer from step to step"
    return ""
