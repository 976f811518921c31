"""Collections of port counters, and rows of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tailback.collector.readings import RAW
from tailback.collector.store import Collection
from tailback.port_counters.targets import PortTarget

SECOND = 1_000_000_000

PORTS = (
    PortTarget(0x1000, "switch", True, 4, 11, 0.0, 22.0, "given", extended=True),
    PortTarget(0x2000, "host", False, 1, 12, 100.0, 22.0, "given", extended=True),
    PortTarget(0x9000, "elsewhere", True, 2, 13, 54.5, 22.0, "given", extended=True),
)


def collected(path: Path, segments: int, sweeps: int = 3, first: int = 0) -> Path:
    """A collection of PORTS; each counter grows by steps of its own."""
    draw = np.random.default_rng(5)
    collection = Collection(path)
    row = np.zeros(len(PORTS), RAW)
    row["target"] = np.arange(len(PORTS))
    for number in range(segments):
        writer = collection.begin(list(PORTS), {})
        for sweep in range(sweeps):
            begun = (first + number * sweeps + sweep) * 10 * SECOND
            row["time_ns"] = begun + np.arange(len(PORTS))
            row["wait"] += draw.integers(0, [300_000_000, 100_000, 1_000_000], dtype=np.uint64)
            row["words"] += draw.integers(0, 10**9, len(PORTS), dtype=np.uint64)
            row["packets"] += np.uint64(1000)
            writer.append(row)
        writer.close()
        collection.compact()
    collection.close()
    return path


HOSTILE = "sw\"'<script>\n\x1b[31m`rm -rf`\\"

TARGETS = [
    PortTarget(5, HOSTILE, True, 1, 7, 54.5, 22.0, "published", extended=True),
    PortTarget(5, HOSTILE, True, 2, 7, 54.5, 22.0, "published", extended=True),
]


def block(first: int, count: int) -> np.ndarray:
    made = np.zeros(count, RAW)
    made["time_ns"] = np.arange(first, first + count) * 1000 + 1000
    made["wait"] = np.arange(first, first + count)
    return made
