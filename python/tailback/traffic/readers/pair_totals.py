"""From bytes and messages between pairs of ranks, without time or order, to a rank program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailback.available import memory_for_input
from tailback.errors import TraceError
from tailback.traffic.program import Label, Op, Program, require_memory

Row = tuple[int, int, int, int, int]
"""Source, destination, number of the label, bytes of all messages, messages (at least one)."""


def program_of_totals(
    name: str, n_ranks: int, rows: Sequence[Row], labels: Sequence[Label], notes: Sequence[str] = ()
) -> Program:
    """Messages of a profile as a rank program without times.

    Every rank posts all its receives, then its sends one message after the other to each partner in
    turn, then waits for all. ``n`` messages of ``b`` bytes in total become ``n`` of ``b // n``,
    with the remainder in the last.

    Args:
        name: What to call the application.
        n_ranks: Number of ranks.
        rows: Totals; a pair may have several rows, one for each size of message.
        labels: The labels by number.
        notes: Notes of the reader.

    Raises:
        TraceError: There are too many messages.
    """
    # Two posts per message; a short line of text may stand for any number of messages.
    messages = sum(row[4] for row in rows)
    require_memory(
        2 * messages + n_ranks,
        memory_for_input(),
        what=f"a profile of {messages:,} messages",
        error=TraceError,
        remedy="profile a shorter run",
    )
    source = np.array([row[0] for row in rows], np.int64)
    target = np.array([row[1] for row in rows], np.int64)
    label = np.array([row[2] for row in rows], np.int64)
    size = np.array([row[3] for row in rows], np.uint64)
    count = np.array([row[4] for row in rows], np.int64)
    pair = np.repeat(np.arange(len(rows)), count)
    turn = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    amount = _sizes(size, count, pair, turn)
    n = len(pair)
    # Receives first, then sends round-robin over the partners, then one WAITALL.
    ranks = np.arange(n_ranks)
    busy = ranks[np.isin(ranks, source) | np.isin(ranks, target)]
    rank = np.concatenate([target[pair], source[pair], busy])
    stage = np.repeat([0, 1, 2], [n, n, len(busy)])
    round_ = np.concatenate([turn, turn, np.zeros(len(busy), np.int64)])
    partner = np.concatenate([source[pair], target[pair], np.full(len(busy), -1)])
    kind = np.array([Op.IRECV, Op.ISEND, Op.WAITALL], np.uint8)[stage]
    waits = np.zeros(len(busy), np.int64)
    numbers = np.concatenate([label[pair], label[pair], waits])
    amounts = np.concatenate([amount, amount, waits.astype(np.uint64)])
    order = np.lexsort((numbers, partner, round_, stage, rank))
    start = np.zeros(n_ranks + 1, np.uint64)
    start[1:] = np.cumsum(np.bincount(rank, minlength=n_ranks))
    request = np.arange(len(order)) - start[rank[order]].astype(np.int64)
    request[stage[order] == 2] = -1
    program = Program(
        name=name,
        rank_start=start,
        kind=kind[order],
        peer=partner[order].astype(np.int32),
        amount=amounts[order],
        tag=numbers[order],
        request=request.astype(np.int32),
        label=numbers[order].astype(np.uint32),
        labels=list(labels),
        notes=[
            "a profile has no time and no order: every rank posts all its messages at once",
            *notes,
        ],
    )
    program.check()
    return program


def _sizes(
    size: NDArray[np.uint64],
    count: NDArray[np.int64],
    pair: NDArray[np.int64],
    turn: NDArray[np.int64],
) -> NDArray[np.uint64]:
    """Bytes of each message: even shares, the remainder in the last."""
    share = size // np.maximum(count, 1).astype(np.uint64)
    remainder = size - share * count.astype(np.uint64)
    last = turn == count[pair] - 1
    return share[pair] + np.where(last, remainder[pair], np.uint64(0))
