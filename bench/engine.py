"""How fast the engine moves packets, and how much memory it takes.

    python bench/engine.py --network tapered --traffic uniform --message-bytes 131072 \
        --packet-bytes 4096 --load 0.4 --duration-us 100 --threads 1 --probes none

Every rank posts messages to random other ranks at evenly spaced times such that it offers `load` of
its line rate for `duration-us` of simulated time; the run ends when all have arrived.

`--write` puts the processor time of one thread, by what probes record, into its page. The cases
take turns, so that what else the machine does affects all of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _shared import machine, put

from tailback import _core
from tailback.fabric import Fabric
from tailback.fabric.builders import PRESETS, fat_tree, network_of
from tailback.scenario.model import parse
from tailback.simulation import EngineSettings, ProbeSettings
from tailback.traffic import Label, Op, PlacedProgram, Program

LINE_PS_PER_BYTE = 80
PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "speed.md"
PROBES = {
    "none": "none",
    "samples": "samples and truth",
    "all": "also port counters and queues, every 10 µs",
}
"""What the page calls the probes."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="tapered", choices=PRESETS.names())
    parser.add_argument("--traffic", default="uniform", choices=["uniform", "permutation"])
    parser.add_argument("--message-bytes", type=int, default=131072)
    parser.add_argument("--packet-bytes", type=int, default=4096)
    parser.add_argument("--load", type=float, default=0.4)
    parser.add_argument("--duration-us", type=float, default=100.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--probes",
        default="none",
        choices=list(PROBES),
        help="samples: what packets carry, and truth; all: counters and queues each 10 us too",
    )
    parser.add_argument("--routing", default="adaptive")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3, help="repetitions; the median is printed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    return parser.parse_args()


def one_rank_a_node(program: Program) -> PlacedProgram:
    """The program with rank r on node r, each on a separate host, from time 0 on."""
    nodes = np.arange(program.n_ranks, dtype=np.uint32)
    start = np.zeros(program.n_ranks, np.uint64)
    return PlacedProgram(program, nodes, nodes, start, label_observed=[True])


def traffic(ranks: int, args: argparse.Namespace) -> Program:
    """Messages as a program: each rank posts its receives, then sends on its clock, then waits."""
    gap_ps = args.message_bytes * LINE_PS_PER_BYTE / args.load
    messages = max(1, round(args.duration_us * 1e6 / gap_ps))
    rng = np.random.Generator(np.random.Philox(args.seed))
    src = np.repeat(np.arange(ranks), messages)
    if args.traffic == "uniform":
        dst = (src + rng.integers(1, ranks, len(src))) % ranks
    else:
        dst = np.roll(rng.permutation(ranks), 1)[np.argsort(rng.permutation(ranks))][src]
    number = np.tile(np.arange(messages), ranks)
    # Ranks start at random phases of their clock, or they would all send at once.
    phase = np.repeat(rng.integers(0, int(gap_ps), ranks), messages)
    rows = [
        # (rank, order, kind, peer, amount, tag)
        (dst, src * messages + number, Op.IRECV, src, args.message_bytes, number),
        (src, (1 << 40) + 2 * number, Op.COMPUTE, -1, np.where(number == 0, phase, gap_ps), 0),
        (src, (1 << 40) + 2 * number + 1, Op.ISEND, dst, args.message_bytes, number),
        (np.arange(ranks), np.full(ranks, 1 << 50), Op.WAITALL, -1, 0, 0),
    ]
    table = [
        np.concatenate([np.broadcast_to(row[c], len(row[0])) for row in rows]) for c in range(6)
    ]
    order = np.lexsort((table[1], table[0]))
    rank, _, kind, peer, amount, tag = (column[order] for column in table)
    start = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=ranks))])
    request = np.arange(len(rank)) - start[rank]
    return Program(
        args.traffic,
        start.astype(np.uint64),
        kind.astype(np.uint8),
        peer.astype(np.int32),
        amount.astype(np.uint64),
        tag.astype(np.int64),
        request.astype(np.int32),
        np.zeros(len(rank), np.uint32),
        [Label("all", "none")],
    )


def settings_of(args: argparse.Namespace, probes: str) -> EngineSettings:
    """Settings of the engine with these probes."""
    scenario = parse(
        {
            "seed": args.seed,
            "fabric": {"preset": args.network},
            "job": [{"pattern": {"kind": "uniform"}}],
            "engine": {
                "packet": f"{args.packet_bytes} B",
                "eager": "1 GiB",
                "routing": args.routing,
                "send_delay": 0,
            },
        }
    )
    everything = probes == "all"
    return replace(
        EngineSettings.of(scenario),
        measure=everything or probes == "samples",
        probes=ProbeSettings(10_000_000, 10_000_000) if everything else ProbeSettings(),
    )


def table(fabric: Fabric, args: argparse.Namespace) -> str:
    """Packet-hops per second of processor time of one thread, by probes, in Markdown."""
    network, placed = network_of(fabric), one_rank_a_node(traffic(fabric.n_nodes, args))
    speeds: dict[str, list[float]] = {probes: [] for probes in PROBES}
    for _ in range(args.runs):
        for probes, runs in speeds.items():
            began = time.process_time()
            outcome = _core.simulate(network, settings_of(args, probes), placed, threads=1)
            runs.append(outcome.packet_hops / (time.process_time() - began) / 1e6)
    lines = [
        "| probes | million packet-hops per CPU s, median (range) | relative |",
        "|---|---:|---:|",
    ]
    for probes, runs in speeds.items():
        relative = median(runs) / median(speeds["none"])
        shown = f"{median(runs):.1f} ({min(runs):.1f}–{max(runs):.1f})"
        lines.append(f"| {PROBES[probes]} | {shown} | {relative:.0%} |")
    return "\n".join(lines)


def measure(fabric: Fabric, args: argparse.Namespace) -> dict[str, Any]:
    """Run it and report its speed."""
    settings = settings_of(args, args.probes)
    network = network_of(fabric)
    ranks = fabric.n_nodes
    placed = one_rank_a_node(traffic(ranks, args))
    seconds, outcome = [], None
    for _ in range(args.runs):
        began = time.perf_counter()
        outcome = _core.simulate(network, settings, placed, threads=args.threads)
        seconds.append(time.perf_counter() - began)
    assert outcome is not None
    seconds_median = sorted(seconds)[len(seconds) // 2]
    return {
        "network": args.network,
        "threads": args.threads,
        "probes": args.probes,
        "packets": outcome.packets,
        "packet_hops": outcome.packet_hops,
        "events": outcome.events,
        "seconds": seconds_median,
        "seconds_all": seconds,
        "packet_hops_per_s": outcome.packet_hops / seconds_median,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "machine": machine(),
    }


def main() -> None:
    """Print the figures."""
    args = arguments()
    fabric = fat_tree(PRESETS[args.network], args.network)
    if args.write:
        put(PAGE, {"engine": table(fabric, args)})
        return
    figures = measure(fabric, args)
    if args.json:
        print(json.dumps(figures, indent=2))
        return
    print(
        f"{figures['packet_hops_per_s'] / 1e6:.2f} M packet-hops/s "
        f"({figures['packet_hops']:,} in {figures['seconds']:.2f} s, {figures['events']:,} events, "
        f"peak {figures['peak_rss_bytes'] / 2**20:.0f} MiB) on {figures['machine']}"
    )


if __name__ == "__main__":
    main()
