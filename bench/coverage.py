"""How often 95 % intervals contain the truth: ``python bench/coverage.py [--seeds N] [--json]``.

Simulated runs know the congested fraction of every link. Over the links on which some packet met
congestion, this counts those whose 95 % interval contains it: by the link's own samples, and with
the evidence of its bundle, as the report draws it. Networks, patterns and rules of routing differ;
seeds change the placement, the routes and the samples.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from _shared import machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tailback.report import FigureData, coverage, shown_coverage
from tailback.scenario.model import parse
from tailback.simulation import simulate

FABRICS: dict[str, dict[str, Any]] = {
    "tapered": {"preset": "tapered"},
    "two levels": {"fat_tree": {"hosts_per_leaf": 16, "leaves": 16, "aggregation": 8}},
    "three levels": {
        "fat_tree": {
            "hosts_per_leaf": 8,
            "leaves": 4,
            "aggregation": 4,
            "pods": 8,
            "cores": 8,
            "aggregation_uplinks": 2,
        }
    },
    "torus": {"topology": {"kind": "torus", "dims": [8, 8, 4], "nodes_per_switch": 1}},
    "dragonfly+": {
        "topology": {
            "kind": "dragonfly-plus",
            "nodes_per_leaf": 8,
            "leaves": 4,
            "spines": 4,
            "global_ports": 2,
            "groups": 8,
        }
    },
}
LARGE = {"tapered": (64, 72)}
"""Fabrics whose patterns have more than 16 × 16 ranks; they run one sixth as often."""
PATTERNS = ("stencil", "uniform", "scattered", "permutation")
ROUTING = ("adaptive", "deterministic", "random")


def pattern_of(name: str, dims: tuple[int, int]) -> dict[str, Any]:
    """A pattern of a scenario on a number of ranks."""
    ranks = dims[0] * dims[1]
    return {
        "stencil": {"kind": "stencil2d", "dims": list(dims), "size": "256 KiB", "rounds": 2},
        "uniform": {"kind": "uniform", "ranks": ranks, "size": "128 KiB", "messages": 4},
        # Few packets on each link, of which few meet congestion.
        "scattered": {"kind": "uniform", "ranks": ranks, "size": "64 KiB", "messages": 4},
        "permutation": {"kind": "permutation", "ranks": ranks, "size": "256 KiB", "messages": 4},
    }[name]


def held(fabric: str, pattern: str, routing: str, seeds: int) -> dict[str, Any]:
    """Shares of intervals that contain the truth, over the links of several runs."""
    alone, shown = [], []
    job = {"pattern": pattern_of(pattern, LARGE.get(fabric, (16, 16))), "placement": "random"}
    runs = -(-seeds // 6) if fabric in LARGE else seeds
    for seed in range(1, runs + 1):
        run = simulate(
            parse(
                {
                    "seed": seed,
                    "fabric": FABRICS[fabric],
                    "job": [job],
                    "engine": {"routing": routing},
                }
            )
        )
        evidence = FigureData(run)
        for intervals, inside in ((coverage(evidence), alone), (shown_coverage(evidence), shown)):
            assert intervals is not None  # a simulated run knows the truth
            inside.append(intervals.inside[intervals.congested])
    links = np.concatenate(shown)
    return {
        "fabric": fabric,
        "pattern": pattern,
        "routing": routing,
        "links": len(links),
        "own_percent": round(100 * float(np.concatenate(alone).mean()), 1),
        "bundle_percent": round(100 * float(links.mean()), 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12, help="runs of each case (12)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    cases = [
        held(fabric, pattern, routing, options.seeds)
        for fabric, pattern, routing in product(FABRICS, PATTERNS, ROUTING)
        # A torus has one path between two nodes, whatever the rule.
        if fabric != "torus" or routing == "deterministic"
    ]
    if options.json:
        print(json.dumps({"seeds": options.seeds, "cases": cases, "machine": machine()}, indent=2))
        return
    print(f"{'fabric':13} {'pattern':12} {'routing':14} {'links':>6}  own %  bundle %")
    for case in cases:
        print(
            f"{case['fabric']:13} {case['pattern']:12} {case['routing']:14} {case['links']:6} "
            f"{case['own_percent']:6.1f} {case['bundle_percent']:9.1f}"
        )


if __name__ == "__main__":
    main()
