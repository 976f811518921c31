"""Figures and tables of Alali et al. (2017), and where our numbers for them are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from studies.baselines import HALF, HELD_OUT, OTHERS
from studies.production_networks.yellowstone import LARGEST as YELLOWSTONE_LARGEST
from studies.published.index import Cell, CellNumber, Claim, Fit, Published, worded

YELLOW: Final = "production_networks/yellowstone"
VICTIM: Final = "production_networks/victim"
MIX_FIT: Final = "production_networks/inference baselines"
STORAGE_FIT: Final = "production_networks/analysis baselines"


def held_out_fit(name: str, used: str, place: str, reason: str = "") -> Fit:
    """A fit of shares of ports, and each class predicted from the others."""
    return Fit(
        name,
        used,
        Cell(place, "the nearest draw", column=3),
        (Cell(place, HELD_OUT, "a class from the others", column=3),),
        (
            Cell(place, OTHERS, "mean of the others", column=3),
            Cell(place, HALF, "50 %", column=3),
            Cell(place, "mean of the published shares", "mean of all", column=3),
            Cell(place, "… its shares in another order, mean of all", "shuffled", column=3),
        ),
        reason,
    )


def longest(kind: str) -> Cell:
    """Largest stall fraction of a class in one interval on the full shape, and in all rounds."""
    return Cell(
        "production_networks/inference whole", kind, kind, f"{100 * LARGEST[kind]:.3g} %", 6
    )


LARGEST: Final = {
    f"{category} {way}": value
    for (category, way), value in YELLOWSTONE_LARGEST.items()
    if category != "GladeSpine"
}
"""Largest published fraction by class; the full shape here has no traffic between GladeSpines."""

DECLARED: Final = Cell(
    VICTIM,
    "… with congestion control: packets that find q, p and w in the congested state, as "
    "PortXmitCongTime counts it; PortXmitWait of q",
)

AVERAGE: Final = Cell(YELLOW, "variability of the average: ToR, leaf, spine (interquartile range)")

FIGURES: Final = (
    Published(
        "Figure 1",
        "a victim port",
        (Cell(VICTIM, "Figure 1: victim flow F2 without and with the congestion of port p", "F2"),),
        "simulated as drawn",
    ),
    Published(
        "Section III-A",
        "PortXmitCongTime of p, PortXmitWait of q",
        (
            replace(
                DECLARED,
                stated=(
                    Claim(CellNumber(DECLARED, 1), "above", CellNumber(DECLARED, 0)),
                    Claim(CellNumber(DECLARED, 3), "above", 0.0),
                ),
            ),
        ),
        "packets of q, p, w that find congestion; q waits",
        kind="in kind",
    ),
    Published(
        "Figure 2",
        "Yellowstone",
        (Cell(VICTIM, "Figure 2: ports of a ToR; leaves and spines of the nine ORCAs; ToRs"),),
        "counted",
    ),
    Published("Figure 3", "Glade", (Cell(VICTIM, "Figure 3: Glade leaves and spines"),), "counted"),
    Published(
        "Figure 4",
        "growth of PortXmitWait in a round",
        (
            Cell(
                VICTIM,
                "Figure 4: intervals of a round in which the counter grew, the port with fewest",
                "fewest",
            ),
            worded(VICTIM, "… the port with most", "most", None, (0, "above", 95.0)),
        ),
        "missing: their traffic; longer intervals hold more stalls",
    ),
    Published(
        "Table I",
        "rounds of each class",
        (
            Cell(
                VICTIM,
                "Table I: rounds (ours: ports) over those of leaf down: spine down, "
                "leaf up, ToR down, ToR up",
            ),
        ),
        "as many rounds as ports, chosen at random",
    ),
    Published(
        "Figure 7",
        "average fraction of a round",
        (
            replace(
                AVERAGE,
                stated=tuple(
                    Claim(CellNumber(AVERAGE), "above", CellNumber(AVERAGE, part))
                    for part in (1, 2, 3)
                ),
            ),
        ),
        "the example's mix",
        "production_networks/yellowstone-average.png",
        kind="in kind",
    ),
    Published(
        "Table II",
        "largest fractions and outliers",
        tuple(map(longest, LARGEST)),
        "one interval against weeks; missing: their traffic",
    ),
    Published(
        "Table III",
        "a fraction above 1",
        (Cell(VICTIM, "Table III: fraction of two readings 6,656,811 ticks and 124.2 ms apart"),),
        "their equation",
    ),
)

FITS: Final = (
    held_out_fit(
        "Alali et al., Figure 5, compute",
        "its 7 shares: the nearest of 490 mixes",
        MIX_FIT,
        "missing: their traffic, and intervals of 10 s",
    ),
    held_out_fit(
        "… storage and analysis",
        "its 6 shares: the nearest of 200 mixes",
        STORAGE_FIT,
        "the same",
    ),
)
"""Figure 6 is a condition on the kept draws, which no result can follow from."""
