"""Error of every scheme and bit budget: `python bench/telemetry_accuracy.py [--json] [--write]`.

On the Tapered network with uniform and with skewed traffic, on a torus and on a dragonfly, for
several numbers of packets, every packet on a path drawn for it alone as adaptive routing does.
Every scheme sees the same packets. The error is that of the counted packets of a link, root of the
mean square over the links of a tier, relative to the tier's mean count. The variance of an unbiased
count is proportional to the packets, so at equal packets the ratio of squared errors is the ratio
of packets needed at equal error: `packets_relative` gives it against the published one-bit scheme,
> 1 meaning fewer.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _shared import put
from numpy.typing import NDArray
from telemetry_traffic import FIELD_BITS, NETWORKS, PATTERNS, Traffic, make_traffic

from tailback import _core
from tailback.telemetry import CandidateLinks, HashedSamples, count_links
from tailback.telemetry.likelihood import fit

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "accuracy.md"
EVEN = "spread evenly"
Result = dict[str, Any]
Floats = NDArray[np.float64]
Errors = dict[str, float]


@dataclass(frozen=True)
class Entry:
    """A scheme with its options; ``size`` is count bits, reservoir size or hops."""

    scheme: str
    bits: int = 1
    size: int = 1
    probability: float = 0.2

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.scheme} n={self.size}" if self.scheme == "full" else self.scheme


SCHEMES = [
    Entry("single_bit", 1, 4),
    Entry("compact", 1, 4),
    Entry("compact", 2, 3),
    *(Entry("coordinated", bits) for bits in (1, 2, 3, 4, 5, 8)),
    Entry("xor_digest", 5),
    Entry("node_marking"),
    Entry("full", size=1),
    Entry("full", size=2),
    Entry("full_int", size=12),
]
LIKELY = [Entry("compact", 1, 4), *(Entry("coordinated", bits) for bits in (1, 2, 4, 5))]
"""Schemes also decoded by maximum likelihood, which takes longer."""

COMPARED = "coordinated, 5-bit hash"
"""The one of them that the table of decoders shows: six bits a packet."""


@dataclass
class Decoded:
    """Results of one run of a scheme."""

    counts: Floats
    header_bits: int
    hash_bits: int | None
    likely: Floats | None = None
    gap: float = 0.0
    steps: int = 0


def estimate(traffic: Traffic, entry: Entry, seed: int, tag: int, likely: bool) -> Decoded:
    """Counted packets of every link."""
    header, hash_bits, _ = _core.scheme_facts(
        entry.scheme, entry.bits, entry.size, entry.probability
    )
    # One in `tag` packets carries a sample: those whose sequence number divides evenly.
    chosen = np.flatnonzero(traffic.ids % tag == 0).astype(np.uint32)
    marks = _core.run_scheme(
        entry.scheme,
        traffic.ids[chosen],
        traffic.hops[chosen],
        traffic.links[chosen] + np.uint32(1),
        np.zeros((len(chosen), traffic.most_hops), np.uint8),
        seed,
        bits=entry.bits,
        size=entry.size,
        probability=entry.probability,
        hash="gf",
        field_bits=FIELD_BITS,
    )
    packet = chosen[marks["packet"]]
    seen, hop, weight = marks["seen"], marks["hop"], marks["weight"]
    if hash_bits is None:
        counts = np.bincount(seen - np.uint32(1), weights=weight, minlength=traffic.n_links)
        return Decoded(counts * tag, header, None)
    values = np.arange(1, traffic.n_links + 1, dtype=np.uint32)
    hops_known = bool((hop != 255).all())
    out = Decoded(np.zeros(traffic.n_links), header, hash_bits)
    # Weights that are no small integers (of the XOR digest) are decoded one after the other.
    integral = bool((weight == np.round(weight)).all() and weight.max() < 256)
    for part in [None] if integral else np.unique(weight):
        keep = slice(None) if part is None else weight == part
        of_packet, factor = packet[keep], 1.0 if part is None else float(part)
        sent = weight[keep] if part is None else np.ones(len(of_packet))
        samples = HashedSamples(
            traffic.ids[of_packet],
            seen[keep].astype(np.uint8),
            sent.astype(np.uint8),
            entry.bits,
            FIELD_BITS,
        )
        plan = traffic.stages(of_packet, hop[keep] if hops_known else None)
        out.counts += tag * factor * count_links(_core, samples, plan, values, hops_known).packets
        if likely and integral:
            fitted = fit(_core, samples, plan, traffic.population(), values)
            out.likely, out.gap, out.steps = fitted.packets, fitted.gap, fitted.steps
    return out


def errors(counts: Floats, traffic: Traffic) -> Errors:
    """Root mean square error of each tier, relative to its mean count."""
    out = {}
    for tier, links in traffic.tiers.items():
        truth = traffic.truth[links]
        off = counts[links] - truth
        out[tier] = float(np.sqrt(np.mean(off**2)) / max(truth.mean(), 1e-300))
    return out


class Mean:
    """Root mean squares of errors over runs."""

    def __init__(self) -> None:
        self.squares: dict[str, list[float]] = {}

    def add(self, run_errors: Errors) -> None:
        """One more run."""
        for tier, error in run_errors.items():
            self.squares.setdefault(tier, []).append(error**2)

    def errors(self) -> Errors | None:
        """By tier; None without runs."""
        roots = {tier: float(np.sqrt(np.mean(s))) for tier, s in self.squares.items()}
        return roots or None


def spread_evenly(candidates: CandidateLinks, n_links: int) -> NDArray[np.float64]:
    """Baseline without samples: packets of a class spread evenly over its candidates, (L,)."""
    sizes = candidates.sizes
    packets = np.bincount(candidates.of_packet, minlength=len(sizes)).astype(np.float64)
    share = np.divide(packets, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    expected = np.bincount(candidates.links, weights=np.repeat(share, sizes), minlength=n_links)
    return np.asarray(expected, np.float64)


def relative(reference: Errors, scheme_errors: Errors | None) -> dict[str, float | None] | None:
    """Fewer packets at equal error than the reference; None where the error is 0."""
    if scheme_errors is None:
        return None
    return {
        tier: (reference[tier] / e) ** 2 if e > 0 else None for tier, e in scheme_errors.items()
    }


def measure(
    network: str, pattern: str, packets: int, seed: int, repeats: int, most_likely: int
) -> Result:
    """All schemes on one traffic."""
    traffic = make_traffic(network, pattern, packets, seed)
    population = traffic.population()
    rows: list[dict[str, object]] = []
    reference: Errors = {}
    for entry in SCHEMES:
        linear, likely = Mean(), Mean()
        gap = 0.0
        steps = 0
        for repeat in range(repeats):
            try_likely = entry in LIKELY and packets <= most_likely and repeat == 0
            decoded = estimate(traffic, entry, seed + 1000 * repeat, 1, try_likely)
            linear.add(errors(decoded.counts, traffic))
            if decoded.likely is not None:
                likely.add(errors(decoded.likely, traffic))
                gap, steps = decoded.gap, decoded.steps
        scheme_errors = linear.errors() or {}
        reference = reference or scheme_errors
        rows.append(
            {
                "scheme": entry.label,
                "hash_bits": decoded.hash_bits,
                "header_bits": decoded.header_bits,
                "relative_error": scheme_errors,
                "packets_relative": relative(reference, scheme_errors),
                "likelihood_error": likely.errors(),
                "packets_relative_likelihood": relative(reference, likely.errors()),
                "likelihood_gap_nats": gap if likely.squares else None,
                "likelihood_steps": steps if likely.squares else None,
            }
        )
    even = errors(
        sum(
            (spread_evenly(part, traffic.n_links) for part in population), np.zeros(traffic.n_links)
        ),
        traffic,
    )
    rows.append(
        {
            "scheme": EVEN,
            "hash_bits": None,
            "header_bits": 0,
            "relative_error": even,
            "packets_relative": relative(reference, even),
        }
    )
    return {
        "network": network,
        "pattern": pattern,
        "packets": packets,
        "seed": seed,
        "repeats": repeats,
        "schemes": rows,
    }


def label(row: Result) -> str:
    """A scheme with its hash bits."""
    bits = row["hash_bits"]
    return str(row["scheme"]) + (f", {bits}-bit hash" if bits else "")


def shown_tier(result: Result) -> str:
    """The tier that is shown: in a tree the one with most candidates, else the first inner one."""
    tiers = list(result["schemes"][0]["relative_error"])
    return "core up" if "core up" in tiers else tiers[0]


def scheme_table(results: list[Result]) -> str:
    """Error of every scheme with most packets, and packets relative to the published scheme."""
    most = max(result["packets"] for result in results)
    results = [result for result in results if result["packets"] == most]
    titles = [f"{r['network']}, {r['pattern']}: {shown_tier(r)}" for r in results]
    lines = [
        f"| scheme | header bits | {' | '.join(titles)} |",
        "|---|---:|" + "---:|" * len(results),
    ]
    for rows in zip(*(result["schemes"] for result in results), strict=True):
        cells = []
        for result, row in zip(results, rows, strict=True):
            error, fewer = (
                row[n][shown_tier(result)] for n in ("relative_error", "packets_relative")
            )
            cells.append("exact" if fewer is None else f"{error:.3g} ({fewer:.3g}×)")
        lines.append(f"| {label(rows[0])} | {rows[0]['header_bits']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def decoder_table(results: list[Result]) -> str:
    """Linear and most likely counts side by side of ``COMPARED``."""
    lines = [
        f"| {COMPARED} | linear | maximum likelihood | spread evenly |",
        "|---|---:|---:|---:|",
    ]
    for result in results:
        tier = shown_tier(result)
        even = result["schemes"][-1]["relative_error"]
        for row in result["schemes"]:
            likely = row.get("likelihood_error")
            if likely and label(row) == COMPARED:
                lines.append(
                    f"| {result['network']}, {result['pattern']}, {result['packets']} | "
                    f"{row['relative_error'][tier]:.3g} | {likely[tier]:.3g} | {even[tier]:.3g} |"
                )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packets", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--network", choices=NETWORKS, nargs="+", default=list(NETWORKS))
    parser.add_argument("--pattern", choices=PATTERNS, nargs="+", default=list(PATTERNS))
    parser.add_argument(
        "--likelihood",
        type=int,
        default=20_000,
        metavar="PACKETS",
        help="most packets that are also decoded by maximum likelihood",
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    options = parser.parse_args()
    if min(options.packets) < 1000 or max(options.packets) > 20_000_000 or options.repeats < 1:
        parser.error("--packets must be 1000 to 20000000, --repeats at least 1")
    return options


def main() -> int:
    options = arguments()
    results = [
        measure(network, pattern, packets, options.seed, options.repeats, options.likelihood)
        for network in options.network
        for pattern in options.pattern
        for packets in options.packets
    ]
    parts = {"schemes": scheme_table(results), "decoders": decoder_table(results)}
    print(json.dumps(results) if options.json else "\n\n".join(parts.values()))
    if options.write:
        put(PAGE, parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
