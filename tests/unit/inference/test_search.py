"""Hypotheses that are proposed and simulated, as long as some of the time may have a cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.diagnosis.cable_search import Outcome
from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink
from tailback.inference import (
    coarse_ranking,
    hypothesis_space,
    network_clues,
    search,
    unknown_job_search,
)
from tailback.inference.error_model import MISFIT_ERROR
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hypotheses import NAMED, Posterior, SlowerMachine
from tailback.inference.hypothesis_space import HypothesisSpace
from tailback.inference.machine_models import (
    NETWORK_TRIALS,
    SETTINGS,
    longer_delays,
    slower_network,
)
from tailback.inference.measured_cables import StallClues
from tailback.inference.network_clues import OtherJobs
from tailback.inference.search import ExplanationSearch
from tailback.simulation import prepare
from tailback.sources.source import Source
from tailback.traffic.program import RecordedTimes

EXCHANGE = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [{"pattern": {"kind": "stencil2d", "dims": [2, 4], "size": "256 KiB"}}],
}
MEASURED = 1000
GOOD, BAD, BETWEEN_JOBS = 0.001, 0.2, 0.05


def prepared(injection: str, **engine: Any) -> Any:
    return prepare(Source.of(EXCHANGE | {"engine": {"injection": injection, **engine}}).scenario)


TURN, QUEUE = prepared("round-robin"), prepared("fifo")
COUNTED: Any = NetworkEvidence(
    counters=SimpleNamespace(lossy=False, sent_bytes=np.zeros(TURN.fabric.n_links))  # type: ignore[arg-type]
)


varied: list[str] = []
"""Adapters of the simulations with other engine settings."""

grains: list[int | None] = []
"""Size of coarse packets of each simulation."""


class Compared:
    """Stands for the comparison with the evidence: simulations state their misfits."""

    sends = None
    of_links = False

    def __call__(self, run: Any) -> Outcome:
        return Outcome(run.elapsed_ps, run.misfits)

    def between(self, _: Any, others: list[Any]) -> dict[str, float]:
        if not hasattr(others[0], "variation"):
            return {"spread": BETWEEN_JOBS}
        assert [job.variation for job in others] == list(SETTINGS)
        return {"calls": 0.02 if varied[-1] == "fifo" else 0.0}


def make_case(evidence: NetworkEvidence, **tables: pl.DataFrame) -> HypothesisSpace:
    measured: Any = SimpleNamespace(tables={"collectives": pl.DataFrame(), **tables})
    profile: Any = SimpleNamespace(count=np.full(10, 10.0))
    return HypothesisSpace(
        OtherJobs(), profile, lambda run: run, measured, evidence, lambda *_: None, 1
    )  # type: ignore[arg-type, return-value]


def explained(
    monkeypatch: pytest.MonkeyPatch,
    simulated: Callable[[tuple[str, str], tuple[int, ...], bool], tuple[int, float]],
    evidence: NetworkEvidence = COUNTED,
    configured: bool = False,
    others: OtherJobs | None = None,
    tables: bool = False,
    delayed: list[tuple[float, Any]] | None = None,
    in_series: list[int] | None = None,
    lossy: bool = False,
    coarse: int | None = None,
    counted: tuple[SlowLink, ...] = (),
    progress_stated: bool = True,
    **engine: Any,
) -> tuple[Posterior, list[tuple[str, str]]]:
    """The posterior, and the adapters and routing of all that was simulated.

    ``simulated``: time and misfit of a run by its adapters and routing, its slow links, and
    whether an unknown job sends. ``counted``: slow links by queues. With progress in calls, that
    stands in place of the routing.
    """
    engine |= {"progress": "always"} if progress_stated else {}
    seen = list[tuple[str, str]]()
    varied.clear()
    grains.clear()

    def outcome(scenario: Any, slow: tuple[int, ...]) -> Any:
        run = scenario.scenario.engine
        has_tables = scenario.scenario.fabric.forwarding is not None
        routing = "forwarding tables" if has_tables else run.routing
        machine = run.injection, "in calls" if run.progress == "calls" else routing
        seen.append(machine)
        job = len(scenario.scenario.job) > 1
        elapsed, misfit = simulated(machine, slow, job)
        return SimpleNamespace(
            elapsed_ps=elapsed,
            summary={"events": 1000},
            adapters_shared=True,
            misfits={"calls": misfit, "sends": misfit, "spread": misfit},
        )

    def make_simulation(scenario: Any, **_: Any) -> Callable[[Change], Any]:
        def evaluate(change: Change) -> Any:
            grains.append(scenario.scenario.engine.coarse)
            if change.variation is not None:
                varied.append(scenario.scenario.engine.injection)
                return SimpleNamespace(variation=change.variation, adapters_shared=True)
            return outcome(scenario, tuple(cable.link for cable in change.slow))

        return evaluate

    for module in (search, hypothesis_space):
        monkeypatch.setattr(module, "make_simulation", make_simulation)
    for module in (search, hypothesis_space, unknown_job_search):
        monkeypatch.setattr(module, "is_lossy", lambda *_: lossy)
    monkeypatch.setattr(hypothesis_space, "modelled_part_ps", lambda _: MEASURED)
    monkeypatch.setattr(HypothesisSpace, "instant_ps", 0)
    monkeypatch.setattr(HypothesisSpace, "counted_paths", False)
    monkeypatch.setattr(hypothesis_space, "counted_slow", lambda *_: counted)
    monkeypatch.setattr(hypothesis_space, "carrying_cables", lambda *_: range(0, 32, 2))
    monkeypatch.setattr(search, "longer_delays", lambda *_: delayed or [])
    monkeypatch.setattr(search, "links_in_series", lambda *_: in_series or [])
    monkeypatch.setattr(search, "cable_suspects", lambda *_: list(range(0, 32, 2)))
    monkeypatch.setattr(search, "stall_clues", lambda *_: StallClues())
    monkeypatch.setattr(search, "busy_cables_ps", lambda *_: None)
    monkeypatch.setattr(search, "coarse_size", lambda *_: coarse)
    monkeypatch.setattr(search, "add_hashed_flows", lambda *_, **__: None)
    monkeypatch.setattr(
        unknown_job_search,
        "assumed_messages",
        lambda _, nodes, *arguments: [(0, int(nodes[0]), int(nodes[1]), 4096)],
    )
    monkeypatch.setattr(HypothesisSpace, "recorded_on", lambda *_: True)
    monkeypatch.setattr(HypothesisSpace, "add_noise_in_calls", lambda _: None)
    case = make_case(evidence)
    case.compare = Compared()  # type: ignore[assignment]
    case.others = others or OtherJobs()
    first, second = (
        with_tables(turn) if tables else turn
        for turn in (prepared("round-robin", **engine), prepared("fifo", **engine))
    )
    return ExplanationSearch(case).explained(first, None if configured else second), seen


def with_tables(turn: Any) -> Any:
    """The scenario with forwarding tables, which are not read here."""
    fabric = turn.scenario.fabric.model_copy(update={"forwarding": Path("lfts.txt")})
    return replace(turn, scenario=turn.scenario.model_copy(update={"fabric": fabric}))


def test_coarse_packets_rank_many_cables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def simulated(_: tuple[str, str], slow: tuple[int, ...], __: bool) -> tuple[int, float]:
        # A cable among the first that fits far better than none, but not as well as usual.
        return (1000, 0.02 if slow == (8,) else BAD) if slow else (500, BAD)

    monkeypatch.setattr(search, "MIN_SUSPECTS", 12)
    monkeypatch.setattr(coarse_ranking, "FEWEST_KEPT", 3)
    exhaustive, _ = explained(monkeypatch, simulated)
    full = grains.count(None)
    ranked, _ = explained(monkeypatch, simulated, coarse=16 << 10)
    assert grains.count(16 << 10) > 16 and grains.count(None) <= full - 7
    # What was left out is not credible, so probabilities do not change.
    assert ranked.of_cause("slow-link") == pytest.approx(exhaustive.of_cause("slow-link"), abs=1e-6)
    first, second = (
        next(weighed for weighed in posterior.weighed if weighed.hypothesis.slow)
        for posterior in (ranked, exhaustive)
    )
    assert first.probability == pytest.approx(second.probability, abs=1e-6)
    assert first.hypothesis.slow == second.hypothesis.slow and first.probability > 0.2

    explained(monkeypatch, lambda _, slow, __: (1000 if slow else 500, 0.15), coarse=16 << 10)
    assert set(grains) == {None}


def test_a_uniformly_slower_network_has_no_slow_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def simulated(_: tuple[str, str], slow: tuple[int, ...], __: bool) -> tuple[int, float]:
        return (1000, 0.008 if slow == (8,) else BAD) if slow else (500, BAD)

    slower = Outcome(990, dict.fromkeys(("calls", "sends", "spread"), GOOD))
    none, _ = explained(monkeypatch, simulated)
    assert none.slower_machine[0] < 0.5 and none.best.slow
    monkeypatch.setattr(search, "slower_network", lambda *_: [(0.2, slower)])
    posterior, _ = explained(monkeypatch, simulated)
    chance, machines = posterior.slower_machine
    assert chance > 0.9 and machines == (SlowerMachine(rates=0.2),)
    # Nothing of it is a cause, so the time stays unexplained.
    assert not posterior.best.cause and posterior.best.slower is None
    assert posterior.unexplained > 0.9 and posterior.of_cause("slow-link") < 0.1


def test_cables_no_better_than_all_are_healthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Where one rank sends nearly all, its cable explains what all links explain.
    unusual = 0.008

    def simulated(_: tuple[str, str], slow: tuple[int, ...], __: bool) -> tuple[int, float]:
        return (1000, unusual if slow == (8,) else BAD) if slow else (500, BAD)

    alike = Outcome(1000, dict.fromkeys(("calls", "sends", "spread"), unusual))
    monkeypatch.setattr(search, "slower_network", lambda *_: [(0.2, alike)])
    posterior, _ = explained(monkeypatch, simulated)
    assert posterior.slower_machine[0] > 0.5 and posterior.of_cause("slow-link") < 0.5
    worse = replace(alike, misfits=dict.fromkeys(("calls", "sends", "spread"), BAD))
    monkeypatch.setattr(search, "slower_network", lambda *_: [(0.2, worse)])
    posterior, _ = explained(monkeypatch, simulated)
    assert posterior.of_cause("slow-link") > 0.8


def test_slowing_all_links_reproduces_the_measured_time() -> None:
    seen = []

    def simulate(change: Change) -> Any:
        ((_, rate), *other_limits) = change.limits
        assert len(other_limits) == TURN.fabric.n_links - 1
        share = rate / float(TURN.fabric.link_gbps[0])
        seen.append(share)
        return SimpleNamespace(elapsed_ps=round(400 + 100 / share))

    runs = slower_network(TURN, 500, 1000, simulate)
    assert seen[0] == pytest.approx(0.5) and len(runs) <= NETWORK_TRIALS
    assert runs[-1][0] == pytest.approx(1 / 6, rel=0.1)
    assert slower_network(TURN, 1000, 900, simulate) == []


def test_raising_delays_reproduces_the_measured_time() -> None:
    seen = []

    def simulate(change: Change) -> Any:
        assert change.variation is not None
        seen.append(change.variation.delays)
        return SimpleNamespace(elapsed_ps=round(400 + 50 * seen[-1]))

    runs = longer_delays(450, 1000, simulate)
    assert seen == [2.0, pytest.approx(12.0)] and [delay for delay, _ in runs] == seen
    assert longer_delays(1000, 900, simulate)[1:] == []


def test_unstated_delays_leave_the_time_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slower = Outcome(990, dict.fromkeys(("calls", "sends", "spread"), GOOD))

    def simulated(*_: Any) -> tuple[int, float]:
        return 500, BAD

    posterior, _ = explained(monkeypatch, simulated, delayed=[(15.0, slower)])
    chance, machines = posterior.slower_machine
    assert chance > 0.9 and machines == (SlowerMachine(delays=15.0),)
    assert not posterior.best.cause and posterior.unexplained > 0.9
    with_stated_delay, _ = explained(
        monkeypatch, simulated, delayed=[(15.0, slower)], send_delay="2 us"
    )
    assert with_stated_delay.slower_machine[0] < 1e-6


def test_usual_delays_explain_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = Outcome(990, dict.fromkeys(("calls", "sends", "spread"), GOOD))
    posterior, _ = explained(monkeypatch, lambda *_: (800, GOOD), delayed=[(5.0, slower)])
    assert posterior.slower_machine[0] > 0.8 and not posterior.best.cause
    assert posterior.unexplained < 0.2 and posterior.of_cause("") > 0.8
    assert posterior.usual_delays == 5.0


def test_links_of_equal_messages_are_tried_without_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        if not slow:
            return 700, BAD
        if buffers[-1] < TURN.scenario.engine.buffer:
            return 1000, GOOD if slow in ((8,), (10,)) else BAD
        return 1000, GOOD if slow == (8,) and machine[0] == "round-robin" else BAD

    buffers = [TURN.scenario.engine.buffer]
    predicted = HypothesisSpace.predicted

    def noted(self: Any, machine: Any, *arguments: Any, **named: Any) -> Any:
        buffers.append(machine.prepared.scenario.engine.buffer)
        return predicted(self, machine, *arguments, **named)

    monkeypatch.setattr(HypothesisSpace, "predicted", noted)
    without_buffers, _ = explained(monkeypatch, simulated)
    assert {
        place
        for w in without_buffers.weighed[:2]
        for place in w.hypothesis.places(without_buffers.reverse)
    } == {(min(8, int(without_buffers.reverse[8])), None)}
    both, _ = explained(monkeypatch, simulated, in_series=[10])
    assert min(buffers) == round(0.1 * TURN.scenario.engine.buffer)
    likely = {s.link for w in both.weighed if w.probability > 0.05 for s in w.hypothesis.slow}
    assert likely == {8, 10} and both.of_cause("slow-link") > 0.9


def test_many_agreeing_cables_explain_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a collective in which all ranks wait alike, any slow cable has the same effect."""

    def simulated(_: tuple[str, str], slow: tuple[int, ...], __: bool) -> tuple[int, float]:
        return (1000, 0.01) if slow else (600, BAD)

    many, _ = explained(monkeypatch, simulated, NetworkEvidence())
    chance, cables = many.slow_somewhere
    assert chance > 0.9 and cables > NAMED and many.unexplained > 0.5
    single, _ = explained(monkeypatch, slow_cable(8))
    assert single.slow_somewhere[1] == 0


def test_tables_that_take_too_long_may_be_unused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Switches with adaptive routing keep their tables, and tools print them."""

    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        return (1500, 1.0) if machine[1] == "forwarding tables" else (970, GOOD)

    posterior, _ = explained(monkeypatch, simulated, tables=True)
    assert posterior.best.machine == ("round-robin", "adaptive") and not posterior.best.cause
    assert posterior.unexplained < 0.2
    agreeing, seen = explained(monkeypatch, lambda *_: (970, GOOD), tables=True)
    assert agreeing.best.machine[1] == "forwarding tables"
    assert {routing for _, routing in seen} == {"forwarding tables"}


def test_nothing_is_sought_where_the_time_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior, seen = explained(monkeypatch, lambda *_: (970, GOOD))
    assert len(seen) == 2 and not posterior.best.cause and posterior.unexplained == 0.0


def test_agreeing_adapters_are_taken_unless_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        return (980, GOOD) if machine[0] == "fifo" else (700, BAD)

    posterior, seen = explained(monkeypatch, simulated)
    assert posterior.best.machine[0] == "fifo" and not posterior.best.cause and len(seen) == 2
    of_configured, _ = explained(monkeypatch, simulated, configured=True)
    assert of_configured.best.machine[0] == "round-robin" and of_configured.unexplained > 0.5


def test_explaining_adapters_hide_no_slow_cable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run takes as long as with messages in order, but its calls do not look like that."""

    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        if machine[0] == "fifo":
            return 985, 0.009
        return (1000, GOOD) if slow == (8,) else (790, BAD)

    posterior, _ = explained(monkeypatch, simulated)
    assert [cable.link for cable in posterior.best.slow] == [8]
    assert posterior.of_cause("slow-link") > 0.9

    def in_order(machine: tuple[str, str], *_: Any) -> tuple[int, float]:
        return (985, 0.009) if machine[0] == "fifo" else (790, BAD)

    posterior, _ = explained(monkeypatch, in_order)
    assert not posterior.best.cause and posterior.best.machine[0] == "fifo"


def test_disagreeing_lossy_calls_start_no_cable_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retransmissions make those of healthy runs disagree as much."""
    monkeypatch.setattr(HypothesisSpace, "is_open", property(lambda _: False))
    _, seen = explained(monkeypatch, lambda *_: (833, 0.009), lossy=True)
    assert len(seen) == 2  # One kind of adapters, and the other.
    _, seen = explained(monkeypatch, lambda *_: (985, 0.009))
    assert len(seen) > search.OWN_SUSPECTS


def test_settings_add_error_to_sensitive_adapters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    posterior, _ = explained(monkeypatch, lambda *_: (970, GOOD))
    assert varied == ["round-robin"] * 2 + ["fifo"] * 2
    calls = {
        weighed.hypothesis.machine[0]: posterior.model.usual(weighed.hypothesis.outcome)["calls"]
        for weighed in posterior.weighed
        if not weighed.hypothesis.unexplained
    }
    assert calls["fifo"] == pytest.approx(calls["round-robin"] + 0.02)


def test_progress_in_calls_may_explain_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        return (1000, GOOD) if machine[1] == "in calls" else (1000 if slow else 600, BAD)

    posterior, _ = explained(monkeypatch, simulated, progress_stated=False)
    assert "progress in calls" in posterior.best.machine and not posterior.best.cause
    assert posterior.of_cause("slow-link") < 0.05 and posterior.unexplained < 0.05
    # Nothing else is tried where the scenario states it, or where the evidence cannot tell.
    _, seen = explained(monkeypatch, simulated)
    assert not any(machine[1] == "in calls" for machine in seen)
    monkeypatch.setattr(Compared, "between", lambda *_: {"calls": MISFIT_ERROR["calls"]})
    posterior, _ = explained(monkeypatch, lambda *_: (1000, BAD), progress_stated=False)
    assert "progress in calls" not in {
        name for each in posterior.weighed for name in each.hypothesis.machine
    }


def test_times_alone_may_tell_algorithms_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call times that differ by one factor hide a difference between simulations."""

    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        return (1000, GOOD) if machine[1] == "in calls" else (1000 if slow else 600, BAD)

    monkeypatch.setattr(Compared, "between", lambda *_: {"calls": 0.0})
    posterior, _ = explained(monkeypatch, simulated, progress_stated=False)
    assert "progress in calls" in posterior.best.machine


def test_another_collective_algorithm_may_explain_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        # Without it, the run takes longer than measured.
        return (1000, GOOD) if machine[1] == "spray" else (1400, BAD)

    without, _ = explained(monkeypatch, simulated)
    assert without.unexplained > 0.8
    monkeypatch.setattr(search, "OTHER_ALGORITHMS", ("other-alltoall",))
    monkeypatch.setattr(
        search, "with_algorithm", lambda before, _: before.with_engine(routing="spray")
    )
    posterior, _ = explained(monkeypatch, simulated)
    assert "other-alltoall" in posterior.best.machine and not posterior.best.cause
    assert posterior.unexplained < 0.05


def slow_cable(right: int) -> Callable[[tuple[str, str], tuple[int, ...], bool], tuple[int, float]]:
    """Runs of which one cable explains all, with adapters that take turns."""

    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        if not slow:
            return 700, BAD
        return 1000, GOOD if slow == (right,) and machine[0] == "round-robin" else BAD

    return simulated


@pytest.mark.parametrize("evidence", [COUNTED, NetworkEvidence()])
def test_missing_time_makes_a_slow_cable_tried(
    monkeypatch: pytest.MonkeyPatch, evidence: NetworkEvidence
) -> None:
    posterior, _ = explained(monkeypatch, slow_cable(8), evidence)
    assert [cable.link for cable in posterior.best.slow] == [8]
    assert posterior.best.machine[0] == "round-robin"
    assert posterior.of_cause("slow-link") > 0.9 and posterior.unexplained < 0.05


def test_the_second_adapters_get_the_best_cables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "SUSPECTS_PER_ROUTING", 3)
    monkeypatch.setattr(search, "OWN_SUSPECTS", 1)

    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        if not slow:
            return (700, BAD) if machine[0] == "round-robin" else (720, 0.99 * BAD)
        # With the wrong adapters, the right cable is merely the best.
        right = slow == (24,)
        return 1000, (GOOD if machine[0] == "round-robin" else 0.7 * BAD) if right else BAD

    posterior, seen = explained(monkeypatch, simulated, COUNTED)
    assert [cable.link for cable in posterior.best.slow] == [24]
    assert posterior.best.machine[0] == "round-robin" and posterior.of_cause("slow-link") > 0.9
    # All cables with the first kind.
    assert seen.index(("round-robin", "adaptive"), 2 + 2 * NETWORK_TRIALS) > 16
    turns = [machine for machine in seen[2:] if machine[0] == "round-robin"]
    assert len(turns) < 16


def test_an_unknown_job_competes_with_explaining_adapters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def simulated(machine: tuple[str, str], _: tuple[int, ...], job: bool) -> tuple[int, float]:
        if machine[0] == "fifo":
            return 1000, 0.01
        return (1000, GOOD) if job else (850, BAD)

    posterior, _ = explained(monkeypatch, simulated, NetworkEvidence())
    assert 0.02 < posterior.of_cause("other-traffic") < 1.0
    assert posterior.of_cause("other-traffic") + posterior.of_cause("") == pytest.approx(
        1.0, abs=0.01
    )
    # Counters would show the other job.
    counted, _ = explained(monkeypatch, simulated)
    assert counted.of_cause("other-traffic") == 0.0


def test_an_unknown_job_is_tried_without_counters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulated(_: tuple[str, str], slow: tuple[int, ...], job: bool) -> tuple[int, float]:
        if job:
            return 1000, GOOD
        return (1000 if slow else 850), BAD

    alone, _ = explained(monkeypatch, simulated, NetworkEvidence())
    assert all(
        weighed.hypothesis.job is None for weighed in explained(monkeypatch, simulated)[0].weighed
    )
    # Where it sends is unknown: as drawn, or elsewhere, where calls agree as usual.
    jobs = [weighed.hypothesis for weighed in alone.weighed if weighed.hypothesis.job is not None]
    misfits = {
        hypothesis.job.place: hypothesis.outcome.misfits["calls"]
        for hypothesis in jobs
        if hypothesis.job
    }
    sensitive = {hypothesis.outcome.sensitivity["calls"] for hypothesis in jobs}
    # Unknown jobs differ from each other: no fault that was not tried agrees better than that.
    open_ones = [weighed.hypothesis for weighed in alone.weighed if weighed.hypothesis.unexplained]
    widest = max(hypothesis.outcome.sensitivity.get("spread", 0.0) for hypothesis in open_ones)
    assert widest == pytest.approx(BETWEEN_JOBS)
    assert misfits == {False: GOOD, True: pytest.approx(MISFIT_ERROR["calls"] + max(sensitive))}
    assert all(hypothesis.outcome.misfits["spread"] == GOOD for hypothesis in jobs)


@pytest.mark.parametrize("outside", [True, False])
def test_long_intervals_leave_other_traffic_open(
    monkeypatch: pytest.MonkeyPatch, outside: bool
) -> None:
    jobs = list[int]()

    def simulated(_: tuple[str, str], slow: tuple[int, ...], job: bool) -> tuple[int, float]:
        return (1000 if slow else 850), BAD

    def with_jobs(self: Any, prepared: Any, slow: Any, *_: Any, **__: Any) -> Any:
        jobs.append(len(prepared.scenario.job))
        elapsed, misfit = (1000, GOOD) if jobs[-1] > 2 else (850 + 150 * bool(slow), BAD)
        return SimpleNamespace(
            elapsed_ps=elapsed,
            summary={"events": 1000},
            adapters_shared=True,
            misfits={"calls": misfit, "sends": misfit, "spread": misfit, "stalls": BAD},
        )

    monkeypatch.setattr(HypothesisSpace, "simulated", with_jobs)
    nodes = np.zeros(16)
    nodes[[9, 11]] = 5e6
    traffic = SimpleNamespace(
        egress=nodes,
        ingress=nodes,
        jobs=[],
        messages=lambda _: pl.DataFrame([(0, 9, 11, 4096)], orient="row"),
    )
    counters = SimpleNamespace(
        lossy=False, mostly_outside=outside, sent_bytes=np.zeros(TURN.fabric.n_links)
    )
    evidence = NetworkEvidence(counters=counters)  # type: ignore[arg-type]
    posterior, _ = explained(monkeypatch, simulated, evidence, others=OtherJobs(traffic))  # type: ignore[arg-type]
    assert (posterior.of_cause("other-traffic") > 0.9) is outside
    assert (max(jobs) == 3) is outside
    # Stalls depend on where it sends, which is unknown.
    assert not outside or posterior.best.outcome.misfits["stalls"] != BAD


def test_an_open_search_varies_the_best_cables_adapters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    likeliest = search.CableSearch.likeliest
    monkeypatch.setattr(
        search.CableSearch,
        "likeliest",
        lambda cables, most: (
            (2,) if most == search.SUSPECTS_PER_ROUTING else likeliest(cables, most)
        ),
    )

    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        if not slow:
            return (700, BAD) if machine[0] == "round-robin" else (720, 0.99 * BAD)
        # Screening singles out the wrong cable.
        right = slow == (24,)
        return 1000, (GOOD if machine[0] == "fifo" else 0.9 * BAD) if right else BAD

    monkeypatch.setattr(
        HypothesisSpace, "most_probable", lambda _, names: sorted(names, reverse=True)
    )
    posterior, _ = explained(monkeypatch, simulated, COUNTED)
    assert [cable.link for cable in posterior.best.slow] == [24]
    assert posterior.best.machine[0] == "fifo"


@pytest.mark.parametrize(
    ("engine", "evidence", "explains", "taken"),
    [
        ({}, COUNTED, ("random", "deterministic"), "random"),
        ({}, COUNTED, ("deterministic",), "deterministic"),
        ({}, COUNTED, (), "adaptive"),
        ({}, COUNTED, ("adaptive", "random"), "adaptive"),
        # What the scenario says of routing is believed; without counters too many cables fit.
        ({"routing": "adaptive"}, COUNTED, ("random",), "adaptive"),
        ({"adaptive": {"per": "message"}}, COUNTED, ("random",), "per message"),
        ({}, NetworkEvidence(), ("random",), "adaptive"),
    ],
)
def test_unexplained_time_makes_other_routing_tried(
    monkeypatch: pytest.MonkeyPatch,
    engine: dict[str, Any],
    evidence: NetworkEvidence,
    explains: tuple[str, ...],
    taken: str,
) -> None:
    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        if not slow:
            return 700, BAD
        return 1000, GOOD if slow == (8,) and machine[1] in explains else BAD

    posterior, seen = explained(monkeypatch, simulated, evidence, **engine)
    assert posterior.best.machine[1] == taken
    assert bool(posterior.best.slow) == (taken in explains)
    if taken == "adaptive" and explains[:1] == ("adaptive",):
        assert {machine[1] for machine in seen} == {"adaptive"}


def test_disagreeing_cables_make_other_routing_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cable that explains all but one kind of evidence may be the wrong one on wrong paths."""

    def simulated(machine: tuple[str, str], slow: tuple[int, ...], _: bool) -> tuple[int, float]:
        if not slow:
            return 700, BAD
        if machine[1] == "random":
            return 1000, GOOD if slow == (8,) else BAD
        return 1000, 0.006 if slow == (10,) else BAD

    monkeypatch.setattr(Posterior, "slow_cable_agrees", False)
    posterior, _ = explained(monkeypatch, simulated, COUNTED)
    assert posterior.best.machine[1] == "random"
    assert [cable.link for cable in posterior.best.slow] == [8]
    monkeypatch.setattr(Posterior, "slow_cable_agrees", True)
    posterior, seen = explained(monkeypatch, simulated, COUNTED)
    assert [cable.link for cable in posterior.best.slow] == [10]
    assert "random" not in {routing for _, routing in seen}


def test_times_judge_only_links_the_run_used() -> None:
    def recorded_on(
        names: list[str | None], stated: str = "all", crowded_ps: int = 0, **evidence: Any
    ) -> bool:
        hosts = pl.DataFrame({"host": names})
        case = make_case(NetworkEvidence(**evidence), hosts=hosts)
        fabric = SimpleNamespace(node_host=np.array([0, 0, 1, 1, 2]), host_name=("a", "b", "c"))
        section = SimpleNamespace(hosts=stated, placement_file=None)
        program = SimpleNamespace(recording=RecordedTimes(1, 1, crowded_ps))
        observed = SimpleNamespace(node=np.array([0, 1, 2, 3]), section=section, program=program)
        return case.recorded_on(SimpleNamespace(fabric=fabric, observed=observed))  # type: ignore[arg-type]

    unknown: list[str | None] = [None] * 4
    assert recorded_on(["a", "a", "b", "b"]) and recorded_on(["a", "a", "b", "b"], "a,b")
    assert recorded_on(unknown, "a,b")
    # All ranks of the recording ran on one host; nobody says where they ran; on another machine.
    assert not recorded_on(["a"] * 4) and not recorded_on(["a"] * 4, "a,b")
    assert not recorded_on(unknown) and not recorded_on(["x", "x", "y", "y"])
    # Ranks waited for a processor.
    assert not recorded_on(["a", "a", "b", "b"], crowded_ps=300_000_000)
    # Counters are of the fabric.
    assert recorded_on(unknown, congested=np.zeros(1))
    assert recorded_on(unknown, crowded_ps=300_000_000, congested=np.zeros(1))


def test_only_links_with_read_queues_are_sound() -> None:
    fabric = TURN.fabric
    inner = [int(x) for x in np.flatnonzero(fabric.link_src >= fabric.n_nodes)][:4]
    findings = pl.DataFrame(
        {
            "link": [*inner[:3], None],
            "finding": ["queued", "queued", "busy", "queued"],
            "queued_share": [0.4, 0.2, 0.9, 0.9],
            "busy_share": [0.2, 0.3, 0.95, 0.1],
        }
    )
    sent = np.ones(fabric.n_links)
    sent[inner[3]] = np.nan
    read = np.ones(fabric.n_links, np.bool_)
    read[inner[1]] = False
    counters = SimpleNamespace(findings=findings, lossy=True, sent_bytes=sent, queues_read=read)
    sound = network_clues.sound_links(SimpleNamespace(counters=counters), fabric)  # type: ignore[arg-type]
    # One has a queue too often, the queue of one was not read, and the bytes of one are unknown.
    assert not sound[[inner[0], inner[1], inner[3]]].any()
    assert sound.sum() == fabric.n_links - 3


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize(("slowed", "kept"), [(900, True), (1050, True), (3000, False)])
def test_counted_cables_cannot_exceed_measured_time(
    monkeypatch: pytest.MonkeyPatch, slowed: int, kept: bool, lossy: bool
) -> None:
    """A cable that counters show to be slow is dropped if it takes longer than the run did."""
    healthy = round(MEASURED / 1.2) if lossy else MEASURED

    def simulated(_: tuple[str, str], slow: tuple[int, ...], __: bool) -> tuple[int, float]:
        return (slowed, GOOD) if 4 in slow else (healthy, GOOD)

    posterior, _ = explained(monkeypatch, simulated, lossy=lossy, counted=(SlowLink(4, 1.0),))
    assert bool(posterior.best.slow) == kept
    assert all(
        weighed.hypothesis.outcome.elapsed_ps < 2 * MEASURED
        for weighed in posterior.weighed
        if weighed.probability > 0.01
    )
