"""Timed calls of accelerators as a recorded run, which every reader of such traces shares.

Each rank's clock is its own. Collectives that all of their members recorded show who waited for
whom, and align the clocks of hosts as those of MPI do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tailback.arrays import Bools, Ints
from tailback.errors import TraceError
from tailback.traffic.nccl.clock_jumps import clock_jumps
from tailback.traffic.nccl.exchanges import with_exchanges
from tailback.traffic.nccl.groups import describe, with_dimensions
from tailback.traffic.nccl.messages import call_name
from tailback.traffic.nccl.rank_calls import RankCall, complete_sides
from tailback.traffic.readers.otf2.names import OPERATIONS
from tailback.traffic.readers.recorded_run import (
    RecordedCalls,
    RecordedCollectives,
    RecordedRun,
    RecordedSteps,
    RecordedTransfers,
)
from tailback.traffic.readers.timed_posts import calls_alone
from tailback.units import LONGEST_PS, counted, format_bytes, percent

_NS: Final = 1000
_OPERATION: Final = {
    "AllReduce": "MPI_Allreduce",
    "AllGather": "MPI_Allgather",
    "ReduceScatter": "MPI_Reduce_scatter_block",
    "Broadcast": "MPI_Bcast",
    "Reduce": "MPI_Reduce",
    "AllToAll": "MPI_Alltoall",
    "Gather": "MPI_Gather",
    "Scatter": "MPI_Scatter",
}
"""Call of MPI with the same dependencies between ranks."""

_ROOTED: Final = ("Broadcast", "Reduce", "Gather", "Scatter")


class NetworkStep(NamedTuple):
    """A step of a collective over the network, by its sender; times in ns of the sender's host.

    Attributes:
        src_rank: Sender.
        dst_rank: Receiver.
        channel: Channel of NCCL.
        size_bytes: Bytes.
        begun_ns: When it began to wait for the accelerator.
        ready_ns: When the data were there.
        granted_ns: When the receiver had a buffer, and the send began.
        done_ns: When the send was complete.
        key: Communicator and number of its collective.
    """

    src_rank: int
    dst_rank: int
    channel: int
    size_bytes: int
    begun_ns: int
    ready_ns: int
    granted_ns: int
    done_ns: int
    key: tuple[str, int]


def record_calls(
    calls: Sequence[Sequence[RankCall]],
    after_ps: Sequence[int],
    hosts: Sequence[str],
    path: Path,
    *,
    rooted: bool = True,
    not_recorded: str = "",
    durations_only: str = "",
    resolution_ns: int = 1,
    steps: Sequence[NetworkStep] = (),
) -> RecordedRun:
    """The recorded run of accelerators.

    Args:
        calls: Calls of each rank, in the order in which they began; empty for ranks of which
            nothing is recorded.
        after_ps: Computation of each rank after its last call.
        hosts: Host of each rank; the ranks of a host share its clock. Empty names are unknown.
        path: For errors.
        rooted: Whether the roots of calls are recorded.
        not_recorded: Ranks of which nothing is recorded, in words.
        durations_only: What the times lack, as a sentence without a full stop, if they are made
            from durations alone; empty for those of clocks.
        resolution_ns: Resolution of the clocks.
        steps: Network steps of senders.

    Raises:
        TraceError: The times span too long.
    """
    notes = [] if durations_only else clock_jumps(complete_sides(calls), hosts)
    calls, dimensions = with_dimensions(calls, hosts)
    calls = with_exchanges(calls)
    recorded = next(rank for rank, rank_calls in enumerate(calls) if rank_calls)
    alone = single_rank_shows(recorded, calls[recorded], after_ps[recorded])
    alone = alone if not_recorded else ""
    flat = [call for rank_calls in calls for call in rank_calls]
    rank = np.repeat(np.arange(len(calls)), [len(rank_calls) for rank_calls in calls])
    start, end = (
        np.array([getattr(call, name) for call in flat], np.int64)
        for name in ("start_ns", "end_ns")
    )
    # Computation before the first call counts, too.
    origin = min(call.start_ns - -(-call.before_ps // _NS) for call in (c[0] for c in calls if c))
    if int(end.max()) - origin > LONGEST_PS // _NS:
        raise TraceError("spans more than 53 days", file=path, remedy="give the traces of one run")
    names = sorted({call_name(call.call) for call in flat})
    number = {name: k for k, name in enumerate(names)}
    table, names = calls_alone(
        rank,
        np.array([number[call_name(call.call)] for call in flat], np.int64),
        names,
        (start - origin) * _NS,
        (end - origin) * _NS,
    )
    concurrent = table.enter_ps > (start - origin) * _NS
    groups = {name: k for k, name in enumerate(dict.fromkeys(call.communicator for call in flat))}
    comm = np.array([groups[call.communicator] for call in flat], np.int64)
    size = np.array([call.nbytes for call in flat], np.int64)
    paths, path_of = _paths(flat, groups)
    side_calls, messages = _sides(calls, concurrent, notes)
    begin, finish = _bounds(calls, flat, table, after_ps)
    idle = np.array([call.idle_ps for call in flat], np.int64)
    return RecordedRun(
        n_ranks=len(calls),
        resolution_ps=_NS * resolution_ns,
        names=names,
        paths=paths,
        innermost=paths,
        comms={k: name for name, k in groups.items()},
        calls=replace(
            table,
            path=path_of,
            comm=comm,
            sent_bytes=size,
            received_bytes=size,
            paused=np.array([call.unrecorded_before for call in flat], np.bool_),
        ),
        transfers=_transfers(messages, rank, comm),
        collectives=_collectives(side_calls, flat, rank, comm, rooted=rooted),
        start_ps=begin,
        end_ps=finish,
        system=[[(host, "node")] if host else [] for host in hosts],
        clock_offsets=np.zeros(len(calls), np.int64),
        origin_unix_ns=None if durations_only else origin,
        notes=notes,
        common_clock=np.zeros(len(calls), np.int64) if durations_only else _clocks(hosts),
        overlapped_ps=np.array([call.overlapped_ps for call in flat], np.int64),
        idle_ps=idle if (idle >= 0).all() else None,
        not_recorded=not_recorded,
        caveat=". ".join(filter(None, (alone, durations_only))),
        steps=_steps(steps, origin) if steps else None,
        durations_only=bool(durations_only),
        parallelism=describe(dimensions),
    )


def _bounds(
    calls: Sequence[Sequence[RankCall]],
    flat: Sequence[RankCall],
    table: RecordedCalls,
    after_ps: Sequence[int],
) -> tuple[Ints, Ints]:
    """Begin and end of each rank, with the computation around its calls; -1 if not recorded."""
    begin = np.full(len(calls), -1, np.int64)
    finish = np.full(len(calls), -1, np.int64)
    first = np.flatnonzero(table.first_of_rank)
    last = np.append(first[1:] - 1, len(flat) - 1)
    before = np.array([flat[row].before_ps for row in first.tolist()], np.int64)
    ranks = table.rank[first]
    begin[ranks] = table.enter_ps[first] - before
    finish[ranks] = table.leave_ps[last] + np.array(after_ps, np.int64)[ranks]
    return begin, finish


def _steps(steps: Sequence[NetworkStep], origin_ns: int) -> RecordedSteps:
    columns = np.array([step[:-1] for step in steps], np.int64).T
    src, dst, channel, size, begun, ready, granted, done = columns
    return RecordedSteps(
        src,
        dst,
        channel,
        size,
        (begun - origin_ns) * _NS,
        (ready - begun) * _NS,
        (granted - ready) * _NS,
        (done - granted) * _NS,
    )


def _paths(flat: Sequence[RankCall], groups: Mapping[str, int]) -> tuple[list[str], Ints]:
    """Kinds of calls as phases, and that of each call: what repeats has equal size and group."""
    numbers: dict[str, int] = {"": 0}
    named = len(groups) > 1
    of_call = [
        numbers.setdefault(
            f"{call_name(call.call)} of {format_bytes(call.nbytes)}"
            + (f" in {call.communicator}" if named else ""),
            len(numbers),
        )
        for call in flat
    ]
    return list(numbers), np.array(of_call, np.int64)


def _clocks(hosts: Sequence[str]) -> Ints:
    """Number of the clock of each rank: that of its host, or its own."""
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(host, k) if host else k for k, host in enumerate(hosts)])


Sides = list[list[int]]
"""Rows of the calls of each collective."""


class _Message(NamedTuple):
    """A message between the calls in two rows."""

    send_call: int
    recv_call: int
    size_bytes: int


def _sides(
    calls: Sequence[Sequence[RankCall]], concurrent: Bools, notes: list[str]
) -> tuple[Sides, list[_Message]]:
    """Collectives and messages that all members recorded, one after another on each rank.

    When a call beside another one began to wait is unknown, so nothing is concluded from its times.
    """
    row_of: dict[Hashable, dict[int, int]] = {}
    flat: list[RankCall] = []
    for rank, rank_calls in enumerate(calls):
        for call in rank_calls:
            row_of.setdefault(call.key, {})[rank] = len(flat)
            flat.append(call)
    collectives: Sides = []
    messages: list[_Message] = []
    beside = 0
    for key in complete_sides(calls):
        rows = row_of[key]
        if concurrent[list(rows.values())].any():
            beside += 1
            continue
        call = flat[next(iter(rows.values()))]
        ordered = [rows[member] for member in call.members]
        if call.call == "SendRecv":
            messages.append(_Message(ordered[call.root], ordered[call.peer], call.nbytes))
        elif call.call == "Exchange":
            for row in ordered:
                messages += [
                    _Message(row, peer, nbytes)
                    for peer, nbytes in zip(ordered, flat[row].row, strict=True)
                    if nbytes
                ]
        elif call.call in _OPERATION:
            collectives.append(ordered)
    if beside:
        notes.append(
            f"{counted(beside, 'collective')} of {len(row_of)} ran beside others of the same rank: "
            "their time counts once, and who waited in them is not concluded"
        )
    return collectives, messages


def _collectives(
    sides: Sides, flat: Sequence[RankCall], rank: Ints, comm: Ints, *, rooted: bool
) -> RecordedCollectives:
    row = np.array([row for side in sides for row in side], np.int64)
    calls = [flat[at] for at in row.tolist()]
    size = np.array([call.nbytes for call in calls], np.int64)
    return RecordedCollectives(
        instance=np.repeat(np.arange(len(sides)), [len(side) for side in sides]).astype(np.int64),
        operation=np.array([OPERATIONS.index(_OPERATION[call.call]) for call in calls], np.int64),
        comm=comm[row],
        rank=rank[row],
        root=np.array(
            [call.members[call.root] if rooted and call.call in _ROOTED else -1 for call in calls],
            np.int64,
        ),
        start_call=row,
        call=row,
        sent_bytes=size,
        received_bytes=size,
    )


def _transfers(messages: Sequence[_Message], rank: Ints, comm: Ints) -> RecordedTransfers:
    columns = np.array(messages, np.int64).reshape(-1, len(_Message._fields))
    send, receive, size = columns.T
    unknown = np.full(len(messages), -1, np.int64)
    return RecordedTransfers(
        src_rank=rank[send],
        dst_rank=rank[receive],
        comm=comm[send],
        tag=np.zeros(len(messages), np.int64),
        size_bytes=size,
        send_call=send,
        send_done_call=send,
        send_done_ps=unknown,
        recv_call=receive,
        recv_done_call=receive,
        recv_done_ps=unknown,
        guessed=np.zeros(len(messages), np.bool_),
    )


def single_rank_shows(rank: int, calls: Sequence[RankCall], after_ps: int) -> str:
    """What a rank tells without its partners, as a sentence without a full stop.

    The quickest repetition of a call bounds its transfer from above; what others take longer is a
    wait for a partner, other traffic or noise.

    Args:
        rank: Its number.
        calls: Its calls.
        after_ps: Its computation after them.
    """
    computed = sum(call.before_ps + call.overlapped_ps for call in calls) + after_ps
    spent = sum((call.end_ns - call.start_ns) * _NS for call in calls)
    exposed = spent - sum(call.overlapped_ps for call in calls)
    shape = [(call.call, call.nbytes, call.members) for call in calls]
    repeated = Counter(shape)
    least: dict[Hashable, int] = {}
    for key, call in zip(shape, calls, strict=True):
        least[key] = min(least.get(key, call.end_ns - call.start_ns), call.end_ns - call.start_ns)
    longer = sum(
        (call.end_ns - call.start_ns - least[key]) * _NS
        for key, call in zip(shape, calls, strict=True)
    )
    compared = sum(repeated[key] > 1 for key in shape)
    total_ps = max(computed + exposed, 1)
    text = (
        f"Rank {rank} alone shows {percent(spent / total_ps)} of its time in NCCL, "
        f"{percent(exposed / total_ps)} without computation beside it: transfers and waits for "
        "other ranks, which it cannot tell apart"
    )
    if not compared:
        return text
    return (
        f"{text}; {percent(longer / total_ps)} is beyond the quickest call of its kind and size, "
        "so not needed by the transfers"
    )
