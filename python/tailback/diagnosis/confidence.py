"""The main cause of an expected run, and in how many variations of the model it stays the main one.

Every step of the waterfall is simulated in several repetitions, and with other engine settings
(:data:`tailback.diagnosis.waterfall.ENGINE_VARIATIONS`). Each combination is a variation of the
model with its own costs and its own main cause, chosen by the same rule as the verdict. Nothing
here is fitted to scenarios with known causes (docs/explanation/diagnosis.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailback.diagnosis.model import Agreement, Cause
from tailback.diagnosis.waterfall import VariedTimes

NO_CONTENTION_CAUSES: tuple[Cause, ...] = ("not-network", "injection", "in-host")

WORTH_FIXING = 0.05
"""A cause that costs this share of the total time is always worth fixing."""

MIN_WORTH = 0.02
"""A cause that costs this share (the smallest gain for which a placement is recommended) is worth
fixing if contention takes :data:`WORTH_OF_COMMUNICATION` of the communication time: the network is
then slow, and computation only masks it. Smaller costs are within run-to-run variation."""

WORTH_OF_COMMUNICATION = 0.20
"""Smallest share of the communication time at which contention is more than a few short queues."""

LINE_BOUND = 0.5
"""Injection limits the run from this share of the total time that the busiest adapter needs at line
rate: no change of placement, routing or neighbours can save the larger part of it."""


@dataclass(frozen=True)
class TimeUse:
    """What is the same in all variations.

    Attributes:
        communication: Share of rank time blocked in communication, 0–1.
        wire: Share of the time that the busiest adapter needs at its line rate, 0–1.
    """

    communication: float
    wire: float


def main_cause(cost: Mapping[Cause, float], use: TimeUse) -> Cause:
    """The most expensive cause, or what remains if none is worth fixing.

    Args:
        cost: Share of the time that each cause costs; ``in-host`` is the main cause if it costs
            :data:`WORTH_FIXING`, more than any cause of contention, and no less than the line rate
            of the adapters where that limits the run.
        use: Communication and line rate of the run.
    """
    contention, within = in_network(cost), cost.get("in-host", 0.0)
    largest = max(contention.values(), default=0.0)
    worth = is_worth_fixing(contention, use.communication)
    if worth and largest >= within:
        return max(contention, key=lambda cause: contention[cause])
    if within >= WORTH_FIXING and (worth or within >= use.wire or use.wire < LINE_BOUND):
        return "in-host"
    return cause_without_contention(use.wire)


def in_network(cost: Mapping[Cause, float]) -> dict[Cause, float]:
    """The costs without that of transfers within hosts, which is not contention."""
    return {cause: share for cause, share in cost.items() if cause != "in-host"}


def is_worth_fixing(cost: Mapping[Cause, float], communication: float) -> bool:
    """Whether contention costs enough of the total time or of the communication time."""
    largest = max(cost.values(), default=0.0)
    if largest >= WORTH_FIXING:
        return True
    busy = communication
    return largest >= MIN_WORTH and busy > 0 and sum(cost.values()) >= WORTH_OF_COMMUNICATION * busy


def cause_without_contention(wire: float) -> Cause:
    """The cause if there is no contention: the adapters' line rate, or not the network.

    Args:
        wire: Share of the time that the busiest adapter needs at its line rate, 0–1.
    """
    return "injection" if wire >= LINE_BOUND else "not-network"


def count_agreement(
    cause: Cause,
    variations: Sequence[VariedTimes],
    unexplained: Mapping[Cause, float],
    use: TimeUse,
) -> Agreement:
    """Count the variations in which a cause is the main one.

    Args:
        cause: The verdict.
        variations: Times of the steps in every variation.
        unexplained: Share of the observed time that the model does not explain, by the cause it is
            attributed to.
        use: Communication and line rate of the run.
    """
    found = Counter(_main_cause_in(varied, unexplained, use) for varied in variations)
    rest = [(name, count) for name, count in found.most_common() if name != cause]
    return Agreement(holds=found[cause], of=len(variations), otherwise=rest[0][0] if rest else None)


def _main_cause_in(varied: VariedTimes, unexplained: Mapping[Cause, float], use: TimeUse) -> Cause:
    """The main cause in one variation."""
    scale = contention_scale(varied.steps, varied.run_ps)
    cost = scaled(varied.charged, scale)
    for name, share in unexplained.items():
        cost[name] = cost.get(name, 0.0) + share
    cause = main_cause(cost, use)
    if cause == "placement" or varied.with_network is None:
        return cause
    return _main_cause_in(varied.with_network(), unexplained, use)


def scaled(charged: Mapping[Cause, float], scale: float) -> dict[Cause, float]:
    """The costs with those of contention times ``scale``; see :func:`contention_scale`."""
    return {
        cause: share if cause == "in-host" else share * scale for cause, share in charged.items()
    }


def contention_scale(time: Mapping[str, int], run_ps: int) -> float:
    """Share of the simulated contention that fits into the observed time, 0–1.

    The simulation may take longer than the run because its contention differs from the real one.
    Contention can cost at most the observed time minus the contention-free time of adapters and
    computation.

    Args:
        time: Times of the steps ``injection`` and ``other traffic``.
        run_ps: Time of the run.
    """
    if not time or time["other traffic"] <= run_ps:
        return 1.0
    simulated = time["other traffic"] - time["injection"]
    return min(max(run_ps - time["injection"], 0) / max(simulated, 1), 1.0)
