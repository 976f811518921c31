"""Simulates some of the steps that jobs repeat, and extrapolates the others.

A run is planned (:mod:`tailback.simulation.skip_plan`), simulated without what the plan leaves out,
and looked at (:mod:`tailback.simulation.step_times`): where steps are not stationary yet, more of
them are simulated in another round. What was left out is then added to the outcome
(:mod:`tailback.simulation.extrapolation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.simulation.extrapolation import JobSkip, Skip, with_skips
from tailback.simulation.outcome import ExtrapolatedOutcome
from tailback.simulation.prepare import Job, Workload
from tailback.simulation.skip_plan import (
    FIRST_STEPS,
    NOT_STARTED,
    Cut,
    JobOutline,
    Key,
    PlannedSkip,
    Rates,
    kept_steps,
    plan_skips,
)
from tailback.simulation.step_stretches import find_stretches
from tailback.simulation.step_times import (
    ENOUGH,
    FEWEST,
    Computations,
    Dependencies,
    Extrapolation,
    StepTimes,
)
from tailback.simulation.step_times import extrapolate as extrapolate_steps
from tailback.traffic.program import Program
from tailback.traffic.step_detection import find_steps
from tailback.traffic.steps import KeptSteps, StepProgram, repeated
from tailback.traffic.transform import side_by_side
from tailback.units import format_time

ROUNDS = 5
"""Rounds at most: of one job, 10, 30, 90 and 270 steps of a stretch, and one to spare."""

WORTHWHILE = 0.5
"""Share of the steps, simulated in the last round, above which all are simulated instead."""

RATE = 0.02
"""Change of a step time from one round to the next, as a share, below which a plan stands."""

MOST_AT_ONCE = 6
"""How many times as many steps as before a round may simulate: a few say little of the spread."""

MOST_MARKS = 64
"""Steps, or groups of steps, of a stretch whose traffic is counted apart: each has a row a link."""

Engine = Callable[["SteppedProgram"], _core.PacketOutcome]
"""Runs the program of what is simulated."""


@dataclass(frozen=True, eq=False)
class SteppedProgram:
    """What is simulated in a round.

    Attributes:
        program: The program of all jobs; labels of marked steps are added behind those of jobs.
        source: Operation of the jobs' programs that each operation is, shape (M,).
        start_ps: When each rank starts.
        label_step: Mark of each label, 0 for none.
        copies: How often the labels of the jobs are there.
    """

    program: Program
    source: NDArray[np.int64]
    start_ps: NDArray[np.uint64]
    label_step: list[int]
    copies: int


@dataclass(frozen=True)
class SkippedStretch:
    """A row of table ``skips``, and what a screen says of it.

    Attributes:
        job: Number of the job.
        name: Its name.
        first_step: First step that was left out.
        steps: How many were.
        basis: Simulated steps that they were extrapolated from.
        step_ps: Mean time of a step left out.
        time_ps: Time of all of them.
        half_ps: Half the 95 % interval of that.
        exact: Whether the run repeats itself to the picosecond.
        window: Window that stands for them, None without telemetry.
    """

    job: int
    name: str
    first_step: int
    steps: int
    basis: int
    step_ps: int
    time_ps: int
    half_ps: int
    exact: bool
    window: int | None


@dataclass(frozen=True, eq=False)
class SkippedRun:
    """A run with steps left out.

    Attributes:
        outcome: Everything, with what was left out.
        stretches: What was left out.
        steps: Steps of each job.
        simulated: Steps of each job that were simulated.
        half_ps: Half the 95 % interval of each job's time.
    """

    outcome: ExtrapolatedOutcome
    stretches: list[SkippedStretch]
    steps: list[int]
    simulated: list[int]
    half_ps: list[float]


@dataclass(frozen=True, eq=False)
class _SteppedJob:
    """A job as a sequence of steps."""

    number: int
    job: Job
    steps: StepProgram
    outline: JobOutline
    ranks: slice
    dependencies: dict[int, Dependencies] = field(default_factory=dict)

    @staticmethod
    def all_of(workload: Workload) -> list[_SteppedJob]:
        out, first = [], 0
        for number, job in enumerate(workload.jobs):
            steps = steps_of(job)
            outline = JobOutline(find_stretches(steps), job.section.start)
            ranks = slice(first, first + job.program.n_ranks)
            out.append(_SteppedJob(number, job, steps, outline, ranks))
            first = ranks.stop
        return out

    def _dependencies(self, step: int, eager: int) -> Dependencies:
        """Which ranks wait for one another in a step."""
        held = int(self.steps.order[step])
        kind = int(self.steps.kind[held])
        if kind not in self.dependencies:
            only = self.steps.only(np.array([step])).program
            self.dependencies[kind] = Dependencies.of(only, eager)
        return self.dependencies[kind]

    def computations(self, begin: int, end: int, eager: int) -> Computations:
        """What is known beforehand of the steps from ``begin`` to ``end`` - 1."""
        dependencies, order = self._dependencies(begin, eager), self.steps.order[begin:end]
        if (order == order[0]).all():
            return Computations(None, dependencies)
        compute = self.steps.compute_ps()[order]
        same = (compute == compute[0]).all()
        return Computations(None if same else compute, dependencies)


def steps_of(job: Job) -> StepProgram:
    """The steps of a job: its repetitions, those found in its program, or the job as one."""
    if job.times > 1:
        return repeated(job.program, job.times)
    return find_steps(job.program) or repeated(job.program, 1)


def simulate_skipping(
    workload: Workload,
    engine: Engine,
    *,
    eager: int,
    seed: int,
    one_in: float,
    alike: NDArray[np.int64],
    chance: bool,
) -> SkippedRun | str:
    """Simulate a workload without the steps that can be left out.

    Args:
        workload: What runs.
        engine: Runs a program.
        eager: Bytes of the largest message that needs no handshake.
        seed: Seed of the samples of what is left out.
        one_in: Packets for each one of which a sample arrives.
        alike: Group of each link among which routing spreads the same packets, -1 for none.
        chance: Whether routing draws lots, so that no step is quite like another.

    Returns:
        The run, or why nothing was left out.
    """
    jobs = _SteppedJob.all_of(workload)
    rates, wanted = Rates({}, {}), dict[Key, int]()
    outlines = [job.outline for job in jobs]
    why = "no job repeats enough equal steps"
    for number in range(ROUNDS):
        # A first round with several jobs only shows how long their steps are.
        short = (number == 0) if len(jobs) > 1 else not chance
        first = FIRST_STEPS if short else ENOUGH
        skips = plan_skips(outlines, rates, wanted, first)
        current = _Round.of(workload, jobs, skips)
        if not skips or current.simulated > WORTHWHILE * current.steps:
            return why
        outcome = engine(current.stepped)
        if not outcome.complete:
            return "interrupted"
        looked_at = current.look(outcome, eager)
        changed = current.learn(outcome, looked_at, rates)
        failed = [one.why_not for looks in looked_at for one in looks.values() if one.why_not]
        if not failed and not changed and (number > 0 or len(jobs) == 1):
            return current.whole(outcome, looked_at, seed, one_in, alike)
        why = failed[0] if failed else "the steps of jobs change each other's times"
        for skip, looks in zip(skips, looked_at, strict=True):
            more = [one.found.wanted for one in looks.values() if one.why_not]
            if more:
                before = wanted.get(skip.key, first)
                wanted[skip.key] = min(max(*more, before + FEWEST), MOST_AT_ONCE * before)
    return why


@dataclass(frozen=True, eq=False)
class _Look:
    """What a round says of the steps of one job before those it leaves out."""

    times: StepTimes
    offset: int
    found: Extrapolation

    @property
    def why_not(self) -> str:
        return self.found.why_not

    @property
    def basis(self) -> slice:
        """Steps of the stretch that stand for the others."""
        first = self.offset + self.found.first
        return slice(first, first + self.found.count)


_Looks = list[dict[int, _Look]]
"""For each skip the look at each job of it."""


@dataclass(frozen=True, eq=False)
class _Round:
    """A plan, and the program that is simulated by it."""

    jobs: list[_SteppedJob]
    skips: list[PlannedSkip]
    kept: list[NDArray[np.int64]]
    programs: list[KeptSteps]
    marks: list[NDArray[np.int64]]
    stepped: SteppedProgram
    start_ps: NDArray[np.uint64]

    @staticmethod
    def of(workload: Workload, jobs: list[_SteppedJob], skips: list[PlannedSkip]) -> _Round:
        """Make the program."""
        kept = [kept_steps(job.number, job.steps.n_steps, skips) for job in jobs]
        marks = [np.zeros(len(steps), np.int64) for steps in kept]
        used = 0
        for skip in skips:
            for number, cut in skip.cuts.items():
                first = int(np.searchsorted(kept[number], cut.begin))
                # Not the first step: what precedes it is still under way.
                shown = cut.at - cut.begin - 1
                of_step = 1 + np.arange(shown) * min(shown, MOST_MARKS) // shown
                marks[number][first + 1 : first + 1 + shown] = used + of_step
                used += int(of_step[-1])
        programs = [job.steps.only(steps) for job, steps in zip(jobs, kept, strict=True)]
        merged, _ = side_by_side([one.program for one in programs])
        labels = len(merged.labels)
        of_operation = np.concatenate(
            [one.of_operations(mark) for one, mark in zip(programs, marks, strict=True)]
        )
        starts = np.cumsum([0, *(len(job.steps.program.kind) for job in jobs)])
        start_ps = workload.start_ps.copy()
        for skip in skips:
            for job, segment in zip(jobs, skip.key, strict=True):
                if segment == NOT_STARTED:
                    start_ps[job.ranks] -= np.uint64(round(skip.time_ps))
        stepped = SteppedProgram(
            replace(
                merged,
                label=(merged.label + of_operation * labels).astype(np.uint32),
                labels=merged.labels * (1 + used),
            ),
            np.concatenate([one.source + at for one, at in zip(programs, starts, strict=False)]),
            start_ps,
            np.repeat(np.arange(1 + used), labels).tolist(),
            1 + used,
        )
        return _Round(jobs, skips, kept, programs, marks, stepped, workload.start_ps)

    @property
    def steps(self) -> int:
        """Steps of all jobs."""
        return sum(job.steps.n_steps for job in self.jobs)

    @property
    def simulated(self) -> int:
        """Those that are simulated."""
        return sum(len(kept) for kept in self.kept)

    def look(self, outcome: _core.PacketOutcome, eager: int) -> _Looks:
        """See how long steps took before each skip, and extrapolate."""
        sent = [int(one.program.sends.sum()) for one in self.programs]
        first = np.concatenate([[0], np.cumsum(sent)])
        looks = []
        for skip in self.skips:
            times = {}
            for number, cut in skip.cuts.items():
                begin = int(np.searchsorted(self.kept[number], cut.begin))
                own = self.programs[number]
                columns = own.bounds[:, begin : begin + cut.at - cut.begin + 1]
                times[number] = StepTimes.of(
                    own.program, columns, outcome.messages, int(first[number])
                )
            together = _together(times)
            looks.append({
                number: self._extrapolated(skip, number, times[number], part, eager)
                for number, part in together.items()
            })  # fmt: skip
        return looks

    def _extrapolated(
        self, skip: PlannedSkip, number: int, times: StepTimes, part: slice, eager: int
    ) -> _Look:
        cut, job = skip.cuts[number], self.jobs[number]
        known = job.computations(cut.begin + part.start, cut.at + cut.skipped, eager)
        alone = len(skip.cuts) == 1
        found = extrapolate_steps(times.part(part), cut.skipped, known, alone=alone)
        return _Look(times, part.start, found)

    def learn(self, outcome: _core.PacketOutcome, looks: _Looks, rates: Rates) -> bool:
        """Note step times; whether they differ from those that the round was planned with."""
        if len(self.jobs) == 1:
            return False
        changed = False
        for skip, looked_at in zip(self.skips, looks, strict=True):
            for number, look in looked_at.items():
                before = rates.step_ps(number, skip.key)
                changed |= abs(look.found.step_ps - before) > RATE * before
                rates.of_key[number, skip.key] = look.found.step_ps
        finish = np.asarray(outcome.ranks["finish_ps"]).astype(np.float64)
        first = 0
        for job, own, kept in zip(self.jobs, self.programs, self.kept, strict=True):
            times = StepTimes.of(own.program, own.bounds, outcome.messages, first)
            first += int(own.program.sends.sum())
            begins = np.append(times.begin_ps, finish[job.ranks].mean())
            for number, segment in enumerate(job.outline.segments):
                a, b = np.searchsorted(kept, (segment.begin, segment.end)).tolist()
                if b > a and begins[b] > begins[a]:
                    rates.of_segment[job.number, number] = float((begins[b] - begins[a]) / (b - a))
        return changed

    def whole(
        self,
        outcome: _core.PacketOutcome,
        looks: _Looks,
        seed: int,
        one_in: float,
        alike: NDArray[np.int64],
    ) -> SkippedRun:
        """The run with what was left out of it."""
        skips, half = [], np.zeros(len(self.jobs))
        stretches = list[SkippedStretch]()
        for planned, looked_at in zip(self.skips, looks, strict=True):
            leading = looked_at[planned.leading]
            shift = leading.found.shift_ps
            border = leading.basis.stop
            parts = [self._part(planned.cuts[n], n, look, outcome) for n, look in looked_at.items()]
            parts += [_later(self.jobs[n], shift) for n, segment in enumerate(planned.key)
                      if segment == NOT_STARTED]  # fmt: skip
            skips.append(Skip(int(leading.times.begin_ps[border]), shift, parts))
            for number, look in looked_at.items():
                half[number] = np.hypot(half[number], look.found.half_ps)
        n_labels = len(self.stepped.program.labels) // self.stepped.copies
        made = with_skips(
            outcome, skips, n_labels, self.start_ps, seed=seed, one_in=one_in, alike=alike
        )  # fmt: skip
        for planned, looked_at, window in zip(self.skips, looks, made.skip_windows, strict=True):
            for number, look in looked_at.items():
                cut, found = planned.cuts[number], look.found
                stretches.append(SkippedStretch(
                    job=number, name=self.jobs[number].job.section.name, first_step=cut.at,
                    steps=cut.skipped, basis=found.count, step_ps=round(found.step_ps),
                    time_ps=found.shift_ps, half_ps=ceil(found.half_ps),
                    exact=found.exact, window=window if made.window_ps else None,
                ))  # fmt: skip
        return SkippedRun(
            made, stretches, [job.steps.n_steps for job in self.jobs],
            [len(kept) for kept in self.kept], half.tolist(),
        )  # fmt: skip

    def _part(self, cut: Cut, number: int, look: _Look, outcome: _core.PacketOutcome) -> JobSkip:
        job, basis = self.jobs[number], look.basis
        begin = int(np.searchsorted(self.kept[number], cut.begin))
        marks = self.marks[number][begin : begin + cut.at - cut.begin]
        # Of marks that stand for several steps only those that are all among them.
        inside = np.setdiff1d(marks[basis], np.concatenate([marks[: basis.start],
                                                            marks[basis.stop :], [0]]))  # fmt: skip
        chosen = np.isin(marks, inside)
        factor = cut.skipped / max(int(chosen.sum()), 1)
        left_out = job.steps.order[cut.at : cut.at + cut.skipped]
        counts = look.times.counts[:, chosen].sum(axis=1) * factor
        # Handshakes visit switches too, which no message counts.
        with_handshakes = outcome.packet_hops / max(
            int(np.asarray(outcome.messages["switch_hops"]).astype(np.int64).sum()), 1
        )
        return JobSkip(
            ranks=job.ranks,
            shift_ps=look.found.shift_ps,
            compute_ps=job.steps.compute_ps()[left_out].sum(axis=0),
            marks=inside,
            factor=factor,
            messages=round(counts[0]),
            packets=round(counts[1]),
            hops=float(counts[2]) * with_handshakes,
            observed=job.job.section.observed,
        )


def _later(job: _SteppedJob, shift_ps: int) -> JobSkip:
    """A job that has not started begins later."""
    ranks = job.ranks.stop - job.ranks.start
    nothing = np.zeros(ranks, np.int64)
    return JobSkip(job.ranks, shift_ps, nothing, nothing[:0], 0.0, 0, 0, 0.0)


def _together(times: dict[int, StepTimes]) -> dict[int, slice]:
    """Steps of each job in the time in which all of them are in the stretch."""
    enter = max(one.begin_ps[0] for one in times.values())
    leave = min(one.begin_ps[-1] for one in times.values())
    out = {}
    for number, one in times.items():
        inside = np.flatnonzero((one.begin_ps >= enter) & (one.begin_ps <= leave))
        few = len(inside) < FEWEST + 4
        out[number] = slice(0, len(one.begin_ps)) if few else slice(inside[0], inside[-1] + 1)
    return out


def skip_notes(run: SkippedRun) -> list[str]:
    """Sentences that say what was left out of a run, one for each job that it is of."""
    out = []
    for number, (steps, simulated) in enumerate(zip(run.steps, run.simulated, strict=True)):
        own = [one for one in run.stretches if one.job == number]
        if not own:
            continue
        time, half = sum(one.time_ps for one in own), run.half_ps[number]
        exactly = all(one.exact for one in own)
        how = "they repeat exactly" if exactly else f"± {format_time(round(half))}, 95 %"
        out.append(
            f"skipped: {steps - simulated:,} of the {steps:,} steps of job {own[0].name!r} are "
            f"extrapolated: {format_time(time)} ({how})"
        )
    return out
