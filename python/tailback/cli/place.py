"""``tailback place``: make placements, compare them, write rank files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import format_option, quiet_option
from tailback.cli.progress import meter
from tailback.cli.source import allow_hosts_option, source_options
from tailback.cli.text import align_columns, command_lines, more_line, wrap
from tailback.errors import option
from tailback.names.display import printable
from tailback.units import format_time, percent

if TYPE_CHECKING:
    from tailback.api.place import PlacementResult


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
@click.option(
    "--congestion",
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="Measured congestion to avoid: a run, capture, samples or port counters.",
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
    congestion: Path | None,
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
    with loading():
        from tailback.api.candidates import require_placements
        from tailback.api.place import place as make_placements
        from tailback.run.run import check_writable
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
            congestion=congestion,
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
    for name, why in placed.left_out.items():
        click.echo(f"  {name} left out: {why}", err=True)
    click.echo("\n".join(_screen(placed, out, simulated)))


def _screen(placed: PlacementResult, out: Path | None, simulated: bool) -> list[str]:
    """The screen: the best placement, how to use it, all of them, notes."""
    lines = wrap(_verdict(placed.rows), first="BEST  ")
    if out is not None:
        lines += wrap(f"Rank files are in {printable(str(out))}. For one launcher each:")
        for file in placed.rank_files:
            lines += command_lines(file.command_from(out))
        for name, why in placed.no_rank_file.items():
            lines += wrap(f"no file for {name}: {why}")
    lines += ["", *_table(placed.rows), *more_line(len(placed.rows) - _SHOWN)]
    if not simulated:
        lines += wrap(_NOT_SIMULATED)
    notes = [*placed.skipped, *placed.notes, *filter(None, [placed.omitted])]
    for note in notes[:_NOTES]:
        lines += wrap(f"note: {note}")
    lines += more_line(len(notes) - _NOTES)
    if out is None and not placed.refused:
        lines += ["", "NEXT  add --out FOLDER for the rank files of the best placement"]
    return lines


def _verdict(rows: list[dict[str, Any]]) -> str:
    """The best placement beside the next best one, by simulated time or by the busiest link."""
    best, *others = rows
    key = "busiest_link_ps" if best["elapsed_ps"] is None else "elapsed_ps"
    what = "busiest link" if best["elapsed_ps"] is None else "simulated time"
    text = f"{best['placement']}: {what} {format_time(best[key])}"
    if others and others[0][key] == best[key]:
        text += f"; {others[0]['placement']} is as good"
    elif others:
        text += f"; next {others[0]['placement']}, {format_time(others[0][key])}"
    return text


_SHOWN, _NOTES = 8, 3
"""Placements and notes on the screen."""

_NOT_SIMULATED = (
    "Ordered by the time that the busiest link needs for its bytes at its own rate. Waiting and "
    "contention are not in it: --simulate orders by simulated time."
)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    table = [
        (
            row["placement"],
            "—" if row["elapsed_ps"] is None else format_time(row["elapsed_ps"]),
            format_time(row["busiest_link_ps"]),
            f"{row['path_length']:.3f}",
            percent(row["edge_cut"]),
        )
        for row in rows[:_SHOWN]
    ]
    return align_columns(
        ("placement", "time", "busiest link", "path length", "traffic between leaves"),
        table,
        " rrrr",
    )
