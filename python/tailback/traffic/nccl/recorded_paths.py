"""Rings and trees of NCCL by what ranks sent over the network.

Steps are recorded between hosts alone. Within a host, a ring goes from the member at which it
enters to that from which it leaves, and a tree is a chain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from tailback.traffic.nccl.rank_calls import RankCall
from tailback.traffic.nccl.recorded import NetworkStep

Paths = tuple[tuple[int, ...], ...]
"""Ring or tree of each channel."""

Sent = dict[Hashable, dict[tuple[int, int], int]]
"""When a member was first ready to send to another, ns, by their places in a communicator, for
each collective."""


def with_recorded_paths(
    calls: list[list[RankCall]],
    steps: Sequence[NetworkStep],
    members: Mapping[str, Sequence[int]],
    hosts: Sequence[str],
) -> list[list[RankCall]]:
    """Calls with the rings and trees that their network steps show, where these are complete.

    Args:
        calls: Calls of each rank.
        steps: Steps over the network, by their senders.
        members: World rank of each member of a communicator, by its name.
        hosts: Host of each world rank.
    """
    is_tree = {
        call.key: call.choice is not None and call.choice.algorithm == "tree"
        for rank_calls in calls
        for call in rank_calls
        if call.call not in ("SendRecv", "AllToAll")
    }
    sent: dict[tuple[str, bool], dict[int, Sent]] = defaultdict(lambda: defaultdict(dict))
    for step in steps:
        if step.key not in is_tree:
            continue
        comm = str(step.key[0])
        ready = sent[comm, is_tree[step.key]][step.channel].setdefault(step.key, {})
        pair = (step.src_rank, step.dst_rank)
        ready[pair] = min(ready.get(pair, step.ready_ns), step.ready_ns)
    paths_of: dict[tuple[str, bool], Paths] = {}
    for (comm, tree), channels in sent.items():
        paths_of[comm, tree] = _paths(
            [each for _, each in sorted(channels.items())], members[comm], hosts, tree=tree
        )

    def with_paths(call: RankCall) -> RankCall:
        if call.key not in is_tree or not isinstance(call.key, tuple):
            return call
        tree = is_tree[call.key]
        paths = paths_of.get((str(call.key[0]), tree), ())
        return replace(call, trees=paths) if tree else replace(call, rings=paths)

    return [[with_paths(call) for call in rank_calls] for rank_calls in calls]


def _paths(
    channels: Iterable[Sent], members: Sequence[int], hosts: Sequence[str], *, tree: bool
) -> Paths:
    """Ring or tree of each channel; none if one is not complete."""
    place = {rank: k for k, rank in enumerate(members)}
    of_member = [hosts[rank] for rank in members]
    paths = []
    for sent in channels:
        collectives = [
            {(place[src], place[dst]): at for (src, dst), at in ready.items()}
            for ready in sent.values()
        ]
        pairs = {pair for ready in collectives for pair in ready}
        after = dict(pairs)
        if tree:
            paths.append(tree_of_steps(collectives, of_member))
        else:
            paths.append(ring_of_steps(after, of_member) if len(after) == len(pairs) else ())
    return tuple(paths) if all(paths) else ()


def ring_of_steps(after: Mapping[int, int], hosts: Sequence[str]) -> tuple[int, ...]:
    """Members in the order of a ring; empty if the steps do not form one of all members.

    NCCL's rings enter each host once.

    Args:
        after: Member that each sent to over the network.
        hosts: Host of each member.
    """
    between = {src: dst for src, dst in after.items() if hosts[src] != hosts[dst]}
    following, entered = dict(after), set(between.values())
    for members in _by_host(hosts):
        entry = [member for member in members if member in entered]
        leave = [member for member in members if member in between]
        if len(entry) != 1 or len(leave) != 1 or (entry == leave) != (len(members) == 1):
            return ()
        if len(after) < len(hosts):
            inner = [member for member in members if member not in (*entry, *leave)]
            following.update(pairwise([*entry, *inner, *leave] if inner or entry != leave else []))
    ring = [0]
    while len(ring) < len(hosts) and (member := following.get(ring[-1], 0)) not in ring:
        ring.append(member)
    return tuple(ring) if len(ring) == len(hosts) and following.get(ring[-1]) == 0 else ()


def tree_of_steps(
    first: Sequence[Mapping[tuple[int, int], int]], hosts: Sequence[str]
) -> tuple[int, ...]:
    """Parent of each member in a tree, -1 of its root; empty if the steps do not form one.

    What goes up a tree is sent before what comes down, so the root is the member for which most
    pairs sent in that order. Clocks of hosts need not agree for that.

    Args:
        first: When each member was first ready to send to another, ns, for each collective.
        hosts: Host of each member.
    """
    n = len(hosts)
    earlier = Counter[tuple[int, int]]()
    for ready in first:
        for (src, dst), at in ready.items():
            earlier[src, dst] += at < ready.get((dst, src), at)
    edges = {(min(pair), max(pair)) for pair in earlier}
    edges |= _chains(edges, hosts)
    if len(edges) != n - 1:
        return ()
    rows, columns = zip(*edges, strict=True)
    graph = csr_array(([1] * len(edges), (rows, columns)), shape=(n, n))
    best: tuple[int, tuple[int, ...]] = (-1, ())
    for root in range(n):
        reached, before = breadth_first_order(graph, root, directed=False)
        if len(reached) < n:
            return ()
        parent = tuple(-1 if member == root else int(up) for member, up in enumerate(before))
        agree = sum(earlier[member, up] for member, up in enumerate(parent) if up >= 0)
        if agree > best[0]:
            best = agree, parent
    return best[1]


def _chains(edges: set[tuple[int, int]], hosts: Sequence[str]) -> set[tuple[int, int]]:
    """Edges within hosts that join members which the others leave apart."""
    part = list(range(len(hosts)))

    def join(end: int, other: int) -> bool:
        old, new = part[end], part[other]
        for member, number in enumerate(part):
            part[member] = new if number == old else number
        return old != new

    connected = {member for edge in edges for member in edge}
    for end, other in edges:
        join(end, other)
    joined = set()
    for members in _by_host(hosts):
        # NCCL connects one member of a host with others; the chain begins there.
        head = next((k for k, member in enumerate(members) if member in connected), 0)
        chain = members[head:] + members[:head]
        for end, other in pairwise(chain):
            if join(end, other):
                joined.add((min(end, other), max(end, other)))
    return joined


def _by_host(hosts: Sequence[str]) -> list[list[int]]:
    """Members of each host."""
    inside: dict[str, list[int]] = defaultdict(list)
    for member, host in enumerate(hosts):
        inside[host].append(member)
    return list(inside.values())
