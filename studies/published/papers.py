"""Every figure and table of the five papers, and where our numbers for it are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from studies.production_networks.yellowstone import LARGEST as YELLOWSTONE_LARGEST
from studies.published.index import Cell, CellNumber, Claim, Published, Ratio

STENCIL, CONFORMANCE, RUNS = "cases.md/stencil2d", "conformance.md/cases", "telemetry.md/figures"
YELLOW, VICTIM, TORUS = "studies.md/yellowstone", "studies.md/victim", "studies.md/blue-waters"
SPREAD, MIXES = "studies.md/torus-distributions", "studies.md/inference classes"
ANALYSIS: Final = "studies.md/analysis classes"
GHOST, PF3D = "cases.md/minighost", "cases.md/pf3d"
SLIDES, SHAPES = "reproduction.md/slides improvement", "reproduction.md/networks and circuits"
TABLE_4_1 = "the packet size, the order of directions and posting: [Table 4.1](table-4.1.md)"
GHOST_RULES, SHIFTED = "reproduction.md/minighost rules", "reproduction.md/pf3d reasons"
WINDOWS_10_S = (
    "theirs look for 10 s; mixes and receivers fitted to the shares: [studies](studies.md)"
)


NONE, SEVERE = 0.05, 0.25
"""A congested fraction below the first is "almost none", one above the second "severe"."""


def worded(
    place: str,
    row: str,
    label: str,
    words: str | None,
    *tests: tuple[int, str, float],
    column: int | None = None,
) -> Cell:
    """A cell that the paper describes in words: part, relation and bound of each test."""
    cell = Cell(place, row, label, words, column)
    claims = tuple(
        Claim(CellNumber(cell, part), relation, bound)  # type: ignore[arg-type]
        for part, relation, bound in tests
    )
    return replace(cell, stated=claims)


def again(case: str, job: str, column: int) -> Cell:
    """Time of a conformance case: 3, their simulator run again; 4, ours with its settings."""
    return Cell(CONFORMANCE, f"{case}|{job}: time", column=column)


def agrees(case: str, job: str) -> tuple[Claim, ...]:
    """With the settings of the published simulator the case agrees within 3 % of its re-run."""
    return (Claim(CellNumber(again(case, job, 4)), "about", CellNumber(again(case, job, 3))),)


def mapping(
    number: str,
    name: str,
    picture: str,
    reason: str,
    claims: tuple[Claim, ...] = (),
    case: str = "",
) -> Published:
    """A congested-fraction plot of the stencil in one mapping.

    With ``case`` the reason is that of the settings: with the published ones both agree.
    """
    quoted: tuple[Cell, ...] = ()
    if case:
        quoted = (again(case, "stencil", 4), again(case, "stencil", 3))
        claims = (*claims, *agrees(case, "stencil"))
        reason += "; with the published ones {0}, and {1} by their simulator, run again"
    return Published(
        f"Figure {number}",
        f"stencil: {name}",
        (Cell(STENCIL, f"{name}: time of a round"), Cell(STENCIL, f"{name}: path length", "path")),
        reason,
        f"cases/stencil2d-{picture}.png",
        "",
        quoted,
        claims,
    )


def probabilistic(number: str, column: int, theirs: str, fewer: int = 0) -> Published:
    """A plot of the reduction with hashed samples; it shows more links than that of ``fewer``."""
    shown = Cell(RUNS, "… of them shown", "links shown", theirs, column)
    if fewer:
        other = CellNumber(Cell(RUNS, "… of them shown", column=fewer))
        shown = replace(shown, stated=(Claim(CellNumber(shown), "above", other),))
    return Published(
        f"Figure {number}",
        "reduction, one-bit hashes",
        (Cell(RUNS, "idle links shown", "false positives", "0", column), shown),
        "the number of links is only drawn in theirs; both hashes, same packets: "
        "[telemetry](telemetry.md)",
        f"telemetry/figure-{number}.png",
        "",
        (),
        (Claim(CellNumber(Cell(RUNS, "idle links shown", column=column)), "below", 1.0),),
    )


BACKGROUND_DOWN: Final = Cell(
    CONFORMANCE, "background|leaf-down: congested", "leaf-down", "“primarily endpoint”", 4
)
METIS: Final = Cell(STENCIL, "Ordinary graph partitioning: path length")
LINK_C: Final = Cell(STENCIL, "link C: bandwidth while in use, sampled")
REDUCTION: Final = "cases.md/reduction"
ROOT_LINK: Final = Cell(REDUCTION, "bandwidth of that link, sampled", "bandwidth")
NAIVE: Final = Cell(REDUCTION, "naive, to rank 0")
OVERHEAD: Final = (
    Claim(
        Ratio(CellNumber(NAIVE), CellNumber(NAIVE, published=True)),
        "about",
        Ratio(CellNumber(ROOT_LINK, published=True), CellNumber(ROOT_LINK)),
        0.01,
    ),
)
"""The reduction takes less time by as much as its root's link carries more."""

THESIS: Final = (
    Published(
        "Figure 3.1",
        "sample congested fraction plot, 64 nodes",
        (),
        "the drawing itself; the report draws it of any run",
        "cases/stencil2d-row-major.png",
        "explains the drawing",
    ),
    Published(
        "Table 3.1",
        "the two networks",
        (Cell(SHAPES, "Table 3.1, Full", "Full"), Cell(SHAPES, "Table 3.1, Tapered", "Tapered")),
    ),
    mapping("4.1", "Row major", "row-major", TABLE_4_1, case="row-major"),
    Published(
        "Figure 4.2",
        "phase +y, down- and up-links",
        (
            worded(
                STENCIL,
                "phase +y: congested fraction of up-links",
                "up",
                None,
                (0, "above", SEVERE),
            ),
            worded(
                STENCIL,
                "phase +y: congested fraction of down-links",
                "down",
                None,
                (0, "below", NONE),
            ),
            worded(
                STENCIL,
                "phase +y: congested fraction into nodes",
                "into nodes",
                None,
                (0, "below", NONE),
            ),
        ),
        "no number in theirs; the order is the same",
        "cases/stencil2d-plus-y.png",
        "",
        (),
        tuple(
            Claim(
                CellNumber(Cell(STENCIL, f"phase +y: congested fraction {low}")),
                "below",
                CellNumber(Cell(STENCIL, "phase +y: congested fraction of up-links")),
            )
            for low in ("of down-links", "into nodes")
        ),
    ),
    Published(
        "Figure 4.3",
        "packets to node 1446",
        (
            worded(
                STENCIL,
                "link B, leaf 43 to aggregation 175, in +y: congested fraction",
                "B",
                None,
                (0, "above", SEVERE),
            ),
            worded(
                STENCIL,
                "link C, aggregation 175 to leaf 45, in +y: congested fraction",
                "C",
                None,
                (0, "below", NONE),
            ),
            Cell(STENCIL, "link C: bandwidth while in use, sampled", "C"),
        ),
        "few packets cross C in a phase: the interval holds the line rate, 100 Gb/s, which "
        "theirs exceeds: [cases](cases.md)",
        "reproduction/figure-4.3.png",
        "",
        (),
        (
            Claim(CellNumber(LINK_C, 2), "above", 100.0),
            Claim(CellNumber(LINK_C, 0, published=True), "above", 100.0),
        ),
    ),
    Published(
        "Figure 4.4",
        "matrix before and after RCM",
        (Cell(STENCIL, "Reverse Cuthill-McKee: path length", "path"),),
        "the order of equal neighbours is free, the band is the same",
        "cases/stencil2d-matrix.png",
    ),
    mapping("4.5", "Reverse Cuthill-McKee", "rcm", TABLE_4_1, case="rcm"),
    mapping(
        "4.6",
        "Ordinary graph partitioning",
        "metis",
        "ours is improved on pods, too",
        (Claim(CellNumber(METIS), "below", CellNumber(METIS, published=True)),),
    ),
    mapping(
        "4.7",
        "Incremental graph partitioning",
        "incremental",
        "the start is not stated; both starts: [Table 4.1](table-4.1.md)",
    ),
    Published(
        "Figure 4.8",
        "area 5, perimeter 10",
        (Cell("reproduction.md/polyominoes", "Figure 4.8: least P at area 5"),),
        "enumerated",
    ),
    mapping("4.9", "One level tiling", "tile", "software delay, no pacing", case="tiled"),
    mapping(
        "4.10",
        "Random",
        "random",
        "coarser packets spread less evenly over full up-links: [Table 4.1](table-4.1.md)",
        case="random",
    ),
    Published(
        "Table 4.1",
        "seven mappings",
        tuple(
            Cell(STENCIL, f"{name}: time of a round", short)
            for name, short in (
                ("Random", "random"),
                ("Row major", "row"),
                ("Reverse Cuthill-McKee", "RCM"),
                ("Ordinary graph partitioning", "METIS"),
                ("Incremental graph partitioning", "incremental"),
                ("One level tiling", "tile"),
            )
        ),
        TABLE_4_1,
    ),
    Published(
        "Figure 4.11",
        "reduction in five slices of time",
        (NAIVE,),
        "their root's link carries less than the line rate, ours {0}: the same ratio as of "
        "the times; the thesis does not explain it: [cases](cases.md)",
        "cases/reduction-slices-1.png",
        "",
        (ROOT_LINK,),
        OVERHEAD,
    ),
    Published(
        "Figure 4.12",
        "reduction to rank 0",
        (Cell(REDUCTION, "congested fraction of the root's link", "fraction"), ROOT_LINK),
        "the same ratio",
        "telemetry/figure-4.12.png",
        "",
        (),
        OVERHEAD,
    ),
    Published(
        "Figure 4.13",
        "reduction to rank 388",
        (Cell("cases.md/reduction", "change of time with the root at rank 388"),),
        "",
        "cases/reduction-388.png",
    ),
    Published(
        "Figure 4.14",
        "ring alone",
        (
            Cell(CONFORMANCE, "ring|ring: time", "", "33,600 ns", 4),
            Cell(CONFORMANCE, "ring|leaf-up: congested", "leaf-up", "0", 4),
            Cell(CONFORMANCE, "ring|leaf-down: congested", "leaf-down", "0", 4),
        ),
        "same traffic, same rules",
        "",
        "",
        (),
        agrees("ring", "ring"),
    ),
    Published(
        "Figure 4.15",
        "background alone",
        (
            Cell(CONFORMANCE, "background|background: time", "", "106,200 ns", 4),
            replace(
                BACKGROUND_DOWN,
                stated=tuple(
                    Claim(
                        CellNumber(BACKGROUND_DOWN),
                        "above",
                        CellNumber(Cell(CONFORMANCE, f"background|{tier}: congested", column=4)),
                    )
                    for tier in ("leaf-up", "agg-down")
                ),
            ),
            Cell(CONFORMANCE, "background|leaf-up: congested", "leaf-up", "–", 4),
        ),
        "same draw of destinations",
        "",
        "",
        (),
        agrees("background", "background"),
    ),
    Published(
        "Figure 4.16",
        "both, the ring's packets",
        (
            Cell(CONFORMANCE, "both|ring: time", "", "51,400 ns", 4),
            Cell("cases.md/background", "own packets: the leaf to suspect", "example"),
        ),
        "when a send completes: [conformance](conformance.md)",
        "cases/background-own.png",
        "",
        (),
        agrees("both", "ring"),
    ),
    Published(
        "Figure 4.17",
        "both, all packets",
        (
            Cell(CONFORMANCE, "both|background: time", "", "127,100 ns", 4),
            Cell(
                "cases.md/background",
                "all packets: its two most congested nodes, congested fraction and bandwidth",
                "example",
            ),
        ),
        "their simulator, run again, takes {0}: the published time is that of more messages "
        "into one node than any draw has: [conformance](conformance.md)",
        "cases/background-all.png",
        "",
        (again("both", "background", 3),),
        agrees("both", "background"),
    ),
    Published(
        "Figure 5.1",
        "H for 900 links, two hashes",
        (
            Cell("reproduction.md/hash patterns", "runs of equal bits", "runs"),
            Cell("reproduction.md/hash patterns", "period r of id 44 974 351", "period"),
        ),
        "",
        "reproduction/figure-5.1.png",
    ),
    probabilistic("5.2", 2, "largest links only"),
    probabilistic("5.3", 4, "more than 5.2", fewer=2),
    probabilistic("5.4", 6, "much more detail", fewer=4),
    probabilistic("5.5", 8, "near 4.12", fewer=6),
    Published(
        "Figure 5.6",
        "3-bit shift register",
        (
            Cell(
                SHAPES,
                "Figure 5.6: share of zeros of a 3-bit ring read every s clocks, s = 1 … 999",
            ),
        ),
        "every spacing of packets tried",
    ),
    Published(
        "Figure 5.7",
        "register and table",
        (Cell(SHAPES, "Figure 5.7: largest error of 1/l, l = 1 … 15, 16 bits"),),
        "all states tried",
    ),
)

ONE_PLANE: Final = Cell(SHIFTED, "placement: one plane still lies across two leaves", column=3)
SLOWED: Final = Cell(PF3D, "slow-down by the background")
SHORT_OTHERS: Final = Cell(PF3D, "slow-down with background messages of 128 KiB")
LONG_OTHERS: Final = Cell(PF3D, "slow-down with background messages of 8 MiB")
LONGER: Final = Cell(
    "reproduction.md/pf3d load",
    "computation of 1 ms, others' messages of 1 MiB: load on links between switches that we use",
)
THEIR_TILING, THEIR_CHANGE = 2.9, 0.6
"""Communication time, linear over tiled, and the share that small phases with one sum save."""

TALK: Final = (
    Published(
        "Sample plot",
        "congested fraction plot, legend",
        (),
        "the drawing itself",
        "cases/minighost-tags-linear.png",
        "explains the drawing",
    ),
    Published(
        "Visualizing H",
        "H(14, ·), H(15, ·)",
        (Cell(SHAPES, "talk, H(14, ·) and H(15, ·): ones, ones, equal"),),
        "exact for any two packet ids",
    ),
    Published(
        "miniGhost, default",
        "plot",
        (Cell(GHOST, "… cyclic ÷ tiled", "cyclic ÷ tiled"),),
        "the default is not described; cyclic is one reading: [cases](cases.md)",
    ),
    Published(
        "miniGhost, linear",
        "plots, whole and by phase",
        (
            worded(
                GHOST,
                "congested fraction of leaf up-links in phase z: linear → tiled",
                "phase z",
                None,
                (0, "above", 100 * SEVERE),
                (1, "below", 100 * SEVERE),
            ),
        ),
        "no number in theirs",
        "cases/minighost-tags-linear.png",
    ),
    Published(
        "miniGhost, tiled",
        "plots by phase",
        (
            Cell(GHOST, "less communication time by tiling: linear ÷ tiled", "time"),
            Cell(GHOST, "whole time saved by tiling, from linear", "whole"),
        ),
        "rules of posting, waiting and switches, one at a time: longer buffers give {0}, "
        "shorter messages {1}: [cases](cases.md)",
        "cases/minighost-tags-tiled.png",
        "",
        (
            Cell(GHOST_RULES, "buffers of 128 KiB", column=2),
            Cell(GHOST_RULES, "1 variable: messages of 83 kB", column=2),
        ),
        tuple(
            Claim(CellNumber(Cell(GHOST_RULES, rule, column=2)), "about", 2.9, 0.1)
            for rule in ("buffers of 128 KiB", "1 variable: messages of 83 kB")
        ),
    ),
    Published(
        "Boundary conditions",
        "heaviest congestion by plane",
        (
            Cell(GHOST, "tiled, tag 1000 (to +y): heaviest layer of nodes", "tag 1000"),
            Cell(GHOST, "tiled, tag 3000 (to +x): heaviest layer of nodes", "tag 3000"),
        ),
        "the planes' numbers are lost in the slides' text",
        "cases/minighost-boundary.png",
    ),
    Published(
        "Modified pattern",
        "three plots",
        (
            Cell(GHOST, "communication saved by the change", "time"),
            Cell(GHOST, "whole time saved by the change", "whole"),
            Cell(GHOST, "both together, from linear", "together"),
        ),
        f"{THEIR_TILING:g}× and {100 * THEIR_CHANGE:.0f} % less make "
        f"{THEIR_TILING / (1 - THEIR_CHANGE):.3g}×, not nearly 5×: the figures are not of "
        "the same runs: see below",
    ),
    Published(
        "pF3D",
        "plot and load",
        (Cell(PF3D, "our load on a link between switches that we use", "load"),),
        "with ten times the computation it is {0}: below",
        "cases/pf3d-default.png",
        "",
        (LONGER,),
        (Claim(CellNumber(LONGER), "about", 2.0, 0.2),),
    ),
    Published(
        "pF3D, mappings",
        "original and shifted",
        (Cell(PF3D, "shifted over alone", "over alone"),),
        "no plane of ours crosses leaves; if one still does, {0}: below",
        "cases/pf3d-shifted.png",
        "",
        (ONE_PLANE,),
        (
            Claim(
                CellNumber(ONE_PLANE),
                "above",
                CellNumber(Cell(PF3D, "shifted over alone"), published=True),
            ),
        ),
    ),
    Published(
        "pF3D, table",
        "times",
        (
            Cell(PF3D, "slow-down by the background", "background"),
            Cell(PF3D, "shifted instead of default", "shifted"),
        ),
        "the other traffic is not published: {0} with short messages, {1} with long ones; "
        "the gain by shifting follows from this and from the row above",
        "",
        "",
        (SHORT_OTHERS, LONG_OTHERS),
        (
            Claim(CellNumber(SHORT_OTHERS), "below", CellNumber(SLOWED, published=True)),
            Claim(CellNumber(LONG_OTHERS), "above", CellNumber(SLOWED, published=True)),
        ),
    ),
    Published(
        "Convergence",
        "variances of both schemes",
        (Cell("reproduction.md/one reservoir", "variance of W over l²Q − N, f = 0.2", "W"),),
        "150 runs",
    ),
)


def stalled(kind: str) -> Cell:
    """Share of ports of one class with a stall, theirs and those of the kept draws."""
    return Cell(MIXES, kind, kind, None, 5)


def longest(kind: str) -> Cell:
    """Largest stall fraction of a class in one interval on the full shape, and in all rounds."""
    return Cell("studies.md/inference whole", kind, kind, f"{100 * LARGEST[kind]:.3g} %", 6)


LARGEST: Final = {
    f"{category} {way}": value
    for (category, way), value in YELLOWSTONE_LARGEST.items()
    if category != "GladeSpine"
}
"""Largest published fraction by class; the full shape here has no traffic between GladeSpines."""

AVERAGE: Final = Cell(YELLOW, "variability of the average: ToR, leaf, spine (interquartile range)")

INFINIBAND: Final = (
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
        "longer intervals hold more stalls: see the figure by length in [studies](studies.md)",
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
        "studies/yellowstone-zero.png",
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
        "studies/yellowstone-maximum.png",
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
        "studies/yellowstone-average.png",
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

NEAREST: Final = "nodes that take 2.5 GB/s, buffers of 16 KiB, jobs everywhere"
ALONE: Final = Cell("studies.md/torus-full", f"24³ routers, {NEAREST}, load 0.3")
TOGETHER: Final = Cell("studies.md/torus-full", "… these loads together", "24³")

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


TORUS_PAPER: Final = (
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
            Cell("studies.md/torus-iterations", row, label)
            for row, label in (
                ("… PSDNS: shortest and longest of five runs", "PSDNS"),
                ("… PSDNS: correlation of run time with stall of its links", "r"),
                ("… AMR: shortest and longest of five runs", "AMR"),
                ("… AMR: correlation of run time with stall of its links", "r"),
            )
        ),
        "other traffic of our choice",
        "studies/torus-iterations.png",
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
        "studies/torus-distributions.png",
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
        "studies/torus-distributions.png",
    ),
    Published(
        "Figure 5",
        "stalls of links",
        (
            Cell(SPREAD, "Figure 5a: inq stall above 10 %", "inq"),
            Cell(SPREAD, "Figure 5b: credit stall above 10 %", "credit"),
        ),
        "with Y as wide as X, X stalls less: [studies](studies.md)",
        "studies/blue-waters-axes.png",
    ),
    Published(
        "Table I",
        "correlation of use with stall",
        (
            TOGETHER,
            Cell("studies.md/torus-fit", f"{NEAREST}, several loads", "12³"),
            Cell("studies.md/torus-correlation", "… and nodes that take 2.5 GB/s", "8³"),
        ),
        "theirs are of all minutes of five months: pooled over loads; at full "
        "size one load alone gives {0}. Slow nodes make Z, spread jobs and small buffers X "
        "and Y: [studies](studies.md)",
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
        "Kolmogorov and Smirnov's test",
    ),
    Published(
        "Figure 8",
        "credit stall at I/O routers",
        (no_difference(Cell(SPREAD, "Figure 8: credit stall at I/O routers against others")),),
        "the same test",
        "studies/blue-waters-io.png",
    ),
    Published(
        "Figure 9",
        "evolution of congestion in X+",
        (
            Cell(
                "studies.md/torus-protection",
                "section VI, congestion protection: without protection",
            ),
            Cell(
                "studies.md/torus-protection",
                "section VI, congestion protection: adapters together at the rate of one node",
                "protection",
            ),
            Cell(
                TORUS, "Figures 9 and 10: largest stall of a feature at least 40 % in X+", "largest"
            ),
        ),
        "the same graph; `tailback evolution` draws it of measured Gemini counters, too",
        "studies/blue-waters-evolution.png",
    ),
    Published(
        "Figure 10",
        "the torus at its worst instant",
        (Cell(TORUS, "… links of that feature", "links of the worst feature"),),
        "the same drawing; ours is of two milliseconds",
        "studies/blue-waters-slices.png",
    ),
)

ELASTIC: Final = "elastic, 25 %, offset random"

RATES: Final = (
    Published(
        "Congestion spreading",
        "round-robin outputs",
        (Cell(SLIDES, "slide “congestion spreading”: over the optimum, any buffer"),),
        "three sizes of buffer",
    ),
    Published(
        "InfiniBand CCA",
        "the control loop",
        (),
        "a scheme; simulated with seven sets of parameters: [congestion](congestion.md)",
        "",
        "explains the scheme",
    ),
    Published(
        "Fat trees",
        "ideal, 2-ary 3-tree, modified tree",
        (Cell(SLIDES, "additional ports at width 2", "ports"),),
        "topologies `k-ary-n-tree` and `modified-k-ary-n-tree`",
    ),
    Published(
        "Adaptive routing",
        "congestion by width",
        tuple(
            Cell(
                SLIDES,
                f"AR, width 2, margin {margin}: maximum and average congestion",
                f"margin {margin}",
            )
            for margin in (1, 2)
        ),
        "default ports and the order of arrival are not stated: [rates](rates.md)",
        "../images/permutation-widths.png",
    ),
    Published(
        "SAA",
        "completion time of superposed permutations",
        (
            Cell(SLIDES, "SAA, time saved", "SAA"),
            Cell(SLIDES, "SAA+AR, time saved, margin 2, from 1 permutation on", "SAA+AR"),
            Cell(
                SLIDES,
                "SAA+AR, speed gained, margin 1, from 1 permutation on",
                "as speed, margin 1",
            ),
            Cell(SLIDES, "AR without rate control, margin 1: worst", "AR alone"),
        ),
        "the sense of the figures and the margin are not stated: every one below",
        "../images/permutation-superposed.png",
    ),
    Published(
        "Injection scheme",
        "fluid and discrete",
        (
            Cell("congestion.md/rates 4", "none", "none", "not realized", 4),
            worded(
                "congestion.md/rates 4",
                ELASTIC,
                ELASTIC,
                "rates realized, small buffers",
                (1, "above", 0.97),
                (2, "above", 0.97),
                column=4,
            ),
        ),
        "time over the optimum; mean and worst flow over its rate, buffers of 4 packets",
        "../images/packet-rates.png",
    ),
)

PAPERS: Final = {
    "thesis": THESIS,
    "talk": TALK,
    "infiniband": INFINIBAND,
    "torus": TORUS_PAPER,
    "rates": RATES,
}
"""Entries by the name of their table on the page."""
