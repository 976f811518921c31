"""PyTorch's Kineto traces, alone and beside NCCL's log."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tailback.errors import TraceError
from tailback.evidence import measure
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace, timed_reader
from tests.factories.blocking import run_blocking
from tests.factories.kineto_traces import Event, collective, kernel, tuned, write
from tests.factories.public_data import real


def operations(program: Program, rank: int) -> list[str]:
    low, high = (int(program.rank_start[rank + k]) for k in (0, 1))
    return [Op(int(kind)).name for kind in program.kind[low:high]]


def sent_bytes(program: Program) -> int:
    return int(program.amount[program.sends].sum())


@pytest.mark.data
def test_a_real_trace_has_its_stated_bytes(tmp_path: Path) -> None:
    """15 sums of floats and 6 broadcasts, on two ranks; the trace of rank 1 is that of rank 0."""
    file = real("kineto/nccl_data.json.gz")
    document = json.loads(gzip.decompress(file.read_bytes()))
    kept = ("kernel", "gpu_memcpy", "gpu_memset")
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("cat") in kept]
    for rank in range(2):
        document["distributedInfo"]["rank"] = rank
        (tmp_path / f"{rank}.pt.trace.json").write_text(json.dumps(document))
    program = read_trace(tmp_path)
    elements = [
        event["args"]["In msg nelems"]
        for event in document["traceEvents"]
        if event.get("cat") == "kernel" and "AllReduce" in event["name"]
    ]
    assert len(elements) == 15
    sums = [k for k, label in enumerate(program.labels) if label.call == "ncclAllReduce"]
    of_sums = program.sends & (program.label == sums[0])
    assert int(program.amount[of_sums].sum()) == 2 * 4 * sum(elements)
    assert run_blocking(program)
    alone = read_trace(tmp_path / "0.pt.trace.json")
    assert sent_bytes(alone) == sent_bytes(program)
    assert any("rank 1): they are taken to do what rank 0 does" in note for note in alone.notes)


def test_computation_beside_a_collective_stays_beside_it(tmp_path: Path) -> None:
    events = [
        kernel(0, 10),
        collective(10, 40, "allreduce", 1000, [0, 1]),
        kernel(20, 20),
        kernel(35, 10),
        kernel(60, 5),
    ]
    program = read_trace(write(tmp_path, events, events))
    compute = program.amount[program.kind == Op.COMPUTE][: len(program.kind) // 2].tolist()
    # 10 us before; 25 us beside in two steps; 15 us from the end of the kernel on.
    assert compute[:4] == [10_000_000, 12_500_000, 12_500_000, 15_000_000]
    assert operations(program, 0)[1:7] == ["IRECV", "IRECV", "ISEND", "ISEND", "COMPUTE", "WAIT"]
    assert program.recording is not None
    assert (program.recording.calls_ps, program.recording.between_ps) == (15_000_000, 50_000_000)


def test_collectives_of_groups_meet_by_sequence_number(tmp_path: Path) -> None:
    """Rank 1 begins with the second of its group; the number tells, the order would not."""
    first = collective(0, 5, "allreduce", 100, [0, 1], Seq=4)
    second = collective(10, 5, "allreduce", 900, [0, 1], Seq=5)
    other = collective(
        20, 5, "_allgather_base", 10, [0, 2], Process_Group_Name="9", Out_msg_nelems=20
    )
    program = read_trace(write(tmp_path, [first, second, other], [second], [other]))
    assert "1 collectives that not all of their ranks recorded alike" in " ".join(program.notes)
    assert run_blocking(program)
    source, target, _ = program.traffic_matrix()
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [
        (0, 1),
        (0, 2),
        (1, 0),
        (2, 0),
    ]


def test_an_nccl_log_tells_the_algorithm(tmp_path: Path) -> None:
    events = [collective(0, 5, "allreduce", 1500, [0, 1, 2])]
    path = write(tmp_path, events, events, events)
    assert "no NCCL log names the algorithms" in " ".join(read_trace(path).notes)
    (tmp_path / "nccl.log").write_text(
        tuned("n0", "AllReduce", 6000, "TREE", "SIMPLE", 3)
        + "n0:100:200 [0] NCCL INFO Channel 00/04 :    0   2   1\n"
    )
    program = read_trace(path)
    assert program.notes[0] == (
        "collectives are sent as NCCL sends them: 1 ncclAllReduce: tree, simple, 4 channels"
    )
    assert sent_bytes(program) == 2 * 2 * 6000
    (tmp_path / "nccl.log").write_text(
        tuned("n0", "AllReduce", 6000, "RING", "SIMPLE", 0)
        + "n0:100:200 [0] NCCL INFO Channel 00/01 :    0   2   1\n"
    )
    source, target, _ = read_trace(path).traffic_matrix()
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [(0, 2), (1, 0), (2, 1)]


def test_other_orders_on_streams_do_not_block(tmp_path: Path) -> None:
    first, second = (
        collective(0, 9, "allreduce", 100, [0, 1], Process_Group_Name=name) for name in "ab"
    )
    late = {"ts": 5, "dur": 9}
    program = read_trace(write(tmp_path, [first, {**second, **late}], [second, {**first, **late}]))
    assert run_blocking(program)
    assert any("another order on some ranks" in note for note in program.notes)


def test_an_exchange_has_splits_and_single_sends(tmp_path: Path) -> None:
    split = {"In_split_size": "[1, 3]", "Out_split_size": "[1, 2]"}
    program = read_trace(
        write(
            tmp_path,
            [
                collective(0, 5, "all_to_allv", 40, [0, 1], **split),
                collective(9, 5, "send", 7, [0, 1], Dst_Rank=1),
            ],
            [
                collective(0, 5, "all_to_allv", 30, [0, 1], In_split_size="[2, 1]"),
                collective(9, 5, "recv", 7, [0, 1], Src_Rank=0),
            ],
        )
    )
    _, _, sizes = program.traffic_matrix()
    assert sizes.tolist() == [120 + 28, 80]
    assert run_blocking(program)


GROUP = "Process Group Ranks"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "Quad"}, r"dtype is 'Quad'"),
        ({"In msg nelems": -4}, r"In msg nelems is '-4'"),
        ({"In msg nelems": "many"}, r"In msg nelems is 'many'"),
        ({GROUP: "[0, 1, 1]", "Group size": 3}, r"Process Group Ranks is '\[0, 1, 1\]'"),
        ({GROUP: "[1, 2]"}, r"rank 0 is not in its group"),
        ({"Seq": 1.5}, r"Seq is '1\.5'"),
    ],
)
def test_a_value_that_cannot_be_is_named(tmp_path: Path, change: Event, message: str) -> None:
    bad = collective(5, 5, "allreduce", 100, [0, 1])
    bad["args"] |= change
    path = write(tmp_path, [kernel(0, 1), bad], [collective(5, 5, "allreduce", 100, [0, 1])])
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.file == path / "rank-0.1.pt.trace.json"
    assert caught.value.place == "traceEvents[1]" and caught.value.remedy


@pytest.mark.parametrize("size", [0, 200])
def test_cut_trace_is_counted_and_left_out(size: int, tmp_path: Path) -> None:
    events = [collective(0, 5, "allreduce", 100, [0, 1, 2])]
    file = write(tmp_path, events, events, events) / "rank-1.1.pt.trace.json"
    file.write_text(file.read_text()[:size])
    program = read_trace(tmp_path)
    (note,) = program.not_used
    assert note.startswith("1 of 3 traces cannot be read (the first: rank-1.1.pt.trace.json (line")
    reader = timed_reader(tmp_path)
    assert reader is not None and reader.record(tmp_path).not_recorded == "1 of 3 ranks"


def test_cut_trace_of_groups_is_refused(tmp_path: Path) -> None:
    pairs = [[collective(0, 5, "allreduce", 100, [k, k + 1])] for k in (0, 0, 2, 2)]
    file = write(tmp_path, *pairs) / "rank-1.1.pt.trace.json"
    file.write_text(file.read_text()[:200])
    with pytest.raises(TraceError, match="is not valid JSON") as caught:
        read_trace(tmp_path)
    assert caught.value.file == file


def test_traces_of_two_runs_name_both_files(tmp_path: Path) -> None:
    events = [collective(0, 5, "allreduce", 100, [0, 1])]
    file = write(tmp_path, events, events) / "rank-1.1.pt.trace.json"
    file.write_text(file.read_text().replace('"world_size": 2', '"world_size": 4'))
    with pytest.raises(
        TraceError, match=r"is of 4 ranks, and 'rank-0.1.pt.trace.json' of 2"
    ) as caught:
        read_trace(tmp_path)
    assert caught.value.file == file


def test_missing_duplicate_and_empty_traces_are_named(tmp_path: Path) -> None:
    events = [collective(0, 5, "allreduce", 100, [0, 1])]
    path = write(tmp_path, events, events, [kernel(0, 5)])
    (path / "rank-1.1.pt.trace.json").unlink()
    with pytest.raises(TraceError, match="trace of rank 1 of 3 is missing"):
        read_trace(path)
    (path / "copy.pt.trace.json").write_bytes((path / "rank-0.1.pt.trace.json").read_bytes())
    with pytest.raises(TraceError, match="is the trace of rank 0, and so is 'copy"):
        read_trace(path)
    with pytest.raises(TraceError, match="holds no kernel of NCCL"):
        read_trace(path / "rank-2.1.pt.trace.json")
    text = (path / "copy.pt.trace.json").read_text().replace('"ts": 0', '"ts": "soon"')
    (path / "copy.pt.trace.json").write_text(text)
    with pytest.raises(TraceError, match="ts is 'soon'"):
        read_trace(path / "copy.pt.trace.json")


def test_early_rank_waits_for_late_kernel(tmp_path: Path) -> None:
    """Both end their sum at 90 us; rank 1 computed until 60 us, beside 10 us of which it sums."""
    early = [kernel(0, 20), collective(20, 70, "allreduce", 1000, [0, 1]), kernel(40, 30)]
    late = [kernel(0, 60), collective(60, 30, "allreduce", 1000, [0, 1]), kernel(70, 10)]
    path = write(tmp_path, early, late)
    parts = {part.name: part.ps for part in measure(path).measured.parts}
    # Of 70 us, 30 us overlap with computation: only 40 us are exposed, all of them a wait.
    assert parts["computation"] == (50 + 70) * 10**6 // 2
    assert sum(ps for name, ps in parts.items() if name != "computation") == 30 * 10**6
    reader = timed_reader(path)
    assert reader is not None
    assert reader.record(path).exposed_ps.tolist() == [40_000_000, 20_000_000]


@pytest.mark.parametrize("jump_us", [0, 400])
def test_clock_that_was_set_is_named(jump_us: int, tmp_path: Path) -> None:
    """Offsets between the clocks of ranks, of 70 us, are none."""

    def sums(offset: float, jump: float = 0) -> list[Event]:
        starts = [(k, 200 * k + offset + (jump if k > 1 else 0)) for k in range(4)]
        return [collective(at, 50, "allreduce", 1000, [0, 1, 2], Seq=k) for k, at in starts]

    write(tmp_path, sums(70), sums(0, jump_us), sums(0))
    reader = timed_reader(tmp_path)
    assert reader is not None
    notes = [note for note in reader.record(tmp_path).notes if "clock" in note]
    assert len(notes) == bool(jump_us)
    if notes:
        # The ends of 50 us and a drift of 0.2 us hide up to 100.2 us of the jump.
        assert notes[0].startswith("the clock of rank 1 was set during the run, by 299.8 µs")


def test_idle_accelerator_waits_for_its_host(tmp_path: Path) -> None:
    ready = [collective(k, 10, "allreduce", 1000, [0, 1, 2]) for k in (0, 30)]
    path = write(tmp_path, [*ready, kernel(10, 20)], [*ready, kernel(10, 20)], [*ready])
    reader = timed_reader(path)
    assert reader is not None
    idle = reader.record(path).idle_ps
    assert idle is not None
    assert idle.tolist() == [0, 0, 0, 0, 0, 20_000_000]


def test_single_rank_tells_what_it_can(tmp_path: Path) -> None:
    events = [collective(at, took, "allreduce", 1000, [0, 1]) for at, took in ((0, 10), (20, 30))]
    path = write(tmp_path, [*events, kernel(10, 10)], events)
    (path / "rank-1.1.pt.trace.json").unlink()
    measured = measure(path).measured
    assert measured.not_recorded == "1 of 2 ranks"
    assert measured.caveat == (
        "Rank 0 alone shows 80 % of its time in NCCL, 80 % without computation beside it: "
        "transfers and waits for other ranks, which it cannot tell apart; 40 % is beyond the "
        "quickest call of its kind and size, so not needed by the transfers"
    )


def test_named_hosts_order_rings(tmp_path: Path) -> None:
    """Ranks 0 and 2 share a host, so their rings go through both of them."""
    events = [collective(0, 10, "allreduce", 100_000, [0, 1, 2, 3])]
    path = write(tmp_path, *[events] * 4, devices=1)
    for rank, file in enumerate(sorted(path.iterdir())):
        text = json.loads(file.read_text())
        file.write_text(json.dumps(text | {"host_name": f"n{rank % 2}"}))
    program = read_trace(path)
    assert program.hosts == ("n0", "n1", "n0", "n1")
    src, dst, _ = program.traffic_matrix()
    pairs = set(zip(src.tolist(), dst.tolist(), strict=True))
    assert {(0, 2), (1, 3)} <= pairs
    assert not {(1, 2), (3, 0)} & pairs
    reader = timed_reader(path)
    assert reader is not None
    assert reader.record(path).common_clock.tolist() == [0, 1, 0, 1]  # type: ignore[union-attr]
