"""Routes of permutations on the 16-ary 3-tree: congestion, and rounds until they are through.

    python -m studies.birk_zdornov2009.permutations --write

Maximum and average congestion a flow encounters, oblivious and adaptive, by the width of the
horizontal links (Birk and Zdornov, 2009: 1,000 runs). ``completion`` gives the rounds until
superposed permutations are through, without rate control (switches serve their inputs in turn) and
with the assignment (the slides: 50 runs).
"""

from __future__ import annotations

import numpy as np

from studies.birk_zdornov2009.packet_rates import PAGE
from studies.birk_zdornov2009.permuted_flows import (
    KaryTree,
    TreeRouting,
    permutation_congestion,
    rounds_to_completion,
    superpose_permutations,
)
from studies.taffet2019.reproduction import run
from tailback.units import percent

CELLS = 32
RUNS = 1000
WIDTHS = {"d-mod-k": (0, 1, 2, 4), "random": (2,)}
"""Widths of the horizontal links by kind of default ports."""
TABLES = {"d-mod-k": "D-mod-k", "random": "random, by switch and destination"}


def congestion(table: str, runs: int, seed: int) -> list[dict[str, object]]:
    """Rows of part 1 for one kind of default ports; the first is oblivious in the plain tree."""
    rows: list[dict[str, object]] = []
    cases = [(0, TreeRouting(adaptive=False, table=table))]
    cases += [(w, TreeRouting(table=table, margin=m)) for m in (1, 2) for w in WIDTHS[table]]
    base: tuple[float, float] | None = None
    for width, routing in cases:
        tree = KaryTree(width=width)
        sample = permutation_congestion(tree, routing, runs, seed=seed)
        worst, mean = float(sample.max.mean()), float(sample.mean.mean())
        base = base or (worst, mean)
        rows.append(
            {
                "table": table,
                "routing": "adaptive" if routing.adaptive else "oblivious",
                "margin": routing.margin,
                "width": width,
                "max": worst,
                "max_change": worst / base[0] - 1,
                "mean": mean,
                "mean_change": mean / base[1] - 1,
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
        figures = np.zeros((runs, 3))
        for number in range(runs):
            s = superpose_permutations(tree, routing, copies, number, seed)
            ones = np.ones(s.paths.n_flows)
            figures[number] = (
                rounds_to_completion(s.n_links, s.paths, CELLS, buffer).max() / CELLS,
                rounds_to_completion(s.n_links, s.paths, CELLS, buffer, assigned=True).max()
                / CELLS,
                s.paths.link_sum(ones, s.n_links).max(),
            )
        mean = figures.mean(axis=0)
        rows.append(
            {
                "copies": copies,
                "routing": name,
                "no_control": mean[0],
                "paced": mean[1],
                "assignment": mean[2],
            }
        )
    base = float(rows[0]["no_control"])  # type: ignore[arg-type]
    for row in rows:
        for key in ("no_control", "paced", "assignment"):
            row[f"{key}_change"] = float(row[key]) / base - 1  # type: ignore[arg-type]
    return rows


def congestion_table(runs: int = RUNS, seed: int = 1) -> str:
    """Part of the page: congestion by default ports, routing and width."""
    lines = ["| default ports | routing | width | maximum | average |", "|---" * 5 + "|"]
    for table, words in TABLES.items():
        for row in congestion(table, runs, seed):
            routing = "oblivious, plain tree"
            cells = [f"{row[key]:.2f}" for key in ("max", "mean")]
            if row["routing"] == "adaptive":
                routing = f"adaptive, margin {row['margin']}"
                changes = (float(row[f"{key}_change"]) for key in ("max", "mean"))  # type: ignore[arg-type]
                cells = [
                    f"{cell} ({percent(change, sign='+')})"
                    for cell, change in zip(cells, changes, strict=True)
                ]
            lines.append(f"| {words} | {routing} | {row['width']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{runs:,} permutations each."])


if __name__ == "__main__":
    run(__doc__, "permutations", congestion_table, PAGE)
