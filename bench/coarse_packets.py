"""Coarse packets compared with full-grain ones: bias of times, order of placements, and cost.

python bench/coarse_packets.py --json         120 random scenarios, five placements each
python bench/coarse_packets.py --write        writes its table into the page approximations
python bench/coarse_packets.py --seed 77 --write
python bench/coarse_packets.py --seed 5 --times 4 --scenarios 60
                                              other scenarios, and some with larger messages
python bench/coarse_packets.py --candidates examples/stencil2d/stencil2d.toml
                                              what ranking a diagnosis' placements costs and finds

Scenarios are drawn by a seeded generator: topology, pattern, size of messages, buffer and routing.
Costs are processor time of the engine alone, which other work on the machine hardly affects.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _shared import machine, put
from numpy.typing import NDArray
from scipy.stats import spearmanr

from tailback import TailbackError
from tailback.api.candidates import DEFAULT_METHODS, make_candidates
from tailback.evaluate import Change
from tailback.placement import place
from tailback.scenario.model import load, parse
from tailback.simulation import (
    FluidOptions,
    fitting_size,
    make_evaluate,
    make_fluid_evaluate,
    prepare,
    simulate,
)
from tailback.units import percent

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "approximations.md"
SIZES_KIB = (8, 16, 32, 64)
PLACEMENTS = ("block", "round-robin-leaves", "random", "metis", "rcm")
DISTINCT = 0.02
"""Smallest spread of a scenario's times for which its order of placements counts: the same as the
smallest gain of a remedy."""

CLEAR = 0.05
"""Smallest difference of two times, as a logarithm, that the order of a pair should show: routing
at random with another seed differs by less."""
FLUID, AGAIN, AUTO = -1, -2, -3
"""Stand among the sizes for the fluid model, for packets of full grain with another seed, and for
packets that fit the messages."""
NAMES = {FLUID: "fluid model", AGAIN: "4 KiB, another seed", AUTO: "auto"}
COARSER = "auto, messages of 512 KiB or more"
"""Only the scenarios in which the packets that fit are larger than those of full grain."""

TREE = {
    "hosts_per_leaf": 8,
    "leaves": 4,
    "aggregation": 4,
    "pods": 4,
    "cores": 16,
    "aggregation_uplinks": 4,
}
FABRICS: tuple[dict[str, Any], ...] = (
    {"fat_tree": TREE},
    {"fat_tree": {**TREE, "cores": 8, "aggregation_uplinks": 2}},
    {"fat_tree": {"hosts_per_leaf": 8, "leaves": 16, "aggregation": 4}},
    {"topology": {"kind": "torus", "dims": [4, 4, 4], "nodes_per_switch": 2}},
    {
        "topology": {
            "kind": "dragonfly",
            "groups": 5,
            "routers": 8,
            "nodes_per_router": 4,
            "global_ports": 4,
        }
    },
)
PATTERNS: tuple[dict[str, Any], ...] = (
    {"kind": "stencil2d", "dims": [16, 8]},
    {"kind": "stencil3d", "dims": [8, 4, 4]},
    {"kind": "permutation", "ranks": 128, "messages": 2},
    {"kind": "uniform", "ranks": 128, "messages": 4},
    {"kind": "transpose", "dims": [16, 8]},
    {"kind": "ring", "ranks": 128},
)


def scenarios(count: int, seed: int, times: int = 1) -> Iterator[dict[str, Any]]:
    """Scenarios as data, with messages ``times`` as large."""
    draw = random.Random(seed)
    for number in range(count):
        size = draw.choice((128, 256, 512, 1024))
        fabric = FABRICS[number % len(FABRICS)]
        pattern = {**draw.choice(PATTERNS), "size": f"{size * times} KiB"}
        engine = {
            "buffer": f"{draw.choice((16, 32, 64, 128))} KiB",
            "routing": draw.choice(("adaptive", "deterministic", "random")),
            "injection": draw.choice(("fifo", "round-robin")),
        }
        yield {
            "seed": number,
            "fabric": fabric,
            "job": [{"pattern": pattern, "hosts": "0-127"}],
            "engine": engine,
        }


def measure(data: dict[str, Any], sizes: tuple[int, ...]) -> dict[str, Any] | None:
    """Times and costs of all placements by full-grain and by coarse packets."""
    prepared = prepare(parse(data))
    problem = prepared.observed.problem
    nodes = [place(name, problem, {}) for name in PLACEMENTS]
    out: dict[str, Any] = {"pattern": data["job"][0]["pattern"]["kind"], "sizes": {}}
    fitting = fitting_size(prepared.program, prepared.scenario.engine.packet)
    grains = {0: None, AGAIN: None, AUTO: fitting} | {size: size * 1024 for size in sizes}
    for size in (0, AGAIN, *sizes, AUTO, FLUID):
        evaluate = (
            make_fluid_evaluate(prepared)
            if size == FLUID
            else make_evaluate(prepared, threads=1, coarse=grains[size])
        )
        times, cost = [], 0.0
        for node in nodes:
            began = time.process_time()
            change = Change(placement=node, network="healthy", seed_offset=int(size == AGAIN))
            times.append(evaluate(change).elapsed_ps)
            cost += time.process_time() - began
        out["sizes"][size] = {"times_ps": times, "cpu_s": cost}
    out["fitting"] = fitting
    return out


def _levels(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank of each time; a difference below :data:`DISTINCT` from the next counts as none."""
    order = np.argsort(times)
    steps = np.diff(np.log(times[order])) >= DISTINCT
    out = np.zeros(len(times), np.int64)
    out[order[1:]] = np.cumsum(steps)
    return out


def summarise(rows: list[dict[str, Any]], sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Bias, rank correlation and saving of each size."""
    coarser = [row for row in rows if row["fitting"] is not None]
    summaries = [_summary(rows, size) for size in (AGAIN, *sizes, AUTO)]
    if 0 < len(coarser) < len(rows):
        summaries.append({**_summary(coarser, AUTO), "name": COARSER})
    return [*summaries, _summary(rows, FLUID)]


def _summary(rows: list[dict[str, Any]], size: int) -> dict[str, Any]:
    """The same of one size."""
    bias, order, within, lost, cost = [], [], [], [], [0.0, 0.0]
    pairs, kept = 0, 0
    for row in rows:
        full, coarse = (np.array(row["sizes"][key]["times_ps"]) for key in (0, size))
        ratio = coarse / full - 1
        bias += ratio.tolist()
        # Errors that all placements of a scenario share do not change their order.
        within += ((coarse / full) / np.median(coarse / full) - 1).tolist()
        levels = _levels(full), _levels(coarse)
        if levels[0].any():
            # Equal ranks alone say nothing about the order.
            order.append(spearmanr(*levels).statistic if levels[1].any() else 0.0)
            lost.append(full[coarse.argmin()] / full.min() - 1)
        for first, other in itertools.combinations(range(len(full)), 2):
            if abs(np.log(full[first] / full[other])) >= CLEAR:
                pairs += 1
                kept += (full[first] < full[other]) == (coarse[first] < coarse[other])
        cost[0] += row["sizes"][0]["cpu_s"]
        cost[1] += row["sizes"][size]["cpu_s"]
    low, median, high = np.percentile(bias, [5, 50, 95])
    near = np.percentile(np.abs(within), [95, 99])
    return {
        "size_kib": size,
        "scenarios": len(rows),
        "median": median,
        "low": low,
        "high": high,
        "pairs": pairs,
        "pairs_kept": kept / pairs,
        "ordered": len(order),
        "within_95": near[0],
        "within_99": near[1],
        "rank_correlation": float(np.mean(order)),
        "lost_max": float(np.max(lost)),
        "lost_mean": float(np.mean(lost)),
        "speedup": cost[0] / cost[1],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The summary in Markdown."""
    lines = [
        "| packets | bias: median (5–95 %) | within a scenario, 95 % (99 %) | rank correlation "
        "| clear pairs in order | time lost by its first choice, mean (max) | faster |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        name = r.get("name", NAMES.get(r["size_kib"], f"{r['size_kib']} KiB"))
        median, low, high = (percent(r[key], 1, "+") for key in ("median", "low", "high"))
        near, far = (percent(r[key], 1) for key in ("within_95", "within_99"))
        lost = f"{percent(r['lost_mean'], 2)} ({percent(r['lost_max'], 1)})"
        faster = "–" if r["size_kib"] == AGAIN else f"{r['speedup']:.1f} ×"
        lines.append(
            f"| {name} | {median} ({low} to {high}) | {near} ({far}) | "
            f"{r['rank_correlation']:.3f} | {percent(r['pairs_kept'], 1)} | {lost} | "
            f"{faster} |"
        )
    return "\n".join(lines)


def candidates(file: str) -> dict[str, Any]:
    """Times and processor seconds of the placements of a diagnosis, in every model that ranks them.

    Tables and routes are built before: what is left is what each simulation of a diagnosis costs.
    """
    prepared = prepare(load(file))
    run = simulate(prepared, threads=1)
    placed, _ = make_candidates(prepared, DEFAULT_METHODS, run, lambda *_: None)
    nodes = {variant.name: node for variant, node in placed.items()}
    # As a diagnosis asks for it.
    fluid = FluidOptions(windows=0, quantum_ps=max(100_000, run.elapsed_ps // 2000))
    healthy = Change(network="healthy", background=False)
    alone = Change(network="no-contention", background=False)
    models = {
        "4 KiB": (make_evaluate(prepared, threads=1), healthy),
        "8 KiB": (make_evaluate(prepared, threads=1, coarse=8 << 10), healthy),
        "16 KiB": (make_evaluate(prepared, threads=1, coarse=16 << 10), healthy),
        "without contention": (make_evaluate(prepared, threads=1), alone),
        "fluid model": (make_fluid_evaluate(prepared, fluid), healthy),
    }
    out: dict[str, Any] = {"scenario": file, "machine": machine(), "models": {}}
    for model, (evaluate, change) in models.items():
        rows = {}
        evaluate(replace(change, seed_offset=1))
        for name, node in nodes.items():
            began = time.process_time()
            run = evaluate(replace(change, placement=node, placement_name=name))
            rows[name] = {"ps": run.elapsed_ps, "cpu_s": time.process_time() - began}
        out["models"][model] = rows
    return out


def candidates_table(measured: dict[str, Any]) -> str:
    """The candidates in Markdown: times in µs, and processor seconds."""
    models = measured["models"]
    lines = [f"| placement | {' | '.join(models)} |", "|---" * (len(models) + 1) + "|"]
    for name in models["4 KiB"]:
        cells = (f"{rows[name]['ps'] / 1e6:.1f} µs" for rows in models.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    costs = (f"{sum(row['cpu_s'] for row in rows.values()):.2f}" for rows in models.values())
    lines.append(f"| CPU s of all | {' | '.join(costs)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Coarse packets against full-grain ones.")
    parser.add_argument("--scenarios", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="messages so many times as large")
    parser.add_argument("--write", action="store_true", help=f"update docs/{PAGE.name}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--candidates", help="placements of a diagnosis of this scenario instead")
    args = parser.parse_args()
    if args.candidates:
        listed = candidates(args.candidates)
        print(json.dumps(listed) if args.json else candidates_table(listed))
        return 0
    try:
        drawn = scenarios(args.scenarios, args.seed, args.times)
        rows = [measure(data, SIZES_KIB) for data in drawn]
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    summaries = summarise([row for row in rows if row], SIZES_KIB)
    if args.write:
        put(PAGE, {"sizes": table(summaries)})
    if args.json:
        print(json.dumps({"machine": machine(), "sizes": summaries}))
    else:
        print(table(summaries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
