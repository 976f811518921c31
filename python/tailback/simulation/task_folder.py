"""Simulations of a diagnosis as files in a folder, for workers on any machine that sees it.

The diagnosis writes each change that it will need as a task; workers claim tasks by renaming them,
and write the runs (:mod:`tailback.api.spread`). A worker that no longer renews its claim is taken
for dead, and the diagnosis does its task. A simulation is a function of scenario, change and seed,
so it does not matter who does it, or whether two do.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailback.evaluate import Change
from tailback.run import Run
from tailback.simulation.prepare import PreparedScenario
from tailback.stages import stage

SCENARIO, CLOSED = "scenario.pickle", "closed"

POLL_S = 0.02
"""Time between two looks at the folder: short against a simulation."""

RENEWAL_S = 2.0
"""Time after which a worker renews its claim."""

STALE_S = 15.0
"""Time without renewal after which a claim is void: several renewals, so that a busy machine or a
slow file system does not lose it."""

PATIENCE_S = 1.0
"""Time that a task which is needed waits for a worker before the diagnosis does it itself."""


def write_whole(path: Path, content: object) -> None:
    """Pickle an object into a file that appears completely or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    with part.open("wb") as file:
        pickle.dump(content, file, protocol=pickle.HIGHEST_PROTOCOL)
    part.replace(path)


@dataclass(frozen=True)
class TaskPaths:
    """The files of one task.

    Attributes:
        open: The change, until a worker claims it.
        claimed: The change, while a worker simulates it.
        done: The run; None if the worker could not simulate it.
    """

    open: Path
    claimed: Path
    done: Path

    @staticmethod
    def of(folder: Path, number: int) -> TaskPaths:
        """The files of a task by its number."""
        name = f"{number:06}"
        return TaskPaths(
            folder / f"{name}.open", folder / f"{name}.claimed", folder / f"{name}.done"
        )


@dataclass(eq=False)
class TaskFolder:
    """The tasks of a diagnosis, on its side.

    Attributes:
        folder: The folder; only its owner can read it, as pickled objects are trusted.
        costs: Seconds that each finished task took its worker, by number.
    """

    folder: Path
    costs: dict[int, float] = field(default_factory=dict)
    _count: int = 0
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    def open(self, prepared: PreparedScenario) -> None:
        """Create the folder with the scenario that all tasks change."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # How to compile the program anew is a function of the process that read it.
        jobs = [replace(job, program=replace(job.program, recompile=None)) for job in prepared.jobs]
        program = replace(prepared.program, recompile=None)
        write_whole(self.folder / SCENARIO, replace(prepared, jobs=jobs, program=program))

    def put(self, change: Change) -> int:
        """Add a task; returns its number."""
        number = self._count
        self._count += 1
        program = change.program
        if program is not None:
            change = replace(change, program=replace(program, recompile=None))
        write_whole(TaskPaths.of(self.folder, number).open, change)
        return number

    def take(self, number: int) -> Run | None:
        """Wait for the run of a task; None if no worker can do it, so that the caller has to."""
        paths = TaskPaths.of(self.folder, number)
        began = time.monotonic()
        with stage("waiting for workers"):
            while not paths.done.exists():
                if time.monotonic() - began > PATIENCE_S and self._withdraw(number, paths):
                    return None
                time.sleep(POLL_S)
        run, self.costs[number] = pickle.loads(paths.done.read_bytes())
        paths.done.unlink()
        return run if isinstance(run, Run) else None

    def _withdraw(self, number: int, paths: TaskPaths) -> bool:
        """Withdraw a task that no worker has claimed, or whose worker is dead."""
        if paths.claimed.exists() and not self._is_stale(number, paths.claimed):
            return False
        for path in (paths.open, paths.claimed):
            with suppress(FileNotFoundError):
                path.rename(path.with_suffix(".withdrawn"))
                return True
        return False

    def _is_stale(self, number: int, claimed: Path) -> bool:
        """Whether a claim has not been renewed for :data:`STALE_S` by the clock of this process."""
        try:
            renewed = claimed.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        before, since = self._seen.get(number, (-1, 0.0))
        if renewed != before:
            self._seen[number] = (renewed, time.monotonic())
            return False
        return time.monotonic() - since > STALE_S

    def close(self) -> None:
        """Tell the workers that nothing will follow."""
        (self.folder / CLOSED).touch()


def claim(folder: Path) -> TaskPaths | None:
    """Claim the open task with the lowest number; None if there is none."""
    for path in sorted(folder.glob("*.open")):
        paths = TaskPaths.of(folder, int(path.stem))
        with suppress(FileNotFoundError):
            path.rename(paths.claimed)
            return paths
    return None


def work(folder: Path, simulate: Callable[[Change], Run], idle_s: float) -> None:
    """Do tasks of a folder until it is closed, or empty for ``idle_s`` seconds."""
    last = time.monotonic()
    while not (folder / CLOSED).exists() and folder.exists():
        paths = claim(folder)
        if paths is None:
            if time.monotonic() - last > idle_s:
                return
            time.sleep(POLL_S)
            continue
        with _Renewal(paths.claimed):
            run: Run | None = None
            began = time.process_time()
            # Whatever the reason, the diagnosis repeats the simulation and reports the error.
            with suppress(Exception):
                run = simulate(pickle.loads(paths.claimed.read_bytes()))
            with suppress(FileNotFoundError):
                write_whole(paths.done, (run, time.process_time() - began))
        with suppress(FileNotFoundError):
            paths.claimed.unlink()
        last = time.monotonic()


class _Renewal:
    """Renews a claim while its task is being done."""

    def __init__(self, claimed: Path) -> None:
        self._claimed = claimed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            with suppress(FileNotFoundError):
                os.utime(self._claimed)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()
