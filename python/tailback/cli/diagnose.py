"""``tailback diagnose``: the main job. Trace and fabric in; verdict, remedy and report out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.kept_diagnosis import is_up_to_date, kept_lines, show_json_kept, show_kept
from tailback.cli.loading import loading
from tailback.cli.option_types import (
    OneOf,
    TimeBudget,
    format_option,
    profile_option,
    quiet_option,
)
from tailback.cli.progress import meter, profiled
from tailback.cli.result import EXIT_OK, EXIT_UNDETERMINED, show
from tailback.cli.source import allow_hosts_option, source_options

if TYPE_CHECKING:
    from tailback.api.diagnose import DiagnosisResult
    from tailback.api.hang import CompletedResult, HangResult
    from tailback.api.stored_result import StoredResult
    from tailback.budget import Budget
    from tailback.simulation.parallel.task_folder import TaskFolder
    from tailback.sources.request import DiagnosisRequest
    from tailback.sources.source import Source

R = TypeVar("R", bound="StoredResult")


@click.command(cls=GroupedHelp)
@source_options
@click.argument("captures", nargs=-1, type=click.Path(path_type=Path), metavar="[CAPTURE]...")
@click.option(
    "--counters",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="Port counters of that time, as tailback counters reads them. May be repeated.",
)
@click.option(
    "--jobs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Jobs that ran meanwhile: sacct, squeue, qstat -f or a CSV. A CSV has job, start, end, "
    "hosts. Default: the list of a recording.",
)
@click.option(
    "--samples",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Counts of the samples in packets: a CSV by flow or by time, or a capture.",
)
@click.option(
    "--contexts",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="For captures: addresses of the nodes, and the calls that packets belong to.",
)
@allow_hosts_option
@click.option(
    "--forecast",
    is_flag=True,
    help="Forecast the run, without recorded times. Default for recordings whose ranks shared "
    "cores, and with --compute-scale or --ranks.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for report and data. Default: tailback-NAME.",
)
@click.option(
    "--force", is_flag=True, help="Diagnose anew, and replace that folder if Tailback wrote it."
)
@click.option("--update", is_flag=True, help="The same, if what is in it is out of date.")
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Placement to try; repeat for several (default: all that apply).",
)
@click.option(
    "--remedy",
    "remedies",
    multiple=True,
    metavar="KIND",
    help="Kind of remedy to try (tailback list remedy); repeat for several (default: all).",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help="Repetitions of every re-simulation (default 3; 1 if a simulation has more than "
    "20 million events).",
)
@click.option(
    "--budget",
    type=TimeBudget(),
    metavar="TIME",
    help="Wall-clock time to spend, such as '60 s'. What does not fit is left out, and named.",
)
@click.option(
    "--figures",
    type=OneOf(["svg", "pdf", "png"]),
    multiple=True,
    help="Also write every figure in this format; may be repeated.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print everything. That is evidence, candidates, measured time and notes.",
)
@click.option(
    "--evidence",
    is_flag=True,
    help="Also print all evidence, and what it says of each cause.",
)
@format_option
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Simulate on N processes besides this one; results do not depend on this.",
)
@click.option(
    "--dask", metavar="ADDRESS", help="Simulate on the Dask cluster of this scheduler, too."
)
@click.option(
    "--slurm",
    type=click.IntRange(1),
    metavar="TASKS",
    help="Write a Slurm array script of this many workers, and wait for them while simulating.",
)
@profile_option
@quiet_option
def diagnose(
    counters: tuple[Path, ...],
    jobs: Path | None,
    samples: Path | None,
    contexts: Path | None,
    captures: tuple[Path, ...],
    allow_hosts: str | None,
    forecast: bool,
    out: Path | None,
    force: bool,
    update: bool,
    methods: tuple[str, ...],
    remedies: tuple[str, ...],
    seeds: int | None,
    budget: Budget | None,
    figures: tuple[str, ...],
    verbose: bool,
    evidence: bool,
    form: str,
    profile: bool,
    quiet: bool,
    threads: int | None,
    workers: int | None,
    dask: str | None,
    slurm: int | None,
    **source: Any,
) -> int:
    """Say where traffic backs up, why, and what to do about it.

    SOURCE is a trace (tailback list reader), which needs --fabric, or a
    scenario (.toml), or the folder of an earlier run or diagnosis, or of a run in
    the lab (tailback lab run).

    For a trace with times the verdict explains the measured time; if its ranks
    shared cores, it is a forecast.

    SOURCE may also be one or several packet captures (pcap, pcapng, ERF; InfiniBand
    or RoCEv2), one per host: the verdict then rests only on the samples in the
    packets. Or it is outputs of bandwidth tests between pairs of hosts (nccl-tests,
    OSU, perftest), or their folder: the slow host, cable or rail is named. Of dumps
    of PyTorch's Flight Recorder, the ranks that a collective waits for are named.

    If --out holds the diagnosis of the same inputs and options by this version, it
    is printed, and nothing is computed.

    \b
    tailback diagnose app_trace/ --fabric fabric.txt --out diagnosis
    tailback diagnose examples/demo/demo.toml --out diagnosis
    tailback diagnose n00.pcapng n01.pcapng --fabric scenario.toml
    """
    with loading():
        from tailback.io.folders import check_writable
        from tailback.sources.source import Source, path_safe_name
        from tailback.telemetry.captured import is_capture
    path = source.pop("source")
    files = [path, *captures]
    stored = {"out": out, "form": form, "force": force, "update": update, **source}
    if (code := _diagnose_stored(files, stored, forecast=forecast)) is not None:
        return code
    input_files: Source | list[str | Path]
    if captures or is_capture(path):
        # Options of traces are validated by the library.
        input_files, name, options = [*files], path.stem, source
    else:
        input_files, options = Source.of(path, **source), {}
        name = input_files.scenario.name
    out = out or Path(f"tailback-{path_safe_name(name)}")
    asked: dict[str, Any] = {"counters": counters, "jobs": jobs, "samples": samples}
    asked |= {"allow_hosts": allow_hosts, "methods": methods, "remedies": remedies}
    asked |= {"forecast": forecast, "seeds": seeds, "contexts": contexts}
    may_keep = not (force or profile or figures or budget)
    if may_keep and is_up_to_date(out, _request(input_files, options, asked), update=update):
        return show_kept(out, form, verbose=verbose, evidence=evidence)
    force = force or update
    check_writable(out, force=force, sources=files)
    with loading():
        from tailback.api.candidates import require_placements
        from tailback.api.diagnose import diagnose as run_diagnosis
    require_placements("--method", methods)
    with (
        _task_folder(out, dask, slurm) as tasks,
        profiled(profile),
        meter(quiet, budget) as progress,
    ):
        result = run_diagnosis(
            input_files,
            **asked,
            budget=budget,
            threads=threads,
            progress=progress.step,
            watch=progress.watch,
            workers=workers,
            dask=dask,
            tasks=tasks,
            **options,
        )
        progress.step("writing the report", 1.0)
        result.write(out, force=force, figures=figures)
    return _show(result, out, form, verbose=verbose, evidence=evidence)


def _request(
    source: Source | list[str | Path], options: dict[str, Any], asked: dict[str, Any]
) -> DiagnosisRequest:
    """What is asked for, as the diagnosis will state it, without its inputs."""
    from tailback.sources.request import DiagnosisRequest

    if isinstance(source, list):
        files = [Path(file) for file in source]
        return DiagnosisRequest.of(files, (), {**options, "contexts": asked["contexts"]})
    return DiagnosisRequest.of(source, (), {**asked, "contexts": None, "budget": None})


def _show(result: DiagnosisResult, out: Path, form: str, *, verbose: bool, evidence: bool) -> int:
    """Print a result; returns the exit code."""
    from tailback.cli.evidence_screen import evidence_lines
    from tailback.cli.hot_lines import hot_lines
    from tailback.cli.render import diagnosis_lines

    diagnosis = result.diagnosis
    code = EXIT_UNDETERMINED if diagnosis.cause == "undetermined" else EXIT_OK
    if form == "json":
        return show(diagnosis.model_dump_json(indent=2), code)
    lines = diagnosis_lines(
        diagnosis, out, hot_lines(result.attribution), result.rank_files, verbose=verbose
    )
    if evidence:
        lines += evidence_lines(diagnosis.evidence)
    return show("\n".join(lines), code)


_OPTIONS_OF_STORED = {"source", "captures", "fabric", "out", "force", "update", "form", "quiet"}


def _diagnose_stored(files: list[Path], options: dict[str, Any], *, forecast: bool) -> int | None:
    """The diagnosis of benchmarks or of a run that hangs; None for other sources."""
    from tailback.calibration.places import split_hosts
    from tailback.calibration.readers import holds_benchmarks

    if holds_benchmarks(split_hosts(files[0])[0]):
        return _diagnose_pairs(files, options)
    hang = None if forecast or len(files) > 1 else _hang_in(files[0])
    if hang is None or (hang.cause == "complete" and options["fabric"] is not None):
        return None
    return _show_hang(hang, files, options)


def _diagnose_pairs(files: list[Path], options: dict[str, Any]) -> int:
    """The diagnosis of benchmarks between pairs of hosts."""
    from tailback.api.pairs import PairsResult, diagnose_pairs
    from tailback.cli.pairs_screen import pairs_lines

    _refuse_other_options("benchmarks of pairs of hosts", files[0])

    def pairs() -> PairsResult:
        return diagnose_pairs(files, fabric=options["fabric"])

    return _show_stored(PairsResult, pairs, pairs_lines, files, options)


def _hang_in(path: Path) -> HangResult | CompletedResult | None:
    """Who holds up a run, by dumps of PyTorch's Flight Recorder; None for all else."""
    from tailback.traffic.readers.flight_recorder.reader import sniff

    if not path.exists() or not sniff(path):
        return None
    from tailback.api.hang import diagnose_hang

    return diagnose_hang(path)


def _show_hang(
    hang: HangResult | CompletedResult, files: list[Path], options: dict[str, Any]
) -> int:
    from tailback.cli.hang_screen import hang_lines

    which = "with a collective that does not complete"
    if hang.cause == "complete":
        which = "without --fabric"
    _refuse_other_options(f"dumps {which}", files[0])
    return _show_stored(type(hang), lambda: hang, hang_lines, files, options)


def _refuse_other_options(what: str, file: Path) -> None:
    """Raise ScenarioError for an option that does not apply."""
    from tailback.errors import ScenarioError

    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        is_stated = context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
        if is_stated and name not in _OPTIONS_OF_STORED:
            raise ScenarioError(
                f"{parameter.opts[0]} does not apply to {what}", file=file, remedy="leave it out"
            )


def _show_stored(
    kind: type[R],
    make: Callable[[], R],
    lines: Callable[[R], list[str]],
    files: list[Path],
    options: dict[str, Any],
) -> int:
    """Make, write and print a result that one JSON file holds; where nothing changed it is kept.

    Args:
        kind: Type of the result.
        make: Makes it.
        lines: Its screen.
        files: Its sources.
        options: Values of ``fabric``, ``out``, ``form``, ``force`` and ``update``.
    """
    from tailback.io.folders import check_writable
    from tailback.sources.request import DiagnosisRequest

    out, force, kept = options["out"], options["force"], False
    if out is not None and not force:
        asked = DiagnosisRequest.of(files, (), {"fabric": options["fabric"]})
        kept = is_up_to_date(out, asked, update=options["update"])
    if kept:
        result = kind.read(out)
    else:
        force = force or options["update"]
        if out is not None:
            check_writable(out, force=force, sources=files)
        result = make()
        if out is not None:
            result.write(out, force=force)
    facts = result.facts()
    code = EXIT_UNDETERMINED if facts["cause"] == "undetermined" else EXIT_OK
    if options["form"] == "json":
        text = json.dumps(facts, indent=2, ensure_ascii=False)
        return show_json_kept(text, out, code) if kept else show(text, code)
    return show("\n".join([*lines(result), *(kept_lines(out) if kept else [])]), code)


@contextmanager
def _task_folder(out: Path, dask: str | None, slurm: int | None) -> Iterator[TaskFolder | None]:
    """The folder of the tasks of workers beside the result, with a batch script for Slurm."""
    if dask is None and slurm is None:
        yield None
        return
    from tailback.io.folders import shell_path
    from tailback.simulation.parallel.spread import write_script
    from tailback.simulation.parallel.task_folder import TaskFolder

    tasks = TaskFolder.create(out.absolute().with_name(f"{out.absolute().name}.tasks"))
    try:
        if slurm is not None:
            script = write_script(tasks, out.absolute().name, slurm)
            click.echo(f"sbatch {shell_path(script)}", err=True)
        yield tasks
    finally:
        tasks.delete()
