"""Every link of a tree by tier and direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.model import Fabric

_TIERS = {2: ("leaf", "spine"), 3: ("leaf", "aggregation", "core")}
"""Names of tiers by their count."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Links of one tier and direction in a grid.

    Attributes:
        title: What they are.
        links: Link at each cell, -1 where there is none, shape (rows, columns).
    """

    title: str
    links: NDArray[np.int64]


def tier_panels(fabric: Fabric, names: dict[int, str] | None = None) -> list[Panel]:
    """Panels from the top of the tree to its hosts, up and down links apart.

    A column is the switch at the lower end (for hosts: the switch they are attached to), ordered by
    pod. A row is one of its cables. A panel shows a whole tier, and the links in a column share a
    switch.

    Args:
        fabric: Any fabric. Links between switches of one tier get a separate panel.
        names: Name of a tier by its number. Hosts are ``-1``.
    """
    levels = sorted({int(tier) for tier in fabric.switch_tier})
    words = dict(zip(levels, _TIERS.get(len(levels), ()), strict=False))
    words = {**words, -1: "host", **(names or {})}

    def word(tier: int) -> str:
        return words.get(tier, f"tier {tier}")

    tier = fabric.vertex_tier
    source, target = tier[fabric.link_src], tier[fabric.link_dst]
    panels = []
    for low in reversed([-1, *levels]):
        for high in reversed(levels):
            if high < low or (high == low and not (source == target).any()):
                continue
            for up in (True, False) if low != high else (True,):
                a, b = (low, high) if up else (high, low)
                mine = np.flatnonzero((source == a) & (target == b))
                if len(mine):
                    way = f"{word(a)} → {word(b)}"
                    panels.append(Panel(way, _grid(fabric, mine, up and low != -1, low == -1)))
    return panels


def _grid(
    fabric: Fabric, links: NDArray[np.int64], at_source: bool, hosts: bool
) -> NDArray[np.int64]:
    """Links in a grid: one column per switch, in order of pods, its cables as rows."""
    n = fabric.n_nodes
    source, target = (
        fabric.link_src[links].astype(np.int64),
        fabric.link_dst[links].astype(np.int64),
    )
    if hosts:
        at = np.maximum(source, target)  # nodes come before switches
        other = np.minimum(source, target)
    else:
        at, other = (source, target) if at_source else (target, source)
    at = at - n
    switches = np.unique(at)
    pod = fabric.switch_pod[switches]
    switches = switches[np.lexsort((switches, pod))]
    column = np.empty(fabric.n_switches, np.int64)
    column[switches] = np.arange(len(switches))
    order = np.lexsort((links, other, column[at]))
    placed = column[at][order]
    start = np.searchsorted(placed, np.arange(len(switches)))
    row = np.arange(len(order)) - start[placed]
    out = np.full((int(row.max()) + 1, len(switches)), -1, np.int64)
    out[row, placed] = links[order]
    return out
