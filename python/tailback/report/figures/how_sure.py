"""How sure: the samples behind each number, and the estimate against the known truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import MIN_SAMPLES, FigureCase, FigureData
from tailback.report.layout import tier_direction_name
from tailback.report.scales import FAINT, INK, MUTED
from tailback.telemetry.estimate import link_estimates
from tailback.units import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 400
ROUNDING = 1e-12
PROMISE = 0.95
RED = "#b3261e"
TIER_COLOURS = ("#9aa4af", "#c2571a", "#2c5c9e", "#7a5ea8", "#2f7f86")


@figure("how_sure")
def how_sure(case: FigureCase, options: Options) -> Figure | None:
    """May I trust it: samples a link, and estimates against the truth with 95 % intervals."""
    evidence = options.evidence(case)
    if evidence.samples.height == 0:
        return None
    drawn = canvas(9.2, 3.7)
    left, right = drawn.subplots(1, 2)
    _draw_histogram(left, evidence)
    if evidence.truth is None:
        right.set_axis_off()
        right.text(
            0.02,
            0.9,
            "Measured run: the truth is not known.\nThe intervals come from the samples alone.",
            va="top",
            color=MUTED,
        )
    else:
        _draw_scatter(right, evidence)
    return drawn


def _draw_histogram(axes: Axes, evidence: FigureData) -> None:
    samples = evidence.load().samples
    top = max(int(np.ceil(np.log2(max(samples.max(), 2)))), 1)
    edges = 2.0 ** np.arange(top + 1)
    bottom = np.zeros(top)
    for tier in sorted(set(evidence.tier.tolist())):
        counts, _ = np.histogram(samples[(evidence.tier == tier) & (samples > 0)], edges)
        axes.bar(
            np.arange(top) + 0.5,
            counts,
            0.94,
            bottom=bottom,
            linewidth=0,
            color=TIER_COLOURS[tier % len(TIER_COLOURS)],
            label=tier_direction_name(tier, "up", evidence.flat).replace("→", "–"),
        )
        bottom += counts
    axes.axvline(np.log2(MIN_SAMPLES), color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.text(
        np.log2(MIN_SAMPLES) + 0.08,
        1.0,
        f"{MIN_SAMPLES} samples",
        fontsize=8,
        transform=axes.get_xaxis_transform(),
        va="top",
    )
    step = max(1, top // 8)
    axes.set_xticks(np.arange(0, top + 1, step), [f"{int(e)}" for e in edges[::step]])
    unseen = int((samples == 0).sum())
    axes.set_title(f"{len(samples) - unseen} links sampled, {unseen} never", fontsize=9)
    axes.set_xlabel("hop samples of a link, whole run (doubling bins)")
    axes.set_ylabel("links")
    axes.set_ylim(0, max(bottom.max(), 1) * 1.1)
    axes.grid(axis="y", color=FAINT)
    axes.legend(loc="upper left")


@dataclass(frozen=True, eq=False)
class Coverage:
    """Links with enough samples, their true congested fraction and its 95 % interval; shape (n,).

    Attributes:
        links: Their numbers.
        truth: Share of our packets that met congestion there, 0–1.
        estimate: The same as samples tell it, 0–1.
        low: Lower end of the interval that the verdict rests on (:func:`link_estimates`).
        high: Upper end.
    """

    links: NDArray[np.int64]
    truth: NDArray[np.float64]
    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whose interval holds the truth."""
        return (self.low <= self.truth + ROUNDING) & (self.truth <= self.high + ROUNDING)

    @property
    def congested(self) -> NDArray[np.bool_]:
        """Links where some packet met congestion.

        The interval of any other link holds its truth, 0, by construction, so these alone say
        whether 95 % is 95 %.
        """
        return self.truth > 0


def coverage(evidence: FigureData) -> Coverage | None:
    """Compare the intervals of links with the truth; None for a measured run."""
    if evidence.truth is None:
        return None
    truth = evidence.truth
    estimates = link_estimates(evidence.samples, hashed=evidence.hashed, shared=evidence.shared)
    estimates = estimates.filter(pl.col("samples") >= MIN_SAMPLES).sort("link")
    links = estimates["link"].to_numpy().astype(np.int64)
    crossed = truth.observed_packets[links] > 0
    links, estimates = links[crossed], estimates.filter(pl.Series(crossed))
    real = truth.observed_congested[links] / truth.observed_packets[links]
    estimate, low, high = (
        estimates[name].to_numpy() for name in ("fraction", "fraction_low", "fraction_high")
    )
    return Coverage(links, real, estimate, low, high)


def shown_coverage(evidence: FigureData) -> Coverage | None:
    """The same of the estimates that are drawn, with the evidence of their bundles."""
    if evidence.truth is None:
        return None
    truth, load = evidence.truth, evidence.load()
    shrunk = load.shrunk
    assert shrunk is not None  # a load of links
    links = np.flatnonzero(~np.isnan(load.fraction) & (truth.observed_packets > 0))
    real = truth.observed_congested[links] / truth.observed_packets[links]
    return Coverage(links, real, shrunk.value[links], shrunk.low[links], shrunk.high[links])


def _draw_scatter(axes: Axes, evidence: FigureData) -> None:
    intervals = shown_coverage(evidence)
    assert intervals is not None  # the caller saw the truth
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, zorder=1)
    order = np.argsort(intervals.truth, kind="stable")
    shown = order[:: max(1, -(-len(order) // POINTS))]
    for tier in sorted(set(evidence.tier[intervals.links].tolist())):
        mine = shown[evidence.tier[intervals.links[shown]] == tier]
        colour = TIER_COLOURS[tier % len(TIER_COLOURS)]
        at = intervals.estimate[mine]
        # Noise of hashed samples may put the estimate outside its interval, which is within 0-1.
        arms = np.maximum([at - intervals.low[mine], intervals.high[mine] - at], 0.0)
        axes.errorbar(
            intervals.truth[mine],
            at,
            yerr=arms,
            fmt="o",
            markersize=2.4,
            color=colour,
            ecolor=colour,
            elinewidth=0.4,
            alpha=0.75,
            zorder=2,
            markeredgewidth=0,
        )
    sentence, short = coverage_sentence(evidence)
    sentence = sentence.replace(": ", ":\n", 1).replace("; ", "\n")
    axes.set_title(sentence, fontsize=7.5, color=RED if short else INK)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_xlabel("true congested fraction (0–1)")
    axes.set_ylabel("estimated, with 95 % interval")
    axes.grid(color=FAINT)


def coverage_sentence(evidence: FigureData) -> tuple[str, bool]:
    """How many intervals hold the truth, against the 95 % they promise, and whether too few do.

    Too few are more than chance explains: below 95 % by two standard deviations of a share.
    """
    parts, short = [], False
    counted = (
        ("links by their own samples", coverage(evidence)),
        ("links with the evidence of their bundles", shown_coverage(evidence)),
    )
    for what, intervals in counted:
        assert intervals is not None  # the caller saw the truth
        met = intervals.congested
        if not met.any():
            continue
        share = float(intervals.inside[met].mean())
        chance = 2.0 * (PROMISE * (1 - PROMISE) / int(met.sum())) ** 0.5
        short = short or share < PROMISE - chance
        parts.append(f"{percent(share, 1)} of {int(met.sum()):,} {what}")
    if not parts:
        return "no link that met congestion has enough samples", False
    return f"95 % intervals that hold the truth: {'; '.join(parts)}", short
