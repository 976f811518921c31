"""Directions of links between switches in networks without tiers: torus, mesh, dragonfly.

Up and down are undefined there. On a torus, a link has a dimension and a sign, X+ or Z-; on a
dragonfly it is local to a group or global between groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from tailback.fabric.topologies.torus import grid_directions

LOCAL, GLOBAL, ELSEWHERE = "local", "global", "between switches"
_WORDS = {
    LOCAL: "local links (within a group)",
    GLOBAL: "global links (between groups)",
    ELSEWHERE: "links between switches",
}


def is_flat(tables: Mapping[str, pl.DataFrame]) -> bool:
    """Whether all switches of a run are of one tier and some are connected to each other."""
    links, switches = tables["links"], tables["switches"]
    return switches["tier"].n_unique() == 1 and bool((links["direction"] == "flat").any())


def link_directions(tables: Mapping[str, pl.DataFrame], dims: Sequence[int]) -> list[str]:
    """Direction of each link between switches, "" for others; empty for a network with tiers.

    ``X+`` on a torus or mesh, ``local`` or ``global`` on a dragonfly.

    Args:
        tables: ``links``, ``nodes`` and ``switches`` of a run.
        dims: Switches along each dimension of a torus or mesh; empty for other networks.
    """
    if not is_flat(tables):
        return []
    nodes = tables["nodes"].height
    ends = tables["links"].sort("link").select("src", "dst").cast(pl.Int64) - nodes
    src, dst = ends["src"].to_numpy(), ends["dst"].to_numpy()
    if dims:
        return grid_directions(dims, src, dst)
    pods = tables["switches"].sort("switch")["pod"].fill_null(-1).to_numpy()
    return [_way(pods[a], pods[b]) if min(a, b) >= 0 else "" for a, b in zip(src, dst, strict=True)]


def _way(here: int, there: int) -> str:
    """Direction of a link from a switch of one group to a switch of another; -1 for no group."""
    if min(here, there) < 0:
        return ELSEWHERE
    return LOCAL if here == there else GLOBAL


def links_in_words(direction: str) -> str:
    """Displayed name of the links of a direction of :func:`link_directions`."""
    return _WORDS.get(direction, f"links in direction {direction}")
