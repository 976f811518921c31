"""The row-major round of the 2-D stencil: 4608 nodes, 1.2 M packet-hops, measurement included.

python bench/row_major.py [--packet "4 KiB"] [--runs 5] [--json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from _machine import machine

from tailback.scenario.model import load
from tailback.simulation import execute, prepare, routes_for
from tailback.units import parse_bytes

SCENARIO = Path(__file__).resolve().parents[1] / "examples" / "stencil2d" / "stencil2d.toml"


def main() -> None:
    """Print the median of several runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packet", default="4 KiB")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    scenario = load(SCENARIO)
    scenario.engine.packet = parse_bytes(args.packet)
    prepared = prepare(scenario)
    routes = routes_for(scenario, prepared.fabric, prepared.slots().tolist())
    runs = [execute(prepared, routes=routes) for _ in range(args.runs)]
    seconds = sorted(run.performance["engine_seconds"] for run in runs)
    found = {
        "packet": args.packet,
        "packet_hops": runs[0].summary["packet_hops"],
        "simulated_us": runs[0].elapsed_ps / 1e6,
        "seconds": seconds[len(seconds) // 2],
        "seconds_all": seconds,
        "machine": machine(),
    }
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{found['packet_hops']:,} packet-hops with all measurement in {found['seconds']:.2f} s "
        f"(median of {args.runs}) on one core of {found['machine']}"
    )


if __name__ == "__main__":
    main()
