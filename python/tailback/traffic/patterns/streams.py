"""Patterns in which every rank sends a sequence of messages and posts all receives in advance."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tailback.scenario.quantities import SizeBytes
from tailback.traffic.patterns.columns import Operations, assemble, refuse_if_huge
from tailback.traffic.patterns.pattern import FreeSizePattern
from tailback.traffic.program import POSTS, Label, Op, Program

TAG = 101
Post = Literal["sequence", "delivered", "acknowledged", "all"]
"""When a rank posts its next message: the last one has left, has been delivered or acknowledged,
or at once."""

SEND_OF: Final = {"delivered": Op.ISSEND, "acknowledged": Op.ACKNOWLEDGED_SEND}
"""Send operation by ``post``; for other values a send is complete when it has left."""


def call_of(post: str) -> str:
    """The call that posts a message."""
    return "MPI_Issend" if post in SEND_OF else "MPI_Isend"


class StreamPattern(FreeSizePattern):
    """Options of patterns in which each rank sends a number of messages."""

    size: SizeBytes = Field(description='bytes of one message: size = "128 KiB"')
    messages: int = Field(default=1, ge=1, description="messages of each rank")
    post: Post = Field(
        default="sequence",
        description="sequence: next message once the last byte of the one before has left; "
        "delivered: once it has arrived; acknowledged: once the acknowledgement is back; "
        "all: at once",
    )

    def refuse_if_huge(self, n_ranks: int) -> None:
        """Raise ScenarioError when the program would not fit in memory."""
        refuse_if_huge(3 * n_ranks * self.messages)


def stream_program(
    name: str,
    n_ranks: int,
    source: NDArray[np.int64],
    destination: NDArray[np.int64],
    size: int | NDArray[np.int64],
    post: Post,
    label: Label,
) -> Program:
    """Each rank posts all its receives, then sends its messages in order, then waits for all.

    Args:
        name: What to call the application.
        n_ranks: Number of ranks.
        source: Sending rank of each message; a rank's messages in their order, shape (K,).
        destination: Receiving rank of each message, shape (K,).
        size: Bytes of each message, one number for all or shape (K,).
        post: ``"sequence"`` waits for each send before the next, ``"delivered"`` for its delivery,
            ``"acknowledged"`` for its acknowledgement; ``"all"`` posts them at once.
        label: Label of all messages.
    """
    count = len(source)
    index, ranks = np.arange(count), np.arange(n_ranks)
    # Receives in the order of the messages, then sends (each before its wait), then the last wait.
    rank = [destination, source, ranks]
    stage = [np.zeros(count), np.ones(count), np.full(n_ranks, 2)]
    place = [index, 2 * index, ranks * 0]
    send = SEND_OF.get(post, Op.ISEND)
    kind = [np.full(count, Op.IRECV), np.full(count, send), np.full(n_ranks, Op.WAITALL)]
    sizes = np.broadcast_to(size, count)
    amount = [sizes, sizes, ranks * 0]
    peer = [source, destination, np.full(n_ranks, -1)]
    if post != "all":
        rank.append(source)
        stage.append(np.ones(count))
        place.append(2 * index + 1)
        kind.append(np.full(count, Op.WAIT))
        peer.append(np.full(count, -1))
        amount.append(index * 0)
    all_ranks, kinds = np.concatenate(rank), np.concatenate(kind)
    order = np.lexsort((np.concatenate(place), np.concatenate(stage), all_ranks))
    message = np.isin(kinds, POSTS)
    operations = Operations(
        rank=all_ranks[order],
        kind=kinds[order].astype(np.uint8),
        peer=np.concatenate(peer)[order].astype(np.int32),
        amount=np.concatenate(amount)[order].astype(np.uint64),
        tag=np.where(message, TAG, 0)[order],
        label=np.zeros(len(order), np.uint32),
    )
    return assemble(name, n_ranks, operations, [label])


def in_order(to: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sources and destinations of the messages of ``to``, shape (R, messages), rank after rank."""
    return np.repeat(np.arange(len(to)), to.shape[1]), to.ravel()
