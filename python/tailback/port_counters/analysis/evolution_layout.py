"""Layout of a congestion evolution graph: columns of features and unit of the time axis."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tailback.port_counters.analysis.evolution import Evolution

UNITS: Final = (("min", 60e9), ("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
"""Units of time and their nanoseconds, largest first."""


def time_unit(steps: NDArray[np.int64]) -> tuple[str, float]:
    """Unit in which the span of ``steps`` (nanoseconds) reads well, and its nanoseconds."""
    span = float(np.ptp(steps)) if len(steps) else 0.0
    for unit, scale in UNITS:
        if span >= 2 * scale:
            return unit, scale
    return UNITS[-1]


def columns_of(graph: Evolution) -> NDArray[np.int64]:
    """Column of each feature in its step: below its predecessors, or the nearest free one.

    Returns:
        Columns from 0, distinct within a step, shape (features,).
    """
    step = graph.features["step"].to_numpy().astype(np.int64)
    out = np.zeros(len(step), np.int64)
    parents: dict[int, list[int]] = {}
    for source, target in graph.edges.iter_rows():
        parents.setdefault(target, []).append(source)
    for now in np.unique(step):
        taken: set[int] = set()
        mine = np.flatnonzero(step == now).tolist()
        wish = {f: float(np.mean([out[p] for p in parents[f]])) for f in mine if f in parents}
        # Features that continue keep their columns; new ones take the first free one.
        for feature in sorted(mine, key=lambda f: (f not in wish, wish.get(f, 0.0), f)):
            near, far = round(wish.get(feature, 0.0)), 0
            while True:
                free = [c for c in (near - far, near + far) if c >= 0 and c not in taken]
                if free:
                    break
                far += 1
            out[feature] = free[0]
            taken.add(free[0])
    return out
