"""When links are congested: links against time, the phases as a strip on top."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from tailback.report.evidence import ENOUGH_SAMPLES, Case, Evidence
from tailback.report.figure import Options, canvas, figure, shorten
from tailback.report.figures.waterfall import time_unit
from tailback.report.layout import describe
from tailback.report.scales import FAINT, INK, MUTED, NO_DATA, NO_DATA_HATCH, colormap

BINS_A_BAND = 48
PHASES_SHOWN = 8
CELL_SAMPLES = ENOUGH_SAMPLES // 2


@figure("link_time", per_run=True)
def link_time(case: Case, options: Options) -> Figure | None:
    """When, and in which phase: the most congested links and switches of each tier, over time."""
    evidence = options.evidence(case)
    if evidence.windows.height < 2 or evidence.samples.height == 0:
        return None
    bands = [_band(evidence, *pair) for pair in evidence.tier_directions]
    drawn = canvas(9.2, 1.9 + 0.34 * min(len(evidence.phases), PHASES_SHOWN) + 1.05 * len(bands))
    strip = 0.28 * min(len(evidence.phases), PHASES_SHOWN)
    axes = drawn.subplots(
        1 + len(bands), 1, sharex=True, height_ratios=[strip] + [1.0] * len(bands)
    )
    edges, unit = time_edges(evidence)
    draw_phases(axes[0], evidence, edges)
    for at, (tier, direction), (cells, size) in zip(
        axes[1:], evidence.tier_directions, bands, strict=True
    ):
        _draw_band(at, cells, edges)
        at.set_ylabel(describe(tier, direction).replace(" → ", "\n→ "), rotation=0, ha="right",
                      va="center", fontsize=8.5)  # fmt: skip
        at.text(1.005, 0.5, f"{size} links", transform=at.transAxes, va="center", fontsize=7.5,
                color=MUTED, rotation=270)  # fmt: skip
    axes[-1].set_xlabel(f"time, {unit}")
    bar = drawn.colorbar(
        ScalarMappable(Normalize(0, 1), colormap("congestion")), ax=list(axes), location="bottom",
        fraction=0.03, pad=0.02, aspect=60, shrink=0.6,
    )  # fmt: skip
    bar.outline.set_visible(False)
    bar.set_label(
        "highest congested fraction in a cell (0–1), of a link or of a switch's links together "
        f"with\n{CELL_SAMPLES} or more hop samples in the window; hatched: fewer samples"
    )
    return drawn


def time_edges(evidence: Evidence) -> tuple[NDArray[np.float64], str]:
    """Edges of the time windows, shape (W + 1,), and their unit."""
    start = evidence.windows["start_ps"].to_numpy().astype(np.float64)
    end = evidence.windows["end_ps"].to_numpy().astype(np.float64)
    unit, scale = time_unit(float(end[-1]))
    return np.append(start, end[-1]) / scale, unit


def phase_shares(evidence: Evidence) -> tuple[list[str], NDArray[np.float64]]:
    """Share of each window's samples that belongs to each of the heaviest phases, shape (P, W)."""
    total = evidence.samples.group_by("phase").agg(pl.col("hop_samples").sum())
    heavy = total.sort("hop_samples", "phase", descending=[True, False])["phase"].to_list()
    kept = [phase for phase in evidence.phases if phase in heavy[:PHASES_SHOWN]]
    sums = evidence.samples.group_by("phase", "window").agg(pl.col("hop_samples").sum())
    windows = evidence.windows["window"].to_numpy()
    out = np.zeros((len(kept), len(windows)))
    every = np.zeros(len(windows))
    for phase, window, count in sums.iter_rows():
        column = int(np.searchsorted(windows, window))
        every[column] += count
        if phase in kept:
            out[kept.index(phase), column] += count
    return kept, out / np.maximum(every, 1)


def draw_phases(axes: Axes, evidence: Evidence, edges: NDArray[np.float64]) -> None:
    """Draw the strip of phases: darkness is the phase's share of the samples of a window."""
    names, share = phase_shares(evidence)
    axes.pcolormesh(edges, np.arange(len(names) + 1), share, cmap="Greys", vmin=0, vmax=1.25,
                    rasterized=True)  # fmt: skip
    shown = [shorten(name, 22) for name in names]
    axes.set_yticks(np.arange(len(names)) + 0.5, shown, fontsize=8)
    axes.invert_yaxis()
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="x", labelbottom=False)
    axes.set_title("phases (darkness: share of the window's samples)", fontsize=8.5,
                   fontweight="normal", color=MUTED)  # fmt: skip
    for spine in axes.spines.values():
        spine.set_color(FAINT)


def _band(evidence: Evidence, tier: int, direction: str) -> tuple[NDArray[np.float64], int]:
    """Highest congested fraction of each group of neighbouring links in each window.

    Means hide hot links, so a cell keeps the maximum; a fraction of a few samples is mostly noise
    and would always win. So a link counts alone only with enough samples in the window, and the
    links of one switch count together: windows are short and samples of one link few.

    Returns:
        Cells of shape (groups, W), NaN without data, and the number of links in the band.
    """
    links = np.flatnonzero((evidence.tier == tier) & (evidence.direction == direction))
    switch = evidence.lower_switch[links]
    bins = min(BINS_A_BAND, len(set(switch.tolist())))
    order = np.unique(switch, return_inverse=True)[1]
    group = np.full(evidence.n_links, -1, np.int64)
    group[links] = order * bins // max(int(order.max(initial=0)) + 1, 1)
    cells = np.full((bins, evidence.windows.height), np.nan)
    owner = pl.DataFrame({"link": links, "switch": switch, "group": group[links]})
    chosen = evidence.samples.join(
        owner.with_columns(pl.col("link").cast(pl.UInt32)), on="link", how="inner"
    )
    for key in ("link", "switch"):
        sums = (
            chosen.group_by("window", "group", key)
            .agg(pl.col("hop_samples", "hop_weight", "congested_weight").sum())
            .filter((pl.col("hop_samples") >= CELL_SAMPLES) & (pl.col("hop_weight") > 0))
        )
        met, through = sums["congested_weight"].to_numpy(), sums["hop_weight"].to_numpy()
        row = sums["group"].to_numpy()
        column = np.searchsorted(evidence.windows["window"].to_numpy(), sums["window"].to_numpy())
        np.fmax.at(cells, (row, column), np.clip(met / through, 0, 1))
    return cells, len(links)


def _draw_band(axes: Axes, cells: NDArray[np.float64], edges: NDArray[np.float64]) -> None:
    rows = cells.shape[0]
    axes.add_patch(
        Rectangle((edges[0], 0), edges[-1] - edges[0], rows, facecolor=NO_DATA, zorder=0,
                  edgecolor=NO_DATA_HATCH, hatch="//////", linewidth=0)
    )  # fmt: skip
    axes.pcolormesh(
        edges, np.arange(rows + 1), np.ma.masked_invalid(cells), cmap=colormap("congestion"),
        norm=Normalize(0, 1), rasterized=True, zorder=2,
    )  # fmt: skip
    axes.set_ylim(rows, 0)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelcolor=INK)
