"""Exports, opened as the tools that they are for do."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tailback as tb
from tailback.errors import TraceError
from tailback.evidence.tables import TABLES
from tailback.report.exports import EXPORTS, Result
from tailback.scenario.model import parse
from tailback.simulation.prepare import programs_of
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace
from tests.factories.cli import tailback
from tests.factories.report_data import make_diagnosis, make_run

HOSTILE = 'a;b"\\\n</script>'


def table(kind: str, /, **columns: list[Any]) -> pl.DataFrame:
    """A table of a measured run; columns that are not given are null."""
    schema = TABLES[kind].polars_schema
    height = len(next(iter(columns.values())))
    return pl.DataFrame(
        {column: columns.get(column, [None] * height) for column in schema}, schema=dict(schema)
    )


US = 1_000_000
MEASURED = {
    "calls": table(
        "calls",
        call=[0, 1, 2],
        rank=[0, 0, 1],
        name=["MPI_Send", "MPI_Allreduce", HOSTILE],
        enter_ps=[1010 * US, 1040 * US, 1000 * US],
        leave_ps=[1020 * US, 1060 * US, 1030 * US],
    ),
    "waits": table(
        "waits",
        call=[2, 1],
        rank=[1, 0],
        kind=["late_sender", "wait_nxn"],
        partner=[0, 1],
        # The second began, by the clocks, before its call.
        start_ps=[1000 * US, 1035 * US],
        value_ps=[10 * US, 15 * US],
    ),
    "transfers": table(
        "transfers",
        src_rank=[0],
        dst_rank=[1],
        tag=[7],
        size_bytes=[4096],
        send_enter_ps=[1010 * US],
        recv_done_call=[2],
        recv_done_ps=[1030 * US],
    ),
    "hosts": table("hosts", rank=[0, 1], start_ps=[1000 * US, 1000 * US]),
}


def events(result: Result) -> list[dict[str, Any]]:
    text = "\n".join(EXPORTS["perfetto"](result).lines)
    trace: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return trace


def assert_slices_nest(trace: list[dict[str, Any]]) -> None:
    """Slices of a track are side by side or within each other: trace viewers drop others."""
    tracks = defaultdict(list)
    for event in trace:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert tracks
    assert {process for process, _ in tracks}.isdisjoint(number for _, number in tracks)
    for slices in tracks.values():
        open_ends: list[float] = []
        for start, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_a_measured_trace_has_calls_waits_and_arrows() -> None:
    trace = events(Result(make_run(), make_diagnosis(make_run()), MEASURED))
    assert_slices_nest(trace)
    calls = [e for e in trace if e.get("cat") == "call"]
    assert [(e["tid"], e["name"], e["ts"], e["dur"]) for e in calls] == [
        (0, "MPI_Send", 10.0, 10.0),
        (0, "MPI_Allreduce", 40.0, 20.0),
        (1, HOSTILE, 0.0, 30.0),
    ]
    waits = [(e["tid"], e["name"], e["ts"], e["dur"]) for e in trace if e.get("cat") == "wait"]
    assert waits == [(0, "wait at N×N collective", 40.0, 10.0), (1, "late sender", 0.0, 10.0)]
    start, end = (e for e in trace if e["ph"] in ("s", "f"))
    assert start["id"] == end["id"] and (start["tid"], end["tid"]) == (0, 1)
    assert start["ts"] == 10.0 and calls[2]["ts"] <= end["ts"] < 30.0


def test_slices_begin_and_end_at_whole_nanoseconds() -> None:
    """Perfetto rounds begin and duration, and drops a slice that outlasts the one around it."""
    measured = dict(MEASURED)
    shifted = pl.col("enter_ps", "leave_ps") + 600 * pl.col("call")
    measured["calls"] = MEASURED["calls"].with_columns(shifted)
    trace = events(Result(make_run(), make_diagnosis(make_run()), measured))
    assert_slices_nest(trace)
    times_ns = [1e3 * e[key] for e in trace if e["ph"] == "X" for key in ("ts", "dur")]
    assert times_ns == pytest.approx([round(time) for time in times_ns], abs=1e-6)


def test_congested_links_have_tracks_and_counters() -> None:
    run = make_run()
    diagnosis = make_diagnosis(run)
    trace = events(Result(run, diagnosis))
    assert_slices_nest(trace)
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    spans = [e for e in trace if e.get("cat") == "congestion"]
    root = diagnosis.findings[0].links[0]
    assert root.name in {tracks[e["pid"], e["tid"]] for e in spans if e["name"] == "root"}
    counters = [e for e in trace if e["ph"] == "C"]
    assert {e["name"].rpartition("] ")[2] for e in counters} == {
        "congested %",
        "busy %",
        "stalled %",
    }
    assert all(0 <= e["args"]["value"] <= 100 for e in counters)
    end_us = run.elapsed_ps / 1e6
    assert all(0 <= e["ts"] <= end_us for e in trace if "ts" in e)


def test_each_simulated_message_begins_and_ends() -> None:
    run = make_run()
    trace = events(Result(run))
    begins = [e for e in trace if e["ph"] == "b"]
    ends = [e for e in trace if e["ph"] == "e"]
    assert len(begins) == len(ends) == run.tables["messages"].height
    for begin, end in zip(begins, ends, strict=True):
        assert begin["id"] == end["id"] and begin["ts"] <= end["ts"]


def test_folded_stacks_add_up_to_the_stall() -> None:
    result = Result(make_run())
    # In the scale of the file, each stack is rounded once.
    stacks = list(EXPORTS["folded"](result).lines)
    parsed = [re.fullmatch(r"([^;\n]+(?:;[^;\n]+)*) (\d+)", line) for line in stacks]
    assert all(parsed)
    total = sum(int(match[2]) for match in parsed if match)
    assert total == pytest.approx(result.attribution.flame.value / 1000, abs=len(stacks))
    roots = {match[1].split(";")[0] for match in parsed if match}
    assert roots == {frame.name for frame in result.attribution.flame.children}


def test_measured_stacks_are_calls_and_waits() -> None:
    lines = list(EXPORTS["folded"](Result(make_run(), make_diagnosis(make_run()), MEASURED)).lines)
    values = dict(line.rsplit(" ", 1) for line in lines)
    # Nanoseconds: of the Allreduce's 20 µs, 15 are a wait.
    allreduce = {stack: int(ns) for stack, ns in values.items() if "MPI_Allreduce" in stack}
    assert sorted(allreduce.values()) == [5_000, 15_000]
    assert max(allreduce, key=allreduce.__getitem__).endswith(";wait at N×N collective")
    assert sum(map(int, values.values())) == 60_000
    assert {stack.split(";")[0] for stack in values} == {"rank 0", "rank 1"}


STENCIL: dict[str, Any] = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 2, "leaves": 4, "aggregation": 2}},
    "job": [
        {
            "pattern": {
                "kind": "stencil2d",
                "dims": [4, 2],
                "size": "64 KiB",
                "rounds": 4,
                "boundary": "skip",
                "compute": "30 us",
            },
            "placement": "random",
        }
    ],
}


def of_job(program: Program) -> set[tuple[Any, ...]]:
    """Ranks, partners, sizes and phases of the messages of a program."""
    posts = np.flatnonzero(program.posts)
    labels = [program.labels[number] for number in program.label[posts]]
    columns = (program.op_rank[posts], program.kind[posts], program.peer[posts])
    return {
        (*(int(column[at]) for column in columns), int(program.amount[post]), labels[at].phase)
        for at, post in enumerate(posts)
    }


@pytest.mark.parametrize(
    "pattern",
    [
        {},
        {"kind": "alltoall", "size": "32 KiB", "ranks": 8},
        {"kind": "ring", "size": "1 MiB", "ranks": 8},
    ],
)
def test_exported_calls_take_their_simulated_time(pattern: dict[str, Any], tmp_path: Path) -> None:
    job = {**STENCIL["job"][0], "pattern": pattern or STENCIL["job"][0]["pattern"]}
    run = tb.simulate({**STENCIL, "job": [job]})
    exported = EXPORTS["otf2"](Result(run, programs=partial(programs_of, run.scenario)))
    assert exported.fill is not None and "points in time" not in exported.contents
    exported.fill(tmp_path)
    before, again = programs_of(run.scenario)[0], read_trace(tmp_path)
    assert of_job(before) == of_job(again)
    computes = [program.amount[program.kind == Op.COMPUTE].sum() for program in (before, again)]
    assert computes[0] == computes[1]
    # What ranks do not compute, they spend in calls.
    assert again.recording is not None
    ranks = run.tables["ranks"]
    assert again.recording.total_ps == pytest.approx(ranks["finish_ps"].mean(), abs=1)
    assert any("times are simulated" in note for note in again.notes)
    # On the same network it takes the same time.
    source = {**STENCIL, "job": [{"trace": str(tmp_path)}]}
    assert tb.simulate(source).elapsed_ps == run.elapsed_ps


def test_messages_of_other_programs_have_no_durations() -> None:
    run = tb.simulate(STENCIL)
    pattern = {**STENCIL["job"][0]["pattern"], "rounds": 5}
    other = parse({**STENCIL, "job": [{"pattern": pattern}]})
    exported = EXPORTS["otf2"](Result(run, programs=partial(programs_of, other)))
    assert "points in time" in exported.contents and "messages" in exported.contents


def test_exported_run_has_the_same_verdict(tmp_path: Path) -> None:
    computes = {**STENCIL["job"][0]["pattern"], "size": "1 KiB", "compute": "300 us"}
    job = {"pattern": {"kind": "ring", "size": "1 MiB", "ranks": 8}, "placement": "random"}
    for case, causes in (
        ({**STENCIL, "job": [job]}, {"placement"}),
        # Of measured runs, a network that is no bottleneck is healthy.
        ({**STENCIL, "job": [{"pattern": computes}]}, {"not-network", "healthy"}),
    ):
        forecast = tb.diagnose(case, seeds=1)
        forecast.run.write(tmp_path / "run", force=True)
        command = ["export", "otf2", str(tmp_path / "run"), str(tmp_path / "otf2"), "--force"]
        assert tailback(command) == 0
        again = tb.diagnose(tmp_path / "otf2", fabric=tmp_path / "run", seeds=1)
        assert {forecast.cause, again.cause} <= causes
        assert again.diagnosis.elapsed_ps == forecast.run.elapsed_ps


def test_exported_archive_refuses_to_be_diagnosed(tmp_path: Path) -> None:
    fill = EXPORTS["otf2"](Result(make_run())).fill
    assert fill is not None
    fill(tmp_path)
    with pytest.raises(TraceError, match="export of a simulated run") as caught:
        read_trace(tmp_path / "traces.otf2")
    assert "tailback diagnose RUN" in str(caught.value)


def test_archive_is_read_by_the_package_of_otf2(tmp_path: Path) -> None:
    otf2 = pytest.importorskip("otf2", reason="the package otf2 has wheels for CPython 3.11 only")
    run = make_run()
    fill = EXPORTS["otf2"](Result(run)).fill
    assert fill is not None
    fill(tmp_path)
    sent, received = defaultdict(list), defaultdict(list)
    with otf2.reader.open(str(tmp_path / "traces.otf2")) as archive:
        assert archive.timer_resolution == 10**12
        hosts = {place.group.system_tree_parent.name for place in archive.definitions.locations}
        ranks = {place: at for at, place in enumerate(archive.definitions.locations)}
        for place, event in archive.events:
            rank = ranks[place]
            if isinstance(event, otf2.events.MpiSend):
                to = event.communicator, rank, event.receiver, event.msg_tag
                sent[to].append((event.time, event.msg_length))
            elif isinstance(event, otf2.events.MpiRecv):
                to = event.communicator, event.sender, rank, event.msg_tag
                received[to].append((event.time, event.msg_length))
    assert hosts == set(run.tables["nodes"]["host_name"])
    # Joined in their order, as every reader does, messages are those of the run.
    joined = [
        (src, dst, size, posted, arrived)
        for to, sends in sent.items()
        for (posted, size), (arrived, received_size) in zip(sends, received[to], strict=True)
        for _, src, dst, _ in [to]
        if size == received_size and posted <= arrived
    ]
    messages = run.tables["messages"].filter(pl.col("arrival_ps").is_not_null())
    columns = ["src_rank", "dst_rank", "size_bytes", "post_ps"]
    assert sorted(row[:4] for row in joined) == messages.select(columns).sort(columns).rows()
    assert sum(row[4] for row in joined) >= messages["arrival_ps"].sum()


@pytest.mark.parametrize("measured", [MEASURED, None], ids=["measured", "simulated"])
def test_profile_is_read_by_pycubexr(measured: Any, tmp_path: Path) -> None:
    pycubexr = pytest.importorskip("pycubexr")
    run = make_run(prefix="" if measured else HOSTILE)
    exported = EXPORTS["cube"](Result(run, make_diagnosis(run), measured))
    assert exported.write is not None
    with (tmp_path / "profile.cubex").open("wb") as file:
        exported.write(file)
    with pycubexr.CubexParser(tmp_path / "profile.cubex") as profile:
        nodes = profile.all_cnodes()
        values = {each.name: profile.get_metric_values(each) for each in profile.all_metrics()}
        sums = {name: sum(map(each.value, nodes)) for name, each in values.items()}
        assert len(profile.get_locations()) == run.tables["ranks"].height
        names = [profile.get_region(node).name for node in nodes]
    if measured:
        # Of 50 µs and 30 µs of two ranks; 10 and 15 of them are waits.
        assert sums == pytest.approx({"time": 80e-6, "late_sender": 10e-6, "wait_nxn": 15e-6})
        assert names[0] == "program" and {"MPI_Send", "MPI_Allreduce"} < set(names)
        return
    messages = run.tables["messages"]
    assert sums["messages"] == messages.height and sums["bytes"] == messages["size_bytes"].sum()
    under_way = (messages["arrival_ps"] - messages["post_ps"]).sum()
    assert sums["under_way"] == pytest.approx(under_way / 1e12)


SERIES = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)+)\} (\S+)')


def test_metrics_are_in_the_exposition_format() -> None:
    run = make_run(prefix=HOSTILE)
    lines = list(EXPORTS["prometheus"](Result(run, make_diagnosis(run))).lines)
    typed, seen = set(), set()
    for line in lines:
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("# "):
            match = SERIES.fullmatch(line)
            assert match is not None, line
            assert match[1] in typed and float(match[3]) >= 0
            seen.add((match[1], match[2]))
    assert len(seen) == sum(not line.startswith("#") for line in lines)
    assert typed == {name for name, _ in seen}
    assert {"tailback_elapsed_seconds", "tailback_verdict", "tailback_link_busy_ratio"} <= typed


def test_every_format_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    replace(run).write(tmp_path / "run")
    for entry in EXPORTS:
        command = ["export", entry.name, str(tmp_path / "run"), str(tmp_path / entry.name)]
        assert tailback(command) == 0
        shown = capsys.readouterr().out
        assert f"written to {tmp_path / entry.name}" in shown
        assert (tmp_path / entry.name).stat().st_size > 100
        assert tailback(command) == 2
        assert "--force" in capsys.readouterr().err
    inside = ["export", "folded", str(tmp_path / "run"), str(tmp_path / "run" / "x")]
    assert tailback(inside) == 2
