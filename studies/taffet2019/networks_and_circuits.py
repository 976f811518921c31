"""Table 3.1, Figures 5.6 and 5.7, sections 5.3 and 5.6 and the talk's hash, computed.

    python -m studies.taffet2019.networks_and_circuits --write

Sources: Taffet (2019), sections 3.5, 5.3, 5.6 and 5.9; Taffet and Mellor-Crummey (SC'19),
"Visualizing H".
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from measuring.fat_tree_stages import fat_tree_stages
from studies.taffet2019.reproduction import Row, run, state_agreement, table
from tailback import load_scenario
from tailback.fabric import Fabric
from tailback.simulation import load_fabric

PUBLISHED: Final = {
    "full": (3564, 18, 18, 504, 36),
    "tapered": (4608, 32, 16, 288, 48),
}
"""Nodes, nodes a leaf, links from a leaf upwards, switches, radix (Table 3.1 and section 3.5)."""

FIELD_BITS: Final = 10
FIELD_POLYNOMIAL: Final = 0x409
"""x^10 + x^3 + 1: the field has the plotted 1024 links; the talk does not say which it used."""

LFSR_TAPS: Final = 0xB400
"""x^16 + x^14 + x^13 + x^11 + 1: a period of 2^16 - 1."""


def preset_fabric(preset: str) -> Fabric:
    """The network of a preset."""
    job = {"pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}}
    return load_fabric(load_scenario({"fabric": {"preset": preset}, "job": [job]}).fabric)


def shape(preset: str) -> tuple[int, int, int, int, int]:
    """Nodes, nodes a leaf, up-links of a leaf, switches and the largest radix of a preset."""
    fabric = preset_fabric(preset)
    nodes = fabric.n_nodes
    leaf = fabric.link_dst[fabric.link_src < nodes].astype(np.int64)
    first = int(leaf[0])
    ports = np.bincount(fabric.link_src.astype(np.int64))[nodes:]
    up = (fabric.link_src == first) & (fabric.link_dst >= nodes)
    return nodes, int((leaf == first).sum()), int(up.sum()), fabric.n_switches, int(ports.max())


def field_hash(identity: int, d: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The talk's H: one bit of the product of packet id and link id in GF(2^10)."""
    product, shifted = np.zeros(len(d), np.int64), d.astype(np.int64)
    for bit in range(FIELD_BITS):
        if identity >> bit & 1:
            product ^= shifted
        shifted = shifted << 1
        shifted = np.where(shifted >> FIELD_BITS & 1, shifted ^ FIELD_POLYNOMIAL, shifted)
    # Any bit of the product is as good.
    return ((product >> (FIELD_BITS - 1)) & 1).astype(np.uint8)


def hash_shares(identities: tuple[int, int], count: int = 1 << FIELD_BITS) -> tuple[float, ...]:
    """Share of ones of each id and share of links on which both ids agree, over all link ids."""
    first, other = (field_hash(identity, np.arange(count)) for identity in identities)
    return float(first.mean()), float(other.mean()), float((first == other).mean())


def stuck_spacings(length: int, spacings: range) -> int:
    """At how many spacings of packets a ring of ``length`` bits, one of them 0, is not read evenly.

    Read every s clocks, the ring of Figure 5.6 shows every ``gcd(s, length)``-th place only.
    """
    return sum(gcd(spacing, length) > 1 for spacing in spacings)


def lfsr_values(taps: int = LFSR_TAPS, bits: int = 16) -> NDArray[np.int64]:
    """Every state of a linear feedback shift register in its order, from 1 until it repeats."""
    out, state = [], 1
    while True:
        out.append(state)
        state = (state >> 1) ^ (taps if state & 1 else 0)
        if state == 1 or len(out) > 1 << bits:
            return np.array(out, np.int64)


def circuit_error(longest: int = 15, bits: int = 16) -> tuple[float, float]:
    """Largest distance from 1/l of the circuit of Figure 5.7 over a period, and its bound."""
    values = lfsr_values(bits=bits)
    worst = 0.0
    for length in range(1, longest + 1):
        threshold = round((2**bits - 1) / length)
        worst = max(worst, abs(float((values <= threshold).mean()) - 1 / length))
    return worst, 1 / (2 * (2**bits - 1))


def crossing_links(preset: str) -> list[int]:
    """How many links each hop of a path between two pods may take, from the preset."""
    fabric = preset_fabric(preset)
    stages = fat_tree_stages(fabric)
    first, last = np.array([0], np.uint32), np.array([fabric.n_nodes - 1], np.uint32)
    out = []
    for stage in stages:
        group = int(stage.group_of_node[first if stage.of_source else last][0])
        out.append(int(stage.start[group + 1]) - int(stage.start[group]))
    return out


def packets_to_see(parallel: int, hops: int = 5) -> tuple[float, int]:
    """Packets of one pair until every link is expected above the threshold of section 5.3.

    Args:
        parallel: Links of the hop that has most of them; packets use them evenly.
        hops: Length of the path, l.

    Returns:
        Of one-bit hashes, N ≥ l √Q Φ⁻¹(0.99) with N = Q / parallel; of full link ids, one sample
        a link.
    """
    hashed = (parallel * hops * float(ndtri(0.99))) ** 2
    return hashed, parallel * hops


def saturated_counts(hops: int, bits: int) -> list[Fraction]:
    """Expected weighted count of each hop: its chance to be the sample, times the count."""
    most, chance = 2**bits - 1, list[Fraction]()
    for hop in range(hops):
        replaces = Fraction(1, min(hop, most) + 1)
        chance = [each * (1 - replaces) for each in chance] + [replaces]
    return [each * min(hops, most) for each in chance]


def section_5_6() -> list[Row]:
    """The example of section 5.6, and what the product makes of it."""
    ours = saturated_counts(5, 2)
    sixteenths = ", ".join(f"{int(16 * count)}/16" for count in ours)
    published = "9/16, 9/16, 9/16, 9/16, 12/16"
    enough = saturated_counts(5, 3)
    return [
        Row(
            "section 5.6: expected weighted counts of five hops, counts of two bits",
            published,
            sixteenths,
            state_agreement(sixteenths == published),
            f"with three bits {', '.join(map(str, enough))}; we weigh a hop by its chance",
        )
    ]


def section_5_3() -> list[Row]:
    """The example of section 5.3, with its own links and with those of Table 3.1."""
    published = 8 * 24
    hashed, full = packets_to_see(published)
    counted = max(crossing_links("tapered"))
    more_hashed, more_full = packets_to_see(counted)
    other = f"8 × 24 links; Table 3.1's leaf has 16 up-links, so {counted} links"
    return [
        Row(
            "section 5.3: packets until all links of a path show, one-bit hashes",
            "5·10⁶",
            f"{hashed / 1e6:.2f}·10⁶",
            state_agreement(round(hashed / 1e6) == 5),
            f"{other}: {more_hashed / 1e6:.1f}·10⁶",
        ),
        Row(
            "section 5.3: packets until all links of a path are expected once, full ids",
            "around 1000",
            f"{full}",
            state_agreement(round(full, -3) == 1000),
            f"{other}: {more_full:,}",
        ),
    ]


def rows() -> list[Row]:
    """Every row of the table."""
    out = []
    for preset, published in PUBLISHED.items():
        ours = shape(preset)
        words = "nodes {}, on a leaf {}, up-links of a leaf {}, switches {}, radix {}"
        out.append(
            Row(
                f"Table 3.1, {preset.capitalize()}",
                words.format(*published),
                words.format(*ours),
                state_agreement(ours == published),
                "counted on the preset",
            )
        )
    spacings = range(1, 1000)
    stuck = stuck_spacings(3, spacings)
    out.append(
        Row(
            "Figure 5.6: share of zeros of a 3-bit ring read every s clocks, s = 1 … 999",
            "1/3, suspected “indistinguishable from a true random source”",
            f"1/3 at {len(spacings) - stuck} spacings; at {stuck} the same bit every time",
            state_agreement(stuck == 0),
            "exact. Packets of one size back to back have one s: where it is a multiple of 3, the "
            "same hop is kept every time. The ring needs a clock that drifts against the packets",
        )
    )
    worst, bound = circuit_error()
    out.append(
        Row(
            "Figure 5.7: largest error of 1/l, l = 1 … 15, 16 bits",
            f"≤ {bound:.3g}",
            f"{worst:.3g}",
            state_agreement(worst <= bound * (1 + 1e-9)),
            f"all {len(lfsr_values()):,} states; as published, 0 never appears",
        )
    )
    shares = hash_shares((14, 15))
    out.append(
        Row(
            "talk, H(14, ·) and H(15, ·): ones, ones, equal",
            "half, half, uncorrelated",
            ", ".join(f"{share:g}" for share in shares),
            state_agreement(shares == (0.5, 0.5, 0.5)),
            "1024 links, GF(2^10); any two ids agree on exactly half of them",
        )
    )
    return [*out, *section_5_3(), *section_5_6()]


if __name__ == "__main__":
    run(__doc__, "networks and circuits", lambda: table(rows()))
