"""The debug log of NCCL or RCCL alone: the collectives of every rank, and how they ran.

Recorded with ``NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL,TUNING``, in one file or one for
each process. There are no times. Next to PyTorch's Kineto traces it supplies the algorithms of
their collectives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from tailback.errors import TraceError
from tailback.io.delimited import FILES_NAMED, NotUsed, not_used
from tailback.traffic.nccl.choice import Choice, default_choice
from tailback.traffic.nccl.groups import with_dimensions
from tailback.traffic.nccl.joining import join_calls
from tailback.traffic.nccl.messages import CALLS
from tailback.traffic.nccl.rank_calls import RankCall
from tailback.traffic.nccl.steps import GpuProgram, compile_gpu
from tailback.traffic.program import Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.nccl.lines import Accelerator, LoggedCall, NcclLog, is_log, read_logs

CAPABILITIES = Capabilities(
    times="no",
    sources="by algorithm, protocol, channels and rings as NCCL chose them",
    completion="each call before the next of its rank",
    call_site="no",
    compute="no",
)

_SET = "set NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL,TUNING and record again"
_TIMES_RANKS = ("AllGather", "ReduceScatter", "Gather", "Scatter", "AllToAll", "AlltoAll")


def sniff(path: Path) -> bool:
    """A file with lines of NCCL's log, or a folder with one."""
    return any(map(is_log, _entries(path)))


def read(path: Path) -> Program:
    """Compile the logs of all ranks to a rank program.

    Args:
        path: The log, or the folder with those of all processes.

    Returns:
        The program, without computation.

    Raises:
        TraceError: The log names no communicators, no calls, or not those of all ranks.
    """
    entries = _entries(path)
    files = [entry for entry in entries if is_log(entry)]
    log = read_logs(files)
    world = _world(log, path)
    notes = [*log.notes]
    others = [entry.name for entry in entries if entry not in files]
    notes += not_used(others, "files without lines of NCCL's log", FILES_NAMED)
    calls, _ = with_dimensions(
        _calls(log, world, notes), [accelerator.host for accelerator in world]
    )
    collectives, timeline = join_calls(calls, [0] * len(world), notes)
    if not collectives:
        raise TraceError(
            "holds no collective that all of its ranks recorded",
            file=path,
            remedy="give the logs of all processes, from their beginning",
        )
    number: dict[str, int] = {}
    hosts = [number.setdefault(accelerator.host, len(number)) for accelerator in world]
    program = compile_gpu(
        GpuProgram(
            path.name.split(".")[0],
            hosts,
            collectives,
            timeline,
            notes,
            port_gbps=log.port_gbps,
        )
    )
    program.hosts = tuple(accelerator.host for accelerator in world)
    return program


def _entries(path: Path) -> list[Path]:
    """The files of a folder, or the file."""
    return sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]


def _world(log: NcclLog, path: Path) -> list[Accelerator]:
    """Accelerator of each rank of the job."""
    if not log.calls and not log.unknown_calls:
        raise TraceError("this log of NCCL names no calls", file=path, remedy=_SET)
    if not log.size:
        raise TraceError(
            "this log of NCCL names no communicators by which their ranks can be told apart, so it "
            "is unknown which lines belong together",
            file=path,
            remedy=f"{_SET}, with NCCL 2.16 or newer if ranks have several communicators of a size",
        )
    world = {rank: accelerator for accelerator, rank in log.world().items()}
    n_ranks = max(log.size.values())
    missing = sorted(set(range(n_ranks)) - set(world))
    if missing:
        raise TraceError(
            f"has no lines of rank {missing[0]} of {n_ranks}",
            file=path,
            remedy="give the logs of all processes in one folder",
        )
    _require_one_run(log, set(world.values()))
    return [world[rank] for rank in range(n_ranks)]


def _require_one_run(log: NcclLog, world: Collection[Accelerator]) -> None:
    """Raise TraceError if accelerators made calls that are not in the job's communicator."""
    strange = next((accelerator for accelerator in log.calls if accelerator not in world), None)
    if strange is None:
        return
    mine = next((log.files[each] for each in log.calls if each in world), None)
    raise TraceError(
        f"process {strange.pid} on {strange.host} has no communicator with those of "
        f"{mine.name if mine else 'other files'}: these are of two runs",
        file=log.files[strange],
        remedy="keep the logs of one run in a folder",
    )


def _calls(log: NcclLog, world: Sequence[Accelerator], notes: list[str]) -> list[list[RankCall]]:
    """Calls of each rank, with the members of their communicators as world ranks."""
    world_rank = {accelerator: rank for rank, accelerator in enumerate(world)}
    members: dict[str, tuple[int, ...]] = {}
    for comm, accelerators in log.members.items():
        ranks = [world_rank.get(accelerators[rank], -1) for rank in sorted(accelerators)]
        if len(ranks) == log.size[comm] and -1 not in ranks:
            members[comm] = tuple(ranks)
    out: list[list[RankCall]] = [[] for _ in world]
    lost = 0
    for accelerator, logged in log.calls.items():
        turn: dict[tuple[object, ...], int] = {}
        for call in logged:
            group = members.get(call.comm)
            rank_call = None if group is None else _rank_call(log, call, group, turn)
            if rank_call is None:
                lost += 1
            else:
                out[world_rank[accelerator]].append(rank_call)
    if lost:
        notes.append(
            NotUsed(
                f"{lost} calls of communicators whose ranks are not all in the log, or of a "
                "kind that is not expanded, are left out"
            )
        )
    return out


def _rank_call(
    log: NcclLog,
    call: LoggedCall,
    ranks: tuple[int, ...],
    turn: dict[tuple[object, ...], int],
) -> RankCall | None:
    """A logged call; None if it is of a kind that cannot be expanded."""
    n = len(ranks)
    nbytes = call.count * call.element_bytes * (n if call.call in _TIMES_RANKS else 1)
    name = "AllToAll" if call.call == "AlltoAll" else call.call
    root, peer = call.root, 0
    group: tuple[object, ...] = (call.comm,)
    if call.call in ("Send", "Recv"):
        name = "SendRecv"
        root, peer = (call.rank, root) if call.call == "Send" else (root, call.rank)
        if root == peer:
            return None
        group = (call.comm, root, peer)
        ranks, root, peer = (ranks[root], ranks[peer]), 0, 1
    if name not in CALLS or root >= n:
        return None
    turn[group] = turn.get(group, -1) + 1
    choice = log.choices.get((call.call, nbytes))
    rings: tuple[tuple[int, ...], ...] = ()
    if name != "SendRecv":
        choice, rings = complete_choice(log, name, nbytes, choice, n)
    return RankCall(
        (*group, turn[group]),
        name,
        ranks,
        nbytes,
        f"comm {call.comm}",
        root=root,
        peer=peer,
        choice=choice,
        rings=rings,
    )


def complete_choice(
    log: NcclLog, call: str, nbytes: int, choice: Choice | None, n: int
) -> tuple[Choice | None, tuple[tuple[int, ...], ...]]:
    """A logged choice with its number of channels filled in, and its rings if they are logged."""
    if choice is not None and not choice.channels:
        channels = default_choice(call, nbytes, range(n)).channels
        choice = Choice(choice.algorithm, choice.protocol, channels)
    channels = choice.channels if choice is not None else 1
    return choice, log.ring_of(n, channels)
