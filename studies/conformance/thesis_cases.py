"""Chapter 4 of Taffet (2019) with the settings and traffic of the published simulator.

    python -m studies.conformance.thesis_cases                        every part
    python -m studies.conformance.thesis_cases --part background      one of them; may be repeated
    python -m studies.conformance.thesis_cases --write                also its page and figures

``compare`` has times and congestion by tier; here are the figures that show single links, phases
and nodes, from the same scenarios. "Theirs" are the figures of the thesis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import polars as pl
from numpy.typing import NDArray

from measuring import run_parts
from studies.conformance.compare import HERE, README, scenario
from studies.taffet2019.case_figures import Drawing, write_figures
from studies.taffet2019.case_model import Found, Row, estimates
from studies.taffet2019.case_stencil import link_rows
from studies.taffet2019.table_4_1 import ROWS
from tailback import Run, Scenario, simulate
from tailback.evaluate import Change
from tailback.placement import place
from tailback.remedy import congested_hops
from tailback.simulation import make_evaluate, prepare
from tailback.units import format_time

GRID = (64, 72)
LEAF = 32
"""Nodes of a leaf."""
MESSAGE_BYTES = 131072
HOT_LEAF, HOT_NODES = 37, ("n1204", "n1213")
"""The root of the congestion tree of Figures 4.16 and 4.17, and its two nodes."""


def neighbour_distances(node: NDArray[np.int64]) -> NDArray[np.int64]:
    """Difference of the node numbers of every two ranks that are neighbours on the grid."""
    grid = np.asarray(node, np.int64).reshape(GRID[1], GRID[0])
    return np.abs(np.concatenate([np.diff(grid, axis=axis).ravel() for axis in (0, 1)]))


def stencil() -> Found:
    """Figures 4.1 to 4.3: row-major."""
    run = simulate(scenario("row-major"))
    study = Found("thesis stencil", rows=link_rows(run))
    study.drawings = [
        Drawing("row-major", "Figure 4.1: row-major, the whole run", run),
        Drawing("row-major-plus-y", "Figure 4.2: row-major, phase +y", run, "+y"),
    ]
    return study


def mappings() -> Found:
    """Table 4.1: every mapping that is not a conformance case of its own, and what 4.2 says."""
    prepared = prepare(scenario("row-major"))
    evaluate = make_evaluate(prepared)
    study = Found("thesis mappings")
    placed = {
        title: np.asarray(place(name, prepared.observed.problem, options), np.int64)
        for title, _, _, name, options, _ in ROWS
    }
    for title, theirs, path, name, _, _ in ROWS:
        if name not in {"metis", "incremental", "tile2"}:
            continue
        run = evaluate(Change(placement=placed[title], placement_name=name, measure=True))
        study.rows += [
            Row(
                f"{title}: time",
                "–" if theirs is None else f"{theirs:,} ns",
                f"{run.elapsed_ps / 1000:,.0f} ns",
            ),
            Row(
                f"{title}: path length",
                f"{path:.3f}",
                f"{run.summary['average_path_length']:.3f}",
            ),
            Row(
                f"{title}: congested hops",
                {"metis": "0 %", "incremental": "0.05 %"}.get(name, "–"),
                f"{100 * congested_hops(run):.2f} %",
            ),
        ]
    for title, far, median in (
        ("Row major", "0.5", "around 32"),
        ("Reverse Cuthill-McKee", "0.79", "around 17"),
    ):
        distance = neighbour_distances(placed[title])
        study.rows += [
            Row(f"{title}: pairs at least 32 apart", far, f"{(distance >= LEAF).mean():.2f}"),
            Row(f"{title}: median distance of a pair", median, f"{np.median(distance):g}"),
        ]
    return study


def reduction() -> Found:
    """Section 4.3: every rank to one, and a binomial tree."""
    naive, tree = simulate(scenario("reduction")), simulate(scenario("reduction-tree"))
    root = estimates(naive).filter(pl.col("to_node")).sort("packets").row(-1, named=True)
    sent = naive.tables["messages"]["size_bytes"].sum()
    seconds = naive.elapsed_ps / 1e12
    return Found(
        "thesis reduction",
        rows=[
            Row("naive, to rank 0", "18 ms", format_time(naive.elapsed_ps)),
            Row("congested fraction of the root's link", "> 0.998", f"{root['fraction']:.4f}"),
            Row(
                "bandwidth of that link, sampled",
                "92.6 Gb/s",
                f"{root['bytes'] * 8e-9 / seconds:.1f} Gb/s",
            ),
            Row("bytes sent over the time", "–", f"{sent * 8e-9 / seconds:.1f} Gb/s"),
            Row("MPI_Reduce", "–", format_time(tree.elapsed_ps)),
            Row(
                "improvement by MPI_Reduce",
                "86.9×",
                f"{naive.elapsed_ps / tree.elapsed_ps:.1f}×",
            ),
            Row("… with 18 ms and our tree", "86.9×", f"{18e9 / tree.elapsed_ps:.1f}×"),
        ],
    )


def unobserved_background() -> Scenario:
    """Ring and background together, with the ring's packets alone to be seen."""
    model = scenario("both")
    model.job[1].observed = False
    return model


def root_of_tree(run: Run) -> str:
    """Name of the leaf into which most packets come over congested links."""
    into = estimates(run).filter((pl.col("direction") == "down") & ~pl.col("to_node"))
    met = into.filter(pl.col("tier") == 1).group_by("dst_name").agg(pl.col("congested").sum())
    return str(met.sort("congested", "dst_name").row(-1, named=True)["dst_name"])


def out_of_leaf(run: Run, leaf: str) -> pl.DataFrame:
    """Estimates of the links from a leaf to its nodes, with their bandwidth over the whole run.

    The published bandwidths are those of ten, nine and three messages of 128 KiB in 106.5 µs, the
    time until the last message of any job arrives.
    """
    links = estimates(run).filter(pl.col("to_node") & (pl.col("src_name") == leaf))
    last_ps = max(run.summary["job_elapsed_ps"].values())
    return links.with_columns(gbps=pl.col("bytes") * 8000 / last_ps)


def background() -> Found:
    """Figures 4.16 and 4.17: the user's packets alone, and those of everybody."""
    ring_view, full_view = simulate(unobserved_background()), simulate(scenario("both"))
    leaf = root_of_tree(ring_view)
    nodes = out_of_leaf(full_view, f"leaf{HOT_LEAF:03d}")
    messages = 8 * MESSAGE_BYTES / 1e3
    study = Found("thesis background")
    study.rows = [
        Row("own packets: root of the tree", f"leaf{HOT_LEAF:03d}", leaf),
        Row(
            "own packets: most over a link out of that leaf",
            "< 30 Gb/s",
            f"{out_of_leaf(ring_view, leaf)['gbps'].max():.1f} Gb/s",
        ),
        Row(
            "all packets: the two most congested nodes of leaf 37",
            ", ".join(HOT_NODES),
            ", ".join(sorted(nodes.sort("fraction", "dst", descending=True)["dst_name"][:2])),
        ),
    ]
    for name, count, gbps in zip(HOT_NODES, (10, 9), (98.5, 88.6), strict=True):
        node = nodes.filter(pl.col("dst_name") == name).row(0, named=True)
        study.rows += [
            Row(f"all packets: {name}, congested fraction", "> 0.9", f"{node['fraction']:.3f}"),
            Row(f"all packets: {name}, bandwidth", f"{gbps} Gb/s", f"{node['gbps']:.1f} Gb/s"),
            Row(
                f"time in which its {count} messages have the published bandwidth",
                "127.1 µs",
                f"{count * messages / gbps:.1f} µs",
            ),
        ]
    study.drawings = [
        Drawing("background-own", "Figure 4.16: the ring's packets", ring_view),
        Drawing("background-all", "Figure 4.17: all packets", full_view),
    ]
    return study


PARTS: dict[str, Callable[[], Found]] = {
    "stencil": stencil,
    "mappings": mappings,
    "reduction": reduction,
    "background": background,
}


def section(study: Found) -> str:
    """One part in Markdown."""
    lines = ["| quantity | theirs | ours |", "|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {row.quantity} | {row.theirs} | {row.ours} |" for row in study.rows)]
    )


def main() -> None:
    """Print the tables; write the page and figures on request."""
    run_parts(
        __doc__ or "",
        "part",
        PARTS,
        page=README,
        section=section,
        draw=lambda study: write_figures(study.drawings, HERE / "figures"),
        facts=lambda study: {"rows": [asdict(row) for row in study.rows]},
    )


if __name__ == "__main__":
    main()
