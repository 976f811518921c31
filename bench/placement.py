"""Quality and time of every placement: ``python bench/placement.py [--json] [--large]``.

The 64×72 stencil on the tapered fat tree, as in Table 4.1 of the thesis, and with ``--large`` a
3-D stencil of 32,768 ranks, 8 on a host, on a fat tree of 4096 hosts. For each placement: seconds,
mean number of switches a message visits, and the share of messages between leaves and between pods.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time

from tailback.fabric import Fabric
from tailback.fabric.builders import PRESETS, fat_tree
from tailback.placement import (
    PLACEMENTS,
    edge_cut,
    hosts_from_spec,
    path_length,
    place,
    problem_for,
)
from tailback.scenario.model import FatTree
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


def large() -> tuple[Fabric, Program, int]:
    shape = FatTree(
        hosts_per_leaf=32, leaves=16, aggregation=16, pods=8, cores=64, aggregation_uplinks=16
    )
    program = build(
        {"kind": "stencil3d", "dims": [32, 32, 32], "boundary": "skip"}, n_ranks=32768, seed=1
    )
    return fat_tree(shape, "large"), program, 8


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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--large", action="store_true", help="also 32,768 ranks")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for case in [thesis(), large()] if arguments.large else [thesis()]:
        plain: list[tuple[str, dict[str, object]]] = [
            (name, {}) for name in PLACEMENTS.names() if name != "file"
        ]
        for name, options in [*plain, *(VARIANTS if case[2] == 1 else [])]:
            row = measure(*case, name, options)
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
