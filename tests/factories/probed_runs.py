"""Small runs with probes and schemes of telemetry."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import simulate
from tailback.telemetry.hashed import collision_factor

TREE = {
    "hosts_per_leaf": 4,
    "leaves": 3,
    "aggregation": 2,
    "pods": 3,
    "cores": 4,
    "aggregation_uplinks": 2,
    "host_delay": "5 ns",
    "leaf_delay": "5 ns",
    "core_delay": "50 ns",
}

TORUS = {"kind": "torus", "dims": [4, 4], "nodes_per_switch": 2}


def scenario(
    telemetry: dict[str, Any], fabric: dict[str, Any] | None = None, messages: int = 60, **more: Any
) -> dict[str, Any]:
    ranks = 32 if fabric else 36
    pattern = {"kind": "uniform", "ranks": ranks, "messages": messages, "size": "32 KiB"}
    return {
        "fabric": fabric or {"fat_tree": TREE},
        "job": [{"pattern": pattern}],
        "telemetry": telemetry,
        "engine": {"buffer": "32 KiB", "eager": "1 MiB"},
        **more,
    }


def run_of(
    telemetry: dict[str, Any],
    fabric: dict[str, Any] | None = None,
    threads: int | None = None,
    **more: Any,
) -> Run:
    return simulate(parse(scenario(telemetry, fabric, **more)), threads=threads)


def truth_of(run: Run) -> pl.DataFrame:
    """What really crossed every link, by number of link."""
    sums = run.tables["truth"].group_by("link").agg(pl.exclude("window").sum())
    return run.tables["links"].join(sums, on="link", how="left").fill_null(0).sort("link")


SCHEMES: list[dict[str, Any]] = [
    {"scheme": "full", "packets": 1_000_000},
    {"scheme": "single-bit"},
    {"scheme": "compact"},
    {"scheme": "compact", "hash_bits": 3, "count_bits": 3},
    {"scheme": "coordinated", "hash_bits": 5},
    {"scheme": "coordinated", "hash_bits": 4, "one_in": 3},
    {"scheme": "coordinated", "hash_bits": 4, "packets": 5000},
    {"scheme": "xor-digest", "hash_bits": 4},
    {"scheme": "node-marking", "probability": 0.3},
    {"scheme": "edge-marking", "probability": 0.3},
    {"scheme": "full", "slots": 2},
    {"scheme": "full", "slots": 3, "one_in": 2},
    {"scheme": "single-bit", "slots": 2, "hash_bits": 2},
    {"scheme": "compact", "slots": 2, "hash_bits": 3},
    {"scheme": "compact", "slots": 6, "hash_bits": 2, "one_in": 2},
    {"scheme": "coordinated", "slots": 2, "hash_bits": 4},
    {"scheme": "coordinated", "slots": 3, "hash_bits": 2},
    {"scheme": "compact", "hash_bits": 3, "count_bits": 6, "randomness": "sender"},
    {"scheme": "single-bit", "hash_bits": 2, "count_bits": 6, "randomness": "sender"},
]


def closed_variance(
    n: NDArray[np.float64] | float,
    q: NDArray[np.float64] | float,
    length: float,
    bits: int | None,
    hop_known: bool,
) -> NDArray[np.float64]:
    """Variance of a count in closed form.

    Args:
        n: Packets on the link.
        q: Packets that may have used the link.
        length: Path length l of all of them.
        bits: Hash bits; None for whole links, N (l − 1).
        hop_known: Whether the receiver knows which hop was sampled.
    """
    n, q = np.asarray(n, np.float64), np.asarray(q, np.float64)
    if bits is None:
        return np.asarray(n * (length - 1.0))
    kappa = collision_factor(bits)
    if hop_known:
        return np.asarray(length * n + kappa * length * (q - n) - n)
    return np.asarray(length * n + kappa * (length**2 * q - length * n) - n)


def stencil(scheme: str) -> Run:
    """A stencil in four phases, row by row on the hosts: leaf up-links are congested."""
    pattern = {
        "kind": "stencil2d",
        "dims": [8, 16],
        "size": "2 MiB",
        "order": ["+x", "+y", "-x", "-y"],
    }
    return simulate(
        parse(
            {
                "name": "stencil",
                "seed": 1,
                "fabric": {"fat_tree": {"hosts_per_leaf": 16, "leaves": 8, "aggregation": 4}},
                "job": [{"placement": "block", "pattern": pattern}],
                "telemetry": {"scheme": scheme},
            }
        )
    )
