"""Cables that a file states as slower, or as fewer, than their equals.

A degraded cable trains to a lower speed or to fewer lanes, and a discovery then states its actual
rate. It shows by comparison: with the cables parallel to it, else with those of its switches in the
same role. Networks also mix generations on purpose: a slow leaf or spine, a dimension or a kind of
host with its own rate. There whole groups are slower, and nothing is marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.model import Fabric

NAMED = 3
"""Number of cables or switches that a note names; the others are counted."""

SEVERAL = 3
"""Upper ends that must all have a slow rate for it to be by design: two may each have a fault."""


def with_nominal_rates(
    fabric: Fabric,
    stated: NDArray[np.bool_],
    kinds: Sequence[Hashable],
    rated: NDArray[np.float64],
) -> Fabric:
    """The fabric with the nominal rates of cables slower than their equals, and notes on them.

    Args:
        fabric: A fabric with the rates that its file states.
        stated: Whether the file states the rate of each link, shape (L,).
        kinds: Model or kind of each node, length N: equal ones can run at the same rate.
        rated: Nominal rate of each link where the file states it beside a lower one, else 0,
            shape (L,).
    """
    beside, nominal = _nominal_rates(fabric, stated, kinds)
    equals = np.where(beside, "parallel ones", "equals")
    equals, nominal = np.where(rated > 0, "nominal rate", equals), np.where(rated, rated, nominal)
    slow = np.flatnonzero(nominal > fabric.link_gbps)
    notes = [*_slow_notes(fabric, slow, nominal, equals), *_missing_notes(fabric)]
    # Screens show the first few notes of a file.
    fabric = replace(fabric, notes=[*notes, *fabric.notes])
    return replace(fabric, nominal_gbps=nominal) if len(slow) else fabric


def _nominal_rates(
    fabric: Fabric, stated: NDArray[np.bool_], kinds: Sequence[Hashable]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether each link was compared with parallel ones, and its nominal rate, both shape (L,)."""
    source, target = _devices(fabric, fabric.link_src), _devices(fabric, fabric.link_dst)
    tier = fabric.vertex_tier
    lower, upper = tier[fabric.link_src].tolist(), tier[fabric.link_dst].tolist()
    rate, links = fabric.link_gbps.tolist(), np.flatnonzero(stated).tolist()

    def usual(key: Callable[[int], Hashable]) -> dict[Hashable, float]:
        return _usual_rates((key(link), rate[link]) for link in links)

    def pair(link: int) -> Hashable:
        return source[link], target[link]

    def leaving(link: int) -> Hashable:
        return source[link], upper[link]

    def entering(link: int) -> Hashable:
        return target[link], lower[link]

    by_pair, by_source, by_target = usual(pair), usual(leaving), usual(entering)
    fastest = _fastest(fabric, links, kinds)
    common = _common_rates(fabric, links)
    parallel, nominal = np.zeros(len(rate), bool), fabric.link_gbps.copy()
    for link in links:
        if (beside := by_pair.get(pair(link), 0.0)) > rate[link]:
            parallel[link], nominal[link] = True, beside
            continue
        ends = by_source.get(leaving(link)), by_target.get(entering(link))
        faster = [end for end in ends if end is not None and end > rate[link]]
        # A slow cable of a whole device that is slow is as it should be.
        if not faster or rate[link] in ends or rate[link] in common[lower[link], upper[link]]:
            continue
        vertices = int(fabric.link_src[link]), int(fabric.link_dst[link])
        if min(faster) <= min(fastest.get(vertex, 0.0) for vertex in vertices):
            nominal[link] = min(faster)
    return parallel, nominal


def _devices(fabric: Fabric, vertices: NDArray[np.uint32]) -> list[Hashable]:
    """The device of each vertex: its host, as adapters of a host are equals, or the switch."""
    return [
        ("host", int(fabric.node_host[vertex])) if vertex < fabric.n_nodes else vertex
        for vertex in vertices.tolist()
    ]


def _usual_rates(members: Iterable[tuple[Hashable, float]]) -> dict[Hashable, float]:
    """The rate of more than half of the links of each group of at least two."""
    groups: dict[Hashable, Counter[float]] = {}
    for key, gbps in members:
        groups.setdefault(key, Counter())[gbps] += 1
    usual = {}
    for key, rates in groups.items():
        (gbps, count), total = rates.most_common(1)[0], rates.total()
        if total > 1 and 2 * count > total:
            usual[key] = gbps
    return usual


def _fastest(fabric: Fabric, links: list[int], kinds: Sequence[Hashable]) -> dict[int, float]:
    """The fastest rate at which each vertex, or a node of its kind, is seen to run."""
    fastest: dict[int, float] = {}
    of_kind: dict[Hashable, float] = {}
    for link in links:
        vertex, gbps = int(fabric.link_src[link]), float(fabric.link_gbps[link])
        fastest[vertex] = max(fastest.get(vertex, 0.0), gbps)
        if vertex < fabric.n_nodes:
            of_kind[kinds[vertex]] = max(of_kind.get(kinds[vertex], 0.0), gbps)
    return fastest | {node: of_kind.get(kind, 0.0) for node, kind in enumerate(kinds)}


def _common_rates(fabric: Fabric, links: list[int]) -> dict[tuple[int, int], set[float]]:
    """Rates between two tiers that are by design.

    Most lower ends have them, or each of several upper ends has them: a slower kind of host that
    every leaf has, or a slower cable at every spine.
    """
    tier = fabric.vertex_tier
    lower: dict[tuple[int, int], dict[float, set[int]]] = {}
    upper: dict[tuple[int, int], dict[float, set[int]]] = {}
    for link in links:
        ends = int(fabric.link_src[link]), int(fabric.link_dst[link])
        if (tiers := (int(tier[ends[0]]), int(tier[ends[1]]))) != tuple(sorted(tiers)):
            continue
        for users, end in zip((lower, upper), ends, strict=True):
            rates = users.setdefault(tiers, {})
            rates.setdefault(float(fabric.link_gbps[link]), set()).add(end)
    common: dict[tuple[int, int], set[float]] = {}
    for (below, above), rates in lower.items():
        all_lower = set[int]().union(*rates.values())
        all_upper = set[int]().union(*upper[below, above].values())
        common[below, above] = common[above, below] = {
            gbps
            for gbps, users in rates.items()
            if 2 * len(users) > len(all_lower)
            or (len(all_upper) >= SEVERAL and upper[below, above][gbps] == all_upper)
        }
    return common


def _slow_notes(
    fabric: Fabric,
    slow: NDArray[np.int64],
    nominal: NDArray[np.float64],
    equals: NDArray[np.str_],
) -> list[str]:
    """Notes on the slow links; a cable counts once and is named by its upward link."""
    notes = []
    up = fabric.link_up
    for standard in ("nominal rate", "parallel ones", "equals"):
        cables: dict[int, int] = {}
        for link in slow[equals[slow] == standard].tolist():
            back = int(fabric.link_reverse[link])
            cable = min(link, back)
            if cable not in cables or up[link] > up[cables[cable]]:
                cables[cable] = link
        if not cables:
            continue
        named = [
            f"{fabric.link_name(link)}: {_rate_words(fabric, link)} of {nominal[link]:.4g}"
            for link in list(cables.values())[:NAMED]
        ]
        more = f"; and {len(cables) - NAMED} more" if len(cables) > NAMED else ""
        count = len(cables)
        which = "1 cable slower than its" if count == 1 else f"{count} cables slower than their"
        notes.append(f"{which} {standard}: {'; '.join(named)}{more}")
    return notes


def _rate_words(fabric: Fabric, link: int) -> str:
    speed = None if fabric.link_speed is None else fabric.link_speed[link]
    return f"{fabric.link_gbps[link]:.4g} Gb/s" + (f" ({speed})" if speed else "")


class MissingCables(NamedTuple):
    """A switch with fewer cables upwards than most of its tier.

    Attributes:
        vertex: The switch.
        cables: Its cables upwards.
        usual: Those of most switches of its tier.
    """

    vertex: int
    cables: int
    usual: int


def missing_cables(fabric: Fabric) -> list[MissingCables]:
    """Switches with a cable or two less upwards than the others of their tier."""
    up = (fabric.link_up > 0) & (fabric.link_src >= fabric.n_nodes)
    cables = Counter(fabric.link_src[up].tolist())
    tier = fabric.vertex_tier
    few: list[MissingCables] = []
    for level in sorted(set(fabric.switch_tier.tolist())):
        counts = {vertex: count for vertex, count in cables.items() if tier[vertex] == level}
        if not counts:
            continue
        usual, switches = Counter(counts.values()).most_common(1)[0]
        if 2 * switches > len(counts):
            # A switch with half the cables is built so; broken ones are few among many.
            few += [
                MissingCables(vertex, count, usual)
                for vertex, count in counts.items()
                if 0 < 4 * (usual - count) <= usual
            ]
    return few


def _missing_notes(fabric: Fabric) -> list[str]:
    """A note on switches with fewer cables upwards than the others of their tier."""
    few = missing_cables(fabric)
    if not few:
        return []
    named = [
        f"{fabric.vertex_name(each.vertex)}: {each.cables} of {each.usual}" for each in few[:NAMED]
    ]
    more = f"; and {len(few) - NAMED} more" if len(few) > NAMED else ""
    which = "1 switch has" if len(few) == 1 else f"{len(few)} switches have"
    return [f"{which} fewer cables upwards than most of the tier: {'; '.join(named)}{more}"]
