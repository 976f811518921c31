"""How sure: the samples behind each number, and the estimate against the known truth."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tailback.report.evidence import ENOUGH_SAMPLES, Z95, Case, Evidence
from tailback.report.figure import Options, canvas, figure
from tailback.report.layout import describe
from tailback.report.scales import FAINT, INK, MUTED
from tailback.units import percent

POINTS = 400
_TIER_COLOURS = ("#9aa4af", "#c2571a", "#2c5c9e", "#7a5ea8", "#2f7f86")


@figure("how_sure")
def how_sure(case: Case, options: Options) -> Figure | None:
    """May I trust it: samples a link, and estimates against the truth with 95 % intervals."""
    evidence = options.evidence(case)
    if evidence.samples.height == 0:
        return None
    drawn = canvas(9.2, 3.7)
    left, right = drawn.subplots(1, 2)
    _histogram(left, evidence)
    if evidence.truth is None:
        right.set_axis_off()
        right.text(0.02, 0.9, "Measured run: the truth is not known.\nThe intervals on the left "
                   "numbers come from\nthe samples alone.", va="top", color=MUTED)  # fmt: skip
    else:
        _scatter(right, evidence)
    return drawn


def _histogram(axes: Axes, evidence: Evidence) -> None:
    samples = evidence.load().samples
    top = max(int(np.ceil(np.log2(max(samples.max(), 2)))), 1)
    edges = 2.0 ** np.arange(top + 1)
    bottom = np.zeros(top)
    for tier in sorted(set(evidence.tier.tolist())):
        counts, _ = np.histogram(samples[(evidence.tier == tier) & (samples > 0)], edges)
        axes.bar(np.arange(top) + 0.5, counts, 0.94, bottom=bottom, linewidth=0,
                 color=_TIER_COLOURS[tier % len(_TIER_COLOURS)],
                 label=describe(tier, "up").replace("→", "–"))  # fmt: skip
        bottom += counts
    axes.axvline(np.log2(ENOUGH_SAMPLES), color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.text(np.log2(ENOUGH_SAMPLES) + 0.08, 1.0, f"{ENOUGH_SAMPLES} samples", fontsize=8,
              transform=axes.get_xaxis_transform(), va="top")  # fmt: skip
    step = max(1, top // 8)
    axes.set_xticks(np.arange(0, top + 1, step), [f"{int(e)}" for e in edges[::step]])
    unseen = int((samples == 0).sum())
    axes.set_title(f"{len(samples) - unseen} links sampled, {unseen} never", fontsize=9)
    axes.set_xlabel("hop samples of a link, whole run (doubling bins)")
    axes.set_ylabel("links")
    axes.set_ylim(0, max(bottom.max(), 1) * 1.1)
    axes.grid(axis="y", color=FAINT)
    axes.legend(loc="upper left")


def coverage(
    evidence: Evidence,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """Links with enough samples: their numbers, true and estimated fraction, standard error."""
    if evidence.truth is None:
        return None
    load, truth = evidence.load(), evidence.truth
    chosen = np.flatnonzero((load.samples >= ENOUGH_SAMPLES) & (truth.observed_packets > 0))
    real = truth.observed_congested[chosen] / truth.observed_packets[chosen]
    return chosen, real, load.raw_fraction[chosen], load.error[chosen]


def _scatter(axes: Axes, evidence: Evidence) -> None:
    found = coverage(evidence)
    assert found is not None  # the caller saw the truth
    links, real, estimate, error = found
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, zorder=1)
    order = np.argsort(real, kind="stable")
    shown = order[:: max(1, -(-len(order) // POINTS))]
    for tier in sorted(set(evidence.tier[links].tolist())):
        mine = shown[evidence.tier[links[shown]] == tier]
        colour = _TIER_COLOURS[tier % len(_TIER_COLOURS)]
        axes.errorbar(
            real[mine], np.clip(estimate[mine], 0, 1), yerr=Z95 * error[mine], fmt="o",
            markersize=2.4, color=colour, ecolor=colour, elinewidth=0.4, alpha=0.75, zorder=2,
            markeredgewidth=0,
        )  # fmt: skip
    if len(links):
        inside = np.abs(estimate - real) <= Z95 * error + 1e-12
        text = f"{percent(inside.mean(), 1)} of {len(links)} links hold the truth in their interval"
    else:
        text = f"no link has {ENOUGH_SAMPLES} samples"
    axes.set_title(text, fontsize=9)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_xlabel("true congested fraction (0–1)")
    axes.set_ylabel("estimated, with 95 % interval")
    axes.grid(color=FAINT)
