"""Maximum likelihood over links: converged, possible, and better than the linear counts."""

from __future__ import annotations

import numpy as np
import pytest

from tailback import _core
from tailback.errors import RunError
from tailback.telemetry import likelihood
from tailback.telemetry.hashed import CandidateLinks, HashedSamples, count_links
from tailback.telemetry.likelihood import fit

HOPS, WIDTH, PACKETS, FIELD = 3, 24, 2500, 24
VALUES = np.arange(1, HOPS * WIDTH + 1, dtype=np.uint32)


def case(name: str, bits: int, seed: int):
    """Skewed traffic of one class, three hops; samples, stages, population, true counts."""
    random = np.random.default_rng(seed)
    share = random.dirichlet(np.full(WIDTH, 0.3), HOPS)
    links = np.stack(
        [random.choice(WIDTH, PACKETS, p=share[h]) + WIDTH * h for h in range(HOPS)], axis=1
    ).astype(np.uint32)
    ids = random.integers(0, 1 << FIELD, PACKETS, dtype=np.uint32)
    received = _core.run_scheme(
        name,
        ids,
        np.full(PACKETS, HOPS, np.uint8),
        links + np.uint32(1),
        np.zeros_like(links, np.uint8),
        seed,
        bits=bits,
        size=3,
        probability=0.2,
        hash="gf",
        field_bits=FIELD,
    )
    samples = HashedSamples(
        ids[received["packet"]],
        received["seen"].astype(np.uint8),
        received["weight"].astype(np.uint8),
        bits,
        FIELD,
    )
    stages, population = [], []
    for hop in range(HOPS):
        rows = np.flatnonzero((received["hop"] == hop) | (received["hop"] == 255))
        here = np.arange(hop * WIDTH, (hop + 1) * WIDTH, dtype=np.uint32)
        start = np.array([0, WIDTH], np.uint64)
        stages.append((rows, CandidateLinks(np.zeros(len(rows), np.uint32), start, here)))
        population.append(CandidateLinks(np.zeros(PACKETS, np.uint32), start, here))
    truth = np.bincount(links.ravel(), minlength=len(VALUES)).astype(float)
    return samples, stages, population, truth


@pytest.mark.parametrize(("name", "bits"), [("coordinated", 1), ("coordinated", 4), ("compact", 1)])
def test_converged_possible_and_better(name: str, bits: int) -> None:
    hop_known = name == "coordinated"
    gains = []
    for seed in range(4):
        samples, stages, population, truth = case(name, bits, seed)
        solution = fit(_core, samples, stages, population, VALUES)
        assert 0 <= solution.gap <= 0.01 and solution.steps < likelihood.MAX_STEPS
        assert (solution.packets >= 0).all()
        for hop in range(HOPS):
            part = solution.packets[hop * WIDTH : (hop + 1) * WIDTH]
            assert part.sum() == pytest.approx(PACKETS)
        linear = count_links(_core, samples, stages, VALUES, hop_known).packets
        gains.append(((linear - truth) ** 2).sum() / ((solution.packets - truth) ** 2).sum())
    # One bit gains most; with four little noise is left to remove.
    assert np.mean(gains) > (2.0 if bits == 1 else 1.1), gains


def test_multiplicative_updates_are_far_from_the_maximum() -> None:
    """50 steps of expectation maximisation end nats below what the gradient certifies."""
    samples, stages, population, _ = case("coordinated", 1, 1)
    solution = fit(_core, samples, stages, population, VALUES)
    value = 0.0
    for rows, part in stages:
        ids = np.repeat(samples.ids[rows], WIDTH)
        hashes = _core.link_hash("gf", ids, np.tile(VALUES[part.links], len(rows)), 1, FIELD)
        agree = (hashes.reshape(-1, WIDTH) == samples.hashes[rows, None]).astype(float)
        shares = np.full(WIDTH, 1 / WIDTH)
        for _ in range(50):
            shares *= agree.T @ (1 / (agree @ shares)) / len(rows)
        value += np.log(agree @ shares).sum()
    assert value < solution.log_likelihood - 1.0
    # More steps close in on the same maximum, never above what the gap allows.
    assert value <= solution.log_likelihood + solution.gap


def test_links_shared_by_classes_add_up() -> None:
    """Two classes of packets, three links each, one in both."""
    random = np.random.default_rng(3)
    n = 4000
    of_packet = random.integers(0, 2, n).astype(np.uint32)
    links = np.where(of_packet == 0, random.integers(0, 3, n), random.integers(2, 5, n))
    ids = random.integers(0, 1 << FIELD, n, dtype=np.uint32)
    values = np.arange(1, 6, dtype=np.uint32)
    hashes = _core.link_hash("gf", ids, values[links], 2, FIELD)
    part = CandidateLinks(
        of_packet, np.array([0, 3, 6], np.uint64), np.array([0, 1, 2, 2, 3, 4], np.uint32)
    )
    samples = HashedSamples(ids, hashes, np.ones(n, np.uint8), 2, FIELD)
    solution = fit(_core, samples, [(np.arange(n), part)], [part], values)
    truth = np.bincount(links, minlength=5)
    # Four standard deviations of a count with κ = 1/3.
    assert np.abs(solution.packets - truth).max() < 4 * np.sqrt(n / 3)
    assert solution.packets.sum() == pytest.approx(n) and solution.gap <= 0.01


def test_mistakes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, stages, population, _ = case("coordinated", 8, 1)
    wrong = HashedSamples(samples.ids, samples.hashes ^ np.uint8(255), samples.weights, 8, FIELD)
    with pytest.raises(RunError, match="no candidate link of packet"):
        fit(_core, wrong, stages, population, VALUES)
    monkeypatch.setattr(likelihood, "MAX_PAIRS", 10)
    with pytest.raises(RunError, match="too many for maximum likelihood"):
        fit(_core, samples, stages, population, VALUES)
