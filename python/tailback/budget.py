"""A budget of wall-clock time: optional steps begin only while their simulations fit into it.

Library code puts a step that may be left out, or cut short, into :func:`optional`, and asks
:func:`fits` before simulations that may be left out one by one. Without a budget both allow
everything. A simulation that does not fit ends the step around it; the step is recorded with what
was done. Steps outside of :func:`optional` are always completed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal, get_args

from tailback.frozen_model import FrozenModel

Step = Literal[
    "slow cables",
    "other jobs",
    "placements",
    "remedies",
    "other adapters",
    "other routing",
    "slower machine",
    "rates of slow cables",
    "intervals of gains",
    "repetitions",
    "engine settings",
    "next measurement",
    "smallest fault",
]
"""Steps that a budget may leave out: what is not simulated, or not completely. Those come first
without which a cause or a remedy is not found, and last those that tell how sure a result is."""

_STEPS: Final = get_args(Step)

RECENT: Final = 8
"""Number of simulations whose median duration predicts the next: those of one step are alike, and
other steps simulate more or fewer packets. The first one computes the routes as well."""


class LeftOut(FrozenModel):
    """A step that was left out, or cut short, because it did not fit the budget.

    Attributes:
        step: The step.
        done: Simulations of it that were made.
        estimate_s: Estimated time of the first simulations that did not fit, seconds.
    """

    step: Step
    done: int
    estimate_s: float


class BudgetUse(FrozenModel):
    """How a budget was used.

    Attributes:
        asked_s: The budget, seconds.
        taken_s: Time from its start to the end of the diagnosis, without the report, seconds.
        simulations: Number of simulations.
        left_out: Steps that did not fit, the most decisive first, as in :data:`Step`.
    """

    asked_s: float
    taken_s: float
    simulations: int
    left_out: list[LeftOut]


class _DoesNotFitError(Exception):
    """The next simulation does not fit the budget; ends the innermost optional step."""


@dataclass(eq=False)
class Budget:
    """A budget of wall-clock time, which starts when it is made.

    Attributes:
        seconds: The budget.
        clock: The current time, seconds.
        simulations: Number of simulations so far.
        left_out: Steps left out so far, by name.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    simulations: int = 0
    left_out: dict[Step, LeftOut] = field(default_factory=dict)
    _recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    _reserved: int = 0
    _output_s: float = 0.0
    _steps: list[Step] = field(default_factory=list)
    _began: float = field(init=False)
    _last: float = field(init=False)
    _input_began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self._last = self._input_began = self.clock()

    @property
    def taken_s(self) -> float:
        """Time since the start, seconds."""
        return self.clock() - self._began

    @property
    def left_s(self) -> float:
        """Time left, seconds; 0 if the budget is used up."""
        return max(self.seconds - self.taken_s, 0.0)

    @property
    def simulation_s(self) -> float:
        """Estimated time of a simulation with what follows it, seconds; 0 if none was timed."""
        return median(self._recent_s) if self._recent_s else 0.0

    @property
    def use(self) -> BudgetUse:
        """How it was used so far."""
        return BudgetUse(
            asked_s=self.seconds,
            taken_s=self.taken_s,
            simulations=self.simulations,
            left_out=sorted(self.left_out.values(), key=lambda left: _STEPS.index(left.step)),
        )

    def fits(self, simulations: int = 1) -> bool:
        """Whether so many simulations fit beside what is reserved for later steps."""
        needed_s = (simulations + self._reserved) * self.simulation_s + self._output_s
        return needed_s <= self.left_s

    def affordable(self, most: int, each: int, besides: int) -> int:
        """Number of parts of a step, up to ``most``, that fit.

        Args:
            most: Number of parts.
            each: Simulations of a part.
            besides: Simulations of other steps that come later.
        """
        return next((n for n in range(most, 0, -1) if self.fits(besides + n * each)), 0)

    def leave_out(self, step: Step, done: int, simulations: int = 1) -> None:
        """Record that a step was left out after ``done`` simulations, as others did not fit."""
        estimate_s = simulations * self.simulation_s
        before = self.left_out.get(step)
        if before is not None:
            done, estimate_s = done + before.done, before.estimate_s
        self.left_out[step] = LeftOut(step=step, done=done, estimate_s=estimate_s)

    @contextmanager
    def simulation(self) -> Iterator[None]:
        """Time a simulation, unless it is part of a step that it does not fit into."""
        if self._steps and not self.fits():
            raise _DoesNotFitError
        began = self.clock()
        yield
        ended = self.clock()
        # Within a step, what follows a simulation (its comparison) takes time as well.
        self._recent_s.append(ended - (self._last if self._steps else began))
        self._last = ended
        self.simulations += 1

    @contextmanager
    def step(self, name: Step) -> Iterator[None]:
        """A step that ends at the first simulation that does not fit."""
        before = self.simulations
        self._steps.append(name)
        self._last = self.clock()
        try:
            yield
        except _DoesNotFitError:
            self.leave_out(name, self.simulations - before)
        finally:
            self._steps.pop()

    def begin_input(self) -> None:
        """Begin the part that reads: the program is loaded."""
        self._input_began = self.clock()

    def end_input(self) -> None:
        """Take the time of reading as an estimate of that of summing up and writing the results.

        Both grow with the number of ranks, messages and links.
        """
        self._output_s = self.clock() - self._input_began

    @contextmanager
    def reserve(self, simulations: int) -> Iterator[None]:
        """Keep the time of so many simulations for what comes later."""
        before, self._reserved = self._reserved, simulations
        try:
            yield
        finally:
            self._reserved = before


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def limited_to(budget: Budget | None) -> Iterator[None]:
    """Keep to a budget during a ``with`` block; None: to none."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def current() -> Budget | None:
    """The budget to keep to; None if there is none."""
    return _budget.get()


def end_input() -> None:
    """End the part that reads; :meth:`Budget.end_input`."""
    budget = _budget.get()
    if budget is not None:
        budget.end_input()


def fits(simulations: int = 1) -> bool:
    """Whether so many simulations fit; True without a budget."""
    budget = _budget.get()
    return budget is None or budget.fits(simulations)


def affordable(most: int, each: int, besides: int) -> int:
    """Number of parts of a step that fit; :meth:`Budget.affordable`; all without a budget."""
    budget = _budget.get()
    return most if budget is None else budget.affordable(most, each, besides)


def leave_out(step: Step, done: int = 0, simulations: int = 1) -> None:
    """Record that a step was left out; :meth:`Budget.leave_out`."""
    budget = _budget.get()
    if budget is not None:
        budget.leave_out(step, done, simulations)


def steps_left_out() -> frozenset[Step]:
    """Steps that were left out, or cut short, so far."""
    budget = _budget.get()
    return frozenset() if budget is None else frozenset(budget.left_out)


def is_left_out(step: Step) -> bool:
    """Whether a step was left out, or cut short."""
    return step in steps_left_out()


@contextmanager
def optional(step: Step) -> Iterator[None]:
    """A step that ends at the first simulation that does not fit; :meth:`Budget.step`."""
    budget = _budget.get()
    if budget is None:
        yield
        return
    with budget.step(step):
        yield


@contextmanager
def simulation() -> Iterator[None]:
    """Time a ``with`` block, or a function, as a simulation; :meth:`Budget.simulation`."""
    budget = _budget.get()
    if budget is None:
        yield
        return
    with budget.simulation():
        yield


@contextmanager
def reserved(simulations: int) -> Iterator[None]:
    """Keep the time of so many simulations for later steps; :meth:`Budget.reserve`."""
    budget = _budget.get()
    if budget is None:
        yield
        return
    with budget.reserve(simulations):
        yield
