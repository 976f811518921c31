"""Slides of Birk and Zdornov (2009), and where our numbers for them are."""

from __future__ import annotations

from typing import Final

from studies.published.index import Cell, Published, worded

SLIDES: Final = "birk_zdornov2009/slides improvement"

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
        "a scheme; simulated with seven sets of parameters",
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
        "default ports and the order of arrival are not stated",
        "birk_zdornov2009/permutation-widths.png",
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
        "the sense of the figures and the margin are not stated: the study has every one",
        "birk_zdornov2009/permutation-superposed.png",
    ),
    Published(
        "Injection scheme",
        "fluid and discrete",
        (
            Cell("birk_zdornov2009/rates 4", "none", "none", "not realized", 4),
            worded(
                "birk_zdornov2009/rates 4",
                ELASTIC,
                ELASTIC,
                "rates realized, small buffers",
                (1, "above", 0.97),
                (2, "above", 0.97),
                column=4,
            ),
        ),
        "time over the optimum; mean and worst flow over its rate, buffers of 4 packets",
        "birk_zdornov2009/packet-rates.png",
    ),
)
