"""Collectives of a trace as the messages an MPI library sends for them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.io.delimited import NotUsed
from tailback.traffic.collectives import call_bytes
from tailback.traffic.readers.collective_posts import Calls, collective_posts
from tailback.traffic.readers.otf2.collective_sizes import sizes_by_partner
from tailback.traffic.readers.otf2.columns import Trace
from tailback.traffic.readers.otf2.links import (
    COLLECTIVE,
    ICOLLECTIVE_COMPLETE,
    ICOLLECTIVE_REQUEST,
)
from tailback.traffic.readers.otf2.names import OPERATIONS, ROOTED, Labels
from tailback.traffic.readers.posts import (
    Posts,
    among,
    dense,
    distinct,
    index_within_group,
    sorted_rows,
)


@dataclass
class Records:
    """Collective records that can be expanded, one for each rank that took part.

    ``start`` is the row of the call, which for a non-blocking call is not that of the record.
    ``position`` is where its messages are posted.
    """

    row: NDArray[np.int64]
    start: NDArray[np.int64]
    position: NDArray[np.int64]
    comm: NDArray[np.int64]
    size: NDArray[np.int64]
    me: NDArray[np.int64]
    instance: NDArray[np.int64]

    def take(self, rows: NDArray[np.bool_]) -> Records:
        """The given rows."""
        return Records(
            *(getattr(self, column.name)[rows] for column in fields(self)),
        )


def expand(trace: Trace, labels: Labels, first_channel: int, notes: list[str], file: Path) -> Posts:
    """Posts of all collectives.

    As MPI requires, the n-th blocking collective of every member on a communicator is the same one,
    and so is the n-th non-blocking one. Each has a separate channel, counted from
    ``first_channel``. A non-blocking one posts the messages of all its steps at its call and waits
    for them at its completion, so that operations in between cannot block another rank. A blocking
    one of a rank with several threads posts them on entering the call.

    Args:
        trace: The trace.
        labels: Where labels are numbered.
        first_channel: First free channel.
        notes: Gets a line for what is left out.
        file: Anchor file, for errors.

    Returns:
        The posts, in no particular order.

    Raises:
        TraceError: A rank took part in a collective of a communicator it is not a member of.
    """
    records = locate(trace, notes, file)
    m = trace.messages
    operation = m.tag[records.row]
    root, agree = agreement(trace, records)
    if not agree.all():
        notes.append(
            NotUsed(
                f"{len(np.unique(records.instance[~agree]))} collectives that were not recorded by "
                "all members of their communicator are left out"
            )
        )
        records, operation, root = records.take(agree), operation[agree], root[agree]
    sent, received = _bytes_of_calls(trace, records, operation)
    by_partner, counts = sizes_by_partner(
        trace, records.row, records.instance, records.me, notes, file
    )
    names = [f"MPI_I{name.removeprefix('MPI_').lower()}" for name in OPERATIONS]
    calls = dict(enumerate([*OPERATIONS, *names]))
    at, none = records.start, np.full(len(operation), -1)
    call = operation + len(OPERATIONS) * (m.kind[records.row] == ICOLLECTIVE_COMPLETE)
    label = labels.number(m.phase[at], m.path[at], call, none, records.comm, calls)
    calls_made = Calls(
        rank=m.rank[records.row],
        thread=m.thread[records.row],
        position=records.position,
        wait_position=m.position[records.row],
        comm=records.comm,
        instance=records.instance,
        label=label,
        operation=operation,
        size=records.size,
        me=records.me,
        root=root,
        sent=sent,
        received=received,
        counts=by_partner,
    )
    members = {number: comm.members for number, comm in trace.communicators.items()}
    return collective_posts(calls_made, OPERATIONS, members, first_channel, file, counts)


def _bytes_of_calls(
    trace: Trace, records: Records, operation: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Byte arguments of each call, from its record."""
    m = trace.messages
    sent = m.bytes[records.row].astype(np.int64)
    received = m.received[records.row].astype(np.int64)
    # EZTrace, which records no creator, writes the arguments of the call; others write sums.
    if not trace.creator:
        return sent, received
    columns = [operation, records.size, sent, received]
    first, index = distinct(columns)
    shape = np.stack(columns, axis=1)[first]
    args = [call_bytes(OPERATIONS[op], size, out, in_) for op, size, out, in_ in shape.tolist()]
    pairs = np.array(args, np.int64).reshape(-1, 2)[index]
    return pairs[:, 0], pairs[:, 1]


def locate(trace: Trace, notes: list[str], file: Path) -> Records:
    """Collectives with data on communicators of more than one rank, with local ranks."""
    m = trace.messages
    rows = np.flatnonzero(among(m.kind, (COLLECTIVE, ICOLLECTIVE_COMPLETE)))
    nonblocking = (m.kind == ICOLLECTIVE_COMPLETE) & (m.posted >= 0)
    begun = np.where(nonblocking, m.posted, np.arange(len(m.kind)))
    # Requests may complete in a different order from that in which they were posted.
    rows = sorted_rows(rows, m.position[begun[rows]])
    lost = int((m.kind == ICOLLECTIVE_REQUEST).sum() - nonblocking.sum())
    if lost:
        notes.append(
            NotUsed(
                f"{lost} non-blocking collectives have no record of their completion and are left "
                "out"
            )
        )
    handles = m.tag[rows] >= len(OPERATIONS)
    if handles.any():
        notes.append(NotUsed(f"{int(handles.sum())} collective records without data are left out"))
        rows = rows[~handles]
    me = np.full(len(rows), -1, np.int64)
    size = np.ones(len(rows), np.int64)
    between = 0
    comm, rank = m.comm[rows], m.rank[rows]
    for number in dense(comm)[0].tolist():
        mine = np.flatnonzero(comm == number)
        communicator = trace.communicators.get(number)
        if communicator is None:
            row = int(rows[mine[0]])
            raise TraceError(f"communicator {number} is not defined", file=file, place=m.place(row))
        if communicator.is_self:
            continue
        if communicator.remote is not None:
            between += len(mine)
            continue
        members = communicator.members
        sorter = np.argsort(members, kind="stable")
        at = np.searchsorted(members, rank[mine], sorter=sorter)
        local = sorter[np.minimum(at, len(members) - 1)] if len(members) else at
        if not len(members) or (members[local] != rank[mine]).any():
            raise TraceError(
                f"a rank outside communicator {communicator.name!r} takes part in its collective",
                file=file,
                place=m.place(int(rows[mine[0]])),
            )
        me[mine], size[mine] = local, len(members)
    if between:
        notes.append(NotUsed(f"{between} collective records on inter-communicators are left out"))
    many = size > 1
    rows, me, size = rows[many], me[many], size[many]
    # Blocking and non-blocking collectives never match one another.
    stream = 2 * m.comm[rows] + (m.kind[rows] == ICOLLECTIVE_COMPLETE)
    turn = index_within_group(stream * trace.n_ranks + m.rank[rows])
    _, instance = distinct([stream, turn])
    position = m.position[begun[rows]]
    early = trace.threaded[m.rank[rows]] & (m.kind[rows] == COLLECTIVE) & (m.call[rows] >= 0)
    position[early] = trace.calls.enter_position[m.call[rows[early]]]
    return Records(
        rows, begun[rows], position, m.comm[rows], size, me, instance.reshape(-1).astype(np.int64)
    )


def agreement(trace: Trace, records: Records) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Root of each collective, and whether all members took part with the same call and root."""
    m = trace.messages
    operation, named = m.tag[records.row], m.peer[records.row]
    n = int(records.instance.max(initial=-1)) + 1
    rooted_operations = [OPERATIONS.index(name) for name in ROOTED]
    rooted = among(operation, rooted_operations)
    valid = rooted & (named >= 0) & (named < records.size)
    low, high = np.full(n, 2**62), np.full(n, -1)
    np.minimum.at(low, records.instance[valid], named[valid])
    np.maximum.at(high, records.instance[valid], named[valid])
    first, last = np.full(n, 2**62), np.full(n, -1)
    np.minimum.at(first, records.instance, operation)
    np.maximum.at(last, records.instance, operation)
    present = np.bincount(records.instance, minlength=n)[records.instance] == records.size
    same = (first == last)[records.instance]
    one_root = (low == high)[records.instance] | ~rooted
    root = np.where(rooted, np.maximum(high[records.instance], 0), 0)
    return root, present & same & one_root
