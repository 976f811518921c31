"""Victims of pauses with and without DCQCN: figures 3, 4, 8 and 9 of Zhu et al. (2015).

    python -m studies.zhu2015.incast --json     the numbers
    python -m studies.zhu2015.incast --write    tables of the page

The paper's test bed: four ToRs of five hosts, two leaf switches for each pair of ToRs, two spines,
40 Gb/s everywhere, paths by ECMP; published thresholds and constants, none of them fitted. Each
case runs with several seeds of the hash, with pauses only and with DCQCN. Then flows of many hosts
to one, against the fixed point of the paper's fluid model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from measuring import cpu_seconds, put
from studies.zhu2015.fixed_point import PACKET_BYTES, fixed_point
from tailback import Run, load_scenario
from tailback.simulation import DcqcnSettings, simulate

PAGE = Path(__file__).resolve().with_name("README.md")
SIMULATORS = PAGE.parents[2] / "docs" / "measurements" / "simulators.md"
GBPS: Final = 40.0
MS: Final = 1_000_000_000
MESSAGE: Final = 250_000
SEEDS: Final = (1, 2, 3, 4, 5)
BEGIN_MS, END_MS = 20, 100
"""Rates are means over this time; before it they settle."""

RECEIVER: Final = 15
UNFAIR: Final = (0, 5, 10, 16)
"""Figure 3: H1 to H3 under other ToRs than the receiver, H4 under its own."""
INCAST: Final = (0, 1, 2, 3)
"""Figure 4: H11 to H14 under the first ToR send to the receiver under the fourth."""
VICTIM: Final = (4, 5)
"""VS, under the ToR of the incast's senders, sends to VR, under the second."""
OTHERS: Final = (10, 11)
"""H31 and H32, under the third ToR: no cable in common with the victim."""

FABRIC: Final[dict[str, Any]] = {
    "fat_tree": {
        "hosts_per_leaf": 5,
        "leaves": 2,
        "aggregation": 2,
        "pods": 2,
        "cores": 2,
        "aggregation_uplinks": 2,
        "host_rate": "40 Gb/s",
        "leaf_rate": "40 Gb/s",
        "core_rate": "40 Gb/s",
        "host_delay": "500 ns",
        "leaf_delay": "500 ns",
        "core_delay": "500 ns",
    }
}

HEADROOM: Final = 22_400
"""Published headroom of a port and priority, in bytes (section 4)."""
STATIC: Final = 24_470
"""Published bound of a static threshold: what each of 32 ports of 8 priorities may hold."""
BUFFER, PORTS, PRIORITIES, BETA = 12_000_000, 32, 8, 8


def shared_threshold(occupied: int) -> int:
    """The dynamic threshold of a shared buffer that holds some bytes (section 4), in bytes."""
    return BETA * (BUFFER - PRIORITIES * PORTS * HEADROOM - occupied) // PRIORITIES


SHARED: Final = shared_threshold(DcqcnSettings().kmax_bytes)
"""No port is paused below this while a queue is no longer than where ECN marks every packet."""

SCHEMES: Final = {
    "pauses, static threshold": (False, STATIC),
    "pauses, shared buffer": (False, SHARED),
    "DCQCN, static threshold": (True, STATIC),
    "DCQCN, shared buffer": (True, SHARED),
}
"""Whether DCQCN is on, and the bytes of a buffer beyond which it pauses its sender."""
FLOWS: Final = (2, 4, 8, 16)
"""Flows that meet at one receiver, for the fixed point."""

Flow = tuple[int, int]
"""Source and destination node."""


def run(
    flows: Sequence[Flow],
    scheme: str,
    *,
    seed: int = 1,
    until_ms: float = END_MS,
    fabric: dict[str, Any] | None = None,
    queues: bool = False,
) -> Run:
    """Run flows that never end, and interrupt them.

    Args:
        flows: Source and destination of each.
        scheme: One of :data:`SCHEMES`.
        seed: Of the hash that selects paths, and of marks.
        until_ms: Simulated time in milliseconds.
        fabric: Section of the scenario; the test bed by default.
        queues: Record the queues of all ports.
    """
    dcqcn, threshold = SCHEMES[scheme]
    messages = round(until_ms * GBPS * 125_000 / MESSAGE) + 1
    data: dict[str, Any] = {
        "name": "incast",
        "seed": seed,
        "fabric": fabric or FABRIC,
        "job": [
            {
                "pattern": {
                    "kind": "timed",
                    "ranks": 1 + max(max(flow) for flow in flows),
                    "messages": [[0, *flow, MESSAGE] for _ in range(messages) for flow in flows],
                }
            }
        ],
        "engine": {
            "packet": f"{PACKET_BYTES} B",
            "buffer": f"{threshold + HEADROOM} B",
            "routing": "ecmp",
            "injection": "per-destination",
            "eager": "1 GiB",
            "flow_control": {"kind": "pfc", "xoff": f"{threshold} B"},
        },
        "telemetry": {"scheme": "off"},
    }
    if dcqcn:
        data["engine"]["congestion_control"] = {"scheme": "dcqcn"}
    if queues:
        data["probes"] = {"queues": "10 us"}

    def watch(time_ps: int, *_: int) -> None:
        if time_ps > until_ms * MS:
            raise KeyboardInterrupt

    return simulate(load_scenario(data), watch, threads=1, partial=True)


def rates(run: Run, flows: Sequence[Flow]) -> NDArray[np.float64]:
    """Gb/s of each flow between ``BEGIN_MS`` and ``END_MS``, by messages that arrived."""
    arrived = pl.col("arrival_ps").is_between(BEGIN_MS * MS, END_MS * MS)
    sums = run.tables["messages"].filter(arrived).group_by("src_rank", "dst_rank")
    sums = sums.agg(pl.col("size_bytes").sum())
    bytes_of = {(row[0], row[1]): row[2] for row in sums.iter_rows()}
    return np.array([bytes_of.get(flow, 0) for flow in flows]) * 8e-6 / (END_MS - BEGIN_MS)


@dataclass(frozen=True)
class Shares:
    """Rates of some flows over all seeds.

    Attributes:
        gbps: Gb/s, shape (seeds, flows).
        pauses_per_ms: Pauses of all links in a millisecond, mean of the seeds.
    """

    gbps: NDArray[np.float64]
    pauses_per_ms: float


def shares(flows: Sequence[Flow], scheme: str) -> Shares:
    """Rates of ``flows`` with every seed."""
    runs = [run(flows, scheme, seed=seed) for seed in SEEDS]
    pauses = fmean(
        simulation.summary["pauses"] / (simulation.summary["end_ps"] / MS) for simulation in runs
    )
    return Shares(np.array([rates(simulation, flows) for simulation in runs]), pauses)


@dataclass(frozen=True)
class Incast:
    """Flows of many hosts to one against the fixed point, between ``BEGIN_MS`` and ``END_MS``.

    Attributes:
        flows: Number of flows.
        queue: Mean bytes at the link to the receiver.
        slowest, fastest: Gb/s of flows.
        pauses: Of all links.
    """

    flows: int
    queue: float
    slowest: float
    fastest: float
    pauses: int


def incast(n: int) -> Incast:
    """``n`` hosts of one switch send to another, with DCQCN and the shared buffer."""
    shape = {"hosts_per_leaf": n + 1, "leaves": 1, "aggregation": 1, "host_rate": "40 Gb/s"}
    flows = [(host, n) for host in range(n)]
    simulation = run(flows, "DCQCN, shared buffer", fabric={"fat_tree": shape}, queues=True)
    gbps = rates(simulation, flows)
    queue = mean_queue(simulation, n)
    return Incast(n, queue, float(gbps.min()), float(gbps.max()), simulation.summary["pauses"])


def mean_queue(run: Run, node: int) -> float:
    """Mean bytes queued at the link to ``node`` between ``BEGIN_MS`` and ``END_MS``."""
    links = run.tables["links"]
    link = links.filter(pl.col("dst") == node)["link"].item()
    rows = run.tables["queues"].filter(pl.col("link") == link).sort("time_ps")
    queued = (rows["waiting_bytes"] + rows["booked_bytes"]).to_numpy().astype(float)
    # A row holds until the next one.
    time = rows["time_ps"].to_numpy().astype(float)
    edges = np.clip(np.append(time, END_MS * MS), BEGIN_MS * MS, END_MS * MS)
    return float((queued * np.diff(edges)).sum() / ((END_MS - BEGIN_MS) * MS))


def _spread(gbps: NDArray[np.float64]) -> str:
    """Median, least and most of one flow's rates over the seeds."""
    return f"{median(gbps):.1f} ({gbps.min():.1f}–{gbps.max():.1f})"


def unfairness() -> tuple[str, dict[str, Any]]:
    """Figures 3 and 8: table and numbers."""
    flows = [(host, RECEIVER) for host in UNFAIR]
    by_scheme = {scheme: shares(flows, scheme) for scheme in SCHEMES}
    lines = ["| links | H1 | H2 | H3 | H4 | pauses a ms |", "|---|---|---|---|---|---|"]
    for scheme, scheme_shares in by_scheme.items():
        cells = " | ".join(_spread(gbps) for gbps in scheme_shares.gbps.T)
        lines.append(f"| {scheme} | {cells} | {scheme_shares.pauses_per_ms:.0f} |")
    return "\n".join(lines), {
        name: scheme_shares.gbps.tolist() for name, scheme_shares in by_scheme.items()
    }


def victims() -> tuple[str, dict[str, Any]]:
    """Figures 4 and 9: table and numbers."""
    lines = ["| links | no other | one other | two others |", "|---|---|---|---|"]
    numbers: dict[str, Any] = {}
    for scheme in SCHEMES:
        cells = []
        for others in range(len(OTHERS) + 1):
            senders = [*INCAST, *OTHERS[:others]]
            flows = [VICTIM, *((host, RECEIVER) for host in senders)]
            gbps = shares(flows, scheme).gbps[:, 0]
            cells.append(_spread(gbps))
            numbers[f"{scheme}, {others}"] = gbps.tolist()
        lines.append(f"| {scheme} | {' | '.join(cells)} |")
    return "\n".join(lines), numbers


def fixed_points() -> tuple[str, dict[str, Any]]:
    """The queue of the fluid model's fixed point against the engine's: table and numbers."""
    settings = DcqcnSettings()
    lines = [
        "| flows | queue of the fixed point, kB | of the engine | marked at the fixed point "
        "| fair share, Gb/s | slowest and fastest flow |",
        "|---|---|---|---|---|---|",
    ]
    numbers: dict[str, Any] = {}
    for n in FLOWS:
        expected, measured = fixed_point(n, GBPS, settings), incast(n)
        attained = expected.probability <= settings.pmax
        queue = f"{expected.queue_bytes / 1000:.1f}" if attained else "beyond `kmax`"
        lines.append(
            f"| {n} | {queue} | {measured.queue / 1000:.1f} | {100 * expected.probability:.3f} % "
            f"| {expected.rate_gbps:.2f} "
            f"| {measured.slowest:.2f}, {measured.fastest:.2f} |"
        )
        numbers[str(n)] = {"expected": asdict(expected), "found": asdict(measured)}
    return "\n".join(lines), numbers


PARTS: Final = {
    "unfairness": unfairness,
    "victims": victims,
    "fixed points": fixed_points,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the numbers")
    parser.add_argument("--write", action="store_true", help="write the tables of the page")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; repeatable")
    arguments = parser.parse_args()
    sections = {name: PARTS[name]() for name in arguments.part or PARTS}
    if arguments.json:
        print(json.dumps({name: numbers for name, (_, numbers) in sections.items()}, indent=1))
    for name, (table, _) in sections.items():
        if not arguments.json:
            print(f"{name}\n\n{table}\n")
    if arguments.write:
        for name, (table, _) in sections.items():
            put(SIMULATORS if name == "fixed points" else PAGE, {name: table})
    if not arguments.json:
        print(f"{cpu_seconds():.0f} s of processor time")


if __name__ == "__main__":
    main()
