"""NCCL Inspector's files: ranks, times, losses and network steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tailback.errors import TraceError
from tailback.evidence import measure
from tailback.traffic.computation import balanced
from tailback.traffic.program import Op
from tailback.traffic.readers import READERS, read_trace, timed_reader
from tailback.traffic.readers.recorded_run import RecordedRun
from tests.factories.inspector_files import (
    UTC_US,
    Entry,
    all_reduce,
    point_to_point,
    process,
    sample,
    send_step,
    untimed,
    write,
)


def recorded(path: Path) -> RecordedRun:
    reader = timed_reader(path)
    assert reader is READERS["nccl-inspector"]
    return reader.record(path)


@pytest.mark.parametrize("version", ["v4.0", "v4.2", "v4.3"])
def test_every_version_gives_the_same_calls(version: str, tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 150, 300)]
    run = recorded(write(tmp_path, entries, entries, version=version))
    assert (run.calls.enter_ps // 10**6).tolist() == [0, 150, 0, 150]
    assert (run.calls.leave_ps // 10**6).tolist() == [50, 300, 50, 300]
    assert run.collectives.instance.tolist() == [0, 0, 1, 1]
    assert run.system == [[("n0", "node")], [("n1", "node")]]


def test_early_rank_waits_for_slow_rank(tmp_path: Path) -> None:
    measured = measure(sample(tmp_path)).measured
    assert measured.wait_states == {"wait_nxn": 50_000_000}
    late = measured.latecomers[0]
    assert (late.rank, late.waited_ps, late.host) == (1, 100_000_000, "n1")


def test_launch_tells_slow_host_from_slow_accelerator(tmp_path: Path) -> None:
    def entries(launched_us: float, begin_us: float) -> list[Entry]:
        return [all_reduce(1, 0, 50), all_reduce(2, begin_us, 500, launched_us=launched_us)]

    for launched_us, share in ((55, 0.02), (395, 1.0)):
        folder = tmp_path / str(launched_us)
        folder.mkdir()
        write(folder, entries(52, 150), entries(52, 150), entries(launched_us, 400))
        late = measure(folder).measured.latecomers[0]
        assert late.rank == 2
        assert late.idle_share == pytest.approx(share, abs=0.02)


def test_late_launches_on_all_ranks_blame_no_side(tmp_path: Path) -> None:
    """Steps synchronise: every host launches when its accelerator is done."""
    ranks = [
        [all_reduce(1, 0, 50), all_reduce(2, begin, 500, launched_us=begin - 5)]
        for begin in (150, 150, 400)
    ]
    run = measure(write(tmp_path, *ranks))
    assert run.measured.latecomers[0].rank == 2
    assert run.measured.latecomers[0].idle_share is None
    assert "synchronise" in " ".join(read_trace(tmp_path).notes)


def test_durations_alone_name_last_rank_to_begin(tmp_path: Path) -> None:
    ranks = [[all_reduce(1, 0, 50), all_reduce(2, 60, end)] for end in (160, 160, 90)]
    run = measure(write(tmp_path, *([untimed(entry) for entry in rank] for rank in ranks)))
    # The quickest ranks compute for a picosecond before a call.
    assert run.measured.elapsed_ps == 150_000_001
    assert run.measured.latecomers[0].rank == 2
    assert "Only the times of collectives are recorded" in run.measured.caveat
    assert run.origin_unix_ns is None


def test_a_slow_rank_is_balanced_by_durations_alone(tmp_path: Path) -> None:
    """The others compute as long as the quickest of them, which is not nothing."""
    ends = (200.0, 100.0, 200.0)
    ranks = [[untimed(all_reduce(k, 0, end)) for k in range(1, 9)] for end in ends]
    program = read_trace(write(tmp_path, *ranks))
    assert program.amount[program.kind == Op.COMPUTE].max() == 100_000_000
    even = balanced(program)
    assert even.amount[even.kind == Op.COMPUTE].max() < 1000


def test_dropped_and_missing_records_are_said(tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 90)]
    write(tmp_path, entries, entries, coll_dropped_total=7, coll_records=3)
    file = tmp_path / "n0-pid100.log"
    file.write_text(json.dumps(entries[0]) + "\n" + file.read_text() + '{"coll_perf": {"co')
    notes = " ".join(read_trace(tmp_path).not_used)
    assert "the plugin dropped 14 collectives: raise NCCL_INSPECTOR" in notes
    assert "1 record without the marker" in notes
    assert "2 records that markers count are not in the files" in notes
    assert "last line of 1 file is cut short" in notes


def test_unreadable_lines_cost_themselves(tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 90), all_reduce(3, 100, 150)]
    write(tmp_path, entries, entries)
    file = tmp_path / "n0-pid100.log"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], lines[2][:40], *lines[3:]]) + "\n")
    program = read_trace(tmp_path)
    assert recorded(tmp_path).collectives.instance.tolist() == [0, 0, 1, 1]
    assert "1 line without a readable record: n0-pid100.log line 3" in program.not_used


def test_unknown_version_is_said(tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 90)]
    program = read_trace(write(tmp_path, entries, entries, version="v9.9"))
    (note,) = program.not_used
    assert "format version 'v9.9' is not among those known (v4.0 to v4.3)" in note


def test_collectives_without_all_ranks_are_left_out(tmp_path: Path) -> None:
    """Rank 1 lost the second of three collectives: the time of rank 0 in it is no computation."""
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 90), all_reduce(3, 100, 150)]
    write(tmp_path, entries, [entries[0], entries[2]], coll_dropped_total=1)
    run = recorded(tmp_path)
    assert run.collectives.instance.tolist() == [0, 0, 1, 1]
    parts = {part.name: part.ps for part in measure(tmp_path).measured.parts}
    assert parts["not_recorded"] == 50 * 10**6 and parts.get("computation", 0) == 0
    assert "1 collective of 3 without the records of all ranks" in " ".join(
        read_trace(tmp_path).notes
    )


def test_contradicting_sizes_are_not_used(tmp_path: Path) -> None:
    sizes = (8000, 8000), (4000, 8000)
    ranks = [
        [all_reduce(1, 0, 50, first), all_reduce(2, 60, 90, second)] for first, second in sizes
    ]
    program = read_trace(write(tmp_path, *ranks))
    (note,) = program.not_used
    assert "1 collective that ranks record differently" in note
    assert "AllReduce of 7.812 KiB on rank 0 and AllReduce of 3.906 KiB on rank 1" in note
    assert recorded(tmp_path).collectives.instance.tolist() == [0, 0]


def test_repeated_records_are_not_used(tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 90)]
    write(tmp_path, [*entries, entries[0]], entries)
    assert read_trace(tmp_path).not_used == [
        "1 record of collectives that their rank recorded before (the first: n0-pid100.log, line 4)"
    ]
    assert recorded(tmp_path).collectives.instance.tolist() == [0, 0, 1, 1]


def test_runs_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 90)]
    other = tmp_path / "other"
    other.mkdir()
    late = [all_reduce(1, 20, 70), all_reduce(2, 80, 110)]
    for file in write(other, late, late).iterdir():
        file.rename(tmp_path / f"late-{file.name}")
    other.rmdir()
    with pytest.raises(TraceError, match="these are of two runs") as caught:
        read_trace(write(tmp_path, entries, entries))
    assert caught.value.place == "line 2" and "late-" in str(caught.value)


@pytest.mark.parametrize("n_untimed", [1, 6])
def test_records_without_times_never_mix(n_untimed: int, tmp_path: Path) -> None:
    """One of twenty is left out on both ranks; with six, all are known by their durations."""
    entries = [all_reduce(k, 100 * k, 100 * k + 50) for k in range(1, 11)]
    mixed = [*map(untimed, entries[:n_untimed]), *entries[n_untimed:]]
    run = recorded(write(tmp_path, entries, mixed))
    assert len(run.calls.enter_ps) == (18 if n_untimed == 1 else 20)
    assert ("durations" in run.caveat or "Only the times" in run.caveat) == (n_untimed == 6)


def test_other_files_of_a_folder_are_named(tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 90)]
    (write(tmp_path, entries, entries) / "README").write_text("not a record")
    (note,) = read_trace(tmp_path).not_used
    assert note == "files without a readable record of Inspector not used: README"


def test_missing_process_leaves_cause_open(tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 120)]
    (tmp_path / "a.log").write_text(process(0, 2, entries))
    run = recorded(tmp_path)
    assert run.not_recorded == "1 of 2 ranks"
    assert run.caveat.startswith("Rank 0 alone shows 92 % of its time in NCCL, 92 % without")
    assert "8.3 % is beyond the quickest call" in run.caveat
    assert measure(tmp_path).tables["hosts"]["host"].to_list() == ["n0", None]
    assert read_trace(tmp_path).n_ranks == 2


def test_smaller_communicators_keep_their_members(tmp_path: Path) -> None:
    world = [all_reduce(1, 0, 50)]
    for rank in range(4):
        pair = process(rank // 2, 2, [all_reduce(1, 60, 90, 400)], comm=f"0x{rank % 2}")
        pair = pair.replace(f'"n{rank // 2}"', f'"n{rank}"')
        pair = pair.replace(f'"pid": {100 + rank // 2}', f'"pid": {100 + rank}')
        (tmp_path / f"{rank}.log").write_text(process(rank, 4, world) + pair)
    run = recorded(tmp_path)
    small = run.collectives.sent_bytes == 400
    assert sorted(run.collectives.rank[small].tolist()) == [0, 1, 2, 3]
    assert len(np.unique(run.collectives.instance[small])) == 2


def test_network_steps_show_ring_and_times(tmp_path: Path) -> None:
    following = {0: 2, 2: 1, 1: 0}
    ranks = [[all_reduce(1, 0, 50), send_step(1, following[rank], 40)] for rank in range(3)]
    write(tmp_path, *ranks)
    steps = recorded(tmp_path).steps
    assert steps is not None
    assert dict(zip(steps.src_rank.tolist(), steps.dst_rank.tolist(), strict=True)) == following
    assert steps.network_ps.tolist() == [40_000_000] * 3
    program = read_trace(tmp_path)
    pairs = set(zip(*(column.tolist() for column in program.traffic_matrix()[:2]), strict=True))
    assert pairs == set(following.items())


def written(folder: Path, steps: Sequence[tuple[int, int, int]], algorithm: str) -> Path:
    """Four ranks on two hosts, with steps of an AllReduce: sender, receiver, time."""
    for rank in range(4):
        collective = all_reduce(1, 0, 90)
        collective["coll_perf"] |= {"coll_algo": algorithm, "coll_proto": "SIMPLE"}
        mine = [send_step(1, dst, at) for src, dst, at in steps if src == rank]
        text = process(rank, 4, [collective, *mine], host=f"n{rank // 2}")
        (folder / f"{rank}.log").write_text(text)
    return folder


def pairs_of(folder: Path) -> set[tuple[int, int]]:
    src, dst = (column.tolist() for column in read_trace(folder).traffic_matrix()[:2])
    return set(zip(src, dst, strict=True))


def test_steps_show_a_ring_through_hosts(tmp_path: Path) -> None:
    assert pairs_of(written(tmp_path, [(0, 3, 40), (2, 1, 40)], "RING")) == {
        *((0, 3), (3, 2), (2, 1), (1, 0)),
    }


def test_steps_to_unknown_peers_are_counted(tmp_path: Path) -> None:
    folder = written(tmp_path, [(0, 3, 40), (2, 1, 40), (1, 9, 40)], "RING")
    program = read_trace(folder)
    assert any("peer 9 of a communicator of 4 ranks" in note for note in program.not_used)
    assert any("rings and trees are those" in note for note in program.notes)


def test_network_steps_show_tree(tmp_path: Path) -> None:
    """1 and 2 exchange, each with one more rank on its host."""
    edges = {(0, 1), (1, 2), (2, 3)}
    folder = written(tmp_path, [(2, 1, 40), (1, 2, 60)], "TREE")
    assert pairs_of(folder) == edges | {(b, a) for a, b in edges}


def with_bandwidths(folder: Path, *, verbose: bool = True, calls: int = 8) -> Path:
    """Four ranks with records that state bandwidths, on lines 1 to ``calls`` of each file."""
    entries = []
    for k in range(calls):
        entry = all_reduce(k, 100 * k, 100 * k + 50)
        rates = {"coll_algobw_gbs": 8000 / 50e3, "coll_busbw_gbs": 1.5 * 8000 / 50e3}
        entry["coll_perf"] |= rates
        entries.append(entry if verbose else untimed(entry))
    return write(folder, *[entries] * 4, version="v4.0")


def change(file: Path, edit: Callable[[Entry], None], line: int | None = None) -> None:
    """Edit a record of a file, or all."""
    records = [json.loads(text) for text in file.read_text().splitlines()]
    for record in records if line is None else records[line - 1 : line]:
        edit(record)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def scale(factor: float, *keys: str) -> Callable[[Entry], None]:
    def edit(entry: Entry) -> None:
        body = entry["coll_perf"]
        for target in (body, *body.get("event_trace_ts", {}).get("kernel_events", ())):
            target.update({key: target[key] * factor for key in keys if key in target})

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda e: e.update(header=[]), "header is '[]', not an object"),
        (lambda e: e["header"].update(rank=99), "rank 99 of 4"),
        (lambda e: e["header"].update(rank=3), "rank 3, where others have 2"),
        (lambda e: e["header"].update(n_ranks=9), "n_ranks 9, where others have 4"),
        (lambda e: e["metadata"].update(pid=1), "hostname and pid n2 1, where others have n2 102"),
        (lambda e: e["coll_perf"].update(coll_exec_time_us=-1), "coll_exec_time_us is '-1'"),
        (lambda e: e["coll_perf"].update(coll_sn=1.5), "coll_sn is '1.5', not a whole number"),
        (lambda e: e["coll_perf"].update(coll_sn=5), "coll_sn 5 is in the file again"),
        (scale(1000, "coll_exec_time_us"), "coll_exec_time_us is 50,000, where kernel_start_ts"),
        (
            scale(0.1, "coll_algobw_gbs"),
            "is 50, where coll_algobw_gbs 0.016 and its bytes give 500",
        ),
        (scale(9, "coll_busbw_gbs"), "is 50, where coll_busbw_gbs 2.16 and its bytes give 5.56"),
        (scale(1e-3, "kernel_stop_ts"), "kernel_stop_ts is 1790000000000, where dump_timestamp_us"),
    ],
)
def test_damaged_record_costs_itself_by_name(
    edit: Callable[[Entry], None], message: str, tmp_path: Path
) -> None:
    file = with_bandwidths(tmp_path) / "n2-pid102.log"
    change(file, edit, line=4)
    notes = read_trace(tmp_path).not_used
    named = [note for note in notes if note.startswith("1 damaged record: n2-pid102.log, line 4")]
    assert len(named) == 1 and message in named[0]
    kept = recorded(tmp_path).collectives.instance
    assert len(kept) == 4 * (7 - message.startswith("coll_sn 5"))
    assert "n2-pid102.log of rank 2 lacks" in " ".join(notes)


@pytest.mark.parametrize(
    ("verbose", "bandwidths", "edit", "message"),
    [
        (True, True, scale(1000, "coll_exec_time_us"), "where kernel_start_ts"),
        (False, True, scale(1000, "coll_exec_time_us"), "where coll_algobw_gbs 0.16 and its bytes"),
        (False, False, scale(1000, "coll_exec_time_us"), "where the records of other ranks give"),
        (
            True,
            True,
            scale(1e3, "kernel_start_ts", "kernel_stop_ts"),
            "8 of 8 records are as wrong",
        ),
        (True, True, scale(1e-3, "kernel_stop_ts"), "8 of 8 records are as wrong"),
    ],
)
def test_file_in_another_unit_is_refused(
    verbose: bool,
    bandwidths: bool,
    edit: Callable[[Entry], None],
    message: str,
    tmp_path: Path,
) -> None:
    with_bandwidths(tmp_path, verbose=verbose)
    if not bandwidths:
        for file in tmp_path.iterdir():
            change(file, scale(0.0, "coll_algobw_gbs", "coll_busbw_gbs"))
    change(tmp_path / "n2-pid102.log", edit)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(tmp_path)
    assert (caught.value.file, caught.value.place) == (tmp_path / "n2-pid102.log", "line 1")
    assert "unit" in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize(("factor", "refused"), [(8.0, False), (1e-3, False), (1e3, True)])
def test_bandwidths_that_all_contradict_are_not_used(
    factor: float, refused: bool, tmp_path: Path
) -> None:
    """Times that are too long would be taken for waits; others are those that the fields say."""
    for file in with_bandwidths(tmp_path, verbose=False).iterdir():
        change(file, scale(factor, "coll_algobw_gbs"))
    if refused:
        with pytest.raises(TraceError, match="one of them is in another unit"):
            read_trace(tmp_path)
    else:
        (note,) = read_trace(tmp_path).not_used
        assert note.startswith("coll_algobw_gbs, which contradict the durations of most records")


def test_ticks_of_an_accelerator_are_no_times(tmp_path: Path) -> None:
    """As plugins of other makers write them: durations stay, and nothing else is advised."""
    for file in with_bandwidths(tmp_path).iterdir():
        change(file, scale(40, "coll_exec_time_us"))
        change(file, scale(1 / 40, "coll_algobw_gbs", "coll_busbw_gbs"))
        change(
            file, lambda e: e["coll_perf"]["event_trace_ts"]["kernel_events"][0].update(ticks(e))
        )
    notes = read_trace(tmp_path).notes
    assert any(
        note.startswith("kernel_start_ts and kernel_stop_ts, which contra") for note in notes
    )
    assert not any("DUMP_VERBOSE" in note for note in notes)
    assert "Only the times of collectives" in recorded(tmp_path).caveat


def ticks(entry: Entry) -> dict[str, int]:
    """Begin and end of a kernel in units of 10 ns since some time of its accelerator."""
    begin = UTC_US + 100_000 * int(entry["coll_perf"]["coll_sn"])
    return {"kernel_start_ts": begin, "kernel_stop_ts": begin + 200_000}


def test_ranks_without_common_collectives_are_named(tmp_path: Path) -> None:
    with_bandwidths(tmp_path)
    file = tmp_path / "n2-pid102.log"
    change(file, lambda e: e["coll_perf"].update(coll_sn=e["coll_perf"]["coll_sn"] + 100))
    with pytest.raises(TraceError, match=r"n2-pid102.log of rank 2 lacks 8, such as AllReduce 0"):
        read_trace(tmp_path)


def test_damaged_marker_costs_its_records(tmp_path: Path) -> None:
    file = sample(tmp_path) / "n0-pid100.log"
    file.write_text(file.read_text().replace('"n_ranks": 2', '"n_ranks": 0', 1))
    notes = " ".join(read_trace(tmp_path).not_used)
    assert "1 damaged record: n0-pid100.log, line 1: rank 0 of 0" in notes
    assert "2 records without the marker" in notes


def test_damaged_send_keeps_the_order_of_others(tmp_path: Path) -> None:
    """The k-th send belongs to the k-th receive, whether those before can be read or not."""

    starts = range(100, 900, 100)
    sends, receives = (
        [point_to_point(name, peer, at, at + 9, at) for at in starts]
        for name, peer in (("Send", 1), ("Recv", 0))
    )
    sends[2]["p2p_perf"]["p2p_exec_time_us"] = 9000
    run = recorded(write(tmp_path, sends, receives, version="v4.0"))
    assert run.transfers.size_bytes.tolist() == [100, 200, 400, 500, 600, 700, 800]


def test_exchange_shows_who_waited(tmp_path: Path) -> None:
    """A send and a receive in one kernel wait for a peer that begins 60 µs later."""
    early, late = (
        [point_to_point(name, peer, begin, 100) for name in ("Send", "Recv")]
        for peer, begin in ((1, 0), (0, 60))
    )
    folder = write(tmp_path, early, late, version="v4.0", host="n0")
    run = recorded(folder)
    assert list(zip(run.transfers.src_rank, run.transfers.dst_rank, strict=True)) == [
        (0, 1),
        (1, 0),
    ]
    assert run.calls.sent_bytes.tolist() == [8000, 8000]
    assert run.calls.comm.tolist() == [0, 0]
    waits = measure(folder).tables["waits"]
    assert waits.select("rank", "kind", "value_ps").rows() == [(0, "late_sender", 60_000_000)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"rank": 1', '"rank": 0', "its process has rank 0, as that of n0-pid100.log has"),
        ('"n_ranks": 2', '"n_ranks": 3', "communicator 0x9 has 3 ranks here, and 2 in other"),
    ],
)
def test_contradicting_headers_name_their_file(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    sample(tmp_path)
    file = tmp_path / "n1-pid101.log"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(tmp_path)
    assert caught.value.file == file


@pytest.mark.parametrize("content", [b"", b"\0" * 900, b'{"header": {"id"'])
def test_folder_of_damaged_files_says_so(content: bytes, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"n{rank}-pid{100 + rank}.log").write_bytes(content)
    with pytest.raises(TraceError, match="empty or damaged") as caught:
        read_trace(tmp_path)
    assert caught.value.file == tmp_path / "n0-pid100.log"


def test_damaged_first_line_costs_itself(tmp_path: Path) -> None:
    entries = [all_reduce(1, 0, 50), all_reduce(2, 60, 90)]
    write(tmp_path, entries, entries, version="v4.0")
    file = tmp_path / "n0-pid100.log"
    file.write_text("\ufffd" + file.read_text()[1:])
    assert recorded(tmp_path).collectives.instance.tolist() == [0, 0]
    assert "1 line without a readable record: n0-pid100.log line 1" in read_trace(tmp_path).not_used


def test_time_around_unrecorded_collectives_is_open(tmp_path: Path) -> None:
    """Collective 2 is not recorded: small if nothing was dropped, else of any size."""
    entries = [all_reduce(1, 0, 50), all_reduce(3, 150, 200), all_reduce(4, 250, 300)]
    for dropped, part in ((0, "computation"), (1, "not_recorded")):
        folder = tmp_path / str(dropped)
        folder.mkdir()
        parts = measure(write(folder, entries, entries, coll_dropped_total=dropped)).measured.parts
        times = {each.name: each.ps for each in parts}
        assert times[part] == (150 if not dropped else 100) * 10**6
        notes = " ".join(read_trace(folder).notes)
        assert "up to 1 collectives of a rank between others are not recorded" in notes


def test_files_without_metadata_are_processes(tmp_path: Path) -> None:
    """As plugins of other makers write them, with fractions of microseconds."""
    for rank in range(2):
        body = untimed(all_reduce(1, 0, 50.4))
        line = {"header": {"rank": rank, "n_ranks": 2}, **body}
        (tmp_path / f"{rank}.jsonl").write_text(json.dumps(line) + "\n")
    assert (recorded(tmp_path).calls.leave_ps // 10**6).tolist() == [50, 50]


def test_peers_on_other_hosts_alone_are_no_ring(tmp_path: Path) -> None:
    following = {0: 2, 2: 1, 1: 3, 3: 0}
    for rank in range(4):
        entries = [all_reduce(1, 0, 50), send_step(1, following[rank], 40)]
        text = process(rank, 4, entries, host=f"n{rank // 2}")
        (tmp_path / f"{rank}.log").write_text(text)
    program = read_trace(tmp_path)
    pairs = set(zip(*(column.tolist() for column in program.traffic_matrix()[:2]), strict=True))
    assert pairs != set(following.items())
    assert len({pair for pair in pairs if sum(pair) in (1, 5)}) == 2
