"""Ranks of the job that files of NCCL Inspector name by process and communicator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailback.errors import TraceError
from tailback.traffic.readers.inspector.records import Record


@dataclass(frozen=True)
class World:
    """Ranks of the job.

    Attributes:
        hosts: Host of each rank; empty where nothing is recorded.
        rank_of: World rank of each process and device.
        members: World ranks of each communicator, in its order; -1 where unknown.
        recorded: Ranks of which something is recorded.
        files: File of each of them.
        per_host: Ranks of a host, on average.
        notes: What was assumed.
    """

    hosts: list[str]
    rank_of: dict[tuple[str, int, int], int]
    members: dict[str, tuple[int, ...]]
    recorded: list[int]
    files: dict[int, Path]
    per_host: int
    notes: list[str]


def find_world(records: Sequence[Record]) -> World:
    """World ranks: those of the largest communicator, if every process has a rank in it."""
    in_process: dict[tuple[str, int], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    size: dict[str, int] = {}
    for record in records:
        in_process[record.process][record.comm.id].add(record.comm.rank)
        n_ranks = size.setdefault(record.comm.id, record.comm.n_ranks)
        if n_ranks != record.comm.n_ranks:
            raise TraceError(
                f"communicator {record.comm.id} has {record.comm.n_ranks} ranks here, and "
                f"{n_ranks} in other records",
                file=record.file,
                place=f"line {record.line}",
                remedy="keep the files of one run in a folder; copy a damaged file again",
            )
    devices = {
        process: max(len(ranks) for ranks in comms.values())
        for process, comms in in_process.items()
    }
    slots = [(*process, k) for process in sorted(devices) for k in range(devices[process])]
    everywhere = [
        comm
        for comm in size
        if all(len(comms.get(comm, ())) == devices[p] for p, comms in in_process.items())
    ]
    notes: list[str] = []
    total = len(slots)
    order = {slot: k for k, slot in enumerate(slots)}
    if everywhere:
        largest = max(everywhere, key=lambda comm: size[comm])
        total = size[largest]
        order = {
            (*process, k): rank
            for process, comms in in_process.items()
            for k, rank in enumerate(sorted(comms[largest]))
        }
    elif total > 1:
        notes.append(
            "no communicator has a rank in every process: ranks are numbered by host and process"
        )
    _require_different_ranks(order, records)
    hosts = [""] * total
    for slot, rank in order.items():
        hosts[rank] = slot[0]
    members = _members(in_process, devices, size, order)
    per_host = max(record.comm.n_ranks // max(record.comm.n_hosts, 1) for record in records)
    of_process = {record.process: record.file for record in reversed(records)}
    files = {rank: of_process[host, pid] for (host, pid, _), rank in order.items()}
    return World(hosts, order, members, sorted(order.values()), files, max(per_host, 1), notes)


def _require_different_ranks(
    order: Mapping[tuple[str, int, int], int], records: Sequence[Record]
) -> None:
    """Raise TraceError with their files if two processes have the same rank."""
    process_of: dict[int, tuple[str, int]] = {}
    for (host, pid, _), rank in order.items():
        first = process_of.setdefault(rank, (host, pid))
        if first == (host, pid):
            continue
        files = [
            next(record.file for record in records if record.process == process)
            for process in (first, (host, pid))
        ]
        raise TraceError(
            f"its process has rank {rank}, as that of {files[0].name} has",
            file=files[1],
            remedy="keep the files of one run in a folder; copy a damaged file again",
        )


def _members(
    in_process: Mapping[tuple[str, int], Mapping[str, set[int]]],
    devices: Mapping[tuple[str, int], int],
    size: Mapping[str, int],
    order: Mapping[tuple[str, int, int], int],
) -> dict[str, tuple[int, ...]]:
    """World ranks of each communicator; -1 where nothing tells."""
    out = {comm: [-1] * n for comm, n in size.items()}
    for process, comms in in_process.items():
        for comm, ranks in comms.items():
            # Which device of a process a smaller communicator uses is not recorded.
            if len(ranks) == devices[process]:
                for k, rank in enumerate(sorted(ranks)):
                    out[comm][rank] = order[(*process, k)]
    total = max(order.values()) + 1
    for comm, world in out.items():
        if -1 in world and len(world) >= total and all(r in (-1, k) for k, r in enumerate(world)):
            out[comm] = list(range(len(world)))
    return {comm: tuple(ranks) for comm, ranks in out.items()}
