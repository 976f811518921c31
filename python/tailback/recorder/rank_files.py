"""Text files that recorded ranks write: host, cores, communicators, call sites, clocks."""

from __future__ import annotations

import re
from bisect import insort
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tailback.errors import TailbackError

_NAME = re.compile(r"rank-(\d{6,})\.meta")
_SIZES = re.compile(r"rank-(\d{6,})\.sizes")
_EVENTS = re.compile(r"rank-(\d{6,})-(\d+)\.events")


class RecordError(TailbackError):
    """A program that could not be recorded, or a recording that cannot be read."""


@dataclass
class RankComm:
    """A communicator as one rank knows it.

    Attributes:
        kind: ``world``, ``self``, ``named`` (by its first rank) or ``met`` (made out of sight).
        name: What its first rank named it by.
        inter: Whether it joins two groups.
        label: What the program calls it, "" where it does not.
        members: World ranks of the own and of the remote group, empty where this rank did not
            write them.
    """

    kind: str
    name: int
    inter: bool
    label: str
    members: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


@dataclass(frozen=True)
class RankSite:
    """Where a call returns to: its region, address, start of its module, nearest symbol, file."""

    region: int
    address: int
    base: int
    symbol: str
    module: str


@dataclass
class RankRecord:
    """The files of one rank.

    Attributes:
        rank: World rank.
        size: Ranks of the world; 0 for a rank that was not recorded.
        host: Its host.
        cores: Cores it may use, like ``0-3,8``.
        physical_cores: How many cores these are, which may run several hardware threads each.
        openmp_threads: OMP_NUM_THREADS of its environment, 0 without.
        slurm_job: The Slurm job that it belongs to, "" where there is none.
        mpi_library: The MPI library, as it names itself.
        monotonic_ns: A time of its clock, CLOCK_MONOTONIC_RAW …
        utc_ns: … and the nanoseconds since 1970 at that time.
        clock_of: The rank of its host that compared their common clock; None if nobody did.
        offsets: (own time, what the clock of the first rank has more, shortest round trip), each
            in ns; without those that were disturbed.
        comms: Communicators by the rank's own number.
        windows: Communicator of each one-sided window by the rank's own number.
        sites: Call sites by the rank's own number.
        end: How it ended: ``end`` (MPI_Finalize), ``exit`` or "" (killed).
        full: Why it stopped writing, "" where it did not.
        events: Event file of each thread.
        streams: Address and port of its end and of the other end of each TCP connection, by the
            rank's own number.
        gaps: Connections of which something was written past the C library.
        by_utc: Whether its clock was not compared, but is taken to be as right as UTC of its host.
        copies: (number of concurrent messages, bytes of all of them, ns) of messages within its
            host that the recorder timed; of the first rank of each host.
        sizes: File of the bytes to each partner of collectives, None without any.
    """

    rank: int
    size: int = 0
    host: str = ""
    cores: str = ""
    physical_cores: int = 0
    openmp_threads: int = 0
    slurm_job: str = ""
    mpi_library: str = ""
    monotonic_ns: int = 0
    utc_ns: int = 0
    clock_of: int | None = None
    offsets: list[tuple[int, int, int]] = field(default_factory=list)
    comms: dict[int, RankComm] = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)
    sites: dict[int, RankSite] = field(default_factory=dict)
    end: str = ""
    full: str = ""
    events: dict[int, Path] = field(default_factory=dict)
    copies: list[tuple[int, int, int]] = field(default_factory=list)
    sizes: Path | None = None
    streams: dict[int, tuple[str, int, str, int]] = field(default_factory=dict)
    gaps: set[int] = field(default_factory=set)
    by_utc: bool = False

    @property
    def recorded(self) -> bool:
        """Whether the rank left files."""
        return self.size > 0


def read_rank_files(folder: Path) -> list[RankRecord]:
    """The files of all ranks in a folder, in order of rank; empty if there are none.

    Ranks that left none are in the list, without anything.

    Raises:
        RecordError: A file is damaged.
    """
    records: dict[int, RankRecord] = {}
    for path in sorted(folder.iterdir()):
        if match := _NAME.fullmatch(path.name):
            records[int(match[1])] = _read(path, int(match[1]))
    for path in sorted(folder.iterdir()):
        match = _EVENTS.fullmatch(path.name)
        if match and int(match[1]) in records:
            records[int(match[1])].events[int(match[2])] = path
        match = _SIZES.fullmatch(path.name)
        if match and int(match[1]) in records:
            records[int(match[1])].sizes = path
    if not records:
        return []
    size = max(max(record.size for record in records.values()), max(records) + 1)
    ranks = [records.get(rank, RankRecord(rank)) for rank in range(size)]
    _share_clocks(ranks)
    return ranks


def _share_clocks(ranks: list[RankRecord]) -> None:
    """Give each rank the comparisons of its host's clock.

    Where there is none, the system clock (UTC) of the host when it began to record is all there is.
    """
    recorded = [rank for rank in ranks if rank.recorded]
    measured = {rank.rank: rank.offsets for rank in recorded if rank.offsets}
    first_of: dict[tuple[str, int | None], RankRecord] = {}
    for rank in recorded:
        if rank.offsets:
            continue
        if rank.clock_of in measured:
            rank.offsets = measured[rank.clock_of]
            continue
        first, host = recorded[0], first_of.setdefault((rank.host, rank.clock_of), rank)
        ahead = (host.utc_ns - host.monotonic_ns) - (first.utc_ns - first.monotonic_ns)
        rank.offsets, rank.by_utc = [(host.monotonic_ns, ahead, 0)], True


def rates_within_hosts(ranks: list[RankRecord]) -> dict[str, tuple[float, float]]:
    """Lowest and highest rate of messages within hosts, Gb/s: ``one`` alone, ``all`` of a host.

    Of each size and host the fastest measurement counts: other processes can only delay one.
    Empty where nothing was measured: hosts have one rank each, or fewer cores than ranks.
    """
    rates: dict[str, list[float]] = {}
    for rank in ranks:
        fastest: dict[tuple[int, int], int] = {}
        for concurrent, size, took in rank.copies:
            fastest[concurrent, size] = min(took, fastest.get((concurrent, size), took))
        for (concurrent, size), took in fastest.items():
            rates.setdefault("one" if concurrent == 1 else "all", []).append(8 * size / took)
    return {name: (min(some), max(some)) for name, some in rates.items()}


def clock_numbers(ranks: list[RankRecord]) -> list[int]:
    """The first rank that has the clock of each rank."""
    first: dict[tuple[int | None, str], int] = {}
    return [
        first.setdefault((rank.clock_of, rank.host if rank.clock_of is None else ""), rank.rank)
        if rank.recorded
        else rank.rank
        for rank in ranks
    ]


def _read(path: Path, rank: int) -> RankRecord:
    out = RankRecord(rank)
    # A rank that was killed may have left half a line.
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            _take(out, line)
        except (ValueError, IndexError, KeyError):
            raise RecordError(
                f"is not a line of a recording: {line[:80]!r}",
                file=path,
                place=f"line {number}",
                remedy="record the program again",
            ) from None
    out.offsets = _telling(out.offsets)
    return out


def _telling(offsets: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The measurements of a clock without those that a busy host disturbed and that say nothing.

    A measurement is wrong by up to half of its round trip. One whose round trip is long says
    something only if the line between the others is further off than that: the clock drifted.
    """
    limit = 10 * min((trip for _, _, trip in offsets), default=0)
    kept = [measurement for measurement in offsets if measurement[2] <= limit]
    if len(kept) < 2:
        return offsets
    for measurement in sorted(offsets, key=lambda measurement: measurement[2]):
        time, offset, trip = measurement
        line = np.interp(time, [each[0] for each in kept], [float(each[1]) for each in kept])
        if trip > limit and abs(offset - line) > trip / 2:
            insort(kept, measurement)
    return kept


def _take(out: RankRecord, line: str) -> None:
    word, _, value = line.partition(" ")
    if word == "rank":
        rank, size = map(int, value.split())
        if rank != out.rank or not 0 <= rank < size:
            raise ValueError
        out.size = size
    elif word == "utc":
        out.monotonic_ns, out.utc_ns = map(int, value.split())
    elif word in ("clock_of", "physical_cores", "openmp_threads"):
        setattr(out, word, int(value))
    elif word == "offset":
        time, offset, trip = map(int, value.split())
        out.offsets.append((time, offset, trip))
    elif word == "copies":
        concurrent, size, took = map(int, value.split())
        if took > 0:
            out.copies.append((concurrent, size, took))
    elif word in ("comm", "members", "window"):
        _take_communicator(out, word, value)
    elif word == "site":
        identifier, region, address, base, symbol, module = value.split(" ", 5)
        # The C library prints a null pointer in its own way.
        start = int(base, 16) if base.startswith("0x") else 0
        out.sites[int(identifier)] = RankSite(int(region), int(address, 16), start, symbol, module)
    elif word == "stream":
        identifier, address, port, peer, peer_port = value.split()
        out.streams[int(identifier)] = (address, int(port), peer, int(peer_port))
    elif word == "stream_gap":
        out.gaps.add(int(value))
    elif word in ("host", "cores", "slurm_job", "mpi_library", "full"):
        setattr(out, word, value)
    elif word in ("end", "exit"):
        out.end = word
    elif word not in ("tailback-recording", "threads"):
        raise ValueError


def _take_communicator(out: RankRecord, word: str, value: str) -> None:
    if word == "comm":
        identifier, kind, name, inter, label = value.split(" ", 4)
        out.comms[int(identifier)] = RankComm(kind, int(name), inter == "1", label)
    elif word == "members":
        number, side, _, *ranks = map(int, value.split())
        out.comms[number].members[side].extend(ranks)
    else:
        number, comm = map(int, value.split())
        out.windows[number] = comm
