"""Every kind of remedy, proposed, estimated by the fluid model and proved packet by packet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tailback as tb
from tailback.api.candidates import make_candidates
from tailback.cli import run as tailback
from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.model import Candidate, Status
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.errors import ScenarioError
from tailback.evaluate import Change
from tailback.placement import place
from tailback.placement.variant import HostChoice, PlacementVariant
from tailback.remedy import REMEDIES, Proposal, RemedyContext, find_remedy, recommend
from tailback.remedy.optimiser import CHEAP_EVENTS, combine_changes
from tailback.remedy.proof import _simpler_than_best
from tailback.remedy.rate_control import worth_proving
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import (
    FluidOptions,
    make_evaluate,
    make_fluid_evaluate,
    other_rules,
    prepare,
    simulate,
)
from tailback.traffic.program import Op
from tests.factories.diagnosis_runs import endpoint_run, other_run, placement_run

TREE = {"hosts_per_leaf": 8, "leaves": 4, "aggregation": 8}


def half(first: int) -> str:
    """Four hosts of each of eight leaves."""
    return ",".join(f"{8 * leaf + first}-{8 * leaf + first + 3}" for leaf in range(8))


CONTENDED: dict[str, Any] = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 8, "leaves": 8, "aggregation": 4}},
    "job": [
        {
            "hosts": half(0),
            "placement": "round-robin",
            "pattern": {
                "kind": "ring",
                "ranks": 32,
                "messages": 3,
                "size": "128 KiB",
                "post": "sequence",
            },
        },
        {
            "hosts": half(4),
            "observed": False,
            "name": "other",
            "pattern": {
                "kind": "uniform",
                "ranks": 32,
                "messages": 12,
                "size": "128 KiB",
                "post": "sequence",
            },
        },
    ],
    "engine": {"eager": "1 MiB", "packet": "2 KiB", "buffer": "16 KiB"},
}
"""A ring beside random traffic whose full buffers block it: half of each leaf is theirs."""


def toml(value: Any) -> str:
    """A value of a scenario as TOML writes it, tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def diagnosed(
    folder: Path, scenario: dict[str, Any], capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[dict[str, Any], str]:
    """What ``tailback diagnose`` writes and prints."""
    file = folder / "case.toml"
    file.write_text("\n".join(f"{key} = {toml(value)}" for key, value in scenario.items()))
    out = folder / "out"
    command = ["diagnose", str(file), "--out", str(out), "--seeds", "1", "--quiet", "-v", *options]
    assert tailback(command) in (0, 3)
    return json.loads((out / "diagnosis.json").read_text()), capsys.readouterr().out


def reduction(kind: str, ranks: int, arrays: int) -> dict[str, Any]:
    """A scenario in which arrays of all ranks are added up on one."""
    pattern = {"kind": kind, "ranks": ranks, "arrays": arrays}
    return {"fabric": {"fat_tree": TREE}, "job": [{"pattern": pattern}]}


def candidates(diagnosis: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in diagnosis["remedy"]["candidates"]}


def test_a_loop_to_one_rank_becomes_a_tree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = reduction("reduce-naive", 32, 20)
    diagnosis, text = diagnosed(tmp_path, scenario, capsys, "--method", "block")
    remedy, tried = diagnosis["remedy"], candidates(diagnosis)
    assert diagnosis["cause"] == "pattern" and remedy["name"] == "tree-reduce"
    # The proof is what the same reduction by MPI_Reduce takes.
    tree = reduction("reduce-tree", 32, 20)
    assert remedy["after_ps"] == simulate(prepare(parse(tree))).elapsed_ps
    action, _, assumption = remedy["actions"]
    assert remedy["gain"] > 0.5 and "'reduce'" in action
    assert "MPI_Reduce" in action and "combined" in assumption
    assert tried["tree-reduce"]["estimate_ps"] == pytest.approx(remedy["after_ps"], rel=0.5)
    assert tried["pairwise-alltoall"]["status"] == "not-applicable"
    assert "by fluid" in text and "by packets" in text and "gain" in text
    page = (tmp_path / "out" / "report.html").read_text()
    assert "tree-reduce" in page and "fluid model" in page


def test_a_loop_that_all_begin_alike_is_rotated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern = {"kind": "alltoall-naive", "ranks": 32, "size": "16 KiB"}
    scenario = {"fabric": {"fat_tree": TREE}, "job": [{"pattern": pattern}]}
    diagnosis, _ = diagnosed(tmp_path, scenario, capsys, "--method", "block", "--remedy", "pattern")
    tried = candidates(diagnosis)
    assert diagnosis["remedy"]["name"] in ("rotated-order", "pairwise-alltoall")
    for name in ("rotated-order", "pairwise-alltoall"):
        assert tried[name]["kind"] == "pattern" and tried[name]["status"] == "proved"
        assert tried[name]["elapsed_ps"] < 0.75 * diagnosis["remedy"]["before_ps"]
    assert not {"max-min-rates", "adaptive-routing"} & set(tried)
    # And the rule advises what is proved, not a reduction.
    assert "different partner" in next(f["advice"] for f in diagnosis["findings"])


GHOST: dict[str, Any] = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 4}},
    "job": [
        {
            "ranks_per_host": 6,
            "placement": "tile",
            "pattern": {
                "kind": "minighost",
                "dims": [6, 4, 4],
                "cells": [60, 60, 60],
                "variables": 5,
            },
        }
    ],
    "engine": {"eager": "1 GiB"},
}
EDGES: dict[str, Any] = {
    "fabric": {"fat_tree": {**TREE, "leaves": 8}},
    "job": [
        {"pattern": {"kind": "stencil2d", "dims": [8, 8], "size": "256 KiB", "boundary": "skip"}}
    ],
}


@pytest.mark.parametrize(
    ("scenario", "name", "says"),
    [
        pytest.param(GHOST, "small-phases", "in 4 parts", id="miniGhost"),
        pytest.param(EDGES, "synchronised-phases", "MPI_Barrier before the next", id="edges"),
    ],
)
def test_phases_that_ranks_drift_into_are_kept_apart(
    scenario: dict[str, Any],
    name: str,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A boundary with less to send runs ahead: shorter phases, or a barrier between them."""
    place = scenario["job"][0].get("placement", "block")
    diagnosis, _ = diagnosed(tmp_path, scenario, capsys, "--method", place, "--remedy", "pattern")
    tried = candidates(diagnosis)
    assert diagnosis["chances"]["pattern"] > 0.5
    text = " ".join(diagnosis["remedy"]["actions"])
    # It is the remedy if it also gains with other settings of the engine.
    is_sure = tried[name]["gain_low"] > 0
    assert (diagnosis["remedy"]["name"] == name) is is_sure is ("Uncertain" not in text)
    assert tried[name]["gain_high"] > 0.1 and says in text
    assert tried[name]["estimate_ps"] > 0
    # Its name, its time by both models and its gain are in the report as well.
    page = (tmp_path / "out" / "report.html").read_text()
    assert name in page and ("Recommended." in page) is is_sure


@pytest.mark.slow
def test_adaptive_and_vc_routing_are_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern = {"kind": "permutation", "ranks": 64, "size": "128 KiB"}
    scenario = {
        "fabric": {"fat_tree": {**TREE, "leaves": 8}},
        "job": [{"pattern": pattern}],
        "engine": {"routing": "deterministic"},
    }
    diagnosis, _ = diagnosed(tmp_path, scenario, capsys, "--method", "block")
    tried = candidates(diagnosis)
    assert diagnosis["chances"]["routing"] > 0.5
    assert diagnosis["remedy"]["name"] == "adaptive-routing"
    assert diagnosis["remedy"]["gain"] > 0.2
    assert tried["adaptive-routing"]["elapsed_ps"] < tried["vc-routing"]["elapsed_ps"]
    assert tried["vc-routing"]["elapsed_ps"] < tried["block"]["elapsed_ps"]
    assert tried["max-min-rates"]["elapsed_ps"] > tried["adaptive-routing"]["elapsed_ps"]


def test_a_dragonfly_that_routes_minimally_may_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minimal routes lack capacity, and detours have some of it."""
    topology = {
        "kind": "dragonfly",
        "nodes_per_router": 2,
        "routers": 4,
        "global_ports": 1,
        "groups": 5,
    }
    pattern = {"kind": "permutation", "ranks": 40, "size": "256 KiB"}
    scenario: dict[str, Any] = {"fabric": {"topology": topology}, "job": [{"pattern": pattern}]}
    assert set(other_rules(parse(scenario))) == {"valiant", "ugal"}
    diagnosis, _ = diagnosed(tmp_path, scenario, capsys, "--method", "block")
    bar = next(bar for bar in diagnosis["waterfall"] if bar["name"] == "routing")
    assert bar["delta_ps"] == 0 and "spreads the traffic better" in bar["meaning"]
    share = next(share for share in diagnosis["shares"] if share["cause"] == "routing")
    assert share["charged"] == 0 and share["removed"] > 0.1
    assert diagnosis["chances"]["capacity"] == pytest.approx(diagnosis["chances"]["placement"])
    assert "-routes saves most" in diagnosis["headline"]
    tried = candidates(diagnosis)
    assert diagnosis["remedy"]["name"] in ("valiant-routes", "ugal-routes")
    assert tried[diagnosis["remedy"]["name"]]["elapsed_ps"] < 0.9 * diagnosis["remedy"]["before_ps"]


@pytest.mark.parametrize("rule", ["valiant", "ugal"])
def test_even_spreading_is_advised_beside_detours(rule: str) -> None:
    """A neighbour exchange that the routes send round by other groups: that is routing's fault."""
    topology = {
        "kind": "dragonfly",
        "nodes_per_router": 2,
        "routers": 4,
        "global_ports": 1,
        "groups": 5,
    }
    prepared = prepare(
        parse(
            {
                "fabric": {"topology": topology, "routes": rule},
                "job": [
                    {"pattern": {"kind": "ring", "ranks": 40, "size": "256 KiB", "messages": 2}}
                ],
                "engine": {"buffer": "16 KiB"},
            }
        )
    )
    rules = other_rules(prepared.scenario)
    assert rule not in rules and "minimal" in rules and len(rules) == 2
    run, evaluate = simulate(prepared), make_evaluate(prepared)
    without = diagnose_cause(run, evaluate, seeds=1)
    routing = next(bar for bar in without.waterfall if bar.name == "routing")
    assert routing.delta_ps == 0 and "spreads the traffic better" in routing.meaning
    asked = diagnose_cause(run, evaluate, rules=rules, seeds=1)
    bars = {bar.name: bar for bar in asked.waterfall}
    quickest = min(
        evaluate(Change(network="healthy", routing="adaptive", rule=r, background=False)).elapsed_ps
        for r in rules
    )
    if quickest < 0.98 * run.elapsed_ps:
        assert bars["placement"].elapsed_ps == quickest
        assert bars["routing"].delta_ps == run.elapsed_ps - quickest
        share = next(share for share in asked.shares if share.cause == "routing")
        assert share.removed is not None and share.removed > 0.01
    else:
        assert bars["routing"].delta_ps == 0


def test_rates_are_proved_by_packets_that_keep_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Congestion that spreads: full buffers of another job block our ring."""
    diagnosis, text = diagnosed(tmp_path, CONTENDED, capsys, "--method", "round-robin")
    remedy, tried = diagnosis["remedy"], candidates(diagnosis)
    assert diagnosis["cause"] == "other-traffic"
    assert remedy["name"] in ("max-min-rates", "assigned-rates")
    assert remedy["gain"] > 0.4 and remedy["placement"] == ""
    rates = tried["max-min-rates"]
    assert 0 < rates["estimate_ps"] < rates["elapsed_ps"]
    assert 'kind = "elastic", rates = "max-min"' in rates["action"]
    assert "all adapters in the network" in rates["assumes"]
    assert len(remedy["avoid"]) > 0 and all("→" in name for name in remedy["avoid"])
    assert "max-min-rates" in text


def test_rates_are_not_tried_where_they_cannot_win() -> None:
    """Nothing that only prevents contention is faster than the run without any."""
    prepared = prepare(parse(CONTENDED | {"telemetry": {"messages": True}}))
    run, evaluate = simulate(prepared), make_evaluate(prepared)
    diagnosis = diagnose_cause(run, evaluate)
    for floor_ps, status in ((1, Status.PROVED), (run.elapsed_ps, Status.RULED_OUT)):
        context = RemedyContext(evaluate, kinds=frozenset({"rate-control"}), floor_ps=floor_ps)
        tried = find_remedy(run, diagnosis, context, seeds=1).candidates
        rates = [attempt for attempt in tried if attempt.kind == "rate-control"]
        assert len(rates) == 2
        assert {attempt.status for attempt in rates} == {status}
    assert "even without contention" in rates[0].reason


@pytest.mark.parametrize(
    ("kind", "routing"),
    [
        ("rate-control", "adaptive"),
        pytest.param("routing", "deterministic", marks=pytest.mark.slow),
    ],
)
def test_scenario_of_a_remedy_gives_its_run(tmp_path: Path, kind: str, routing: str) -> None:
    """Whoever writes the keys of ``after/scenario.json`` gets the time that the remedy claims."""
    network = {**CONTENDED, "engine": {**CONTENDED["engine"], "routing": routing}}
    diagnosis = tb.diagnose(network, methods=["round-robin"], remedies=[kind], seeds=1)
    assert diagnosis.remedy.name and diagnosis.after is not None
    diagnosis.write(tmp_path / "out")
    data = json.loads((tmp_path / "out" / "after" / "scenario.json").read_text())
    assert tb.simulate(data).elapsed_ps == diagnosis.after.elapsed_ps
    # The remedy states the mean of three repetitions.
    assert diagnosis.after.elapsed_ps == pytest.approx(diagnosis.remedy.after_ps, rel=0.05)
    assert diagnosis.after.elapsed_ps < diagnosis.remedy.before_ps


def test_rates_are_not_proposed_for_coarse_packets() -> None:
    """No scenario states both."""
    run = placement_run()
    engine = run.scenario.engine.model_copy(update={"coarse": 1 << 16})
    coarse = replace(run, scenario=run.scenario.model_copy(update={"engine": engine}))
    means = RemedyContext(lambda change: run)
    assert REMEDIES["rate-control"](coarse, diagnose_cause(run), means) == []


def test_a_rate_covers_messages_between_two_nodes() -> None:
    """Four ranks of a node send to four of another: one line, which their rates fill together."""
    prepared = prepare(
        parse(
            {
                "fabric": {"fat_tree": TREE},
                "engine": {"eager": "1 GiB"},
                "job": [
                    {
                        "ranks_per_host": 4,
                        "pattern": {
                            "kind": "stencil2d",
                            "dims": [4, 2],
                            "size": "256 KiB",
                            "order": ["+y"],
                        },
                    }
                ],
            }
        )
    )
    evaluate = make_evaluate(prepared)
    for rates in ("max-min", "assigned"):
        assert evaluate(Change(rates=rates)).elapsed_ps < 1.1 * evaluate(Change()).elapsed_ps


def test_rates_are_not_proposed_over_stated_ones() -> None:
    run = placement_run()
    means = RemedyContext(lambda change: run)
    assert len(REMEDIES["rate-control"](run, diagnose_cause(run), means)) == 2
    pacing = run.scenario.engine.pacing.model_copy(update={"rates": "max-min"})
    engine = run.scenario.engine.model_copy(update={"pacing": pacing})
    stated = replace(run, scenario=run.scenario.model_copy(update={"engine": engine}))
    assert REMEDIES["rate-control"](stated, diagnose_cause(run), means) == []


def test_buffers_account_for_losses_beyond_model_error() -> None:
    assert worth_proving(1000, 700)
    assert not worth_proving(1000, 900)


def test_every_kind_of_remedy_is_registered() -> None:
    kinds = ["collectives", "pattern", "placement", "rate-control", "repair", "routing"]
    assert REMEDIES.names() == kinds


def evaluator(run: Run, times: dict[str, int], asked: list[Change]) -> Any:
    """Answers by what is changed: placement, program, routing or rates."""

    def evaluate(change: Change) -> Run:
        asked.append(change)
        key = "+".join(
            name
            for name in ("placement", "program", "routing", "rates")
            if getattr(change, name) is not None
        )
        return Run(run.scenario, run.tables, {**run.summary, "elapsed_ps": times[key or "now"]})

    return evaluate


def test_two_kinds_that_help_are_proved_together() -> None:
    run, asked = endpoint_run(), list[Change]()
    times = {
        "now": 100,
        "placement": 80,
        "program": 60,
        "placement+program": 40,
        "routing": 99,
        "rates": 99,
    }
    ranks = run.tables["ranks"].height
    program = prepare(
        parse(
            {
                "fabric": {"preset": "full"},
                "job": [{"pattern": {"kind": "reduce-naive", "ranks": ranks, "arrays": 2}}],
            }
        )
    ).observed.program
    means = RemedyContext(
        evaluator(run, times, asked),
        placements={"tile": np.arange(ranks, dtype=np.uint32)},
        program=program,
        kinds=frozenset({"placement", "pattern"}),
    )
    diagnosis = find_remedy(run, diagnose_cause(run), means, seeds=1)
    assert diagnosis.remedy is not None
    change = diagnosis.change(diagnosis.remedy)
    assert change is not None
    assert diagnosis.remedy.parts[0] == "tile" and len(diagnosis.remedy.parts) == 2
    assert (
        diagnosis.remedy.name == " + ".join(diagnosis.remedy.parts)
        and diagnosis.remedy.placement == "tile"
    )
    assert diagnosis.remedy.gain == pytest.approx(0.6)
    assert change.placement is not None and change.program is not None
    # Not much better than the better of the two: each alone is told.
    times["placement+program"] = 60
    alone = find_remedy(run, diagnose_cause(run), means, seeds=1).remedy
    assert alone is not None and alone.parts == (alone.name,) and alone.after_ps == 60
    assert "Meanwhile use placement tile" in alone.action


def candidate(name: str, kind: Any, time: int) -> Candidate:
    return Candidate(
        name=name, kind=kind, action=f"Do {name}.", elapsed_ps=time, low_ps=time, high_ps=time
    )


@pytest.mark.parametrize(
    ("variant", "name", "explained"),
    [
        (PlacementVariant("tile"), "tile", ""),
        (PlacementVariant("shift"), "shift", "the same nodes, ranks shifted"),
        (PlacementVariant("tile", HostChoice.FEWEST_SWITCHES), "tile-compact", "on allowed hosts"),
        (
            PlacementVariant("shift", HostChoice.AWAY_FROM_CONGESTION),
            "shift-keep-off",
            "not under congested switches",
        ),
        (PlacementVariant("tile", recomputed=True), "tile-again", "recomputed with default"),
    ],
)
def test_a_placement_is_explained_by_its_making(
    variant: PlacementVariant, name: str, explained: str
) -> None:
    assert variant.name == name
    run, before = placement_run(), candidate("block", "placement", 100)
    for called in (name, "anything-compact"):
        made = candidate(called, "placement", 70).model_copy(update={"variant": variant})
        remedy = recommend(run, diagnose_cause(run), [made, before])
        assert remedy is not None
        words = remedy.action.partition(f"{called} (")[2].partition(")")[0]
        assert (explained in words) if explained else not words
    unknown = recommend(run, diagnose_cause(run), [candidate("x-compact", "placement", 70), before])
    assert unknown is not None and "x-compact instead of block" in unknown.action
    written = Candidate.model_validate_json(made.model_dump_json())
    assert written.variant == variant
    # A file of an older version has the name only.
    assert Candidate.model_validate({"name": name, "elapsed_ps": 70}).variant is None


def test_user_remedies_come_before_operator_remedies() -> None:
    run = placement_run()
    now, tile = candidate("block", "placement", 100), candidate("tile", "placement", 70)
    rates = candidate("max-min-rates", "rate-control", 50)
    remedy = recommend(run, diagnose_cause(run), [rates, tile, now])
    assert remedy is not None and remedy.name == remedy.placement == "tile"
    assert "operators could use max-min-rates" in remedy.action
    only = recommend(run, diagnose_cause(run), [rates, now])
    assert only is not None and only.name == "max-min-rates" and only.placement == ""
    assert only.after_ps == 50 and "Do max-min-rates." in only.action


def test_links_to_avoid_are_named_as_causes_only() -> None:
    others, ours = other_run(), placement_run()
    remedy = recommend(others, diagnose_cause(others), [])
    assert remedy is not None and remedy.avoid
    mine = recommend(ours, diagnose_cause(ours), [candidate("block", "placement", 100)])
    assert mine is not None and mine.avoid == []


def test_estimates_leave_out_losers_and_say_so() -> None:
    run = placement_run(routing="deterministic")
    run = replace(run, summary={**run.summary, "events": CHEAP_EVENTS})
    times = {"now": 100, "routing": 40, "rates": 40, "placement": 40}
    slow = {"now": 100, "routing": 130, "rates": run.elapsed_ps, "placement": 100}
    asked: list[Change] = []
    means = RemedyContext(evaluator(run, times, asked), evaluator(run, slow, []), {}, {"tile": 7})
    remedy = find_remedy(run, diagnose_cause(run), means, seeds=1).remedy
    assert remedy is not None
    out = {c.name: c for c in remedy.candidates if not c.proved}
    assert set(out) == {"adaptive-routing", "vc-routing", "max-min-rates", "assigned-rates"}
    assert "30 % more than without it" in out["vc-routing"].reason
    assert all(c.status is Status.RULED_OUT and c.estimate_ps for c in out.values())
    assert all(c.routing is None and c.rates is None for c in asked)


def test_changes_of_different_things_add_up() -> None:
    tiled = Change(placement=np.zeros(2, np.uint32), placement_name="tile")
    rerouted = Change(routing="vc", rule="ugal")
    both = combine_changes([tiled, rerouted])
    assert both.placement is tiled.placement and both.placement_name == "tile"
    assert (both.routing, both.rule, both.background) == ("vc", "ugal", True)


def test_the_fluid_model_answers_the_same_changes() -> None:
    scenario = parse(
        {
            "fabric": {"fat_tree": TREE},
            "engine": {"routing": "deterministic"},
            "job": [{"pattern": {"kind": "permutation", "ranks": 32, "size": "256 KiB"}}],
        }
    )
    prepared = prepare(scenario)
    quick = make_fluid_evaluate(prepared, FluidOptions(windows=0))
    packets = make_evaluate(prepared)
    for change in (Change(), Change(routing="vc"), Change(routing="adaptive")):
        assert quick(change).elapsed_ps == pytest.approx(packets(change).elapsed_ps, rel=0.35)
    with pytest.raises(ScenarioError):
        quick(Change(network="no-contention"))
    # Another program of the job is what is simulated.
    half_size = prepared.observed.program
    amount = half_size.amount.copy()
    amount[half_size.kind != Op.COMPUTE] //= 2
    shorter = Change(program=replace(half_size, amount=amount))
    for evaluate in (quick, packets):
        assert evaluate(shorter).elapsed_ps < 0.7 * evaluate(Change()).elapsed_ps


def test_an_idea_says_what_it_is() -> None:
    for entry in REMEDIES:
        assert entry.summary
    assert Proposal("routing", "x").not_applicable == ""


def test_the_run_with_the_remedy_is_no_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its scenario is the one without: diagnosed, it would be judged as before."""
    scenario = reduction("reduce-naive", 16, 5)
    before, _ = diagnosed(tmp_path, scenario, capsys, "--method", "block")
    out = tmp_path / "out"
    assert before["remedy"]["name"] == "tree-reduce"
    for command in (["diagnose", "--out", str(tmp_path / "again")], ["place"]):
        assert tailback([*command, str(out / "after"), "--quiet"]) == 2
        error = capsys.readouterr().err
        assert "after: is the run with remedy 'tree-reduce'" in error and "remedy" in error
    assert tailback(["compare", str(out / "run"), str(out / "after")]) == 0
    # A diagnosis stands for the run it is of.
    again = ["diagnose", str(out), "--out", str(tmp_path / "again"), "--seeds", "1", "--quiet"]
    assert tailback([*again, "--method", "block"]) == 0
    assert json.loads((tmp_path / "again" / "diagnosis.json").read_text()) == before


def test_an_unavailable_request_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = {"kind": "ring", "ranks": 8, "messages": 2, "size": "64 KiB"}
    scenario = {
        "fabric": {"fat_tree": TREE},
        "job": [
            {"name": name, "hosts": hosts, "pattern": ring}
            for name, hosts in (("mine", "0-7"), ("too", "8-15"))
        ],
    }
    diagnosis, text = diagnosed(tmp_path, scenario, capsys, "--method", "tile", "--method", "file")
    assert any(each.startswith("--method file: ") for each in diagnosis["warnings"])
    several = [each for each in diagnosis["warnings"] if each.startswith("2 jobs are observed")]
    assert len(several) == 1 and "'mine'" in several[0] and "2 jobs are observed" in text
    scenario["job"] = scenario["job"][:1]
    (tmp_path / "one").mkdir()
    alone, _ = diagnosed(tmp_path / "one", scenario, capsys, "--method", "tile")
    assert not alone["warnings"]


@pytest.mark.parametrize(
    ("placement", "options"),
    [("incremental", {}), ("shift", {"by": 3}), ("tile", {"tile": [1, 8]})],
)
def test_the_placement_in_use_is_kept_and_rebuilt(placement: str, options: dict[str, Any]) -> None:
    """Under its own name it would neither be as it is nor be proved."""
    pattern = {"kind": "stencil2d", "dims": [4, 8], "size": "128 KiB", "rounds": 2}
    tree = {"hosts_per_leaf": 8, "leaves": 6, "aggregation": 1}
    job = {
        "placement": placement,
        "placement_options": options,
        "pattern": pattern,
        "hosts": "3-7,8-15,16-23,24-31,32-47",
    }
    prepared = prepare(parse({"fabric": {"fat_tree": tree}, "job": [job]}))
    made, _ = make_candidates(prepared, [placement], simulate(prepared), lambda *_: None)
    used = PlacementVariant(placement)
    assert np.array_equal(made[used], prepared.observed.node)
    anew = made.get(PlacementVariant(placement, recomputed=True))
    assert anew is not None and not np.array_equal(anew, made[used])


def test_hosts_of_congested_leaves_are_avoided() -> None:
    """Four hosts to spare: those of the leaf that the other job overruns are not used."""
    scenario = {
        **CONTENDED,
        "job": [
            {**CONTENDED["job"][0], "pattern": {**CONTENDED["job"][0]["pattern"], "ranks": 28}},
            CONTENDED["job"][1],
        ],
    }
    # Unless they are allowed, they stay as they are.
    alone = prepare(parse(scenario))
    run = simulate(alone)
    kept, _ = make_candidates(alone, ["block", "shift"], run, lambda *_: None)
    used = set(alone.observed.node.tolist())
    assert kept and all(set(node.tolist()) == used for node in kept.values())
    prepared = prepare(parse(scenario), half(0))
    made, errors = make_candidates(prepared, ["shift"], run, lambda *_: None)
    keep_off = PlacementVariant("shift", HostChoice.AWAY_FROM_CONGESTION)
    assert keep_off in made and keep_off not in kept and not errors
    fabric = prepared.fabric
    free = set(prepared.observed.problem.slot_node.tolist()) - set(made[keep_off].tolist())
    assert len(free) == 4
    links = (
        run.tables["truth"]
        .group_by("link")
        .agg(share=pl.col("observed_congested_packets").sum() / pl.col("observed_packets").sum())
    )
    into = dict(links.rows())
    leaf = {int(fabric.node_switch[node]) for node in free}
    down = np.flatnonzero(fabric.link_up == -1)
    inner = [e for e in down if fabric.link_dst[e] >= fabric.n_nodes]
    dark = [e for e in inner if int(fabric.link_dst[e]) - fabric.n_nodes in leaf]
    assert max(into.get(int(e), 0.0) or 0.0 for e in dark) >= 0.3
    # Without a run nothing is known to be congested.
    plain, _ = make_candidates(prepared, ["shift"], None, lambda *_: None)
    assert PlacementVariant("shift") in plain and keep_off not in plain


def test_waiting_before_the_start_is_not_counted() -> None:
    """Gains are shares of the job's own time, also where others run before it."""
    pattern = {"kind": "stencil2d", "dims": [4, 8], "size": "128 KiB", "rounds": 2}
    runs = []
    for start in ("0 ps", "10 ms"):
        job = {"placement": "round-robin-leaves", "pattern": pattern, "start": start}
        prepared = prepare(
            parse({"fabric": {"fat_tree": {**TREE, "aggregation": 2}}, "job": [job]})
        )
        runs.append((simulate(prepared), prepared))
    (at_once, _), (later, prepared) = runs
    assert later.summary["end_ps"] == at_once.summary["end_ps"] + 10 * 10**9
    assert later.elapsed_ps == at_once.elapsed_ps == later.summary["job_elapsed_ps"]["0"]
    busy = [RunAnalysis(run).communication_fraction for run in (at_once, later)]
    assert busy[0] == pytest.approx(busy[1]) and busy[0] > 0.9
    tile = place("tile", prepared.observed.problem)
    with_remedy = make_evaluate(prepared)(Change(placement=tile, placement_name="tile"))
    assert 1 - with_remedy.elapsed_ps / later.elapsed_ps > 0.2


def test_a_full_receiver_limits_the_run() -> None:
    """Twelve ranks send to one, which may need all of it: the order of the messages is no cost."""
    sizes = [200_000 + 4096 * rank for rank in range(1, 13)]
    messages = [[0, rank, 0, size] for rank, size in enumerate(sizes, 1)]
    scenario = {
        "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
        "job": [{"pattern": {"kind": "timed", "ranks": 13, "messages": messages}}],
    }
    diagnosis = tb.diagnose(scenario, methods=["block"], seeds=1).diagnosis
    assert diagnosis.cause == "injection" and "just to receive its data" in diagnosis.headline
    bars = {bar.name: bar for bar in diagnosis.waterfall}
    wire_ps = sum(sizes) * 8000 / 100
    assert bars["injection"].elapsed_ps >= wire_ps
    assert bars["pattern"].delta_ps < 0.02 * diagnosis.elapsed_ps
    assert diagnosis.remedy is not None and diagnosis.remedy.name == ""
    # Taking turns was simulated, and only that is said.
    assert "1 change simulated" in diagnosis.remedy.action
    assert "not simulated" not in diagnosis.remedy.action


def test_parts_as_fast_as_the_whole_are_compared() -> None:
    """The best change combines three; without one of them it is as fast."""
    now = candidate("block", "placement", 100)
    three = candidate("tile + early + rates", "combined", 80).model_copy(
        update={
            "parts": ("tile", "early", "rates"),
            "part_kinds": ("placement", "pattern", "rate-control"),
            "gain": 0.2,
            "gain_low": 0.1,
        }
    )
    pair = candidate("early + rates", "combined", 81).model_copy(
        update={"parts": ("early", "rates"), "part_kinds": ("pattern", "rate-control")}
    )
    slower, other = candidate("early", "pattern", 90), candidate("shift", "placement", 80)
    faster = [three, pair, slower, other]
    assert _simpler_than_best(faster, {three.name: three}, now) == [pair]
    assert _simpler_than_best(faster, {}, now) == []
