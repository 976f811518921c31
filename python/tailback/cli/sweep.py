"""``tailback sweep``: a scenario over many values of its keys."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import OneOf, format_option, quiet_option
from tailback.cli.progress import meter
from tailback.cli.source import scenario_options
from tailback.cli.text import align_columns, heading, more_line, wrap
from tailback.errors import ScenarioError
from tailback.names.display import printable
from tailback.units import counted, format_time, percent

if TYPE_CHECKING:
    import polars as pl

    from tailback.api.sweep import Sweep

SHOWN, FAILURES_SHOWN, RUNS_NAMED = 10, 3, 8
"""Runs on the screen, reasons of failures, and runs named with each."""


@click.command(cls=GroupedHelp)
@scenario_options
@click.option(
    "--over",
    "over",
    multiple=True,
    metavar="KEY=VALUES",
    help="A key of the scenario and its values, like seed=1..10 or "
    "job.placement=block,rcm; may be repeated for all combinations.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the results.")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME",
    help="Keep this table of every run too; may be repeated.",
)
@click.option(
    "--model",
    type=OneOf(["packet", "fluid"]),
    default="packet",
    show_default=True,
    help="Simulate packets, or rates: faster, but an estimate.",
)
@click.option(
    "--workers", type=click.IntRange(1), help="Number of processes (default: one per core)."
)
@click.option("--dask", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler.")
@click.option(
    "--slurm",
    type=click.IntRange(1),
    metavar="TASKS",
    help="Only write a Slurm array script with this many tasks.",
)
@click.option("--part", metavar="I/N", help="Run only every N-th point, starting with the I-th.")
@format_option
@quiet_option
def sweep(
    over: tuple[str, ...],
    out: Path | None,
    tables: tuple[str, ...],
    model: str,
    workers: int | None,
    dask: str | None,
    slurm: int | None,
    part: str | None,
    form: str,
    quiet: bool,
    **source: Any,
) -> None:
    """Run a scenario over every combination of some values of its keys.

    SOURCE is a scenario (.toml), a trace with --fabric, or the folder of a sweep: then its missing
    runs are run.

    \b
    tailback sweep examples/rates/rates.toml --over seed=1..4 --out study
    tailback sweep app_trace --fabric fabric.txt --over seed=1..4 --out study
    tailback sweep study
    """
    with loading():
        from tailback.api.sweep import continue_sweep, slurm_script
        from tailback.io.folders import atomic_file, require_owner, shell_path
    folder = _folder(source, over, out, tables, model)
    if slurm is not None:
        require_owner(folder)
        script = folder / "sweep.sbatch"
        with atomic_file(script, force=True) as file:
            file.write(slurm_script(folder, slurm).encode())
        click.echo(f"sbatch {shell_path(script)}")
        return
    which, parts = _part(part)
    with meter(quiet) as progress:
        study_sweep = continue_sweep(
            folder, workers=workers, dask=dask, part=(which, parts), progress=progress.step
        )
    if form == "json":
        click.echo(json.dumps(_facts(study_sweep), indent=2))
    else:
        click.echo("\n".join(_lines(study_sweep)))
    failed = [number for number in study_sweep.failures if number % parts == which]
    if failed:
        raise ScenarioError(
            f"{counted(len(failed), 'run')} of the sweep failed, the first of them run {failed[0]}",
            file=folder,
            remedy="leave out values that are not valid, in another sweep; if a file or memory was "
            "missing, 'tailback sweep FOLDER' tries the failed runs again",
        )


def _folder(
    options: dict[str, Any],
    over: tuple[str, ...],
    out: Path | None,
    tables: tuple[str, ...],
    model: str,
) -> Path:
    """The folder of the study: the one to continue, or a new one."""
    from tailback.api.sweep import plan_sweep
    from tailback.io.folders import shell_path

    source: Path = options.pop("source")
    if (source / "sweep.json").is_file():
        if over or out or tables or any(value is not None for value in options.values()):
            raise ScenarioError(
                "already holds a sweep with its own scenario, keys and tables",
                file=source,
                remedy=f"continue it with 'tailback sweep {shell_path(source)}' alone, or start "
                "from a scenario or trace",
            )
        return source
    if out is None:
        raise ScenarioError("a sweep needs a folder for its results", remedy="add --out FOLDER")
    axes = dict(axis_from_text(text) for text in over)
    kind = cast(Literal["packet", "fluid"], model)
    return plan_sweep(source, axes, out, tables=tables, model=kind, **options).path


def axis_from_text(text: str) -> tuple[str, list[Any]]:
    """Key and values of ``seed=1..10`` or ``engine.buffer=16 KiB,64 KiB``.

    Raises:
        ScenarioError: There is no ``=``, or nothing before or after it.
    """
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not key or not values.strip():
        raise ScenarioError(f"--over {text!r} is not KEY=VALUES", remedy="write --over seed=1..10")
    first, dots, last = values.partition("..")
    if dots and first.strip().isdecimal() and last.strip().isdecimal():
        if int(last) < int(first):
            raise ScenarioError(f"--over {text!r} counts down", remedy=f"{key}={last}..{first}")
        return key, list(range(int(first), int(last) + 1))
    return key, [_value(value.strip()) for value in values.split(",")]


def _value(text: str) -> Any:
    """A number or flag as TOML writes it, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def _part(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 1
    which, slash, parts = text.partition("/")
    if not (slash and which.isdecimal() and parts.isdecimal()):
        raise ScenarioError(f"--part {text!r} is not I/N", remedy="write --part 0/4")
    return int(which), int(parts)


def _facts(study_sweep: Sweep) -> dict[str, Any]:
    from tailback.api.sweep.study import SUMMARY

    study, failures = study_sweep.study, study_sweep.failures
    return {
        "folder": str(study.path),
        "runs": len(study.points),
        "done": len(study.points) - len(study.pending()),
        "failed": {str(number): why for number, why in failures.items()},
        "tables": [str(study.path / name) for name in (SUMMARY, *study.tables)],
    }


def _skip_lines(frame: pl.DataFrame) -> list[str]:
    """The note on runs of which steps were extrapolated."""
    if "steps_skipped" not in frame.columns:
        return []
    runs = frame.drop_nulls("steps_skipped")
    half = (runs["elapsed_high_ps"] - runs["elapsed_low_ps"]) / 2 / runs["elapsed_ps"]
    return wrap(
        f"note: skipped: steps of {counted(runs.height, 'run')} are extrapolated: elapsed ± "
        f"{percent(half.to_numpy().max(), 1)} or less, 95 % (elapsed_low_ps, elapsed_high_ps)"
    )


def _failure_lines(failures: Mapping[int, str]) -> list[str]:
    """Why runs failed, and which: one entry for each reason."""
    reasons: dict[str, list[int]] = {}
    for number, why in failures.items():
        reasons.setdefault(why, []).append(number)
    lines = list[str]()
    for why, numbers in list(reasons.items())[:FAILURES_SHOWN]:
        message, *more = printable(why, keep_newlines=True).split("\n")
        shown = ", ".join(map(str, numbers[:RUNS_NAMED])) + ", …" * (len(numbers) > RUNS_NAMED)
        lines += ["", *wrap(f"{'run' if len(numbers) == 1 else 'runs'} {shown}: {message}")]
        for line in more:
            lines += wrap(line.strip(), indent=" " * 6, first=" " * 4)
    return lines + more_line(len(reasons) - FAILURES_SHOWN)


def _lines(study_sweep: Sweep) -> list[str]:
    """The screen: what is done, the fastest runs, failures, where the tables are."""
    from tailback.api.sweep.study import SUMMARY
    from tailback.io.folders import shell_path

    facts, study = _facts(study_sweep), study_sweep.study
    counts = f"{facts['done']} of {facts['runs']} runs done, {len(facts['failed'])} failed"
    lines = [f"{heading('SWEEP')}  {counts}"]
    if facts["done"]:
        by_time = study_sweep.frame.sort("elapsed_ps", "run")
        keys = list(study.points[0])
        best = by_time.row(0, named=True)
        point = ", ".join(f"{key}={printable(str(best[key]))}" for key in keys)
        text = f"run {best['run']}, {format_time(int(best['elapsed_ps']))}: {point}"
        lines += wrap(text, first=f"{heading('FASTEST')}  ")
        # All in the order in which they are numbered; of many, the fastest first.
        frame = by_time.head(SHOWN) if facts["done"] > SHOWN else by_time.sort("run")
        rows = [
            (
                str(row["run"]),
                *(printable(str(row[key])) for key in keys),
                format_time(int(row["elapsed_ps"])),
            )
            for row in frame.iter_rows(named=True)
        ]
        lines += ["", *align_columns(("run", *keys, "elapsed"), rows, "r" + " " * len(keys) + "r")]
        if facts["done"] > SHOWN:
            lines.append(f"  the {SHOWN} fastest of {facts['done']}")
        lines += _skip_lines(study_sweep.frame)
    lines += _failure_lines(study_sweep.failures)
    if facts["done"]:
        lines += ["", f"all runs: {printable(str(study.path / SUMMARY))}/*.parquet"]
    if set(study.pending()) - study_sweep.failures.keys():
        lines += ["", f"NEXT  tailback sweep {shell_path(study.path)}"]
    elif study_sweep.failures:
        lines += ["", *wrap(_WITHOUT_FAILED, " " * 6, first="NEXT  ")]
    return lines


_WITHOUT_FAILED = (
    "start a sweep without the values that failed: tailback sweep SOURCE --over KEY=VALUES --out "
    "FOLDER"
)
"""What to do where only failed runs are missing, which would fail again."""
