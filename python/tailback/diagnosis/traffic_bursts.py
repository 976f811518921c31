"""Burstiness of other traffic: evenly spread or in bursts.

Counters give the bytes of a window, not their timing within it. The same bytes delay our job more
if all nodes of another job send at the same time, as parallel programs do. Each number of bursts
per window predicts the time of our run, the time its ranks spend in calls and the stall time of
ports. The one that fits the measurements best is used; those that fit nearly as well give the
interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailback.diagnosis.hidden_cables import MISFIT_WEIGHT, MODEL_ERROR

BURSTS: Final = (None, 4, 8, 16, 32, 64)
"""Numbers of bursts per counter window that are tried; more would be equivalent to None, evenly
spread."""

MAX_DISTANCE = 1.0
"""Numbers of bursts within this distance of the best one count as equally likely."""


@dataclass(frozen=True)
class Outcome:
    """Comparison of a simulation with the measurements.

    Attributes:
        elapsed_ps: Simulated time of the run.
        misfits: Misfit to each kind of evidence; None if it cannot be compared.
        spread: Difference in distribution of the times of messages; None if not comparable.
    """

    elapsed_ps: int
    misfits: tuple[float | None, ...]
    spread: float | None = None


@dataclass(frozen=True)
class BurstFit:
    """The burstiness that fits the measurements best.

    Attributes:
        bursts: Bursts per window; None for evenly spread.
        elapsed_ps: Simulated time of the run with this traffic.
        low_ps: Shortest time of the run over all that fit about as well.
        high_ps: Longest of these times.
        misfit: Mean misfit to calls and stalls, relative to that without other traffic.
    """

    bursts: int | None
    elapsed_ps: int
    low_ps: int
    high_ps: int
    misfit: float


def fit_bursts(
    alone: Outcome, beside: Callable[[int | None], Outcome], measured_ps: int
) -> BurstFit:
    """Fit the number of bursts of other traffic to the measurements.

    Args:
        alone: The expected run without other traffic.
        beside: Simulates the expected run with other traffic of that many bursts per window.
        measured_ps: Time measured in and between calls.
    """
    tried = []
    for bursts in BURSTS:
        outcome = beside(bursts)
        ratios = [
            (misfit or 0.0) / max(base, 0.02)
            for misfit, base in zip(outcome.misfits, alone.misfits, strict=True)
            if base is not None
        ]
        mean = sum(ratios) / len(ratios) if ratios else 0.0
        error = (outcome.elapsed_ps - measured_ps) / (MODEL_ERROR * measured_ps)
        tried.append((error**2 + MISFIT_WEIGHT * mean, bursts, outcome.elapsed_ps, mean))
    distance, best, elapsed, misfit = min(tried, key=lambda trial: trial[0])
    near = [ps for other, _, ps, _ in tried if other <= distance + MAX_DISTANCE]
    return BurstFit(best, elapsed, min(near), max(near), misfit)
