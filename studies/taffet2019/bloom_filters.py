"""Section 5.8 of Taffet (2019): a hash of the sampled link against Bloom filters of links.

    python -m studies.taffet2019.bloom_filters --write

The thesis argues from false positives that one element is better stored as an m-bit hash than in a
Bloom filter of m bits. Here the rates are exact instead of approximate, and the filters also count
packets, on the packets, paths and samples that the hash sees:

- *one element*: the reservoir's link is put into a filter of m bits, the rest is as in section 5.2;
- *whole path*: every switch puts its link into the filter, "an alternative to reservoir sampling".
  No hop is drawn and none is counted, so the whole header is filter.

With q the rate of false positives of a link that a packet did not take, κ = q / (1 − q), N packets
through it, Q that might have been and l hops, an unbiased count has the variance
lN + κ (l²Q − lN) − N for one element (as for a hash, whose q is 2^−m) and κ (Q − N) for whole
paths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from studies.taffet2019.reproduction import Row, run, state_agreement, table

Floats = NDArray[np.float64]
Kind = Literal["hash", "one element", "whole path"]

HOPS, WIDTH, PACKETS, RUNS = 5, 24, 40_000, 6
COUNT_BITS = 3
"""Hop count of a reservoir, which a filter of the whole path does without."""


@dataclass(frozen=True)
class Scheme:
    """Contents of a header: a hash of ``bits``, or a filter of them with ``functions`` hashes."""

    kind: Kind
    bits: int
    functions: int = 1

    @property
    def header_bits(self) -> int:
        """With the hop count, where there is one."""
        return self.bits + (0 if self.kind == "whole path" else COUNT_BITS)


def false_positive(scheme: Scheme) -> float:
    """Exact probability that the header of a packet matches a link that it does not contain."""
    if scheme.kind == "hash":
        return float(2.0**-scheme.bits)
    throws = scheme.functions * (HOPS if scheme.kind == "whole path" else 1)
    # Distribution of the number of bits set after a number of draws.
    chance = np.zeros(scheme.bits + 1)
    chance[0] = 1.0
    for _ in range(throws):
        share = np.arange(scheme.bits + 1) / scheme.bits
        chance = chance * share + np.concatenate([[0.0], (chance * (1 - share))[:-1]])
    return float((chance * (np.arange(scheme.bits + 1) / scheme.bits) ** scheme.functions).sum())


def published_rate(bits: int, functions: int) -> float:
    """The approximation of the thesis for one element: (1 − e^(−k/m))^k."""
    return float((1.0 - math.exp(-functions / bits)) ** functions)


def best(kind: Kind, bits: int) -> Scheme:
    """The number of hash functions with the fewest false positives."""
    choices = [Scheme(kind, bits, k) for k in range(1, 1 if kind == "hash" else bits + 1)]
    return min(choices or [Scheme(kind, bits)], key=false_positive)


def variance(scheme: Scheme, n: Floats, q: float) -> Floats:
    """Of the count of links with n packets of q possible ones."""
    rate = false_positive(scheme)
    kappa = rate / (1.0 - rate)
    if scheme.kind == "whole path":
        return kappa * (q - n)
    return HOPS * n + kappa * (HOPS**2 * q - HOPS * n) - n


def positions(scheme: Scheme, random: np.random.Generator) -> NDArray[np.uint64]:
    """Bits of the filter that each (packet, link) sets, or the value of its hash, as one word.

    A fresh random function of both, as section 5.4 asks of H; shape (packets, links).
    """
    size = (PACKETS, HOPS * WIDTH)
    if scheme.kind == "hash":
        return random.integers(0, 1 << scheme.bits, size, dtype=np.uint64)
    words = np.zeros(size, np.uint64)
    for _ in range(scheme.functions):
        words |= np.uint64(1) << random.integers(0, scheme.bits, size, dtype=np.uint64)
    return words


def count(scheme: Scheme, links: NDArray[np.int64], random: np.random.Generator) -> Floats:
    """Counts of all links from the headers of all packets: paths in, estimates out."""
    words, rows = positions(scheme, random), np.arange(PACKETS)
    rate = false_positive(scheme)
    if scheme.kind == "whole path":
        header = np.bitwise_or.reduce(words[rows[:, None], links], axis=1)
        weight = 1.0
    else:
        header = words[rows, links[rows, random.integers(0, HOPS, PACKETS)]]
        weight = float(HOPS)
    fits = words == header[:, None] if scheme.kind == "hash" else (words & ~header[:, None]) == 0
    return np.asarray(weight * (fits.sum(axis=0) - rate * PACKETS) / (1.0 - rate), np.float64)


def error(scheme: Scheme, runs: int = RUNS) -> tuple[float, float]:
    """Root mean square error relative to the mean count, measured and by the formula."""
    squares, expected, mean = [], [], PACKETS / WIDTH
    for seed in range(runs):
        random = np.random.default_rng(seed)
        links = random.integers(0, WIDTH, (PACKETS, HOPS)) + WIDTH * np.arange(HOPS)
        truth = np.bincount(links.ravel(), minlength=HOPS * WIDTH).astype(np.float64)
        squares.append(((count(scheme, links, random) - truth) ** 2).mean())
        expected.append(variance(scheme, truth, PACKETS).mean())
    return float(np.sqrt(np.mean(squares)) / mean), float(np.sqrt(np.mean(expected)) / mean)


def rate_rows() -> list[Row]:
    """False positives of one element, at equal bits."""
    rows = []
    for bits in (1, 2, 4, 6, 8):
        scheme = best("one element", bits)
        k, exact, stated = (
            scheme.functions,
            false_positive(scheme),
            published_rate(bits, scheme.functions),
        )
        rows.append(
            Row(
                f"false positives of {bits} bits with one element: filter, hash",
                f"≥ {0.5 ** (bits * math.log(2)):.4f}, {0.5**bits:.4f}",
                f"{exact:.4f}, {0.5**bits:.4f}",
                f"{exact / stated:.2f}× the thesis' approximation at k = {k}",
                "exact: hash functions may set the same bit, which e^(−k/m) leaves out; "
                f"the best of k = 1 … {bits}",
            )
        )
    same = all(
        false_positive(Scheme("one element", 2**m)) == false_positive(Scheme("hash", m))
        for m in range(1, 7)
    )
    rows.append(
        Row(
            "filter of 2^m bits with one function is a hash of m bits",
            "equivalent",
            "equal rates" if same else "different rates",
            state_agreement(same),
            "m = 1 … 6, exactly",
        )
    )
    return rows


def accuracy_rows() -> list[Row]:
    """Errors of counts at equal headers."""
    rows = []
    for header in (5, 6, 8, 12, 16):
        schemes = [
            best("hash", header - COUNT_BITS),
            best("one element", header - COUNT_BITS),
            best("whole path", header),
        ]
        errors = [error(scheme) for scheme in schemes]
        ours = ", ".join(f"{measured:.3f}" for measured, _ in errors)
        formulas = ", ".join(f"{formula:.3f}" for _, formula in errors)
        first = min(range(3), key=lambda i: errors[i][1])
        rows.append(
            Row(
                f"error of counts, {header} header bits: hash, one element, whole path",
                "hash best of the first two",
                ours,
                f"smallest: {schemes[first].kind}",
                f"formulas {formulas}; k = {schemes[1].functions} and {schemes[2].functions}",
            )
        )
    return rows


if __name__ == "__main__":
    run(__doc__ or "", "bloom filters", lambda: table(rate_rows() + accuracy_rows()))
