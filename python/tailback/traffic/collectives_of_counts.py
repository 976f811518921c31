"""Collectives with known vectors of counts.

If a trace has the vectors of counts of a call, the size of each message is known exactly. The
algorithms are those of :mod:`tailback.traffic.collectives` for the same calls.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from tailback.errors import TraceError, nearest
from tailback.traffic.collectives import (
    CollectiveStep,
    blocking_name,
    reduce_scatter_of,
    ring_of,
)


class Counts(NamedTuple):
    """Bytes of one call at one rank, one number per member of the communicator.

    Attributes:
        to: Bytes sent to each member, empty where the rank has no such vector.
        source: Bytes received from each member, empty where the rank has no such vector.
    """

    to: tuple[int, ...]
    source: tuple[int, ...]


COUNTED = (
    "MPI_Alltoallv",
    "MPI_Alltoallw",
    "MPI_Gatherv",
    "MPI_Scatterv",
    "MPI_Allgatherv",
    "MPI_Reduce_scatter",
)
"""The calls that can be expanded from counts."""


def schedule_of_counts(
    call: str, size: int, me: int, root: int, counts: Counts
) -> list[CollectiveStep]:
    """Messages that rank ``me`` posts for one collective of known counts.

    Args:
        call: MPI name, one of :data:`COUNTED` or its non-blocking form.
        size: Ranks of the communicator.
        me: This rank within it.
        root: Root within it; ignored by calls without one.
        counts: ``MPI_Alltoallv``: both vectors. ``MPI_Allgatherv``: ``source``.
            ``MPI_Reduce_scatter``: the share of every rank as ``source``. ``MPI_Gatherv``:
            own bytes as ``to`` and, at the root, ``source``. ``MPI_Scatterv``: at the root
            ``to``, and own bytes as ``source``.

    Returns:
        The steps, one after the other; empty on a communicator of one rank.

    Raises:
        TraceError: Another call, a root or vectors that do not fit the communicator, or a
            negative size.
    """
    name = blocking_name(call)
    if name not in COUNTED:
        raise TraceError(f"{call} has no vector of counts", remedy=nearest(call, COUNTED))
    if not 0 <= me < size or not 0 <= root < size:
        raise TraceError(f"{call}: rank {me}, root {root} of a communicator of {size} ranks")
    if min(*counts.to, *counts.source, 0) < 0:
        raise TraceError(f"{call}: negative size {min(*counts.to, *counts.source)}")
    rooted = name in ("MPI_Gatherv", "MPI_Scatterv")
    others = [peer for peer in range(size) if peer != me]
    gather = name == "MPI_Gatherv"
    long, short = (counts.source, counts.to) if gather else (counts.to, counts.source)
    if rooted and me != root:
        _require(call, short, 1)
        message = ((root, short[0]),)
        return [CollectiveStep(message, ()) if gather else CollectiveStep((), message)]
    if rooted:
        _require(call, long, size)
        messages = tuple((peer, long[peer]) for peer in others)
        return [CollectiveStep((), messages) if gather else CollectiveStep(messages, ())]
    _require(call, counts.source, size)
    if name in ("MPI_Allgatherv", "MPI_Reduce_scatter"):
        ends = [0, *accumulate(counts.source)]

        def shares(first: int, last: int) -> int:
            return ends[last] - ends[first]

        if name == "MPI_Allgatherv":
            return ring_of(size, (me + 1) % size, (me - 1) % size, me, shares)
        return reduce_scatter_of(size, me, ends[-1], shares)
    _require(call, counts.to, size)
    steps = []
    for k in range(1, size):
        to, source = (me + k) % size, (me - k) % size
        steps.append(CollectiveStep(((to, counts.to[to]),), ((source, counts.source[source]),)))
    return steps


def _require(call: str, vector: tuple[int, ...], length: int) -> None:
    if len(vector) != length:
        raise TraceError(f"{call}: {len(vector)} counts where {length} are needed")
