"""Directions of links between switches in networks without tiers: torus, mesh, dragonfly.

Up and down are undefined there. On a torus, a link has a dimension and a sign, X+ or Z-; on a
dragonfly it is local to a group or global between groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

AXES = "XYZUVWST"
LOCAL, GLOBAL, ELSEWHERE = "local", "global", "between switches"
_WORDS = {
    LOCAL: "local links (within a group)",
    GLOBAL: "global links (between groups)",
    ELSEWHERE: "links between switches",
}
_ROUTER = re.compile(r"r(\d+(?:-\d+)*)")


def is_flat(tables: Mapping[str, pl.DataFrame]) -> bool:
    """Whether all switches of a run are of one tier and some are connected to each other."""
    links, switches = tables["links"], tables["switches"]
    return switches["tier"].n_unique() == 1 and bool((links["direction"] == "flat").any())


def link_directions(tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """Direction of each link between switches, "" for others; empty for a network with tiers.

    ``X+`` on a torus or mesh (``X`` if the sign is unknown), ``local`` or ``global`` on a
    dragonfly.

    Args:
        tables: ``links``, ``nodes`` and ``switches`` of a run.
    """
    if not is_flat(tables):
        return []
    links, nodes = tables["links"].sort("link"), tables["nodes"].height
    switches = tables["switches"].sort("switch")
    places = [_place(name) for name in switches["name"].to_list()]
    pods = switches["pod"].to_list()
    extents = _extents(places)
    out = []
    for src, dst in links.select("src", "dst").rows():
        a, b = src - nodes, dst - nodes
        if a < 0 or b < 0:
            out.append("")
        elif extents:
            out.append(_along(places[a], places[b], extents))
        elif pods[a] is not None and min(pods[a], pods[b]) >= 0:
            out.append(LOCAL if pods[a] == pods[b] else GLOBAL)
        else:
            out.append(ELSEWHERE)
    return out


def links_in_words(direction: str) -> str:
    """Displayed name of the links of a direction of :func:`link_directions`."""
    return _WORDS.get(direction, f"links in direction {direction}")


def _place(name: str) -> tuple[int, ...]:
    """Coordinates of a torus or mesh router, from its name; empty for other switches."""
    match = _ROUTER.fullmatch(name)
    return tuple(map(int, match[1].split("-"))) if match else ()


def _extents(places: list[tuple[int, ...]]) -> list[int]:
    """Length of each dimension; empty unless all switches have the same number of coordinates."""
    if len({len(place) for place in places}) != 1 or len(places[0]) > len(AXES):
        return []
    return [max(column) + 1 for column in zip(*places, strict=True)]


def _along(a: tuple[int, ...], b: tuple[int, ...], extents: list[int]) -> str:
    """``X+`` from one router to its neighbour."""
    changed = [axis for axis in range(len(a)) if a[axis] != b[axis]]
    if len(changed) != 1:
        return ELSEWHERE
    (axis,) = changed
    step = b[axis] - a[axis]
    # Wrap-around: from the last position to the first is one step forward.
    forward = step == 1 or (step == 1 - extents[axis] and extents[axis] > 2)
    backward = step == -1 or (step == extents[axis] - 1 and extents[axis] > 2)
    if not (forward or backward):
        return AXES[axis]
    return f"{AXES[axis]}{'+' if forward else '-'}"
