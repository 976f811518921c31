"""Bytes to each partner of the collectives of an OTF2 trace, where ranks move different amounts.

OTF2 records of a collective have what a rank sent and received in total. For MPI_Allgatherv and
MPI_Reduce_scatter the totals of all ranks tell the share of each. For MPI_Alltoallv and
MPI_Alltoallw they do not: ``tailback record`` adds the bytes to each rank (see
:mod:`tailback.recorder.collective_sizes`), and other tracers do not. Of MPI_Gatherv and
MPI_Scatterv every rank records its own share, which is what its message has.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.errors import TraceError
from tailback.traffic.collectives_of_counts import Counts
from tailback.traffic.readers.otf2.columns import Trace
from tailback.traffic.readers.otf2.names import OPERATIONS
from tailback.traffic.readers.posts import among

_UNKNOWN = "unknown"
_EXCHANGES = tuple(map(OPERATIONS.index, ("MPI_Alltoallv", "MPI_Alltoallw")))
_ALLGATHERV = OPERATIONS.index("MPI_Allgatherv")
_REDUCE_SCATTER = OPERATIONS.index("MPI_Reduce_scatter")


def sizes_by_partner(
    trace: Trace,
    row: Ints,
    instance: Ints,
    me: Ints,
    notes: list[str],
    file: Path,
) -> tuple[Ints, list[Counts]]:
    """Bytes that the calls of a trace move to and from each partner.

    Args:
        trace: The trace.
        row: Message record of each call, shape (C,).
        instance: Number of its collective, of which all members are there, shape (C,).
        me: Rank within the communicator, shape (C,).
        notes: Gets a line on collectives of which only totals are known.
        file: Anchor file, for errors.

    Returns:
        Index of the counts of each call, -1 where its totals suffice, shape (C,); the counts.

    Raises:
        TraceError: A text is not one of sizes, or has not one for each rank.
    """
    m = trace.messages
    out = np.full(len(row), -1, np.int64)
    counted = np.flatnonzero(among(m.tag[row], (*_EXCHANGES, _ALLGATHERV, _REDUCE_SCATTER)))
    order = counted[np.lexsort((me[counted], instance[counted]))]
    first = np.flatnonzero(np.diff(instance[order], prepend=-1))
    text = _texts(trace, row)
    counts: list[Counts] = []
    numbers_of: dict[tuple[int, bytes, bytes, bytes], Ints | None] = {}
    even: Counter[str] = Counter()
    for begin, end in pairwise([*first.tolist(), len(order)]):
        mine = order[begin:end]
        records = row[mine]
        operation = int(m.tag[records[0]])
        sent, received = m.bytes[records].astype(np.int64), m.received[records].astype(np.int64)
        key = (operation, sent.tobytes(), received.tobytes(), text[mine].tobytes())
        if key not in numbers_of:
            try:
                shares = _shares(trace, operation, sent, received, text[mine])
            except ValueError as error:
                raise TraceError(
                    f"bytes to each rank: {error}",
                    file=file,
                    place=m.place(int(records[0])),
                    remedy="the trace is damaged: copy it again or record it again",
                ) from None
            numbers_of[key] = None if shares is None else len(counts) + np.arange(len(shares))
            counts.extend(shares or ())
        numbers = numbers_of[key]
        if numbers is None:
            even[OPERATIONS[operation]] += bool(sent.any() or received.any())
        elif len(numbers):
            out[mine] = numbers
    notes += [
        f"{number} calls of {name}: only the bytes that each rank moves in total are recorded; "
        "they are taken to be even among its partners"
        for name, number in sorted(even.items())
        if number
    ]
    return out, counts


def _texts(trace: Trace, row: Ints) -> Ints:
    """Number of the text of each message record, -1 without, shape like ``row``."""
    if trace.sizes is None or not len(trace.sizes.rows):
        return np.full(len(row), -1, np.int64)
    at = np.minimum(np.searchsorted(trace.sizes.rows, row), len(trace.sizes.rows) - 1)
    return np.where(trace.sizes.rows[at] == row, trace.sizes.text[at], -1)


def _shares(
    trace: Trace, operation: int, sent: Ints, received: Ints, text: Ints
) -> list[Counts] | None:
    """Counts of each rank; empty if all messages are equal, None if they are not known."""
    size = len(sent)
    a, b = sent.astype(object), received.astype(object)
    if operation in _EXCHANGES:
        return _exchange_counts(trace, sent, text)
    shares: list[int] | None
    if operation == _ALLGATHERV:
        shares = _allgather_shares(a, b, size)
    else:
        even = not (b % size).any() and (a == b.sum() // size).all()
        shares = list(b // size) if even else None
    if shares is None:
        return None
    if len(set(shares)) == 1:
        return []
    return [Counts((), tuple(map(int, shares)))] * size


def _allgather_shares(
    sent: NDArray[np.object_], received: NDArray[np.object_], n: int
) -> list[int] | None:
    """Shares of MPI_Allgatherv if the bytes sent by all ranks equal the bytes each received.

    A tracer may count the bytes a rank sends once, once for each rank, or once for each other rank.
    It may leave out the bytes that a rank in place keeps (see
    :func:`tailback.traffic.collectives.call_bytes`).
    """
    for times in (1, n, n - 1):
        if (sent % times).any():
            continue
        shares = sent // times
        others = shares.sum() - shares
        if all(
            got in (others_sent, others_sent + share)
            for got, others_sent, share in zip(received, others, shares, strict=True)
        ):
            return list(shares)
    return None


def _exchange_counts(trace: Trace, sent: Ints, text: Ints) -> list[Counts] | None:
    size = len(sent)
    if trace.sizes is None:
        return None
    to: list[tuple[int, ...]] = []
    for total, number in zip(sent.tolist(), text.tolist(), strict=True):
        words = trace.sizes.texts.get(number, "") if number >= 0 else f"{size}*{total // size}"
        if words == _UNKNOWN:
            return None
        to.append(parse_sizes(words, size))
        if sum(to[-1]) != total:
            raise ValueError(f"{words[:60]!r} is not {total} in all")
    if all(sizes == to[0] for sizes in to) and len(set(to[0])) == 1:
        return []
    source = zip(*to, strict=True)
    return [Counts(*pair) for pair in zip(to, source, strict=True)]


def parse_sizes(text: str, n: int) -> tuple[int, ...]:
    """The numbers of a text like ``"0 3*64 7"``.

    Args:
        text: Numbers separated by spaces; ``TIMES*NUMBER`` for a run of equal ones.
        n: How many there have to be.

    Raises:
        ValueError: It has another form, another length or a number of more than 63 bits.
    """
    out: list[int] = []
    for word in text.split(" "):
        times, run, number = word.rpartition("*")
        if not number.isdecimal() or len(number) > 19 or (run and not times.isdecimal()):
            raise ValueError(f"{word[:60]!r} is not a number of bytes")
        count, value = int(times[:12]) if run else 1, int(number)
        if len(out) + count > n or value >= 2**63:
            raise ValueError(f"{text[:60]!r} is not of {n} ranks")
        out += [value] * count
    if len(out) != n:
        raise ValueError(f"{text[:60]!r} is not of {n} ranks")
    return tuple(out)


__all__ = ["parse_sizes", "sizes_by_partner"]
