"""``tailback place``: make placements, compare them, write rank files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from tailback.cli.candidates import check_names, make_candidates, worth_trying
from tailback.cli.progress import meter
from tailback.cli.rankfiles import from_here, rank_files
from tailback.cli.source import allow_hosts_option, error_context, scenario_from, source_options
from tailback.cli.text import align_columns, printable, wrap
from tailback.errors import PlacementError
from tailback.evaluate import Change
from tailback.placement import RankFile, edge_cut, left_out, path_length
from tailback.run import AtomicDirectory, check_writable
from tailback.simulate import PreparedScenario, make_evaluate, prepare
from tailback.units import format_time, percent


@click.command()
@source_options
@allow_hosts_option
@click.option(
    "--method", "methods", multiple=True, metavar="NAME",
    help="Placement to make; repeat for several (default: all sensible ones).",
)  # fmt: skip
@click.option("--simulate", "simulated", is_flag=True, help="Also simulate each one.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the best one's rank files."
)
@click.option("--force", is_flag=True, help="Replace that folder if Tailback wrote it.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="What to print.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
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

    Best is the shortest simulated time with --simulate, the shortest average path without.

    \b
    tailback place TRACE --fabric FABRIC --method tile --out ranks
    """
    check_names("--method", methods)
    if out is not None:
        check_writable(out, force=force, sources=[source["source"]])
    with meter(quiet) as progress:
        scenario = scenario_from(**source)
        with error_context(**source, allow_hosts=allow_hosts):
            prepared = prepare(scenario, allow_hosts)
        names = methods or worth_trying(prepared)
        made, errors = make_candidates(prepared, names, None, progress.step)
        if methods and errors:
            name, error = errors[0]
            error.place = ": ".join(filter(None, (f"--method {name}", error.place)))
            raise error.located(source["source"])
        if out is not None:
            for node in made.values():
                rank_files(prepared, node)  # what cannot be written is refused before it is judged
        rows = []
        evaluate = make_evaluate(prepared, progress.watch)
        for number, (name, node) in enumerate(made.items()):
            progress.step(f"judging {name}", number / len(made))
            elapsed = evaluate(Change(placement=node)).elapsed_ps if simulated else None
            rows.append({"placement": name, **_judge(prepared, node), "elapsed_ps": elapsed})
    if not rows:
        raise PlacementError("no placement fits the job", remedy="see 'tailback list placement'")
    rows.sort(key=lambda row: (row["elapsed_ps"] or 0, row["path_length"]))
    best = rows[0]["placement"]
    files, unsaid = _files(prepared, made[best])
    if out is not None:
        with AtomicDirectory(out, force=force) as folder:
            for file in files:
                (folder / file.file).write_text(file.text, encoding="utf-8")
            judged = json.dumps(rows, indent=2) + "\n"
            (folder / "placement.json").write_text(judged, encoding="utf-8")
    if form == "json":
        commands = {file.writer: _command(file, out) for file in files}
        facts = {
            "best": best, "placements": rows, "commands": commands, "no_rank_file": unsaid,
            "notes": prepared.notes,
        }  # fmt: skip
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo("\n".join(_lines(rows)))
    if omitted := left_out(prepared.observed.section.hosts, prepared.fabric):
        click.echo("\n".join(wrap(f"note: {omitted}")))
    for name, error in errors:
        click.echo(f"  {name} left out: {error.message}", err=True)
    if out is not None:
        click.echo(f"\nBEST  {best}; rank files in {printable(str(out))}:")
        table = [(file.file, printable(_command(file, out))) for file in files]
        click.echo("\n".join(align_columns(("file", "use it with"), table)))
        for name, why in unsaid.items():
            click.echo("\n".join(wrap(f"no file for {name}: {why}")))


def _command(file: RankFile, out: Path | None) -> str:
    """How a rank file is used: from here, where it has been written."""
    return file.command if out is None else from_here(file.command, file.file, out)


def _files(
    prepared: PreparedScenario, node: NDArray[np.uint32]
) -> tuple[list[RankFile], dict[str, str]]:
    """Rank files of a placement, and why others cannot be.

    None, and a word on stderr, where no launcher takes its hosts.
    """
    try:
        return rank_files(prepared, node)
    except PlacementError as error:
        click.echo(f"  no rank file: {printable(error.message)}", err=True)
        return [], {}


def _judge(prepared: PreparedScenario, node: NDArray[np.uint32]) -> dict[str, Any]:
    """By packets: a sum of eight bytes loads the network less than a face of megabytes."""
    fabric, program = prepared.fabric, prepared.observed.program
    packet = prepared.scenario.engine.packet
    return {
        "path_length": path_length(fabric, program, node, "packets", packet),
        "edge_cut": edge_cut(fabric, program, node, "leaf", "packets", packet),
    }


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    table = [
        (
            row["placement"],
            "—" if row["elapsed_ps"] is None else format_time(row["elapsed_ps"]),
            f"{row['path_length']:.3f}",
            percent(row["edge_cut"]),
        )
        for row in rows
    ]
    return align_columns(
        ("placement", "time", "path length", "traffic between leaves"), table, " rrr"
    )
