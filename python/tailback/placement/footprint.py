"""The hosts of a job and the ranks on each, which every candidate placement must keep.

The batch system assigns the hosts of a job. A placement on other or more hosts would be another
job, so candidates use the same hosts unless a user allows others, and always keep the number of
hosts and the ranks per host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, option
from tailback.fabric.model import Fabric
from tailback.placement.problem import PlacementProblem


@dataclass(frozen=True)
class Footprint:
    """Hosts of a placement, ranks on each, and the hosts that candidates may use.

    Attributes:
        ranks: Ranks of each host in use: number of the host → ranks, in allocation order.
        allowed: Hosts that candidates may use, in allocation order.
    """

    ranks: dict[int, int]
    allowed: tuple[int, ...]

    @property
    def widened(self) -> bool:
        """Whether candidates may use hosts on which the job does not run."""
        return not set(self.allowed) <= set(self.ranks)

    def check(self, fabric: Fabric, name: str, node: NDArray[np.integer]) -> None:
        """Raise PlacementError unless a candidate keeps the footprint.

        Args:
            fabric: The fabric.
            name: Name of the candidate.
            node: Node of each rank, shape (R,).
        """
        nodes = np.asarray(node).astype(np.int64)
        if len(nodes) and not 0 <= nodes.min() <= nodes.max() < fabric.n_nodes:
            raise PlacementError(
                f"placement {name!r} names a node beyond the {fabric.n_nodes} of the fabric",
                remedy="use the fabric the placement was made for",
            )
        ranks = Counter(fabric.node_host.astype(np.int64)[nodes].tolist())
        if ranks == self.ranks:
            return  # The current hosts are always allowed.
        outside = sorted(set(ranks) - set(self.allowed))
        if outside:
            raise PlacementError(
                f"placement {name!r} puts ranks on host {fabric.host_name[outside[0]]!r}, which "
                "the job does not run on",
                remedy="name the hosts that candidates may use: "
                f"{option('allow_hosts', 'node[001-016]')}",
            )
        if sorted(ranks.values()) != sorted(self.ranks.values()):
            raise PlacementError(
                f"placement {name!r} puts {_spread(ranks.values())}; the job runs with "
                f"{_spread(self.ranks.values())}",
                remedy="keep the number of hosts and the ranks on each host",
            )


def _spread(ranks: Iterable[int]) -> str:
    counts = sorted(ranks)
    each = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]}–{counts[-1]}"
    return f"{sum(counts)} ranks on {len(counts)} hosts, {each} on each"


def footprint(
    problem: PlacementProblem, node: NDArray[np.integer], allowed: list[int] | None = None
) -> Footprint:
    """The footprint of a placement.

    Args:
        problem: The problem it solves.
        node: Node of each rank, shape (R,).
        allowed: Hosts that candidates may use; None for those in use.

    Raises:
        PlacementError: Fewer hosts are allowed than the job runs on.
    """
    host = problem.slot_host[slots_in_use(problem, node)]
    ranks = dict(Counter(host.tolist()))
    if allowed is not None and len(allowed) < len(ranks):
        raise PlacementError(
            f"allows {len(allowed)} hosts; the job runs on {len(ranks)}, and candidates keep "
            "that number",
            place=option("allow_hosts"),
            remedy="allow as many hosts or more, those of the job among them if they may stay",
        )
    return Footprint(ranks, tuple(ranks if allowed is None else allowed))


def slots_in_use(problem: PlacementProblem, node: NDArray[np.integer]) -> NDArray[np.int64]:
    """The slots that a placement takes, in allocation order, shape (R,)."""
    ranks = np.bincount(np.asarray(node).astype(np.int64), minlength=problem.slot_node.max() + 1)
    order = np.argsort(problem.slot_node, kind="stable")
    ordered = problem.slot_node[order]
    nth = np.empty(problem.n_slots, np.int64)
    nth[order] = np.arange(problem.n_slots) - np.searchsorted(ordered, ordered)
    return np.flatnonzero(nth < ranks[problem.slot_node])


def restrict_to_used(problem: PlacementProblem, node: NDArray[np.integer]) -> PlacementProblem:
    """The problem restricted to the slots in use, so that every placement keeps them."""
    slots = slots_in_use(problem, node)
    return replace(
        problem,
        slot_node=problem.slot_node[slots],
        slot_switch=problem.slot_switch[slots],
        slot_pod=problem.slot_pod[slots],
        slot_host=problem.slot_host[slots],
    )


def fewest_switches(
    fabric: Fabric, hosts: Iterable[int], count: int, congested: NDArray[np.bool_] | None = None
) -> list[int]:
    """``count`` of ``hosts`` under few leaf switches and in few pods, in their original order.

    Args:
        fabric: The fabric.
        hosts: Connected hosts to choose from, at least ``count``.
        count: Number of hosts to choose.
        congested: Leaf switches whose hosts are taken last, shape (S,).
    """
    listed = list(hosts)
    leaf = leaf_of_hosts(fabric, listed)
    hot = np.zeros(fabric.n_switches, bool) if congested is None else congested
    pod_of = fabric.switch_pod.astype(np.int64)
    size = Counter(leaf)
    in_pod: Counter[tuple[bool, int]] = Counter()
    for at in leaf:
        in_pod[bool(hot[at]), int(pod_of[at])] += 1
    chosen: set[int] = set()
    left = set(size)
    while len(chosen) < count:
        need = count - len(chosen)
        # The largest pod first. In it, the smallest leaf that holds all remaining hosts, or else
        # the largest leaf.
        best = min(
            left,
            key=lambda at: (
                bool(hot[at]),
                -in_pod[bool(hot[at]), int(pod_of[at])],
                int(pod_of[at]),
                (0, size[at]) if size[at] >= need else (1, -size[at]),
                at,
            ),
        )
        left.remove(best)
        under_leaf = [host for host, at in zip(listed, leaf, strict=True) if at == best]
        chosen.update(under_leaf[:need])
    return [host for host in listed if host in chosen]


def fewest_neighbours(
    fabric: Fabric,
    hosts: Iterable[int],
    count: int,
    neighbours: Mapping[int, int],
    *,
    spread: bool = False,
) -> list[int]:
    """``count`` of ``hosts`` under the leaf switches with the fewest hosts of other jobs.

    Args:
        fabric: The fabric.
        hosts: Connected hosts to choose from, at least ``count``.
        count: Number of hosts to choose.
        neighbours: Hosts of other jobs under each leaf.
        spread: Choose evenly from all leaves, and from those with few neighbours first.
    """
    listed = list(hosts)
    leaf = leaf_of_hosts(fabric, listed)
    size, turn = Counter(leaf), Counter[int]()
    order = list[tuple[int, ...]]()
    for place, at in enumerate(leaf):
        quiet = (neighbours.get(at, 0), -size[at], at, place)
        order.append((turn[at], *quiet) if spread else quiet)
        turn[at] += 1
    chosen = {place for *_, place in sorted(order)[:count]}
    return [host for place, host in enumerate(listed) if place in chosen]


def leaf_of_hosts(fabric: Fabric, hosts: Iterable[int]) -> list[int]:
    """Leaf switch of the first connected adapter of each host."""
    switch, nodes = fabric.node_switch, fabric.host_nodes()
    out = []
    for host in hosts:
        at = next((int(switch[node]) for node in nodes[host] if switch[node] >= 0), -1)
        if at < 0:
            raise PlacementError(
                f"host {fabric.host_name[host]!r} has no adapter that is connected to a switch",
                remedy="leave it out",
            )
        out.append(at)
    return out
