"""What is said of evidence: links that may be slow, and what would settle it."""

from __future__ import annotations

from collections.abc import Sequence
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
from tailback.inference import cable_places, explain, further_costs, network_clues
from tailback.inference import explain_wording as wording
from tailback.inference.cable_places import (
    host_of_cable,
    place_is_open,
    slow_candidates,
    with_parallel_links,
)
from tailback.inference.decision import Alternative
from tailback.inference.derived_hypotheses import unsimulated_faults
from tailback.inference.error_model import ErrorModel
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hypotheses import Hypothesis, Posterior, Prior
from tailback.inference.machine_models import raised_rates
from tailback.inference.unknown_job import Draw
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import PreparedScenario, make_evaluate, prepare
from tailback.sources.source import Source
from tailback.traffic.program import Op
from tests.factories.forwarding_tables import write_clumped

MACHINE, OTHER = ("round-robin", "adaptive"), ("round-robin", "random")
FABRIC: Any = SimpleNamespace(link_reverse=np.arange(40, dtype=np.uint32) ^ 1)


def compared(*misfits: float, job: float | None = None, other: tuple[float, ...] = ()) -> Posterior:
    """Hypotheses of cables 0, 2 … that leave such misfits, and of an unknown job.

    ``other``: misfits of the same cables with another routing.
    """
    alone = Hypothesis(MACHINE, Outcome(700, {"calls": 0.2, "sends": 0.2}))
    slow = [
        Hypothesis(MACHINE, Outcome(1000, {"calls": off, "sends": off}), (SlowLink(2 * n, 20.0),))
        for n, off in enumerate(misfits)
    ]
    slow += [
        Hypothesis(OTHER, Outcome(1000, {"calls": off, "sends": off}), (SlowLink(2 * n, 20.0),))
        for n, off in enumerate(other)
    ]
    if job is not None:
        fits = Outcome(1000, {"calls": job, "sends": job})
        slow.append(Hypothesis(MACHINE, fits, job=Draw(0.3, 24, 0)))
    model = ErrorModel.of(1000, [[alone.outcome]], lossy=False)
    return Posterior([alone, *slow], model, Prior(10, FABRIC.link_reverse))


def test_several_links_are_slow_unless_one_explains() -> None:
    def named(posterior: Posterior) -> list[int]:
        return [slow.link for slow in slow_candidates(posterior, FABRIC, place_open=False)]

    assert named(compared(0.002, 0.002, 0.2)) == [0, 2]
    assert named(compared(0.002, 0.2)) == []
    assert named(compared(0.05, 0.05, job=0.0001)) == []


def test_unknown_paths_leave_the_place_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_open(
        posterior: Posterior,
        *,
        stated: bool = False,
        switches: int = 2,
        faulty: tuple[int, ...] = (),
    ) -> bool:
        search: Any = SimpleNamespace(
            machines=dict.fromkeys((MACHINE, OTHER), SimpleNamespace(slow=())),
            prior=lambda: Prior(10, FABRIC.link_reverse, faulty=faulty),
        )
        monkeypatch.setattr(cable_places, "routing_is_stated", lambda _: stated)
        ends = {"n_nodes": 2, "link_src": np.array([0, 2]), "link_dst": np.array([2, 1 + switches])}
        prepared: Any = SimpleNamespace(fabric=SimpleNamespace(**ends))
        return place_is_open(search, posterior, prepared)

    badly, well = compared(0.03), compared(0.002, 0.03)
    assert badly.best.slow and well.best.slow
    assert is_open(badly)
    assert not is_open(well)
    assert not is_open(badly, stated=True)
    assert not is_open(badly, faulty=(0,))  # Errors show the place.
    assert not is_open(badly, switches=0)  # With one switch there is one path.
    # The place does not depend on the paths if the same cable fits best with each routing.
    assert not is_open(compared(0.03, 0.2, other=(0.03, 0.2)))
    assert is_open(compared(0.03, 0.2, other=(0.2, 0.03)))
    # Even a single cable is then a candidate, not the one that is slow.
    assert [candidate.link for candidate in slow_candidates(badly, FABRIC, place_open=True)] == [0]


def test_counted_slow_links_are_in_every_alternative() -> None:
    def costs(counted: tuple[SlowLink, ...]) -> list[bool]:
        search: Any = SimpleNamespace(
            machines={MACHINE: SimpleNamespace(slow=counted, evenly=None)},
            others=SimpleNamespace(traffic=None),
            alone=lambda *_: SimpleNamespace(elapsed_ps=700),
        )
        alternatives = explain._alternatives(search, compared(0.002), 0, 0)
        return ["slow-link" in alternative.hidden_ps for _, alternative in alternatives]

    # A hypothesis that adds the link costs what it takes longer; the expected run has the other.
    assert costs(())[0] and not any(costs((SlowLink(0, 20.0),)))


def test_joint_cost_is_charged_to_neither_cause() -> None:
    """A cable and counted traffic: 600 ps without either, 700 with one of them, 1000 with both."""

    def alone(_: tuple[str, str], __: int | None, *, with_others: bool = True) -> Any:
        return SimpleNamespace(elapsed_ps=700 if with_others else 600)

    search: Any = SimpleNamespace(
        machines={MACHINE: SimpleNamespace(slow=(), prepared=None, name=MACHINE, evenly=None)},
        others=SimpleNamespace(traffic=True),
        alone=alone,
        inside_ps=1000,
        simulated=lambda *_: SimpleNamespace(elapsed_ps=700),
    )
    costs = [
        alternative.hidden_ps
        for _, alternative in explain._alternatives(search, compared(0.15), 0, 0)
    ]
    assert {"slow-link": 300, "other-traffic": 300} in costs
    alone_costs = [cost for cost in costs if "slow-link" not in cost]
    assert alone_costs and all(cost == {"other-traffic": 100} for cost in alone_costs)


def test_counted_traffic_costs_the_mean_of_arrangements() -> None:
    def of(*arrangements: tuple[float, int]) -> int:
        alternatives = [
            (p, Alternative(0.0, 1000, {"other-traffic": ps})) for p, ps in arrangements
        ]
        other = 0.9, Alternative(0.0, 1000, {"slow-link": 500})
        return explain._others_more_ps([*alternatives, other], 1000)

    assert of((0.5, 100), (0.5, 200)) == 50
    assert of((0.9, 100), (0.1, 0)) == -10
    assert of((1.0, 100)) == 0
    assert explain._others_more_ps([(1.0, Alternative(0.0, 1000))], 1000) == 0


def lossy_search(sent: dict[int, float], slow: tuple[SlowLink, ...] = ()) -> Any:
    """A search on a lossy network of links of 100 Gb/s that counted these bytes."""
    counted = np.full(40, np.nan)
    counted[list(sent)] = list(sent.values())
    fabric = SimpleNamespace(link_reverse=FABRIC.link_reverse, link_gbps=np.full(40, 100.0))
    prepared = SimpleNamespace(fabric=fabric)
    machine = SimpleNamespace(slow=slow, name=MACHINE, prepared=prepared, evenly=None)
    return SimpleNamespace(
        evidence=SimpleNamespace(counters=SimpleNamespace(lossy=True, sent_bytes=counted)),
        machines={MACHINE: machine},
        others=SimpleNamespace(traffic=True),
        inside_ps=1200,
        alone=lambda *_, with_others=True: SimpleNamespace(elapsed_ps=700 if with_others else 600),
        simulated=lambda *_: SimpleNamespace(elapsed_ps=700),
    )


def test_a_lossy_run_needs_its_bytes_time() -> None:
    cable = SlowLink(4, 20.0)
    best = Hypothesis(MACHINE, Outcome(700, {}), (cable,))
    search = lossy_search({4: 1.0, 5: 2.0, 6: 90.0}, (cable,))
    # 2 B at 20 Gb/s in the other direction of the cable; link 6 is not slow.
    assert explain._slow_busy_ps(search, best) == 800
    one_way = (SlowLink(4, 20.0, False),)
    busy_ps = explain._slow_busy_ps(lossy_search({4: 1.0}, one_way), replace(best, slow=one_way))
    assert busy_ps == 400
    # A cable that the search added is as slow as its simulation says.
    assert explain._slow_busy_ps(lossy_search({4: 1.0}), best) == 0
    search.evidence.counters.lossy = False
    assert explain._slow_busy_ps(search, best) == 0
    alternatives = explain._alternatives(search, compared(0.15), 90, 0)
    assert {alternative.elapsed_ps for _, alternative in alternatives} == {790, 1090}


def test_our_messages_wait_in_others_queues() -> None:
    ours = np.zeros(40)
    ours[[2, 3]] = 4.0
    search = lossy_search({2: 12.0, 3: 6.0, 8: 90.0})
    # Link 3 carries mostly ours, and link 8 none of it.
    assert explain._others_busy_ps(search, ours) == 960
    alternatives = [
        alternative for _, alternative in explain._alternatives(search, compared(0.15), 0, 960)
    ]
    alone = next(
        alternative for alternative in alternatives if "slow-link" not in alternative.hidden_ps
    )
    assert (alone.elapsed_ps, alone.hidden_ps["other-traffic"]) == (960, 360)
    with_cable = next(
        alternative for alternative in alternatives if "slow-link" in alternative.hidden_ps
    )
    assert with_cable.elapsed_ps == 1000
    assert explain._others_more_ps([(1.0, alone)], 700) == 260
    search.others.traffic = None
    assert explain._others_busy_ps(search, ours) == 0


def test_an_untried_fault_counts_against_no_place() -> None:
    """It may be anywhere, so the links that fit best are named beside it."""
    tried = compared(0.1)
    others = unsimulated_faults(
        [Hypothesis(MACHINE, Outcome(700, {"calls": 0.2, "sends": 0.2}))],
        tried.model,
        Prior(10, FABRIC.link_reverse),
    )
    beside = [replace(hypothesis, log_prior=hypothesis.log_prior + 9.0) for hypothesis in others]
    posterior = Posterior(
        [
            *(
                weighed.hypothesis
                for weighed in tried.weighed
                if not weighed.hypothesis.unexplained
            ),
            *beside,
        ],
        tried.model,
        Prior(10, FABRIC.link_reverse),
    )
    assert not posterior.best.slow and posterior.of_cause("slow-link") < 0.05
    assert [slow.link for slow in slow_candidates(posterior, FABRIC, place_open=False)] == [0]


def late_ring() -> tuple[PreparedScenario, PreparedScenario]:
    """A halo exchange, and the same in which rank 1 computes twice as long."""
    data = {
        "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 1}},
        "job": [
            {
                "pattern": {
                    "kind": "stencil2d",
                    "dims": [2, 4],
                    "size": "256 KiB",
                    "rounds": 4,
                    "compute": "300 us",
                }
            }
        ],
    }
    made = prepare(Source.of(data).scenario)
    program = made.observed.program
    late = program.amount.copy()
    late[(program.kind == Op.COMPUTE) & (program.op_rank == 1)] *= 2
    job = replace(made.jobs[0], program=replace(program, amount=late, recompile=None))
    return made, replace(made, jobs=(job,))


def test_a_slower_network_scales_no_imbalance() -> None:
    _, late = late_ring()
    simulated = make_evaluate(late, threads=1)
    program = late.observed.program

    def evaluate(change: Change) -> Run:
        return simulated(change if change.program else replace(change, program=program))

    run = evaluate(Change())

    def saved(lossy_ps: int) -> int:
        costs = further_costs.further_costs(late, NetworkEvidence(), run, evaluate, {}, 1, lossy_ps)
        return costs.imbalance_ps[0]

    assert saved(run.elapsed_ps) == saved(0) > 0.3 * run.elapsed_ps
    # Scaled like the time of the run, it would be twice as much; some hides behind transfers.
    assert 0.7 * saved(0) < saved(2 * run.elapsed_ps) < saved(0)


def test_uneven_tables_cost_what_even_ones_save(tmp_path: Path) -> None:
    tree = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}
    job = {"pattern": {"kind": "alltoall", "ranks": 16, "size": "64 KiB"}}
    fabric = prepare(Source.of({"fabric": {"fat_tree": tree}, "job": [job]}).scenario).fabric

    def saved(forwarding: bool) -> tuple[tuple[int, ...], int]:
        network = write_clumped(tmp_path, fabric)
        if not forwarding:
            del network["forwarding"]
        made = prepare(Source.of({"fabric": network, "job": [job]}).scenario)
        evaluate = make_evaluate(made, threads=1)
        run = evaluate(Change())
        costs = further_costs.further_costs(made, NetworkEvidence(), run, evaluate, {}, 1)
        return costs.tables_ps, run.elapsed_ps

    (tables_ps,), elapsed_ps = saved(forwarding=True)
    assert tables_ps > 0.4 * elapsed_ps
    assert saved(forwarding=False)[0] == ()


def test_two_causes_are_removed_together() -> None:
    """Rank 1 computes twice as long, and a cable has a tenth of its rate."""
    made, late = late_ring()
    slow = late.with_slow_links((SlowLink(0, 10.0, True),))
    evaluate = make_evaluate(slow, threads=1)
    times = {
        causes: further_costs._time_without(slow, evaluate, Change(), frozenset(causes))
        for causes in ((), ("imbalance",), ("slow-link",), ("imbalance", "slow-link"))
    }
    least = times["imbalance", "slow-link"]
    assert least <= 1.02 * make_evaluate(made, threads=1)(Change()).elapsed_ps
    assert least < min(times["imbalance",], times["slow-link",]) < times[()]


def test_an_uncompared_quantity_is_not_called_agreeing() -> None:
    def said(removed: float, timed: bool) -> str:
        return wording.reproduced(removed, timed=timed, stalls=True, alone=True)

    assert "in the times of calls and sends and in how long ports stalled, more" in said(0.9, True)
    assert "of the difference in how long ports stalled, more" in said(0.9, False)
    assert "calls" not in said(0.01, False)


def slow_by_counters(
    rates: Sequence[float], served: Sequence[float], sent: Sequence[float] | None = None
) -> tuple[Any, Any]:
    """Evidence of cables 0, 2 … that serve such rates, on a fabric of 100 Gb/s."""
    links = 2 * len(served)
    findings = pl.DataFrame(
        {
            "link": [2 * n for n in range(len(rates))],
            "finding": ["degraded"] * len(rates),
            "intervals": [10] * len(rates),
            "served_gbps": list(rates),
            "served_low_gbps": list(rates),
            "served_high_gbps": list(rates),
        },
        schema_overrides={"link": pl.UInt32}
        | dict.fromkeys(("served_gbps", "served_low_gbps", "served_high_gbps"), pl.Float64),
    )
    reached = np.repeat(np.asarray(served), 2)
    sent_bytes = np.ones(links) if sent is None else np.asarray(sent)
    counters = SimpleNamespace(findings=findings, lossy=True, sent_bytes=sent_bytes)
    fabric = SimpleNamespace(
        n_links=links,
        link_gbps=np.full(links, 100.0),
        link_reverse=np.arange(links) ^ 1,
        link_name=lambda link: f"cable {link}",
    )
    return NetworkEvidence(counters=counters, served_gbps=reached), fabric  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("directions", "reached", "slow"),
    [
        # Interval counts weigh rates that agree.
        ([(0, 30, 20.0, 18.0, 22.0), (1, 10, 24.0, 20.0, 28.0)], 25.0, [SlowLink(0, 21.0)]),
        # The direction without a queue reached more than the other serves.
        ([(1, 30, 20.0, 18.0, 22.0)], 60.0, [SlowLink(1, 20.0, both=False)]),
        ([(1, 30, 20.0, 18.0, 22.0)], 5.0, [SlowLink(1, 20.0)]),
        ([(1, 30, 20.0, 18.0, 22.0)], 21.0, [SlowLink(1, 21.0)]),
        # Rates that contradict each other are not averaged.
        (
            [(0, 1, 2.0, 1.0, 3.0), (1, 50, 19.0, 18.5, 19.5)],
            19.0,
            [SlowLink(0, 2.0, both=False), SlowLink(1, 19.0, both=False)],
        ),
    ],
)
def test_directions_of_a_counted_cable_must_agree(
    directions: list[tuple[int, int, float, float, float]], reached: float, slow: list[SlowLink]
) -> None:
    evidence, fabric = slow_by_counters([1.0], [reached])
    assert evidence.counters is not None
    names = ["link", "intervals", "served_gbps", "served_low_gbps", "served_high_gbps"]
    findings = pl.DataFrame(directions, schema=names, orient="row")
    evidence.counters.findings = findings.with_columns(finding=pl.lit("degraded"))
    assert list(network_clues.counted_slow(evidence, fabric)) == slow


def test_counted_rates_rise_within_their_intervals() -> None:
    evidence, fabric = slow_by_counters([1.0], [5.0])
    assert evidence.counters is not None
    names = ["link", "intervals", "served_gbps", "served_low_gbps", "served_high_gbps"]
    rows = pl.DataFrame([(0, 30, 20.0, 18.0, 30.0)], schema=names, orient="row")
    evidence.counters.findings = rows.with_columns(finding=pl.lit("degraded"))
    rates = [network_clues.counted_slow(evidence, fabric, part)[0].gbps for part in (0.0, 0.5, 1.0)]
    assert rates == [20.0, 25.0, 30.0]


def test_raised_rates_give_the_measured_time() -> None:
    def elapsed_ps(upwards: float) -> int:
        return round(1000 / (1.0 + upwards))

    assert elapsed_ps(raised_rates(1000, 700, elapsed_ps)) == pytest.approx(700, rel=0.02)
    # The upper bounds are too slow, too.
    assert raised_rates(1000, 400, elapsed_ps) == 1.0


@pytest.mark.parametrize(
    ("rates", "served", "slow", "why"),
    [
        ([25.0], [25.0, 80.0], 1, ""),
        ([0.0], [0.0, 80.0], 0, "served nothing"),
        # All cables at a thousandth, one of them slower still.
        ([0.1, 0.1, 0.1, 0.03], [0.1] * 4, 0, "unit may be wrong"),
        ([0.1] * 3, [0.1] * 3 + [60.0], 3, ""),
        ([50.0, 50.0], [50.0, 50.0], 2, ""),
        # Uncounted headers of links that others fill.
        ([97.0, 96.0], [97.0, 96.0, 80.0], 0, ""),
        ([97.0, 40.0], [97.0, 40.0, 80.0], 1, ""),
        ([10.0, 30.0, 70.0], [10.0, 30.0, 70.0], 3, ""),
        # Three of many alike: the others carried as much, without a queue.
        ([50.0] * 3, [50.0] * 8, 3, ""),
    ],
)
def test_rates_that_cannot_be_are_not_simulated(
    rates: list[float], served: list[float], slow: int, why: str
) -> None:
    evidence, fabric = slow_by_counters(rates, served)
    assert len(network_clues.counted_slow(evidence, fabric)) == slow
    reason = network_clues.impossible_slow(evidence, fabric)
    assert why in reason and bool(reason) == bool(why)


def test_cable_counters_count_only_in_both_directions() -> None:
    evidence, fabric = slow_by_counters([], [1.0, 1.0], [1.0, 1.0, 1.0, np.nan])
    assert network_clues.are_counted(evidence, [SlowLink(0, 10.0)], fabric)
    assert not network_clues.are_counted(evidence, [SlowLink(0, 10.0), SlowLink(2, 1.0)], fabric)
    assert not network_clues.are_counted(NetworkEvidence(), [SlowLink(0, 10.0)], fabric)


def test_parallel_links_may_be_slow_instead() -> None:
    scenario = parse(
        {
            "fabric": {"fat_tree": {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 3}},
            "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "1 KiB"}}],
        }
    )
    fabric = prepare(scenario).fabric
    up = np.flatnonzero((fabric.link_src == fabric.n_nodes) & (fabric.link_up > 0)).tolist()
    of_host = int(np.flatnonzero(fabric.link_src == 0)[0])
    cables = with_parallel_links([SlowLink(of_host, 5.0), SlowLink(up[1], 7.0)], fabric)
    assert [(cable.link, cable.gbps) for cable in cables[:2]] == [(of_host, 5.0), (up[1], 7.0)]
    assert {cable.link for cable in cables[1:]} == set(up)
    assert host_of_cable([SlowLink(of_host, 5.0)], fabric) == 0
    assert host_of_cable([SlowLink(up[1], 7.0)], fabric) == -1
    assert host_of_cable([SlowLink(of_host, 5.0), SlowLink(up[1], 7.0)], fabric) == -1
