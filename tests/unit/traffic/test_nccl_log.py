"""NCCL's debug log alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tailback.api.simulate import simulate
from tailback.errors import TraceError
from tailback.scenario.model import parse
from tailback.simulation import prepare
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


def test_other_files_beside_logs_are_named(tmp_path: Path) -> None:
    (tmp_path / "SOURCE").write_text("from a cluster\n")
    sample_log(tmp_path)
    assert read_trace(tmp_path).not_used == ["files without lines of NCCL's log not used: SOURCE"]


def test_sends_and_receives_meet(tmp_path: Path) -> None:
    text = "".join(init("n0", rank, 2) for rank in range(2))
    text += call("n0", 0, "Send", 6, 2, root=1) + call("n0", 1, "Recv", 6, 2, root=0)
    (tmp_path / "x.log").write_text(text)
    program = read_trace(tmp_path / "x.log")
    assert program.amount[program.sends].tolist() == [24]
    assert program.labels[0].call == "ncclSendRecv"


def test_older_lines_and_algorithms_that_are_not_modelled(tmp_path: Path) -> None:
    path = sample_log(tmp_path)
    text = path.read_text().replace(
        "Algo TREE proto LL128 channel{Lo..Hi}={0..1}", "Algo 0 proto 1 time 2860.2"
    )
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
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert (caught.value.file, caught.value.place) == (
        path,
        f"line {number}",
    ) and caught.value.remedy


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


def job_log(
    edit: Callable[[str, int, int], str] = lambda line, *_: line, *, processes: int = 4
) -> str:
    """The log of three sums of four accelerators on two hosts.

    Args:
        edit: Changes the line of a call, by its rank and its number.
        processes: Processes that share the accelerators.
    """
    text, pid = "", [100 + rank * processes // 4 for rank in range(4)]
    for rank in range(4):
        text += (
            f"host{rank // 2}:{pid[rank]}:7 [{rank % 2}] NCCL INFO ncclCommInitRank comm "
            f"0xa{rank} rank {rank} nranks 4 cudaDev {rank % 2} busId {rank}000 commId 0x77 "
            "- Init START\n"
        )
    for number in range(3):
        for rank in range(4):
            line = (
                f"host{rank // 2}:{pid[rank]}:7 [{rank % 2}] NCCL INFO AllReduce: opCount "
                f"{number} sendbuff 0x1 recvbuff 0x2 count 2097152 datatype 7 op 0 root 0 "
                f"comm 0xa{rank} [nranks=4] stream 0x5\n"
            )
            text += edit(line, rank, number)
    return text


def glued(end: str) -> Callable[[str, int, int], str]:
    """Rank 0 logs its calls behind an unfinished line that ends so."""
    return lambda line, rank, _: end + line if rank == 0 else line


ROW = "     8388608       2097152     float     sum      "


@pytest.mark.parametrize(
    "log",
    [
        job_log(processes=2),
        job_log(lambda line, *_: line.replace("[1]", "[0]"), processes=2),
        job_log(glued(ROW + "-1")),
        job_log(glued(ROW + "-1    45.46    0.00    0.00    N/A")),
        job_log(glued(ROW + "0")),
        job_log(lambda line, *_: line.replace("\n", "") + "\r\n"),
        job_log(lambda line, rank, _: line.replace("\n", "" if rank == 2 else "\n")),
        job_log(lambda line, *_: "[1,0]<stdout>:" + line),
        job_log(lambda line, *_: "[2026-01-05 10:00:00] " + line),
        job_log().replace(" commId 0x77", ""),
        "epoch 1/9" + job_log(),
    ],
    ids=[
        "many accelerators in a process",
        "device of the thread",
        "row ends with a root",
        "row ends with a verdict",
        "row ends with a digit",
        "CRLF",
        "two calls in a line",
        "tag of mpirun",
        "time stamp",
        "RCCL without commId",
        "first line glued",
    ],
)
def test_calls_belong_to_their_communicators(tmp_path: Path, log: str) -> None:
    (tmp_path / "whole.log").write_text(job_log())
    (tmp_path / "nccl.log").write_text(log)
    complete, program = read_trace(tmp_path / "whole.log"), read_trace(tmp_path / "nccl.log")
    assert program.amount.tolist() == complete.amount.tolist()
    assert program.hosts == complete.hosts == ("host0", "host0", "host1", "host1")
    assert not any("left out" in note for note in program.notes)


def test_calls_that_rccl_runs_by_msccl_are_read(tmp_path: Path) -> None:
    (tmp_path / "nccl.log").write_text(job_log())
    text = job_log().replace("AllReduce: opCount", "mscclFuncAllReduce: opCount")
    assert text != job_log()
    # RCCL ends the line of a call so.
    text = text.replace("[nranks=4]", "[nranks=4] stream 0x5 task 1 globalrank 3")
    (tmp_path / "msccl.log").write_text(text)
    plain, program = read_trace(tmp_path / "nccl.log"), read_trace(tmp_path / "msccl.log")
    assert program.amount.tolist() == plain.amount.tolist() and program.amount.sum() > 0
    notes = [note for note in program.notes if "MSCCL, which is not modelled" in note]
    assert len(notes) == 1 and not any("left out" in note for note in program.notes)


def test_pointer_of_a_freed_communicator_names_the_next(tmp_path: Path) -> None:
    second = job_log().replace("0x77", "0x78")
    pair = "".join(line for line in second.splitlines(keepends=True) if line.startswith("host0"))
    (tmp_path / "x.log").write_text(
        job_log() + pair.replace("nranks 4", "nranks 2").replace("nranks=4", "nranks=2")
    )
    program = read_trace(tmp_path / "x.log")
    assert {label.communicator for label in program.labels} == {"comm 0x77", "comm 0x78"}


def test_lost_calls_are_counted(tmp_path: Path) -> None:
    cut = job_log(lambda line, rank, number: line[:60] + "\n" if (rank, number) == (2, 1) else line)
    (tmp_path / "x.log").write_text(cut)
    notes = " ".join(read_trace(tmp_path / "x.log").notes)
    assert "1 lines of x.log with a call are cut short" in notes
    twice = job_log().replace(" commId 0x77", "")
    pairs = twice.replace("nranks 4", "nranks 2").replace("nranks=4", "nranks=2")
    pairs = pairs.replace("rank 2", "rank 0").replace("rank 3", "rank 1").replace("0xa", "0xb")
    (tmp_path / "x.log").write_text(twice + pairs)
    notes = " ".join(read_trace(tmp_path / "x.log").notes)
    assert "several communicators have 2 ranks and no commId" in notes
    with pytest.raises(TraceError, match="no communicators by which"):
        (tmp_path / "x.log").write_text(pairs)
        read_trace(tmp_path / "x.log")


def test_truncated_ring_lines_are_not_used(tmp_path: Path) -> None:
    path = sample_log(tmp_path)
    notes = read_trace(path).notes
    path.write_text(path.read_text() + PREFIX + "Channel 00/02 :    0  23  22  21\n")
    assert read_trace(path).notes == notes


def ring_in_a_host(channels: int) -> str:
    """The log of a sum of 64 MiB of two accelerators, each with 240 GB/s to the other."""
    text = "".join(init("n0", rank, 2) for rank in range(2))
    text += PREFIX + "=== System : maxBw 48.0 totalBw 240.0 ===\n"
    text += tuned("n0", "AllReduce", 64 << 20, "RING", "SIMPLE", channels - 1)
    return text + "".join(call("n0", rank, "AllReduce", 16 << 20, 2) for rank in range(2))


@pytest.mark.parametrize("channels", [1, 2, 8, 24])
def test_channels_share_the_port_of_their_accelerator(tmp_path: Path, channels: int) -> None:
    (tmp_path / "x.log").write_text(ring_in_a_host(channels))
    scenario = parse(
        {
            "fabric": {"preset": "full"},
            "job": [{"trace": str(tmp_path / "x.log"), "ranks_per_host": 2}],
            "engine": {"local_delay": "1 ps", "send_delay": "1 ps"},
        }
    )
    run = simulate(scenario)
    # Each of two accelerators sends the 64 MiB once, half to reduce and half to gather.
    assert run.elapsed_ps == pytest.approx((64 << 20) / 240e9 * 1e12, rel=0.02)
    stated = {**scenario.model_dump(exclude_unset=True), "engine": {"local_sharing": "memory"}}
    assert prepare(parse(stated)).scenario.engine.local_sharing == "memory"


@pytest.mark.parametrize(
    ("hosts", "per_host", "used", "note"),
    [
        ("all", 1, 2, "the fabric has no host 'host0'"),
        ("all", 4, 1, "the ranks ran on 2 hosts ('host0', 'host1')"),
        ("0-3", 1, 4, "the ranks ran on 2 hosts ('host0', 'host1')"),
        ("0-3", 2, 2, ""),
    ],
)
def test_accelerators_of_a_host_stay_together(
    tmp_path: Path, hosts: str, per_host: int, used: int, note: str
) -> None:
    (tmp_path / "x.log").write_text(job_log())
    job = {"trace": str(tmp_path / "x.log"), "hosts": hosts, "ranks_per_host": per_host}
    prepared = prepare(parse({"fabric": {"preset": "full"}, "job": [job]}))
    assert len(set(prepared.fabric.node_host[prepared.observed.node])) == used
    notes = [text for text in prepared.notes if "host0" in text]
    assert len(notes) == bool(note) and all(note in text for text in notes)


@pytest.mark.data
@pytest.mark.parametrize(
    ("log", "collectives"),
    [
        ("nccl-glued/clean.log", 6),
        ("nccl-glued/glued.log", 6),
        ("nccl-interleaved/good.log", 10),
        ("nccl-interleaved/one-device.log", 10),
        ("nccl-interleaved/interleaved.log", 10),
    ],
)
def test_collectives_of_interleaved_logs_are_complete(log: str, collectives: int) -> None:
    program = read_trace(real(f"cases/{log}"))
    assert f"{collectives} ncclAllReduce" in program.notes[-1] and len(program.notes) == 1


@pytest.mark.data
def test_posted_lines_parse_and_lack_communicators() -> None:
    with pytest.raises(TraceError, match="names no communicators") as caught:
        read_trace(real("nccl-log/lines.txt"))
    assert "NCCL_DEBUG_SUBSYS=INIT" in (caught.value.remedy or "")


def test_logs_of_two_runs_name_both_files(tmp_path: Path) -> None:
    for run, host in (("a", "n0"), ("b", "n7")):
        text = "".join(init(host, rank, 2, key=f"0x{run}") for rank in range(2))
        text += "".join(call(host, rank, "AllReduce", 1000, 2) for rank in range(2))
        (tmp_path / f"{run}.log").write_text(text)
    with pytest.raises(
        TraceError, match=r"on n7 has no communicator with those of a\.log"
    ) as caught:
        read_trace(tmp_path)
    assert caught.value.file == tmp_path / "b.log"
