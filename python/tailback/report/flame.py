"""The frames of a back-pressure flame graph, and methods to reduce their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

Kind = Literal["all", "link", "line", "rank"]


@dataclass
class Frame:
    """One box of the flame graph.

    Attributes:
        name: Links, a line of the program or ranks.
        kind: ``all``, ``link``, ``line`` or ``rank``.
        value: Stall time (ps) or congested packets of everything in it.
        children: Frames that wait on it, heaviest first.
        link: A link of it, -1 for lines and ranks.
        tiers: Of links, what they join: ``leaf → aggregation``.
        change: Of two runs in one graph, how much more it is in the second.
        phase: Of a line, the phase of its messages where it has only one.
        rank: Its rank, -1 if it is not that of one rank.
        node: Of a rank, the node it ran on, -1 where unknown.
        waiting: Of the box of ranks that have none of their own: the value of each rank.
        nodes: The node of every rank, where ``waiting`` is not empty.
    """

    name: str
    kind: Kind
    value: float = 0.0
    children: list[Frame] = field(default_factory=list)
    link: int = -1
    tiers: str = ""
    change: float = 0.0
    phase: str = ""
    rank: int = -1
    node: int = -1
    waiting: dict[int, float] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)

    def add(self, name: str, kind: Kind, link: int = -1, tiers: str = "") -> Frame:
        """Return the child of that name, created if it is new."""
        for child in self.children:
            if child.name == name and child.kind == kind:
                return child
        self.children.append(Frame(name, kind, link=link, tiers=tiers))
        return self.children[-1]


T = TypeVar("T")


def _only_value(values: set[T], otherwise: T) -> T:
    """The only value, or ``otherwise`` where there are several."""
    return next(iter(values)) if len(values) == 1 else otherwise


RANKS_OF_LINE = 40
"""Number of ranks of a line with a box each. The others share a box that names them."""

REST = "other ranks"
"""Name of the shared box of the other ranks. :func:`title` adds their numbers."""

_RANGES = 12


def title(frame: Frame) -> str:
    """The name of a box as it is shown."""
    if frame.name != REST or not frame.waiting:
        return frame.name
    plural = "rank" if len(frame.waiting) == 1 else "ranks"
    return f"{len(frame.waiting)} more {plural}: {_ranges(frame.waiting)}"


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as text: ``0–3, 7``; cut after a dozen ranges."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"{a}" if a == b else f"{a}–{b}" for a, b in ranges[:_RANGES]]
    return ", ".join([*shown, "…"] if len(ranges) > _RANGES else shown)


def add_rest(frame: Frame, waiting: Mapping[int, float], nodes: Mapping[int, int]) -> None:
    """Add ranks to the shared box of a line.

    Args:
        frame: The line.
        waiting: Stall (ps) of each of the ranks.
        nodes: The node of each of them.
    """
    other_ranks = frame.add(REST, "rank")
    other_ranks.value += sum(waiting.values())
    for rank, value in waiting.items():
        other_ranks.waiting[rank] = other_ranks.waiting.get(rank, 0.0) + value
    other_ranks.nodes |= nodes


def _join_ranks(members: Sequence[Frame]) -> list[Frame]:
    """Boxes of the ranks of several places: the sums of each rank, the heaviest by name."""
    value, nodes = _sum_waiting(members)
    order = sorted(value, key=lambda rank: (-value[rank], rank))
    line = Frame("", "line")
    for rank in order[:RANKS_OF_LINE]:
        rank_box = Frame(f"rank {rank}", "rank", value[rank], rank=rank, node=nodes[rank])
        line.children.append(rank_box)
    if other_ranks := order[RANKS_OF_LINE:]:
        add_rest(
            line,
            {rank: value[rank] for rank in other_ranks},
            {rank: nodes[rank] for rank in other_ranks},
        )
    return line.children


def _sum_waiting(frames: Sequence[Frame]) -> tuple[dict[int, float], dict[int, int]]:
    """The value and the node of each rank in several boxes."""
    value: dict[int, float] = {}
    nodes: dict[int, int] = {}
    for frame in frames:
        if frame.rank < 0:
            rank_values, at = frame.waiting, frame.nodes
        else:
            rank_values, at = {frame.rank: frame.value}, {frame.rank: frame.node}
        for rank, part in rank_values.items():
            value[rank] = value.get(rank, 0.0) + part
        nodes |= at
    return value, nodes


def sort_frames(frame: Frame) -> None:
    """Sort the children of each frame: heaviest first, unnamed ranks last."""
    frame.children.sort(key=lambda c: (c.name == REST, -c.value, c.name))
    for child in frame.children:
        sort_frames(child)


def by_kind(frame: Frame) -> Frame:
    """The same stall with places between the same tiers combined: few frames, same sums."""
    out = replace(frame, children=[])
    groups: dict[tuple[str, Kind], list[Frame]] = {}
    for child in frame.children:
        name = child.tiers if child.kind == "link" else child.name
        if child.kind != "rank":
            groups.setdefault((name, child.kind), []).append(child)
    out.children += _join_ranks([child for child in frame.children if child.kind == "rank"])
    for (name, kind), members in groups.items():
        joined = Frame(name, kind, sum(child.value for child in members))
        joined.phase = _only_value({child.phase for child in members}, "")
        joined.change = sum(child.change for child in members)
        joined.children = [grandchild for child in members for grandchild in child.children]
        if kind == "link":
            places = len({child.name for child in members})
            joined.tiers = name
            joined.name = f"{name}: {places} places" if places > 1 else members[0].name
            joined.link = max(members, key=lambda child: child.value).link
        out.children.append(by_kind(joined))
    sort_frames(out)
    return out


def prune_frames(frame: Frame, most: int, least: float) -> Frame:
    """A copy with at most ``most`` children a frame, none below ``least``.

    The others are summed up.

    Args:
        frame: The top.
        most: Children kept a frame.
        least: Smallest value kept, in the unit of the frame.
    """
    kept = [child for child in frame.children[:most] if child.value >= least]
    remaining = frame.children[len(kept) :]
    out = replace(frame, children=[prune_frames(child, most, least) for child in kept])
    value = sum(child.value for child in remaining)
    if remaining and value >= least:
        words = {"link": "places", "line": "lines", "rank": "", "all": ""}
        mixed = len({child.kind for child in remaining}) > 1
        name = f"{len(remaining)} more {'' if mixed else words[remaining[0].kind]}".strip()
        change = sum(child.change for child in remaining)
        left = Frame(name, remaining[0].kind, value, change=change)
        if remaining[0].kind == "rank" and not mixed:
            left.name = REST
            left.waiting, left.nodes = _sum_waiting(remaining)
        out.children.append(left)
    return out
