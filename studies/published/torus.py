"""Figures and tables of Jha et al. (2018), and where our numbers for them are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from studies.published.index import Cell, CellNumber, Claim, Fit, Published

TORUS: Final = "production_networks/blue-waters"
SPREAD: Final = "production_networks/torus-distributions"

NEAREST: Final = "nodes that take 2.5 GB/s, buffers of 16 KiB, jobs everywhere"
FITTED: Final = "production_networks/torus-fit"
RUN_TIMES: Final = "production_networks/torus-iterations"
CORRELATION: Final = "correlation of run time with stall of its links"
STALLS: Final = (
    ("Figure 5a: inq stall above 10 %", "inq"),
    ("Figure 5b: credit stall above 10 %", "credit"),
)
FREE: Final = "section VI, congestion protection: without protection"
PROTECTED: Final = Cell(
    "production_networks/torus-protection",
    "section VI, congestion protection: adapters together at the rate of one node",
)

SIGNIFICANT: Final = 0.05
MISSING: Final = "missing: their traffic"


def largest_axis(cell: Cell, axis: int, others: tuple[int, ...]) -> Cell:
    """A cell of X, Y and Z (0, 1, 2) in which one axis has more than others."""
    number = CellNumber(cell, axis)
    claims = tuple(Claim(number, "above", CellNumber(cell, other)) for other in others)
    return replace(cell, stated=claims)


def significance(cell: Cell, relation: Literal["above", "below"], part: int = 0) -> Cell:
    """A test whose p-value is above or below 5 %."""
    return replace(cell, stated=(Claim(CellNumber(cell, part), relation, SIGNIFICANT),))


def straight_row(name: str) -> Cell:
    """How straight the distribution of all nodes is as an exponential, a power law, uniform."""
    row = f"Figure 3: {name}, straightness (R²) of the distribution of all nodes as "
    cell = Cell(SPREAD, f"{row}exponential, power law, uniform", "", "exponential")
    return largest_axis(cell, 0, (1, 2))


FIGURES: Final = (
    Published("Figure 1", "credit and inq stall", (), "both are counted", theirs="definitions"),
    Published(
        "Figure 2",
        "run time of PSDNS and AMR grows with stall",
        tuple(
            significance(Cell(RUN_TIMES, f"… {code}: {CORRELATION}", code), "below", 1)
            for code in ("PSDNS", "AMR")
        ),
        "correlations; other traffic of our choice",
        "production_networks/torus-iterations.png",
        kind="in kind",
    ),
    Published(
        "Figure 2",
        "shortest and longest run",
        tuple(
            Cell(RUN_TIMES, f"… {code}: shortest and longest of five runs", code)
            for code in ("PSDNS", "AMR")
        ),
        MISSING,
    ),
    *(
        Published(
            "Figure 3",
            name,
            (straight_row(name),),
            "R² as exponential, power law, uniform; four loads together",
            "production_networks/torus-distributions.png" if name == "injection" else "",
            kind="in kind",
        )
        for name in ("injection", "ingestion")
    ),
    Published(
        "Figure 4",
        "packets of links",
        tuple(
            largest_axis(replace(Cell(SPREAD, row, label), theirs="Z most, Y least"), 2, (0, 1))
            for row, label in (
                ("Figure 4a: link-intervals above the 90th percentile of packets", "slabs"),
                ("… with jobs spread over the machine", "spread"),
            )
        ),
        "missing: their allocations",
        "production_networks/torus-distributions.png",
        kind="in kind",
    ),
    Published(
        "Figure 4",
        "use above 5 % of the bandwidth",
        (Cell(SPREAD, "Figure 4b: link-intervals above 5 % of the bandwidth"),),
        "missing: idle months; ours are busy for 1 ms",
    ),
    Published(
        "Figure 4",
        "use above 40 %",
        (largest_axis(Cell(SPREAD, "Figure 4b: above 40 %"), 1, (0, 2)),),
        kind="in kind",
    ),
    Published(
        "Figure 5",
        "axis with most stalls",
        tuple(
            replace(largest_axis(Cell(SPREAD, row, label), 0, (1, 2)), theirs="X most")
            for row, label in STALLS
        ),
        "with Y as wide as X, X stalls less",
        "production_networks/blue-waters-axes.png",
        kind="in kind",
    ),
    Published(
        "Figure 5",
        "stalls above 10 %",
        tuple(Cell(SPREAD, row, label) for row, label in STALLS),
        MISSING,
    ),
    Published(
        "Figure 6",
        "I/O of nodes, average",
        (
            Cell(
                SPREAD,
                "Figure 6b: average read and write of a node, share of a Y link, heaviest 5 %",
            ),
        ),
        "6a has no number",
        kind="in kind",
    ),
    Published(
        "Figure 7",
        "inq stall at I/O routers",
        (significance(Cell(SPREAD, "Figure 7: inq stall at I/O routers against others"), "above"),),
        "Kolmogorov–Smirnov against a permutation test",
        kind="in kind",
    ),
    Published(
        "Figure 8",
        "credit stall at I/O routers",
        (
            significance(
                Cell(SPREAD, "Figure 8: credit stall at I/O routers against others"), "above"
            ),
        ),
        "the same test",
        "production_networks/blue-waters-io.png",
        kind="in kind",
    ),
    Published(
        "Figure 9",
        "features in X+ with congestion protection",
        (
            replace(
                PROTECTED,
                stated=(
                    Claim(CellNumber(PROTECTED), "below", 1.0),
                    Claim(CellNumber(replace(PROTECTED, row=FREE)), "above", 0.0),
                ),
            ),
        ),
        "",
        "production_networks/blue-waters-evolution.png",
        kind="in kind",
    ),
    Published(
        "Figure 9",
        "largest feature",
        (Cell(TORUS, "Figures 9 and 10: largest stall of a feature at least 40 % in X+"),),
        MISSING,
    ),
    Published(
        "Figure 10",
        "its links",
        (Cell(TORUS, "… links of that feature"),),
        MISSING,
        "production_networks/blue-waters-slices.png",
    ),
)

FITS: Final = (
    Fit(
        "Jha et al., Table I",
        "credit stall against use, at 12³: the nearest of 50",
        Cell(FITTED, f"{NEAREST}, several loads", column=4),
        (Cell(FITTED, f"inq stall, {NEAREST}, load 0.3, 0.1, 0.03", "inq stall", column=4),),
        (
            Cell(FITTED, "one number for all axes, credit stall", "one number", column=4),
            Cell(FITTED, "one number for all axes, inq stall", "one number, inq", column=4),
        ),
        "missing: their traffic, and tiles",
    ),
)
"""The errors are the largest of the three axes."""
