"""How far bytes travel: the share of bytes by the number of switches their packets visit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.names.display import shorten_names
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.scales import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = (INK, "#1f7a4d")


@figure("distance_histogram")
def distance_histogram(case: FigureCase, options: Options) -> Figure | None:
    """How far the bytes travel: switches visited, as it is and with the remedy."""
    runs = [(case.names[0], case.reference)]
    if case.after is not None:
        runs.append((case.names[1], case.after))
    found = [(name, shares(evidence)) for name, evidence in runs]
    known = [(name, part) for name, part in found if part is not None]
    if not known:
        return None
    drawn = canvas(5.2, 3.2)
    axes = drawn.add_subplot()
    every = sorted({int(hops) for _, part in known for hops in part[0]})
    width = 0.8 / len(known)
    names = shorten_names((name for name, _ in known), 30)
    for index, (_, (hops, share, mean)) in enumerate(known):
        at = np.array([every.index(int(h)) for h in hops], np.float64)
        at += (index - (len(known) - 1) / 2) * width
        bars = axes.bar(
            at,
            100 * share,
            width * 0.92,
            color=_COLOURS[index],
            linewidth=0,
            label=f"{names[index]}: {mean:.2f} switches on average",
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=8, padding=1.5)
    axes.set_xticks(range(len(every)), [str(hops) for hops in every])
    axes.set_xlabel("switches visited (0: within a host; rounded mean of a message's packets)")
    axes.set_ylabel("share of bytes, %")
    axes.set_ylim(0, 100 * max(float(part[1].max()) for _, part in known) * 1.14)
    axes.grid(axis="y", color=FAINT)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
    return drawn


def shares(
    evidence: FigureData,
) -> tuple[NDArray[np.int64], NDArray[np.float64], float] | None:
    """Distances in switches, share of the observed bytes at each, and the mean over packets."""
    tables = evidence.run.tables
    ours = tables["jobs"].filter(pl.col("observed")).select("job")
    ranks = tables["ranks"].join(ours, on="job", how="semi").select("rank")
    messages = tables["messages"].join(ranks, left_on="src_rank", right_on="rank", how="semi")
    if messages.height == 0:
        return None
    packets = pl.col("packets").cast(pl.Float64)
    hops = pl.when(packets > 0).then(pl.col("switch_hops") / packets).otherwise(0.0)
    sums = (
        messages.with_columns(hops.round().cast(pl.Int64).alias("hops"))
        .group_by("hops")
        .agg(pl.col("size_bytes").sum())
        .sort("hops")
    )
    size = sums["size_bytes"].to_numpy().astype(np.float64)
    mean = float(messages["switch_hops"].sum()) / max(float(messages["packets"].sum()), 1.0)
    return sums["hops"].to_numpy(), size / max(size.sum(), 1.0), mean
