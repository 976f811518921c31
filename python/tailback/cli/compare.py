"""``tailback compare``: two runs side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import OneOf, format_option
from tailback.cli.result import EXIT_OK, EXIT_UNDETERMINED
from tailback.cli.text import align_columns, wrap
from tailback.errors import TailbackError
from tailback.units import format_time, percent


@click.command(cls=GroupedHelp)
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
    type=OneOf(["svg", "pdf", "png"]),
    multiple=True,
    help="Also write every figure in this format there.",
)
@click.option("--force", is_flag=True, help="Overwrite the folder.")
def compare(
    before: Path, after: Path, form: str, out: Path | None, figures: tuple[str, ...], force: bool
) -> int:
    """Compare two runs: time, path length, congestion by tier, links and lines that changed.

    BEFORE and AFTER are runs of 'simulate' or results of 'diagnose'. With --out every view of the
    report is drawn as a difference, if both runs are of one fabric.

    Exit code 3: both are the same run, or of programs with other ranks or calls. Else 0.

    \b
    tailback compare diagnosis/run diagnosis/after --out changes
    """
    with loading():
        from tailback.api.compare import compare as api_compare
        from tailback.api.runs import require_packets
        from tailback.cli.runs import read_samples
        from tailback.run.run import check_writable
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
    return EXIT_UNDETERMINED if facts["unrelated"] else EXIT_OK


_TIERS, _PHASES, _LINKS, _CALLS = 4, 3, 4, 3
"""Rows of each table on the screen; JSON has all."""


def _lines(facts: dict[str, Any]) -> list[str]:
    """The screen: the verdict, figures of the run, links, lines, tiers and phases that changed."""
    from tailback.api.compare import summary_rows

    verdict = " ".join(filter(None, (facts["unrelated"], _verdict(*facts["elapsed_ps"]))))
    lines = wrap(verdict, first="COMPARE  ")
    before, after = facts["described"]
    if "fluid" in facts["models"] or any("extrapolated" in model for model in (before, after)):
        lines += [*wrap(f"before  {before}"), *wrap(f"after   {after}")]
    lines += ["", *align_columns(("", "before", "after", "change"), summary_rows(facts), " rrr")]
    links = [(link["name"], link["congested_fraction"], 0) for link in facts["links"]]
    tiers = [
        (f"tier {t['tier']} {t['direction']}", t["congested_fraction"], 1) for t in facts["tiers"]
    ]
    phases = [(f"phase {p['phase']}", p["congested_fraction"], 1) for p in facts["phases"]]
    lines += _table("congested fraction of link", [_fractions(*row) for row in links[:_LINKS]])
    stall = [
        (
            row["line"],
            *(_stall(value, facts["line_unit"]) for value in row["stall"]),
            _relative(*row["stall"]),
        )
        for row in facts["lines"][:_CALLS]
    ]
    lines += _table(
        "stall by line" if facts["line_unit"] == "ps" else "congested packets by line", stall
    )
    lines += _table("congested fraction of tier", [_fractions(*row) for row in tiers[:_TIERS]])
    return lines + _table("of phase", [_fractions(*row) for row in phases[:_PHASES]])


def _verdict(before_ps: int, after_ps: int) -> str:
    """Which of two runs is faster, and by how much of the first one's time."""
    times = f"{format_time(before_ps)} → {format_time(after_ps)}"
    if not before_ps or before_ps == after_ps:
        return f"Both take the same time ({times})."
    share = percent(abs(after_ps / before_ps - 1), 1)
    change = "more" if after_ps > before_ps else "less"
    return f"The second run takes {share} {change} time ({times})."


def _table(head: str, rows: list[tuple[str, str, str, str]]) -> list[str]:
    """Rows that a run has before and after, below a blank line; none without rows."""
    if not rows:
        return []
    return ["", *align_columns((head, "before", "after", "change"), rows, " rrr", names=(0,))]


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
