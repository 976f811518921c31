"""``tailback counters``: a diagnosis from port counters alone, in any supported format."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import Duration, FiniteRange, format_option, verbose_option
from tailback.cli.result import EXIT_OK, EXIT_UNDETERMINED, show


def _subsystems(
    context: click.Context, parameter: click.Parameter, definitions: tuple[str, ...]
) -> dict[str, str]:
    out = {}
    for text in definitions:
        name, separator, pattern = text.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{text!r} is not like 'Glade=^glade'", context, parameter)
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.BadParameter(
                f"{pattern!r} is not a regular expression: {error}", context, parameter
            ) from None
        out[name.strip()] = pattern
    return out


@click.command(cls=GroupedHelp)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--reader",
    metavar="NAME",
    help="Format of FILE (default: detected).",
)
@click.option(
    "--fabric",
    type=click.Path(path_type=Path),
    help="Output of ibnetdiscover, or a CSV of links: names, rates, tiers and directions.",
)
@click.option(
    "--subsystem",
    "subsystems",
    multiple=True,
    metavar="NAME=REGEX",
    callback=_subsystems,
    help="Class of switches whose names or hosts match, like 'Glade=^glade'; repeatable.",
)
@click.option(
    "--tick", type=Duration(), metavar="TIME", help="Length of a PortXmitWait tick, like '22 ns'."
)
@click.option(
    "--every",
    type=Duration(long=True),
    metavar="TIME",
    help="Time from each FILE to the next as listed, one an instant; for formats without time "
    "stamps.",
)
@click.option(
    "--threshold",
    type=FiniteRange(0, 100, min_open=True),
    default=1.0,
    show_default=True,
    help="Percentage of its time from which a port counts as stalling, queueing or dropping.",
)
@click.option(
    "--last",
    "--since",
    "last",
    type=Duration(long=True),
    metavar="TIME",
    help="Only the last TIME of the recorded time, like '10 min' or '7 d'.",
)
@click.option(
    "--muted",
    type=click.Path(path_type=Path),
    help="Text file with a device or port a line, like leaf03[7], whose links are known to be ill.",
)
@click.option(
    "--jobs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Jobs that ran: output of sacct or squeue, qstat -f, or a CSV of job, start, end, hosts. "
    "Lists what each lost to stalls and which job held it up.",
)
@click.option(
    "--forwarding",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="With --jobs: output of dump_lfts; only jobs whose routes share links are compared.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path),
    metavar="PAGE",
    help="Also write a page.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for tables.")
@click.option("--force", is_flag=True, help="Replace that folder if Tailback wrote it.")
@click.option("--csv", is_flag=True, help="Also write every table as CSV.")
@click.option(
    "--cluster", metavar="ADDRESS", help="Archive: run on a Dask cluster, like tcp://host:8786."
)
@verbose_option
@format_option
def counters(
    files: tuple[Path, ...],
    reader: str | None,
    every: float | None,
    tick: float | None,
    threshold: float,
    last: float | None,
    muted: Path | None,
    jobs: Path | None,
    forwarding: Path | None,
    page: Path | None,
    out: Path | None,
    force: bool,
    csv: bool,
    verbose: bool,
    form: str,
    fabric: Path | None,
    subsystems: dict[str, str],
    cluster: str | None,
) -> int:
    """Find out where ports stall, from counters alone.

    FILE has one of the formats of 'tailback list counter-source', or is an archive in Parquet.
    Give snapshots of counters as one FILE per instant.

    \b
    tailback counters 12h00.txt 12h10.txt --fabric fabric.txt
    tailback counters collection --fabric fabric.txt --out stalls
    tailback counters interfaces.csv.gz --fabric links.csv
    """
    with loading():
        from tailback.api.counters import counters as analyse_counters
        from tailback.cli.counters_screen import group_lines, screen
        from tailback.cli.jobs_screen import job_lines
        from tailback.cli.queues_screen import queues_screen
        from tailback.run.run import check_writable
    if out is not None:
        check_writable(out, force=force, sources=files)
    _refuse_idle(click.get_current_context(), out, fabric, jobs)
    analysis = analyse_counters(
        files,
        reader=reader,
        fabric=fabric,
        subsystems=subsystems,
        tick_ns=tick,
        every_ns=None if every is None else round(every),
        threshold=threshold / 100,
        last_ns=None if last is None else round(last),
        muted=muted,
        jobs=jobs,
        forwarding=forwarding,
        cluster=cluster,
        course=page is not None,
        levels=out is not None,
    )
    if page is not None:
        analysis.write_page(page)
    if out is not None:
        analysis.write(out, force=force, csv=csv)
    kind = analysis.verdict.kind if analysis.queues is None else analysis.queues.kind
    code = EXIT_UNDETERMINED if kind in ("rates", "unknown") else EXIT_OK
    if form == "json":
        return show(json.dumps(analysis.facts, indent=2), code)
    left_out, kinds = analysis.source.counters.left_out, analysis.source.kinds
    if analysis.queues is not None:
        paused = analysis.queues.kind == "paused"
        lines = queues_screen(
            analysis.queues,
            analysis.verdict,
            kinds,
            out,
            group_lines(analysis.verdict) if paused else [],
            left_out=left_out,
            verbose=verbose,
        )
    else:
        lines = screen(
            analysis.verdict,
            analysis.inventory,
            kinds,
            out,
            job_lines(analysis.jobs),
            left_out=left_out,
            verbose=verbose,
        )
    return show("\n".join(lines), code)


def _refuse_idle(
    context: click.Context, out: Path | None, fabric: Path | None, jobs: Path | None
) -> None:
    """Reject an option that has no effect without another one."""
    needs = {
        "subsystems": ("--fabric", fabric),
        "csv": ("--out", out),
        "forwarding": ("--jobs", jobs),
    }
    for name, (other, value) in needs.items():
        is_given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if is_given and value is None:
            option = {"subsystems": "subsystem"}.get(name, name)
            raise click.UsageError(f"--{option} has no effect without {other}: add it", context)
