"""Rules out placements that are slow in a simpler model. The packet engine proves the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.model import Candidate, Status
from tailback.errors import TailbackError
from tailback.evaluate import Change, Evaluate
from tailback.units import format_time, percent

Placements = Mapping[str, NDArray[np.uint32]]

MIN_KEPT = 3
"""Number of fastest candidates that are always re-simulated."""
MARGIN = 0.25
"""Candidates within this margin of the fastest are re-simulated, too. It exceeds the error of the
fluid model between placements of one job (docs/measurements/accuracy.md)."""


@dataclass(frozen=True)
class Screening:
    """Result of screening.

    Attributes:
        kept: Placements to prove: node of each rank, shape (R,), by name.
        left_out: The others, each with the reason.
        estimate_ps: Estimated times by name, if available.
    """

    kept: dict[str, NDArray[np.uint32]]
    left_out: list[Candidate] = field(default_factory=list)
    estimate_ps: dict[str, int] = field(default_factory=dict)

    def with_fastest(self, most: int, *, always: Collection[str]) -> Screening:
        """The same with at most so many placements to prove, beside those that are always kept.

        The fastest by their estimates are; without estimates, the first ones.
        """
        others = [name for name in self.kept if name not in always]
        others.sort(key=lambda name: self.estimate_ps.get(name, 0))
        slow = set(others[max(most, 0) :])
        no_time = [
            Candidate(
                name=name,
                estimate_ps=self.estimate_ps.get(name, 0),
                status=Status.NO_TIME,
                reason=NO_TIME,
            )
            for name in sorted(slow)
        ]
        kept = {name: nodes for name, nodes in self.kept.items() if name not in slow}
        return replace(self, kept=kept, left_out=[*self.left_out, *no_time])


NO_TIME = "it did not fit the time budget"
"""Why a change was not simulated."""

KEPT_BY_BOUND = 2
"""Number of candidates with the shortest contention-free times that are always simulated."""


def screen_by_bound(
    candidates: Placements,
    evaluate: Evaluate,
    *,
    always: frozenset[str] = frozenset(),
    progress: Callable[[str, float], None] | None = None,
) -> Screening:
    """Simulate each placement without contention and leave out those that are clearly slower.

    For simulations so large that whole ones take long: without contention a message is a single
    event. The time without contention is a lower bound of the time with it. Candidates within
    :data:`MARGIN` of the shortest are kept, as in :func:`screen`.

    Args:
        candidates: Node of each rank, shape (R,), by name.
        evaluate: Simulates a change packet by packet.
        always: Names that are always kept.
        progress: Called with the placement and the share done, 0–1.
    """
    bounds: dict[str, int] = {}
    for number, (name, nodes) in enumerate(candidates.items()):
        if progress is not None:
            progress(f"simulating placement {name} without contention", number / len(candidates))
        change = Change(
            placement=nodes, placement_name=name, network="no-contention", background=False
        )
        bounds[name] = evaluate(change).elapsed_ps
    order = sorted(bounds, key=lambda name: (bounds[name], name))
    limit = (1 + MARGIN) * bounds[order[0]] if order else 0.0
    slow = {name for name in order[KEPT_BY_BOUND:] if bounds[name] > limit} - always
    left_out = [
        Candidate(
            name=name,
            status=Status.RULED_OUT,
            reason=f"even without contention it takes {format_time(bounds[name])}, "
            f"{percent(bounds[name] / bounds[order[0]] - 1)} more than {order[0]}",
        )
        for name in order
        if name in slow
    ]
    kept = {name: nodes for name, nodes in candidates.items() if name not in slow}
    return Screening(kept, left_out)


def screen(
    candidates: Placements,
    evaluate: Evaluate,
    *,
    always: frozenset[str] = frozenset(),
    keep: int = MIN_KEPT,
    margin: float = MARGIN,
    progress: Callable[[str, float], None] | None = None,
) -> Screening:
    """Estimate the time under each placement and leave out those that are clearly slower.

    Placements that cannot be estimated are kept: the proof decides.

    Args:
        candidates: Node of each rank, shape (R,), by name.
        evaluate: Evaluates a change by the fluid model.
        always: Names that are always kept.
        keep: Keep at least this many.
        margin: Keep those that take at most this share longer than the fastest.
        progress: Called with the placement and the share done, 0–1.
    """
    if len(candidates) <= keep:
        return Screening(dict(candidates))
    estimate: dict[str, int] = {}
    for number, (name, nodes) in enumerate(candidates.items()):
        if progress is not None:
            progress(f"estimating placement {name}", number / len(candidates))
        try:
            run = evaluate(Change(placement=nodes, placement_name=name))
        except TailbackError:
            continue
        estimate[name] = run.elapsed_ps
    if not estimate:
        return Screening(dict(candidates))
    order = sorted(estimate, key=lambda name: (estimate[name], name))
    quickest = estimate[order[0]]
    slow = {name for name in order[keep:] if estimate[name] > (1 + margin) * quickest} - always
    left_out = [
        Candidate(
            name=name,
            estimate_ps=estimate[name],
            status=Status.RULED_OUT,
            reason=f"the fluid model estimates {format_time(estimate[name])}, "
            f"{percent(estimate[name] / quickest - 1)} more than with {order[0]}",
        )
        for name in order
        if name in slow
    ]
    kept = {name: nodes for name, nodes in candidates.items() if name not in slow}
    return Screening(kept, left_out, estimate)
