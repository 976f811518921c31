"""Whether the change of links between two runs is more than noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailback.report.difference import beyond_noise, compared, link_change
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import MIN_SAMPLES, FigureCase
from tailback.report.scales import FAINT, INK, MUTED
from tailback.units import counted, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_DEVIATION = 8.0


@figure("change_how_sure")
def change_how_sure(case: FigureCase, options: Options) -> Figure | None:
    """May the differences be trusted: changes of links in units of their standard error."""
    both = compared(case)
    if both is None:
        return None
    found = link_change(*both)
    sampled = (found.before.samples >= MIN_SAMPLES) & (found.after.samples >= MIN_SAMPLES)
    chosen = sampled & (found.error > 0)
    if not chosen.any():
        return None
    score = np.clip(found.value[chosen] / found.error[chosen], -MAX_DEVIATION, MAX_DEVIATION)
    drawn = canvas(6.4, 3.2)
    axes = drawn.add_subplot()
    edges = np.linspace(-MAX_DEVIATION, MAX_DEVIATION, 65)
    axes.hist(score, edges.tolist(), color="#9fb3c8", linewidth=0)
    middle = (edges[1:] + edges[:-1]) / 2
    axes.plot(middle, len(score) * normal(middle) * (edges[1] - edges[0]), color=INK,
              linewidth=1.2, label="if nothing had changed")  # fmt: skip
    for edge in (-1.96, 1.96):
        axes.axvline(edge, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)))
    share = float(beyond_noise(found)[chosen].mean())
    met = found.before.congested_samples + found.after.congested_samples > 0
    axes.set_title(
        f"{percent(share)} of {len(score):,} links changed beyond noise (5 % would by chance)",
        fontsize=9, fontweight="normal",
    )  # fmt: skip
    axes.set_xlabel(
        "change of the congested fraction in standard errors (ends: and beyond);\n"
        f"links with {MIN_SAMPLES} or more hop samples in both runs"
        + _without(int((sampled & ~met & ~chosen).sum()))
    )
    axes.set_ylabel("links")
    axes.grid(axis="y", color=FAINT)
    axes.legend(loc="upper left")
    return drawn


def _without(number: int) -> str:
    """What is said of links without a congested sample in either run: they have no such error."""
    if not number:
        return ""
    return f";\nleft out: {counted(number, 'link', ',')} without a congested sample in either run"


def normal(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Density of the standard normal distribution."""
    return np.asarray(np.exp(-np.square(score) / 2) / np.sqrt(2 * np.pi), np.float64)
