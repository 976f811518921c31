"""Announced simulations in threads of this process: the engine leaves the interpreter to others."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tailback.evaluate import Change
from tailback.run.run import Run
from tailback.simulation.evaluate import make_simulation
from tailback.simulation.execute import thread_count
from tailback.simulation.memory import estimate_memory
from tailback.simulation.prepare import PreparedScenario

MOST_RUNS, MOST_BYTES = 16, 1_000_000_000
"""Runs that may be made or wait to be taken, and their memory: the threads pause meanwhile."""

MOST_THREADS = 4
"""Threads in total: the tables of a run are made by one at a time, a quarter of the time."""


class _ClosedError(Exception):
    """Nobody takes the run any more."""


@dataclass(eq=False)
class TaskThreads:
    """Tasks that threads do, the last first, while the caller does the first ones itself.

    Attributes:
        threads: Threads that the user asked for; None for as many as there are cores.
    """

    threads: int | None = None
    _simulate: Callable[[Change], Run] | None = None
    _count: int = 0
    _most_runs: int = MOST_RUNS
    _open: OrderedDict[int, Change] = field(default_factory=OrderedDict)
    _running: set[int] = field(default_factory=set)
    _runs: dict[int, Run | None] = field(default_factory=dict)
    _started: list[threading.Thread] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _next: int = 0
    _closed: bool = False

    def open(self, prepared: PreparedScenario) -> None:
        """Set the scenario that all tasks change; where the engine has threads, there are fewer."""
        engine = thread_count(self.threads, prepared.fabric.n_nodes)
        total = _cores() if self.threads is None else self.threads
        self._count = min(total, MOST_THREADS) // engine - 1
        needed = estimate_memory(prepared.fabric, prepared.scenario, prepared.program).total
        self._most_runs = min(MOST_RUNS, MOST_BYTES // max(needed, 1))
        self._simulate = make_simulation(prepared, self._check, threads=1)

    def put(self, change: Change) -> int:
        """Add a task; returns its number."""
        with self._changed:
            number, self._next = self._next, self._next + 1
            self._open[number] = change
            self._changed.notify_all()
        if len(self._started) < self._count:
            thread = threading.Thread(target=self._work, daemon=True)
            self._started.append(thread)
            thread.start()
        return number

    def take(self, number: int) -> Run | None:
        """The run of a task once it is complete; None if the caller has to simulate it."""
        with self._changed:
            if self._open.pop(number, None) is not None:
                return None
            self._changed.wait_for(lambda: number not in self._running)
            run = self._runs.pop(number, None)
            self._changed.notify_all()
            return run

    def close(self) -> None:
        """End the threads; what they have not completed is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._started:
            thread.join()

    def _check(self, *_progress: int) -> None:
        """End a simulation whose run nobody takes."""
        if self._closed:
            raise _ClosedError

    def _work(self) -> None:
        while (task := self._next_task()) is not None:
            number, change = task
            run: Run | None = None
            # Whatever the reason, the caller repeats the simulation and meets the error.
            with suppress(Exception):
                assert self._simulate is not None
                run = self._simulate(change)
            with self._changed:
                self._running.discard(number)
                self._runs[number] = run
                self._changed.notify_all()

    def _next_task(self) -> tuple[int, Change] | None:
        """Wait for a task; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._open and self._has_room()))
            if self._closed:
                return None
            number, change = self._open.popitem()
            self._running.add(number)
            return number, change

    def _has_room(self) -> bool:
        return len(self._runs) + len(self._running) < self._most_runs


def _cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on every system
        return os.cpu_count() or 1
