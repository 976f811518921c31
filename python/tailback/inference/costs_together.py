"""What two causes cost together: the costs of single causes do not add up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tailback.diagnosis.explanation import Cost
from tailback.inference import measured_wording as wording
from tailback.inference.decision import fault_share

SEPARABLE: Final = frozenset({"imbalance", "noise", "slow-link", "other-traffic"})
"""Causes that can be taken out of the expected run together."""

Without = Callable[[frozenset[str]], int]
"""Expected time without several causes of :data:`SEPARABLE`, ps, by one simulation."""


def with_cost_together(
    costs: Sequence[Cost], expected_ps: int, without: Without | None, scale: float, surplus_ps: int
) -> list[Cost]:
    """The costs; the evidence of the largest says what the run saves without the second as well.

    Each cost is what the run saves without that cause alone. Two causes that hide each other save
    more together than their sum, and two that delay the same messages save less.

    Args:
        costs: Cost of each cause, largest first.
        expected_ps: Time of the expected run, ps.
        without: Simulates it without several causes; None if that is not possible.
        scale: Factor from expected to measured time.
        surplus_ps: Part of the simulated cost of other traffic that the measured time excludes, ps.
    """
    faults = [cost for cost in costs if cost.share >= fault_share(cost.cause)][:2]
    names = frozenset(cost.cause for cost in faults)
    if len(names) < 2 or not names <= SEPARABLE or without is None:
        return list(costs)
    excluded = max(surplus_ps, 0) if "other-traffic" in names else 0
    saved = max(expected_ps - without(names) - excluded, 0) * scale
    first, second = faults
    share = saved * first.share / first.ps
    said = wording.cost_together(second.cause, round(saved), share)
    evidence = f"{first.evidence}; {said}"
    return [first.model_copy(update={"evidence": evidence}), *(c for c in costs if c is not first)]


def with_interval(costs: Sequence[Cost], half_ps: int, most_ps: int) -> list[Cost]:
    """Costs whose range includes the interval of extrapolated steps.

    A cost is the difference of two runs with such an interval. Their errors are alike, as both lack
    the same steps, so the interval of one is added.
    """
    return [
        cost.model_copy(
            update={
                "low_ps": max(cost.low_ps - half_ps, 0),
                "high_ps": max(cost.high_ps, min(cost.high_ps + half_ps, most_ps)),
            }
        )
        for cost in costs
    ]
