"""Programs on more ranks than recorded, compared with recordings of so many ranks."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tailback.errors import TailbackError
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.extrapolation import RankGrid, balanced_extents
from tests.factories.otf2_traces import Build, assert_completes, barrier, call, writing
from tests.factories.repository import ROOT

Script = list[tuple[Any, ...]]
FACES_2D = [(-1, 0), (1, 0), (0, -1), (0, 1)]
FACES_3D = [(-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)]
BOX_2D = [step for step in product((-1, 0, 1), repeat=2) if any(step)]
WORLD = "MPI_COMM_WORLD"


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return writing(tmp_path)


def stencil(
    grid: RankGrid, offsets: list[tuple[int, ...]], steps: int = 2, creator: str = ""
) -> list[Script]:
    """Each rank exchanges with its neighbours, of another size in each direction, and reduces.

    Args:
        grid: Where ranks are.
        offsets: Directions that each rank sends to.
        steps: How often.
        creator: Tracer: with a name, its records of collectives are sums over the ranks.
    """
    reduced = 8 * (grid.n_ranks if creator else 1)
    scripts = []
    for rank in range(grid.n_ranks):
        script: Script = []
        for step in range(steps):
            time = 100_000 * (step + 1)
            moves = enumerate(np.array(offset) for offset in offsets)
            peers = [
                (tag, peer, back)
                for tag, offset in moves
                for peer in [int(grid.moved(np.array([rank]), offset[None])[0])]
                for back in [int(grid.moved(np.array([rank]), -offset[None])[0])]
            ]
            receives = [(tag, back) for tag, _, back in peers if back >= 0]
            sends = [(tag, peer) for tag, peer, _ in peers if peer >= 0]
            first = 1000 * step
            for number, _ in enumerate(receives):
                script += call(
                    "MPI_Irecv", time + 10 * number, ("mpi_irecv_request", first + number)
                )
            for number, (tag, peer) in enumerate(sends, len(receives)):
                at = time + 1000 + 10 * number
                record = ("mpi_isend", peer, WORLD, tag, 64 * (tag + 1), first + number)
                script += call("MPI_Isend", at, record)
            done = [
                ("mpi_irecv", back, WORLD, tag, 64 * (tag + 1), first + number)
                for number, (tag, back) in enumerate(receives)
            ]
            done += [
                ("mpi_isend_complete", first + number)
                for number, _ in enumerate(sends, len(receives))
            ]
            script += call("MPI_Waitall", time + 5000, *done)
            records = ("mpi_collective_begin",), collective("ALLREDUCE", reduced)
            script += call("MPI_Allreduce", time + 20_000 + rank, *records)
        scripts.append(script)
    return scripts


def collective(operation: str, size: int, root: int = 2**32 - 1) -> tuple[Any, ...]:
    """The end of a collective of all ranks that sends and receives so many bytes."""
    from otf2.enums import CollectiveOp

    what = getattr(CollectiveOp, operation)
    return ("mpi_collective_end", what, WORLD, root, size, size)


def messages(program: Program) -> list[NDArray[Any]]:
    """Operations of all ranks in order, without computation."""
    kept = program.kind != Op.COMPUTE
    columns = (program.op_rank, program.kind, program.peer, program.amount, program.tag)
    return [column[kept] for column in columns]


def computed(program: Program) -> set[int]:
    return set(program.amount[program.kind == Op.COMPUTE].tolist())


@pytest.mark.parametrize("creator", [pytest.param("", marks=pytest.mark.slow), "Tailback"])
@pytest.mark.parametrize(
    ("extents", "periodic", "offsets", "ranks", "wanted"),
    [
        ((5,), (True,), [(1,)], "12", (12,)),
        ((4,), (False,), [(-1,), (1,)], "9", (9,)),
        ((4, 4), (False, False), FACES_2D, "36", (6, 6)),
        ((4, 4), (True, False), BOX_2D, "48", (6, 8)),
        ((4, 6), (True, True), FACES_2D, "8x5", (8, 5)),
        ((2, 4), (False, True), FACES_2D, "2x9", (2, 9)),
        pytest.param(
            (4, 4, 4), (False, True, False), FACES_3D, "5x6x3", (5, 6, 3), marks=pytest.mark.slow
        ),
    ],
)
def test_more_ranks_send_what_their_recording_has(
    build: Build,
    creator: str,
    extents: tuple[int, ...],
    periodic: tuple[bool, ...],
    offsets: list[tuple[int, ...]],
    ranks: str,
    wanted: tuple[int, ...],
) -> None:
    small, large = (
        stencil(RankGrid(dims, periodic), offsets, creator=creator) for dims in (extents, wanted)
    )
    program = read_trace(build(small, creator=creator), ranks=ranks)
    recorded = read_trace(build(large, creator=creator))
    assert_completes(program)
    assert all(map(np.array_equal, messages(program), messages(recorded)))
    assert program.labels == recorded.labels
    assert computed(program) <= computed(read_trace(build(small, creator=creator)))
    assert f"extrapolated from {len(small)} recorded ones" in program.notes[0]


@pytest.mark.parametrize(("ranks", "size"), [(4, 4096), (16, 1024), (64, 256)])
def test_transpose_keeps_the_bytes_of_a_rank(build: Build, ranks: int, size: int) -> None:
    def transposes(n_ranks: int, each: int) -> list[Script]:
        end = collective("ALLTOALL", n_ranks * each)
        return [call("MPI_Alltoall", 1000, ("mpi_collective_begin",), end)] * n_ranks

    recorded = read_trace(build(transposes(ranks, size), creator="Tailback"))
    program = read_trace(build(transposes(8, 2048), creator="Tailback"), ranks=str(ranks))
    assert all(map(np.array_equal, messages(program), messages(recorded)))


def with_send(
    scripts: list[Script], rank: int, number: int, event: tuple[Any, ...]
) -> list[Script]:
    """The scripts with another event in place of one that sends."""
    sends = [at for at, record in enumerate(scripts[rank]) if record[1] == "mpi_isend"]
    time = scripts[rank][sends[number]][0]
    scripts[rank][sends[number]] = (time, *event)
    return scripts


def swapped(scripts: list[Script], rank: int) -> list[Script]:
    """The scripts with the first two sends of a rank in the other order."""
    first_at, other = (at for at, event in enumerate(scripts[rank]) if event[1] == "mpi_isend")
    script = scripts[rank]
    (t1, *first), (t2, *second) = script[first_at], script[other]
    script[first_at], script[other] = (t1, *second), (t2, *first)
    return scripts


def refused(trace: Path, ranks: str) -> str:
    with pytest.raises(TailbackError) as caught:
        read_trace(trace, ranks=ranks)
    return str(caught.value)


def test_another_pattern_is_refused(build: Build) -> None:
    open_16 = RankGrid((4, 4), (False, False))
    larger = ("mpi_isend", 6, WORLD, 1, 999, 4)
    scripts = {
        "different messages": with_send(stencil(open_16, FACES_2D, 1), 5, 0, larger),
        "no stencil, ring or": with_send(
            stencil(open_16, FACES_2D, 1), 5, 0, ("mpi_isend", 15, WORLD, 0, 64, 4)
        ),
        "send different": swapped(stencil(RankGrid((8,), (False,)), [(-1,), (1,)], 1), 3),
        "of all ranks in their order": [
            barrier(1000, "half" if rank < 4 else WORLD) for rank in range(8)
        ],
        "messages are those of no": stencil(RankGrid((2, 2, 2), (False,) * 3), FACES_3D, 1),
        "other roots than rank 0": [
            call("MPI_Bcast", 1000, ("mpi_collective_begin",), collective("BCAST", 8, 3))
        ]
        * 8,
    }
    for reason, script in scripts.items():
        trace = build(script, comms={"half": [0, 1, 2, 3]})
        assert reason in refused(trace, "64"), reason


def test_grid_that_cannot_be_known_is_asked_for(build: Build) -> None:
    trace = build(stencil(RankGrid((2, 8), (False, False)), FACES_2D, 1))
    assert "record with 4 ranks or more in each dimension" in refused(trace, "4x8")
    assert "state the grid, x first" in refused(trace, "64")
    assert read_trace(trace, ranks="2x32").n_ranks == 64
    assert "give 2 extents" in refused(trace, "2x4x8")
    square = build(stencil(RankGrid((4, 4), (False, False)), FACES_2D, 1))
    assert "no rank is between two others" in refused(square, "2x32")
    assert "choose fewer ranks" in refused(square, "99999x99999")


def test_only_traces_with_calls_are_extrapolated(tmp_path: Path) -> None:
    schedule = tmp_path / "ring.goal"
    schedule.write_text(
        "num_ranks 2\nrank 0 {\nl1: send 8b to 1\n}\nrank 1 {\nl1: recv 8b from 0\n}\n"
    )
    assert "only OTF2 traces" in refused(schedule, "8")


def test_extrapolated_time_is_that_of_a_recording(build: Build) -> None:
    small, large = (
        build(stencil(RankGrid(extents, (False, False)), FACES_2D)) for extents in ((4, 4), (8, 8))
    )
    # Communication alone: the computation of other ranks differs.
    extrapolated_ps, other = (
        simulate(
            prepare(
                parse(
                    {
                        "fabric": {"preset": "tapered"},
                        "job": [{"trace": str(trace), "compute_scale": 0.0, **ranks}],
                    }
                )
            )
        ).elapsed_ps
        for trace, ranks in ((small, {"ranks": "64"}), (large, {}))
    )
    assert extrapolated_ps == other


def test_demo_of_eztrace_runs_on_more_ranks() -> None:
    program = read_trace(ROOT / "examples" / "demo" / "trace", ranks="8x8x16")
    recorded = read_trace(ROOT / "examples" / "demo" / "trace")
    assert (program.n_ranks, program.grid) == (1024, (8, 8, 16))
    sizes = [set(np.unique(traced.amount[traced.sends]).tolist()) for traced in (program, recorded)]
    assert sizes[0] == sizes[1]


def test_balanced_extents_are_those_of_mpi() -> None:
    # What MPI_Dims_create of Open MPI 4.1 and MPICH 4.0 returns.
    for ranks, extents in (
        (12, (4, 3)),
        (16, (4, 4)),
        (30, (6, 5)),
        (64, (4, 4, 4)),
        (128, (8, 4, 4)),
        (97, (97, 1)),
        (1024, (16, 8, 8)),
    ):
        assert balanced_extents(ranks, len(extents)) == extents
