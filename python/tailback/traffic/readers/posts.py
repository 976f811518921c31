"""Tables of posted sends and receives, and the matching of sends to receives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback import _core

UNKNOWN = -1
"""A peer or a wait that the trace does not record."""


@dataclass
class Posts:
    """The P sends and receives that ranks post.

    Attributes:
        rank: Posting rank, shape (P,).
        thread: Number of the location, shape (P,).
        position: Place in the order of all events, shape (P,).
        step: Order within a position, shape (P,).
        is_send: Send or receive, shape (P,).
        peer: The other world rank, UNKNOWN where not recorded, shape (P,).
        channel: Communicator and tag as one number, or the instance of a collective, shape (P,).
        size: Bytes, shape (P,).
        label: Number of the label, shape (P,).
        wait_position: Position of its wait, UNKNOWN where not recorded, shape (P,).
        wait_step: Order of the wait within that position, shape (P,).
        collective: Whether a collective posts it, shape (P,).
        peer_known: Whether the trace records its peer and size, shape (P,).
    """

    rank: NDArray[np.int64]
    thread: NDArray[np.int64]
    position: NDArray[np.int64]
    step: NDArray[np.int64]
    is_send: NDArray[np.bool_]
    peer: NDArray[np.int64]
    channel: NDArray[np.int64]
    size: NDArray[np.uint64]
    label: NDArray[np.int64]
    wait_position: NDArray[np.int64]
    wait_step: NDArray[np.int64]
    collective: NDArray[np.bool_]
    peer_known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rank)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Posts:
        """The given rows."""
        return Posts(*(getattr(self, column.name)[rows] for column in fields(self)))

    @staticmethod
    def join(tables: list[Posts]) -> Posts:
        """All tables one after the other; at least one is needed."""
        tables = [table for table in tables if len(table)] or tables[:1]
        if len(tables) == 1:
            return tables[0]
        return Posts(
            *(
                np.concatenate([getattr(table, column.name) for table in tables])
                for column in fields(Posts)
            )
        )


def index_within_group(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many earlier rows are of the same group, shape like ``group``."""
    return _core.count_turns(np.ascontiguousarray(group, np.int64))


def contiguous(*columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Contiguous columns, as the compiled module requires."""
    return tuple(np.ascontiguousarray(column) for column in columns)


def dense(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct values in ascending order, and the index of each value among them."""
    return _core.dense_numbers(np.ascontiguousarray(values, np.int64))


def among(values: NDArray[Any], wanted: Collection[int]) -> NDArray[np.bool_]:
    """Whether each of some whole numbers, of which few are distinct, is wanted."""
    if values.dtype == np.uint8:
        table = np.zeros(256, np.bool_)
        table[list(wanted)] = True
        is_wanted: NDArray[np.bool_] = table[values]
        return is_wanted
    different, place = dense(values)
    return np.isin(different, list(wanted))[place]


def sorted_rows(rows: NDArray[np.int64], key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows in ascending order of their keys; equal ones keep their order."""
    if (key[1:] >= key[:-1]).all():
        return rows
    return rows[np.argsort(key, kind="stable")]


def distinct(
    columns: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of each distinct combination of columns.

    Args:
        columns: Columns of N rows, one or more.

    Returns:
        The first row of each combination, these in ascending order, and the number of the
        combination of each row, shape (N,).
    """
    _, place = dense(columns[0])
    for column in columns[1:]:
        values, number = dense(column)
        _, place = dense(place * len(values) + number)
    first = np.zeros(int(place.max(initial=-1)) + 1, np.int64)
    first[place[::-1]] = np.arange(len(place) - 1, -1, -1)
    return first, place


def stream_of(posts: Posts, n_ranks: int) -> NDArray[np.int64]:
    """Number of the (source, destination, channel) of each post; only meaningful where known."""
    source = np.where(posts.is_send, posts.rank, posts.peer)
    target = np.where(posts.is_send, posts.peer, posts.rank)
    _, channel = dense(posts.channel)
    n_channels = int(channel.max(initial=0)) + 1
    pair = source * n_ranks + target
    return dense(pair * n_channels + channel)[1]


def guess_sources(
    posts: Posts, n_ranks: int, ends: NDArray[np.int64] | None = None
) -> tuple[int, bool]:
    """Match receives of unknown source to the messages that no other receive takes.

    EZTrace does not record the match of a non-blocking receive. Ranks are run from wait to wait,
    and an open receive takes a message that has been sent by then: from all streams of its rank
    evenly (message i of n at i / n of the run); of two equal ones that which was sent after fewer
    waits, or else by a rank to which the receiver sends before the same wait. This is correct for
    programs that receive the same number of messages of each stream in every step. A rank with more
    such receives than messages has receives of MPI_PROC_NULL, the same number in every step: its
    messages are spread evenly over its receives, so that each stays in its step.

    Args:
        posts: In any order; peer, channel and size of these receives are filled in.
        n_ranks: Number of ranks.
        ends: Position of the wait for each post, shape (P,); defaults to ``wait_position``.

    Returns:
        The number of receives that got a source, and whether all streams of each rank are equally
        long; if not, the order may differ from that of the run.
    """
    lost = (posts.peer == UNKNOWN) & ~posts.is_send
    if not lost.any():
        return 0, True
    order = np.lexsort((posts.step, posts.position, posts.rank))
    rows = order[~posts.collective[order]]
    columns = (getattr(posts, name)[rows] for name in _MATCHED_BY)
    if ends is None:
        ends = np.where(posts.wait_position == UNKNOWN, np.iinfo(np.int64).max, posts.wait_position)
    unclaimed = _unclaimed(posts.take(rows), n_ranks)
    unused = _without_message(posts.rank[rows], lost[rows], unclaimed, n_ranks)
    source = _core.match_unknown_sources(
        n_ranks, contiguous(*columns), *contiguous(ends[rows], unused)
    )
    to, source = rows[source >= 0], rows[source[source >= 0]]
    posts.peer[to] = posts.rank[source]
    posts.channel[to] = posts.channel[source]
    posts.size[to] = posts.size[source]
    shortest, longest = np.full(n_ranks, 2**62), np.zeros(n_ranks, np.int64)
    target, number = unclaimed
    np.minimum.at(shortest, target, number)
    np.maximum.at(longest, target, number)
    return len(to), bool((shortest[target] == longest[target]).all())


_MATCHED_BY = ("rank", "position", "step", "is_send", "peer", "channel")


def _unclaimed(posts: Posts, n_ranks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Receiver of each stream with messages that no receive of known source takes, and how many."""
    posts = posts.take(posts.peer != UNKNOWN)
    stream = stream_of(posts, n_ranks)
    size = int(stream.max(initial=-1)) + 1
    sends = np.bincount(stream[posts.is_send], minlength=size)
    number = sends - np.bincount(stream[~posts.is_send], minlength=size)
    target = np.zeros(size, np.int64)
    target[stream[posts.is_send]] = posts.peer[posts.is_send]
    return target[number > 0], number[number > 0]


def _without_message(
    rank: NDArray[np.int64],
    lost: NDArray[np.bool_],
    unclaimed: tuple[NDArray[np.int64], NDArray[np.int64]],
    n_ranks: int,
) -> NDArray[np.bool_]:
    """Receives that take nothing if the messages of a rank are spread evenly over all."""
    messages = np.bincount(unclaimed[0], unclaimed[1], minlength=n_ranks).astype(np.int64)[rank]
    receives = np.bincount(rank[lost], minlength=n_ranks)[rank]
    turn = np.zeros(len(rank), np.int64)
    turn[lost] = index_within_group(rank[lost])
    # Message j is taken by the receive with the number (2j + 1) R / 2M, rounded down.
    nearest = (2 * turn * messages + messages) // np.maximum(2 * receives, 1)
    takes = np.zeros(len(rank), np.bool_)
    for j in (nearest - 1, nearest, nearest + 1):
        inside = (j >= 0) & (j < messages)
        takes |= inside & ((2 * j + 1) * receives // np.maximum(2 * messages, 1) == turn)
    return lost & (receives > messages) & ~takes


def in_order(posts: Posts, n_ranks: int) -> tuple[Posts, NDArray[np.int64]]:
    """Sort posts by rank, position and step, and match sends with receives.

    For each source, destination and channel, the k-th send matches the k-th receive.

    Args:
        posts: In any order.
        n_ranks: Number of ranks.

    Returns:
        The posts in order, and the row of each one's partner, -1 without, shape (P,); posts of
        unknown peer have none.
    """
    order, partner = _core.pair_posts(
        n_ranks,
        contiguous(
            posts.rank, posts.position, posts.step, posts.is_send, posts.peer, posts.channel
        ),
    )
    return posts if order is None else posts.take(order), partner
