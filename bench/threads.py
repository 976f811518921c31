"""Gain from threads: a run on several threads, compared with as many simultaneous one-thread runs.

    python bench/threads.py --threads 4

Cores share resources that programs do not see: hyper-threads, caches, and the processor with other
virtual machines. The total speed of four simultaneous one-thread runs is what the machine can
deliver at that moment; a run that is cut into equal parts waits for the slowest one, so it reaches
at most four times the speed of that one. Each round measures one run alone, several at once, and
one on several threads, within seconds of one another. Other options are those of bench/engine.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from _machine import machine

ENGINE = Path(__file__).with_name("engine.py")


def arguments() -> tuple[argparse.Namespace, list[str]]:
    """The command line; unknown options are passed to bench/engine.py."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=7, help="repetitions; the median counts")
    parser.add_argument("--json", action="store_true")
    return parser.parse_known_args()


def begin(threads: int, runs: int, rest: list[str]) -> subprocess.Popen[str]:
    """Start bench/engine.py in a separate process."""
    command = [sys.executable, str(ENGINE), "--threads", str(threads), "--runs", str(runs)]
    return subprocess.Popen([*command, *rest, "--json"], stdout=subprocess.PIPE, text=True)


def speed(process: subprocess.Popen[str]) -> float:
    """Million packet-hops per second, the median of its runs."""
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return float(json.loads(said)["packet_hops_per_s"]) / 1e6


def measure(args: argparse.Namespace, rest: list[str]) -> dict[str, Any]:
    """One round."""
    alone = speed(begin(1, args.runs, rest))
    together = [begin(1, args.runs, rest) for _ in range(args.threads)]
    side_by_side = [speed(process) for process in together]
    threads = speed(begin(args.threads, args.runs, rest))
    return {
        "alone": alone,
        "side_by_side": side_by_side,
        "threads": threads,
        "of_one": threads / alone,
        "of_side_by_side": threads / sum(side_by_side),
        "of_slowest": threads / (args.threads * min(side_by_side)),
    }


def main() -> None:
    """Print the rounds and their median."""
    args, rest = arguments()
    rounds = []
    for _ in range(args.rounds):
        found = measure(args, rest)
        rounds.append(found)
        if not args.json:
            several = " + ".join(f"{each:.1f}" for each in found["side_by_side"])
            print(
                f"alone {found['alone']:.1f}; side by side {several} = "
                f"{sum(found['side_by_side']):.1f}; {args.threads} threads "
                f"{found['threads']:.1f} M packet-hops/s: {found['of_one']:.2f} of one, "
                f"{100 * found['of_side_by_side']:.0f} % of side by side, "
                f"{100 * found['of_slowest']:.0f} % of {args.threads} times the slowest",
                flush=True,
            )
    ratios = ("of_one", "of_side_by_side", "of_slowest")
    middle = {name: statistics.median(found[name] for found in rounds) for name in ratios}
    if args.json:
        print(json.dumps({"rounds": rounds, "median": middle, "machine": machine()}, indent=2))
    else:
        print(
            f"middle: {middle['of_one']:.2f} of one, {100 * middle['of_side_by_side']:.0f} % of "
            f"side by side, {100 * middle['of_slowest']:.0f} %, on {machine()}"
        )


if __name__ == "__main__":
    main()
