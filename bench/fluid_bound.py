"""How far the fluid model is off from packets, on scenarios that are drawn.

python bench/fluid_bound.py --json            1500 scenarios, and the intervals that follow
python bench/fluid_bound.py --fresh --json    60 of other shapes: how often the stated one holds

The intervals that a run of the fluid model states (``tailback/simulation/fluid_error.py``) are
those of 1500 scenarios with seed 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from _machine import machine

from tailback.scenario import parse
from tailback.simulation import (
    FAN_IN,
    LEAST_SHARE,
    message_fan_in,
    prepare,
    simulate,
    simulate_fluid,
)

FABRICS: tuple[dict[str, Any], ...] = (
    {"fat_tree": {"hosts_per_leaf": 8, "leaves": 8, "aggregation": 4}},
    {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2, "pods": 4, "cores": 8,
                  "aggregation_uplinks": 4}},
    {"topology": {"kind": "torus", "dims": [4, 4, 4]}},
    {"topology": {"kind": "dragonfly", "groups": 9, "routers": 4, "nodes_per_router": 2,
                  "global_ports": 2}},
    {"topology": {"kind": "hyperx", "dims": [4, 4], "nodes_per_switch": 4}},
)  # fmt: skip
FRESH: tuple[dict[str, Any], ...] = (
    {"fat_tree": {"hosts_per_leaf": 12, "leaves": 6, "aggregation": 3}},
    {"topology": {"kind": "torus", "dims": [8, 8]}},
    {"topology": {"kind": "hyperx", "dims": [3, 3, 3], "nodes_per_switch": 2}},
    {"fat_tree": {"hosts_per_leaf": 16, "leaves": 4, "aggregation": 8}},
)
ROUTING = ("deterministic", "adaptive", "random", "vc", "ecmp")


def _pattern(draw: random.Random, fresh: bool) -> dict[str, Any]:
    """A pattern of 27 to 64 ranks."""
    size = {"size": f"{draw.choice((8, 32, 128, 512))} KiB"}
    compute = {"compute": f"{draw.choice((0, 10, 50, 200))} us"}
    kinds: tuple[dict[str, Any], ...] = (
        {"kind": "stencil2d", "dims": [8, 8], **compute},
        {
            "kind": "stencil3d",
            "dims": [4, 4, 4],
            "post": draw.choice(("all", "sequence")),
            **compute,
        },
        {"kind": "permutation", "ranks": 64, "messages": 4},
        {"kind": "uniform", "ranks": 64, "messages": 8},
        {"kind": "transpose", "dims": [8, 8], **compute},
        {"kind": "alltoall", "ranks": 32},
        {"kind": "ring", "ranks": 48, "messages": 3},
        {"kind": "alltoall-naive", "ranks": draw.choice((16, 32, 64))},
        {"kind": "reduce-naive", "ranks": draw.choice((16, 32, 64))},
    )
    others: tuple[dict[str, Any], ...] = (
        {"kind": "stencil2d", "dims": [9, 6], "periodic": True, **compute},
        {"kind": "fft2d", "plane": [4, 4], "planes": 3, **compute},
        {"kind": "alltoall-naive", "ranks": 36},
        {"kind": "reduce-naive", "ranks": 40},
        {"kind": "uniform", "ranks": 54, "messages": 3},
    )
    return draw.choice(others if fresh else kinds) | size


def scenarios(count: int, seed: int, *, fresh: bool) -> Iterator[dict[str, Any]]:
    """Scenarios as data."""
    draw = random.Random(seed)
    fabrics = FRESH if fresh else FABRICS
    for number in range(count):
        yield {
            "seed": seed * 1000 + number,
            "fabric": fabrics[number % len(fabrics)],
            "job": [{"pattern": _pattern(draw, fresh),
                     "placement": draw.choice(("block", "random"))}],
            "engine": {
                "buffer": f"{draw.choice((16, 32, 64, 128))} KiB",
                "routing": draw.choice(ROUTING),
                "injection": draw.choice(("fifo", "round-robin")),
            },
        }  # fmt: skip


def measure(data: dict[str, Any]) -> dict[str, Any]:
    """Time by packets and by rates."""
    prepared = prepare(parse(data))
    fluid = simulate_fluid(prepared)
    low, high = (fluid.summary.get(f"packets_{end}_ps") for end in ("low", "high"))
    packets = simulate(prepared, threads=1).elapsed_ps
    stated = low is not None and high is not None
    return {
        "fan_in": message_fan_in(fluid.tables["messages"]) > FAN_IN,
        "pattern": data["job"][0]["pattern"]["kind"], "paths": fluid.summary["paths"],
        "packets_ps": packets, "fluid_ps": fluid.elapsed_ps,
        "compute_ps": int(fluid.tables["ranks"]["compute_ps"].max() or 0),  # type: ignore[arg-type]
        "held": stated and low <= packets <= high,
        "half": (high - low) / 2 / fluid.elapsed_ps if stated else None,
    }  # fmt: skip


def _kind(row: dict[str, Any]) -> str:
    """The choice of paths, or that many send to one."""
    return "fan-in" if row["fan_in"] else str(row["paths"])


def interval(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Quantiles of the error of the time outside computation, by choice of paths, and with fan-in.

    With n scenarios a further error is below the k-th smallest with probability k/(n + 1).
    """
    out = {}
    for name in sorted({_kind(row) for row in rows}):
        own = [row for row in rows if _kind(row) == name]
        errors = np.sort([
            (row["packets_ps"] - row["fluid_ps"])
            / max(row["fluid_ps"] - row["compute_ps"], LEAST_SHARE * row["fluid_ps"])
            for row in own
        ])  # fmt: skip
        k = max(int(0.025 * (len(errors) + 1)), 1)
        out[name] = [len(errors), float(errors[k - 1]), float(np.median(errors)), float(errors[-k])]
    return out


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON, the rows included")
    parser.add_argument("--count", type=int, help="number of scenarios")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="scenarios of other shapes")
    args = parser.parse_args()
    began = time.process_time()
    count = args.count or (60 if args.fresh else 1500)
    rows = [measure(data) for data in scenarios(count, args.seed, fresh=args.fresh)]
    found = {
        "machine": machine(), "scenarios": count, "cpu_s": time.process_time() - began,
        "held": sum(row["held"] for row in rows) / count, "by_kind": interval(rows),
    }  # fmt: skip
    print(json.dumps(found | {"rows": rows} if args.json else found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
