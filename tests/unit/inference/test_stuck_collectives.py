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


def test_complete_collectives_are_no_hang(tmp_path: Path) -> None:
    assert hang(tmp_path, {rank: [operation(1), operation(2)] for rank in ALL}) is None


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
    assert "Rank 4 left no dump" in stuck.headline


def test_different_calls_are_told(tmp_path: Path) -> None:
    entries = {rank: [operation(3, state="started")] for rank in ALL}
    entries[2] = [operation(3, "broadcast", elements=50, state="started")]
    stuck = hang(tmp_path, entries)
    assert stuck.cause == "different-calls" and stuck.ranks == (2,)
    assert "Rank 2 has called broadcast of 200 B where the others called" in stuck.headline


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
