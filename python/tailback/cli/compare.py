"""``tailback compare``: two runs side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import polars as pl

from tailback.cli.runs import (
    congestion_of,
    model_description,
    model_of,
    read_samples,
    require_packets,
)
from tailback.cli.text import align_columns, shorten_middle
from tailback.errors import TailbackError
from tailback.report import (
    FigureData,
    attribute,
    call_site_changes,
    change_table,
    export_figures,
    same_fabric,
    write_comparison,
)
from tailback.report.difference import phases_of
from tailback.run import AtomicDirectory, Run, check_writable
from tailback.telemetry.estimate import Selection, link_estimates, select
from tailback.units import format_time, percent

NAMES = ("before", "after")
"""What the two runs are called, as on the command line."""


@click.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="What to print.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path),
              help="Folder for compare.html, compare.json and changes.parquet.")  # fmt: skip
@click.option("--figures", type=click.Choice(["svg", "pdf", "png"]), multiple=True,
              help="Also write every figure in this format there.")  # fmt: skip
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
    runs = read_samples(before), read_samples(after)
    facts = compare_runs(*runs)
    if out is not None:
        for run, folder in zip(runs, (before, after), strict=True):
            require_packets(run, folder, "draw")
        with AtomicDirectory(out, force=force) as folder:
            _write(folder, *runs, facts, figures)
    elif figures:
        raise TailbackError("--figures needs --out", remedy="name a folder: --out changes")
    if form == "json":
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo("\n".join(_lines(facts)))
        if out is not None:
            click.echo(f"\nthe differences: {out / 'compare.html'}")


def _write(
    folder: Path, before: Run, after: Run, facts: dict[str, Any], figures: tuple[str, ...]
) -> None:
    """The page, the facts and the table of a comparison."""
    rows = [(name.capitalize(), one, other, change) for name, one, other, change in _short(facts)]
    write_comparison(folder / "compare.html", before, after, rows, names=NAMES)
    (folder / "compare.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    change_table(FigureData(before), FigureData(after)).write_parquet(folder / "changes.parquet")
    if figures:
        export_figures(before, None, folder / "figures", figures, after=after, names=NAMES)


def compare_runs(before: Run, after: Run) -> dict[str, Any]:
    """What differs between two runs.

    Returns:
        ``models``, ``elapsed_ps``, ``average_path_length`` and ``congested_hop_fraction`` as
        ``[before, after]``, congestion null where a model knows none; ``tiers``: congested fraction
        by tier and direction; ``phases``: by phase; ``links``: those whose congested fraction
        changed most; ``lines``: stall by line of the program, in ``line_unit``. All of these only
        where both models know them, links and lines only when both runs are of one fabric and
        have samples. A fraction is null where a run has no samples of the tier, phase or link.
    """
    facts: dict[str, Any] = {
        "names": [before.scenario.name, after.scenario.name],
        "models": [model_of(run) for run in (before, after)],
        "described": [model_description(run) for run in (before, after)],
        "elapsed_ps": [before.elapsed_ps, after.elapsed_ps],
        "average_path_length": [run.summary["average_path_length"] for run in (before, after)],
        "congested_hop_fraction": [congestion_of(run) for run in (before, after)],
        "tiers": [],
        "phases": [],
        "links": [],
        "lines": [],
        "line_unit": None,
    }
    if "fluid" in facts["models"]:
        return facts
    facts["tiers"] = _tiers(before, after)
    both = FigureData(before), FigureData(after)
    facts["phases"] = _phases(*both)
    if same_fabric(*both) and all(evidence.measured for evidence in both):
        facts["links"] = _links(before, after)
        facts |= _hot_lines(before, after)
    return facts


def _phases(before: FigureData, after: FigureData) -> list[dict[str, Any]]:
    """Congested fraction of all packets' hops by phase, those of the first run first."""
    out = []
    for phase in phases_of(before, after):
        loads = [evidence.load(phase) for evidence in (before, after)]
        met = [
            float(load.congested_weight.sum() / load.weight.sum()) if load.weight.any() else None
            for load in loads
        ]
        out.append({"phase": phase, "congested_fraction": met})
    return out


def _hot_lines(before: Run, after: Run, most: int = 10) -> dict[str, Any]:
    found = [attribute(run) for run in (before, after)]
    rows = [
        {"line": line.line, "phase": line.phase, "stall": [line.before, line.after]}
        for line in call_site_changes(*found)[:most]
    ]
    return {"lines": rows, "line_unit": found[0].unit if rows else None}


def _estimates(run: Run) -> pl.DataFrame:
    """Table ``links`` with what was sampled there, null where nothing was."""
    found = link_estimates(select(run.tables, Selection()))
    return run.tables["links"].join(found, on="link", how="left")


def _tiers(before: Run, after: Run) -> list[dict[str, Any]]:
    """Congested fraction by tier and direction, of those that either run was sampled on."""
    frames = [
        _estimates(run)
        .filter(pl.col("packets") > 0)
        .group_by("tier", "direction")
        .agg((pl.col("congested").sum() / pl.col("packets").sum()).clip(upper_bound=1.0))
        for run in (before, after)
    ]
    joined = frames[0].join(frames[1], on=["tier", "direction"], how="full", suffix="_after",
                            coalesce=True)  # fmt: skip
    return [
        {"tier": tier, "direction": direction, "congested_fraction": both}
        for tier, direction, *both in joined.sort("tier", "direction").iter_rows()
    ]


def _links(before: Run, after: Run, most: int = 10) -> list[dict[str, Any]]:
    """Links whose congested fraction changed most; one without samples counts as 0, as in --out."""
    columns_kept = ["link", "src_name", "src_port", "dst_name", "fraction"]
    joined = (
        _estimates(before)
        .select(columns_kept)
        .join(_estimates(after).select("link", after="fraction"), on="link")
    )
    joined = joined.with_columns(
        change=pl.col("after").fill_null(0.0) - pl.col("fraction").fill_null(0.0)
    )
    joined = joined.filter(pl.col("change").abs() > 0)
    joined = joined.sort(pl.col("change").abs(), "link", descending=[True, False]).head(most)
    return [
        {
            "link": row["link"],
            "name": f"{row['src_name']}[{row['src_port']}] → {row['dst_name']}",
            "congested_fraction": [row["fraction"], row["after"]],
        }
        for row in joined.iter_rows(named=True)
    ]


def _short(facts: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Name, before, after and change of what describes a run as a whole."""
    (t0, t1), (l0, l1) = facts["elapsed_ps"], facts["average_path_length"]
    change = percent(t1 / t0 - 1, 1, "+") if t0 else ""
    rows = [
        ("elapsed", format_time(t0), format_time(t1), change),
        ("path length", f"{l0:.3f}", f"{l1:.3f}", f"{l1 - l0:+.3f}"),
    ]
    c0, c1 = facts["congested_hop_fraction"]
    if c0 is None or c1 is None:
        known = ["not known" if c is None else percent(c, 2) for c in (c0, c1)]
        rows.append(("congested hops", known[0], known[1], ""))
    else:
        rows.append(
            ("congested hops", percent(c0, 2), percent(c1, 2),
             f"{100 * (c1 - c0):+.2f} points")
        )  # fmt: skip
    return rows


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = align_columns(("", "before", "after", "change"), _short(facts), " rrr")
    if "fluid" in facts["models"]:
        before, after = facts["described"]
        return [f"before  {before}", f"after   {after}", "", *lines]
    tiers = [(f"tier {t['tier']} {t['direction']}", t["congested_fraction"], 1)
             for t in facts["tiers"]]  # fmt: skip
    phases = [(f"phase {p['phase']}", p["congested_fraction"], 1) for p in facts["phases"]]
    links = [(link["name"], link["congested_fraction"], 0) for link in facts["links"]]
    for head, rows in (("congested fraction", tiers), ("by phase", phases[:8]), ("link", links)):
        if rows:
            found = [_fractions(*row) for row in rows]
            lines += ["", *align_columns((head, "before", "after", "change"), found, " rrr")]
    stall = [
        (shorten_middle(row["line"], 40), *(_stall(value, facts["line_unit"]) for value in
         row["stall"]), _relative(*row["stall"]))
        for row in facts["lines"][:5]
    ]  # fmt: skip
    if stall:
        head = "stall by line" if facts["line_unit"] == "ps" else "congested packets by line"
        lines += ["", *align_columns((head, "before", "after", "change"), stall, " rrr")]
    return lines


def _fractions(name: str, both: Sequence[float | None], digits: int) -> tuple[str, str, str, str]:
    """A row of congested fractions in per cent, None where a run has no samples."""
    words = ["–" if value is None else percent(value, digits) for value in both]
    a, b = both
    change = "" if a is None or b is None else f"{100 * (b - a):+.{digits}f} points"
    return shorten_middle(name, 40), words[0], words[1], change


def _stall(value: float, unit: str) -> str:
    return format_time(value) if unit == "ps" else f"{value:,.0f}"


def _relative(before: float, after: float) -> str:
    return percent(after / before - 1, sign="+") if before else "new"
