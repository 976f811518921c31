"""Packets to trace one fixed path of five hops: `python bench/telemetry_trace.py [--json]`.

This is PINT's task (Ben Basat et al., SIGCOMM 2020): all packets of a flow take one path, and the
receiver wants to know it. A packet's digest has b bits. PINT's code is made of two layers: with
probability τ a packet holds the hash of one hop, which a shared hash of the packet id chose
uniformly; else every hop XORs its hash into the digest with probability p. The decoder peels: hops
already known are taken out of a digest, and once a single unknown hop is left in it, that hop's
candidates must agree with the rest. τ = 1 is `coordinated`. For PINT the best of a grid of (τ, p)
is given, chosen on the same paths on which it is measured, which favours it a little.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np
from numpy.typing import NDArray
from telemetry_traffic import FIELD_BITS

from tailback import _core

HOPS = 5
MOST = 1000
GRID = [(tau, p) for tau in (0.0, 0.25, 0.5, 0.75) for p in (0.2, 0.3, 0.4, 0.5)]
Bools = NDArray[np.bool_]


class Decoder:
    """Peels digests and keeps, for each hop, the links that are still possible."""

    def __init__(self, hashes: NDArray[np.uint8], truth: NDArray[np.intp], peel: bool) -> None:
        # hashes[packet, hop, link]; the digest of a packet follows from the true links.
        self.hashes, self.truth, self.peel = hashes, truth, peel
        self.alive = np.ones(hashes.shape[1:], bool)
        self.known: dict[int, int] = {}
        self.pending: list[tuple[int, set[int], int]] = []

    def take(self, packet: int, acted: list[int]) -> None:
        """One more packet, whose digest is the XOR over the hops that acted."""
        digest = 0
        for hop in acted:
            digest ^= int(self.hashes[packet, hop, self.truth[hop]])
        if len(acted) > 1 and not self.peel:
            return
        self._reduce(packet, set(acted), digest)

    def _reduce(self, packet: int, unknown: set[int], digest: int) -> None:
        for hop in [hop for hop in unknown if hop in self.known]:
            unknown.discard(hop)
            digest ^= int(self.hashes[packet, hop, self.known[hop]])
        if len(unknown) > 1:
            self.pending.append((packet, unknown, digest))
        if len(unknown) != 1:
            return
        (hop,) = unknown
        self.alive[hop] &= self.hashes[packet, hop] == digest
        left = np.flatnonzero(self.alive[hop])
        if len(left) == 1:
            self.known[hop] = int(left[0])
            waiting, self.pending = self.pending, []
            for entry in waiting:
                self._reduce(*entry)


def needed(decoder: Decoder, acting: Bools) -> int | None:
    """Packets until every hop is known; None when there are not enough."""
    for packet, row in enumerate(acting):
        decoder.take(packet, np.flatnonzero(row).tolist())
        if len(decoder.known) == HOPS:
            return packet + 1
    return None


def trace(bits: int, choices: int, trials: int, seed: int) -> dict[str, object]:
    """Packets to recover a path, with `choices` possible links at each hop."""
    random = np.random.default_rng(seed)
    values = np.arange(1, HOPS * choices + 1, dtype=np.uint32)
    found: dict[tuple[float, float, bool], list[int | None]] = {}
    plans = [(1.0, 0.0, True), (0.0, 0.2, False), *((tau, p, True) for tau, p in GRID)]
    for _ in range(trials):
        ids = random.integers(0, 1 << FIELD_BITS, MOST, dtype=np.uint32)
        truth = random.integers(0, choices, HOPS)
        pairs = _core.link_hash(
            "gf", np.repeat(ids, len(values)), np.tile(values, MOST), bits, FIELD_BITS
        )
        hashes = pairs.reshape(MOST, HOPS, choices)
        single = np.arange(HOPS) == random.integers(0, HOPS, MOST)[:, None]
        layer, act = random.random(MOST), random.random((MOST, HOPS))
        for tau, p, peel in plans:
            acting = np.where((layer < tau)[:, None], single, act < p)
            decoder = Decoder(hashes, truth, peel)
            found.setdefault((tau, p, peel), []).append(needed(decoder, acting))
    best = min((key for key in found if key[0] < 1.0 and key[2]), key=lambda k: _mean(found[k]))
    return {
        "hash_bits": bits,
        "choices": choices,
        "trials": trials,
        "coordinated": _facts(found[1.0, 0.0, True]),
        "pint": {"tau": best[0], "p": best[1], **_facts(found[best])},
        "xor_peeled": _facts(found[0.0, 0.2, True]),
        "xor_single_hops": _facts(found[0.0, 0.2, False]),
    }


def _mean(found: list[int | None]) -> float:
    return float(np.mean([MOST if n is None else n for n in found]))


def _facts(found: list[int | None]) -> dict[str, float]:
    known = [MOST if n is None else n for n in found]
    return {
        "mean": _mean(found),
        "median": float(np.median(known)),
        "p99": float(np.quantile(known, 0.99)),
        "unfinished": sum(n is None for n in found),
    }


def table(traces: list[dict[str, object]]) -> str:
    """In Markdown."""
    lines = [
        "| hash bits | links a hop | `coordinated`: median | 99 % | PINT, peeled: median | 99 % | "
        "at τ, p | XOR only, p = 1/5, peeled: median | single hops of it only |",
        "|" + "---:|" * 9,
    ]
    for row in traces:
        ours, pint = row["coordinated"], row["pint"]
        xor, single = row["xor_peeled"], row["xor_single_hops"]
        assert all(isinstance(part, dict) for part in (ours, pint, xor, single))
        lines.append(
            f"| {row['hash_bits']} | {row['choices']} | {ours['median']:.0f} | {ours['p99']:.0f} | "
            f"{pint['median']:.0f} | {pint['p99']:.0f} | {pint['tau']:g}, {pint['p']:g} | "
            f"{xor['median']:.0f} | {single['median']:.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bits", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--choices", type=int, default=48, help="possible links at each hop")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if any(not 1 <= b <= 8 for b in options.bits) or not 2 <= options.choices <= 4096:
        parser.error("--bits must be 1 to 8, --choices 2 to 4096")
    traces = [trace(bits, options.choices, options.trials, options.seed) for bits in options.bits]
    print(json.dumps(traces) if options.json else table(traces))
    return 0


if __name__ == "__main__":
    sys.exit(main())
