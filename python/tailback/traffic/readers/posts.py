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


def guess_sources(posts: Posts, n_ranks: int) -> tuple[int, bool]:
    """Match receives of unknown source to the messages that no other receive takes.

    EZTrace does not record the match of a non-blocking receive. The unmatched messages to a rank
    are assigned to its open receives with the streams evenly interleaved: in a stream of n
    messages, message i is placed at i / n of the run. For programs that receive the same number of
    messages of each stream in every step this is correct. A rank with more such receives than
    messages has receives of MPI_PROC_NULL, the same number in every step: its messages are spread
    evenly over its receives, so that each stays in its step.

    Args:
        posts: Sorted by rank and position; peer, channel and size of these receives are filled in.
        n_ranks: Number of ranks.

    Returns:
        The number of receives that got a source, and whether all streams of each rank are equally
        long; if not, the order may differ from that of the run.
    """
    has_source = posts.peer != UNKNOWN
    lost = np.flatnonzero(~has_source & ~posts.is_send)
    if not len(lost):
        return 0, True
    rows = np.flatnonzero(has_source)
    sub = posts.take(rows)
    stream = stream_of(sub, n_ranks)
    claimed = np.bincount(stream[~sub.is_send], minlength=int(stream.max(initial=0)) + 1)
    send = np.flatnonzero(sub.is_send & ~sub.collective)
    left = index_within_group(stream[send]) - claimed[stream[send]]
    send, left = send[left >= 0], left[left >= 0]
    if not len(send):
        return 0, True
    total = np.bincount(stream[send])[stream[send]]
    target = sub.peer[send]
    deal = np.lexsort((stream[send], (left + 0.5) / total, target))
    send, target = send[deal], target[deal]
    # The k-th message for a rank goes to its k-th receive, if their numbers are equal.
    receiver = posts.rank[lost]
    turn_sent, turn_posted = index_within_group(target), index_within_group(receiver)
    messages = np.bincount(target, minlength=n_ranks)[target]
    receives = np.bincount(receiver, minlength=n_ranks)[target]
    spread = (2 * turn_sent + 1) * receives // (2 * messages)
    turn_sent = np.where(receives > messages, spread, turn_sent)
    width = max(int(turn_sent.max()), int(turn_posted.max())) + 1
    slots = target * width + turn_sent
    wanted = receiver * width + turn_posted
    at = np.minimum(np.searchsorted(slots, wanted), len(slots) - 1)
    matched = slots[at] == wanted
    to, source = lost[matched], send[at[matched]]
    posts.peer[to] = sub.rank[source]
    posts.channel[to] = sub.channel[source]
    posts.size[to] = sub.size[source]
    shortest, longest = np.full(n_ranks, 2**62), np.zeros(n_ranks, np.int64)
    np.minimum.at(shortest, target, total[deal])
    np.maximum.at(longest, target, total[deal])
    return len(to), bool((shortest[target] == longest[target]).all())


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
