"""Speed of the collector on a simulated subnet: ``python bench/collect.py [--json]``.

Starts ibsim and opensm (Debian: ibsim-utils opensm) with a fabric in the shape of Yellowstone,
lets ``tailback collect`` discover and sweep it through the real library, and prints sweep times,
MADs per second and processor time. The simulator answers all requests in one thread, so it is a
part of every figure. Full size takes about two minutes, most of it the subnet manager's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.factories.ibsim_subnet import YELLOWSTONE, Subnet, missing, write_net


def measure(shape: dict[str, int], sweeps: int, rate: float) -> dict[str, object]:
    """Sweep a fabric of ``shape`` in one thread, first with the rate cap ``rate``, then without."""
    with tempfile.TemporaryDirectory(prefix="tailback-bench-") as name:
        folder = Path(name)
        net = folder / "fabric.net"
        switches, hosts, cables = write_net(net, **shape)
        result: dict[str, object] = {"switches": switches, "hosts": hosts, "cables": cables}
        with Subnet(net, folder, timeout=300) as subnet:
            for label, most in (("capped", rate), ("uncapped", 1e9)):
                text = subnet.tailback(
                    "collect",
                    "--out",
                    f"out-{label}",
                    "--interval",
                    "1 ms",
                    "--sweeps",
                    str(sweeps),
                    "--rate",
                    str(most),
                    "--format",
                    "json",
                    "--quiet",
                    timeout=600,
                )
                result[label] = {"rate_cap": most, **json.loads(text)}
    result["machine"] = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed of the collector on a simulated subnet.")
    parser.add_argument("--small", action="store_true", help="135 switches instead of 738")
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--rate", type=float, default=20_000, help="cap of the first run, MADs/s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if lacking := missing():
        print(f"missing Debian packages: {' '.join(lacking)}", file=sys.stderr)
        return 2
    small = {"tors": 54, "hosts": 18, "orcas": 3, "leaves": 18, "spines": 9}
    result = measure(small if args.small else YELLOWSTONE, args.sweeps, args.rate)
    if args.json:
        print(json.dumps(result, indent=2))
        return 0
    print("{switches} switches, {hosts} hosts, {cables} cables; {machine}".format(**result))
    for label in ("capped", "uncapped"):
        run = result[label]
        assert isinstance(run, dict)
        print(
            f"{label} at {run['rate_cap']:g} MADs/s: {run['ports']} ports, longest sweep "
            f"{run['longest_sweep_s']} s of {run['sweeps']}; {run['sweep_mads_per_s']} MADs/s "
            f"while sweeping; {run['failed']} of {run['readings']} readings failed; "
            f"{run['cpu_seconds_per_sweep']} s of processor a sweep, "
            f"{run['cpu_seconds']} s in all of {run['seconds']} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
