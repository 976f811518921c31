"""How many packets reconstruct a path: the marking schemes of chapter 2 of Taffet (2019).

    python -m studies.taffet2019.packet_marking --write

Section 2.8.1 describes how denial-of-service attacks are traced: routers mark packets with a fixed
chance p (node and edge sampling; Savage et al., 2000), with fragments of an address, or with one of
several hashes of a link, which a map of the network resolves (Song and Perrig, 2001). Sattari's
analysis makes reservoir sampling the best choice of marking chances. Each is run here, packet by
packet, on the paths of five hops of the Tapered network, and compared with its expectation.

The expectation is exact. Let packets arrive as a Poisson process of rate 1: then the marks of
different hops and fragments are independent, hop h is resolved by time t with a probability P_h(t)
in closed form, and the expected number of packets is ∫ (1 − Π P_h(t)) dt (Wald).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from studies.taffet2019.reproduction import Row, run, state_agreement, table

Floats = NDArray[np.float64]

HOPS = 5
CANDIDATES = (16, 24, 8, 1, 1)
"""Links that a packet may take at each hop across pods of the Tapered network: of 16 aggregation
switches, of 24 up-links, of 8 links down into the pod; then the way down is fixed."""

MARKING = 0.2
RUNS = 4000
MOST = 1 << 14


@dataclass(frozen=True)
class Scheme:
    """A way to mark packets.

    Attributes:
        name: Name in tables.
        chance: Probability that each hop's mark arrives, first hop first.
        parts: Fragments of an address, or members of a family of hashes; one of them is sent.
        bits: Width of a hash that a map resolves; None where all parts spell the address out.
    """

    name: str
    chance: tuple[float, ...]
    parts: int = 1
    bits: int | None = None


def fixed(p: float, hops: int = HOPS) -> tuple[float, ...]:
    """Probability that hop h's mark arrives if routers overwrite with chance p: p (1 − p)^k."""
    return tuple(p * (1.0 - p) ** (hops - 1 - hop) for hop in range(hops))


def reservoir(hops: int = HOPS) -> tuple[float, ...]:
    """The same with a reservoir: all hops are equally likely, and no packet is unmarked."""
    return (1.0 / hops,) * hops


def resolved(scheme: Scheme, hop: int, candidates: int, time: Floats) -> Floats:
    """P_h(t): whether a hop is known after a time during which ``time`` packets are expected."""
    seen = -np.expm1(-scheme.chance[hop] / scheme.parts * time)
    if scheme.bits is None:
        return np.asarray(seen**scheme.parts)
    total = np.zeros_like(time)
    for count in range(scheme.parts + 1):
        if count == 0 and candidates > 1:
            continue
        # Every wrong candidate must differ in one of the hashes that arrived.
        unique = (1.0 - 2.0 ** (-scheme.bits * count)) ** (candidates - 1)
        total += (
            comb(scheme.parts, count) * seen**count * (1 - seen) ** (scheme.parts - count) * unique
        )
    return total


def ceiling(scheme: Scheme, candidates: tuple[int, ...]) -> float:
    """Probability that a path is unique once all marks are known; 1 unless hashes collide."""
    if scheme.bits is None:
        return 1.0
    each = 1.0 - 2.0 ** (-scheme.bits * scheme.parts)
    return float(np.prod([each ** (count - 1) for count in candidates]))


def expected(scheme: Scheme, candidates: tuple[int, ...] = CANDIDATES) -> float:
    """Expected packets until every hop is known, of the paths that can be known at all."""
    time = np.linspace(0.0, 60.0 * scheme.parts / min(scheme.chance), 400_001)
    done = np.ones_like(time)
    for hop, count in enumerate(candidates[: len(scheme.chance)]):
        done *= resolved(scheme, hop, count, time)
    return float(np.trapezoid(1.0 - done / ceiling(scheme, candidates), time))


def measured(
    scheme: Scheme,
    random: np.random.Generator,
    runs: int = RUNS,
    candidates: tuple[int, ...] = CANDIDATES,
) -> NDArray[np.int64]:
    """Packets each of ``runs`` receivers needed, marking packet by packet."""
    counts = []
    while len(counts) < runs:
        needed = _one_path(scheme, random, candidates)
        if needed is not None:
            counts.append(needed)
    return np.array(counts, np.int64)


def _one_path(
    scheme: Scheme, random: np.random.Generator, candidates: tuple[int, ...]
) -> int | None:
    """Packets until one path is known; None if its hashes never distinguish it from another."""
    hops = len(scheme.chance)
    hashes = None
    if scheme.bits is not None:
        # Candidate 0 of a hop is the true one.
        hashes = [
            random.integers(0, 1 << scheme.bits, (scheme.parts, count))
            for count in candidates[:hops]
        ]
        if any((codes == codes[:, :1])[:, 1:].all(axis=0).any() for codes in hashes):
            return None
    arrived = np.zeros((hops, scheme.parts), bool)
    block = max(64, 8 * scheme.parts * hops)
    taken = 0
    while taken < MOST * scheme.parts:
        hop, part = marks(scheme, random, block)
        for number in range(block):
            if hop[number] < 0 or arrived[hop[number], part[number]]:
                continue
            arrived[hop[number], part[number]] = True
            if _known(arrived, hashes, candidates):
                return taken + number + 1
        taken += block
    raise SystemExit(f"{scheme.name}: no path after {taken} packets")


def marks(
    scheme: Scheme, random: np.random.Generator, packets: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hop and part that arrive in each packet, −1 for no mark, as routers in turn decide."""
    hops = len(scheme.chance)
    arrived = np.full(packets, -1, np.int64)
    is_reservoir = len(set(scheme.chance)) == 1
    for hop in range(hops):
        # A router knows only its own probability: p, or one in the hops so far.
        chance = 1.0 / (hop + 1) if is_reservoir else scheme.chance[-1]
        arrived[random.random(packets) < chance] = hop
    return arrived, random.integers(0, scheme.parts, packets)


def _known(
    arrived: NDArray[np.bool_], hashes: list[NDArray[np.int64]] | None, candidates: tuple[int, ...]
) -> bool:
    """Whether every hop is known from the parts that arrived."""
    if hashes is None:
        return bool(arrived.all())
    for hop, codes in enumerate(hashes):
        parts = arrived[hop]
        if candidates[hop] > 1 and (codes[parts] == codes[parts, :1])[:, 1:].all(axis=0).any():
            return False
    return True


def fragment_bits(width: int, fragments: int) -> int:
    """Bits of a fragment with its index: ⌈lg k⌉ + ⌈N / k⌉."""
    return (fragments - 1).bit_length() + -(-width // fragments)


def least_fragment_bits(width: int) -> tuple[int, list[int]]:
    """Fewest bits, and the numbers of fragments that need no more."""
    bits = {k: fragment_bits(width, k) for k in range(1, width + 1)}
    least = min(bits.values())
    return least, [k for k, need in bits.items() if need == least]


SCHEMES: list[tuple[Scheme, Callable[[], str]]] = [
    (Scheme("node or edge sampling, p = 1/5", fixed(MARKING)), lambda: "–"),
    (Scheme("node or edge sampling, p = 1/25", fixed(0.04)), lambda: "–"),
    (Scheme("reservoir (p = 1/hop)", reservoir()), lambda: "“optimal” (Sattari)"),
    (Scheme("8 fragments, p = 1/5", fixed(MARKING), 8), lambda: "O(k log k) times"),
    (Scheme("16 fragments of 2 bits, p = 1/5", fixed(MARKING), 16), lambda: "O(k log k) times"),
    (Scheme("8 hashes of 11 bits with a map, p = 1/5", fixed(MARKING), 8, 11), lambda: "–"),
    (Scheme("8 hashes of 2 bits with a map, p = 1/5", fixed(MARKING), 8, 2), lambda: "–"),
    (Scheme("8 hashes of 11 bits with a map, reservoir", reservoir(), 8, 11), lambda: "–"),
]


def scheme_rows(runs: int = RUNS) -> list[Row]:
    """Expectation against measurement."""
    random = np.random.default_rng(1)
    plain = expected(SCHEMES[0][0])
    rows = []
    for scheme, theirs in SCHEMES:
        needed = measured(scheme, random, runs)
        formula, error = expected(scheme), float(needed.std() / np.sqrt(runs))
        rows.append(
            Row(
                f"packets to reconstruct 5 hops: {scheme.name}",
                theirs(),
                f"{needed.mean():.1f} ± {error:.1f}",
                f"{(needed.mean() - formula) / error:+.1f} σ to the formula",
                f"formula {formula:.1f}, {formula / plain:.2f}× node sampling at p = 1/5; "
                f"{runs} paths, 99 % within {np.quantile(needed, 0.99):.0f}",
            )
        )
    return rows


def growth_rows() -> list[Row]:
    """How both ways grow with the length of a path, and how many bits fragments need."""
    lengths = (5, 10, 15, 20)
    node = [expected(Scheme("node", fixed(MARKING, n)), (2,) * n) for n in lengths]
    even = [expected(Scheme("reservoir", reservoir(n)), (2,) * n) for n in lengths]
    listed = ", ".join(str(n) for n in lengths)
    return [
        Row(
            "node sampling: packets by length of the path",
            "“grows exponentially”",
            ", ".join(f"{value:.0f}" for value in node),
            "–",
            f"p = 1/5, {listed} hops: ×{node[3] / node[2]:.2f} for the last five, 1/(1 − p)^5 = "
            f"{0.8**-5:.2f}",
        ),
        Row(
            "reservoir: the same",
            "–",
            ", ".join(f"{value:.0f}" for value in even),
            "–",
            f"l (1 + 1/2 + … + 1/l): {listed} hops",
        ),
        *(
            Row(
                f"fewest bits for fragments of {width}-bit addresses, with their index",
                str(theirs),
                str(least_fragment_bits(width)[0]),
                state_agreement(least_fragment_bits(width)[0] == theirs),
                "all numbers of fragments tried: "
                + ", ".join(map(str, least_fragment_bits(width)[1]))
                + " need that many",
            )
            for width, theirs in ((32, 6), (128, 8))
        ),
    ]


def page() -> str:
    """The part of the page."""
    return table(scheme_rows() + growth_rows())


if __name__ == "__main__":
    run(__doc__ or "", "packet marking", page)
