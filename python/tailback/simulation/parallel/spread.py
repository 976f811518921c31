"""Workers that simulate for a diagnosis: local processes, a Dask cluster, or a batch system.

All take their tasks from one folder (:mod:`tailback.simulation.parallel.task_folder`).
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from tailback.io.folders import PrivateFolder
from tailback.simulation.evaluate import make_simulation
from tailback.simulation.parallel.task_folder import POLL_S, TaskFolder, scenario_of, work
from tailback.simulation.parallel.task_threads import TaskThreads
from tailback.simulation.prepare import PreparedScenario
from tailback.workers import LocalProcesses, executor, task_script

IDLE_S = 600.0
"""Time without tasks after which a worker ends: longer than any stage of a diagnosis without."""

ABSENT_S = 10.0
"""Time without a folder after which a worker ends: longer than a shared file system takes to show
it. A worker whose turn in the batch system comes after the diagnosis must not hold its core."""

Tasks: TypeAlias = str | Path | TaskFolder
"""Folder of tasks: its path, where it is to be created, or the folder that this process created."""

SCRIPT = "workers.sbatch"
"""Batch script of an array of workers, in the folder of the tasks."""


def serve(folder: Path, _number: int = 0, *, idle_s: float = IDLE_S) -> None:
    """Work for the diagnosis of a folder until it is complete.

    Raises:
        RunError: The folder belongs to another user or is open to others, or this version cannot
            read the scenario in it.
    """
    opened = _wait_for_folder(folder, idle_s)
    if opened is None:
        return
    with closing(opened[0]):
        work(opened[0], make_simulation(opened[1], threads=1), idle_s)


def _wait_for_folder(folder: Path, idle_s: float) -> tuple[PrivateFolder, PreparedScenario] | None:
    """The folder with its scenario, once it is written; None if it does not appear."""
    began = seen = time.monotonic()
    while True:
        with suppress(FileNotFoundError):
            opened = PrivateFolder.open(folder)
            seen = time.monotonic()
            try:
                return opened, scenario_of(opened)
            except BaseException:
                opened.close()
                raise
        now = time.monotonic()
        if now - began > idle_s or now - seen > ABSENT_S:
            return None
        time.sleep(POLL_S)


@contextmanager
def spread(
    workers: int | None, dask: Any, tasks: Tasks | None, threads: int | None = None
) -> Iterator[TaskFolder | TaskThreads]:
    """Start workers, and end them in the end: threads of this process if none are asked for.

    Args:
        workers: Number of processes on this machine.
        dask: A ``distributed.Client`` or the address of a scheduler.
        tasks: Folder of the tasks, which does not exist yet, or one that this process created. All
            workers see it under the same path, and workers that someone else starts may serve it.
            It is removed in the end. Default: a temporary folder; for Dask in the current folder.
        threads: Threads that the user asked for; None for as many as there are cores.

    Raises:
        RunError: The folder exists or cannot be written, or there is no such cluster.
    """
    if workers is None and dask is None and tasks is None:
        with closing(TaskThreads(threads)) as here:
            yield here
        return
    with ExitStack() as stack:
        if tasks is None:
            place = Path(tempfile.gettempdir() if dask is None else ".")
            tasks = place / f"tailback-tasks-{secrets.token_hex(8)}"
        folder = tasks if isinstance(tasks, TaskFolder) else TaskFolder.create(tasks)
        stack.callback(folder.delete)
        path = folder.folder.path
        if dask is not None:
            cluster = stack.enter_context(executor(None, dask))
            stack.enter_context(cluster.occupy(serve, path))
        if workers:
            stack.enter_context(LocalProcesses(workers).occupy(serve, path))
        stack.callback(folder.close)
        yield folder


def write_script(tasks: TaskFolder, name: str, workers: int) -> Path:
    """Write a batch script for ``sbatch`` that starts an array of workers.

    Args:
        tasks: Their tasks.
        name: Name of the job.
        workers: Number of workers.
    """
    path = tasks.folder.path
    tasks.folder.write(SCRIPT, task_script(name, workers, serve, path).encode())
    return path / SCRIPT
