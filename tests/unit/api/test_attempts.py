"""Which adapters a measured run is explained with: as they usually are, unless others agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.api import attempts
from tailback.api.attempts import Attempt, ExplanationSearch, OtherJobs
from tailback.api.evidence import NetworkEvidence
from tailback.api.source import Source
from tailback.diagnosis.hidden_cables import CableSearch, Trial
from tailback.diagnosis.unknown_job import UnknownJob
from tailback.fabric.degraded import SlowLink
from tailback.simulation import prepare

EXCHANGE = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [{"pattern": {"kind": "stencil2d", "dims": [4, 4], "size": "256 KiB"}}],
}
TURN, QUEUE = prepare(Source.of(EXCHANGE).scenario), prepare(Source.of(EXCHANGE).scenario)


def job(spread: float) -> UnknownJob:
    """An unknown job, which leaves such a difference in distribution."""
    return UnknownJob(ps=1, low_ps=1, high_ps=1, load=0.3, spread=spread, spread_alone=0.5)


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    told: bool,
    unknown_job: float | None = None,
    **gaps: tuple[float, float],
) -> str:
    """The attempt that is taken, of gaps and misfits by kind of adapter and search.

    ``unknown_job``: what an unknown job leaves where adapters take turns, None for none.
    """
    asked = []

    def attempt(
        _case: ExplanationSearch, prepared: Any, *, search: bool, among: Any = (), **_: Any
    ) -> Attempt:
        name = ("turn" if prepared is TURN else "queue") + ("_searched" if search else "")
        asked.append(name)
        gap, misfit = gaps[name]
        missing = search and gaps["turn"][0] > 0.1
        slow = (SlowLink(3, 20.0),) if missing else ()
        found = CableSearch(Trial(slow, misfit, 1)) if missing else CableSearch()
        assert among in ((), (3,))
        other = job(unknown_job) if unknown_job is not None and name == "turn_searched" else None
        spread = misfit if other is None else other.spread
        return Attempt(prepared, None, slow, name, found, gap, (misfit, None), other, spread)

    def unseen_job(_case: ExplanationSearch, prepared: Any) -> UnknownJob | None:
        return job(unknown_job) if unknown_job is not None and prepared is TURN else None

    monkeypatch.setattr(ExplanationSearch, "attempt", attempt)
    monkeypatch.setattr(ExplanationSearch, "_unknown_job", unseen_job)
    monkeypatch.setattr(attempts, "is_lossy", lambda *_: False)
    case = ExplanationSearch(OtherJobs(), None, (), None, NetworkEvidence(), lambda *_: None, 1)  # type: ignore[arg-type]
    best = case.best(TURN, None if told else QUEUE)
    return best.slow_shown + (" or a job" if best.rival is not None else "")


def test_what_agrees_at_once_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = {"turn": (0.03, 0.1), "turn_searched": (0.03, 0.1)}
    assert chosen(monkeypatch, False, **at_once) == "turn_searched"


def test_queues_of_messages_are_taken_where_they_agree_and_turns_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaps = {"turn": (0.3, 0.1), "queue": (0.02, 0.01), "turn_searched": (0.3, 0.1),
            "queue_searched": (0.02, 0.01)}  # fmt: skip
    assert chosen(monkeypatch, False, **gaps) == "queue"
    # A time that agrees by chance, with calls that do not, is no explanation.
    assert chosen(monkeypatch, False, **gaps | {"queue": (0.02, 0.2)}) == "queue_searched"
    # A scenario that says how adapters share is believed.
    assert chosen(monkeypatch, True, **gaps) == "turn_searched"


def test_an_unknown_job_comes_before_other_adapters_where_it_agrees_clearly_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaps = {"turn": (0.3, 0.1), "queue": (0.02, 0.02), "turn_searched": (0.01, 0.1),
            "queue_searched": (0.02, 0.02)}  # fmt: skip
    assert chosen(monkeypatch, False, 0.005, **gaps) == "turn_searched"
    # Adapters that explain it by themselves are the simpler explanation, but not the only one.
    assert chosen(monkeypatch, False, 0.015, **gaps) == "queue or a job"
    assert chosen(monkeypatch, False, 0.03, **gaps) == "queue"
    # Where they do not, the better of the two is taken, turns if they are as good.
    searched = gaps | {"queue": (0.2, 0.02)}
    assert chosen(monkeypatch, False, 0.018, **searched) == "turn_searched"
    assert chosen(monkeypatch, False, 0.05, **searched) == "queue_searched"


def test_a_slow_cable_that_explains_it_comes_before_other_adapters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaps = {"turn": (0.3, 0.1), "queue": (0.2, 0.1), "turn_searched": (0.01, 0.02),
            "queue_searched": (0.01, 0.018)}  # fmt: skip
    assert chosen(monkeypatch, False, **gaps) == "turn_searched"
    # Unless it explains calls and sends clearly better with those.
    assert chosen(monkeypatch, False, **gaps | {"queue_searched": (0.01, 0.01)}) == "queue_searched"


COUNTED: Any = NetworkEvidence(counters=SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "evidence", "explains", "taken"),
    [
        ({}, COUNTED, ("random", "deterministic"), "random"),
        ({}, COUNTED, ("deterministic",), "deterministic"),
        ({}, COUNTED, (), "adaptive"),
        ({}, COUNTED, ("adaptive", "random"), "adaptive"),
        # What the scenario says of routing is believed; without counters too many cables fit.
        ({"routing": "adaptive"}, COUNTED, ("random",), "adaptive"),
        ({"adaptive": {"per": "message"}}, COUNTED, ("random",), "adaptive"),
        ({}, NetworkEvidence(), ("random",), "adaptive"),
    ],
)
def test_other_routing_is_tried_where_nothing_explains_the_time(
    monkeypatch: pytest.MonkeyPatch,
    engine: dict[str, Any],
    evidence: NetworkEvidence,
    explains: tuple[str, ...],
    taken: str,
) -> None:
    def attempt(_case: ExplanationSearch, prepared: Any, **_: Any) -> Attempt:
        fits = prepared.scenario.engine.routing in explains
        slow = (SlowLink(3, 20.0),) if fits else ()
        return Attempt(prepared, None, slow, "", CableSearch(), 0.01 if fits else 0.3, ())

    monkeypatch.setattr(ExplanationSearch, "attempt", attempt)
    monkeypatch.setattr(attempts, "is_lossy", lambda *_: False)
    case = ExplanationSearch(OtherJobs(), None, (), None, evidence, lambda *_: None, 1)  # type: ignore[arg-type]
    prepared = prepare(Source.of(EXCHANGE | {"engine": engine}).scenario)
    assert case.best(prepared, None).prepared.scenario.engine.routing == taken


def test_differences_too_small_to_tell_anything_do_not_choose_the_adapters() -> None:
    def attempt(*misfits: float | None) -> Attempt:
        return Attempt(TURN, None, (), "", CableSearch(), 0.0, misfits)  # type: ignore[arg-type]

    # Times of calls agree to a thousandth with both; the times of sends do not.
    assert not attempt(1e-6, 0.074).agrees_better(attempt(1e-5, 0.052))
    assert attempt(0.0116, 0.0019).agrees_better(attempt(0.0425, 0.0006))
    # What agrees as well and explains the time is as good.
    assert attempt(0.0015, 0.002).agrees_better(attempt(0.0009, 0.0009))
    assert not attempt(None, 0.01).agrees_better(attempt(0.02, None))


@pytest.mark.parametrize(
    ("cable", "adapters", "overshoot", "left"),
    [
        (None, None, False, True),
        (0.05, None, False, True),
        (0.02, None, False, False),  # The slow cable that was found explains it about as well.
        (None, 0.05, False, True),
        (None, 0.02, False, False),  # So do other adapters and a model that is off by a factor.
        (None, 0.001, False, False),  # What agrees leaves nothing to explain better.
        (None, 0.02, True, True),  # They would take longer than was measured.
    ],
)
def test_an_unknown_job_is_meant_only_where_nothing_else_explains_the_times_as_well(
    monkeypatch: pytest.MonkeyPatch,
    cable: float | None,
    adapters: float | None,
    overshoot: bool,
    left: bool,
) -> None:
    def simulated(_case: ExplanationSearch, prepared: Any, slow: Any) -> Any:
        took = 1100 if overshoot and prepared is QUEUE else 900
        return SimpleNamespace(elapsed_ps=took, spread=cable if slow else adapters)

    monkeypatch.setattr(ExplanationSearch, "_simulated", simulated)
    monkeypatch.setattr(ExplanationSearch, "_spread", lambda _case, run, _scale=1.0: run.spread)
    monkeypatch.setattr(attempts, "modelled_part_ps", lambda _: 1000)
    case = ExplanationSearch(OtherJobs(), None, (), None, NetworkEvidence(), lambda *_: None, 1)  # type: ignore[arg-type]
    slow = () if cable is None else (SlowLink(3, 20.0),)
    other = None if adapters is None else QUEUE
    assert case._explained_otherwise(job(0.02), slow, TURN, other) is not left


def test_times_speak_about_links_only_where_the_run_was_recorded_on_them() -> None:
    def recorded_on(names: list[str | None], stated: str = "all", **evidence: Any) -> bool:
        measured = SimpleNamespace(tables={"hosts": pl.DataFrame({"host": names})})
        case = ExplanationSearch(
            OtherJobs(), None, (), measured, NetworkEvidence(**evidence), lambda *_: None, 1
        )  # type: ignore[arg-type]
        fabric = SimpleNamespace(
            node_host=np.array([0, 0, 1, 1, 2]), host_name=("a", "b", "c")
        )  # fmt: skip
        section = SimpleNamespace(hosts=stated, placement_file=None)
        observed = SimpleNamespace(node=np.array([0, 1, 2, 3]), section=section)
        return case.recorded_on(SimpleNamespace(fabric=fabric, observed=observed))  # type: ignore[arg-type]

    unknown: list[str | None] = [None] * 4
    assert recorded_on(["a", "a", "b", "b"]) and recorded_on(["a", "a", "b", "b"], "a,b")
    assert recorded_on(unknown, "a,b")
    # All ranks of the recording ran on one host; nobody says where they ran; on another machine.
    assert not recorded_on(["a"] * 4) and not recorded_on(["a"] * 4, "a,b")
    assert not recorded_on(unknown) and not recorded_on(["x", "x", "y", "y"])
    # Counters are of the fabric.
    assert recorded_on(unknown, congested=np.zeros(1))


def test_where_all_queues_are_counted_only_cables_with_a_queue_too_many_are_tried() -> None:
    fabric = TURN.fabric
    inner = [int(x) for x in np.flatnonzero(fabric.link_src >= fabric.n_nodes)][:3]
    findings = pl.DataFrame(
        {
            "link": [*inner, None],
            "finding": ["queued", "queued", "busy", "queued"],
            "queued_share": [0.4, 0.2, 0.9, 0.9],
            "busy_share": [0.2, 0.3, 0.8, 0.1],
        }
    )
    counters = SimpleNamespace(findings=findings)
    found = attempts._queued_more_than_busy(SimpleNamespace(counters=counters), fabric)  # type: ignore[arg-type]
    assert found == {min(inner[0], int(fabric.link_reverse[inner[0]]))}
