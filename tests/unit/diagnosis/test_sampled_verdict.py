"""Which cause makes samples and message log most likely, by numbers made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import polars as pl
import pytest

from tailback.diagnosis.confidence import UNINFORMATIVE
from tailback.diagnosis.message_delays import MessageDelays
from tailback.diagnosis.model import Cause
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.sampled_verdict import SampledVerdict, sampled_verdict
from tailback.run.run import Run
from tests.factories.diagnosis_runs import placement_run


def lost(endpoint: float = 0.0, inside: float = 0.2) -> MessageDelays:
    return MessageDelays(endpoint, inside, pl.DataFrame())


def filling(node: float = 0.45, bundle: float = 0.45, link: float = 0.45) -> dict[Cause, float]:
    """How full we keep the fullest link to a node, bundle, and link inside the network."""
    return {"pattern": node, "placement": bundle, "routing": link}


@dataclass
class Known:
    """What the verdict looks at. Costs are by cause: burden, and the longest time hot."""

    losses: MessageDelays | None = field(default_factory=lost)
    one_cable: float = 0.0
    only_cable: float = 0.0
    filled: dict[Cause, float] = field(default_factory=filling)
    communication_fraction: float = 1.0
    wire_share: float = 0.2
    unsure_share: float = 0.0
    received: int = 1000
    crosses: bool = True
    captured: bool = False
    costs: dict[Cause, tuple[float, float]] = field(default_factory=dict)
    routing: str = "adaptive"

    @property
    def run(self) -> Run:
        return placement_run(routing=self.routing)

    def burden(self, cause: Cause) -> tuple[float, float]:
        return self.costs.get(cause, (0.0, 0.0))


def verdict(**facts: Any) -> SampledVerdict:
    conclusion = sampled_verdict(cast(RunAnalysis, Known(**facts)))
    assert sum(conclusion.probability.values()) == pytest.approx(1.0)
    return conclusion


def test_captures_leave_slow_links_and_others_open() -> None:
    costs: dict[Cause, tuple[float, float]] = {"other-traffic": (0.5, 0.5)}
    logged = verdict(losses=None, costs=costs)
    captured = verdict(losses=None, costs=costs, captured=True)
    assert (logged.cause, captured.cause) == ("other-traffic", "undetermined")
    both = logged.probability["other-traffic"] + logged.probability["slow-link"]
    for cause in ("other-traffic", "slow-link"):
        assert captured.probability[cause] == pytest.approx(both / 2)


PATTERN: dict[Cause, tuple[float, float]] = {"pattern": (0.5, 0.5), "placement": (0.1, 0.5)}
OURS: dict[Cause, tuple[float, float]] = dict.fromkeys(
    ("pattern", "placement", "routing", "other-traffic"), (0.1, 0.5)
)
PLACEMENT: dict[Cause, tuple[float, float]] = {"pattern": (0.1, 0.5), "placement": (0.5, 0.5)}


def test_trees_with_log_are_surer_than_either() -> None:
    both = verdict(losses=lost(0.2, 0.0), costs=PATTERN)
    trees = verdict(losses=None, costs=PATTERN)
    log = verdict(losses=lost(0.2, 0.0))
    assert both.cause == trees.cause == log.cause == "pattern"
    assert both.confidence > max(trees.confidence, log.confidence)


def test_nodes_that_lose_little_are_not_blamed() -> None:
    """However many packets they mark."""
    assert verdict(losses=lost(0.19, 0.01), costs=PATTERN).cause == "pattern"
    assert verdict(losses=lost(0.01, 0.19), costs=PATTERN).cause == "placement"
    # Back-pressure makes messages wait at nodes, too, so that alone does not acquit the network.
    assert verdict(losses=lost(0.19, 0.01), costs=PLACEMENT).cause == "placement"


def test_the_cause_fills_its_links_with_our_traffic() -> None:
    """The root of a congestion tree is full."""

    def cause_of(node: float, bundle: float, link: float, routing: str = "adaptive") -> Cause:
        return verdict(
            losses=None, costs=OURS, filled=filling(node, bundle, link), routing=routing
        ).cause

    assert cause_of(0.95, 0.3, 0.4) == "pattern"
    assert cause_of(0.4, 0.95, 0.96) == "placement"
    assert cause_of(0.4, 0.4, 0.97, "deterministic") == "routing"
    assert cause_of(0.2, 0.1, 0.1) == "other-traffic"


def test_trees_say_little_about_losses_without_them() -> None:
    """Roots at nodes are congested for half of the time that is lost, or a twentieth."""
    verdicts = [
        verdict(losses=lost(0.0, 0.5), costs={"pattern": (hot / 2, hot)}) for hot in (0.25, 0.025)
    ]
    rivals = [
        conclusion.probability["pattern"] / conclusion.probability["placement"]
        for conclusion in verdicts
    ]
    assert rivals[0] > 2.5 * rivals[1]


def test_contention_costs_at_most_the_communication_time() -> None:
    """However little of it is free of delays."""
    conclusion = verdict(losses=lost(0.0, 0.03), communication_fraction=0.03)
    assert conclusion.cause == "not-network" and conclusion.confidence > 1.0 - UNINFORMATIVE


def test_one_cable_is_blamed_for_late_ranks() -> None:
    costs = {"other-traffic": (0.5, 0.5), "slow-link": (0.1, 0.5)}

    def cause_of(late: MessageDelays, one_cable: float, only: float) -> Cause:
        return verdict(losses=late, one_cable=one_cable, only_cable=only, costs=costs).cause

    assert cause_of(lost(), 0.95, 0.5) == "slow-link"
    assert cause_of(lost(), 0.2, 0.5) == "other-traffic"
    # Other traffic delays the messages of several cables alike.
    assert cause_of(lost(), 0.95, 0.0) == "other-traffic"
    # A cable explains nothing of what is lost at nodes.
    assert cause_of(lost(0.2, 0.0), 0.95, 0.5) == "other-traffic"


def test_switches_that_choose_by_load_route_evenly() -> None:
    costs = {"placement": (0.3, 0.5), "routing": (0.4, 0.5)}
    verdicts = [
        verdict(losses=lost(), costs=costs, routing=routing)
        for routing in ("deterministic", "random", "adaptive")
    ]
    assert [conclusion.cause for conclusion in verdicts] == ["routing", "routing", "placement"]
    assert verdicts[0].confidence > verdicts[1].confidence


def test_what_is_open_makes_every_verdict_less_sure() -> None:
    clear, thin = (verdict(losses=None, costs=PLACEMENT, unsure_share=u) for u in (0.0, 0.5))
    assert clear.cause == thin.cause == "placement" and clear.confidence > thin.confidence
    assert verdict(losses=None, costs=PLACEMENT, unsure_share=1.0).cause == "undetermined"
    unsampled = sampled_verdict(cast(RunAnalysis, Known(received=0, costs=PLACEMENT)))
    assert (unsampled.cause, unsampled.confidence) == ("undetermined", 0.0)


@pytest.mark.parametrize(
    ("losses", "costs", "communicating", "cause"),
    [
        (lost(0.0, 0.0), {}, 1.0, "not-network"),
        # Congested links, but for a moment; or hardly any communication to slow down.
        (lost(0.0, 0.0), {"placement": (0.04, 0.05)}, 1.0, "not-network"),
        (lost(0.0, 0.2), PLACEMENT, 0.04, "not-network"),
        (lost(0.0, 0.0), {"placement": (0.3, 0.5)}, 1.0, "placement"),
        # The log alone: all is lost inside.
        (lost(0.0, 0.3), {}, 1.0, "other-traffic"),
    ],
)
def test_a_quiet_network_is_believed_unless_contradicted(
    losses: MessageDelays,
    costs: dict[Cause, tuple[float, float]],
    communicating: float,
    cause: Cause,
) -> None:
    assert verdict(losses=losses, costs=costs, communication_fraction=communicating).cause == cause


@pytest.mark.parametrize(("wire", "cause"), [(0.5, "injection"), (0.49, "not-network")])
def test_without_contention_rate_or_nothing_takes_time(wire: float, cause: Cause) -> None:
    conclusion = verdict(losses=lost(0.0, 0.0), wire_share=wire)
    assert conclusion.cause == cause and conclusion.confidence <= 1.0 - UNINFORMATIVE * 5 / 6


def test_no_more_is_lost_than_the_adapters_leave() -> None:
    assert verdict(losses=lost(0.0, 0.0), costs=PLACEMENT, wire_share=0.98).cause == "injection"


def test_what_stays_within_hosts_is_not_the_network() -> None:
    conclusion = sampled_verdict(cast(RunAnalysis, Known(crosses=False, costs=PLACEMENT)))
    assert conclusion.cause == "not-network"
