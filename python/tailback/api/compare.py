"""Comparison of two runs: ``tb.compare`` and ``tailback compare``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tailback.api.run import table_html
from tailback.api.runs import (
    FolderResult,
    congestion_of,
    model_description,
    model_of,
    require_packets,
    with_samples,
)
from tailback.errors import known_keywords
from tailback.report import (
    FigureData,
    attribute,
    call_site_changes,
    change_table,
    export_figures,
    same_fabric,
    write_comparison,
)
from tailback.report.difference import link_change, phases_of
from tailback.run.run import Run
from tailback.sources.source import read_base_run, report_address
from tailback.telemetry.estimate import Selection, link_estimates, select
from tailback.units import counted, format_time, percent

NAMES = ("before", "after")
"""Names of the two runs, as on the command line."""


@dataclass(frozen=True, eq=False)
class Comparison(FolderResult):
    """Differences between two runs.

    ``write`` writes ``compare.html``, ``compare.json`` and ``changes.parquet``.

    Attributes:
        before: The first run.
        after: The second run.
        facts: The differences as plain values, as ``tailback compare --format json`` prints them.
        sources: Folders of the two runs, to whose reports the page links; None if not known.
    """

    before: Run
    after: Run
    facts: dict[str, Any]
    sources: tuple[Path | None, Path | None] = (None, None)

    def __repr__(self) -> str:
        return f"<Comparison of {self.before!r} and {self.after!r}>"

    @property
    def frame(self) -> pl.DataFrame:
        """Links of both runs as table ``changes`` (docs/reference/tables.md); same fabric only."""
        return change_table(FigureData(self.before), FigureData(self.after))

    @property
    def links(self) -> pl.DataFrame:
        """The links that changed most, with congested fraction ``before`` and ``after``."""
        schema = {"link": pl.UInt32, "name": pl.String, "before": pl.Float64, "after": pl.Float64}
        rows = [
            (row["link"], row["name"], *row["congested_fraction"]) for row in self.facts["links"]
        ]
        return pl.DataFrame(rows, schema, orient="row")

    def to_pandas(self) -> Any:
        """:attr:`frame` as a pandas data frame; needs pandas and pyarrow."""
        return self.frame.to_pandas()

    def _write_parts(self, folder: Path, figures: Sequence[str]) -> None:
        for run, name in zip((self.before, self.after), NAMES, strict=True):
            require_packets(run, Path(name), "draw")
        # The folder is a sibling of the one it becomes: relative addresses are the same.
        page = folder / "compare.html"
        first, other = ("" if of is None else report_address(of, page) for of in self.sources)
        _write(page, self, tuple(figures), (first, other))

    def _repr_html_(self) -> str:
        rows = {
            name: f"{first} → {other}  {change}"
            for name, first, other, change in summary_rows(self.facts)
        }
        for name, run in zip(NAMES, (self.before, self.after), strict=True):
            if run.skip_notes:
                rows[f"note on {name}"] = "; ".join(run.skip_notes)
        return table_html(" and ".join(self.facts["names"]), rows)


@known_keywords()
def compare(before: Run | str | Path, after: Run | str | Path) -> Comparison:
    """Compare two runs: time, path length, congestion by tier, links and lines that changed.

    Args:
        before: A run, or the folder of a run or diagnosis.
        after: Another one. Links and lines are compared if both have the same fabric.

    Raises:
        RunError: A folder holds no run, or a damaged one.

    Example:
        >>> changed = tb.compare("diagnosis/run", "diagnosis/after")
        >>> changed.facts["elapsed_ps"], changed.links
        >>> changed.write("changes")
    """
    earlier, other = (
        with_samples(run if isinstance(run, Run) else read_base_run(run)) for run in (before, after)
    )
    first, second = (None if isinstance(run, Run) else Path(run) for run in (before, after))
    return Comparison(earlier, other, compare_runs(earlier, other), (first, second))


def _write(
    page: Path, comparison: Comparison, figures: tuple[str, ...], reports: tuple[str, str]
) -> None:
    """The page, the facts and the table of a comparison."""
    folder, before, after = page.parent, comparison.before, comparison.after
    rows = [
        (name.capitalize(), first, other, change)
        for name, first, other, change in summary_rows(comparison.facts)
    ]
    write_comparison(page, before, after, rows, names=NAMES, reports=reports)
    facts = json.dumps(comparison.facts, indent=2) + "\n"
    (folder / "compare.json").write_text(facts, encoding="utf-8")
    change_table(FigureData(before), FigureData(after)).write_parquet(folder / "changes.parquet")
    if figures:
        export_figures(before, None, folder / "figures", figures, after=after, names=NAMES)


def compare_runs(before: Run, after: Run) -> dict[str, Any]:
    """Differences between two runs.

    Returns:
        ``unrelated``: why their times do not compare, empty if they do; ``models``, ``elapsed_ps``,
        ``average_path_length`` and ``congested_hop_fraction`` as ``[before, after]``, with null
        congestion for a model without queues; ``tiers``: congested fraction by tier and direction;
        ``phases``: by phase; ``links``: those whose congested fraction certainly changed most, with
        ``least_change``, the bound of its 95 % interval nearer to zero; ``lines``: stall by line of
        the program, in ``line_unit``. Tiers and phases need two packet runs; links and lines also
        the same fabric, and samples in both. A fraction is null if a run has no samples of the
        tier, phase or link.
    """
    facts: dict[str, Any] = {
        "unrelated": why_unrelated(before, after),
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
        facts["links"] = _links(*both)
        facts |= _line_changes(before, after)
    return facts


def why_unrelated(before: Run, after: Run) -> str:
    """Why two runs say nothing of one another, as a sentence; empty if they do.

    They are one run, or of programs with other ranks or messages between other phases.
    """
    if before.scenario == after.scenario and all(
        before.tables[name].equals(after.tables[name]) for name in ("ranks", "messages", "samples")
    ):
        return "Both are the same run."
    ranks, calls = zip(*(_ranks_and_calls(run) for run in (before, after)), strict=True)
    names = before.scenario.name, after.scenario.name
    if ranks[0] != ranks[1]:
        return (
            f"These are not runs of one program: {names[0]!r} has {counted(ranks[0], 'rank')}, "
            f"{names[1]!r} {ranks[1]:,}."
        )
    if all(calls) and calls[0].isdisjoint(calls[1]):
        return f"These are not runs of one program: {names[0]!r} and {names[1]!r} share no call."
    return ""


def _ranks_and_calls(run: Run) -> tuple[int, set[tuple[Any, ...]]]:
    """Number of observed ranks, and their phases and calls."""
    observed = run.tables["jobs"].filter("observed").select("job")
    ranks = run.tables["ranks"].join(observed, on="job", how="semi").height
    labels = run.tables["labels"].join(observed, on="job", how="semi")
    return ranks, set(labels.select("phase", "call").iter_rows())


def _phases(before: FigureData, after: FigureData) -> list[dict[str, Any]]:
    """Congested fraction of all packet hops by phase; phases of the first run first."""
    out = []
    for phase in phases_of(before, after):
        loads = [evidence.load(phase) for evidence in (before, after)]
        met = [
            float(load.congested_weight.sum() / load.weight.sum()) if load.weight.any() else None
            for load in loads
        ]
        out.append({"phase": phase, "congested_fraction": met})
    return out


def _line_changes(before: Run, after: Run, most: int = 10) -> dict[str, Any]:
    attributions = [attribute(run) for run in (before, after)]
    rows = [
        {"line": line.line, "phase": line.phase, "stall": [line.before, line.after]}
        for line in call_site_changes(*attributions)[:most]
    ]
    return {"lines": rows, "line_unit": attributions[0].unit if rows else None}


def _estimates(run: Run) -> pl.DataFrame:
    """Table ``links`` with estimates, null without samples."""
    estimates = link_estimates(select(run.tables, Selection()))
    return run.tables["links"].join(estimates, on="link", how="left")


def _tiers(before: Run, after: Run) -> list[dict[str, Any]]:
    """Congested fraction by tier and direction, if either run has samples there."""
    frames = [
        _estimates(run)
        .filter(pl.col("packets") > 0)
        .group_by("tier", "direction")
        .agg((pl.col("congested").sum() / pl.col("packets").sum()).clip(upper_bound=1.0))
        for run in (before, after)
    ]
    joined = frames[0].join(
        frames[1], on=["tier", "direction"], how="full", suffix="_after", coalesce=True
    )
    return [
        {"tier": tier, "direction": direction, "congested_fraction": both}
        for tier, direction, *both in joined.sort("tier", "direction").iter_rows()
    ]


def _links(before: FigureData, after: FigureData, most: int = 10) -> list[dict[str, Any]]:
    """Links whose congested fraction certainly changed most: by the 95 % bound nearer to zero.

    Fractions are shrunk estimates, as in ``changes.parquet``. A run that does not use a link has no
    congestion there, and its fraction is null.
    """
    change = link_change(before, after)
    least = np.abs(np.nan_to_num(change.certain_change))
    size = np.abs(np.nan_to_num(change.value))
    order = np.lexsort((np.arange(len(size)), -size, -least))
    fractions = [load.fraction for load in (change.before, change.after)]
    return [
        {
            "link": link,
            "name": before.link_names[link],
            "congested_fraction": [
                None if np.isnan(of[link]) else float(of[link]) for of in fractions
            ],
            "least_change": float(change.certain_change[link]),
        }
        for link in order[:most].tolist()
        if size[link] > 0
    ]


def summary_rows(facts: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Name, before, after and change of each figure of the whole run."""
    (t0, t1), (l0, l1) = facts["elapsed_ps"], facts["average_path_length"]
    change = percent(t1 / t0 - 1, 1, "+") if t0 else ""
    rows = [
        ("elapsed", format_time(t0), format_time(t1), change),
        ("path length", f"{l0:.3f}", f"{l1:.3f}", f"{l1 - l0:+.3f}"),
    ]
    c0, c1 = facts["congested_hop_fraction"]
    if c0 is None or c1 is None:
        fractions = ["not known" if c is None else percent(c, 2) for c in (c0, c1)]
        rows.append(("congested hops", fractions[0], fractions[1], ""))
    else:
        rows.append(
            ("congested hops", percent(c0, 2), percent(c1, 2), f"{100 * (c1 - c0):+.2f} points")
        )
    return rows
