"""The congested fraction varies as the closed forms say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tailback import _core
from tests.factories.congested_fraction import (
    one_reservoir,
    one_reservoir_is_better,
    one_reservoir_one_bit,
    two_reservoirs,
)

HOPS, WIDTH, FIELD = 5, 4, 24


def fractions(
    name: str, packets: int, runs: int, chance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float, NDArray[np.int64]]:
    """Estimated fractions (runs, links), the true ones, N, Σg, and g of each packet."""
    random = np.random.default_rng(8)
    links = (random.integers(0, WIDTH, (packets, HOPS)) + WIDTH * np.arange(HOPS)).astype(np.uint32)
    levels = (random.random(links.shape) < chance).astype(np.uint8)
    n = np.bincount(links.ravel(), minlength=HOPS * WIDTH).astype(float)
    m = np.bincount(links.ravel(), levels.ravel(), minlength=HOPS * WIDTH)
    values = np.arange(1, HOPS * WIDTH + 1, dtype=np.uint32)
    out = []
    for seed in range(runs):
        ids = np.random.default_rng(seed).integers(0, 1 << FIELD, packets, dtype=np.uint32)
        received = _core.run_scheme(
            name,
            ids,
            np.full(packets, HOPS, np.uint8),
            links + np.uint32(1),
            levels,
            seed,
            bits=1,
            size=1 if name == "full" else 3,
            probability=0.2,
            hash="gf",
            field_bits=FIELD,
        )
        counts = []
        for congested in (False, True):
            rows = received["congested"].astype(bool) == congested
            seen, weight = received["seen"][rows], received["weight"][rows]
            if name == "full":
                counts.append(np.bincount(seen - np.uint32(1), weight, minlength=len(n)))
            else:
                packet_ids = ids[received["packet"][rows]]
                counts.append(
                    _core.decode(
                        packet_ids,
                        seen.astype(np.uint8),
                        weight.astype(np.uint8),
                        values,
                        1,
                        FIELD,
                        "auto",
                    )
                )
        out.append(counts[1] / counts[0])
    return np.array(out), m / n, n, float(levels.sum()), levels.sum(axis=1)


@pytest.mark.parametrize("chance", [0.2, pytest.param(0.7, marks=pytest.mark.slow)])
def test_one_bit_in_one_reservoir(chance: float) -> None:
    packets, runs = 60_000, 60
    estimates, truth, n, congested_hops, _ = fractions("compact", packets, runs, chance)
    closed = one_reservoir_one_bit(truth, n, HOPS, packets, congested_hops)
    # 1200 squared deviations: within 4 √(2 / 1200), and the first order's few per cent.
    assert (((estimates - truth) ** 2) / closed).mean() == pytest.approx(1.0, abs=0.2)


def test_whole_links_in_two_reservoirs() -> None:
    estimates, truth, n, _, hops = fractions("full", 20_000, 60, 0.5)
    # Size-biased: a link's congested packets have more congested hops than others.
    mean = float((hops * hops).sum() / hops.sum())
    closed = two_reservoirs(truth, n, HOPS, mean)
    assert (((estimates - truth) ** 2) / closed).mean() == pytest.approx(1.0, abs=0.2)


def test_which_is_better() -> None:
    for f, g in ((0.1, 1.5), (0.5, 2.0), (0.9, 4.0)):
        smaller = one_reservoir(f, 100.0, 5.0) < two_reservoirs(f, 100.0, 5.0, g)
        assert bool(smaller) == one_reservoir_is_better(f, 5.0, g)
