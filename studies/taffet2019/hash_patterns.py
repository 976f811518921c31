"""Figure 5.1 of Taffet (2019), section 5.4: two hash functions over 900 links, and their claims.

    python -m studies.taffet2019.hash_patterns --write

The published figure draws H(id, d) for one id and d = 1 … 900, 30 a row, with H_mult' and with
MD5. The claims about its runs, its bounds and theorem 5.1 are checked: exactly where integers
allow, and for the counterexample to "theorem 5.2" over all 2^32 values of d.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from studies.taffet2019.reproduction import FIGURES, Row, run, state_agreement, table

Bits = NDArray[np.uint8]

WORD = 32
PRIME = 1_846_571_429
PUBLISHED_ID = 44_974_351
SIDE = 30
ZOOM = 8
FIGURE = FIGURES / "figure-5.1.png"


def mult(identity: int, d: NDArray[np.uint64], word: int = WORD) -> Bits:
    """H_mult': the top bit of the product with the prime, in words of ``word`` bits."""
    step = np.uint64(PRIME * identity % 2**word)
    product = (step * d) & np.uint64(2**word - 1)
    return (product >> np.uint64(word - 1)).astype(np.uint8)


def md5(identity: int, d: NDArray[np.uint64]) -> Bits:
    """The last bit of MD5 of id · d, written in decimal: the thesis does not say in what form."""
    digests = (hashlib.md5(str(identity * int(value)).encode()).digest() for value in d)
    return np.array([digest[-1] & 1 for digest in digests], np.uint8)


def runs(bits: Bits) -> list[int]:
    """Lengths of runs of equal bits that are complete: without the first and the last."""
    return [len(list(group)) for _, group in groupby(bits.tolist())][1:-1]


def period(identity: int) -> Fraction:
    """The r of the thesis: 2^32 over the step, or over its negative if r is then at least 2."""
    step = PRIME * identity % 2**WORD
    return Fraction(2**WORD, min(step, 2**WORD - step))


def ones(step: int, values: int, word: int = WORD) -> int:
    """How many of d = 0 … ``values`` − 1 have the top bit of step · d set, without a loop over d.

    The top bit is ⌊2x/2^w⌋ − 2⌊x/2^w⌋ of x = step · d, and both sums are known in closed form.
    """
    return _floor_sum(values, 2**word, 2 * step) - 2 * _floor_sum(values, 2**word, step)


def _floor_sum(n: int, m: int, a: int, b: int = 0) -> int:
    """Σ ⌊(a i + b) / m⌋ over i = 0 … n − 1, by Euclid's algorithm."""
    total = 0
    while n > 0:
        total += (n - 1) * n // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        top = a * n + b
        if top < m:
            break
        n, b = divmod(top, m)
        m, a = a, m
    return total


def agreement(identity: int, other: int, word: int = WORD, block: int = 1 << 16) -> Fraction:
    """Share of all 2^word values of d on which two ids have the same bit, by counting.

    Ids that are both multiples of 2^s repeat after 2^(word − s) values. Blocks stay in the cache.
    """
    twos = min((identity & -identity).bit_length(), (other & -other).bit_length()) - 1
    period, same = 2 ** (word - twos), 0
    for first in range(0, period, block):
        d = np.arange(first, min(first + block, period), dtype=np.uint64)
        same += int(np.count_nonzero(mult(identity, d, word) == mult(other, d, word)))
    return Fraction(same, period)


def after_long_runs(bits: Bits) -> list[int]:
    """How many runs of 3 lie between one run of 4 and the next."""
    gaps, since = [], None
    for length in runs(bits):
        if length == 4:
            if since is not None:
                gaps.append(since)
            since = 0
        elif since is not None:
            since += 1
    return gaps


def first_early_row(bits: Bits) -> int:
    """Row of the figure, from 1, in which a run of 4 first follows after only three runs of 3."""
    at, since = 0, None
    for length in [len(list(group)) for _, group in groupby(bits.tolist())]:
        at += length
        if length == 4:
            if since == 3:
                return (at - 1) // SIDE + 1
            since = 0
        elif since is not None:
            since += 1
    return 0


def draw(panels: list[Bits], path: Path) -> None:
    """The figure: panels side by side, a one in black."""
    gap = np.full((SIDE, 2), 200, np.uint8)
    parts: list[NDArray[np.uint8]] = []
    for bits in panels:
        parts += [np.where(bits.reshape(SIDE, SIDE) > 0, 0, 255).astype(np.uint8), gap]
    picture = np.kron(np.concatenate(parts[:-1], axis=1), np.ones((ZOOM, ZOOM), np.uint8))
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(picture).save(path, optimize=True)


def windows(identity: int, length: int, values: int = 1 << 20) -> tuple[int, int]:
    """Least and most ones among ``length`` consecutive values of d."""
    bits = mult(identity, np.arange(values, dtype=np.uint64))
    total = np.concatenate([[0], np.cumsum(bits, dtype=np.int64)])
    counts = total[length:] - total[:-length]
    return int(counts.min()), int(counts.max())


def rows() -> list[Row]:
    """All numerical claims of section 5.4."""
    d = np.arange(1, SIDE * SIDE + 1, dtype=np.uint64)
    bits, digest = mult(PUBLISHED_ID, d), md5(PUBLISHED_ID, d)
    lengths, gaps = runs(bits), after_long_runs(bits)
    step = PRIME * PUBLISHED_ID % 2**WORD
    share = Fraction(ones(step, 2**WORD), 2**WORD)
    same = agreement(2, 6)
    early = first_early_row(bits)
    repeats = float(period(PUBLISHED_ID))
    return [
        Row(
            "period r of id 44 974 351",
            "≈ 6.4",
            f"{repeats:.4f}",
            state_agreement(round(repeats, 1) == 6.4),
        ),
        Row(
            "runs of equal bits",
            "3, sometimes 4",
            ", ".join(f"{length}: {lengths.count(length)}" for length in sorted(set(lengths))),
            state_agreement(set(lengths) == {3, 4} and lengths.count(3) > lengths.count(4)),
        ),
        Row(
            "runs of 3 between two runs of 4",
            "4, occasionally 3",
            ", ".join(f"{gap}: {gaps.count(gap)}" for gap in sorted(set(gaps))),
            state_agreement(set(gaps) == {3, 4} and gaps.count(4) > gaps.count(3)),
        ),
        Row(
            "row in which one is early for the first time",
            "“the 9th row, for example”",
            str(early),
            state_agreement(early == 9),
            "30 values a row from d = 1",
        ),
        *(
            Row(
                f"share of ones: among any {length} consecutive d",
                f"{low}/{length} … {high}/{length}",
                "{}/{n} … {}/{n}".format(*windows(PUBLISHED_ID, length), n=length),
                state_agreement(windows(PUBLISHED_ID, length) == (low, high)),
                "counted over 2^20 values of d",
            )
            for low, high, length in ((3, 4, 7), (6, 7, 13), (122, 123, 245))
        ),
        Row(
            "theorem 5.1: ones among all 2^32 values of d",
            "exactly half",
            f"{share}",
            state_agreement(share == Fraction(1, 2)),
            "Σ⌊2x/2³²⌋ − 2Σ⌊x/2³²⌋ by Euclid's algorithm, no sampling",
        ),
        Row(
            "“theorem 5.2”: ids 2 and 6 agree",
            "2/3 of all d",
            f"{float(same):.9f}",
            f"{float(same - Fraction(2, 3)):+.1e}",
            f"counted over all 2^32: {same}",
        ),
        Row(
            "share of ones, MD5",
            "“imperfect, but better”",
            f"{float(digest.mean()):.4f}",
            "–",
            f"longest run {max(runs(digest))}; in what form id · d was hashed is not said: "
            "ours is its decimal digits",
        ),
    ]


def page() -> str:
    """The part of the page; draws the figure."""
    d = np.arange(1, SIDE * SIDE + 1, dtype=np.uint64)
    draw([mult(PUBLISHED_ID, d), md5(PUBLISHED_ID, d)], FIGURE)
    return table(rows())


if __name__ == "__main__":
    run(__doc__ or "", "hash patterns", page)
