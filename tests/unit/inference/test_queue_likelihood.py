"""What readings of queues say of slow links, where queues drop packets."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.fabric.degraded import SlowLink
from tailback.inference.queue_likelihood import QueueLikelihood

N_LINKS = 8
REVERSE = np.arange(N_LINKS, dtype=np.uint32) ^ 1


def likelihood(queued: dict[int, float], readings: float = 44.0) -> QueueLikelihood:
    """Links that are busy for 14 % of the time at 10 Gb/s, and have a queue in 5 % of readings."""
    shares = np.full(N_LINKS, 0.05)
    for link, share in queued.items():
        shares[link] = share
    busy, number, rate = (np.full(N_LINKS, x) for x in (0.14, readings, 10.0))
    return QueueLikelihood(shares, busy, number, rate)


def test_queues_beyond_busy_time_favour_slow_cables() -> None:
    queues = likelihood({2: 0.32, 3: 0.30})
    ratio = queues.log_ratio(SlowLink(2, 3.3), 3)
    assert ratio > 2 * queues.log_ratio(SlowLink(2, 3.3, both=False), 3) - 1.0 > 5.0
    (first, *others) = queues.suspects([0, 2, 4, 6], REVERSE)
    assert (first.link, first.both) == (2, True) and not others
    assert first.gbps == pytest.approx(10 * 0.14 / 0.31, rel=0.02)


def test_few_queues_say_little_of_rates() -> None:
    queues = likelihood({})
    assert -3.0 < queues.log_ratio(SlowLink(0, 2.5), 1) < 0.0
    assert queues.suspects(range(0, N_LINKS, 2), REVERSE) == []


def test_few_readings_say_little() -> None:
    many, few = (likelihood({2: 0.32}, number) for number in (400.0, 6.0))
    slow = SlowLink(2, 4.0, both=False)
    assert many.log_ratio(slow, 3) > 20.0 > 3.0 > few.log_ratio(slow, 3) > 0.0


def test_links_without_readings_say_nothing() -> None:
    queues = likelihood({2: 0.9})
    unread = QueueLikelihood(
        queues.queued, np.full(N_LINKS, np.nan), queues.readings, queues.nominal
    )
    assert unread.log_ratio(SlowLink(2, 1.0), 3) == 0.0
    assert unread.suspects([0, 2], REVERSE) == []
