"""Links between records of a trace: requests and completions, probes and receives."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.readers.posts import among

SEND, ISEND, ISEND_COMPLETE, IRECV_REQUEST, RECV, IRECV, TEST, CANCELLED, COLLECTIVE = range(9)
ICOLLECTIVE_REQUEST, ICOLLECTIVE_COMPLETE, PROBE, MRECV, IMRECV_REQUEST, IMRECV = range(9, 15)
ONE_SIDED, ONE_SIDED_COMPLETE, ONE_SIDED_SYNC = 15, 16, 17
"""Kinds of message records; the numbers are those of ``crates/trace``."""

_POSTS = (ISEND, IRECV_REQUEST, ICOLLECTIVE_REQUEST, IMRECV_REQUEST)
_COMPLETES = (ISEND_COMPLETE, IRECV, CANCELLED, ICOLLECTIVE_COMPLETE, IMRECV)
_RECEIVES_FOUND = (MRECV, IMRECV_REQUEST)


def across_threads(
    m: dict[str, NDArray[Any]],
    rank: NDArray[np.int64],
    position: NDArray[np.int64],
    threaded: NDArray[np.bool_],
) -> None:
    """Link the records of ranks with several threads, which were read separately.

    A request belongs to the process: one thread may post it and another complete it, and a message
    that one thread has probed may be received by another.

    Args:
        m: Columns ``kind``, ``request`` and ``message`` of the message records, shape (M,) each;
            ``posted`` and ``probed``, rows of the table, are written.
        rank: World rank, shape (M,).
        position: Place in the order of all events, shape (M,).
        threaded: Whether a rank has several threads with records, shape (ranks,).
    """
    rows = np.flatnonzero(threaded[rank])
    if not len(rows):
        return
    kind = m["kind"][rows]
    for link, name, opening, closing in (
        ("posted", "request", _POSTS, _COMPLETES),
        ("probed", "message", (PROBE,), _RECEIVES_FOUND),
    ):
        opens, closes = among(kind, opening), among(kind, closing)
        opener = _latest(opens, closes, rank[rows], m[name][rows], position[rows])
        m[link][rows] = np.where(opener >= 0, rows[opener], -1)


def _latest(
    opens: NDArray[np.bool_],
    closes: NDArray[np.bool_],
    owner: NDArray[np.int64],
    number: NDArray[np.uint64],
    position: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The opening row for each closing row, -1 if there is none; numbers are reused."""
    out = np.full(len(owner), -1, np.int64)
    rows = np.flatnonzero(opens | closes)
    rows = rows[np.lexsort((position[rows], number[rows], owner[rows]))]
    before, after = rows[:-1], rows[1:]
    same = (owner[before] == owner[after]) & (number[before] == number[after])
    same &= opens[before] & closes[after]
    out[after[same]] = before[same]
    return out


def as_receives(m: dict[str, NDArray[Any]]) -> None:
    """Convert receives of matched probes to ordinary receives, with the peer and tag of the probe.

    Args:
        m: Columns of the message records, shape (M,) each; ``kind``, ``peer``, ``comm``, ``tag``
            and ``probed`` are written. Receives without a record of their probe are left unchanged.
    """
    kind = m["kind"]
    if not among(kind, (MRECV, IMRECV_REQUEST)).any():
        return
    done = np.flatnonzero((kind == IMRECV) & (m["posted"] >= 0))
    done = done[kind[m["posted"][done]] == IMRECV_REQUEST]
    probe = m["probed"].copy()
    probe[done] = m["probed"][m["posted"][done]]
    for matched, plain in ((MRECV, RECV), (IMRECV_REQUEST, IRECV_REQUEST), (IMRECV, IRECV)):
        rows = np.flatnonzero((kind == matched) & (probe >= 0))
        for column in ("peer", "comm", "tag"):
            m[column][rows] = m[column][probe[rows]]
        kind[rows] = plain
