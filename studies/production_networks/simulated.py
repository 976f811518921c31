"""Common parts of the two simulated studies: rows of tables, runs, adapters slower than cables."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from studies.production_networks.counter_tables import GroupTest
from tailback import Run, Scenario
from tailback.fabric import Fabric, in_port_order
from tailback.port_counters.readers import from_run
from tailback.report import render
from tailback.simulation import prepare, simulate
from tailback.units import format_time

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DPI = 110
COLOURS = 128


@dataclass(frozen=True)
class Row:
    """One line of a study's table."""

    quantity: str
    theirs: str
    ours: str
    why: str = ""


@dataclass
class Found:
    """One study, done: its rows, figures by file stem, and processor seconds."""

    name: str
    rows: list[Row] = field(default_factory=list)
    figures: dict[str, Callable[[], Figure]] = field(default_factory=dict)
    seconds: float = 0.0


def run_of(scenario: Scenario, change: Callable[[Fabric], Fabric] | None = None) -> Run:
    """Simulate a scenario, on a changed fabric if ``change`` is given."""
    prepared = prepare(scenario)
    if change is None:
        return simulate(prepared)
    # The engine routes what it is given up/down when the scenario names no topology.
    section = scenario.fabric.model_copy(update={"topology": None, "preset": "tapered"})
    plain = scenario.model_copy(update={"fabric": section})
    return simulate(dataclasses.replace(prepared, scenario=plain, fabric=change(prepared.fabric)))


def counters_of(run: Run, until_ps: int | None = None) -> pl.DataFrame:
    """Intervals of every link, stalls where they happened, up to ``until_ps``."""
    rows = from_run(run).intervals
    return rows if until_ps is None else rows.filter(pl.col("time_ns") * 1000 <= until_ps)


def first_end_ps(run: Run) -> int:
    """When the first job ended: until then all of them ran."""
    return min(int(end) for end in run.summary["job_elapsed_ps"].values())


def with_adapters(fabric: Fabric, gbps: NDArray[np.float64]) -> Fabric:
    """The same fabric with an adapter at each host that accepts less than its cable delivers.

    An adapter is a switch of two ports, the cable's and the host's, with a buffer like any other;
    so the port that serves a host can be without credit, which it never is where hosts take
    everything at line rate.

    Args:
        fabric: The fabric.
        gbps: Rate of each node's adapter in both directions, gigabits per second, shape (N,).
    """
    n, node = fabric.n_nodes, np.arange(fabric.n_nodes)
    adapter = n + fabric.n_switches + node
    vertex = np.concatenate([adapter, n + np.arange(fabric.n_switches)])
    links = fabric.n_links
    return in_port_order(
        Fabric(
            name=f"{fabric.name} with adapters",
            node_name=fabric.node_name,
            node_host=fabric.node_host,
            host_name=fabric.host_name,
            switch_name=[*fabric.switch_name, *(f"{name} adapter" for name in fabric.node_name)],
            switch_tier=np.append(fabric.switch_tier + 1, node * 0).astype(np.int32),
            switch_pod=np.append(fabric.switch_pod, node * 0 - 1).astype(np.int32),
            link_src=np.concatenate([vertex[fabric.link_src], node, adapter]).astype(np.uint32),
            link_dst=np.concatenate([vertex[fabric.link_dst], adapter, node]).astype(np.uint32),
            link_src_port=np.concatenate([fabric.link_src_port, node * 0 + 1, node * 0 + 2]).astype(
                np.uint32
            ),
            link_dst_port=np.concatenate([fabric.link_dst_port, node * 0 + 2, node * 0 + 1]).astype(
                np.uint32
            ),
            link_gbps=np.concatenate([fabric.link_gbps, gbps, gbps]),
            link_delay_ps=np.append(fabric.link_delay_ps, np.zeros(2 * n)).astype(np.uint64),
            link_reverse=np.concatenate(
                [fabric.link_reverse, links + n + node, links + node]
            ).astype(np.uint32),
        )
    )


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a small PNG with a palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.open(io.BytesIO(render(figure, "png", dpi=DPI))).convert("RGB")
    image.quantize(COLOURS).save(path, optimize=True)


def percent(value: float) -> str:
    """A percentage with two significant digits."""
    return "0 %" if value == 0 else f"{value:.2g} %" if value < 10 else f"{value:.0f} %"


def difference(test: GroupTest) -> str:
    """A test of two groups: probability, both means, and their ratio with its 95 % interval."""
    return (
        f"p = {test.p_value:.2g}; means {percent(test.group_mean)}, {percent(test.other_mean)}; "
        f"ratio {test.ratio:.2g} ({test.low:.2g} to {test.high:.2g})"
    )


def interval_of(rows: pl.DataFrame) -> str:
    """The usual length of an interval, with its unit."""
    return format_time(round(float(rows["interval_ns"].median() or 0.0) * 1000))  # type: ignore[arg-type]
