"""``tailback diagnose``: the main job. Trace and fabric in; verdict, remedy and report out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tailback.cli.candidates import DEFAULT_METHODS, check_names, make_candidates
from tailback.cli.hot_lines import hot_lines
from tailback.cli.measured_run import another_run, measured_run
from tailback.cli.option_types import RenamedOption
from tailback.cli.progress import Meter, meter
from tailback.cli.rankfiles import rank_files
from tailback.cli.render import diagnosis_lines
from tailback.cli.result import show
from tailback.cli.source import (
    allow_hosts_option,
    error_context,
    path_safe_name,
    scenario_from,
    source_options,
)
from tailback.diagnose import Diagnosis, diagnose_cause
from tailback.diagnose.measured_times import with_measured
from tailback.diagnose.model import Candidate
from tailback.errors import PlacementError
from tailback.placement import RankFile
from tailback.remedy import REMEDIES, RemedyContext, find_remedy
from tailback.remedy.screening import Screening, screen
from tailback.remedy.search import TOGETHER
from tailback.report import (
    Attribution,
    attribute,
    export_figures,
    to_json,
    to_table,
    write_report,
)
from tailback.run import AtomicDirectory, Run, check_writable
from tailback.simulate import (
    FluidOptions,
    PreparedScenario,
    make_evaluate,
    make_fluid_evaluate,
    other_rules,
    prepare,
)
from tailback.simulate import simulate as run_scenario
from tailback.simulate.decode import decode_samples

UNDETERMINED = 3


@click.command()
@source_options
@allow_hosts_option
@click.option(
    "--out", type=click.Path(path_type=Path),
    help="Folder for report and data (default tailback-NAME).",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace that folder if Tailback wrote it.")
@click.option(
    "--method", "--try", "methods", multiple=True, metavar="NAME", cls=RenamedOption,
    help="Placement to try; repeat for several (default: all sensible ones).",
)  # fmt: skip
@click.option(
    "--remedy", "--cure", "cures", multiple=True, type=click.Choice(REMEDIES.names()),
    cls=RenamedOption,
    help="Kind of remedy to try; repeat for several (default: all).",
)  # fmt: skip
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True,
              help="Repetitions of every re-simulation.")  # fmt: skip
@click.option("--figures", type=click.Choice(["svg", "pdf", "png"]), multiple=True,
              help="Also write every figure in this format; may be repeated.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="What to print.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def diagnose(
    allow_hosts: str | None,
    out: Path | None,
    force: bool,
    methods: tuple[str, ...],
    cures: tuple[str, ...],
    seeds: int,
    figures: tuple[str, ...],
    form: str,
    quiet: bool,
    **source: Any,
) -> int:
    """Say where traffic backs up, why, and what to do about it.

    SOURCE is an MPI trace (OTF2, Open MPI monitoring), which needs --fabric, or a
    scenario (.toml), or the folder of an earlier run or diagnosis. Of a trace with
    times the measured run comes first, with where its time went; what the model
    expects is shown beside it.

    \b
    tailback diagnose app_trace/ --fabric fabric.txt --out diagnosis
    tailback diagnose examples/demo/demo.toml --out diagnosis
    """
    check_names("--method", methods)
    scenario = scenario_from(**source)
    out = out or Path(f"tailback-{path_safe_name(scenario.name)}")
    check_writable(out, force=force, sources=[source["source"]])
    with meter(quiet) as progress:
        with error_context(**source, allow_hosts=allow_hosts):
            prepared = prepare(scenario, allow_hosts)
            progress.step("reading the times of the trace", 0.0)
            measured = measured_run(prepared)
            progress.step("simulating as it is", 0.0)
            run = decode_samples(run_scenario(prepared, progress.watch), prepared.fabric)
        diagnosis, after, files = _diagnose(prepared, run, methods, cures, seeds, progress)
        if measured is not None:
            diagnosis = with_measured(diagnosis, measured.measured, another_run(prepared))
        progress.step("charging the stall time", 1.0)
        found = attribute(run)
        progress.step("writing the report", 1.0)
        with AtomicDirectory(out, force=force) as folder:
            _write(folder, run, after, diagnosis, found, files, figures)
            if measured is not None:
                measured.write(folder / "measured")
    code = UNDETERMINED if diagnosis.cause == "undetermined" else 0
    if form == "json":
        return show(diagnosis.model_dump_json(indent=2), code)
    return show("\n".join(diagnosis_lines(diagnosis, out, hot_lines(found))), code)


def _diagnose(
    prepared: PreparedScenario,
    run: Run,
    methods: tuple[str, ...],
    cures: tuple[str, ...],
    seeds: int,
    progress: Meter,
) -> tuple[Diagnosis, Run | None, list[RankFile]]:
    """Diagnose a run, try remedies, and simulate the recommended one with telemetry.

    Without placements asked for, all sensible ones are made, and the fluid model leaves out those
    that cannot win; the packet engine proves the others.
    """
    evaluate = make_evaluate(prepared, progress.watch)
    made, errors = make_candidates(prepared, methods or DEFAULT_METHODS, run, progress.step)
    options = FluidOptions(windows=0, quantum_ps=max(100_000, run.elapsed_ps // 2000))
    quick = make_fluid_evaluate(prepared, options)
    screened = Screening(made)
    if not methods:
        now = frozenset({prepared.observed.section.placement})
        screened = screen(made, quick, always=now, progress=progress.step)
        made = screened.kept
    rules = other_rules(prepared.scenario)
    diagnosis = diagnose_cause(
        run, evaluate, placements=made, rules=rules, seeds=seeds, progress=progress.step
    )
    means = RemedyContext(
        evaluate, quick, made, screened.estimate_ps, prepared.observed.program, rules,
        frozenset(cures) or None,
    )  # fmt: skip
    found = find_remedy(run, diagnosis, means, seeds=seeds, progress=progress.step)
    warnings = [*_limits(prepared, errors if methods else []), *diagnosis.warnings]
    remedy, after, files = found.remedy, None, list[RankFile]()
    if remedy is not None:
        left_out = list(screened.left_out)
        left_out += [Candidate(name=name, error=error.message) for name, error in errors]
        remedy = remedy.model_copy(update={"candidates": [*remedy.candidates, *left_out]})
        if found.change is not None:
            after = evaluate(replace(found.change, measure=True))
            after.summary["cure"] = remedy.cure
        try:
            if remedy.placement:
                files, unsaid = rank_files(prepared, made[remedy.placement])
                warnings += [f"no rank file for {name}: {why}" for name, why in unsaid.items()]
        except PlacementError as error:
            # First: the screen shows two notes, and the remedy misses its file.
            warnings.insert(0, f"no rank file: {error.message}")
        placed = remedy.placement in remedy.cure.split(TOGETHER)
        meanwhile = "" if placed else "meanwhile, "
        remedy = remedy.model_copy(
            update={
                "files": {file.file: f"{meanwhile}for {file.writer}" for file in files},
                "commands": [file.command for file in files],
            }
        )
    update = {"remedy": remedy, "warnings": list(dict.fromkeys(warnings))}
    return diagnosis.model_copy(update=update), after, files


def _limits(prepared: PreparedScenario, failed: list[tuple[str, PlacementError]]) -> list[str]:
    """What was asked for and cannot be had: placements, and remedies for several jobs."""
    found = [f"--method {name}: {error.message}" for name, error in failed]
    own = prepared.observed.section.name
    several = sum(job.section.observed for job in prepared.jobs)
    if several > 1:
        found.append(
            f"{several} jobs are observed and timed together, but remedies change only the first, "
            f"{own!r}: put the job to change first, or set observed = false for the others."
        )
    return found


def _write(
    folder: Path,
    run: Run,
    after: Run | None,
    diagnosis: Diagnosis,
    found: Attribution,
    files: list[RankFile],
    figures: tuple[str, ...],
) -> None:
    """Everything a diagnosis leaves behind."""
    judged = diagnosis.model_dump_json(indent=2) + "\n"
    (folder / "diagnosis.json").write_text(judged, encoding="utf-8")
    (folder / "attribution.json").write_text(to_json(found), encoding="utf-8")
    to_table(found).write_parquet(folder / "attribution.parquet")
    for file in files:
        (folder / file.file).write_text(file.text, encoding="utf-8")
    run.write(folder / "run")
    if after is not None:
        after.write(folder / "after")
    contents = {file.file: file.text for file in files}
    write_report(
        folder / "report.html", run, diagnosis, after=after, files=contents, attribution=found
    )
    if figures:
        export_figures(run, diagnosis, folder / "figures", figures, after=after)
