"""Steps left out and extrapolated, against the whole simulation of the same application.

python bench/repetition.py --json             every application
python bench/repetition.py --case alltoall    those whose names begin so
python bench/repetition.py --write            writes its tables into the page approximations
python bench/repetition.py --longer           applications that take 5 to 60 s whole
python bench/repetition.py --coverage 8       nine small applications with 8 seeds, from --seed on
python bench/repetition.py --second           one second of a 4608-node job at load 0.4, skipped

Costs are processor time of this process, not affected by what else the machine does. Per-link
errors are of the bytes over the whole run, of links that carry at least a thousandth of what the
busiest one does.
"""

from __future__ import annotations

import argparse
import json
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _shared import machine, put

import tailback as tb
from tailback.run.run import Run
from tailback.scenario.model import load

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "approximations.md"

TREE = {"fat_tree": {"hosts_per_leaf": 8, "leaves": 8, "aggregation": 4}}
SMALL_TREE = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 4}}
LARGE_TREE = {"fat_tree": {"hosts_per_leaf": 16, "leaves": 16, "aggregation": 8}}
TORUS = {"topology": {"kind": "torus", "dims": [4, 4, 4]}}
DRAGONFLY = {
    "topology": {
        "kind": "dragonfly",
        "groups": 9,
        "routers": 4,
        "nodes_per_router": 2,
        "global_ports": 2,
    }
}
HYPERX = {"topology": {"kind": "hyperx", "dims": [4, 4], "nodes_per_switch": 4}}
EXAMPLES = {
    "alltoall/alltoall": 60,
    "congestion/hot-spot": 60,
    "demo/demo": 60,
    "rates/rates": 200,
    "reduction/tree": 100,
    "stencil2d/stencil2d": 60,
    "training/tree": 100,
}
"""Repetitions of each example, as many as a whole simulation of moderate cost has room for."""


def job(kind: str, repeat: int, **options: Any) -> dict[str, Any]:
    """A job of one pattern."""
    return {"pattern": {"kind": kind, **options}, "repeat": repeat}


def regular() -> dict[str, Any]:
    """Patterns whose steps are all alike: fabric, jobs and engine by name."""
    deterministic, adaptive = {"routing": "deterministic"}, {"routing": "adaptive"}
    stencil = {"dims": [8, 8], "size": "64 KiB", "compute": "20 us"}
    cube = {"dims": [4, 4, 4], "size": "64 KiB", "compute": "50 us", "post": "all"}
    return {
        "stencil2d-tree-deterministic": (TREE, [job("stencil2d", 1000, **stencil)], deterministic),
        "stencil2d-tree-adaptive": (TREE, [job("stencil2d", 1000, **stencil)], adaptive),
        "stencil2d-no-computation": (
            TREE,
            [job("stencil2d", 1000, dims=[8, 8], size="64 KiB")],
            adaptive,
        ),
        "stencil2d-periodic": (
            TREE,
            [job("stencil2d", 1000, **stencil, periodic=True)],
            deterministic,
        ),
        "stencil3d-torus": (TORUS, [job("stencil3d", 1000, **cube)], deterministic),
        "stencil3d-torus-256-KiB": (
            TORUS,
            [job("stencil3d", 1000, **cube | {"size": "256 KiB"})],
            deterministic,
        ),
        "stencil3d-tree": (TREE, [job("stencil3d", 1000, **cube)], adaptive),
        "alltoall-deterministic": (
            SMALL_TREE,
            [job("alltoall", 1000, ranks=16, size="256 KiB")],
            deterministic,
        ),
        "alltoall-adaptive": (
            SMALL_TREE,
            [job("alltoall", 1000, ranks=16, size="64 KiB")],
            adaptive,
        ),
        "alltoall-dragonfly": (
            DRAGONFLY,
            [job("alltoall", 300, ranks=64, size="16 KiB")],
            adaptive,
        ),
        "transpose-hyperx": (
            HYPERX,
            [job("transpose", 1000, dims=[8, 8], size="32 KiB", compute="30 us")],
            adaptive,
        ),
        "fft2d-tree": (
            TREE,
            [job("fft2d", 300, plane=[4, 4], planes=4, size="16 KiB", compute="20 us")],
            adaptive,
        ),
    }


def irregular() -> dict[str, Any]:
    """Patterns with noise, random partners, several jobs: fabric, jobs and engine by name."""
    deterministic, adaptive = {"routing": "deterministic"}, {"routing": "adaptive"}
    ghost = {"dims": [4, 4, 4], "cells": [40, 40, 40], "variables": 3}
    return {
        "minighost-noise": (
            TREE,
            [job("minighost", 1, **ghost, compute="100 us", imbalance=0.2, steps=400)],
            adaptive,
        ),
        "minighost-sum-per-step": (
            TREE,
            [job("minighost", 1, **ghost, compute="100 us", imbalance=0.5, steps=400, sums="step")],
            deterministic,
        ),
        "minighost-no-sum": (
            TORUS,
            [job("minighost", 1, **ghost, compute="100 us", imbalance=0.1, steps=400, sums="none")],
            deterministic,
        ),
        "ring-deterministic": (
            TREE,
            [job("ring", 1000, ranks=64, size="64 KiB", messages=2)],
            deterministic,
        ),
        "uniform-adaptive": (
            TREE,
            [job("uniform", 500, ranks=64, size="64 KiB", messages=8)],
            adaptive,
        ),
        "permutation-random": (
            TREE,
            [job("permutation", 300, ranks=64, size="64 KiB", messages=4)],
            {"routing": "random"},
        ),
        "reduce-tree": (TREE, [job("reduce-tree", 200, ranks=64, size="4 KiB")], adaptive),
        "stencil-beside-uniform": (
            TREE,
            [
                job("stencil2d", 1000, dims=[4, 8], size="64 KiB", compute="20 us")
                | {"hosts": "0-3,8-11,16-19,24-27,32-35,40-43,48-51,56-59"},
                job("uniform", 400, ranks=32, size="64 KiB", messages=8)
                | {"hosts": "4-7,12-15,20-23,28-31,36-39,44-47,52-55,60-63", "observed": False},
            ],
            adaptive,
        ),
        "alltoall-beside-stencil": (
            TREE,
            [
                job("alltoall", 400, ranks=32, size="16 KiB") | {"hosts": "0-31"},
                job("stencil2d", 2000, dims=[4, 8], size="64 KiB", compute="20 us")
                | {"hosts": "32-63", "observed": False},
            ],
            deterministic,
        ),
    }


def applications() -> dict[str, dict[str, Any]]:
    """Scenarios by name, without the key that skips."""
    return scenarios(regular() | irregular() | larger()) | examples()


def scenarios(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Scenarios of fabrics, jobs and engines."""
    return {
        name: {"name": name, "fabric": fabric, "job": jobs, "engine": engine}
        for name, (fabric, jobs, engine) in made.items()
    }


def examples() -> dict[str, dict[str, Any]]:
    """The examples, each job repeated."""
    out = {}
    for name, times in EXAMPLES.items():
        if times:
            scenario = load(f"examples/{name}.toml").model_dump(mode="json", exclude_unset=True)
            for section in scenario["job"]:
                section["repeat"] = times
            scenario.setdefault("telemetry", {})["messages"] = True
            out[f"example-{name.split('/')[1]}-{name.split('/')[0]}"] = scenario
    return out


def longer() -> dict[str, Any]:
    """Thousand steps of usual size: a whole simulation takes 5 to 60 s of processor time."""
    adaptive = {"routing": "adaptive"}
    cube = {"dims": [8, 8, 4], "size": "128 KiB", "compute": "100 us", "post": "all"}
    return {
        "stencil2d-1-MiB": (
            TREE,
            [job("stencil2d", 1000, dims=[8, 8], size="1 MiB", compute="200 us")],
            adaptive,
        ),
        "stencil3d-256-ranks": (LARGE_TREE, [job("stencil3d", 1000, **cube)], adaptive),
        "alltoall-32-ranks": (
            TREE,
            [job("alltoall", 1000, ranks=32, size="128 KiB", compute="100 us")],
            adaptive,
        ),
        "transpose-256-ranks": (
            LARGE_TREE,
            [job("transpose", 1000, dims=[16, 16], size="512 KiB", compute="100 us")],
            adaptive,
        ),
    }


def larger() -> dict[str, Any]:
    """Patterns on 512 ranks, and with detours: fabric, jobs and engine by name."""
    tree = {"fat_tree": {"hosts_per_leaf": 16, "leaves": 32, "aggregation": 8}}
    stencil = {"dims": [16, 32], "size": "64 KiB", "compute": "20 us"}
    return {
        "stencil2d-512-ranks": (
            tree,
            [job("stencil2d", 1000, **stencil)],
            {"routing": "adaptive"},
        ),
        "alltoall-dragonfly-ugal": (
            DRAGONFLY | {"routes": "ugal"},
            [job("alltoall", 300, ranks=64, size="16 KiB")],
            {"routing": "adaptive"},
        ),
    }


def simulated(scenario: dict[str, Any], skip: bool) -> tuple[Run, float]:
    """A run, and the processor seconds that it took."""
    data = deepcopy(scenario)
    data.setdefault("engine", {})["skip_repeats"] = skip
    began = time.process_time()
    return tb.simulate(data, threads=1), time.process_time() - began


def link_errors(full: Run, skipped: Run) -> tuple[float, float]:
    """Largest and mean error of the bytes of links, as a share of them."""
    totals = [
        run.tables["truth"].group_by("link").agg(pl.col("bytes").sum().cast(pl.Float64))
        for run in (full, skipped)
    ]
    both = totals[0].join(totals[1], on="link", how="full", suffix="_skipped").fill_null(0.0)
    bytes_, other = both["bytes"].to_numpy(), both["bytes_skipped"].to_numpy()
    used = bytes_ >= bytes_.max(initial=0) / 1000
    error = np.abs(other - bytes_)[used] / bytes_[used]
    return float(error.max(initial=0)), float(error.mean()) if len(error) else 0.0


def compared(name: str, scenario: dict[str, Any]) -> dict[str, Any]:
    """A row of the table."""
    full, full_s = simulated(scenario, skip=False)
    # Short runs: the median of three costs.
    attempts = [simulated(scenario, skip=True) for _ in range(3 if full_s < 20 else 1)]
    skipped, skipped_s = sorted(attempts, key=lambda attempt: attempt[1])[len(attempts) // 2]
    facts = skipped.summary.get("skipped")
    worst, mean = link_errors(full, skipped)
    low, high = skipped.elapsed_ps, skipped.elapsed_ps
    if facts is not None:
        low, high = facts["elapsed_low_ps"], facts["elapsed_high_ps"]
    elapsed = full.elapsed_ps
    return {
        "application": name,
        "steps": facts["steps"] if facts else None,
        "simulated": facts["simulated"] if facts else None,
        "cpu_s": full_s,
        "cpu_s_skipped": skipped_s,
        "ratio": full_s / skipped_s,
        "elapsed_error": skipped.elapsed_ps / elapsed - 1,
        "half_interval": (high - low) / 2 / elapsed,
        "interval_held": low <= elapsed <= high,
        "worst_link_error": worst,
        "mean_link_error": mean,
        "links_half": (facts or {}).get("links_half") or 0.0,
        "exact": bool(skipped.tables["skips"]["exact"].all()) if facts else False,
        "why_not": None
        if facts
        else next((note for note in skipped.notes if note.startswith("nothing was skipped")), ""),
    }


def coverage(seeds: int, first: int) -> dict[str, Any]:
    """How often intervals hold: small applications, 600 steps, ``seeds`` seeds from ``first`` on.

    Ranks of the last ones move apart for a long time; every second seed places them at random, so
    that they meet on links.
    """
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (
            SMALL_TREE,
            {"kind": "stencil3d", "dims": [4, 2, 2], "size": "64 KiB", "compute": "50 us"},
            "adaptive",
        ),
        (
            SMALL_TREE,
            {"kind": "alltoall", "ranks": 16, "size": "16 KiB", "compute": "10 us"},
            "adaptive",
        ),
        (
            SMALL_TREE,
            {"kind": "stencil2d", "dims": [4, 4], "size": "32 KiB", "compute": "20 us"},
            "adaptive",
        ),
        (TREE, {"kind": "stencil2d", "dims": [8, 8], "size": "64 KiB"}, "adaptive"),
        (
            TREE,
            {"kind": "stencil2d", "dims": [8, 8], "size": "64 KiB", "compute": "5 us"},
            "random",
        ),
        (TREE, {"kind": "stencil2d", "dims": [4, 16], "size": "16 KiB"}, "adaptive"),
        (TREE, {"kind": "stencil3d", "dims": [4, 4, 4], "size": "32 KiB"}, "random"),
        (SMALL_TREE, {"kind": "stencil2d", "dims": [2, 8], "size": "128 KiB"}, "adaptive"),
        (
            LARGE_TREE,
            {"kind": "stencil2d", "dims": [16, 16], "size": "32 KiB", "compute": "10 us"},
            "adaptive",
        ),
    ]
    rows = [
        compared(
            pattern["kind"],
            {
                "name": "coverage",
                "fabric": fabric,
                "seed": seed,
                "job": [
                    {
                        "pattern": pattern,
                        "repeat": 600,
                        "placement": "random" if seed % 2 == 0 and number > 2 else "block",
                    }
                ],
                "engine": {"routing": routing},
            },
        )
        for number, (fabric, pattern, routing) in enumerate(cases)
        for seed in range(first, first + seeds)
    ]
    rows = [row for row in rows if row["steps"]]
    return {
        "machine": machine(),
        "runs": seeds * len(cases),
        "skipped": len(rows),
        "elapsed_held": sum(row["interval_held"] for row in rows),
        "elapsed_within_2_percent": sum(abs(row["elapsed_error"]) <= 0.02 for row in rows),
        "links_held": sum(row["worst_link_error"] <= row["links_half"] for row in rows),
        "links_within_2_percent": sum(row["worst_link_error"] <= 0.02 for row in rows),
        "worst_link_error": max(row["worst_link_error"] for row in rows),
        "mean_ratio": float(np.exp(np.mean([np.log(row["ratio"]) for row in rows]))),
    }


def second(steps: int = 1000) -> dict[str, Any]:
    """A second of 4608 nodes of Tapered at load 0.4: steps of a millisecond.

    In a step each node sends messages of 128 KiB to random others at random times, and waits for
    those that it receives.
    """
    pattern = {"kind": "paced", "ranks": 4608, "size": "128 KiB", "load": 0.4, "duration": "1 ms"}
    scenario = {
        "name": "second",
        "fabric": {"preset": "tapered"},
        "job": [{"pattern": pattern, "repeat": steps}],
        "engine": {"eager": "1 MiB"},
        "telemetry": {"messages": False},
    }
    began = time.perf_counter()
    run, cpu_s = simulated(scenario, skip=True)
    return {
        "machine": machine(),
        "cpu_s": cpu_s,
        "wall_s": time.perf_counter() - began,
        "elapsed_s": run.elapsed_ps / 1e12,
        "packet_hops": run.summary["packet_hops"],
        "skipped": run.summary.get("skipped"),
        "notes": run.notes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--case", default="", help="applications whose name begins so")
    parser.add_argument("--write", action="store_true", help=f"update docs/{PAGE.name}")
    parser.add_argument("--second", action="store_true", help="a second of 4608 nodes instead")
    parser.add_argument("--longer", action="store_true", help="longer applications instead")
    parser.add_argument("--coverage", type=int, help="several seeds of small applications instead")
    parser.add_argument("--seed", type=int, default=1, help="first seed of --coverage")
    options = parser.parse_args()
    if options.coverage:
        print(json.dumps(coverage(options.coverage, options.seed), indent=2))
        return
    if options.second:
        figures = second()
        print(json.dumps(figures, indent=2))
        if options.write:
            put(PAGE, {"second": _second(figures)})
        return
    rows = []
    for name, scenario in (scenarios(longer()) if options.longer else applications()).items():
        if not name.startswith(options.case):
            continue
        rows.append(compared(name, scenario))
        if not options.json:
            print(_line(rows[-1]), flush=True)
    skipped = [row for row in rows if row["steps"]]
    total = {
        "machine": machine(),
        "applications": len(rows),
        "skipped": len(skipped),
        "intervals_held": sum(row["interval_held"] for row in skipped),
        "within_2_percent": sum(abs(row["elapsed_error"]) <= 0.02 for row in skipped),
        "links_within_2_percent": sum(row["worst_link_error"] <= 0.02 for row in skipped),
        "links_held": sum(row["worst_link_error"] <= row["links_half"] + 1e-9 for row in skipped),
    }
    print(json.dumps({**total, "rows": rows} if options.json else total, indent=2))
    if options.write:
        put(PAGE, {"longer" if options.longer else "applications": _table(rows, total)})


def _table(rows: list[dict[str, Any]], total: dict[str, Any]) -> str:
    """The applications in Markdown."""
    lines = [
        "| application | steps | simulated | whole | skipped | ratio | elapsed | half interval "
        "| links: worst | stated |",
        "|---" * 10 + "|",
    ]
    for row in rows:
        cost = f"{row['cpu_s']:.2f} s | {row['cpu_s_skipped']:.2f} s | {row['ratio']:.1f} ×"
        if row["steps"] is None:
            lines.append(
                f"| {row['application']} | – | all | {cost} | {row['why_not']} | – | – | – |"
            )
            continue
        half = "exact" if row["exact"] else f"{row['half_interval']:.2%}"
        half += "" if row["interval_held"] else " **missed**"
        steps, simulated = (", ".join(map(str, row[key])) for key in ("steps", "simulated"))
        lines.append(
            f"| {row['application']} | {steps} | {simulated} | {cost} "
            f"| {row['elapsed_error']:+.3%} | {half} "
            f"| {row['worst_link_error']:.2%} | {row['links_half']:.2%} |"
        )
    counts = (
        f"{total['skipped']} of {total['applications']} applications were skipped; of these "
        f"{total['intervals_held']} intervals held, {total['within_2_percent']} elapsed times and "
        f"the bytes of all links of {total['links_within_2_percent']} are within 2 %, those of "
        f"{total['links_held']} within what was stated."
    )
    return "\n".join([*lines, "", counts])


def _second(figures: dict[str, Any]) -> str:
    """The second in Markdown."""
    return "\n\n".join(
        [
            f"{figures['packet_hops']:.3g} packet-hops, {figures['elapsed_s']:.3f} s of the "
            f"application: {figures['cpu_s']:.0f} CPU s, {figures['wall_s']:.0f} s on the clock, "
            "one thread.",
            *(f"> {note}" for note in figures["notes"] if "skipped" in note),
        ]
    )


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['application']:32} {row['cpu_s']:7.2f} {row['cpu_s_skipped']:6.2f} s "
        f"{row['ratio']:6.1f}x elapsed {row['elapsed_error']:+8.3%} ± {row['half_interval']:6.3%} "
        f"{'held' if row['interval_held'] else 'MISSED':6} links {row['worst_link_error']:7.3%} "
        f"± {row['links_half']:6.3%} {row['mean_link_error']:7.3%} "
        f"{row['simulated']} of {row['steps']} "
        f"{'exact' if row['exact'] else ''}{row['why_not'] or ''}"
    )


if __name__ == "__main__":
    main()
