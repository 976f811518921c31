"""Dumps of PyTorch's Flight Recorder: what is read of them, and that nothing of them is run."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tailback.errors import TraceError
from tailback.traffic.nccl.pytorch_names import element_bytes
from tailback.traffic.program import Op
from tailback.traffic.readers import read_trace, timed_reader
from tailback.traffic.readers.flight_recorder.dump import read_dump
from tailback.traffic.readers.flight_recorder.reader import record
from tests.factories.flight_recorder import UTC_NS, document, operation, sample, write


class _Attack:
    """Runs a command where a pickle is read without care."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickle_runs_nothing(protocol: int, tmp_path: Path) -> None:
    content = document([operation(1)]) | {"version": _Attack(tmp_path / "ran")}
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(TraceError, match=r"asks for '(posix|nt)\.system'") as caught:
        read_dump(file)
    assert caught.value.file == file and caught.value.remedy
    assert not (tmp_path / "ran").exists()


def test_pickle_refuses_what_is_no_plain_data(tmp_path: Path) -> None:
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(pickle.dumps({"version": {1, 2}, "entries": Path("x")}, protocol=2))
    with pytest.raises(TraceError, match="asks for"):
        read_dump(file)


def test_memo_of_a_pickle_takes_no_memory(tmp_path: Path) -> None:
    """Its largest number is that of the file, which may be hostile."""
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    with pytest.raises(TraceError, match="is of version ''"):
        read_dump(file)


def test_pickle_and_json_say_the_same(tmp_path: Path) -> None:
    for form in ("pickle", "json"):
        (tmp_path / form).mkdir()
        entries = [operation(1), operation(2, state="started"), operation(3, state="scheduled")]
        content = document(entries)
        if form == "json":
            # The JSON of PyTorch has 0 for a time that is not known.
            content = json.loads(json.dumps(content).replace("null", "0"))
        write(tmp_path / form, {0: content}, form)
    first, second = (read_dump(next((tmp_path / form).iterdir())) for form in ("pickle", "json"))
    assert first.operations == second.operations and first.groups == second.groups
    assert [each.state for each in first.operations] == ["completed", "started", "scheduled"]
    assert first.operations[0].called_from == "train.py:120"
    assert first.operations[0].created_ns == UTC_NS + 10**9
    assert first.groups["0"].members == (0, 1)


def test_launch_has_the_state_of_its_last_entry(tmp_path: Path) -> None:
    entries = [
        operation(1, "send 0->1", is_p2p=True, state="scheduled"),
        operation(1, "recv 0<-1", is_p2p=True, state="scheduled"),
        operation(1, "coalesced", is_p2p=True),
    ]
    write(tmp_path, {0: document(entries)})
    dump = read_dump(tmp_path / "nccl_trace_rank_0")
    assert [each.state for each in dump.operations] == ["completed"] * 3
    assert [each.ends for each in dump.operations] == [(0, 1), (1, 0), None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all_reduce", (2000 * 4, "AllReduce")),
        ("_all_gather_base", (4000 * 4, "AllGather")),
        ("_reduce_scatter_base", (4000 * 4, "ReduceScatter")),
        ("all_reduce_barrier", (4, "AllReduce")),
    ],
)
def test_bytes_are_those_of_the_whole_buffer(
    name: str, expected: tuple[int, str], tmp_path: Path
) -> None:
    entries = [operation(1, name, elements=2000, out=2000)]
    write(tmp_path, {rank: document(entries) for rank in (0, 1)})
    program = read_trace(tmp_path)
    (label,) = {label.call for label in program.labels if "nccl" in label.call.lower()}
    assert expected[1] in label
    if expected[1] == "AllReduce":
        sent = int(program.amount[program.kind == Op.ISEND].sum())
        assert expected[0] * 2 <= sent <= expected[0] * 4 + 64


def test_durations_make_a_measured_run(tmp_path: Path) -> None:
    sample(tmp_path)
    assert timed_reader(tmp_path) is not None
    run = record(tmp_path)
    length = run.calls.leave_ps - run.calls.enter_ps
    assert length.tolist() == [300_000_000, 300_000_000, 200_000_000, 200_000_000]
    assert run.origin_unix_ns is None
    write(tmp_path, {rank: document([operation(1), operation(2)]) for rank in (0, 1)})
    assert timed_reader(tmp_path) is None
    notes = read_trace(tmp_path).notes
    assert any("TORCH_NCCL_ENABLE_TIMING=1 on all ranks" in note for note in notes)


def test_delay_through_two_groups_counts_once(tmp_path: Path) -> None:
    """Rank 1 waits for rank 0 in a pair; ranks 2 and 3 then wait for both in other pairs."""
    pairs = {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}
    waits = {("1", 1): 3.0, ("3", 2): 3.0, ("4", 3): 3.0}
    dumps = {}
    for rank in range(4):
        mine = {name: ("pair", pair) for name, pair in pairs.items() if rank in pair}
        entries = [
            operation(step, group=(name, "pair"), duration_ms=1.0 + waits.get((name, rank), 0.0))
            for step in range(3)
            for name in mine
        ]
        dumps[rank] = document(entries, mine)
    run = record(write(tmp_path, dumps))
    # A step: 3 ms that rank 0 computes, and 1 ms in a pair of each kind.
    assert int(run.calls.leave_ps.max() - run.calls.enter_ps.min()) == 3 * 5 * 10**9


def test_dumps_of_two_runs_are_told(tmp_path: Path) -> None:
    entries = [operation(1)]
    four = {"0": ("default_pg", (0, 1, 2, 3))}
    write(tmp_path, {0: document(entries), 1: document(entries, four)})
    with pytest.raises(TraceError, match=r"is of 4 ranks, and 'nccl_trace_rank_0' of 2"):
        read_trace(tmp_path)


def test_durations_without_common_collective_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {rank: document([operation(rank, duration_ms=1.0)]) for rank in (0, 1)})
    for reads in (read_trace, record):
        with pytest.raises(TraceError, match="holds no collective that all of its ranks have"):
            reads(tmp_path)


def test_unknown_type_is_named(tmp_path: Path) -> None:
    entries = [operation(1), operation(2, dtype="Quad")]
    write(tmp_path, {rank: document(entries) for rank in (0, 1)})
    assert any("all_reduce of Quad (2)" in note for note in read_trace(tmp_path).not_used)


@pytest.mark.parametrize(
    ("dtype", "size"), [("c10::BFloat16", 2), ("torch.float32", 4), ("int64", 8), ("Quad", 0)]
)
def test_types_have_names_of_both_libraries(dtype: str, size: int) -> None:
    assert element_bytes(dtype) == size


def test_incomplete_collectives_are_left_out_and_said(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            0: document([operation(1), operation(2, state="started")]),
            1: document([operation(1), operation(2)]),
        },
    )
    program = read_trace(tmp_path)
    assert any("1 collective of 2 that not all ranks have completed" in n for n in program.not_used)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": "1.3"}, "is of version '1.3'"),
        ({"entries": 7}, "entries: is no list"),
        ({"entries": [7]}, r"entries\[0\]: is no dictionary"),
        ({"entries": [operation(1) | {"state": "asleep"}]}, "in state 'asleep'"),
        ({"entries": [operation(1) | {"input_sizes": [[-1]]}]}, "input_sizes is"),
        ({"entries": [operation(1) | {"input_sizes": [[1 << 60, 1 << 60]]}]}, "input_sizes is"),
        ({"entries": [operation(1) | {"collective_seq_id": "x"}]}, "collective_seq_id is 'x'"),
        ({"pg_config": {"0": {"ranks": "all"}}}, "its ranks are 'all'"),
        ({"pg_config": {"0": {"ranks": "[4, 5]"}}}, "rank 0, as the file is named, is not in"),
    ],
)
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_damage_is_named(change: dict[str, Any], says: str, form: str, tmp_path: Path) -> None:
    write(tmp_path, {0: document([operation(1)]) | change}, form)
    with pytest.raises(TraceError, match=says) as caught:
        read_trace(tmp_path, format="flight-recorder")
    assert caught.value.file is not None and caught.value.remedy


def test_name_without_a_rank_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(document([operation(1)])))
    with pytest.raises(TraceError, match="its name has no rank") as caught:
        read_trace(file)
    assert "nccl_trace_rank_0" in str(caught.value)
