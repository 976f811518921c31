"""Costs of causes in networks that drop packets, where a model without drops is too fast."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tailback.diagnosis.explanation import Cost
from tailback.inference.decision import more_by_load_ps, with_lossy_costs
from tailback.inference.error_model import ErrorModel
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.network_clues import is_lossy

S = 10**12
LOSSY = ErrorModel(10 * S, lossy=True)


def cost(cause: str, seconds: float, total_s: float = 10.0) -> Cost:
    ps = round(seconds * S)
    fields: dict[str, Any] = {"subject": "", "evidence": "", "rests_on": ("counters",)}
    return Cost(cause=cause, ps=ps, low_ps=ps, high_ps=ps, share=seconds / total_s, **fields)


def test_a_run_without_slow_cable_exceeds_the_model() -> None:
    """10 s measured and expected, 4 s without the cable in the model: 4.8 s under TCP."""
    (lossy_cost,) = with_lossy_costs([cost("slow-link", 6.0)], LOSSY, 10 * S, 1.0)
    assert lossy_cost.ps == pytest.approx(5.2 * S) and lossy_cost.share == pytest.approx(0.52)
    assert lossy_cost.low_ps == pytest.approx(3.93 * S, rel=0.01)
    assert lossy_cost.high_ps == pytest.approx(6.21 * S, rel=0.01)


def test_what_a_run_computes_is_not_lengthened() -> None:
    """Of the 4 s without the cable, 3 are computation: 4.2 s under TCP."""
    model = ErrorModel(10 * S, lossy=True, instant_ps=3 * S)
    assert model.usual_ps(4 * S) == pytest.approx(4.2 * S)
    assert model.simulated_ps(model.usual_ps(4 * S)) == pytest.approx(4 * S)
    assert model.time_error < LOSSY.time_error
    (lossy_cost,) = with_lossy_costs([cost("slow-link", 6.0)], model, 10 * S, 1.0)
    assert lossy_cost.ps == pytest.approx(5.8 * S)


def test_unexpected_time_widens_the_range_only() -> None:
    """The model explains 1 s of other traffic; up to 3 s more may be due to it."""
    (lossy_cost,) = with_lossy_costs([cost("other-traffic", 1.0)], LOSSY, 6 * S, 1.0)
    assert lossy_cost.ps == 1 * S
    assert lossy_cost.low_ps == 1 * S and lossy_cost.high_ps == pytest.approx(5.26 * S, rel=0.01)


@pytest.mark.parametrize(
    ("busy_s", "more_s"),
    [(0.0, 0.0), (5.0, 0.0), (8.0, 2.0), (30.0, 4.0)],
)
def test_a_full_link_needs_at_most_the_run(busy_s: float, more_s: float) -> None:
    assert more_by_load_ps(
        round(busy_s * S), ErrorModel(12 * S, lossy=True), 6 * S
    ) == pytest.approx(more_s * S)


def test_small_and_joint_costs_stay() -> None:
    minor = [cost("slow-link", 6.0), cost("other-traffic", 0.1), cost("noise", 0.3)]
    costs = {
        lossy_cost.cause: lossy_cost for lossy_cost in with_lossy_costs(minor, LOSSY, 10 * S, 1.0)
    }
    assert costs["slow-link"].ps < 6 * S and costs["noise"] == minor[2]
    assert costs["other-traffic"] == minor[1]
    both = [cost("slow-link", 6.0), cost("other-traffic", 2.0)]
    assert with_lossy_costs(both, LOSSY, 10 * S, 1.0) == both


def test_the_largest_cost_stays_first() -> None:
    costs = [cost("slow-link", 2.0), cost("noise", 1.9)]
    assert [lossy_cost.cause for lossy_cost in with_lossy_costs(costs, LOSSY, 10 * S, 1.0)] == [
        "noise",
        "slow-link",
    ]


@pytest.mark.parametrize(("gbps", "lossy"), [(0.04, True), (10.0, True), (54.5, False)])
def test_fast_ethernet_is_not_taken_to_drop(gbps: float, lossy: bool) -> None:
    ethernet: Any = SimpleNamespace(
        link_interface=np.array(["eth0", "swp1"]),
        # From a host and from a switch.
        link_src=np.array([0, 1]),
        n_nodes=1,
        link_gbps=np.array([gbps, 400.0]),
    )
    assert is_lossy(NetworkEvidence(), ethernet) == lossy
    infiniband: Any = SimpleNamespace(link_interface=None)
    assert not is_lossy(NetworkEvidence(), infiniband)
