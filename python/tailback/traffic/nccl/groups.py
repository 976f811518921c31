"""The dimensions of parallelism that a training run's communicators belong to.

Frameworks number ranks by dimensions: tensor-parallel groups are neighbours, then context- or
data-parallel groups, and pipeline stages are farthest apart (Narayanan et al. 2021; Shoeybi et al.
2019). So the distance of a group's ranks orders the dimensions, and what its ranks call tells the
kind: pipelines send and receive, experts exchange with all, the others sum or gather. Names that a
framework gives its groups come first.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from tailback.traffic.nccl.rank_calls import RankCall

DIMENSIONS: Final = ("tensor", "context", "expert", "data", "pipeline")
"""Dimensions, the usual order of their distances between ranks first."""

_NAMED: Final = {
    "tensor": re.compile(r"tensor|(?<![a-z])m?tp(?![a-z])"),
    "context": re.compile(r"context|(?<![a-z])cp(?![a-z])"),
    "pipeline": re.compile(r"pipeline|(?<![a-z])pp(?![a-z])"),
    "expert": re.compile(r"expert|(?<![a-z])ep(?![a-z])|moe"),
    "data": re.compile(r"data[ _-]*par|(?<![a-z])dp(?![a-z])|fsdp|ddp|replicate|shard"),
}
"""How names of groups state their dimension; a name may hold several, as DP with CP."""

_COMBINED: Final = re.compile(r"(?<![a-z])(?:tp|dp|cp|ep|pp)(?:[_ -]+(?:tp|dp|cp|ep|pp))+")


@dataclass
class _Group:
    """A communicator: its ranks, its name, and how often its ranks call what."""

    ranks: set[int] = field(default_factory=set)
    name: str = ""
    calls: Counter[str] = field(default_factory=Counter)

    @property
    def stride(self) -> int:
        """Distance of neighbours in it; 0 if it is not the same for all."""
        ranks = sorted(self.ranks)
        steps = {b - a for a, b in pairwise(ranks)}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def stated(self) -> str:
        """Dimension that its name states; empty if it states none or several."""
        text = self.name.lower()
        if _COMBINED.search(text):
            return ""
        stated = [kind for kind, pattern in _NAMED.items() if pattern.search(text)]
        # Expert groups are often named with the dimension within: "expert data parallel".
        return stated[0] if len(stated) == 1 else ""

    @property
    def main_call(self) -> str:
        return self.calls.most_common(1)[0][0]


@dataclass(frozen=True)
class Parallelism:
    """A dimension of parallelism.

    Attributes:
        dimension: One of :data:`DIMENSIONS`.
        size: Ranks in each of its groups.
        groups: Number of its groups.
        stride: Distance of neighbours in a group, in ranks; 0 if it varies.
    """

    dimension: str
    size: int
    groups: int
    stride: int

    def __str__(self) -> str:
        return f"{self.dimension} parallel {self.size}"


Calls = list[list[RankCall]]


def with_dimensions(
    calls: Sequence[Sequence[RankCall]], hosts: Sequence[str]
) -> tuple[Calls, list[Parallelism]]:
    """Calls with their communicators named for the dimension of parallelism.

    Args:
        calls: Calls of each rank.
        hosts: Host of each rank; empty names are unknown.

    Returns:
        The calls, and the dimensions by size of their distances. With a single communicator, or
        where nothing tells the dimension, names stay.
    """
    groups = _groups(calls)
    families: dict[tuple[int, int], list[Hashable]] = defaultdict(list)
    for key, group in groups.items():
        if len(group.ranks) > 1:
            families[len(group.ranks), group.stride].append(key)
    if len(families) < 2:
        return [list(each) for each in calls], []
    n_ranks = sum(bool(each) for each in calls)
    by_family = {
        family: [groups[key] for key in keys]
        for family, keys in families.items()
        # A communicator of all ranks serves start-up and checks unless it is the only one. The
        # groups of a dimension divide the ranks between them; those of other purposes do not.
        if family[0] < n_ranks
        and family[0] * len(keys) == len(set().union(*(groups[k].ranks for k in keys))) == n_ranks
    }
    kinds = _kinds(by_family, hosts)
    name_of = {
        key: f"{kind}-parallel groups" for family, kind in kinds.items() for key in families[family]
    }
    dimensions = [
        Parallelism(kind, size, len(families[size, stride]), stride)
        for (size, stride), kind in kinds.items()
    ]
    renamed = [
        [replace(c, communicator=name_of.get(_group_of(c), c.communicator)) for c in each]
        for each in calls
    ]
    return renamed, sorted(dimensions, key=lambda each: (each.stride, each.size))


def describe(dimensions: Sequence[Parallelism]) -> str:
    """The dimensions as a clause, like ``"tensor parallel 8, data parallel 4"``."""
    return ", ".join(map(str, dimensions))


def _groups(calls: Sequence[Sequence[RankCall]]) -> dict[Hashable, _Group]:
    out: dict[Hashable, _Group] = defaultdict(_Group)
    for rank_calls in calls:
        for call in rank_calls:
            group = out[_group_of(call)]
            group.ranks.update(call.members)
            group.name = call.communicator
            group.calls[call.call] += 1
    return out


def _group_of(call: RankCall) -> Hashable:
    """Identity of a communicator: name and, where the trace states it, its members."""
    key = call.key
    if isinstance(key, tuple) and len(key) > 1 and isinstance(key[1], tuple):
        return key[:2]
    return key[0] if isinstance(key, tuple) else key


def _kinds(
    families: dict[tuple[int, int], list[_Group]], hosts: Sequence[str]
) -> dict[tuple[int, int], str]:
    """Dimension of each family of groups of one size and distance."""
    out: dict[tuple[int, int], str] = {}
    for family, groups in families.items():
        stated = {group.stated for group in groups}
        if len(stated) == 1 and "" not in stated:
            out[family] = stated.pop()
    calls = {
        family: sum((group.calls for group in groups), Counter[str]())
        for family, groups in families.items()
        if family not in out
    }
    sends = sorted(
        (family for family, counts in calls.items() if set(counts) == {"SendRecv"}),
        key=lambda family: family[1],
    )
    for family in sends:
        # Ring attention passes blocks on between near ranks; stages are the farthest apart.
        is_last = family == sends[-1] and "pipeline" not in out.values()
        out[family] = "pipeline" if is_last else "context"
    for family, counts in calls.items():
        if family not in out and counts["AllToAll"] * 2 > counts.total():
            out[family] = "expert"
    summing = sorted((f for f in calls if f not in out and f[1]), key=lambda family: family[1])
    taken = set(out.values())
    if summing and "tensor" not in taken and _is_tensor(families[summing[0]], hosts, calls):
        out[summing.pop(0)] = "tensor"
    if summing and "data" not in taken:
        out[summing.pop()] = "data"
    if summing and "context" not in taken:
        out[summing.pop()] = "context"
    return out


def _is_tensor(
    groups: Sequence[_Group], hosts: Sequence[str], calls: dict[tuple[int, int], Counter[str]]
) -> bool:
    """Whether groups are neighbours within a host that call most often of all."""
    if any(group.stride != 1 for group in groups):
        return False
    within = all(len({hosts[rank] for rank in group.ranks}) == 1 for group in groups)
    most = max(counts.total() for counts in calls.values())
    mine = sum((group.calls for group in groups), Counter[str]()).total()
    return (within and all(hosts)) or mine == most
