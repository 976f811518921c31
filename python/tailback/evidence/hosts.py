"""Determine the host of each rank from a trace, the environment or a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailback.errors import PlacementError, TailbackError
from tailback.io.input_files import text_content
from tailback.names.hosts import expand_hosts
from tailback.placement.hostlist import host_list

_HOST_CLASSES = frozenset(("node", "host", "compute node"))
"""Classes of OTF2 system tree nodes that represent a host; Score-P writes ``node``."""

_RANK = re.compile(r"rank\s+(\d{1,9})\s*=\s*(\S+)", re.ASCII)
_COUNTS = re.compile(r"(\d{1,9})(?:\(x(\d{1,9})\))?\Z", re.ASCII)


@dataclass(frozen=True)
class Hosts:
    """Host of each rank.

    Attributes:
        of_rank: Host of each rank.
        source: Where the hosts come from, as shown on the screen.
        notes: What was odd and tolerated.
    """

    of_rank: list[str]
    source: str
    notes: tuple[str, ...] = ()

    @property
    def most_ranks(self) -> int:
        """Maximum number of ranks on a host."""
        return max(self.of_rank.count(host) for host in set(self.of_rank))


def find_hosts(
    system: Sequence[Sequence[tuple[str, str]]],
    n_ranks: int,
    *,
    environment: Mapping[str, str] | None = None,
    rank_file: Path | None = None,
    hosts: Sequence[str] | None = None,
) -> Hosts | None:
    """Find the host of each rank: from the trace, else environment, rank file or list of hosts.

    Args:
        system: Name and class of the system tree ancestors of each rank's process, innermost first.
        n_ranks: Number of ranks.
        environment: Environment variables of the job (Slurm, PBS); those of this process if None.
        rank_file: Rank file, or list of hosts in rank order, one per line.
        hosts: Host of each rank, or of each block of equally many ranks.

    Returns:
        The hosts; None if no source lists them.

    Raises:
        PlacementError: The rank file cannot be read.
    """
    recorded = [host for host in recorded_hosts(system, n_ranks) if host is not None]
    if len(recorded) == n_ranks:
        return Hosts(recorded, "the trace")
    variables = os.environ if environment is None else environment
    for source, listed in (
        ("Slurm's environment", _from_slurm(variables)),
        ("the PBS node file", _from_pbs(variables)),
    ):
        # The environment may belong to a job unrelated to the trace.
        if listed is not None and len(listed) == n_ranks:
            return Hosts(listed, source)
    if rank_file is not None:
        listed = _read_rank_file(rank_file, n_ranks)
        if listed is not None:
            return Hosts(listed, f"{rank_file.name}")
    if hosts and n_ranks % len(hosts) == 0:
        ranks_per_host = n_ranks // len(hosts)
        return Hosts([host for host in hosts for _ in range(ranks_per_host)], "the list of hosts")
    return None


def recorded_hosts(system: Sequence[Sequence[tuple[str, str]]], n_ranks: int) -> list[str | None]:
    """Host of each rank that a trace names, None for others; arguments of :func:`find_hosts`."""
    named = [
        next((name for name, kind in path if kind.lower() in _HOST_CLASSES and name), None)
        for path in system
    ]
    return named if len(named) == n_ranks else [None] * n_ranks


def _from_slurm(variables: Mapping[str, str]) -> list[str] | None:
    names, counts = variables.get("SLURM_JOB_NODELIST"), variables.get("SLURM_TASKS_PER_NODE")
    distribution = variables.get("SLURM_DISTRIBUTION", "block")
    if not names or not counts or not distribution.startswith("block"):
        return None
    try:
        hosts = expand_hosts(names)
    except PlacementError:
        return None
    tasks: list[int] = []
    for part in counts.split(","):
        match = _COUNTS.match(part.strip())
        if match is None or int(match[2] or 1) > len(hosts):
            return None
        tasks += [int(match[1])] * int(match[2] or 1)
    if len(tasks) != len(hosts) or sum(tasks) > 1 << 24:
        return None
    return [host for host, count in zip(hosts, tasks, strict=True) for _ in range(count)]


def _from_pbs(variables: Mapping[str, str]) -> list[str] | None:
    file = variables.get("PBS_NODEFILE")
    if not file:
        return None
    try:
        return text_content(Path(file)).split()
    except TailbackError:
        return None


def _read_rank_file(path: Path, n_ranks: int) -> list[str] | None:
    """Hosts in an Open MPI rank file, a table ``rank,host`` or a host list; None if incomplete."""
    text = text_content(path, PlacementError)
    lines = [
        (number, line.split("#")[0].strip()) for number, line in enumerate(text.split("\n"), 1)
    ]
    lines = [(number, line) for number, line in lines if line]
    if lines and lines[0][1].lower().startswith("rank "):
        host_of = {int(m[1]): m[2] for _, line in lines if (m := _RANK.match(line))}
        complete = all(rank in host_of for rank in range(n_ranks))
        return [host_of[rank] for rank in range(n_ranks)] if complete else None
    if lines and lines[0][1].lower().replace(" ", "").startswith("rank,host"):
        rows = [line.split(",") for _, line in lines[1:]]
        table = {row[0].strip(): row[1].strip() for row in rows if len(row) > 1}
        complete = all(str(rank) in table for rank in range(n_ranks))
        return [table[str(rank)] for rank in range(n_ranks)] if complete else None
    try:
        listed = host_list(path, lines)
    except TailbackError:
        return None
    out = [line.host for line in listed.lines for _ in range(line.count or 1)]
    return out[:n_ranks] if len(out) >= n_ranks else None
