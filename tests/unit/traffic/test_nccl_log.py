"""NCCL's debug log alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.errors import TraceError
from tailback.traffic.readers import read_trace
from tests.factories.blocking import run_blocking
from tests.factories.kineto_traces import call, init, sample_log, tuned
from tests.factories.public_data import real

PREFIX = "n0:100:200 [0] NCCL INFO "


def test_groups_and_logs_of_each_process(tmp_path: Path) -> None:
    """Four ranks; 0 and 2 have a communicator besides, whose pointers differ by process."""
    for rank in range(4):
        text = init("n0", rank, 4, comm=f"0x{rank}1") + call(
            "n0", rank, "AllReduce", 1000, 4, comm=f"0x{rank}1"
        )
        if rank in (0, 2):
            line = init("n0", rank, 2, comm=f"0x{rank}2", key="0x99")
            text += line.replace(f"rank {rank} nranks", f"rank {rank // 2} nranks")
            text += call("n0", rank, "Broadcast", 25, 2, comm=f"0x{rank}2", root=1)
        (tmp_path / f"nccl.{rank}.log").write_text(text)
    program = read_trace(tmp_path)
    last = program.label == [label.communicator for label in program.labels].index("comm 0x99")
    assert program.op_rank[last & program.sends].tolist() == [2]
    assert program.peer[last & program.sends].tolist() == [0]
    assert int(program.amount[last & program.sends].sum()) in (100, 200)
    assert run_blocking(program)


def test_sends_and_receives_meet(tmp_path: Path) -> None:
    text = "".join(init("n0", rank, 2) for rank in range(2))
    text += call("n0", 0, "Send", 6, 2, root=1) + call("n0", 1, "Recv", 6, 2, root=0)
    (tmp_path / "x.log").write_text(text)
    program = read_trace(tmp_path / "x.log")
    assert program.amount[program.sends].tolist() == [24]
    assert program.labels[0].call == "ncclSendRecv"


def test_older_lines_and_algorithms_that_are_not_modelled(tmp_path: Path) -> None:
    path = sample_log(tmp_path)
    text = path.read_text().replace("Algo TREE proto LL128 channel{Lo..Hi}={0..1}",
                                    "Algo 0 proto 1 time 2860.2")  # fmt: skip
    path.write_text(text)
    assert "ncclAllReduce: tree, ll128, 1 channel" in " ".join(read_trace(path).notes)
    path.write_text(text + tuned("n0", "AllReduce", 6000, "NVLS", "SIMPLE", 15))
    assert any("ran with NVLS, which is not modelled" in n for n in read_trace(path).notes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (call("n0", 0, "AllReduce", 5, 3, datatype=99), "datatype 99"),
        (call("n0", 0, "AllReduce", 5, 3, root=7), "root 7 of 3 ranks"),
        (call("n0", 0, "AllReduce", 1 << 60, 3), "count 1152921504606846976"),
        (init("n0", 9, 3), "rank 9 of 3 ranks"),
        (tuned("n0", "AllReduce", 5, "RING", "SIMPLE", 99), "channels 0 to 99"),
        (tuned("n0", "AllReduce", 5, "RING", "FAST", 0), "protocol FAST"),
        (PREFIX + "Channel 00/02 :    0   1   1\n", "the ring"),
    ],
)
def test_a_number_that_cannot_be_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = sample_log(tmp_path)
    number = path.read_text().count("\n") + 1
    path.write_text(path.read_text() + line)
    with pytest.raises(TraceError, match=message) as got:
        read_trace(path)
    assert (got.value.file, got.value.place) == (path, f"line {number}") and got.value.remedy


def test_what_a_log_lacks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(PREFIX + "NCCL version 2.20.5\n")
    with pytest.raises(TraceError, match="names no calls"):
        read_trace(path)
    path.write_text(init("n0", 0, 3) + init("n0", 2, 3) + call("n0", 0, "AllReduce", 5, 3))
    with pytest.raises(TraceError, match="has no lines of rank 1 of 3"):
        read_trace(path)
    path.write_text(init("n0", 0, 2) + init("n0", 1, 2) + call("n0", 0, "AllReduce", 5, 2))
    with pytest.raises(TraceError, match="no collective that all of its ranks recorded"):
        read_trace(path)


@pytest.mark.data
def test_lines_that_users_posted_are_parsed_and_lack_communicators() -> None:
    with pytest.raises(TraceError, match="names no communicators") as got:
        read_trace(real("nccl-log/lines.txt"))
    assert "NCCL_DEBUG_SUBSYS=INIT" in (got.value.remedy or "")
