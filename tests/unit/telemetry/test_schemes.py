"""Schemes against the truth: means, variances and intervals, on paths through known candidates."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from measuring.fat_tree_stages import fat_tree_stages
from studies.taffet2019.telemetry_figures import thresholded
from tailback import _core
from tailback.errors import FabricError
from tailback.fabric.builders import fat_tree, network_of, star
from tailback.scenario.model import FatTree
from tailback.telemetry.hashed import (
    CandidateLinks,
    HashedCounts,
    HashedSamples,
    count_links,
)
from tests.factories.probed_runs import closed_variance

HOPS, WIDTH, PACKETS, RUNS = 5, 8, 8000, 60
FIELD = 24
VALUES = np.arange(1, HOPS * WIDTH + 1, dtype=np.uint32)


def one_class(rows: int, links: NDArray[np.uint32]) -> CandidateLinks:
    return CandidateLinks(np.zeros(rows, np.uint32), np.array([0, len(links)], np.uint64), links)


def paths(random: np.random.Generator) -> NDArray[np.uint32]:
    """Each packet takes one of WIDTH links a hop; high numbers more often, the first never."""
    chance = np.arange(WIDTH) / np.arange(WIDTH).sum()
    choice = random.choice(WIDTH, (PACKETS, HOPS), p=chance)
    return (choice + WIDTH * np.arange(HOPS)).astype(np.uint32)


def run(
    name: str, links: NDArray[np.uint32], seed: int, bits: int, size: int, levels: int = 0
) -> tuple[dict[str, NDArray[np.uint32]], NDArray[np.uint32]]:
    ids = np.random.default_rng(seed).integers(0, 1 << FIELD, PACKETS, dtype=np.uint32)
    received = _core.run_scheme(
        name,
        ids,
        np.full(PACKETS, HOPS, np.uint8),
        links + np.uint32(1),
        np.full_like(links, levels, np.uint8),
        seed,
        bits=bits,
        size=size,
        probability=0.2,
        hash="gf",
        field_bits=FIELD,
    )
    return received, ids


def counted(
    name: str, links: NDArray[np.uint32], seed: int, bits: int, size: int = 4
) -> HashedCounts:
    """Decoded counts of one run of a hashed scheme."""
    received, ids = run(name, links, seed, bits, size)
    hop_known = name == "coordinated"
    samples = HashedSamples(
        ids[received["packet"]],
        received["seen"].astype(np.uint8),
        received["weight"].astype(np.uint8),
        bits,
        FIELD,
    )
    stages = []
    for hop in range(HOPS):
        here = np.arange(hop * WIDTH, (hop + 1) * WIDTH, dtype=np.uint32)
        rows = np.flatnonzero((received["hop"] == hop) | (not hop_known))
        stages.append((rows, one_class(len(rows), here)))
    return count_links(_core, samples, stages, VALUES, hop_known)


@pytest.fixture(scope="module")
def links() -> NDArray[np.uint32]:
    return paths(np.random.default_rng(3))


@pytest.fixture(scope="module")
def truth(links: NDArray[np.uint32]) -> NDArray[np.float64]:
    return np.bincount(links.ravel(), minlength=HOPS * WIDTH).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("single_bit", 1),
        ("compact", 1),
        ("compact", 2),
        ("coordinated", 1),
        ("coordinated", 4),
        ("coordinated", 5),
    ],
)
def test_hashed_counts(name: str, bits: int, links, truth) -> None:
    """Mean and variance are the closed forms; a 95 % interval holds the truth 93 to 97 times."""
    runs = [counted(name, links, seed, bits) for seed in range(RUNS)]
    estimates = np.array([counts.packets for counts in runs])
    closed = closed_variance(truth, PACKETS, HOPS, bits, name == "coordinated")
    off = (estimates - truth) / np.sqrt(closed)
    # 2400 standardised errors: mean within 4 / √2400, variance within 4 √(2 / 2400).
    assert abs(off.mean()) < 0.09
    assert abs((off**2).mean() - 1.0) < 0.13
    stated = np.mean([counts.variance for counts in runs], axis=0)
    assert stated == pytest.approx(closed, rel=0.05)
    inside = []
    for counts in runs:
        low, high = counts.interval()
        inside.append((low <= truth) & (truth <= high))
    assert 0.93 <= np.mean(inside) <= 0.97


@pytest.mark.parametrize("confidence", [0.95, 0.995])
def test_threshold_hides_what_may_be_noise(confidence: float, links, truth) -> None:
    idle = truth == 0
    assert idle.sum() == HOPS
    counts = [counted("single_bit", links, seed, 1) for seed in range(RUNS)]
    shown = [thresholded(count, confidence) for count in counts]
    # Binomial(300, 1 - confidence): at most four standard deviations above its mean.
    expected = RUNS * HOPS * (1 - confidence)
    assert np.sum([(counts[idle] > 0).sum() for counts in shown]) <= expected + 4 * expected**0.5
    assert np.mean([counts[truth > 1800] > 0 for counts in shown]) > 0.7


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_full_reservoirs_vary_as_section_3_3_says(slots: int, links, truth) -> None:
    estimates = []
    for seed in range(RUNS):
        received, _ = run("full", links, seed, 1, slots)
        uncongested = ~received["congested"].astype(bool)
        seen = received["seen"][uncongested] - np.uint32(1)
        estimates.append(np.bincount(seen, received["weight"][uncongested], minlength=len(truth)))
    # A slot is one hop of l: N (l − 1) for one, and without replacement (l − n)/n for n.
    variance = truth * (HOPS - slots) / slots
    off = np.array(estimates) - truth
    used = truth > 0
    assert (off[:, ~used] == 0).all()
    if slots == HOPS:
        assert (off == 0).all()
        return
    assert abs(((off[:, used] ** 2).mean(axis=0) / variance[used]).mean() - 1) < 0.13


def test_two_reservoirs_name_one_of_congested_hops(links) -> None:
    received, _ = run("full", links, 1, 1, 1, levels=9)
    congested = received["congested"].astype(bool)
    assert congested.sum() == PACKETS and (received["weight"] == HOPS).all()


def test_declared_bits() -> None:
    facts = {
        ("full", 1, 1): (64, None, True),
        ("single_bit", 1, 4): (10, 1, True),
        ("compact", 1, 3): (5, 1, True),
        ("compact", 1, 4): (6, 1, True),
        ("coordinated", 4, 1): (5, 4, True),
        ("coordinated", 5, 1): (6, 5, True),
        ("csig", 1, 1): (32, None, False),
    }
    for (name, bits, size), expected in facts.items():
        assert _core.scheme_facts(name, bits, size, 0.2) == expected


def test_mistakes_are_reported() -> None:
    with pytest.raises(ValueError, match=r"no scheme .carrier pigeon.; valid: full, single_bit"):
        _core.scheme_facts("carrier pigeon", 1, 1, 0.2)
    with pytest.raises(ValueError, match="hash bits of 9; valid: 1 to 8"):
        _core.scheme_facts("coordinated", 9, 1, 0.2)
    with pytest.raises(ValueError, match="probability of 0"):
        _core.scheme_facts("xor_digest", 1, 1, 0.0)


SMALL = FatTree(hosts_per_leaf=3, leaves=4, aggregation=2, pods=3, cores=4, aggregation_uplinks=4)


def test_stages_hold_every_path() -> None:
    fabric = fat_tree(SMALL)
    network = network_of(fabric)
    ends = np.random.default_rng(1).integers(0, fabric.n_nodes, (2, 3000), dtype=np.uint32)
    hops, flat = _core.random_paths(network, ends[0], ends[1], 5, 5)
    rows = flat.reshape(-1, 5)
    assert set(hops.tolist()) == {1, 3, 5}
    for packet in range(3000):
        path = rows[packet, : hops[packet]]
        assert (fabric.link_dst[path[:-1]] == fabric.link_src[path[1:]]).all()
        assert fabric.link_dst[path[-1]] == ends[1, packet]
    n_hops = np.zeros(3000, int)
    for stage in fat_tree_stages(fabric):
        at = stage.hop_of(hops)
        passing = np.flatnonzero(at >= 0)
        n_hops[passing] += 1
        candidates = stage.candidates(ends[0, passing], ends[1, passing])
        for packet, group in zip(passing, candidates.of_packet, strict=True):
            members = candidates.links[
                int(candidates.start[group]) : int(candidates.start[group + 1])
            ]
            assert rows[packet, at[packet]] in members
    assert (n_hops == hops).all()
    with pytest.raises(FabricError, match="no leaf, aggregation and core"):
        fat_tree_stages(star(fabric))
    with pytest.raises(ValueError, match="more than 3 links"):
        _core.random_paths(network, ends[0], ends[1], 5, 3)
