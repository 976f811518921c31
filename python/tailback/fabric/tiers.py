"""Tiers and pods of a real fabric, inferred from its cables and hosts.

"A switch with hosts is a leaf" is wrong in real fabrics: storage, login and management hosts are
attached to spines and cores, and some leaves have no hosts. The steps of the rule, in order
(explained in docs/reference/fabrics.md):

1. *Carriers* are the switches with hosts. A carrier is lifted off the leaves when most of its
   cables lead to at least two carriers that give a clearly larger share of their ports to hosts;
   unless the rest would still be connected without it: then the network is direct (torus,
   dragonfly, a chain), and all its carriers are leaves.
2. *Bulk leaves* carry more than half as many hosts as the switch of the median host. ``far`` is
   the distance of a switch from the nearest of them; the *height* H of the tree is the least
   distance within which all bulk leaves of one connected part are joined.
3. A light carrier that joins several pods and gives most of its ports to cables is a core with
   hosts, not a leaf. A switch without hosts at distance 2 to H below only one pod is an empty leaf;
   so is one that is named like the switches with hosts and has no cable to any of them.
4. A tier is ``far`` up to H, and the distance from any leaf beyond it: a single leaf on a core does
   not lower the tier of the core.
5. The boards of a director on its line side share one tier.
6. Pods are the connected parts of the tiers below H.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_UNREACHED = 1 << 30
_LIFT_RATIO = 1.5  # how much larger a leaf's share of ports with hosts is than a spine's


@dataclass(frozen=True)
class Tiers:
    """Tier and pod of each switch.

    Attributes:
        tier: Tier of each switch, 0 = leaf, shape (S,).
        pod: Pod of each switch, -1 where it belongs to none, shape (S,).
        notes: Irregularities, for the user.
    """

    tier: NDArray[np.int32]
    pod: NDArray[np.int32]
    notes: list[str]


def find_tiers(
    cables: Sequence[tuple[int, int]],
    hosts: Sequence[int],
    names: Sequence[str] | None = None,
    chassis: Sequence[str | None] | None = None,
    levels: Sequence[int] | None = None,
) -> Tiers:
    """Find the tier and the pod of every switch.

    Args:
        cables: Both ends of each cable between switches; parallel cables are repeated.
        hosts: Number of host adapters on each switch; its length is the number of switches.
        names: Name of each switch; helps to find directors and empty leaves.
        chassis: System image GUID of each switch or None; the boards of a director share one.
        levels: Tier of each switch if known; then only the pods are found.

    Returns:
        Tiers, pods (numbered by their first switch) and notes.
    """
    count = len(hosts)
    graph = _Graph(count, cables, list(hosts))
    shown = list(names) if names is not None else [""] * count
    boards = _boards(shown, list(chassis) if chassis is not None else [None] * count, graph)
    notes: list[str] = []
    if levels is not None:
        height = dict[int, int]()
        for switch, level in enumerate(levels):
            part = graph.part[switch]
            height[part] = max(height.get(part, 0), level)
        return Tiers(np.array(levels, np.int32).reshape(count), _pods(graph, levels, height), notes)

    carriers = {s for s in range(count) if graph.hosts[s]}
    leaves = carriers - _lifted(graph, carriers)
    bulk = _bulk(graph, leaves)
    far = graph.distances(bulk)
    height = _heights(graph, bulk, far)
    pods = _pods_below(graph, far, height, leaves - bulk)
    leaves -= _cores_with_hosts(graph, leaves - bulk, far, height, pods)
    empty = _empty_leaves(graph, carriers, far, height, pods, shown, boards)
    leaves |= empty

    tier = _levels(graph, leaves, far, height)
    _level_line_boards(tier, boards)
    above = sorted(s for s in carriers if tier[s] > 0)
    if above:
        notes.append(_note("switches with hosts above the leaves", above, shown))
    if empty:
        notes.append(_note("switches without hosts, treated as empty leaves", sorted(empty), shown))
    flat = sum(1 for a, b in cables if a != b and tier[a] == tier[b])
    if flat:
        notes.append(f"cables between switches of one tier: {flat}")
    wide = sum(1 for a, b in cables if abs(tier[a] - tier[b]) > 1)
    if wide:
        notes.append(f"cables that skip a tier: {wide}")
    return Tiers(np.array(tier, np.int32).reshape(count), _pods(graph, tier, height), notes)


def _note(what: str, which: list[int], names: Sequence[str]) -> str:
    some = ", ".join(repr(names[s]) for s in which[:3])
    return f"{what}: {len(which)} ({some}{', …' if len(which) > 3 else ''})"


class _Graph:
    """Switches, how many cables join each pair, and the connected parts."""

    def __init__(self, count: int, cables: Iterable[tuple[int, int]], hosts: list[int]) -> None:
        self.count = count
        self.hosts = hosts
        self.near: list[Counter[int]] = [Counter() for _ in range(count)]
        for a, b in cables:
            if a != b:
                self.near[a][b] += 1
                self.near[b][a] += 1
        self.cables = [sum(counter.values()) for counter in self.near]
        self.part = self.parts(range(count))

    def share(self, switch: int) -> float:
        """Share of the connected ports that lead to hosts."""
        return self.hosts[switch] / max(1, self.hosts[switch] + self.cables[switch])

    def distances(self, seeds: Iterable[int]) -> list[int]:
        """Steps from the nearest seed, ``_UNREACHED`` where there is none."""
        out = [_UNREACHED] * self.count
        queue = deque(sorted(seeds))
        for seed in queue:
            out[seed] = 0
        while queue:
            here = queue.popleft()
            for there in self.near[here]:
                if out[there] == _UNREACHED:
                    out[there] = out[here] + 1
                    queue.append(there)
        return out

    def parts(self, members: Iterable[int]) -> dict[int, int]:
        """Number of the connected part of each member, by the part's first member."""
        inside = sorted(members)
        allowed, out, number = set(inside), dict[int, int](), 0
        for start in inside:
            if start in out:
                continue
            out[start], stack = number, [start]
            while stack:
                for there in self.near[stack.pop()]:
                    if there in allowed and there not in out:
                        out[there] = number
                        stack.append(there)
            number += 1
        return out


def _lifted(graph: _Graph, carriers: set[int]) -> set[int]:
    """Carriers above other carriers (step 1)."""
    lifted = set()
    for switch in carriers:
        heavier = {
            other: cables
            for other, cables in graph.near[switch].items()
            if other in carriers
            and graph.hosts[other] > graph.hosts[switch]
            and graph.share(other) >= _LIFT_RATIO * graph.share(switch)
        }
        if len(heavier) >= 2 and 2 * sum(heavier.values()) > graph.cables[switch]:
            lifted.add(switch)
    bases = carriers - lifted
    joined = graph.parts(bases)
    pieces: dict[int, set[int]] = {}
    for switch in bases:
        pieces.setdefault(graph.part[switch], set()).add(joined[switch])
    return {s for s in lifted if len(pieces.get(graph.part[s], ())) > 1}


def _bulk(graph: _Graph, leaves: set[int]) -> set[int]:
    """Leaves that carry the bulk of the hosts of their connected part (step 2)."""
    by_part: dict[int, list[int]] = {}
    for leaf in leaves:
        by_part.setdefault(graph.part[leaf], []).append(leaf)
    bulk: set[int] = set()
    for members in by_part.values():
        members.sort(key=lambda s: (graph.hosts[s], s))
        half, passed, median = sum(graph.hosts[s] for s in members) / 2, 0, 0
        for switch in members:
            passed, median = passed + graph.hosts[switch], graph.hosts[switch]
            if passed >= half:
                break
        bulk.update(s for s in members if 2 * graph.hosts[s] > median)
    return bulk


def _heights(graph: _Graph, bulk: set[int], far: list[int]) -> dict[int, int]:
    """Height of the tree of each connected part, at which all its bulk leaves are joined."""
    out: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}
    for leaf in sorted(bulk):
        waiting.setdefault(graph.part[leaf], []).append(leaf)
    level = 0
    while waiting:
        joined = graph.parts(s for s in range(graph.count) if far[s] <= level)
        for part, members in list(waiting.items()):
            if len({joined[s] for s in members}) == 1:
                out[part] = level
                del waiting[part]
        level += 1
    return out


def _pods_below(
    graph: _Graph, far: list[int], height: dict[int, int], light: set[int]
) -> dict[int, int]:
    """Connected parts below the height without light leaves: a first estimate of the pods."""
    return graph.parts(
        s for s in range(graph.count) if far[s] < height.get(graph.part[s], 0) and s not in light
    )


def _cores_with_hosts(
    graph: _Graph,
    light: set[int],
    far: list[int],
    height: dict[int, int],
    pods: dict[int, int],
) -> set[int]:
    """Light carriers that join pods instead of being below one (step 3)."""
    return {
        s
        for s in light
        if far[s] == height[graph.part[s]]
        and graph.share(s) < 0.5
        and len({pods[other] for other in graph.near[s] if other in pods}) > 1
    }


def _role(name: str) -> str:
    """The name without its numbers, so that switches of one role have the same name."""
    plain = re.sub(
        r"(?<![0-9A-Za-z])(?:0x)?(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{3,}(?![0-9A-Za-z])", "#", name
    )
    return re.sub(r"[0-9]+", "#", plain)


def _empty_leaves(
    graph: _Graph,
    carriers: set[int],
    far: list[int],
    height: dict[int, int],
    pods: dict[int, int],
    names: Sequence[str],
    boards: list[_Boards],
) -> set[int]:
    """Switches without hosts that are leaves nevertheless (step 3)."""
    empty = set()
    in_director = {s for chassis in boards for s in chassis.line + chassis.spine}
    for s in range(graph.count):
        if s in carriers or not 2 <= far[s] <= height.get(graph.part[s], 0):
            continue
        below = {pods[other] for other in graph.near[s] if other in pods and far[other] == 1}
        if (
            len(below) == 1
            and all(far[other] == 1 for other in graph.near[s])
            and s not in in_director
        ):
            empty.add(s)
    roles: dict[str, list[int]] = {}
    for s in range(graph.count):
        if names[s]:
            roles.setdefault(_role(names[s]), []).append(s)
    for members in roles.values():
        without_hosts = [s for s in members if s not in carriers]
        touching = any(other in carriers for s in without_hosts for other in graph.near[s])
        if without_hosts and not touching and 2 * len(without_hosts) <= len(members):
            empty.update(s for s in without_hosts if graph.near[s])
    return empty


def _levels(graph: _Graph, leaves: set[int], far: list[int], height: dict[int, int]) -> list[int]:
    """Tier of each switch (step 4)."""
    any_leaf = graph.distances(leaves)
    out = []
    for s in range(graph.count):
        if s in leaves:
            out.append(0)
        elif far[s] <= height.get(graph.part[s], -1):
            out.append(far[s])
        else:
            out.append(any_leaf[s] if any_leaf[s] < _UNREACHED else 0)
    return out


@dataclass
class _Boards:
    """The boards of one director: line boards with outside cables, and boards that join them."""

    line: list[int] = field(default_factory=list)
    spine: list[int] = field(default_factory=list)


_BOARD = re.compile(r"^(.*?)[/ ](L|S)([0-9]+)[A-Z]?(?:/U[0-9]+)?$")


def _boards(names: Sequence[str], chassis: Sequence[str | None], graph: _Graph) -> list[_Boards]:
    """The directors: by the names of their boards, else by a shared system image GUID."""
    named: dict[str, _Boards] = {}
    placed = set()
    for s, name in enumerate(names):
        match = _BOARD.match(name)
        if match:
            director = named.setdefault(match.group(1), _Boards())
            (director.line if match.group(2) == "L" else director.spine).append(s)
            placed.add(s)
    out = [director for director in named.values() if director.line and director.spine]
    systems: dict[str, list[int]] = {}
    for s, system in enumerate(chassis):
        if system and s not in placed:
            systems.setdefault(system, []).append(s)
    out.extend(_split(members, graph) for members in systems.values() if len(members) > 1)
    return [director for director in out if director.line and director.spine]


def _split(members: list[int], graph: _Graph) -> _Boards:
    """Split a director's boards in two sides by its inner cables.

    The side with hosts or outside cables is the line side. Empty if the inner cables do not divide
    the boards into two sides.
    """
    inside, side = set(members), dict[int, int]()
    for start in members:
        if start in side:
            continue
        side[start], stack = 0, [start]
        while stack:
            here = stack.pop()
            for there in graph.near[here].keys() & inside:
                if there not in side:
                    side[there] = 1 - side[here]
                    stack.append(there)
                elif side[there] == side[here]:
                    return _Boards()
    if len(set(graph.parts(members).values())) != 1:
        return _Boards()
    faces = {side[s] for s in members if graph.hosts[s] or graph.near[s].keys() - inside}
    if len(faces) != 1:
        return _Boards()
    face = faces.pop()
    return _Boards([s for s in members if side[s] == face], [s for s in members if side[s] != face])


def _level_line_boards(tier: list[int], boards: list[_Boards]) -> None:
    """Give the line boards of each director one tier, the lowest found (step 5)."""
    for director in boards:
        lowest = min(tier[s] for s in director.line)
        for s in director.line:
            tier[s] = lowest


def _pods(graph: _Graph, tier: Sequence[int], height: dict[int, int]) -> NDArray[np.int32]:
    """Pods: connected parts of the tiers below the height (step 6)."""
    out = np.full(graph.count, -1, np.int32)
    for s, pod in graph.parts(
        s for s in range(graph.count) if tier[s] < height.get(graph.part[s], 0)
    ).items():
        out[s] = pod
    return out
