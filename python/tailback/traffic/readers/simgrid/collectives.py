"""Arguments of the collectives of SimGrid's time-independent traces."""

from __future__ import annotations

from typing import NamedTuple

from tailback.traffic.collectives_of_counts import Counts

TYPE_BYTES = (
    8,
    4,
    1,
    2,
    8,
    4,
    1,
    8,
    1,
    1,
    2,
    4,
    8,
    8,
    16,
    4,
    1,
    1,
    2,
    4,
    8,
    1,
    2,
    4,
    8,
    8,
    16,
    32,
    8,
    8,
    8,
    16,
    12,
    6,
    8,
    8,
    16,
    16,
    4,
    4,
    8,
    16,
    8,
    16,
    16,
    4,
    2,
    4,
    8,
    16,
    32,
    1,
    8,
    16,
    32,
    0,
    0,
    1,
    8,
    8,
)
"""Sizes in bytes by the number that SimGrid 3.2x writes for a type, from 0; LP64."""

_MAX_COUNT = float(1 << 53)
"""Largest count or number of flops: what a double holds without loss."""

OPERATIONS = {
    "barrier": "MPI_Barrier",
    "bcast": "MPI_Bcast",
    "reduce": "MPI_Reduce",
    "allreduce": "MPI_Allreduce",
    "alltoall": "MPI_Alltoall",
    "allgather": "MPI_Allgather",
    "gather": "MPI_Gather",
    "scatter": "MPI_Scatter",
    "gatherv": "MPI_Gatherv",
    "allgatherv": "MPI_Allgatherv",
    "scatterv": "MPI_Scatterv",
    "alltoallv": "MPI_Alltoallv",
    "reducescatter": "MPI_Reduce_scatter",
    "scan": "MPI_Scan",
    "exscan": "MPI_Exscan",
}
"""MPI name of each collective."""


class CollectiveLine(NamedTuple):
    """Arguments of a collective in one line.

    Attributes:
        root: Root, 0 where there is none.
        sent: ``send_bytes`` of :func:`tailback.traffic.collectives.schedule`.
        received: ``recv_bytes`` of it.
        counts: Bytes to and from every rank, None without a vector of counts.
        flops: Computation that follows the messages.
    """

    root: int = 0
    sent: int = 0
    received: int = 0
    counts: Counts | None = None
    flops: int = 0


class OtherRanksError(ValueError):
    """The length of a vector of counts is not the number of ranks: another communicator."""


def type_bytes(number: str, default: int) -> int:
    """Size of the type of this number, ``default`` for an empty one; raises ValueError."""
    if not number:
        return default
    if not number.isdecimal() or len(number) > 4 or int(number) >= len(TYPE_BYTES):
        raise ValueError(f"the type {number!r} is not one of 0 to {len(TYPE_BYTES) - 1}")
    return TYPE_BYTES[int(number)]


def whole(text: str) -> int:
    """A count, which may be written like ``1e6``; raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 <= value <= _MAX_COUNT:
        raise ValueError(f"{text!r} is not a count between 0 and 2^53")
    return round(value)


class _Arguments:
    """The arguments of one line, consumed one by one."""

    def __init__(self, text: str, n_ranks: int, default_bytes: int) -> None:
        self._left = text.split()
        self._n_ranks = n_ranks
        self._default = default_bytes

    def count(self) -> int:
        if not self._left:
            raise ValueError("an argument is missing")
        return whole(self._left.pop(0))

    def vector(self) -> list[int]:
        if len(self._left) < self._n_ranks:
            raise OtherRanksError(f"{len(self._left)} counts for {self._n_ranks} ranks")
        return [self.count() for _ in range(self._n_ranks)]

    def root(self) -> int:
        root = self.count() if self._left else 0
        if root >= self._n_ranks:
            raise ValueError(f"root {root} of {self._n_ranks} ranks")
        return root

    def type(self) -> int:
        return type_bytes(self._left.pop(0) if self._left else "", self._default)

    def skip_displacements(self) -> None:
        """Drop the displacements that newer versions write after the vector of MPI_Allgatherv."""
        if self._n_ranks > 2 and len(self._left) == self._n_ranks:
            self._left = []

    def end(self) -> None:
        if len(self._left) > 1:
            raise OtherRanksError(f"{len(self._left)} arguments too many for {self._n_ranks} ranks")


def parse(name: str, text: str, n_ranks: int, me: int, default_bytes: int) -> CollectiveLine:
    """Read the arguments of a collective.

    Args:
        name: Name of the blocking call in lower case, a key of :data:`OPERATIONS`.
        text: Its arguments.
        n_ranks: Number of ranks.
        me: The rank whose line it is.
        default_bytes: Size of an element where no type is named.

    Raises:
        OtherRanksError: There are as many counts as ranks of a smaller or larger communicator.
        ValueError: The arguments are not those of the call.
    """
    take = _Arguments(text, n_ranks, default_bytes)
    if name == "barrier":
        return CollectiveLine()
    if name == "bcast":
        size, root = take.count(), take.root()
        return CollectiveLine(root, received=size * take.type())
    if name in ("reduce", "allreduce", "scan", "exscan"):
        size, flops = take.count(), take.count()
        root = take.root() if name == "reduce" else 0
        return CollectiveLine(root, size * take.type(), flops=flops)
    if name in ("alltoall", "allgather", "gather", "scatter"):
        sent, received = take.count(), take.count()
        root = take.root() if name in ("gather", "scatter") else 0
        sent, received = sent * take.type(), received * take.type()
        # In a rooted call, the size for the opposite direction counts only at the root.
        return (
            CollectiveLine(root, 0, received)
            if name == "scatter"
            else CollectiveLine(root, sent, 0)
        )
    if name == "reducescatter":
        total, flops = sum(take.vector()), take.count()
        return CollectiveLine(0, total * take.type(), flops=flops)
    return _of_counts(name, take, me)


def _of_counts(name: str, take: _Arguments, me: int) -> CollectiveLine:
    to, source = [], []
    root = 0
    if name in ("gatherv", "allgatherv"):
        to, source = [take.count()], take.vector()
    elif name == "scatterv":
        to, source = take.vector(), [take.count()]
    else:
        take.count()
        to = take.vector()
        take.count()
        source = take.vector()
    if name in ("gatherv", "scatterv"):
        root = take.root()
    if name == "allgatherv":
        take.skip_displacements()
    sent_bytes = take.type()
    received_bytes = take.type() if name != "allgatherv" else sent_bytes
    if name != "allgatherv":
        take.end()
    if name == "gatherv" and me != root:
        source = []
    if name == "scatterv" and me != root:
        to = []
    counts = Counts(
        tuple(count * sent_bytes for count in to), tuple(count * received_bytes for count in source)
    )
    return CollectiveLine(root, counts=counts)
