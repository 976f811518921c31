"""Memory that ``tailback counters`` takes for a collection in sweeps.

Run it with ``python bench/collection.py --segments 12``. A collection of ``--ports`` ports and
``--sweeps`` sweeps a segment is made in a temporary folder and analysed by a separate process;
``--whole`` reads all of it into memory instead, for comparison. What is printed last is the largest
resident set of that process, the imports included.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tailback.collector import Collection
from tailback.collector.readings import RAW
from tailback.port_counters.targets import PortTarget

_WHOLE = """
import sys
from pathlib import Path
from tailback.port_counters.analysis.port_inventory import PortInventory
from tailback.port_counters.analysis.sources import CounterSource
from tailback.port_counters.analysis.survey import AnalysisOptions, analyse
from tailback.port_counters.readers import read_counters

folder = Path(sys.argv[1])
source = CounterSource(counters=read_counters(folder), files=[folder])
analyse(source, PortInventory(), AnalysisOptions())
"""


def make(folder: Path, ports: int, segments: int, sweeps: int) -> None:
    """Write a collection of ``ports`` ports on switches of 40, a sweep every ten seconds."""
    targets = [
        PortTarget(
            1000 + i // 40,
            f"switch{i // 40}",
            True,
            i % 40,
            i // 40 + 1,
            54.5,
            22.0,
            "published",
            extended=True,
        )
        for i in range(ports)
    ]
    collection = Collection(folder)
    row = np.zeros(ports, RAW)
    row["target"] = np.arange(ports)
    row["time_ns"] = 1_700_000_000_000_000_000
    for _ in range(segments):
        writer = collection.begin(targets, {})
        for _ in range(sweeps):
            row["time_ns"] += 10_000_000_000
            row["wait"] += np.arange(ports, dtype=np.uint64) * np.uint64(1000)
            row["words"] += np.uint64(1_000_000)
            writer.append(row)
        writer.close()
        collection.compact()
    collection.close()


def main() -> None:
    """Make the collection and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ports", type=int, default=5000)
    parser.add_argument("--segments", type=int, default=12)
    parser.add_argument("--sweeps", type=int, default=60)
    parser.add_argument("--whole", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "collection"
        make(path, given.ports, given.segments, given.sweeps)
        run = ["-c", _WHOLE] if given.whole else ["-m", "tailback", "counters"]
        begun = time.perf_counter()
        subprocess.run([sys.executable, *run, str(path)], check=True)
        seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    rows = given.ports * (given.segments * given.sweeps - 1)
    print(f"{rows} intervals: {seconds:.1f} s, {peak:.2f} GB")


if __name__ == "__main__":
    main()
