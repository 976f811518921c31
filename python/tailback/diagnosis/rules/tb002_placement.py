"""TB002: congestion inside the network by our own traffic."""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.diagnosis.link_directions import links_in_words
from tailback.diagnosis.model import Finding
from tailback.diagnosis.root_utilization import FULL_UTILIZATION
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.topology import LinkTopology
from tailback.units import counted, percent

PLACEMENT: Final = "Placement: your own traffic fills links inside the network"


PLACE_TOGETHER: Final = (
    "Place ranks that exchange a lot of data on the same switch, and compare placements by "
    "re-simulation."
)


@RULES.register("TB002")
def placement(evidence: RunAnalysis) -> Finding | None:
    """Placement: your own traffic fills links inside the network.

    ## What it does
    Fires when the root of a congestion tree is a link between switches and your own traffic fills
    it: at least 70 % of the line rate while it was congested. A root is measured with its bundle,
    the parallel links among which adaptive routing chooses, unless the link alone is fuller.

    ## Why it matters
    The receiving nodes have capacity, but the links on the path do not: ranks that exchange much
    data are on different switches. Ranks placed closer to their partners need these links less.
    Often only the rank file has to change.

    ## Example
    A 64×72 stencil in row-major order on a tapered fat tree: in phase `+y` all 32 nodes of a leaf
    send out of it through 16 up-links. With 8×4 tiles the congestion disappears.

    ## What to do
    Try other placements: `tailback diagnose` simulates several and writes the best one's rank file.
    Where routing is static, colliding routes look the same: see the waterfall's `routing` step.
    """
    roots = evidence.roots.filter(~pl.col("endpoint") & (pl.col("verdict") == "ours"))
    share = evidence.share(roots)
    if share < MIN_SHARE:
        return None
    t = evidence.topology
    count = roots["link"].n_unique()
    average = float((roots["utilization"] * roots["weight"]).sum()) / float(roots["weight"].sum())
    first, kind = _heaviest_kind(roots, t)
    text = placement_sentence(share, count, kind, t.name[first], average)
    return evidence.finding("TB002", "placement", PLACEMENT, text, roots, PLACE_TOGETHER)


def _heaviest_kind(roots: pl.DataFrame, topology: LinkTopology) -> tuple[int, str]:
    """Heaviest link of the tier and direction with most congestion, and their displayed name."""
    links = roots["link"].to_numpy()
    flat = topology.flat_direction
    kinds = roots.with_columns(
        tier=pl.Series(topology.tier[links]),
        direction=pl.Series(topology.direction[links]),
        flat_direction=pl.Series([flat[link] if flat else "" for link in links], dtype=pl.String),
    )
    totals = kinds.group_by("tier", "direction", "flat_direction").agg(
        pl.col("weight").sum(), first=pl.col("link").sort_by("weight").last()
    )
    order = ("weight", "tier", "direction", "flat_direction")
    tier, way, sense, _, first = totals.sort(order).row(-1)
    return int(first), links_in_words(sense) if sense else links_of_tier(tier, way)


def placement_sentence(share: float, links: int, kind: str, such_as: str, use: float) -> str:
    """TB002: our own traffic fills links inside the network.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        kind: Name of most of them, such as ``tier-0 up-links``.
        such_as: Name of the heaviest of these.
        use: Mean utilization by our traffic while they are congested.
    """
    return (
        f"{percent(share)} of the congested packets wait for {counted(links, 'link')} inside the "
        f"network, mostly {kind} (such as {such_as}). No link downstream of them is congested, and "
        f"your own traffic fills them to {percent(min(use, 1.0))} of the line rate while they are "
        f"congested (≥ {percent(FULL_UTILIZATION)} counts as full): this placement needs more "
        "capacity there than the network has."
    )


def links_of_tier(tier: int, direction: int) -> str:
    """Name of the links of a tier and direction (1 up, 0 flat, -1 down)."""
    word = {1: "up-links", 0: "links between switches", -1: "down-links"}[direction]
    return f"tier-{tier} {word}"
