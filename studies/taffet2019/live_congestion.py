"""Section 6.1 of Taffet (2019): incremental mapping with edge weights from live congestion.

    python -m studies.taffet2019.live_congestion --write

A stencil shares leaves with a job that it cannot see, which is under half of them. Its packets are
sampled while it runs in a mapping that knows its traffic alone; the mapping is then improved with
the congestion decoded from these samples. Which leaves the other job is under is drawn. As a
baseline, the same congestion is assigned to the leaves in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from studies.taffet2019.reproduction import Row, run, table
from tailback import Run, load_scenario
from tailback.evaluate import Change
from tailback.placement import place, switch_congestion
from tailback.simulation import PreparedScenario, decode_samples, make_evaluate, prepare
from tailback.telemetry import Selection, link_estimates, select
from tailback.units import format_time, percent

LEAVES, HOSTS, OURS = 8, 16, 8
"""Leaves, hosts of each, and hosts of each that are ours."""
DRAWS: Final = 40
SEED: Final = 1
STATIC, LIVE, SHUFFLED, PARTITIONED = (
    "incremental, by our traffic alone",
    "incremental, with live congestion",
    "incremental, congestion of other leaves",
    "graph partitioning (METIS)",
)


def scenario(busy: NDArray[np.int64]) -> dict[str, Any]:
    """A stencil on half of the hosts of every leaf, another job on others of ``busy`` leaves."""
    spans = [f"{leaf * HOSTS}-{leaf * HOSTS + OURS - 1}" for leaf in range(LEAVES)]
    others = [f"{leaf * HOSTS + OURS}-{(leaf + 1) * HOSTS - 1}" for leaf in sorted(busy.tolist())]
    stencil = {"kind": "stencil2d", "dims": [8, 8], "size": "128 KiB", "rounds": 4}
    unseen = {"kind": "uniform", "ranks": OURS * len(busy), "messages": 24, "size": "128 KiB"}
    return {
        "name": "live congestion",
        "seed": SEED,
        "fabric": {"fat_tree": {"hosts_per_leaf": HOSTS, "leaves": LEAVES, "aggregation": 8}},
        "job": [
            {"name": "stencil", "hosts": ",".join(spans), "pattern": stencil},
            {"name": "other", "hosts": ",".join(others), "observed": False, "pattern": unseen},
        ],
        "engine": {"packet": "2 KiB", "buffer": "64 KiB", "routing": "adaptive"},
        "telemetry": {"scheme": "coordinated", "hash_bits": 5},
    }


def mapped(
    prepared: PreparedScenario, by_switch: NDArray[np.float64] | None, method: str = "incremental"
) -> NDArray[np.uint32]:
    """Node of each rank, with the congestion of each switch, if given."""
    problem = replace(prepared.observed.problem, congestion=by_switch)
    return place(method, problem, {})


def congestion(prepared: PreparedScenario, run: Run) -> NDArray[np.float64]:
    """Congested fraction of each switch, from the samples that arrived in packets."""
    estimates = link_estimates(select(decode_samples(run).tables, Selection()), hashed=True)
    fraction = np.full(prepared.fabric.n_links, np.nan)
    fraction[estimates["link"].to_numpy()] = estimates["fraction"].to_numpy()
    return switch_congestion(prepared.fabric, fraction)


def times_ps(busy: NDArray[np.int64], dice: np.random.Generator) -> dict[str, int]:
    """Time of the stencil in each mapping, picoseconds."""
    prepared = prepare(load_scenario(scenario(busy)))
    evaluate = make_evaluate(prepared)
    static = mapped(prepared, None)
    measured = evaluate(Change(placement=static, measure=True))
    live = congestion(prepared, measured)
    leaves = np.unique(prepared.observed.problem.slot_leaf)
    other = live.copy()
    other[leaves] = live[dice.permutation(leaves)]
    nodes = {
        LIVE: mapped(prepared, live),
        SHUFFLED: mapped(prepared, other),
        PARTITIONED: mapped(prepared, None, "metis"),
    }
    out = {STATIC: measured.elapsed_ps}
    return out | {name: evaluate(Change(placement=node)).elapsed_ps for name, node in nodes.items()}


def row(name: str, draws: list[dict[str, int]], theirs: str, reason: str) -> Row:
    """Mean time of a mapping, and how it compares with the static one, draw by draw."""
    change = np.array([draw[name] / draw[STATIC] - 1 for draw in draws])
    if name == STATIC:
        mean = format_time(round(float(np.mean([draw[name] for draw in draws]))))
        return Row(f"section 6.1: {name}", "–", mean, "–", reason)
    middle, error = float(change.mean()), float(change.std(ddof=1) / np.sqrt(len(change)))
    ends = (percent(middle + side * 1.96 * error, 1, "+") for side in (-1, 1))
    ours = f"{percent(middle, 1, '+')} ({' to '.join(ends)}); "
    ours += f"faster in {int((change < 0).sum())} of {len(change)}"
    return Row(f"… {name}: change of the time", theirs, ours, "–", reason)


def rows(draws: list[dict[str, int]]) -> list[Row]:
    """Every mapping."""
    could: Mapping[str, tuple[str, str]] = {
        STATIC: ("–", f"mean of {DRAWS} draws; below: mean change draw by draw, 95 % interval"),
        LIVE: ("could outperform static mappings", "decoded from 5 + 1 bits of the static run"),
        SHUFFLED: ("–", "baseline: the same numbers on leaves in another order"),
        PARTITIONED: ("–", "baseline: knows no congestion"),
    }
    return [row(name, draws, *words) for name, words in could.items()]


def drawn() -> list[dict[str, int]]:
    """Times of all draws."""
    dice = np.random.default_rng(SEED)
    return [times_ps(dice.permutation(LEAVES)[: LEAVES // 2], dice) for _ in range(DRAWS)]


if __name__ == "__main__":
    run(__doc__, "live congestion", lambda: table(rows(drawn())))
