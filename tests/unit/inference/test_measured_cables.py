"""Slow cables that nobody told of: found from times in calls, and not where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tailback.diagnosis.cable_search import MIN_SHARE, CableSearch, Outcome
from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change
from tailback.evidence.call_profile import CallProfile, times_between_computations
from tailback.evidence.site_quantiles import site_quantiles
from tailback.fabric.degraded import MIN_GBPS, SlowLink
from tailback.inference.comparisons import CallTimes, Comparisons, EvidenceComparison, PortStalls
from tailback.inference.derived_hypotheses import at_other_rates
from tailback.inference.error_model import ErrorModel
from tailback.inference.hypotheses import Hypothesis, Posterior, Prior, Weighed
from tailback.inference.measured_cables import (
    MACHINE,
    MeasuredCableTrials,
    parallel_links,
    stall_clues,
)
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tailback.traffic.program import Program

KNOWN: dict[str, Any] = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [
        {
            "pattern": {
                "kind": "stencil2d",
                "dims": [4, 4],
                "size": "128 KiB",
                "rounds": 5,
                "post": "all",
                "periodic": True,
                "compute": "20 us",
            },
            "placement": "random",
        }
    ],
    "engine": {"routing": "deterministic"},
}
UNKNOWN = {"switch_delay": "72 ns", "send_delay": "800 ns", "buffer": "52 KiB"}
"""What the diagnosis does not know of the machine: a fifth more, a fifth less."""


@dataclass(frozen=True)
class Truth:
    run: Run
    program: Program

    def profile(self, noise: float = 0.0) -> CallProfile:
        """Times in calls with noise on each stretch; those of a rank's rounds are one site."""
        stretches = times_between_computations(self.run, self.program)
        assert stretches is not None
        durations, counts = stretches
        rank = np.repeat(np.arange(len(counts)), counts)
        durations = durations * (1.0 + noise * np.random.default_rng(5).standard_normal(len(rank)))
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        # Before a rank's first computation nothing is sent.
        site = np.where(np.arange(len(rank)) == first[rank], -1, rank)
        ranks = np.arange(len(counts))
        times = np.bincount(rank[site >= 0], minlength=len(counts)).astype(np.float64)
        quantiles = site_quantiles(site[site >= 0], durations[site >= 0], len(counts))
        names = ["MPI_Waitall"] * len(counts)
        complete = np.ones(len(counts), np.bool_)
        return CallProfile(ranks, times, quantiles, names, site, counts, durations, complete)


def truth(slow: str | None, rate: str = "") -> Truth:
    """What happened: other parameters of the machine, another seed, and maybe a slow cable."""
    data: dict[str, Any] = {**KNOWN, "seed": 11, "engine": {**KNOWN["engine"], **UNKNOWN}}
    # The placement is known, its seed is part of the job's.
    if slow is not None:
        data["fabric"] = {**KNOWN["fabric"], "degraded": [{"cable": slow, "rate": rate}]}
    prepared = prepare(parse(data))
    scenario = prepare(parse({**KNOWN, "seed": 1}))
    placed = Change(placement=scenario.observed.node, computations=True, measure=True)
    return Truth(make_evaluate(prepared)(placed), prepared.observed.program)


@dataclass(frozen=True)
class Off:
    """A kind of evidence whose misfit a fake run says."""

    kind: str

    def __call__(self, run: Any) -> float | None:
        value: float | None = getattr(run, self.kind)
        return value


CALLS, SENDS, STALLS = Off("calls"), Off("sends"), Off("stalls")


@dataclass(frozen=True)
class SearchResult:
    """What came of a search: the probabilities, and how many simulations it took."""

    posterior: Posterior
    tried: int

    @property
    def cables(self) -> tuple[SlowLink, ...]:
        """The slow cables of the most probable hypothesis."""
        return self.posterior.best.slow

    @property
    def credible(self) -> list[Weighed]:
        """Credible hypotheses with slow cables, whatever they leave unexplained."""
        return [
            weighed
            for weighed in self.posterior.credible()
            if weighed.hypothesis.slow
            and not weighed.hypothesis.unexplained
            and not weighed.hypothesis.otherwise
        ]


def trials_of(
    predict: Callable[[Change], Outcome],
    model: ErrorModel,
    prior: Prior,
    healthy: Outcome,
    fabric: Any,
    most_trials: int = 1000,
    avoided: tuple[int, ...] = (),
) -> MeasuredCableTrials:
    """Trials of slow cables in a fabric."""
    return MeasuredCableTrials(
        predict=predict,
        model=model,
        prior=prior,
        healthy=healthy,
        nominal=fabric.link_gbps,
        most_trials=most_trials,
        avoided=avoided,
    )


def search(
    evaluate: Callable[[Change], Any],
    kinds: list[EvidenceComparison],
    suspects: list[int],
    fabric: Any,
    *,
    measured_ps: int,
    measure: bool = False,
    ahead: tuple[int, ...] = (),
    avoided: tuple[int, ...] = (),
    most_trials: int = 1000,
) -> SearchResult:
    """Search for slow cables, and compare all that was tried."""
    compare = Comparisons(kinds)
    healthy = compare(evaluate(Change(computations=True, measure=measure)))
    model = ErrorModel.of(measured_ps, [[healthy]], lossy=False)
    prior = Prior(len(suspects), fabric.link_reverse)

    def predict(change: Change) -> Outcome:
        return compare(evaluate(replace(change, measure=measure)))

    trials = trials_of(predict, model, prior, healthy, fabric, most_trials, avoided)
    search = CableSearch(
        trials, suspects, fabric.link_reverse, partial(parallel_links, fabric), ahead
    )
    search.screen()
    search.refine()
    tried = search.latest()
    hypotheses = [Hypothesis(MACHINE, trial.outcome, trial.cables) for trial in tried]
    others = at_other_rates(hypotheses, model, prior)
    posterior = Posterior([Hypothesis(MACHINE, healthy), *hypotheses, *others], model, prior)
    return SearchResult(posterior, len(tried))


def searched(seen: Truth, *, stalls: bool, noise: float = 0.03) -> tuple[SearchResult, Any]:
    prepared = prepare(parse({**KNOWN, "seed": 1}))
    evaluate = make_evaluate(prepared)
    expected = evaluate(Change(computations=True, measure=True))
    fabric = prepared.fabric
    carried = np.zeros(fabric.n_links)
    table = expected.tables["truth"]
    np.add.at(carried, table["link"].to_numpy(), table["bytes"].to_numpy())
    reverse = fabric.link_reverse.astype(np.int64)
    cables = np.flatnonzero(
        (np.arange(fabric.n_links) < reverse) & (carried + carried[reverse] > 0)
    )
    comparisons: list[Any] = [CallTimes(seen.profile(noise), prepared.observed.program)]
    if stalls:
        sums = np.zeros(fabric.n_links)
        rows = seen.run.tables["truth"]
        np.add.at(sums, rows["link"].to_numpy(), rows["stall_ps"].to_numpy())
        full = np.zeros(fabric.n_links, np.bool_)
        comparisons.append(PortStalls(sums, full, seen.run.elapsed_ps, np.zeros(fabric.n_links)))
    search_result = search(
        evaluate,
        comparisons,
        cables.tolist(),
        fabric,
        measured_ps=seen.run.elapsed_ps,
        measure=stalls,
    )
    return search_result, fabric


@pytest.mark.parametrize(
    ("cable", "gbps", "stalls"),
    [("leaf1[5]", 20.0, True), ("leaf2[1]", 25.0, False)],
)
def test_a_slow_cable_is_found_with_its_rate(cable: str, gbps: float, stalls: bool) -> None:
    search_result, fabric = searched(truth(cable, f"{gbps} Gb/s"), stalls=stalls)
    ((link, rate, _),) = search_result.cables
    ends = {fabric.link_name(link), fabric.link_name(int(fabric.link_reverse[link]))}
    assert any(name.startswith(f"{cable} ") for name in ends), ends
    assert rate == pytest.approx(gbps, rel=0.2)
    assert search_result.posterior.of_cause("slow-link") > 0.8


def test_one_kind_of_evidence_suffices_for_trials() -> None:
    """With the wrong adapters, call times may prefer any other cable."""
    fabric = prepare(parse({**KNOWN, "seed": 1})).fabric

    def predict(change: Change) -> Outcome:
        ((link, _, _),) = change.slow
        wrong = {"calls": 0.02, "sends": 0.1 + link}
        return Outcome(1000, {"calls": 0.5, "sends": 0.05} if link == 30 else wrong)

    model = ErrorModel(1000, {"calls": 0.003, "sends": 0.01})
    healthy = Outcome(700, {"calls": 0.5, "sends": 0.5})
    prior = Prior(8, fabric.link_reverse)
    trials = trials_of(predict, model, prior, healthy, fabric)
    search = CableSearch(trials, [0, 2, 4, 6, 30], fabric.link_reverse)
    search.screen()
    assert search.likeliest(3)[0] != 30 and 30 in search.likeliest(3)


def test_nothing_is_found_in_a_healthy_run() -> None:
    """Noise in the times of calls is no cable."""
    search_result, _ = searched(truth(None), stalls=False, noise=0.2)
    assert not search_result.cables and search_result.posterior.of_cause("slow-link") < 0.1


@pytest.mark.slow
def test_a_protocol_slowing_all_calls_is_no_cable() -> None:
    """All calls of all ranks half as long again: TCP does that."""
    seen = truth(None)
    durations = seen.profile()
    prepared = prepare(parse({**KNOWN, "seed": 1}))
    evaluate = make_evaluate(prepared)
    expected = evaluate(Change(computations=True))
    profile = CallProfile(
        durations.rank,
        durations.count,
        durations.quantiles_ps * 1.8,
        durations.name,
        durations.site_of,
        durations.stretches,
        durations.duration_ps * 1.8,
        durations.complete,
    )
    fabric = prepared.fabric
    cables = np.flatnonzero(np.arange(fabric.n_links) < fabric.link_reverse)
    search_result = search(
        evaluate,
        [CallTimes(profile, seen.program)],
        cables.tolist(),
        fabric,
        measured_ps=round(1.4 * expected.elapsed_ps),
    )
    assert not search_result.cables and search_result.posterior.of_cause("slow-link") < 0.5


def test_nothing_to_compare_is_no_finding() -> None:
    prepared = prepare(parse({**KNOWN, "seed": 1}))
    evaluate = make_evaluate(prepared)
    healthy = evaluate(Change(computations=True))
    search_result = search(
        evaluate, [], [0, 2], prepared.fabric, measured_ps=2 * healthy.elapsed_ps
    )
    assert not search_result.cables and search_result.posterior.unexplained > 0.5


def cables_of(links: int) -> Any:
    """A fabric of cables of 100 Gb/s: links 0 and 1, 2 and 3 …"""
    return SimpleNamespace(
        link_gbps=np.full(links, 100.0),
        link_reverse=np.arange(links) ^ 1,
        n_nodes=0,
        link_src=np.arange(links),
        link_dst=np.arange(links) ^ 1,
        link_up=np.zeros(links),
    )


@dataclass(frozen=True)
class FakeRun:
    elapsed_ps: int
    calls: float


def test_the_cables_rate_reproduces_the_run() -> None:
    """Calls agree a little better at a rate at which a ninth of the time is missing."""
    measured = 1_600_000

    def evaluate(change: Change) -> Any:
        if not change.slow:
            return FakeRun(1_250_000, 1.0)
        share = change.slow[0].gbps / 100.0
        elapsed = round(800_000 / share) if share < 0.64 else 1_250_000
        return FakeRun(elapsed, 0.3 - 0.05 * min(max(share - 0.5, 0.0) / 0.08, 1.0))

    search_result = search(
        evaluate,
        [CALLS],
        [0],
        cables_of(2),
        measured_ps=measured,
    )
    assert search_result.posterior.best.outcome.elapsed_ps == pytest.approx(measured, rel=0.04)


def test_no_unsimulatable_rate_is_tried() -> None:
    """On links of 2 Mb/s a run of twenty times the time asks for a rate below 1 Mb/s."""
    tried = list[float]()

    def evaluate(change: Change) -> Any:
        tried.extend(slow.gbps for slow in change.slow)
        slowest = min((slow.gbps for slow in change.slow), default=1.0)
        return FakeRun(round(1_000_000 * max(0.0015 / slowest, 1.0)), 0.5)

    fabric = cables_of(2)
    fabric.link_gbps[:] = 0.002
    search(
        evaluate,
        [CALLS],
        [0],
        fabric,
        measured_ps=20_000_000,
    )
    assert min(tried) == MIN_GBPS


def test_equal_waits_still_tell_the_cable() -> None:
    """After some rounds of a halo exchange calls differ by a few percent; before, by far more."""

    def evaluate(change: Change) -> Any:
        if not change.slow:
            return FakeRun(1_000_000, 0.002)
        link, rate, _ = change.slow[0]
        return FakeRun(round(50_000_000 / rate), 0.0002 if link == 2 else 0.0019)

    search_result = search(
        evaluate,
        [CALLS],
        [0, 2],
        cables_of(4),
        measured_ps=1_500_000,
    )
    assert search_result.cables[0].link == 2
    first, *others = search_result.credible
    assert all(first.probability > 2 * weighed.probability for weighed in others)


def test_agreeing_evidence_hides_no_other_kind() -> None:
    """Calls take as long everywhere, whichever cable is slow: sends tell which."""

    def evaluate(change: Change) -> Any:
        if not change.slow:
            return SimpleNamespace(elapsed_ps=1_000_000, calls=1e-5, sends=0.25)
        link, rate, _ = change.slow[0]
        right = link == 2
        return SimpleNamespace(
            elapsed_ps=round(50_000_000 / rate), calls=0.002, sends=0.0025 if right else 0.2
        )

    search_result = search(
        evaluate,
        [CALLS, SENDS],
        [0, 2],
        cables_of(4),
        measured_ps=1_500_000,
    )
    assert search_result.cables[0].link == 2 and search_result.credible[0].probability > 0.45


def test_the_last_cable_is_tried_despite_earlier_fits() -> None:
    """All ranks wait for any slow cable, so forty of them remove most of the misfit."""
    right = 80

    def evaluate(change: Change) -> Any:
        if not change.slow:
            return SimpleNamespace(elapsed_ps=1_000_000, calls=0.3, stalls=0.9)
        link, rate, _ = change.slow[0]
        off = 0.002 if link == right else 0.04
        return SimpleNamespace(elapsed_ps=round(50_000_000 / rate), calls=off, stalls=3 * off)

    search_result = search(
        evaluate,
        [CALLS, STALLS],
        [*range(0, right, 2), right],
        cables_of(right + 2),
        measured_ps=1_500_000,
    )
    assert search_result.cables[0].link == right and len(search_result.credible) == 1
    # Each once, and the rates of a few.
    assert search_result.tried < 90


def test_one_stalled_direction_identifies_its_cable() -> None:
    def evaluate(change: Change) -> Any:
        if not change.slow:
            return SimpleNamespace(elapsed_ps=1_000_000, calls=0.3, stalls=0.9)
        *_, (link, rate, both) = change.slow
        stalls = {(21, False): 0.01, (20, True): 0.4}.get((link, both), 0.7)
        return SimpleNamespace(elapsed_ps=round(50_000_000 / rate), calls=0.002, stalls=stalls)

    suspects, kinds = list(range(0, 40, 2)), [CALLS, STALLS]
    for ahead in ((), (5, 21)):
        search_result = search(
            evaluate, kinds, suspects, cables_of(40), ahead=ahead, measured_ps=1_500_000
        )
        assert len(search_result.credible) == 1
        ((link, _, both),) = search_result.cables
        assert (link, both) == (21, False)


def test_indistinguishable_cables_are_not_named() -> None:
    """Every cable makes all ranks wait as long as they did; none makes the right ports stall."""

    def evaluate(change: Change) -> Any:
        if not change.slow:
            return SimpleNamespace(elapsed_ps=1_000_000, calls=0.3, stalls=0.9)
        elapsed = round(50_000_000 / change.slow[0].gbps)
        return SimpleNamespace(elapsed_ps=elapsed, calls=0.0001, stalls=0.6)

    search_result = search(
        evaluate,
        [CALLS, STALLS],
        list(range(0, 40, 2)),
        cables_of(40),
        measured_ps=1_500_000,
    )
    assert search_result.posterior.of_cause("slow-link") < 0.5


def search_by_misfit(
    misfit: Callable[[tuple[SlowLink, ...]], float], **limits: int
) -> SearchResult:
    """Search 12 cables whose calls do not fit by ``misfit``, and whose stalls by three times it."""

    def evaluate(change: Change) -> Any:
        off = misfit(change.slow)
        rates = [cable.gbps for cable in change.slow]
        return SimpleNamespace(
            elapsed_ps=round(50_000_000 / min(rates, default=50.0)), calls=off, stalls=3 * off
        )

    return search(
        evaluate,
        [CALLS, STALLS],
        list(range(0, 24, 2)),
        cables_of(24),
        measured_ps=1_500_000,
        **limits,
    )


def test_two_cables_are_found_beside_a_good_one() -> None:
    def misfit(slow: tuple[SlowLink, ...]) -> float:
        return {0: 0.09, 1: 0.06, 2: 0.001}[len({cable.link for cable in slow} & {4, 8})]

    search_result = search_by_misfit(lambda slow: misfit(slow) if slow else 0.3)
    assert {cable.link for cable in search_result.cables} == {4, 8}


def test_a_search_ends_after_its_trials() -> None:
    search_result = search_by_misfit(
        lambda slow: 0.1 + 0.001 * slow[0].link if slow else 0.3, most_trials=20
    )
    assert 12 <= search_result.tried <= 24


def test_an_idle_cable_is_tried_at_low_rates() -> None:
    """Sending for a hundredth of the run, it costs a third of it at a fiftieth of its rate."""
    trials = trials_of(
        lambda _: Outcome(1_000_000, {}),
        ErrorModel(1_500_000),
        Prior(1, np.array([1, 0], np.uint32)),
        Outcome(1_000_000, {}),
        cables_of(2),
    )
    trials.busy_ps = np.array([10_000.0, 10_000.0])
    assert trials.highest_share(0) == pytest.approx(10_000 / 510_000)
    trials.first((), 0)
    (trial,) = trials.trials
    assert trial.cables[0].gbps == pytest.approx(MIN_SHARE * cables_of(2).link_gbps[0])


def test_the_best_by_one_evidence_is_fitted() -> None:
    """Call times show cables with many bytes first, and stalls the right one."""

    def evaluate(change: Change) -> Any:
        if not change.slow:
            return SimpleNamespace(elapsed_ps=1_000_000, calls=0.3, stalls=0.9)
        (cable,) = change.slow[:1]
        elapsed = round(1_000_000 + 100_000 * (50.0 / cable.gbps - 1.0))
        if cable.link // 2 != 9:
            return SimpleNamespace(elapsed_ps=elapsed, calls=0.05 + 0.001 * cable.link, stalls=0.5)
        # It explains calls as well only at a tenth of its rate.
        calls = 0.001 if cable.gbps < 10.0 else 0.9
        return SimpleNamespace(elapsed_ps=elapsed, calls=calls, stalls=0.05)

    cable_search = search(
        evaluate, [CALLS, STALLS], list(range(0, 24, 2)), cables_of(24), measured_ps=1_500_000
    )
    assert {cable.link // 2 for cable in cable_search.cables} == {9}


def test_a_port_confirmed_cable_precedes_a_direction() -> None:
    def evaluate(change: Change) -> Any:
        if not change.slow:
            return SimpleNamespace(elapsed_ps=1_000_000, calls=0.3, stalls=0.9)
        *_, (link, rate, both) = change.slow
        right = link in (4, 5)
        calls = (0.02 if both else 0.005) if right else 0.2
        stalls = 0.1 if right and both else 0.85
        return SimpleNamespace(elapsed_ps=round(50_000_000 / rate), calls=calls, stalls=stalls)

    search_result = search(
        evaluate,
        [CALLS, STALLS],
        list(range(0, 24, 2)),
        cables_of(24),
        ahead=(4,),
        measured_ps=1_500_000,
    )
    assert [tuple(cable)[::2] for cable in search_result.cables] == [(4, True)]


@pytest.mark.parametrize("most_trials", [5, 100])
@pytest.mark.parametrize(("up", "end"), [(1, "link_src"), (-1, "link_dst")])
def test_alternative_links_are_named_once_beside_the_best(
    up: int, end: str, most_trials: int
) -> None:
    """Four up-links of a switch, or down-links to one: whichever is slow, all wait as long."""

    def evaluate(change: Change) -> Any:
        if not change.slow:
            return SimpleNamespace(elapsed_ps=1_000_000, calls=0.3, stalls=0.9)
        *_, (link, rate, _) = change.slow
        off = 0.02 if link in (4, 8, 12, 16) else 0.2
        return SimpleNamespace(elapsed_ps=round(50_000_000 / rate), calls=off, stalls=3 * off)

    fabric = cables_of(24)
    fabric.link_up[[4, 8, 12, 16, 20]] = up
    getattr(fabric, end)[[4, 8, 12, 16]] = 99
    search_result = search(
        evaluate,
        [CALLS, STALLS],
        [0, 4, 8, 2],
        fabric,
        measured_ps=1_500_000,
        most_trials=most_trials,
    )
    named = {weighed.hypothesis.slow[0].link for weighed in search_result.credible}
    assert named == {4, 8, 12, 16}


@pytest.mark.parametrize(("left", "named"), [(0.97, False), (0.05, True)])
def test_useless_cables_leave_time_unexplained(left: float, named: bool) -> None:
    search_result = search_by_misfit(
        lambda slow: 0.3 * (left if {cable.link for cable in slow} & {4, 8} else 1.0)
    )
    assert (search_result.posterior.of_cause("slow-link") > 0.5) == named


@pytest.mark.parametrize("served", [0.0, 20.0, 60.0, 99.0])
def test_no_rate_below_a_served_one_is_tried(served: float) -> None:
    """All cables explain the calls at 10 of 100 Gb/s; counters of cable 4 show what it served."""
    tried: dict[int, list[float]] = {}

    def predict(change: Change) -> Outcome:
        for slow in change.slow:
            tried.setdefault(slow.link, []).append(slow.gbps)
        rate = min((slow.gbps for slow in change.slow), default=100.0)
        return Outcome(round(20_000_000 / rate), {"calls": max(0.3 - 2.5 / rate, 0.01)})

    fabric = cables_of(8)
    served_gbps = np.zeros(8)
    served_gbps[5] = served
    healthy = predict(Change())
    model = ErrorModel.of(2_000_000, [[healthy]], lossy=False)
    none = np.zeros(8, np.bool_)
    prior = Prior(4, fabric.link_reverse, served_gbps=served_gbps, sound=none)
    trials = trials_of(predict, model, prior, healthy, fabric)
    search = CableSearch(trials, [0, 2, 4, 6], fabric.link_reverse)
    search.screen()
    search.refine()
    trials_made = search.latest()
    assert min(tried[0]) < 20.0
    # The other direction of the cable is slow alone, if it is.
    both = [
        trial.cables[0].gbps
        for trial in trials_made
        if trial.cables[0].link == 4 and trial.cables[0].both
    ]
    assert all(rate >= served for rate in both)
    assert bool(both) == (served < 95.0)
    hypotheses = [Hypothesis(MACHINE, trial.outcome, trial.cables) for trial in trials_made]
    for hypothesis in at_other_rates(hypotheses, model, prior):
        assert all(
            slow.gbps > prior.least_rate(slow.link, both=slow.both) for slow in hypothesis.slow
        )


ADAPTIVE: dict[str, Any] = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 6, "leaves": 4, "aggregation": 4}},
    "job": [{"pattern": {"kind": "alltoall", "ranks": 24, "size": "64 KiB"}}],
    "engine": {"routing": "adaptive"},
}


@pytest.mark.parametrize("hosts_counted", [True, False])
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(("cable", "share"), [(0, 0.06), (5, 0.1), (10, 0.2)])
def test_an_avoided_slow_link_comes_first(
    cable: int, share: float, both: bool, hosts_counted: bool
) -> None:
    """Counters of a run whose adaptive routing avoids a slow up-link, at unknown settings."""
    prepared = prepare(parse(ADAPTIVE | {"seed": 1}))
    fabric = prepared.fabric
    up = np.flatnonzero((fabric.link_src >= fabric.n_nodes) & (fabric.link_up > 0))
    slow = SlowLink(int(up[cable]), share * 100.0, both)
    unlike = {**ADAPTIVE, "seed": 11, "engine": {**ADAPTIVE["engine"], **UNKNOWN}}
    seen = make_evaluate(prepare(parse(unlike)))(Change(slow=(slow,), measure=True))
    expected = make_evaluate(prepared)(Change(measure=True))
    of_host = (fabric.link_src < fabric.n_nodes) & (not hosts_counted)
    sent = np.where(of_host, np.nan, link_totals(seen, "bytes"))
    stall = np.where(of_host, np.nan, link_totals(seen, "stall_ps") / seen.elapsed_ps)
    counters: Any = SimpleNamespace(
        lossy=False, sent_bytes=sent, stall=stall, seconds=seen.elapsed_ps / 1e12
    )
    clues = stall_clues(counters, expected, fabric)
    first = clues.avoided[0]
    assert slow.link in (first, fabric.link_reverse[first])


def test_an_avoided_cable_is_fitted_below_usual_rates() -> None:
    """Traffic avoids every cable, so that at the first rate none costs anything."""

    def evaluate(change: Change) -> Any:
        elapsed, calls = 1_000_000, 0.3
        for slow in change.slow:
            if slow.gbps < 12.0:
                elapsed = max(elapsed, round(10_000_000 / slow.gbps))
                calls = 0.002 if slow.link == 20 and slow.gbps < 6.0 else 0.2
        return SimpleNamespace(elapsed_ps=elapsed, calls=calls)

    suspects, kinds = list(range(0, 40, 2)), [CALLS]
    usual = search(evaluate, kinds, suspects, cables_of(40), measured_ps=2_000_000)
    assert all(slow.gbps > 12.0 for slow in usual.cables)
    avoided = search(evaluate, kinds, suspects, cables_of(40), measured_ps=2_000_000, avoided=(20,))
    ((link, rate, _),) = avoided.cables
    assert link == 20 and rate == pytest.approx(5.0, rel=0.1)
