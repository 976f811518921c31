"""Rates that a scenario states: computed for each step, from a file, and kept by the packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.errors import ScenarioError, TailbackError
from tailback.evaluate import Change
from tailback.run.run import Run
from tailback.scenario.model import load, parse
from tailback.simulation import make_evaluate, prepare, simulate
from tailback.simulation.execute import execute
from tailback.simulation.pacing import send_rates, steps
from tailback.simulation.routes import routes_for
from tailback.traffic.program import Label, Op, Program, ProgramBuilder
from tailback.traffic.transform import side_by_side

TREE = {"topology": {"kind": "k-ary-n-tree", "k": 4, "n": 2}}
ELASTIC = {"kind": "elastic", "rates": "assigned"}


def scenario(pacing: dict[str, Any], fabric: dict[str, Any] = TREE, **engine: Any) -> Any:
    """16 ranks on a tree; the traffic is replaced where a test needs its own."""
    return parse(
        {
            "fabric": fabric,
            "job": [{"pattern": {"kind": "permutation", "ranks": 16, "size": "1 MiB"}}],
            "engine": {
                "routing": "deterministic",
                "injection": "per-destination",
                "eager": "1 GiB",
                "send_delay": "0 ns",
                "pacing": pacing,
                **engine,
            },
        }
    )


def program(rounds: list[list[tuple[int, int, int]]], ranks: int = 16) -> Program:
    """Messages (source, destination, bytes) in rounds with a wait after each."""
    builder = ProgramBuilder("rounds", ranks)
    for number, messages in enumerate(rounds):
        label = builder.label(Label(f"round {number}", "MPI_Isend"))
        for src, dst, size in messages:
            builder.irecv(dst, src, size, number, label)
            builder.isend(src, dst, size, number, label)
        for rank in range(ranks):
            builder.waitall(rank)
    return builder.build()


def run(rounds: list[list[tuple[int, int, int]]], pacing: dict[str, Any], **engine: Any) -> Run:
    prepared = prepare(scenario(pacing, **engine))
    prepared.jobs[0].program = program(rounds)
    prepared.program, prepared.job_of_label = side_by_side([prepared.jobs[0].program])
    return execute(prepared)


def rates(rounds: list[list[tuple[int, int, int]]], pacing: dict[str, Any]) -> list[int]:
    """Mb/s of every send."""
    prepared = prepare(scenario(pacing))
    prepared.jobs[0].program = program(rounds)
    prepared.program, prepared.job_of_label = side_by_side([prepared.jobs[0].program])
    routes = routes_for(prepared.scenario, prepared.fabric, prepared.slots().tolist())
    flow_rates = send_rates(prepared, prepared.make_workload(), prepared.fabric, routes)
    assert flow_rates is not None
    sends = prepared.program.kind == Op.ISEND
    assert not flow_rates.mbps[~sends].any()
    return [int(rate) for rate in flow_rates.mbps[sends]]


def test_a_step_is_counted_within_its_kind() -> None:
    # Two directions one after the other, twice, on a line of three ranks, where those at its ends
    # have one of them only. Then both at once.
    builder = ProgramBuilder("line", 3)
    right, left = (builder.label(Label(name, "MPI_Isend")) for name in ("+x", "-x"))
    wanted = []
    for rank in range(3):
        for turn in range(2):
            for label, to in ((right, rank + 1), (left, rank - 1)):
                if 0 <= to < 3:
                    builder.irecv(to, rank, 8, turn, label)
                    request = builder.isend(rank, to, 8, turn, label)
                    builder.wait(rank, request)
                    builder.compute(rank, 1000)
                    wanted.append((label, turn))
    program = builder.build()
    sends = np.flatnonzero(program.kind == Op.ISEND)
    assert [tuple(step) for step in steps(program, sends).T.tolist()] == wanted
    builder = ProgramBuilder("at once", 2)
    right, left = (builder.label(Label(name, "MPI_Isend")) for name in ("+x", "-x"))
    for label in (right, left):
        builder.isend(0, 1, 8, 0, label)
        builder.irecv(1, 0, 8, 0, label)
    builder.waitall(0)
    program = builder.build()
    kinds, turns = steps(program, np.flatnonzero(program.kind == Op.ISEND)).tolist()
    assert kinds[0] == kinds[1] and turns == [0, 0]


def test_each_step_is_rated_by_its_heaviest_links() -> None:
    incast = [(src, 0, 1 << 20) for src in (1, 2, 3)]
    alone = [(5, 0, 1 << 20)]
    both = [(1, 0, 3 << 20), (2, 0, 1 << 20)]
    # Rank by rank: 1 and 2 send in three of the four, 3 in two, 5 in one.
    assert rates([incast, alone, incast, both], ELASTIC) == [
        33333,
        33333,
        75000,
        33333,
        33333,
        25000,
        33333,
        33333,
        100000,
    ]
    half = {**ELASTIC, "share": 0.5}
    assert rates([alone], half) == [50000]
    # Max-min shares equally where the assignment shares by size.
    assert rates([both], {**ELASTIC, "rates": "max-min"}) == [50000, 50000]


def test_a_pair_of_nodes_is_one_flow() -> None:
    # Two messages to one node go one after the other, at the rate of both.
    assert rates([[(1, 0, 1 << 20), (1, 0, 1 << 20), (2, 0, 2 << 20)]], ELASTIC) == [50000] * 3


@pytest.mark.parametrize(
    "topology",
    [
        TREE["topology"],
        {"kind": "torus", "dims": [4, 2], "nodes_per_switch": 2},
        # Several candidates: which of them fixed routes take is the rule's own affair.
        {"kind": "modified-k-ary-n-tree", "k": 4, "n": 2, "width": 2},
        {"kind": "modified-k-ary-n-tree", "k": 2, "n": 4, "width": 1},
    ],
    ids=str,
)
def test_assigned_flows_end_with_the_most_loaded_link(topology: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    flows = [
        (src, int(dst), 1 << 20)
        for _ in range(4)
        for src, dst in enumerate(rng.permutation(16))
        if src != dst
    ]
    prepared = prepare(scenario(ELASTIC, {"topology": topology}, buffer="64 KiB"))
    prepared.jobs[0].program = program([flows])
    prepared.program, prepared.job_of_label = side_by_side([prepared.jobs[0].program])
    run = execute(prepared, measure=True)
    crossed = run.tables["truth"].group_by("link").agg(pl.col("bytes").sum())
    gbps = prepared.fabric.link_gbps[crossed["link"].to_numpy()]
    least_ps = float((crossed["bytes"].to_numpy() * 8000 / gbps).max())
    assert run.elapsed_ps == pytest.approx(least_ps, rel=0.05)
    assert "assigned rates, elastic" in run.summary["pacing"]
    # Nobody waits long for credit: what was computed is what the links carry.
    assert run.tables["truth"]["stall_ps"].sum() < 0.02 * least_ps * len(gbps)


def test_max_min_rates_never_rise_afterwards() -> None:
    """As the documentation says: unequal flows end later than without control."""
    unequal = [[(0, 1, 1 << 20), (2, 1, 3 << 20)]]
    runs = {
        rated: run(unequal, {"kind": "elastic", "rates": rated})
        for rated in ("max-min", "assigned")
    }
    free = run(unequal, {"kind": "off"})
    assert runs["max-min"].elapsed_ps == pytest.approx(1.5 * free.elapsed_ps, rel=0.03)
    assert runs["assigned"].elapsed_ps == pytest.approx(free.elapsed_ps, rel=0.03)
    assert any("max-min rates do not rise" in note for note in runs["max-min"].notes)
    assert not any("max-min" in note for note in runs["assigned"].notes)
    equal = run([[(0, 1, 1 << 20), (2, 1, 1 << 20)]], {"kind": "elastic", "rates": "max-min"})
    assert not any("max-min rates do not rise" in note for note in equal.notes)


def test_an_offset_takes_flows_out_of_step() -> None:
    # Everybody sends to node 0 first, then to node 1, …
    everyone = [[(src, dst, 1 << 17) for src in range(16) for dst in range(16) if src != dst]]
    ends = {
        offset: run(everyone, {**ELASTIC, "offset": offset}, arbitration="round-robin").elapsed_ps
        for offset in ("none", "random", "shift")
    }
    least_ps = 15 * (1 << 17) * 80
    assert ends["shift"] < 1.01 * least_ps < ends["none"]
    assert ends["random"] < ends["none"]


def test_rates_from_a_file_are_kept(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("src_rank,dst_rank,rate_gbps\n1,0,10\n3,2,2.5\n")
    rounds = [[(1, 0, 1 << 20), (3, 2, 1 << 20), (5, 4, 1 << 20)]]
    paced_run = run(rounds, {"kind": "spaced", "rates_file": str(tmp_path / "rates.csv")})
    table = paced_run.tables["messages"].sort("src_rank")
    gbps = (table["size_bytes"] * 8000 / table["arrival_ps"]).to_list()
    assert gbps == pytest.approx([10, 2.5, 100], rel=0.02)
    assert paced_run.summary["pacing"] == "rates of rates.csv, spaced"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a,b\n", "line 1", "a,b"),
        ("src_rank,dst_rank,rate_gbps\n1,0,10\n1,0,10\n", "line 3", "twice"),
        ("src_rank,dst_rank,rate_gbps\n1,99,10\n", "line 2", "1,99,10"),
        ("src_rank,dst_rank,rate_gbps\n1,0,fast\n", "line 2", "fast"),
        ("src_rank,dst_rank,rate_gbps\n1,0,nan\n", "line 2", "nan"),
        # The engine would send a million times as fast.
        ("src_rank,dst_rank,rate_gbps\n1,0,1e-9\n", "line 2", "1e-9"),
        ("src_rank,dst_rank,rate_gbps\n\n7,0,10\n", "line 3", "sends nothing"),
    ],
)
def test_a_wrong_table_of_rates_is_told(tmp_path: Path, text: str, place: str, words: str) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=words) as caught:
        run([[(1, 0, 4096)]], {"kind": "spaced", "rates_file": str(file)})
    assert caught.value.file == file and caught.value.place == place and caught.value.remedy


def test_a_rate_table_may_come_from_spreadsheets(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_bytes(b"\xef\xbb\xbfsrc_rank,dst_rank,rate_gbps\r\n1,0,10\r\n")
    paced_run = run(
        [[(1, 0, 1 << 20)]], {"kind": "spaced", "rates_file": str(tmp_path / "rates.csv")}
    )
    assert (1 << 23) / paced_run.elapsed_ps * 1000 == pytest.approx(10, rel=0.02)


def test_pacing_without_a_rate_changes_nothing() -> None:
    flows = [[(1, 0, 1 << 20), (2, 0, 1 << 20)]]
    unpaced, off = run(flows, {"kind": "elastic"}), run(flows, {"kind": "off"})
    assert unpaced.elapsed_ps == off.elapsed_ps
    assert [note for note in unpaced.notes if "no flow has a rate" in note] and not off.notes
    assert not run(flows, ELASTIC).notes


def test_a_table_without_a_rate_paces_nothing(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("src_rank,dst_rank,rate_gbps\n")
    paced_run = run([[(1, 0, 4096)]], {"kind": "spaced", "rates_file": str(tmp_path / "rates.csv")})
    assert "pacing" not in paced_run.summary
    (note,) = paced_run.notes
    assert "changes nothing" in note and "rates.csv has no rate" in note


def test_a_table_of_rates_at_no_path() -> None:
    with pytest.raises(ScenarioError, match="is not a file name"):
        run([[(1, 0, 4096)]], {"kind": "spaced", "rates_file": "a\0b"})


@pytest.mark.parametrize(
    ("pacing", "words"),
    [
        ({"rates": "assigned"}, 'set kind = "elastic"'),
        ({"kind": "spaced", "rates": "assigned", "rates_file": "x"}, "choose one"),
        ({"kind": "spaced", "rates": "fair"}, "assigned"),
        ({"kind": "spaced", "share": 0}, "above 0 and at most 1"),
        ({"kind": "spaced", "rates_file": "x", "share": 0.5}, "part of computed rates"),
    ],
)
def test_what_does_not_fit_together_is_told(pacing: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        scenario(pacing)


def test_a_missing_table_and_detours_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        '[fabric]\npreset = "tapered"\n'
        '[[job]]\npattern = {kind = "ring", ranks = 4, size = "1 KiB"}\n'
        '[engine.pacing]\nkind = "spaced"\nrates_file = "none.csv"\n'
    )
    stated = load(path)
    assert stated.engine.pacing.rates_file == tmp_path / "none.csv"
    with pytest.raises(ScenarioError, match="No such file"):
        simulate(stated)
    torus = {"topology": {"kind": "torus", "dims": [4, 2], "nodes_per_switch": 2}}
    with pytest.raises(TailbackError, match="detours"):
        simulate(scenario(ELASTIC, {**torus, "routes": "valiant"}))


def test_an_ideal_network_needs_no_rates() -> None:
    prepared = prepare(scenario(ELASTIC))
    evaluate = make_evaluate(prepared)
    ideal = evaluate(Change(network="no-contention"))
    assert "pacing" not in ideal.summary and "pacing" in evaluate(Change()).summary
    assert ideal.elapsed_ps == pytest.approx((1 << 20) * 80, rel=0.01)


def test_a_stencil_without_collisions_runs_at_line_rate() -> None:
    data = scenario(ELASTIC).model_dump(mode="json", exclude_unset=True)
    data["job"] = [{"pattern": {"kind": "stencil2d", "dims": [4, 4], "size": "64 KiB"}}]
    paced = simulate(parse(data)).elapsed_ps
    data["engine"]["pacing"] = {"kind": "off"}
    assert paced < 1.1 * simulate(parse(data)).elapsed_ps


def test_job_rates_are_separate_and_stated() -> None:
    data = scenario(ELASTIC).model_dump(mode="json", exclude_unset=True)
    pattern = {"kind": "permutation", "ranks": 8, "size": "1 MiB"}
    data["job"] = [
        {"name": "a", "pattern": pattern, "hosts": "0-7"},
        {"name": "b", "pattern": pattern, "hosts": "8-15", "observed": False},
    ]
    data["engine"]["routing"] = "adaptive"
    paced = simulate(parse(data))
    assert any("job by job" in note for note in paced.notes)
    assert any("spread over all candidates" in note for note in paced.notes)
    assert "16 flows, 2 steps" in paced.summary["pacing"]
