"""How other traffic was sent: evenly or in bursts.

Counters give the bytes of a window, not when in it they were sent. The same bytes cost our job more
if all nodes of another job send at once, as parallel programs do. Each arrangement of bursts
predicts how long our run takes, how long its ranks are in their calls and how long ports stall. The
arrangement that agrees best with the measurements is taken; those that agree nearly as well give
the interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailback.diagnosis.hidden_cables import MISFIT_WEIGHT, MODEL_ERROR

BURSTS: Final = (None, 4, 8, 16, 32, 64)
"""Numbers of bursts per counter window that are tried. More are equivalent to even spreading."""

MAX_DISTANCE = 1.0
"""Arrangements within this distance of the best one are equally likely."""


@dataclass(frozen=True)
class Outcome:
    """How a simulation compares with the measurements.

    Attributes:
        elapsed_ps: Time of the run.
        misfits: Misfit to each kind of evidence, None where it cannot be compared.
        spread: Difference in distribution of the times of messages, None the same.
    """

    elapsed_ps: int
    misfits: tuple[float | None, ...]
    spread: float | None = None


@dataclass(frozen=True)
class BurstFit:
    """The arrangement that agrees best with what was measured.

    Attributes:
        bursts: Bursts a window, None for evenly spread.
        elapsed_ps: Time of the run beside it.
        low_ps: Shortest time of the run over arrangements that agree about as well.
        high_ps: Longest.
        misfit: Its misfit to calls and stalls over that without other traffic, mean.
    """

    bursts: int | None
    elapsed_ps: int
    low_ps: int
    high_ps: int
    misfit: float


def fit_bursts(
    alone: Outcome, beside: Callable[[int | None], Outcome], measured_ps: int
) -> BurstFit:
    """Fit the arrangement of other traffic to what was measured.

    Args:
        alone: The expected run without other traffic.
        beside: The expected run beside other traffic with that many bursts per window.
        measured_ps: Time measured in and between calls.
    """
    tried = []
    for bursts in BURSTS:
        came = beside(bursts)
        found = [
            (misfit or 0.0) / max(base, 0.02)
            for misfit, base in zip(came.misfits, alone.misfits, strict=True)
            if base is not None
        ]
        mean = sum(found) / len(found) if found else 0.0
        off = (came.elapsed_ps - measured_ps) / (MODEL_ERROR * measured_ps)
        tried.append((off**2 + MISFIT_WEIGHT * mean, bursts, came.elapsed_ps, mean))
    distance, best, elapsed, misfit = min(tried, key=lambda one: one[0])
    near = [ps for other, _, ps, _ in tried if other <= distance + MAX_DISTANCE]
    return BurstFit(best, elapsed, min(near), max(near), misfit)
