"""From posted sends and receives to a rank program: the last step of every reader of events."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.io.delimited import NotUsed
from tailback.traffic.program import Label, Program
from tailback.traffic.readers.posts import UNKNOWN, Posts, contiguous, dense, in_order

LATE = 2**40
"""Step after all others at its position."""
END = 2**62
"""Position after all events."""

_SCATTERS = ("MPI_Scatterv", "MPI_Iscatterv")
"""Collectives in which each rank records the block it receives, and the root only the total."""


class Computes(NamedTuple):
    """The C computations between calls.

    Attributes:
        rank: Rank, shape (C,).
        position: Place in the order of all events, shape (C,).
        ps: Duration in picoseconds, shape (C,).
    """

    rank: NDArray[np.int64]
    position: NDArray[np.int64]
    ps: NDArray[np.uint64]


class ImpliedWaits(NamedTuple):
    """The W waits that are not in the ``wait_position`` of a post.

    Attributes:
        rank: Rank, shape (W,).
        position: Place in the order of all events, shape (W,).
        post: Row of the post that is waited for, -1 for all that are open, shape (W,).
    """

    rank: NDArray[np.int64]
    position: NDArray[np.int64]
    post: NDArray[np.int64]


def wait_at_end(posts: Posts, waits: ImpliedWaits, n_ranks: int) -> ImpliedWaits:
    """A wait for all at the end of every rank that has a request without an earlier wait."""
    last = np.full(n_ranks, -1)
    np.maximum.at(last, waits.rank, waits.position)
    open_ = (posts.wait_position == UNKNOWN) & (posts.position > last[posts.rank])
    rank = np.unique(posts.rank[open_])
    return ImpliedWaits(rank, np.full(len(rank), END), np.full(len(rank), -1))


def compile_posts(
    name: str,
    n_ranks: int,
    posts: Posts,
    labels: list[Label],
    waits: ImpliedWaits,
    computes: Computes,
    notes: list[str],
) -> Program:
    """Compile the posts, waits and computations of a trace to a program.

    Args:
        name: What to call the application.
        n_ranks: Number of ranks.
        posts: Sends and receives in any order.
        labels: Labels by number.
        waits: Waits for all open requests; requests that remain are waited for at the end.
        computes: Computations.
        notes: Notes so far; gets more.

    Returns:
        The program, with labels and notes.
    """
    posts = drop_unpaired(posts, n_ranks, labels, notes)
    used, posts.label = dense(posts.label)
    last = wait_at_end(posts, waits, n_ranks)
    every = ImpliedWaits(*(np.concatenate(pair) for pair in zip(waits, last, strict=True)))
    program = assemble(name, n_ranks, posts, every, computes)
    program.labels = [labels[number] for number in used] or [Label("all", "none")]
    program.notes = notes
    program.check()
    return program


def drop_unpaired(posts: Posts, n_ranks: int, labels: list[Label], notes: list[str]) -> Posts:
    """Posts with a partner, sorted; a post without one would block its rank forever.

    Args:
        posts: In any order.
        n_ranks: Number of ranks.
        labels: Labels by number.
        notes: Gets a line for what is left out, and for sizes that differ between the two ends.
    """
    before = len(notes)
    posts, partner = in_order(posts, n_ranks)
    _reconcile_sizes(posts, partner, labels, notes)
    lost = partner < 0
    if not lost.any():
        return posts
    collective = posts.collective
    lost_lines = lost_notes(
        int((lost & posts.is_send & ~collective).sum()),
        int((lost & ~posts.is_send & ~collective).sum()),
        int((lost & collective).sum()),
    )
    notes[before:before] = lost_lines
    return posts.take(~lost)


def lost_notes(sends: int, receives: int, collective: int) -> list[str]:
    """Notes on messages that are left out."""
    out = list[str]()
    for lost, kind, other in ((sends, "sends", "receive"), (receives, "receives", "send")):
        if lost:
            out.append(NotUsed(f"{lost} {kind} without a matching {other} are left out"))
    if collective:
        out.append(
            NotUsed(f"{collective} messages of collectives do not fit together and are left out")
        )
    return out


def sizes_note(number: int, sent: int, peer: int, tag: int, rank: int, received: int) -> str:
    """Note on messages of which the trace has two sizes; all but ``number`` is about the first."""
    return (
        f"{number} messages differ in size between sender and receiver "
        f"(the first: {sent} B from rank {peer} with tag {tag}, "
        f"received by rank {rank} as {received} B): the sender's counts, "
        "and their order may not be that of the run"
    )


def messages_notes(
    labels: list[Label], lost: list[int], differing: tuple[int, int, int, int, int, int] | None
) -> list[str]:
    """Notes on what the compiled module left out, and on messages with two sizes.

    Args:
        labels: Labels by number.
        lost: Sends, receives and messages of collectives without a partner.
        differing: Number of messages with two sizes; bytes sent, sender, label, receiver and bytes
            received of the first.
    """
    notes = lost_notes(*lost)
    if differing:
        number, sent, peer, label, rank, received = differing
        notes.append(sizes_note(number, sent, peer, labels[label].tag, rank, received))
    return notes


def scatters(labels: list[Label]) -> list[int]:
    """Labels of collectives whose receivers record their block, and the root only the total."""
    return [number for number, label in enumerate(labels) if label.call in _SCATTERS]


def _reconcile_sizes(
    posts: Posts, partner: NDArray[np.int64], labels: list[Label], notes: list[str]
) -> None:
    """Give both ends of each message the same size, and note those for which the trace has two.

    MPI delivers what is sent: a different size means that records are lost or out of order. For
    MPI_Scatterv the receivers' sizes are used, as the root records only the total.
    """
    receive = np.flatnonzero(~posts.is_send & (partner >= 0))
    scattered = scatters(labels)
    if scattered:
        receivers = receive[posts.collective[receive] & np.isin(posts.label[receive], scattered)]
        posts.size[partner[receivers]] = posts.size[receivers]
    sent = posts.size[partner[receive]]
    wrong = posts.size[receive] != sent
    if not wrong.any():
        return
    wrong &= posts.peer_known[receive] & ~posts.collective[receive]
    if wrong.any():
        row, size = receive[wrong][0], int(sent[wrong][0])
        tag = labels[int(posts.label[row])].tag
        notes.append(
            sizes_note(
                int(wrong.sum()),
                size,
                int(posts.peer[row]),
                tag,
                int(posts.rank[row]),
                int(posts.size[row]),
            )
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
        waits: Waits in addition to those of ``posts``.
        computes: Computations.

    Returns:
        The program, without labels.
    """
    columns = _core.assemble_posts(
        n_ranks,
        *columns_of(posts),
        contiguous(waits.rank, waits.position, waits.post),
        contiguous(computes.rank, computes.position, computes.ps),
    )
    return Program(name=name, labels=[], **columns)


def columns_of(posts: Posts) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]:
    """Posts as the compiled module takes them."""
    return (
        contiguous(
            posts.rank, posts.position, posts.step, posts.is_send, posts.peer, posts.channel
        ),
        contiguous(posts.size, posts.label, posts.wait_position, posts.wait_step),
    )
