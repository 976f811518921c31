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
from tailback.simulation import execute, make_evaluate, prepare
from tailback.traffic import Label, Program, ProgramBuilder
from tailback.units import format_time

GRID = (64, 72)
LEAF = 32
"""Nodes of a leaf."""
MESSAGE_BYTES = 131072
RANKS, ARRAYS, ARRAY_BYTES = 1024, 50, 4096
"""Of section 4.3."""

FULL = {
    "hosts_per_leaf": 18,
    "leaves": 18,
    "aggregation": 18,
    "pods": 11,
    "cores": 108,
    "aggregation_uplinks": 18,
}
"""The network Full of Table 3.1."""

CHUNK_BYTES, LOOKAHEAD_NS = 32, 0.1
"""Size of a chunk in the public configuration of the network Full, and TraceR's lookahead."""

TRACER_GBPS = 8 * CHUNK_BYTES / (8 * CHUNK_BYTES / 100 + 2 * LOOKAHEAD_NS)
"""Rate of a link on which each chunk takes the lookahead and twice a random part of it longer."""

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


def at_rate(model: Scenario, gbps: float) -> Scenario:
    """The scenario on the network Full with links of another rate."""
    rates = dict.fromkeys(("host_rate", "leaf_rate", "core_rate"), f"{gbps} Gb/s")
    fabric = type(model.fabric).model_validate({"fat_tree": FULL | rates})
    return model.model_copy(update={"fabric": fabric})


def posted_on_delivery() -> Scenario:
    """Every rank to one, each message once the one before has been delivered."""
    model = scenario("reduction")
    assert model.job[0].pattern is not None
    model.job[0].pattern["post"] = "delivered"
    return model


def binary_tree(calls: int) -> Program:
    """TraceR's MPI_Reduce: rank r waits for ranks 2r + 1 and 2r + 2, then sends to its parent."""
    builder = ProgramBuilder("reduce-binary", RANKS)
    label = builder.label(Label("MPI_Reduce", "MPI_Reduce"))
    size = ARRAYS * ARRAY_BYTES // calls
    for rank in range(RANKS):
        children = [child for child in (2 * rank + 1, 2 * rank + 2) if child < RANKS]
        for _ in range(calls):
            for request in [builder.irecv(rank, child, size, 0, label) for child in children]:
                builder.wait(rank, request)
            if rank:
                builder.isend(rank, (rank - 1) // 2, size, 0, label)
        builder.waitall(rank)
    return builder.build()


def reduction() -> Found:
    """Section 4.3: every rank to one, as the public sources time it and in other readings."""
    tree = scenario("reduction-tree")
    naive = {
        "": at_rate(scenario("reduction"), TRACER_GBPS),
        ", links at 100 Gb/s": scenario("reduction"),
        ", links at 100 Gb/s, posting on delivery": posted_on_delivery(),
    }
    runs = {reading: simulate(model) for reading, model in naive.items()}
    prepared = prepare(at_rate(tree, TRACER_GBPS))
    trees = {
        "binomial tree": execute(prepared),
        "TraceR's tree, one call of 200 KiB": execute(prepared.with_program(binary_tree(1))),
        "TraceR's tree, 50 calls of 4 KiB": execute(prepared.with_program(binary_tree(ARRAYS))),
    }
    root = {reading: estimates(run).filter(pl.col("to_node")) for reading, run in runs.items()}
    busiest = {
        reading: links.sort("packets").row(-1, named=True) for reading, links in root.items()
    }
    gbps = {
        reading: busiest[reading]["bytes"] * 8000 / run.elapsed_ps for reading, run in runs.items()
    }
    return Found(
        "thesis reduction",
        rows=[
            *(
                Row(f"time{reading}", "18 ms", format_time(run.elapsed_ps))
                for reading, run in runs.items()
            ),
            *(
                Row(f"root's link, sampled{reading}", "92.6 Gb/s", f"{rate:.1f} Gb/s")
                for reading, rate in gbps.items()
            ),
            Row("its congested fraction", "> 0.998", f"{busiest['']['fraction']:.4f}"),
            *(
                Row(
                    f"improvement by MPI_Reduce, {name}",
                    "86.9×",
                    f"{runs[''].elapsed_ps / run.elapsed_ps:.1f}×",
                )
                for name, run in trees.items()
            ),
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
