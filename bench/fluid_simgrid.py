"""The fluid model beside SimGrid's on the same flows: `python bench/fluid_simgrid.py [--json]`.

Random flows on the tapered tree of 4608 hosts at load 0.4, each on its D-mod-k path, all of them
distinct pairs of hosts, as SimGrid has one route for a pair. SimGrid computes max-min rates, too:
its model CM02 without latencies, bandwidth factors, windows and cross traffic. Both run
alternately, in one process each, and the processor time is that of the simulation without reading,
fabric and routes. Needs a C++ compiler and SimGrid with its headers (Debian: libsimgrid-dev).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _shared import machine
from fluid import TAPERED
from numpy.typing import NDArray

from tailback.fabric.builders import fat_tree, network_of
from tailback.fluid import FlowPaths, paths_between, simulate_flows

SOURCE = Path(__file__).with_suffix(".cpp")
SETTINGS = (
    "network/model:CM02",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "surf/precision:1e-12",
)
"""Equal shares of what a bottleneck has, and no other effect."""


class Flows:
    """Random flows between distinct pairs of hosts, in order of their starts.

    Args:
        n: Number of flows.
        load: Share of their line rate that hosts offer.
        seed: Seed of sizes, pairs and starts.
    """

    def __init__(self, n: int, load: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.fabric = fat_tree(TAPERED, "tapered")
        hosts = self.fabric.n_nodes
        pairs = rng.choice(hosts * (hosts - 1), n, replace=False)
        self.src = (pairs // (hosts - 1)).astype(np.uint32)
        self.dst = ((self.src + 1 + pairs % (hosts - 1)) % hosts).astype(np.uint32)
        self.size = rng.integers(1, 2**21, n).astype(np.uint64)
        whole_ps = float(self.size.sum()) * 8 / (100e9 * hosts * load) * 1e12
        self.start = np.sort(rng.integers(0, int(whole_ps) + 1, n)).astype(np.uint64)
        network = network_of(self.fabric)
        self.paths: FlowPaths = paths_between(network, self.src, self.dst, "deterministic", seed)

    def own(self) -> tuple[float, NDArray[np.float64]]:
        """Processor time in s, and the end of each flow in ps."""
        began = time.process_time()
        times = simulate_flows(self.fabric.link_gbps, self.paths, self.size, self.start)
        return time.process_time() - began, np.asarray(times.end_ps, np.float64)

    def text(self) -> str:
        """What the program of SimGrid reads."""
        rates = np.asarray(self.fabric.link_gbps, np.float64) * 1e9 / 8
        lines = [f"{self.fabric.n_nodes} {len(rates)} {len(self.src)}"]
        lines += [repr(float(rate)) for rate in rates]
        bounds = self.paths.start.astype(np.int64)
        for flow, (src, dst, size, start) in enumerate(
            zip(self.src, self.dst, self.size, self.start, strict=True)
        ):
            links = self.paths.link[bounds[flow] : bounds[flow + 1]].tolist()
            lines.append(
                f"{src} {dst} {size} {float(start) / 1e12!r} {len(links)} "
                + " ".join(map(str, links))
            )
        return "\n".join(lines) + "\n"


def simgrid(program: Path, flows: str) -> tuple[float, NDArray[np.float64]]:
    """Processor time in s of SimGrid, and the end of each flow in ps."""
    command = [str(program), *(f"--cfg={flag}" for flag in SETTINGS), "--log=root.thres:critical"]
    out = subprocess.run(command, input=flows, capture_output=True, text=True, check=True).stdout
    seconds, *ends = map(float, out.split())
    return seconds, np.array(ends) * 1e12


def compare(program: Path, n: int, load: float, seed: int, pairs: int) -> dict[str, object]:
    """Both simulations of ``n`` flows, alternately."""
    flows = Flows(n, load, seed)
    text = flows.text()
    theirs, ours = [], []
    for _ in range(pairs):
        ours.append(flows.own())
        theirs.append(simgrid(program, text))
    took = (ours[0][1] - flows.start, theirs[0][1] - flows.start)
    apart = np.abs(took[1] - took[0]) / took[0]
    ratios = [slow[0] / quick[0] for slow, quick in zip(theirs, ours, strict=True)]
    return {
        "flows": n,
        "simgrid_cpu_s": round(statistics.median(timing[0] for timing in theirs), 4),
        "cpu_s": round(statistics.median(timing[0] for timing in ours), 4),
        "ratio": round(statistics.median(ratios), 1),
        "difference_of_times_max": float(f"{apart.max():.2g}"),
        "difference_of_times_median": float(f"{np.median(apart):.2g}"),
    }


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description="The fluid model beside SimGrid's.")
    parser.add_argument("--flows", type=int, nargs="+", default=[2000, 5000, 10_000, 20_000])
    parser.add_argument("--load", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each, alternately")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    compiler = shutil.which("c++") or shutil.which("g++")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "fluid_simgrid"
        built = compiler and subprocess.run(
            [compiler, "-O2", "-std=c++17", str(SOURCE), "-lsimgrid", "-o", str(program)],
            capture_output=True,
            text=True,
        )
        if not built or built.returncode:
            print(
                "fluid_simgrid: SimGrid's library or a C++ compiler is missing; install g++ and "
                f"libsimgrid-dev\n{built.stderr if built else ''}",
                file=sys.stderr,
            )
            return 1
        rows = []
        for n in args.flows:
            rows.append(compare(program, n, args.load, args.seed, args.pairs))
            if not args.json:
                print(rows[-1], flush=True)
    if args.json:
        print(json.dumps({"machine": machine(), "load": args.load, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
