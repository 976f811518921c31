"""Builds programs column by column with numpy, for all ranks at once.

:class:`Slots` is for patterns in which all ranks run the same sequence of operations (some may skip
one); :func:`assemble` is for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tailback.available import available_memory
from tailback.errors import ScenarioError
from tailback.traffic.program import IS_POST, Label, Op, Program, require_memory

Mask = NDArray[np.bool_] | None


def refuse_if_huge(operations: int) -> None:
    """Raise ScenarioError if a program would not fit in memory; call this before building it."""
    require_memory(
        operations,
        available_memory(),
        what="the pattern",
        error=ScenarioError,
        place="[job.pattern]",
        remedy="use fewer ranks, messages or rounds",
    )


@dataclass(frozen=True, eq=False)
class Operations:
    """Operations of all ranks as columns of equal length, rank after rank.

    Attributes:
        rank: Rank of each operation, not decreasing, shape (M,).
        kind: :class:`Op`, shape (M,).
        peer: Other rank, -1 where there is none, shape (M,).
        amount: Bytes or picoseconds, shape (M,).
        tag: Tag, shape (M,).
        label: Label, shape (M,).
    """

    rank: NDArray[np.int64]
    kind: NDArray[np.uint8]
    peer: NDArray[np.int32]
    amount: NDArray[np.uint64]
    tag: NDArray[np.int64]
    label: NDArray[np.uint32]


def assemble(
    name: str,
    n_ranks: int,
    operations: Operations,
    labels: Sequence[Label],
    grid: tuple[int, ...] = (),
) -> Program:
    """Pack columns into a program; requests are numbered in the order they are posted.

    A WAIT waits for the last post of its rank.
    """
    start = np.zeros(n_ranks + 1, np.int64)
    start[1:] = np.cumsum(np.bincount(operations.rank, minlength=n_ranks))
    post = IS_POST[operations.kind]
    posted = np.concatenate([[0], np.cumsum(post)])
    last = posted[1:] - posted[start[:-1]][operations.rank] - 1
    request = np.where(post | (operations.kind == Op.WAIT), last, -1)
    return Program(
        name=name,
        rank_start=start.astype(np.uint64),
        kind=operations.kind,
        peer=operations.peer,
        amount=operations.amount,
        tag=operations.tag,
        request=request.astype(np.int32),
        label=operations.label,
        labels=list(labels),
        grid=grid,
    )


ASKED = 1 << 20
"""Operations of an unfinished program from which on it is asked whether there is memory for them;
for the finished one it always is."""


class Slots:
    """A program whose ranks run the same sequence of slots, one operation of every rank each.

    Args:
        name: What to call the application.
        n_ranks: Number of ranks R.
        grid: Extents of the ranks' grid, x fastest.
    """

    def __init__(self, name: str, n_ranks: int, grid: tuple[int, ...] = ()) -> None:
        self.name = name
        self.n_ranks = n_ranks
        self.grid = grid
        self._labels: dict[Label, int] = {}
        self._scalars: list[tuple[int, int, int, int]] = []
        self._peers: list[NDArray[np.int32] | None] = []
        self._masks: list[Mask] = []

    def label(self, label: Label) -> int:
        """Number of ``label``, new when needed."""
        return self._labels.setdefault(label, len(self._labels))

    def compute(self, ps: int, present: Mask = None) -> None:
        """Occupy the ranks of ``present`` (all when None) for ``ps`` picoseconds."""
        if ps > 0:
            self._add(Op.COMPUTE, ps, 0, 0, None, present)

    def isend(
        self, peer: NDArray[np.integer], size: int, tag: int, label: int, present: Mask = None
    ) -> None:
        """Each rank of ``present`` posts a send of ``size`` bytes to ``peer``, shape (R,)."""
        self._add(Op.ISEND, size, tag, label, peer, present)

    def issend(
        self, peer: NDArray[np.integer], size: int, tag: int, label: int, present: Mask = None
    ) -> None:
        """As :meth:`isend` with a synchronous send, complete when its receive is."""
        self._add(Op.ISSEND, size, tag, label, peer, present)

    def acknowledged_send(
        self, peer: NDArray[np.integer], size: int, tag: int, label: int, present: Mask = None
    ) -> None:
        """As :meth:`isend` with a send that is complete when its acknowledgement has arrived."""
        self._add(Op.ACKNOWLEDGED_SEND, size, tag, label, peer, present)

    def irecv(
        self, peer: NDArray[np.integer], size: int, tag: int, label: int, present: Mask = None
    ) -> None:
        """Each rank of ``present`` posts a receive of ``size`` bytes from ``peer``, shape (R,)."""
        self._add(Op.IRECV, size, tag, label, peer, present)

    def wait_last(self, present: Mask = None) -> None:
        """Block until the last post of the rank is complete."""
        self._add(Op.WAIT, 0, 0, 0, None, present)

    def waitall(self) -> None:
        """Block until all posts of the rank are complete."""
        self._add(Op.WAITALL, 0, 0, 0, None, None)

    @property
    def count(self) -> int:
        """Number of slots so far."""
        return len(self._scalars)

    def repeat(self, n: int) -> int:
        """Append the first ``n`` slots once more; returns the number of the first copy."""
        first = self.count
        if (first + n).bit_length() > first.bit_length():
            refuse_if_huge((first + n) * self.n_ranks)
        self._scalars += self._scalars[:n]
        self._peers += self._peers[:n]
        self._masks += self._masks[:n]
        return first

    def restrict(self, slot: int, present: Mask) -> None:
        """Only the ranks of ``present`` execute a slot."""
        self._masks[slot] = present

    def _add(
        self,
        op: Op,
        amount: int,
        tag: int,
        label: int,
        peer: NDArray[np.integer] | None,
        present: Mask,
    ) -> None:
        count = len(self._scalars) + 1
        # Each time there are twice as many: asking for the free memory reads files.
        if count & (count - 1) == 0 and count * self.n_ranks >= ASKED:
            refuse_if_huge(count * self.n_ranks)
        self._scalars.append((op, amount, tag, label))
        self._peers.append(None if peer is None else peer.astype(np.int32))
        self._masks.append(present)

    def build(self) -> Program:
        """Pack the slots into a program."""
        refuse_if_huge(len(self._scalars) * self.n_ranks)
        shape = (self.n_ranks, len(self._scalars))
        kind, amount, tag, label = np.array(self._scalars, np.int64).reshape(-1, 4).T
        peers = _columns(self._peers, np.full(self.n_ranks, -1, np.int32), shape)
        present = _columns(self._masks, np.ones(self.n_ranks, np.bool_), shape)
        rank, slot_of = np.nonzero(present)
        operations = Operations(
            rank=rank,
            kind=kind.astype(np.uint8)[slot_of],
            peer=peers[present],
            amount=amount.astype(np.uint64)[slot_of],
            tag=tag[slot_of],
            label=label.astype(np.uint32)[slot_of],
        )
        return assemble(self.name, self.n_ranks, operations, list(self._labels), self.grid)


_Values = TypeVar("_Values", bound=np.generic)


def _columns(
    columns: list[NDArray[_Values] | None], default: NDArray[_Values], shape: tuple[int, int]
) -> NDArray[_Values]:
    """Columns side by side, ``default`` where there is none; many are the same array."""
    same = np.fromiter(map(id, columns), np.int64, len(columns))
    _, first, index = np.unique(same, return_index=True, return_inverse=True)
    chosen = [columns[place] for place in first.tolist()]
    distinct = [default if column is None else column for column in chosen]
    if not distinct:
        return np.empty(shape, default.dtype)
    return np.stack(distinct, axis=1)[:, index].reshape(shape)
