"""Events per second of the OTF2 reader: `python bench/otf2_read.py [TRACE] [--json]`.

Prints the medians of several runs: of reading all events to columns, on
one thread and on all, and of the whole way to a rank program.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from _machine import processor

from tailback import TailbackError
from tailback.traffic.readers.otf2.reader import load, read

DEFAULT = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "eztrace-stencil64"


def seconds(action: Callable[[], object], runs: int) -> list[float]:
    """Wall-clock seconds of each run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return times


def measure(path: Path, runs: int) -> dict[str, object]:
    """All figures of a trace."""
    cores = len(os.sched_getaffinity(0))
    trace = load(path)
    result: dict[str, object] = {
        "trace": path.name,
        "events": trace.records,
        "ranks": trace.n_ranks,
        "runs": runs,
        "cpu": processor(),
        "cores": cores,
    }
    steps: dict[str, Callable[[], object]] = {
        "read_one_thread": lambda: load(path, threads=1),
        "read": lambda: load(path),
        "read_and_compile": lambda: read(path),
    }
    for name, action in steps.items():
        times = seconds(action, runs)
        result[f"{name}_s"] = median(times)
        result[f"{name}_spread_s"] = max(times) - min(times)
        result[f"{name}_events_per_s"] = trace.records / median(times)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Events per second of the OTF2 reader")
    parser.add_argument("trace", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        result = measure(options.trace, max(options.runs, 1))
    except TailbackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{result['trace']}: {result['events']} events of {result['ranks']} ranks")
    print(f"{result['cpu']}, {result['cores']} cores, median of {result['runs']} runs")
    for name in ("read_one_thread", "read", "read_and_compile"):
        rate = float(str(result[f"{name}_events_per_s"])) / 1e6
        print(
            f"{name:>16}: {result[f'{name}_s']:.3f} s (spread "
            f"{result[f'{name}_spread_s']:.3f}), {rate:.2f} M events/s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
