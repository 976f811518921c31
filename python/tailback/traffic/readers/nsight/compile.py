"""From the MPI calls of Nsight Systems exports to a rank program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.io.delimited import NotUsed
from tailback.traffic.collectives import blocking_name
from tailback.traffic.program import Label, Program, RecordedTimes
from tailback.traffic.readers.assembly import Computes, ImpliedWaits, compile_posts
from tailback.traffic.readers.collective_posts import Calls, collective_posts
from tailback.traffic.readers.otf2.names import OPERATIONS, ROOTED, communicates, is_synchronising
from tailback.traffic.readers.otf2.recording import SMALL_BYTES, oversubscribed_ps, shortest_stays
from tailback.traffic.readers.posts import (
    UNKNOWN,
    Posts,
    dense,
    distinct,
    guess_sources,
    index_within_group,
)

KINDS = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
"""Tables of calls; their numbers are the kinds of :class:`CallTable`."""
_P2P, _COLLECTIVE, _WAIT = 0, 1, 2
_MPICH_WORLD = 0x44000000
"""Handle of MPI_COMM_WORLD in MPICH and its derivatives; in Open MPI it is an address."""
_SENDS = ("send", "bsend", "ssend", "rsend", "isend", "ibsend", "issend", "irsend")
_RECEIVES = ("recv", "irecv", "mrecv", "imrecv")


@dataclass
class CallTable:
    """The C calls of some ranks.

    Attributes:
        names: Name of each call.
        kind: Index into :data:`KINDS`, shape (C,).
        start: When the call is entered, ns of the export's clock, shape (C,).
        end: When it is left, shape (C,).
        rank: World rank, shape (C,).
        text: Key of ``names``, shape (C,).
        comm: Handle of the communicator, 0 if not recorded, shape (C,).
        tag: Tag, shape (C,).
        peer: Partner or root, negative for none or any, shape (C,).
        size: Bytes, shape (C,).
        received: Bytes received, for collectives that state both, shape (C,).
        request: Handle of the request, 0 for none, shape (C,).
        thread: Number of the thread, shape (C,).
    """

    names: dict[int, str]
    kind: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    rank: NDArray[np.int64]
    text: NDArray[np.int64]
    comm: NDArray[np.int64]
    tag: NDArray[np.int64]
    peer: NDArray[np.int64]
    size: NDArray[np.int64]
    received: NDArray[np.int64]
    request: NDArray[np.int64]
    thread: NDArray[np.int64]

    @staticmethod
    def join(tables: list[CallTable]) -> CallTable:
        """All tables, sorted by rank and time; each numbers its names on its own."""
        names: dict[str, int] = {}
        for table in tables:
            keys, place = dense(table.text)
            new = [
                names.setdefault(table.names.get(key, "unknown"), len(names))
                for key in keys.tolist()
            ]
            table.text = np.array(new, np.int64)[place]
        columns = [column.name for column in fields(CallTable) if column.name != "names"]
        joined = [np.concatenate([getattr(table, name) for table in tables]) for name in columns]
        order = np.lexsort((joined[2], joined[1], joined[3]))
        listed = {number: name for name, number in names.items()}
        return CallTable(listed, *(column[order] for column in joined))


def compile_calls(name: str, n_ranks: int, table: CallTable, path: Path) -> Program:
    """Compile calls to a program.

    Args:
        name: What to call the application.
        n_ranks: Number of ranks, all of which have calls.
        table: The calls, as :meth:`CallTable.join` returns them.
        path: For errors.

    Returns:
        The program, with the time that the calls took.

    Raises:
        TraceError: A size or partner is impossible.
    """
    notes: list[str] = []
    labels: dict[Label, int] = {}
    enter, leave = positions(table)
    posts, calls = posts_and_collectives(n_ranks, table, (enter, leave), labels, notes, path)
    guessed, _ = guess_sources(posts, n_ranks)
    if guessed:
        notes.append(
            f"{guessed} receives from any source: matched to the messages no other receive takes"
        )
    channels, posts.channel = dense(posts.channel)
    expanded = collective_posts(calls, OPERATIONS, {0: np.arange(n_ranks)}, len(channels), path)
    computes = _computes(table, enter)
    none = np.zeros(0, np.int64)
    program = compile_posts(
        name,
        n_ranks,
        Posts.join([posts, expanded]),
        list(labels),
        ImpliedWaits(none, none, none),
        computes,
        notes,
    )
    moving = np.isin(table.text, [key for key, call in table.names.items() if communicates(call)])
    # A call that waits for several requests has a row for each.
    rows, _ = distinct([table.rank[moving], table.start[moving], table.end[moving]])
    inside_ns = int((table.end[moving][rows] - table.start[moving][rows]).sum())
    program.recording = RecordedTimes(
        inside_ns * 1000 // n_ranks,
        int(computes.ps.sum()) // n_ranks,
        _oversubscribed_ps(table, (enter, leave), calls, n_ranks),
    )
    return program


def _oversubscribed_ps(
    table: CallTable,
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    calls: Calls,
    n_ranks: int,
) -> int:
    """Time of the last rank to enter small collectives, 0 if it is plausible."""
    enter, leave = places
    row_at = np.zeros(2 * len(enter), np.int64)
    row_at[enter] = np.arange(len(enter))
    row = row_at[calls.position]
    synchronising = [number for number, name in enumerate(OPERATIONS) if is_synchronising(name)]
    counts = np.isin(calls.operation, synchronising) & (calls.wait_position == leave[row])
    counts &= np.maximum(calls.sent, calls.received) <= SMALL_BYTES
    stay_ns = table.end[row] - table.start[row]
    return oversubscribed_ps(shortest_stays(calls.instance, stay_ns, counts) * 1000, n_ranks)


def posts_and_collectives(
    n_ranks: int,
    table: CallTable,
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    labels: dict[Label, int],
    notes: list[str],
    path: Path,
) -> tuple[Posts, Calls]:
    """Sends and receives, some of them of unknown source, and collectives of all ranks.

    Args:
        n_ranks: Number of ranks.
        table: The calls.
        places: What :func:`positions` returns.
        labels: Gets the labels.
        notes: Gets a line for what is left out.
        path: For errors.

    Raises:
        TraceError: A size or partner is impossible.
    """
    in_world = _in_world(table, n_ranks, notes)
    posts = _messages(table, *places, in_world, labels, notes)
    if (posts.size >= 1 << 62).any() or (posts.peer >= n_ranks).any():
        raise TraceError(
            "has a call with an impossible size or partner",
            file=path,
            remedy="export the report again",
        )
    return posts, _collectives(table, *places, in_world, n_ranks, labels, notes)


def positions(table: CallTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the beginning and end of each call in the order of all events."""
    n = len(table.rank)
    index = np.concatenate([np.arange(n), np.arange(n)])
    is_end = np.repeat([0, 1], n)
    time = np.concatenate([table.start, table.end])
    order = np.lexsort((is_end, index, time, table.rank[index]))
    place = np.empty(2 * n, np.int64)
    place[order] = np.arange(2 * n)
    return place[:n], place[n:]


def _in_world(table: CallTable, n_ranks: int, notes: list[str]) -> NDArray[np.bool_]:
    """Whether the partner or root of each call is a rank of MPI_COMM_WORLD.

    An export has handles and no members of communicators. A rank's MPI_COMM_WORLD is MPICH's
    constant, or its first communicator.
    """
    uses = (table.kind == _P2P) | (table.kind == _COLLECTIVE)
    named = np.flatnonzero(uses & (table.comm != 0))
    first = np.zeros(n_ranks, np.int64)
    first[table.rank[named][::-1]] = table.comm[named][::-1]
    first[table.rank[named[table.comm[named] == _MPICH_WORLD]]] = _MPICH_WORLD
    inside = (table.comm == 0) | (table.comm == first[table.rank])
    lost = int((uses & ~inside).sum())
    if lost:
        notes.append(
            NotUsed(
                f"{lost} calls on communicators other than a rank's first (taken for "
                "MPI_COMM_WORLD), whose members an export does not hold, are left out"
            )
        )
    return np.asarray(inside)


def _short(name: str) -> str:
    return name.lower().rstrip("_").removeprefix("mpi_")


def _messages(
    table: CallTable,
    enter: NDArray[np.int64],
    leave: NDArray[np.int64],
    in_world: NDArray[np.bool_],
    labels: dict[Label, int],
    notes: list[str],
) -> Posts:
    """Sends and receives of point-to-point calls."""
    short = {key: _short(name) for key, name in table.names.items()}
    p2p = table.kind == _P2P
    is_send = np.isin(table.text, [key for key, name in short.items() if name in _SENDS])
    is_message = is_send | np.isin(
        table.text, [key for key, name in short.items() if name in _RECEIVES]
    )
    others = Counter(table.names[key] for key in table.text[p2p & ~is_message].tolist())
    if others:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(others.items())[:5])
        notes.append(NotUsed(f"point-to-point calls that are not expanded are left out: {listed}"))
    row = np.flatnonzero(p2p & is_message & in_world & ~(is_send & (table.peer < 0)))
    nonblocking = np.isin(table.text, [key for key, name in short.items() if name.startswith("i")])
    wait = np.where(
        nonblocking, _wait_positions(table, leave, p2p | (table.kind == _COLLECTIVE)), leave
    )
    tag = table.tag[row]
    some, which = distinct([table.text[row], tag])
    made = [
        Label(f"tag {tag[at]}", table.names[int(table.text[row[at]])], int(tag[at]))
        for at in some.tolist()
    ]
    number = np.array([labels.setdefault(label, len(labels)) for label in made], np.int64)
    n = len(row)
    peer = np.maximum(table.peer[row], UNKNOWN)
    return Posts(
        rank=table.rank[row],
        thread=np.zeros(n, np.int64),
        position=enter[row],
        step=np.ones(n, np.int64),
        is_send=is_send[row],
        peer=peer,
        channel=tag,
        size=np.maximum(table.size[row], 0).astype(np.uint64),
        label=number[which] if n else np.zeros(0, np.int64),
        wait_position=wait[row],
        wait_step=np.full(n, 2, np.int64),
        collective=np.zeros(n, np.bool_),
        peer_known=peer >= 0,
    )


def _wait_positions(
    table: CallTable, leave: NDArray[np.int64], posted: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Position at which the request of each call is complete, UNKNOWN where not recorded.

    It is the end of the next wait of the same rank for the same handle, before the handle is used
    again.
    """
    out = np.full(len(leave), UNKNOWN)
    row = np.flatnonzero((posted | (table.kind == _WAIT)) & (table.request != 0))
    # Rows are sorted by rank and time.
    row = row[np.lexsort((row, table.request[row], table.rank[row]))]
    earlier, next_ = row[:-1], row[1:]
    same = (table.rank[earlier] == table.rank[next_]) & (
        table.request[earlier] == table.request[next_]
    )
    pair = same & posted[earlier] & (table.kind[next_] == _WAIT)
    out[earlier[pair]] = leave[next_[pair]]
    return out


def _collectives(
    table: CallTable,
    enter: NDArray[np.int64],
    leave: NDArray[np.int64],
    in_world: NDArray[np.bool_],
    n_ranks: int,
    labels: dict[Label, int],
    notes: list[str],
) -> Calls:
    """The collectives of MPI_COMM_WORLD; the n-th calls of all ranks belong together."""
    names = {key: blocking_name(name) for key, name in table.names.items()}
    number = {name: at for at, name in enumerate(OPERATIONS)}
    operation = np.array([number.get(names.get(key, ""), -1) for key in range(len(names))])
    row = np.flatnonzero((table.kind == _COLLECTIVE) & in_world)
    row = row[operation[table.text[row]] >= 0]
    instance = index_within_group(table.rank[row])
    kind = operation[table.text[row]]
    # Of each instance: all ranks, one operation, one root.
    rooted = np.isin(kind, [number[name] for name in ROOTED])
    root = np.where(rooted, table.peer[row], 0)
    total = int(instance.max(initial=-1)) + 1
    first = np.zeros((2, total), np.int64)
    first[0, instance[::-1]], first[1, instance[::-1]] = kind[::-1], root[::-1]
    agree = np.bincount(instance, minlength=total) == n_ranks
    unlike = (first[0, instance] != kind) | (first[1, instance] != root)
    unlike |= (root < 0) | (root >= n_ranks)
    agree[instance[unlike]] = False
    if not agree.all():
        notes.append(
            NotUsed(
                f"{int((~agree).sum())} collectives that were not recorded alike by all ranks "
                "are left out"
            )
        )
    kept = agree[instance]
    row, instance, kind, root = row[kept], instance[kept], kind[kept], root[kept]
    waited = _wait_positions(table, leave, (table.kind == _COLLECTIVE) | (table.kind == _P2P))
    blocking = np.array([names.get(key) == table.names.get(key) for key in range(len(names))])
    sizes = np.maximum(np.stack([table.size[row], table.received[row]]), 0)
    sizes[1] = np.where(sizes[1] == 0, sizes[0], sizes[1])
    text = table.text[row]
    label = {key: Label(table.names[key], table.names[key]) for key in np.unique(text).tolist()}
    of = {key: labels.setdefault(kind_label, len(labels)) for key, kind_label in label.items()}
    zero = np.zeros(len(row), np.int64)
    return Calls(
        rank=table.rank[row],
        thread=zero,
        position=enter[row],
        wait_position=np.where(blocking[text], leave[row], waited[row]) if len(row) else zero,
        comm=zero,
        instance=instance,
        label=np.array([of[key] for key in text.tolist()], np.int64),
        operation=kind,
        size=np.full(len(row), n_ranks),
        me=table.rank[row],
        root=root,
        sent=sizes[0],
        received=sizes[1],
        counts=np.full(len(row), -1),
    )


def _computes(table: CallTable, enter: NDArray[np.int64]) -> Computes:
    """Time of each rank in which it is in no call, from its first call on."""
    latest = table.end.copy()
    edges = np.searchsorted(table.rank, np.arange(int(table.rank.max(initial=-1)) + 2))
    for first, last in pairwise(edges.tolist()):
        np.maximum.accumulate(latest[first:last], out=latest[first:last])
    gap = table.start[1:] - latest[:-1]
    row = np.flatnonzero((table.rank[1:] == table.rank[:-1]) & (gap > 0)) + 1
    ps = gap[row - 1].astype(np.uint64) * np.uint64(1000)
    return Computes(table.rank[row], enter[row], ps)
