"""``tailback compare``: two runs side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tailback.api.compare import compare as api_compare
from tailback.api.compare import summary_rows
from tailback.api.runs import require_packets
from tailback.cli.option_types import format_option
from tailback.cli.runs import read_samples
from tailback.cli.text import align_columns, wrap
from tailback.errors import TailbackError
from tailback.run.run import check_writable
from tailback.units import format_time, percent


@click.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@format_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for compare.html, compare.json and changes.parquet.",
)
@click.option(
    "--figures",
    type=click.Choice(["svg", "pdf", "png"]),
    multiple=True,
    help="Also write every figure in this format there.",
)
@click.option("--force", is_flag=True, help="Overwrite the folder.")
def compare(
    before: Path, after: Path, form: str, out: Path | None, figures: tuple[str, ...], force: bool
) -> None:
    """Compare two runs: time, path length, congestion by tier, links and lines that changed.

    BEFORE and AFTER are runs of 'simulate' or results of 'diagnose'. With --out every view of the
    report is drawn as a difference, if both runs are of one fabric.

    \b
    tailback compare diagnosis/run diagnosis/after --out changes
    """
    if out is not None:
        check_writable(out, force=force, sources=[before, after])
    elif figures:
        raise TailbackError("--figures needs --out", remedy="name a folder: --out changes")
    runs = read_samples(before), read_samples(after)
    comparison = replace(api_compare(*runs), sources=(before, after))
    if out is not None:
        for run, folder in zip(runs, (before, after), strict=True):
            require_packets(run, folder, "draw")
        comparison.write(out, force=force, figures=figures)
    facts = comparison.facts
    if form == "json":
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo("\n".join(_lines(facts)))
        if out is not None:
            click.echo(f"\nthe differences: {out / 'compare.html'}")


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = align_columns(("", "before", "after", "change"), summary_rows(facts), " rrr")
    before, after = facts["described"]
    if "fluid" in facts["models"]:
        return [f"before  {before}", f"after   {after}", "", *lines]
    if any("extrapolated" in description for description in facts["described"]):
        lines = [*wrap(f"before  {before}"), *wrap(f"after   {after}"), "", *lines]
    tiers = [
        (f"tier {t['tier']} {t['direction']}", t["congested_fraction"], 1) for t in facts["tiers"]
    ]
    phases = [(f"phase {p['phase']}", p["congested_fraction"], 1) for p in facts["phases"]]
    links = [(link["name"], link["congested_fraction"], 0) for link in facts["links"]]
    for head, rows in (("congested fraction", tiers), ("by phase", phases[:8]), ("link", links)):
        if rows:
            cells = [_fractions(*row) for row in rows]
            lines += [
                "",
                *align_columns((head, "before", "after", "change"), cells, " rrr", names=(0,)),
            ]
    stall = [
        (
            row["line"],
            *(_stall(value, facts["line_unit"]) for value in row["stall"]),
            _relative(*row["stall"]),
        )
        for row in facts["lines"][:5]
    ]
    if stall:
        head = "stall by line" if facts["line_unit"] == "ps" else "congested packets by line"
        lines += [
            "",
            *align_columns((head, "before", "after", "change"), stall, " rrr", names=(0,)),
        ]
    return lines


def _fractions(name: str, both: Sequence[float | None], digits: int) -> tuple[str, str, str, str]:
    """A row of congested fractions in per cent, None where a run has no samples."""
    words = ["–" if value is None else percent(value, digits) for value in both]
    a, b = both
    change = "" if a is None or b is None else f"{100 * (b - a):+.{digits}f} points"
    return name, words[0], words[1], change


def _stall(value: float, unit: str) -> str:
    return format_time(value) if unit == "ps" else f"{value:,.0f}"


def _relative(before: float, after: float) -> str:
    return percent(after / before - 1, sign="+") if before else "new"
