"""A torus like Blue Waters of any size under a mix of jobs of any load, and what it measures.

The shares of the jobs, their message sizes and patterns are those of
``examples/blue-waters/blue-waters.toml``; ``load`` scales how often they communicate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from studies.production_networks import counter_tables
from tailback import Run, load_scenario, simulate
from tailback.port_counters.analysis import torus_rows
from tailback.port_counters.readers import from_run

LINE: Final = "83.2 Gb/s"
WINDOW: Final = "100 us"
KINDS: Final = ("mesh", "spectral", "mixed", "files")
AXES: Final = ("X", "Y", "Z")


@dataclass(frozen=True)
class Machine:
    """One simulated machine and its mix.

    Attributes:
        side: Routers along each dimension.
        load: How often jobs communicate, 1 as in the example.
        kinds: Jobs that run.
        placement: Placement of the mesh and the spectral job.
        buffer: Buffer of a link.
        spread: Whether every job has nodes everywhere; otherwise a job has a slab along Z, since
            nodes are numbered along X first.
        host_rate: Rate at which a node sends and takes data.
        seed: Seed of placements and traffic.
    """

    side: int = 8
    load: float = 1.0
    kinds: tuple[str, ...] = KINDS
    placement: str = "random"
    buffer: str = "64 KiB"
    spread: bool = False
    host_rate: str = "10.4 GB/s"
    seed: int = 1


SHAPES: Final = {
    8: ([8, 8, 4], [16, 16]),
    12: ([10, 10, 10], [40, 24]),
    16: ([16, 12, 12], [96, 24]),
    24: ([20, 20, 20], [320, 24]),
}
"""Grids of the mesh and of the spectral job by side of the torus: 29 % and 28 % of the nodes.

From 12 on a rank of the spectral job has as many partners as in the example."""


def io_nodes(side: int) -> list[int]:
    """Nodes that serve files: one in 48, spread evenly."""
    return [17 + 47 * k for k in range(2 * side**3 // 48)]


def scenario(machine: Machine, **more: Any) -> dict[str, Any]:
    """The machine as a scenario; ``more`` are further jobs (``job``) or sections."""
    servers = io_nodes(machine.side)
    free = np.setdiff1d(np.arange(2 * machine.side**3), servers)
    if machine.spread:
        free = np.random.default_rng([machine.seed, 0x5C]).permutation(free)
    mesh, spectral = SHAPES[machine.side]
    sizes = [int(np.prod(mesh)), int(np.prod(spectral)), int(0.29 * len(free))]
    parts = np.split(free, np.cumsum(sizes))
    compute = f"{round(100_000 / machine.load)} ns"
    times = {"duration": "1200 us", "line_rate": LINE}
    patterns: dict[str, dict[str, Any]] = {
        "mesh": {
            "kind": "stencil3d",
            "dims": mesh,
            "size": "64 KiB",
            "rounds": 4,
            "compute": compute,
            "post": "all",
            "boundary": "skip",
        },
        "spectral": {
            "kind": "transpose",
            "dims": spectral,
            "axis": "y",
            "size": "16 KiB",
            "rounds": 3,
            "compute": compute,
        },
        "mixed": {
            "kind": "paced",
            "ranks": sizes[2],
            "size": "32 KiB",
            "load": 0.06 * machine.load,
            **times,
        },
        "files": {
            "kind": "paced",
            "ranks": len(parts[3]) + len(servers),
            "servers": len(servers),
            "reads": 0.5,
            "size": "128 KiB",
            "load": 0.01 * machine.load,
            **times,
        },
    }
    topology = {
        "kind": "blue-waters",
        "dims": [machine.side] * 3,
        "host_rate": machine.host_rate,
    }
    jobs = []
    for name, part in zip(KINDS, parts, strict=True):
        if name in machine.kinds:
            hosts = [*part.tolist(), *(servers if name == "files" else [])]
            placement = machine.placement if name in ("mesh", "spectral") else "block"
            jobs.append(
                {
                    "name": name,
                    "hosts": ",".join(map(str, hosts)),
                    "placement": placement,
                    "pattern": patterns[name],
                }
            )
    return {
        "name": "torus",
        "seed": machine.seed,
        "fabric": {"topology": topology},
        "engine": {"packet": "2 KiB", "routing": "deterministic", "buffer": machine.buffer},
        "telemetry": {"windows": 8, "messages": False, "scheme": "full", "one_in": 64},
        "probes": {"counters": WINDOW},
        "job": [*jobs, *more.pop("job", [])],
        **more,
    }


def run_of(machine: Machine, **more: Any) -> Run:
    """Simulate it."""
    return simulate(load_scenario(scenario(machine, **more)))


def intervals(run: Run) -> pl.DataFrame:
    """Intervals of the links between routers, by direction, while every job ran."""
    first = min(int(end) for end in run.summary["job_elapsed_ps"].values())
    rows = from_run(run).all_intervals().filter(pl.col("time_ns") * 1000 <= first)
    return torus_rows(run, rows)


def averaged(rows: pl.DataFrame) -> pl.DataFrame:
    """One interval a link: means over the run."""
    return rows.group_by("link", "direction", "node_name", maintain_order=True).agg(
        pl.col("utilization", "stall_fraction", "internal_stall_fraction").mean()
    )


def correlations(rows: pl.DataFrame, measure: str = "credit") -> dict[str, float | None]:
    """Correlation of use with a kind of stall along each axis."""
    table = counter_tables.correlations(rows)
    return {row["group"]: row[measure] for row in table.iter_rows(named=True)}


def listed(values: dict[str, float | None]) -> str:
    """The three axes in one cell."""
    return ", ".join(
        f"{axis} –" if values.get(axis) is None else f"{axis} {values[axis]:.2f}" for axis in AXES
    )
