"""Placement from a file: a rank file, a list of hosts, ranks and hosts as CSV, a Cray order."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, TailbackError, nearest, option
from tailback.io.input_files import text_content
from tailback.io.manifest import require_unchanged
from tailback.names.hosts import HostNames, two_spellings
from tailback.placement import options as read
from tailback.placement.assign import PLACEMENTS
from tailback.placement.hostlist import HostLine, HostList, host_list
from tailback.placement.options import Options
from tailback.placement.problem import PlacementProblem
from tailback.placement.rank_hosts import (
    cray_nodes,
    cray_ranks,
    erf_hosts,
    explicit_hosts,
    is_cray_order,
    rank_hosts,
)

_RANK = re.compile(r"rank\s+(\d{1,9})\s*=\s*(\S+)\s+slots?\s*=\s*(\S+)\Z", re.ASCII)
_COMMENT = re.compile("#|//")


@PLACEMENTS.register("file")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Reads an Open MPI rankfile, a list of hosts, a CSV of ranks and hosts, or a Cray rank order.

    Options: ``file`` (the path). What ranks or launchers printed and jsrun's explicit resources
    are accepted too (``tailback list rank-map``). The format is detected. A list of hosts has
    one host per line in rank order, ``host:n`` for n consecutive ranks (hydra: starting again
    at the top if ranks remain), or ``host slots=n`` (Open MPI: ranks fill the slots, host after
    host). The k-th rank of a host takes its k-th slot, unless a rankfile numbers the slots. A
    Cray order fills the nodes named in a comment of the file, or the job's hosts in order.
    """
    read.refuse_unknown("file", options, ("file",))
    value = options.get("file")
    if not isinstance(value, str | Path):
        raise PlacementError(
            "placement 'file' needs the option file",
            place="placement_options",
            remedy="name a rank file or host list: placement_file in the scenario, "
            f"or {option('placement', 'FILE')}",
        )
    path = Path(value)
    require_unchanged(path)
    text = _text(path)
    named = explicit_hosts(text, path)
    if named is not None:
        _check_count(problem, path, len(named))
        return _slots_by_rank(_Slots(problem, path), named)
    numbers = erf_hosts(text, path)
    if numbers is not None:
        _check_count(problem, path, len(numbers))
        return _slots_by_rank(_Slots(problem, path), _hosts_by_number(problem, path, numbers))
    lines = _lines(text)
    if not lines:
        raise PlacementError("holds no placement", file=path, remedy="give one line per rank")
    first = lines[0][1]
    if first.lower().startswith("rank "):
        return _rankfile(problem, path, lines)
    # A host may be called "12"; then a line without a comma is a host.
    if is_cray_order(first) and first not in problem.host_name:
        ranks = cray_ranks(path, lines, problem.n_ranks)
        _check_count(problem, path, len(ranks))
        slots = _Slots(problem, path)
        # Without names, Cray MPICH is assumed to fill the hosts of the job one after another.
        out = np.empty(problem.n_ranks, np.int64)
        named_nodes = cray_nodes(path, text, problem.n_ranks)
        out[ranks] = [slots.next(*node) for node in named_nodes] or np.arange(problem.n_ranks)
        return out
    return _hosts(problem, path, lines)


def _text(path: Path) -> str:
    return text_content(path, PlacementError)


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without comments and blanks."""
    # Open MPI also accepts C++ comments.
    lines = enumerate(text.split("\n"), 1)
    stripped = ((i, _COMMENT.split(line, maxsplit=1)[0].strip()) for i, line in lines)
    return [(i, line) for i, line in stripped if line]


class _Slots:
    """Assigns the slots of each host in order."""

    def __init__(self, problem: PlacementProblem, path: Path) -> None:
        self.path = path
        self.of: dict[str, list[int]] = {}
        for slot, host in enumerate(problem.slot_host.tolist()):
            self.of.setdefault(problem.host_name[host], []).append(slot)
        self.taken: dict[str, int] = {}
        self._names = HostNames(self.of)
        self._spelling: dict[str, str] = {}
        self._differing = problem.spellings

    def host(self, name: str, line: int) -> list[int]:
        try:
            same = self._names.find(name)
            if same is not None and self._spelling.setdefault(same, name) != name:
                raise two_spellings(self._spelling[same], name, same)
        except TailbackError as error:
            error.file, error.place = self.path, f"line {line}"
            raise
        if same is None:
            raise PlacementError(
                f"host {name!r} is not one of the job's hosts",
                file=self.path,
                place=f"line {line}",
                remedy=nearest(name, self.of)[:400],
            )
        if same != name:
            self._differing[name] = same
        return self.of[same]

    def next(self, name: str, line: int) -> int:
        slots = self.host(name, line)
        taken = self.taken.get(name, 0)
        if taken >= len(slots):
            raise PlacementError(
                f"host {name!r} holds {len(slots)} ranks, the file puts more there",
                file=self.path,
                place=f"line {line}",
                remedy=f"raise {option('ranks_per_host')} or its slots "
                f"({option('hosts', 'node[0-3]:4')}), or put fewer ranks there",
            )
        self.taken[name] = taken + 1
        return slots[taken]


def _hosts_by_number(problem: PlacementProblem, path: Path, numbers: list[int]) -> list[str]:
    """The hosts of a job by their numbers from 1, in the order of its hosts."""
    hosts = [problem.host_name[host] for host in dict.fromkeys(problem.slot_host.tolist())]
    if max(numbers) > len(hosts):
        raise PlacementError(
            f"puts ranks on host {max(numbers)}, the job has {len(hosts)} hosts",
            file=path,
            remedy=f"name all hosts of the job in their order: {option('hosts')}",
        )
    return [hosts[number - 1] for number in numbers]


def _slots_by_rank(free: _Slots, hosts: list[str]) -> NDArray[np.int64]:
    """Slots of ranks whose hosts are given by rank."""
    out = np.empty(len(hosts), np.int64)
    for rank, host in enumerate(hosts):
        try:
            out[rank] = free.next(host, rank)
        except TailbackError as error:
            error.place = f"rank {rank}"
            raise
    return out


def require_all_ranks(path: Path, n_ranks: int) -> None:
    """Raise PlacementError if a file names the hosts of fewer ranks than a job has."""
    try:
        ranks = len(rank_hosts(path))
    except TailbackError:
        return  # It orders ranks, and names no hosts.
    if ranks < n_ranks:
        raise _other_count(path, ranks, n_ranks)


def _check_count(problem: PlacementProblem, path: Path, ranks: int, remedy: str = "") -> None:
    if ranks != problem.n_ranks:
        raise _other_count(path, ranks, problem.n_ranks, remedy)


def _other_count(path: Path, ranks: int, n_ranks: int, remedy: str = "") -> PlacementError:
    """The error for a file of another number of ranks than a job has."""
    text = f"places {ranks} ranks, the job has {n_ranks}"
    if ranks >= n_ranks:
        use = "use the file that was made for this job"
        return PlacementError(text, file=path, remedy=f"{use}{remedy}")
    return PlacementError(
        f"rank {ranks} is missing: the file {text}",
        file=path,
        remedy=f"add the host of each rank up to {n_ranks - 1}, or use the file that was made for "
        f"this job{remedy}",
    )


def _rankfile(
    problem: PlacementProblem, path: Path, lines: list[tuple[int, str]]
) -> NDArray[np.int64]:
    slot_of: dict[int, tuple[str, str, int]] = {}
    for line, text in lines:
        match = _RANK.match(text)
        if not match or int(match[1]) in slot_of:
            what = f"rank {match[1]} is listed twice" if match else f"{text[:80]!r} cannot be read"
            raise PlacementError(
                what, file=path, place=f"line {line}", remedy="write rank 0=host slot=0"
            )
        slot_of[int(match[1])] = (match[2], match[3], line)
    _check_count(problem, path, len(slot_of))
    missing = sorted(set(range(problem.n_ranks)) - set(slot_of))
    if missing:
        raise PlacementError(
            f"rank {missing[0]} is missing", file=path, remedy="ranks count from 0, without gaps"
        )
    slots = _Slots(problem, path)
    numbered: dict[str, set[int]] = {}
    usable = True
    for name, text, line in slot_of.values():
        held = len(slots.host(name, line))
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else held
        used = numbered.setdefault(name, set())
        usable &= number < held and number not in used
        used.add(number)
    out = np.empty(problem.n_ranks, np.int64)
    for rank in range(problem.n_ranks):
        name, text, line = slot_of[rank]
        # "slot=0:3" names a core, not a slot: then ranks take the slots in order.
        out[rank] = slots.host(name, line)[int(text)] if usable else slots.next(name, line)
    return out


def _hosts(
    problem: PlacementProblem, path: Path, lines: list[tuple[int, str]]
) -> NDArray[np.int64]:
    slots = _Slots(problem, path)
    listed = host_list(path, lines)
    if not listed.slots and not listed.turns:
        out = [slots.next(entry.host, entry.line) for entry in listed.lines]
        _check_count(problem, path, len(out), "; or say ranks a host: host:n, or host slots=n")
        return np.array(out, np.int64)
    entries = _by_host(listed, slots) if listed.slots else listed.lines
    out = []
    while len(out) < problem.n_ranks:
        before = len(out)
        for entry in entries:
            count = 1 if entry.count is None else entry.count
            for _ in range(min(count, problem.n_ranks - len(out))):
                out.append(slots.next(entry.host, entry.line))
        if listed.slots or len(out) == before:
            break
    if len(out) < problem.n_ranks:
        raise PlacementError(
            f"has {len(out)} slots, the job has {problem.n_ranks} ranks",
            file=path,
            remedy="list more hosts or more slots",
        )
    return np.array(out, np.int64)


def _by_host(listed: HostList, slots: _Slots) -> list[HostLine]:
    """Each host once with all its slots, as Open MPI reads a list with slots.

    A host listed once without a number has one slot per processor; its slots in the job are used
    instead.
    """
    times: dict[str, list[HostLine]] = {}
    for entry in listed.lines:
        times.setdefault(entry.host, []).append(entry)
    out = []
    for first, *more in times.values():
        count = first.count
        if count is None:
            count = 1 + len(more) if more else len(slots.host(first.host, first.line))
        out.append(HostLine(first.host, count, first.line))
    return out
