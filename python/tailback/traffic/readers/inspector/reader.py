"""NCCL Inspector's JSON (one file a process): collectives with the times of their kernels.

``NCCL_INSPECTOR_DUMP_VERBOSE=1`` writes when kernels began and ended, by the clock of the host.
Without it only the time of each collective is known. Its members end it together, so the last to
begin takes least, and the time between collectives is known up to what all ranks share.
``NCCL_INSPECTOR_ENABLE_PROXY=1`` writes the network steps of each connection.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from tailback.errors import TraceError
from tailback.io.delimited import FILES_NAMED, NotUsed, not_used
from tailback.io.input_files import head_bytes, record_files
from tailback.traffic.nccl.choice import MAX_CHANNELS, Choice, default_choice
from tailback.traffic.nccl.durations import synchronised
from tailback.traffic.nccl.groups import with_dimensions
from tailback.traffic.nccl.joining import join_calls
from tailback.traffic.nccl.rank_calls import (
    RankCall,
    contradictions,
    differing_ranks,
    sides_of,
)
from tailback.traffic.nccl.recorded import NetworkStep, record_calls
from tailback.traffic.nccl.recorded_paths import with_recorded_paths
from tailback.traffic.nccl.steps import GpuProgram, compile_gpu
from tailback.traffic.program import Program, RecordedTimes
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.inspector.consistency import (
    contradicting,
    require_sound_files,
    timed_by_host,
    without_strays,
)
from tailback.traffic.readers.inspector.records import (
    CALLS,
    PER_RANK,
    Record,
    damaged_value,
    notes_on_damage,
    notes_on_losses,
    notes_on_versions,
    read_records,
)
from tailback.traffic.readers.inspector.steps import network_steps
from tailback.traffic.readers.inspector.world import World, find_world
from tailback.traffic.readers.recorded_run import RecordedRun
from tailback.units import counted, percent

CAPABILITIES = Capabilities(
    times="yes, of kernels with DUMP_VERBOSE; else of collectives alone",
    sources="by NCCL's algorithm, which is recorded",
    completion="yes",
    call_site="no",
    compute="time between collectives with DUMP_VERBOSE; else its differences between ranks",
)

_SNIFF: Final = re.compile(
    rb"(?m)^\s*\{[^\n]*\"(?:inspector_output_format_version|coll_perf|p2p_perf|dump_stats)\""
)
_NAMED: Final = re.compile(r".+-pid\d+\.log\Z")
"""Name of the file of a process: its host and number."""
_ALGORITHMS: Final = ("ring", "tree")
_PROTOCOLS: Final = {"simple": "simple", "ll": "ll", "ll128": "ll128"}
_SET: Final = "record all processes with NCCL_INSPECTOR_ENABLE=1 and give their folder"

MOSTLY_IDLE: Final = 0.5
"""Share of the time between collectives above which a host launches late: more than half of it."""

SYNCHRONISED: Final = (
    "the hosts launch collectives only after the computation before them, as in steps that "
    "synchronise: whether the accelerator or the host of a slow rank is late is not recorded; "
    "kernels in a Kineto trace tell"
)
"""Note on a recording in which :func:`_launch_late` holds."""


@dataclass(frozen=True)
class _Trace:
    """All files of a run: ranks, calls of each, network steps, what the times lack, and notes."""

    world: World
    calls: list[list[RankCall]]
    steps: list[NetworkStep]
    durations_only: str
    notes: list[str]


def sniff(path: Path) -> bool:
    """A file with a record of Inspector, or named like one of it; or a folder with such a file."""
    entries = [entry for entry in path.iterdir() if entry.is_file()] if path.is_dir() else [path]
    return any(_NAMED.match(entry.name) or _is_file(entry) for entry in entries)


def read(path: Path) -> Program:
    """Compile the files of all processes to a rank program.

    Args:
        path: The folder with the files of all processes, or the file of one.

    Returns:
        The program, with the time between collectives as computation.

    Raises:
        TraceError: A file is damaged, or holds no collective that all of its ranks recorded.
    """
    trace = _load(path)
    notes = [*trace.notes]
    world = trace.world
    calls = trace.calls
    if len(world.recorded) < len(world.hosts):
        calls = _with_missing(trace, notes)
    calls, _ = with_dimensions(calls, world.hosts)
    collectives, timeline = join_calls(calls, [0] * len(calls), notes)
    if not collectives:
        missing = sorted(set(range(len(world.hosts))) - set(world.recorded))
        some = ", ".join(map(str, missing[:FILES_NAMED]))
        raise TraceError(
            f"holds no collective of all {len(world.hosts)} ranks, and no records of "
            f"{counted(len(missing), 'rank')}: {some}{' …' * (len(missing) > FILES_NAMED)}",
            file=path,
            remedy=_SET,
        )
    number: dict[str, int] = {}
    hosts = [number.setdefault(host, len(number)) for host in world.hosts]
    if not all(world.hosts):
        hosts = [rank // world.per_host for rank in range(len(world.hosts))]
    n = max(len(world.recorded), 1)
    spent = sum(call.end_ns - call.start_ns for each in trace.calls for call in each) * 1000 // n
    between = sum(call.before_ps for each in trace.calls for call in each) // n
    program = compile_gpu(
        GpuProgram(
            path.name.split(".")[0],
            hosts,
            collectives,
            timeline,
            notes,
            RecordedTimes(spent, between),
            assumes_hosts=not all(world.hosts),
        )
    )
    program.hosts = tuple(world.hosts) if all(world.hosts) else ()
    return program


def has_times(path: Path) -> bool:
    """Whether collectives have times: all files do."""
    return sniff(path)


def record(path: Path) -> RecordedRun:
    """The collectives with their times, for the arguments of :func:`read`.

    Raises:
        TraceError: As :func:`read`.
    """
    trace = _load(path)
    world = trace.world
    missing = len(world.hosts) - len(world.recorded)
    return record_calls(
        trace.calls,
        [0] * len(trace.calls),
        world.hosts,
        path,
        rooted=False,
        durations_only=trace.durations_only,
        not_recorded=f"{missing} of {len(world.hosts)} ranks" if missing else "",
        resolution_ns=1000,
        steps=trace.steps,
    )


def system_tree(path: Path) -> list[list[tuple[str, str]]]:
    """Name and class of each rank's host; raises TraceError."""
    return [[(host, "node")] if host else [] for host in _load(path).world.hosts]


def _is_file(path: Path) -> bool:
    return _SNIFF.search(head_bytes(path, 1 << 13)) is not None


def _load(path: Path) -> _Trace:
    entries = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    files = [entry for entry in entries if _is_file(entry)]
    damaged = [entry for entry in entries if entry not in files and _NAMED.match(entry.name)]
    if not files:
        raise TraceError(
            "no line is a record of NCCL Inspector: the file is empty or damaged",
            file=(damaged or [path])[0],
            remedy=f"copy it again, or {_SET}",
        )
    record_files(files)
    # The program, its times and its hosts are read one after another.
    others = tuple(entry.name for entry in entries if entry not in files)
    return _load_files(path, tuple((file, file.stat().st_mtime_ns) for file in files), others)


@lru_cache(maxsize=1)
def _load_files(path: Path, files: tuple[tuple[Path, int], ...], others: tuple[str, ...]) -> _Trace:
    read_files = [read_records(file) for file, _ in files]
    damaged = [error for each in read_files for error in each.damaged]
    records = [record for each in read_files for record in each.records]
    counts = Counter(record.file for record in records)
    counts.update(error.file for error in damaged if error.file is not None)
    what = "files without a readable record of Inspector"
    notes = [*notes_on_losses(read_files), *not_used(others, what, FILES_NAMED)]
    notes += notes_on_versions(read_files)
    records = without_strays(records, damaged)
    operations = [record for record in records if record.kind != "proxy_trace"]
    unusable, use_kernels = contradicting(operations, damaged, notes)
    require_sound_files(damaged, counts)
    if not operations:
        raise damaged[0] if damaged else TraceError("holds no collective", file=path, remedy=_SET)
    world = find_world(records)
    notes += world.notes
    calls, n_lost = _calls(operations, unusable, world, notes, damaged)
    if not use_kernels:
        calls = [_durations_alone(each) for each in calls]
    calls, n_untimed = _without_untimed(calls, notes)
    calls, n_incomplete = _without_incomplete(calls, world, notes, path)
    timed = all(call.end_ns for rank_calls in calls for call in rank_calls)
    durations_only = ""
    if not timed:
        calls, irregular = synchronised(calls)
        durations_only = (
            "Only the times of collectives are recorded, and their shares are of these: what a "
            "rank usually computes longer than the quickest is counted; irregular delays of "
            f"ranks, {percent(irregular)}, are left out"
        )
        if use_kernels:
            notes.append(
                "the records have no times of kernels: NCCL_INSPECTOR_DUMP_VERBOSE=1 writes them"
            )
    complete = all(each.counts_drops for each in read_files) and not any(
        key == "coll_dropped_total" for each in read_files for _, key in each.dropped
    )
    complete = complete and not any(each.unreadable for each in read_files)
    complete = complete and not (damaged or n_lost or n_untimed or n_incomplete)
    calls = [
        # Computation is relative to that of the quickest rank, which has some, too.
        _with_gaps(each, complete=complete or not timed, least_ps=0 if timed else 1)
        for each in calls
    ]
    if _launch_late(calls):
        notes.append(SYNCHRONISED)
        calls = [[replace(call, idle_ps=-1) for call in each] for each in calls]
    notes += _notes_on_gaps(calls, complete=complete)
    steps = network_steps(records, world.members, damaged)
    notes += notes_on_damage(damaged)
    calls = with_recorded_paths(calls, steps, world.members, world.hosts)
    if any(call.rings or call.trees for rank_calls in calls for call in rank_calls):
        notes.append("rings and trees are those that the recorded network steps show")
    return _Trace(world, calls, steps, durations_only, notes)


@dataclass
class _Calls:
    """Calls of each rank as they are read.

    Attributes:
        world: The ranks.
        damaged: Gets an error for each record with an impossible value.
        calls: Record and call of each rank by their key.
        repeated: How often each rank recorded other times of a call before, by its key.
        turn: Sends and receives between two ranks so far.
        lost: Number of records that are left out, by the reason.
        first_lost: File and line of the first of them.
        unpaired: Communicators and ranks of which a send or receive is damaged, so that which one
            of their peers it belongs to is unknown.
    """

    world: World
    damaged: list[TraceError]
    calls: list[dict[Hashable, tuple[Record, RankCall]]] = field(init=False)
    repeated: Counter[tuple[int, Hashable]] = field(default_factory=Counter)
    turn: Counter[tuple[object, ...]] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    first_lost: dict[str, str] = field(default_factory=dict)
    unpaired: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.calls = [{} for _ in self.world.hosts]

    def add(self, record: Record, *, usable: bool) -> None:
        """Read the call of a record, which may be damaged."""
        members = self.world.members[record.comm.id]
        mine = members[record.comm.rank]
        if mine < 0 or -1 in members:
            self.lose("communicators of which processes are missing", record)
            return
        try:
            call = (
                _collective(record, members)
                if record.kind == "coll_perf"
                else _point_to_point(record, members, mine, self.turn)
            )
        except TraceError as error:
            if usable:
                self.damaged.append(error)
            if record.kind == "p2p_perf":
                self.unpaired.add((record.comm.id, mine))
            return
        if call is None:
            self.lose("kinds that are not expanded", record)
        elif call.key in self.calls[mine]:
            first, earlier = self.calls[mine][call.key]
            if (call.start_ns, call.end_ns) == (earlier.start_ns, earlier.end_ns):
                self.lose("collectives that their rank recorded before", record)
            else:
                _require_same_file(mine, first, record)
                self.repeated[mine, call.key] += 1
        elif usable:
            self.calls[mine][call.key] = record, call

    def lose(self, reason: str, record: Record) -> None:
        """Leave a record out."""
        self.lost[reason] += 1
        self.first_lost.setdefault(reason, f"{record.file.name}, line {record.line}")

    def notes(self) -> list[str]:
        """A line for each reason."""
        return [
            NotUsed(f"{counted(number, 'record')} of {why} (the first: {self.first_lost[why]})")
            for why, number in self.lost.items()
        ]

    def drop_contradictions(self) -> None:
        """Leave out what cannot be paired, and numbers that one rank has more often than others.

        What graphs replay has one number on all ranks.
        """
        for mine, key in list(self.repeated):
            record, call = self.calls[mine][key]
            if len({self.repeated[rank, key] for rank in call.members}) > 1:
                text = f"coll_sn {record.integer('coll_sn')} is in the file again"
                self.damaged.append(damaged_value(record, text))
                del self.calls[mine][key]
            else:
                for _ in range(self.repeated[mine, key]):
                    self.lose("collectives that their rank recorded before", record)
        for calls in self.calls:
            for key, (record, call) in list(calls.items()):
                ends = {(record.comm.id, rank) for rank in call.members}
                if call.call == "SendRecv" and ends & self.unpaired:
                    self.lose("sends and receives beside a damaged one", record)
                    del calls[key]


def _calls(
    operations: Sequence[Record],
    unusable: Collection[int],
    world: World,
    notes: list[str],
    damaged: list[TraceError],
) -> tuple[list[list[RankCall]], int]:
    """Calls of each rank, in the order in which they began or, without times, were written.

    Args:
        operations: Records of collectives, sends and receives.
        unusable: Numbers of those that are damaged.
        world: The ranks.
        notes: Gets a line for each kind of records that are left out.
        damaged: Gets an error for each record with an impossible value.

    Returns:
        The calls, and the number of records that are left out.
    """
    read_calls = _Calls(world, damaged)
    for number, record in enumerate(operations):
        read_calls.add(record, usable=number not in unusable)
    read_calls.drop_contradictions()
    notes += read_calls.notes()
    used = [record for each in read_calls.calls for record, _ in each.values()]
    notes += _notes_on_algorithms(operations) + _notes_on_timing(used)
    if not used:
        raise TraceError(
            "holds no operation of a communicator whose processes are all recorded",
            file=operations[0].file,
            remedy=_SET,
        )
    place = {id(record): k for k, record in enumerate(operations)}

    def written(row: tuple[Record, RankCall]) -> tuple[int, int, int]:
        record, call = row
        return call.start_ns if call.end_ns else 0, record.dumped_us, place[id(record)]

    calls = [[call for _, call in sorted(each.values(), key=written)] for each in read_calls.calls]
    return calls, read_calls.lost.total()


def _notes_on_algorithms(operations: Sequence[Record]) -> list[str]:
    algorithms = Counter(
        name
        for record in operations
        if record.kind == "coll_perf"
        and (name := str(record.body.get("coll_algo", "")).lower()[:20])
        and name not in _ALGORITHMS
    )
    return [
        f"{counted(number, 'record')} of algorithm {name.upper()}, which is not modelled: what "
        "NCCL prefers among rings and trees stands in for it"
        for name, number in algorithms.items()
    ]


def _notes_on_timing(records: Sequence[Record]) -> list[str]:
    """A note on durations that the host measured."""
    by_host = sum(timed_by_host(record) for record in records)
    if not by_host:
        return []
    return [
        f"{counted(by_host, 'record')} timed by the host instead of the accelerator: their "
        "times include delays of the host"
    ]


def _require_same_file(rank: int, first: Record, record: Record) -> None:
    """Raise TraceError if two files tell different times of a rank's collective."""
    if record.file == first.file:
        return
    raise TraceError(
        f"a collective of rank {rank} has other times than in {first.file.name}, line "
        f"{first.line}: these are of two runs",
        file=record.file,
        place=f"line {record.line}",
        remedy="keep the files of one run in a folder",
    )


FEW_UNTIMED: Final = 0.1
"""Share of calls without times of kernels up to which these are left out. With more, all calls are
known by their durations alone."""


def _without_untimed(
    calls: list[list[RankCall]], notes: list[str]
) -> tuple[list[list[RankCall]], int]:
    """Calls that all have times of kernels, or all have durations alone; how many were left out."""
    flat = [call for rank_calls in calls for call in rank_calls]
    untimed = {call.key for call in flat if not call.end_ns}
    n_untimed = sum(not call.end_ns for call in flat)
    if not untimed or n_untimed == len(flat):
        return calls, 0
    if n_untimed > FEW_UNTIMED * len(flat):
        return [_durations_alone(each) for each in calls], 0
    notes.append(
        NotUsed(
            f"{counted(n_untimed, 'record')} of {len(flat):,} without times of kernels: the "
            "collectives are left out on all ranks"
        )
    )
    return [[call for call in each if call.key not in untimed] for each in calls], n_untimed


def _durations_alone(calls: Sequence[RankCall]) -> list[RankCall]:
    """Calls whose times are not used, but for their durations."""
    return [
        replace(call, start_ns=call.start_ns - call.end_ns, end_ns=0, launched_ns=0)
        for call in calls
    ]


def _without_incomplete(
    calls: list[list[RankCall]], world: World, notes: list[str], path: Path
) -> tuple[list[list[RankCall]], int]:
    """Calls that all ranks with a file recorded alike; how many collectives were left out.

    The time around what is left out is not explained: it is no computation of the other ranks.

    Raises:
        TraceError: No call is left.
    """
    recorded, sides = set(world.recorded), sides_of(calls)
    lacking = {
        key: missing
        for key, side in sides.items()
        if (missing := recorded.intersection(next(iter(side.values())).members) - side.keys())
    }
    dropped = lacking.keys() | {key for key, side in sides.items() if differing_ranks(side)}
    if not dropped:
        return calls, 0
    where = _rank_that_lacks_most(lacking, sides, world)
    notes += contradictions(calls)
    if len(dropped) == len(sides):
        raise TraceError(
            f"none of its {counted(len(sides), 'collective')} is alike in the records of all ranks"
            + (f": {where}" if where else f": {'; '.join(contradictions(calls))}"),
            file=path,
            remedy=f"keep the files of one run in a folder; {_SET}",
        )
    if lacking:
        notes.append(
            NotUsed(
                f"{counted(len(lacking), 'collective')} of {len(sides):,} without the records of "
                f"all ranks: left out on the others, too ({where})"
            )
        )
    return [[call for call in each if call.key not in dropped] for each in calls], len(dropped)


def _rank_that_lacks_most(
    lacking: Mapping[Hashable, set[int]],
    sides: Mapping[Hashable, Mapping[int, RankCall]],
    world: World,
) -> str:
    """The rank that lacks most collectives of others, with its file and the first of them."""
    if not lacking:
        return ""
    number = Counter(rank for missing in lacking.values() for rank in missing)
    rank, n = number.most_common(1)[0]
    key = next(key for key, missing in lacking.items() if rank in missing)
    call = next(iter(sides[key].values()))
    numbered = f" {key[-1]}" if call.call != "SendRecv" else ""  # type: ignore[index]
    return (
        f"{world.files[rank].name} of rank {rank} lacks {n:,}, such as {call.call}{numbered} of "
        f"{call.communicator}"
    )


def _collective(record: Record, members: tuple[int, ...]) -> RankCall | None:
    body = record.body
    call = CALLS.get(str(body.get("coll", "")).lower())
    if call is None:
        return None
    n = len(members)
    nbytes = record.integer("coll_msg_size_bytes") * (n if call in PER_RANK else 1)
    start, end, launched, channels = _times(record, "coll")
    return RankCall(
        (record.comm.id, record.integer("coll_sn")),
        call,
        members,
        nbytes,
        _name(record),
        start_ns=start,
        end_ns=end,
        launched_ns=launched,
        choice=_choice(body, call, nbytes, members, channels),
        channels=channels,
    )


def _point_to_point(
    record: Record, members: tuple[int, ...], mine: int, turn: Counter[tuple[object, ...]]
) -> RankCall | None:
    """A send or receive: the k-th between two ranks is the k-th receive or send of the other."""
    name = str(record.body.get("p2p", "")).lower()
    peer = record.integer("p2p_peer")
    if name not in ("send", "recv") or peer >= len(members) or members[peer] == mine:
        return None
    ends = (mine, members[peer]) if name == "send" else (members[peer], mine)
    place = (record.comm.id, mine, *ends)
    turn[place] += 1
    start, end, launched, _ = _times(record, "p2p")
    return RankCall(
        (record.comm.id, *ends, turn[place]),
        "SendRecv",
        ends,
        record.integer("p2p_msg_size_bytes"),
        _name(record),
        start_ns=start,
        end_ns=end,
        launched_ns=launched,
        root=0,
        peer=1,
    )


def _name(record: Record) -> str:
    return record.comm.name or f"comm {record.comm.id}"


def _times(record: Record, prefix: str) -> tuple[int, int, int, int | None]:
    """Begin and end of the kernels, ns; when the host launched them, ns; number of channels.

    The accelerator's clock gives the duration, and the host's the end. Without the times of
    kernels: the duration as the begin of a call that ends at 0.
    """
    took = record.integer(f"{prefix}_exec_time_us") * 1000
    trace = record.body.get("event_trace_ts")
    events = trace.get("kernel_events") if isinstance(trace, dict) else None
    listed = [event for event in events if isinstance(event, dict)] if events else []
    stops = [record.integer("kernel_stop_ts", 0, event) for event in listed]
    channels = len(listed) if 0 < len(listed) <= MAX_CHANNELS else None
    if not isinstance(trace, dict) or not any(stops):
        return -took, 0, 0, channels
    end = max(stops) * 1000
    return end - took, end, record.integer(f"{prefix}_start_ts", 0, trace) * 1000, channels


def _choice(
    body: Mapping[str, object], call: str, nbytes: int, members: Sequence[int], channels: int | None
) -> Choice | None:
    """How the call was run, if it is recorded and Tailback expands it."""
    algorithm = str(body.get("coll_algo", "")).lower()
    protocol = _PROTOCOLS.get(str(body.get("coll_proto", "")).lower())
    if algorithm not in _ALGORITHMS or protocol is None:
        return None
    usual = default_choice(call, nbytes, members, channels)
    return Choice(
        "tree" if algorithm == "tree" else "ring",
        protocol,  # type: ignore[arg-type]
        channels or usual.channels,
    )


def _with_gaps(calls: Sequence[RankCall], *, complete: bool, least_ps: int = 0) -> list[RankCall]:
    """Calls of a rank with the time before each, and what of it the host had launched nothing.

    Args:
        calls: The calls.
        complete: Whether calls that are not recorded are too small to take time.
        least_ps: Least time before each call, ps.
    """
    out = []
    at = calls[0].start_ns if calls else 0
    last = _last_numbers(calls)
    for call, skipped in zip(calls, last, strict=True):
        start = max(call.start_ns, at)
        gap = start - at
        idle = min(max(call.launched_ns - at, 0), gap) * 1000 if call.launched_ns else -1
        unrecorded = bool(skipped) and not complete
        # A picosecond, so that the program computes where the trace has a gap.
        before = min(gap, 1) if unrecorded else max(gap * 1000, least_ps)
        out.append(replace(call, before_ps=before, idle_ps=idle, unrecorded_before=unrecorded))
        at = max(call.end_ns, at)
    return out


def _launch_late(calls: Sequence[Sequence[RankCall]]) -> bool:
    """Whether the hosts of most ranks launch collectives only when their accelerators are done.

    Where steps synchronise, hosts wait for their accelerators before they launch. Then a late
    launch does not tell a slow host from a slow accelerator.
    """
    late = []
    for rank_calls in calls:
        timed = [call for call in rank_calls if call.idle_ps >= 0]
        gap_ps = sum(call.before_ps for call in timed)
        if gap_ps:
            late.append(sum(call.idle_ps for call in timed) / gap_ps)
    return bool(late) and sorted(late)[(len(late) - 1) // 2] > MOSTLY_IDLE


def _last_numbers(calls: Sequence[RankCall]) -> list[int]:
    """How many numbers each collective skips since the previous one of its communicator."""
    last: dict[str, int] = {}
    out = []
    for call in calls:
        comm, number = call.key[0], call.key[-1]  # type: ignore[index]
        skipped = 0
        if call.call != "SendRecv":
            skipped = max(number - last.get(comm, number - 1) - 1, 0)
            last[comm] = number
        out.append(skipped)
    return out


def _notes_on_gaps(calls: Sequence[Sequence[RankCall]], *, complete: bool) -> list[str]:
    """What the numbers of collectives say of those that are not recorded."""
    most = max((sum(_last_numbers(rank_calls)) for rank_calls in calls), default=0)
    if not most:
        return []
    why = (
        "they are smaller than NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES, and their time counts as "
        "computation"
        if complete
        else "the time around them is not explained"
    )
    return [f"up to {most:,} collectives of a rank between others are not recorded: {why}"]


def _with_missing(trace: _Trace, notes: list[str]) -> list[list[RankCall]]:
    """Calls of all ranks; those without a file do as the first, if all calls are of all ranks."""
    world = trace.world
    model = world.recorded[0]
    calls = [
        [call for call in rank_calls if len(call.members) == len(world.hosts)]
        for rank_calls in trace.calls
    ]
    missing = sorted(set(range(len(world.hosts))) - set(world.recorded))
    notes.append(
        f"{len(missing)} of {len(world.hosts)} ranks have no readable file (the first: rank "
        f"{missing[0]}): they are taken to do what rank {model} does in calls of all ranks"
    )
    for rank in missing:
        calls[rank] = calls[model]
    return calls
