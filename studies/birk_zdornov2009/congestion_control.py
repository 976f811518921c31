"""Three schemes of congestion control against no control and pacing by assignment, by workload.

    python -m studies.birk_zdornov2009.congestion_control --json     the numbers
    python -m studies.birk_zdornov2009.congestion_control --write    tables of the page

A 4-ary 3-tree (64 nodes, 100 Gb/s), D-mod-k tables, buffers of 32 packets of 4 KiB, outputs that
serve their inputs in turn; all flows are posted at once. Parameter sets: see ``SETS``; sweeps of
threshold, timer and marking rate, and of what the other two schemes add.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measuring import put
from studies.birk_zdornov2009.packet_rates import (
    PACING,
    PACKET,
    PAGE,
    SAMPLE_PS,
    Flow,
    Network,
    mean_queue,
    network,
    permutations,
)
from tailback import TailbackError
from tailback.fluid import max_min
from tailback.simulation import CongestionSchemeSettings, CongestionSettings, ProbeSettings

NODES = 64
BUFFER = 32
MIB = 1 << 20
LINE_GBPS = 100.0
TIMER_PS = 1_024_000
"""Unit of CCTI_Timer: 1.024 µs."""


def parameters(
    threshold: int,
    timer_us: float,
    marking_rate: int = 0,
    increase: int = 1,
    limit: int = 127,
    victims: bool = False,
) -> CongestionSettings:
    """Settings of congestion control; the table's pauses are 0, 1, 2 … packet times.

    Args:
        threshold: Of the specification: 15 marks from 1/16 of the buffer on, 1 from 15/16 on.
        timer_us: Time after which the index falls by one, in microseconds.
        marking_rate: Packets that pass unmarked between two marked ones.
        increase: Increment of the index per notification.
        limit: Highest index.
        victims: Mark also where credit is missing.
    """
    return CongestionSettings(
        CongestionSchemeSettings("infiniband"),
        threshold_bytes=BUFFER * PACKET * (16 - threshold) // 16,
        marking_rate=marking_rate,
        packet_bytes=512,
        victims=victims,
        increase=increase,
        limit=limit,
        timer_ps=round(timer_us * 1e6),
        table=list(range(limit + 1)),
    )


def squares(scale: int, shift: int) -> list[int]:
    """A table of pauses that grows with the square of the index: 128 entries.

    As a study of InfiniBand congestion control at Lawrence Livermore generates them (repository
    ``perryh/ib-cc-tools-llnl``): ``7 (i / scale)² / 0.218`` packet times, rounded down, halved
    ``shift`` times.
    """
    return [shift << 14 | int(7 * i**2 / scale**2 / 0.218) for i in range(128)]


def dynamic(timer_us: float, hold_us: float = 100.0, poll_us: float = 0.0) -> CongestionSettings:
    """DCMS marks all packets above the threshold while victims are created, else hardly any.

    A manager polls port counters, or switches act at once.
    """
    scheme = CongestionSchemeSettings(
        "dcms",
        calm_marking_rate=65535,
        hold_ps=round(hold_us * 1e6),
        poll_ps=round(poll_us * 1e6),
    )
    return replace(parameters(15, timer_us), scheme=scheme)


def lights(red: int, green: int) -> CongestionSettings:
    """RGBCC: red above one number of packets in a queue, green at another."""
    scheme = CongestionSchemeSettings("rgbcc", green_bytes=green * PACKET)
    return replace(parameters(15, 1.0), threshold_bytes=red * PACKET, scheme=scheme)


SLOW_US = 150 * TIMER_PS / 1e6
SETS = {
    "IB CC, slow timer": parameters(15, SLOW_US),
    "IB CC, slow timer, victims marked": parameters(15, SLOW_US, victims=True),
    "IB CC, fast timer": parameters(2, 4 * PACKET * 8 / LINE_GBPS / 1000),
    "IB CC, Simula's table": replace(parameters(15, SLOW_US), table=squares(106, 3)),
    "IB CC, vendor's marking": replace(parameters(15, SLOW_US, 10), table=squares(95, 0)),
    "DCMS, slow timer": dynamic(SLOW_US),
    "DCMS, 20 µs": dynamic(20.0),
    "RGBCC, 8 and 4 packets": lights(8, 4),
}
"""Parameter sets. *Slow timer* after Gran et al. (IPDPS 2010), *fast timer* after Jiang et al.
(HPCA 2012), in packet times; not checked against the papers' text. *Simula's table* and, with the
marking of Mellanox's congestion control manager by its manual, *vendor's marking*: tables as
Livermore's study names them, :func:`squares`. DCMS and RGBCC: ours."""

RATES = ("assignment", "max-min")
SCHEMES: dict[str, dict[str, Any]] = {
    "no control": {},
    "no control, adaptive routing": {"routing": "adaptive"},
    **{name: {"congestion_control": control} for name, control in SETS.items()},
    **{f"{rates}, elastic 25 %": PACING["elastic, 25 %"] for rates in RATES},
    "assignment, offset shift": PACING["elastic, 25 %, offset shift"],
}
THRESHOLDS, TIMERS_US, MARKING = (15, 8, 2), (1.31, 5.0, 20.0, 153.6), (0, 15)
HOLDS_US, DYNAMIC_US = (10.0, 100.0, 1000.0), (5.0, 20.0, 153.6)
LIGHTS = ((2, 1), (4, 1), (8, 1), (8, 4), (8, 7), (16, 1), (16, 8), (24, 16), (28, 24))

POLLS_US = (0.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0, 30000.0)
"""Periods at which a manager polls; 0: switches act at once."""

HOT = "hot spot with victims"


def hot_spot(scale: float = 1) -> list[Flow]:
    """16 nodes send 2 MiB to node 0; each of the rest to another of the rest: the victims."""
    rng = np.random.default_rng(7)
    nodes = rng.permutation(np.arange(1, NODES)).tolist()
    senders, victims = nodes[:16], nodes[16:]
    size = int(2 * MIB / scale)
    to = victims[1:] + victims[:1]
    return [(n, 0, size) for n in senders] + [
        (a, b, size) for a, b in zip(victims, to, strict=True)
    ]


def stencil(scale: int = 1) -> list[Flow]:
    """8 × 8 torus on nodes in random order, 1 MiB to each of four neighbours."""
    side, flows = 8, []
    node = np.random.default_rng(3).permutation(NODES).tolist()
    for x, y in product(range(side), repeat=2):
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            to = (x + dx) % side + side * ((y + dy) % side)
            flows.append((node[x + side * y], node[to], MIB // scale))
    return flows


def workloads(scale: int = 1) -> dict[str, list[Flow]]:
    """Flows of each workload, sizes divided by ``scale``."""
    everyone = range(NODES)
    return {
        HOT: hot_spot(scale),
        f"{HOT}, 16 MiB each": hot_spot(scale / 8),
        "incast, 63 to 1": [(n, 0, MIB // 4 // scale) for n in everyone if n],
        "permutation": permutations(1, 1, 2 * MIB // scale),
        "stencil, random placement": stencil(scale),
        "all-to-all, all to 0 first": [
            (a, b, MIB // 16 // scale) for a in everyone for b in everyone if a != b
        ],
        "all-to-all, shifted": [
            (a, (a + shift) % NODES, MIB // 16 // scale) for a in everyone for shift in everyone[1:]
        ],
    }


def jain(rate: NDArray[np.float64]) -> float:
    """Fairness of rates (Jain, Chiu and Hawe, 1984): 1 when all are equal, 1/n when one has all."""
    return float(rate.sum() ** 2 / (len(rate) * (rate**2).sum()))


def measure(
    net: Network, settings: dict[str, Any], hot: bool = False, fair: bool = False
) -> dict[str, Any]:
    """One run: time over W, victims' throughput, fairness, queues.

    Args:
        net: The flows.
        settings: Settings of the engine other than the defaults.
        fair: Paced flows have max-min rates, not those of the assignment.
        hot: Flows to node 0 are the hot spot, whose fairness counts, and all others victims.
    """
    plan = net.assigned()
    rates = plan.rate_gbps if "pacing" in settings else None
    if fair:
        rates = max_min(net.prepared.fabric.link_gbps, net.paths)
    run = net.run(
        rates,
        buffer_bytes=BUFFER * PACKET,
        arbitration="round-robin",
        probes=ProbeSettings(queues_ps=SAMPLE_PS),
        **settings,
    )
    rate = net.size * 8000 / run.tables["messages"]["arrival_ps"].to_numpy()
    victim = np.array([hot and dst != 0 for _, dst, _ in net.flows])
    mean, most = mean_queue(run)
    return {
        "time": run.elapsed_ps / 1000 / plan.completion_ns,
        "time_us": run.elapsed_ps / 1e6,
        "victims_gbps": float(rate[victim].mean()) if hot else None,
        "worst_victim_gbps": float(rate[victim].min()) if hot else None,
        "jain": jain(rate if victim.all() else rate[~victim]),
        "queue": mean,
        "longest": most,
    }


def compare(scale: int = 1) -> list[dict[str, Any]]:
    """Every scheme on every workload."""
    rows = []
    for name, flows in workloads(scale).items():
        net = network(flows)
        hot = name.startswith(HOT)
        for scheme, settings in SCHEMES.items():
            figures = measure(net, settings, hot, fair=scheme.startswith("max-min"))
            rows.append({"workload": name, "scheme": scheme, **figures})
        if hot:
            alone = network([flow for flow in flows if flow[1] != 0])
            rows.append({"workload": name, "scheme": "victims alone", **measure(alone, {}, hot)})
    return rows


def networks(scale: int = 1) -> dict[str, Network]:
    """Workloads of the sweeps."""
    flows = workloads(scale)
    return {
        "hot spot": network(flows[HOT]),
        "permutation": network(flows["permutation"]),
        "stencil": network(flows["stencil, random placement"]),
    }


def others(scale: int = 1) -> list[dict[str, Any]]:
    """DCMS by timer and hold, RGBCC by its two thresholds, on three workloads."""
    schemes = {
        **{
            f"DCMS, timer {timer:g} µs, hold {hold:g} µs": dynamic(timer, hold)
            for timer, hold in product(DYNAMIC_US, HOLDS_US)
        },
        **{f"RGBCC, {red} and {green} packets": lights(red, green) for red, green in LIGHTS},
    }
    nets = networks(scale)
    return [
        {
            "scheme": scheme,
            **{
                name: measure(net, {"congestion_control": control}, name == "hot spot")
                for name, net in nets.items()
            },
        }
        for scheme, control in schemes.items()
    ]


def polled(scale: int = 1) -> list[dict[str, Any]]:
    """DCMS with a manager, by the period at which it polls; first without control."""
    flows = workloads(scale)
    nets = {**networks(scale), "hot spot": network(flows[f"{HOT}, 16 MiB each"])}
    settings: dict[str, dict[str, Any]] = {"no control": {}}
    for poll in POLLS_US:
        name = f"every {poll:g} µs" if poll else "at once"
        settings[name] = {"congestion_control": dynamic(20.0, poll_us=poll)}
    return [
        {
            "scheme": name,
            **{place: measure(net, chosen, place == "hot spot") for place, net in nets.items()},
        }
        for name, chosen in settings.items()
    ]


def break_even(rows: list[dict[str, Any]]) -> str:
    """The longest period at which the worst victim gains, and the hot spot's own time."""
    none = rows[0]["hot spot"]
    gains = [
        row
        for row in rows[1:]
        if row["hot spot"]["worst_victim_gbps"] > 1.05 * none["worst_victim_gbps"]
    ]
    if not gains:
        return "The worst victim gains at no period."
    return (
        f"The hot spot lasts {none['time_us'] / 1000:.1f} ms without control. The worst victim "
        f"gains more than 5 % up to **{gains[-1]['scheme']}**."
    )


def sweep(scale: int = 1) -> list[dict[str, Any]]:
    """Threshold, timer and marking rate on the hot spot and the permutation."""
    nets = {name: net for name, net in networks(scale).items() if name != "stencil"}
    rows = []
    for threshold, timer, marking in product(THRESHOLDS, TIMERS_US, MARKING):
        control = parameters(threshold, timer, marking)
        row: dict[str, Any] = {"threshold": threshold, "timer_us": timer, "marking_rate": marking}
        for name, net in nets.items():
            row[name] = measure(net, {"congestion_control": control}, name == "hot spot")
        rows.append(row)
    return rows


def compare_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each workload and scheme."""
    lines = [
        "| workload | scheme | time over W | victims, worst (Gb/s) | Jain | queued, longest |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        victims = ""
        if row["victims_gbps"] is not None:
            victims = f"{row['victims_gbps']:.1f}, {row['worst_victim_gbps']:.1f}"
        lines.append(
            f"| {row['workload']} | {row['scheme']} | {row['time']:.2f} | {victims} | "
            f"{row['jain']:.3f} | {row['queue']:.0f}, {row['longest']} |"
        )
    return "\n".join(lines)


def others_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each setting."""
    lines = [
        "| scheme | hot spot: time over W | victims, worst (Gb/s) | Jain | queued | "
        "permutation: time over W | stencil |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        hot = row["hot spot"]
        lines.append(
            f"| {row['scheme']} | {hot['time']:.2f} | {hot['victims_gbps']:.1f}, "
            f"{hot['worst_victim_gbps']:.1f} | {hot['jain']:.3f} | {hot['queue']:.0f} | "
            f"{row['permutation']['time']:.2f} | {row['stencil']['time']:.2f} |"
        )
    return "\n".join(lines)


def sweep_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each combination."""
    lines = [
        "| threshold | timer (µs) | marking rate | hot spot: time over W | victims (Gb/s) | Jain | "
        "permutation: time over W |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        hot, other = row["hot spot"], row["permutation"]
        lines.append(
            f"| {row['threshold']} | {row['timer_us']:g} | {row['marking_rate']} | "
            f"{hot['time']:.2f} | {hot['victims_gbps']:.1f} | {hot['jain']:.3f} | "
            f"{other['time']:.2f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Congestion control, by scheme and workload.")
    parser.add_argument("--json", action="store_true", help="print the numbers")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    args = parser.parse_args()
    began = time.process_time()
    try:
        compared, swept, other_rows, polls = compare(), sweep(), others(), polled()
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    tables = {
        "schemes": compare_table(compared),
        "sweep": sweep_table(swept),
        "others": others_table(other_rows),
        "polls": f"{others_table(polls)}\n\n{break_even(polls)}",
    }
    if args.write:
        put(PAGE, tables)
    seconds = round(time.process_time() - began, 1)
    if args.json:
        numbers = {"schemes": compared, "sweep": swept, "others": other_rows, "polls": polls}
        print(json.dumps({"cpu_seconds": seconds, **numbers}))
    else:
        print("\n\n".join(tables.values()), f"\n\n{seconds} s of processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
