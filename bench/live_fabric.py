"""Cost of metrics and ``tailback watch`` at 29,808 ports: ``python bench/live_fabric.py [--json]``.

A fabric in the shape of Yellowstone (738 switches, 4,536 hosts) is read once a second; a slow host
holds up a growing tree, and errors and stalls are drawn for every port. Readings are made up, so no
network or simulator is part of any figure.

look       processor time of one look of ``tailback watch`` after each sweep
board      processor time in which the collector takes over a sweep for its metrics
page       processor time for a page of metrics, and its size plain and as it is sent (gzip)
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from _shared import machine

import tailback as tb
from tailback.collector import Collection, MetricsBoard
from tailback.collector.endpoint import pack
from tailback.collector.readings import ERRORS, RAW, Rows
from tailback.port_counters.targets import PortTarget, read_targets
from tests.factories.ibsim_subnet import YELLOWSTONE, write_net

GBPS, TICK_NS, SECOND = 54.545, 18.77, 10**9


def yellowstone(folder: Path, shape: dict[str, int]) -> list[PortTarget]:
    """Every port of the fabric."""
    net = folder / "fabric.net"
    write_net(net, **shape)
    # Nothing is sent, so every port may have one address.
    net.write_text(re.sub(r"\blid 0\b", "lid 1", net.read_text()))
    ports = read_targets(net, tick_ns=TICK_NS).targets
    return [replace(port, extended=True, extended_wait=True) for port in ports]


def sweeps_of(targets: list[PortTarget], count: int) -> list[Rows]:
    """Readings of every port, one sweep a second; one port in fifty stalls."""
    rng = np.random.Generator(np.random.Philox(key=[1, 29808]))
    n = len(targets)
    rows = np.zeros(n, RAW)
    rows["target"] = np.arange(n)
    begun = 1_700_000_000 * SECOND
    share = np.where(rng.random(n) < 0.02, rng.random(n) * 0.5, 0.0)
    out = []
    for sweep in range(count):
        rows["time_ns"] = begun + sweep * SECOND + np.sort(rng.integers(0, SECOND // 2, n))
        words = (rng.random(n) * 0.5 * GBPS / 32 * SECOND).astype(np.uint64)
        rows["words"] += words
        rows["received_words"] += words
        rows["packets"] += words // np.uint64(500)
        rows["received_packets"] += words // np.uint64(500)
        rows["wait"] += (share * SECOND / TICK_NS).astype(np.uint64)
        out.append(rows.copy())
    return out


def measure(shape: dict[str, int], sweeps: int) -> dict[str, object]:
    """Figures of a fabric of ``shape``."""
    with tempfile.TemporaryDirectory(prefix="tailback-bench-") as name:
        folder = Path(name)
        targets = yellowstone(folder, shape)
        readings = sweeps_of(targets, sweeps)
        board, collection = MetricsBoard(), Collection(folder / "c")
        board.begin(targets)
        errors = np.zeros(len(targets), ERRORS)
        errors["target"] = np.arange(len(targets))
        board.update_errors(errors)
        writer = collection.begin(targets, {})
        watched = tb.watch(folder / "c")
        looks, boards = [], []
        for rows in readings:
            writer.append(rows)
            begun = time.process_time()
            board.update(rows)
            board.sweeps += 1
            boards.append(time.process_time() - begun)
            begun = time.process_time()
            result = watched.look()
            looks.append(time.process_time() - begun)
        pages = []
        for _ in range(5):
            begun = time.process_time()
            page = board.metrics().encode()
            packed = pack(page)
            pages.append(time.process_time() - begun)
        watched.close()
        writer.close()
        collection.close()
    return {
        "ports": len(targets),
        "stalled": result.view.stalled[-1],
        "trees": len(result.view.trees),
        "look_s": statistics.median(looks[2:]),
        "first_look_s": looks[1],
        "board_s": statistics.median(boards[1:]),
        "page_s": statistics.median(pages),
        "page_mb": len(page) / 1e6,
        "sent_mb": len(packed) / 1e6,
        "machine": machine(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="135 switches instead of 738")
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    small = {"tors": 54, "hosts": 18, "orcas": 3, "leaves": 18, "spines": 9}
    result = measure(small if chosen.small else YELLOWSTONE, chosen.sweeps)
    if chosen.json:
        print(json.dumps(result, indent=1))
        return
    print(
        "{ports:,} ports, {stalled} stalled in {trees} trees listed; {machine}\n"
        "look {look_s:.3f} s of processor (first {first_look_s:.3f} s), board {board_s:.3f} s\n"
        "page {page_s:.2f} s of processor, {page_mb:.1f} MB, sent as {sent_mb:.2f} MB".format(
            **result
        )
    )


if __name__ == "__main__":
    main()
