"""Figures and tables of Taffet (2019), the thesis, and where our numbers for them are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from studies.published.index import NONE, SEVERE, Cell, CellNumber, Claim, Published, Ratio, worded

STENCIL: Final = "taffet2019/stencil2d"
CONFORMANCE: Final = "simulators/conformance"
RUNS: Final = "taffet2019/telemetry figures"
SHAPES: Final = "taffet2019/networks and circuits"
TABLE_4_1: Final = "the packet size, the order of directions and posting"


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
        f"taffet2019/stencil2d-{picture}.png",
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
        "the number of links is only drawn in theirs; both hashes, same packets",
        f"taffet2019/figure-{number}.png",
        "",
        (),
        (Claim(CellNumber(Cell(RUNS, "idle links shown", column=column)), "below", 1.0),),
    )


BACKGROUND_DOWN: Final = Cell(
    CONFORMANCE, "background|leaf-down: congested", "leaf-down", "“primarily endpoint”", 4
)
METIS: Final = Cell(STENCIL, "Ordinary graph partitioning: path length")
LINK_C: Final = Cell(STENCIL, "link C: bandwidth while in use, sampled")
REDUCTION: Final = "taffet2019/reduction"
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

FIGURES: Final = (
    Published(
        "Figure 3.1",
        "sample congested fraction plot, 64 nodes",
        (),
        "the drawing itself; the report draws it of any run",
        "taffet2019/stencil2d-row-major.png",
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
        "taffet2019/stencil2d-plus-y.png",
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
        "theirs exceeds",
        "taffet2019/figure-4.3.png",
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
        "taffet2019/stencil2d-matrix.png",
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
        "the start is not stated; the study has both",
    ),
    Published(
        "Figure 4.8",
        "area 5, perimeter 10",
        (Cell("taffet2019/polyominoes", "Figure 4.8: least P at area 5"),),
        "enumerated",
    ),
    mapping("4.9", "One level tiling", "tile", "software delay, no pacing", case="tiled"),
    mapping(
        "4.10",
        "Random",
        "random",
        "coarser packets spread less evenly over full up-links",
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
        "the times; the thesis does not explain it",
        "taffet2019/reduction-slices-1.png",
        "",
        (ROOT_LINK,),
        OVERHEAD,
    ),
    Published(
        "Figure 4.12",
        "reduction to rank 0",
        (Cell(REDUCTION, "congested fraction of the root's link", "fraction"), ROOT_LINK),
        "the same ratio",
        "taffet2019/figure-4.12.png",
        "",
        (),
        OVERHEAD,
    ),
    Published(
        "Figure 4.13",
        "reduction to rank 388",
        (Cell("taffet2019/reduction", "change of time with the root at rank 388"),),
        "",
        "taffet2019/reduction-388.png",
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
            Cell("taffet2019/background", "own packets: the leaf to suspect", "example"),
        ),
        "when a send completes",
        "taffet2019/background-own.png",
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
                "taffet2019/background",
                "all packets: its two most congested nodes, congested fraction and bandwidth",
                "example",
            ),
        ),
        "their simulator, run again, takes {0}: the published time is that of more messages "
        "into one node than any draw has",
        "taffet2019/background-all.png",
        "",
        (again("both", "background", 3),),
        agrees("both", "background"),
    ),
    Published(
        "Figure 5.1",
        "H for 900 links, two hashes",
        (
            Cell("taffet2019/hash patterns", "runs of equal bits", "runs"),
            Cell("taffet2019/hash patterns", "period r of id 44 974 351", "period"),
        ),
        "",
        "taffet2019/figure-5.1.png",
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
