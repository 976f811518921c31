"""Collective calls of a trace as the messages an MPI library sends for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.available import available_memory
from tailback.errors import TraceError
from tailback.traffic.collectives import schedule
from tailback.traffic.collectives_of_counts import Counts, schedule_of_counts
from tailback.traffic.program import require_memory
from tailback.traffic.readers.posts import Posts, dense, distinct


@dataclass(frozen=True)
class Calls:
    """Collective calls to expand, one row for each rank that took part, C of them.

    Attributes:
        rank: World rank, shape (C,).
        thread: Location of the trace, shape (C,).
        position: Position at which its messages are posted, shape (C,).
        wait_position: Position at which they are waited for, shape (C,).
        comm: Communicator, a key of the members, shape (C,).
        instance: Number of the collective, the same for all participants, shape (C,).
        label: Number of the label, shape (C,).
        operation: Index into the names of the calls, shape (C,).
        size: Ranks of the communicator, shape (C,).
        me: This rank within it, shape (C,).
        root: Root within it, 0 for calls without one, shape (C,).
        sent: ``send_bytes`` of :func:`tailback.traffic.collectives.schedule`, shape (C,).
        received: ``recv_bytes`` of it, shape (C,).
        counts: Index of the bytes to and from every member, -1 where only totals are known, shape
            (C,).
    """

    rank: NDArray[np.int64]
    thread: NDArray[np.int64]
    position: NDArray[np.int64]
    wait_position: NDArray[np.int64]
    comm: NDArray[np.int64]
    instance: NDArray[np.int64]
    label: NDArray[np.int64]
    operation: NDArray[np.int64]
    size: NDArray[np.int64]
    me: NDArray[np.int64]
    root: NDArray[np.int64]
    sent: NDArray[np.int64]
    received: NDArray[np.int64]
    counts: NDArray[np.int64]

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Calls:
        """The given rows."""
        return Calls(*(getattr(self, column.name)[rows] for column in fields(self)))


class _PostTemplate(NamedTuple):
    """Posts of one rank in one call: order, direction, local peer, bytes, order of the wait."""

    order: NDArray[np.int64]
    is_send: NDArray[np.bool_]
    peer: NDArray[np.int64]
    amount: NDArray[np.uint64]
    wait: NDArray[np.int64]


def collective_posts(
    calls: Calls,
    names: Sequence[str],
    members: Mapping[int, NDArray[np.int64]],
    first_channel: int,
    file: Path,
    counts: Sequence[Counts] = (),
) -> Posts:
    """Sends and receives of collective calls.

    Args:
        calls: The calls.
        names: MPI name of each operation.
        members: World ranks of the members of each communicator.
        first_channel: Channel of instance 0; each instance has a separate one.
        file: For errors.
        counts: Bytes to and from every member, for calls with a vector of counts.

    Returns:
        The posts, in no particular order.

    Raises:
        TraceError: A call does not fit its communicator, or there are too many messages.
    """
    if not len(calls.rank):
        return no_posts()
    columns = (
        calls.operation,
        calls.size,
        calls.me,
        calls.root,
        calls.sent,
        calls.received,
        calls.counts,
    )
    some, index = distinct(columns)
    shape = np.stack([column[some] for column in columns], axis=1)
    times = np.bincount(index)
    templates = []
    posts = 0
    # Read once: it comes from system files, and there can be as many calls as ranks.
    limit = available_memory()
    for values, number in zip(shape.tolist(), times.tolist(), strict=True):
        templates.append(_template(values, names, counts, file))
        posts += len(templates[-1].order) * number
        _require_memory(posts, limit, file)
    width = np.array([len(template.order) for template in templates])
    offset = np.cumsum(width) - width
    flat = _PostTemplate(
        *(np.concatenate([template[column] for template in templates]) for column in range(5))
    )
    of = np.repeat(np.arange(len(index)), width[index])
    first = np.cumsum(width[index]) - width[index]
    row = np.arange(len(of)) - first[of] + offset[index][of]
    comm, peer = calls.comm[of], flat.peer[row]
    world = np.empty(len(of), np.int64)
    for key in dense(calls.comm)[0].tolist():
        mine = comm == key
        world[mine] = members[key][peer[mine]]
    return Posts(
        rank=calls.rank[of],
        thread=calls.thread[of],
        position=calls.position[of],
        # What happens when a call is entered comes after the computation before it.
        step=flat.order[row] + 1,
        is_send=flat.is_send[row],
        peer=world,
        channel=first_channel + calls.instance[of],
        size=flat.amount[row],
        label=calls.label[of],
        wait_position=calls.wait_position[of],
        wait_step=flat.wait[row] + 1,
        collective=np.ones(len(of), np.bool_),
        peer_known=np.ones(len(of), np.bool_),
    )


def no_posts() -> Posts:
    """A table without posts."""
    none = np.zeros(0, np.int64)
    no = np.zeros(0, np.bool_)
    size = np.zeros(0, np.uint64)
    return Posts(none, none, none, none, no, none, none, size, none, none, none, no, no)


def _require_memory(posts: int, limit: int | None, file: Path) -> None:
    """Refuse collectives whose messages do not fit in memory; each has a post and a wait."""
    try:
        require_memory(
            2 * posts,
            limit,
            what="the collectives of the trace",
            error=TraceError,
            remedy="record a shorter run, or one of fewer ranks",
        )
    except TraceError as error:
        raise error.located(file) from None


def _template(
    values: list[int], names: Sequence[str], counts: Sequence[Counts], file: Path
) -> _PostTemplate:
    operation, size, me, root, sent, received, vector = values
    try:
        if vector >= 0:
            steps = schedule_of_counts(names[operation], size, me, root, counts[vector])
        else:
            steps = schedule(names[operation], size, me, root, sent, received)
    except TraceError as error:
        raise error.located(file) from None
    order: list[int] = []
    is_send: list[bool] = []
    peer: list[int] = []
    amount: list[int] = []
    wait: list[int] = []
    clock = 0
    for step in steps:
        first = len(order)
        for direction, messages in ((False, step.receives), (True, step.sends)):
            for other, size_bytes in messages:
                order.append(clock)
                is_send.append(direction)
                peer.append(other)
                amount.append(size_bytes)
                clock += 1
        for _ in range(first, len(order)):
            wait.append(clock)
            clock += 1
    return _PostTemplate(
        np.array(order, np.int64),
        np.array(is_send, np.bool_),
        np.array(peer, np.int64),
        np.array(amount, np.uint64),
        np.array(wait, np.int64),
    )
