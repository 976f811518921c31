"""The smallest fault that a healthy verdict would have shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.api.diagnose import diagnose
from tailback.cli.explanation_screen import explanation_lines
from tailback.diagnosis.cable_search import MAX_SHARE, MIN_SHARE
from tailback.diagnosis.explanation import SmallestFault, VisibleCables
from tailback.diagnosis.model import Diagnosis
from tailback.inference.smallest_fault import largest_share
from tests.factories.traced_simulations import STENCIL, traced

STATIC = {"routing": "deterministic"}

HOST_CABLE, BORDER_CABLE = 8, 3
"""Cables of hosts: with the median load, and one that others seldom wait for."""


def diagnosed(folder: Path, *slow: int, share: float = 1.0) -> Diagnosis:
    data, _ = traced(folder, slow, share, engine=STATIC)
    return diagnose(data, methods=["block"], remedies=["placement"], seeds=1).diagnosis


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    return diagnosed(tmp_path_factory.mktemp("healthy"))


def smallest_of(diagnosis: Diagnosis) -> SmallestFault:
    assert diagnosis.explanation is not None
    assert diagnosis.explanation.smallest_fault is not None
    return diagnosis.explanation.smallest_fault


@pytest.mark.parametrize("least", [0.03, 0.2, 0.5, 0.9])
def test_the_largest_share_is_bracketed(least: float) -> None:
    tried = []

    def is_seen(share: float) -> bool:
        tried.append(share)
        return share <= least

    share = largest_share(is_seen)
    assert share is not None and MIN_SHARE <= share <= least
    unseen = [each for each in tried if each > least]
    assert min([*unseen, MAX_SHARE]) / share < 2.0


def test_invisible_faults_have_no_share() -> None:
    assert largest_share(lambda _: False) is None


def test_a_healthy_verdict_states_its_limits(healthy: Diagnosis) -> None:
    assert healthy.cause == "healthy" and healthy.explanation is not None
    smallest = smallest_of(healthy)
    host, inside = smallest.cables
    assert (host.role, inside.role) == ("host", "between switches")
    for cables in smallest.cables:
        assert cables.rate_share is not None and 0.0 < cables.rate_share < 1.0
        assert cables.tried < 2 * cables.seen <= 2 * cables.tried <= 2 * cables.used
    assert smallest.job_gbps is None  # The job has all hosts.
    screen = " ".join(" ".join(explanation_lines(healthy.explanation)).split())
    assert smallest.statement in screen


def test_a_fault_of_that_size_is_not_healthy(healthy: Diagnosis, tmp_path: Path) -> None:
    host = smallest_of(healthy).cables[0]
    assert host.rate_share is not None
    slow = diagnosed(tmp_path, HOST_CABLE, share=host.rate_share)
    assert slow.cause != "healthy"
    assert slow.explanation is not None and slow.explanation.smallest_fault is None


@pytest.mark.slow
def test_a_fault_half_as_large_may_be_healthy(healthy: Diagnosis, tmp_path: Path) -> None:
    host = smallest_of(healthy).cables[0]
    assert host.rate_share is not None
    slow = diagnosed(tmp_path, BORDER_CABLE, share=(1.0 + host.rate_share) / 2.0)
    assert slow.cause == "healthy"


@pytest.mark.slow
def test_jobs_on_other_hosts_are_tried(tmp_path: Path) -> None:
    """Every other host is free, so that another job shares the job's links between switches."""
    data, _ = traced(
        tmp_path,
        pattern={**STENCIL, "dims": [2, 4]},
        engine={"routing": "adaptive", "injection": "round-robin"},
        hosts="0,2,4,6,8,10,12,14",
        aggregation=2,
    )
    result = diagnose(data, methods=["block"], remedies=["placement"], seeds=1)
    assert result.diagnosis.cause == "healthy"
    job_gbps = smallest_of(result.diagnosis).job_gbps
    assert job_gbps is not None and 0.0 < job_gbps < 100.0


def test_limits_are_stated_for_jobs_and_hidden_cables() -> None:
    hidden = VisibleCables(role="between switches", used=9, tried=3, seen=0, rate_share=None)
    said = SmallestFault(cables=[hidden], job_gbps=2.0).statement
    assert "hardly any slow cable between switches (3 tried, of 9 with your messages)" in said
    assert "a job on all other hosts at 2 Gb/s each or more" in said
