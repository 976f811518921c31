"""Slides of Birk and Zdornov (2009), and where our numbers for them are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from studies.published.index import TOLERANCE, Cell, CellNumber, Claim, Published, worded

SLIDES: Final = "birk_zdornov2009/slides improvement"

RATES: Final = "birk_zdornov2009/rates 4"
ELASTIC: Final = "elastic, 25 %, offset random"

FIGURES: Final = (
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
        "simulated with seven sets of parameters",
        theirs="a scheme",
    ),
    Published(
        "Fat trees",
        "ideal, 2-ary 3-tree, modified tree",
        (Cell(SLIDES, "additional ports at width 2", "ports"),),
        "topologies `k-ary-n-tree` and `modified-k-ary-n-tree`",
    ),
    *(
        Published(
            "Adaptive routing",
            f"congestion at width 2, margin {margin}",
            (Cell(SLIDES, f"AR, width 2, margin {margin}: maximum and average congestion"),),
            "missing: default ports, order of arrival, margin" if margin == 1 else "the same",
            "birk_zdornov2009/permutation-widths.png" if margin == 1 else "",
        )
        for margin in (1, 2)
    ),
    Published(
        "SAA",
        "time of superposed permutations",
        (Cell(SLIDES, "SAA, time saved", "saved"),),
        "",
        "birk_zdornov2009/permutation-superposed.png",
    ),
    *(
        Published(
            "SAA+AR",
            f"read as {sense}, margin {margin}",
            (Cell(SLIDES, f"SAA+AR, {sense}, margin {margin}, from 1 permutation on"),),
        )
        for sense in ("time saved", "speed gained")
        for margin in (1, 2)
    ),
    *(
        Published(
            "AR alone",
            f"margin {margin}",
            (Cell(SLIDES, f"AR without rate control, margin {margin}: worst"),),
            kind="in kind",
        )
        for margin in (1, 2)
    ),
    Published(
        "Distributed SAA",
        "four permutations, a probe every 8 packets: fastest flow over its final rate",
        (
            worded(
                "birk_zdornov2009/distributed",
                "4|probe every 8 packets",
                "",
                "final after one probing",
                (0, "below", 1 + TOLERANCE / 100),
                column=6,
            ),
        ),
        "{0} if probed before all are announced",
        quoted=(
            Cell("birk_zdornov2009/distributed", "4|probe in the first packet alone", column=6),
        ),
        kind="in kind",
    ),
    Published(
        "Injection scheme",
        "mean and worst flow over its rate, buffers of 4 packets",
        (
            replace(
                Cell(RATES, ELASTIC, "elastic", "realized", 4),
                stated=tuple(
                    Claim(
                        CellNumber(Cell(RATES, ELASTIC, column=4), part),
                        "above",
                        CellNumber(Cell(RATES, "none", column=4), part),
                    )
                    for part in (1, 2)
                ),
            ),
        ),
        "{0} without pacing, after time over the optimum",
        "birk_zdornov2009/packet-rates.png",
        quoted=(Cell(RATES, "none", column=4),),
        kind="in kind",
    ),
)
