"""Tasks on other processors: processes of this machine, a Dask cluster, or a batch system.

A task is the call of a function of a module with a folder that every worker sees and a number. So
it needs no other data. Callers iterate over the tasks that have ended, whichever executor runs
them. Leaving the ``with`` block cancels the others.

``python -m tailback.workers MODULE:FUNCTION FOLDER`` is a worker process. It reads the number of a
task from each line of standard input and answers with it on a line of standard output.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

from tailback.errors import (
    RunError,
    TailbackError,
    for_worker,
    worker_environment,
    worker_variable,
)

PYTHON = (sys.executable, "-P")
"""Command of a worker's interpreter. Without -P, Python would import modules from the current
folder, in which other users may have put some."""

KILLED = "its worker process was killed (possibly out of memory)"

Task: TypeAlias = Callable[[Path, int], object]
Ended: TypeAlias = tuple[int, str | None]
"""Number of a task that has ended, and why it failed (None if it did not)."""


class Executor(Protocol):
    """Runs tasks on workers."""

    def submit(
        self, task: Task, folder: Path, numbers: Iterable[int]
    ) -> AbstractContextManager[Iterator[Ended]]:
        """Run the task with each number. A killed worker costs only the task it was working on.

        Raises:
            RunError: A worker failed. It has written the reason to standard error.
        """

    def occupy(self, task: Task, folder: Path) -> AbstractContextManager[object]:
        """Start the task once on every processor."""


@contextmanager
def executor(workers: int | None, dask: Any) -> Iterator[Executor]:
    """The executor that a user asks for.

    Args:
        workers: Number of processes on this machine; default: one per core.
        dask: A ``distributed.Client`` or the address of a scheduler, instead of processes.

    Raises:
        RunError: Dask is not installed, or no scheduler answers at the address.
    """
    if dask is None:
        yield LocalProcesses(workers or len(os.sched_getaffinity(0)))
        return
    with dask_client(dask) as client:
        yield DaskCluster(client)


# --- local processes --------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalProcesses:
    """Processes of this machine.

    Attributes:
        workers: Their number.
    """

    workers: int

    @contextmanager
    def submit(self, task: Task, folder: Path, numbers: Iterable[int]) -> Iterator[Iterator[Ended]]:
        """Run tasks; as :meth:`Executor.submit`."""
        queue = iter(numbers)
        with selectors.DefaultSelector() as outputs:
            try:
                for _, number in zip(range(self.workers), queue, strict=False):
                    _Process(task, folder).start(number, outputs)
                yield _ended(task, folder, queue, outputs)
            finally:
                for key in list(outputs.get_map().values()):
                    key.data.process.kill()
                    key.data.close()

    def occupy(self, task: Task, folder: Path) -> AbstractContextManager[object]:
        """Start the task in every process."""
        return self.submit(task, folder, range(self.workers))


def _ended(
    task: Task, folder: Path, queue: Iterator[int], outputs: selectors.BaseSelector
) -> Iterator[Ended]:
    """Tasks in the order in which they end. Each makes room for the next."""
    while outputs.get_map():
        for key, _ in outputs.select():
            process: _Process = key.data
            outputs.unregister(key.fileobj)
            ended, number = process.number, next(queue, None)
            if _pipe(process.process.stdout).readline():
                if number is None:
                    process.close()
                else:
                    process.start(number, outputs)
                yield ended, None
                continue
            code = process.close()
            if code >= 0:
                raise RunError(
                    f"the worker process of task {ended} exited with code {code}",
                    file=folder,
                    remedy="see the message above, and report it as a bug",
                )
            if number is not None:
                _Process(task, folder).start(number, outputs)
            yield ended, KILLED


class _Process:
    """A process that runs tasks, one at a time."""

    def __init__(self, task: Task, folder: Path) -> None:
        # A fresh interpreter, so that a script that calls Tailback is not imported again.
        self.process = subprocess.Popen(
            [*worker_command(task), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=worker_environment(),
        )
        self.number = -1

    def start(self, number: int, outputs: selectors.BaseSelector) -> None:
        """Assign a task. A dead process is noticed when its output ends."""
        self.number = number
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).write(b"%d\n" % number)
        outputs.register(_pipe(self.process.stdout), selectors.EVENT_READ, self)

    def close(self) -> int:
        """End the process; returns its exit code, negative for a signal."""
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                _pipe(pipe).close()
        return self.process.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # Popen was asked for it
    return pipe


def worker_command(task: Task) -> list[str]:
    """Command of a worker process, to be followed by its folder."""
    return [*PYTHON, "-m", "tailback.workers", f"{task.__module__}:{task.__qualname__}"]


def _work(task: str, folder: str, *numbers: str) -> None:
    """Run tasks with these numbers, or with those that arrive on standard input."""
    module, _, name = task.partition(":")
    function: Task = getattr(import_module(module), name)
    if not numbers:
        _leave_with(os.getppid())
    for number in map(int, numbers or sys.stdin):
        function(Path(folder), number)
        print(number, flush=True)


def _leave_with(parent: int) -> None:
    """End this process when its parent has ended, even in the middle of a task."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


# --- Dask -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DaskCluster:
    """The workers of a Dask cluster.

    Attributes:
        client: A ``distributed.Client`` (:func:`dask_client`).
    """

    client: Any

    @contextmanager
    def submit(self, task: Task, folder: Path, numbers: Iterable[int]) -> Iterator[Iterator[Ended]]:
        """Run tasks; as :meth:`Executor.submit`."""
        futures = {
            self.client.submit(for_worker(task), folder, number, pure=False, retries=0): number
            for number in numbers
        }
        try:
            yield self._ended(futures)
        finally:
            self.client.cancel(list(futures))

    def _ended(self, futures: dict[Any, int]) -> Iterator[Ended]:
        distributed: Any = import_module("distributed")
        for future in distributed.as_completed(futures):
            reason = None
            if future.status != "finished":
                failure = future.exception()
                if not isinstance(failure, distributed.KilledWorker):
                    raise failure
                reason = KILLED
            yield futures[future], reason

    @contextmanager
    def occupy(self, task: Task, folder: Path) -> Iterator[None]:
        """Start the task on every core of every worker."""
        futures = [
            self.client.submit(
                for_worker(task), folder, core, workers=[address], pure=False, retries=0
            )
            for address, cores in self.client.ncores().items()
            for core in range(cores)
        ]
        try:
            yield
        finally:
            self.client.cancel(futures)


@contextmanager
def dask_client(client: Any, timeout_s: float = 20.0) -> Iterator[Any]:
    """A client of a Dask cluster. A client made from an address is closed at the end.

    Args:
        client: A ``distributed.Client``, or the address of a scheduler, like
            ``tcp://10.0.0.1:8786``.
        timeout_s: Time in seconds after which a scheduler is taken to be absent.

    Raises:
        RunError: Dask is not installed, or no scheduler answers at the address.
    """
    try:
        import_module("distributed")
    except ImportError:
        raise RunError("Dask is not installed", remedy="pip install 'tailback[cluster]'") from None
    if not isinstance(client, str):
        yield client
        return
    try:
        connected = _connect(client, timeout_s)
    except (OSError, ValueError) as error:
        raise RunError(
            f"no Dask scheduler answers at {client!r}: {error}",
            remedy="start one with 'dask scheduler' and give the address that it prints",
        ) from None
    with connected:
        yield connected


def _connect(address: str, timeout_s: float) -> Any:
    """A ``distributed.Client`` of a scheduler, to be closed by the caller.

    Raises:
        OSError: Nobody answers there.
        ValueError: It is no address, or the connection has to be encrypted and Dask's configuration
            names no certificates.
    """
    # Not every version of Dask has types: what comes from it is Any.
    distributed: Any = import_module("distributed")
    # A client of anything other than a scheduler waits for 40 s before it gives up.
    url = address if "://" in address else f"tcp://{address}"
    if not url.startswith("inproc://"):
        import_module("distributed.comm").get_address_host_port(url, strict=False)
    try:
        return distributed.Client(address, timeout=timeout_s, set_as_default=False)
    except TypeError:
        # Dask raises these for tls:// without certificates.
        raise ValueError(
            "no certificates for an encrypted connection: name them in Dask's configuration, "
            "distributed.comm.tls"
        ) from None


# --- batch system -----------------------------------------------------------------------------


def batch_script(name: str, tasks: int, command: str) -> str:
    """A script for ``sbatch`` that runs a shell command in each of an array of tasks.

    Args:
        name: Name of the job.
        tasks: Number of tasks.
        command: The command, quoted for a shell.
    """
    job = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:60]
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={job}",
            f"#SBATCH --array=0-{tasks - 1}",
            "#SBATCH --ntasks=1",
            "#SBATCH --cpus-per-task=1",
            "#SBATCH --output=/dev/null",
            "",
            *(f"export {name}={value}" for name, value in worker_variable().items()),
            f"exec {command}",
            "",
        ]
    )


def task_script(name: str, tasks: int, task: Task, folder: Path) -> str:
    """A script for ``sbatch`` that runs a task once in each of an array of ``tasks``."""
    command = shlex.join([*worker_command(task), str(folder)])
    return batch_script(name, tasks, f'{command} "${{SLURM_ARRAY_TASK_ID:-0}}"')


if __name__ == "__main__":
    try:
        _work(*sys.argv[1:])
    except TailbackError as refusal:
        sys.exit(f"tailback worker: {refusal}")
