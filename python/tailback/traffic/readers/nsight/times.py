"""Times of Nsight Systems exports: MPI calls, point-to-point messages and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tailback.arrays import Bools, Ints
from tailback.errors import TraceError
from tailback.traffic.program import Label
from tailback.traffic.readers.collective_posts import Calls
from tailback.traffic.readers.nsight.compile import (
    KINDS,
    CallTable,
    positions,
    posts_and_collectives,
)
from tailback.traffic.readers.otf2.names import OPERATIONS, ROOTED
from tailback.traffic.readers.posts import UNKNOWN, Posts
from tailback.traffic.readers.recorded_run import (
    RecordedCollectives,
    RecordedRun,
    measured_time,
    within_measured_time,
)
from tailback.traffic.readers.timed_posts import (
    TimedPosts,
    busiest_threads,
    calls_alone,
    pair_posts,
    with_collectives,
    with_sources,
)
from tailback.units import LONGEST_PS

_NS = 1000
_WAIT = KINDS.index("MPI_START_WAIT_EVENTS")


def record_calls(
    n_ranks: int, table: CallTable, hosts: Sequence[str | None], path: Path, *, shows_utc: bool
) -> RecordedRun:
    """The calls, messages and collectives of MPI_COMM_WORLD with their times.

    Args:
        n_ranks: Number of ranks, all of which have calls.
        table: The calls, as :meth:`CallTable.join` returns them.
        hosts: Host of each rank, None where unknown.
        path: For errors.
        shows_utc: Whether times are nanoseconds since 1970.

    Raises:
        TraceError: A size or partner is impossible, or the times span too long.
    """
    notes: list[str] = []
    origin = int(table.start.min())
    if int(table.end.max()) - origin > LONGEST_PS // _NS:
        raise TraceError("spans more than 53 days", file=path, remedy="give the exports of one run")
    row_of, kept = _rows_of_calls(table, notes)
    calls, names = calls_alone(
        table.rank[kept],
        table.text[kept],
        [table.names[key] for key in range(len(table.names))],
        (table.start[kept] - origin) * _NS,
        (table.end[kept] - origin) * _NS,
    )
    places = positions(table)
    row_at = np.empty(2 * len(table.rank), np.int64)
    for place in places:
        row_at[place] = np.arange(len(table.rank))
    at = row_of[row_at]
    # What is left out is in the notes of the program.
    labels: dict[Label, int] = {}
    posts, made = posts_and_collectives(n_ranks, table, places, labels, [], path)
    collectives = _collectives(made, at, table, row_at)
    timed = _messages(posts, at, n_ranks, notes)
    transfers, calls = pair_posts(timed, with_collectives(calls, collectives), n_ranks, notes)
    start, end, inside = measured_time(n_ranks, calls, names)
    recorded = RecordedRun(
        n_ranks=n_ranks,
        resolution_ps=_NS,
        names=names,
        paths=[""],
        innermost=[""],
        comms={0: "MPI_COMM_WORLD"},
        calls=calls,
        transfers=transfers,
        collectives=collectives,
        start_ps=start,
        end_ps=end,
        system=[[(host, "node")] if host else [] for host in hosts],
        clock_offsets=np.zeros(n_ranks, np.int64),
        origin_unix_ns=origin if shows_utc else None,
        notes=notes,
    )
    return within_measured_time(recorded, inside)


def _rows_of_calls(table: CallTable, notes: list[str]) -> tuple[Ints, Bools]:
    """Number of the call of each row, -1 if left out, and the first row of each call.

    A call that waits for several requests has a row for each.
    """
    keep = busiest_threads(table.rank, table.thread, notes)
    same = np.zeros(len(keep), np.bool_)
    both = (table.kind[1:] == _WAIT) & (table.kind[:-1] == _WAIT)
    for column in (table.rank, table.thread, table.start, table.end, table.text):
        both &= column[1:] == column[:-1]
    same[1:] = both
    first = keep & ~same
    return np.where(keep, np.cumsum(first) - 1, -1), first


def _messages(posts: Posts, at: Ints, n_ranks: int, notes: list[str]) -> TimedPosts:
    """Sends and receives with the calls that post and complete them; ``at`` is by position."""
    posts, unknown = with_sources(posts, n_ranks, notes)
    waited = posts.wait_position != UNKNOWN
    done = np.where(waited, at[np.where(waited, posts.wait_position, 0)], -1)
    zero = np.zeros(len(posts), np.int64)
    return TimedPosts(posts, at[posts.position], done, zero, posts.channel, unknown)


def _collectives(made: Calls, at: Ints, table: CallTable, row_at: Ints) -> RecordedCollectives:
    """Collectives of all ranks; those of which a completion is unknown are left out."""
    row = row_at[made.position]
    waited = made.wait_position != UNKNOWN
    start = at[made.position]
    call = np.where(waited, at[np.where(waited, made.wait_position, 0)], -1)
    keep = ~np.isin(made.instance, made.instance[(start < 0) | (call < 0)])
    rooted = np.isin(made.operation, [OPERATIONS.index(name) for name in ROOTED])
    _, instance = np.unique(made.instance[keep], return_inverse=True)
    return RecordedCollectives(
        instance=instance.reshape(-1).astype(np.int64),
        operation=made.operation[keep],
        comm=made.comm[keep],
        rank=made.rank[keep],
        root=np.where(rooted, made.root, -1)[keep],
        start_call=start[keep],
        call=call[keep],
        sent_bytes=np.maximum(table.size[row], 0)[keep],
        received_bytes=np.maximum(table.received[row], 0)[keep],
    )
