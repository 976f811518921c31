"""Columns of an OTF2 trace: all locations one after the other, in the order of their ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.readers.narrow_columns import (
    narrow_columns,
    narrowed,
    return_freed_memory,
)
from tailback.traffic.readers.otf2.links import (
    COLLECTIVE,
    ICOLLECTIVE_COMPLETE,
    across_threads,
    as_receives,
)
from tailback.traffic.readers.posts import among

if TYPE_CHECKING:
    from tailback import _core

NONE = 2**32 - 1
"""No value, in a column of 32 bits."""

NO_ID = 2**64 - 1
"""No request or message."""

_LARGE = 2**20
"""Bytes of a column from which on its memory is worth returning to the system."""

_CALL_COLUMNS = (
    "region",
    "enter",
    "leave",
    "paused",
    "processor",
    "enter_event",
    "leave_event",
    "path",
)
_MESSAGE_COLUMNS = (
    "kind",
    "time",
    "event",
    "call",
    "phase",
    "path",
    "peer",
    "comm",
    "tag",
    "bytes",
    "received",
    "request",
    "message",
    "posted",
    "probed",
)


@dataclass(frozen=True)
class Communicator:
    """A communicator: its name and the world rank of each member.

    Attributes:
        name: Its name.
        members: World ranks, shape (size,); empty for MPI_COMM_SELF.
        remote: World ranks of the other group of an inter-communicator.
        is_self: Whether it is MPI_COMM_SELF.
    """

    name: str
    members: NDArray[np.int64]
    remote: NDArray[np.int64] | None
    is_self: bool


@narrow_columns("rank", "thread", "region", "enter_position", "leave_position", "path")
@dataclass(frozen=True)
class CallColumns:
    """MPI calls that are not inside another one, C of them.

    Attributes:
        rank: World rank, shape (C,).
        thread: Number of the location, in order of ranks, shape (C,).
        region: Region, shape (C,).
        enter: Ticks at the enter, shape (C,).
        leave: Ticks at the leave, shape (C,).
        paused: Whether recording was paused before the call, shape (C,).
        processor: Processor time since the previous call of the thread, ns, -1 where it was not
            recorded, shape (C,); empty if the trace has no such times.
        enter_position: Place of the enter in the order of all events, shape (C,).
        leave_position: Place of the leave, shape (C,).
        path: Call path around the call, an index into :attr:`Trace.paths`, shape (C,).
    """

    rank: NDArray[np.int64]
    thread: NDArray[np.int64]
    region: NDArray[np.int64]
    enter: NDArray[np.int64]
    leave: NDArray[np.int64]
    paused: NDArray[np.bool_]
    processor: NDArray[np.int64]
    enter_position: NDArray[np.int64]
    leave_position: NDArray[np.int64]
    path: NDArray[np.int64]


@narrow_columns(
    "rank",
    "thread",
    "position",
    "call",
    "phase",
    "path",
    "peer",
    "comm",
    "tag",
    "bytes",
    "received",
    "posted",
    "probed",
    "event",
)
@dataclass(frozen=True)
class MessageColumns:
    """Message records, M of them; a column that a kind does not have holds 0 or -1.

    Attributes:
        rank: World rank, shape (M,).
        thread: Number of the location, in order of ranks, shape (M,).
        kind: SEND … IMRECV, shape (M,); a receive of a message found by a matched probe has the
            kind of an ordinary receive, unless the record of the probe is missing.
        position: Place in the order of all events, in which those of a rank are contiguous, shape
            (M,).
        time: Ticks, shape (M,).
        call: Row of :class:`CallColumns`, -1 outside of any, shape (M,).
        phase: Region that encloses it, -1 without, shape (M,).
        path: Its call path, an index into :attr:`Trace.paths`, shape (M,).
        peer: Receiver, sender or root, local to the communicator, shape (M,).
        comm: Communicator, shape (M,).
        tag: MPI tag, the operation of a collective, or the window of a one-sided record, shape
            (M,).
        bytes: Bytes; of a collective bytes sent, shape (M,).
        received: Bytes a collective received, shape (M,).
        posted: Row that posted the request this one completes or cancels, -1 unknown, shape (M,).
        probed: Row of the probe that found the message this one receives, -1 without, shape (M,).
        locations: Each location as the trace numbers it, shape (locations,).
        event: Number of the event within the location, shape (M,).
    """

    rank: NDArray[np.int64]
    thread: NDArray[np.int64]
    kind: NDArray[np.uint8]
    position: NDArray[np.int64]
    time: NDArray[np.int64]
    call: NDArray[np.int64]
    phase: NDArray[np.int64]
    path: NDArray[np.int64]
    peer: NDArray[np.int64]
    comm: NDArray[np.int64]
    tag: NDArray[np.int64]
    bytes: NDArray[np.uint64]
    received: NDArray[np.uint64]
    posted: NDArray[np.int64]
    probed: NDArray[np.int64]
    locations: NDArray[np.uint64]
    event: NDArray[np.int64]

    def place(self, row: int) -> str:
        """Where a row is, for an error."""
        return f"location {int(self.locations[self.thread[row]])}, event {int(self.event[row])}"


@dataclass(frozen=True)
class PartnerSizes:
    """Texts of the bytes to each partner of collectives, V of them; all others are even.

    Attributes:
        rows: Their rows of :class:`MessageColumns`, ascending, shape (V,).
        text: Number of the text of each, shape (V,).
        texts: Text by number.
    """

    rows: NDArray[np.int64]
    text: NDArray[np.int64]
    texts: dict[int, str]


class PathTable:
    """The distinct call paths of all locations, as text.

    A frame is the name of a region and, if recorded, the file and line: those of the call site if
    the tracer unwinds the stack, else those of the beginning of the region.
    """

    def __init__(self, definitions: _core.TraceDefinitions) -> None:
        self.texts: list[str] = [""]
        self.innermost: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}
        self._regions: dict[int, str] = definitions["regions"]
        self._begins: dict[int, tuple[str, int]] = definitions["region_lines"]
        self._sites: dict[int, tuple[str, int]] = definitions["sites"]

    def numbers(self, columns: _core.CallPathColumns) -> NDArray[np.int64]:
        """Number of each path of a location, shape (P,); callers come before callees."""
        out = np.zeros(len(columns["region"]), np.int64)
        rows = zip(
            columns["parent"].tolist(),
            columns["region"].tolist(),
            columns["site"].tolist(),
            strict=True,
        )
        for row, (parent, region, site) in enumerate(rows):
            frame = self._frame(region, site)
            above = self.texts[out[parent]] if parent != NONE else ""
            text = f"{above} > {frame}" if above else frame
            out[row] = self._numbers.setdefault(text, len(self.texts))
            if out[row] == len(self.texts):
                self.texts.append(text)
                self.innermost.append(frame)
        return out

    def _frame(self, region: int, site: int) -> str:
        where = self._sites.get(site) or self._begins.get(region)
        name = self._regions[region]
        if where is None:
            return name
        return f"{name} ({where[0].replace(chr(92), '/').rsplit('/', 1)[-1]}:{where[1]})"


@dataclass(frozen=True)
class Trace:
    """A trace in memory.

    Attributes:
        creator: The tracer; empty for EZTrace, which does not record it.
        n_ranks: Number of ranks.
        ticks_per_second: Resolution of all times.
        start: Tick of the trace's origin.
        realtime_ns: Nanoseconds since 1970 UTC at ``start``; None if not recorded.
        system: Name and class of the system tree nodes that contain each rank, innermost first.
        clock_offsets: Number of clock offsets recorded for each rank, shape (n_ranks,). The OTF2
            library has corrected all times by interpolating between them.
        records: Records read, of any kind.
        enters: Enter events.
        leaves: Leave events.
        regions: Name of each region.
        communicators: Communicators by id.
        cartesian: (communicator, extents with the last dimension fastest) of each topology.
        processor_times: Whether calls have the processor time before them.
        calls: MPI calls.
        messages: Message records.
        threaded: Whether several threads of a rank call MPI, shape (n_ranks,).
        paths: Every call path as text, outermost frame first; the first is the empty one.
        innermost: The innermost frame of each path.
        sizes: Bytes to each partner of collectives, None if the tracer does not record them.
    """

    creator: str
    n_ranks: int
    ticks_per_second: int
    start: int
    realtime_ns: int | None
    system: list[list[tuple[str, str]]]
    clock_offsets: NDArray[np.int64]
    records: int
    enters: int
    leaves: int
    regions: dict[int, str]
    communicators: dict[int, Communicator]
    cartesian: list[tuple[int, list[int]]]
    processor_times: bool
    calls: CallColumns
    messages: MessageColumns
    threaded: NDArray[np.bool_]
    paths: list[str]
    innermost: list[str]
    sizes: PartnerSizes | None

    @classmethod
    def from_core(cls, raw: _core.TraceColumns) -> Trace:
        """Join the columns of all locations."""
        definitions = raw["definitions"]
        communicators = {
            number: Communicator(
                comm["name"],
                comm["members"].astype(np.int64),
                None if comm["remote"] is None else comm["remote"].astype(np.int64),
                comm["is_self"],
            )
            for number, comm in definitions["communicators"].items()
        }
        ranks = np.array([rank for _, rank in definitions["locations"]], np.int64)
        paths = PathTable(definitions)
        used = [
            len(location["calls"]["region"]) + len(location["messages"]["kind"]) > 0
            for location in raw["locations"]
        ]
        threaded = np.bincount(ranks, used, minlength=definitions["n_ranks"]) > 1
        calls, messages, sized = _join(raw["locations"], ranks, threaded, paths)
        texts = raw["size_texts"]
        return cls(
            creator=raw["creator"],
            n_ranks=definitions["n_ranks"],
            ticks_per_second=definitions["ticks_per_second"],
            start=definitions["start"],
            realtime_ns=definitions["realtime_ns"],
            system=definitions["system"],
            clock_offsets=np.bincount(
                ranks,
                [len(location["clock_offsets"]) for location in raw["locations"]],
                minlength=definitions["n_ranks"],
            ).astype(np.int64),
            records=sum(location["records"] for location in raw["locations"]),
            enters=sum(location["enters"] for location in raw["locations"]),
            leaves=sum(location["leaves"] for location in raw["locations"]),
            regions=definitions["regions"],
            communicators=communicators,
            cartesian=definitions["cartesian"],
            processor_times=definitions["processor_times"],
            calls=calls,
            messages=messages,
            threaded=threaded,
            paths=paths.texts,
            innermost=paths.innermost,
            sizes=None if texts is None else PartnerSizes(*sized, texts),
        )


def _stack(
    locations: list[_core.LocationColumns], table: Literal["calls", "messages"], column: str
) -> NDArray[Any]:
    if not locations:
        return np.zeros(0, np.int64)
    tables = (cast("dict[str, NDArray[Any]]", location[table]) for location in locations)
    # Each column is freed once it is joined: threads read them, whose memory others cannot use.
    joined = np.concatenate([columns.pop(column) for columns in tables])
    if joined.nbytes >= _LARGE:
        return_freed_memory()
    return joined


def _indices(column: NDArray[Any], base: NDArray[np.int64] | int = 0) -> NDArray[Any]:
    """Rows within a location to rows of the whole table; none to -1."""
    wide = column.astype(np.int64)
    return narrowed(np.where(wide == NONE, -1, wide + base))


def _join(
    locations: list[_core.LocationColumns],
    ranks: NDArray[np.int64],
    threaded: NDArray[np.bool_],
    paths: PathTable,
) -> tuple[CallColumns, MessageColumns, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    n_calls = np.array([len(location["calls"]["region"]) for location in locations], np.int64)
    n_rows = np.array([len(location["messages"]["kind"]) for location in locations], np.int64)
    of_call = np.repeat(np.arange(len(locations)), n_calls)
    of_row = np.repeat(np.arange(len(locations)), n_rows)
    # Columns are joined, narrowed and freed one by one, because they dominate the memory.
    c = {name: _stack(locations, "calls", name) for name in _CALL_COLUMNS}
    m = {name: _stack(locations, "messages", name) for name in _MESSAGE_COLUMNS}
    enter_position, leave_position, position = _positions(
        locations, ranks, (of_call, of_call, of_row), (n_calls > 0) | (n_rows > 0), c, m
    )
    calls = CallColumns(
        rank=narrowed(ranks[of_call]),
        thread=narrowed(of_call),
        region=narrowed(c.pop("region").astype(np.int64)),
        enter=c.pop("enter").view(np.int64),
        leave=c.pop("leave").view(np.int64),
        paused=c.pop("paused").astype(np.bool_, copy=False),
        processor=c.pop("processor").view(np.int64),
        enter_position=enter_position,
        leave_position=leave_position,
        path=narrowed(number_paths(locations, c.pop("path"), n_calls, paths)),
    )
    sized = np.flatnonzero(
        among(m["kind"], (COLLECTIVE, ICOLLECTIVE_COMPLETE)) & (m["message"] != NO_ID)
    )
    texts = m["message"][sized].astype(np.int64)
    places = (of_row, position, n_calls, n_rows)
    return calls, _messages(locations, ranks, threaded, paths, m, places), (sized, texts)


def _messages(
    locations: list[_core.LocationColumns],
    ranks: NDArray[np.int64],
    threaded: NDArray[np.bool_],
    paths: PathTable,
    m: dict[str, NDArray[Any]],
    places: tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[np.int64]],
) -> MessageColumns:
    """The message records.

    Args:
        locations: All locations.
        ranks: World rank of each location.
        threaded: Whether several threads of a rank call MPI, shape (n_ranks,).
        paths: Where call paths are numbered.
        m: The columns of all locations, which are freed.
        places: Location and position of each record, and numbers of calls and records of each
            location.
    """
    of_row, position, n_calls, n_rows = places
    first_row = (np.cumsum(n_rows) - n_rows)[of_row]
    m["posted"] = _indices(m["posted"], first_row)
    m["probed"] = _indices(m["probed"], first_row)
    del first_row
    for column in ("peer", "comm"):
        m[column] = _indices(m[column])
    across_threads(m, ranks[of_row], position, threaded)
    for column in ("request", "message"):
        del m[column]
    as_receives(m)
    return MessageColumns(
        rank=narrowed(ranks[of_row]),
        thread=narrowed(of_row),
        kind=m.pop("kind").astype(np.uint8, copy=False),
        position=position,
        time=m.pop("time").view(np.int64),
        call=_indices(m.pop("call"), (np.cumsum(n_calls) - n_calls)[of_row]),
        phase=_indices(m.pop("phase")),
        path=narrowed(number_paths(locations, m.pop("path"), n_rows, paths)),
        peer=m.pop("peer"),
        comm=m.pop("comm"),
        tag=narrowed(m.pop("tag").astype(np.int64)),
        bytes=narrowed(m.pop("bytes").astype(np.uint64, copy=False)),
        received=narrowed(m.pop("received").astype(np.uint64, copy=False)),
        posted=m.pop("posted"),
        probed=m.pop("probed"),
        locations=np.array([location["location"] for location in locations], np.uint64),
        event=narrowed(m.pop("event").view(np.int64)),
    )


def number_paths(
    locations: list[_core.LocationColumns],
    column: NDArray[Any],
    n_rows: NDArray[np.int64],
    paths: PathTable,
) -> NDArray[np.int64]:
    """Map the path rows of each location to path numbers of the whole trace."""
    out = np.zeros(len(column), np.int64)
    ends = np.cumsum(n_rows)
    for location, first, last in zip(locations, ends - n_rows, ends, strict=True):
        numbers = np.append(paths.numbers(location["paths"]), 0)
        row = column[first:last].astype(np.int64)
        out[first:last] = numbers[np.where(row == NONE, len(numbers) - 1, row)]
    return out


def _positions(
    locations: list[_core.LocationColumns],
    ranks: NDArray[np.int64],
    owner: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    active: NDArray[np.bool_],
    c: dict[str, NDArray[Any]],
    m: dict[str, NDArray[Any]],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """An order of the events of all locations in which those of a rank are contiguous.

    If one location per rank calls MPI, this is the order of the files. If several threads of a rank
    do, their events are merged by time.
    """
    events = (c.pop("enter_event"), c.pop("leave_event"), m["event"])
    if len(np.unique(ranks[active])) == int(active.sum()):
        # A call cut off by the end of the trace ends one event after the last.
        length = np.array([raw["records"] + 1 for raw in locations], np.int64)
        first = np.cumsum(length) - length
        enter, leave, row = (
            narrowed(event.astype(np.int64) + first[of])
            for event, of in zip(events, owner, strict=True)
        )
        return enter, leave, row
    location = np.concatenate(owner)
    time = np.concatenate([c["enter"], c["leave"], m["time"]]).astype(np.int64)
    event = np.concatenate(events).astype(np.int64)
    order = np.lexsort((event, location, time, ranks[location]))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    a, b = len(owner[0]), len(owner[0]) + len(owner[1])
    return narrowed(position[:a]), narrowed(position[a:b]), narrowed(position[b:])
