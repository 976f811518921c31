"""Figures and tables of Jha et al. (2018), and where our numbers for them are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from studies.published.index import Cell, CellNumber, Claim, Published, worded

TORUS: Final = "production_networks/blue-waters"
SPREAD: Final = "production_networks/torus-distributions"

NEAREST: Final = "nodes that take 2.5 GB/s, buffers of 16 KiB, jobs everywhere"
ALONE: Final = Cell("production_networks/torus-full", f"24³ routers, {NEAREST}, load 0.3")
TOGETHER: Final = Cell("production_networks/torus-full", "… these loads together", "24³")

FORTY: Final = Cell(SPREAD, "Figure 4b: above 40 %", "b > 40 %")
STRAIGHT: Final = 0.89
"""R² of a distribution that is called linear on a logarithmic scale."""
SIGNIFICANT: Final = 0.05


def z_most(cell: Cell) -> tuple[Claim, ...]:
    """Of X, Y and Z the third is largest and the second smallest."""
    return tuple(
        Claim(CellNumber(cell, a), "above", CellNumber(cell, b)) for a, b in ((2, 0), (0, 1))
    )


def no_difference(cell: Cell) -> Cell:
    """A test whose p-value is not significant, as published."""
    return replace(cell, stated=(Claim(CellNumber(cell), "above", SIGNIFICANT),))


FIGURES: Final = (
    Published(
        "Figure 1",
        "credit and inq stall",
        (),
        "a definition; both are counted as defined ([engine](../explanation/engine.md))",
        "",
        "explains the terms",
    ),
    Published(
        "Figure 2",
        "iteration times of PSDNS and AMR in five runs",
        tuple(
            Cell("production_networks/torus-iterations", row, label)
            for row, label in (
                ("… PSDNS: shortest and longest of five runs", "PSDNS"),
                ("… PSDNS: correlation of run time with stall of its links", "r"),
                ("… AMR: shortest and longest of five runs", "AMR"),
                ("… AMR: correlation of run time with stall of its links", "r"),
            )
        ),
        "other traffic of our choice",
        "production_networks/torus-iterations.png",
    ),
    Published(
        "Figure 3",
        "injection and ingestion",
        (
            worded(
                SPREAD,
                "Figure 3: straightness (R²) of the logarithm of the distribution of "
                "all nodes' injection, ingestion",
                "R²",
                None,
                (0, "above", STRAIGHT),
                (1, "above", STRAIGHT),
            ),
        ),
        "four loads together",
        "production_networks/torus-distributions.png",
    ),
    Published(
        "Figure 4",
        "packets and use of links",
        (
            *(
                replace(cell, stated=z_most(cell))
                for cell in (
                    Cell(
                        SPREAD,
                        "Figure 4a: link-intervals above the 90th percentile of packets",
                        "a",
                    ),
                    Cell(SPREAD, "… with jobs spread over the machine", "a, spread"),
                )
            ),
            Cell(SPREAD, "Figure 4b: link-intervals above 5 % of the bandwidth", "b > 5 %"),
            replace(
                FORTY,
                stated=tuple(
                    Claim(CellNumber(FORTY, 1), "above", CellNumber(FORTY, part)) for part in (0, 2)
                ),
            ),
        ),
        "allocations in slabs leave Z idle: tested; ours are busy for 1 ms",
        "production_networks/torus-distributions.png",
    ),
    Published(
        "Figure 5",
        "stalls of links",
        (
            Cell(SPREAD, "Figure 5a: inq stall above 10 %", "inq"),
            Cell(SPREAD, "Figure 5b: credit stall above 10 %", "credit"),
        ),
        "with Y as wide as X, X stalls less",
        "production_networks/blue-waters-axes.png",
    ),
    Published(
        "Table I",
        "correlation of use with stall",
        (
            TOGETHER,
            Cell("production_networks/torus-fit", f"{NEAREST}, several loads", "12³"),
            Cell("production_networks/torus-correlation", "… and nodes that take 2.5 GB/s", "8³"),
        ),
        "theirs are of all minutes of five months: pooled over loads; at full "
        "size one load alone gives {0}. Slow nodes make Z, spread jobs and small buffers X "
        "and Y",
        "",
        "",
        (ALONE,),
        tuple(
            Claim(CellNumber(TOGETHER, axis), "above", CellNumber(ALONE, axis)) for axis in range(3)
        ),
    ),
    Published(
        "Figure 6",
        "I/O of nodes",
        (
            Cell(
                SPREAD,
                "Figure 6a: largest read and write of a node, share of a Y link, quartiles",
                "a",
            ),
            Cell(
                SPREAD,
                "Figure 6b: average read and write of a node, share of a Y link, heaviest 5 %",
                "b",
            ),
        ),
        "a has no number; intervals of 100 µs show single messages",
    ),
    Published(
        "Figure 7",
        "inq stall at I/O routers",
        (no_difference(Cell(SPREAD, "Figure 7: inq stall at I/O routers against others")),),
        "theirs is Kolmogorov and Smirnov's test, ours a permutation test on the mean",
    ),
    Published(
        "Figure 8",
        "credit stall at I/O routers",
        (no_difference(Cell(SPREAD, "Figure 8: credit stall at I/O routers against others")),),
        "the same test",
        "production_networks/blue-waters-io.png",
    ),
    Published(
        "Figure 9",
        "evolution of congestion in X+",
        (
            Cell(
                "production_networks/torus-protection",
                "section VI, congestion protection: without protection",
            ),
            Cell(
                "production_networks/torus-protection",
                "section VI, congestion protection: adapters together at the rate of one node",
                "protection",
            ),
            Cell(
                TORUS, "Figures 9 and 10: largest stall of a feature at least 40 % in X+", "largest"
            ),
        ),
        "the same graph; `tailback evolution` draws it of measured Gemini counters, too",
        "production_networks/blue-waters-evolution.png",
    ),
    Published(
        "Figure 10",
        "the torus at its worst instant",
        (Cell(TORUS, "… links of that feature", "links of the worst feature"),),
        "the same drawing; ours is of two milliseconds",
        "production_networks/blue-waters-slices.png",
    ),
)
