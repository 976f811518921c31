"""Lines of the logs of NCCL and RCCL (``NCCL_DEBUG=INFO``): communicators, calls, algorithms.

A line names the host, the process, the thread and the device that the thread had selected. That
device need not be the communicator's, if a process drives several accelerators: the pointer of the
communicator and the process identify the rank.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, cast, get_args

from tailback.errors import TraceError
from tailback.io.delimited import NotUsed
from tailback.io.input_files import TRACE_MEMORY, content, head_bytes
from tailback.traffic.nccl.choice import MAX_CHANNELS, Algorithm, Choice, Protocol


class Accelerator(NamedTuple):
    """Host, process and device of an accelerator, which identify a rank."""

    host: str
    pid: int
    device: int


DATATYPE_BYTES: Final = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of ncclDataType_t by number: int8, uint8, int32, uint32, int64, uint64, float16, float32,
float64, bfloat16, float8e4m3, float8e5m2."""

_HEADER = re.compile(
    r"(?P<host>[\w.\-]{1,255}):(?P<pid>\d{1,10}):\d{1,10} \[(?P<device>\d{1,9})\] NCCL INFO "
)
_SNIFF = re.compile(rb"(?m)^[^\n{\"]*[\w.\-]+:\d+:\d+ \[\d+\] NCCL INFO ")
_COMMUNICATOR = re.compile(
    r"\bcomm (0x[0-9a-fA-F]+) rank (\d{1,9}) n[rR]anks (\d{1,9})\b(?: cudaDev (\d{1,9}))?"
    r"(?:.*\bcommId (0x[0-9a-fA-F]+))?"
)
_CALL = re.compile(
    r"(?:mscclFunc)?(\w+): opCount ([0-9a-fA-F]+) sendbuff \S+ recvbuff \S+ count (\d{1,20}) "
    r"datatype (\d{1,9}) op \d+ root (\d{1,9}) comm (0x[0-9a-fA-F]+) \[nranks=(\d{1,9})\]"
)
_CUT_CALL = re.compile(r"\w+: opCount ")
_TUNED = re.compile(
    r"(\w+): (\d{1,20}) Bytes -> Algo (\w+) proto (\w+)"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,9})\.\.(\d{1,9})\})?"
)
_RING = re.compile(r"Channel (\d{1,9})/\d+ *:((?: +\d{1,9})+) *$")
_PORT = re.compile(r"=== System : maxBw \d+\.\d+ totalBw (\d{1,9}\.\d+) ===")
_ALGORITHMS: Final = {"0": "tree", "1": "ring", "tree": "tree", "ring": "ring"}
_PROTOCOLS: Final = {"0": "ll", "1": "ll128", "2": "simple"}
_FIRST_BYTES: Final = 1 << 18
_LOCAL_BANDWIDTH: Final = 5000.0
"""``totalBw`` of a communicator with one accelerator in the host (LOC_BW): no link has it."""


@dataclass(frozen=True)
class LoggedCall:
    """A call of one rank: name, count of elements, bytes of one, root, communicator, its rank."""

    call: str
    count: int
    element_bytes: int
    root: int
    comm: str
    rank: int


@dataclass
class NcclLog:
    """Content of the logs of a job.

    Attributes:
        members: Accelerator of each rank of each communicator.
        size: Ranks of each communicator.
        calls: Calls of each accelerator, in order.
        choices: How collectives of a call and size were run; the last line counts.
        rings: Ring of each channel, by size of the communicator.
        unknown_calls: Calls of communicators whose beginning is not in the log.
        port_gbps: Rate of an accelerator to the others of its host (``totalBw``), the lowest that
            is logged; None if none is.
        files: File with the first call of each accelerator.
        notes: What is not modelled, and which calls are left out.
    """

    members: dict[str, dict[int, Accelerator]] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    calls: dict[Accelerator, list[LoggedCall]] = field(default_factory=dict)
    choices: dict[tuple[str, int], Choice] = field(default_factory=dict)
    rings: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    unknown_calls: int = 0
    port_gbps: float | None = None
    files: dict[Accelerator, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ring_of(self, nranks: int, channels: int) -> tuple[tuple[int, ...], ...]:
        """Rings of the first channels of a communicator of ``nranks``; empty if one is missing."""
        logged = self.rings.get(nranks, {})
        rings = [logged.get(channel) for channel in range(channels)]
        return tuple(ring for ring in rings if ring) if all(rings) else ()

    def world(self) -> dict[Accelerator, int]:
        """Rank of each accelerator in the largest communicator.

        Raises:
            KeyError: There is no communicator.
        """
        if not self.size:
            raise KeyError("no communicator")
        largest = max(self.size, key=lambda comm: self.size[comm])
        return {accelerator: rank for rank, accelerator in self.members[largest].items()}


def is_log(path: Path) -> bool:
    """Whether a file has lines of NCCL's log near its beginning."""
    beginning = head_bytes(path, _FIRST_BYTES)
    # The pattern alone is slow on long texts of other formats.
    return b"] NCCL INFO " in beginning and _SNIFF.search(beginning) is not None


class _Line(NamedTuple):
    """A line that is used: where it is, the process and device it names, and its content."""

    file: Path
    number: int
    host: str
    pid: int
    device: int
    content: re.Match[str]


def read_logs(files: Sequence[Path]) -> NcclLog:
    """Read the logs of a job.

    Args:
        files: The logs; lines of other programs in them are skipped.

    Raises:
        TraceError: A line has an impossible number; the message names the line.
    """
    log = NcclLog()
    lines = [line for file in files for line in _lines(file, log)]
    unmodelled: Counter[str] = Counter()
    _read_calls(log, lines, unmodelled)
    clashing: set[int] = set()
    for line in lines:
        if line.content.re is _TUNED:
            _read_tuning(log, line, unmodelled)
        elif line.content.re is _RING:
            _ring(log, line, clashing)
    log.port_gbps = _port_gbps(lines)
    for size in clashing:
        log.rings.pop(size, None)
    if clashing:
        log.notes.append(
            "communicators of one size have different rings in NCCL's log: rings are "
            "laid out by hosts instead"
        )
    for name, times in sorted(unmodelled.items()):
        log.notes.append(
            f"{times} collectives ran with {name}, which is not modelled: NCCL's "
            "default among rings and trees stands in for it"
        )
    return log


def _lines(file: Path, log: NcclLog) -> Iterator[_Line]:
    """Lines with content that is used; a text line may hold several, or begin with other output."""
    damaged = 0
    text = content(file, TraceError, TRACE_MEMORY).decode("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), 1):
        if "] NCCL INFO " not in line:
            continue
        headers = list(_HEADER.finditer(line))
        ends = [header.start() for header in headers[1:]] + [len(line)]
        for header, end in zip(headers, ends, strict=True):
            message = line[header.end() : end].rstrip("\r")
            for pattern in (_CALL, _TUNED, _COMMUNICATOR, _RING, _PORT):
                if match := pattern.search(message):
                    yield _Line(
                        file,
                        number,
                        header["host"],
                        int(header["pid"]),
                        int(header["device"]),
                        match,
                    )
                    break
            else:
                damaged += _CUT_CALL.match(message) is not None
    if damaged:
        log.notes.append(
            NotUsed(
                f"{damaged} lines of {file.name} with a call are cut short: those calls are left "
                "out"
            )
        )


def _host_names(lines: Sequence[_Line]) -> dict[tuple[str, int], str]:
    """Host of each process, by the name that its lines have.

    NCCL's lines follow unfinished lines of other output, such as a row of nccl-tests' table, whose
    end then precedes the name of the host (``-1node7:100:…``). So of two names of one process, of
    which one ends in the other, the shorter is the host's, unless both made communicators: these
    are two hosts.
    """
    names = {(line.host, line.pid) for line in lines}
    made = {(line.host, line.pid) for line in lines if line.content.re is _COMMUNICATOR}
    hosts: dict[tuple[str, int], str] = {}
    for first, second in ((made, names - made), (names - made, made)):
        for name, pid in first:
            suffixes = (name[start:] for start in range(1, len(name)))
            hosts[name, pid] = next((host for host in suffixes if (host, pid) in second), name)
        made = made | {(hosts[key], key[1]) for key in first if key in made}
    return hosts


@dataclass
class _Communicator:
    """A communicator as one of its members sees it.

    Attributes:
        accelerator: The member.
        rank: Its rank.
        size: Number of members.
        identity: ``commId``, which all members share; empty where it is not logged.
    """

    accelerator: Accelerator
    rank: int
    size: int
    identity: str


def _read_calls(log: NcclLog, lines: Sequence[_Line], unmodelled: Counter[str]) -> None:
    """The communicators and their calls.

    NCCL reuses the pointer of a freed communicator. A call therefore belongs to the last
    communicator that its process made under the pointer. RCCL logs a call that an algorithm of
    MSCCL runs as ``mscclFuncAllReduce``.
    """
    hosts = _host_names(lines)
    current: dict[tuple[str, int, str], _Communicator] = {}
    joined: list[_Communicator] = []
    calls: list[tuple[_Communicator, _Line]] = []
    for line in lines:
        process = hosts[line.host, line.pid], line.pid
        match = line.content
        if match.re is _COMMUNICATOR:
            made = _communicator(line, process)
            previous = current.get((*process, match[1]))
            if previous is None or not _is_same_communicator(previous, made):
                current[*process, match[1]] = made
                joined.append(made)
            else:
                previous.identity = previous.identity or made.identity
        elif match.re is _CALL:
            size = _checked_call(line)
            comm = current.get((*process, match[6]))
            if comm is not None and comm.size == size:
                calls.append((comm, line))
            else:
                log.unknown_calls += 1
    _join(log, joined)
    for comm, line in calls:
        name, count, datatype, root = (line.content[k] for k in (1, 3, 4, 5))
        if comm.rank == 0 and line.content[0].startswith("mscclFunc"):
            unmodelled["MSCCL"] += 1
        log.files.setdefault(comm.accelerator, line.file)
        log.calls.setdefault(comm.accelerator, []).append(
            LoggedCall(
                name,
                int(count),
                DATATYPE_BYTES[int(datatype)],
                int(root),
                comm.identity,
                comm.rank,
            )
        )
    if log.unknown_calls:
        log.notes.append(
            NotUsed(
                f"{log.unknown_calls} calls of communicators whose beginning is not in the log are "
                "left out"
            )
        )


def _communicator(line: _Line, process: tuple[str, int]) -> _Communicator:
    _, rank, size, device, identity = line.content.groups()
    _require(int(rank) < int(size), line, f"rank {rank} of {size} ranks")
    accelerator = Accelerator(*process, int(device or line.device))
    return _Communicator(accelerator, int(rank), int(size), identity or "")


def _is_same_communicator(earlier: _Communicator, made: _Communicator) -> bool:
    """Whether two lines are of one communicator; NCCL logs some lines without the commId."""
    identities = {earlier.identity, made.identity} - {""}
    return (earlier.rank, earlier.size) == (made.rank, made.size) and len(identities) < 2


def _join(log: NcclLog, joined: Sequence[_Communicator]) -> None:
    """Collect the members of the communicators.

    NCCL before 2.16 and RCCL log no commId. A size that only one such communicator has identifies
    it as well.
    """
    unnamed = Counter((comm.size, comm.rank) for comm in joined if not comm.identity)
    ambiguous = {size for (size, _), times in unnamed.items() if times > 1}
    for comm in joined:
        comm.identity = comm.identity or f"of {comm.size} ranks"
        if comm.identity == f"of {comm.size} ranks" and comm.size in ambiguous:
            continue
        log.members.setdefault(comm.identity, {})[comm.rank] = comm.accelerator
        log.size[comm.identity] = comm.size
    if ambiguous:
        sizes = ", ".join(map(str, sorted(ambiguous)[:4]))
        log.notes.append(
            NotUsed(
                f"several communicators have {sizes} ranks and no commId (NCCL before 2.16, RCCL), "
                "so it is unknown which ranks share one: their calls are left out"
            )
        )


def _require(good: bool, line: _Line, what: str) -> None:
    if not good:
        raise TraceError(
            f"{what} is impossible",
            file=line.file,
            place=f"line {line.number}",
            remedy="the log is damaged: copy it again or record it again",
        )


def _checked_call(line: _Line) -> int:
    """Size of the communicator of a call, whose numbers are checked."""
    count, datatype, root, nranks = (int(line.content[k]) for k in (3, 4, 5, 7))
    _require(datatype < len(DATATYPE_BYTES), line, f"datatype {datatype}")
    _require(count < 1 << 50, line, f"count {count}")
    _require(root < nranks < 1 << 24, line, f"root {root} of {nranks} ranks")
    return nranks


def _read_tuning(log: NcclLog, line: _Line, unmodelled: Counter[str]) -> None:
    """A line with the algorithm for collectives of a size."""
    match = line.content
    algorithm = _ALGORITHMS.get(match[3].lower())
    protocol = _PROTOCOLS.get(match[4], match[4].lower())
    low, high = (int(match[k] or 0) for k in (5, 6))
    _require(low <= high < MAX_CHANNELS, line, f"channels {low} to {high}")
    _require(protocol in get_args(Protocol), line, f"protocol {match[4][:40]}")
    if algorithm is None:
        unmodelled[match[3][:40]] += 1
        return
    # Older versions do not log the channels: NCCL's default for the size is used.
    channels = high - low + 1 if match[5] else 0
    log.choices[match[1], int(match[2])] = Choice(
        cast(Algorithm, algorithm), cast(Protocol, protocol), channels
    )


def _port_gbps(lines: Sequence[_Line]) -> float | None:
    """The lowest rate of an accelerator to the others of its host, Gb/s; None if none is logged.

    Of several communicators, that with most accelerators in the host shows all links.
    """
    ports: dict[tuple[str, int, int], float] = {}
    for line in lines:
        if line.content.re is _PORT:
            bandwidth = float(line.content[1])
            _require(bandwidth > 0, line, "a bandwidth of 0")
            if bandwidth != _LOCAL_BANDWIDTH:
                key = line.host, line.pid, line.device
                ports[key] = max(bandwidth, ports.get(key, 0.0))
    return 8 * min(ports.values()) if ports else None


def _ring(log: NcclLog, line: _Line, clashing: set[int]) -> None:
    """A line with the order of the ranks in the ring of a channel."""
    order = tuple(map(int, line.content[2].split()))
    channel = int(line.content[1])
    _require(len(set(order)) == len(order), line, f"the ring{line.content[2][:60]}")
    if max(order) >= len(order):
        # NCCL cuts the lines of long rings.
        return
    logged = log.rings.setdefault(len(order), {})
    if logged.setdefault(channel, order) != order:
        clashing.add(len(order))
