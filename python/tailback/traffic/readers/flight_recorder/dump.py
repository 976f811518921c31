"""A dump of PyTorch's Flight Recorder: the last collectives of one rank, as pickle or JSON.

``nccl_trace_rank_<N>`` is written when a collective times out (``TORCH_NCCL_DUMP_ON_TIMEOUT``), or
on request. Only its name tells the rank. Times are those at which a thread of the host noticed that
a kernel had begun or ended, so they are late; ``TORCH_NCCL_ENABLE_TIMING`` adds the duration by the
accelerator's clock.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, prod
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard

from tailback.errors import TraceError
from tailback.io.delimited import shown
from tailback.io.input_files import TRACE_MEMORY, content, head_bytes, parsed_json
from tailback.traffic.nccl.pytorch_names import (
    buffer_elements,
    call_of,
    element_bytes,
    letters_of,
)
from tailback.traffic.readers.flight_recorder.plain_pickle import PlainPickle, RefusedError

State = Literal["scheduled", "started", "completed"]
"""The host launched it; its kernel was seen to run; it was seen to be done."""

STATES: Final[tuple[State, ...]] = ("scheduled", "started", "completed")

_KEYS: Final = rb"(?:entries|pg_config|pg_status|nccl_comm_state|nccl_version|version)"
_PICKLE: Final = re.compile(rb"\A\x80[\x02-\x05].{0,64}?" + _KEYS, re.DOTALL)
_JSON: Final = re.compile(rb'\A\s*\{\s*"' + _KEYS + rb'"')
_RECORDS: Final = re.compile(rb"collective_seq_id|pg_status|pg_config")
_RANK: Final = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|pt|bin|txt))?(?:\.gz)?\Z")
_INTEGERS: Final = re.compile(r"\d{1,9}")
_TYPE: Final = re.compile(r"[A-Za-z][\w.:]{0,39}")
_PAIR: Final = re.compile(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})\Z")
_MOST: Final = 1 << 53
_MAX_RANK: Final = 1 << 20
_AGAIN: Final = "the dump is damaged or cut: copy it again, or have it written again"


@dataclass(frozen=True)
class Operation:
    """A collective, a send or a receive, as one rank recorded it.

    Attributes:
        group: Name of its process group.
        group_label: What the program calls the group; empty if not recorded.
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
        element_type: Type of an element as PyTorch names it; empty if not recorded.
        called_from: File and line of the program; empty if not recorded.
    """

    group: str
    group_label: str
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
    element_type: str
    called_from: str

    @property
    def element_bytes(self) -> int:
        """Bytes of an element; 0 for a type that is not known."""
        return element_bytes(self.element_type)

    def buffer_bytes(self, n: int) -> int:
        """Bytes of the whole buffer in a group of ``n`` ranks; 0 if unknown."""
        call = call_of(letters_of(self.name))
        if call is None:
            return 0
        return buffer_elements(call, self.into, self.out, n) * self.element_bytes

    @property
    def launch(self) -> tuple[str, bool, int]:
        """What operations of one launch have in common: group, kind and number."""
        return self.group, self.is_p2p, self.number


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
        lost: Number of older operations, which these overwrote in its buffer.
    """

    file: Path
    rank: int
    groups: dict[str, ProcessGroup]
    operations: list[Operation]
    enqueued: dict[str, int]
    lost: int


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
    if not data.strip():
        raise TraceError("is empty", file=file, remedy=_AGAIN)
    is_json = data.lstrip()[:1] == b"{"
    document = parsed_json(data, file, TraceError, _AGAIN) if is_json else _unpickled(data, file)
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


def _unpickled(data: bytes, file: Path) -> Any:
    try:
        return PlainPickle(data).load()
    except RefusedError as error:
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
            _with_states(operations),
            self._enqueued(names),
            self._whole("entries[0]", listed[0], "record_id") if listed else 0,
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
            label = _label(entry.get("desc")) or f"group {str(name)[:80]}"
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
        types = [*_types(entry.get("input_dtypes")), *_types(entry.get("output_dtypes"))]
        return Operation(
            group=str(pair[0]),
            group_label=_label(pair[1]) if len(pair) > 1 else "",
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
            element_type=types[0] if types else "",
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
    launches = {each.launch: each for each in operations if each.name == "coalesced"}
    return [
        replace(each, state=last.state, duration_ns=0, completed_ns=last.completed_ns)
        if (last := launches.get(each.launch)) is not None and each is not last
        else each
        for each in operations
    ]


def _label(desc: object) -> str:
    """What the program calls a group; empty if nothing."""
    label = str(desc or "")[:80]
    return "" if label == "undefined" else label


def _called_from(frames: object) -> str:
    """File and line of the innermost frame outside PyTorch."""
    for frame in frames if isinstance(frames, list) else ():
        if not isinstance(frame, dict):
            continue
        file, line = str(frame.get("filename", "")), frame.get("line")
        if file and "/torch/" not in file and _is_whole(line) and line:
            return f"{Path(file).name[:80]}:{line}"
    return ""


def _types(value: object) -> list[str]:
    """Types of tensors, as a list or a text such as ``['Float']``; empty where absent."""
    if isinstance(value, str):
        return _TYPE.findall(value)
    return [str(each)[:40] for each in value] if isinstance(value, list | tuple) else []


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(value: object) -> str:
    """A value of a file, short: what is nested may be too large to print."""
    return shown(value if isinstance(value, str) else reprlib.repr(value))
