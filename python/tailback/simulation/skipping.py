"""Simulates some of the steps that jobs repeat, and extrapolates the others.

Each round plans the skips (:mod:`tailback.simulation.skip_plan`), simulates the remaining steps and
evaluates their times (:mod:`tailback.simulation.step_times`). If steps are not stationary yet,
another round simulates more of them. Finally the skipped steps are added to the outcome
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
"""Maximum number of rounds: for one job 10, 30, 90 and 270 steps of a stretch, and one more."""

WORTHWHILE = 0.5
"""Fraction of the steps to simulate in a round above which all steps are simulated instead."""

RATE = 0.02
"""Relative change of a step time between rounds below which a plan is final."""

MAX_INCREASE = 6
"""Maximum factor by which a round increases the number of simulated steps: the number asked for is
uncertain, as few steps give a poor estimate of the variance."""

MAX_MARKS = 64
"""Maximum number of steps or groups of steps of a stretch whose traffic is counted separately: each
adds a row per link."""

Engine = Callable[["SteppedProgram"], _core.PacketOutcome]
"""Simulates the program of a round."""


@dataclass(frozen=True, eq=False)
class SteppedProgram:
    """The program of a round, without the skipped steps.

    Attributes:
        program: The program of all jobs; the labels of marked steps follow those of the jobs.
        source: Index in the jobs' programs of each operation, shape (M,).
        start_ps: Start time of each rank.
        label_step: Mark of each label, 0 for none.
        copies: Number of copies of the jobs' labels: one more than there are marks.
    """

    program: Program
    source: NDArray[np.int64]
    start_ps: NDArray[np.uint64]
    label_step: list[int]
    copies: int


@dataclass(frozen=True)
class SkippedStretch:
    """A row of table ``skips``.

    Attributes:
        job: Number of the job.
        name: Its name.
        first_step: First step that was left out.
        steps: Number of steps left out.
        basis: Number of simulated steps that they were extrapolated from.
        step_ps: Mean time of a step left out.
        time_ps: Total time of the steps left out.
        half_ps: Half the width of the 95 % interval of ``time_ps``.
        exact: Whether the run repeats itself to the picosecond.
        window: Time window that covers them, None without telemetry.
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
        outcome: Outcome of the whole run, skipped steps included.
        stretches: The skipped steps.
        steps: Number of steps of each job.
        simulated: Number of simulated steps of each job.
        half_ps: Half the width of the 95 % interval of each job's time.
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
        """Which ranks wait for which others in a step."""
        held = int(self.steps.order[step])
        kind = int(self.steps.kind[held])
        if kind not in self.dependencies:
            only = self.steps.only(np.array([step])).program
            self.dependencies[kind] = Dependencies.of(only, eager)
        return self.dependencies[kind]

    def computations(self, begin: int, end: int, eager: int) -> Computations:
        """Computation times and dependencies of steps ``begin`` to ``end`` - 1."""
        dependencies, order = self._dependencies(begin, eager), self.steps.order[begin:end]
        if (order == order[0]).all():
            return Computations(None, dependencies)
        compute = self.steps.compute_ps()[order]
        same = (compute == compute[0]).all()
        return Computations(None if same else compute, dependencies)


def steps_of(job: Job) -> StepProgram:
    """Steps of a job: its repetitions, those detected in its program, or the whole job as one."""
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
    link_group: NDArray[np.int64],
    random_routing: bool,
) -> SkippedRun | str:
    """Simulate a workload without the steps that can be skipped.

    Args:
        workload: The jobs and their placements.
        engine: Simulates a program.
        eager: Largest message in bytes that is sent without a handshake.
        seed: Seed of the samples of skipped steps.
        one_in: Number of packets per sample that arrives.
        link_group: Group of parallel links that each link belongs to, -1 for none.
        random_routing: Whether routing makes random choices, so that steps do not repeat exactly.

    Returns:
        The run, or the reason why nothing was skipped.
    """
    jobs = _SteppedJob.all_of(workload)
    rates, wanted = Rates({}, {}), dict[Key, int]()
    outlines = [job.outline for job in jobs]
    reason = "no job repeats enough equal steps"
    for number in range(ROUNDS):
        # With several jobs the first round only measures how long their steps take.
        short = (number == 0) if len(jobs) > 1 else not random_routing
        first = FIRST_STEPS if short else ENOUGH
        skips = plan_skips(outlines, rates, wanted, first)
        current = _Round.of(workload, jobs, skips)
        if not skips or current.simulated > WORTHWHILE * current.steps:
            return reason
        outcome = engine(current.stepped)
        if not outcome.complete:
            return "interrupted"
        results = current.extrapolate(outcome, eager)
        changed = current.update_rates(outcome, results, rates)
        failed = [one.why_not for by_job in results for one in by_job.values() if one.why_not]
        if not failed and not changed and (number > 0 or len(jobs) == 1):
            return current.skipped_run(outcome, results, seed, one_in, link_group)
        reason = failed[0] if failed else "the steps of jobs change each other's times"
        for skip, by_job in zip(skips, results, strict=True):
            more = [one.found.wanted for one in by_job.values() if one.why_not]
            if more:
                before = wanted.get(skip.key, first)
                wanted[skip.key] = min(max(*more, before + FEWEST), MAX_INCREASE * before)
    return reason


@dataclass(frozen=True, eq=False)
class _RoundResult:
    """Evaluation of the simulated steps of one job before a skip."""

    times: StepTimes
    offset: int
    found: Extrapolation

    @property
    def why_not(self) -> str:
        return self.found.why_not

    @property
    def basis(self) -> slice:
        """Simulated steps that the skipped ones are extrapolated from."""
        first = self.offset + self.found.first
        return slice(first, first + self.found.count)


_Results = list[dict[int, _RoundResult]]
"""For each skip the results of its jobs, by job."""


@dataclass(frozen=True, eq=False)
class _Round:
    """A plan and the program to simulate."""

    jobs: list[_SteppedJob]
    skips: list[PlannedSkip]
    kept: list[NDArray[np.int64]]
    programs: list[KeptSteps]
    marks: list[NDArray[np.int64]]
    stepped: SteppedProgram
    start_ps: NDArray[np.uint64]

    @staticmethod
    def of(workload: Workload, jobs: list[_SteppedJob], skips: list[PlannedSkip]) -> _Round:
        """Build the program of a plan."""
        kept = [kept_steps(job.number, job.steps.n_steps, skips) for job in jobs]
        marks = [np.zeros(len(steps), np.int64) for steps in kept]
        used = 0
        for skip in skips:
            for number, cut in skip.cuts.items():
                first = int(np.searchsorted(kept[number], cut.begin))
                # Without the first step, in which traffic of earlier steps is still in flight.
                n_marked = cut.at - cut.begin - 1
                of_step = 1 + np.arange(n_marked) * min(n_marked, MAX_MARKS) // n_marked
                marks[number][first + 1 : first + 1 + n_marked] = used + of_step
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
        """Number of steps of all jobs."""
        return sum(job.steps.n_steps for job in self.jobs)

    @property
    def simulated(self) -> int:
        """Number of simulated steps of all jobs."""
        return sum(len(kept) for kept in self.kept)

    def extrapolate(self, outcome: _core.PacketOutcome, eager: int) -> _Results:
        """Read the step times before each skip and extrapolate them."""
        sent = [int(one.program.sends.sum()) for one in self.programs]
        first = np.concatenate([[0], np.cumsum(sent)])
        results = []
        for skip in self.skips:
            times = {}
            for number, cut in skip.cuts.items():
                begin = int(np.searchsorted(self.kept[number], cut.begin))
                own = self.programs[number]
                columns = own.bounds[:, begin : begin + cut.at - cut.begin + 1]
                times[number] = StepTimes.of(
                    own.program, columns, outcome.messages, int(first[number])
                )
            together = _common_steps(times)
            results.append({
                number: self._extrapolated(skip, number, times[number], part, eager)
                for number, part in together.items()
            })  # fmt: skip
        return results

    def _extrapolated(
        self, skip: PlannedSkip, number: int, times: StepTimes, part: slice, eager: int
    ) -> _RoundResult:
        cut, job = skip.cuts[number], self.jobs[number]
        known = job.computations(cut.begin + part.start, cut.at + cut.skipped, eager)
        alone = len(skip.cuts) == 1
        found = extrapolate_steps(times.part(part), cut.skipped, known, alone=alone)
        return _RoundResult(times, part.start, found)

    def update_rates(self, outcome: _core.PacketOutcome, results: _Results, rates: Rates) -> bool:
        """Update the step times; whether they differ from those of the plan."""
        if len(self.jobs) == 1:
            return False
        changed = False
        for skip, by_job in zip(self.skips, results, strict=True):
            for number, result in by_job.items():
                before = rates.step_ps(number, skip.key)
                changed |= abs(result.found.step_ps - before) > RATE * before
                rates.of_key[number, skip.key] = result.found.step_ps
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

    def skipped_run(
        self,
        outcome: _core.PacketOutcome,
        results: _Results,
        seed: int,
        one_in: float,
        link_group: NDArray[np.int64],
    ) -> SkippedRun:
        """The run with its skipped steps added."""
        skips, half = [], np.zeros(len(self.jobs))
        stretches = list[SkippedStretch]()
        for planned, by_job in zip(self.skips, results, strict=True):
            leading = by_job[planned.leading]
            shift = leading.found.shift_ps
            border = leading.basis.stop
            parts = [
                self._part(planned.cuts[n], n, result, outcome) for n, result in by_job.items()
            ]
            parts += [_postponed(self.jobs[n], shift) for n, segment in enumerate(planned.key)
                      if segment == NOT_STARTED]  # fmt: skip
            skips.append(Skip(int(leading.times.begin_ps[border]), shift, parts))
            for number, result in by_job.items():
                half[number] = np.hypot(half[number], result.found.half_ps)
        n_labels = len(self.stepped.program.labels) // self.stepped.copies
        made = with_skips(
            outcome, skips, n_labels, self.start_ps, seed=seed, one_in=one_in, link_group=link_group
        )  # fmt: skip
        for planned, by_job, window in zip(self.skips, results, made.skip_windows, strict=True):
            for number, result in by_job.items():
                cut, found = planned.cuts[number], result.found
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

    def _part(
        self, cut: Cut, number: int, result: _RoundResult, outcome: _core.PacketOutcome
    ) -> JobSkip:
        job, basis = self.jobs[number], result.basis
        begin = int(np.searchsorted(self.kept[number], cut.begin))
        marks = self.marks[number][begin : begin + cut.at - cut.begin]
        # Of marks that cover several steps, only those whose steps all belong to the basis.
        inside = np.setdiff1d(marks[basis], np.concatenate([marks[: basis.start],
                                                            marks[basis.stop :], [0]]))  # fmt: skip
        chosen = np.isin(marks, inside)
        factor = cut.skipped / max(int(chosen.sum()), 1)
        left_out = job.steps.order[cut.at : cut.at + cut.skipped]
        counts = result.times.counts[:, chosen].sum(axis=1) * factor
        # Handshakes visit switches too but are not counted in table messages.
        with_handshakes = outcome.packet_hops / max(
            int(np.asarray(outcome.messages["switch_hops"]).astype(np.int64).sum()), 1
        )
        return JobSkip(
            ranks=job.ranks,
            shift_ps=result.found.shift_ps,
            compute_ps=job.steps.compute_ps()[left_out].sum(axis=0),
            marks=inside,
            factor=factor,
            messages=round(counts[0]),
            packets=round(counts[1]),
            hops=float(counts[2]) * with_handshakes,
            observed=job.job.section.observed,
        )


def _postponed(job: _SteppedJob, shift_ps: int) -> JobSkip:
    """Postpone the start of a job that has not started yet."""
    ranks = job.ranks.stop - job.ranks.start
    nothing = np.zeros(ranks, np.int64)
    return JobSkip(job.ranks, shift_ps, nothing, nothing[:0], 0.0, 0, 0, 0.0)


def _common_steps(times: dict[int, StepTimes]) -> dict[int, slice]:
    """Steps of each job during the time in which all jobs are in this interval."""
    enter = max(one.begin_ps[0] for one in times.values())
    leave = min(one.begin_ps[-1] for one in times.values())
    out = {}
    for number, one in times.items():
        inside = np.flatnonzero((one.begin_ps >= enter) & (one.begin_ps <= leave))
        too_few = len(inside) < FEWEST + 4
        out[number] = slice(0, len(one.begin_ps)) if too_few else slice(inside[0], inside[-1] + 1)
    return out


def skip_notes(run: SkippedRun) -> list[str]:
    """Notes on the skipped steps of a run, one per job with any."""
    out = []
    for number, (steps, simulated) in enumerate(zip(run.steps, run.simulated, strict=True)):
        own = [one for one in run.stretches if one.job == number]
        if not own:
            continue
        time, half = sum(one.time_ps for one in own), run.half_ps[number]
        exactly = all(one.exact for one in own)
        error = "they repeat exactly" if exactly else f"± {format_time(round(half))}, 95 %"
        out.append(
            f"skipped: {steps - simulated:,} of the {steps:,} steps of job {own[0].name!r} are "
            f"extrapolated: {format_time(time)} ({error})"
        )
    return out
