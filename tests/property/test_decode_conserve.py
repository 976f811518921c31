"""Flow conservation: the nearest counts that are possible, and never worse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailback.errors import RunError
from tailback.telemetry.conserve import conserve, simplex
from tailback.telemetry.hashed import CandidateLinks
from tailback.telemetry.simplex import Groups

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)
SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None)
@given(VALUES, st.floats(0, 1e6), SEEDS)
def test_the_projection_is_the_nearest(values: list[float], total: float, seed: int) -> None:
    y = np.array(values)
    x, _ = simplex(y, total)
    assert (x >= 0).all() and x.sum() == pytest.approx(total, rel=1e-9, abs=1e-4)
    # No other possible point is nearer: moving towards it does not reduce the distance.
    other = np.random.default_rng(seed).dirichlet(np.ones(len(y))) * total
    assert (x - y) @ (other - x) >= -1e-6 * (1 + abs(y).max()) * (1 + total)


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), max_size=12), SEEDS)
def test_groups_are_projected_each_on_its_own(sizes: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    groups = Groups(start, random.random(len(sizes)) * 10 * (np.array(sizes, int) > 0))
    values = random.normal(0, 5, int(start[-1]))
    found = groups.project(values)
    for k in range(len(sizes)):
        part = slice(start[k], start[k + 1])
        if sizes[k]:
            assert found[part] == pytest.approx(simplex(values[part], groups.total[k])[0])
    assert groups.gap(found, found - values) <= 1e-9 * (1 + abs(values).sum()) ** 2
    # The gap bounds ½‖x − y‖² above its minimum from anywhere.
    far = groups.uniform()
    above = (((far - values) ** 2).sum() - ((found - values) ** 2).sum()) / 2
    assert groups.gap(far, far - values) >= above - 1e-6


@settings(deadline=None)
@given(st.integers(2, 40), SEEDS)
def test_it_never_adds_error(width: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    packets = random.integers(0, width, 500).astype(np.uint32)
    truth = np.bincount(packets, minlength=width).astype(float)
    noisy = truth + random.normal(0, 100, width)
    stage = CandidateLinks(
        np.zeros(500, np.uint32), np.array([0, width], np.uint64), np.arange(width, dtype=np.uint32)
    )
    found = conserve(noisy, [stage])
    assert found.residual < 1e-3 and found.steps == 0
    before, after = ((noisy - truth) ** 2).sum(), ((found.packets - truth) ** 2).sum()
    assert after <= before * (1 + 1e-9)


@given(st.integers(2, 8), st.integers(3, 20), st.booleans(), SEEDS)
def test_links_shared_by_classes(classes: int, width: int, weighted: bool, seed: int) -> None:
    """The solution is possible, no possible point is nearer, and the stated residual holds."""
    random = np.random.default_rng(seed)
    members = [
        np.sort(random.choice(width, random.integers(1, width + 1), replace=False))
        for _ in range(classes)
    ]
    start = np.concatenate([[0], np.cumsum([len(m) for m in members])]).astype(np.uint64)
    of_packet = np.sort(random.integers(0, classes, 400)).astype(np.uint32)
    parts = np.bincount(of_packet, minlength=classes)
    stage = CandidateLinks(of_packet, start, np.concatenate(members).astype(np.uint32))

    def possible() -> np.ndarray:
        out = np.zeros(width)
        for own, total in zip(members, parts, strict=True):
            out[own] += random.dirichlet(np.full(len(own), 0.5)) * total
        return out

    truth = possible()
    touched = np.isin(np.arange(width), stage.links)
    noisy = truth + random.normal(0, 60, width)
    variance = random.uniform(0.2, 5, width) if weighted else None
    found = conserve(noisy, [stage], variance, tolerance=1e-4)
    x, weight = found.packets, 1 / (np.ones(width) if variance is None else variance)
    assert (x >= 0)[touched].all() and x[touched].sum() == pytest.approx(400)
    assert (x == noisy)[~touched].all()

    def off(counts: np.ndarray) -> float:
        return float((weight * (counts - noisy) ** 2)[touched].sum())

    assert found.residual <= 1e-3 * (1 + np.sqrt(off(truth)) + np.sqrt(off(possible())) + 400)
    for _ in range(20):
        assert off(possible()) >= off(x) - 2 * found.residual**2 - 1e-6 * (1 + off(x))
    # Towards a point of a convex set a projection never moves away.
    far = np.sqrt((weight * (noisy - truth) ** 2)[touched].sum())
    assert np.sqrt((weight * (x - truth) ** 2)[touched].sum()) <= far + found.residual + 1e-6


def test_mistakes_are_told() -> None:
    none = CandidateLinks(
        np.zeros(3, np.uint32), np.array([0, 0], np.uint64), np.zeros(0, np.uint32)
    )
    with pytest.raises(RunError, match="class 0 has 3 packets and no candidate"):
        conserve(np.zeros(2), [none])
    with pytest.raises(RunError, match="must be positive"):
        conserve(np.zeros(2), [], np.zeros(2))
