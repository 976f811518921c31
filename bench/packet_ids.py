"""Whether packet ids keep the stated errors: `python bench/packet_ids.py [--json] [--write]`.

Packets of 1 to 10,000 queue pairs carry a hash of a link, and the receiver counts links that no
packet crossed. The root mean square of these counts over the standard deviation that the receiver
states should be 1. Sequence numbers start at 0 or at random; all packets cross one link, or each is
about a link drawn at random from many. `flows` is the numbering of queue pairs, senders and
receivers: patterns on which a mixer could fail. In two of the rows a hundredth of the packets is
sent twice, or every packet is acknowledged. For comparison, the same with the sequence number alone
as id and with a mixer that is linear in it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _shared import put
from numpy.typing import NDArray

from tailback import _core
from tailback.telemetry import CandidateLinks, HashedSamples, count_links, packet_ids
from tailback.telemetry.packet_ids import ID_BITS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "accuracy.md"
QUEUE_PAIRS = (1, 10, 100, 1000, 10_000)
LIMITS = (0.95, 1.05)
SPREAD_LINKS, SPREAD_HOPS = 4096, 5
RETRANSMITTED, ACKNOWLEDGED = "ring, 1 % sent twice", "ring, acknowledged"

Ids = NDArray[np.uint32]
Columns = tuple[Ids, Ids, Ids, Ids]
Mixer = Callable[[Ids, Ids, Ids, Ids], Ids]

_PAIR = np.uint32(2)


def _flows(count: int) -> Iterator[tuple[str, Ids, Ids, Ids]]:
    """Name, senders, receivers and numbers of ``count`` queue pairs."""
    i, same = np.arange(count, dtype=np.uint32), np.zeros(count, np.uint32)
    side, low = int(np.ceil(np.sqrt(count))), np.uint32(0xFFFF)
    yield "one pair of hosts", same + 1, same + 2, i + _PAIR
    yield "one sender", same + 1, i + 2, same + _PAIR
    yield "one receiver", i + 2, same + 1, same + _PAIR
    yield "ring", i + 1, (i + 1) % count + 1, same + _PAIR
    yield "all pairs", i // side + 1, i % side + 1, same + _PAIR
    yield "mirrored", i + 1, count - i, same + _PAIR
    yield "senders × 64", (i * 64) & low, same + 1, (i >> 10) + _PAIR
    yield "both × 2^k", (i << 4) & low, (i << 6) & low, (i >> 8) + _PAIR
    yield "queue pairs × 256", same + 1, same + 2, i << 8


def _packets(flow: tuple[Ids, Ids, Ids], packets: int, first: Ids) -> Columns:
    """Sequence number, sender, receiver and queue pair of every packet."""
    each = packets // len(first)
    psn = (first[:, None] + np.arange(each, dtype=np.uint32)).ravel() & np.uint32(0xFFFFFF)
    source, destination, pair = (np.repeat(column, each) for column in flow)
    return psn, source, destination, pair


def _alone(psn: Ids, source: Ids, _destination: Ids, _pair: Ids) -> Ids:
    same = np.zeros_like(source)
    return packet_ids(psn, same, same, same)


def _linear(psn: Ids, source: Ids, destination: Ids, pair: Ids) -> Ids:
    """XORs and shifts of all four fields, eight rounds of them."""
    mask = np.uint32((1 << ID_BITS) - 1)
    x = psn ^ (source << np.uint32(8)) ^ (destination << np.uint32(16)) ^ (pair << np.uint32(12))
    x &= mask
    for _ in range(8):
        x ^= x >> np.uint32(7)
        x ^= (x << np.uint32(10)) & mask
        x ^= x >> np.uint32(11)
    return x ^ (destination << np.uint32(8)) & mask ^ source ^ pair


@dataclass(frozen=True)
class _Case:
    """What the packets of a row have in common; ``random`` draws what is random."""

    traffic: str
    idle: int
    bits: int
    random: np.random.Generator

    def sigma_ratio(self, columns: Columns, back: Columns | None, mixer: Mixer) -> float:
        """Root mean square count of idle links over its stated standard deviation.

        Args:
            columns: Packets.
            back: Packets of the other direction, which use other links.
            mixer: Makes the ids.
        """
        parts = [(columns, 0)] + ([(back, SPREAD_LINKS)] if back else [])
        ids = np.concatenate([mixer(*fields) for fields, _ in parts])
        if self.traffic == "one link":
            link = np.concatenate([np.full(len(f[0]), first, np.uint32) for f, first in parts])
            weight = 1
        else:
            drawn = [
                self.random.integers(first, first + SPREAD_LINKS, len(f[0])) for f, first in parts
            ]
            link, weight = np.concatenate(drawn).astype(np.uint32), SPREAD_HOPS
        n_links = 2 * SPREAD_LINKS + self.idle
        values = np.arange(1, n_links + 1, dtype=np.uint32)
        hashes = _core.link_hash("gf", ids, values[link], self.bits, ID_BITS)
        weights = np.full(len(ids), weight, np.uint8)
        samples = HashedSamples(ids, hashes, weights, self.bits, ID_BITS)
        everywhere = CandidateLinks(
            np.zeros(len(ids), np.uint32), np.array([0, n_links], np.uint64), values - np.uint32(1)
        )
        rows = np.arange(len(ids))
        counts = count_links(_core, samples, [(rows, everywhere)], values, False)
        idle = np.s_[2 * SPREAD_LINKS :]
        return float(np.sqrt((counts.packets[idle] ** 2 / counts.null_variance[idle]).mean()))


def _variants(
    flow: tuple[str, Ids, Ids, Ids], columns: Columns
) -> Iterator[tuple[str, Columns, Columns | None]]:
    yield flow[0], columns, None
    if flow[0] == "ring":
        some = np.s_[::100]
        psn, source, destination, pair = columns
        twice = tuple(np.concatenate([column, column[some]]) for column in columns)
        yield RETRANSMITTED, (twice[0], twice[1], twice[2], twice[3]), None
        # An acknowledgement has the sequence number that it acknowledges.
        yield ACKNOWLEDGED, columns, (psn, destination, source, pair)


def rows(packets: int, idle: int, bits: int, seed: int) -> Iterator[dict[str, object]]:
    """A row for each number of queue pairs, start, traffic and numbering."""
    random = np.random.default_rng(seed)
    for count in QUEUE_PAIRS:
        for start in ("zero", "random"):
            first = np.zeros(count, np.uint32)
            if start == "random":
                first = random.integers(0, 1 << 24, count, dtype=np.uint32)
            for flow in _flows(count):
                made = _packets(flow[1:], packets, first)
                for name, columns, back in _variants(flow, made):
                    for traffic in ("one link", "spread"):
                        case = _Case(traffic, idle, bits, random)
                        yield {
                            "queue_pairs": count,
                            "start": start,
                            "traffic": traffic,
                            "flows": name,
                            "sigma_ratio": case.sigma_ratio(columns, back, packet_ids),
                            "psn_alone": case.sigma_ratio(columns, back, _alone),
                            "linear": case.sigma_ratio(columns, back, _linear),
                        }


def table(measured: list[dict[str, object]]) -> str:
    """Smallest and largest ratio over flows, starts and traffic, in Markdown."""
    lines = ["| queue pairs | σ measured / stated |", "|---:|---:|"]
    for pairs in dict.fromkeys(r["queue_pairs"] for r in measured):
        values = [float(str(r["sigma_ratio"])) for r in measured if r["queue_pairs"] == pairs]
        lines.append(f"| {pairs} | {min(values):.3f}–{max(values):.3f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packets", type=int, default=200_000, help="of all queue pairs together")
    parser.add_argument("--idle", type=int, default=20_000, help="links that no packet crosses")
    parser.add_argument("--bits", type=int, default=1, help="hash bits a packet carries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--write", action="store_true", help=f"update docs/measurements/{PAGE.name}"
    )
    options = parser.parse_args()
    limits = {"packets": (QUEUE_PAIRS[-1], 1 << 24), "idle": (100, 1 << 20), "bits": (1, 8)}
    for name, (least, most) in limits.items():
        if not least <= getattr(options, name) <= most:
            parser.error(f"--{name} must be {least} to {most}")
    measured = list(rows(options.packets, options.idle, options.bits, options.seed))
    off = [r for r in measured if not LIMITS[0] <= float(str(r["sigma_ratio"])) <= LIMITS[1]]
    print(json.dumps({"rows": measured, "outside": len(off)}) if options.json else table(measured))
    if options.write:
        put(PAGE, {"packet ids": table(measured)})
    for row in off:
        print(f"outside {LIMITS[0]}–{LIMITS[1]}: {row}", file=sys.stderr)
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
