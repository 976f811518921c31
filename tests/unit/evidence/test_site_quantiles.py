"""Quantiles of repetitions, site by site."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.evidence.site_quantiles import QUANTILES, alternate, site_quantiles


def test_site_quantiles_are_those_of_its_repetitions() -> None:
    rng = np.random.default_rng(3)
    site = rng.integers(0, 7, 500)
    ps = rng.exponential(1e6, 500)
    quantiles = site_quantiles(site, ps, 7)
    wanted = np.array([np.quantile(ps[site == number], QUANTILES) for number in range(7)])
    np.testing.assert_allclose(quantiles, wanted, rtol=1e-12)


def test_a_single_repetition_is_every_quantile() -> None:
    quantiles = site_quantiles(np.array([2]), np.array([5.0]), 4)
    assert quantiles[2].tolist() == [5.0] * len(QUANTILES)
    assert not quantiles[[0, 1, 3]].any()
    assert site_quantiles(np.zeros(0, np.int64), np.zeros(0), 0).shape == (0, len(QUANTILES))


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.25, 2), (0.5, 4), (1.0, 8)])
def test_a_share_of_each_sites_repetitions_is_replaced(share: float, expected: int) -> None:
    site = np.tile([0, 1], 8)
    mixed = alternate(site, np.zeros(16), np.ones(16), share)
    assert [int(mixed[site == each].sum()) for each in (0, 1)] == [expected] * 2
    # Evenly spread over the time.
    assert mixed[: len(mixed) // 2].sum() == expected
