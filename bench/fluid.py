"""100,000 flows on a 65,536-host tree, event by event: `python bench/fluid.py --json`.

The tree: three levels of 64-port switches, full bisection, 100 Gb/s. Flow sizes are uniform from 1
B to 2 MiB. The time is that of the simulation, on one core; the time for the fabric, its routes and
the flows' paths is given separately.

`--network tapered --load 0.4` times max-min rates alone, on the 2:1 tapered tree of 4608 hosts,
with random pairs that start evenly over the time in which every host offers that part of its line
rate. It prints the CPU time, and the exponent of its growth from a quarter of the flows to all.

`--network link` does so for flows of different sizes that all share one link, all at once, or over
half the time that the link needs for them.

`--write` puts the tapered tree, and the fluid model of a program, into a table of its page.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from pathlib import Path

import numpy as np
from _shared import cpu_seconds, machine, put
from numpy.typing import NDArray

from tailback import TailbackError, load_scenario
from tailback.fabric.builders import fat_tree, network_of
from tailback.fluid import Choice, FlowPaths, max_min, paths_between, simulate_flows
from tailback.scenario.model import FatTree
from tailback.simulation import prepare, simulate_fluid

HOSTS = 65_536
TAPERED = FatTree(
    hosts_per_leaf=32, leaves=24, aggregation=16, pods=6, cores=48, aggregation_uplinks=24
)
LIMIT_S = 10.0
SHAPE = FatTree(
    hosts_per_leaf=32, leaves=32, aggregation=32, pods=64, cores=1024, aggregation_uplinks=32
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measurements" / "speed.md"
PROGRAM = "examples/minighost/minighost.toml"

Flows = tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64]]


def traffic(case: str, n: int, seed: int) -> Flows:
    """Source, destination, size in bytes and start in picoseconds of each flow."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, HOSTS, n).astype(np.uint32)
    dst = ((src + 1 + rng.integers(0, HOSTS - 1, n)) % HOSTS).astype(np.uint32)
    size = rng.integers(1, 2**21, n).astype(np.uint64)
    start = np.zeros(n, np.uint64)
    if case in ("load 0.5", "load 0.9"):
        # The flows start over the time in which each host offers this part of its line rate.
        whole_ps = n * 2**20 * 8 / (100e9 * HOSTS * float(case.split()[1])) * 1e12
        start = np.sort(rng.integers(0, int(whole_ps), n)).astype(np.uint64)
    if case == "hot spots":
        # A tenth of the flows goes to 64 hosts, some 156 to each.
        hot = rng.random(n) < 0.1
        dst[hot] = rng.integers(0, 64, int(hot.sum())) * 1024
        src[src == dst] += 1
    return src, dst, size, start


def main() -> int:
    parser = argparse.ArgumentParser(description="100,000 flows on a 65,536-host tree.")
    parser.add_argument("--flows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--network", choices=("full", "tapered", "link"), default="full")
    parser.add_argument("--load", type=float, default=0.4, help="of --network tapered")
    parser.add_argument(
        "--paths",
        choices=("least-flows", "random", "deterministic"),
        default="least-flows",
        help="how paths are chosen, of --network tapered",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--write", action="store_true", help=f"update docs/measurements/{PAGE.name}"
    )
    args = parser.parse_args()
    try:
        if args.write:
            put(PAGE, {"max-min": table(args.flows, args.seed, args.load)})
            return 0
        if args.network == "tapered":
            return show(tapered(args.flows, args.seed, args.load, args.paths), args.json)
        if args.network == "link":
            return show(one_link(args.flows, args.seed), args.json)
        result = measure(args.flows, args.seed)
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if args.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key}: {value}" if key != "cases" else "")
            for row in value if key == "cases" else ():  # type: ignore[attr-defined]
                print("  ", row)
    return int(float(result["slowest_s"]) > LIMIT_S)  # type: ignore[arg-type]


def show(result: dict[str, object], as_json: bool) -> int:
    """Print what was measured."""
    print(
        json.dumps(result)
        if as_json
        else "\n".join(f"{key}: {value}" for key, value in result.items())
    )
    return 0


def tapered(n: int, seed: int, load: float, choice: Choice) -> dict[str, object]:
    """Max-min rates of random flows on the tapered tree, and of a quarter of them."""
    fabric = fat_tree(TAPERED, "tapered")
    network, hosts = network_of(fabric), fabric.n_nodes
    cpu_s = {}
    for flows in (max(n // 4, 1), n):
        rng = np.random.default_rng(seed)
        src = rng.integers(0, hosts, flows).astype(np.uint32)
        dst = ((src + 1 + rng.integers(0, hosts - 1, flows)) % hosts).astype(np.uint32)
        size = rng.integers(1, 2**21, flows).astype(np.uint64)
        whole_ps = float(size.sum()) * 8 / (100e9 * hosts * load) * 1e12
        start = np.sort(rng.integers(0, int(whole_ps) + 1, flows)).astype(np.uint64)
        paths = paths_between(network, src, dst, choice, seed)
        began = time.process_time()
        times = simulate_flows(fabric.link_gbps, paths, size, start)
        cpu_s[flows] = time.process_time() - began
    return {
        "network": "tapered",
        "hosts": hosts,
        "flows": n,
        "load": load,
        "paths": choice,
        **growth(cpu_s),
        "settlements": times.settlements,
        "rates_set_per_settlement": round(times.rates_set / times.settlements, 2),
        "machine": f"{machine()}, one used, Python {platform.python_version()}",
    }


def growth(cpu_s: dict[int, float]) -> dict[str, float]:
    """CPU time by number of flows, and the exponent of its growth."""
    (few, quick), (all_flows, slow) = min(cpu_s.items()), max(cpu_s.items())
    grows = math.log(slow / quick) / math.log(all_flows / few) if all_flows > few else 1.0
    return {
        "cpu_s": round(slow, 3),
        "cpu_s_of_a_quarter": round(quick, 3),
        "exponent": round(grows, 2),
    }


def one_link(n: int, seed: int) -> dict[str, object]:
    """Max-min rates of flows that share one link, and of a quarter of them."""
    cases: dict[str, object] = {}
    for case, part in (("all at once", 0.0), ("over half the time", 0.5)):
        cpu_s = {}
        for flows in (max(n // 4, 1), n):
            rng = np.random.default_rng(seed)
            size = rng.integers(1, 2**21, flows).astype(np.uint64)
            whole_ps = float(size.sum()) * 8 / 100e9 * 1e12
            start = np.sort(rng.integers(0, int(part * whole_ps) + 1, flows)).astype(np.uint64)
            paths = FlowPaths(np.arange(flows + 1, dtype=np.uint64), np.zeros(flows, np.uint32))
            began = time.process_time()
            times = simulate_flows(np.array([100.0]), paths, size, start)
            cpu_s[flows] = time.process_time() - began
        cases[case] = {**growth(cpu_s), "rates_set": times.rates_set}
    return {
        "network": "link",
        "flows": n,
        "cases": cases,
        "machine": f"{machine()}, one used, Python {platform.python_version()}",
    }


def program() -> dict[str, object]:
    """The fluid model of a program's messages."""
    prepared = prepare(load_scenario(ROOT / PROGRAM))
    began = cpu_seconds()
    run = simulate_fluid(prepared)
    return {"flows": len(run.tables["messages"]), "cpu_s": round(cpu_seconds() - began, 3)}


def table(n: int, seed: int, load: float) -> str:
    """CPU time of max-min rates in Markdown."""
    tree = tapered(n, seed, load, "least-flows")
    rows: list[tuple[str, dict[str, object], float]] = [
        (f"random pairs of {tree['hosts']} hosts, load {load:g}", tree, 2.0),
        (f"messages of `{PROGRAM}`", program(), 0.5),
    ]
    lines = ["| flows | number | CPU s | exponent | target, CPU s |", "|---|" + "---:|" * 4]
    for name, row, target in rows:
        cells = (f"{row['flows']:,}", row["cpu_s"], row.get("exponent", ""), target)
        lines.append(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def measure(n: int, seed: int) -> dict[str, object]:
    """Simulate every case with both kinds of rates."""
    began = time.perf_counter()
    fabric = fat_tree(SHAPE, "65,536 hosts")
    network = network_of(fabric)
    made_s = time.perf_counter() - began
    rows: list[dict[str, object]] = []
    for case in ("all at once", "load 0.5", "load 0.9", "hot spots"):
        src, dst, size, start = traffic(case, n, seed)
        began = time.perf_counter()
        paths = paths_between(network, src, dst, "least-flows", seed)
        paths_s = time.perf_counter() - began
        for rates in ("max-min", "assignment"):
            began = time.perf_counter()
            times = simulate_flows(fabric.link_gbps, paths, size, start, rates=rates)
            rows.append(
                {
                    "case": case,
                    "rates": rates,
                    "seconds": round(time.perf_counter() - began, 3),
                    "paths_s": round(paths_s, 3),
                    "settlements": times.settlements,
                    "rates_set": times.rates_set,
                    "completion_us": times.completion_ps / 1e6,
                }
            )
    began = time.perf_counter()
    max_min(fabric.link_gbps, paths)
    return {
        "hosts": fabric.n_nodes,
        "directed_links": fabric.n_links,
        "flows": n,
        "slowest_s": max(float(row["seconds"]) for row in rows),  # type: ignore[arg-type]
        "limit_s": LIMIT_S,
        "fabric_and_routes_s": round(made_s, 2),
        "one_solve_of_all_s": round(time.perf_counter() - began, 3),
        "machine": f"{machine()}, one used, Python {platform.python_version()}",
        "cases": rows,
    }


if __name__ == "__main__":
    sys.exit(main())
