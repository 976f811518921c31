"""The same program on another number of ranks than it was recorded with.

Ranks of a stencil are recognised by their place in a grid: a rank of the larger grid does what a
recorded rank at a similar place did, with its own neighbours, bytes and computation as recorded
(weak scaling). Collectives of all ranks are sent for the new number of ranks. A pattern counts as
recognised only if the recorded program follows from it: every rank is copied from another one at a
similar place, and the result must have the recorded messages of each rank in their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.available import available_memory
from tailback.errors import TraceError, option
from tailback.traffic.collectives import call_bytes
from tailback.traffic.program import Op, Program, require_memory
from tailback.traffic.readers.otf2.columns import CallColumns, Communicator, MessageColumns, Trace
from tailback.traffic.readers.otf2.compile import PROC_NULL, compile_trace
from tailback.traffic.readers.otf2.links import (
    CANCELLED,
    COLLECTIVE,
    ICOLLECTIVE_COMPLETE,
    ICOLLECTIVE_REQUEST,
    IRECV,
    IRECV_REQUEST,
    ISEND,
    ISEND_COMPLETE,
    RECV,
    SEND,
    TEST,
)
from tailback.traffic.readers.otf2.names import OPERATIONS, ROOTED
from tailback.traffic.readers.posts import among
from tailback.units import counted

MAX_DIMENSIONS = 4
"""Maximum number of dimensions of a grid, as for placements on grids."""

MIN_RECORDED = 4
"""Minimum number of recorded ranks in a dimension that is to change. Of four, two are between
others, so that one can be copied from the other to check what ranks there do. Of four in a ring,
the farthest is no neighbour, so that a ring is told from all-to-all."""

MIN_WANTED = 3
"""Minimum number of wanted ranks in such a dimension: one is between two different others."""

SCALED = (
    *("MPI_Barrier", "MPI_Bcast", "MPI_Gather", "MPI_Scatter", "MPI_Allgather", "MPI_Alltoall"),
    *("MPI_Allreduce", "MPI_Reduce", "MPI_Scan", "MPI_Exscan"),
)
"""Collectives whose arguments do not depend on the number of ranks, or as MPI_Alltoall's do."""

_Numbers = NDArray[np.int64]

_MESSAGES = (SEND, ISEND, RECV, IRECV)
_KINDS = (*_MESSAGES, ISEND_COMPLETE, IRECV_REQUEST, TEST, CANCELLED, COLLECTIVE)
_COLLECTIVES = (COLLECTIVE, ICOLLECTIVE_COMPLETE)


@dataclass(frozen=True)
class RankGrid:
    """Where ranks are in a grid, numbered x fastest.

    Attributes:
        extents: Ranks in each dimension, x first.
        periodic: Whether the first and last rank of each dimension are neighbours.
    """

    extents: tuple[int, ...]
    periodic: tuple[bool, ...]

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.extents)

    @property
    def places(self) -> _Numbers:
        """Coordinates of each rank, shape (R, D)."""
        return np.stack(np.unravel_index(np.arange(self.n_ranks), self.extents, order="F"), axis=1)

    @property
    def kinds(self) -> _Numbers:
        """Number of the kind of place of each rank, shape (R,): at which borders it is."""
        borders = [
            np.zeros(self.n_ranks, np.int64)
            if wraps
            else np.where(at == 0, 1, np.where(at == extent - 1, 2, 0))
            for at, extent, wraps in zip(self.places.T, self.extents, self.periodic, strict=True)
        ]
        return np.asarray(np.ravel_multi_index(borders, (3,) * len(borders)), np.int64)

    def steps(self, source: _Numbers, peer: _Numbers) -> _Numbers:
        """Steps from one rank to another in each dimension, the shortest way, shape (M, D)."""
        step = self.places[peer] - self.places[source]
        extent = np.array(self.extents)
        wrapped = (step + extent // 2) % extent - extent // 2
        # In a periodic dimension of two ranks, both ways lead to the same neighbour.
        return np.where(self.periodic, wrapped, step)

    def moved(self, source: _Numbers, step: _Numbers) -> _Numbers:
        """Rank that is so many steps away, -1 outside of the grid, shape (M,)."""
        extent = np.array(self.extents)
        at = self.places[source] + step
        inside = (np.asarray(self.periodic) | ((at >= 0) & (at < extent))).all(axis=1)
        rank = np.ravel_multi_index(tuple((at % extent).T), self.extents, order="F")
        return np.where(inside, rank, -1)


def extrapolated(trace: Trace, ranks: str, name: str, file: Path) -> Program:
    """The recorded program on another number of ranks.

    Args:
        trace: The recorded trace.
        ranks: Number of ranks, or the extents of their grid, x first, like ``8x8x16``.
        name: What to call the application.
        file: Anchor file, for errors.

    Raises:
        TraceError: The pattern is not recognised, or does not have so many ranks.
    """
    _require_simple(trace, file)
    trace = _with_arguments(trace)
    recorded = compile_trace(trace, name, file)
    grid = _grid_of(trace, recorded, name, file)
    target = _target_grid(grid, ranks, file)
    require_memory(
        len(recorded.kind) * target.n_ranks // grid.n_ranks,
        available_memory(),
        what=f"{target.n_ranks:,} ranks",
        error=TraceError,
        place=option("ranks"),
        remedy="choose fewer ranks",
    )
    members = _members(grid, target, file)
    kinds, turn = target.kinds, np.zeros(target.n_ranks, np.int64)
    for kind in members:
        mine = np.flatnonzero(kinds == kind)
        # One after another, so that ranks differ in computation as the recorded ones did.
        turn[mine] = members[kind][np.arange(len(mine)) % len(members[kind])]
    program = compile_trace(_copy_trace(trace, grid, target, turn), name, file)
    shapes = " to ".join(" × ".join(map(str, shape.extents)) for shape in (grid, target))
    shapes = f" (grid {shapes})" if len(grid.extents) > 1 else ""
    program.notes = [
        f"{target.n_ranks} ranks extrapolated from {grid.n_ranks} recorded ones{shapes}: each "
        "computes and sends as many bytes as a recorded one, so the problem grows with the ranks",
        *recorded.notes,
    ]
    program.recording, program.lacks = recorded.recording, recorded.lacks
    program.grid = target.extents if len(target.extents) > 1 else ()
    return program


def _refused(why: str, file: Path, remedy: str) -> TraceError:
    return TraceError(
        f"cannot be extrapolated to other ranks: {why}",
        file=file,
        place=option("ranks"),
        remedy=remedy,
    )


_AS_RECORDED = f"leave out {option('ranks')}: the run is forecast on the recorded ranks"


def _require_simple(trace: Trace, file: Path) -> None:
    """Reject a trace with records that cannot be extrapolated to other numbers of ranks."""
    m, everyone = trace.messages, np.arange(trace.n_ranks)
    if trace.threaded.any():
        raise _refused("several threads of a rank call MPI", file, _AS_RECORDED)
    if not among(m.kind, (*_KINDS, ICOLLECTIVE_REQUEST, ICOLLECTIVE_COMPLETE)).all():
        why = "it has one-sided operations or matched probes"
        raise _refused(why, file, _AS_RECORDED)
    with_data = m.comm >= 0
    for number in np.unique(m.comm[with_data]).tolist():
        communicator = trace.communicators.get(number)
        if (
            communicator is None
            or not (communicator.is_self or np.array_equal(communicator.members, everyone))
            or (communicator.remote is not None)
        ):
            label = f"{number}" if communicator is None else repr(communicator.name)
            why = f"communicator {label} is not of all ranks in their order"
            raise _refused(why, file, _AS_RECORDED)
    rows = among(m.kind, _COLLECTIVES) & (m.tag < len(OPERATIONS))
    for operation in np.unique(m.tag[rows]).tolist():
        call = OPERATIONS[operation]
        if call not in SCALED:
            why = f"the sizes of {call} on other numbers of ranks are unknown"
            raise _refused(why, file, _AS_RECORDED)
        if call in ROOTED and (m.peer[rows & (m.tag == operation)] > 0).any():
            raise _refused(f"{call} has other roots than rank 0", file, _AS_RECORDED)


def _with_arguments(trace: Trace) -> Trace:
    """The trace with the arguments of collectives instead of sums over the ranks.

    Without a creator, as in traces of EZTrace, records hold arguments.
    """
    if not trace.creator:
        return trace
    m = trace.messages
    sent, received = m.bytes, m.received
    rows = np.flatnonzero(among(m.kind, _COLLECTIVES) & (m.tag < len(OPERATIONS)))
    totals = np.stack([m.tag[rows], sent[rows].astype(np.int64), received[rows].astype(np.int64)])
    different, index = np.unique(totals, axis=1, return_inverse=True)
    arguments = [
        call_bytes(OPERATIONS[operation], trace.n_ranks, out, into)
        for operation, out, into in different.T.tolist()
    ]
    pairs = np.array(arguments, np.uint64).reshape(-1, 2)[index.reshape(-1)]
    sent[rows], received[rows] = pairs[:, 0], pairs[:, 1]
    return replace(trace, creator="", messages=replace(m, bytes=sent, received=received))


def _grid_of(trace: Trace, recorded: Program, name: str, file: Path) -> RankGrid:
    """The grid from which the recorded program follows; of several, that of fewest dimensions."""
    m = trace.messages
    rows = _to_peers(trace)
    pairs = np.unique(np.stack([m.rank[rows], m.peer[rows]]), axis=1)
    grids: Iterable[RankGrid] = [RankGrid((trace.n_ranks,), (True,))]
    if pairs.shape[1]:
        grids = (grid for grid in _grids(trace.n_ranks) if _fits(grid, pairs))
    similar: RankGrid | None = None
    for grid in grids:
        similar = similar or grid
        kinds = grid.kinds
        # The last rank of each kind, and for that one the first: another one, if there is one.
        first, last = np.zeros((2, kinds.max() + 1), np.int64)
        everyone = np.arange(grid.n_ranks)
        last[kinds], first[kinds[::-1]] = everyone, everyone[::-1]
        other = np.where(last[kinds] == everyone, first[kinds], last[kinds])
        if _same_messages(
            recorded, compile_trace(_copy_trace(trace, grid, grid, other), name, file)
        ):
            return grid
    why = (
        "messages are those of no stencil, ring or collective of all ranks, with "
        f"{MIN_RECORDED} ranks or more in a dimension"
    )
    if similar is not None:
        shape = " × ".join(map(str, similar.extents))
        why = f"ranks at the same place of the grid {shape} send different messages"
    raise _refused(why, file, _AS_RECORDED)


def _to_peers(trace: Trace) -> NDArray[np.bool_]:
    """Whether each message has a partner in a communicator of all ranks, shape (M,)."""
    m = trace.messages
    alone = [number for number, comm in trace.communicators.items() if comm.is_self]
    return np.asarray(
        among(m.kind, _MESSAGES) & ~among(m.peer, PROC_NULL) & ~among(m.comm, alone), np.bool_
    )


def _grids(n_ranks: int) -> Iterator[RankGrid]:
    """Grids of a number of ranks that can be extrapolated, of few dimensions first.

    Any messages are those of a grid whose dimensions all have two ranks: it says nothing.
    """
    for dimensions in range(1, MAX_DIMENSIONS + 1):
        for extents in _factorings(n_ranks, dimensions):
            if max(extents) < MIN_RECORDED:
                continue
            for periodic in product((False, True), repeat=dimensions):
                yield RankGrid(extents, periodic)


def _factorings(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of so many factors above 1, in any order."""
    if parts == 1:
        if number > 1:
            yield (number,)
        return
    for factor in range(2, number // 2 + 1):
        if number % factor == 0:
            for others in _factorings(number // factor, parts - 1):
                yield (factor, *others)


def _fits(grid: RankGrid, pairs: _Numbers) -> bool:
    """Whether ranks communicate with the same neighbours wherever the grid has them."""
    step = grid.steps(pairs[0], pairs[1])
    if (np.abs(step) > 1).any():
        return False
    offsets = np.unique(step, axis=0)
    ranks = np.repeat(np.arange(grid.n_ranks), len(offsets))
    peers = grid.moved(ranks, np.tile(offsets, (grid.n_ranks, 1)))
    expected = np.unique(np.stack([ranks[peers >= 0], peers[peers >= 0]]), axis=1)
    return np.array_equal(expected, pairs)


def _same_messages(first: Program, other: Program) -> bool:
    """Whether two programs have the same sends, receives and waits of every rank, in order."""

    def messages(program: Program) -> list[_Numbers]:
        kept = program.kind != Op.COMPUTE
        columns = (program.op_rank, program.kind, program.peer, program.amount, program.tag)
        return [column[kept].astype(np.int64) for column in (*columns, program.label)]

    return (
        all(map(np.array_equal, messages(first), messages(other))) and first.labels == other.labels
    )


def _target_grid(grid: RankGrid, ranks: str, file: Path) -> RankGrid:
    """The grid of the wanted ranks."""
    wanted = tuple(int(part) for part in ranks.split("x"))
    extents, dimensions = grid.extents, len(grid.extents)
    shape = "x".join(map(str, extents))
    if len(wanted) == dimensions:
        return RankGrid(wanted, grid.periodic)
    if len(wanted) > 1:
        raise _refused(
            f"the recorded grid is {shape}, not of {len(wanted)} dimensions",
            file,
            f"give {counted(dimensions, 'extent')}",
        )
    # MPI_Dims_create makes the first dimension the largest, and that counts slowest in MPI's order.
    balanced = balanced_extents(grid.n_ranks, dimensions)
    for direction in (-1, 1):
        if extents == balanced[::direction]:
            return RankGrid(balanced_extents(wanted[0], dimensions)[::direction], grid.periodic)
    doubled = "x".join(str(2 * extent) for extent in extents)
    raise _refused(
        f"the recorded grid {shape} is not the one that MPI_Dims_create makes, so that of "
        f"{wanted[0]} ranks is unknown",
        file,
        f"state the grid, x first: {option('ranks')} {doubled}",
    )


def balanced_extents(n_ranks: int, dimensions: int) -> tuple[int, ...]:
    """Extents as MPI_Dims_create makes them: close to each other, the largest first."""
    extents, remainder, factor, factors = [1] * dimensions, n_ranks, 2, list[int]()
    while remainder > 1:
        while remainder % factor == 0:
            factors.append(factor)
            remainder //= factor
        factor += 1 if factor * factor <= remainder else max(remainder - factor, 1)
    for prime in reversed(factors):
        extents[extents.index(min(extents))] *= prime
    return tuple(sorted(extents, reverse=True))


def _members(grid: RankGrid, target: RankGrid, file: Path) -> dict[int, _Numbers]:
    """Recorded ranks of each kind of place that the wanted grid has."""
    shape = " × ".join(map(str, grid.extents))
    for recorded, extent in zip(grid.extents, target.extents, strict=True):
        if recorded != extent and recorded < MIN_RECORDED:
            raise _refused(
                f"{counted(recorded, 'rank')} in a dimension do not show what more would do (the "
                f"recorded grid is {shape})",
                file,
                f"record with {MIN_RECORDED} ranks or more in each dimension that is to change",
            )
        if recorded != extent and extent < MIN_WANTED:
            raise _refused(
                f"in a dimension of {counted(extent, 'rank')}, no rank is between two others",
                file,
                f"ask for {MIN_WANTED} ranks or more in each dimension that is to change",
            )
    kinds = grid.kinds
    return {kind: np.flatnonzero(kinds == kind) for kind in np.unique(target.kinds).tolist()}


def _copy_trace(trace: Trace, grid: RankGrid, target: RankGrid, template: _Numbers) -> Trace:
    """A trace in which each rank of ``target`` does what a recorded rank did.

    Args:
        trace: The recorded trace, with the arguments of collectives.
        grid: Its grid.
        target: The grid of the copy, of the same dimensions.
        template: Recorded rank that each rank copies, shape (target.n_ranks,).
    """
    c, m, n = trace.calls, trace.messages, target.n_ranks
    call_start = np.searchsorted(c.rank, np.arange(trace.n_ranks + 1))
    row_start = np.searchsorted(m.rank, np.arange(trace.n_ranks + 1))
    calls, of_call = _rows(call_start, template)
    rows, of_row = _rows(row_start, template)
    new_call = np.concatenate([[0], np.cumsum(np.diff(call_start)[template])])
    new_row = np.concatenate([[0], np.cumsum(np.diff(row_start)[template])])
    low, length = _places(trace)
    shift = np.cumsum(length[template]) - length[template] - low[template]

    def moved(column: _Numbers, start: _Numbers, new: _Numbers) -> _Numbers:
        value = column[rows]
        return np.where(value >= 0, value - start[template[of_row]] + new[of_row], -1)

    peer, size = m.peer[rows], m.bytes[rows]
    to_peer = _to_peers(trace)[rows]
    step = grid.steps(template[of_row[to_peer]], peer[to_peer])
    peer[to_peer] = target.moved(of_row[to_peer], step)
    received = m.received[rows]
    spread = among(m.kind[rows], _COLLECTIVES) & (m.tag[rows] == OPERATIONS.index("MPI_Alltoall"))
    for column in (size, received):
        # A rank has as much data as before, for other ranks.
        column[spread] = np.rint(column[spread] * (trace.n_ranks / n)).astype(np.uint64)
    everyone = np.arange(n)
    return replace(
        trace,
        n_ranks=n,
        system=[],
        clock_offsets=np.zeros(n, np.int64),
        communicators={
            number: comm if comm.is_self else Communicator(comm.name, everyone, None, is_self=False)
            for number, comm in trace.communicators.items()
        },
        cartesian=[],
        threaded=np.zeros(n, np.bool_),
        sizes=None,
        calls=CallColumns(
            rank=of_call,
            thread=of_call,
            region=c.region[calls],
            enter=c.enter[calls],
            leave=c.leave[calls],
            paused=c.paused[calls],
            processor=c.processor[calls] if len(c.processor) else c.processor,
            enter_position=c.enter_position[calls] + shift[of_call],
            leave_position=c.leave_position[calls] + shift[of_call],
            path=c.path[calls],
        ),
        messages=MessageColumns(
            rank=of_row,
            thread=of_row,
            kind=m.kind[rows],
            position=m.position[rows] + shift[of_row],
            time=m.time[rows],
            call=moved(m.call, call_start, new_call),
            phase=m.phase[rows],
            path=m.path[rows],
            peer=peer,
            comm=m.comm[rows],
            tag=m.tag[rows],
            bytes=size,
            received=received,
            posted=moved(m.posted, row_start, new_row),
            probed=np.full(len(rows), -1, np.int64),
            locations=everyone.astype(np.uint64),
            event=m.event[rows],
        ),
    )


def _rows(start: _Numbers, template: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Rows of the templates one after another, and the rank that each is copied for."""
    count = np.diff(start)[template]
    owner = np.repeat(np.arange(len(template)), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return start[template[owner]] + within, owner


def _places(trace: Trace) -> tuple[_Numbers, _Numbers]:
    """First place of each rank in the order of all events, and the number of places it takes."""
    c, m = trace.calls, trace.messages
    low, high = np.full(trace.n_ranks, 2**62), np.zeros(trace.n_ranks, np.int64)
    for rank, position in (
        (c.rank, c.enter_position),
        (c.rank, c.leave_position),
        (m.rank, m.position),
    ):
        np.minimum.at(low, rank, position)
        np.maximum.at(high, rank, position + 1)
    low = np.minimum(low, high)
    return low, high - low
