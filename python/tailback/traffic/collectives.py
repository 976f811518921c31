"""The point-to-point messages that an MPI library sends for a collective.

A collective is expanded to the messages of the algorithm that a common MPI library would pick for
that size, because congestion depends on who sends to whom at the same time, not on the name of the
call. Two sources, named at each algorithm and threshold:

* **[tuned]** Open MPI's ``coll/tuned`` component, fixed decision rules of the 1.3 to 4.0 series
  (``coll_tuned_decision_fixed.c``); 4.1 refines the same set of algorithms by communicator size.
* **[TRG05]** Thakur, Rabenseifner, Gropp, *Optimization of Collective Communication Operations in
  MPICH*, Int. J. High Performance Computing Applications 19(1), 2005, sections 4.1 to 4.5.

Bytes of a call
---------------
``send_bytes`` and ``recv_bytes`` of :func:`schedule` are the arguments of the call at this rank,
count times size of the type, **not** multiplied by the number of ranks. That is what EZTrace 2.0
writes into OTF2's ``MpiCollectiveEnd`` (``sizeSent``, ``sizeReceived``), the same on the root and
off it. Totals of tracers that sum over the peers (Score-P) are first converted by
:func:`call_bytes`.

==========================  =====================================================================
call                        bytes that count
==========================  =====================================================================
Barrier                     none
Bcast                       the message: ``recv_bytes``, else ``send_bytes``
Reduce, Allreduce, scans    the vector: ``send_bytes``, else ``recv_bytes`` (``MPI_IN_PLACE``)
Gather, Allgather           one rank's block: ``send_bytes``, else ``recv_bytes``
Scatter                     one rank's block: ``recv_bytes``, else ``send_bytes``
Alltoall                    the block for one peer: ``send_bytes``, else ``recv_bytes``
Reduce_scatter              the whole vector: ``send_bytes``, else ``recv_bytes``
Reduce_scatter_block        one rank's block: ``recv_bytes``, else ``send_bytes`` / size
Gatherv                     own block ``send_bytes``; the root's total ``recv_bytes``
Scatterv                    the root's total ``send_bytes``; own block ``recv_bytes``
Allgatherv                  the total ``recv_bytes``, else ``send_bytes`` x size
Alltoallv, Alltoallw        own totals ``send_bytes`` and ``recv_bytes``
==========================  =====================================================================

For calls with a vector of counts, a trace keeps only totals: they are spread evenly over the ranks,
including the calling rank. The algorithm of these calls never depends on bytes, which may differ
between ranks, so the schedules of all ranks always match; the bytes of a receive may then differ
from those of its send, and readers that have the records of all ranks correct them. A message of
zero bytes is still sent (an envelope).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TraceError, nearest

ALLREDUCE_RING_BYTES = 10_000
"""[tuned] Allreduce: recursive doubling below, ring from here on."""
ELEMENT_BYTES = 8
"""[tuned] uses the ring only for more elements than ranks; traces keep only bytes."""
SUMMED_ELEMENT_BYTES = 4
"""Smallest usual element: distinguishes sums over all ranks from those of in-place calls."""
ALLTOALL_BRUCK_BYTES, ALLTOALL_BRUCK_RANKS = 200, 12
"""[tuned] Alltoall: Bruck for blocks below these bytes on more than these ranks."""
ALLTOALL_PAIRWISE_BYTES = 3_000
"""[tuned] Alltoall: all at once below, pairwise exchange from here on."""
ALLGATHER_RING_BYTES = 50_000
"""[tuned] Allgather, bytes of all blocks: logarithmic below, neighbour exchange or ring above."""
BCAST_SCATTER_BYTES, BCAST_SCATTER_RANKS = 12_288, 8
"""[TRG05] Bcast: binomial below either, scatter and allgather above."""
BCAST_RING_BYTES = 524_288
"""[TRG05] Bcast: the allgather is recursive doubling below (powers of two), ring above."""
GATHER_SYNC_BYTES, GATHER_SYNC_LARGE_BYTES = 6_000, 92_160
"""[tuned] Gather: above, the root asks for one rank's block at a time, in two segments."""
GATHER_SYNC_SEGMENT, GATHER_SYNC_LARGE_SEGMENT = 1_024, 32_768
"""[tuned] Gather: bytes of the first segment above either threshold."""
GATHER_BINOMIAL_RANKS = 60
"""[tuned] Gather: binomial on more ranks than this."""
GATHER_SMALL_BYTES, GATHER_SMALL_RANKS = 1_024, 10
"""[tuned] Gather: binomial also for smaller blocks on more than these ranks."""
SCATTER_SMALL_BYTES, SCATTER_SMALL_RANKS = 300, 10
"""[tuned] Scatter: binomial for smaller blocks on more than these ranks, linear otherwise."""
REDUCE_SCATTER_SMALL_BYTES, REDUCE_SCATTER_LARGE_BYTES = 12 * 1024, 256 * 1024
"""[tuned] Reduce_scatter: recursive halving up to the first, at powers of two the second."""
REDUCE_SCATTER_SLOPE, REDUCE_SCATTER_OFFSET = 0.0012, 8.0
"""[tuned] Reduce_scatter: halving also when ranks >= slope x bytes + offset."""


class CollectiveStep(NamedTuple):
    """Post all receives, post all sends, wait for all of them.

    Attributes:
        sends: (peer within the communicator, bytes) of each send, in the order they are posted.
        receives: (peer within the communicator, bytes) of each receive, in order.
    """

    sends: tuple[tuple[int, int], ...]
    receives: tuple[tuple[int, int], ...]


Algorithm = Callable[[int, int, int, int, int], list[CollectiveStep]]


def schedule(
    call: str, size: int, me: int, root: int, send_bytes: int, recv_bytes: int
) -> list[CollectiveStep]:
    """Messages that rank ``me`` of a communicator of ``size`` ranks posts for one collective.

    Args:
        call: MPI name, ``"MPI_Allreduce"``; the non-blocking name (``"MPI_Iallreduce"``) is taken
            for the blocking one.
        size: Ranks of the communicator.
        me: This rank within it.
        root: Root within it; ignored by calls without one.
        send_bytes: Bytes of the call, see the table of this module.
        recv_bytes: Bytes of the call, see the table of this module.

    Returns:
        The steps, one after the other; empty on a communicator of one rank.

    Raises:
        TraceError: The call is not known or a number does not fit the communicator.
    """
    return list(_cached(call, size, me, root, send_bytes, recv_bytes))


@lru_cache(maxsize=128)
def _cached(
    call: str, size: int, me: int, root: int, send_bytes: int, recv_bytes: int
) -> tuple[CollectiveStep, ...]:
    name = blocking_name(call)
    if name not in CALLS:
        raise TraceError(f"unknown collective {call!r}", remedy=nearest(call, CALLS))
    if not 0 <= me < size:
        raise TraceError(f"{call}: rank {me} of a communicator of {size} ranks")
    if name in ROOTED and not 0 <= root < size:
        raise TraceError(f"{call}: root {root} of a communicator of {size} ranks")
    if send_bytes < 0 or recv_bytes < 0:
        raise TraceError(f"{call}: negative size {min(send_bytes, recv_bytes)}")
    if size == 1:
        return ()
    return tuple(CALLS[name](size, me, root, send_bytes, recv_bytes))


def blocking_name(call: str) -> str:
    """``"MPI_Allreduce"`` for ``"MPI_Iallreduce"``; other names as they are."""
    if call.startswith("MPI_I") and (name := "MPI_" + call[5:].capitalize()) in CALLS:
        return name
    return call


def call_bytes(call: str, size: int, sent: int, received: int) -> tuple[int, int]:
    """Bytes of the call from a tracer that sums over the peers, as Score-P does.

    Such a tracer records what a rank would move if it exchanged with every other rank directly: the
    block, or the whole vector of a reduction, times the number of ranks; for a scan, times the
    number of ranks before or after. With ``MPI_IN_PLACE``, what a rank keeps is not counted. If all
    ranks are in place, no record says so: the sum is assumed to include all ranks if that gives
    whole elements of 4 bytes, else only the others. Values that may differ between ranks are
    dropped, so that all ranks choose the same algorithm.

    Args:
        call: MPI name.
        size: Ranks of the communicator.
        sent: ``sizeSent`` of OTF2's ``MpiCollectiveEnd``.
        received: ``sizeReceived``.

    Returns:
        ``(send_bytes, recv_bytes)`` for :func:`schedule`.
    """
    name = blocking_name(call)
    others = max(size - 1, 1)
    # A root in place counts nothing for itself, and only the others on the opposite side.
    if name in ("MPI_Bcast", "MPI_Scatter"):
        return 0, received if received else sent // others
    if name in ("MPI_Gather", "MPI_Reduce"):
        return sent if sent else received // others, 0
    if name in ("MPI_Allgather", "MPI_Alltoall", "MPI_Allreduce"):
        return 0, _part(received, size, others)
    if name == "MPI_Reduce_scatter_block":
        return _part(sent, size, others) * size, 0
    if name == "MPI_Scan":
        return _part(sent + received, size + 1, others), 0
    if name == "MPI_Exscan":
        return (sent + received) // others, 0
    return sent, received


def _part(total: int, *parts: int) -> int:
    """``total`` divided by the first of ``parts`` that gives whole elements."""
    for element in (SUMMED_ELEMENT_BYTES, 1):
        for number in parts:
            if total % (number * element) == 0:
                return total // number
    return total // parts[0]


def _is_power_of_two(size: int) -> bool:
    return size & (size - 1) == 0


def _exchange(to: int, sent: int, source: int, received: int) -> CollectiveStep:
    return CollectiveStep(((to, sent),), ((source, received),))


def _share(total: int, size: int, index: int) -> int:
    """Bytes of one of ``size`` even shares; the first ones are a byte larger."""
    return total // size + (index < total % size)


def _run(total: int, size: int, first: int, last: int) -> int:
    """Bytes of the shares ``first`` up to but not including ``last``."""
    return (last - first) * (total // size) + (min(last, total % size) - min(first, total % size))


# Trees ------------------------------------------------------------------------------------------


def _subtree(size: int, virtual: int) -> tuple[int, list[int]]:
    """Lowest set bit of a binomial tree's member (its span) and its children's distances.

    Virtual rank 0 is the root; its span is the power of two that covers the tree.
    """
    span = virtual & -virtual if virtual else 1 << (size - 1).bit_length()
    distances = []
    distance = 1
    while distance < span and virtual + distance < size:
        distances.append(distance)
        distance *= 2
    return span, distances


def _real(virtual: int, root: int, size: int) -> int:
    return (virtual + root) % size


def _tree_down(
    size: int, me: int, root: int, carry: Callable[[int, int], int]
) -> list[CollectiveStep]:
    """Binomial tree from the root; ``carry(first, last)`` is the bytes for those virtual ranks."""
    virtual = (me - root) % size
    span, distances = _subtree(size, virtual)
    steps = []
    if virtual:
        last = min(virtual + span, size)
        steps.append(
            CollectiveStep((), ((_real(virtual - span, root, size), carry(virtual, last)),))
        )
    sends = tuple(
        (_real(child, root, size), carry(child, min(child + distance, size)))
        for distance in reversed(distances)
        for child in (virtual + distance,)
    )
    if sends:
        steps.append(CollectiveStep(sends, ()))
    return steps


def binary_broadcast(size: int, me: int, root: int, total: int) -> list[CollectiveStep]:
    """Broadcast of ``total`` bytes by a binary tree, with ranks numbered level by level [tuned].

    Both halves of a level are below the same ranks, in the same order.

    Args:
        size: Number of ranks.
        me: This rank.
        root: The rank that has the message.
        total: Its bytes.
    """
    virtual = (me - root) % size
    width = 1 << ((virtual + 1).bit_length() - 1)
    steps = []
    if virtual:
        above = width // 2
        parent = virtual - (above if virtual < width - 1 + above else width)
        steps.append(CollectiveStep((), ((_real(parent, root, size), total),)))
    below = [child for child in (virtual + width, virtual + 2 * width) if child < size]
    if below:
        sends = tuple((_real(child, root, size), total) for child in below)
        steps.append(CollectiveStep(sends, ()))
    return steps


def _tree_up(
    size: int, me: int, root: int, carry: Callable[[int, int], int]
) -> list[CollectiveStep]:
    """Binomial tree to the root, nearest child first, each received before the next."""
    virtual = (me - root) % size
    span, distances = _subtree(size, virtual)
    steps = [
        CollectiveStep((), ((_real(child, root, size), carry(child, min(child + distance, size))),))
        for distance in distances
        for child in (virtual + distance,)
    ]
    if virtual:
        last = min(virtual + span, size)
        steps.append(
            CollectiveStep(((_real(virtual - span, root, size), carry(virtual, last)),), ())
        )
    return steps


# Calls ------------------------------------------------------------------------------------------


Ranks = TypeVar("Ranks", int, NDArray[np.int64])


def barrier_partners(size: int, me: Ranks) -> list[tuple[Ranks, Ranks]]:
    """Whom a rank, or each of an array of ranks, sends to and receives from in a barrier's steps.

    Recursive doubling at powers of two, else dissemination (Bruck) [tuned].
    """
    distances = [1 << k for k in range((size - 1).bit_length())]
    if _is_power_of_two(size):
        return [(me ^ distance, me ^ distance) for distance in distances]
    return [((me + distance) % size, (me - distance) % size) for distance in distances]


def _barrier(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """A message without content to each partner."""
    return [_exchange(to, 0, source, 0) for to, source in barrier_partners(size, me)]


def _bcast(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Binomial tree; large messages scatter, then allgather (van de Geijn) [TRG05 4.2]."""
    total = recv or send
    if total < BCAST_SCATTER_BYTES or size < BCAST_SCATTER_RANKS:
        return _tree_down(size, me, root, lambda first, last: total)
    virtual = (me - root) % size

    def carry(first: int, last: int) -> int:
        return _run(total, size, first, last)

    steps = _tree_down(size, me, root, carry)
    if total < BCAST_RING_BYTES and _is_power_of_two(size):
        distance = 1
        while distance < size:
            peer = virtual ^ distance
            mine, theirs = virtual & -distance, peer & -distance
            real = _real(peer, root, size)
            steps.append(
                _exchange(
                    real, carry(mine, mine + distance), real, carry(theirs, theirs + distance)
                )
            )
            distance *= 2
        return steps
    return steps + _ring(size, (me + 1) % size, (me - 1) % size, virtual, total)


def _ring(size: int, right: int, left: int, first: int, total: int) -> list[CollectiveStep]:
    """Pass even shares of ``total`` to the right; this rank starts with share ``first``."""
    return ring_of(size, right, left, first, lambda begin, end: _run(total, size, begin, end))


def ring_of(
    size: int, right: int, left: int, first: int, run: Callable[[int, int], int]
) -> list[CollectiveStep]:
    """Pass shares, as of :func:`reduce_scatter_of`, to the right; equal steps are one object."""
    exchanges: dict[tuple[int, int], CollectiveStep] = {}
    steps = []
    for k in range(size - 1):
        passed, next_ = (first - k) % size, (first - k - 1) % size
        pair = (run(passed, passed + 1), run(next_, next_ + 1))
        if pair not in exchanges:
            exchanges[pair] = _exchange(right, pair[0], left, pair[1])
        steps.append(exchanges[pair])
    return steps


def _reduce(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Binomial tree [TRG05 4.5], [tuned]."""
    total = send or recv
    return _tree_up(size, me, root, lambda first, last: total)


def _fold(size: int, me: int) -> tuple[int, int, int]:
    """Fold the surplus over a power of two into neighbours [TRG05 4.5].

    Of the first 2 x surplus ranks, each even one passes its data to the next odd one.

    Returns:
        ``(surplus, power, virtual rank)``; the virtual rank is -1 for ranks that do not take part.
    """
    power = 1 << (size.bit_length() - 1)
    surplus = size - power
    if me < 2 * surplus:
        return surplus, power, me // 2 if me % 2 else -1
    return surplus, power, me - surplus


def _unfold(virtual: int, surplus: int) -> int:
    return virtual * 2 + 1 if virtual < surplus else virtual + surplus


def _allreduce(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Recursive doubling; large: ring, or reduce and broadcast for short vectors [tuned]."""
    total = send or recv
    if total >= ALLREDUCE_RING_BYTES:
        if total // ELEMENT_BYTES > size:
            # Reduce-scatter around the ring ends with share me + 1 at this rank.
            right, left = (me + 1) % size, (me - 1) % size
            return _ring(size, right, left, me, total) + _ring(size, right, left, me + 1, total)
        return _reduce(size, me, 0, total, 0) + _bcast(size, me, 0, 0, total)
    surplus, power, virtual = _fold(size, me)
    if virtual < 0:
        return [CollectiveStep(((me + 1, total),), ()), CollectiveStep((), ((me + 1, total),))]
    steps = [CollectiveStep((), ((me - 1, total),))] if me < 2 * surplus else []
    distance = 1
    while distance < power:
        peer = _unfold(virtual ^ distance, surplus)
        steps.append(_exchange(peer, total, peer, total))
        distance *= 2
    if me < 2 * surplus:
        steps.append(CollectiveStep(((me - 1, total),), ()))
    return steps


def halving_allreduce(size: int, me: int, total: int) -> list[CollectiveStep]:
    """Allreduce of ``total`` bytes by recursive halving, then doubling [TRG05 4.5].

    Args:
        size: Number of ranks, a power of two.
        me: This rank.
        total: Bytes of the vector.
    """
    halving = []
    distance = size // 2
    while distance:
        mine, peer = me & -distance, me ^ distance
        theirs = peer & -distance
        sent = _run(total, size, theirs, theirs + distance)
        received = _run(total, size, mine, mine + distance)
        halving.append(_exchange(peer, sent, peer, received))
        distance //= 2
    # Doubling sends back what halving received.
    return halving + [
        CollectiveStep(
            ((step.sends[0][0], step.receives[0][1]),), ((step.sends[0][0], step.sends[0][1]),)
        )
        for step in reversed(halving)
    ]


def _gather(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Binomial on many ranks, linear on few, synchronised linear for large blocks [tuned]."""
    block = send or recv
    if block > GATHER_SYNC_BYTES:
        large = block > GATHER_SYNC_LARGE_BYTES
        first = GATHER_SYNC_LARGE_SEGMENT if large else GATHER_SYNC_SEGMENT
        if me != root:
            return [
                CollectiveStep((), ((root, 0),)),
                CollectiveStep(((root, first), (root, block - first)), ()),
            ]
        return [
            CollectiveStep(((peer, 0),), ((peer, first), (peer, block - first)))
            for peer in range(size)
            if peer != root
        ]
    if size > GATHER_BINOMIAL_RANKS or (size > GATHER_SMALL_RANKS and block < GATHER_SMALL_BYTES):
        return _tree_up(size, me, root, lambda first, last: (last - first) * block)
    return _gather_linear(size, me, root, block, [block] * size)


def _gather_linear(
    size: int, me: int, root: int, mine: int, blocks: list[int]
) -> list[CollectiveStep]:
    if me != root:
        return [CollectiveStep(((root, mine),), ())]
    return [CollectiveStep((), tuple((peer, blocks[peer]) for peer in range(size) if peer != root))]


def _gatherv(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Linear [tuned]."""
    return _gather_linear(size, me, root, send, [_share(recv, size, i) for i in range(size)])


def _scatter(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Binomial for small blocks on many ranks, linear otherwise [tuned]."""
    block = recv or send
    if size > SCATTER_SMALL_RANKS and block < SCATTER_SMALL_BYTES:
        return _tree_down(size, me, root, lambda first, last: (last - first) * block)
    return _scatter_linear(size, me, root, block, [block] * size)


def _scatter_linear(
    size: int, me: int, root: int, mine: int, blocks: list[int]
) -> list[CollectiveStep]:
    if me != root:
        return [CollectiveStep((), ((root, mine),))]
    return [CollectiveStep(tuple((peer, blocks[peer]) for peer in range(size) if peer != root), ())]


def _scatterv(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Linear [tuned]."""
    return _scatter_linear(size, me, root, recv, [_share(send, size, i) for i in range(size)])


def _allgather(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Recursive doubling or Bruck; large: neighbour exchange or ring [tuned], [TRG05 4.1]."""
    block = send or recv
    right, left = (me + 1) % size, (me - 1) % size
    steps = []
    if block * size >= ALLGATHER_RING_BYTES and size > 2:
        if size % 2:
            return _ring(size, right, left, me, block * size)
        # Even ranks start with the right neighbour, odd ones with the left, then they alternate.
        pair = (left, right) if me % 2 else (right, left)
        steps = [_exchange(pair[0], block, pair[0], block)]
        peers = [pair[k % 2] for k in range(1, size // 2)]
        return steps + [_exchange(peer, 2 * block, peer, 2 * block) for peer in peers]
    if _is_power_of_two(size):
        return doubling_allgather(size, me, block)
    distance = 1
    while distance < size:
        part = min(distance, size - distance) * block
        to, source = (me - distance) % size, (me + distance) % size
        steps.append(_exchange(to, part, source, part))
        distance *= 2
    return steps


def doubling_allgather(size: int, me: int, block: int) -> list[CollectiveStep]:
    """Recursive doubling, at powers of two: partners exchange all blocks that they have."""
    distances = [1 << k for k in range(size.bit_length() - 1)]
    return [_exchange(me ^ d, d * block, me ^ d, d * block) for d in distances]


def _allgatherv(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Ring [tuned]."""
    return _ring(size, (me + 1) % size, (me - 1) % size, me, recv or send * size)


def _alltoall(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Bruck for small blocks, all at once for medium, pairwise exchange for large [tuned]."""
    block = send or recv
    if block < ALLTOALL_BRUCK_BYTES and size > ALLTOALL_BRUCK_RANKS:
        steps = []
        distance = 1
        while distance < size:
            # Send the blocks whose offset has this bit set.
            cycles, remainder = divmod(size, 2 * distance)
            part = (cycles * distance + max(remainder - distance, 0)) * block
            to, source = (me + distance) % size, (me - distance) % size
            steps.append(_exchange(to, part, source, part))
            distance *= 2
        return steps
    steps_of = alltoall_at_once if block < ALLTOALL_PAIRWISE_BYTES else alltoall_pairwise
    return steps_of(size, me, block)


def alltoall_at_once(size: int, me: int, block: int) -> list[CollectiveStep]:
    """All blocks of a rank at once."""
    others = [(me + k) % size for k in range(1, size)]
    return [
        CollectiveStep(
            tuple((peer, block) for peer in reversed(others)),
            tuple((peer, block) for peer in others),
        )
    ]


def alltoall_pairwise(size: int, me: int, block: int) -> list[CollectiveStep]:
    """In each step, another partner to send to and another to receive from."""
    return [_exchange((me + k) % size, block, (me - k) % size, block) for k in range(1, size)]


def _alltoallv(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Pairwise exchange [tuned]; shares are symmetric, so equal totals give equal messages."""
    steps = []
    for k in range(1, size):
        to, source = (me + k) % size, (me - k) % size
        sent = _share(send, size, (me + to) % size)
        received = _share(recv, size, (me + source) % size)
        steps.append(_exchange(to, sent, source, received))
    return steps


def _reduce_scatter(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Recursive halving, ring for large vectors [tuned], [TRG05 4.3]."""
    total = send or recv
    return reduce_scatter_of(size, me, total, lambda first, last: _run(total, size, first, last))


def reduce_scatter_of(
    size: int, me: int, total: int, run: Callable[[int, int], int]
) -> list[CollectiveStep]:
    """Reduce_scatter of shares: ``run`` has the bytes of those from one up to another rank's."""
    limit = REDUCE_SCATTER_LARGE_BYTES if _is_power_of_two(size) else REDUCE_SCATTER_SMALL_BYTES
    if total > limit and size < REDUCE_SCATTER_SLOPE * total + REDUCE_SCATTER_OFFSET:
        # Share me - 1 goes first, so that share me arrives last, complete.
        return ring_of(size, (me + 1) % size, (me - 1) % size, me - 1, run)
    surplus, power, virtual = _fold(size, me)
    if virtual < 0:
        return [
            CollectiveStep(((me + 1, total),), ()),
            CollectiveStep((), ((me + 1, run(me, me + 1)),)),
        ]
    steps = [CollectiveStep((), ((me - 1, total),))] if me < 2 * surplus else []

    def carry(first: int, last: int) -> int:
        """Bytes of the shares of those virtual ranks; a folded one keeps two."""
        start, end = (2 * v if v < surplus else v + surplus for v in (first, last))
        return run(start, end)

    distance = power // 2
    while distance:
        mine, peer = virtual & -distance, virtual ^ distance
        theirs = peer & -distance
        real = _unfold(peer, surplus)
        steps.append(
            _exchange(real, carry(theirs, theirs + distance), real, carry(mine, mine + distance))
        )
        distance //= 2
    if me < 2 * surplus:
        steps.append(CollectiveStep(((me - 1, run(me - 1, me)),), ()))
    return steps


def _reduce_scatter_block(
    size: int, me: int, root: int, send: int, recv: int
) -> list[CollectiveStep]:
    """As Reduce_scatter of ``size`` equal blocks."""
    return _reduce_scatter(size, me, root, recv * size if recv else send, 0)


def _scan(size: int, me: int, root: int, send: int, recv: int) -> list[CollectiveStep]:
    """Recursive doubling, as MPICH does for both scans."""
    total = send or recv
    steps = []
    distance = 1
    while distance < size:
        peer = me ^ distance
        if peer < size:
            steps.append(_exchange(peer, total, peer, total))
        distance *= 2
    return steps


CALLS: dict[str, Algorithm] = {
    "MPI_Barrier": _barrier,
    "MPI_Bcast": _bcast,
    "MPI_Reduce": _reduce,
    "MPI_Allreduce": _allreduce,
    "MPI_Gather": _gather,
    "MPI_Gatherv": _gatherv,
    "MPI_Scatter": _scatter,
    "MPI_Scatterv": _scatterv,
    "MPI_Allgather": _allgather,
    "MPI_Allgatherv": _allgatherv,
    "MPI_Alltoall": _alltoall,
    "MPI_Alltoallv": _alltoallv,
    "MPI_Alltoallw": _alltoallv,
    "MPI_Reduce_scatter": _reduce_scatter,
    "MPI_Reduce_scatter_block": _reduce_scatter_block,
    "MPI_Scan": _scan,
    "MPI_Exscan": _scan,
}
"""The collectives that can be expanded, by their MPI name."""

ROOTED = frozenset(
    f"MPI_{name}" for name in ("Bcast", "Reduce", "Gather", "Gatherv", "Scatter", "Scatterv")
)
"""The collectives that have a root."""
