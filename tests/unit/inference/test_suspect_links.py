"""Suspect links: the evidence against them, and what a cable costs at most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.diagnosis.cable_search import Outcome
from tailback.diagnosis.explanation import Cost, SuspectLink
from tailback.fabric.degraded import SlowLink
from tailback.inference.error_model import ErrorModel
from tailback.inference.evidence import NetworkEvidence, link_events
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.hypotheses import FAULT, Hypothesis, Posterior, Prior
from tailback.inference.measured_verdict import _suspect_links
from tailback.inference.measured_wording import errors_not_excluded
from tailback.inference.suspect_links import (
    CableCosts,
    Charge,
    CostRange,
    charges,
    suspect_links,
    suspected_cables,
)
from tailback.port_counters.findings.port_events import PORT_EVENTS, no_events
from tests.factories.counted_links import egress, small_tree

FABRIC = small_tree()
SENT = np.ones(FABRIC.n_links)
LINK = egress(FABRIC, 0)
CABLE = min(LINK, int(FABRIC.link_reverse[LINK]))
MACHINE = ("round-robin", "adaptive")
MEASURED = 1_000_000
WELL, BADLY = {"calls": 0.001, "sends": 0.002}, {"calls": 0.1, "sends": 0.2}
RUN: Any = SimpleNamespace(tables={"truth": pl.DataFrame()}, elapsed_ps=MEASURED)


def evidence(**row: Any) -> NetworkEvidence:
    """Events of the port of :data:`LINK`; ``in_files`` of all readings."""
    in_files = row.pop("in_files", None)
    values = {"finding": "errors", "node_name": "sw", "port": 1, "at_least": False, "full": []}
    values |= {"counters": ["link_error_recovery"], "count": 0} | row
    schema = PORT_EVENTS.polars_schema
    events = pl.DataFrame([values], schema=schema, orient="row")
    ports = pl.DataFrame({"node_name": ["sw"], "_name": ["1"], "link": [LINK]})
    total = events.with_columns(count=pl.lit(in_files or values["count"], schema["count"]))
    during = no_events() if in_files else events
    return NetworkEvidence(link_events=link_events(during, total, ports))


def only_charge(**row: Any) -> Charge:
    (charge,) = charges(evidence(**row), FABRIC, SENT)
    return charge


def test_recoveries_make_a_crossed_cable_suspect() -> None:
    charge = only_charge(count=12, per_second=4.0)
    assert charge.link == LINK and charge.kind == "errors" and not charge.excluded
    assert charge.evidence == "12 errors (link_error_recovery) in 3 s"
    assert suspected_cables(evidence(count=12), FABRIC, SENT) == (CABLE,)
    elsewhere = np.where(np.isin(np.arange(FABRIC.n_links), [LINK, CABLE]), 0.0, SENT)
    elsewhere[int(FABRIC.link_reverse[LINK])] = 0.0
    assert suspected_cables(evidence(count=12), FABRIC, elsewhere) == ()


def test_errors_within_the_specification_are_ruled_out() -> None:
    """100 Gb/s in 100 s are 10 errors at one in 10¹² bits."""
    few = {"counters": ["SymbolErrorCounter"], "count": 9, "per_second": 0.09}
    assert "allows 10 errors" in only_charge(**few).excluded
    assert not only_charge(**(few | {"count": 11, "per_second": 0.11})).excluded
    # A link that recovers had more than single errors.
    assert not only_charge(**(few | {"counters": ["link_error_recovery"]})).excluded
    assert suspected_cables(evidence(**few), FABRIC, SENT) == ()


def test_errors_outside_the_job_are_ruled_out() -> None:
    charge = only_charge(in_files=7)
    assert charge.evidence.startswith("7 errors") and "while the job ran" in charge.excluded


def test_a_full_counter_makes_its_link_suspect() -> None:
    charge = only_charge(full=["symbol_error"], since_reset=65535)
    assert "largest value" in charge.evidence and not charge.excluded


def test_discards_on_arrival_point_to_the_entering_link() -> None:
    charge = only_charge(finding="discarded", count=5)
    assert charge.link == FABRIC.link_reverse[LINK] and charge.kind == "drops"


@pytest.mark.parametrize(("share", "suspect"), [(0.001, False), (0.02, True), (0.5, True)])
def test_long_pauses_make_a_link_suspect(share: float, suspect: bool) -> None:
    made = charges(evidence(finding="paused", count=3, paused_share=share), FABRIC, SENT)
    assert bool(made) is suspect
    assert all(charge.queued_share == share for charge in made)


# --- costs -------------------------------------------------------------------------------------


def costs_of(
    alone: float,
    misfits: Mapping[str, float | None],
    *tried: tuple[float, Mapping[str, float | None]],
    gbps: float = 50.0,
) -> CableCosts:
    """Costs of a cable with errors: shares of the measured time without and with it."""
    without = Hypothesis(MACHINE, Outcome(round(alone * MEASURED), misfits))
    slow = [
        Hypothesis(
            MACHINE,
            Outcome(round(time * MEASURED), off),
            (SlowLink(CABLE, gbps),),
            alone_ps=without.outcome.elapsed_ps,
        )
        for time, off in tried
    ]
    model = ErrorModel.of(MEASURED, [[without.outcome]], lossy=False)
    prior = Prior(20, FABRIC.link_reverse, faulty=(CABLE,))
    posterior = Posterior([without, *slow], model, prior)
    nominal = np.asarray(FABRIC.link_gbps, np.float64)
    return CableCosts(posterior, prior, [without, *slow], frozenset(), nominal)


def test_a_run_that_lacks_nothing_excludes_a_cost() -> None:
    cost = costs_of(1.0, WELL, (1.3, BADLY)).of(CABLE)
    assert cost.is_excluded and 0.0 <= cost.low <= cost.mean <= cost.high < FAULT


def test_an_agreeing_cable_costs_the_missing_time() -> None:
    cost = costs_of(0.7, BADLY, (1.0, WELL), (1.1, BADLY)).of(CABLE)
    assert 0.2 < cost.low <= 0.3 < cost.high < 0.4 and not cost.is_excluded


def test_noise_in_calls_may_share_the_missing_time() -> None:
    costs = costs_of(0.7, BADLY, (0.8, WELL), (1.0, WELL))
    beside = replace(costs, noise_ps=round(0.3 * MEASURED))
    assert beside.of(CABLE).low < 0.15 < 0.19 < costs.of(CABLE).low


def test_untested_cables_are_not_excluded() -> None:
    """Without a simulation of the cable, only the time of the run bounds its cost."""
    assert not costs_of(1.0, WELL).of(CABLE).is_excluded


def test_cables_without_cost_at_any_rate_are_excluded() -> None:
    idle = (1.0, WELL)
    assert costs_of(1.0, WELL, idle, gbps=1.0).of(CABLE).high == 0.0
    assert costs_of(1.0, WELL, idle, gbps=50.0).of(CABLE).high > 0.0


def test_costs_of_other_cables_take_the_missing_time() -> None:
    costs = costs_of(0.7, BADLY, (1.0, BADLY))
    other = Hypothesis(
        MACHINE, Outcome(MEASURED, WELL), (SlowLink(CABLE + 2, 40.0),), alone_ps=700_000
    )
    hypotheses = [*costs.hypotheses, other]
    posterior = Posterior(hypotheses, costs.posterior.model, costs.prior)
    cost = replace(costs, posterior=posterior, hypotheses=hypotheses).of(CABLE)
    # The small probability of a large cost lies beyond 97.5 %, but the mean is in the range.
    assert cost.is_excluded and 0.0 <= cost.low <= cost.mean <= cost.high
    assert not costs.of(CABLE).is_excluded


# --- the list ----------------------------------------------------------------------------------


def test_every_suspect_cable_is_open_or_ruled_out() -> None:
    reverse = int(FABRIC.link_reverse[LINK])
    against = [
        Charge(LINK, "errors", "12 errors"),
        Charge(reverse, "pauses", "was paused for 2 % of the time", queued_share=0.02),
        Charge(LINK + 2, "pauses", "was paused for 30 % of the time", queued_share=0.3),
        Charge(LINK + 4, "drops", "9 packets dropped"),
    ]
    healthy, missing = costs_of(1.0, WELL, (1.3, BADLY)), costs_of(0.7, BADLY, (1.0, WELL))
    made = suspect_links(against, FABRIC, RUN, healthy, 0.01)
    assert [link.status for link in made] == ["ruled-out"] * 3
    assert made[0].suspected_for == ("errors", "pauses")
    assert (
        "ruled out because the run is no shorter without it: costs 0.1 % (0–1 %)"
        in made[0].statement
    )
    assert "at most the 2.0 % of the time" in made[0].statement
    assert "lacks only 1.0 % of the time" in made[1].reason
    still = suspect_links(against, FABRIC, RUN, missing, 0.3)
    assert [link.status for link in still] == ["candidate"] * 3
    assert [link.may_have_errors for link in still] == [True, False, False]
    assert still[0].reason.startswith("not excluded: costs ")
    assert still[0].share == pytest.approx(0.3, abs=0.05)


def test_queues_of_the_expected_run_rule_out(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = pl.DataFrame({"stall_ps": [1]})
    run: Any = SimpleNamespace(tables={"truth": truth}, elapsed_ps=MEASURED)
    stalls = np.full(FABRIC.n_links, 0.15 * MEASURED)
    monkeypatch.setattr("tailback.inference.suspect_links.link_totals", lambda *_: stalls)
    costs = costs_of(0.7, BADLY, (1.0, WELL))
    for share, status in ((0.3, "ruled-out"), (0.6, "candidate")):
        against = [Charge(LINK, "pauses", "was paused", queued_share=share)]
        (link,) = suspect_links(against, FABRIC, run, costs, 0.3)
        assert link.status == status


def test_suspect_cables_are_as_likely_as_not() -> None:
    prior = Prior(50, FABRIC.link_reverse, faulty=(CABLE, CABLE + 2))
    assert prior.log_place(CABLE) == prior.log_place(int(FABRIC.link_reverse[CABLE]))
    odds = sum(math.exp(prior.log_place(cable)) for cable in prior.faulty)
    assert odds == pytest.approx(1.0)
    others = [CABLE + 4] * 50
    assert sum(math.exp(prior.log_place(cable)) for cable in others) == pytest.approx(0.1)


def test_rates_do_not_bound_a_cable_with_errors() -> None:
    served, sound = np.full(FABRIC.n_links, 90.0), np.zeros(FABRIC.n_links, np.bool_)
    prior = Prior(5, FABRIC.link_reverse, (), served, sound, (CABLE,))
    assert prior.least_rate(LINK, both=True) == 0.0
    assert prior.least_rate(CABLE + 2, both=True) == 90.0


def test_a_range_states_its_bounds() -> None:
    assert str(CostRange(0.0, 0.0, 0.01)) == "0 % (0–1 %)"


# --- in the verdict ----------------------------------------------------------------------------


def suspect_link(**fields: Any) -> SuspectLink:
    stated: dict[str, Any] = {
        "link": LINK,
        "name": "a → b",
        "suspected_for": ("errors",),
        "evidence": "12 errors",
    }
    state = {"status": "named", "reason": "", "share": 0.02, "low": 0.0, "high": 0.03}
    return SuspectLink(**(stated | state | fields))


def listed(link: SuspectLink, share: float) -> SuspectLink:
    """The link in the verdict on a run in which slow links cost this share."""
    ps = round(share * MEASURED)
    cost = Cost(
        cause="slow-link",
        ps=ps,
        low_ps=ps,
        high_ps=ps,
        share=share,
        subject="",
        evidence="",
        rests_on=("model",),
    )
    (out,) = _suspect_links(EvidenceSummary(suspect_links=(link,)), [cost])
    return out


def test_named_links_without_cost_are_ruled_out() -> None:
    assert listed(suspect_link(), 0.3).status == "named"
    assert listed(suspect_link(), 0.02).reason == (
        "the run is no shorter without it: costs 2.0 % (0–3 %)"
    )
    stated = suspect_link(suspected_for=("rate",), share=None, low=None, high=None)
    assert listed(stated, 0.02).status == "ruled-out"
    wide = listed(suspect_link(high=0.2), 0.02)
    assert wide.status == "candidate" and "not excluded: costs 2.0 % (0–20 %)" in wide.statement


def test_open_errors_forbid_a_healthy_verdict() -> None:
    still = suspect_link(status="candidate", reason="not excluded: costs 2.0 % (0–20 %)")
    paused = suspect_link(status="candidate", reason="open", suspected_for=("pauses",))
    assert errors_not_excluded([suspect_link(status="ruled-out"), paused]) == ""
    headline = errors_not_excluded([paused, still])
    assert "a → b: 12 errors; not excluded: costs 2.0 % (0–20 %)" in headline


def test_evidence_is_told_by_direction() -> None:
    back = int(FABRIC.link_reverse[CABLE])
    against = [
        Charge(CABLE, "rate", "it served 9 of 40"),
        Charge(back, "rate", "it served 11 of 40"),
        Charge(CABLE, "samples", "half met congestion"),
    ]
    costs = costs_of(1.0, WELL, (1.3, BADLY))
    (link,) = suspect_links(against, FABRIC, RUN, costs, 0.3)
    assert link.evidence == (
        "it served 9 of 40; half met congestion; the other direction: it served 11 of 40"
    )
