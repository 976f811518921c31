"""Figures and tables of Taffet (2019), the thesis, and where our numbers for them are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from studies.published.index import (
    NONE,
    SEVERE,
    TOLERANCE,
    Cell,
    CellNumber,
    Claim,
    Published,
    worded,
)

STENCIL: Final = "taffet2019/stencil2d"
CONFORMANCE: Final = "simulators/conformance"
CASES: Final = "conformance/thesis stencil"
MAPPINGS: Final = "conformance/thesis mappings"
TREES: Final = "conformance/thesis reduction"
HOT: Final = "conformance/thesis background"
RUNS: Final = "taffet2019/telemetry figures"
SHAPES: Final = "taffet2019/networks and circuits"
LIVE: Final = Cell(
    "taffet2019/live congestion", "… incremental, with live congestion: change of the time"
)
OTHER_LEAVES: Final = replace(
    LIVE, row="… incremental, congestion of other leaves: change of the time"
)


def again(case: str, job: str, column: int) -> Cell:
    """Time of a conformance case: 3, their simulator run again; 4, ours with its settings."""
    return Cell(CONFORMANCE, f"{case}|{job}: time", column=column)


def link_r(tier: str) -> Cell:
    """Correlation of the congested fractions of their links with ours."""
    return Cell("conformance/published links", f"row-major|{tier}", column=4)


def agreement_claims(case: str, job: str) -> tuple[Claim, ...]:
    """With the settings of the published simulator the case agrees within 3 % of its re-run."""
    return (Claim(CellNumber(again(case, job, 4)), "about", CellNumber(again(case, job, 3))),)


def case_time(case: str, theirs: str, label: str = "") -> Cell:
    """Time of a stencil case with the published settings, and that of the thesis."""
    return Cell(CONFORMANCE, f"{case}|stencil: time", label, theirs, 4)


def mapping(
    number: str, name: str, theirs: str, picture: str, case: str = "", reason: str = ""
) -> Published:
    """A congested-fraction plot of the stencil in one mapping, with the published settings."""
    path = Cell(STENCIL, f"{name}: path length", "path")
    if not case:
        cells = (Cell(MAPPINGS, f"{name}: time", "", theirs), path)
        return Published(f"Figure {number}", name, cells, reason, picture)
    return Published(
        f"Figure {number}",
        name,
        (case_time(case, theirs), path),
        "{0} by their simulator, run again",
        picture,
        "",
        (again(case, "stencil", 3),),
        agreement_claims(case, "stencil"),
    )


def probabilistic(number: str, column: int, theirs: str, fewer: int = 0) -> Published:
    """A plot of the reduction with hashed samples; it shows more links than that of ``fewer``."""
    idle = Cell(RUNS, "idle links shown", "idle links shown", "0", column)
    shown = Cell(RUNS, "… of them shown", "links shown", theirs, column)
    other = CellNumber(Cell(RUNS, "… of them shown", column=fewer)) if fewer else None
    if other is not None:
        shown = replace(shown, stated=(Claim(CellNumber(shown), "above", other),))
    return Published(
        f"Figure {number}",
        "reduction, one-bit hashes",
        (idle, shown),
        "",
        f"taffet2019/figure-{number}.png",
        kind="in kind" if fewer else "reproduced",
    )


NEAR_4_12: Final = Cell(
    RUNS, "used links shown at 99.5 % a link", "used links shown", "very close to 4.12", 8
)
USED_LINKS: Final = CellNumber(Cell(RUNS, "links used", column=8))
AT_LINE_RATE: Final = ", links at 100 Gb/s"
IMPROVED: Final = "improvement by MPI_Reduce, "
HOT_TIME: Final = Cell(HOT, "time in which its 10 messages have the published bandwidth")
WHOLE_PATH: Final = "section 5.3: packets until all links of a path"
PHASE: Final = "phase +y: congested fraction"


def tree_size(row: str, label: str, words: str, relation: str, bound: float) -> Cell:
    """A link of Figure 4.3, described in words."""
    return worded(CASES, f"{row}, in +y: congested fraction", label, words, (0, relation, bound))


FIGURES: Final = (
    Published(
        "Figure 3.1",
        "sample plot, 64 nodes",
        (),
        "the report draws it of any run",
        theirs="a drawing",
    ),
    Published(
        "Table 3.1",
        "the two networks",
        (Cell(SHAPES, "Table 3.1, Full", "Full"), Cell(SHAPES, "Table 3.1, Tapered", "Tapered")),
    ),
    replace(
        mapping("4.1", "Row major", "61,190 ns", "conformance/row-major.png", "row-major"),
        reason="{0} by their simulator, run again; its links: r = {1} leaf-up, {2} leaf-down",
        quoted=(again("row-major", "stencil", 3), link_r("leaf-up"), link_r("leaf-down")),
    ),
    Published(
        "Figure 4.2",
        "phase +y, down- and up-links",
        (
            worded(CASES, f"{PHASE} of up-links", "up", "severe", (0, "above", SEVERE)),
            worded(CASES, f"{PHASE} of down-links", "down", "almost none", (0, "below", NONE)),
        ),
        "",
        "conformance/row-major-plus-y.png",
        kind="in kind",
    ),
    Published(
        "Figure 4.2",
        "into nodes",
        (worded(CASES, f"{PHASE} into nodes", "", "minimal", (0, "below", NONE)),),
        "ranks run ahead of one another; {0} if a phase starts at once for all",
        "",
        "",
        (Cell(STENCIL, f"{PHASE} into nodes"),),
        (Claim(CellNumber(Cell(STENCIL, f"{PHASE} into nodes")), "below", NONE),),
        "in kind",
    ),
    Published(
        "Figure 4.3",
        "packets to node 1446",
        (
            tree_size(
                "link B, leaf 43 to aggregation 175", "B", "a congestion tree", "above", SEVERE
            ),
            tree_size("link C, aggregation 175 to leaf 45", "C", "not congested", "below", NONE),
        ),
        "",
        "taffet2019/figure-4.3.png",
        kind="in kind",
    ),
    Published(
        "Figure 4.3",
        "bandwidth of link C",
        (Cell(CASES, "link C: bandwidth while in use, sampled"),),
        "theirs exceeds the line rate, 100 Gb/s",
        claims=(
            Claim(
                CellNumber(Cell(CASES, "link C: bandwidth while in use, sampled"), 0, True),
                "above",
                100.0,
            ),
        ),
    ),
    Published(
        "Figure 4.4",
        "matrix before and after RCM",
        (
            Cell(STENCIL, "Reverse Cuthill-McKee: path length", "path"),
            Cell(MAPPINGS, "Row major: pairs at least 32 apart", "far pairs before"),
            Cell(MAPPINGS, "Reverse Cuthill-McKee: pairs at least 32 apart", "after"),
        ),
        "the order of equal neighbours is free",
        "taffet2019/stencil2d-matrix.png",
    ),
    mapping("4.5", "Reverse Cuthill-McKee", "89,020 ns", "taffet2019/stencil2d-rcm.png", "rcm"),
    mapping(
        "4.6",
        "Ordinary graph partitioning",
        "44,018 ns",
        "taffet2019/stencil2d-metis.png",
        reason="ours is improved on pods, too",
    ),
    mapping(
        "4.7",
        "Incremental graph partitioning",
        "48,925 ns",
        "taffet2019/stencil2d-incremental.png",
        reason="their start is not stated; ours is random",
    ),
    Published(
        "Figure 4.7",
        "congested hops",
        (
            worded(
                MAPPINGS,
                "Incremental graph partitioning: congested hops",
                "",
                "0.05 %, “almost all” eliminated",
                (0, "below", 100 * NONE),
            ),
        ),
        kind="in kind",
    ),
    Published(
        "Figure 4.8",
        "area 5, perimeter 10",
        (Cell("taffet2019/polyominoes", "Figure 4.8: least P at area 5"),),
        "enumerated",
    ),
    mapping("4.9", "One level tiling", "44,035 ns", "taffet2019/stencil2d-tile.png", "tiled"),
    mapping("4.10", "Random", "86,054 ns", "taffet2019/stencil2d-random.png", "random"),
    Published(
        "Table 4.1",
        "mappings",
        (
            case_time("random", "86,054 ns", "random"),
            case_time("row-major", "61,186 ns", "row"),
            case_time("rcm", "89,020 ns", "RCM"),
            case_time("tiled", "44,035 ns", "tile"),
        ),
        "the others are above",
    ),
    Published(
        "Figure 4.11",
        "reduction in five slices of time",
        (Cell(TREES, "time"),),
        "{0} without TraceR's lookahead for each chunk",
        "taffet2019/reduction-slices-1.png",
        quoted=(Cell(TREES, f"time{AT_LINE_RATE}"),),
    ),
    Published(
        "Figure 4.12",
        "congested fraction of the root's link",
        (Cell(TREES, "its congested fraction"),),
        "",
        "taffet2019/figure-4.12.png",
    ),
    Published(
        "Figure 4.12",
        "its bandwidth",
        (Cell(TREES, "root's link, sampled"),),
        "{0} without it",
        quoted=(Cell(TREES, f"root's link, sampled{AT_LINE_RATE}"),),
    ),
    Published(
        "Section 4.3",
        "improvement by MPI_Reduce",
        (Cell(TREES, f"{IMPROVED}binomial tree"),),
        "TraceR's binary tree: {0} in one call, {1} in 50; missing: computation in their trace",
        quoted=(
            Cell(TREES, f"{IMPROVED}TraceR's tree, one call of 200 KiB"),
            Cell(TREES, f"{IMPROVED}TraceR's tree, 50 calls of 4 KiB"),
        ),
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
        claims=agreement_claims("ring", "ring"),
    ),
    Published(
        "Figure 4.15",
        "background alone",
        (Cell(CONFORMANCE, "background|background: time", "", "106,200 ns", 4),),
        "same draw of destinations",
        claims=agreement_claims("background", "background"),
    ),
    Published(
        "Figure 4.15",
        "its congestion",
        (
            replace(
                Cell(
                    CONFORMANCE,
                    "background|leaf-down: congested",
                    "leaf-down",
                    "“primarily endpoint”",
                    4,
                ),
                stated=tuple(
                    Claim(
                        CellNumber(Cell(CONFORMANCE, "background|leaf-down: congested", column=4)),
                        "above",
                        CellNumber(Cell(CONFORMANCE, f"background|{tier}: congested", column=4)),
                    )
                    for tier in ("leaf-up", "agg-down")
                ),
            ),
        ),
        "",
        kind="in kind",
    ),
    Published(
        "Figure 4.16",
        "both, the ring's packets",
        (
            Cell(CONFORMANCE, "both|ring: time", "", "51,400 ns", 4),
            replace(Cell(HOT, "own packets: root of the tree", "root"), same_text=True),
            Cell(HOT, "own packets: most over a link out of that leaf", "out of it"),
        ),
        "",
        "conformance/background-own.png",
        claims=agreement_claims("both", "ring"),
    ),
    Published(
        "Figure 4.17",
        "both, all packets",
        (
            replace(
                Cell(HOT, "all packets: the two most congested nodes of leaf 37"), same_text=True
            ),
            *(
                Cell(HOT, f"all packets: n{node}, {what}", f"{node}")
                for node in (1204, 1213)
                for what in ("congested fraction", "bandwidth")
            ),
        ),
        "",
        "conformance/background-all.png",
    ),
    Published(
        "Figure 4.17",
        "its time",
        (Cell(CONFORMANCE, "both|background: time", "", "127,100 ns", 4),),
        "{0} by their simulator, run again; the bandwidths above are over {1}",
        quoted=(again("both", "background", 3), HOT_TIME),
        claims=(
            *agreement_claims("both", "background"),
            Claim(CellNumber(HOT_TIME), "about", 106.0),
        ),
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
    Published(
        "Section 5.3",
        "packets to see a path",
        (
            Cell(
                SHAPES,
                "section 5.3: packets until all links of a path show, one-bit hashes",
                "hash",
            ),
            Cell(
                SHAPES,
                "section 5.3: packets until all links of a path are expected once, full ids",
                "full",
            ),
        ),
        "their network has more links",
        theirs="for 8 × 24 links",
    ),
    probabilistic("5.2", 2, "largest links only"),
    probabilistic("5.3", 4, "more than 5.2", fewer=2),
    probabilistic("5.4", 6, "much more detail", fewer=4),
    Published(
        "Figure 5.5",
        "reduction, one-bit hashes",
        (
            replace(
                NEAR_4_12,
                stated=(Claim(CellNumber(NEAR_4_12), "about", USED_LINKS, TOLERANCE / 100),),
            ),
        ),
        "of {0} that 4.12 shows; others have too few packets",
        "taffet2019/figure-5.5.png",
        quoted=(USED_LINKS.cell,),
        kind="in kind",
    ),
    Published(
        "Section 5.6",
        "weighted counts of five hops",
        (
            replace(
                Cell(
                    SHAPES, "section 5.6: expected weighted counts of five hops, counts of two bits"
                ),
                same_text=True,
            ),
        ),
        "saturated",
    ),
    Published(
        "Figure 5.6",
        "3-bit shift register",
        (
            Cell(
                SHAPES,
                "Figure 5.6: share of zeros of a 3-bit ring read every s clocks, s = 1 … 999",
            ),
        ),
        "every spacing tried",
    ),
    Published(
        "Figure 5.7",
        "register and table",
        (Cell(SHAPES, "Figure 5.7: largest error of 1/l, l = 1 … 15, 16 bits"),),
        "all states tried",
    ),
    Published(
        "Section 6.1",
        "mapping with live congestion",
        (
            replace(
                LIVE,
                stated=tuple(
                    Claim(CellNumber(LIVE, 2), "below", bound)
                    for bound in (0.0, CellNumber(OTHER_LEAVES))
                ),
            ),
        ),
        "none if leaves are mixed up",
        claims=(Claim(CellNumber(OTHER_LEAVES, 2), "above", 0.0),),
        kind="in kind",
    ),
)
