"""How far the fluid model is off from packets, on scenarios that are drawn.

python bench/fluid_bound.py --fit --count 1500 --seed 11    the intervals that a run states
python bench/fluid_bound.py --count 500 --seed 12           how often they hold in others
python bench/fluid_bound.py --write                         a table of both in its page

Of every pattern that needs no file, topology, routing and size of buffers. Scenarios with other
jobs have no interval, so ``--fit`` leaves them out (``tailback/simulation/fluid_error.py``).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from _shared import machine, put

from tailback.scenario.model import parse
from tailback.simulation import (
    communication_of,
    prepare,
    routes_for,
    simulate,
    simulate_fluid,
)

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "accuracy.md"
FITTED: Final = (1500, 21)
"""Number and seed of the scenarios to which the interval was fitted."""
OTHER_DRAWS: Final = (500, 22)

TREES: tuple[dict[str, Any], ...] = (
    {"fat_tree": {"hosts_per_leaf": 8, "leaves": 8, "aggregation": 4}},
    {"fat_tree": {"hosts_per_leaf": 12, "leaves": 6, "aggregation": 3}},
    {
        "fat_tree": {
            "hosts_per_leaf": 4,
            "leaves": 4,
            "aggregation": 2,
            "pods": 4,
            "cores": 8,
            "aggregation_uplinks": 4,
        }
    },
    {"topology": {"kind": "k-ary-n-tree", "k": 4, "n": 3}},
    {
        "topology": {
            "kind": "pgft",
            "children": [4, 4, 4],
            "parents": [1, 2, 2],
            "cables": [1, 1, 2],
        }
    },
)
OTHERS: tuple[dict[str, Any], ...] = (
    {"topology": {"kind": "modified-k-ary-n-tree", "k": 4, "n": 3, "width": 2}},
    {"topology": {"kind": "torus", "dims": [4, 4, 4]}},
    {
        "topology": {
            "kind": "torus",
            "dims": [4, 4, 2],
            "nodes_per_switch": 2,
            "rates": ["9.4 GB/s", "4.7 GB/s", "15 GB/s"],
            "host_rate": "10.4 GB/s",
        }
    },
    {"topology": {"kind": "mesh", "dims": [8, 8]}},
    {
        "topology": {
            "kind": "dragonfly",
            "groups": 9,
            "routers": 4,
            "nodes_per_router": 2,
            "global_ports": 2,
        }
    },
    {
        "topology": {
            "kind": "dragonfly-plus",
            "groups": 5,
            "leaves": 4,
            "spines": 4,
            "nodes_per_leaf": 4,
            "global_ports": 1,
        }
    },
    {"topology": {"kind": "hyperx", "dims": [4, 4], "nodes_per_switch": 4}},
)
SMALL: tuple[dict[str, Any], ...] = (
    {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    {"topology": {"kind": "k-ary-n-tree", "k": 4, "n": 2}},
    {"topology": {"kind": "torus", "dims": [4, 4]}},
    {
        "topology": {
            "kind": "dragonfly",
            "groups": 4,
            "routers": 2,
            "nodes_per_router": 2,
            "global_ports": 2,
        }
    },
)
"""Fabrics of 16 hosts, which 16 ranks can fill; the others have 64 or more."""
ROUTING = ("deterministic", "adaptive", "random", "vc", "ecmp")
TAIL = 0.01
"""Share of the scenarios on each side of an interval. So 98 % are inside of those that were drawn,
which leaves three per cent for kinds that were not."""

STEP = 0.05
"""Quantiles are rounded outwards to this: two samples of 1,000 scenarios differ by as much."""

BUFFERS_KIB = (16, 32, 64, 128, 256)
MOST_BYTES = 1 << 26
"""Bytes of all messages of a job: a simulation of their packets takes a tenth of a second."""


def _patterns(ranks: int, draw: random.Random) -> tuple[tuple[dict[str, Any], int], ...]:
    """Every pattern that needs no file, for 16, 32 or 64 ranks, each with its messages a rank."""
    wide = {16: 4, 32: 8, 64: 8}[ranks]
    dims, cube = [wide, ranks // wide], [4, 2, ranks // 8]
    compute = {"compute": f"{draw.choice((0, 0, 10, 50, 200))} us"}
    post = {"post": draw.choice(("sequence", "all", "delivered"))}
    few = draw.choice((1, 3, 8))
    return (
        (
            {"kind": "stencil2d", "dims": dims, "periodic": draw.random() < 0.5, **compute, **post},
            4,
        ),
        ({"kind": "stencil3d", "dims": cube, "rounds": draw.choice((1, 3)), **compute, **post}, 18),
        ({"kind": "ring", "ranks": ranks, "messages": few, **post}, few),
        ({"kind": "permutation", "ranks": ranks, "messages": few, **post}, few),
        ({"kind": "uniform", "ranks": ranks, "messages": few, **post}, few),
        (
            {
                "kind": "paced",
                "ranks": ranks,
                "load": draw.choice((0.2, 0.5, 0.8)),
                "duration": "200 us",
            },
            200,
        ),
        ({"kind": "transpose", "dims": dims, **compute}, wide),
        ({"kind": "fft2d", "plane": [4, 4], "planes": ranks // 16, **compute}, 6),
        ({"kind": "alltoall", "ranks": ranks, **compute}, ranks),
        ({"kind": "alltoall-naive", "ranks": ranks}, ranks),
        ({"kind": "reduce-naive", "ranks": ranks, "arrays": few}, few),
        ({"kind": "reduce-tree", "ranks": ranks, "arrays": few}, few),
        (
            {
                "kind": "minighost",
                "dims": cube,
                "cells": [20, 20, 20],
                "variables": draw.choice((1, 4)),
                **compute,
            },
            0,
        ),
        (
            {
                "kind": "training",
                "data": ranks // 4,
                "tensor": 4,
                "layers": 2,
                "activation": f"{draw.choice((16, 64))} KiB",
                "gradient": f"{draw.choice((1, 4))} MiB",
                **compute,
            },
            0,
        ),
    )


def _job(draw: random.Random, hosts: list[int], ranks: int) -> dict[str, Any]:
    pattern, messages = draw.choice(_patterns(ranks, draw))
    if messages:
        most = MOST_BYTES // (ranks * messages) >> 10
        pattern["size"] = f"{min(draw.choice((1, 8, 32, 128, 512)), most)} KiB"
    each = draw.choice((1, 1, 1, 2, 4))
    return {
        "pattern": pattern,
        "placement": draw.choice(("block", "random")),
        "hosts": ",".join(map(str, sorted(hosts[: ranks // each]))),
        "ranks_per_host": each,
    }


def scenarios(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Scenarios as data: every pattern, topology and routing, with and without other jobs."""
    draw = random.Random(seed)
    for number in range(count):
        group = draw.choices((TREES, OTHERS, SMALL), (2, 2, 1))[0]
        fabric, kind = draw.choice(group), draw.choice(("none", "none", "beside"))
        hosts = list(range(16 if group is SMALL else 64))
        if draw.random() < 0.5:
            draw.shuffle(hosts)
        ranks = draw.choice([16, 32, 64][: 3 - (kind == "beside")])
        if group is SMALL:
            ranks, kind = 16, "none"
        jobs = [_job(draw, hosts[:ranks], ranks)]
        if kind == "beside":
            other = _job(draw, hosts[ranks : 2 * ranks], ranks)
            jobs.append({**other, "name": "other", "observed": False})
        data = {
            "seed": seed * 100_000 + number,
            "fabric": fabric,
            "job": jobs,
            "engine": {
                "buffer": f"{draw.choice(BUFFERS_KIB)} KiB",
                "packet": f"{draw.choice((1, 2, 4))} KiB",
                "buffering": draw.choice(("input", "output")),
                "eager": draw.choice(("16 KiB", "1 GiB")),
                "routing": draw.choice(ROUTING),
                "injection": draw.choice(("fifo", "round-robin")),
            },
        }
        yield with_slow_cable(data, draw) if draw.random() < 0.2 else data


def with_slow_cable(data: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """The scenario with a cable between switches, or that of a host, at a part of its rate."""
    fabric = prepare(parse(data)).fabric
    link = draw.randrange(fabric.n_links)
    port = fabric.port_name(link)
    rate = float(fabric.link_gbps[link]) * draw.choice((0.1, 0.25, 0.5))
    degraded = [{"cable": port, "rate": f"{rate:.6f} Gb/s"}]
    return {**data, "fabric": {**data["fabric"], "degraded": degraded}}


def measure(data: dict[str, Any]) -> dict[str, Any]:
    """Time by rates, and by packets if an interval is stated."""
    prepared = prepare(parse(data))
    fluid = simulate_fluid(prepared)
    low, high = (fluid.summary.get(f"packets_{end}_ps") for end in ("low", "high"))
    stated = low is not None and high is not None
    row = {
        "pattern": data["job"][0]["pattern"]["kind"],
        "fabric": data["fabric"].get("topology", {"kind": "fat_tree"})["kind"],
        "slow_cable": "degraded" in data["fabric"],
        "stated": stated,
    }
    if not stated:
        return row
    packets = simulate(prepared, threads=1).elapsed_ps
    routes = routes_for(prepared.scenario, prepared.fabric, prepared.slots().tolist())
    return row | {
        "beyond": communication_of(fluid, prepared, routes).beyond(packets),
        "held": low <= packets <= high,
        "half": (high - low) / 2 / fluid.elapsed_ps,
    }


def quantiles(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Low and high end of the interval beside its limits (``fluid_error.BEYOND``).

    With n scenarios a further one is below the k-th smallest with probability k/(n + 1).

    Raises:
        ValueError: There are too few scenarios.
    """
    k = int(TAIL * (len(rows) + 1))
    if not k:
        raise ValueError(f"{len(rows)} scenarios are too few")
    low, high = np.sort([row["beyond"] for row in rows], axis=0).T
    return float(np.floor(low[k - 1] / STEP) * STEP), float(np.ceil(high[-k] / STEP) * STEP)


def is_inside(row: dict[str, Any], ends: tuple[float, float]) -> bool:
    """Whether packets ended in the interval."""
    below, above = row["beyond"]
    return bool(ends[0] <= below and above <= ends[1])


def held_without(rows: list[dict[str, Any]], key: str) -> dict[str, tuple[int, int]]:
    """Scenarios of each kind, and how many intervals hold that were fitted to all other kinds."""
    out = {}
    for kind in sorted({row[key] for row in rows}):
        ends = quantiles([row for row in rows if row[key] != kind])
        tested = [is_inside(row, ends) for row in rows if row[key] == kind]
        out[kind] = (len(tested), sum(tested))
    return out


def table() -> str:
    """How often intervals hold, in Markdown."""
    fitted = [row for row in measured(*FITTED, one_job=True) if row["stated"]]
    drawn = [row for row in measured(*OTHER_DRAWS, one_job=False) if row["stated"]]
    lines = ["| scenarios | state an interval | inside | fewest inside |", "|---|---:|---:|---|"]
    for title, rows in (
        (f"of the fit, seed {FITTED[1]}", fitted),
        (f"seed {OTHER_DRAWS[1]}", drawn),
    ):
        lines.append(f"| {title} | {len(rows)} | {sum(row['held'] for row in rows)} | |")
    for key, title in (("pattern", "pattern"), ("fabric", "topology")):
        held = held_without(fitted, key)
        kind = min(held, key=lambda kind: held[kind][1] / held[kind][0])
        inside = sum(inside for _, inside in held.values())
        fewest = f"`{kind}`, {held[kind][1]} of {held[kind][0]}"
        lines.append(f"| of a {title} left out of the fit | {len(fitted)} | {inside} | {fewest} |")
    return "\n".join(lines)


def measured(count: int, seed: int, *, one_job: bool) -> list[dict[str, Any]]:
    """Rows of drawn scenarios, on request only of those with one job."""
    drawn = scenarios(count, seed)
    return [measure(data) for data in drawn if len(data["job"]) == 1 or not one_job]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON, the rows included")
    parser.add_argument("--count", type=int, default=500, help="number of scenarios")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--fit", action="store_true", help="scenarios of one job; fit intervals")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    args = parser.parse_args()
    if args.write:
        put(PAGE, {"fluid interval": table()})
        return 0
    began = time.process_time()
    rows = measured(args.count, args.seed, one_job=args.fit)
    stated = [row for row in rows if row["stated"]]
    result = {
        "machine": machine(),
        "scenarios": len(rows),
        "cpu_s": time.process_time() - began,
        "stated": len(stated),
        "held": sum(row["held"] for row in stated),
    }
    if args.fit:
        result["beyond"] = quantiles(stated)
        result |= {f"without_{key}": held_without(stated, key) for key in ("pattern", "fabric")}
    print(json.dumps(result | {"rows": rows} if args.json else result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
