"""``tailback place``: make placements, compare them, write rank files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tailback.api.candidates import require_placements
from tailback.api.place import place as make_placements
from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.option_types import format_option, quiet_option
from tailback.cli.progress import meter
from tailback.cli.source import allow_hosts_option, source_options
from tailback.cli.text import align_columns, wrap
from tailback.errors import option
from tailback.names.display import printable
from tailback.run.run import check_writable
from tailback.units import format_time, percent


@click.command(cls=GroupedHelp)
@source_options
@allow_hosts_option
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Placement to compute; repeat for several (default: all that apply).",
)
@click.option("--simulate", "simulated", is_flag=True, help="Also simulate each one.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the best one's rank files."
)
@click.option("--force", is_flag=True, help="Replace that folder if Tailback wrote it.")
@format_option
@quiet_option
def place(
    allow_hosts: str | None,
    methods: tuple[str, ...],
    simulated: bool,
    out: Path | None,
    force: bool,
    form: str,
    quiet: bool,
    **source: Any,
) -> None:
    """Place the ranks of a job and compare the results.

    Best is the shortest simulated time with --simulate. Without it, it is the placement whose
    busiest link needs the least time for its bytes, which leaves out waiting and contention.

    \b
    tailback place TRACE --fabric FABRIC --method tile --out ranks
    """
    require_placements(option("methods"), methods)
    path = source.pop("source")
    if out is not None:
        check_writable(out, force=force, sources=[path])
    with meter(quiet) as progress:
        placed = make_placements(
            path,
            methods=methods,
            simulate=simulated,
            allow_hosts=allow_hosts,
            require_rank_files=out is not None,
            progress=progress.step,
            watch=progress.watch,
            **source,
        )
    if placed.refused:
        click.echo(f"  no rank file: {printable(placed.refused)}", err=True)
    if out is not None:
        placed.write(out, force=force)
    if form == "json":
        files = [] if out is None else placed.rank_files  # Without a folder, none is written.
        commands = {file.writer: file.command_from(out) for file in files if out}
        facts = {
            "best": placed.best,
            "placements": placed.rows,
            "commands": commands,
            "no_rank_file": placed.no_rank_file,
            "notes": placed.notes,
            "skipped": placed.skipped,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo("\n".join(_lines(placed.rows)))
    if not simulated:
        click.echo("\n".join(wrap(_NOT_SIMULATED)))
    for note in [*placed.skipped, *placed.notes]:
        click.echo("\n".join(wrap(f"note: {note}")))
    if placed.omitted:
        click.echo("\n".join(wrap(f"note: {placed.omitted}")))
    for name, why in placed.left_out.items():
        click.echo(f"  {name} left out: {why}", err=True)
    if out is not None:
        click.echo(f"\nBEST  {placed.best}; rank files in {printable(str(out))}:")
        table = [(file.file, printable(file.command_from(out))) for file in placed.rank_files]
        click.echo("\n".join(align_columns(("file", "use it with"), table)))
        for name, why in placed.no_rank_file.items():
            click.echo("\n".join(wrap(f"no file for {name}: {why}")))


_NOT_SIMULATED = (
    "Ordered by the time that the busiest link needs for its bytes at its own rate. Waiting and "
    "contention are not in it: --simulate orders by simulated time."
)


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    table = [
        (
            row["placement"],
            "—" if row["elapsed_ps"] is None else format_time(row["elapsed_ps"]),
            format_time(row["busiest_link_ps"]),
            f"{row['path_length']:.3f}",
            percent(row["edge_cut"]),
        )
        for row in rows
    ]
    return align_columns(
        ("placement", "time", "busiest link", "path length", "traffic between leaves"),
        table,
        " rrrr",
    )
