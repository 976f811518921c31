"""Chakra execution traces."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tailback.errors import TailbackError, TraceError
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace
from tests.factories.blocking import run_blocking
from tests.factories.chakra_traces import METADATA, compute, node, receive, send, varint, write
from tests.factories.public_data import real


def operations(program: Program, rank: int) -> list[str]:
    low, high = (int(program.rank_start[rank + k]) for k in (0, 1))
    return [Op(int(kind)).name for kind in program.kind[low:high]]


@pytest.mark.data
def test_the_astra_sim_ring_moves_shares_twice() -> None:
    """An all-reduce of 1 MiB on 8 ranks: 2 x 7 steps of 128 KiB, and 7 sums of 7 us, a rank."""
    folder = real("astra-sim-et/custom_ring_allreduce_8npus_1MB")
    program = read_trace(folder)
    sends = program.kind == Op.ISEND
    assert (program.n_ranks, int(sends.sum())) == (8, 8 * 14)
    assert set(program.amount[sends].tolist()) == {131_072}
    assert (program.peer[sends] == (program.op_rank[sends] + 1) % 8).all()
    assert int(program.amount[program.kind == Op.COMPUTE].sum()) == 8 * 7 * 7_000_000
    # Every send but the first of a rank follows the receive of what it passes on.
    assert operations(program, 3)[:5] == ["ISEND", "IRECV", "WAIT", "COMPUTE", "ISEND"]
    assert run_blocking(program)
    single = read_trace(folder / "custom_allreduce.5.et")
    assert np.array_equal(single.kind, program.kind)


def test_dependencies_by_control_and_by_data_are_kept(tmp_path: Path) -> None:
    first = [compute(0, 5), node(1, 5, after=[0], packed=False, comm_size=9, comm_dst=1)]
    program = read_trace(write(tmp_path, first, [receive(0, 0, 9, 0), compute(1, 2, after=[0])]))
    assert operations(program, 0) == ["COMPUTE", "ISEND", "WAITALL"]
    assert operations(program, 1) == ["IRECV", "WAIT", "COMPUTE"]


def test_computation_that_depends_on_no_message_overlaps_it(tmp_path: Path) -> None:
    program = read_trace(
        write(
            tmp_path,
            [receive(0, 1, 9, 0), compute(1, 5), compute(2, 6, after=[0, 1])],
            [send(0, 0, 9, 0)],
        )
    )
    assert operations(program, 0) == ["IRECV", "COMPUTE", "WAIT", "COMPUTE"]


def test_a_collective_of_all_ranks_becomes_messages(tmp_path: Path) -> None:
    """A sum of 64 B on four ranks: two rounds of recursive doubling."""
    ranks = [
        [compute(0, 3), node(1, 7, after=[0], comm_type=0, comm_size=64), compute(2, 4, after=[1])]
    ] * 4
    program = read_trace(write(tmp_path, *ranks))
    sends = program.kind == Op.ISEND
    assert (int(sends.sum()), int(program.amount[sends].sum())) == (8, 8 * 64)
    assert operations(program, 0)[0] == "COMPUTE" and operations(program, 0)[-1] == "COMPUTE"
    assert program.labels[0].call == "MPI_Allreduce"
    assert run_blocking(program)


def test_dependencies_on_dropped_nodes_are_noted(tmp_path: Path) -> None:
    program = read_trace(write(tmp_path, [compute(4, 1, after=[77]), compute(5, 2, after=[4])]))
    assert [note for note in program.notes if note.startswith("1 dependencies on nodes that")]
    assert operations(program, 0) == ["COMPUTE", "COMPUTE"]


def test_collectives_of_groups_and_silent_computation_are_noted(tmp_path: Path) -> None:
    program = read_trace(write(tmp_path, [node(0, 7, comm_type=0, pg_name="3"), compute(1, 0)]))
    assert any(note.startswith("1 collectives of some of the ranks") for note in program.notes)
    assert "1 computations have no duration and take no time" in program.notes


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([send(4, 9, 5, 0)], "comm_dst is 9, but there are 2 ranks"),
        ([node(4, 5, comm_dst=1)], "has no comm_size"),
        ([node(4, 5, comm_size="much", comm_dst=1)], "comm_size is 'much'"),
        ([node(4, 5, comm_size=2.5, comm_dst=1)], r"comm_size is '2\.5'"),
        ([send(4, 1, -5, 0)], "comm_size is -5"),
        ([compute(4, 1 << 60)], "a duration of"),
        ([compute(4, 1), compute(4, 1)], "two nodes have the number 4"),
        ([compute(4, 1, after=[5]), compute(5, 1, after=[4])], "waits for itself"),
    ],
)
def test_a_node_that_does_not_fit_is_named(
    tmp_path: Path, nodes: list[bytes], message: str
) -> None:
    path = write(tmp_path, nodes, [compute(0, 1)])
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.file == path / "step.0.et"
    assert (caught.value.place or "").startswith("node ")
    assert caught.value.remedy


def test_a_trace_cut_within_a_node_is_refused(tmp_path: Path) -> None:
    nodes = [compute(0, 3), send(1, 1, 50, 2, after=[0])]
    path = write(tmp_path, nodes, [receive(0, 0, 50, 2)])
    file = path / "step.0.et"
    contents = file.read_bytes()
    begins = np.cumsum(
        [len(message) + len(varint(len(message))) for message in (METADATA, *nodes)]
    ).tolist()
    for length in range(1, len(contents)):
        file.write_bytes(contents[:length])
        if length == begins[1]:
            # Whole nodes: what is missing shows as a message without a partner.
            assert "1 receives without a matching send are left out" in read_trace(path).notes
            continue
        with pytest.raises(TraceError) as caught:
            read_trace(path, format="chakra")
        assert caught.value.file == file
        assert caught.value.remedy


def test_a_damaged_trace_gives_no_traceback(tmp_path: Path) -> None:
    path = write(tmp_path, [compute(0, 3), send(1, 1, 50, 2, after=[0])], [receive(0, 0, 50, 2)])
    file = path / "step.0.et"
    contents = file.read_bytes()
    generator = np.random.default_rng(3)
    for _ in range(200):
        damaged = bytearray(contents)
        for at in generator.integers(0, len(contents), 2):
            damaged[at] = generator.integers(0, 256)
        file.write_bytes(damaged)
        try:
            read_trace(path, format="chakra")
        except TailbackError as error:
            assert error.file in (file, path)


def test_a_missing_rank_and_two_runs_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, [compute(0, 1)], [compute(0, 1)], [compute(0, 1)])
    (path / "step.1.et").unlink()
    with pytest.raises(TraceError, match="trace of rank 1 is missing"):
        read_trace(path)
    (path / "other.0.et").write_bytes((path / "step.0.et").read_bytes())
    with pytest.raises(TraceError, match="traces of 2 runs: 'other', 'step'"):
        read_trace(path)
    assert read_trace(path / "other.0.et").n_ranks == 1


def test_compressed_traces_are_read(tmp_path: Path) -> None:
    file = write(tmp_path, [compute(0, 1)]) / "step.0.et"
    (tmp_path / "step.0.et.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    assert read_trace(tmp_path).amount.tolist() == [1_000_000]
