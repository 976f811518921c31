"""Files of SST DUMPI, binary and as text, one a rank, as lists of calls."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tailback.delimited import content, shown
from tailback.errors import TraceError
from tailback.traffic.readers.dumpi_calls import COUNTERS, CPU, END, THREAD, WALL, Cursor

MAGIC = b"\xff\xaa\xddDUMPI"
_OLDEST = (0, 6, 9)
"""The first version that stores all arguments right."""
_INDEX_BYTES = 64
_HEADERS = {
    thread | cpu | wall: struct.Struct(
        ">" + "2x" * bool(thread) + "HIHI" * (bool(cpu) + bool(wall))
    )
    for thread in (0, THREAD) for cpu in (0, CPU) for wall in (0, WALL)
}  # fmt: skip
"""Thread, entry and exit by each clock that the mask of a call announces."""
_CUT = "the trace is cut short: copy it again, or record it again and let the program end normally"
_DAMAGED = "the trace is damaged: copy it again or record it again"
_CALL = re.compile(
    r"^(MPI_\w+) (entering|returning) at walltime (\d{1,12})\.(\d{1,9}), "
    r"cputime (\d{1,12})\.(\d{1,9}) seconds in thread \d+\.$"
)
_ARGUMENT = re.compile(r"^[A-Za-z_]\w*(?: \w+)*? (\w+)(?:\[-?\d+\])*=(.*)$")
_TYPE = re.compile(r"^Datatype (\d{1,9}) \(.*\) has size (\d{1,9})$")
_STATUS = re.compile(r"source=(-?\d{1,9}), tag=(-?\d{1,9})")
_NUMBER = re.compile(r"-?\d{1,18}")


class Call(NamedTuple):
    """A call of a rank: name, nanoseconds of entry and exit, arguments by name."""

    name: str
    enter_ns: int
    leave_ns: int
    arguments: dict[str, Any]
    place: str


@dataclass
class RankCalls:
    """What the file of a rank holds.

    Attributes:
        file: The file.
        calls: The calls in order.
        type_bytes: Size of each type by its number.
    """

    file: Path
    calls: list[Call] = field(default_factory=list)
    type_bytes: dict[int, int] = field(default_factory=dict)

    def fault(self, call: Call, message: str) -> TraceError:
        """The error ``message`` about a call."""
        return TraceError(message, file=self.file, place=call.place, remedy=_DAMAGED)


def read_file(path: Path) -> RankCalls:
    """Read the calls of one rank; raises TraceError for a file that is damaged or cut short."""
    data = content(path, TraceError)
    if path.suffix == ".bin" and not data.startswith(MAGIC):
        raise TraceError("does not begin as a DUMPI file", file=path, place="byte 0",
                         remedy=_DAMAGED)  # fmt: skip
    return _binary(path, data) if data.startswith(MAGIC) else _text(path, data)


def _binary(path: Path, data: bytes) -> RankCalls:
    at = data.rfind(MAGIC, len(MAGIC))
    if at < len(MAGIC) or len(data) - at != _INDEX_BYTES:
        raise TraceError("does not end with an index of its parts", file=path,
                         place=f"byte {len(data)}", remedy=_CUT)  # fmt: skip
    sizes, _, _, header, body, *_ = struct.unpack_from(">7Q", data, at + len(MAGIC))
    if max(sizes, header, body) >= at or not body:
        raise TraceError("the index names parts beyond the file", file=path, place=f"byte {at}",
                         remedy=_DAMAGED)  # fmt: skip
    version = tuple(data[header : header + 3])
    if version < _OLDEST:
        raise TraceError(
            f"is of version {'.'.join(map(str, version))}, older than 0.6.9", file=path,
            place=f"byte {header}", remedy="convert it: dumpi2ascii FILE > FILE.txt, for each rank",
        )  # fmt: skip
    out = RankCalls(path)
    cursor = Cursor(data[:at], sizes)
    try:
        if sizes:
            out.type_bytes = dict(enumerate(cursor.vector()))
        cursor.at = body
        _stream(cursor, out)
    except struct.error:
        raise TraceError("a call is cut short, or its arguments cannot be", file=path,
                         place=f"byte {cursor.at}", remedy=_DAMAGED) from None  # fmt: skip
    return _checked(out)


def _stream(cursor: Cursor, out: RankCalls) -> None:
    """Read calls up to the end of the stream."""
    base_ns = [cursor.take(">i") * 10**9 for _ in range(2)]
    while True:
        place = f"byte {cursor.at}"
        number = cursor.take(">H")
        if number == END:
            return
        mask = cursor.take(">B")
        header = _HEADERS[mask & (THREAD | CPU | WALL)]
        times = header.unpack_from(cursor.data, cursor.at)
        cursor.at += header.size
        if mask & COUNTERS:
            cursor.at += 16 * cursor.take(">B")
        try:
            name, arguments = cursor.call(number, mask)
        except KeyError:
            raise TraceError(
                f"call number {number} has arguments that Tailback does not know", file=out.file,
                place=place, remedy="convert the files to text: dumpi2ascii FILE > FILE.txt",
            ) from None  # fmt: skip
        # The clock of the wall comes last, and is the one that counts if there are two.
        enter = leave = 0
        if times:
            base = base_ns[1] if mask & WALL else base_ns[0]
            seconds, ns, last_seconds, last_ns = times[-4:]
            enter, leave = base + seconds * 10**9 + ns, base + last_seconds * 10**9 + last_ns
        out.calls.append(Call(name, enter, leave, arguments, place))


def _text(path: Path, data: bytes) -> RankCalls:
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TraceError("is not text", file=path, place=f"byte {error.start}",
                         remedy=_DAMAGED) from None  # fmt: skip
    if lines.pop():
        raise TraceError("the line has no end", file=path, place=f"line {len(lines) + 1}",
                         remedy=_CUT)  # fmt: skip
    out = RankCalls(path)
    begun: Call | None = None
    for number, line in enumerate(lines, 1):
        if found := _CALL.match(line):
            begun = _enter_or_leave(out, found, begun, f"line {number}")
        elif begun is not None:
            if (argument := _ARGUMENT.match(line)) is not None:
                begun.arguments[argument[1]] = _value(argument[2])
            elif line.startswith("MPI_"):
                raise TraceError(f"cannot parse {shown(line)}", file=path, place=f"line {number}",
                                 remedy=_DAMAGED)  # fmt: skip
        elif kind := _TYPE.match(line):
            out.type_bytes[int(kind[1])] = int(kind[2])
    if begun is not None:
        raise TraceError(f"{begun.name} does not return", file=path, place=f"line {len(lines)}",
                         remedy=_CUT)  # fmt: skip
    return _checked(out)


def _enter_or_leave(
    out: RankCalls, found: re.Match[str], begun: Call | None, place: str
) -> Call | None:
    """The call that is now open; one that returns is added."""
    name = found[1]
    wall = int(found[3]) * 10**9 + int(found[4].ljust(9, "0"))
    cpu = int(found[5]) * 10**9 + int(found[6].ljust(9, "0"))
    now = wall or cpu
    if found[2] == "entering":
        if begun is not None:
            raise TraceError(f"{name} begins within {begun.name}", file=out.file, place=place,
                             remedy=_DAMAGED)  # fmt: skip
        return Call(name, now, now, {}, place)
    if begun is None or begun.name != name:
        raise TraceError(f"{name} returns and has not begun", file=out.file, place=place,
                         remedy=_DAMAGED)  # fmt: skip
    if name == "MPI_Init_thread":
        begun = begun._replace(name="MPI_Init")
    out.calls.append(begun._replace(leave_ns=now))
    return None


def _value(text: str) -> Any:
    """A number, a vector of them, or pairs of source and tag of statuses."""
    if text.startswith("[") and "{" in text:
        return [(int(one), int(two)) for one, two in _STATUS.findall(text)]
    if text.startswith("["):
        return [int(one) for one in _NUMBER.findall(text)]
    found = _NUMBER.match(text)
    return int(found[0]) if found else []


def _checked(out: RankCalls) -> RankCalls:
    """The calls, which must come to an end and be in order."""
    if not out.calls or out.calls[-1].name != "MPI_Finalize":
        last = out.calls[-1] if out.calls else None
        raise TraceError("does not end with MPI_Finalize", file=out.file,
                         place=last.place if last else None, remedy=_CUT)  # fmt: skip
    now = 0
    for call in out.calls:
        if call.enter_ns < now or call.leave_ns < call.enter_ns:
            raise out.fault(call, f"{call.name} begins or ends before what is recorded before it")
        now = call.enter_ns
    return out
