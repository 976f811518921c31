"""Slides of Taffet and Mellor-Crummey (SC'19), and where our numbers for them are."""

from __future__ import annotations

from typing import Final

from studies.published.index import SEVERE, Cell, CellNumber, Claim, Fit, Published, worded

GHOST: Final = "taffet2019/minighost"
PF3D: Final = "taffet2019/pf3d"
SHAPES: Final = "taffet2019/networks and circuits"
GHOST_RULES: Final = "taffet2019/minighost rules"
SHIFTED: Final = "taffet2019/pf3d reasons"

ONE_PLANE: Final = Cell(SHIFTED, "placement: one plane still lies across two leaves", column=3)
SLOWED: Final = Cell(PF3D, "slow-down by the background")
SHORT_OTHERS: Final = Cell(PF3D, "slow-down with background messages of 128 KiB")
LONG_OTHERS: Final = Cell(PF3D, "slow-down with background messages of 8 MiB")
LONGER: Final = "computation of 1 ms, others' messages of 1 MiB"
LOADS: Final = "taffet2019/pf3d load"
THEIR_TILING, THEIR_CHANGE = 2.9, 0.6
"""Communication time, linear over tiled, and the share that small phases with one sum save."""

FIGURES: Final = (
    Published(
        "Sample plot",
        "legend",
        (),
        "the report draws it",
        theirs="a drawing",
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
        "the default is not described; cyclic is one reading",
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
        "",
        "taffet2019/minighost-tags-linear.png",
        kind="in kind",
    ),
    Published(
        "miniGhost, tiled",
        "whole time saved",
        (Cell(GHOST, "whole time saved by tiling, from linear"),),
    ),
    Published(
        "miniGhost, tiled",
        "communication, linear ÷ tiled",
        (Cell(GHOST, "less communication time by tiling: linear ÷ tiled"),),
        "longer buffers give {0}, shorter messages {1}",
        "taffet2019/minighost-tags-tiled.png",
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
        "the planes' numbers are lost",
        "taffet2019/minighost-boundary.png",
    ),
    Published(
        "Modified pattern",
        "whole time saved",
        (Cell(GHOST, "whole time saved by the change"),),
    ),
    Published(
        "Modified pattern",
        "communication",
        (
            Cell(GHOST, "communication saved by the change", "saved"),
            Cell(GHOST, "both together, from linear", "together"),
        ),
        f"{THEIR_TILING:g}× and {100 * THEIR_CHANGE:.0f} % less make "
        f"{THEIR_TILING / (1 - THEIR_CHANGE):.3g}×: not the same runs",
    ),
    Published(
        "pF3D",
        "plot and load",
        (Cell(PF3D, "our load on a link between switches that we use", "load"),),
        "missing: how long theirs computes, see fits",
        "taffet2019/pf3d-default.png",
    ),
    Published(
        "pF3D, mappings",
        "original and shifted",
        (Cell(PF3D, "shifted over alone", "over alone"),),
        "no plane of ours crosses leaves; if one still does, {0}",
        "taffet2019/pf3d-shifted.png",
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
        "missing: the other traffic; {0} with short messages, {1} with long ones",
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
        (Cell("taffet2019/one reservoir", "variance of W over l²Q − N, f = 0.2", "W"),),
        "150 runs",
    ),
)

FITS: Final = (
    Fit(
        "Talk, pF3D",
        "load of 2.0 Gb/s: ten times the computation",
        Cell(LOADS, f"{LONGER}: load on links between switches that we use", column=4),
        (Cell(LOADS, f"{LONGER}: slow-down by the other traffic", "slow-down, points", column=4),),
        (
            Cell(
                LOADS,
                "computation of 100 µs, others' messages of 1 MiB: slow-down by the other traffic",
                "computation of the example",
                column=4,
            ),
        ),
        "slow-down lost",
    ),
)
