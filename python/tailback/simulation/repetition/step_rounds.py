"""Programs without some of the steps of their jobs, and what their runs say about those steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.simulation.link_traffic import LinkPrecision
from tailback.simulation.outcome import Columns, ExtrapolatedOutcome
from tailback.simulation.prepare import Job, Workload
from tailback.simulation.repetition.extrapolation import JobSkip, Skip, marked_traffic, with_skips
from tailback.simulation.repetition.skip_plan import (
    NOT_STARTED,
    Cut,
    JobOutline,
    PlannedSkip,
    Rates,
    kept_steps,
)
from tailback.simulation.repetition.step_stretches import Stretch, find_stretches
from tailback.simulation.repetition.step_times import (
    FEWEST,
    Computations,
    Dependencies,
    Extrapolation,
    StepTimes,
)
from tailback.simulation.repetition.step_times import extrapolate as extrapolate_steps
from tailback.traffic.program import Program
from tailback.traffic.step_detection import find_steps
from tailback.traffic.steps import KeptSteps, StepProgram, repeated
from tailback.traffic.transform import side_by_side

RATE = 0.02
"""Relative change of a step time between rounds below which a plan is final."""

SINGLE_MARKS = 32
"""Number of steps of a stretch whose traffic is counted step by step: each adds a row per link.
Later steps are counted in groups, of this fraction of the steps before them. An extrapolation then
uses nearly all of its steps in complete groups.
"""


def marks_of_steps(n: int) -> NDArray[np.int64]:
    """Marks of n consecutive steps, from 1."""
    step = np.arange(n)
    late = np.log(np.maximum(step, SINGLE_MARKS) / SINGLE_MARKS) / np.log1p(1 / SINGLE_MARKS)
    group = np.where(step < SINGLE_MARKS, step, SINGLE_MARKS + np.floor(late + 1e-9))
    return np.unique(group, return_inverse=True)[1] + 1


@dataclass(frozen=True, eq=False)
class SteppedProgram:
    """The program of a round, without the skipped steps.

    Attributes:
        program: The program of all jobs; the labels of marked steps follow those of the jobs.
        start_ps: Start time of each rank.
        label_step: Mark of each label, 0 for none.
        copies: Number of copies of the jobs' labels: one more than there are marks.
        label_offset: If ``program`` is one step that the engine repeats, the label offset of each
            repetition, shape (m,). None if ``program`` has all steps.
    """

    program: Program
    start_ps: NDArray[np.uint64]
    label_step: list[int]
    copies: int
    label_offset: NDArray[np.uint32] | None = None

    @staticmethod
    def of(
        programs: list[KeptSteps],
        marks: list[NDArray[np.int64]],
        used: int,
        start_ps: NDArray[np.uint64],
    ) -> SteppedProgram:
        """The program of all jobs, whose steps have ``marks`` up to ``used``."""
        merged, _ = side_by_side([kept.program for kept in programs])
        labels = len(merged.labels)
        of_operation = np.concatenate(
            [kept.of_operations(mark) for kept, mark in zip(programs, marks, strict=True)]
        )
        program = replace(
            merged,
            label=(merged.label + of_operation * labels).astype(np.uint32),
            labels=merged.labels * (1 + used),
        )
        return SteppedProgram(program, start_ps, _steps_of_labels(labels, used), 1 + used)

    @staticmethod
    def repeating(
        step: Program, marks: NDArray[np.int64], used: int, start_ps: NDArray[np.uint64]
    ) -> SteppedProgram:
        """The program that repeats a step, with ``marks`` up to ``used``.

        A hundred steps take longer to build and match than to simulate twenty of them.
        """
        labels = len(step.labels)
        program = replace(step, labels=step.labels * (1 + used), recompile=None)
        offset = (marks * labels).astype(np.uint32)
        return SteppedProgram(program, start_ps, _steps_of_labels(labels, used), 1 + used, offset)


def _steps_of_labels(labels: int, used: int) -> list[int]:
    """``SteppedProgram.label_step`` of so many labels without steps and marks."""
    return np.repeat(np.arange(1 + used), labels).tolist()


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


@dataclass(eq=False)
class SteppedJob:
    """A job as a sequence of steps."""

    number: int
    job: Job
    steps: StepProgram
    outline: JobOutline
    ranks: slice
    dependencies: dict[int, Dependencies] = field(default_factory=dict)

    @staticmethod
    def all_of(workload: Workload) -> list[SteppedJob]:
        """All jobs of a workload."""
        out, first = [], 0
        for number, job in enumerate(workload.jobs):
            steps = steps_of(job)
            outline = JobOutline(find_stretches(steps), job.section.start)
            ranks = slice(first, first + job.program.n_ranks)
            out.append(SteppedJob(number, job, steps, outline, ranks))
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

    def operations_per_step(self) -> float:
        """Mean number of operations of all ranks in a step."""
        length = np.diff(self.steps.bounds, axis=1).sum(axis=0)
        return float(length[self.steps.order].mean())

    def steps_are_equal(self, stretch: Stretch) -> bool:
        """Whether the steps of a stretch have the same computations, too."""
        order = self.steps.order[stretch.begin : stretch.end]
        if (order == order[0]).all():
            return True
        compute = self.steps.compute_ps[order]
        return bool((compute == compute[0]).all())

    def computations(self, begin: int, end: int, eager: int) -> Computations:
        """Computation times and dependencies of steps ``begin`` to ``end`` - 1."""
        order = self.steps.order[begin:end]
        unsent_ps, rejoins = self._silent_ranks(begin, end)
        if (order == order[0]).all():
            return Computations(None, None, unsent_ps, rejoins)
        compute = self.steps.compute_ps[order]
        if (compute == compute[0]).all():
            return Computations(None, None, unsent_ps, rejoins)
        return Computations(compute, self._dependencies(begin, eager), unsent_ps, rejoins)

    def _silent_ranks(self, begin: int, end: int) -> tuple[float, bool]:
        """Values of :class:`Computations` for ranks that send nothing in these steps.

        Returns:
            Its ``unsent_ps`` and ``rejoins``.
        """
        held = int(self.steps.order[begin])
        none = (self.sends_in_steps[:, held] == 0) & (np.diff(self.steps.bounds).sum(axis=1) > 0)
        if not none.any():
            return 0.0, False
        computed = self.steps.compute_ps[self.steps.order[begin:end]]
        apart = self.apart(begin)
        rejoins = apart & (self.posts_in_steps[:, self.steps.order[end:]].sum(axis=1) > 0)
        return float(computed[:, none].mean(axis=0).max()), bool(rejoins.any())

    @cached_property
    def sends_in_steps(self) -> NDArray[np.int64]:
        """Number of sends of each rank in each distinct step, shape (R, s)."""
        return self._in_steps(self.steps.program.sends)

    @cached_property
    def posts_in_steps(self) -> NDArray[np.int64]:
        """Number of sends and receives of each rank in each distinct step, shape (R, s)."""
        return self._in_steps(self.steps.program.posts)

    def _in_steps(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        total = np.concatenate([[0], np.cumsum(chosen)])
        return np.asarray(np.diff(total[self.steps.bounds], axis=1))

    def apart(self, step: int) -> NDArray[np.bool_]:
        """Ranks without messages in a step, shape (R,)."""
        return np.asarray(self.posts_in_steps[:, int(self.steps.order[step])] == 0)


def steps_of(job: Job) -> StepProgram:
    """Steps of a job: its repetitions, those detected in its program, or the whole job as one."""
    if job.times > 1:
        return repeated(job.program, job.times)
    return find_steps(job.program) or repeated(job.program, 1)


@dataclass(frozen=True, eq=False)
class RoundResult:
    """Evaluation of the simulated steps of one job before a skip."""

    times: StepTimes
    offset: int
    extrapolation: Extrapolation

    @property
    def why_not(self) -> str:
        """Why the extrapolation is unreliable; empty if it is reliable."""
        return self.extrapolation.why_not

    @property
    def basis(self) -> slice:
        """Simulated steps that the skipped ones are extrapolated from."""
        first = self.offset + self.extrapolation.first
        return slice(first, first + self.extrapolation.count)

    def basis_marks(self, marks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Marks whose steps all belong to the basis, and which of the steps have one of them.

        ``marks``: mark of each step of the stretch in the program, 0 for none.
        """
        basis = self.basis
        others = np.concatenate([marks[: basis.start], marks[basis.stop :], [0]])
        inside = np.setdiff1d(marks[basis], others)
        return inside, np.isin(marks[: self.times.counts.shape[1]], inside)

    def links(
        self, marks: NDArray[np.int64], skipped: int, traffic: Columns, group: NDArray[np.int64]
    ) -> LinkPrecision:
        """How well the bytes of links are known in skipped steps, from the ``traffic`` by mark."""
        inside, chosen = self.basis_marks(marks)
        factor = skipped / max(int(chosen.sum()), 1)
        steps = (marks[:, None] == inside).sum(axis=0)
        return marked_traffic(traffic, "bytes", inside, steps, factor, group).precision()


RoundResults = list[dict[int, RoundResult]]
"""For each skip the results of its jobs, by job."""


@dataclass(frozen=True, eq=False)
class Round:
    """A plan and the program to simulate.

    Attributes:
        jobs: The jobs.
        skips: What is left out.
        kept: Number of each step in the programs, by job.
        programs: Programs of the jobs; none if the engine repeats the only step of a single job.
        marks: Mark of each step in the programs, by job, 0 for none.
        stepped: The program to simulate.
        start_ps: Start time of each rank in the whole run.
    """

    jobs: list[SteppedJob]
    skips: list[PlannedSkip]
    kept: list[NDArray[np.int64]]
    programs: list[KeptSteps]
    marks: list[NDArray[np.int64]]
    stepped: SteppedProgram
    start_ps: NDArray[np.uint64]

    @staticmethod
    def of(
        workload: Workload,
        jobs: list[SteppedJob],
        skips: list[PlannedSkip],
        measured: Sequence[tuple[int, int, int]] | None = None,
        *,
        repeat: bool = False,
    ) -> Round:
        """Build the program of a plan.

        Args:
            workload: The jobs and their placements.
            jobs: The jobs as steps.
            skips: What is left out.
            measured: Job, first step in its program and number of steps of each stretch whose
                traffic is counted by step; default: those before each skip.
            repeat: Whether the engine repeats the only step of the only job.
        """
        kept = [kept_steps(job.number, job.steps.n_steps, skips) for job in jobs]
        marks = [np.zeros(len(steps), np.int64) for steps in kept]
        used = 0
        if measured is None:
            measured = [
                (number, int(np.searchsorted(kept[number], cut.begin)), cut.at - cut.begin)
                for skip in skips
                for number, cut in skip.cuts.items()
            ]
        for number, first, n_steps in measured:
            # Without the first step, in which traffic of earlier steps is still in flight.
            of_step = marks_of_steps(n_steps - 1)
            marks[number][first + 1 : first + n_steps] = used + of_step
            used += int(of_step[-1])
        start_ps = workload.start_ps.copy()
        for skip in skips:
            for job, segment in zip(jobs, skip.key, strict=True):
                if segment == NOT_STARTED:
                    start_ps[job.ranks] -= np.uint64(round(skip.time_ps))
        if repeat:
            programs = list[KeptSteps]()
            stepped = SteppedProgram.repeating(jobs[0].steps.program, marks[0], used, start_ps)
        else:
            programs = [job.steps.only(steps) for job, steps in zip(jobs, kept, strict=True)]
            stepped = SteppedProgram.of(programs, marks, used, start_ps)
        return Round(jobs, skips, kept, programs, marks, stepped, workload.start_ps)

    @property
    def steps(self) -> int:
        """Number of steps of all jobs."""
        return sum(job.steps.n_steps for job in self.jobs)

    @property
    def simulated(self) -> int:
        """Number of simulated steps of all jobs."""
        return sum(len(kept) for kept in self.kept)

    def extrapolate(self, outcome: _core.PacketOutcome, eager: int) -> RoundResults:
        """Read the step times before each skip and extrapolate them."""
        sent = [int(kept_program.program.sends.sum()) for kept_program in self.programs]
        first = np.concatenate([[0], np.cumsum(sent)])
        results = []
        for skip in self.skips:
            times = {}
            for number, cut in skip.cuts.items():
                begin = int(np.searchsorted(self.kept[number], cut.begin))
                kept_program = self.programs[number]
                columns = kept_program.bounds[:, begin : begin + cut.at - cut.begin + 1]
                messages = kept_program.messages_before(columns) + int(first[number])
                times[number] = StepTimes.of(messages, outcome.messages)
            together = _common_steps(times)
            results.append(
                {
                    number: self._extrapolate_job(skip, number, times[number], part, eager)
                    for number, part in together.items()
                }
            )
        return results

    def _extrapolate_job(
        self, skip: PlannedSkip, number: int, times: StepTimes, part: slice, eager: int
    ) -> RoundResult:
        cut, job = skip.cuts[number], self.jobs[number]
        computations = job.computations(cut.begin + part.start, cut.at + cut.skipped, eager)
        alone = len(skip.cuts) == 1
        extrapolation = extrapolate_steps(times.part(part), cut.skipped, computations, alone=alone)
        return RoundResult(times, part.start, extrapolation)

    def update_rates(
        self, outcome: _core.PacketOutcome, results: RoundResults, rates: Rates
    ) -> bool:
        """Update the step times; whether they differ from those of the plan."""
        if len(self.jobs) == 1:
            return False
        changed = False
        for skip, by_job in zip(self.skips, results, strict=True):
            for number, result in by_job.items():
                before = rates.step_ps(number, skip.key)
                changed |= abs(result.extrapolation.step_ps - before) > RATE * before
                rates.of_key[number, skip.key] = result.extrapolation.step_ps
        finish = np.asarray(outcome.ranks["finish_ps"]).astype(np.float64)
        first = 0
        for job, kept_program, kept in zip(self.jobs, self.programs, self.kept, strict=True):
            times = StepTimes.of(
                kept_program.messages_before(kept_program.bounds) + first, outcome.messages
            )
            first += int(kept_program.program.sends.sum())
            begins = np.append(times.begin_ps, finish[job.ranks].mean())
            for number, segment in enumerate(job.outline.segments):
                a, b = np.searchsorted(kept, (segment.begin, segment.end)).tolist()
                if b > a and begins[b] > begins[a]:
                    rates.of_segment[job.number, number] = float((begins[b] - begins[a]) / (b - a))
        return changed

    def skipped_run(
        self,
        outcome: _core.PacketOutcome,
        results: RoundResults,
        seed: int,
        one_in: float,
        link_group: NDArray[np.int64],
    ) -> SkippedRun:
        """The run with its skipped steps added."""
        skips, half = [], np.zeros(len(self.jobs))
        stretches = list[SkippedStretch]()
        for planned, by_job in zip(self.skips, results, strict=True):
            leading = by_job[planned.leading]
            shift = leading.extrapolation.shift_ps
            border = leading.basis.stop
            parts = [
                self._part(planned.cuts[n], n, result, outcome) for n, result in by_job.items()
            ]
            parts += [
                _postpone_start(self.jobs[n], shift)
                for n, segment in enumerate(planned.key)
                if segment == NOT_STARTED
            ]
            skips.append(Skip(int(leading.times.begin_ps[border]), shift, parts))
            for number, result in by_job.items():
                half[number] = np.hypot(half[number], result.extrapolation.half_ps)
        n_labels = len(self.stepped.program.labels) // self.stepped.copies
        made = with_skips(
            outcome, skips, n_labels, self.start_ps, seed=seed, one_in=one_in, link_group=link_group
        )
        for planned, by_job, window in zip(self.skips, results, made.skip_windows, strict=True):
            for number, result in by_job.items():
                cut, extrapolation = planned.cuts[number], result.extrapolation
                stretches.append(
                    SkippedStretch(
                        job=number,
                        name=self.jobs[number].job.section.name,
                        first_step=cut.at,
                        steps=cut.skipped,
                        basis=extrapolation.count,
                        step_ps=round(extrapolation.step_ps),
                        time_ps=extrapolation.shift_ps,
                        half_ps=ceil(extrapolation.half_ps),
                        exact=extrapolation.exact,
                        window=window if made.window_ps else None,
                    )
                )
        return SkippedRun(
            made,
            stretches,
            [job.steps.n_steps for job in self.jobs],
            [len(kept) for kept in self.kept],
            half.tolist(),
        )

    def _part(
        self, cut: Cut, number: int, result: RoundResult, outcome: _core.PacketOutcome
    ) -> JobSkip:
        job = self.jobs[number]
        begin = int(np.searchsorted(self.kept[number], cut.begin))
        marks = self.marks[number][begin : begin + cut.at - cut.begin]
        inside, chosen = result.basis_marks(marks)
        factor = cut.skipped / max(int(chosen.sum()), 1)
        left_out = job.steps.order[cut.at : cut.at + cut.skipped]
        counts = result.times.counts[:, chosen].sum(axis=1) * factor
        # Handshakes visit switches too but are not counted in table messages.
        with_handshakes = outcome.packet_hops / max(
            int(np.asarray(outcome.messages["switch_hops"]).astype(np.int64).sum()), 1
        )
        return JobSkip(
            ranks=job.ranks,
            shift_ps=result.extrapolation.shift_ps,
            compute_ps=job.steps.compute_ps[left_out].sum(axis=0),
            marks=inside,
            mark_steps=(marks[:, None] == inside).sum(axis=0),
            factor=factor,
            messages=round(counts[0]),
            packets=round(counts[1]),
            hops=float(counts[2]) * with_handshakes,
            observed=job.job.section.observed,
            apart=job.apart(cut.at),
        )


def _postpone_start(job: SteppedJob, shift_ps: int) -> JobSkip:
    """Postpone the start of a job that has not started yet."""
    ranks = job.ranks.stop - job.ranks.start
    nothing = np.zeros(ranks, np.int64)
    return JobSkip(job.ranks, shift_ps, nothing, nothing[:0], nothing[:0], 0.0, 0, 0, 0.0)


def _common_steps(times: dict[int, StepTimes]) -> dict[int, slice]:
    """Steps of each job during the time in which all jobs are in this interval."""
    enter = max(times_of_job.begin_ps[0] for times_of_job in times.values())
    leave = min(times_of_job.begin_ps[-1] for times_of_job in times.values())
    out = {}
    for number, times_of_job in times.items():
        inside = np.flatnonzero((times_of_job.begin_ps >= enter) & (times_of_job.begin_ps <= leave))
        too_few = len(inside) < FEWEST + 4
        out[number] = (
            slice(0, len(times_of_job.begin_ps)) if too_few else slice(inside[0], inside[-1] + 1)
        )
    return out
