"""How traffic of others came: evenly, or in bursts.

Counters tell the bytes of a window, not when in it they were sent. The same bytes cost our job more
where all nodes of another job send at once, as parallel programs do. Each arrangement predicts how
long our run takes, how long its ranks are in their calls and how long ports stall; the one that
agrees best with what was measured is taken, and those that agree nearly as well give the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tailback.diagnosis.hidden_cables import Comparison
from tailback.run import Run

BURSTS: Final = (None, 4, 8, 16, 32, 64)
"""Bursts in a window of the counters that are tried. More are as good as evenly spread."""

MODEL_ERROR = 0.05
"""Standard error of the simulated time of a run, as a share of it."""

MISFIT_WEIGHT = 4.0
"""Misfit to calls and stalls, over that without other traffic, that weighs as much as a time that
is off by two standard errors."""

MAX_DISTANCE = 1.0
"""Distance beyond that of the best arrangement up to which another is as likely."""


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
    alone: Run, beside: Callable[[int | None], Run], comparisons: Sequence[Comparison],
    measured_ps: int,
) -> BurstFit:  # fmt: skip
    """Fit the arrangement of other traffic to what was measured.

    Args:
        alone: The expected run without other traffic.
        beside: Simulates it beside other traffic in so many bursts a window.
        comparisons: Kinds of evidence.
        measured_ps: Time measured in and between calls.
    """
    base = [(compare, misfit) for compare in comparisons if (misfit := compare(alone)) is not None]
    tried = []
    for bursts in BURSTS:
        run = beside(bursts)
        found = [((compare(run) or 0.0) / max(misfit, 0.02)) for compare, misfit in base]
        mean = sum(found) / len(found) if found else 0.0
        off = (run.elapsed_ps - measured_ps) / (MODEL_ERROR * measured_ps)
        tried.append((off**2 + MISFIT_WEIGHT * mean, bursts, run.elapsed_ps, mean))
    distance, best, elapsed, misfit = min(tried, key=lambda one: one[0])
    near = [ps for other, _, ps, _ in tried if other <= distance + MAX_DISTANCE]
    return BurstFit(best, elapsed, min(near), max(near), misfit)
