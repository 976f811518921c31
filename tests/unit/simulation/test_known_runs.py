"""A diagnosis simulates nothing twice, whatever name the same question has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink
from tailback.scenario import parse
from tailback.simulation import evaluate as module
from tailback.simulation import make_evaluate, prepare, simulate
from tailback.simulation.known_runs import KnownRuns
from tailback.simulation.prepare import PreparedScenario

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

    def counted(*args: Any, **given: Any) -> Any:
        out.append(given)
        return real(*args, **given)

    monkeypatch.setattr(module, "execute", counted)
    return out


def test_the_same_question_by_another_name_is_answered_from_memory(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    run = simulate(prepared)
    evaluate = make_evaluate(prepared, known=run)
    now = prepared.observed.node
    same = [
        Change(), Change(measure=True), Change(background=False), Change(routing="adaptive"),
        Change(placement=now.copy(), placement_name="by another name"),
        Change(program=prepared.observed.program),
    ]  # fmt: skip
    assert {evaluate(change).elapsed_ps for change in same} == {run.elapsed_ps}
    assert simulated == []


def test_other_questions_are_simulated_and_answered_as_without_memory(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    evaluate = make_evaluate(prepared, known=simulate(prepared))
    back = np.ascontiguousarray(prepared.observed.node[::-1])
    others = [
        Change(network="healthy"), Change(network="star"), Change(network="instant"),
        Change(placement=back), Change(routing="deterministic"), Change(seed_offset=1),
        Change(limits=((20, 5.0),)), Change(computations=True),
    ]  # fmt: skip
    kept = [evaluate(change) for change in others]
    assert len(simulated) == len(others)
    alone = [make_evaluate(prepared)(change) for change in others]
    assert [run.elapsed_ps for run in kept] == [run.elapsed_ps for run in alone]
    again = [evaluate(change) for change in others]
    assert len(simulated) == 2 * len(others)
    for one, other in zip(kept, again, strict=True):
        assert all(one.tables[name].equals(other.tables[name]) for name in one.tables)


def test_a_candidate_is_simulated_once_for_its_time_and_its_proof(
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
    prepared: PreparedScenario, simulated: list[dict[str, Any]],
) -> None:  # fmt: skip
    evaluate = make_evaluate(prepared)
    seeds = [Change(network=network, seed_offset=seed) for seed in range(3)]
    times = {evaluate(change).elapsed_ps for change in seeds}
    assert len(simulated) == 1
    # Each seed simulated by itself gives the same time.
    alone = [make_evaluate(prepared)(change) for change in seeds]
    assert times == {run.elapsed_ps for run in alone}


def test_slow_cables_are_tried_once_each_and_not_kept(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    evaluate = make_evaluate(prepared)
    slow = Change(slow=(SlowLink(20, 5.0),))
    assert evaluate(slow).elapsed_ps == evaluate(slow).elapsed_ps
    assert len(simulated) == 2


def test_telemetry_changes_no_time_and_is_simulated_where_it_was_not(
    prepared: PreparedScenario, simulated: list[dict[str, Any]]
) -> None:
    evaluate = make_evaluate(prepared)
    without = evaluate(Change(seed_offset=2))
    measured = evaluate(Change(seed_offset=2, measure=True))
    assert len(simulated) == 2
    assert without.elapsed_ps == measured.elapsed_ps
    assert without.tables["messages"].equals(measured.tables["messages"])
    assert not without.tables["samples"].height and measured.tables["samples"].height


def test_what_is_done_to_an_answer_does_not_change_the_next(prepared: PreparedScenario) -> None:
    evaluate = make_evaluate(prepared)
    evaluate(Change()).summary["remedy"] = "mine"
    assert "remedy" not in evaluate(Change()).summary


def test_the_oldest_run_is_forgotten_first(prepared: PreparedScenario) -> None:
    run = simulate(prepared)
    size = sum(int(table.estimated_size()) for table in run.tables.values())
    known = KnownRuns(prepared, max_bytes=2 * size)
    changes = [replace(Change(measure=True), seed_offset=seed) for seed in range(3)]
    for change in changes:
        known.keep(change, run)
    assert [known.find(change) is not None for change in changes] == [False, True, True]


def test_equal_columns_of_runs_are_held_once(
    prepared: PreparedScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailback.simulation.known_runs.COMPARED_BYTES", 1)
    changes = [replace(Change(measure=True), seed_offset=seed) for seed in range(3)]
    runs = [make_evaluate(prepared)(change) for change in changes]
    sizes = [sum(int(table.estimated_size()) for table in run.tables.values()) for run in runs]
    times = ["post_ps", "start_ps", "arrival_ps"]
    assert not runs[0].tables["messages"].equals(runs[1].tables["messages"])
    same = runs[0].tables["messages"].drop(times)
    assert all(run.tables["messages"].drop(times).equals(same) for run in runs)
    # Room for two runs that share nothing, but for all three without the columns they share.
    assert sizes[0] + sizes[1] < sum(sizes) - 2 * int(same.estimated_size())
    known = KnownRuns(prepared, max_bytes=sum(sizes) - 2 * int(same.estimated_size()))
    for change, run in zip(changes, runs, strict=True):
        known.keep(change, run)
    for change, run in zip(changes, runs, strict=True):
        found = known.find(change)
        assert found is not None
        assert all(found.tables[name].equals(run.tables[name]) for name in run.tables)
    # Another run takes the room of the first alone, whose columns the others still use.
    known.keep(replace(changes[0], seed_offset=9), runs[0])
    assert [known.find(change) is not None for change in changes] == [False, True, True]
