"""Where a command's own time and memory go, stage by stage (``--profile``).

Library code marks its stages with :func:`stage`, which costs next to nothing unless they are
recorded. Time in a nested stage counts for the inner stage only, so the times of a table add up.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

START = "start and imports"
"""Before the recording began: starting the interpreter and loading modules."""
REST = "everything else"
"""Everything that no other stage covers."""
WORKERS = "worker processes"
"""Processes that were started on this machine and have ended.

Those of a cluster are not included.
"""


@dataclass
class StageCost:
    """Cost of one stage.

    Attributes:
        calls: How often it was entered.
        cpu_s: CPU time of all threads, user and system, seconds.
        wall_s: Wall-clock time, seconds.
        peak_mb: Largest resident memory of the process up to the end of the stage, MB (10⁶ bytes).
    """

    calls: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_mb: float = 0.0


@dataclass
class StageTable:
    """Stages in the order in which they were first entered. ``_open[-1]`` is running.

    Attributes:
        costs: Cost of each stage by its name.
    """

    costs: dict[str, StageCost] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: tuple[float, float] = (0.0, 0.0)
    _others_s: float = field(default_factory=lambda: _others()[0])

    def enter(self, name: str) -> None:
        """Charge the time so far to the enclosing stage, and begin another."""
        self._charge()
        self._open.append(name)
        self.costs.setdefault(name, StageCost()).calls += 1

    def leave(self) -> None:
        """End the stage that was entered last."""
        self._charge()
        self._open.pop()

    def rows(self) -> list[dict[str, float | str]]:
        """The table so far, for JSON: one object per stage."""
        return [{"stage": name, **vars(cost)} for name, cost in self._with_workers().items()]

    def lines(self) -> list[str]:
        """The table so far as text, with the sums in the last line."""
        by_name = self._with_workers()
        costs = list(by_name.values())
        total = StageCost(
            sum(c.calls for c in costs),
            sum(c.cpu_s for c in costs),
            sum(c.wall_s for c in costs),
            max((c.peak_mb for c in costs), default=0.0),
        )
        out = [f"  {'stage':<26} {'calls':>6} {'CPU s':>8} {'wall s':>8} {'peak MB':>8}"]
        for name, c in [*by_name.items(), ("total", total)]:
            out.append(f"  {name:<26} {c.calls:>6} {c.cpu_s:8.2f} {c.wall_s:8.2f} {c.peak_mb:8.0f}")
        return out

    def _with_workers(self) -> dict[str, StageCost]:
        """The table so far, with what other processes took at the same time."""
        self._charge()
        cpu_s, peak_mb = _others()
        cpu_s -= self._others_s
        # Asking the system for something may start a process of a few milliseconds.
        if cpu_s < 0.05:
            return self.costs
        return self.costs | {WORKERS: StageCost(0, cpu_s, 0.0, peak_mb)}

    def _charge(self) -> None:
        now = (time.process_time(), time.perf_counter())
        if self._open:
            cost = self.costs[self._open[-1]]
            cost.cpu_s += now[0] - self._since[0]
            cost.wall_s += now[1] - self._since[1]
            cost.peak_mb = _peak_mb()
        self._since = now


_table: ContextVar[StageTable | None] = ContextVar("stages", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Charge a ``with`` block or, as a decorator, a function to a stage, if stages are recorded."""
    table = _table.get()
    if table is None:
        yield
        return
    table.enter(name)
    try:
        yield
    finally:
        table.leave()


@contextmanager
def record_stages() -> Iterator[StageTable]:
    """Record the stages of a ``with`` block. The first row is the time of the process before it."""
    table = StageTable()
    # Not every system tells when the process started: its CPU time serves as wall-clock time.
    before = time.process_time()
    table.costs[START] = StageCost(1, before, before, _peak_mb())
    table.enter(REST)
    token = _table.set(table)
    try:
        yield table
    finally:
        _table.reset(token)
        table.leave()


def recorded_stages() -> StageTable | None:
    """The table being recorded; None if there is none."""
    return _table.get()


def _others() -> tuple[float, float]:
    """CPU time (s) of processes that this one started and that have ended, and their peak (MB)."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, _mb(used.ru_maxrss)


def _peak_mb() -> float:
    return _mb(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _mb(peak: int) -> float:
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
