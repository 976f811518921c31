"""Pauses, DCQCN and the fixed point of its fluid model, in short runs."""

from __future__ import annotations

import pytest

import studies.zhu2015.incast as incast
from studies.zhu2015.fixed_point import fixed_point
from tailback.simulation import DcqcnSettings


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One seed, 30 ms."""
    monkeypatch.setattr(incast, "SEEDS", (1,))
    monkeypatch.setattr(incast, "BEGIN_MS", 10)
    monkeypatch.setattr(incast, "END_MS", 30)


def test_the_fixed_point_solves_the_equations() -> None:
    """Small probabilities: alpha, notifications and recoveries are linear in it."""
    settings = DcqcnSettings()
    queues = [fixed_point(n, 40.0, settings).queue_bytes for n in (2, 4, 8, 16)]
    assert queues == sorted(queues)
    assert settings.kmin_bytes < queues[0]
    assert queues[2] < settings.kmax_bytes < queues[3]
    # A greater increase needs more marks.
    greedy = DcqcnSettings(additive_mbps=80.0)
    assert fixed_point(2, 40.0, greedy).queue_bytes > queues[0]


def test_published_thresholds() -> None:
    """Section 4: beta (B - 8 n t_flight - s) / 8 with beta 8 and 32 ports."""
    assert incast.shared_threshold(0) == 12_000_000 - 256 * 22_400
    assert incast.shared_threshold(200_000) == incast.SHARED


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_pauses_are_unfair_and_dcqcn_is_not() -> None:
    flows = [(host, incast.RECEIVER) for host in incast.UNFAIR]
    paused = incast.shares(flows, "pauses, static threshold")
    *others, near = paused.gbps[0]
    assert near >= max(others) - 0.1
    assert near > 1.9 * min(others)
    assert paused.pauses_per_ms > 100
    fair = incast.shares(flows, "DCQCN, shared buffer")
    assert fair.gbps[0].max() < 1.6 * fair.gbps[0].min()
    assert fair.pauses_per_ms < 1


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_marks_protect_the_victim_of_unrelated_hosts() -> None:
    def victim(scheme: str, others: int) -> float:
        senders = [*incast.INCAST, *incast.OTHERS[:others]]
        flows = [incast.VICTIM, *((host, incast.RECEIVER) for host in senders)]
        return float(incast.shares(flows, scheme).gbps[0, 0])

    assert victim("pauses, static threshold", 2) < 0.5 * victim("pauses, static threshold", 0)
    assert victim("DCQCN, static threshold", 2) > 0.9 * victim("DCQCN, static threshold", 0) > 20
