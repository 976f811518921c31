"""NCCL's debug log alone: the collectives of every rank, and how NCCL ran them.

Recorded with ``NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL,TUNING``, in one file or one for
each process. There are no times. Next to PyTorch's Kineto traces it supplies the algorithms of
their collectives.
"""

from __future__ import annotations

from pathlib import Path

from tailback.errors import TraceError
from tailback.traffic.nccl.choice import Choice, default_choice
from tailback.traffic.nccl.messages import CALLS
from tailback.traffic.nccl.rank_calls import RankCall, join_calls
from tailback.traffic.nccl.steps import GpuProgram, compile_gpu
from tailback.traffic.program import Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.nccl_lines import LoggedCall, NcclLog, Process, is_log, read_logs

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
    """A file with lines of NCCL's log, or a folder of nothing else."""
    if path.is_dir():
        files = [entry for entry in path.iterdir() if entry.is_file()]
        return bool(files) and all(map(is_log, files))
    return is_log(path)


def read(path: Path) -> Program:
    """Compile the logs of all ranks to a rank program.

    Args:
        path: The log, or the folder with those of all processes.

    Returns:
        The program, without computation.

    Raises:
        TraceError: The log names no communicators, no calls, or not those of all ranks.
    """
    files = sorted(entry for entry in path.iterdir() if is_log(entry)) if path.is_dir() else [path]
    log = read_logs(files)
    if not log.calls:
        raise TraceError("this log of NCCL names no calls", file=path, remedy=_SET)
    if not log.size:
        raise TraceError("this log of NCCL names no communicators (commId), so it is unknown "
                         "which lines belong together", file=path, remedy=_SET)  # fmt: skip
    world = log.world()
    n_ranks = max(log.size.values())
    missing = sorted(set(range(n_ranks)) - set(world.values()))
    if missing:
        raise TraceError(f"has no lines of rank {missing[0]} of {n_ranks}", file=path,
                         remedy="give the logs of all processes in one folder")  # fmt: skip
    notes = list(log.notes)
    calls = _calls(log, world, n_ranks, notes)
    names = {host: k for k, host in enumerate(dict.fromkeys(p[0] for p in world))}
    hosts = [0] * n_ranks
    for process, rank in world.items():
        hosts[rank] = names[process[0]]
    collectives, timeline = join_calls(calls, [0] * n_ranks, notes)
    if not collectives:
        raise TraceError("holds no collective that all of its ranks recorded", file=path,
                         remedy="give the logs of all processes, from their beginning")  # fmt: skip
    return compile_gpu(GpuProgram(path.name.split(".")[0], hosts, collectives, timeline, notes))


def _calls(
    log: NcclLog, world: dict[Process, int], n_ranks: int, notes: list[str]
) -> list[list[RankCall]]:
    """Calls of each rank, with the members of their communicators as world ranks."""
    members: dict[str, dict[int, int]] = {}
    for (process, comm), rank in log.rank.items():
        if process in world:
            members.setdefault(comm, {})[rank] = world[process]
    out: list[list[RankCall]] = [[] for _ in range(n_ranks)]
    lost = 0
    for process, logged in log.calls.items():
        turn: dict[tuple[object, ...], int] = {}
        for one in logged:
            key = log.comm_id.get((process, one.comm), "")
            group = members.get(key, {})
            if process not in world or len(group) != log.size.get(key):
                lost += 1
                continue
            ranks = tuple(group[rank] for rank in sorted(group))
            found = _rank_call(log, one, key, ranks, log.rank[process, key], turn)
            if found is None:
                lost += 1
            else:
                out[world[process]].append(found)
    if lost:
        notes.append(f"{lost} calls of communicators whose ranks are not all in the log, or of a "
                     "kind that is not expanded, are left out")  # fmt: skip
    return out


def _rank_call(
    log: NcclLog, one: LoggedCall, key: str, ranks: tuple[int, ...], me: int,
    turn: dict[tuple[object, ...], int],
) -> RankCall | None:  # fmt: skip
    """A logged call; None if it is of a kind that cannot be expanded."""
    n = len(ranks)
    nbytes = one.count * one.element_bytes * (n if one.call in _TIMES_RANKS else 1)
    name = "AllToAll" if one.call == "AlltoAll" else one.call
    root, peer = one.root, 0
    group: tuple[object, ...] = (key,)
    if one.call in ("Send", "Recv"):
        name = "SendRecv"
        root, peer = (me, one.root) if one.call == "Send" else (one.root, me)
        if root == peer:
            return None
        group = (key, root, peer)
        ranks, root, peer = (ranks[root], ranks[peer]), 0, 1
    if name not in CALLS or root >= n:
        return None
    turn[group] = turn.get(group, -1) + 1
    choice = log.choices.get((one.call, nbytes))
    rings: tuple[tuple[int, ...], ...] = ()
    if name != "SendRecv":
        choice, rings = complete_choice(log, name, nbytes, choice, n)
    return RankCall((*group, turn[group]), name, ranks, nbytes, f"comm {key}", root=root, peer=peer,
                    choice=choice, rings=rings)  # fmt: skip


def complete_choice(
    log: NcclLog, call: str, nbytes: int, choice: Choice | None, n: int
) -> tuple[Choice | None, tuple[tuple[int, ...], ...]]:
    """A logged choice with its number of channels filled in, and its rings if they are logged."""
    if choice is not None and not choice.channels:
        channels = default_choice(call, nbytes, range(n)).channels
        choice = Choice(choice.algorithm, choice.protocol, channels)
    channels = choice.channels if choice is not None else 1
    return choice, log.ring_of(n, channels)
