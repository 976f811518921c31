"""Flows: rates while all are active, and times of flows that start and end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailback import _core
from tailback.evaluate import Rates
from tailback.fabric.core_errors import translate_core_error
from tailback.fluid.paths import FlowPaths


@dataclass(frozen=True)
class FlowTimes:
    """When F flows end.

    Attributes:
        end_ps: When the last bit of each flow has left, shape (F,), picoseconds.
        settlements: Times at which rates were set.
        rates_set: Flows whose rate was set, over all of them.
    """

    end_ps: NDArray[np.uint64]
    settlements: int
    rates_set: int

    @property
    def completion_ps(self) -> int:
        """When the last flow ends."""
        return int(self.end_ps.max(initial=0))


def simulate_flows(
    capacity_gbps: ArrayLike,
    paths: FlowPaths,
    size_bytes: ArrayLike,
    start_ps: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    rates: Rates = "max-min",
) -> FlowTimes:
    """Simulate flows to the end of the last.

    Args:
        capacity_gbps: Capacity of each link, shape (L,).
        paths: Links of the flows.
        size_bytes: Bytes of each flow, 1 or more, shape (F,).
        start_ps: When each starts, shape (F,); 0 when absent.
        weight: Weight of each under max-min, shape (F,); 1 when absent. The assignment weighs by
            size.
        rates: See :data:`Rates`.

    Raises:
        ScenarioError: A size, weight or capacity that is not positive, or a link that does not
            exist.
    """
    n = paths.n_flows
    start = np.zeros(n, np.uint64) if start_ps is None else start_ps
    weights = np.ones(n) if weight is None else weight
    with translate_core_error("the fluid model"):
        out = _core.fluid_flows(
            np.ascontiguousarray(capacity_gbps, np.float64),
            start_ps=np.ascontiguousarray(start, np.uint64),
            bytes=np.ascontiguousarray(size_bytes, np.uint64),
            weight=np.ascontiguousarray(weights, np.float64),
            paths=paths.columns,
            rates=rates,
        )
    return FlowTimes(out["end_ps"], out["settlements"], out["rates_set"])


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
