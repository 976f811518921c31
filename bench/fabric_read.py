"""Time to read a real fabric: ``python bench/fabric_read.py FILE [--repeat N] [--json]``.

Prints the median wall-clock seconds, what was read, and the machine. The default file is the public
discovery of NVIDIA Selene, if it is next to the checkout.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

from _machine import machine

from tailback import TailbackError
from tailback.fabric.readers import read_fabric

SELENE = Path(__file__).resolve().parents[1].parent / "shared/data/selene/selene.compute.txt"


def measure(path: Path, repeat: int) -> dict[str, object]:
    """Read ``path`` ``repeat`` times after one warm-up; times in seconds."""
    fabric = read_fabric(path, keep_aggregation=True)
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        read_fabric(path)
        seconds.append(time.perf_counter() - start)
    return {
        "file": path.name,
        "file_bytes": path.stat().st_size,
        "repeat": repeat,
        "median_s": round(statistics.median(seconds), 4),
        "min_s": round(min(seconds), 4),
        "max_s": round(max(seconds), 4),
        "switches": fabric.n_switches,
        "adapters": fabric.n_nodes,
        "directed_links": fabric.n_links,
        "machine": f"{machine()}, Python {platform.python_version()}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Time to read a real fabric.")
    parser.add_argument("file", type=Path, nargs="?", default=SELENE)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.repeat < 1:
        parser.error("--repeat must be 1 or more")
    try:
        result = measure(args.file, args.repeat)
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if args.json:
        print(json.dumps(result))
    else:
        print(
            "{file}: {median_s} s (median of {repeat}, {min_s} to {max_s}): {switches} switches, "
            "{adapters} adapters, {directed_links} directed links\n{machine}".format(**result)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
