"""Cost of a cause in the network where queues drop packets.

The model delays packets instead of dropping them, so that runs that lack nothing take longer than
it expects (:data:`tailback.inference.error_model.LOSSY_TIME_RATIO`). A cable that is the bottleneck
has little of that, because it, not TCP, limits the run; without the cause, the run would. So the
cost is not what the model saves but the measured time less the usual time of a run without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tailback.diagnosis.explanation import Cost
from tailback.inference.error_model import LOSSY_TIME_ERROR, LOSSY_TIME_RATIO
from tailback.inference.hypotheses import FAULT

_HIDDEN = ("slow-link", "other-traffic")
_SPREAD = math.exp(1.96 * LOSSY_TIME_ERROR)
"""Factor of a 95 % interval of the time of a run."""


def more_by_load_ps(busy_ps: int, inside_ps: int, simulated_ps: int) -> int:
    """How much longer a run takes than its simulation, because of the bytes on a slow link.

    A run takes no less than any link needs for its bytes. What a run of this kind takes longer than
    its simulation in any case is not due to the link.

    Args:
        busy_ps: Time that the link needed for the bytes that it counted, ps.
        inside_ps: Measured time that a simulation covers, ps.
        simulated_ps: Simulated time with the slow link, ps.
    """
    return max(min(busy_ps, round(inside_ps / LOSSY_TIME_RATIO)) - simulated_ps, 0)


def with_lossy_costs(
    costs: Sequence[Cost], inside_ps: int, expected_ps: int, scale: float
) -> list[Cost]:
    """Costs of a lossy network, with the range that the error of its times leaves.

    If slow links and other traffic are both at fault, the run without one of them is still limited
    by the other, and the costs are left as they are.

    Args:
        costs: Cost of each cause.
        inside_ps: Measured time that a simulation covers, ps.
        expected_ps: Simulated time with all causes, ps.
        scale: Factor from simulated to measured times in ``costs``.
    """
    faults = [cost for cost in costs if cost.cause in _HIDDEN and cost.share >= FAULT]
    if len(faults) != 1:
        return list(costs)
    (fault,) = faults
    bounded = _bounded(fault, inside_ps, max(expected_ps - fault.ps / scale, 0.0))
    made = [bounded if cost is fault else cost for cost in costs]
    return sorted(made, key=lambda cost: (-cost.ps, cost.cause))


def _bounded(cost: Cost, inside_ps: int, without_ps: float) -> Cost:
    """A cost, at most what a run without the cause usually takes less than the measured one."""
    usual = LOSSY_TIME_RATIO * without_ps
    saved, least, most = (inside_ps - usual * factor for factor in (1.0, _SPREAD, 1.0 / _SPREAD))
    ps = max(min(cost.ps, round(saved)), 0)
    return cost.model_copy(
        update={
            "ps": ps,
            "low_ps": max(min(round(least), ps), 0),
            "high_ps": max(round(most), ps),
            "share": cost.share * ps / cost.ps,
        }
    )
