"""Seconds to decode hashed samples, by transform and directly: `python bench/decode.py [--json]`.

Every packet against every link, on one core: the Walsh–Hadamard transform and the direct loop (the
same source compiled for the widest vectors of the processor) on the same random packets, compared
integer by integer. `--classes` decodes traffic between random nodes of the Tapered network, every
packet against its candidate links at every stage only (some 670 of 18,432 links): as the cost
model chooses, by transforms, by the direct loop over the same candidates, and, for the gain by both
candidates and transform, by the direct loop over all links.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
from _pages import put
from numpy.typing import NDArray

from tailback import _core
from tailback.fabric.builders import PRESETS, fat_tree
from tailback.telemetry import fat_tree_stages

FIELDS = (8, 16, 24, 32)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "telemetry.md"


def packets(
    count: int, links: int, id_bits: int, bits: int, seed: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint8]]:
    """Ids, hashes and weights: each packet carries the hash of one link, chosen at random."""
    random = np.random.default_rng(seed)
    field = min(n for n in FIELDS if n >= id_bits)
    ids = random.integers(0, 1 << id_bits, count, dtype=np.uint32)
    # Skewed: low link numbers carry more, so that counts differ.
    sampled = (random.random(count) ** 2 * links).astype(np.uint32) + np.uint32(1)
    hashes = _core.link_hash("gf", ids, sampled, bits, field)
    weights = random.integers(1, 6, count, dtype=np.uint8)
    return ids, hashes, weights


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Times both ways and compares them."""
    field = min(n for n in FIELDS if n >= options.id_bits)
    ids, hashes, weights = packets(
        options.packets, options.links, options.id_bits, options.bits, options.seed
    )
    links = np.arange(1, options.links + 1, dtype=np.uint32)
    times = []
    for _ in range(options.runs):
        start = time.perf_counter()
        fast = _core.decode(ids, hashes, weights, links, options.bits, field, "transform")
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    slow = _core.decode(ids, hashes, weights, links, options.bits, field, "direct")
    direct = time.perf_counter() - start
    return {
        "links": options.links,
        "packets": options.packets,
        "id_bits": options.id_bits,
        "hash_bits": options.bits,
        "transform_s": median(times),
        "transform_spread_s": max(times) - min(times),
        "direct_s": direct,
        "direct_tests_per_s": options.links * options.packets / direct,
        "ratio": direct / median(times),
        "equal": bool(np.array_equal(fast, slow)),
    }


def measure_classes(options: argparse.Namespace) -> dict[str, object]:
    """Times decoding by candidate class, compared integer by integer."""
    fabric = fat_tree(PRESETS["tapered"])
    random = np.random.default_rng(options.seed)
    ends = random.integers(0, fabric.n_nodes, (2, options.packets), dtype=np.uint32)
    pod = ends // (fabric.n_nodes // 6)
    leaf = ends // 32
    lengths = np.where(leaf[0] == leaf[1], 1, np.where(pod[0] == pod[1], 3, 5)).astype(np.uint8)
    ids = random.integers(0, 1 << options.id_bits, options.packets, dtype=np.uint32)
    hashes = random.integers(0, 1 << options.bits, options.packets).astype(np.uint8)
    field = min(n for n in FIELDS if n >= options.id_bits)
    links = np.arange(1, fabric.n_links + 1, dtype=np.uint32)
    parts = []
    for stage in fat_tree_stages(fabric):
        rows = np.flatnonzero(stage.hop_of(lengths) >= 0)
        found = stage.candidates(ends[0, rows], ends[1, rows])
        parts.append((ids[rows], hashes[rows], lengths[rows], found))
    result: dict[str, object] = {"packets": options.packets, "hash_bits": options.bits}
    scores: dict[str, list[NDArray[np.int64]]] = {}
    tests = sum(int(found.sizes[found.of_packet].sum()) for *_, found in parts)
    for how, runs in (("auto", options.runs), ("transform", options.runs), ("direct", 1)):
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            scores[how] = [
                _core.decode_classes(
                    own_ids,
                    own_hashes,
                    weights,
                    class_of_packet=found.of_packet,
                    class_start=found.start,
                    class_links=found.links,
                    links=links,
                    bits=options.bits,
                    field_bits=field,
                    how=how,
                )
                for own_ids, own_hashes, weights, found in parts
            ]
            times.append(time.perf_counter() - start)
        result[f"{how}_s"] = median(times)
    result["candidates_a_packet"] = tests / options.packets
    result["packet_stages"] = sum(len(own) for own, *_ in parts)
    start = time.perf_counter()
    _core.decode(ids, hashes, lengths, links, options.bits, field, "direct")
    result["direct_all_links_s"] = time.perf_counter() - start
    chosen = float(str(result["auto_s"]))
    result["auto_ns_a_packet_stage"] = chosen * 1e9 / float(str(result["packet_stages"]))
    result["ratio"] = float(str(result["direct_s"])) / chosen
    result["ratio_all_links"] = float(str(result["direct_all_links_s"])) / chosen
    result["equal"] = all(
        np.array_equal(a, b) and np.array_equal(a, c)
        for a, b, c in zip(scores["auto"], scores["direct"], scores["transform"], strict=True)
    )
    return result


def shown(value: object) -> str:
    """Floats to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(result: dict[str, object], name: str) -> None:
    """Replace a table of the documentation."""
    rows = [f"| `{key}` | {shown(value)} |" for key, value in result.items()]
    put(PAGE, {name: "\n".join(["| figure | value |", "|---|---:|", *rows])})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--links", type=int, default=20_000)
    parser.add_argument("--packets", type=int, default=10_000_000)
    parser.add_argument("--id-bits", type=int, default=16)
    parser.add_argument("--bits", type=int, default=1, help="hash bits a packet carries")
    parser.add_argument("--runs", type=int, default=5, help="runs of the transform")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--classes", action="store_true", help="by candidate class, on Tapered")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--write", action="store_true", help="update docs/measurements/telemetry.md"
    )
    options = parser.parse_args()
    limits = {"links": 2**options.id_bits - 1, "packets": 2**31, "id_bits": 32, "bits": 8}
    for name, most in limits.items():
        if not 1 <= getattr(options, name) <= most:
            parser.error(f"--{name.replace('_', '-')} must be 1 to {most}")
    result = measure_classes(options) if options.classes else measure(options)
    if options.write:
        write(result, "classes" if options.classes else "decode")
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:>20}: {shown(value)}")
    return 0 if result["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
