"""Converts the files of recorded ranks to an OTF2 archive."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from bisect import bisect_right
from collections import Counter
from ctypes import c_char_p, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailback.recorder.byte_ranges import ranges_file, write_byte_ranges
from tailback.recorder.call_sites import CallLocation, locate_call_sites
from tailback.recorder.calls import regions
from tailback.recorder.collective_sizes import ATTRIBUTE, DESCRIPTION, SizeTexts
from tailback.recorder.communicators import RecordedCommunicator, unite
from tailback.recorder.rank_files import RankRecord
from tailback.traffic import otf2_library as o
from tailback.traffic.otf2_library import UNDEFINED, Otf2Library, StringNumbers
from tailback.units import counted
from tailback.version import version

_TICKS_PER_SECOND = 10**9
_SIZES, _COMPUTED = 0, 1

PROCESSOR_TIME = "tailback::processor_time"
"""Attribute of the enter event of a call: the processor time of the thread since it left its
previous call. Recorded where ranks share cores."""
_ABOUT_PROCESSOR_TIME = "processor time between the thread's previous MPI call and this one, ns"


class _Maps(ctypes.Structure):
    _fields_ = (
        ("comms", c_void_p),
        ("windows", c_void_p),
        ("contexts", c_void_p),
        ("site_regions", c_void_p),
        ("sizes", c_void_p),
        ("n_comms", c_uint32),
        ("n_windows", c_uint32),
        ("n_sites", c_uint32),
        ("n_regions", c_uint32),
        ("n_sizes", c_uint32),
        ("unknown_sizes", c_uint32),
        ("sizes_attribute", c_uint32),
        ("computed_attribute", c_uint32),
        ("attributes", c_void_p),
        ("add_string", c_void_p),
        ("add_number", c_void_p),
        ("ranges", c_char_p),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        ("events", c_uint64),
        ("calls", c_uint64),
        ("dropped", c_uint64),
        ("used", c_uint64),
        ("computed", c_uint64),
        ("first", c_uint64),
        ("last", c_uint64),
        ("error", c_int),
        ("damaged", c_int),
        ("unwritten", c_int),
    )


@dataclass
class _Location:
    number: int
    rank: RankRecord
    thread: int
    events: int = 0
    first: int = 0
    last: int = 0


def write_archive(
    ranks: list[RankRecord], folder: Path, library: Path, converter: Path, notes: list[str]
) -> int:
    """Write the archive ``traces.otf2`` of a recording.

    Args:
        ranks: What each rank left.
        folder: Where to write.
        library: The OTF2 library.
        converter: The compiled c/convert.c.
        notes: Gets a line for everything that is missing.

    Returns:
        Number of recorded MPI calls.

    Raises:
        TailbackError: It cannot be written.
    """
    otf2 = Otf2Library(library)
    return _Archive(otf2, ranks, notes).write(folder, converter)


class _Archive:
    """An archive that is being written."""

    def __init__(self, otf2: Otf2Library, ranks: list[RankRecord], notes: list[str]) -> None:
        self.otf2 = otf2
        self.ranks = ranks
        self.notes = notes
        self.computed = 0
        self.comms, self.numbers, unknown = unite(ranks)
        if unknown:
            notes.append(
                f"{counted(unknown, 'communicator')} with processes outside of this "
                "program left out, with all messages on them"
            )
        # By communicator and number among its windows.
        self.windows: dict[tuple[int, int], int] = {}
        self.places = locate_call_sites(
            (site for rank in ranks for site in rank.sites.values()), notes
        )
        self.regions = regions()
        self.contexts: dict[tuple[CallLocation, int | None], int] = {}
        # Threads beyond the first come after all ranks.
        self.locations = [_Location(rank.rank, rank, 0) for rank in ranks]
        for rank in ranks:
            for thread in sorted(rank.events):
                if thread > 0:
                    self.locations.append(_Location(len(self.locations), rank, thread))

    def write(self, folder: Path, converter: Path) -> int:
        otf2 = self.otf2
        handle = otf2.open(folder, "traces")
        otf2.archive("SetCreator", handle, f"Tailback {version()}".encode())
        otf2.archive("OpenEvtFiles", handle)
        library = ctypes.CDLL(str(converter))
        sizes = SizeTexts(library)
        convert = library.tb_convert
        convert.restype, convert.argtypes = None, (c_void_p,) * 4 + (c_uint64, c_void_p)
        writers, total, dropped, cut = otf2.events(), 0, 0, 0
        self._attributes = otf2.new_attributes()
        of_rank = [sizes.read(rank.sizes) if rank.sizes else [] for rank in self.ranks]
        for location in self.locations:
            result = self._convert(convert, writers, handle, location, of_rank[location.rank.rank])
            total += int(result.calls)
            dropped += int(result.dropped)
            cut += int(result.damaged)
            self.computed += int(result.computed)
        otf2.archive("CloseEvtFiles", handle)
        otf2.delete_attributes(self._attributes)
        if sizes.lost:
            self.notes.append(
                f"{sizes.lost} vectors of bytes to each rank of MPI_Alltoallv and "
                "MPI_Alltoallw are left out: they are more than fit in the trace; "
                "of these calls only totals are known"
            )
        if dropped:
            self.notes.append(
                f"{dropped} records are left out: their communicator or window was "
                "made where the recorder could not see it"
            )
        if cut:
            self.notes.append(f"{cut} event files are damaged; what comes before is kept")
        self._write_offsets(handle)
        self._define(handle, sizes)
        otf2.archive("Close", handle)
        write_byte_ranges(folder, self.ranks, self.places, self.regions, self.notes)
        return total

    def _convert(
        self, convert: Any, writers: Any, handle: int, location: _Location, sizes: list[int]
    ) -> _Result:
        rank, result = location.rank, _Result()
        writer = self.otf2.writer("GetEvtWriter", handle, location.number)
        path = rank.events.get(location.thread)
        if path is not None and path.stat().st_size:
            maps, _kept = self._maps(rank, sizes)
            maps.ranges = bytes(ranges_file(path)) if rank.streams else None
            with (
                path.open("rb") as file,
                mmap.mmap(
                    file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
                ) as data,
            ):
                start = (ctypes.c_char * len(data)).from_buffer(data)
                convert(
                    ctypes.addressof(writers),
                    writer,
                    ctypes.addressof(maps),
                    ctypes.addressof(start),
                    len(data),
                    ctypes.addressof(result),
                )
                del start
            self.otf2.check(result.error, "events")
            if result.unwritten:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(ranges_file(path)))
        location.events = result.events
        location.first, location.last = result.first, result.last
        self.otf2.archive("CloseEvtWriter", handle, writer)
        return result

    def _maps(self, rank: RankRecord, sizes: list[int]) -> tuple[_Maps, list[Any]]:
        """Maps a rank's numbers to the archive's; also returns the objects that must stay alive."""
        n_regions = len(self.regions)
        comms = [UNDEFINED] * (max(rank.comms, default=-1) + 1)
        for number, comm in self.numbers[rank.rank].items():
            comms[number] = comm
        windows = [UNDEFINED] * (max(rank.windows, default=-1) + 1)
        of_comm: Counter[int] = Counter()
        for number, comm in sorted(rank.windows.items()):
            if (united := self.numbers[rank.rank].get(comm)) is not None:
                # All its members create the windows of a communicator in the same order.
                window = (united, of_comm[united])
                of_comm[united] += 1
                self.windows.setdefault(window, len(self.windows))
                windows[number] = self.windows[window]
        n_sites = max(rank.sites, default=-1) + 1
        contexts, of_region = [UNDEFINED] * n_sites, [UNDEFINED] * n_sites
        for number, site in rank.sites.items():
            place = self.places[site]
            # Callers are numbered before their callees.
            self.contexts.setdefault((place, None), len(self.contexts))
            key = (place, site.region)
            contexts[number] = self.contexts.setdefault(key, len(self.contexts))
            of_region[number] = site.region
        arrays = [
            (c_uint32 * max(len(numbers), 1))(*numbers)
            for numbers in (comms, windows, contexts, of_region, sizes)
        ]
        addresses = [ctypes.addressof(array) for array in arrays]
        maps = _Maps(
            *addresses,
            len(comms),
            len(windows),
            n_sites,
            n_regions,
            len(sizes),
            0,
            _SIZES,
            _COMPUTED,
            self._attributes,
            self.otf2.address("OTF2_AttributeList_AddStringRef"),
            self.otf2.address("OTF2_AttributeList_AddUint64"),
        )
        return maps, arrays

    def _write_offsets(self, handle: int) -> None:
        self.otf2.archive("OpenDefFiles", handle)
        for location in self.locations:
            writer = self.otf2.writer("GetDefWriter", handle, location.number)
            for time, offset, trip in location.rank.offsets:
                self.otf2.clock_offset(writer, time, offset, trip / 2)
            self.otf2.archive("CloseDefWriter", handle, writer)
        self.otf2.archive("CloseDefFiles", handle)

    def _span(self) -> tuple[int, int]:
        """First and last event on the clock of rank 0."""
        first, last = [], []
        for place in self.locations:
            if place.events:
                first.append(place.first + _offset(place.rank, place.first))
                last.append(place.last + _offset(place.rank, place.last))
        # A line through two points may differ by a few ticks from OTF2's rounding.
        return (max(min(first) - 1000, 0), max(last)) if first else (0, 0)

    def _define(self, handle: int, sizes: SizeTexts) -> None:
        otf2 = self.otf2
        writer = otf2.writer("GetGlobalDefWriter", handle)
        # Events refer to these strings by number, so they come first.
        strings = StringNumbers(otf2, writer, sizes.numbers)
        name, about = strings(ATTRIBUTE), strings(DESCRIPTION)
        otf2.define("Attribute", writer, _SIZES, name, about, o.STRING_TYPE)
        if self.computed:
            name, about = strings(PROCESSOR_TIME), strings(_ABOUT_PROCESSOR_TIME)
            otf2.define("Attribute", writer, _COMPUTED, name, about, o.UINT64_TYPE)
        begin, end = self._span()
        first = next(rank for rank in self.ranks if rank.recorded)
        utc = first.utc_ns + begin - first.monotonic_ns
        otf2.define("ClockProperties", writer, _TICKS_PER_SECOND, begin, end - begin, utc)
        self._define_machine(writer, strings)
        self._define_calls(writer, strings)
        self._define_comms(writer, strings)
        otf2.archive("CloseGlobalDefWriter", handle, writer)

    def _define_machine(self, writer: int, strings: StringNumbers) -> None:
        otf2 = self.otf2
        otf2.define("SystemTreeNode", writer, 0, strings("machine"), strings("machine"), UNDEFINED)
        hosts: dict[str, int] = {}
        for rank in self.ranks:
            if rank.recorded and rank.host not in hosts:
                hosts[rank.host] = len(hosts) + 1
                otf2.define(
                    "SystemTreeNode",
                    writer,
                    hosts[rank.host],
                    strings(rank.host),
                    strings("node"),
                    0,
                )
        for rank in self.ranks:
            # Nobody told the hosts of ranks that are not recorded.
            host = hosts[rank.host] if rank.recorded else 0
            otf2.define(
                "LocationGroup",
                writer,
                rank.rank,
                strings(f"MPI Rank {rank.rank}"),
                o.PROCESS,
                host,
                UNDEFINED,
            )
            otf2.define(
                "LocationGroupProperty",
                writer,
                rank.rank,
                strings("cores"),
                o.STRING_TYPE,
                strings(rank.cores),
            )
        for place in self.locations:
            name = "Master thread" if place.thread == 0 else f"MPI thread {place.thread}"
            otf2.define(
                "Location",
                writer,
                place.number,
                strings(name),
                o.CPU_THREAD,
                place.events,
                place.rank.rank,
            )

    def _define_calls(self, writer: int, strings: StringNumbers) -> None:
        otf2, none = self.otf2, strings("")
        for number, name in enumerate(self.regions):
            otf2.define(
                "Region",
                writer,
                number,
                strings(name),
                strings(name),
                none,
                _role(name),
                o.MPI,
                0,
                UNDEFINED,
                0,
                0,
            )
        functions: dict[str, int] = {}
        n_sites = 0
        for (place, region), context in self.contexts.items():
            if region is not None:
                otf2.define(
                    "CallingContext", writer, context, region, UNDEFINED, self.contexts[place, None]
                )
                continue
            name = place.name
            if name not in functions:
                functions[name] = len(self.regions) + len(functions)
                otf2.define(
                    "Region",
                    writer,
                    functions[name],
                    strings(name),
                    strings(name),
                    none,
                    o.FUNCTION,
                    o.COMPILER,
                    0,
                    UNDEFINED,
                    0,
                    0,
                )
            at = UNDEFINED
            if place.line:
                at, n_sites = n_sites, n_sites + 1
                otf2.define("SourceCodeLocation", writer, at, strings(place.file), place.line)
            otf2.define("CallingContext", writer, context, functions[name], at, UNDEFINED)

    def _define_comms(self, writer: int, strings: StringNumbers) -> None:
        otf2, n = self.otf2, len(self.ranks)
        groups: dict[tuple[int, ...], int] = {}

        def group(kind: int, members: list[int], name: str) -> int:
            key = (kind, *members)
            if key not in groups:
                groups[key] = len(groups)
                array = (c_uint64 * max(len(members), 1))(*members)
                otf2.define(
                    "Group",
                    writer,
                    groups[key],
                    strings(name),
                    kind,
                    o.MPI,
                    0,
                    len(members),
                    ctypes.addressof(array),
                )
            return groups[key]

        group(o.COMM_LOCATIONS, list(range(n)), "MPI ranks")
        for number, comm in enumerate(self.comms):
            _define_comm(otf2, writer, strings, number, comm, group)
        for (comm_number, _), window in self.windows.items():
            otf2.define("RmaWin", writer, window, strings(f"window {window}"), comm_number, 0)


def _define_comm(
    otf2: Otf2Library,
    writer: int,
    strings: StringNumbers,
    number: int,
    comm: RecordedCommunicator,
    group: Any,
) -> None:
    name = strings(comm.label)
    if comm.of_self:
        otf2.define("Comm", writer, number, name, group(o.COMM_SELF, [], ""), UNDEFINED, 0)
    elif comm.remote is None:
        members = group(o.COMM_GROUP, comm.members, comm.label)
        otf2.define("Comm", writer, number, name, members, UNDEFINED if number == 0 else 0, 0)
    else:
        a = group(o.COMM_GROUP, comm.members, comm.label)
        b = group(o.COMM_GROUP, comm.remote, comm.label)
        otf2.define("InterComm", writer, number, name, a, b, 0, 0)


def _role(name: str) -> int:
    if name == "MPI_Barrier":
        return o.BARRIER
    if name.startswith("MPI_Win") or name in ("MPI_Put", "MPI_Get", "MPI_Accumulate"):
        return o.ONE_SIDED
    if any(word in name.lower() for word in ("send", "recv", "probe", "wait", "test", "start")):
        return o.POINT_TO_POINT
    return o.COLLECTIVE


def _offset(rank: RankRecord, time: int) -> int:
    """How far the clock of rank 0 is ahead of this rank's clock at a time of the latter.

    A line joins each measurement to the next, as in OTF2; the first and last are extended.
    """
    if not rank.offsets:
        return 0
    after = bisect_right(rank.offsets, time, key=lambda measurement: measurement[0])
    at = min(max(after - 1, 0), max(len(rank.offsets) - 2, 0))
    (t0, o0, _), (t1, o1, _) = rank.offsets[at], rank.offsets[min(at + 1, len(rank.offsets) - 1)]
    return o0 if t1 == t0 else o0 + round((o1 - o0) * (time - t0) / (t1 - t0))


def residual_ns(ranks: list[RankRecord]) -> int:
    """Half the longest of the shortest round trips: how far clocks may be apart when measured.

    Clocks that were not compared are left out.
    """
    return max((trip // 2 for rank in ranks for _, _, trip in rank.offsets), default=0)


__all__ = ["residual_ns", "write_archive"]
