"""Input of the rank-file writers, and the check against hostile host names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, option
from tailback.fabric.model import Fabric
from tailback.io.folders import shell_path
from tailback.placement.problem import slots_of_each
from tailback.registry import Registry

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}\Z")


@dataclass(frozen=True)
class Binding:
    """How ranks of a recorded job used the cores of their hosts.

    Attributes:
        cores: Cores that each rank was bound to alone; 0 if ranks were not bound, or shared cores.
        threads: OpenMP threads of each rank (OMP_NUM_THREADS); 0 if not set.
    """

    cores: int = 0
    threads: int = 0

    @property
    def variables(self) -> str:
        """Assignment of the variables before a command that passes its environment on."""
        return f"OMP_NUM_THREADS={self.threads} " if self.threads else ""


@dataclass(frozen=True)
class RankAssignment:
    """Host and slot of each rank.

    Attributes:
        host: Host name of each rank, length R.
        slot: Slot of each rank on its host, counting from 0, shape (R,).
        allocation: Host names of the allocation, in order.
        slots: Slots of each host of the allocation.
        binding: How ranks used cores when the job was recorded; None if that is unknown.
    """

    host: tuple[str, ...]
    slot: NDArray[np.int64]
    allocation: tuple[str, ...]
    slots: tuple[int, ...]
    binding: Binding | None = None

    @property
    def n_ranks(self) -> int:
        """Number of ranks R."""
        return len(self.host)


@dataclass(frozen=True)
class RankFile:
    """A file for a launcher.

    Attributes:
        writer: Name of the format.
        file: Its file name.
        text: Its content.
        before: The shell command that runs ``./app`` with it, up to the path of the file.
        after: The rest of the command.
        read_as: Name under which the launcher reads it in the working folder; empty if the command
            names its path.
    """

    writer: str
    file: str
    text: str
    before: str
    after: str
    read_as: str = ""

    def with_openmpi_options(self, options: str) -> RankFile:
        """The file with further options in its command, where that is one of Open MPI."""
        if not options or not self.writer.startswith("openmpi"):
            return self
        program, _, arguments = self.before.partition(" ")
        return replace(self, before=f"{program} {options} {arguments}")

    @property
    def command(self) -> str:
        """The command in the folder of the file."""
        return self._command(shlex.quote(self.file))

    def command_from(self, folder: Path) -> str:
        """The command where the file is in ``folder``."""
        return self._command(shell_path(folder / self.file))

    def _command(self, path: str) -> str:
        if not self.read_as:
            return f"{self.before}{path}{self.after}"
        copy = "" if path == self.read_as else f"cp {path} {self.read_as} && "
        return f"{copy}{self.after}"


Writer: TypeAlias = Callable[[RankAssignment, str], RankFile]
"""Renders an assignment as a file of the given name."""

WRITERS: Registry[Writer] = Registry("rank-file", "rank files that launchers take")


def assignment_for(
    fabric: Fabric,
    node_of_rank: NDArray[np.integer],
    hosts: list[int] | None = None,
    ranks_per_host: int | Sequence[int] | None = None,
) -> RankAssignment:
    """Hosts and slots from the node of each rank.

    Slots count up within a host in rank order, such that slot number modulo the number of adapters
    gives the adapter the placement chose, as :func:`tailback.placement.problem_for` assigns them.

    Args:
        fabric: The fabric the placement was made for.
        node_of_rank: Node of each rank, shape (R,).
        hosts: The allocation in order; the hosts in use in fabric order when absent.
        ranks_per_host: Slots of each host, one number or one for each of ``hosts``; the most
            that a host needs when absent.

    Raises:
        PlacementError: A host name is not allowed in a rank file, two hosts share a name, or a rank
            is outside the allocation or beyond a host's slots.
    """
    nodes = np.asarray(node_of_rank).astype(np.int64)
    if len(nodes) and not 0 <= nodes.min() <= nodes.max() < fabric.n_nodes:
        raise PlacementError(
            f"placement names a node beyond the {fabric.n_nodes} of the fabric",
            remedy="use the fabric the placement was made for",
        )
    host = fabric.node_host.astype(np.int64)[nodes]
    used = sorted(set(host.tolist()))
    allocation = used if hosts is None else hosts
    outside = set(used) - set(allocation)
    if outside:
        raise PlacementError(
            f"the placement uses host {fabric.host_name[min(outside)]!r} outside the allocation",
            remedy="make the placement for the hosts of the allocation",
        )
    names = [safe_name(fabric.host_name[h]) for h in allocation]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise PlacementError(
            f"two hosts are called {twice!r}, so a rank file cannot distinguish them",
            remedy="give the hosts distinct names in the fabric",
        )
    slot = _slots(fabric, nodes, host)
    if ranks_per_host is None:
        ranks_per_host = int(slot.max(initial=0)) + 1
    slots = slots_of_each(allocation, ranks_per_host)
    held = dict(zip(allocation, slots, strict=True))
    needed: dict[int, int] = {}
    for at, number in zip(host.tolist(), slot.tolist(), strict=True):
        needed[at] = max(needed.get(at, 0), number + 1)
    for at, most in needed.items():
        if most > held[at]:
            raise PlacementError(
                f"host {fabric.host_name[at]!r} needs {most} slots but has {held[at]}",
                remedy=f"raise {option('ranks_per_host')}, or the host's slots "
                f"({option('hosts', 'node[0-3]:4')})",
            )
    return RankAssignment(
        host=tuple(fabric.host_name[h] for h in host.tolist()),
        slot=slot,
        allocation=tuple(names),
        slots=tuple(slots),
    )


def _slots(fabric: Fabric, nodes: NDArray[np.int64], host: NDArray[np.int64]) -> NDArray[np.int64]:
    """Slot of each rank on its host: the n-th rank of adapter a of A has slot n·A + a."""
    switch = fabric.node_switch
    adapter = np.zeros(fabric.n_nodes, np.int64)
    adapters = np.ones(fabric.n_hosts, np.int64)
    for number, members in enumerate(fabric.host_nodes()):
        connected = [node for node in members if switch[node] >= 0] or members
        adapter[connected] = np.arange(len(connected))
        adapters[number] = max(len(connected), 1)
    order = np.argsort(nodes, kind="stable")
    ordered = nodes[order]
    first = np.searchsorted(ordered, ordered)
    nth = np.empty(len(nodes), np.int64)
    nth[order] = np.arange(len(nodes)) - first
    return nth * adapters[host] + adapter[nodes]


def safe_name(name: str) -> str:
    """Return ``name`` if it is allowed in a rank file.

    Raises:
        PlacementError: It has white space, ``=``, shell or other characters that host names do not
            have.
    """
    if not _SAFE.match(name):
        raise PlacementError(
            f"host {name[:100]!r} has a name that a rank file cannot hold",
            remedy="rename it in the fabric: letters, digits, dot, dash and underscore",
        )
    return name


def write(name: str, assignment: RankAssignment, file: str = "rankfile") -> RankFile:
    """Render ``assignment`` with writer ``name``.

    Args:
        name: One of ``tailback list rank-file``.
        assignment: See :func:`assignment_for`.
        file: Name of the file, to which the command refers.

    Raises:
        TailbackError: There is no such writer.
        PlacementError: The format cannot express the assignment, or a name is not allowed.
    """
    for host in {*assignment.host, *assignment.allocation}:
        safe_name(host)
    if not file or not file.isprintable() or file.startswith("-"):
        raise PlacementError(
            f"{file!r} is not a name for a file",
            remedy="give a printable name that begins with no dash",
        )
    return WRITERS[name](assignment, file)
