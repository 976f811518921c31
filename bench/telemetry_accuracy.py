"""Error per tier of every scheme on Tapered: `python bench/telemetry_accuracy.py [--json]`.

Packets take up/down paths chosen at random per packet, as adaptive routing does: between random
nodes (`uniform`), or two fifths of them on 400 fixed paths (`skewed`). Every scheme sees the same
packets. The error is that of the counted packets of a link, root of the mean square over the links
of a tier, relative to the tier's mean count. The variance of an unbiased count is proportional to
the packets, so at equal packets the ratio of squared errors is the ratio of packets needed at equal
error: `packets_relative` gives it against the published one-bit scheme, > 1 meaning fewer.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.fabric.builders import PRESETS, fat_tree
from tailback.telemetry.conserve import conserve
from tailback.telemetry.hashed import (
    Candidates,
    Hashed,
    closed_variance,
    count_links,
    spread_evenly,
)
from tailback.telemetry.stages import Stage, fat_tree_stages

FIELD_BITS = 24
PAGE = Path(__file__).resolve().parents[1] / "docs" / "telemetry.md"
HOPS = 5
# (scheme, hash bits, count bits or reservoir size or hops, probability)
SCHEMES = [
    ("single_bit", 1, 4, 0.2),
    ("compact", 1, 4, 0.2),
    ("compact", 2, 3, 0.2),
    ("coordinated", 1, 1, 0.2),
    ("coordinated", 2, 1, 0.2),
    ("coordinated", 3, 1, 0.2),
    ("coordinated", 4, 1, 0.2),
    ("coordinated", 5, 1, 0.2),
    ("coordinated", 8, 1, 0.2),
    ("xor_digest", 5, 1, 0.2),
    ("node_marking", 1, 1, 0.2),
    ("edge_marking", 1, 1, 0.2),
    ("full", 1, 1, 0.2),
    ("full", 1, 2, 0.2),
    ("full_int", 1, 5, 0.2),
]


@dataclass(frozen=True)
class Traffic:
    """Packets with their paths, and what the links really carried."""

    source: NDArray[np.uint32]
    destination: NDArray[np.uint32]
    ids: NDArray[np.uint32]
    hops: NDArray[np.uint8]
    links: NDArray[np.uint32]
    truth: NDArray[np.float64]
    n_links: int


def make_traffic(pattern: str, packets: int, seed: int) -> tuple[Traffic, list[Stage]]:
    """Random packets on the Tapered network."""
    fabric = fat_tree(PRESETS["tapered"])
    network = _core.Network(
        fabric.n_nodes, fabric.switch_tier, fabric.switch_pod, fabric.link_src, fabric.link_dst,
        fabric.link_src_port, fabric.link_dst_port, fabric.link_gbps, fabric.link_delay_ps,
        fabric.link_reverse,
    )  # fmt: skip
    random = np.random.default_rng(seed)
    ends = random.integers(0, fabric.n_nodes, (2, packets), dtype=np.uint32)
    hops, links = _core.random_paths(network, ends[0], ends[1], seed, HOPS)
    links = links.reshape(packets, HOPS)
    if pattern == "skewed":
        fixed = random.integers(0, 400, 2 * packets // 5)
        where = random.permutation(packets)
        rows, models = where[400 : 400 + len(fixed)], where[:400][fixed]
        ends[:, rows], hops[rows], links[rows] = ends[:, models], hops[models], links[models]
    passed = np.arange(HOPS) < hops[:, None]
    truth = np.bincount(links[passed], minlength=fabric.n_links).astype(np.float64)
    # Senders start their sequence numbers at random: 24 bits, as in InfiniBand.
    ids = random.integers(0, 1 << FIELD_BITS, packets, dtype=np.uint32)
    traffic = Traffic(ends[0], ends[1], ids, hops, links, truth, fabric.n_links)
    return traffic, fat_tree_stages(fabric)


def estimate(
    traffic: Traffic, stages: list[Stage], scheme: tuple[str, int, int, float], seed: int
) -> tuple[NDArray[np.float64], int, int | None]:
    """Counted packets of every link, the header's bits and the hash's."""
    name, bits, size, probability = scheme
    header, hash_bits, _ = _core.scheme_facts(name, bits, size, probability)
    found = _core.run_scheme(
        name, traffic.ids, traffic.hops, traffic.links + np.uint32(1),
        np.zeros_like(traffic.links, np.uint8), seed, bits, size, probability, "gf", FIELD_BITS,
    )  # fmt: skip
    packet, seen, hop, weight = (found[k] for k in ("packet", "seen", "hop", "weight"))
    if hash_bits is None:
        counts = np.bincount(seen - np.uint32(1), weights=weight, minlength=traffic.n_links)
        return counts, header, None
    values = np.arange(1, traffic.n_links + 1, dtype=np.uint32)
    known = bool((hop != 255).all())
    counts = np.zeros(traffic.n_links)
    # Weights that are no small integers (of the XOR digest) are decoded one after the other.
    whole = bool((weight == np.round(weight)).all() and weight.max() < 256)
    for part in [None] if whole else np.unique(weight):
        keep = slice(None) if part is None else weight == part
        of_packet, factor = packet[keep], 1.0 if part is None else float(part)
        sent = weight[keep] if part is None else np.ones(len(of_packet))
        samples = Hashed(
            traffic.ids[of_packet], seen[keep].astype(np.uint8), sent.astype(np.uint8), bits,
            FIELD_BITS,
        )  # fmt: skip
        plan = []
        for stage in stages:
            at = stage.hop_of(traffic.hops[of_packet])
            rows = np.flatnonzero((at == hop[keep]) if known else (at >= 0))
            chosen = of_packet[rows]
            ends = traffic.source[chosen], traffic.destination[chosen]
            plan.append((rows, stage.candidates(*ends)))
        counts += factor * count_links(_core, samples, plan, values, known).packets
    return counts, header, hash_bits


def all_candidates(traffic: Traffic, stages: list[Stage]) -> list[Candidates]:
    """Candidates of all packets at each stage."""
    out = []
    for stage in stages:
        rows = np.flatnonzero(stage.hop_of(traffic.hops) >= 0)
        out.append(stage.candidates(traffic.source[rows], traffic.destination[rows]))
    return out


def baseline(traffic: Traffic, stages: list[Stage]) -> NDArray[np.float64]:
    """Every class's packets spread evenly over its candidates."""
    return sum(
        (spread_evenly(part, traffic.n_links) for part in all_candidates(traffic, stages)),
        np.zeros(traffic.n_links),
    )


def errors(counts: NDArray[np.float64], traffic: Traffic, stages: list[Stage]) -> dict[str, float]:
    """Root mean square error of each tier, relative to its mean count."""
    out = {}
    for stage in stages:
        truth = traffic.truth[stage.links]
        off = counts[stage.links] - truth
        out[stage.name] = float(np.sqrt(np.mean(off**2)) / max(truth.mean(), 1e-300))
    return out


def measure(pattern: str, packets: int, seed: int, repeats: int) -> dict[str, object]:
    """All schemes on one traffic."""
    traffic, stages = make_traffic(pattern, packets, seed)
    candidates = all_candidates(traffic, stages)
    rows: list[dict[str, object]] = []
    reference: dict[str, float] = {}
    for scheme in SCHEMES:
        squares = dict.fromkeys((stage.name for stage in stages), 0.0)
        projected, residual = dict(squares), 0.0
        for repeat in range(repeats):
            counts, header, bits = estimate(traffic, stages, scheme, seed + 1000 * repeat)
            for tier, error in errors(counts, traffic, stages).items():
                squares[tier] += error**2 / repeats
            if bits is not None:
                possible = conserve(counts, candidates)
                residual = max(residual, possible.residual)
                for tier, error in errors(possible.packets, traffic, stages).items():
                    projected[tier] += error**2 / repeats
        reference = reference or dict(squares)
        name, _, size, _ = scheme
        rows.append({
            "scheme": f"{name} n={size}" if name == "full" else name,
            "hash_bits": bits,
            "header_bits": header,
            "relative_error": {tier: float(np.sqrt(s)) for tier, s in squares.items()},
            "packets_relative": {
                tier: reference[tier] / s if s > 0 else None for tier, s in squares.items()
            },
            "packets_relative_conserved": None if bits is None else {
                tier: reference[tier] / s if s > 0 else None for tier, s in projected.items()
            },
            "conservation_residual_packets": None if bits is None else residual,
        })  # fmt: skip
    even = errors(baseline(traffic, stages), traffic, stages)
    rows.append({
        "scheme": "spread evenly", "hash_bits": None, "header_bits": 0, "relative_error": even,
        "packets_relative": {tier: reference[tier] / e**2 if e else None
                             for tier, e in even.items()},
        "packets_relative_conserved": None, "conservation_residual_packets": None,
    })  # fmt: skip
    return {
        "pattern": pattern,
        "packets": packets,
        "seed": seed,
        "repeats": repeats,
        "predicted_core_up": predicted(traffic, stages),
        "schemes": rows,
    }


def predicted(traffic: Traffic, stages: list[Stage]) -> dict[str, float]:
    """Packets needed relative to one bit, in closed form, at the mean core link."""
    stage = next(stage for stage in stages if stage.name == "core up")
    q = float((traffic.hops == HOPS).sum()) / (len(stage.start) - 1)
    n = float(traffic.truth[stage.links].mean())
    one = float(closed_variance(n, q, HOPS, 1, False))
    return {
        f"coordinated {bits}": one / float(closed_variance(n, q, HOPS, bits, True))
        for bits in (1, 2, 3, 4, 5, 8)
    }


def trace(bits: int, choices: int, trials: int, seed: int) -> dict[str, object]:
    """Packets to recover one fixed path of five hops, `choices` possible links at each.

    A link stays possible while its hash agrees with every packet that told of its hop.
    """
    random = np.random.default_rng(seed)
    values = np.arange(1, HOPS * choices + 1, dtype=np.uint32).reshape(HOPS, choices)
    most = 400
    out: dict[str, object] = {"hash_bits": bits, "choices": choices, "trials": trials}
    for name in ("coordinated", "xor_digest"):
        needed = []
        for trial in range(trials):
            ids = random.integers(0, 1 << FIELD_BITS, most, dtype=np.uint32)
            path = values[np.arange(HOPS), random.integers(0, choices, HOPS)]
            rows = np.tile(path, (most, 1))
            found = _core.run_scheme(
                name, ids, np.full(most, HOPS, np.uint8), rows, np.zeros(rows.shape, np.uint8),
                seed + trial, bits, 1, 0.2, "gf", FIELD_BITS,
            )  # fmt: skip
            needed.append(packets_to_trace(found, ids, values, bits))
        known = [n for n in needed if n is not None]
        out[name] = {
            "median": float(np.median(known)) if known else None,
            "p99": float(np.quantile(known, 0.99)) if known else None,
            "unfinished": len(needed) - len(known),
        }
    return out


def packets_to_trace(
    found: dict[str, NDArray[np.uint32]],
    ids: NDArray[np.uint32],
    values: NDArray[np.uint32],
    bits: int,
) -> int | None:
    """Packets until one link is left at every hop; None when they do not suffice."""
    alive = np.ones(values.shape, bool)
    for packet, hop, seen in zip(found["packet"], found["hop"], found["seen"], strict=True):
        own = values[hop]
        hashes = _core.link_hash("gf", np.full_like(own, ids[packet]), own, bits, FIELD_BITS)
        alive[hop] &= hashes == seen
        if (alive.sum(axis=1) == 1).all():
            return int(packet) + 1
    return None


def table(result: dict[str, object]) -> str:
    """One traffic in Markdown."""
    rows = result["schemes"]
    assert isinstance(rows, list)
    tiers = list(rows[0]["relative_error"])
    lines = [
        f"{result['pattern']}, {result['packets']} packets, mean of {result['repeats']} runs, "
        f"seed {result['seed']}:",
        "",
        "| scheme | header bits | " + " | ".join(tiers)
        + " | fewer packets: core up | core down | core up, conserved |",
        "|---|---:" + "|---:" * (len(tiers) + 3) + "|",
    ]  # fmt: skip
    for row in rows:
        cells = [f"{row['relative_error'][tier]:.3g}" for tier in tiers]
        for tier in ("core up", "core down"):
            gain = row["packets_relative"][tier]
            cells.append("exact" if gain is None else f"{gain:.3g}×")
        conserved = row["packets_relative_conserved"]
        cells.append("" if conserved is None else f"{conserved['core up']:.3g}×")
        label = row["scheme"] + (f", {row['hash_bits']}-bit hash" if row["hash_bits"] else "")
        lines.append(f"| {label} | {row['header_bits']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def trace_table(traces: list[dict[str, object]]) -> str:
    """Path tracing in Markdown."""
    lines = [
        "| hash bits | links a hop | coordinated: median packets | 99 % | XOR digest, single hops: "
        "median | 99 % |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in traces:
        cells = [str(row["hash_bits"]), str(row["choices"])]
        for name in ("coordinated", "xor_digest"):
            figures = row[name]
            assert isinstance(figures, dict)
            cells += [f"{figures[key]:.0f}" for key in ("median", "p99")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packets", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--pattern", choices=("uniform", "skewed"), nargs="+",
                        default=["uniform", "skewed"])  # fmt: skip
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="update docs/telemetry.md")
    options = parser.parse_args()
    if min(options.packets) < 1000 or max(options.packets) > 50_000_000 or options.repeats < 1:
        parser.error("--packets must be 1000 to 50000000, --repeats at least 1")
    results = [
        measure(pattern, packets, options.seed, options.repeats)
        for pattern in options.pattern
        for packets in options.packets
    ]
    traces = [trace(bits, 48, 200, options.seed) for bits in (1, 4, 8)]
    text = "\n\n".join([*map(table, results), "Packets to trace a fixed path of five hops:",
                        trace_table(traces)])  # fmt: skip
    print(json.dumps({"traffic": results, "trace": traces}) if options.json else text)
    if options.write:
        begin, end = "<!-- accuracy -->\n", "<!-- end accuracy -->"
        page = PAGE.read_text(encoding="utf-8")
        head, rest = page.split(begin, 1)
        PAGE.write_text(f"{head}{begin}{text}\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
