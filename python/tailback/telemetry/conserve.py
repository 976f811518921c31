"""Counts that cannot be negative and add up: least squares with flow conservation.

Every packet of a class crosses exactly one of the class's candidate links at a stage, and the
receiver knows how many packets the class has. So the counts of these links are not negative and
sum to a known number, which the unbiased estimates, each with the same noise, do not respect. The
nearest counts that do are the Euclidean projection onto a simplex, which has an exact solution
(Held, Wolfe and Crowder, Math. Programming 6, 1974): no iteration that might not have converged.
The result is no longer unbiased; its squared error over a class is never larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.errors import RunError
from tailback.telemetry.hashed import Candidates

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Conserved:
    """Counts after projection.

    Attributes:
        packets: Counts of all links, shape (L,); links of no class keep what they had.
        residual: Largest violation of the optimality conditions, in packets: how far any count is
            from one common shift of its class, cut at 0, or any class from its sum.
    """

    packets: Floats
    residual: float


def simplex(values: Floats, total: float) -> tuple[Floats, float]:
    """The point nearest to ``values`` with no negative entry and sum ``total``, and the shift."""
    descending = np.sort(values)[::-1]
    shifts = (np.cumsum(descending) - total) / np.arange(1, len(values) + 1)
    # As many entries stay positive as exceed the shift that they themselves imply.
    kept = max(int(np.count_nonzero(descending > shifts)), 1)
    shift = float(shifts[kept - 1])
    return np.maximum(values - shift, 0.0), shift


def conserve(packets: Floats, stages: list[Candidates]) -> Conserved:
    """Project counts so that every class's links sum to the class's packets.

    Args:
        packets: Estimated packets of each link, shape (L,).
        stages: Candidates of *all* packets that pass each stage, so that class sizes are known.

    Returns:
        The projected counts.

    Raises:
        RunError: A link is a candidate of two classes; the projection would not be exact.
    """
    out, worst = packets.copy(), 0.0
    seen = np.zeros(len(packets), bool)
    for stage in stages:
        sizes = np.bincount(stage.of_packet, minlength=len(stage.sizes))
        for group, total in enumerate(sizes):
            links = stage.links[int(stage.start[group]) : int(stage.start[group + 1])]
            if len(links) == 0:
                continue
            if seen[links].any():
                raise RunError(
                    f"link {int(links[seen[links]][0])} is a candidate of more than one class",
                    remedy="flow conservation needs classes that share no links",
                )
            seen[links] = True
            found, shift = simplex(packets[links], float(total))
            ideal = np.maximum(packets[links] - shift, 0.0)
            gap = max(abs(float(found.sum()) - float(total)), float(np.abs(found - ideal).max()))
            out[links], worst = found, max(worst, gap)
    return Conserved(out, worst)
