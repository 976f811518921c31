"""Simulates one job and leaves out its repeated steps as soon as they are stationary.

The engine asks at several steps of each stretch whether the steps so far are stationary
(:mod:`tailback.simulation.repetition.step_times`). Then all ranks continue after the stretch.
Otherwise the simulation goes on, and a failed attempt costs only the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.simulation.outcome import Columns, ExtrapolatedOutcome
from tailback.simulation.prepare import Workload
from tailback.simulation.repetition.extrapolation import NEVER, with_skips
from tailback.simulation.repetition.skip_plan import FIRST_STEPS, Cut, PlannedSkip
from tailback.simulation.repetition.step_rounds import (
    Round,
    RoundResult,
    SkippedRun,
    SteppedJob,
    SteppedProgram,
)
from tailback.simulation.repetition.step_stretches import Stretch
from tailback.simulation.repetition.step_times import ENOUGH, StepTimes
from tailback.simulation.repetition.step_times import extrapolate as extrapolate_steps

CHECK_GROWTH = 1.25
"""Ratio of the numbers of steps of successive checks."""

WORTHWHILE = 0.2
"""Smallest fraction of a stretch that is left out: less would gain less than its interval costs."""

FIRST_OPERATIONS = 1_000_000
"""Operations of the first program, which has only the first steps of each stretch: to build and
match as many takes about a third of a second."""

REPEATED_OPERATIONS = 4_000_000
"""The same if the engine repeats one step, which takes a fraction of the time: then their memory is
the limit, about half a gigabyte."""

FIRST_KEPT = 150
"""Most steps of a stretch in the first program."""

LARGEST = 50_000_000
"""Operations of a program above which it is not simulated whole for an attempt: each takes about a
hundred bytes."""


class SteppedEngine(Protocol):
    """Simulates the program of a round, which checks may cut short."""

    def __call__(
        self, part: SteppedProgram, checks: StepChecks | None = None, /
    ) -> _core.PacketOutcome:
        """The outcome of the program."""
        ...


@dataclass(frozen=True, eq=False)
class StepChecks:
    """Steps of a program and when to ask about them, as the engine takes them.

    Attributes:
        bounds: Index of the first operation of each step and the end of the last, rank by rank.
        count: Number of steps.
        first: First reported step and step of the first check.
        decide: Called with the step of each rank, the messages of the reported steps and the
            traffic of links so far by mark (the window is the mark minus 1). It returns the first
            step to leave out, the first one after those, and the next check or None.
        label_offset: If the program is one step, the offset of the labels of each of its ``count``
            repetitions. None if it has all steps.
    """

    bounds: NDArray[np.uint64]
    count: int
    first: tuple[int, int]
    decide: Callable[
        [NDArray[np.uint32], Columns, Columns], tuple[int, int, tuple[int, int] | None]
    ]
    label_offset: NDArray[np.uint32] | None = None


@dataclass(frozen=True, eq=False)
class WholeRun:
    """A run of which nothing was left out.

    Attributes:
        outcome: Its outcome.
        reason: Why nothing was left out.
    """

    outcome: ExtrapolatedOutcome
    reason: str


@dataclass(eq=False)
class _StretchChecks:
    """Checks of one stretch of a program.

    Attributes:
        segment: Number of the stretch in the job.
        stretch: Its steps in the job.
        first: Its first step in the program.
        kept: Number of its steps in the program.
        counts: Numbers of steps after which it is checked, ascending.
    """

    segment: int
    stretch: Stretch
    first: int
    kept: int
    counts: list[int]


@dataclass(eq=False)
class _Attempt:
    """Decides at the checks of a program which steps to leave out.

    Attributes:
        job: The job.
        program: The program.
        eager: Largest message in bytes that is sent without a handshake.
        link_group: Group of interchangeable links that each link belongs to, -1 for none.
        random_routing: Whether routing makes random choices.
        pending: Stretches that have not been decided on.
        found: Steps left out and the extrapolation, by stretch.
        reason: Why a stretch was not left out.
    """

    job: SteppedJob
    program: Round
    eager: int
    link_group: NDArray[np.int64]
    random_routing: bool
    pending: list[_StretchChecks]
    results: dict[int, tuple[Cut, RoundResult]] = field(default_factory=dict)
    reason: str = "no job repeats enough equal steps"
    messages: NDArray[np.int64] = field(init=False)
    bounds: NDArray[np.int64] = field(init=False)
    busy: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        steps, kept = self.job.steps, self.program.kept[0]
        self.messages = steps.message_bounds(kept)
        self.bounds = steps.operation_bounds(kept)
        self.busy = self.bounds[:, -1] > self.bounds[:, 0]

    def next_check(self) -> tuple[int, int] | None:
        """First reported step and step of the next check."""
        if not self.pending:
            return None
        stretch = self.pending[0]
        return stretch.first, stretch.first + stretch.counts[0]

    def decide(
        self, rank_step: NDArray[np.uint32], messages: Columns, traffic: Columns
    ) -> tuple[int, int, tuple[int, int] | None]:
        """Steps to leave out at the current check, and the next check."""
        stretch = self.pending[0]
        count = stretch.counts.pop(0)
        end = stretch.first + stretch.kept
        # No rank has begun this step.
        at = min(int(rank_step[self.busy].max(initial=0)) + 1, end)
        cut = Cut(
            stretch.stretch.begin,
            stretch.stretch.begin + at - stretch.first,
            stretch.stretch.end - stretch.stretch.begin - (at - stretch.first),
        )
        if cut.skipped < WORTHWHILE * stretch.stretch.n_steps:
            stretch.counts.clear()
            if at - stretch.first > 2 * count:
                self.reason = "ranks run ahead of others"
        else:
            result = self._extrapolate_stretch(stretch, count, cut, messages, traffic)
            if result is not None and not result.why_not:
                self.results[stretch.segment] = (cut, result)
                self.pending.pop(0)
                return at, end, self.next_check()
            if result is not None:
                self.reason = result.why_not
        if not stretch.counts:
            self.pending.pop(0)
        return 0, 0, self.next_check()

    def _extrapolate_stretch(
        self, stretch: _StretchChecks, count: int, cut: Cut, messages: Columns, traffic: Columns
    ) -> RoundResult | None:
        """Extrapolation from the steps so far; None if earlier messages are on their way."""
        messages_before = self.messages[:, stretch.first : stretch.first + count + 1]
        sent = messages_before[:, -1] - messages_before[:, 0]
        bounds = messages_before - messages_before[:, :1] + (np.cumsum(sent) - sent)[:, None]
        times = StepTimes.of(bounds, messages)
        late = np.flatnonzero(np.asarray(messages["arrival_ps"]) == NEVER)
        rank = np.searchsorted(bounds[:, 0], late, side="right") - 1
        if (late < bounds[rank, -2]).any():
            return None
        computations = self.job.computations(stretch.stretch.begin, stretch.stretch.end, self.eager)
        extrapolation = extrapolate_steps(times, cut.skipped, computations, alone=True)
        if self.random_routing:
            extrapolation = extrapolation.over_more_steps(count)
        result = RoundResult(times, 0, extrapolation)
        if extrapolation.why_not or not len(traffic["link"]):
            return result
        marks = self.program.marks[0][stretch.first : stretch.first + stretch.kept]
        links = result.links(marks, cut.skipped, traffic, self.link_group)
        return replace(result, extrapolation=extrapolation.unless(links))


def simulate_continued(
    workload: Workload,
    job: SteppedJob,
    engine: SteppedEngine,
    *,
    eager: int,
    seed: int,
    one_in: float,
    link_group: NDArray[np.int64],
    random_routing: bool,
) -> SkippedRun | WholeRun | str:
    """Simulate a workload of one job without the steps that can be skipped.

    Args:
        workload: The job and its placement.
        job: The job as steps.
        engine: Simulates a program.
        eager: Largest message in bytes that is sent without a handshake.
        seed: Seed of the samples of skipped steps.
        one_in: Number of packets per sample that arrives.
        link_group: Group of interchangeable links that each link belongs to, -1 for none.
        random_routing: Whether routing makes random choices, so that steps do not repeat exactly.

    Returns:
        The run, or the reason why nothing was skipped if another program has to be simulated.
    """
    n_steps = job.steps.n_steps
    operations = job.operations_per_step()
    limit = REPEATED_OPERATIONS if job.steps.is_repetition else FIRST_OPERATIONS
    most = min(FIRST_KEPT, int(limit / max(operations, 1e-9)))
    kept, checked = max(most, ENOUGH + 3), dict[int, int]()
    while True:
        if kept >= n_steps / 2:
            kept = n_steps
        if kept * operations > LARGEST and checked:
            return "the program is too large to be simulated whole for an attempt"
        pending = _pending_checks(job, kept, checked, random_routing)
        if not pending:
            return "no job repeats enough equal steps"
        measured = [(0, check.first, check.kept) for check in pending]
        program = Round.of(
            workload, [job], _plan_skips(job, kept), measured, repeat=job.steps.is_repetition
        )
        attempt = _Attempt(job, program, eager, link_group, random_routing, pending)
        first = attempt.next_check()
        assert first is not None
        checks = StepChecks(
            attempt.bounds.ravel().astype(np.uint64),
            attempt.bounds.shape[1] - 1,
            first,
            attempt.decide,
            program.stepped.label_offset,
        )
        outcome = engine(program.stepped, checks)
        if not outcome.complete:
            return "interrupted"
        if all(skip.key[0] in attempt.results for skip in program.skips):
            break
        checked = {
            skip.key[0]: kept for skip in program.skips if skip.key[0] not in attempt.results
        }
        kept = n_steps if n_steps * operations <= LARGEST else 4 * kept
    if not attempt.results:
        n_labels = len(program.stepped.program.labels) // program.stepped.copies
        return WholeRun(
            with_skips(
                outcome,
                [],
                n_labels,
                program.start_ps,
                seed=seed,
                one_in=one_in,
                link_group=link_group,
            ),
            attempt.reason,
        )
    final, results = _drop_skipped_steps(program, attempt.results)
    return final.skipped_run(outcome, results, seed, one_in, link_group)


def _pending_checks(
    job: SteppedJob, kept: int, checked: Mapping[int, int], random_routing: bool
) -> list[_StretchChecks]:
    """The checks of a program with the first ``kept`` steps of each stretch.

    ``checked``: number of steps up to which stretches were checked in an earlier program.
    """
    out, first = [], 0
    for number, stretch in enumerate(job.outline.segments):
        steps = min(kept, stretch.n_steps)
        counts, count = [], float(ENOUGH)
        if not random_routing and job.steps_are_equal(stretch):
            # Without the step that ranks are in.
            counts.append(FIRST_STEPS - 1)
        while ceil(count) < steps and ceil(count) <= (1 - WORTHWHILE) * stretch.n_steps:
            counts.append(ceil(count))
            count *= CHECK_GROWTH
        counts = [count for count in counts if count < steps]
        later = [count for count in counts if count > checked.get(number, 0)]
        if later:
            out.append(_StretchChecks(number, stretch, first, steps, later))
        first += steps
    return out


def _plan_skips(job: SteppedJob, kept: int) -> list[PlannedSkip]:
    """Steps left out of a program with the first ``kept`` steps of each stretch."""
    return [
        PlannedSkip(
            (number,), {0: Cut(segment.begin, segment.begin + kept, segment.n_steps - kept)}, 0, 0.0
        )
        for number, segment in enumerate(job.outline.segments)
        if segment.n_steps > kept
    ]


def _drop_skipped_steps(
    program: Round, extrapolations: dict[int, tuple[Cut, RoundResult]]
) -> tuple[Round, list[dict[int, RoundResult]]]:
    """The round without the steps that were left out, and the results of its skips."""
    kept, marks = program.kept[0], program.marks[0]
    simulated = np.ones(len(kept), np.bool_)
    skips, results = [], []
    for segment, (cut, result) in sorted(extrapolations.items()):
        simulated &= (kept < cut.at) | (kept >= cut.at + cut.skipped)
        skips.append(PlannedSkip((segment,), {0: cut}, 0, 0.0))
        results.append({0: result})
    return replace(program, skips=skips, kept=[kept[simulated]], marks=[marks[simulated]]), results
