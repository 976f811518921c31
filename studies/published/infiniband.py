"""Figures and tables of Alali et al. (2017), and where our numbers for them are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from studies.production_networks.yellowstone import LARGEST as YELLOWSTONE_LARGEST
from studies.published.index import Cell, CellNumber, Claim, Published, worded

YELLOW: Final = "production_networks/yellowstone"
VICTIM: Final = "production_networks/victim"
MIXES: Final = "production_networks/inference classes"
ANALYSIS: Final = "production_networks/analysis classes"
WINDOWS_10_S: Final = "theirs look for 10 s; mixes and receivers fitted to the shares"


def stalled(kind: str) -> Cell:
    """Share of ports of one class with a stall, theirs and those of the kept draws."""
    return Cell(MIXES, kind, kind, None, 5)


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

AVERAGE: Final = Cell(YELLOW, "variability of the average: ToR, leaf, spine (interquartile range)")

FIGURES: Final = (
    Published(
        "Figure 1",
        "a victim port",
        (Cell(VICTIM, "Figure 1: victim flow F2 without and with the congestion of port p", "F2"),),
        "simulated as drawn",
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
        "longer intervals hold more stalls",
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
        "as many rounds as ports, which are chosen at random: counted on the topology",
    ),
    Published(
        "Figure 5",
        "intervals with and without a stall",
        (
            *(
                stalled(kind)
                for kind in (
                    "ToR down",
                    "ToR up",
                    "Leaf down",
                    "Leaf up",
                    "Spine down",
                    "GladeLeaf up",
                    "GladeLeaf down",
                )
            ),
            *(
                Cell(ANALYSIS, kind, kind, None, 5)
                for kind in ("GladeSpine down", "DAVSpine down", "DAVLeaf down", "DAVLeaf up")
            ),
        ),
        WINDOWS_10_S,
        "production_networks/yellowstone-zero.png",
    ),
    Published(
        "Figure 6",
        "largest fraction of a round",
        tuple(
            worded(MIXES, kind, kind, "most < 10 %", (0, "below", 10.0), column=8)
            for kind in ("ToR down", "Leaf up")
        ),
        "one interval of 100 ms of the nearest mix, median and largest: most ports below a "
        "tenth as in theirs",
        "production_networks/yellowstone-maximum.png",
        "",
        (),
        tuple(
            Claim(CellNumber(Cell(MIXES, kind, column=8)), "below", 10.0)
            for kind in ("ToR down", "Leaf up")
        ),
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
    ),
    Published(
        "Table II",
        "largest fractions and outliers",
        tuple(map(longest, LARGEST)),
        "largest of one interval of all ports of the full shape; theirs of all "
        "intervals of weeks, and above 1 by the estimate of its time (Table III)",
    ),
    Published(
        "Table III",
        "a fraction above 1",
        (Cell(VICTIM, "Table III: fraction of two readings 6,656,811 ticks and 124.2 ms apart"),),
        "their equation",
    ),
)
