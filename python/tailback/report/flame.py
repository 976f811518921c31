"""The frames of a back-pressure flame graph, and methods to reduce their number."""

from __future__ import annotations

import re
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
        node: Of a rank, the node it ran on, -1 where unknown.
    """

    name: str
    kind: Kind
    value: float = 0.0
    children: list[Frame] = field(default_factory=list)
    link: int = -1
    tiers: str = ""
    change: float = 0.0
    phase: str = ""
    node: int = -1

    def add(self, name: str, kind: Kind, link: int = -1, tiers: str = "") -> Frame:
        """Return the child of that name, created if it is new."""
        for child in self.children:
            if child.name == name and child.kind == kind:
                return child
        self.children.append(Frame(name, kind, link=link, tiers=tiers))
        return self.children[-1]


T = TypeVar("T")


def _only(values: set[T], otherwise: T) -> T:
    """The only value, or ``otherwise`` where there are several."""
    return next(iter(values)) if len(values) == 1 else otherwise


_REST = re.compile(r"\d+ more ranks|other ranks")


def sort_frames(frame: Frame) -> None:
    """Sort the children of each frame: heaviest first, unnamed ranks last."""
    frame.children.sort(key=lambda c: (bool(_REST.fullmatch(c.name)), -c.value, c.name))
    for child in frame.children:
        sort_frames(child)


def by_kind(frame: Frame) -> Frame:
    """The same stall with places between the same tiers combined: few frames, same sums."""
    out = replace(frame, children=[])
    groups: dict[tuple[str, Kind], list[Frame]] = {}
    for child in frame.children:
        name = child.tiers if child.kind == "link" else _REST.sub("other ranks", child.name)
        groups.setdefault((name, child.kind), []).append(child)
    for (name, kind), members in groups.items():
        joined = Frame(name, kind, sum(child.value for child in members))
        joined.phase = _only({child.phase for child in members}, "")
        joined.node = _only({child.node for child in members}, -1)
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
    """A copy with at most ``most`` children a frame, none below ``least``; the rest is summed up.

    Args:
        frame: The top.
        most: Children kept a frame.
        least: Smallest value kept, in the unit of the frame.
    """
    kept = [child for child in frame.children[:most] if child.value >= least]
    rest = frame.children[len(kept) :]
    out = replace(frame, children=[prune_frames(child, most, least) for child in kept])
    value = sum(child.value for child in rest)
    if rest and value >= least:
        words = {"link": "places", "line": "lines", "rank": "", "all": ""}
        mixed = len({child.kind for child in rest}) > 1
        what = f"{len(rest)} more {'' if mixed else words[rest[0].kind]}".strip()
        name = "other ranks" if rest[0].kind == "rank" and not mixed else what
        change = sum(child.change for child in rest)
        out.children.append(Frame(name, rest[0].kind, value, change=change))
    return out
