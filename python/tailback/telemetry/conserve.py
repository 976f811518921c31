"""Non-negative counts that satisfy flow conservation, by constrained least squares.

Every packet of a class crosses exactly one of the class's candidate links at each stage, and the
receiver knows the number of packets of the class. So the counts of these links are non-negative and
sum to a known number. The unbiased estimates satisfy neither constraint; they are projected onto
the set of counts that do:

- if no two classes share a link, as in the stages of a fat tree, and equal variances are assumed,
  the projection is onto a simplex per class, which has a closed-form solution;
- otherwise a link's count is the sum of the packets of each class on it, and the least-squares
  problem over these parts is solved by an accelerated projected gradient method to a stated duality
  gap, which bounds half the squared distance of the counts from the exact solution.

The result is no longer unbiased, but its squared error over a class is never larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.errors import RunError
from tailback.telemetry.hashed import CandidateLinks
from tailback.telemetry.simplex import Groups, dot, minimise, nearest

Floats = NDArray[np.float64]

MAX_STEPS = 5000


@dataclass(frozen=True)
class ConservedCounts:
    """Counts after projection.

    Attributes:
        packets: Counts of all links, shape (L,); links of no class are unchanged.
        residual: Bound of the distance between ``packets`` and the exact solution, as the norm of
            the difference: in packets, or in standard deviations where variances were given. The
            duality gap is half its square.
        steps: Gradient steps; 0 where the solution is closed.
    """

    packets: Floats
    residual: float
    steps: int = 0


def simplex(values: Floats, total: float) -> tuple[Floats, float]:
    """The nearest non-negative point to ``values`` with sum ``total``, and the shift."""
    point = nearest(values[None, :], np.array([total]))[0]
    kept = point > 0
    shift = float((values - point)[kept].mean()) if kept.any() else float(values.max())
    return point, shift


def conserve(
    packets: Floats,
    stages: list[CandidateLinks],
    variance: Floats | None = None,
    tolerance: float = 1e-3,
) -> ConservedCounts:
    """Project estimates onto non-negative counts that sum to the packets of every class.

    Args:
        packets: Estimated packets of each link, shape (L,).
        stages: Candidates of *all* packets that pass each stage, so that class sizes are known. A
            link may be a candidate of several classes.
        variance: Variance of each estimate, shape (L,); None for equal variances.
        tolerance: Without a closed-form solution, stop when the distance from the exact solution is
            at most this fraction of the distance between the estimates and an even distribution.

    Returns:
        The projected counts.

    Raises:
        RunError: A variance or the tolerance is not positive.
    """
    if tolerance <= 0 or (variance is not None and not (variance > 0).all()):
        raise RunError(
            "variances and tolerance must be positive",
            remedy="leave out links whose count is known, or give no variances",
        )
    links = np.concatenate([np.zeros(0, np.uint32), *(stage.links for stage in stages)])
    sizes = np.concatenate([np.zeros(0, np.int64), *(stage.sizes for stage in stages)])
    total = np.concatenate(
        [np.zeros(0)]
        + [np.bincount(stage.of_packet, minlength=len(stage.sizes)) for stage in stages]
    )
    _require_candidates(sizes, total)
    groups = Groups(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), total)
    shared = np.bincount(links, minlength=len(packets))
    if variance is None and shared.max(initial=0) <= 1:
        return _disjoint(packets, links, groups)
    return _shared(packets, links, groups, variance, shared, tolerance)


def _require_candidates(sizes: NDArray[np.int64], total: Floats) -> None:
    empty = np.flatnonzero((sizes == 0) & (total > 0))
    if len(empty):
        raise RunError(
            f"class {int(empty[0])} has {int(total[empty[0]])} packets and no candidate link",
            remedy="leave out packets that do not pass the stage",
        )


def _disjoint(packets: Floats, links: NDArray[np.uint32], groups: Groups) -> ConservedCounts:
    out, found = packets.copy(), groups.project(packets[links])
    out[links] = found
    full = groups.sizes > 0
    sums = np.add.reduceat(found, groups.start[:-1][full]) if full.any() else np.zeros(0)
    gap = groups.gap(found, found - packets[links])
    rounding = np.abs(sums - groups.total[full]).max(initial=0.0)
    return ConservedCounts(out, max(float(np.sqrt(2.0 * max(gap, 0.0))), float(rounding)))


def _shared(
    packets: Floats,
    links: NDArray[np.uint32],
    groups: Groups,
    variance: Floats | None,
    shared: NDArray[np.int64],
    tolerance: float,
) -> ConservedCounts:
    weight = np.ones(len(packets)) if variance is None else 1.0 / variance

    def counts(parts: Floats) -> Floats:
        return np.asarray(np.bincount(links, parts, minlength=len(packets)), np.float64)

    touched = shared > 0

    def objective(parts: Floats) -> tuple[float, Floats]:
        off = np.where(touched, counts(parts) - packets, 0.0)
        pull = weight * off
        return dot(off, pull) / 2.0, pull[links]

    # Step size of a group: from its link with the largest curvature, weight × sharing classes.
    steep = np.maximum.reduceat(
        (shared * weight)[links], np.minimum(groups.start[:-1], max(len(links) - 1, 0))
    )
    scale = np.repeat(1.0 / np.maximum(steep, 1e-300), groups.sizes)
    first, _ = objective(groups.uniform())
    found = minimise(objective, groups, scale, tolerance**2 * max(first, 1e-12), MAX_STEPS)
    out = np.where(touched, counts(found.point), packets)
    return ConservedCounts(out, float(np.sqrt(2.0 * max(found.gap, 0.0))), found.steps)
