"""The messages of NCCL's collectives: rings and double binary trees, channel by channel.

Steps are numbered over a whole communicator: both ends of a message post it in the same step, so
ranks that run the steps in order never block each other. Channels run concurrently. Sources: NCCL's
``src/graph/trees.cc``, ``src/graph/connect.cc``, ``src/enqueue.cc`` and ``src/device`` of 2.2x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tailback.arrays import Ints
from tailback.errors import TraceError, nearest
from tailback.traffic.nccl.choice import Choice

RING_CHUNK: Final = {"simple": 2 << 20, "ll": 32 << 10, "ll128": 576_000}
"""Chunk size of a channel in a ring of AllReduce, AllGather, ReduceScatter, bytes."""
PIPE_CHUNK: Final = {"simple": 512 << 10, "ll": 32 << 10, "ll128": 576_000}
"""Chunk size in trees and in the chains of Broadcast and Reduce, bytes."""
TREE_SHRINK: Final = ((8, 131_072), (4, 65_536), (1, 32_768))
"""A tree halves its chunks while there are fewer than depth times the first for each channel, down
to the second (``enqueue.cc`` up to 2.18)."""
CONCURRENT_PEERS: Final = 8
"""Rounds of sends and receives that one batch of work runs concurrently
(NCCL_MAX_DEV_WORK_P2P_PER_BATCH)."""


class Messages(NamedTuple):
    """The K messages of one collective in the order of their steps.

    Attributes:
        step: Step in which both ends post it, shape (K,).
        src: Member that sends, shape (K,).
        dst: Member that receives, shape (K,).
        size: Bytes on the wire, shape (K,).
    """

    step: Ints
    src: Ints
    dst: Ints
    size: Ints


CALLS: Final = (
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "AllToAll",
    "Gather",
    "Scatter",
    "SendRecv",
    "Exchange",
)
"""The collectives that can be expanded."""
POINT_TO_POINT: Final = ("AllToAll", "Gather", "Scatter", "SendRecv", "Exchange")
"""The calls that are groups of sends and receives, without algorithm or channels."""


def call_name(call: str) -> str:
    """NCCL's name of a call; an exchange is sends and receives in one group."""
    return "ncclSendRecv" if call == "Exchange" else f"nccl{call}"


def bus_factor(call: str, n_ranks: int) -> float:
    """Bytes over the bus of a rank for each byte of the buffer, as nccl-tests defines it.

    Args:
        call: One of :data:`CALLS`.
        n_ranks: Ranks of the communicator.
    """
    share = (n_ranks - 1) / n_ranks
    if call == "AllReduce":
        return 2 * share
    return share if call in ("AllGather", "ReduceScatter", "AllToAll") else 1.0


def messages(
    call: str,
    hosts: Sequence[int],
    nbytes: int,
    choice: Choice,
    *,
    root: int = 0,
    peer: int = 0,
    counts: Ints | None = None,
    rings: Sequence[Sequence[int]] = (),
    trees: Sequence[Sequence[int]] = (),
) -> Messages:
    """The messages of one collective.

    Args:
        call: One of :data:`CALLS`.
        hosts: Host of each member, n of them.
        nbytes: Bytes of the whole buffer: for AllGather the output; for ReduceScatter the input;
            for AllToAll what a member sends, including its own share; for Gather and Scatter the
            root's buffer; for Exchange without ``counts`` what each member sends the next.
        choice: How it is run. Only AllReduce uses trees; other calls use rings.
        root: The root member; for SendRecv the sender.
        peer: The receiver of SendRecv.
        counts: For AllToAll and Exchange the bytes from each member to each, shape (n, n), where
            they differ.
        rings: Order of the members in each channel's ring, from NCCL's log; if empty, rings that
            enter and leave each host through one rank.
        trees: Parent of each member in each channel's tree, -1 of the root, by what the ranks sent;
            if empty, NCCL's double binary trees over hosts.

    Returns:
        The messages; none among fewer than two members or for no bytes.

    Raises:
        TraceError: The call is not known, or a number does not fit the communicator.
    """
    n = len(hosts)
    if call not in CALLS:
        raise TraceError(f"unknown collective nccl{call}", remedy=nearest(call, CALLS))
    if not 0 <= root < n or not 0 <= peer < n or nbytes < 0:
        raise TraceError(f"nccl{call}: {nbytes} B, root {root} among {n} ranks")
    if n < 2:
        return _join_parts([])
    if call in POINT_TO_POINT:
        return _join_parts(_point_to_point(call, n, nbytes, root, peer, counts))
    orders = [np.array(order, np.int64) for order in rings]
    if sorted(map(tuple, map(sorted, rings))) != [tuple(range(n))] * len(rings):
        raise TraceError(f"nccl{call}: a ring of other members than the {n} of its communicator")
    parts = []
    for channel in range(choice.channels):
        share = _share(nbytes if call in _WHOLE else nbytes // n, choice.channels, channel)
        if choice.algorithm == "tree" and call == "AllReduce":
            recorded = trees[channel % len(trees)] if trees else ()
            parent = np.array(recorded or tree_parents(hosts, channel, choice.channels), np.int64)
            parts += _tree(parent, share, nbytes, choice)
            continue
        order = orders[channel % len(orders)] if orders else ring_order(hosts, channel)
        if call in ("Broadcast", "Reduce"):
            parts += _chain(call, order, share, root, choice)
        else:
            parts += _ring(call, order, share, choice)
    packed = _join_parts(parts)
    return packed._replace(size=_on_the_wire(packed.size, choice.protocol))


def ring_order(hosts: Sequence[int], channel: int) -> Ints:
    """Members in the order of a channel's ring.

    The ring leaves a host from the same local rank at which it enters the next, so it stays on one
    rail between hosts; with an odd number of hosts its last hop changes rails.
    """
    order: list[int] = []
    for number, group in enumerate(_groups(hosts)):
        first = channel % len(group)
        turned = group[first:] + group[:first]
        order += turned[::-1] if number % 2 else turned
    return np.array(order, np.int64)


def tree_parents(hosts: Sequence[int], channel: int, channels: int) -> Ints:
    """Parent of each member in a channel's tree, -1 of the root.

    Half of the channels use the first of the double binary trees over the hosts, half the second.
    The ranks of a host form a chain behind the one that is connected to other hosts.
    """
    groups = _groups(hosts)
    n = len(groups)
    second = channel >= (channels + 1) // 2
    parent = np.full(len(hosts), -1, np.int64)
    heads = [group[channel % len(group)] for group in groups]
    for number, group in enumerate(groups):
        up = _host_parent(n, number, second=second)
        parent[heads[number]] = heads[up] if up >= 0 else -1
        first = channel % len(group)
        chain = group[first:] + group[:first]
        parent[chain[1:]] = chain[:-1]
    return parent


_WHOLE: Final = ("AllReduce", "Broadcast", "Reduce")


def _host_parent(n: int, host: int, *, second: bool) -> int:
    """Parent of a host in one of the double binary trees, -1 of the root."""
    if not second:
        return _binary_parent(n, host)
    if n % 2:
        up = _binary_parent(n, (host - 1) % n)
        return -1 if up < 0 else (up + 1) % n
    up = _binary_parent(n, n - 1 - host)
    return -1 if up < 0 else n - 1 - up


def _binary_parent(n: int, host: int) -> int:
    """Parent in the tree that alternates leaves and inner nodes; 0 is the root."""
    if host == 0:
        return -1
    bit = host & -host
    up = (host ^ bit) | (bit << 1)
    return up if up < n else host ^ bit


def _groups(hosts: Sequence[int]) -> list[list[int]]:
    """Members of each host, hosts in the order in which they first occur."""
    out: dict[int, list[int]] = {}
    for member, host in enumerate(hosts):
        out.setdefault(host, []).append(member)
    return list(out.values())


def _share(total: int, parts: int, number: int) -> int:
    """Bytes of one of ``parts`` even parts; they differ by at most a byte."""
    return total // parts + (number < total % parts)


def _shares(total: int, parts: int) -> Ints:
    return total // parts + (np.arange(parts) < total % parts)


_Part = tuple[Ints, Ints, Ints, Ints]


def _ring(call: str, order: Ints, share: int, choice: Choice) -> list[_Part]:
    """Loops of a ring: each passes one chunk of every member's share around once or twice."""
    n = len(order)
    place = np.arange(n)
    reduces, gathers = call != "AllGather", call != "ReduceScatter"
    most = RING_CHUNK[choice.protocol] * (n if call == "AllReduce" else 1)
    rounds = (n - 1) * (reduces + gathers)
    out: list[_Part] = []
    for loop in range(-(-share // most)):
        amount = min(most, share - loop * most)
        piece = _shares(amount, n) if call == "AllReduce" else np.full(n, amount)
        for step in range(rounds):
            moved = piece[(place - step + (step >= n - 1 and reduces)) % n]
            at = np.full(n, loop * rounds + step)
            out.append((at, order, order[(place + 1) % n], moved))
    return out


def _chain(call: str, order: Ints, share: int, root: int, choice: Choice) -> list[_Part]:
    """Pipelined chunks along the ring, from the root (Broadcast) or to it (Reduce)."""
    n = len(order)
    first = int(np.flatnonzero(order == root)[0]) + (call == "Reduce")
    line = np.roll(order, -first)
    size = _chunks(share, PIPE_CHUNK[choice.protocol])
    chunk, hop = np.divmod(np.arange(len(size) * (n - 1)), n - 1)
    return [(chunk + hop, line[hop], line[hop + 1], size[chunk])]


def _tree(parent: Ints, share: int, nbytes: int, choice: Choice) -> list[_Part]:
    """Chunks that are reduced up a tree and broadcast down it."""
    depth = _depths(parent)
    height = np.zeros(len(parent), np.int64)
    for member in np.argsort(-depth).tolist():
        if parent[member] >= 0:
            height[parent[member]] = max(height[parent[member]], height[member] + 1)
    limit = PIPE_CHUNK[choice.protocol]
    if choice.protocol == "simple":
        for times, least in TREE_SHRINK:
            while nbytes // (choice.channels * limit) < times * depth.max() and limit > least:
                limit //= 2
    size = _chunks(share, limit)
    child = np.flatnonzero(parent >= 0)
    chunk, edge = np.divmod(np.arange(len(size) * len(child)), len(child))
    low, high = child[edge], parent[child[edge]]
    turn = height.max() + (len(size) if choice.in_turn else 0)
    return [
        (chunk + height[low], low, high, size[chunk]),
        (chunk + turn + depth[high], high, low, size[chunk]),
    ]


def _depths(parent: Ints) -> Ints:
    """Hops from each member to the root."""
    depth = np.zeros(len(parent), np.int64)
    at = parent.copy()
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parent[at], -1)
    return depth


def _chunks(total: int, most: int) -> Ints:
    full, remainder = divmod(total, most)
    return np.array([most] * full + ([remainder] if remainder else []), np.int64)


def _point_to_point(
    call: str, n: int, nbytes: int, root: int, peer: int, counts: Ints | None
) -> list[_Part]:
    """Sends and receives of a group: in round k the partner is k members ahead."""
    if call == "SendRecv":
        ones = np.ones(1, np.int64)
        return [(0 * ones, root * ones, peer * ones, nbytes * ones)] if root != peer else []
    rounds = np.arange(1, n)
    if call == "Exchange" and counts is None:
        ends = np.arange(n)
        return [(0 * ends, ends, (ends + 1) % n, np.full(n, nbytes))]
    if call in ("AllToAll", "Exchange"):
        table = counts if counts is not None else np.broadcast_to(_shares(nbytes, n), (n, n))
        step, src = np.divmod(np.arange((n - 1) * n), n)
        dst = (src + step + 1) % n
        return [(step // CONCURRENT_PEERS, src, dst, table[src, dst])]
    others = (root + rounds) % n
    centre = np.full(n - 1, root)
    size = _shares(nbytes, n)[others]
    src, dst = (others, centre) if call == "Gather" else (centre, others)
    return [((rounds - 1) // CONCURRENT_PEERS, src, dst, size)]


def _join_parts(parts: list[_Part]) -> Messages:
    """All parts by step, without empty messages."""
    none = np.zeros(0, np.int64)
    columns = (
        [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [none] * 4
    )
    step, src, dst, size = (column.astype(np.int64) for column in columns)
    kept = np.flatnonzero(size > 0)
    kept = kept[np.argsort(step[kept], kind="stable")]
    return Messages(step[kept], src[kept], dst[kept], size[kept])


def _on_the_wire(size: Ints, protocol: str) -> Ints:
    """Bytes including the flags of the protocol."""
    if protocol == "ll":
        return 2 * size
    return -(-size * 16 // 15) if protocol == "ll128" else size
