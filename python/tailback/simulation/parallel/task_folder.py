"""Simulations of a diagnosis as files in a folder, for workers on any machine that sees it.

The diagnosis writes each change that it will need as a task; workers claim tasks by renaming them,
and write the runs (:mod:`tailback.simulation.parallel.spread`). A worker that no longer renews its
claim is taken for dead, and the diagnosis does its task. A simulation is a function of scenario,
change and seed, so it does not matter who does it, or whether two do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailback.errors import RunError
from tailback.evaluate import Change
from tailback.io.folders import PrivateFolder
from tailback.run.run import Run
from tailback.simulation.parallel.task_data import TaskDataError, decode, encode
from tailback.simulation.prepare import PreparedScenario
from tailback.stages import stage

SCENARIO, CLOSED = "scenario.npz", "closed"

POLL_S = 0.02
"""Time between two looks at the folder: short against a simulation."""

RENEWAL_S = 2.0
"""Time after which a worker renews its claim."""

STALE_S = 15.0
"""Time without renewal after which a claim is void: several renewals, so that a busy machine or a
slow file system does not lose it."""

PATIENCE_S = 1.0
"""Time that a task which is needed waits for a worker before the diagnosis does it itself."""


@dataclass(frozen=True)
class TaskFiles:
    """Names of the files of one task.

    Attributes:
        open: The change, until a worker claims it.
        claimed: The change, while a worker simulates it.
        done: The result.
        withdrawn: The change, once the diagnosis simulates it itself.
    """

    open: str
    claimed: str
    done: str
    withdrawn: str

    @staticmethod
    def of(number: int) -> TaskFiles:
        """The files of a task by its number."""
        return TaskFiles(
            *(f"{number:06}.{state}" for state in ("open", "claimed", "done", "withdrawn"))
        )


@dataclass(frozen=True)
class TaskResult:
    """What a worker made of a task.

    Attributes:
        run: The run; None if the worker could not simulate it.
        cost_s: Processor time that it took.
    """

    run: Run | None
    cost_s: float


@dataclass(eq=False)
class TaskFolder:
    """The tasks of a diagnosis, on its side.

    Attributes:
        folder: The folder.
        costs: Seconds that each finished task took its worker, by number.
    """

    folder: PrivateFolder
    costs: dict[int, float] = field(default_factory=dict)
    _count: int = 0
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    @staticmethod
    def create(path: str | Path) -> TaskFolder:
        """Create the folder; raises RunError if it exists or cannot be created."""
        return TaskFolder(PrivateFolder.create(Path(path).absolute()))

    def open(self, prepared: PreparedScenario) -> None:
        """Write the scenario that all tasks change."""
        # How to compile the program anew is a function of the process that read it.
        jobs = [replace(job, program=replace(job.program, recompile=None)) for job in prepared.jobs]
        program = replace(prepared.program, recompile=None)
        self.folder.write(SCENARIO, encode(replace(prepared, jobs=jobs, program=program)))

    def put(self, change: Change) -> int:
        """Add a task; returns its number."""
        number = self._count
        self._count += 1
        program = change.program
        if program is not None:
            change = replace(change, program=replace(program, recompile=None))
        self.folder.write(TaskFiles.of(number).open, encode(change))
        return number

    def take(self, number: int) -> Run | None:
        """Wait for the run of a task; None if no worker can do it, so that the caller has to."""
        files = TaskFiles.of(number)
        began = time.monotonic()
        with stage("waiting for workers"):
            while files.done not in self.folder.names():
                if time.monotonic() - began > PATIENCE_S and self._withdraw(number, files):
                    return None
                time.sleep(POLL_S)
        try:
            result = decode(self.folder.read(files.done), TaskResult)
        except TaskDataError:
            return None
        finally:
            self.folder.remove(files.done)
        self.costs[number] = result.cost_s
        return result.run

    def _withdraw(self, number: int, files: TaskFiles) -> bool:
        """Withdraw a task that no worker has claimed, or whose worker is dead."""
        if self._is_alive(number, files.claimed):
            return False
        for name in (files.open, files.claimed):
            with suppress(FileNotFoundError):
                self.folder.rename(name, files.withdrawn)
                return True
        return False

    def _is_alive(self, number: int, claimed: str) -> bool:
        """Whether a claim was renewed within :data:`STALE_S` by the clock of this process."""
        try:
            renewed_ns = self.folder.modified_ns(claimed)
        except FileNotFoundError:
            return False
        last_ns, since = self._seen.get(number, (-1, 0.0))
        if renewed_ns != last_ns:
            self._seen[number] = (renewed_ns, time.monotonic())
            return True
        return time.monotonic() - since <= STALE_S

    def close(self) -> None:
        """Tell the workers that nothing will follow."""
        self.folder.write(CLOSED, b"")

    def delete(self) -> None:
        """Remove the folder."""
        self.folder.delete()


def claim(folder: PrivateFolder) -> TaskFiles | None:
    """Claim the open task with the lowest number; None if there is none."""
    for name in folder.names():
        number, _, state = name.partition(".")
        if state == "open":
            files = TaskFiles.of(int(number))
            with suppress(FileNotFoundError):
                folder.rename(name, files.claimed)
                return files
    return None


def scenario_of(folder: PrivateFolder) -> PreparedScenario:
    """The scenario that all tasks change.

    Raises:
        FileNotFoundError: It is not written yet.
        RunError: This version cannot read it.
    """
    try:
        return decode(folder.read(SCENARIO), PreparedScenario)
    except TaskDataError as error:
        raise RunError(
            str(error),
            file=folder.path / SCENARIO,
            remedy="use the same version of Tailback for the diagnosis and its workers",
        ) from None


def work(folder: PrivateFolder, simulate: Callable[[Change], Run], idle_s: float) -> None:
    """Do tasks of a folder until it is closed, or empty for ``idle_s`` seconds."""
    last = time.monotonic()
    while folder.exists() and CLOSED not in folder.names():
        files = claim(folder)
        if files is None:
            if time.monotonic() - last > idle_s:
                return
            time.sleep(POLL_S)
            continue
        with _Renewal(folder, files.claimed):
            run: Run | None = None
            began = time.process_time()
            # Whatever the reason, the diagnosis repeats the simulation and reports the error.
            with suppress(Exception):
                run = simulate(decode(folder.read(files.claimed), Change))
            with suppress(FileNotFoundError):
                folder.write(files.done, encode(TaskResult(run, time.process_time() - began)))
        with suppress(FileNotFoundError):
            folder.remove(files.claimed)
        last = time.monotonic()


class _Renewal:
    """Renews a claim while its task is being done."""

    def __init__(self, folder: PrivateFolder, claimed: str) -> None:
        self._folder = folder
        self._claimed = claimed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            with suppress(FileNotFoundError):
                self._folder.renew(self._claimed)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()
