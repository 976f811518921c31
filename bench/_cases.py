"""What makers of cases share: definitions of an OTF2 archive, and the loop that makes folders."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any


class Definitions:
    """System tree, locations, communicators and regions of a trace, as Score-P defines them.

    Args:
        archive: An archive of the package ``otf2``.
        hosts: Name of each rank's host.
        comms: Ranks of each further communicator.
    """

    def __init__(
        self, archive: Any, hosts: Sequence[str], comms: Iterable[Sequence[int]] = ()
    ) -> None:
        from otf2.enums import GroupType, LocationGroupType, LocationType, Paradigm

        self._definitions = d = archive.definitions
        self._paradigm = Paradigm
        machine = d.system_tree_node("cluster", class_name="machine")
        nodes = {
            host: d.system_tree_node(host, class_name="node", parent=machine)
            for host in dict.fromkeys(hosts)
        }
        self.locations = []
        for rank, host in enumerate(hosts):
            process = d.location_group(
                f"MPI Rank {rank}",
                location_group_type=LocationGroupType.PROCESS,
                system_tree_parent=nodes[host],
            )
            self.locations.append(
                d.location("Master thread", type=LocationType.CPU_THREAD, group=process)
            )
        mpi = {"paradigm": Paradigm.MPI}
        d.group("", group_type=GroupType.COMM_LOCATIONS, members=self.locations, **mpi)

        def comm(name: str, ranks: Sequence[int], **above: Any) -> Any:
            group = d.group("", group_type=GroupType.COMM_GROUP, members=list(ranks), **mpi)
            return d.comm(name, group=group, **above)

        self.world = comm("MPI_COMM_WORLD", range(len(hosts)))
        self.comms = [self.world]
        for number, ranks in enumerate(comms, 1):
            self.comms.append(comm(f"grid {number}", ranks, parent=self.world))
        self._regions: dict[str, Any] = {}

    def region(self, name: str) -> Any:
        """A region by its name."""
        if name not in self._regions:
            mpi = name.startswith("MPI_")
            paradigm = self._paradigm.MPI if mpi else self._paradigm.COMPILER
            self._regions[name] = self._definitions.region(name, paradigm=paradigm)
        return self._regions[name]


def write_clock_offsets(
    archive: Any,
    hosts: Sequence[int],
    ends: Sequence[tuple[int, int]],
    ticks: Callable[[int, int], int],
    error: Callable[[int, int], int],
) -> None:
    """Write the offset of every rank's clock from that of rank 0, measured at both ends of the run.

    Args:
        archive: An archive of the package ``otf2``.
        hosts: Number of each rank's host.
        ends: When each rank begins and ends, by the true clock.
        ticks: What the clock of a host shows at a true time.
        error: Error of the measurement of a host, 0 at the beginning and 1 at the end, ticks.
    """
    import _otf2

    for rank, host in enumerate(hosts):
        # The package numbers locations from 0 in the order of their definition.
        writer = _otf2.Archive_GetDefWriter(archive.handle, rank)
        for which, at in enumerate(ends[rank]):
            local, master = ticks(host, at), ticks(hosts[0], at)
            wrong = 0 if host == hosts[0] else error(host, which)
            _otf2.DefWriter_WriteClockOffset(writer, local, master - local + wrong, 0.0)


def make_cases(
    names: dict[Path, int],
    write: Callable[[int, Path], dict[str, Any]],
    truth: str,
    **expected: int,
) -> list[Path]:
    """Make the cases that do not exist yet; returns the folders of all that exist.

    Args:
        names: Number of each case by its folder.
        write: Makes the case of a number in a new folder and returns its truth; RuntimeError if
            that number has none.
        truth: File of the truth within a case.
        expected: What the truth of a case says that is not made again: its version and seed.
    """
    out = []
    for path, number in names.items():
        if not _is_made(path / truth, expected):
            fresh = path.with_name(f".{path.name}")
            shutil.rmtree(fresh, ignore_errors=True)
            try:
                kind = write(number, fresh)["kind"]
            except RuntimeError as error:
                print(error, file=sys.stderr)
                shutil.rmtree(fresh, ignore_errors=True)
                continue
            # Only complete cases have this name.
            shutil.rmtree(path, ignore_errors=True)
            fresh.rename(path)
            print(f"{path.name}: {kind}", file=sys.stderr)
        out.append(path)
    return out


def _is_made(file: Path, expected: dict[str, int]) -> bool:
    try:
        truth = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return expected.items() <= truth.items()
