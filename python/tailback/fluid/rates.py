"""Rates of flows that are all active: max-min fair, and single application assignment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailback import _core
from tailback.fabric.core_errors import translate_core_error
from tailback.fluid.paths import FlowPaths


@dataclass(frozen=True)
class RateAssignment:
    """Single application assignment of F flows over L links (Birk and Zdornov, 2009).

    Attributes:
        rate_gbps: ``r(f) = w_f / W_f``, shape (F,).
        link_ns: ``W_l``: how long each link needs for the sizes of its flows, shape (L,), ns.
        completion_ns: ``W``: when the last flow ends; no assignment of rates ends earlier.
    """

    rate_gbps: NDArray[np.float64]
    link_ns: NDArray[np.float64]
    completion_ns: float


def max_min(
    capacity_gbps: ArrayLike, paths: FlowPaths, weight: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, §6.5).

    Args:
        capacity_gbps: Capacity of each link, shape (L,).
        paths: Links of the flows.
        weight: Weight of each flow, shape (F,); 1 when absent.

    Returns:
        Rates in Gb/s, shape (F,), to a relative error of 1e-9.

    Raises:
        ScenarioError: A capacity or weight that is not positive, or a link that does not exist.
    """
    ones = np.ones(paths.n_flows)
    weights = np.ascontiguousarray(ones if weight is None else weight, np.float64)
    with translate_core_error("the fluid model"):
        capacity = np.ascontiguousarray(capacity_gbps, np.float64)
        return np.asarray(_core.fluid_max_min(capacity, paths.columns, weights))


def assignment(capacity_gbps: ArrayLike, paths: FlowPaths, size_bytes: ArrayLike) -> RateAssignment:
    """Single application assignment: each flow by the heaviest link on its path.

    Args:
        capacity_gbps: Capacity of each link, shape (L,).
        paths: Links of the flows.
        size_bytes: What each flow has to carry, its weight, shape (F,).

    Raises:
        ScenarioError: A capacity or size that is not positive, or a link that does not exist.
    """
    with translate_core_error("the fluid model"):
        rate, heavy = _core.fluid_assignment(
            np.ascontiguousarray(capacity_gbps, np.float64),
            paths.columns,
            np.ascontiguousarray(size_bytes, np.float64),
        )
    link_ns = 8.0 * heavy
    return RateAssignment(rate, link_ns, float(link_ns.max(initial=0.0)))
