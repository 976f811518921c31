"""Routes and rates of permutations on the 16-ary 3-tree.

    python -m studies.birk_zdornov2009.permutations --json

Part 1: maximum and average congestion a flow encounters, oblivious and adaptive, by the width of
the horizontal links (Birk and Zdornov, 2009: 1,000 runs), and the time one permutation takes.
Part 2, with `--superpose`: rounds until 1 to 8 superposed permutations are through, without rate
control (switches serve their inputs in turn) and with the assignment (the slides: 50 runs).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time

import numpy as np

from measuring import processor
from studies.birk_zdornov2009.permuted_flows import (
    KaryTree,
    TreeRouting,
    permutation_congestion,
    rounds_to_completion,
    superpose_permutations,
)
from tailback import TailbackError
from tailback.fluid import simulate_flows

LIMIT_MS = 5.0
CELLS = 32


def congestion(table: str, runs: int, seed: int) -> list[dict[str, object]]:
    """Rows of part 1 for one kind of default ports; the first is oblivious in the plain tree."""
    rows: list[dict[str, object]] = []
    cases = [(0, TreeRouting(adaptive=False, table=table))]
    cases += [(w, TreeRouting(table=table, margin=m)) for m in (1, 2) for w in (0, 1, 2, 3, 4, 8)]
    base: tuple[float, float] | None = None
    for width, routing in cases:
        tree = KaryTree(width=width)
        permutation_congestion(tree, routing, 1, seed=seed)
        began = time.perf_counter()
        sample = permutation_congestion(tree, routing, runs, seed=seed)
        each_ms = (time.perf_counter() - began) / runs * 1e3
        worst, mean = float(sample.max.mean()), float(sample.mean.mean())
        base = base or (worst, mean)
        rows.append(
            {
                "table": table,
                "routing": "adaptive" if routing.adaptive else "oblivious",
                "margin": routing.margin,
                "width": width,
                "extra_ports": tree.extra_ports,
                "max": worst,
                "max_change": worst / base[0] - 1,
                "max_sd": float(sample.max.std()),
                "mean": mean,
                "mean_change": mean / base[1] - 1,
                "mean_links": float(sample.mean_links.mean()),
                "ms_each": each_ms,
            }
        )
    return rows


def completion(copies: int, runs: int, buffer: int, seed: int) -> list[dict[str, object]]:
    """Rows of part 2 for one number of permutations; times in units of one flow at line rate."""
    cases = {
        "oblivious, plain": (KaryTree(), TreeRouting(adaptive=False)),
        "adaptive, width 2": (KaryTree(width=2), TreeRouting()),
        "adaptive, width 2, margin 2": (KaryTree(width=2), TreeRouting(margin=2)),
    }
    rows: list[dict[str, object]] = []
    for name, (tree, routing) in cases.items():
        figures = np.zeros((runs, 4))
        for run in range(runs):
            s = superpose_permutations(tree, routing, copies, run, seed)
            ones = np.ones(s.paths.n_flows)
            size = np.full(s.paths.n_flows, 1000)  # 1 us at 8 Gb/s
            fair = simulate_flows(np.full(s.n_links, 8.0), s.paths, size)
            figures[run] = (
                rounds_to_completion(s.n_links, s.paths, CELLS, buffer).max() / CELLS,
                rounds_to_completion(s.n_links, s.paths, CELLS, buffer, assigned=True).max()
                / CELLS,
                fair.completion_ps / 1e6,
                s.paths.link_sum(ones, s.n_links).max(),
            )
        mean = figures.mean(axis=0)
        rows.append(
            {
                "copies": copies,
                "routing": name,
                "runs": runs,
                "buffer_cells": buffer,
                "no_control": mean[0],
                "no_control_sd": figures[:, 0].std(),
                "paced": mean[1],
                "max_min": mean[2],
                "assignment": mean[3],
            }
        )
    base = float(rows[0]["no_control"])  # type: ignore[arg-type]
    for row in rows:
        for key in ("no_control", "paced", "assignment"):
            row[f"{key}_change"] = float(row[key]) / base - 1  # type: ignore[arg-type]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="Random permutations on the 16-ary 3-tree.")
    parser.add_argument("--runs", type=int, default=None, help="1000, or 50 with --superpose")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--superpose", metavar="N", type=int, nargs="*", help="default 1 to 8")
    parser.add_argument("--buffer", type=int, default=8, help="cells a buffer holds (part 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    runs = args.runs or (1000 if args.superpose is None else 50)
    began = time.perf_counter()
    try:
        if args.superpose is None:
            rows = [r for t in ("d-mod-k", "random") for r in congestion(t, runs, args.seed)]
        else:
            numbers = args.superpose or range(1, 9)
            rows = [r for n in numbers for r in completion(n, runs, args.buffer, args.seed)]
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    result = {
        "runs": runs,
        "seconds": round(time.perf_counter() - began, 2),
        "machine": f"{processor()}, one core, Python {platform.python_version()}",
        "rows": rows,
    }
    if args.superpose is None:
        result["slowest_ms"] = max(float(row["ms_each"]) for row in rows)  # type: ignore[arg-type]
        result["limit_ms"] = LIMIT_MS
    if args.json:
        print(json.dumps(result))
    else:
        for row in rows:
            print(
                "  ".join(
                    f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
                )
            )
    return int(result.get("slowest_ms", 0.0) > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
