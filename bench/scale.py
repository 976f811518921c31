"""How cost and memory grow with the network: 1,024 to 65,536 nodes, and one million.

    python bench/scale.py
    python bench/scale.py --million --threads 4
    python bench/scale.py --write                 all sizes, into a table of its page

Without ``--million``: three-level trees with full bisection, uniform traffic (128 KiB messages in 4
KiB packets at load 0.4 for 50 us of simulated time): nanoseconds of processor time per packet-hop
at each size, and the ratio to the smallest size. With it: a tree of 1,048,576 hosts and one message
of 32 packets from every host to another, a permutation; memory before and at the peak of the run,
and memory per endpoint. (Processor time is that of all threads, waiting included.) Every size runs
in a separate process, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from engine import PAGE, machine, one_rank_a_node, put, traffic

from tailback import _core
from tailback.scenario.model import parse
from tailback.simulation import EngineSettings
from tailback.traffic import Label, Program

SHAPES = {
    # nodes: (hosts a leaf = leaves a pod = aggregation switches a pod, pods)
    1_024: (8, 16),
    4_096: (16, 16),
    16_384: (16, 64),
    65_536: (32, 64),
    1_048_576: (64, 256),
}
MILLION = 1_048_576
PACKET = 4096
CABLE_PS = (10_000, 10_000, 50_000)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="the run of 1,048,576 hosts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3, help="repetitions; the fastest counts")
    parser.add_argument("--load", type=float, default=0.4)
    parser.add_argument("--duration-us", type=float, default=50.0)
    parser.add_argument("--sizes", type=int, nargs="*", default=[n for n in SHAPES if n < MILLION])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def rss() -> int:
    """Memory in use by this process now, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as text:
        return int(text.read().split()[1]) * resource.getpagesize()


def peak() -> int:
    """The most memory this process has used, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def build(nodes: int) -> _core.Network:
    """A three-level tree with full bisection, and its routes."""
    k, pods = SHAPES[nodes]
    tree = _core.fat_tree(
        hosts_per_leaf=k,
        leaves=k,
        aggregation=k,
        pods=pods,
        cores=k * k,
        leaf_cables=1,
        aggregation_uplinks=k,
        gbps=[100.0] * 3,
        delay_ps=CABLE_PS,
    )
    return _core.Network(**tree)


def permutation(ranks: int, message_bytes: int, seed: int) -> Program:
    """Each rank sends one message to another and receives one: three operations a rank."""
    ring = np.random.Generator(np.random.Philox(seed)).permutation(ranks).astype(np.int32)
    peers = np.full((ranks, 3), -1, np.int32)
    peers[ring, 0] = np.roll(ring, 1)
    peers[ring, 1] = np.roll(ring, -1)
    amount = np.tile(np.array([message_bytes, message_bytes, 0], np.uint64), ranks)
    # Receive, send, wait for both.
    kind = np.tile(np.array([2, 1, 4], np.uint8), ranks)
    request = np.tile(np.arange(3, dtype=np.int32), ranks)
    start = np.arange(0, 3 * ranks + 1, 3, dtype=np.uint64)
    zeros = np.zeros(3 * ranks, np.int64)
    labels = np.zeros(3 * ranks, np.uint32)
    return Program(
        "permutation",
        start,
        kind,
        peers.reshape(-1),
        amount,
        zeros,
        request,
        labels,
        [Label("all", "none")],
    )


def measure(nodes: int, args: argparse.Namespace) -> dict[str, Any]:
    """Build one network, run it, and report time and memory."""
    before = rss()
    began = time.perf_counter()
    network = build(nodes)
    built, built_rss = time.perf_counter() - began, rss()
    engine = {"packet": f"{PACKET} B", "eager": "1 GiB", "send_delay": 0}
    job = [{"pattern": {"kind": "uniform"}}]
    scenario = parse(
        {"seed": args.seed, "fabric": {"preset": "tapered"}, "job": job, "engine": engine}
    )
    settings = replace(EngineSettings.of(scenario), measure=False)
    if nodes == MILLION:
        program = permutation(nodes, 32 * PACKET, args.seed)
        runs = 1
    else:
        args.traffic, args.message_bytes = "uniform", 32 * PACKET
        program = traffic(nodes, args)
        runs = args.runs
    placed = one_rank_a_node(program)
    ready_rss = rss()
    seconds, busy = [], []
    for _ in range(runs):
        began, began_busy = time.perf_counter(), time.process_time()
        outcome = _core.simulate(network, settings, placed, threads=args.threads)
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - began_busy)
        if not (outcome.complete and outcome.packets == outcome.messages["packets"].sum()):
            raise SystemExit(f"{nodes} nodes: not every packet was delivered")
    best = min(seconds)
    return {
        "nodes": nodes,
        "threads": args.threads,
        "build_seconds": built,
        "seconds": best,
        "seconds_all": seconds,
        "processor_seconds": min(busy),
        "packets": outcome.packets,
        "packet_hops": outcome.packet_hops,
        "simulated_us": outcome.end_ps / 1e6,
        "packet_hops_per_s": outcome.packet_hops / best,
        "ns_per_packet_hop": min(busy) / outcome.packet_hops * 1e9,
        "network_bytes": built_rss - before,
        "program_bytes": ready_rss - built_rss,
        "peak_rss_bytes": peak(),
        "peak_bytes_per_endpoint": (peak() - before) / nodes,
        "machine": machine(),
    }


def in_own_process(nodes: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one size in a fresh process."""
    command = [
        sys.executable,
        __file__,
        "--one",
        str(nodes),
        "--threads",
        str(args.threads),
        "--runs",
        str(args.runs),
        "--load",
        str(args.load),
        "--seed",
        str(args.seed),
        "--duration-us",
        str(args.duration_us),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{nodes} nodes: failed with status {done.returncode}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def table(rows: list[dict[str, Any]]) -> str:
    """Processor time and memory by size, in Markdown."""
    lines = [
        "| nodes | packet-hops, millions | CPU ns a packet-hop | peak memory, MiB | kB a node |",
        "|---|" + "---:|" * 4,
    ]
    for row in rows:
        cells = (
            f"{row['packet_hops'] / 1e6:.2f}",
            f"{row['ns_per_packet_hop']:.0f}",
            f"{row['peak_rss_bytes'] / 2**20:,.0f}",
            f"{row['peak_bytes_per_endpoint'] / 1e3:.1f}",
        )
        name = f"{row['nodes']:,}" + (", permutation" if row["nodes"] == MILLION else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the figures."""
    args = arguments()
    if args.one:
        print(json.dumps(measure(args.one, args)))
        return
    sizes = [MILLION] if args.million else list(SHAPES) if args.write else args.sizes
    if unknown := set(sizes) - set(SHAPES):
        raise SystemExit(f"no shape for {sorted(unknown)} nodes; choose among {list(SHAPES)}")
    rows = [in_own_process(nodes, args) for nodes in sizes]
    if args.write:
        put(PAGE, {"scale": table(rows)})
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{rows[0]['machine']}, {args.threads} thread(s)")
    for row in rows:
        ratio = row["ns_per_packet_hop"] / rows[0]["ns_per_packet_hop"]
        print(
            f"{row['nodes']:>9,} nodes: built in {row['build_seconds']:.1f} s, "
            f"{row['packet_hops']:>12,} packet-hops in {row['seconds']:.2f} s, "
            f"{row['ns_per_packet_hop']:.0f} ns each ({ratio:.2f}x), "
            f"peak {row['peak_rss_bytes'] / 2**20:,.0f} MiB, "
            f"{row['peak_bytes_per_endpoint']:,.0f} B an endpoint "
            f"(network {row['network_bytes'] / row['nodes']:,.0f}, "
            f"program {row['program_bytes'] / row['nodes']:,.0f})"
        )


if __name__ == "__main__":
    main()
