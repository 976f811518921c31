"""Workers that run the points of a study: local processes, a Dask cluster, or a Slurm array."""

from __future__ import annotations

import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from tailback.api.sweep.study import ParameterStudy
from tailback.errors import RunError, for_worker, worker_environment
from tailback.io.folders import batch_script, shell_path
from tailback.workers import PYTHON, dask_client

Progress = Callable[[str, float], None]
"""Called with the current step and its progress, 0–1."""

KILLED = "its worker process was killed (possibly out of memory)"


def run_point(folder: Path, number: int) -> None:
    """Run one point of the study in ``folder``: what a Dask worker calls."""
    ParameterStudy.open(folder).run(number)


class _Worker:
    """A process that runs points, one at a time (:mod:`tailback.api.sweep.worker`)."""

    def __init__(self, folder: Path) -> None:
        # A fresh interpreter, so that a script that calls sweep() is not imported again.
        command = [*PYTHON, "-m", "tailback.api.sweep.worker", str(folder)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=worker_environment(),
        )
        self.number = -1

    def start(self, number: int) -> None:
        """Assign a point; a dead process is noticed when its output ends."""
        self.number = number
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).write(b"%d\n" % number)

    def close(self) -> int:
        """End the process; returns its exit code, negative for a signal."""
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                _pipe(pipe).close()
        return self.process.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # Popen was asked for it
    return pipe


def run_locally(
    folder: Path, numbers: Iterable[int], workers: int
) -> Iterator[tuple[int, str | None]]:
    """Run points on processes of this machine.

    A killed worker costs the run it was working on; another worker replaces it.

    Yields:
        The number of a run that ended, and why it failed; None if it did not, or if the study
        recorded the failure itself.

    Raises:
        RunError: A worker failed; it has written the reason to standard error.
    """
    queue = iter(numbers)
    with selectors.DefaultSelector() as outputs:

        def start(worker: _Worker | None) -> None:
            number = next(queue, None)
            if number is None:
                if worker is not None:
                    worker.close()
                return
            if worker is None:
                worker = _Worker(folder)
            worker.start(number)
            outputs.register(_pipe(worker.process.stdout), selectors.EVENT_READ, worker)

        try:
            for _ in range(max(1, workers)):
                start(None)
            while outputs.get_map():
                for key, _events in outputs.select():
                    worker = key.data
                    outputs.unregister(key.fileobj)
                    done = worker.number
                    if _pipe(worker.process.stdout).readline():
                        start(worker)
                        yield done, None
                        continue
                    code = worker.close()
                    if code >= 0:
                        raise RunError(
                            f"the worker process of run {done} exited with code {code}",
                            file=folder,
                            remedy="see the message above, and report it as a bug",
                        )
                    start(None)
                    yield done, KILLED
        finally:
            for key in list(outputs.get_map().values()):
                key.data.process.kill()
                key.data.close()


def run_on_dask(
    folder: Path, numbers: Iterable[int], client: Any
) -> Iterator[tuple[int, str | None]]:
    """Run points on the workers of a Dask cluster; arguments and results as :func:`run_locally`.

    Args:
        folder: Folder of the study, which workers must see under the same path.
        numbers: Points to run.
        client: A ``distributed.Client``, or the address of a scheduler.

    Raises:
        RunError: Dask is not installed, or no scheduler answers at the address.
    """
    with dask_client(client) as client:
        distributed: Any = import_module("distributed")
        futures = {
            client.submit(for_worker(run_point), folder, number, pure=False, retries=0): number
            for number in numbers
        }
        for future in distributed.as_completed(futures):
            reason = None
            if future.status != "finished":
                failure = future.exception()
                if not isinstance(failure, distributed.KilledWorker):
                    raise failure
                reason = KILLED
            yield futures[future], reason


def slurm_script(folder: Path, tasks: int) -> str:
    """A batch script for ``sbatch`` that runs the study as an array of ``tasks`` jobs."""
    place = shell_path(folder.absolute())
    command = shlex.join([*PYTHON, "-m", "tailback", "sweep", "--quiet", "--workers", "1"])
    # sbatch parses quotes in its own way, so that the shell opens the file of the output.
    return batch_script(
        folder.absolute().name,
        tasks,
        f'{command} --part "$SLURM_ARRAY_TASK_ID/{tasks}" {place} '
        f'> {place}/slurm-"$SLURM_ARRAY_JOB_ID"_"$SLURM_ARRAY_TASK_ID".out 2>&1',
    )


def follow(
    study: ParameterStudy,
    ended: Iterable[tuple[int, str | None]],
    total: int,
    progress: Progress | None,
) -> None:
    """Record what the workers report, and report progress with the time left."""
    began = time.monotonic()
    for count, (number, reason) in enumerate(ended, 1):
        if reason is not None:
            study.record_failure(number, reason)
        if progress is not None:
            left = (time.monotonic() - began) / count * (total - count)
            progress(f"{count} of {total} runs, {left:,.0f} s left", count / total)
