"""Step times of a simulated run, tests of their stationarity, and their extrapolation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tailback.simulation.link_traffic import LinkPrecision
from tailback.simulation.outcome import Columns
from tailback.traffic.program import Op, Program

FEWEST = 4
"""Minimum number of steps for a mean: fewer give no estimate of their variance."""

ENOUGH = 23
"""Minimum number of steps, first and last included, for anything but exact repetition.

Over fewer steps a state may look stationary that ranks leave once small differences have grown.
"""

LONGEST_PERIOD = 4
"""Maximum period, in steps, of exact repetition."""

TREND = 0.005
"""Relative difference between the mean step times of the two halves that always passes for none."""

SPREADING = 0.015
"""Maximum relative difference between a rank's step time and the mean over ranks."""

MAX_MOVE = 4
"""Maximum distance that a rank moves, in standard deviations of the ranks' distances from their
mean."""

PRECISION = 0.02
"""Maximum half-width of the 95 % interval of the extrapolated time, relative to that time, if there
is no trend above ``TREND``."""

MOVING_APART = 0.02
"""Maximum growth of the ranks' distances from their mean, from one half of the steps to the other,
relative to the step time. Ranks that wait for one another move apart like a surface that roughens,
ever more slowly, and step times barely depend on it."""

GROWTH = 1.25
"""Maximum ratio of the differences between ranks in the second half of the steps to the first."""

MAX_BATCHES = 6
"""Maximum number of batch means: few, so that batches are long enough to capture the
autocorrelation of step times."""

STEP_INCREASE = 2.5
"""Factor by which the number of simulated steps is increased if they are not stationary."""


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Times of m consecutive simulated steps of a job of R ranks.

    Attributes:
        post: When each rank posted its first send of each step, -1 if it has none, shape (R, m).
        latency: Mean time from posting a message to its arrival, by step, shape (m,).
        counts: Number of messages, data packets and switch visits in each step, shape (3, m).
        bounds: Boundaries of the steps' messages of each rank, shape (R, m + 1).
        columns: Post, start and arrival time of every message.
    """

    post: NDArray[np.int64]
    latency: NDArray[np.float64]
    counts: NDArray[np.int64]
    bounds: NDArray[np.int64]
    columns: list[NDArray[np.int64]]

    @property
    def sending(self) -> NDArray[np.bool_]:
        """Ranks that send in every step, shape (R,)."""
        return np.asarray((self.post >= 0).all(axis=1))

    @property
    def begin_ps(self) -> NDArray[np.float64]:
        """Start time of each step, mean over the ranks that send in all steps, shape (m,)."""
        sends = self.sending
        return self.post[sends].mean(axis=0) if sends.any() else np.zeros(self.post.shape[1])

    def part(self, steps: slice) -> StepTimes:
        """The times of a range of steps, given by its start and stop."""
        return StepTimes(
            self.post[:, steps],
            self.latency[steps],
            self.counts[:, steps],
            self.bounds[:, steps.start : steps.stop + 1],
            self.columns,
        )

    def pattern(self, step: int) -> NDArray[np.int64]:
        """Post, start and arrival time of the messages of a step, shape (messages, 3).

        They are relative to the first post of the sending rank.
        """
        begin, end = self.bounds[:, step], self.bounds[:, step + 1]
        length = end - begin
        index = np.repeat(begin - (np.cumsum(length) - length), length) + np.arange(length.sum())
        after = np.repeat(self.post[:, step], length)
        return np.stack([column[index] - after for column in self.columns], axis=1)

    @staticmethod
    def of(bounds: NDArray[np.int64], messages: Columns) -> StepTimes:
        """Read the times of a job's steps.

        Args:
            bounds: Index of each rank's first message of each step, and the end of the last, shape
                (R, m + 1).
            messages: Messages of the run.
        """
        begin, end = bounds[:, :-1], bounds[:, 1:]
        columns = [
            np.asarray(messages[name]).astype(np.int64)
            for name in ("post_ps", "start_ps", "arrival_ps")
        ]
        there = end > begin
        post = np.full(begin.shape, -1)
        post[there] = columns[0][begin[there]]
        total = np.concatenate([[0.0], np.cumsum((columns[2] - columns[0]).astype(np.float64))])
        counts = [(end - begin).sum(axis=0)]
        for name in ("packets", "switch_hops"):
            sums = np.concatenate([[0], np.cumsum(np.asarray(messages[name]).astype(np.int64))])
            counts.append((sums[end] - sums[begin]).sum(axis=0))
        latency = (total[end] - total[begin]).sum(axis=0) / np.maximum(counts[0], 1)
        return StepTimes(post, latency, np.stack(counts), bounds, columns)


@dataclass(frozen=True)
class TimeError:
    """Uncertainty of the time of skipped steps.

    Attributes:
        steady_ps: Half the width of the 95 % interval if there is no trend above ``TREND``: it says
            whether more steps are worth simulating.
        half_ps: The same with any trend that the test lets pass, which may be more where step times
            vary: what is stated.
    """

    steady_ps: float
    half_ps: float


@dataclass(frozen=True, eq=False)
class Extrapolation:
    """Extrapolated time of skipped steps.

    Attributes:
        shift_ps: Total time of the skipped steps.
        half_ps: Half the width of its 95 % interval.
        step_ps: Mean time of a skipped step.
        exact: Whether the run repeats itself exactly.
        first: First of the steps that it is computed from.
        count: Number of steps that it is computed from.
        why_not: Reason why it is unreliable; empty if it is reliable.
        wanted: Number of simulated steps likely to suffice, if it is unreliable.
    """

    shift_ps: int
    half_ps: float
    step_ps: float
    exact: bool
    first: int
    count: int
    why_not: str = ""
    wanted: int = 0

    def over_more_steps(self, simulated: int) -> Extrapolation:
        """The same with traffic of more steps, if it is exact: routes may differ, times do not.

        ``simulated``: number of steps simulated before the last one.
        """
        if not self.exact:
            return self
        periods = max((simulated - 1 - simulated // 4) // self.count, 1)
        count = periods * self.count
        return replace(self, first=simulated - 1 - count, count=count)

    def unless(self, links: LinkPrecision) -> Extrapolation:
        """The same, but unreliable if the bytes of links are not known well enough."""
        if self.why_not or not links.why_not:
            return self
        return replace(
            self, why_not=links.why_not, wanted=ceil(self.first + 1 + self.count * links.more)
        )


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
        # With a handshake the sender waits for its receiver too.
        both = (step.amount[sends] > eager) | (step.kind[sends] != Op.ISEND)
        pairs = np.stack([np.concatenate([peer, rank[both]]), np.concatenate([rank, peer[both]])])
        target, source = np.unique(pairs, axis=1)
        return Dependencies(source, target)


@dataclass(frozen=True, eq=False)
class Computations:
    """Computation times and dependencies of the steps of a stretch, known before simulation.

    Attributes:
        steps: Computation time of each rank in each step, skipped ones included, shape (n, R); None
            if it is the same in every step.
        dependencies: Which ranks wait for which others; None without ``steps``.
        unsent_ps: Longest mean computation in a step of a rank that sends nothing in it; 0 if all
            ranks send. Nothing shows when such a rank begins a step, so it may fall behind.
        rejoins: Whether a rank without messages in these steps has some afterwards.
    """

    steps: NDArray[np.int64] | None
    dependencies: Dependencies | None
    unsent_ps: float = 0.0
    rejoins: bool = False
    _models: list[NDArray[np.float64]] = field(default_factory=list)

    def models(self) -> list[NDArray[np.float64]]:
        """Two models of the step times on a network without delay, shape (n,) each.

        In the first, each rank waits for the ranks it depends on; in the second, for all ranks.
        """
        if self.steps is not None and self.dependencies is not None and not self._models:
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
    times: StepTimes, skipped: int, computations: Computations, *, alone: bool
) -> Extrapolation:
    """Extrapolate ``skipped`` steps that follow those of ``times``.

    ``alone``: no other job runs, so the run may repeat itself exactly.

    The last step is not used, as traffic after the skip may influence it. The first steps are
    discarded as warm-up. Of several warm-ups the shortest is chosen after which steps are
    stationary: neither step times nor message latencies have a trend, and ranks do not drift apart.
    """
    extrapolation = _extrapolate_senders(times, skipped, computations, alone)
    if extrapolation.why_not:
        return extrapolation
    if computations.rejoins:
        return replace(extrapolation, why_not="a rank without messages in the steps has some later")
    if computations.unsent_ps > extrapolation.step_ps * (
        1 if extrapolation.exact else 1 - SPREADING
    ):
        return replace(
            extrapolation, why_not="ranks that send nothing take longer for a step than others"
        )
    return extrapolation


def _extrapolate_senders(
    times: StepTimes, skipped: int, computations: Computations, alone: bool
) -> Extrapolation:
    """Extrapolation from the ranks that send."""
    m = times.post.shape[1]
    if alone and computations.steps is None:
        exact = _extrapolate_exactly(times, skipped)
        if exact is not None:
            return exact
    # m start times give m - 1 step times.
    if m < ENOUGH:
        few = _extrapolate_means(
            times, skipped, computations, min(2, m - 2), "few steps say little"
        )
        return replace(few, wanted=ENOUGH)
    for first in sorted({2, m // 4, m // 2}):
        if m - 1 - first >= FEWEST:
            extrapolation = _extrapolate_means(times, skipped, computations, first)
            if not extrapolation.why_not:
                break
    return extrapolation


def _extrapolate_exactly(times: StepTimes, skipped: int) -> Extrapolation | None:
    """Extrapolation of a run that repeats itself to the picosecond; None if it does not."""
    m = times.post.shape[1]
    sends = times.sending
    if not sends.any():
        return None
    for period in range(1, min(LONGEST_PERIOD, (m - 2) // 2) + 1):
        last, before, first = (times.post[sends, m - 1 - period * i] for i in range(3))
        # The same for all ranks: otherwise faster ranks would run ahead of the others.
        same = len(np.unique(np.stack([last - before, before - first]))) == 1
        if same and all(
            _steps_are_equal(times, m - 2 - i, m - 2 - period - i) for i in range(period)
        ):
            step = int(last[0] - before[0]) / period
            is_multiple = skipped % period == 0
            half = 0.0 if is_multiple else step
            shift = int(last[0] - before[0]) * skipped // period
            return Extrapolation(shift, half, step, is_multiple, m - 1 - period, period)
    return None


def _steps_are_equal(times: StepTimes, step: int, earlier: int) -> bool:
    """Whether two steps are equal to the picosecond."""
    length = np.diff(times.bounds, axis=1)
    if not (length[:, step] == length[:, earlier]).all():
        return False
    return np.array_equal(times.pattern(step), times.pattern(earlier))


def _extrapolate_means(
    times: StepTimes, skipped: int, computations: Computations, first: int, why: str = ""
) -> Extrapolation:
    """Extrapolation from the steps from ``first`` on, except the last one."""
    post = times.post[times.sending, first:].astype(np.float64)
    n = post.shape[1] - 1
    spans = np.diff(post.mean(axis=0))
    total, error, trend = _total_time(spans, skipped, computations.models(), first)
    why = why or trend or _growing_latency(times.latency[first:-1], float(spans.mean()))
    why = (
        why
        or _growing_differences(np.diff(post, axis=1))
        or _drifting_apart(post, float(spans.mean()))
    )
    wanted = ceil(STEP_INCREASE * (n + 1 + first))
    steady = error.steady_ps / total
    if not why and steady > PRECISION:
        why = f"the time of a step is known to {steady:.1%} only"
        # The width falls with the square root of the number of steps. A third is added as margin.
        wanted = ceil(first + 1 + n * max(1.33 * (steady / PRECISION) ** 2, 1.5))
    half = error.half_ps
    return Extrapolation(round(total), half, total / skipped, False, first, n, why, wanted)


def _total_time(
    spans: NDArray[np.float64], skipped: int, models: list[NDArray[np.float64]], first: int
) -> tuple[float, TimeError, str]:
    """Time of the skipped steps, its uncertainty, and why it is unreliable.

    If computations differ from step to step, the step times on a network without delay are known
    for all steps and serve as a control variate: only the difference from them is extrapolated.
    """
    n = len(spans)
    modelled = 0.0
    unmodelled = spans
    later = ""
    for model in models:
        of_steps, left_out = model[first : first + n], model[len(model) - skipped :]
        after = spans - of_steps
        if after.std() < unmodelled.std():
            unmodelled, modelled = after, float(left_out.sum())
        chance = 3 * float(of_steps.std(ddof=1)) * np.sqrt(1 / n + 1 / skipped)
        if abs(float(left_out.mean() - of_steps.mean())) > TREND * float(spans.mean()) + chance:
            later = "later steps compute for a different time"
    mean, spread = float(unmodelled.mean()), float(unmodelled.std(ddof=1))
    step = float(spans.mean())
    half = n // 2
    trend = float(unmodelled[n - half :].mean() - unmodelled[:half].mean())
    total = modelled + skipped * mean
    detectable = max(TREND * step, 2 * spread * np.sqrt(4 / n))
    if abs(trend) > detectable:
        return total, TimeError(0.0, 0.0), "step times have a trend"
    if later and unmodelled is spans:
        return total, TimeError(0.0, 0.0), later
    if n >= 8:
        # Step times are autocorrelated: batch means vary more than independent steps would.
        batches = min(n // 4, MAX_BATCHES)
        means = np.array([part.mean() for part in np.array_split(unmodelled, batches)])
        spread = max(spread, float(means.std(ddof=1)) * np.sqrt(n / batches))
        freedom = batches - 1
    else:
        freedom = n - 1
    from scipy.special import stdtrit  # takes a moment to load

    width = float(stdtrit(freedom, 0.975)) * spread * np.sqrt(skipped**2 / n + skipped)
    seen = np.hypot(width, skipped * trend / 2)
    # The largest trend that the test lets pass: a difference between the halves is twice as large
    # from first to last step, and may continue by as much again.
    steady, undetected = 2 * TREND * step * skipped, 2 * detectable * skipped
    return total, TimeError(float(np.hypot(seen, steady)), float(np.hypot(seen, undetected))), ""


def _growing_differences(spans: NDArray[np.float64]) -> str:
    """Whether the differences between the ranks' step times, shape (R, n), grow.

    The mean over ranks does not show this. Ranks that are synchronized may lose synchronization
    soon, as small differences grow exponentially from step to step.
    """
    apart = np.sqrt(((spans - spans.mean(axis=0)) ** 2).mean(axis=0))
    half = len(apart) // 2
    before, after = apart[:half].mean(), apart[len(apart) - half :].mean()
    # Uncertainty of the means of few steps, from the differences between successive steps.
    noise = 2 * np.diff(apart).std() / np.sqrt(half)
    if after > GROWTH * before + noise:
        return "differences between ranks grow from step to step"
    return ""


def _drifting_apart(post: NDArray[np.float64], step: float) -> str:
    """Whether ranks drift away from their mean, as ranks do that wait for no others."""
    distance = post - post.mean(axis=0)
    spread = distance.std(axis=0)
    n, half = len(spread) - 1, len(spread) // 2
    growth = float(spread[-half:].mean() - spread[:half].mean())
    noise = 2 * float(np.diff(spread).std()) * np.sqrt(2 / half)
    moved = np.abs(distance[:, -1] - distance[:, 0])
    if (moved > max(SPREADING * step * n, MAX_MOVE * spread.mean())).any():
        return "ranks repeat the step at different speeds"
    # Continued drift eventually reorders messages.
    if growth > max(MOVING_APART * step, noise):
        return "ranks move apart"
    return ""


def _growing_latency(latency: NDArray[np.float64], step: float) -> str:
    """Whether message latencies grow, as they do while queues fill."""
    n, half = len(latency), len(latency) // 2
    if half == 0:
        return ""
    growth = float(latency[n - half :].mean() - latency[:half].mean())
    noise = float(np.diff(latency).std()) if n > 2 else 0.0
    # Growth by 1 % of the step time per step, over half of the steps.
    if growth > max(0.01 * step * half, 2 * noise * np.sqrt(2 / half)):
        return "messages take longer from step to step"
    return ""
