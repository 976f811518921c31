"""Dumps of PyTorch's Flight Recorder, one a rank: the collectives that all ranks completed.

They name groups, sizes and how far each collective came, and no host. Their durations, if recorded,
are of the accelerator's clock, as those of NCCL Inspector without times of kernels. What did not
complete is not part of the program: :mod:`tailback.inference.stuck_collectives` says who holds it
up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tailback.errors import TraceError
from tailback.io.delimited import NotUsed
from tailback.traffic.nccl.durations import synchronised
from tailback.traffic.nccl.groups import with_dimensions
from tailback.traffic.nccl.joining import join_calls
from tailback.traffic.nccl.pytorch_names import call_of, letters_of
from tailback.traffic.nccl.rank_calls import RankCall, sides_of
from tailback.traffic.nccl.recorded import record_calls
from tailback.traffic.nccl.steps import GpuProgram, compile_gpu
from tailback.traffic.program import Program, RecordedTimes
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.flight_recorder.dump import (
    Operation,
    ProcessGroup,
    RankDump,
    is_dump,
)
from tailback.traffic.readers.flight_recorder.folder import is_cut_dump, read_dumps
from tailback.traffic.readers.recorded_run import RecordedRun
from tailback.units import counted, percent

CAPABILITIES = Capabilities(
    times="of collectives alone, with TORCH_NCCL_ENABLE_TIMING",
    sources="by NCCL's algorithm, from its cost model",
    completion="yes",
    call_site="no",
    compute="differences between ranks, from the times",
)

_BARRIER_BYTES: Final = 4


def sniff(path: Path) -> bool:
    """A file that begins like a dump, or a folder of which most files do.

    Dumps may also be beside the traces of a run.
    """
    if not path.is_dir():
        return is_dump(path)
    files = [entry for entry in path.iterdir() if entry.is_file()]
    return 2 * sum(is_dump(file) or is_cut_dump(file) for file in files) > len(files)


def read(path: Path) -> Program:
    """Compile the dumps of all ranks to a rank program.

    Args:
        path: The folder with the dumps of all ranks, or the dump of one. If every collective is of
            all ranks, ranks without a dump are assumed to do the same as another.

    Raises:
        TraceError: A dump is damaged, or no collective was completed by all of its ranks.
    """
    folder = read_dumps(path)
    dumps, notes = folder.of_rank, [*folder.notes]
    world = _world(dumps)
    calls = _complete(dumps, _calls(dumps, world, notes), path, notes)
    if _timed(dumps):
        calls, _ = synchronised(calls)
        calls = [_with_gaps(each) for each in calls]
    else:
        calls = [[replace(call, start_ns=0) for call in each] for each in calls]
        notes.append(
            "not all collectives have durations, so the program does not compute: "
            "TORCH_NCCL_ENABLE_TIMING=1 on all ranks writes them"
        )
    spent = sum(call.end_ns - call.start_ns for each in calls for call in each) * 1000 // world
    between = sum(call.before_ps for each in calls for call in each) // world
    named, _ = with_dimensions(calls, [""] * world)
    collectives, timeline = join_calls(named, [0] * world, notes)
    times = RecordedTimes(spent, between) if _timed(dumps) else None
    name = path.name.split(".")[0]
    return compile_gpu(
        GpuProgram(name, range(world), collectives, timeline, notes, times, assumes_hosts=True)
    )


def has_times(path: Path) -> bool:
    """Whether collectives have durations."""
    return sniff(path) and _timed(read_dumps(path).of_rank)


def record(path: Path) -> RecordedRun:
    """The collectives with their durations, for the arguments of :func:`read`.

    Raises:
        TraceError: As :func:`read`.
    """
    dumps = read_dumps(path).of_rank
    world = _world(dumps)
    recorded = _calls(dumps, world, [])
    _require_calls(recorded, path)
    calls, irregular = synchronised(recorded)
    missing = world - len(dumps)
    return record_calls(
        [_with_gaps(each) for each in calls],
        [0] * world,
        [""] * world,
        path,
        rooted=False,
        durations_only="Only the times of collectives are recorded, and their shares are of these: "
        "what a rank usually computes longer than the quickest is counted; irregular delays of "
        f"ranks, {percent(irregular)}, are left out",
        not_recorded=f"{missing} of {world} ranks" if missing else "",
        resolution_ns=1000,
    )


def system_tree(path: Path) -> list[list[tuple[str, str]]]:
    """Nothing for each rank: dumps name no host; raises TraceError."""
    return [[] for _ in range(_world(read_dumps(path).of_rank))]


def _world(dumps: Mapping[int, RankDump]) -> int:
    """Number of ranks: the largest one in a group."""
    groups = [group for dump in dumps.values() for group in dump.groups.values()]
    return 1 + max([*dumps, *(group.members[-1] for group in groups)])


def _timed(dumps: Mapping[int, RankDump]) -> bool:
    """Whether all completed launches have a duration."""
    launches = [
        each
        for dump in dumps.values()
        for each in dump.operations
        if each.state == "completed" and call_of(letters_of(each.name)) is not None
    ]
    return bool(launches) and all(each.duration_ns for each in launches)


def _calls(dumps: Mapping[int, RankDump], world: int, notes: list[str]) -> list[list[RankCall]]:
    """Completed calls of each rank that all recorded members completed, with their durations.

    A duration is the begin of a call that ends at 0.
    """
    calls = [list[RankCall]() for _ in range(world)]
    unknown = Counter[str]()
    for rank, dump in dumps.items():
        seen = Counter[Hashable]()
        for operation in dump.operations:
            if operation.state != "completed" or operation.name == "coalesced":
                continue
            call = _call(operation, dump.groups[operation.group], seen)
            if call is None:
                kind = f" of {operation.element_type}" if not operation.element_bytes else ""
                unknown[f"{operation.name[:40]}{kind}"] += 1
            else:
                calls[rank].append(call)
    if unknown:
        listed = ", ".join(f"{name} ({number})" for name, number in sorted(unknown.items()))
        notes.append(NotUsed(f"operations that are not expanded are left out: {listed}"))
    sides = sides_of(calls)
    partly = {
        key
        for key, side in sides.items()
        if set(next(iter(side.values())).members) & dumps.keys() - side.keys()
    }
    if partly:
        notes.append(
            NotUsed(
                f"{counted(len(partly), 'collective')} of {len(sides):,} that not all ranks have "
                "completed, or that are no longer in all dumps: left out on the others, too"
            )
        )
    return [[call for call in each if call.key not in partly] for each in calls]


def _call(operation: Operation, group: ProcessGroup, seen: Counter[Hashable]) -> RankCall | None:
    """The call of an operation, which ``seen`` numbers; None if it cannot be expanded."""
    letters = letters_of(operation.name)
    is_barrier = letters.endswith("barrier")
    call = "AllReduce" if is_barrier else call_of(letters)
    if call is None or not (operation.element_bytes or is_barrier):
        return None
    n = len(group.members)
    nbytes = operation.buffer_bytes(n)
    place: tuple[Hashable, ...] = (group.name, group.members)
    members, peer = group.members, 0
    number = operation.number
    if call == "SendRecv":
        if operation.ends is None or max(operation.ends) >= n or len(set(operation.ends)) < 2:
            return None
        members = group.members[operation.ends[0]], group.members[operation.ends[1]]
        place, peer = (*place, *members), 1
        seen[place] += 1
        number = seen[place]
    turn = (*place, number)
    seen[turn] += 1
    return RankCall(
        (*place, seen[turn], number),
        call,
        members,
        _BARRIER_BYTES if is_barrier else nbytes,
        group.label,
        start_ns=-operation.duration_ns,
        peer=peer,
    )


def _complete(
    dumps: Mapping[int, RankDump], calls: list[list[RankCall]], path: Path, notes: list[str]
) -> list[list[RankCall]]:
    """Calls of all ranks; those without a dump do as another, if all calls are of all ranks."""
    world = len(calls)
    missing = [rank for rank in range(world) if rank not in dumps]
    _require_calls(calls, path)
    if not missing:
        return calls
    if any(len(call.members) < world for each in calls for call in each):
        raise TraceError(
            f"the dump of rank {missing[0]} of {world} is missing, and some collectives are of "
            "groups of ranks",
            file=path,
            remedy="give the folder with the dumps of all ranks",
        )
    model = min(dumps)
    notes.append(
        f"{len(missing)} of {world} ranks have no dump (the first: rank {missing[0]}): they are "
        f"taken to do what rank {model} does"
    )
    return [calls[rank] if rank in dumps else calls[model] for rank in range(world)]


def _require_calls(calls: Sequence[Sequence[RankCall]], path: Path) -> None:
    if not any(calls):
        raise TraceError(
            "holds no collective that all of its ranks have completed",
            file=path,
            remedy="give the dumps of all ranks; who holds up the others: tailback diagnose DUMPS "
            "without a fabric",
        )


def _with_gaps(calls: Sequence[RankCall]) -> list[RankCall]:
    """Calls with the time before each as computation."""
    out, at = [], calls[0].start_ns if calls else 0
    for call in calls:
        out.append(replace(call, before_ps=max((call.start_ns - at) * 1000, 1)))
        at = max(call.end_ns, at)
    return out
