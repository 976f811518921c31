"""Counts of links from hashed samples, with variance, interval and a threshold for noise.

Schemes that carry a hash of b bits instead of a link count a packet on every link it may have used:
with weight ``l`` if the hash matches, and with a small negative weight if it does not, so that
wrong links cancel on average (thesis sections 5.2 and 5.3). For links of one path length l, with N
packets on the link, Q packets that may have used it, and κ = 1/(2^b − 1):

- hop unknown (single bit, compact): ``Var = lN + κ (l²Q − lN) − N``, l²Q − N for one bit;
- hop known (coordinated): ``Var = lN + κ l (Q − N) − N``.

This module only does arithmetic on arrays; the sums come from a :class:`Decoder`, the compiled
core, which is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.telemetry.estimate import Z95


class Decoder(Protocol):
    """Functions of the compiled core that decoding needs."""

    def decode_classes(
        self,
        ids: NDArray[np.uint32],
        hashes: NDArray[np.uint8],
        weights: NDArray[np.uint8],
        *,
        class_of_packet: NDArray[np.uint32],
        class_start: NDArray[np.uint64],
        class_links: NDArray[np.uint32],
        links: NDArray[np.uint32],
        bits: int,
        field_bits: int,
    ) -> NDArray[np.int64]:
        """Scores: Σ over a link's classes of weight × (2^bits × [hash agrees] − 1)."""
        ...


@dataclass(frozen=True)
class CandidateLinks:
    """Which links the packets of a class may have used, at one stage of their paths.

    Attributes:
        of_packet: Class of each packet, shape (P,).
        start: Class k has ``links[start[k]:start[k + 1]]``, shape (K + 1,).
        links: Indices of candidate links.
    """

    of_packet: NDArray[np.uint32]
    start: NDArray[np.uint64]
    links: NDArray[np.uint32]

    def possible(self, amount: Floats, n_links: int) -> Floats:
        """Sum ``amount`` (one per packet) over the packets that may have used each link, (L,)."""
        sizes = self.sizes
        total = np.bincount(self.of_packet, weights=amount, minlength=len(sizes))
        sums = np.bincount(self.links, weights=np.repeat(total, sizes), minlength=n_links)
        return np.asarray(sums, np.float64)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Candidates of each class, (K,)."""
        ends = self.start.astype(np.int64)
        return np.asarray(ends[1:] - ends[:-1], np.int64)


@dataclass(frozen=True)
class HashedSamples:
    """Received samples, one row per packet.

    Attributes:
        ids: Packet ids, shape (P,).
        hashes: Link hashes.
        weights: Weights of the samples: path lengths (1–255).
        bits: Bits of a hash.
        field_bits: n of the GF(2^n) hash.
    """

    ids: NDArray[np.uint32]
    hashes: NDArray[np.uint8]
    weights: NDArray[np.uint8]
    bits: int
    field_bits: int

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> HashedSamples:
        """A selection of rows."""
        return HashedSamples(
            self.ids[rows], self.hashes[rows], self.weights[rows], self.bits, self.field_bits
        )


@dataclass(frozen=True)
class HashedCounts:
    """Estimated packets of each link.

    Attributes:
        packets: Unbiased estimate W, shape (L,); may be negative.
        variance: Estimated variance of W.
        null_variance: Variance of W on a link without packets.
        slope: Variance added by each further packet.
    """

    packets: Floats
    variance: Floats
    null_variance: Floats
    slope: Floats

    def interval(self, z: float = Z95) -> tuple[Floats, Floats]:
        """Score interval of N: every N within z standard deviations *under that N*, not below 0.

        Solves (N − W)² = z² (V₀ + s N) with V₀ the variance at N = 0 and s the slope.
        """
        w = self.packets
        half = z * z * self.slope / 2.0
        # At N = W + t: t² = z² (V0 + s W) + 2 half t.
        inside = half * half + z * z * (self.null_variance + self.slope * w)
        root = np.sqrt(np.maximum(inside, 0.0))
        low, high = np.maximum(w + half - root, 0.0), np.maximum(w + half + root, 0.0)
        return low, high


def collision_factor(bits: int) -> float:
    """κ = c/(1 − c) for collision probability c = 2^−bits: 1/(2^bits − 1)."""
    return 1.0 / (2.0**bits - 1.0)


def count_links(
    decoder: Decoder,
    samples: HashedSamples,
    stages: list[tuple[NDArray[np.intp], CandidateLinks]],
    link_values: NDArray[np.uint32],
    hop_known: bool,
) -> HashedCounts:
    """Count packets of every link.

    Args:
        decoder: The compiled core.
        samples: Received samples.
        stages: For each stage of the network, the rows of ``samples`` that may have been sampled at
            it (all packets that pass it if the hop is unknown, else those sampled there) and their
            candidates, in the order of the rows. A link belongs to one stage.
        link_values: Value that switches hash for each link, shape (L,).
        hop_known: Whether the sampled hop of each row is known.

    Returns:
        Counts of all links; 0 with variance 0 for links that no packet can have used.
    """
    n_links, kappa = len(link_values), collision_factor(samples.bits)
    score = np.zeros(n_links)
    null, mean, chances = np.zeros(n_links), np.zeros(n_links), np.zeros(n_links)
    for rows, candidates in stages:
        part = samples.take(rows)
        score += decoder.decode_classes(
            part.ids,
            part.hashes,
            part.weights,
            class_of_packet=candidates.of_packet,
            class_start=candidates.start,
            class_links=candidates.links,
            links=link_values,
            bits=part.bits,
            field_bits=part.field_bits,
        )
        l = part.weights.astype(np.float64)
        null += kappa * candidates.possible(l * l, n_links)
        # Mean length over possible packets; with a known hop they arrive with probability 1/l.
        chance = l if hop_known else np.ones_like(l)
        mean += candidates.possible(chance * l, n_links)
        chances += candidates.possible(chance, n_links)
    packets = score * kappa
    length = np.divide(mean, chances, out=np.ones(n_links), where=chances > 0)
    slope = length - 1.0 - kappa * length
    variance = np.maximum(null + slope * packets, 0.0)
    return HashedCounts(packets=packets, variance=variance, null_variance=null, slope=slope)
