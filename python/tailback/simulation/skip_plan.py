"""Which steps of which jobs are simulated and which are left out.

Jobs run at the same time. The time that is left out must be the same for all of them, so that what
meets in the whole run meets in the simulated one too: a job that starts or ends, or a step that is
unlike the others, ends a skip. A plan goes through the run stretch by stretch, in each of which
every job that runs repeats a step, with the step times that are known by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tailback.simulation.step_stretches import Stretch

NOT_STARTED, FINISHED = -1, -2

Key = tuple[int, ...]
"""The segment each job is in, or :data:`NOT_STARTED` or :data:`FINISHED`."""

FIRST_STEPS = 9
"""Steps that are simulated of a stretch at first where it may repeat itself exactly: as many as
show a period of three steps twice."""


@dataclass(frozen=True)
class JobOutline:
    """What a plan knows of a job.

    Attributes:
        segments: Its segments, in order.
        start_ps: When it starts.
    """

    segments: Sequence[Stretch]
    start_ps: int

    @property
    def n_steps(self) -> int:
        """Number of its steps."""
        return self.segments[-1].end

    def segment_of(self, step: float) -> int:
        """Number of the segment that a step is in."""
        return next(i for i, one in enumerate(self.segments) if step < one.end)


@dataclass(frozen=True)
class Cut:
    """Steps of one job that are left out in a stretch.

    Attributes:
        begin: First step of the stretch.
        at: First step that is left out.
        skipped: How many are.
    """

    begin: int
    at: int
    skipped: int


@dataclass(frozen=True)
class PlannedSkip:
    """One stretch of the run out of which time is left.

    Attributes:
        key: What runs there.
        cuts: Steps of each job that are left out, by job.
        leading: The job whose steps determine the time.
        time_ps: The time, by the step times known so far.
    """

    key: Key
    cuts: Mapping[int, Cut]
    leading: int
    time_ps: float


@dataclass(frozen=True)
class Rates:
    """Step times that are known.

    Attributes:
        of_key: By job and what runs.
        of_segment: By job and segment, whatever else runs.
    """

    of_key: dict[tuple[int, Key], float]
    of_segment: dict[tuple[int, int], float]

    def step_ps(self, job: int, key: Key) -> float:
        """Time of a step of a job; 1 where nothing is known yet."""
        return self.of_key.get((job, key), self.of_segment.get((job, key[job]), 1.0))


def plan_skips(
    jobs: Sequence[JobOutline], rates: Rates, wanted: Mapping[Key, int], first: int = FIRST_STEPS
) -> list[PlannedSkip]:
    """Everything that can be left out.

    Args:
        jobs: The jobs.
        rates: Step times.
        wanted: Steps to simulate in each stretch, where not ``first``.
        first: Steps to simulate in others.
    """
    return _Planner(jobs, rates, wanted, first).run()


class _Planner:
    """Goes through the whole run with known step times."""

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
            if not self._skip(key, step):
                self._advance(self._left(key, step), step)

    def _key(self) -> Key:
        return tuple(
            NOT_STARTED if job.start_ps > self.now
            else FINISHED if self.at[number] >= job.n_steps
            else job.segment_of(self.at[number])
            for number, job in enumerate(self.jobs)
        )  # fmt: skip

    def _left(self, key: Key, step: Mapping[int, float]) -> float:
        """Time until a job leaves its segment or another one starts."""
        ends = [(self._end(job, key) - self.at[job]) * step[job] for job in step]
        starts = [self.jobs[job].start_ps - self.now for job, s in enumerate(key)
                  if s == NOT_STARTED]  # fmt: skip
        return min([*ends, *starts])

    def _end(self, job: int, key: Key) -> int:
        return self.jobs[job].segments[key[job]].end

    def _advance(self, time: float, step: Mapping[int, float]) -> None:
        self.now += time
        for job, one in step.items():
            # Rounded: a job that is through is not to be a rounding error away from it.
            self.at[job] = round(self.at[job] + time / one, 6)

    def _skip(self, key: Key, step: Mapping[int, float]) -> bool:
        """Leave out what can be left out of the stretch that begins here."""
        wanted = self.wanted.get(key, self.first)
        shown = wanted * max(step.values())
        left = self._left(key, step)
        if left < 1.5 * shown:
            return False
        begin = {job: ceil(self.at[job]) for job in step}
        at = {job: ceil(self.at[job] + shown / one - 1e-6) for job, one in step.items()}
        # Whose segment ends first: it is to end where it does.
        leading = min(step, key=lambda job: (self._end(job, key) - self.at[job]) * step[job])
        room = self._end(leading, key) - at[leading]
        whole = (self._end(leading, key) - self.at[leading]) * step[leading] <= left * (1 + 1e-9)
        time = room * step[leading] if whole else left - shown
        cuts = {}
        for job, one in step.items():
            skipped = room if whole and job == leading else round(time / one)
            skipped = min(skipped, self._end(job, key) - at[job])
            if skipped < 1:
                return False
            cuts[job] = Cut(begin[job], at[job], skipped)
        self.skips.append(PlannedSkip(key, cuts, leading, time))
        self.now += shown + time
        for job, cut in cuts.items():
            self.at[job] = float(cut.at + cut.skipped)
        return True


def kept_steps(job: int, n_steps: int, skips: Sequence[PlannedSkip]) -> NDArray[np.int64]:
    """Numbers of the steps of a job that are simulated."""
    kept = np.ones(n_steps, np.bool_)
    for cut in (skip.cuts[job] for skip in skips if job in skip.cuts):
        kept[cut.at : cut.at + cut.skipped] = False
    return np.flatnonzero(kept)
