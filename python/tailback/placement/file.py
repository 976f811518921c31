"""Placement from a file: a rank file of Open MPI, a list of hosts, or a Cray rank order."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, nearest
from tailback.placement import options as read
from tailback.placement.options import Options
from tailback.placement.problem import Problem

_RANK = re.compile(r"rank\s+(\d{1,9})\s*=\s*(\S+)\s+slots?\s*=\s*(\S+)\Z", re.ASCII)
_HOST = re.compile(r"([^\s:=,]+)(?::(\d{1,9})|\s+slots=(\d{1,9}))?\Z", re.ASCII)
_ORDER = re.compile(r"\d{1,9}(-\d{1,9})?(\s*,\s*\d{1,9}(-\d{1,9})?)*\s*,?\Z", re.ASCII)
_LARGEST = 1 << 28


def place(problem: Problem, options: Options) -> NDArray[np.int64]:
    """Reads an Open MPI rankfile, one host a line in rank order, or a Cray MPICH_RANK_ORDER.

    Options: ``file`` (the path). The form is found from the first line. ``host:n`` stands for n
    ranks. The k-th rank of a host takes its k-th slot, unless a rankfile numbers the slots.
    """
    read.refuse_unknown("file", options, ("file",))
    value = options.get("file")
    if not isinstance(value, str | Path):
        raise PlacementError(
            "placement 'file' needs the option file",
            place="placement_options",
            remedy="name a rank file or host list: placement_file in the scenario, "
            "or --placement FILE",
        )
    path = Path(value)
    lines = _lines(path)
    if not lines:
        raise PlacementError("holds no placement", file=path, remedy="give one line a rank")
    first = lines[0][1]
    if first.lower().startswith("rank "):
        return _rankfile(problem, path, lines)
    # A host may be called "12"; then a line without a comma is a host.
    if _ORDER.match(first) and first not in problem.host_name:
        return _cray(problem, path, lines)
    return _hosts(problem, path, lines)


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines with their numbers, without comments and blanks."""
    try:
        if path.stat().st_size > _LARGEST:
            raise PlacementError("is larger than 256 MiB", file=path, remedy="is it a rank file?")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise PlacementError(
            f"cannot read the placement: {what}", file=path, remedy="check the path"
        ) from None
    stripped = ((i, line.split("#", 1)[0].strip()) for i, line in enumerate(text.split("\n"), 1))
    return [(i, line) for i, line in stripped if line]


class _Slots:
    """Hands out the slots of each host."""

    def __init__(self, problem: Problem, path: Path) -> None:
        self.path = path
        self.of: dict[str, list[int]] = {}
        for slot, host in enumerate(problem.slot_host.tolist()):
            self.of.setdefault(problem.host_name[host], []).append(slot)
        self.taken: dict[str, int] = {}

    def host(self, name: str, line: int) -> list[int]:
        if name not in self.of:
            raise PlacementError(
                f"host {name!r} is not one of the job's hosts",
                file=self.path,
                place=f"line {line}",
                remedy=nearest(name, self.of)[:400],
            )
        return self.of[name]

    def next(self, name: str, line: int) -> int:
        slots = self.host(name, line)
        taken = self.taken.get(name, 0)
        if taken >= len(slots):
            raise PlacementError(
                f"host {name!r} holds {len(slots)} ranks, the file puts more there",
                file=self.path,
                place=f"line {line}",
                remedy="raise ranks_per_host, or put fewer ranks there",
            )
        self.taken[name] = taken + 1
        return slots[taken]


def _count(problem: Problem, path: Path, found: int) -> None:
    if found != problem.n_ranks:
        raise PlacementError(
            f"places {found} ranks, the job has {problem.n_ranks}",
            file=path,
            remedy="use the file that was made for this job",
        )


def _rankfile(problem: Problem, path: Path, lines: list[tuple[int, str]]) -> NDArray[np.int64]:
    found: dict[int, tuple[str, str, int]] = {}
    for line, text in lines:
        match = _RANK.match(text)
        if not match or int(match[1]) in found:
            what = f"rank {match[1]} is there twice" if match else f"{text[:80]!r} cannot be read"
            raise PlacementError(
                what, file=path, place=f"line {line}", remedy="write rank 0=host slot=0"
            )
        found[int(match[1])] = (match[2], match[3], line)
    _count(problem, path, len(found))
    missing = sorted(set(range(problem.n_ranks)) - set(found))
    if missing:
        raise PlacementError(
            f"rank {missing[0]} is missing", file=path, remedy="ranks count from 0, without gaps"
        )
    slots = _Slots(problem, path)
    numbered: dict[str, set[int]] = {}
    usable = True
    for name, text, line in found.values():
        held = len(slots.host(name, line))
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else held
        used = numbered.setdefault(name, set())
        usable &= number < held and number not in used
        used.add(number)
    out = np.empty(problem.n_ranks, np.int64)
    for rank in range(problem.n_ranks):
        name, text, line = found[rank]
        # "slot=0:3" names a core, not a slot: then ranks take the slots in order.
        out[rank] = slots.of[name][int(text)] if usable else slots.next(name, line)
    return out


def _hosts(problem: Problem, path: Path, lines: list[tuple[int, str]]) -> NDArray[np.int64]:
    slots = _Slots(problem, path)
    out: list[int] = []
    for line, text in lines:
        match = _HOST.match(text)
        if not match:
            raise PlacementError(
                f"{text[:80]!r} is not a host",
                file=path,
                place=f"line {line}",
                remedy="write one host a line, or host:n for n ranks in turn",
            )
        for _ in range(int(match[2] or match[3] or 1)):
            out.append(slots.next(match[1], line))
    _count(problem, path, len(out))
    return np.array(out, np.int64)


def _cray(problem: Problem, path: Path, lines: list[tuple[int, str]]) -> NDArray[np.int64]:
    order: list[int] = []
    for line, text in lines:
        if not _ORDER.match(text):
            raise PlacementError(
                f"{text[:80]!r} is not a list of ranks",
                file=path,
                place=f"line {line}",
                remedy="write ranks like 0,4,8-11",
            )
        for part in text.replace(" ", "").strip(",").split(","):
            first, _, last = part.partition("-")
            stop = int(last or first) + 1
            if stop - int(first) > problem.n_ranks:
                stop = int(first) + problem.n_ranks + 1
            order.extend(range(int(first), stop))
        if len(order) > problem.n_ranks:
            break
    _count(problem, path, len(order))
    ranks = np.array(order, np.int64)
    if not np.array_equal(np.sort(ranks), np.arange(problem.n_ranks)):
        raise PlacementError(
            "does not name every rank once", file=path, remedy="name ranks 0 to R - 1 once each"
        )
    # Cray MPICH fills the nodes of the allocation one after the other.
    slots = np.empty(problem.n_ranks, np.int64)
    slots[ranks] = np.arange(problem.n_ranks)
    return slots
