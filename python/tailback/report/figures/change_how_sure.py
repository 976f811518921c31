"""Whether the change of links between two runs is more than noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.report.difference import MAX_DEVIATION, link_deviations
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import MIN_SAMPLES, FigureCase
from tailback.report.figure_specs import deviation_columns
from tailback.report.scales import FAINT, INK, MUTED
from tailback.units import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("change_how_sure")
def change_how_sure(case: FigureCase, options: Options) -> Figure | None:
    """May the differences be trusted: changes of links in units of their standard error."""
    deviations = link_deviations(case)
    if deviations is None:
        return None
    columns = deviation_columns(deviations)
    (series,), curve = columns["series"], columns["curve"]
    drawn = canvas(6.4, 3.2)
    axes = drawn.add_subplot()
    edges = np.linspace(-MAX_DEVIATION, MAX_DEVIATION, len(series["values"]) + 1)
    axes.stairs(series["values"], edges, fill=True, color=series["colour"], linewidth=0)
    middle = (edges[1:] + edges[:-1]) / 2
    axes.plot(middle, curve["values"], color=INK, linewidth=1.2, label=curve["name"])
    for edge in (-1.96, 1.96):
        axes.axvline(edge, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)))
    axes.set_title(columns["title"], fontsize=9, fontweight="normal")
    axes.set_xlabel(
        f"{columns['x']};\nlinks with {MIN_SAMPLES} or more hop samples in both runs"
        + _uncongested_note(deviations.without_error)
    )
    axes.set_ylabel(columns["y"])
    axes.grid(axis="y", color=FAINT)
    axes.legend(loc="upper left")
    return drawn


def _uncongested_note(number: int) -> str:
    """Sentence on links without a congested sample in either run, which have no standard error."""
    if not number:
        return ""
    return f";\nleft out: {counted(number, 'link', ',')} without a congested sample in either run"
