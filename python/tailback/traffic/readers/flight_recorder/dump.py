"""A dump of PyTorch's Flight Recorder: the last collectives of one rank, as pickle or JSON.

``nccl_trace_rank_<N>`` is written when a collective times out (``TORCH_NCCL_DUMP_ON_TIMEOUT``), or
on request. Only its name tells the rank. Times are those at which a thread of the host noticed that
a kernel had begun or ended, so they are late; ``TORCH_NCCL_ENABLE_TIMING`` adds the duration by the
accelerator's clock.
"""

from __future__ import annotations

import json
import pickletools
import re
import reprlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite, prod
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard

from tailback.errors import TraceError
from tailback.io.delimited import shown
from tailback.io.input_files import TRACE_MEMORY, content, head_bytes
from tailback.traffic.nccl.pytorch_names import ELEMENT_BYTES

State = Literal["scheduled", "started", "completed"]
"""The host launched it; its kernel was seen to run; it was seen to be done."""

STATES: Final[tuple[State, ...]] = ("scheduled", "started", "completed")

_KEYS: Final = rb"(?:entries|pg_config|pg_status|nccl_comm_state|nccl_version|version)"
_PICKLE: Final = re.compile(rb"\A\x80[\x02-\x05].{0,64}?" + _KEYS, re.DOTALL)
_JSON: Final = re.compile(rb'\A\s*\{\s*"' + _KEYS + rb'"')
_RECORDS: Final = re.compile(rb"collective_seq_id|pg_status|pg_config")
_RANK: Final = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|pt|bin|txt))?(?:\.gz)?\Z")
_INTEGERS: Final = re.compile(r"\d{1,9}")
_PAIR: Final = re.compile(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})\Z")
_MOST: Final = 1 << 53
_MAX_RANK: Final = 1 << 20
_AGAIN: Final = "the dump is damaged or cut: copy it again, or have it written again"


@dataclass(frozen=True)
class Operation:
    """A collective, a send or a receive, as one rank recorded it.

    Attributes:
        group: Name of its process group.
        name: Its name without that of the library: ``all_reduce``, ``send``, ``coalesced``.
        number: Its number among the launches of the group; sends and receives count apart.
        order: Its number among the operations of the group.
        is_p2p: Whether it is between two ranks.
        ends: Sender and receiver of one between two ranks, as members of the group.
        state: How far it came.
        created_ns: When the host launched it, UTC ns.
        completed_ns: When the host noticed that it was done; 0 if it did not.
        duration_ns: By the accelerator's clock; 0 if not recorded.
        into: Elements that the rank gives.
        out: Elements that it gets.
        element_bytes: Bytes of an element; 0 for a type that is not known.
        called_from: File and line of the program; empty if not recorded.
    """

    group: str
    name: str
    number: int
    order: int
    is_p2p: bool
    ends: tuple[int, int] | None
    state: State
    created_ns: int
    completed_ns: int
    duration_ns: int
    into: int
    out: int
    element_bytes: int
    called_from: str


@dataclass(frozen=True)
class ProcessGroup:
    """A process group.

    Attributes:
        name: Its name, which two groups may share.
        label: What the program calls it, or its name.
        members: Its ranks in the world, in their order.
    """

    name: str
    label: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class RankDump:
    """The dump of one rank.

    Attributes:
        file: Where it is from.
        rank: The rank.
        groups: Its process groups by name.
        operations: The last operations that it launched, in order.
        enqueued: Number of the last collective that it launched, by group, where it is recorded.
        skipped: Number of operations without a process group that is listed.
    """

    file: Path
    rank: int
    groups: dict[str, ProcessGroup]
    operations: list[Operation]
    enqueued: dict[str, int]
    skipped: int


def is_dump(path: Path) -> bool:
    """Whether a file begins like a dump of the Flight Recorder."""
    head = head_bytes(path)
    begins = _PICKLE.match(head) or _JSON.match(head)
    return begins is not None and _RECORDS.search(head) is not None


def read_dump(file: Path) -> RankDump:
    """Read a dump.

    Raises:
        TraceError: It is damaged, holds what is no plain data, or its name has no rank.
    """
    data = content(file, TraceError, TRACE_MEMORY)
    document = _json(data, file) if data.lstrip()[:1] == b"{" else _unpickled(data, file)
    if not isinstance(document, dict):
        raise TraceError("is no dump of the Flight Recorder", file=file, remedy=_AGAIN)
    match = _RANK.search(file.name)
    if match is None or int(match[1]) >= _MAX_RANK:
        raise TraceError(
            "its name has no rank, which a dump does not hold",
            file=file,
            remedy="name it as PyTorch does: nccl_trace_rank_0",
        )
    return _DumpReader(file, document).dump(int(match[1]))


def _json(data: bytes, file: Path) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        place = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else None
        raise TraceError(
            f"is not valid JSON: {error}", file=file, place=place, remedy=_AGAIN
        ) from None
    except RecursionError:
        raise TraceError("is nested too deeply", file=file, remedy=_AGAIN) from None


class _PlainPickle:
    """Builds the containers and scalars of a pickle, and refuses every other instruction.

    No name is looked up and nothing is called: the instructions that do so are unknown here. The
    unpicklers of Python would allocate as many entries as the largest number in the file.

    Args:
        data: The pickle, of protocol 2 or newer.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The object; raises _RefusedError, or an error of almost any type for damaged bytes."""
        while True:
            code = self.data[self.at]
            self.at += 1
            if code == _STOP:
                return self.stack.pop()
            step = _STEPS.get(code)
            if step is None:
                raise _RefusedError(self._asked(code))
            step(self)

    def number(self, size: int, *, signed: bool = False) -> int:
        """The next bytes as a number."""
        part = self.take(size)
        return int.from_bytes(part, "little", signed=signed)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        part = self.data[self.at : self.at + size]
        if len(part) < size:
            raise ValueError("it is cut")
        self.at += size
        return part

    def since_mark(self) -> list[Any]:
        """Objects above the last mark, taken off the stack."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _asked(self, code: int) -> str:
        """What an instruction asks for: a name, or the instruction."""
        names = (each.name for each in pickletools.opcodes if each.code == chr(code))
        name = next(names, f"byte {code}")
        if name == "STACK_GLOBAL":
            return ".".join(str(each)[:40] for each in self.stack[-2:])
        if name == "GLOBAL":
            lines = self.data[self.at : self.at + 80].split(b"\n")
            return ".".join(line.decode("ascii", "replace") for line in lines[:2])
        return name


_Step = Callable[[_PlainPickle], None]


def _skip(pickle: _PlainPickle, size: int) -> None:
    pickle.take(size)


def _pushed(value: Callable[[_PlainPickle], Any]) -> _Step:
    return lambda pickle: pickle.stack.append(value(pickle))


def _remember(size: int) -> _Step:
    def step(pickle: _PlainPickle) -> None:
        pickle.memo[pickle.number(size) if size else len(pickle.memo)] = pickle.stack[-1]

    return step


def _tuple_of(size: int) -> _Step:
    def step(pickle: _PlainPickle) -> None:
        pickle.stack[-size:] = [tuple(pickle.stack[-size:])]

    return step


def _append(pickle: _PlainPickle) -> None:
    last = pickle.stack.pop()
    pickle.stack[-1].append(last)


def _set_item(pickle: _PlainPickle) -> None:
    value, key = pickle.stack.pop(), pickle.stack.pop()
    pickle.stack[-1][key] = value


def _extend(pickle: _PlainPickle) -> None:
    items = pickle.since_mark()
    pickle.stack[-1].extend(items)


def _update(pickle: _PlainPickle) -> None:
    items = pickle.since_mark()
    pickle.stack[-1].update(zip(items[::2], items[1::2], strict=True))


def _text(size: int) -> _Step:
    return _pushed(lambda pickle: pickle.take(pickle.number(size)).decode("utf-8", "replace"))


_STOP: Final = ord(".")

_STEPS: Final[dict[int, _Step]] = {
    0x80: lambda pickle: _skip(pickle, 1),  # PROTO
    0x95: lambda pickle: _skip(pickle, 8),  # FRAME
    ord("N"): _pushed(lambda _: None),
    0x88: _pushed(lambda _: True),
    0x89: _pushed(lambda _: False),
    ord("J"): _pushed(lambda pickle: pickle.number(4, signed=True)),
    ord("K"): _pushed(lambda pickle: pickle.number(1)),
    ord("M"): _pushed(lambda pickle: pickle.number(2)),
    0x8A: _pushed(lambda pickle: pickle.number(pickle.number(1), signed=True)),
    0x8B: _pushed(lambda pickle: pickle.number(pickle.number(4), signed=True)),
    ord("G"): _pushed(lambda pickle: struct.unpack(">d", pickle.take(8))[0]),
    ord("X"): _text(4),
    0x8C: _text(1),
    0x8D: _text(8),
    ord("]"): _pushed(lambda _: []),
    ord("}"): _pushed(lambda _: {}),
    ord(")"): _pushed(lambda _: ()),
    ord("("): lambda pickle: pickle.marks.append(len(pickle.stack)),
    ord("t"): _pushed(lambda pickle: tuple(pickle.since_mark())),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("a"): _append,
    ord("e"): _extend,
    ord("s"): _set_item,
    ord("u"): _update,
    ord("q"): _remember(1),
    ord("r"): _remember(4),
    0x94: _remember(0),
    ord("h"): _pushed(lambda pickle: pickle.memo[pickle.number(1)]),
    ord("j"): _pushed(lambda pickle: pickle.memo[pickle.number(4)]),
}
"""What each instruction does, by its byte (``pickletools`` names them)."""


class _RefusedError(Exception):
    """A pickle asks for something that is no plain data."""


def _unpickled(data: bytes, file: Path) -> Any:
    try:
        return _PlainPickle(data).load()
    except _RefusedError as error:
        raise TraceError(
            f"asks for {shown(str(error))}, but a dump holds plain data: nothing of it was run",
            file=file,
            remedy="a file from a source that you do not trust may be an attack; give what PyTorch "
            "wrote",
        ) from None
    except Exception as error:  # Bytes that are no pickle raise errors of almost any type.
        raise TraceError(
            f"is no pickle: {shown(str(error) or type(error).__name__)}", file=file, remedy=_AGAIN
        ) from None


class _DumpReader:
    """Reads the document of one rank."""

    def __init__(self, file: Path, document: dict[Any, Any]) -> None:
        self.file = file
        self.document = document

    def dump(self, rank: int) -> RankDump:
        version = str(self.document.get("version", ""))[:20]
        if not version.startswith("2."):
            raise TraceError(
                f"is of version {shown(version)}, and versions 2.x are read",
                file=self.file,
                place="version",
                remedy="write it with PyTorch 2.4 or newer",
            )
        groups = self._groups()
        listed = self.document.get("entries", [])
        if not isinstance(listed, list):
            raise self._wrong("entries", "is no list")
        operations = []
        names: dict[str, str] = {}
        for number, entry in enumerate(listed):
            place = f"entries[{number}]"
            if not isinstance(entry, dict):
                raise self._wrong(place, "is no dictionary")
            operation = self._operation(place, entry)
            names.setdefault(str(entry.get("pg_id")), operation.group)
            operations.append(operation)
        of_groups = [each for each in operations if each.group in groups]
        for group in groups.values():
            if rank not in group.members:
                raise self._wrong(
                    "pg_config",
                    f"rank {rank}, as the file is named, is not in its group {shown(group.label)}",
                )
        return RankDump(
            self.file,
            rank,
            groups,
            _with_states(of_groups),
            self._enqueued(names),
            len(operations) - len(of_groups),
        )

    def _groups(self) -> dict[str, ProcessGroup]:
        listed = self.document.get("pg_config", {})
        if not isinstance(listed, dict):
            raise self._wrong("pg_config", "is no dictionary")
        out = {}
        for name, entry in listed.items():
            ranks = entry.get("ranks") if isinstance(entry, dict) else None
            numbers = _INTEGERS.findall(ranks) if isinstance(ranks, str) else ranks
            place = f"pg_config[{shown(str(name))}]"
            if not isinstance(numbers, list) or not all(
                str(each).isdecimal() and int(each) < _MAX_RANK for each in numbers
            ):
                raise self._wrong(place, f"its ranks are {_shown(ranks)}")
            members = tuple(sorted(int(each) for each in numbers))
            if not members or len(set(members)) != len(members):
                raise self._wrong(place, f"its ranks are {_shown(ranks)}")
            label = str(entry.get("desc") or "")[:80]
            label = label if label not in ("", "undefined") else f"group {str(name)[:80]}"
            out[str(name)] = ProcessGroup(str(name), label, members)
        return out

    def _enqueued(self, names: Mapping[str, str]) -> dict[str, int]:
        """The last collective that was launched, by group; ``names`` has those of the numbers."""
        listed = self.document.get("pg_status", {})
        out: dict[str, int] = {}
        for number, status in listed.items() if isinstance(listed, dict) else ():
            last = status.get("last_enqueued_collective") if isinstance(status, dict) else None
            if str(number) in names and str(last).isdecimal() and len(str(last)) < 19:
                out[names[str(number)]] = int(str(last))
        return out

    def _operation(self, place: str, entry: Mapping[Any, Any]) -> Operation:
        pair = entry.get("process_group")
        if not isinstance(pair, list | tuple) or not pair:
            raise self._wrong(place, f"process_group is {_shown(pair)}")
        name = str(entry.get("profiling_name", "")).partition(":")[2]
        state = entry.get("state")
        if not name or state not in STATES:
            raise self._wrong(
                place, f"is {_shown(entry.get('profiling_name'))} in state {_shown(state)}"
            )
        match = _PAIR.match(name)
        ends = None
        if match is not None:
            first, second = int(match[2]), int(match[4])
            ends = (first, second) if match[3] == "->" else (second, first)
        is_p2p = entry.get("is_p2p", match is not None) is True
        types = [*_texts(entry.get("input_dtypes")), *_texts(entry.get("output_dtypes"))]
        return Operation(
            group=str(pair[0]),
            name=name if match is None else match[1],
            number=self._whole(place, entry, "p2p_seq_id" if is_p2p else "collective_seq_id"),
            order=self._whole(place, entry, "op_id"),
            is_p2p=is_p2p,
            ends=ends,
            state=state,
            created_ns=self._whole(place, entry, "time_created_ns"),
            completed_ns=self._whole(place, entry, "time_discovered_completed_ns"),
            duration_ns=self._duration_ns(place, entry),
            into=self._elements(place, entry, "input_sizes"),
            out=self._elements(place, entry, "output_sizes"),
            element_bytes=ELEMENT_BYTES.get(types[0].lower(), 0) if types else 0,
            called_from=_called_from(entry.get("frames")),
        )

    def _whole(self, place: str, entry: Mapping[Any, Any], key: str) -> int:
        """A number; 0 where it is absent."""
        value = entry.get(key) or 0
        if not _is_whole(value) or value >= 1 << 62:
            raise self._wrong(place, f"{key} is {_shown(value)}")
        return value

    def _duration_ns(self, place: str, entry: Mapping[Any, Any]) -> int:
        value = entry.get("duration_ms") or 0.0
        if not isinstance(value, int | float) or not isfinite(value) or not 0 <= value < 1e9:
            raise self._wrong(place, f"duration_ms is {_shown(value)}")
        return round(value * 1e6)

    def _elements(self, place: str, entry: Mapping[Any, Any], key: str) -> int:
        """Elements of all tensors together."""
        listed = entry.get(key) or []
        good = isinstance(listed, list) and all(
            isinstance(sizes, list) and len(sizes) < 64 and all(map(_is_whole, sizes))
            for sizes in listed
        )
        total = sum(prod(sizes) for sizes in listed) if good else _MOST
        if total >= _MOST:
            raise self._wrong(place, f"{key} is {_shown(listed)}")
        return total

    def _wrong(self, place: str, message: str) -> TraceError:
        return TraceError(message, file=self.file, place=place, remedy=_AGAIN)


def _with_states(operations: list[Operation]) -> list[Operation]:
    """Operations, those of one launch with the state of the launch.

    Only the last entry of a launch, ``coalesced``, is followed by the recorder: it has the state.
    """
    launches = {_launch(each): each for each in operations if each.name == "coalesced"}
    return [
        replace(each, state=last.state, duration_ns=0, completed_ns=last.completed_ns)
        if (last := launches.get(_launch(each))) is not None and each is not last
        else each
        for each in operations
    ]


def _launch(operation: Operation) -> tuple[str, bool, int]:
    return operation.group, operation.is_p2p, operation.number


def _called_from(frames: object) -> str:
    """File and line of the innermost frame outside PyTorch."""
    for frame in frames if isinstance(frames, list) else ():
        if not isinstance(frame, dict):
            continue
        file, line = str(frame.get("filename", "")), frame.get("line")
        if file and "/torch/" not in file and _is_whole(line) and line:
            return f"{Path(file).name[:80]}:{line}"
    return ""


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(value: object) -> str:
    """A value of a file, short: what is nested may be too large to print."""
    return shown(value if isinstance(value, str) else reprlib.repr(value))
