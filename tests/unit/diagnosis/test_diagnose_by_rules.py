"""Which cause fits the message log: every step of the reasoning, by numbers made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from tailback.diagnosis.adapter_load import AdapterLoad, slow_adapter
from tailback.diagnosis.message_delays import MessageDelays
from tailback.diagnosis.model import Cause, Finding
from tailback.diagnosis.rule_verdict import cause_of_rules
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.run import Run
from tests.factories.diagnosis_runs import placement_run

CODE: dict[Cause, str] = {
    "pattern": "TB001", "placement": "TB002", "other-traffic": "TB003", "not-network": "TB004",
    "undetermined": "TB005", "routing": "TB006", "slow-link": "TB007", "injection": "TB008",
}  # fmt: skip


def fired(**shares: float) -> list[Finding]:
    """Findings by cause, an underscore for the dash, with their shares of the congested packets."""
    return [
        Finding(
            code=CODE[cast(Cause, name.replace("_", "-"))],
            cause=cast(Cause, name.replace("_", "-")),
            title="", explanation="", share=share, phases=[], links=[], advice="",
        )
        for name, share in shares.items()
    ]  # fmt: skip


def lost(
    endpoint: float = 0.0, inside: float = 0.2, active: float = 0.9, late: float = 0.2
) -> MessageDelays:
    return MessageDelays(endpoint, inside, active, late, pl.DataFrame())


ADAPTERS = AdapterLoad(np.ones(8), np.ones(8), np.full(8, 0.95), np.full(8, 4))
SLOW = AdapterLoad(np.ones(8), np.ones(8), np.array([0.3] + [0.95] * 7), np.full(8, 4))


@dataclass
class Known:
    """What the rules' cause looks at. Costs are by cause: burden, and the longest time hot."""

    losses: MessageDelays | None = field(default_factory=lost)
    one_cable: float = 0.0
    communication_fraction: float = 1.0
    wire_share: float = 0.2
    unsure_share: float = 0.0
    adapters: AdapterLoad = ADAPTERS
    costs: dict[Cause, tuple[float, float]] = field(default_factory=dict)
    routing: str = "adaptive"

    @property
    def run(self) -> Run:
        return placement_run(routing=self.routing)

    @property
    def slow_node(self) -> int | None:
        return slow_adapter(self.adapters)

    def burden(self, cause: Cause) -> tuple[float, float]:
        return self.costs.get(cause, (0.1, 0.5))


def cause(findings: list[Finding], **known: Any) -> Cause:
    return cause_of_rules(findings, cast(RunAnalysis, Known(**known)))


BOTH = {"pattern": (0.5, 0.5), "placement": (0.1, 0.5)}


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        # Of 0.2 lost, 0.13 at nodes are 65 %.
        (lost(0.131, 0.069), "pattern"),
        (lost(0.129, 0.071), "placement"),
    ],
)
def test_nodes_are_to_blame_where_most_is_lost_at_them(losses: MessageDelays, told: Cause) -> None:
    """However much they mark."""
    found = fired(pattern=0.8, placement=0.2)
    assert cause(found, losses=losses, costs=BOTH) == told


@pytest.mark.parametrize(
    ("active", "communicating", "told"),
    [
        (0.51, 1.0, "placement"),
        (0.49, 1.0, "other-traffic"),
        # Half of the time is computation: then 0.26 is more than half of the rest.
        (0.26, 0.5, "placement"),
        (0.24, 0.5, "other-traffic"),
    ],
)
def test_our_own_traffic_must_be_there_to_fill_the_network(
    active: float, communicating: float, told: Cause
) -> None:
    found = fired(placement=0.8, other_traffic=0.2)
    costs = {"placement": (0.5, 0.5), "other-traffic": (0.1, 0.5)}
    losses = lost(active=active)
    assert cause(found, losses=losses, communication_fraction=communicating, costs=costs) == told


@pytest.mark.parametrize(
    ("losses", "one", "told"),
    [
        # One cable explains nearly all, and messages are not under way all the time.
        (lost(active=0.59), 0.66, "slow-link"),
        (lost(active=0.61), 0.66, "placement"),
        (lost(active=0.59), 0.64, "placement"),
        # Few are late: then less of it is enough, however busy our traffic is.
        (lost(late=0.09), 0.36, "slow-link"),
        (lost(late=0.11), 0.36, "placement"),
        (lost(late=0.09), 0.34, "placement"),
        # Nine tenths are lost at nodes: nothing further inside is looked for.
        (lost(0.19, 0.02, late=0.09), 0.9, "pattern"),
        (lost(0.17, 0.02, late=0.09), 0.9, "slow-link"),
        # And too little is lost inside.
        (lost(0.02, 0.009, late=0.09), 0.9, "pattern"),
        (lost(0.02, 0.011, late=0.09), 0.9, "slow-link"),
    ],
)
def test_one_cable_is_to_blame_where_it_explains_who_is_late(
    losses: MessageDelays, one: float, told: Cause
) -> None:
    found = fired(pattern=0.5, placement=0.5)
    assert cause(found, losses=losses, one_cable=one, costs=BOTH) == told


@pytest.mark.parametrize(
    ("late", "one", "told"),
    [
        (0.31, 0.44, "other-traffic"),
        (0.29, 0.44, "slow-link"),
        (0.31, 0.46, "slow-link"),
    ],
)
def test_many_late_messages_that_no_cable_explains_are_other_traffic(
    late: float, one: float, told: Cause
) -> None:
    """A root that looks like a slow link counts for others then, with what it burdens."""
    found = fired(slow_link=0.6, placement=0.4)
    costs = {"slow-link": (0.5, 0.5), "placement": (0.3, 0.5)}
    assert cause(found, losses=lost(late=late), one_cable=one, costs=costs) == told


@pytest.mark.parametrize(
    ("losses", "routing", "told"),
    [
        (lost(0.15, 0.05), "deterministic", "pattern"),
        (lost(active=0.29), "deterministic", "slow-link"),
        (lost(active=0.31), "deterministic", "routing"),
        (lost(0.0, 0.101, active=0.51), "adaptive", "placement"),
        (lost(0.0, 0.099, active=0.51), "adaptive", "other-traffic"),
        (lost(0.0, 0.101, active=0.49), "adaptive", "other-traffic"),
    ],
)
def test_without_a_tree_the_message_log_alone_tells(
    losses: MessageDelays, routing: str, told: Cause
) -> None:
    assert cause([], losses=losses, routing=routing) == told


def test_what_burdens_most_is_the_cause_not_what_is_marked_most() -> None:
    found = fired(placement=0.3, other_traffic=0.7)
    costs = {"placement": (0.2, 0.5), "other-traffic": (0.1, 0.5)}
    assert cause(found, costs=costs) == "placement"
    # Nor does the log say another where all are late alike.
    assert cause(found, costs=costs, losses=lost(0.0, 0.019)) == "placement"
    assert cause(found, costs=costs, losses=None) == "placement"


@pytest.mark.parametrize(("longest", "told"), [(0.049, "not-network"), (0.051, "placement")])
def test_what_is_hot_for_a_moment_costs_no_more(longest: float, told: Cause) -> None:
    found, costs = fired(placement=1.0), {"placement": (0.04, longest)}
    assert cause(found, costs=costs, losses=None) == told
    # What the adapters need by themselves is the rest, where that is half of the time.
    rest = "injection" if told == "not-network" else told
    assert cause(found, costs=costs, losses=None, wire_share=0.5) == rest


@pytest.mark.parametrize(("wire", "told"), [(0.96, "injection"), (0.94, "placement")])
def test_no_more_is_lost_than_the_adapters_leave(wire: float, told: Cause) -> None:
    assert cause(fired(placement=1.0), wire_share=wire) == told


def test_what_is_open_must_outweigh_what_is_known() -> None:
    found = fired(placement=0.3, undetermined=0.0)
    assert cause(found, unsure_share=0.31) == "undetermined"
    assert cause(found, unsure_share=0.29) == "placement"


def test_a_slow_adapter_is_told_by_its_messages() -> None:
    assert cause(fired(placement=1.0)) == "placement"
    assert cause(fired(placement=1.0), adapters=SLOW) == "slow-link"
    # Not where there is hardly any communication to slow down.
    found = fired(not_network=0.0)
    assert cause(found, adapters=SLOW, communication_fraction=0.04) == "not-network"
    assert cause(found, adapters=SLOW, communication_fraction=0.06) == "slow-link"


def test_a_quiet_network_is_believed_unless_the_log_contradicts() -> None:
    """Neither at nodes nor inside may messages have lost much."""
    quiet, line = fired(not_network=0.0), fired(injection=0.0)
    late = lost(0.0, 0.03, active=0.2)
    assert cause(quiet, losses=lost(0.049, 0.019)) == "not-network"
    assert cause(quiet, losses=lost(0.051, 0.019)) == "pattern"
    assert cause(quiet, losses=late) == "slow-link"
    assert cause(quiet, losses=None) == "not-network"
    assert cause(line, losses=lost(0.2, 0.019)) == "injection"
    assert cause(line, losses=late) == "slow-link"


@pytest.mark.parametrize(("wire", "told"), [(0.5, "injection"), (0.49, "not-network")])
def test_without_trees_and_losses_line_rate_or_nothing_takes_the_time(
    wire: float, told: Cause
) -> None:
    assert cause([], losses=lost(0.01, 0.009), wire_share=wire) == told
    assert cause([], losses=None, wire_share=wire) == "undetermined"
