"""Messages of a recorded run, from posts whose calls are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tailback.arrays import Bools, Ints
from tailback.io.delimited import NotUsed
from tailback.traffic.readers.posts import UNKNOWN, Posts, guess_sources, in_order
from tailback.traffic.readers.recorded_run import (
    RecordedCalls,
    RecordedCollectives,
    RecordedTransfers,
)


@dataclass(frozen=True)
class TimedPosts:
    """P sends and receives with their calls, which are rows of :class:`RecordedCalls`.

    Attributes:
        posts: The sends and receives, sorted by rank, position and step.
        call: Call that posts each, -1 if it is left out, shape (P,).
        done_call: Call in which each completes, -1 if unknown, shape (P,).
        comm: Communicator, shape (P,).
        tag: MPI tag, shape (P,).
        guessed: Whether the source is inferred instead of recorded, shape (P,).
    """

    posts: Posts
    call: Ints
    done_call: Ints
    comm: Ints
    tag: Ints
    guessed: Bools


def calls_alone(
    rank: Ints, name: Ints, names: Sequence[str], enter_ps: Ints, leave_ps: Ints
) -> tuple[RecordedCalls, list[str]]:
    """Calls without what they move, and the names that occur.

    Args:
        rank: World rank of each call, ascending, shape (C,).
        name: Index into ``names``, shape (C,).
        names: Names.
        enter_ps: Times of entry, shape (C,).
        leave_ps: Times of exit, shape (C,).
    """
    used, number = np.unique(name, return_inverse=True)
    enter_ps, leave_ps = without_overlaps(rank, enter_ps, leave_ps)
    zero = np.zeros(len(rank), np.int64)
    calls = RecordedCalls(
        rank=rank,
        name=number.reshape(-1).astype(np.int64),
        path=zero,
        enter_ps=enter_ps,
        leave_ps=leave_ps,
        comm=zero - 1,
        sent_bytes=zero,
        received_bytes=zero,
        paused=np.zeros(len(rank), np.bool_),
    )
    return calls, [names[at] for at in used.tolist()]


def with_sources(posts: Posts, n_ranks: int, notes: list[str]) -> tuple[Posts, Bools]:
    """Posts in order, with guesses of sources that are not recorded, and whether each is one.

    Args:
        posts: Sorted by rank and position.
        n_ranks: Number of ranks.
        notes: Gets a line on the guesses.
    """
    unknown = (posts.peer == UNKNOWN) & ~posts.is_send
    _, even = guess_sources(posts, n_ranks)
    if unknown.any():
        notes.append(guessed_sources(int(unknown.sum()), even))
    order = np.lexsort((posts.step, posts.position, posts.rank))
    return posts.take(order), unknown[order]


def pair_posts(
    timed: TimedPosts, calls: RecordedCalls, n_ranks: int, notes: list[str]
) -> tuple[RecordedTransfers, RecordedCalls]:
    """The messages, and the calls with the bytes and communicators of their messages.

    A request completes when the call that completes it is left.

    Args:
        timed: Sends and receives.
        calls: The calls, with what they move in collectives.
        n_ranks: Number of ranks.
        notes: Gets a line on sends and receives without another end.
    """
    posts, partner = in_order(timed.posts, n_ranks)
    unmatched = int((partner < 0).sum())
    if unmatched:
        notes.append(NotUsed(f"{unmatched} sends and receives have no other end in the trace"))
    size = posts.size.astype(np.int64)
    matched = ~posts.is_send & (partner >= 0)
    size[matched] = size[partner[matched]]
    send = np.flatnonzero(posts.is_send & (partner >= 0))
    receive = partner[send]
    done = timed.done_call
    done_ps = np.where(done >= 0, calls.leave_ps[np.maximum(done, 0)], -1)
    waited = done != timed.call
    transfers = RecordedTransfers(
        src_rank=posts.rank[send],
        dst_rank=posts.rank[receive],
        comm=timed.comm[send],
        tag=timed.tag[send],
        size_bytes=size[send],
        send_call=timed.call[send],
        send_done_call=done[send],
        # A blocking send ends with its call, which says nothing about its transfer.
        send_done_ps=np.where(waited, done_ps, -1)[send],
        recv_call=timed.call[receive],
        recv_done_call=done[receive],
        recv_done_ps=done_ps[receive],
        guessed=timed.guessed[receive],
    )
    return transfers, _with_messages(calls, timed, posts, size)


def _with_messages(
    calls: RecordedCalls, timed: TimedPosts, posts: Posts, size: Ints
) -> RecordedCalls:
    """The calls with what they send, when it is posted, and receive, when it is complete."""
    sent, received, comm = calls.sent_bytes, calls.received_bytes, calls.comm
    for moved, mine, at in (
        (received, ~posts.is_send, timed.done_call),
        (sent, posts.is_send, timed.call),
    ):
        rows = np.flatnonzero(mine & (at >= 0))
        np.add.at(moved, at[rows], size[rows])
        # Of the first message, which is written last.
        comm[at[rows[::-1]]] = timed.comm[rows[::-1]]
    return replace(calls, sent_bytes=sent, received_bytes=received, comm=comm)


def with_collectives(calls: RecordedCalls, collectives: RecordedCollectives) -> RecordedCalls:
    """The calls with the bytes and communicators of collectives."""
    sent, received, comm = calls.sent_bytes, calls.received_bytes, calls.comm
    np.add.at(sent, collectives.call, collectives.sent_bytes)
    np.add.at(received, collectives.call, collectives.received_bytes)
    comm[collectives.call] = collectives.comm
    return replace(calls, sent_bytes=sent, received_bytes=received, comm=comm)


def guessed_sources(receives: int, even: bool) -> str:
    """Note on receives whose source is inferred.

    Args:
        receives: How many there are.
        even: Whether as many messages as receives are left for them.
    """
    return (
        f"the trace does not record the source of {receives} receives: they are matched in order "
        "to the messages that no other receive takes"
        + ("" if even else "; streams differ in length, so some matches may be wrong")
    )


def busiest_threads(rank: Ints, thread: Ints, notes: list[str]) -> Bools:
    """Whether each call is one of the thread of its rank that makes most calls, shape (C,).

    Calls of one thread follow one another, those of several may overlap.

    Args:
        rank: World rank, shape (C,).
        thread: Number of the thread, shape (C,).
        notes: Gets a line on ranks with several threads.
    """
    different, place, count = np.unique(
        np.stack([rank, thread]), axis=1, return_inverse=True, return_counts=True
    )
    order = np.lexsort((-count, different[0]))
    owner = different[0, order]
    first = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    kept = np.zeros(len(order), np.bool_)
    kept[order[first]] = True
    keep = kept[place.reshape(-1)]
    if not keep.all():
        several = int((np.bincount(different[0]) > 1).sum())
        notes.append(
            NotUsed(
                f"{several} ranks call MPI from several threads: the time of each is split for the "
                f"thread with most calls; {int((~keep).sum())} calls of others are left out"
            )
        )
    return np.asarray(keep)


def without_overlaps(rank: Ints, enter: Ints, leave: Ints) -> tuple[Ints, Ints]:
    """Times of calls, each of which begins after the calls of its rank before it are over.

    Args:
        rank: World rank of each call, ascending, shape (C,).
        enter: Times of entry, shape (C,).
        leave: Times of exit, shape (C,).
    """
    same = rank[1:] == rank[:-1]
    if not (same & (enter[1:] < leave[:-1])).any():
        return enter, leave
    enter, leave = enter.copy(), leave.copy()
    edges = np.append(0, np.append(np.flatnonzero(~same) + 1, len(rank)))
    for first, last in pairwise(edges.tolist()):
        np.maximum.accumulate(leave[first:last], out=leave[first:last])
        enter[first + 1 : last] = np.maximum(enter[first + 1 : last], leave[first : last - 1])
    return enter, leave
