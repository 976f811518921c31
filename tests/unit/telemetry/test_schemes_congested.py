"""Counts of the three published schemes: means, variances, covariances (§3.3, §5.3, §5.7).

Every packet crosses one of WIDTH links a hop; g is the number of its hops that were congested.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tailback import _core

HOPS, WIDTH, PACKETS, RUNS, FIELD = 5, 6, 4000, 120, 24
VALUES = np.arange(1, HOPS * WIDTH + 1, dtype=np.uint32)
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def network() -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Links and whether they were congested, (P, HOPS): some links often, some never."""
    random = np.random.default_rng(11)
    links = random.integers(0, WIDTH, (PACKETS, HOPS)) + WIDTH * np.arange(HOPS)
    chance = np.arange(HOPS * WIDTH) % WIDTH / WIDTH
    return links.astype(np.uint32), (random.random(links.shape) < chance[links]).astype(np.uint8)


def counts(
    name: str, network: tuple[NDArray[np.uint32], NDArray[np.uint8]]
) -> tuple[Floats, Floats]:
    """W and Ŵ of every link, (RUNS, L) each."""
    links, levels = network
    out = np.zeros((2, RUNS, len(VALUES)))
    for seed in range(RUNS):
        ids = np.random.default_rng(seed).integers(0, 1 << FIELD, PACKETS, dtype=np.uint32)
        received = _core.run_scheme(
            name,
            ids,
            np.full(PACKETS, HOPS, np.uint8),
            links + np.uint32(1),
            levels,
            seed,
            bits=1,
            size=1 if name == "full" else 3,
            probability=0.2,
            hash="gf",
            field_bits=FIELD,
        )
        for congested in (False, True):
            rows = received["congested"].astype(bool) == congested
            seen, weight = received["seen"][rows], received["weight"][rows]
            if name == "full":
                seen = seen - np.uint32(1)
                out[int(congested), seed] = np.bincount(seen, weight, minlength=len(VALUES))
            else:
                packet_ids = ids[received["packet"][rows]]
                out[int(congested), seed] = _core.decode(
                    packet_ids,
                    seen.astype(np.uint8),
                    weight.astype(np.uint8),
                    VALUES,
                    1,
                    FIELD,
                    "auto",
                )
    return out[0], out[1]


def closed(
    name: str, links: NDArray[np.uint32], levels: NDArray[np.uint8]
) -> tuple[Floats, Floats, Floats]:
    """Var[W], Var[Ŵ] and Cov[W, Ŵ] of every link in closed form."""
    size = HOPS * WIDTH
    n = np.bincount(links.ravel(), minlength=size).astype(float)
    m = np.bincount(links.ravel(), levels.ravel(), minlength=size)
    g = levels.sum(axis=1).astype(float)
    met = np.repeat(g[:, None], HOPS, axis=1) * levels
    if name == "full":
        # §3.3: N (l − 1); Σ (g − 1) over the packets that met congestion here; independent.
        extra = np.bincount(links.ravel(), met.ravel(), minlength=size) - m
        return n * (HOPS - 1), extra, np.zeros(size)
    if name == "single_bit":
        # §5.3: l²Q − N and Σg² − M over all packets that might have been; Cov = Σg − M.
        return HOPS**2 * PACKETS - n, (g * g).sum() - m, g.sum() - m
    # §5.7, derived here: l Σg − M, both.
    return HOPS**2 * PACKETS - n, HOPS * g.sum() - m, HOPS * g.sum() - m


@pytest.mark.parametrize("name", ["full", "single_bit", "compact"])
def test_means_variances_and_covariance(name: str, network) -> None:
    links, levels = network
    hop, congested = counts(name, network)
    size = HOPS * WIDTH
    truth = np.bincount(links.ravel(), minlength=size)
    met = np.bincount(links.ravel(), levels.ravel(), minlength=size)
    var, var_met, cov = closed(name, links, levels)
    used = var_met > 0
    assert (congested[:, ~used] == 0).all() or used.all()
    off, off_met = hop - truth, (congested - met)[:, used]
    # RUNS × 30 (25) standardised errors: mean within 4/√n, variance within 4 √(2/n).
    for standard in (off / np.sqrt(var), off_met / np.sqrt(var_met[used])):
        assert abs(standard.mean()) < 4 / np.sqrt(standard.size)
        assert abs((standard**2).mean() - 1) < 4 * np.sqrt(2 / standard.size)
    together = (off[:, used] * off_met) / np.sqrt(var * var_met)[used]
    expected = (cov / np.sqrt(np.where(used, var * var_met, 1)))[used].mean()
    assert abs(together.mean() - expected) < 4 * np.sqrt(2 / together.size)
    if name == "compact":
        assert expected > 0.3  # so that the test could tell it from independence
