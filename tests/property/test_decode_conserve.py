"""Flow conservation: the nearest counts that are possible, and never worse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailback.errors import RunError
from tailback.telemetry.conserve import conserve, simplex
from tailback.telemetry.hashed import Candidates

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(VALUES, st.floats(0, 1e6), st.integers(0, 2**32 - 1))
def test_the_projection_is_the_nearest(values: list[float], total: float, seed: int) -> None:
    y = np.array(values)
    x, _ = simplex(y, total)
    assert (x >= 0).all() and x.sum() == pytest.approx(total, rel=1e-9, abs=1e-4)
    # No other possible point is nearer: moving towards it does not reduce the distance.
    other = np.random.default_rng(seed).dirichlet(np.ones(len(y))) * total
    assert (x - y) @ (other - x) >= -1e-6 * (1 + abs(y).max()) * (1 + total)


@given(st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_it_never_adds_error(width: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    packets = random.integers(0, width, 500).astype(np.uint32)
    truth = np.bincount(packets, minlength=width).astype(float)
    noisy = truth + random.normal(0, 100, width)
    stage = Candidates(
        np.zeros(500, np.uint32), np.array([0, width], np.uint64), np.arange(width, dtype=np.uint32)
    )
    found = conserve(noisy, [stage])
    assert found.residual < 1e-6
    before, after = ((noisy - truth) ** 2).sum(), ((found.packets - truth) ** 2).sum()
    assert after <= before * (1 + 1e-9)
    with pytest.raises(RunError, match="more than one class"):
        conserve(noisy, [stage, stage])
