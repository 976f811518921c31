"""Who holds up collectives that do not complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tailback as tb
from tailback.cli import run as tailback
from tests.factories.flight_recorder import document, operation, write
from tests.factories.kineto_traces import sample as write_kineto

ALL = tuple(range(8))
GROUPS = {
    "0": ("default_pg", ALL),
    "1": ("tensor_parallel", (0, 1, 2, 3)),
    "2": ("tensor_parallel", (4, 5, 6, 7)),
}


def tensor_group(rank: int) -> tuple[str, str]:
    return str(1 + rank // 4), "tensor_parallel"


def groups_of(rank: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: group for name, group in GROUPS.items() if rank in group[1]}


def hang(folder: Path, entries: dict[int, list[dict[str, Any]]], form: str = "pickle") -> Any:
    dumps = {rank: document(each, groups_of(rank)) for rank, each in entries.items()}
    return tb.diagnose_hang(write(folder, dumps, form))


def test_complete_collectives_name_last_launch(tmp_path: Path) -> None:
    entries = {
        rank: [operation(k, at_s=0.25 * (rank == 3 and k > 1)) for k in (1, 2, 3)] for rank in ALL
    }
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "complete" and stuck.collectives == 3 and not stuck.has_durations
    assert [(last.rank, last.collectives) for last in stuck.last] == [(3, 2)]
    assert stuck.last[0].waited_ns == 2 * 7 * 250_000_000
    assert "by the clocks of the hosts" in stuck.headline
    assert "TORCH_NCCL_ENABLE_TIMING=1" in stuck.next_step


def test_durations_tell_who_began_last(tmp_path: Path) -> None:
    entries = {
        rank: [operation(k, duration_ms=1.0 if rank == 5 else 4.0) for k in (1, 2)] for rank in ALL
    }
    stuck = hang(tmp_path, entries)
    assert stuck.has_durations and [last.rank for last in stuck.last] == [5]
    assert stuck.last[0].waited_ns == 2 * 7 * 3_000_000
    assert "rank 5 in 2 (42 ms). Waits are 72 %" in stuck.headline


def test_equal_ranks_are_not_late(tmp_path: Path) -> None:
    stuck = hang(tmp_path, {rank: [operation(1, duration_ms=1.0)] for rank in ALL})
    assert stuck.last == () and "No rank is later than the others" in stuck.headline


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("state", ["scheduled", "started"])
def test_rank_that_has_not_entered_is_named(state: str, form: str, tmp_path: Path) -> None:
    entries = {rank: [operation(1), operation(2, state=state)] for rank in ALL}
    entries[5] = [operation(1)]
    stuck = hang(tmp_path, entries, form)
    assert stuck.cause == "not-entered" and stuck.ranks == (5,)
    assert stuck.headline.startswith(
        "Rank 5 has not entered all_reduce 2 of default_pg (8 ranks, 7.812 KiB); 7 ranks wait in"
    )
    assert "last call of rank 5 was all_reduce 1 at train.py:120" in stuck.next_step


def test_wait_is_followed_through_other_groups(tmp_path: Path) -> None:
    """Ranks 0 to 2 wait for 3 within their group, and all others wait for them."""
    entries = {rank: [operation(7, state="started")] for rank in ALL}
    for rank in (0, 1, 2):
        entries[rank] = [operation(9, group=tensor_group(rank), state="started", at_s=-3)]
    entries[3] = [operation(8, group=tensor_group(3))]
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "not-entered" and stuck.ranks == (3,)
    assert (stuck.collective, stuck.number, stuck.group) == ("all_reduce", 9, "tensor_parallel")
    assert stuck.others == 1


def test_status_tells_of_collectives_that_the_buffer_lost(tmp_path: Path) -> None:
    """A rank whose last collectives were overwritten has entered them."""
    entries = {rank: [operation(2, state="started")] for rank in ALL}
    entries[5], entries[6] = [operation(9, group=tensor_group(5))], [operation(1)]
    dumps = {rank: document(each, groups_of(rank)) for rank, each in entries.items()}
    dumps[5] = document(
        [operation(1), operation(9, group=tensor_group(5))], groups_of(5), enqueued={"0": 2}
    )
    stuck = tb.diagnose_hang(write(tmp_path, dumps))
    assert stuck is not None and stuck.ranks == (6,)


def test_rank_without_a_dump_is_suspected(tmp_path: Path) -> None:
    stuck = hang(tmp_path, {rank: [operation(2, state="started")] for rank in ALL if rank != 4})
    assert stuck.cause == "no-dump" and stuck.ranks == (4,)
    assert "Rank 4 left no readable dump" in stuck.headline


@pytest.mark.parametrize(
    ("size", "says"),
    [(0, "is empty"), (1, "is no pickle: 'it is cut'"), (90, "is no pickle: 'it is cut'")],
)
def test_cut_dump_is_counted_and_left_out(size: int, says: str, tmp_path: Path) -> None:
    hang(tmp_path, {rank: [operation(2, state="started")] for rank in ALL})
    file = tmp_path / "nccl_trace_rank_4"
    file.write_bytes(file.read_bytes()[:size])
    stuck = tb.diagnose_hang(tmp_path)
    assert stuck.cause == "no-dump" and stuck.ranks == (4,) and stuck.dumps == 7
    (note,) = stuck.notes
    assert note == f"1 of 8 dumps cannot be read (the first: nccl_trace_rank_4 {says})"


def test_groups_are_taken_from_calls(tmp_path: Path) -> None:
    """Dumps without pg_config list no groups."""
    entries = {rank: [operation(1, group=tensor_group(rank))] for rank in ALL}
    for rank in (0, 1, 3):
        entries[rank].append(operation(2, group=tensor_group(rank), state="started"))
    dumps = {rank: document(each, {}) for rank, each in entries.items()}
    stuck = tb.diagnose_hang(write(tmp_path, dumps))
    assert stuck.cause == "not-entered" and stuck.ranks == (2,)
    assert stuck.members == (0, 1, 2, 3) and stuck.group == "tensor_parallel"
    assert "2 process groups (pg_config" in stuck.notes[0]


def test_different_calls_are_told(tmp_path: Path) -> None:
    entries = {rank: [operation(3, state="started")] for rank in ALL}
    entries[2] = [operation(3, "broadcast", elements=50, state="started")]
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "different-calls" and stuck.ranks == (2,)
    assert "Rank 2 has called broadcast of 200 B where the others called" in stuck.headline


def test_no_side_of_a_tie_is_blamed(tmp_path: Path) -> None:
    entries = {rank: [operation(3, state="started")] for rank in ALL}
    for rank in ALL[4:]:
        entries[rank] = [operation(3, elements=50, state="started")]
    headline = hang(tmp_path, entries).headline
    assert "Ranks 4, 5, 6, 7 called all_reduce of 200 B and ranks 0, 1, 2, 3 all_reduce" in headline
    assert "the dumps do not tell" in headline and "the others" not in headline


def test_types_of_different_calls_are_told(tmp_path: Path) -> None:
    entries = {rank: [operation(3, state="started")] for rank in ALL}
    entries[2] = [operation(3, state="started", dtype="torch.bfloat16")]
    headline = hang(tmp_path, entries).headline
    assert "Rank 2 has called all_reduce of 3.906 KiB (torch.bfloat16) where" in headline
    assert "(8 ranks, 7.812 KiB) (Float)" in headline


def test_sizes_of_send_and_receive_differ(tmp_path: Path) -> None:
    entries = {rank: [operation(1)] for rank in ALL}
    entries[2].append(operation(1, "send 2->6", is_p2p=True, state="started"))
    entries[6].append(operation(1, "recv 6<-2", is_p2p=True, state="started", elements=500))
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "different-calls" and stuck.ranks == (2, 6)
    assert "Rank 2 sends 7.812 KiB to rank 6 of default_pg, which receives 1.953 KiB" in (
        stuck.headline
    )


def test_overwritten_messages_do_not_shift_others(tmp_path: Path) -> None:
    """The first message in a full buffer of one rank is not the first of the other."""
    messages = {
        2: [(7, 500, "completed"), (8, 500, "completed"), (9, 2000, "started")],
        6: [(4, 2000, "started")],
    }
    entries = {
        rank: [
            operation(k, name, is_p2p=True, elements=size, state=state)
            for k, size, state in messages[rank]
        ]
        for rank, name in ((2, "send 2->6"), (6, "recv 6<-2"))
    }
    dumps = {rank: document(each, groups_of(rank), lost=rank) for rank, each in entries.items()}
    stuck = tb.diagnose_hang(write(tmp_path, dumps))
    assert stuck.cause == "within" and stuck.size_bytes == 8000


def test_groups_called_in_opposite_orders_are_told(tmp_path: Path) -> None:
    entries = {rank: [operation(1)] for rank in ALL}
    for rank in ALL:
        first = operation(2, state="scheduled")
        second = operation(1, group=tensor_group(rank), state="scheduled")
        entries[rank] += [second, first] if rank == 2 else [first, second]
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "circle" and 2 in stuck.ranks and len(stuck.ranks) == 2
    assert "in different orders: rank" in stuck.headline
    assert "rank 2 all_reduce 1 of tensor_parallel (4 ranks, 7.812 KiB) before" in stuck.headline


def test_sends_that_cross_are_a_circle(tmp_path: Path) -> None:
    entries = {rank: [operation(1)] for rank in ALL}
    for rank, peer in ((2, 6), (6, 2)):
        entries[rank] += [
            operation(1, f"send {rank}->{peer}", is_p2p=True, state="scheduled"),
            operation(2, f"recv {rank}<-{peer}", is_p2p=True, state="scheduled"),
        ]
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "circle" and stuck.ranks == (2, 6)
    assert "batch_isend_irecv" in stuck.next_step


def test_messages_of_one_launch_have_no_order(tmp_path: Path) -> None:
    entries: dict[int, list[dict[str, Any]]] = {rank: [operation(1)] for rank in ALL}
    for rank, peer in ((2, 6), (6, 2)):
        names = (f"send {rank}->{peer}", f"recv {rank}<-{peer}", "coalesced")
        entries[rank] += [operation(1, name, is_p2p=True, state="scheduled") for name in names]
    assert hang(tmp_path, entries).cause == "within"


def test_orders_of_begun_collectives_are_no_circle(tmp_path: Path) -> None:
    entries = {}
    for rank in ALL:
        first = operation(2, state="started")
        second = operation(1, group=tensor_group(rank), state="scheduled")
        entries[rank] = [second, first] if rank == 2 else [first, second]
    assert hang(tmp_path, entries).cause == "within"


def test_rank_that_alone_does_not_complete_is_named(tmp_path: Path) -> None:
    entries = {rank: [operation(4)] for rank in ALL}
    entries[6] = [operation(4, state="started")]
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "not-completed" and stuck.ranks == (6,)
    assert "Rank 6 has not completed all_reduce 4" in stuck.headline
    assert "which the 7 others have" in stuck.headline


def test_ranks_that_wait_in_a_circle_are_told(tmp_path: Path) -> None:
    entries = {rank: [operation(1), operation(1, group=tensor_group(rank))] for rank in ALL}
    for rank in (0, 1):
        entries[rank].append(operation(2, state="started"))
    for rank in (2, 3):
        entries[rank].append(operation(2, group=tensor_group(rank), state="started"))
    for rank in (4, 5, 6, 7):
        entries[rank].append(operation(2, state="started"))
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "circle" and "in different orders" in stuck.headline


def test_collective_that_all_have_entered_blames_the_network(tmp_path: Path) -> None:
    stuck = hang(tmp_path, {rank: [operation(4, state="started")] for rank in ALL})
    assert stuck.cause == "within" and "All ranks have entered" in stuck.headline
    assert "errors of ports" in stuck.next_step


def test_accelerators_that_have_not_begun_are_named(tmp_path: Path) -> None:
    entries = {rank: [operation(4, state="started")] for rank in ALL}
    entries[6] = [operation(4, state="scheduled")]
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "not-started" and stuck.ranks == (6,)


def test_message_without_its_receiver_is_named(tmp_path: Path) -> None:
    entries = {rank: [operation(1)] for rank in ALL}
    entries[2].append(operation(1, "send 2->6", is_p2p=True, state="started"))
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "not-entered" and stuck.ranks == (6,)
    assert "the message from rank 2 to rank 6 (7.812 KiB)" in stuck.headline


def test_dumps_beside_another_trace_are_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = write_kineto(tmp_path)
    hang(traces, {rank: [operation(1, state="started")] for rank in (0, 1)})
    assert tailback(["diagnose", str(traces), "--out", str(tmp_path / "out")]) == 2
    assert "a trace needs a network to run on" in capsys.readouterr().err


def test_complete_dumps_need_no_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dumps").mkdir()
    hang(tmp_path / "dumps", {rank: [operation(1)] for rank in ALL})
    command = ["diagnose", str(tmp_path / "dumps"), "--out", str(tmp_path / "out")]
    assert tailback(command) == 0
    assert "NO COLLECTIVE HANGS" in capsys.readouterr().out
    assert tailback(command) == 0 and "KEPT" in capsys.readouterr().out
    assert tailback([*command, "--jobs", "x"]) == 2
    assert "--jobs does not apply to dumps without --fabric" in capsys.readouterr().err


def test_command_names_the_rank_and_keeps_its_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {rank: [operation(1), operation(2, state="started")] for rank in ALL}
    entries[5] = [operation(1)]
    (tmp_path / "dumps").mkdir()
    hang(tmp_path / "dumps", entries)
    command = ["diagnose", str(tmp_path / "dumps"), "--out", str(tmp_path / "out")]
    assert tailback(command) == 0
    first = " ".join(capsys.readouterr().out.split())
    assert "Rank 5 has not entered all_reduce 2" in first and "NEXT Look at" in first
    assert tailback(command) == 0 and "KEPT" in capsys.readouterr().out
    assert tailback([*command, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == [5]
    assert tailback([*command, "--jobs", "x"]) == 2
    assert "--jobs does not apply to dumps" in capsys.readouterr().err
