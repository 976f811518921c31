"""The first case study: the 2-D stencil on Tapered, thesis section 4.2."""

from __future__ import annotations

import polars as pl

from studies.taffet2019.case_figures import Drawing
from studies.taffet2019.case_model import EXAMPLES, Found, Row, busy_gbps, diagnose, estimates
from studies.taffet2019.table_4_1 import ROWS
from tailback import Run, load_scenario
from tailback.evaluate import Change
from tailback.placement import place
from tailback.simulation import make_evaluate, prepare
from tailback.units import format_time

SCENARIO = "stencil2d/stencil2d.toml"
LINK_B = ("leaf043", "agg175")
LINK_C = ("agg175", "leaf045")
FIGURES = {"random": "4.10", "rcm": "4.5", "metis": "4.6", "incremental": "4.7", "tile": "4.9"}


def stencil2d() -> Found:
    """§4.2: four neighbours on a 64 × 72 grid, seven mappings."""
    said, run, _ = diagnose(SCENARIO, "placement", "--seeds", "1", "--method", "tile")
    case = Found("stencil2d", answers=[said])
    prepared = prepare(load_scenario(EXAMPLES / SCENARIO))
    evaluate = make_evaluate(prepared)
    case.drawings = [
        Drawing("stencil2d-row-major", "Figure 4.1: row-major, the whole run", run),
        Drawing("stencil2d-plus-y", "Figure 4.2: row-major, phase +y", run, "+y"),
    ]
    for title, theirs, path, name, options, _ in ROWS:
        node = place(name, prepared.observed.problem, options)
        mapped = (
            run
            if name == "block"
            else evaluate(Change(placement=node, placement_name=name, measure=True))
        )
        switches = mapped.summary["average_path_length"]
        case.rows += [
            Row(
                f"{title}: time of a round",
                "–" if theirs is None else format_time(1000 * theirs),
                format_time(mapped.elapsed_ps),
            ),
            Row(f"{title}: path length", f"{path:.3f}", f"{switches:.3f}"),
        ]
        if name in FIGURES:
            words = f"Figure {FIGURES[name]}: {title.lower()}"
            case.drawings.append(Drawing(f"stencil2d-{name}", words, mapped))
        if name == "rcm":
            case.drawings.append(
                Drawing(
                    "stencil2d-matrix",
                    "Figure 4.4: row-major | reverse Cuthill-McKee",
                    run,
                    figure="rank_matrix",
                    after=mapped,
                )
            )
    case.rows += link_rows(run)
    return case


def link_rows(run: Run) -> list[Row]:
    """The links B and C of Figure 4.3, and where phase +y is congested."""
    phase = estimates(run, phase="+y")
    b, c = (
        phase.filter((pl.col("src_name") == start) & (pl.col("dst_name") == other))
        for start, other in (LINK_B, LINK_C)
    )
    parts = [
        phase.filter((pl.col("tier") > 0) & (pl.col("direction") == way)) for way in ("up", "down")
    ]
    met = [float(part["congested"].sum()) / float(part["packets"].sum()) for part in parts]
    into = phase.filter("to_node")
    ends = float(into["congested"].sum()) / float(into["packets"].sum())
    return [
        Row("phase +y: congested fraction of up-links", "severe", f"{met[0]:.2f}"),
        Row("phase +y: congested fraction of down-links", "none to speak of", f"{met[1]:.2f}"),
        Row("phase +y: congested fraction into nodes", "minimal", f"{ends:.2f}"),
        Row(
            "link B, leaf 43 to aggregation 175, in +y: congested fraction",
            "a congestion tree",
            f"{b['fraction'][0]:.2f}",
        ),
        Row(
            "link C, aggregation 175 to leaf 45, in +y: congested fraction",
            "not congested",
            f"{c['fraction'][0]:.2f}",
        ),
        Row("link C: bandwidth while in use, sampled", "101.9 Gb/s", bandwidth(run, c)),
    ]


def bandwidth(run: Run, link: pl.DataFrame) -> str:
    """Estimated bandwidth of a link between the arrivals of its +y packets, with its interval.

    The samples of phase +y alone; the time is that of the windows in which they arrived, from the
    first to the last, as in the thesis the packets' arrival stands for their crossing.
    """
    labels = run.tables["labels"].filter(pl.col("phase") == "+y")["label"]
    tables = {**run.tables}
    tables["samples"] = tables["samples"].filter(pl.col("label").is_in(labels.implode()))
    part = Run(run.scenario, tables, run.summary)
    row = busy_gbps(part, link).row(0, named=True)
    low, high = (row["gbps"] * row[end] / row["packets"] for end in ("packets_low", "packets_high"))
    return f"{row['gbps']:.1f} Gb/s ({low:.0f}–{high:.0f})"
