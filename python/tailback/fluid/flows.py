"""Flows with start times and sizes, simulated event by start and end."""

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
