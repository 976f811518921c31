"""Content of one Kineto trace: the collectives of its rank, and the computation around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.io.delimited import shown, unused_keys
from tailback.traffic.nccl.choice import MAX_CHANNELS
from tailback.traffic.nccl.pytorch_names import (
    buffer_elements,
    call_of,
    element_bytes,
    letters_of,
)
from tailback.traffic.nccl.rank_calls import RankCall

_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_INTEGERS: Final = re.compile(r"\d+")
_MAX_VALUE: Final = 1 << 53
_AGAIN: Final = "the trace is damaged: copy it again or record it again"


_ARGUMENTS: Final = frozenset(
    {
        "device",
        "context",
        "stream",
        "correlation",
        "queued",
        "registers per thread",
        "shared memory",
        "blocks per SM",
        "warps per SM",
        "block",
        "est. achieved occupancy %",
        "Collective name",
        "Process Group Name",
        "Process Group ID",
        "Process Group Description",
        "Process Group Ranks",
        "Group size",
        "Global rank start",
        "Global rank stride",
        "Seq",
        "Root rank",
        "Src Rank",
        "Dst Rank",
        "Rank",
        "dtype",
        "In msg nelems",
        "Out msg nelems",
        "In split size",
        "grid",
        "External id",
    }
)
"""Arguments of a kernel that are used, or describe the kernel rather than the call."""


@dataclass(frozen=True)
class RankTrace:
    """The trace of one rank.

    Attributes:
        file: The trace.
        rank: The rank.
        world: Number of ranks if recorded, else 0.
        devices: Accelerators of its host.
        host: Name of its host; empty if it is not recorded.
        calls: Collectives in the order of their kernels.
        after_ps: Computation after the last of them.
        calls_ps: Time in collectives without overlapping computation.
        between_ps: All other time.
        unrecognised: Number of NCCL kernels that name no known collective.
        unused: Arguments of these kernels that are not used.
    """

    file: Path
    rank: int
    world: int
    devices: int
    host: str
    calls: list[RankCall]
    after_ps: int
    calls_ps: int
    between_ps: int
    unrecognised: int
    unused: tuple[str, ...]


def rank_trace(document: dict[str, Any], file: Path, named: int | None) -> RankTrace:
    """Read a trace.

    Args:
        document: The JSON object.
        file: Where it is from.
        named: The rank in the name of the file, if any.

    Raises:
        TraceError: A value is impossible; the message names its event.
    """
    info = document.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank, world = info.get("rank", named if named is not None else 0), info.get("world_size", 0)
    if not _whole(rank) or not _whole(world) or (world and rank >= world):
        raise TraceError(
            f"is of rank {shown(str(rank))} of {shown(str(world))}",
            file=file,
            place="distributedInfo",
            remedy=_AGAIN,
        )
    listed = document.get("deviceProperties")
    devices = max(len(listed), 1) if isinstance(listed, list) else 1
    host = document.get("host_name")
    reader = _Reader(file, rank, info, document)
    calls, after_ps, calls_ps, between_ps = reader.timeline()
    return RankTrace(
        file,
        rank,
        world,
        devices,
        host if isinstance(host, str) and _HOST.fullmatch(host) else "",
        calls,
        after_ps,
        calls_ps,
        between_ps,
        reader.unrecognised,
        tuple(reader.unused),
    )


class _Reader:
    """Processes the events of a trace."""

    def __init__(
        self, file: Path, rank: int, info: dict[str, Any], document: dict[str, Any]
    ) -> None:
        self.file, self.rank = file, rank
        events = document["traceEvents"]
        # Times count from a base that the trace states, in nanoseconds since 1970.
        base = document.get("baseTimeNanoseconds")
        self._base_ns = base if _whole(base) and base < 1 << 62 else 0
        self.unrecognised = 0
        self.unused: dict[str, None] = {}
        self._turn: dict[tuple[object, ...], int] = {}
        self._groups = {
            str(group.get("pg_name")): group.get("ranks")
            for group in info.get("pg_config") or ()
            if isinstance(group, dict)
        }
        self._events = events
        self._params = {
            event["args"].get("External id"): event["args"]
            for event in events
            if isinstance(event, dict)
            and event.get("name") == "record_param_comms"
            and isinstance(event.get("args"), dict)
        }

    def timeline(self) -> tuple[list[RankCall], int, int, int]:
        """Calls, computation after them, time in calls without overlap, and all other time."""
        nccl, busy = self._kernels()
        begin = min((low for low, *_ in nccl), default=0)
        if len(busy):
            begin = min(begin, int(busy[0, 0])) if nccl else int(busy[0, 0])
        calls, at, alone, between = [], begin, 0, 0
        for low, high, number, args in nccl:
            low, high = max(low, at), max(high, at)
            overlapped, idle = _covered(busy, low, high), low - at - _covered(busy, at, low)
            call = self._call(number, args, (low - at, idle, overlapped), (low, high))
            if call is None:
                # Unknown traffic took this time; the overlapping computation stays.
                between += low - at + overlapped
                alone += high - low - overlapped
            else:
                calls.append(call)
                between += low - at + overlapped
                alone += high - low - overlapped
            at = high
        after = max(int(busy[-1, 1]) - at, 0) if len(busy) else 0
        return calls, after * 1000, alone * 1000, (between + after) * 1000

    def _kernels(self) -> tuple[list[tuple[int, int, int, dict[str, Any]]], NDArray[np.int64]]:
        """Begin, end, event and arguments of NCCL's kernels; merged times of all others, ns."""
        nccl: list[tuple[int, int, int, dict[str, Any]]] = []
        busy: list[tuple[int, int]] = []
        for number, event in enumerate(self._events):
            if not isinstance(event, dict):
                raise self._wrong(number, f"{shown(str(event))} is not an event")
            if event.get("ph") != "X" or event.get("cat") not in _DEVICE:
                continue
            low, high = self._times(number, event)
            name, args = event.get("name"), event.get("args")
            if event["cat"] == "kernel" and isinstance(name, str) and "nccl" in name[:40].lower():
                nccl.append((low, high, number, args if isinstance(args, dict) else {}))
            else:
                busy.append((low, high))
        nccl.sort(key=lambda kernel: kernel[:3])
        return nccl, _merged(busy)

    def _times(self, number: int, event: dict[str, Any]) -> tuple[int, int]:
        """Begin and end in nanoseconds; the file has microseconds with fractions."""
        out = []
        for key in ("ts", "dur"):
            try:
                value = float(event.get(key, 0))
            except (TypeError, ValueError):
                value = float("nan")
            if not isfinite(value) or not 0 <= value < _MAX_VALUE:
                raise self._wrong(number, f"{key} is {shown(str(event.get(key)))}")
            out.append(round(value * 1000))
        return out[0], out[0] + out[1]

    def _call(
        self,
        number: int,
        args: dict[str, Any],
        amounts: tuple[int, int, int],
        times: tuple[int, int],
    ) -> RankCall | None:
        """The collective of a kernel; None (and counted) if it names none that can be expanded.

        Args:
            number: Number of its event.
            args: Its arguments.
            amounts: Time since the previous one, the idle part of it, and computation beside the
                kernel, ns.
            times: When it began and ended, ns.
        """
        if "Collective name" not in args:
            args = {**self._params.get(args.get("External id"), {}), **args}
        self.unused |= dict.fromkeys(unused_keys([args], _ARGUMENTS))
        name = letters_of(str(args.get("Collective name", "")))
        call = call_of(name)
        if call is None:
            self.unrecognised += 1
            return None
        members = self._members(number, args)
        group: tuple[object, ...] = (
            str(args.get("Process Group Name", args.get("Process Group ID", ""))),
            members,
        )
        root = self._integer(number, args, "Root rank", 0)
        peer, nbytes = 0, self._bytes(number, args, call, len(members))
        row: tuple[int, ...] = ()
        if name == "barrier":
            nbytes = 4
        if call == "SendRecv":
            src, dst = self._ends(number, args, name, members)
            group, members, root, peer = (*group, src, dst), (src, dst), 0, 1
        elif call == "AllToAll":
            row = self._row(number, args, len(members))
        self._turn[group] = self._turn.get(group, -1) + 1
        key = (*group, self._integer(number, args, "Seq", self._turn[group]))
        label = str(args.get("Process Group Description") or args.get("Process Group Name") or "")
        channels = self._channels(args)
        before, idle, overlapped = amounts
        return RankCall(
            key,
            call,
            members,
            nbytes,
            label[:80] or "process group",
            before_ps=before * 1000,
            overlapped_ps=overlapped * 1000,
            start_ns=self._base_ns + times[0],
            end_ns=self._base_ns + times[1],
            idle_ps=idle * 1000,
            root=root if root < len(members) else 0,
            peer=peer,
            row=row,
            channels=channels,
        )

    def _members(self, number: int, args: dict[str, Any]) -> tuple[int, ...]:
        """World ranks of the process group."""
        text = str(args.get("Process Group Ranks", ""))
        size = self._integer(number, args, "Group size", 0)
        ranks: list[Any] = [int(digits) for digits in _INTEGERS.findall(text)]
        if not ranks or "..." in text:
            listed = self._groups.get(str(args.get("Process Group Name")))
            first, step = (
                self._integer(number, args, f"Global rank {key}", 0) for key in ("start", "stride")
            )
            if isinstance(listed, list) and (not size or len(listed) == size):
                ranks = listed
            elif 0 < size < 1 << 20 and (step or size == 1):
                ranks = [first + k * step for k in range(size)]
        good = ranks and all(map(_whole, ranks)) and len(set(ranks)) == len(ranks)
        if not good or (size and len(ranks) != size) or max(ranks) >= 1 << 20:
            raise self._wrong(number, f"Process Group Ranks is {shown(text)}, Group size {size}")
        if self.rank not in ranks:
            raise self._wrong(number, f"rank {self.rank} is not in its group {shown(text)}")
        return tuple(ranks)

    def _bytes(self, number: int, args: dict[str, Any], call: str, n: int) -> int:
        """Bytes of the whole buffer."""
        width = element_bytes(str(args.get("dtype", "")))
        into = self._integer(number, args, "In msg nelems", 0)
        out = self._integer(number, args, "Out msg nelems", 0)
        if (into or out) and not width:
            raise self._wrong(number, f"dtype is {shown(str(args.get('dtype')))}")
        return buffer_elements(call, into, out, n) * width

    def _row(self, number: int, args: dict[str, Any], n: int) -> tuple[int, ...]:
        """Bytes for each member of an exchange with splits; empty where they are equal."""
        parts = [int(digits) for digits in _INTEGERS.findall(str(args.get("In split size", "")))]
        if len(parts) != n or not sum(parts):
            return ()
        total = self._bytes(number, args, "AllToAll", n)
        return tuple(part * total // sum(parts) for part in parts)

    def _ends(
        self, number: int, args: dict[str, Any], name: str, members: tuple[int, ...]
    ) -> tuple[int, int]:
        """Sender and receiver as world ranks; the trace has them within the group."""
        other = self._integer(number, args, "Dst Rank" if name == "send" else "Src Rank", -1)
        if other in members and other != self.rank:
            world = other
        elif 0 <= other < len(members) and members[other] != self.rank:
            world = members[other]
        else:
            raise self._wrong(number, f"{name} names rank {other} of its group")
        return (self.rank, world) if name == "send" else (world, self.rank)

    def _channels(self, args: dict[str, Any]) -> int | None:
        """Blocks of the kernel: NCCL starts one for each channel."""
        grid = args.get("grid")
        first = grid[0] if isinstance(grid, list) and grid else 0
        return first if _whole(first) and 0 < first <= MAX_CHANNELS else None

    def _integer(self, number: int, args: dict[str, Any], key: str, default: int) -> int:
        if key not in args:
            return default
        value: object = args[key]
        if not _whole(value) or value > _MAX_VALUE:
            raise self._wrong(number, f"{key} is {shown(str(value))}")
        return value

    def _wrong(self, number: int, message: str) -> TraceError:
        return TraceError(message, file=self.file, place=f"traceEvents[{number}]", remedy=_AGAIN)


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _merged(spans: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Union of the spans as disjoint intervals in order, shape (K, 2)."""
    if not spans:
        return np.zeros((0, 2), np.int64)
    at = np.array(sorted(spans), np.int64)
    reach = np.maximum.accumulate(at[:, 1])
    first = np.concatenate([[True], at[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([at[first, 0], reach[last]], axis=1)


def _covered(busy: NDArray[np.int64], low: int, high: int) -> int:
    """Time between ``low`` and ``high`` that the merged spans cover."""
    first, last = np.searchsorted(busy[:, 1], low, "right"), np.searchsorted(busy[:, 0], high)
    part = busy[first:last]
    return int((np.minimum(part[:, 1], high) - np.maximum(part[:, 0], low)).sum())
