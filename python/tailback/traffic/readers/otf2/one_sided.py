"""One-sided operations of a trace (MPI_Put, MPI_Get, MPI_Accumulate …) as messages.

A put is a message from its origin, posted at the call and complete at the origin where the trace
records it, else at the call that closes the epoch: the next fence, MPI_Win_complete, unlock, flush
or MPI_Win_free of the rank. A get is a message from the target to the origin, and an operation that
does both is two messages. What the target does depends on the epoch (MPI 4.0, section 12.5):

* fence: the target is ready from its previous fence on, and its fence waits for the message. The
  epochs of ranks with different numbers of fences cannot be told apart, and count as locks;
* post, start, complete, wait: the target is ready from MPI_Win_post on, and MPI_Win_wait waits. The
  n-th exposure of the target belongs to the n-th access of the origin if their numbers are equal;
* lock: the target is always ready and never waits.

Only calls on the window of an operation count, where the trace records the window of a call
(Score-P and ``tailback record`` do); where it does not, those of all windows. Calls are not
synchronised by messages of their own.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.readers.collective_posts import no_posts
from tailback.traffic.readers.otf2.columns import Trace
from tailback.traffic.readers.otf2.links import ONE_SIDED, ONE_SIDED_COMPLETE, ONE_SIDED_SYNC
from tailback.traffic.readers.otf2.names import Labels, normalised_call, world_ranks
from tailback.traffic.readers.posts import Posts, among

_UNKNOWN = -1
"""Window of a call of which the trace does not record it."""

_LATE = 2**40
"""Step after all others at its position, as of :mod:`tailback.traffic.readers.assembly`."""

_CLOSE_LOCK = frozenset(
    f"mpi_win_{name}"
    for name in (
        "unlock",
        "unlock_all",
        "flush",
        "flush_all",
        "flush_local",
        "flush_local_all",
        "free",
    )
)
_FETCHING = frozenset(
    ("mpi_get_accumulate", "mpi_rget_accumulate", "mpi_fetch_and_op", "mpi_compare_and_swap")
)
"""Calls that fetch as much as they send; ``tailback record`` writes only what they send."""


class _Exposure(NamedTuple):
    """When a target takes part: position, step and position of its wait."""

    position: int
    step: int
    wait: int


class _Operations(NamedTuple):
    """Operations: row of the message, origin and target, and bytes each way, shape (E,)."""

    row: NDArray[np.int64]
    origin: NDArray[np.int64]
    target: NDArray[np.int64]
    put: NDArray[np.int64]
    got: NDArray[np.int64]


def one_sided_posts(
    trace: Trace, labels: Labels, first_channel: int, notes: list[str], file: Path
) -> Posts:
    """Sends and receives of one-sided operations.

    Args:
        trace: The trace.
        labels: Where labels are numbered.
        first_channel: First free channel; each message has its own.
        notes: Gets a line for what is left out or assumed.
        file: Anchor file, for errors.

    Returns:
        The posts, in no particular order.

    Raises:
        TraceError: A target is not a member of the communicator of its window.
    """
    operations = _operations(trace, notes, file)
    if not len(operations.row):
        return no_posts()
    timing = _Timing(trace)
    m = trace.messages
    none = np.full(len(operations.row), -1)
    call = np.where(m.call[operations.row] >= 0, trace.calls.region[m.call[operations.row]], -1)
    names = {-1: "MPI_Put"} | trace.regions
    label = labels.number(
        m.phase[operations.row], m.path[operations.row], call, none, m.comm[operations.row], names
    )
    rows: list[tuple[int, ...]] = []
    columns = [column.tolist() for column in operations]
    for at, (row, origin, target, put, got) in enumerate(zip(*columns, strict=True)):
        ends = timing.origin(row, origin), timing.target(row, origin, target)
        for size, to_target in ((put, True), (got, False)):
            if size < 0:
                continue
            channel, text = first_channel + len(rows) // 2, int(label[at])
            for rank, peer, end, is_send in (
                (origin, target, ends[0], to_target),
                (target, origin, ends[1], not to_target),
            ):
                rows.append(
                    (rank, end.position, end.step, is_send, peer, channel, size, text, end.wait)
                )
    if timing.as_locks:
        notes.append(
            f"{timing.as_locks} one-sided operations have no epoch of their target in the "
            "trace: it is assumed to be always ready"
        )
    return _table(rows, timing.thread)


def _operations(trace: Trace, notes: list[str], file: Path) -> _Operations:
    """The operations in the order of their ranks and calls."""
    m = trace.messages
    rows = np.flatnonzero(m.kind == ONE_SIDED)
    unknown = m.comm[rows] < 0
    if unknown.any():
        notes.append(
            f"{int(unknown.sum())} one-sided operations on windows that the trace does "
            "not define are left out"
        )
        rows = rows[~unknown]
    origin = m.rank[rows]
    target = world_ranks(trace, rows, origin, file)
    put, got = m.bytes[rows].astype(np.int64), m.received[rows].astype(np.int64)
    if len(rows) and len(trace.calls.region):
        fetching = [at for at, name in trace.regions.items() if normalised_call(name) in _FETCHING]
        inside = m.call[rows] >= 0
        fetches = inside & among(trace.calls.region[m.call[rows]], fetching)
        got = np.where(fetches & (got == 0), put, got)
    # One that moves nothing is a message of no bytes to the target.
    sends = (put > 0) | (got == 0)
    return _Operations(rows, origin, target, np.where(sends, put, -1), np.where(got > 0, got, -1))


def _table(rows: list[tuple[int, ...]], thread: NDArray[np.int64]) -> Posts:
    columns = np.array(rows, np.int64).reshape(-1, 9).T
    rank, position, step, is_send, peer, channel, size, label, wait = columns
    n = len(rank)
    return Posts(
        rank=rank,
        thread=thread[rank],
        position=position,
        step=step,
        is_send=is_send.astype(np.bool_),
        peer=peer,
        channel=channel,
        size=size.astype(np.uint64),
        label=label,
        wait_position=wait,
        wait_step=np.full(n, _LATE),
        collective=np.ones(n, np.bool_),
        peer_known=np.ones(n, np.bool_),
    )


class _Timing:
    """When origins and targets of operations post and wait."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        calls, m = trace.calls, trace.messages
        # Read once: reading a column of the trace copies it.
        self._position, self._leave = m.position, calls.leave_position
        self._region = calls.region
        n = trace.n_ranks
        self.first, self.last = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.thread = np.zeros(n, np.int64)
        rank = np.concatenate([calls.rank, calls.rank, m.rank])
        position = np.concatenate([calls.enter_position, calls.leave_position, m.position])
        self.first[:] = np.iinfo(np.int64).max
        np.minimum.at(self.first, rank, position)
        np.maximum.at(self.last, rank, position)
        self.first[self.first == np.iinfo(np.int64).max] = 0
        self.thread[np.append(calls.rank, m.rank)[::-1]] = np.append(calls.thread, m.thread)[::-1]
        self.window = np.full(len(calls.rank), _UNKNOWN)
        synchronising = np.flatnonzero((m.kind == ONE_SIDED_SYNC) & (m.call >= 0))
        self.window[m.call[synchronising]] = m.tag[synchronising]
        self._window_of_row = m.tag
        self._found: dict[tuple[str, int, int], NDArray[np.int64]] = {}
        self._calls_of = {
            "fence": self._epochs("mpi_win_fence"),
            "complete": self._epochs("mpi_win_complete"),
            "post": self._epochs("mpi_win_post"),
            "wait": self._epochs("mpi_win_wait"),
            "closing": self._epochs("mpi_win_fence", "mpi_win_complete", *_CLOSE_LOCK),
        }
        done = np.flatnonzero((m.kind == ONE_SIDED_COMPLETE) & (m.posted >= 0))
        self.done = dict(zip(m.posted[done].tolist(), m.position[done].tolist(), strict=True))
        self.as_locks = 0

    def _epochs(self, *names: str) -> list[NDArray[np.int64]]:
        """Rows of the calls with these names, of each rank in order."""
        calls = self.trace.calls
        wanted = [at for at, name in self.trace.regions.items() if normalised_call(name) in names]
        rows = np.flatnonzero(among(calls.region, wanted))
        rows = rows[np.lexsort((calls.enter_position[rows], calls.rank[rows]))]
        bounds = np.searchsorted(calls.rank[rows], np.arange(self.trace.n_ranks + 1))
        return [rows[a:b] for a, b in pairwise(bounds.tolist())]

    def _on(self, what: str, rank: int, row: int) -> NDArray[np.int64]:
        """Calls of a rank, in order, on the window of an operation or on an unknown one."""
        window = int(self._window_of_row[row])
        key = (what, rank, window)
        if key not in self._found:
            rows = self._calls_of[what][rank]
            of = self.window[rows]
            self._found[key] = rows[(of == window) | (of == _UNKNOWN)]
        return self._found[key]

    def _close(self, row: int, origin: int) -> int:
        """The call of the origin that closes the epoch of an operation, -1 if there is none."""
        after = self._on("closing", origin, row)
        place = int(np.searchsorted(self._leave[after], self._position[row]))
        return int(after[place]) if place < len(after) else -1

    def origin(self, row: int, origin: int) -> _Exposure:
        """When the origin posts and waits."""
        position = int(self._position[row])
        close = self._close(row, origin)
        wait = int(self._leave[close]) if close >= 0 else int(self.last[origin])
        return _Exposure(position, 0, self.done.get(row, wait))

    def target(self, row: int, origin: int, target: int) -> _Exposure:
        """When the target is ready and waits."""
        close = self._close(row, origin)
        name = normalised_call(self.trace.regions[int(self._region[close])]) if close >= 0 else ""
        epoch = None
        if name == "mpi_win_fence":
            epoch = self._fence(row, close, origin, target)
        elif name == "mpi_win_complete":
            epoch = self._exposed(row, close, origin, target)
        if epoch is not None and self._possible(row, close, *epoch):
            opening, closing = epoch
            position = int(self._leave[opening])
            return _Exposure(position, _LATE + 1, int(self._leave[closing]))
        self.as_locks += name in ("mpi_win_fence", "mpi_win_complete")
        return _Exposure(int(self.first[target]), -1, int(self.last[target]))

    def _fence(self, row: int, close: int, origin: int, target: int) -> tuple[int, int] | None:
        origin_fences, target_fences = (
            self._on("fence", origin, row),
            self._on("fence", target, row),
        )
        turn = int(np.flatnonzero(origin_fences == close)[0])
        if len(origin_fences) != len(target_fences) or turn == 0:
            return None
        return int(target_fences[turn - 1]), int(target_fences[turn])

    def _exposed(self, row: int, close: int, origin: int, target: int) -> tuple[int, int] | None:
        completions = self._on("complete", origin, row)
        opened, closed = self._on("post", target, row), self._on("wait", target, row)
        if not len(completions) == len(opened) == len(closed):
            return None
        turn = int(np.flatnonzero(completions == close)[0])
        return int(opened[turn]), int(closed[turn])

    def _possible(self, row: int, close: int, opening: int, closing: int) -> bool:
        """Whether the times of an epoch of the target allow for the operation.

        Otherwise the program could wait forever. Clocks that are apart may prevent it, too.
        """
        calls = self.trace.calls
        begins, ends = int(self.trace.messages.time[row]), int(calls.leave[close])
        return bool(calls.enter[opening] <= ends and begins <= calls.leave[closing])
