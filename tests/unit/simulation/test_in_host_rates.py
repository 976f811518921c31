"""Rates between the ranks of a host that differ from host to host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailback.diagnosis.model import Candidate, Remedy
from tailback.errors import FabricError, ScenarioError
from tailback.evaluate import Change
from tailback.fabric.readers import read_fabric
from tailback.remedy import diagnose
from tailback.run.run import Run
from tailback.scenario.engine import EngineSection
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare, simulate
from tailback.simulation.fluid import simulate_fluid
from tailback.sources.recording import notes_on_recording
from tailback.sources.source import load_scenario
from tailback.units import percent

SIZE = 2**20
TREE = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}
EDGES = """\
src,dst,rate_gbit
h0,l0,100
h1,l0,100
h0,h0,3600
"""


def pairs(**fabric: Any) -> dict[str, Any]:
    """Two ranks on each of two hosts; ranks 0 → 1 and 2 → 3 send 1 MiB within their hosts."""
    return {
        "fabric": {"fat_tree": TREE, **fabric},
        "job": [
            {
                "pattern": {
                    "kind": "timed",
                    "ranks": 4,
                    "messages": [[0, 0, 1, SIZE], [0, 2, 3, SIZE]],
                },
                "ranks_per_host": 2,
            }
        ],
        "engine": {"local_delay": 0, "send_delay": 0, "local_rate": "800 Gb/s"},
    }


def transfer_times(run: Run) -> list[int]:
    """Time of each message within its host, by sending rank."""
    log = run.tables["messages"].sort("src_rank")
    return (log["arrival_ps"] - log["start_ps"]).to_list()


@pytest.mark.parametrize("model", [simulate, lambda scenario: simulate_fluid(prepare(scenario))])
def test_each_host_has_its_own_rate(model: Any) -> None:
    rates = [{"hosts": "1", "rate": "200 Gb/s"}]
    assert transfer_times(model(parse(pairs()))) == pytest.approx([SIZE * 10] * 2, abs=1)
    assert transfer_times(model(parse(pairs(in_host=rates)))) == pytest.approx(
        [SIZE * 10, SIZE * 40], abs=1
    )


MODELS = [simulate, lambda scenario: simulate_fluid(prepare(scenario))]


def concurrent(messages: list[list[int]], **engine: Any) -> Any:
    """Ranks 0 to 7 on one host, 8 to 15 on another; messages as [time in ps, from, to, bytes]."""
    return parse(
        {
            "fabric": {"fat_tree": TREE},
            "job": [
                {
                    "pattern": {"kind": "timed", "ranks": 16, "messages": messages},
                    "ranks_per_host": 8,
                }
            ],
            "engine": {"local_delay": 0, "send_delay": 0, **engine},
        }
    )


@settings(max_examples=20)
@given(
    n=st.integers(1, 8),
    size=st.integers(1, 2**24),
    local=st.integers(10, 1000),
    factor=st.integers(1, 8),
    model=st.sampled_from(MODELS),
)
def test_concurrent_messages_share_the_memory(
    n: int, size: int, local: int, factor: int, model: Any
) -> None:
    messages = [[0, rank, (rank + 1) % 8, size] for rank in range(n)]
    # The memory of the other host has one message to copy.
    messages.append([0, 8, 9, size])
    rates = {"local_rate": f"{local} Gb/s", "memory_rate": f"{factor * local} Gb/s"}
    alone = size * 8000 / local
    expected = [alone * max(1, n / factor)] * n + [alone]
    assert transfer_times(model(concurrent(messages, **rates))) == pytest.approx(
        expected, abs=2, rel=1e-9
    )


@settings(max_examples=20)
@given(
    messages=st.lists(
        st.tuples(
            st.integers(0, 10**6), st.integers(0, 7), st.integers(1, 7), st.integers(1, 10**5)
        ),
        min_size=1,
        max_size=20,
    )
)
def test_packet_engine_and_fluid_model_share_memory_alike(
    messages: list[tuple[int, int, int, int]],
) -> None:
    rates = {"local_rate": "80 Gb/s", "memory_rate": "200 Gb/s"}
    scenario = concurrent(
        [[at, src, (src + to) % 8, size] for at, src, to, size in sorted(messages)], **rates
    )
    packets, fluid = (model(scenario) for model in MODELS)
    columns = ["src_rank", "dst_rank", "start_ps", "arrival_ps"]
    assert (
        packets.tables["messages"].select(columns).equals(fluid.tables["messages"].select(columns))
    )
    log = packets.tables["messages"]
    assert ((log["arrival_ps"] - log["start_ps"]) * 80 >= log["size_bytes"] * 8000).all()
    span = int(log["arrival_ps"].max()) - int(log["start_ps"].min())
    assert span >= int(log["size_bytes"].sum()) * 8000 // 200


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ({}, "at up to 80 Gb/s each and 400 Gb/s together (assumed; local_rate= and"),
        ({"memory_rate": "40 Gb/s"}, "at up to 40 Gb/s each and 40 Gb/s together (as stated)"),
        (
            {"local_rate": "600 Gb/s"},
            "at up to 600 Gb/s each and 600 Gb/s together (the latter is",
        ),
        (
            {"local_rate": "90 Gb/s", "memory_rate": "99 Gb/s", "local_error": 1.25},
            "at up to 90 Gb/s each and 99 Gb/s together (known within a factor of 1.25)",
        ),
        ({"local_rate": "90 Gb/s", "local_sharing": "ports"}, "at 90 Gb/s a port (as stated)"),
    ],
)
def test_a_run_states_its_rates_within_hosts(engine: dict[str, Any], says: str) -> None:
    # A quarter of the bytes stays within a host.
    scenario = concurrent([[0, 0, 1, 1000], [0, 1, 8, 3000]], **engine)
    for model in MODELS:
        notes = [note for note in model(scenario).notes if note.startswith("within hosts: ")]
        assert len(notes) == 1 and notes[0].startswith(f"within hosts: 25 % of the bytes, {says}")
    alone = pairs()
    alone["job"][0]["ranks_per_host"] = 1
    alone["fabric"] = {"fat_tree": {**TREE, "hosts_per_leaf": 4}}
    assert not any("within hosts" in note for note in simulate(parse(alone)).notes)


def test_rates_that_contradict_each_other_are_refused() -> None:
    for engine, says in (
        ({"local_rate": "90 Gb/s", "memory_rate": "80 Gb/s"}, "less than local_rate"),
        ({"local_sharing": "ports"}, "needs the rate of a port"),
        ({"local_sharing": "ports", "local_rate": "1 Gb/s", "memory_rate": "2 Gb/s"}, "no effect"),
    ):
        with pytest.raises(ScenarioError, match=says):
            concurrent([[0, 0, 1, 1]], **engine)


def test_bounds_of_rates_follow_their_errors() -> None:
    def bounds(**engine: Any) -> list[tuple[float, float]]:
        rates = {key: f"{rate} Gb/s" for key, rate in engine.items() if key != "local_error"}
        section = EngineSection(**engine | rates)
        return [section.local_rates(bound) for bound in ("low", "as-is", "high")]

    assert bounds() == [(40, 100), (80, 400), (160, 1600)]
    # What is stated is known; what is not is assumed. A message has no more than the memory.
    assert bounds(local_rate=100) == [(100, 100), (100, 400), (100, 1600)]
    assert bounds(memory_rate=100) == [(40, 100), (80, 100), (100, 100)]
    assert bounds(local_rate=100, memory_rate=300) == [(100, 300)] * 3
    measured = {"local_rate": 100, "memory_rate": 300, "local_error": 1.25}
    assert bounds(**measured) == [(80, 240), (100, 300), (125, 375)]


def test_a_diagnosis_takes_the_recorders_rates(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    recording = {"within_hosts_gbps": {"one": [64, 100], "all": [100, 144]}}
    (trace / "recording.json").write_text(json.dumps(recording))
    scenario = load_scenario(trace, fabric="tapered")
    assert scenario.engine.local_rate == pytest.approx(80)
    assert scenario.engine.memory_rate == pytest.approx(120)
    assert scenario.engine.local_error == pytest.approx(1.25)
    assert any("tailback record measured" in note for note in notes_on_recording(scenario))
    # Options take precedence, and then nothing was measured.
    stated = load_scenario(trace, fabric="tapered", memory_rate="50 Gb/s").engine
    assert (stated.local_rate, stated.memory_rate, stated.local_error) == (None, 50, None)
    with pytest.raises(ScenarioError, match="local_rate="):
        load_scenario(trace, fabric="tapered", local_rate="fast")
    for damaged in ({}, {"one": [1], "all": [1, 2]}, {"one": [0, 1], "all": [1, 2]}):
        (trace / "recording.json").write_text(json.dumps({"within_hosts_gbps": damaged}))
        assert load_scenario(trace, fabric="tapered").engine.assumes_memory_rate


@pytest.mark.slow
def test_a_gain_covers_errors_of_host_rates() -> None:
    def remedy(**engine: Any) -> tuple[Remedy, Candidate]:
        # Partners are on different hosts; another placement brings them together.
        messages = [[0, rank, rank + 8, 2**20] for rank in range(8)]
        scenario = parse(
            {
                "fabric": {"fat_tree": {**TREE, "leaves": 4}},
                "job": [
                    {
                        "pattern": {"kind": "timed", "ranks": 16, "messages": messages},
                        "ranks_per_host": 2,
                    }
                ],
                "engine": {"routing": "deterministic", **engine},
            }
        )
        evaluate = make_evaluate(prepare(scenario))
        run = evaluate(Change(measure=True))
        placements = {"together": np.array([*range(8), *range(8)], np.uint32)}
        proposed = diagnose(run, evaluate, seeds=1, placements=placements).remedy
        assert proposed is not None and proposed.name == "together"
        return proposed, next(place for place in proposed.candidates if place.name == "together")

    assumed, candidate = remedy()
    bounds = [
        remedy(local_rate=f"{each} Gb/s", memory_rate=f"{together} Gb/s")
        for each, together in ((40, 100), (160, 1600))
    ]
    assert all(exact.gain_low == exact.gain_high == stated.gain for stated, exact in bounds)
    low, high = (stated.gain for stated, _ in bounds)
    assert low < assumed.gain < high
    assert (candidate.gain_low, candidate.gain_high) == (low, high)
    says = f"({percent(low)} to {percent(high)} in repetitions and with other engine settings)"
    assert says in assumed.action


def test_what_if_transfers_within_hosts_took_no_time() -> None:
    prepared = prepare(parse(pairs(in_host=[{"hosts": "all", "rate": "200 Gb/s"}])))
    evaluate = make_evaluate(prepared)
    assert transfer_times(evaluate(Change())) == pytest.approx([SIZE * 40] * 2, abs=1)
    assert transfer_times(evaluate(Change(in_host="free"))) == [1, 1]
    # On the ideal switch, which is another fabric, hosts keep their rates.
    assert transfer_times(evaluate(Change(network="star"))) == pytest.approx([SIZE * 40] * 2, abs=1)


def test_an_edge_list_states_a_hosts_rate(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(EDGES)
    fabric = read_fabric(tmp_path / "edges.csv")
    assert fabric.host_gbps is not None
    np.testing.assert_equal(fabric.host_gbps, [3600.0, np.nan])
    data = pairs(fat_tree=None, file=str(tmp_path / "edges.csv"))
    assert transfer_times(simulate(parse(data))) == pytest.approx(
        [SIZE * 8 / 3.6, SIZE * 10], abs=1
    )
    # What the scenario says comes first.
    data["fabric"]["in_host"] = [{"hosts": "h0", "rate": "1600 Gb/s"}]
    assert transfer_times(simulate(parse(data))) == pytest.approx([SIZE * 5, SIZE * 10], abs=1)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("l0,l0,900\n", r"'l0' has a rate within itself, and is no host"),
        ("h0,h0,900\n", r"line 5.*'h0' has another rate within itself already"),
    ],
)
def test_wrong_lines_of_an_edge_list_are_refused(tmp_path: Path, line: str, error: str) -> None:
    (tmp_path / "edges.csv").write_text(EDGES + line)
    with pytest.raises(FabricError, match=error):
        read_fabric(tmp_path / "edges.csv")


@pytest.mark.parametrize(
    ("rates", "error"),
    [
        (
            [{"hosts": "0-1", "rate": "1 Gb/s"}, {"hosts": "1", "rate": "2 Gb/s"}],
            r"\[\[fabric.in_host\]\] hosts: host .* has two rates",
        ),
        ([{"hosts": "nowhere", "rate": "1 Gb/s"}], r"\[\[fabric.in_host\]\] hosts.*nowhere"),
        ([{"hosts": "0", "rate": "1e-13 Gb/s"}], r"\[\[fabric.in_host\]\] rate"),
    ],
)
def test_wrong_rates_are_refused(rates: list[dict[str, str]], error: str) -> None:
    with pytest.raises(ScenarioError, match=error):
        prepare(parse(pairs(in_host=rates)))
