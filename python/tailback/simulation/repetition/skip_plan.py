"""Plans which steps of each job are simulated and which are skipped.

Concurrent jobs must all skip the same amount of time, so that traffic that coincides in the whole
run also coincides in the simulated one. A skip therefore ends when a job starts or ends and at
steps that differ from the others. The planner walks through the run interval by interval, in each
of which every running job repeats a step, using the step times estimated so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tailback.simulation.repetition.step_stretches import Stretch

NOT_STARTED, FINISHED = -1, -2

Key = tuple[int, ...]
"""Current segment of each job, or :data:`NOT_STARTED` or :data:`FINISHED`."""

FIRST_STEPS = 9
"""Steps simulated in the first round where the run may repeat exactly: enough to see a period of
three steps twice."""


@dataclass(frozen=True)
class JobOutline:
    """Segments and start time of a job, the input to planning.

    Attributes:
        segments: Its segments, in order.
        start_ps: Start time.
    """

    segments: Sequence[Stretch]
    start_ps: int

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return self.segments[-1].end

    def segment_of(self, step: float) -> int:
        """Index of the segment that contains a step."""
        return next(i for i, segment in enumerate(self.segments) if step < segment.end)


@dataclass(frozen=True)
class Cut:
    """Steps of one job that are left out by one skip.

    Attributes:
        begin: First step of the stretch.
        at: First step that is left out.
        skipped: Number of steps left out.
    """

    begin: int
    at: int
    skipped: int


@dataclass(frozen=True)
class PlannedSkip:
    """An interval of the run that is not simulated.

    Attributes:
        key: Segment of each job in this interval.
        cuts: Steps left out, by job.
        leading: The job whose steps determine the skipped time.
        time_ps: Skipped time according to the current step times.
    """

    key: Key
    cuts: Mapping[int, Cut]
    leading: int
    time_ps: float


@dataclass(frozen=True)
class Rates:
    """Step times estimated so far.

    Attributes:
        of_key: By job and the segments of all jobs.
        of_segment: By job and segment, regardless of the other jobs.
    """

    of_key: dict[tuple[int, Key], float]
    of_segment: dict[tuple[int, int], float]

    def step_ps(self, job: int, key: Key) -> float:
        """Time of a step of a job; 1 if there is no estimate yet."""
        return self.of_key.get((job, key), self.of_segment.get((job, key[job]), 1.0))


def plan_skips(
    jobs: Sequence[JobOutline], rates: Rates, wanted: Mapping[Key, int], first: int = FIRST_STEPS
) -> list[PlannedSkip]:
    """Plan all possible skips.

    Args:
        jobs: The jobs.
        rates: Step times.
        wanted: Number of steps to simulate before a skip, by key.
        first: Number of steps to simulate before skips that are not in ``wanted``.
    """
    return _Planner(jobs, rates, wanted, first).run()


class _Planner:
    """Walks through the whole run at the current step times."""

    def __init__(
        self,
        jobs: Sequence[JobOutline],
        rates: Rates,
        wanted: Mapping[Key, int],
        first: int,
    ) -> None:
        self.jobs, self.rates, self.wanted, self.first = jobs, rates, wanted, first
        self.at = [0.0] * len(jobs)
        self.now = 0.0
        self.skips: list[PlannedSkip] = []

    def run(self) -> list[PlannedSkip]:
        while True:
            key = self._key()
            running = [job for job, segment in enumerate(key) if segment >= 0]
            if not running:
                pending = [self.jobs[job].start_ps for job, s in enumerate(key) if s == NOT_STARTED]
                if not pending:
                    return self.skips
                self.now = float(min(pending))
                continue
            step = {job: self.rates.step_ps(job, key) for job in running}
            if not self._plan_skip(key, step):
                self._advance(self._time_left(key, step), step)

    def _key(self) -> Key:
        return tuple(
            NOT_STARTED
            if job.start_ps > self.now
            else FINISHED
            if self.at[number] >= job.n_steps
            else job.segment_of(self.at[number])
            for number, job in enumerate(self.jobs)
        )

    def _time_left(self, key: Key, step: Mapping[int, float]) -> float:
        """Time until a job leaves its segment or another job starts."""
        ends = [(self._end(job, key) - self.at[job]) * step[job] for job in step]
        starts = [
            self.jobs[job].start_ps - self.now for job, s in enumerate(key) if s == NOT_STARTED
        ]
        return min([*ends, *starts])

    def _end(self, job: int, key: Key) -> int:
        return self.jobs[job].segments[key[job]].end

    def _advance(self, time: float, step: Mapping[int, float]) -> None:
        self.now += time
        for job, step_time in step.items():
            # Rounded, so that a finished job is not kept alive by a rounding error.
            self.at[job] = round(self.at[job] + time / step_time, 6)

    def _plan_skip(self, key: Key, step: Mapping[int, float]) -> bool:
        """Plan a skip in the interval that begins here; False if it is too short for one."""
        wanted = self.wanted.get(key, self.first)
        simulated = wanted * max(step.values())
        left = self._time_left(key, step)
        if left < 1.5 * simulated:
            return False
        begin = {job: ceil(self.at[job]) for job in step}
        at = {
            job: ceil(self.at[job] + simulated / step_time - 1e-6)
            for job, step_time in step.items()
        }
        # The skip ends at the end of the segment that ends first.
        leading = min(step, key=lambda job: (self._end(job, key) - self.at[job]) * step[job])
        room = self._end(leading, key) - at[leading]
        reaches_end = (self._end(leading, key) - self.at[leading]) * step[leading] <= left * (
            1 + 1e-9
        )
        time = room * step[leading] if reaches_end else left - simulated
        cuts = {}
        for job, step_time in step.items():
            skipped = room if reaches_end and job == leading else round(time / step_time)
            skipped = min(skipped, self._end(job, key) - at[job])
            if skipped < 1:
                return False
            cuts[job] = Cut(begin[job], at[job], skipped)
        self.skips.append(PlannedSkip(key, cuts, leading, time))
        self.now += simulated + time
        for job, cut in cuts.items():
            self.at[job] = float(cut.at + cut.skipped)
        return True


def kept_steps(job: int, n_steps: int, skips: Sequence[PlannedSkip]) -> NDArray[np.int64]:
    """Numbers of the steps of a job that are simulated."""
    kept = np.ones(n_steps, np.bool_)
    for cut in (skip.cuts[job] for skip in skips if job in skip.cuts):
        kept[cut.at : cut.at + cut.skipped] = False
    return np.flatnonzero(kept)
