"""Times of a DUMPI trace: MPI calls, point-to-point messages and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tailback.arrays import Bools, Ints
from tailback.errors import TraceError
from tailback.traffic.readers.dumpi.compile import read_files
from tailback.traffic.readers.dumpi.header import (
    RankHeader,
    clock_shifts_ns,
    common_clocks,
    read_header,
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

_NS, _US = 1000, 10**6
_SYMMETRIC = frozenset(("MPI_Allreduce", "MPI_Scan", "MPI_Exscan"))


def hosts_of(files: Sequence[Path]) -> list[list[tuple[str, str]]]:
    """Name and class of the host of each rank; empty for those that are not recorded."""
    return _system([read_header(file) for file in files])


def record_files(files: Sequence[Path]) -> RecordedRun:
    """The calls, messages and collectives of all ranks with their times.

    Args:
        files: The files by rank; their calls have times by the wall clock.

    Raises:
        TraceError: A file is damaged or cut short, or has an impossible call.
    """
    headers = [read_header(file) for file in files]
    reader, decoded = read_files(files, times=True)
    columns, _ = reader.posts()
    del reader
    n_ranks, notes = len(files), list[str]()
    enter, leave, origin_ns = _times(decoded["calls"], headers, files)
    resolution = _US if not (enter % 1000).any() and not (leave % 1000).any() else _NS
    rank, thread = (decoded["calls"][name].astype(np.int64) for name in ("rank", "thread"))
    keep = busiest_threads(rank, thread, notes)
    row_of = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
    calls, names = calls_alone(
        rank[keep],
        decoded["calls"]["name"][keep],
        decoded["names"],
        enter[keep] * _NS,
        leave[keep] * _NS,
    )
    first = np.searchsorted(rank, np.arange(n_ranks))
    collectives = _collectives(decoded, first, row_of)
    timed = _messages(decoded, columns, first, row_of, n_ranks, notes)
    transfers, calls = pair_posts(timed, with_collectives(calls, collectives), n_ranks, notes)
    start, end, inside = measured_time(n_ranks, calls, names)
    recorded = RecordedRun(
        n_ranks=n_ranks,
        resolution_ps=resolution,
        names=names,
        paths=[""],
        innermost=[""],
        comms=dict(enumerate(decoded["communicators"])),
        calls=calls,
        transfers=transfers,
        collectives=collectives,
        start_ps=start,
        end_ps=end,
        system=_system(headers),
        clock_offsets=np.zeros(n_ranks, np.int64),
        origin_unix_ns=origin_ns if all(header.shows_utc for header in headers) else None,
        notes=notes,
        common_clock=np.array(common_clocks(headers), np.int64),
    )
    return within_measured_time(recorded, inside)


def _system(headers: Sequence[RankHeader]) -> list[list[tuple[str, str]]]:
    return [[(header.host, "node")] if header.host else [] for header in headers]


def _times(
    calls: dict[str, Any], headers: Sequence[RankHeader], files: Sequence[Path]
) -> tuple[Ints, Ints, int]:
    """Entry and exit of each call, nanoseconds since the first, and when that was."""
    rank = calls["rank"]
    first = np.searchsorted(rank, np.arange(len(files)))
    shift = np.array(clock_shifts_ns(headers), np.int64)
    begins = calls["enter_ns"][first] + shift
    origin = int(begins.min())
    # Clocks that nothing compares may be years apart, which is too long for picoseconds.
    clock = np.array(common_clocks(headers), np.int64)
    after = np.full(len(files), np.iinfo(np.int64).max)
    np.minimum.at(after, clock, begins - origin)
    shift -= np.where(after[clock] > LONGEST_PS // (2 * _NS), after[clock], 0)
    enter = calls["enter_ns"] + shift[rank] - origin
    leave = calls["leave_ns"] + shift[rank] - origin
    late = int(leave.argmax())
    if leave[late] > LONGEST_PS // _NS:
        raise TraceError(
            "ends more than 53 days after the trace begins",
            file=files[int(rank[late])],
            remedy="record a shorter run",
        )
    return enter, leave, origin


def _messages(
    decoded: dict[str, Any],
    columns: dict[str, Any],
    first: Ints,
    row_of: Ints,
    n_ranks: int,
    notes: list[str],
) -> TimedPosts:
    """Sends and receives with the calls that post and complete them."""
    n = len(columns["rank"])
    posts = Posts(thread=np.zeros(n, np.int64), collective=np.zeros(n, np.bool_), **columns)
    posts, unknown = with_sources(posts, n_ranks, notes)
    # Call k of a rank begins at position 2 k, and what it completes is complete at 2 k + 1.
    call = row_of[first[posts.rank] + posts.position // 2]
    waited = posts.wait_position != UNKNOWN
    done = np.where(waited, first[posts.rank] + posts.wait_position // 2, -1)
    keys = np.array(decoded["channel_keys"], np.int64).reshape(-1, 2)[posts.channel]
    return TimedPosts(posts, call, row_of[done], keys[:, 0], keys[:, 1], unknown)


def _collectives(decoded: dict[str, Any], first: Ints, row_of: Ints) -> RecordedCollectives:
    """Collectives of all members of a communicator, with the bytes of their arguments."""
    c = decoded["collectives"]
    call = row_of[first[c["rank"]] + c["position"] // 2]
    # If a member is missing, the last rank to enter is unknown.
    keep = ~np.isin(c["instance"], c["instance"][call < 0])
    c = {name: column[keep] for name, column in c.items()}
    sent, received = _argument_bytes(c, decoded["counts"])
    rooted = np.isin(c["operation"], [OPERATIONS.index(name) for name in ROOTED])
    root = np.full(len(rooted), -1, np.int64)
    for number, members in decoded["members"]:
        rows = np.flatnonzero(rooted & (c["comm"] == number))
        root[rows] = np.array(members, np.int64)[c["root"][rows]]
    _, instance = np.unique(c["instance"], return_inverse=True)
    return RecordedCollectives(
        instance=instance.reshape(-1).astype(np.int64),
        operation=c["operation"],
        comm=c["comm"],
        rank=c["rank"],
        root=root,
        start_call=call[keep],
        call=call[keep],
        sent_bytes=sent,
        received_bytes=received,
    )


def _argument_bytes(
    c: dict[str, Any], counts: list[tuple[list[int], list[int]]]
) -> tuple[Ints, Ints]:
    """Bytes of the arguments of each collective call."""
    sent, received = c["sent"].copy(), c["received"].copy()
    for column, side in ((sent, 0), (received, 1)):
        totals = np.array([sum(vectors[side]) for vectors in counts], np.int64)
        several = c["counts"] >= 0
        column[several] = totals[c["counts"][several]]
    is_root = c["me"] == c["root"]

    def of(*names: str) -> Bools:
        return np.isin(c["operation"], [OPERATIONS.index(name) for name in names])

    # Reductions state one size for both buffers, and broadcasts one for the buffer that the root
    # sends; gathers and scatters of equal blocks are read from the side of all members.
    received = np.where(
        of(*_SYMMETRIC) | (of("MPI_Reduce", "MPI_Gather") & is_root), sent, received
    )
    sent = np.where(of("MPI_Bcast", "MPI_Scatter") & is_root, received, sent)
    return sent, np.where(of("MPI_Bcast") & is_root, 0, received)
