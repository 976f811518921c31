"""``tailback compare``: two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import polars as pl

from tailback.cli.models import congestion_of, described, model_of
from tailback.cli.render import columns, short
from tailback.run import Run
from tailback.telemetry.estimate import Selection, link_estimates, select
from tailback.units import format_time


@click.command(short_help="Compare two runs.")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def compare(before: Path, after: Path, form: str) -> None:
    """Compare two runs: time, path length, congestion by tier, links that changed.

    \b
    tailback compare diagnosis/run diagnosis/after
    """
    facts = compare_runs(_read(before), _read(after))
    if form == "json":
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo("\n".join(_lines(facts)))


def _read(path: Path) -> Run:
    return Run.read(path / "run" if (path / "diagnosis.json").is_file() else path)


def compare_runs(before: Run, after: Run) -> dict[str, Any]:
    """What differs between two runs.

    Returns:
        ``models``, ``elapsed_ps``, ``average_path_length`` and ``congested_hop_fraction`` as
        ``[before, after]``, congestion null where a model knows none; ``tiers``: congested fraction
        by tier and direction; ``links``: those whose congested fraction changed most (both only
        where both models know it, links only when both runs are of the same).
    """
    facts: dict[str, Any] = {
        "names": [before.scenario.name, after.scenario.name],
        "models": [model_of(run) for run in (before, after)],
        "described": [described(run) for run in (before, after)],
        "elapsed_ps": [before.elapsed_ps, after.elapsed_ps],
        "average_path_length": [run.summary["average_path_length"] for run in (before, after)],
        "congested_hop_fraction": [congestion_of(run) for run in (before, after)],
        "tiers": [],
        "links": [],
    }
    if "fluid" in facts["models"]:
        return facts
    facts["tiers"] = _tiers(before, after)
    same = (
        before.tables["links"]
        .select("src_name", "src_port")
        .equals(after.tables["links"].select("src_name", "src_port"))
    )
    if same:
        facts["links"] = _links(before, after)
    return facts


def _estimates(run: Run) -> pl.DataFrame:
    found = link_estimates(select(run.tables, Selection()))
    return (
        run.tables["links"]
        .join(found, on="link", how="left")
        .with_columns(pl.col("packets", "congested", "fraction").fill_null(0.0))
    )


def _tiers(before: Run, after: Run) -> list[dict[str, Any]]:
    frames = [
        _estimates(run)
        .group_by("tier", "direction")
        .agg(pl.col("congested").sum() / pl.col("packets").sum().clip(lower_bound=1.0))
        for run in (before, after)
    ]
    joined = frames[0].join(frames[1], on=["tier", "direction"], how="full", suffix="_after",
                            coalesce=True)  # fmt: skip
    return [
        {"tier": t, "direction": d, "congested_fraction": [min(a or 0.0, 1.0), min(b or 0.0, 1.0)]}
        for t, d, a, b in joined.sort("tier", "direction").iter_rows()
    ]


def _links(before: Run, after: Run, most: int = 10) -> list[dict[str, Any]]:
    columns_kept = ["link", "src_name", "src_port", "dst_name", "fraction"]
    joined = (
        _estimates(before)
        .select(columns_kept)
        .join(_estimates(after).select("link", after="fraction"), on="link")
    )
    joined = joined.with_columns(change=pl.col("after") - pl.col("fraction"))
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


def _lines(facts: dict[str, Any]) -> list[str]:
    (t0, t1), (l0, l1) = facts["elapsed_ps"], facts["average_path_length"]
    change = f"{100 * (t1 / t0 - 1):+.1f} %" if t0 else ""
    rows = [
        ("elapsed", format_time(t0), format_time(t1), change),
        ("path length", f"{l0:.3f}", f"{l1:.3f}", f"{l1 - l0:+.3f}"),
    ]
    c0, c1 = facts["congested_hop_fraction"]
    if c0 is None or c1 is None:
        known = ["not known" if c is None else f"{100 * c:.2f} %" for c in (c0, c1)]
        rows.append(("congested hops", known[0], known[1], ""))
    else:
        rows.append(
            ("congested hops", f"{100 * c0:.2f} %", f"{100 * c1:.2f} %",
             f"{100 * (c1 - c0):+.2f} points")
        )  # fmt: skip
    lines = columns(("", "before", "after", "change"), rows, " rrr")
    if "fluid" in facts["models"]:
        before, after = facts["described"]
        return [f"before  {before}", f"after   {after}", "", *lines]
    rows = []
    for tier in facts["tiers"]:
        a, b = (100 * f for f in tier["congested_fraction"])
        name = f"tier {tier['tier']} {tier['direction']}"
        rows.append((name, f"{a:.1f} %", f"{b:.1f} %", f"{b - a:+.1f} points"))
    lines += ["", *columns(("congested fraction", "before", "after", "change"), rows, " rrr")]
    rows = []
    for link in facts["links"]:
        a, b = (100 * f for f in link["congested_fraction"])
        rows.append((short(link["name"], 40), f"{a:.0f} %", f"{b:.0f} %", f"{b - a:+.0f} points"))
    if rows:
        lines += ["", *columns(("link", "before", "after", "change"), rows, " rrr")]
    return lines
