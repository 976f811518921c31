"""The fluid model of a scenario: the packet engine's tables, told apart, near it in time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.cli import run as tailback
from tailback.errors import RunError, ScenarioError
from tailback.evaluate import Change
from tailback.run.run import Run
from tailback.run.schema import TABLES
from tailback.scenario.model import parse
from tailback.simulation import (
    FluidOptions,
    PreparedScenario,
    make_evaluate,
    make_fluid_evaluate,
    prepare,
    simulate,
    simulate_fluid,
)
from tailback.simulation.fluid import UNKNOWN, path_choice
from tailback.simulation.routes import routes_for
from tests.factories.forwarding_tables import write_clumped

TORUS = {"kind": "torus", "dims": [4, 4]}
TREE = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2, "host_delay": "10 ns"}


def prepared(size: str = "256 KiB") -> PreparedScenario:
    """A stencil on a small 2:1 tapered tree."""
    pattern = {"kind": "stencil2d", "dims": [4, 4], "size": size}
    return prepare(
        parse(
            {
                "fabric": {"fat_tree": TREE},
                "job": [{"name": "app", "pattern": pattern}],
                "engine": {"eager": "1 MiB"},
            }
        )
    )


def test_a_fluid_run_has_packet_run_tables(tmp_path: Path) -> None:
    """Same tables, same bytes over each host link; what is not known is null, and it says so."""
    case = prepared()
    fluid, packet = simulate_fluid(case), simulate(case)
    fluid.write(tmp_path / "fluid")
    again = Run.read(tmp_path / "fluid")
    assert set(again.tables) == set(TABLES)
    assert again.summary["model"] == "fluid"
    assert (again.summary["rates"], again.summary["paths"]) == ("max-min", "pooled")
    assert any("fluid model" in note for note in again.notes)
    truth = again.tables["truth"]
    assert truth.height > 0
    for name in UNKNOWN:
        assert truth[name].null_count() == truth.height
    assert again.tables["samples"].height == 0
    for name in ("ranks", "messages", "links", "labels"):
        assert again.tables[name].height == packet.tables[name].height
    assert not again.tables["messages"]["packets"].has_nulls()
    host = pl.col("link").is_in(
        packet.tables["links"].filter(pl.col("from_node") | pl.col("to_node"))["link"].implode()
    )
    total = [
        run.tables["truth"].filter(host).group_by("link").agg(pl.col("bytes").sum()).sort("link")
        for run in (again, packet)
    ]
    np.testing.assert_allclose(total[0]["bytes"], total[1]["bytes"], atol=2)
    assert total[0]["link"].equals(total[1]["link"])


def test_windows_cover_the_run_within_capacity() -> None:
    run = simulate_fluid(prepared())
    windows, truth = run.tables["windows"], run.tables["truth"]
    assert 64 <= windows.height <= 128
    assert int(windows["end_ps"][-1]) == run.summary["end_ps"]
    length = int(windows["end_ps"][0] - windows["start_ps"][0])
    inner = truth.join(run.tables["links"], on="link").filter(~pl.col("from_node"))
    assert int(inner["busy_ps"].max()) <= length * 1.0001
    assert truth["window"].max() < windows.height  # type: ignore[operator]


@pytest.mark.parametrize(
    ("routing", "fabric", "paths", "within"),
    [
        ("adaptive", {"fat_tree": TREE}, "pooled", 0.1),
        ("deterministic", {"fat_tree": TREE}, "deterministic", 0.1),
        ("vc", {"fat_tree": TREE}, "least-flows", 0.3),
        ("adaptive", {"topology": TORUS}, "split", 0.2),
        ("random", {"topology": TORUS}, "spread", 0.2),
        ("adaptive", {"topology": TORUS, "routes": "up-down"}, "split", 0.2),
        (
            "adaptive",
            {"topology": {"kind": "modified-k-ary-n-tree", "k": 4, "n": 2, "width": 1}},
            "split",
            0.4,
        ),
        (
            "adaptive",
            {
                "topology": {
                    "kind": "dragonfly",
                    "nodes_per_router": 2,
                    "routers": 2,
                    "global_ports": 1,
                    "groups": 3,
                },
                "routes": "ugal",
            },
            "split",
            0.4,
        ),
    ],
)
def test_fluid_is_near_packets_without_queues(
    routing: str, fabric: dict[str, Any], paths: str, within: float
) -> None:
    """Two permutations on several networks; trunks come nearer to packets than parts of flows."""
    ranks = 12 if "dragonfly" in str(fabric) else 16
    pattern = {"kind": "permutation", "ranks": ranks, "size": "1 MiB", "messages": 2}
    engine = {"eager": "1 GiB", "routing": routing}
    case = prepare(parse({"fabric": fabric, "engine": engine, "job": [{"pattern": pattern}]}))
    routes = routes_for(case.scenario, case.fabric, case.slots().tolist())
    assert path_choice(routing, case.fabric, routes) == paths
    fluid, packet = simulate_fluid(case), simulate(case)
    assert fluid.elapsed_ps == pytest.approx(packet.elapsed_ps, rel=within)


def test_one_message_takes_what_the_packet_engine_says() -> None:
    """No choice, no contention: software, wire and path, to a packet's time."""
    pattern = {"kind": "ring", "ranks": 2, "size": "64 KiB"}
    case = prepare(
        parse(
            {
                "fabric": {"fat_tree": TREE},
                "job": [{"pattern": pattern}],
                "engine": {"eager": "1 MiB"},
            }
        )
    )
    exact = simulate_fluid(case, FluidOptions(quantum_ps=0))
    assert exact.elapsed_ps == pytest.approx(simulate(case).elapsed_ps, abs=4096 * 80)


def test_the_first_buffer_lets_an_adapter_go_on() -> None:
    """Slow leaves, fast hosts: with buffers the adapter is free long before the way is."""
    case = prepared(size="32 KiB")
    ahead = simulate_fluid(case)
    bare = simulate_fluid(case, FluidOptions(first_buffer=False))
    assert ahead.elapsed_ps <= bare.elapsed_ps
    sent = ahead.tables["messages"]["start_ps"].sum()
    assert sent < bare.tables["messages"]["start_ps"].sum()


def test_forwarding_tables_fix_fluid_paths(tmp_path: Path) -> None:
    """Leaves whose tables use one of two up-links take twice the time, as with packets."""
    job = {"pattern": {"kind": "alltoall", "ranks": 16, "size": "64 KiB"}}
    spread = prepare(parse({"fabric": {"fat_tree": TREE}, "job": [job]}))
    tables = write_clumped(tmp_path, spread.fabric)
    case = prepare(parse({"fabric": tables, "job": [job]}))
    evaluate = make_fluid_evaluate(case)
    now = evaluate(Change()).elapsed_ps
    assert now == pytest.approx(make_evaluate(case)(Change()).elapsed_ps, rel=0.1)
    assert now > 1.7 * evaluate(Change(routing="adaptive")).elapsed_ps


def test_assigned_rates_and_seeds() -> None:
    case = prepared()
    assigned = simulate_fluid(case, FluidOptions(rates="assignment"))
    assert assigned.summary["rates"] == "assignment"
    assert assigned.elapsed_ps >= 0.9 * simulate_fluid(case).elapsed_ps
    chosen = FluidOptions(paths="random")
    evaluate = make_fluid_evaluate(case, chosen)
    first, same, other = (evaluate(Change(seed_offset=n)).elapsed_ps for n in (0, 0, 3))
    assert first == same
    assert first != other


def test_what_if_in_the_fluid_model() -> None:
    """A star is not slower than the tree; a network without contention is refused."""
    evaluate = make_fluid_evaluate(prepared())
    here, star = evaluate(Change()), evaluate(Change(network="star"))
    assert star.elapsed_ps <= here.elapsed_ps
    assert here.tables["truth"].height == 0
    with pytest.raises(ScenarioError, match="no network without contention"):
        evaluate(Change(network="no-contention"))


SCENARIO = """
name = "small"
[fabric.fat_tree]
hosts_per_leaf = 4
leaves = 4
aggregation = 2
[[job]]
[job.pattern]
kind = "stencil2d"
dims = [4, 4]
size = "64 KiB"
"""


@pytest.mark.slow
def test_the_commands_tell_the_models_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Simulate says which model; compare sets them side by side; report refuses and says why."""
    source = tmp_path / "small.toml"
    source.write_text(SCENARIO)
    fluid, packet = tmp_path / "fluid", tmp_path / "packet"
    assert tailback(["simulate", str(source), "--model", "fluid", "--out", str(fluid)]) == 0
    out = capsys.readouterr().out
    assert "fluid: max-min rates, pooled paths; an estimate" in out
    assert "not known to this model" in out
    assert tailback(["simulate", str(source), "--out", str(packet)]) == 0
    assert "packet engine" in capsys.readouterr().out
    assert tailback(["compare", str(fluid), str(packet)]) == 0
    out = capsys.readouterr().out
    assert "before  fluid" in out
    assert "after   packet engine" in out
    assert tailback(["compare", str(fluid), str(packet), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["models"] == ["fluid", "packet"]
    assert facts["congested_hop_fraction"][0] is None
    assert facts["congested_hop_fraction"][1] is not None
    for form in ("pcap", "counts"):
        assert tailback(["export", form, str(fluid), str(tmp_path / "out")]) == 2
        assert "a run of the fluid model has no" in capsys.readouterr().err
    assert tailback(["report", str(fluid)]) == 2
    complaint = capsys.readouterr().err
    assert "fluid model" in complaint
    assert "tailback diagnose" in complaint
    # Diagnosing the folder takes its scenario and simulates packets.
    code = tailback(["diagnose", str(fluid), "--out", str(tmp_path / "d"), "--seeds", "1"])
    assert code in (0, 3)
    assert "model" not in Run.read(tmp_path / "d" / "run").summary


def test_counters_of_a_fluid_run_are_refused() -> None:
    """No stall time is known: a table of counters would say there was none."""
    from tailback.port_counters.readers.engine_run import from_run

    with pytest.raises(RunError, match="fluid model"):
        from_run(simulate_fluid(prepared()))


def test_settings_that_the_model_leaves_out_are_noted() -> None:
    def notes(**engine: Any) -> str:
        job = {"pattern": {"kind": "ring", "ranks": 8, "size": "64 KiB"}}
        data = {"fabric": {"fat_tree": TREE}, "job": [job], "engine": engine}
        return " ".join(simulate_fluid(prepare(parse(data))).notes)

    assert "ignores these keys" not in notes()
    assert "ignores these keys of [engine]: lane_weights, crossbar_speedup" in notes(
        services=2, lane_weights=["12 KiB", "4 KiB"], crossbar_speedup=1.0
    )
    assert "keys of [engine]: congestion_control" in notes(
        injection="per-destination", congestion_control={}
    )
