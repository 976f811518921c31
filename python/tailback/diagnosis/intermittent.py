"""Time that is missing in some steps of a program and not in others.

A cable that is slow costs each repetition of a step the same. Traffic of other jobs comes and goes,
and so does the time that it costs. Where the steps of a program take as long as expected at times
and far longer at others, and the best slow cable does not predict which, something outside the job
loads the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailback.evidence.call_profile import StepTimes

MIN_STEPS = 8
"""Repetitions of a step from which their differences tell something."""

MIN_FLUCTUATION = 0.35
"""Standard deviation over mean of what steps take longer than expected, from which it comes and
goes. Slow cables of simulated machines reach 0.15, traffic in bursts 0.5 to 0.8."""

QUIET = 0.1
"""Share of the steps that are taken to be free of it: what they take longer has other reasons."""

DECILES_PER_DEVIATION = 2.563
"""Distance of the outer deciles of a normal distribution over its standard deviation: single
long steps do not move deciles."""


@dataclass(frozen=True)
class Intermittent:
    """Excess time that comes and goes.

    Attributes:
        ps: How much longer the run takes by it.
        low_ps: At least.
        high_ps: At most: all the time that is missing.
        steps: Number of steps.
        longer: Steps that take half as long again as in the quiet ones, or more.
    """

    ps: int
    low_ps: int
    high_ps: int
    steps: int
    longer: int


def find_intermittent(
    alone: StepTimes, with_cable: StepTimes | None, missing_ps: int
) -> Intermittent | None:
    """What comes and goes of the time that is missing in the expected run.

    Args:
        alone: Steps as measured and as expected.
        with_cable: The same as expected with the slow cable that fits best, None for none.
        missing_ps: Measured less expected time of the run.

    Returns:
        None where all steps take longer alike, or as the slow cable predicts.
    """
    excess = alone.measured_ps - alone.simulated_ps
    mean = float(excess.mean())
    if len(excess) < MIN_STEPS or missing_ps <= 0 or mean <= 0:
        return None
    rest = excess
    if with_cable is not None:
        cost = with_cable.simulated_ps - alone.simulated_ps
        norm = float((cost**2).sum())
        scale = max(float((excess * cost).sum()) / norm, 0.0) if norm > 0 else 0.0
        rest = excess - scale * cost
    low, high = np.quantile(rest, [QUIET, 1 - QUIET])
    if (high - low) / DECILES_PER_DEVIATION < MIN_FLUCTUATION * mean:
        return None
    least = min(max(1.0 - float(np.quantile(excess, QUIET)) / mean, 0.0), 1.0)
    # The quietest steps may have some of it, too; what they take longer may also be the model's.
    share = (least + 1.0) / 2
    usual = np.quantile(alone.measured_ps, QUIET)
    return Intermittent(
        round(share * missing_ps), round(least * missing_ps), missing_ps,
        len(excess), int((alone.measured_ps > 1.5 * usual).sum()),
    )  # fmt: skip
