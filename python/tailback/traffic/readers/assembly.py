"""From posted sends and receives to a rank program: what every reader of events ends with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import Label, Op, Program
from tailback.traffic.readers.posts import UNKNOWN, Posts, match_posts

LATE = 2**40
"""A step later than any other at its position."""
END = 2**62
"""A position later than any event's."""

_SCATTERS = ("MPI_Scatterv", "MPI_Iscatterv")
"""Collectives of which each rank records the block it receives, and the root only their total."""


class Computes(NamedTuple):
    """Computations between calls, C of them.

    Attributes:
        rank: Who computes, shape (C,).
        position: Place in the order of all events, shape (C,).
        ps: For how long, shape (C,).
    """

    rank: NDArray[np.int64]
    position: NDArray[np.int64]
    ps: NDArray[np.uint64]


class ImpliedWaits(NamedTuple):
    """Waits that no post has as its ``wait_position``, W of them.

    Attributes:
        rank: Who waits, shape (W,).
        position: Place in the order of all events, shape (W,).
        post: Row of the post that is waited for, -1 for all that are open, shape (W,).
    """

    rank: NDArray[np.int64]
    position: NDArray[np.int64]
    post: NDArray[np.int64]


def wait_at_end(posts: Posts, waits: ImpliedWaits, n_ranks: int) -> ImpliedWaits:
    """A wait for all at the end of every rank with a request that nothing before waits for."""
    last = np.full(n_ranks, -1)
    np.maximum.at(last, waits.rank, waits.position)
    open_ = (posts.wait_position == UNKNOWN) & (posts.position > last[posts.rank])
    rank = np.unique(posts.rank[open_])
    return ImpliedWaits(rank, np.full(len(rank), END), np.full(len(rank), -1))


def compile_posts(
    name: str, n_ranks: int, posts: Posts, labels: list[Label], waits: ImpliedWaits,
    computes: Computes, notes: list[str],
) -> Program:  # fmt: skip
    """Make a program of what the ranks of a trace post, wait for and compute.

    Args:
        name: What to call the application.
        n_ranks: Number of ranks.
        posts: Sends and receives in any order.
        labels: Labels by number.
        waits: Waits for all open requests; what they leave open is waited for at the end.
        computes: Computations.
        notes: What is odd so far; gets more.

    Returns:
        The program, with labels and notes.
    """
    posts = drop_unpaired(posts, n_ranks, labels, notes)
    used, posts.label = np.unique(posts.label, return_inverse=True)
    last = wait_at_end(posts, waits, n_ranks)
    every = ImpliedWaits(*(np.concatenate(pair) for pair in zip(waits, last, strict=True)))
    program = assemble(name, n_ranks, posts, every, computes)
    program.labels = [labels[number] for number in used] or [Label("all", "none")]
    program.notes = notes
    program.check()
    return program


def drop_unpaired(posts: Posts, n_ranks: int, labels: list[Label], notes: list[str]) -> Posts:
    """Posts that have a partner, sorted; half-recorded ones would block their rank for ever.

    Args:
        posts: In any order.
        n_ranks: Number of ranks.
        labels: Labels by number.
        notes: Gets a line for what is left out, and for sizes that the two ends disagree about.
    """
    posts = posts.take(np.lexsort((posts.step, posts.position, posts.rank)))
    partner = match_posts(posts, n_ranks)
    lost = partner < 0
    for is_send, one, other in ((True, "sends", "receive"), (False, "receives", "send")):
        number = int((lost & (posts.is_send == is_send) & ~posts.collective).sum())
        if number:
            notes.append(f"{number} {one} without a matching {other} are left out")
    if (lost & posts.collective).any():
        number = int((lost & posts.collective).sum())
        notes.append(f"{number} messages of collectives do not fit together and are left out")
    _settle_sizes(posts, partner, labels, notes)
    return posts.take(~lost)


def _settle_sizes(
    posts: Posts, partner: NDArray[np.int64], labels: list[Label], notes: list[str]
) -> None:
    """Give both ends of each message one size, and count those the trace tells two of.

    MPI delivers what is sent: another size means that records are lost or out of order. Only of
    MPI_Scatterv it is the receivers who know: the root has the total of all.
    """
    receive = np.flatnonzero(~posts.is_send & (partner >= 0))
    scattered = [number for number, label in enumerate(labels) if label.call in _SCATTERS]
    known = receive[posts.collective[receive] & np.isin(posts.label[receive], scattered)]
    posts.size[partner[known]] = posts.size[known]
    sent = posts.size[partner[receive]]
    wrong = posts.peer_known[receive] & ~posts.collective[receive] & (posts.size[receive] != sent)
    if wrong.any():
        row, size = receive[wrong][0], int(sent[wrong][0])
        tag = labels[int(posts.label[row])].tag
        notes.append(
            f"{int(wrong.sum())} messages have another size where they are received than where "
            f"they are sent (the first: {size} B from rank {posts.peer[row]} with tag {tag}, "
            f"received by rank {posts.rank[row]} as {posts.size[row]} B): the sender's counts, "
            "and their order may not be that of the run"
        )
    posts.size[receive] = sent


def assemble(
    name: str, n_ranks: int, posts: Posts, waits: ImpliedWaits, computes: Computes
) -> Program:
    """Put posts, waits and computations of each rank in order.

    Args:
        name: What to call the application.
        n_ranks: Number of ranks.
        posts: As :func:`drop_unpaired` returns them.
        waits: Waits besides those that ``posts`` tell.
        computes: Computations.

    Returns:
        The program, without labels.
    """
    n = len(posts)
    completed = np.flatnonzero(posts.wait_position != UNKNOWN)
    rank = np.concatenate([posts.rank, posts.rank[completed], waits.rank, computes.rank])
    position = np.concatenate(
        [posts.position, posts.wait_position[completed], waits.position, computes.position]
    )
    idle = len(computes.rank)
    step = np.concatenate(
        [
            posts.step,
            posts.wait_step[completed],
            np.full(len(waits.rank), LATE),
            np.zeros(idle, int),
        ]
    )
    post = np.concatenate([np.arange(n), completed, waits.post, np.full(idle, -1)])
    kind = np.concatenate([
        np.where(posts.is_send, Op.ISEND, Op.IRECV),
        np.full(len(completed), Op.WAIT),
        np.where(waits.post < 0, Op.WAITALL, Op.WAIT),
        np.full(idle, Op.COMPUTE),
    ])  # fmt: skip
    # Ties are kept in the order of the posts: lexsort is stable.
    order = np.lexsort((step, position, rank))
    # Requests are numbered in the order a rank posts them; posts are sorted already.
    first_post = np.searchsorted(posts.rank, np.arange(n_ranks))
    request_of = np.append(np.arange(n) - first_post[posts.rank], -1)
    padded = {
        "peer": np.concatenate([posts.peer, np.full(len(order) - n, -1)]),
        "tag": np.concatenate([posts.channel, np.zeros(len(order) - n, np.int64)]),
        "label": np.concatenate([posts.label, np.zeros(len(order) - n, np.int64)]),
    }
    amount = np.zeros(len(order), np.uint64)
    amount[:n] = posts.size
    amount[len(order) - idle :] = computes.ps
    start = np.zeros(n_ranks + 1, np.uint64)
    start[1:] = np.cumsum(np.bincount(rank, minlength=n_ranks))
    return Program(
        name=name,
        rank_start=start,
        kind=kind[order].astype(np.uint8),
        peer=padded["peer"][order].astype(np.int32),
        amount=amount[order],
        tag=padded["tag"][order],
        request=request_of[post][order].astype(np.int32),
        label=padded["label"][order].astype(np.uint32),
        labels=[],
    )
