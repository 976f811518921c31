"""Quality and time of every placement: ``python bench/placement.py [--ranks N]... [--json]``.

The 64×72 stencil on the tapered fat tree, as in Table 4.1 of the thesis. For each placement:
seconds, mean number of switches a message visits, and the share of messages between leaves and
between pods.

With ``--ranks``, instead, 3-D stencils of 4,096, 16,384 or 65,536 ranks, 16 on a host, on fat trees
tapered 2:1: numbered row by row, or at random, so that no grid can be recognised. For each
placement, and for mappings of others (``placement_rivals.py``): CPU seconds, links that a byte
crosses, the bytes that leave their host, the time of the busiest link for its bytes (Hoefler and
Snir 2011), and the time by the fluid model. ``--write`` puts those of 65,536 ranks into its page.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from _shared import cpu_seconds, put
from numpy.typing import NDArray
from placement_rivals import cart_reorder, hilbert, recursive_bisection, scotch

from tailback.evaluate import Change
from tailback.fabric import Fabric
from tailback.fabric.builders import PRESETS, fat_tree
from tailback.placement import (
    PLACEMENTS,
    PlacementProblem,
    edge_cut,
    hosts_from_spec,
    path_length,
    place,
    problem_for,
)
from tailback.placement.assign import assign_slots, check_slots
from tailback.scenario.model import parse
from tailback.simulation import (
    PreparedScenario,
    busiest_link_ps,
    make_fluid_evaluate,
    prepare,
    routes_for,
)
from tailback.traffic import Program
from tailback.traffic.patterns import build

VARIANTS: list[tuple[str, dict[str, object]]] = [
    ("metis", {"refine": False, "pods": False}),
    ("incremental", {"start": "random"}),
    ("incremental", {"depth": 1, "partners": 1, "pods": False, "start": "random"}),
    ("tile", {"tile": [8, 4]}),
]


def thesis() -> tuple[Fabric, Program, int]:
    program = build(
        {"kind": "stencil2d", "dims": [64, 72], "boundary": "skip"}, n_ranks=4608, seed=1
    )
    return fat_tree(PRESETS["tapered"], "tapered"), program, 1


def measure(
    fabric: Fabric, program: Program, per_host: int, name: str, options: dict[str, object]
) -> dict[str, object]:
    problem = problem_for(fabric, program, hosts_from_spec("all", fabric), per_host, 1)
    # The graph is built once for all placements of a job, so it is not part of their time.
    _ = problem.graph
    start = time.perf_counter()
    nodes = place(name, problem, options)
    seconds = time.perf_counter() - start
    return {
        "fabric": fabric.name,
        "ranks": program.n_ranks,
        "placement": name,
        "options": options,
        "seconds": round(seconds, 4),
        "path_length": round(path_length(fabric, program, nodes), 4),
        "leaf_cut": round(edge_cut(fabric, program, nodes, "leaf"), 4),
        "pod_cut": round(edge_cut(fabric, program, nodes, "pod"), 4),
    }


SIZES: dict[int, tuple[list[int], dict[str, int]]] = {
    4096: ([16, 16, 16], {"hosts_per_leaf": 16, "leaves": 4, "pods": 4}),
    16384: ([32, 32, 16], {"hosts_per_leaf": 16, "leaves": 8, "pods": 8}),
    65536: ([64, 32, 32], {"hosts_per_leaf": 32, "leaves": 16, "pods": 8}),
}
"""Grid and fat tree by number of ranks."""

PER_HOST = 16

LARGE: list[tuple[str, dict[str, object]]] = [
    *((name, {}) for name in ("block", "round-robin", "rcm", "tile", "tile2")),
    ("metis", {"refine": False, "pods": False}),
    ("metis", {}),
    ("incremental", {}),
]
"""METIS without options is hierarchical, with these a recursive bisection into leaves."""

BY_TRAFFIC = ("rcm", "metis", "incremental")
"""Placements that do not depend on how ranks are numbered; the others place these at random."""


def stencil(ranks: int) -> PreparedScenario:
    """A 3-D stencil that fills its fat tree."""
    dims, shape = SIZES[ranks]
    half = shape["hosts_per_leaf"] // 2
    tree = {
        **shape,
        "aggregation": half,
        "aggregation_uplinks": shape["leaves"] // 2,
        "cores": half,
    }
    job = {
        "ranks_per_host": PER_HOST,
        "pattern": {"kind": "stencil3d", "dims": dims, "size": "64 KiB"},
    }
    return prepare(parse({"fabric": {"fat_tree": tree}, "job": [job]}))


def rivals(
    problem: PlacementProblem, ranks: int, *, shuffled: bool
) -> Iterator[tuple[str, Callable[[], NDArray[np.int64] | None]]]:
    """Mappings of others: name, and a function that gives the slot of each rank."""
    graph, seed, shape = problem.graph, problem.seed, SIZES[ranks][1]
    yield "recursive bisection", lambda: recursive_bisection(graph, seed, PER_HOST)
    # A message crosses two links within a leaf, four within a pod, and six between pods.
    tree = (shape["pods"], 6), (shape["leaves"], 4), (shape["hosts_per_leaf"], 2)
    yield "scotch", lambda: scotch(graph, tree, PER_HOST)
    if not shuffled:
        yield "MPI_Cart_create", lambda: cart_reorder(problem.grid, PER_HOST)
        yield "hilbert", lambda: hilbert(problem.grid)


def large(ranks: int, shuffled: bool) -> Iterator[dict[str, object]]:
    """A row for each placement of a stencil, one after the other."""
    prepared = stencil(ranks)
    job, fabric = prepared.observed, prepared.fabric
    problem, at = job.problem, np.arange(ranks)
    if shuffled:
        at = np.random.default_rng(1).permutation(ranks)
        source, target, size = problem.traffic
        problem = dataclasses.replace(problem, traffic=(at[source], at[target], size), grid=())
    _ = problem.graph
    routes = routes_for(prepared.scenario, fabric, prepared.slots().tolist())
    fluid = make_fluid_evaluate(prepared)

    def row(
        name: str, options: dict[str, object], mapping: Callable[[], NDArray[np.int64] | None]
    ) -> dict[str, object] | None:
        began = cpu_seconds()
        slots = mapping()
        seconds = cpu_seconds() - began
        if slots is None:
            return None
        check_slots(name, problem, slots)
        nodes = problem.slot_node[slots].astype(np.uint32)[at]
        crossed = path_length(fabric, job.program, nodes, "bytes")
        remote = edge_cut(fabric, job.program, nodes, "host", "bytes")
        return {
            "ranks": ranks,
            "numbering": "random" if shuffled else "rows",
            "placement": name,
            "options": options,
            "cpu_s": round(seconds, 2),
            # A message that visits k switches crosses k + 1 links, within a host none.
            "links_per_byte": round(crossed + remote, 3),
            "remote_bytes": round(remote, 3),
            "busiest_link_us": round(busiest_link_ps(prepared, routes, nodes) / 1e6, 1),
            "fluid_us": round(fluid(Change(placement=nodes)).elapsed_ps / 1e6, 1),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }

    ours = [
        (name, options, partial(assign_slots, name, problem, dict(options)))
        for name, options in LARGE
        if not shuffled or name in BY_TRAFFIC
    ]
    others = [(name, {}, mapping) for name, mapping in rivals(problem, ranks, shuffled=shuffled)]
    yield from filter(None, itertools.starmap(row, [*ours, *others]))


PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "speed.md"
WRITTEN_RANKS = 65_536
TITLES: dict[str, str] = {
    "recursive bisection": "recursive bisection",
    "scotch": "Scotch, `gmap`",
    "MPI_Cart_create": "`MPI_Cart_create` (Gropp 2019)",
    "hilbert": "Hilbert curve",
}
"""What the page calls mappings of others."""


def table() -> str:
    """Placements of the largest stencil, in Markdown: numbered by rows/at random."""
    columns = {"links_per_byte": "{:.2f}", "busiest_link_us": "{:,.0f}", "fluid_us": "{:,.0f}"}
    cells: dict[str, list[list[str]]] = {}
    for shuffled in (False, True):
        for row in large(WRITTEN_RANKS, shuffled):
            name = str(row["placement"])
            if row["options"]:
                continue
            shown = [text.format(row[column]) for column, text in columns.items()]
            cells.setdefault(name, []).append(shown)
    lines = [
        "| placement | links a byte crosses | busiest link, µs | fluid time, µs |",
        "|---|" + "---:|" * 3,
    ]
    for name, numberings in cells.items():
        both = ["/".join(column) for column in zip(*numberings, strict=True)]
        lines.append(f"| {TITLES.get(name, f'`{name}`')} | " + " | ".join(both) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--ranks", type=int, action="append", choices=SIZES, help="3-D stencils of so many ranks"
    )
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    arguments = parser.parse_args()
    if arguments.write:
        put(PAGE, {"placements": table()})
        return 0
    if not arguments.json:
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if arguments.ranks:
        for ranks, shuffled in itertools.product(arguments.ranks, (False, True)):
            for row in large(ranks, shuffled):
                print(json.dumps(row) if arguments.json else "  ".join(map(str, row.values())))
                sys.stdout.flush()
        return 0
    fabric, program, per_host = thesis()
    plain: list[tuple[str, dict[str, object]]] = [
        (name, {}) for name in PLACEMENTS.names() if name != "file"
    ]
    for name, options in [*plain, *VARIANTS]:
        row = measure(fabric, program, per_host, name, options)
        if arguments.json:
            print(json.dumps(row))
        else:
            print(
                f"{row['fabric']:8} {name:18} {row['seconds']:8} s  "
                f"path {row['path_length']:<7} leaf {row['leaf_cut']:<7} "
                f"pod {row['pod_cut']:<7} {json.dumps(options) if options else ''}"
            )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
