"""A diagnosis simulates nothing twice, whatever name the same question has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink
from tailback.scenario.model import parse
from tailback.simulation import evaluate as module
from tailback.simulation import make_evaluate, prepare, routes, simulate
from tailback.simulation.evaluate import make_simulation
from tailback.simulation.prepare import PreparedScenario
from tailback.simulation.run_cache import RunCache
from tests.factories.forwarding_tables import DISCOVERY, LEFT, RIGHT

TREE = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}


@pytest.fixture(scope="module")
def prepared() -> PreparedScenario:
    job = {"pattern": {"kind": "permutation", "ranks": 16, "size": "32 KiB", "messages": 2}}
    degraded = [{"cable": "leaf0[5]", "rate": "10 Gb/s"}]
    return prepare(parse({"fabric": {"fat_tree": TREE, "degraded": degraded}, "job": [job]}))


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of every simulation that really ran."""
    out: list[dict[str, Any]] = []
    real = module.execute

    def counted(*args: Any, **options: Any) -> Any:
        out.append(options)
        return real(*args, **options)

    monkeypatch.setattr(module, "execute", counted)
    return out


def test_a_renamed_question_is_answered_from_memory(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    run = simulate(prepared)
    evaluate = make_evaluate(prepared, simulated=[(Change(measure=True), run)])
    now = prepared.observed.node
    same = [
        Change(),
        Change(measure=True),
        Change(background=False),
        Change(routing="adaptive"),
        Change(placement=now.copy(), placement_name="by another name"),
        Change(program=prepared.observed.program),
    ]
    assert {evaluate(change).elapsed_ps for change in same} == {run.elapsed_ps}
    assert simulated == []


def test_other_questions_are_simulated(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    evaluate = make_evaluate(prepared, simulated=[(Change(measure=True), simulate(prepared))])
    back = np.ascontiguousarray(prepared.observed.node[::-1])
    others = [
        Change(network="healthy"),
        Change(network="star"),
        Change(network="instant"),
        Change(placement=back),
        Change(routing="deterministic"),
        Change(seed_offset=1),
        Change(limits=((20, 5.0),)),
        Change(computations=True),
    ]
    kept = [evaluate(change) for change in others]
    assert len(simulated) == len(others)
    alone = [make_evaluate(prepared)(change) for change in others]
    assert [run.elapsed_ps for run in kept] == [run.elapsed_ps for run in alone]
    again = [evaluate(change) for change in others]
    assert len(simulated) == 2 * len(others)
    for first, other in zip(kept, again, strict=True):
        assert all(first.tables[name].equals(other.tables[name]) for name in first.tables)


def test_a_candidate_is_simulated_once(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    evaluate = make_evaluate(prepared)
    back = np.ascontiguousarray(prepared.observed.node[::-1])
    first = evaluate(Change(placement=back, routing="adaptive", background=False))
    proof = evaluate(Change(placement=back, measure=True))
    assert len(simulated) == 1
    assert proof.elapsed_ps == first.elapsed_ps and proof.tables["truth"].height
    alone = make_evaluate(prepared)(Change(placement=back, seed_offset=1))
    assert evaluate(Change(placement=back, seed_offset=1)).elapsed_ps == alone.elapsed_ps
    assert len(simulated) == 3


@pytest.mark.parametrize("network", ["star", "no-contention"])
def test_networks_without_choices_are_simulated_with_one_seed(
    network: Literal["star", "no-contention"],
    prepared: PreparedScenario,
    simulated: list[dict[str, Any]],
) -> None:
    evaluate = make_evaluate(prepared)
    seeds = [Change(network=network, seed_offset=seed) for seed in range(3)]
    times = {evaluate(change).elapsed_ps for change in seeds}
    assert len(simulated) == 1
    # Each seed simulated by itself gives the same time.
    alone = [make_evaluate(prepared)(change) for change in seeds]
    assert times == {run.elapsed_ps for run in alone}


def test_slow_cables_are_tried_once_and_forgotten(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    evaluate = make_evaluate(prepared)
    slow = Change(slow=(SlowLink(20, 5.0),))
    assert evaluate(slow).elapsed_ps == evaluate(slow).elapsed_ps
    assert len(simulated) == 2


def test_telemetry_changes_no_time(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    evaluate = make_evaluate(prepared)
    without = evaluate(Change(seed_offset=2))
    measured = evaluate(Change(seed_offset=2, measure=True))
    assert len(simulated) == 2
    assert without.elapsed_ps == measured.elapsed_ps
    assert without.tables["messages"].equals(measured.tables["messages"])
    assert not without.tables["samples"].height and measured.tables["samples"].height


def test_changing_an_answer_changes_no_other(prepared: PreparedScenario) -> None:
    evaluate = make_evaluate(prepared)
    evaluate(Change()).summary["remedy"] = "mine"
    assert "remedy" not in evaluate(Change()).summary


def test_the_oldest_run_is_forgotten_first(prepared: PreparedScenario) -> None:
    run = simulate(prepared)
    size = sum(int(table.estimated_size()) for table in run.tables.values())
    cache = RunCache(prepared, max_bytes=2 * size)
    changes = [replace(Change(measure=True), seed_offset=seed) for seed in range(3)]
    for change in changes:
        cache.keep(change, run)
    assert [cache.find(change) is not None for change in changes] == [False, True, True]


def test_equal_columns_of_runs_are_held_once(
    prepared: PreparedScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailback.simulation.run_cache.COMPARED_BYTES", 1)
    changes = [replace(Change(measure=True), seed_offset=seed) for seed in range(3)]
    runs = [make_evaluate(prepared)(change) for change in changes]
    sizes = [sum(int(table.estimated_size()) for table in run.tables.values()) for run in runs]
    times = ["post_ps", "start_ps", "arrival_ps"]
    assert not runs[0].tables["messages"].equals(runs[1].tables["messages"])
    same = runs[0].tables["messages"].drop(times)
    assert all(run.tables["messages"].drop(times).equals(same) for run in runs)
    # Room for two runs that share nothing, but for all three without the columns they share.
    assert sizes[0] + sizes[1] < sum(sizes) - 2 * int(same.estimated_size())
    cache = RunCache(prepared, max_bytes=sum(sizes) - 2 * int(same.estimated_size()))
    for change, run in zip(changes, runs, strict=True):
        cache.keep(change, run)
    for change, run in zip(changes, runs, strict=True):
        kept_run = cache.find(change)
        assert kept_run is not None
        assert all(kept_run.tables[name].equals(run.tables[name]) for name in run.tables)
    # Another run takes the room of the first alone, whose columns the others still use.
    cache.keep(replace(changes[0], seed_offset=9), runs[0])
    assert [cache.find(change) is not None for change in changes] == [False, True, True]


@pytest.fixture
def routed(tmp_path: Path) -> PreparedScenario:
    """Three ranks on a network with forwarding tables, whose packets have no choice."""
    (tmp_path / "fabric.txt").write_text(DISCOVERY)
    (tmp_path / "lfts.txt").write_text(LEFT + RIGHT)
    fabric = {"file": str(tmp_path / "fabric.txt"), "forwarding": str(tmp_path / "lfts.txt")}
    job = {"pattern": {"kind": "alltoall", "ranks": 3, "size": "64 KiB"}}
    return prepare(parse({"fabric": fabric, "job": [job]}))


def test_d_mod_k_replaces_forwarding_tables(routed: PreparedScenario) -> None:
    change = Change(routing="deterministic", rule="up-down")
    bare = routed.scenario.fabric.model_copy(update={"forwarding": None})
    without = replace(routed, scenario=routed.scenario.model_copy(update={"fabric": bare}))
    runs = [
        make_evaluate(prepared)(asked).tables["messages"]
        for prepared, asked in ((routed, change), (without, Change(routing="deterministic")))
    ]
    assert runs[0].equals(runs[1])
    # Static routing alone keeps the tables.
    cache = RunCache(routed)
    assert cache.key(change) != cache.key(Change(routing="deterministic"))


def test_only_other_jobs_are_drawn_anew() -> None:
    pattern = {"kind": "uniform", "ranks": 8, "size": "32 KiB", "messages": 4}
    jobs = [
        {"hosts": "0-7", "pattern": pattern},
        {"hosts": "8-15", "pattern": pattern, "observed": False, "name": "others"},
    ]
    fabric = {"fat_tree": {"hosts_per_leaf": 8, "leaves": 2, "aggregation": 1}}
    prepared = prepare(parse({"fabric": fabric, "job": jobs}))
    drawn = prepared.with_other_draw(1)
    ours, others = (
        [np.array_equal(each.jobs[n].program.peer, prepared.jobs[n].program.peer) for n in (0, 1)]
        for each in (prepared, drawn)
    )
    assert ours == [True, True] and others == [True, False]
    cache, alone = RunCache(prepared), RunCache(prepare(parse({"fabric": fabric, "job": jobs[:1]})))
    assert cache.key(Change(others_draw=1)) != cache.key(Change())
    assert alone.key(Change(others_draw=1)) == alone.key(Change())


def test_repetitions_along_tables_are_simulated_once(
    routed: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    evaluate = make_evaluate(routed, simulated=[(Change(measure=True), simulate(routed))])
    program = replace(routed.observed.program, amount=routed.observed.program.amount * 2)
    changes = [
        replace(change, seed_offset=seed)
        for change in (Change(), Change(background=False), Change(program=program))
        for seed in range(3)
    ]
    runs = [evaluate(change) for change in changes]
    assert len(simulated) == 1
    for change, run in zip(changes, runs, strict=True):
        alone = make_simulation(routed)(change)
        assert run.elapsed_ps == alone.elapsed_ps
        assert run.tables["messages"].equals(alone.tables["messages"])
    # Other seeds draw other samples.
    before = len(simulated)
    drawn = [evaluate(Change(seed_offset=seed, measure=True)) for seed in (1, 2)]
    assert len(simulated) == before + 2
    assert not drawn[0].tables["samples"].equals(drawn[1].tables["samples"])


@pytest.mark.parametrize(
    ("engine", "change"),
    [
        ({}, Change(routing="adaptive")),
        ({"skip_repeats": True}, Change()),
        ({"injection": "per-destination", "congestion_control": {}}, Change()),
        ({}, Change(rates="max-min")),
    ],
)
def test_repetitions_that_draw_random_numbers_are_all_simulated(
    routed: PreparedScenario, engine: dict[str, Any], change: Change
) -> None:
    scenario = parse(
        {**routed.scenario.model_dump(mode="json", exclude_unset=True), "engine": engine}
    )
    cache = RunCache(prepare(scenario))
    cache.keep(change, simulate(routed))
    assert cache.find(change) is not None
    assert cache.find(replace(change, seed_offset=1)) is None


def test_a_record_of_computations_serves_requests_without(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    recorded = Change(network="healthy", background=False, computations=True, measure=True)
    run = make_simulation(prepared)(recorded)
    evaluate = make_evaluate(prepared, simulated=[(recorded, run)])
    simulated.clear()
    assert evaluate(Change(network="healthy")).elapsed_ps == run.elapsed_ps
    assert not simulated
    healthy = make_evaluate(prepared)(Change(network="healthy"))
    assert all(
        healthy.tables[name].equals(run.tables[name]) for name in ("messages", "ranks", "jobs")
    )


def test_tables_are_converted_once_for_all_rates(
    routed: PreparedScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted = []
    real = routes.forwarding

    def counted(*arguments: Any) -> Any:
        converted.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(routes, "forwarding", counted)
    routes._FORWARDED.clear()
    evaluate = make_evaluate(routed)
    for link in range(3):
        evaluate(Change(slow=(SlowLink(link, 1.0),)))
    assert len(converted) == 1
    other = replace(routed.fabric, link_dst=routed.fabric.link_dst.copy())
    assert routes.tables_of(routed.scenario, other) is not None and len(converted) == 2


def test_link_totals_need_no_samples() -> None:
    job = {"pattern": {"kind": "alltoall", "ranks": 16, "size": "64 KiB"}}
    data = {"fabric": {"fat_tree": TREE}, "job": [job], "engine": {"buffer": "8 KiB"}}
    evaluate = make_evaluate(prepare(parse(data)))
    with_samples = evaluate(Change(measure=True))
    totals = evaluate(Change(measure=True, totals_only=True))
    assert not totals.tables["samples"].height and with_samples.tables["samples"].height
    assert totals.tables["truth"].height < with_samples.tables["truth"].height
    assert totals.tables["messages"].equals(with_samples.tables["messages"])
    assert totals.summary["events"] == with_samples.summary["events"]
    counted = ("packets", "bytes", "stall_ps", "observed_packets", "observed_congested_packets")
    for name in counted:
        assert link_totals(with_samples, name).sum() > 0, name
        assert np.array_equal(link_totals(totals, name), link_totals(with_samples, name)), name
    # Nothing else is answered from it.
    assert evaluate(Change(measure=True)).tables["samples"].height
