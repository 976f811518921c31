"""Every figure and table of the five papers, and where our numbers for it are."""

from __future__ import annotations

from typing import Final

from studies.published.index import Cell, Published

STENCIL, CONFORMANCE, RUNS = "cases.md/stencil2d", "conformance.md/cases", "telemetry.md/figures"
YELLOW, VICTIM, TORUS = "studies.md/yellowstone", "studies.md/victim", "studies.md/blue-waters"
SPREAD, MIXES = "studies.md/torus-distributions", "studies.md/inference classes"
ANALYSIS: Final = "studies.md/analysis classes"
GHOST, PF3D = "cases.md/minighost", "cases.md/pf3d"
SLIDES, SHAPES = "reproduction.md/slides improvement", "reproduction.md/networks and circuits"
TABLE_4_1 = "the packet size, the order of directions and posting: [Table 4.1](table-4.1.md)"
GRAIN = "coarser packets spread less evenly over full up-links: [Table 4.1](table-4.1.md)"
WINDOWS_10_S = (
    "theirs look for 10 s; mixes and receivers fitted to the shares: [studies](studies.md)"
)


def mapping(number: str, name: str, picture: str, reason: str) -> Published:
    """A congested-fraction plot of the stencil in one mapping."""
    return Published(
        f"Figure {number}", f"stencil: {name}",
        (Cell(STENCIL, f"{name}: time of a round"),
         Cell(STENCIL, f"{name}: path length", "path")),
        reason, f"cases/stencil2d-{picture}.png",
    )  # fmt: skip


def probabilistic(number: str, column: int, theirs: str) -> Published:
    """A plot of the reduction with hashed samples."""
    return Published(
        f"Figure {number}", "reduction, one-bit hashes",
        (Cell(RUNS, "idle links shown", "false positives", "none", column),
         Cell(RUNS, "… of them shown", "links shown", theirs, column)),
        "the number of links is only drawn in theirs; both hashes, same packets: "
        "[telemetry](telemetry.md)", f"telemetry/figure-{number}.png",
    )  # fmt: skip


THESIS: Final = (
    Published("Figure 3.1", "sample congested fraction plot, 64 nodes", (),
              "the drawing itself; the report draws it of any run", "cases/stencil2d-row-major.png",
              "explains the drawing"),
    Published("Table 3.1", "the two networks",
              (Cell(SHAPES, "Table 3.1, Full", "Full"),
               Cell(SHAPES, "Table 3.1, Tapered", "Tapered"))),
    mapping("4.1", "Row major", "row-major", TABLE_4_1),
    Published("Figure 4.2", "phase +y, down- and up-links",
              (Cell(STENCIL, "phase +y: congested fraction of up-links", "up"),
               Cell(STENCIL, "phase +y: congested fraction of down-links", "down"),
               Cell(STENCIL, "phase +y: congested fraction into nodes", "into nodes")),
              "no number in theirs", "cases/stencil2d-plus-y.png"),
    Published("Figure 4.3", "packets to node 1446",
              (Cell(STENCIL, "link B, leaf 43 to aggregation 175, in +y: congested fraction", "B"),
               Cell(STENCIL, "link C, aggregation 175 to leaf 45, in +y: congested fraction", "C"),
               Cell(STENCIL, "link C: bandwidth while in use, sampled", "C")),
              "few packets cross C in a phase; theirs is above the line rate: [cases](cases.md)",
              "reproduction/figure-4.3.png"),
    Published("Figure 4.4", "matrix before and after RCM",
              (Cell(STENCIL, "Reverse Cuthill-McKee: path length", "path"),),
              "the order of equal neighbours is free, the band is the same",
              "cases/stencil2d-matrix.png"),
    mapping("4.5", "Reverse Cuthill-McKee", "rcm", TABLE_4_1),
    mapping("4.6", "Ordinary graph partitioning", "metis", "ours is improved on pods, too"),
    mapping("4.7", "Incremental graph partitioning", "incremental",
            "the start is not stated: from row-major path 1.395 and 43.7 µs, from random as here"),
    Published("Figure 4.8", "area 5, perimeter 10",
              (Cell("reproduction.md/polyominoes", "Figure 4.8: least P at area 5"),),
              "enumerated"),
    mapping("4.9", "One level tiling", "tile", "1 µs of software delay more, no pacing at 97 %"),
    mapping("4.10", "Random", "random", GRAIN),
    Published("Table 4.1", "seven mappings",
              tuple(Cell(STENCIL, f"{name}: time of a round", short) for name, short in (
                  ("Random", "random"), ("Row major", "row"), ("Reverse Cuthill-McKee", "RCM"),
                  ("Ordinary graph partitioning", "METIS"),
                  ("Incremental graph partitioning", "incremental"), ("One level tiling", "tile"))),
              TABLE_4_1),
    Published("Figure 4.11", "reduction in five slices of time",
              (Cell("cases.md/reduction", "naive, to rank 0"),),
              "theirs has 7 % of overhead that the thesis does not explain: [cases](cases.md)",
              "cases/reduction-slices-1.png"),
    Published("Figure 4.12", "reduction to rank 0",
              (Cell("cases.md/reduction", "congested fraction of the root's link", "fraction"),
               Cell("cases.md/reduction", "bandwidth of that link, sampled", "bandwidth")),
              "the same 7 %", "telemetry/figure-4.12.png"),
    Published("Figure 4.13", "reduction to rank 388",
              (Cell("cases.md/reduction", "change of time with the root at rank 388"),), "",
              "cases/reduction-388.png"),
    Published("Figure 4.14", "ring alone",
              (Cell(CONFORMANCE, "ring|ring: time", "", "33,600 ns", 4),
               Cell(CONFORMANCE, "ring|leaf-up: congested", "leaf-up", "0", 4),
               Cell(CONFORMANCE, "ring|leaf-down: congested", "leaf-down", "0", 4)),
              "same traffic, same rules"),
    Published("Figure 4.15", "background alone",
              (Cell(CONFORMANCE, "background|background: time", "", "106,200 ns", 4),
               Cell(CONFORMANCE, "background|leaf-down: congested", "leaf-down",
                    "“primarily endpoint”", 4),
               Cell(CONFORMANCE, "background|leaf-up: congested", "leaf-up", "–", 4)),
              "same draw of destinations"),
    Published("Figure 4.16", "both, the ring's packets",
              (Cell(CONFORMANCE, "both|ring: time", "", "51,400 ns", 4),
               Cell("cases.md/background", "own packets: the leaf to suspect", "example")),
              "when a send completes: [conformance](conformance.md)", "cases/background-own.png"),
    Published("Figure 4.17", "both, all packets",
              (Cell(CONFORMANCE, "both|background: time", "", "127,100 ns", 4),
               Cell("cases.md/background", "all packets: its two most congested nodes, congested "
                    "fraction and bandwidth", "example")),
              "their simulator, run again, takes 106,282 ns: 127.1 µs is the time of 12 messages "
              "into one node, none of 12 draws gives it", "cases/background-all.png"),
    Published("Figure 5.1", "H for 900 links, two hashes",
              (Cell("reproduction.md/hash patterns", "runs of equal bits", "runs"),
               Cell("reproduction.md/hash patterns", "period r of id 44 974 351", "period")), "",
              "reproduction/figure-5.1.png"),
    probabilistic("5.2", 2, "largest links only"),
    probabilistic("5.3", 4, "more than 5.2"),
    probabilistic("5.4", 6, "much more detail"),
    probabilistic("5.5", 8, "near 4.12"),
    Published("Figure 5.6", "3-bit shift register",
              (Cell(SHAPES, "Figure 5.6: share of zeros of a 3-bit ring read every s clocks, "
                    "s = 1 … 999"),), "every spacing of packets tried"),
    Published("Figure 5.7", "register and table",
              (Cell(SHAPES, "Figure 5.7: largest error of 1/l, l = 1 … 15, 16 bits"),),
              "all states tried"),
)  # fmt: skip

TALK: Final = (
    Published("Sample plot", "congested fraction plot, legend", (),
              "the drawing itself", "cases/minighost-tags-linear.png", "explains the drawing"),
    Published("Visualizing H", "H(14, ·), H(15, ·)",
              (Cell(SHAPES, "talk, H(14, ·) and H(15, ·): ones, ones, equal"),),
              "exact for any two packet ids"),
    Published("miniGhost, default", "plot",
              (Cell(GHOST, "… cyclic ÷ tiled", "cyclic ÷ tiled"),),
              "the default is not described; cyclic is one reading: [cases](cases.md)"),
    Published("miniGhost, linear", "plots, whole and by phase",
              (Cell(GHOST, "congested fraction of leaf up-links in phase z: linear → tiled",
                    "phase z"),), "no number in theirs", "cases/minighost-tags-linear.png"),
    Published("miniGhost, tiled", "plots by phase",
              (Cell(GHOST, "less communication time by tiling: linear ÷ tiled", "time"),
               Cell(GHOST, "whole time saved by tiling, from linear", "whole")),
              "24 single changes; buffers of 128 KiB or messages of a fifth would give it: "
              "[cases](cases.md)", "cases/minighost-tags-tiled.png"),
    Published("Boundary conditions", "heaviest congestion by plane",
              (Cell(GHOST, "tiled, tag 1000 (to +y): heaviest layer of nodes", "tag 1000"),
               Cell(GHOST, "tiled, tag 3000 (to +x): heaviest layer of nodes", "tag 3000")),
              "the planes' numbers are lost in the slides' text", "cases/minighost-boundary.png"),
    Published("Modified pattern", "three plots",
              (Cell(GHOST, "communication saved by the change", "time"),
               Cell(GHOST, "whole time saved by the change", "whole"),
               Cell(GHOST, "both together, from linear", "together")),
              "2.9× and 60 % less make 7.25×, not nearly 5×: the figures are not of the same runs: "
              "see below"),
    Published("pF3D", "plot and load",
              (Cell(PF3D, "our load on a link between switches that we use", "load"),),
              "ten times the computation gives the published load: below",
              "cases/pf3d-default.png"),
    Published("pF3D, mappings", "original and shifted",
              (Cell(PF3D, "shifted over alone", "over alone"),), "no plane of ours crosses leaves",
              "cases/pf3d-shifted.png"),
    Published("pF3D, table", "times",
              (Cell(PF3D, "slow-down by the background", "background"),
               Cell(PF3D, "shifted instead of default", "shifted")),
              "the other traffic is not published: −0.1 to +95 % by the size of its messages"),
    Published("Convergence", "variances of both schemes",
              (Cell("reproduction.md/one reservoir", "variance of W over l²Q − N, f = 0.2", "W"),),
              "150 runs"),
)  # fmt: skip


def stalled(kind: str) -> Cell:
    """Share of ports of one class with a stall, theirs and those of the kept draws."""
    return Cell(MIXES, kind, kind, None, 5)


INFINIBAND: Final = (
    Published("Figure 1", "a victim port",
              (Cell(VICTIM, "Figure 1: victim flow F2 without and with the congestion of port p",
                    "F2"),), "simulated as drawn"),
    Published("Figure 2", "Yellowstone",
              (Cell(VICTIM, "Figure 2: ports of a ToR; leaves and spines of the nine ORCAs; "
                    "ToRs"),),
              "counted"),
    Published("Figure 3", "Glade", (Cell(VICTIM, "Figure 3: Glade leaves and spines"),), "counted"),
    Published("Figure 4", "growth of PortXmitWait in a round",
              (Cell(VICTIM, "Figure 4: intervals of a round in which the counter grew, two "
                    "ports"),),
              "intervals are 3,000 times shorter"),
    Published("Table I", "rounds of each class", (),
              "the number of observations of a random choice of ports; ours looks at every port",
              "", "60,217 of ToR down"),
    Published("Figure 5", "intervals with and without a stall",
              (*(stalled(kind) for kind in ("ToR down", "ToR up", "Leaf down", "Leaf up",
                                            "Spine down", "GladeLeaf up", "GladeLeaf down")),
               *(Cell(ANALYSIS, kind, kind, None, 5) for kind in
                 ("GladeSpine down", "DAVSpine down", "DAVLeaf down", "DAVLeaf up"))),
              WINDOWS_10_S, "studies/yellowstone-zero.png"),
    Published("Figure 6", "largest fraction of a round",
              (Cell(MIXES, "ToR down", "ToR down", "most < 10 %", 8),
               Cell(MIXES, "Leaf up", "Leaf up", "most < 10 %", 8)),
              "one interval of 100 ms of the nearest mix: median, largest",
              "studies/yellowstone-maximum.png"),
    Published("Figure 7", "average fraction of a round",
              (Cell(YELLOW, "variability of the average: ToR, leaf, spine (interquartile range)"),),
              "the example's mix", "studies/yellowstone-average.png"),
    Published("Table II", "largest fractions and outliers",
              (Cell(YELLOW, "ports stalled for a whole interval"),),
              "intervals are 3,000 times shorter, so whole ones are stalled more often"),
    Published("Table III", "a fraction above 1",
              (Cell(VICTIM, "Table III: fraction of two readings 6,656,811 ticks and 124.2 ms "
                    "apart"),), "their equation"),
)  # fmt: skip

TORUS_PAPER: Final = (
    Published("Figure 1", "credit and inq stall", (),
              "a definition; both are counted as defined ([engine](../explanation/engine.md))", "",
              "explains the terms"),
    Published("Figure 2", "iteration times of PSDNS and AMR in five runs",
              tuple(Cell("studies.md/torus-iterations", row, label) for row, label in (
                  ("… PSDNS: shortest and longest of five runs", "PSDNS"),
                  ("… PSDNS: correlation of run time with stall of its links", "r"),
                  ("… AMR: shortest and longest of five runs", "AMR"),
                  ("… AMR: correlation of run time with stall of its links", "r"))),
              "other traffic of our choice", "studies/torus-iterations.png"),
    Published("Figure 3", "injection and ingestion",
              (Cell(SPREAD, "Figure 3: straightness (R²) of the logarithm of the distribution of "
                    "all nodes' injection, ingestion", "R²"),), "four loads together",
              "studies/torus-distributions.png"),
    Published("Figure 4", "packets and use of links",
              (Cell(SPREAD, "Figure 4a: link-intervals above the 90th percentile of packets", "a"),
               Cell(SPREAD, "… with jobs spread over the machine", "a, spread"),
               Cell(SPREAD, "Figure 4b: link-intervals above 5 % of the bandwidth", "b > 5 %"),
               Cell(SPREAD, "Figure 4b: above 40 %", "b > 40 %")),
              "allocations in slabs leave Z idle: tested; ours are busy for 1 ms",
              "studies/torus-distributions.png"),
    Published("Figure 5", "stalls of links",
              (Cell(SPREAD, "Figure 5a: inq stall above 10 %", "inq"),
               Cell(SPREAD, "Figure 5b: credit stall above 10 %", "credit")),
              "with Y as wide as X, X stalls less: [studies](studies.md)",
              "studies/blue-waters-axes.png"),
    Published("Table I", "correlation of use with stall",
              (Cell("studies.md/torus-correlation", "… and nodes that take 2.5 GB/s", "credit"),
               Cell(TORUS, "correlation of use with credit stall, single intervals", "example")),
              "one change at a time: jobs everywhere, small buffers and slow nodes give theirs at "
              "8³, Z by slow nodes alone; less on larger tori: [studies](studies.md)"),
    Published("Figure 6", "I/O of nodes",
              (Cell(SPREAD, "Figure 6a: largest read and write of a node, share of a Y link, "
                    "quartiles", "a"),
               Cell(SPREAD, "Figure 6b: average read and write of a node, share of a Y link, "
                    "heaviest 5 %", "b")),
              "a has no number; intervals of 100 µs show single messages"),
    Published("Figure 7", "inq stall at I/O routers",
              (Cell(SPREAD, "Figure 7: inq stall at I/O routers against others"),), ""),
    Published("Figure 8", "credit stall at I/O routers",
              (Cell(SPREAD, "Figure 8: credit stall at I/O routers against others"),), "",
              "studies/blue-waters-io.png"),
    Published("Figure 9", "evolution of congestion in X+",
              (Cell("studies.md/torus-protection",
                    "section VI, congestion protection: without protection"),
               Cell("studies.md/torus-protection",
                    "section VI, congestion protection: adapters together at the rate of one node",
                    "protection")),
              "the same graph; `tailback evolution` draws it of measured Gemini counters, too",
              "studies/blue-waters-evolution.png"),
    Published("Figure 10", "the torus at its worst instant", (),
              "the same drawing", "studies/blue-waters-slices.png", "a picture of one instant"),
)  # fmt: skip

RATES: Final = (
    Published("Congestion spreading", "round-robin outputs",
              (Cell(SLIDES, "slide “congestion spreading”: over the optimum, any buffer"),),
              "three sizes of buffer"),
    Published("InfiniBand CCA", "the control loop", (),
              "a scheme; simulated with seven sets of parameters: [congestion](congestion.md)", "",
              "explains the scheme"),
    Published("Fat trees", "ideal, 2-ary 3-tree, modified tree", (),
              "topologies `k-ary-n-tree` and `modified-k-ary-n-tree`", "", "three drawings"),
    Published("Adaptive routing", "congestion by width",
              tuple(Cell(SLIDES, f"AR, width 2, margin {margin}: maximum and average congestion",
                         f"margin {margin}") for margin in (1, 2)),
              "default ports and the order of arrival are not stated: [rates](rates.md)",
              "../images/permutation-widths.png"),
    Published("SAA", "completion time of superposed permutations",
              (Cell(SLIDES, "SAA, time saved", "SAA"),
               Cell(SLIDES, "SAA+AR, time saved, margin 2, from 1 permutation on", "SAA+AR"),
               Cell(SLIDES, "SAA+AR, speed gained, margin 1, from 1 permutation on",
                    "as speed, margin 1"),
               Cell(SLIDES, "AR without rate control, margin 1: worst", "AR alone")),
              "the sense of the figures and the margin are not stated: every one below",
              "../images/permutation-superposed.png"),
    Published("Injection scheme", "fluid and discrete",
              tuple(Cell("congestion.md/rates 4", name, name, "rates realized, small buffers", 4)
                    for name in ("none", "elastic, 25 %, offset random")),
              "time over the optimum; mean and worst flow over its rate, buffers of 4 packets",
              "../images/packet-rates.png"),
)  # fmt: skip

PAPERS: Final = {
    "thesis": THESIS, "talk": TALK, "infiniband": INFINIBAND, "torus": TORUS_PAPER, "rates": RATES,
}  # fmt: skip
"""Entries by the name of their table on the page."""
