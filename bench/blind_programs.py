"""Programs of the blind cases: scripts of MPI calls, and the true start and end of each call.

A script is what a rank calls. :func:`lower` turns it into operations of the engine and marks the
end of every call with a message of one byte that the rank sends to itself and never waits for: the
message log then has the time. Such a message stays in the host, so it uses no port and delays
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.run.run import Run
from tailback.traffic import Label, Program, ProgramBuilder
from tailback.traffic.collectives import schedule

MARK = -7
"""Tag of the messages that mark the end of a call; no MPI program uses a negative one."""

_COLLECTIVE = 1 << 40
"""First matching tag of collectives: each call has one of its own."""


@dataclass(frozen=True)
class Call:
    """One call of a rank, or what it does between calls.

    Attributes:
        name: ``compute``, ``enter``, ``leave`` or an MPI call.
        peer: The other rank.
        size_bytes: Size of the message; for an allreduce, of its vector.
        tag: MPI tag.
        ps: Duration of ``compute``.
        region: Region of the program, for ``enter`` and ``leave``.
    """

    name: str
    peer: int = -1
    size_bytes: int = 0
    tag: int = 0
    ps: int = 0
    region: str = ""


Script = list[Call]


@dataclass(frozen=True)
class Work:
    """How long ranks compute: the nominal time of every rank, and its disturbances.

    Attributes:
        seed: Seed of all random choices here.
        spread: Relative standard deviation of the ranks' speeds, which every program has.
        slow: Factor by which some ranks compute longer, by rank.
        rate_per_s: Interruptions of a computing rank a second.
        detour_ps: Mean length of an interruption; lengths are exponential.
    """

    seed: int
    spread: float = 0.005
    slow: dict[int, float] = field(default_factory=dict)
    rate_per_s: float = 0.0
    detour_ps: float = 0.0

    def of_rank(self, rank: int) -> Callable[[float], int]:
        """Durations of the computations of ``rank``, drawn one after another."""
        rng = np.random.Generator(np.random.Philox(key=[self.seed, rank]))
        detours = np.random.Generator(np.random.Philox(key=[self.seed + 1, rank]))
        speed = max(1.0 + self.spread * rng.standard_normal(), 0.5) * self.slow.get(rank, 1.0)

        def takes(ps: float) -> int:
            computed = ps * speed * max(1.0 + 0.2 * self.spread * rng.standard_normal(), 0.5)
            number = int(detours.poisson(self.rate_per_s * computed * 1e-12))
            stolen = detours.exponential(self.detour_ps, number).sum() if number else 0.0
            return round(computed + stolen)

        return takes


# --- applications ----------------------------------------------------------------------------


def neighbours(dims: tuple[int, ...], rank: int) -> Iterator[tuple[int, int]]:
    """Neighbours of a rank in a periodic grid, x fastest, with the number of their direction."""
    place, remainder = [], rank
    for side in dims:
        place.append(remainder % side)
        remainder //= side
    stride = 1
    for axis, side in enumerate(dims):
        for which, step in enumerate((-1, 1)):
            to = (place[axis] + step) % side
            if side > 1 and not (side == 2 and which):
                yield 2 * axis + which, rank + (to - place[axis]) * stride
        stride *= side


def halo(
    dims: tuple[int, ...],
    size: int,
    rounds: int,
    compute_ps: float,
    work: Work,
    reduce_every: int,
    blocking: bool,
) -> list[Script]:
    """Halo exchange in a grid with an allreduce every so many rounds."""
    scripts = []
    for rank in range(int(np.prod(dims))):
        takes, out = work.of_rank(rank), list[Call]()
        near = dict(neighbours(dims, rank))
        for turn in range(rounds):
            out += [Call("compute", ps=takes(compute_ps)), Call("enter", region="halo")]
            if blocking:
                for way, to in near.items():
                    # A message in our direction comes from the neighbour behind us.
                    back = near.get(way ^ 1, to)
                    out += [
                        Call("MPI_Irecv", back, size, way),
                        Call("MPI_Send", to, size, way),
                        Call("MPI_Wait"),
                    ]
            else:
                # A neighbour sends to us in the direction opposite to its own.
                out += [
                    Call("MPI_Irecv", to, size, way ^ 1 if way ^ 1 in near else way)
                    for way, to in near.items()
                ]
                out += [Call("MPI_Isend", to, size, way) for way, to in near.items()]
                out.append(Call("MPI_Waitall"))
            out.append(Call("leave", region="halo"))
            if reduce_every and (turn + 1) % reduce_every == 0:
                out.append(Call("MPI_Allreduce", size_bytes=8))
        scripts.append(out)
    return scripts


def exchange(
    ranks: int,
    shifts: list[int],
    size: int,
    rounds: int,
    compute_ps: float,
    work: Work,
    reduce_every: int,
) -> list[Script]:
    """Every rank sends to the ranks at given distances around the ring, and computes in between."""
    scripts = []
    for rank in range(ranks):
        takes, out = work.of_rank(rank), list[Call]()
        for turn in range(rounds):
            out += [Call("compute", ps=takes(compute_ps)), Call("enter", region="exchange")]
            out += [Call("MPI_Irecv", (rank - s) % ranks, size, n) for n, s in enumerate(shifts)]
            out += [Call("MPI_Isend", (rank + s) % ranks, size, n) for n, s in enumerate(shifts)]
            out += [Call("MPI_Waitall"), Call("leave", region="exchange")]
            if reduce_every and (turn + 1) % reduce_every == 0:
                out.append(Call("MPI_Allreduce", size_bytes=8))
        scripts.append(out)
    return scripts


def collect(
    ranks: int, roots: int, size: int, rounds: int, compute_ps: float, work: Work, spread: bool
) -> list[Script]:
    """Every rank sends to one of few roots, a pattern that no network can serve.

    With ``spread`` the same bytes go to partners of their own, which any good network serves.
    """

    def target(rank: int) -> int:
        return (rank + ranks // 2) % ranks if spread else rank % roots

    senders: dict[int, list[int]] = {}
    for rank in range(ranks):
        if target(rank) != rank:
            senders.setdefault(target(rank), []).append(rank)
    scripts = []
    for rank in range(ranks):
        takes, out = work.of_rank(rank), list[Call]()
        for _ in range(rounds):
            out += [Call("compute", ps=takes(compute_ps)), Call("enter", region="collect")]
            out += [Call("MPI_Irecv", peer, size, 3) for peer in senders.get(rank, [])]
            if target(rank) != rank:
                out.append(Call("MPI_Isend", target(rank), size, 3))
            out += [
                Call("MPI_Waitall"),
                Call("leave", region="collect"),
                Call("MPI_Allreduce", size_bytes=8),
            ]
        scripts.append(out)
    return scripts


def handover(
    ranks: int, size: int, rounds: int, compute_ps: float, work: Work, late: bool
) -> list[Script]:
    """Even ranks send to the odd ones after them, late: after what they have to compute.

    Both compute equally long. Without ``late`` the even ones send first.
    """
    scripts = []
    for rank in range(ranks):
        takes, out = work.of_rank(rank), list[Call]()
        for _ in range(rounds):
            compute = Call("compute", ps=takes(compute_ps))
            out.append(Call("enter", region="handover"))
            if rank % 2:
                out += [Call("MPI_Recv", rank - 1, size, 5), compute]
            else:
                send = Call("MPI_Send", rank + 1, size, 5)
                out += [compute, send] if late else [send, compute]
            out += [Call("leave", region="handover"), Call("MPI_Allreduce", size_bytes=8)]
        scripts.append(out)
    return scripts


def bursts(
    partner: NDArray[np.int64],
    size: int,
    until_ps: float,
    rate: float,
    seed: int,
    duty: tuple[float, float],
    period_ps: float,
    inflight: int,
) -> list[Script]:
    """Traffic in bursts whose share of the time changes from burst to burst.

    Args:
        partner: Destination of each rank, a permutation.
        size: Size of a message, bytes.
        until_ps: Minimum duration.
        rate: Largest rate of a rank, bytes per picosecond.
        seed: Of the draws.
        duty: Least and largest share of a period in which it sends.
        period_ps: Mean time from burst to burst.
        inflight: Messages that a rank has in flight at once.
    """
    back = np.argsort(partner)
    rng = np.random.Generator(np.random.Philox(key=[seed, 0]))
    plan, end = list[tuple[int, int]](), 0.0
    level = rng.uniform(*duty)
    while end < until_ps:
        level = float(np.clip(level + 0.4 * (duty[1] - duty[0]) * rng.standard_normal(), *duty))
        period = period_ps * rng.uniform(0.5, 1.5)
        sends = max(round(level * period * rate / (size * inflight)), 1)
        plan.append((round((1 - level) * period), sends))
        end += period
    scripts = []
    for rank in range(len(partner)):
        out = list[Call]()
        for pause, sends in plan:
            out.append(Call("compute", ps=pause))
            for _ in range(sends):
                out += [Call("MPI_Irecv", int(back[rank]), size, n) for n in range(inflight)]
                out += [Call("MPI_Isend", int(partner[rank]), size, n) for n in range(inflight)]
                out.append(Call("MPI_Waitall"))
        scripts.append(out)
    return scripts


# --- to operations and back ------------------------------------------------------------------


def lower(name: str, scripts: list[Script], overhead_ps: int = 0, marked: bool = False) -> Program:
    """Operations of the scripts.

    Args:
        name: Name of the program.
        scripts: Calls of each rank.
        overhead_ps: Time of the processor that every MPI call takes.
        marked: Mark the end of every MPI call.
    """
    builder = ProgramBuilder(name, len(scripts))
    mark = builder.label(Label("mark", "none"))
    for rank, script in enumerate(scripts):
        pending, collectives = list[int](), 0
        for call in script:
            if call.name == "compute":
                builder.compute(rank, call.ps)
            if not call.name.startswith("MPI_"):
                continue
            builder.compute(rank, overhead_ps)
            label = builder.label(Label(call.name, call.name, call.tag))
            post = (rank, call.peer, call.size_bytes, call.tag, label)
            if call.name == "MPI_Isend":
                pending.append(builder.isend(*post))
            elif call.name == "MPI_Irecv":
                pending.append(builder.irecv(*post))
            elif call.name == "MPI_Send":
                builder.wait(rank, builder.isend(*post))
            elif call.name == "MPI_Recv":
                builder.wait(rank, builder.irecv(*post))
            elif call.name == "MPI_Wait":
                builder.wait(rank, pending.pop())
            elif call.name == "MPI_Waitall":
                for request in pending:
                    builder.wait(rank, request)
                pending = []
            else:
                _collective(builder, rank, len(scripts), call, _COLLECTIVE + collectives, label)
                collectives += 1
            if marked:
                builder.irecv(rank, rank, 1, MARK, mark)
                builder.isend(rank, rank, 1, MARK, mark)
    return builder.build()


def _collective(
    builder: ProgramBuilder, rank: int, ranks: int, call: Call, tag: int, label: int
) -> None:
    steps = schedule(call.name, ranks, rank, 0, call.size_bytes, call.size_bytes)
    for step in steps:
        requests = [builder.irecv(rank, peer, size, tag, label) for peer, size in step.receives]
        requests += [builder.isend(rank, peer, size, tag, label) for peer, size in step.sends]
        for request in requests:
            builder.wait(rank, request)


def call_times(run: Run, scripts: list[Script]) -> list[NDArray[np.int64]]:
    """When every call of the marked program began and ended.

    Args:
        run: A run of it, as its first job.
        scripts: The scripts from which it was made.

    Returns:
        For each rank enter and leave of each entry of its script, picoseconds of the run, shape
        (calls, 2); of what is no MPI call the time it took.
    """
    label = run.tables["labels"].filter((pl.col("phase") == "mark") & (pl.col("job") == 0))["label"]
    marks = run.tables["messages"].filter(pl.col("label").is_in(label.implode()))
    posts = marks["post_ps"].to_numpy().astype(np.int64)
    rank_of = marks["src_rank"].to_numpy()
    start = int(run.scenario.job[0].start)
    out = []
    for rank, script in enumerate(scripts):
        ends = iter(posts[rank_of == rank].tolist())
        times = np.zeros((len(script), 2), np.int64)
        now = start
        for at, call in enumerate(script):
            times[at, 0] = now
            if call.name.startswith("MPI_"):
                now = next(ends)
            else:
                now += call.ps
            times[at, 1] = now
        out.append(times)
    return out


def bytes_sent(scripts: list[Script]) -> dict[str, Any]:
    """Traffic of the program itself: point-to-point messages and their bytes."""
    sends = [c for script in scripts for c in script if c.name in ("MPI_Send", "MPI_Isend")]
    return {"messages": len(sends), "bytes": sum(call.size_bytes for call in sends)}
