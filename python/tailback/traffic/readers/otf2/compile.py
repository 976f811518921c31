"""From the columns of an OTF2 trace to a rank program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.io.delimited import NotUsed
from tailback.traffic.program import Label, Program
from tailback.traffic.readers.assembly import (
    END,
    LATE,
    Computes,
    ImpliedWaits,
    assemble,
    drop_unpaired,
)
from tailback.traffic.readers.otf2.collectives import expand
from tailback.traffic.readers.otf2.columns import Trace
from tailback.traffic.readers.otf2.links import (
    CANCELLED,
    IMRECV_REQUEST,
    IRECV,
    IRECV_REQUEST,
    ISEND,
    ISEND_COMPLETE,
    MRECV,
    RECV,
    SEND,
)
from tailback.traffic.readers.otf2.names import (
    Labels,
    is_single_wait,
    is_timed_only,
    is_waitall,
    joins_groups,
    normalised_call,
    world_ranks,
)
from tailback.traffic.readers.otf2.one_sided import one_sided_posts
from tailback.traffic.readers.otf2.recording import (
    RegionCalls,
    call_order,
    calls_by_region,
    recording,
    unrecorded_calls,
)
from tailback.traffic.readers.posts import (
    UNKNOWN,
    Posts,
    among,
    dense,
    distinct,
    guess_sources,
    index_within_group,
    sorted_rows,
)

PROC_NULL = (-1, 2**32 - 2)
"""MPI_PROC_NULL of MPICH and Open MPI as values of a rank column."""

KIND_NAMES = {
    SEND: "MPI_Send",
    ISEND: "MPI_Isend",
    RECV: "MPI_Recv",
    IRECV: "MPI_Irecv",
    IRECV_REQUEST: "MPI_Irecv",
}
"""Calls of records outside of any call."""


def no_calls(file: Path) -> TraceError:
    """The error for a trace without any MPI call."""
    if (file.parent / "recording.json").is_file():
        return TraceError(
            "the recording has no MPI call",
            file=file,
            remedy="its ranks were killed before they wrote any, which they do after 1 MB of calls "
            "and at their end: record a run that ends",
        )
    return TraceError(
        "the trace has no MPI call",
        file=file,
        remedy="record with the tracer's MPI module, for example eztrace -t openmpi",
    )


def compile_trace(trace: Trace, name: str, file: Path) -> Program:
    """Compile a trace to a rank program.

    Time between two MPI calls of a rank is kept as COMPUTE; time inside calls is not. Time before
    the first call and during a pause of the recording is unknown and left out.

    Args:
        trace: The columns.
        name: What to call the application.
        file: Anchor file, for errors.

    Returns:
        The program, with notes on what the trace lacks.

    Raises:
        TraceError: Records contradict the definitions, or there is no MPI call.
    """
    if not len(trace.calls.rank) and not len(trace.messages.rank):
        raise no_calls(file)
    notes: list[str] = []
    labels = Labels(trace)
    posts = Posts.join(_all_posts(trace, labels, notes, file))
    posts = drop_unpaired(posts, trace.n_ranks, labels.all(), notes)
    used, posts.label = dense(posts.label)
    calls = calls_by_region(trace)
    note_calls(trace, calls, len(posts), notes)
    used_labels = [labels.all()[number] for number in used] or labels.none()
    grid, n_ranks, lacks = grid_of(trace), trace.n_ranks, what_lacks(trace, used_labels)
    waits, computes = _waits_to_add(trace, posts), _compute(trace)
    recorded = recording(trace, calls, int(computes.ps.sum()))
    # The columns are several times as large as the program, and no longer needed.
    del trace, labels
    program = assemble(name, n_ranks, posts, waits, computes)
    program.labels = used_labels
    program.grid = grid
    program.notes = notes
    program.lacks = lacks
    program.recording = recorded
    program.check()
    return program


def what_lacks(trace: Trace, labels: list[Label]) -> tuple[str, ...]:
    """Parts of the run that the tracer did not record."""
    kind = trace.messages.kind
    asked, completed = np.isin(kind, (ISEND, IRECV_REQUEST)), np.isin(kind, (ISEND_COMPLETE, IRECV))
    sources = (kind == IRECV_REQUEST).any() and not (kind == IRECV).any()
    # The completion of a freed request is not observable.
    silent = int((kind == CANCELLED).sum()) + _calls_named(trace, "mpi_request_free")
    missing = {
        "sources of non-blocking receives": bool(sources),
        "completion of non-blocking calls": bool(asked.sum() > silent and not completed.any()),
        "call sites": not any(label.path for label in labels),
    }
    return tuple(word for word, is_missing in missing.items() if is_missing)


def _calls_named(trace: Trace, name: str) -> int:
    """Number of calls of one name, as :func:`normalised_call` has it."""
    regions = [number for number, text in trace.regions.items() if normalised_call(text) == name]
    return int(among(trace.calls.region, regions).sum())


def _all_posts(trace: Trace, labels: Labels, notes: list[str], file: Path) -> list[Posts]:
    posts, rows = point_to_point(trace, notes, file)
    guessed, even = with_guessed_sources(trace, posts)
    if guessed:
        notes.append(
            f"{guessed} receives have no record of their source: matched to the messages no other "
            "receive takes, in the order of waits"
            + ("" if even else "; streams differ in length, so the order of the run may be another")
        )
    # Only now do all receives have a channel, that is communicator and tag.
    m = trace.messages
    call = (
        np.where(m.call[rows] >= 0, trace.calls.region[m.call[rows]], -1)
        if len(trace.calls.region)
        else np.full(len(rows), -1)
    )
    call = np.where(call >= 0, call, -1 - m.kind[rows].astype(np.int64))
    names = call_names(trace)
    tag, comm = posts.channel & 0xFFFF_FFFF, posts.channel >> 32
    posts.label = labels.number(m.phase[rows], m.path[rows], call, tag, comm, names)
    channels, posts.channel = dense(posts.channel)
    collectives = expand(trace, labels, len(channels), notes, file)
    free = max(len(channels), int(collectives.channel.max(initial=-1)) + 1)
    return [posts, collectives, one_sided_posts(trace, labels, free, notes, file)]


def with_guessed_sources(trace: Trace, posts: Posts) -> tuple[int, bool]:
    """Fill in sources that are not recorded; returns what :func:`.guess_sources` does."""
    if not ((posts.peer == UNKNOWN) & ~posts.is_send).any():
        return 0, True
    ends = posts.wait_position.copy()
    open_, position, _ = implied_waits(trace, posts)
    ends[open_] = position
    return guess_sources(posts, trace.n_ranks, ends)


def point_to_point(trace: Trace, notes: list[str], file: Path) -> tuple[Posts, NDArray[np.int64]]:
    """Posts of point-to-point calls in order, and the row each comes from; labels are not set."""
    m = trace.messages
    kind = m.kind
    completion, cancelled = request_outcomes(trace)
    orphan = (kind == IRECV) & (m.posted < 0)
    posting = among(kind, (SEND, ISEND, RECV, IRECV_REQUEST)) | orphan
    if cancelled.any():
        notes.append(NotUsed(f"{int(cancelled.sum())} cancelled requests are left out"))
    lost = int(among(kind, (MRECV, IMRECV_REQUEST)).sum())
    if lost:
        notes.append(
            NotUsed(
                f"{lost} receives of MPI_Mrecv and MPI_Imrecv have no record of their probe and "
                "are left out"
            )
        )
    rows = np.flatnonzero(posting & ~cancelled)
    post_position, early = post_positions(trace)
    rows = sorted_rows(rows, post_position[rows])
    del posting, orphan, cancelled
    # A receive's partner is on the record of its completion.
    detail = np.where(
        (kind[rows] == IRECV_REQUEST) & (completion[rows] >= 0), completion[rows], rows
    )
    has_source = kind[detail] != IRECV_REQUEST
    of = m.peer[detail]
    null_peer = has_source & ((of == PROC_NULL[0]) | (of == PROC_NULL[1]))
    if null_peer.any():
        # EZTrace records them like any other.
        notes.append(f"{int(null_peer.sum())} sends and receives of MPI_PROC_NULL move nothing")
        rows, detail, has_source = rows[~null_peer], detail[~null_peer], has_source[~null_peer]
    done = completion[rows]
    nonblocking = among(kind[rows], (ISEND, IRECV_REQUEST))
    peer = np.full(len(rows), UNKNOWN, np.int64)
    peer[has_source] = world_ranks(trace, detail[has_source], m.rank[rows[has_source]], file)
    channel = (np.maximum(m.comm[detail], 0) << 32) | m.tag[detail]
    leave = m.position[rows]
    inside = m.call[rows] >= 0
    leave[inside] = trace.calls.leave_position[m.call[rows[inside]]]
    wait = np.where(nonblocking, np.where(done >= 0, m.position[done], UNKNOWN), leave)
    n = len(rows)
    posts = Posts(
        rank=m.rank[rows],
        thread=m.thread[rows],
        position=post_position[rows],
        # What happens when a call is entered comes after the computation before it.
        step=early[rows].astype(np.int64),
        is_send=among(kind[rows], (SEND, ISEND)),
        peer=peer,
        channel=channel,
        size=m.bytes[detail],
        label=np.zeros(n, np.int64),
        wait_position=wait,
        wait_step=np.full(n, LATE, np.int64),
        collective=np.zeros(n, np.bool_),
        peer_known=has_source,
    )
    return posts, rows


def post_positions(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Position at which each row posts, and whether that is the start of its call."""
    m = trace.messages
    # A matched probe matches its message at once.
    position = m.position
    probed = m.probed >= 0
    position[probed] = m.position[m.probed[probed]]
    # The record of a receive is written at its end: by then another thread may have waited for a
    # later message of the same sender.
    early = (m.kind == RECV) & ~probed & (m.call >= 0) & trace.threaded[m.rank]
    position[early] = trace.calls.enter_position[m.call[early]]
    return position, early


def request_outcomes(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Row that completes each request, -1 without, and whether it was cancelled."""
    m = trace.messages
    completion = np.full(len(m.kind), -1, np.int64)
    cancelled = np.zeros(len(m.kind), np.bool_)
    for posted_as, completed_as in ((ISEND, ISEND_COMPLETE), (IRECV_REQUEST, IRECV)):
        rows = np.flatnonzero((m.kind == completed_as) & (m.posted >= 0))
        rows = rows[m.kind[m.posted[rows]] == posted_as]
        completion[m.posted[rows]] = rows
    rows = np.flatnonzero((m.kind == CANCELLED) & (m.posted >= 0))
    cancelled[m.posted[rows]] = True
    return completion, cancelled


def proc_null_note(number: int) -> str:
    """Note on messages that go nowhere."""
    return f"{number} sends and receives of MPI_PROC_NULL move nothing"


def call_names(trace: Trace) -> dict[int, str]:
    """Name of each region, and under -1 less its kind the call of each record outside of calls."""
    return {-1 - kind: text for kind, text in KIND_NAMES.items()} | trace.regions


def note_calls(
    trace: Trace, calls: Mapping[int, RegionCalls], posts: int, notes: list[str]
) -> None:
    """Note what is missing from the messages of a trace.

    Args:
        trace: The trace.
        calls: Its calls by region.
        posts: Number of its sends and receives.
        notes: Gets the notes.
    """
    _note_unrecorded_calls(trace, calls, notes)
    _note_inter_communicators(trace, calls, notes)
    if not posts and not notes and trace.n_ranks > 1:
        notes.append(
            f"the trace has {sum(made.number for made in calls.values())} MPI calls of "
            f"{trace.n_ranks} ranks and no message; what its tracer does not intercept, such as "
            "neighbourhood collectives with EZTrace, can be recorded with Open MPI's monitoring "
            "(pml-monitoring)"
        )


def _note_unrecorded_calls(
    trace: Trace, calls: Mapping[int, RegionCalls], notes: list[str]
) -> None:
    """Note calls that should have a message record but have none."""
    if trace.creator.startswith("Tailback"):
        timed: Counter[str] = Counter()
        for region, made in calls.items():
            if is_timed_only(trace.regions[region]) and not made.recorded:
                timed[trace.regions[region]] += made.number
        notes += [
            f"{timed[name]} calls of {name}: only their time is used" for name in sorted(timed)
        ]
        return
    monitoring = "use Open MPI's monitoring (pml-monitoring)"
    score_p = trace.creator.startswith("Score-P")
    remedy = monitoring if score_p else f"record with Score-P or {monitoring}"
    notes += [
        f"{made.number} calls of {name} left no message record; {remedy}"
        for name, made in unrecorded_calls(trace, calls).items()
    ]


def _note_inter_communicators(
    trace: Trace, calls: Mapping[int, RegionCalls], notes: list[str]
) -> None:
    """Note inter-communicators: EZTrace, which states no creator, records only one group."""
    if trace.creator or any(comm.remote is not None for comm in trace.communicators.values()):
        return
    total: Counter[str] = Counter()
    for region, made in calls.items():
        if joins_groups(trace.regions[region]):
            total[trace.regions[region]] += made.number
    for name in sorted(total):
        notes.append(
            f"{total[name]} calls of {name}: the trace does not distinguish inter-communicators, "
            f"so messages on them are treated as messages within the sender's group, or left "
            f"out; record with Score-P"
        )


def _compute(trace: Trace) -> Computes:
    """The time between calls: the processor time where it is recorded, and none where paused."""
    calls = trace.calls
    order = call_order(calls.rank, calls.enter_position)
    rank, enter, leave = calls.rank[order], calls.enter[order], calls.leave[order]
    bounds = np.searchsorted(rank, np.arange(trace.n_ranks + 1))
    busy_until = np.empty(len(order), np.int64)
    for first, last in pairwise(bounds.tolist()):
        # Calls of several threads of a rank may overlap.
        busy_until[first:last] = np.maximum.accumulate(leave[first:last])
    gap = np.zeros(len(order), np.int64)
    gap[1:] = np.where(rank[1:] == rank[:-1], enter[1:] - busy_until[:-1], 0)
    wall = np.rint(np.maximum(gap, 0) * (1e12 / trace.ticks_per_second)).astype(np.uint64)
    ps = np.where(calls.paused[order], 0, wall)
    if len(calls.processor):
        processor = calls.processor[order]
        timed = np.minimum(processor, wall // 1000).astype(np.uint64) * 1000
        ps = np.where(processor >= 0, timed, ps)
    at = np.flatnonzero(ps > 0)
    return Computes(rank[at], calls.enter_position[order][at], ps[at])


def _waits_to_add(trace: Trace, posts: Posts) -> ImpliedWaits:
    """Waits that the trace does not record explicitly.

    For requests without a completion record, a rank's next MPI_Waitall waits for all that are open.
    MPI_Wait, MPI_Waitany and MPI_Waitsome wait for one: the oldest send, else the oldest receive,
    because waiting for a receive too early can block the rank forever. The remaining requests are
    waited for at the end. If a rank has no completion record at all, one WAITALL replaces the
    waits. Each thread of a rank waits for its own requests.
    """
    open_, position, together = implied_waits(trace, posts)
    owner = posts.rank[open_]
    owners, places = owner[together], position[together]
    once, _ = distinct((owners, places))
    rank = np.concatenate([owners[once], owner[~together]])
    where = np.concatenate([places[once], position[~together]])
    post = np.concatenate([np.full(len(once), -1), open_[~together]])
    return ImpliedWaits(rank, where, post)


def implied_waits(
    trace: Trace, posts: Posts
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Waits for requests without a completion record.

    Args:
        trace: The trace.
        posts: Sorted by rank and position.

    Returns:
        Those posts, the position at which the waiting call ends (after all events if there is
        none), and whether the call waits for all open requests, shape (O,) each.
    """
    # An order in which the places of a thread are contiguous.
    leave = trace.calls.leave_position
    span = 1 + max(int(posts.position.max(initial=0)), int(leave.max(initial=0)))
    open_ = np.flatnonzero(posts.wait_position == UNKNOWN)
    place = posts.thread[open_] * span + posts.position[open_]
    order = sorted_rows(np.arange(len(open_)), place)
    open_, place = open_[order], place[order]
    single, every = _waits(trace, span)
    owner = posts.rank[open_]
    turn, end = _end_of_turn(every, posts.thread[open_], place)
    served = np.zeros(len(open_), np.bool_)
    singles = single[1]
    singles_turn, _ = _end_of_turn(every, single[0], singles)
    for is_send in (True, False):
        mine = np.flatnonzero(posts.is_send[open_] == is_send)
        taken = _first_free(place[mine], turn[mine], singles, singles_turn)
        matched = taken >= 0
        served[mine[matched]] = True
        end[mine[matched]] = singles[taken[matched]]
        left = np.ones(len(singles), np.bool_)
        left[taken[matched]] = False
        singles, singles_turn = singles[left], singles_turn[left]
    position = np.where(end == END, END, end % span)
    explicit = (posts.wait_position != posts.position) & (posts.wait_position != UNKNOWN)
    ends_call = np.zeros(max(span, int(posts.wait_position.max(initial=0)) + 1), np.bool_)
    ends_call[leave] = True
    blocking_leave = ends_call[posts.wait_position] & explicit
    mixed = trace.threaded.copy()
    mixed[posts.rank[explicit & ~posts.collective & ~blocking_leave]] = True
    together = ~mixed[owner] & ~served
    return open_, position, together


def _first_free(
    position: NDArray[np.int64],
    turn: NDArray[np.int64],
    waits: NDArray[np.int64],
    waits_turn: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The wait of each request, if each wait takes the oldest request of its stretch.

    Args:
        position: Where each request is posted, ascending, shape (P,).
        turn: Stretch it is in, ascending, shape (P,).
        waits: Position of each wait, ascending, shape (W,).
        waits_turn: Stretch it is in, shape (W,).

    Returns:
        Row of ``waits``, -1 where there is none left, shape (P,).
    """
    # Request k of a stretch gets the first wait after it that no earlier request gets.
    k = index_within_group(turn)
    room = len(position) + len(waits) + 1
    first = np.searchsorted(waits, position) - k
    taken = np.maximum.accumulate(first + turn * room) - turn * room + k
    return np.where(taken < np.searchsorted(waits_turn, turn, side="right"), taken, -1)


_Places = tuple[NDArray[np.int64], NDArray[np.int64]]


def _waits(trace: Trace, span: int) -> tuple[_Places, _Places]:
    """Thread and place of the calls that wait for one request, and of those that wait for all.

    A place is the thread times ``span`` plus the position where the call ends. A call for one
    request that contains a completion record is complete already.
    """
    calls = trace.calls
    has_record = np.zeros(len(calls.rank), np.bool_)
    has_record[trace.messages.call[trace.messages.call >= 0]] = True
    places = []
    for waits, counts in ((is_single_wait, ~has_record), (is_waitall, np.True_)):
        regions = [region for region, name in trace.regions.items() if waits(name)]
        rows = np.flatnonzero(among(calls.region, regions) & counts)
        place = calls.thread[rows] * span + calls.leave_position[rows]
        order = sorted_rows(np.arange(len(rows)), place)
        places.append((calls.thread[rows[order]], place[order]))
    return places[0], places[1]


def _end_of_turn(
    every: _Places, thread: NDArray[np.int64], place: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number and end of the stretch between two waits for all that contains a place."""
    at = np.searchsorted(every[1], place)
    ends, end_thread = np.append(every[1], END), np.append(every[0], -1)
    # Both increase along the places, so each pair has a distinct number.
    return at + thread, np.where(end_thread[at] == thread, ends[at], END)


def grid_of(trace: Trace) -> tuple[int, ...]:
    """Extents of the first Cartesian topology over all ranks in their order, x fastest."""
    for number, extents in trace.cartesian:
        communicator = trace.communicators.get(number)
        everyone = np.arange(trace.n_ranks)
        if (
            communicator is not None
            and np.array_equal(communicator.members, everyone)
            and int(np.prod(extents)) == trace.n_ranks
        ):
            # MPI counts the last dimension fastest.
            return tuple(reversed(extents))
    return ()
