"""Workers that simulate for a diagnosis: local processes, a Dask cluster, or a batch system.

``python -m tailback.api.spread FOLDER`` is such a worker. All take their tasks from one folder
(:mod:`tailback.simulation.task_folder`).
"""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tailback.api.sweep.workers import dask_client
from tailback.errors import RunError
from tailback.simulation.evaluate import make_simulation
from tailback.simulation.task_folder import POLL_S, SCENARIO, TaskFolder, work

IDLE_S = 600.0
"""Time without tasks after which a worker ends: longer than any stage of a diagnosis without."""

ABSENT_S = 10.0
"""Time without a folder after which a worker ends: longer than a shared file system takes to show
it. A worker whose turn in the batch system comes after the diagnosis must not hold its core."""

SCRIPT = "workers.sbatch"
"""Batch script of an array of workers, in the folder of the tasks."""


def serve(folder: Path, idle_s: float = IDLE_S) -> None:
    """Work for the diagnosis of a folder until it is complete: what a Dask worker calls."""
    began = seen = time.monotonic()
    while not (folder / SCENARIO).exists():
        now = time.monotonic()
        if folder.exists():
            seen = now
        if now - began > idle_s or now - seen > ABSENT_S:
            return
        time.sleep(POLL_S)
    prepared = pickle.loads((folder / SCENARIO).read_bytes())
    work(folder, make_simulation(prepared, threads=1), idle_s)


@contextmanager
def spread(
    workers: int | None, dask: Any, folder: str | Path | None
) -> Iterator[TaskFolder | None]:
    """Start workers, and end them in the end; yields None if none are asked for.

    Args:
        workers: Number of processes on this machine.
        dask: A ``distributed.Client`` or the address of a scheduler.
        folder: Folder of the tasks, which all workers see under the same path and workers that
            someone else starts may serve. It is removed in the end. Default: a temporary folder;
            for Dask in the current folder.

    Raises:
        RunError: The folder exists or cannot be written, or there is no such cluster.
    """
    if workers is None and dask is None and folder is None:
        yield None
        return
    with ExitStack() as stack:
        path = _made(folder, shared=dask is not None)
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        tasks = TaskFolder(path)
        if dask is not None:
            client = stack.enter_context(dask_client(dask))
            futures = [
                client.submit(serve, path, workers=[address], pure=False, retries=0)
                for address, cores in client.ncores().items()
                for _ in range(cores)
            ]
            stack.callback(client.cancel, futures)
        # A fresh interpreter, so that a script that calls diagnose() is not imported again.
        command = [sys.executable, "-m", "tailback.api.spread", str(path), str(os.getpid())]
        for _ in range(workers or 0):
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        stack.callback(tasks.close)
        yield tasks


def _made(folder: str | Path | None, *, shared: bool) -> Path:
    """The folder of the tasks, which only its owner can read."""
    try:
        if folder is None:
            made = tempfile.mkdtemp(prefix="tailback-tasks-", dir="." if shared else None)
            return Path(made).absolute()
        path = Path(folder).absolute()
        if not (path / SCRIPT).exists():
            path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise RunError("exists already", file=Path(str(folder)),
                       remedy="remove it, if no diagnosis uses it") from None  # fmt: skip
    except OSError as error:
        raise RunError(f"cannot write there: {error.strerror}", file=folder and Path(folder),
                       remedy="choose a folder you may write to") from None  # fmt: skip
    return path


def write_script(folder: Path, name: str, tasks: int) -> Path:
    """Write a batch script for ``sbatch`` that starts an array of ``tasks`` workers.

    Raises:
        RunError: The folder of the tasks exists or cannot be written.
    """
    folder = _made(folder, shared=True)
    command = shlex.join([sys.executable, "-m", "tailback.api.spread", str(folder)])
    script = folder / SCRIPT
    script.write_text("\n".join([
        "#!/bin/bash",
        f"#SBATCH --job-name={name[:60]}",
        f"#SBATCH --array=0-{tasks - 1}",
        "#SBATCH --ntasks=1",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --output=/dev/null",
        "",
        f"exec {command}",
        "",
    ]), encoding="utf-8")  # fmt: skip
    return script


def _leave_with(parent: int) -> None:
    """End this process when its parent has ended, so that a killed diagnosis leaves no workers."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _leave_with(int(sys.argv[2]))
    serve(Path(sys.argv[1]))
