"""Lines of NCCL's log (``NCCL_DEBUG=INFO``): communicators, calls, algorithms and rings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast, get_args

from tailback.errors import TraceError
from tailback.input_files import TRACE_MEMORY, content, head_bytes
from tailback.traffic.nccl.choice import MAX_CHANNELS, Algorithm, Choice, Protocol

Process = tuple[str, int, int]
"""Host, process and device of a line, which identify a rank."""

DATATYPE_BYTES: Final = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of ncclDataType_t by number: int8, uint8, int32, uint32, int64, uint64, float16, float32,
float64, bfloat16, float8e4m3, float8e5m2."""

_LINE = re.compile(
    r"(?P<host>[\w.\-]+):(?P<pid>\d+):\d+ \[(?P<device>\d+)\] NCCL INFO (?P<text>[^\r\n]*)"
)
_SNIFF = re.compile(rb"(?m)^[^\n{\"]*[\w.\-]+:\d+:\d+ \[\d+\] NCCL INFO ")
_INIT = re.compile(r"comm (0x[0-9a-fA-F]+) rank (\d+) n[rR]anks (\d+) .*\bcommId (0x[0-9a-fA-F]+)")
_CALL = re.compile(
    r"(\w+): opCount ([0-9a-fA-F]+) sendbuff \S+ recvbuff \S+ count (\d+) datatype (\d+) op \d+ "
    r"root (\d+) comm (0x[0-9a-fA-F]+) \[nranks=(\d+)\]"
)
_TUNED = re.compile(
    r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
)
_RING = re.compile(r"Channel (\d+)/(\d+) *:((?: +\d+)+) *$")
_ALGORITHMS: Final = {"0": "tree", "1": "ring", "tree": "tree", "ring": "ring"}
_PROTOCOLS: Final = {"0": "ll", "1": "ll128", "2": "simple"}
_FIRST_BYTES: Final = 1 << 18


@dataclass(frozen=True)
class LoggedCall:
    """A call of one rank: name, count of elements, bytes of one, root, communicator, ranks."""

    call: str
    count: int
    element_bytes: int
    root: int
    comm: str
    nranks: int
    file: Path
    line: int


@dataclass
class NcclLog:
    """Content of the logs of a job.

    Attributes:
        comm_id: Identity of each communicator, by the process and its pointer.
        rank: Rank of a process in a communicator of that identity.
        size: Ranks of each communicator.
        calls: Calls of each process, in order.
        choices: How collectives of a call and size were run; the last line counts.
        rings: Ring of each channel, by size of the communicator.
        notes: What is not modelled.
    """

    comm_id: dict[tuple[Process, str], str] = field(default_factory=dict)
    rank: dict[tuple[Process, str], int] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    calls: dict[Process, list[LoggedCall]] = field(default_factory=dict)
    choices: dict[tuple[str, int], Choice] = field(default_factory=dict)
    rings: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ring_of(self, nranks: int, channels: int) -> tuple[tuple[int, ...], ...]:
        """Rings of the first channels of a communicator of ``nranks``; empty if one is missing."""
        known = self.rings.get(nranks, {})
        found = [known.get(channel) for channel in range(channels)]
        return tuple(ring for ring in found if ring) if all(found) else ()

    def world(self) -> dict[Process, int]:
        """Rank of each process in the largest communicator.

        Raises:
            KeyError: There is no communicator.
        """
        if not self.size:
            raise KeyError("no communicator")
        largest = max(self.size.values())
        first = next(key for key, size in self.size.items() if size == largest)
        return {process: rank for (process, key), rank in self.rank.items() if key == first}


def is_log(path: Path) -> bool:
    """Whether a file has lines of NCCL's log near its beginning."""
    beginning = head_bytes(path, _FIRST_BYTES)
    # The pattern alone is slow on long texts of other formats.
    return b"] NCCL INFO " in beginning and _SNIFF.search(beginning) is not None


def read_logs(files: Sequence[Path]) -> NcclLog:
    """Read the logs of a job.

    Args:
        files: The logs; lines of other programs in them are skipped.

    Raises:
        TraceError: A line has an impossible number; the message names the line.
    """
    log = NcclLog()
    other: dict[str, int] = {}
    clash: set[int] = set()
    for file in files:
        for number, process, text in _lines(file):
            if found := _CALL.search(text):
                log.calls.setdefault(process, []).append(_call(found, file, number))
            elif found := _TUNED.search(text):
                _tuned(log, found, other, file, number)
            elif found := _INIT.search(text):
                key = (process, found[4])
                log.comm_id[process, found[1]] = found[4]
                log.rank[key] = int(found[2])
                log.size[found[4]] = int(found[3])
                _require(int(found[2]) < int(found[3]), file, number, f"rank {found[2]} of "
                         f"{found[3]} ranks")  # fmt: skip
            elif found := _RING.search(text):
                _ring(log, found, clash, file, number)
    for size in clash:
        log.rings.pop(size, None)
    if clash:
        log.notes.append("communicators of one size have different rings in NCCL's log: rings are "
                         "laid out by hosts instead")  # fmt: skip
    for name, times in sorted(other.items()):
        log.notes.append(f"{times} collectives ran with {name}, which is not modelled: NCCL's "
                         "default among rings and trees stands in for it")  # fmt: skip
    return log


def _lines(file: Path) -> Iterator[tuple[int, Process, str]]:
    text = content(file, TraceError, TRACE_MEMORY).decode("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), 1):
        if found := _LINE.search(line):
            yield number, (found["host"], int(found["pid"]), int(found["device"])), found["text"]


def _require(good: bool, file: Path, line: int, what: str) -> None:
    if not good:
        raise TraceError(f"{what} is impossible", file=file, place=f"line {line}",
                         remedy="the log is damaged: copy it again or record it again")  # fmt: skip


def _call(found: re.Match[str], file: Path, line: int) -> LoggedCall:
    count, datatype, root, nranks = (int(found[k]) for k in (3, 4, 5, 7))
    _require(datatype < len(DATATYPE_BYTES), file, line, f"datatype {datatype}")
    _require(count < 1 << 50, file, line, f"count {count}")
    _require(root < nranks < 1 << 24, file, line, f"root {root} of {nranks} ranks")
    return LoggedCall(found[1], count, DATATYPE_BYTES[datatype], root, found[6], nranks, file, line)


def _tuned(
    log: NcclLog, found: re.Match[str], other: dict[str, int], file: Path, line: int
) -> None:
    """A line with the algorithm for collectives of a size."""
    algorithm = _ALGORITHMS.get(found[3].lower())
    protocol = _PROTOCOLS.get(found[4], found[4].lower())
    low, high = (int(found[k] or 0) for k in (5, 6))
    _require(low <= high < MAX_CHANNELS, file, line, f"channels {low} to {high}")
    _require(protocol in get_args(Protocol), file, line, f"protocol {found[4][:40]}")
    if algorithm is None:
        other[found[3][:40]] = other.get(found[3][:40], 0) + 1
    elif found[5]:
        log.choices[found[1], int(found[2])] = Choice(
            cast(Algorithm, algorithm), cast(Protocol, protocol), high - low + 1
        )
    else:
        # Older versions do not log the channels: NCCL's default for the size is used.
        log.choices[found[1], int(found[2])] = Choice(
            cast(Algorithm, algorithm), cast(Protocol, protocol), 0
        )


def _ring(log: NcclLog, found: re.Match[str], clash: set[int], file: Path, line: int) -> None:
    """A line with the order of the ranks in the ring of a channel."""
    order = tuple(map(int, found[3].split()))
    channel = int(found[1])
    _require(sorted(order) == list(range(len(order))), file, line, f"the ring{found[3][:60]}")
    known = log.rings.setdefault(len(order), {})
    if known.setdefault(channel, order) != order:
        clash.add(len(order))
