"""The waterfall's arithmetic, and what the use of a root says: small cases, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tailback as tb
from tailback.diagnosis.cause_wording import CODE
from tailback.diagnosis.confidence import TimeUse, Unexplained, costs_in, count_agreement
from tailback.diagnosis.model import Agreement, WaterfallBar
from tailback.diagnosis.root_utilization import _growth
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.slow_cables import SlowCableFit
from tailback.diagnosis.verdict import cost_shares, diagnose_cause, unexplained
from tailback.diagnosis.waterfall import (
    ADAPTIVE,
    CLEARLY_FASTER,
    Spreading,
    Waterfall,
    _best_spreadings,
    build_waterfall,
    overshoot_share,
    unexplained_share,
)
from tailback.evaluate import Change, EngineVariation, Evaluate
from tailback.fabric.degraded import SlowLink
from tailback.run.run import Run
from tailback.scenario.model import Degraded
from tailback.telemetry.estimate import Z95
from tests.factories.diagnosis_runs import (
    LINE_PACKETS,
    Flow,
    eject,
    line_run,
    make_run,
    placement_run,
    ups,
)


def timed(run: Run, elapsed_ps: int) -> Run:
    return replace(run, summary={**run.summary, "elapsed_ps": elapsed_ps})


def observed(low_ps: int, delta_ps: int, high_ps: int) -> list[WaterfallBar]:
    return [
        WaterfallBar(
            name="observed",
            elapsed_ps=100,
            delta_ps=delta_ps,
            low_ps=low_ps,
            high_ps=high_ps,
            meaning="",
        )
    ]


def test_a_repetitions_spread_is_shown_and_no_error() -> None:
    assert (
        unexplained_share(observed(5, 20, 40)) == 0.05 and overshoot_share(observed(5, 20, 40)) == 0
    )
    assert (
        overshoot_share(observed(-40, -20, -10)) == 0.1
        and unexplained_share(observed(-40, -20, -10)) == 0
    )
    assert unexplained_share(observed(-5, 20, 40)) == overshoot_share(observed(-40, -20, 5)) == 0


def test_a_step_shows_its_smallest_and_largest_delta() -> None:
    """Three repetitions, with the network alone 60, 70 and 95 units above the ideal switch."""
    run, unit = placement_run(log=False), 1_000_000

    def evaluate(change: Change) -> Run:
        alone = change.network in ("no-contention", "star")
        times = [50, 60, 55] if alone else [110, 130, 150]
        return timed(run, times[change.seed_offset] * unit)

    bars = {bar.name: bar for bar in build_waterfall(run, evaluate, 3).bars}
    step = bars["placement"]
    assert (step.low_ps, step.delta_ps, step.high_ps) == (60 * unit, 75 * unit, 95 * unit)
    # The run took 200 units: what is left over is 90, 70 and 50 of them.
    assert (bars["observed"].low_ps, bars["observed"].high_ps) == (50 * unit, 90 * unit)
    assert unexplained_share(list(bars.values())) == 0.25


def test_adapter_bytes_come_before_all_contention() -> None:
    """580 packets of 0.32768 µs each, longer than the ideal network's share of the time."""
    run = line_run()
    bars = {
        bar.name: bar
        for bar in build_waterfall(run, lambda change: timed(run, 120_000_000), 1).bars
    }
    assert bars["ideal"].elapsed_ps == 120_000_000
    assert bars["injection"].elapsed_ps == 580 * 327_680
    assert bars["injection"].delta_ps == 580 * 327_680 - 120_000_000


def test_a_lone_cause_is_removed_from_everything() -> None:
    """The cable's repair saves 10 % with the other job there; a worse placement saves nothing."""
    run = placement_run(background=True)
    stated = [Degraded.model_validate({"cable": "leaf0[33]", "rate": "10 Gb/s"})]
    fabric = run.scenario.fabric.model_copy(update={"degraded": stated})
    run = replace(run, scenario=run.scenario.model_copy(update={"fabric": fabric}))

    def evaluate(change: Change) -> Run:
        share = 0.9 if change.background else 0.6
        if change.network == "as-is":
            share = 1.0 if change.background else 0.7
        if change.placement is not None:
            share = 1.2
        return timed(run, round(share * run.elapsed_ps))

    other = {"other": np.arange(32, dtype=np.uint32)}
    shares = {share.cause: share for share in build_waterfall(run, evaluate, 1, None, other).shares}
    assert shares["slow-link"].removed == pytest.approx(0.1)
    assert shares["slow-link"].charged == pytest.approx(0.1)
    assert shares["other-traffic"].removed == pytest.approx(0.3)
    assert shares["placement"].removed == 0.0


STATIC = Spreading("deterministic")


@pytest.mark.parametrize(
    ("times", "by_own_rule", "rule"),
    [
        ({"": 1000, "static": 990, "ugal": 979, "valiant": 990}, ADAPTIVE, "ugal"),
        ({"": 1000, "static": 990, "ugal": 981, "valiant": 990}, ADAPTIVE, None),
        ({"": 1000, "static": 990, "ugal": 900, "valiant": 900}, ADAPTIVE, "ugal"),
        ({"": 1000, "static": 370, "ugal": 900, "valiant": 900}, STATIC, None),
    ],
)
def test_another_routing_must_spread_clearly_better(
    times: dict[str, int], by_own_rule: Spreading, rule: str | None
) -> None:
    run = placement_run()

    def evaluate(change: Change) -> Run:
        key = "static" if change.routing == "deterministic" else change.rule or ""
        return timed(run, times[key])

    by_times: Evaluate = evaluate
    spreadings = _best_spreadings(by_times, ["ugal", "valiant"], None)
    assert spreadings[0] == by_own_rule and spreadings[1].rule == rule


def test_what_is_unexplained_is_charged_once() -> None:
    """A fifth of the time: to slow cables that are more probable than other traffic, or to it."""
    hidden = observed(20, 20, 20)
    hidden.insert(0, hidden[0].model_copy(update={"name": "injection", "elapsed_ps": 50}))
    hidden.insert(1, hidden[0].model_copy(update={"name": "other traffic", "elapsed_ps": 80}))
    fits, fails = (SlowCableFit((SlowLink(1, 10.0),), fit) for fit in (1.0, 0.1))
    charged = [cost_shares([], hidden, unexplained(hidden, fit), {}) for fit in (fits, fails, None)]
    assert charged == [{"slow-link": 0.2}, {"other-traffic": 0.2}, {"other-traffic": 0.2}]
    # Without a message log nothing tells them apart.
    assert unexplained(hidden, None).slow == 0.5


def agreement(waterfall: Waterfall) -> Agreement:
    """In how many variations placement is the main cause of a run that only communicates."""
    use = TimeUse(1.0, 0.0)
    return count_agreement(("placement",), costs_in(waterfall.variations, {}), Unexplained(), use)


def test_every_repetition_and_engine_is_a_variation() -> None:
    """The pattern costs 30 % with the own engine, 50 % where buffers are halved.

    Placement costs 40 %, so it is the main cause in the three repetitions.
    """
    run, unit = placement_run(log=False), 1_000_000

    def evaluate(change: Change) -> Run:
        star = 50 if change.variation is None else 70
        time = {"no-contention": 20, "star": star}.get(change.network, 90)
        return timed(run, (time + change.seed_offset) * unit)

    waterfall = build_waterfall(run, evaluate, 3, engines=[EngineVariation(buffers=0.5)])
    assert len(waterfall.variations) == 3 + 1
    counted = agreement(waterfall)
    assert (counted.holds, counted.of, counted.otherwise) == (3, 4, "pattern")
    # The bars show the scenario's own engine.
    bars = {bar.name: bar for bar in waterfall.bars}
    assert bars["pattern"].delta_ps == 30 * unit and bars["placement"].delta_ps == 40 * unit


def test_slow_transfers_within_hosts_are_no_pattern() -> None:
    """They take as long without contention, with the rates of the steps that follow."""
    run, unit = placement_run(log=False), 1_000_000

    def evaluate(change: Change) -> Run:
        slow = change.variation is not None and change.variation.local_rates == "low"
        time = {"no-contention": 20, "star": 20}.get(change.network, 90)
        return timed(run, (time + 50 * slow) * unit)

    engines = [EngineVariation(delays=0.5, local_rates="low")]
    *_, varied = build_waterfall(run, evaluate, 1, engines=engines).variations
    assert varied.steps["injection"] == varied.steps["pattern"] == 70 * unit
    assert varied.charged["pattern"] == 0 < varied.charged["placement"]


def test_findings_are_in_the_order_of_their_shares() -> None:
    flows = [Flow(n, 8 + n, 305) for n in range(8)] + [Flow(16 + n, 24, 76) for n in range(8)]
    run = make_run(flows, dict.fromkeys(ups(0), 0.85) | {eject(24): 0.95})
    findings = [f for f in diagnose_cause(run).findings if f.code != CODE]
    assert [finding.code for finding in findings] == ["TB002", "TB001"]
    assert findings[0].share > 0.6 > 0.3 > findings[1].share


@pytest.mark.parametrize(("leaves", "named"), [((0, 3), (0,)), ((2, 3), (2, 3))])
def test_stated_slow_links_of_our_traffic_are_named(
    leaves: tuple[int, ...], named: tuple[int, ...]
) -> None:
    """Leaf 0 sends to leaf 1; where no link that is stated carries that, all of them are named."""
    run = placement_run(log=False)
    name = RunAnalysis(run).topology.name
    ports = {leaf: name[ups(leaf)[0]].partition(" ")[0] for leaf in leaves}
    stated = [
        Degraded.model_validate({"cable": port, "rate": "10 Gb/s"}) for port in ports.values()
    ]
    fabric = run.scenario.fabric.model_copy(update={"degraded": stated})
    run = replace(run, scenario=run.scenario.model_copy(update={"fabric": fabric}))

    def evaluate(change: Change) -> Run:
        return timed(run, round((1.0 if change.network == "as-is" else 0.5) * run.elapsed_ps))

    diagnosis = diagnose_cause(run, evaluate, seeds=1)
    assert diagnosis.cause == "slow-link"
    assert diagnosis.slow_links == [name[ups(leaf)[0]] for leaf in named]


def filled(shares: list[float], dark: list[int]) -> RunAnalysis:
    """Up-links of leaf 0 that carry so much of their line rate, some of them congested."""
    flows = [
        Flow(at, 8 + at, round(100 * LINE_PACKETS * share), last=99, spine=at)
        for at, share in enumerate(shares)
    ]
    # Nodes of another leaf are not late.
    quick = round(10 * LINE_PACKETS)
    flows += [Flow(16 + at, 24 + at, quick, last=9, spine=at) for at in range(4)]
    return RunAnalysis(make_run(flows, {ups(0)[at]: 0.85 for at in dark}, windows=100))


def test_a_full_bundles_link_is_no_imbalance() -> None:
    """Nothing can take its place: the bundle is 80 % full as well. At 43 % it can."""
    full = filled([1.0, 0.74, 0.74, 0.74], [0])
    assert full.roots["link"].to_list() == [ups(0)[0]]
    assert full.roots["verdict"].to_list() == ["ours"]
    assert filled([1.0, 0.24, 0.24, 0.24], [0]).roots["verdict"].to_list() == ["routing"]


def test_a_slow_dark_link_has_equally_loaded_equivalents() -> None:
    """Those that carry a third of it say nothing of what they would do with all of it."""
    assert filled([0.4, 0.4, 0.4, 0.4], [0]).roots["verdict"].to_list() == ["slow"]
    assert filled([0.4, 0.13, 0.13, 0.13], [0]).roots["verdict"].to_list() == ["others"]


def test_an_unfilled_root_needs_samples() -> None:
    """A bound 0.35 above is to come down to 0.175, a quarter of what counts as full: 4 times."""
    value, error = np.array([0.6, 0.6]), np.array([0.35, 0.05]) / Z95
    assert _growth(value, error, value + error * Z95) == pytest.approx([4.0, 0.0])


@pytest.mark.parametrize("pattern", ["ring", "uniform", "alltoall"])
def test_no_step_undoes_the_saving_of_shared_hosts(pattern: str) -> None:
    scenario = tb.load_scenario(
        {
            "fabric": {"preset": "full"},
            "job": [
                {
                    "pattern": {"kind": pattern, "ranks": 36, "size": "256 KiB"},
                    "hosts": "0-8",
                    "ranks_per_host": 4,
                    "placement": "random",
                }
            ],
        }
    )
    diagnosis = tb.diagnose(scenario, remedies=["placement"]).diagnosis
    deltas = [bar.delta_ps for bar in diagnosis.waterfall[:-1]]
    assert min(deltas) >= -CLEARLY_FASTER * diagnosis.elapsed_ps
    assert sum(share.charged for share in diagnosis.shares) <= 1.0
