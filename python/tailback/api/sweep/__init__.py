"""Parameter studies: one scenario over many values of its keys, on processes, Dask or Slurm."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import polars as pl

from tailback.api.sweep.plan import plain_data, points_of, scenario_at
from tailback.api.sweep.study import ParameterStudy, run_point
from tailback.errors import ScenarioError, known_keywords
from tailback.io.folders import require_owner, shell_path
from tailback.io.progress import Progress
from tailback.sources.source import ScenarioOptions, SourceLike, load_scenario
from tailback.workers import PYTHON, Ended, batch_script, executor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Sweep", "continue_sweep", "plan_sweep", "slurm_script", "sweep"]


@dataclass(frozen=True)
class Sweep:
    """A parameter study and its results.

    Attributes:
        study: Its folder.
    """

    study: ParameterStudy

    @property
    def frame(self) -> pl.DataFrame:
        """One row per finished run, with ``run``, a column for each key, and the run's summary."""
        return self.study.frame()

    @property
    def failures(self) -> dict[int, str]:
        """Why runs failed, by number; continuing the study repeats them."""
        return self.study.failures()

    def table(self, name: str) -> pl.DataFrame:
        """A stored table of all finished runs, preceded by ``run`` and a column for each key."""
        return self.study.frame(name)

    def to_pandas(self) -> Any:
        """:attr:`frame` as a pandas data frame; needs pandas and pyarrow."""
        return self.frame.to_pandas()

    def plot(self, x: str, y: str = "elapsed_ps", by: str | None = None) -> Figure:
        """Mean, lowest and highest ``y`` over ``x``, one curve for each value of ``by``.

        Raises:
            ScenarioError: There is no such column.
        """
        from tailback.api.sweep.plot import plot_sweep

        return plot_sweep(self.frame, x, y, by)

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()


def plan_sweep(
    source: SourceLike,
    over: Mapping[str, Sequence[Any]],
    out: str | Path,
    *,
    tables: Sequence[str] = (),
    model: Literal["packet", "fluid"] = "packet",
    **options: Unpack[ScenarioOptions],
) -> ParameterStudy:
    """Create the folder of a parameter study without running it; arguments as :func:`sweep`.

    The first point is checked, so that a misspelt key fails here and not in every run.

    Raises:
        TailbackError: A key or value is not valid, or the folder contains something else.
    """
    base = plain_data(load_scenario(source, **options))
    points = points_of(over)
    scenario_at(base, points[0])
    study = ParameterStudy(Path(out).absolute(), base, points, tuple(tables), model)
    study.create()
    return study


def continue_sweep(
    folder: str | Path,
    *,
    workers: int | None = None,
    dask: Any = None,
    part: tuple[int, int] = (0, 1),
    progress: Progress | None = None,
) -> Sweep:
    """Run the missing points of a parameter study.

    Args:
        folder: Its folder.
        workers: Number of processes; default: one per core.
        dask: A ``distributed.Client`` or the address of a scheduler, instead of processes.
        part: ``(i, n)`` runs every n-th point from the i-th on.
        progress: Called with the progress of the study and the time left.

    Raises:
        TailbackError: The folder has no study or belongs to another user, or there is no such part
            or cluster.
    """
    study = ParameterStudy.open(Path(folder).absolute())
    which, parts = part
    if not 0 <= which < parts:
        raise ScenarioError(
            f"there is no part {which} of {parts}", remedy=f"parts are numbered 0 to {parts - 1}"
        )
    numbers = [number for number in study.pending() if number % parts == which]
    if numbers:
        require_owner(study.path)
    with (
        executor(workers, dask) as processors,
        processors.submit(run_point, study.path, numbers) as ended,
    ):
        follow(study, ended, len(numbers), progress)
    return Sweep(study)


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
    ended: Iterable[Ended],
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


@known_keywords(ScenarioOptions)
def sweep(
    source: SourceLike,
    over: Mapping[str, Sequence[Any]],
    out: str | Path,
    *,
    tables: Sequence[str] = (),
    model: Literal["packet", "fluid"] = "packet",
    workers: int | None = None,
    dask: Any = None,
    progress: Progress | None = None,
    **options: Unpack[ScenarioOptions],
) -> Sweep:
    """Run a scenario over every combination of some values of its keys.

    Args:
        source: As for :func:`load_scenario`: the base scenario, or a trace with ``fabric``.
        over: Key → values, like ``{"seed": range(10), "job.placement": ["block", "rcm"]}``. A key
            is a path like ``engine.routing`` or ``job.1.hosts``; ``job.`` without a number means
            the first observed job.
        out: Folder of the results. If it holds the same study, only what is missing is run.
        tables: Tables of each run to keep besides its summary, for example ``links``.
        model: ``packet`` or ``fluid``.
        workers: Number of processes; default: one per core.
        dask: A ``distributed.Client`` or the address of a scheduler, instead of processes.
        progress: Called with the progress of the study and the time left.
        options: As for :func:`load_scenario`: ``fabric``, ``hosts``, ``placement`` …

    Raises:
        TailbackError: A key or value is not valid, or the folder contains something else. Runs that
            fail are listed in :attr:`Sweep.failures`.

    Example:
        >>> study = tb.sweep("demo.toml", over={"job.placement": ["block", "rcm"]}, out="study")
        >>> study.frame.select("job.placement", "elapsed_ps")
        >>> study.plot("job.placement")
    """
    study = plan_sweep(source, over, out, tables=tables, model=model, **options)
    return continue_sweep(study.path, workers=workers, dask=dask, progress=progress)
