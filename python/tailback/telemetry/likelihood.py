"""Maximum likelihood: the link shares under which the hashes that arrived are most probable.

A packet of a class takes candidate link d of a stage with probability θ_d, the unknown share of the
class, and its hash is h with probability Σ θ_d over the links that hash to h; where the hop is
unknown, each of its l stages is the one that arrived with probability 1/l. The log-likelihood of
all packets is concave in θ, and every class's shares are not negative and sum to 1, which is flow
conservation. So the maximum is found by an accelerated projected gradient, and the duality gap
bounds what is still to be gained. Multiplicative updates (expectation maximisation) are no
substitute: with one or two bits they creep and stop far from the maximum.

Links shared by several classes need nothing more: each class has its own shares, and a link's
count is the sum over classes of share × packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from tailback.arrays import Floats
from tailback.errors import RunError
from tailback.telemetry.hashed import CandidateLinks, HashedSamples
from tailback.telemetry.simplex import Groups, minimise

PAIRS = 1 << 22
"""Pairs of packet and link hashed at a time."""
MAX_PAIRS = 1 << 29
"""Above this many pairs the matrix would not fit in memory."""
MAX_STEPS = 3000


class Matcher(Protocol):
    """Functions of the compiled core that the likelihood needs."""

    def link_hash(
        self,
        name: str,
        ids: NDArray[np.uint32],
        links: NDArray[np.uint32],
        bits: int,
        field_bits: int,
    ) -> NDArray[np.uint8]:
        """Hash of each pair of packet id and link value."""
        ...


@dataclass(frozen=True)
class LikelihoodFit:
    """Maximum likelihood counts.

    Attributes:
        packets: Estimated packets of each link, shape (L,).
        log_likelihood: Of all samples, in nats.
        gap: Upper bound of the distance of the log-likelihood from its maximum, in nats. Well below
            1 means converged: the data cannot distinguish the solution from the exact one.
        steps: Gradient steps.
    """

    packets: Floats
    log_likelihood: float
    gap: float
    steps: int


def fit(
    core: Matcher,
    samples: HashedSamples,
    stages: list[tuple[NDArray[np.intp], CandidateLinks]],
    population: list[CandidateLinks],
    link_values: NDArray[np.uint32],
    tolerance: float = 0.01,
) -> LikelihoodFit:
    """Maximum likelihood counts.

    Args:
        core: The compiled core.
        samples: Received samples.
        stages: For each stage, the rows of ``samples`` that may have been sampled at it and their
            candidates in the order of the rows, as in
            :func:`tailback.telemetry.hashed.count_links`. A row with l possible stages appears in
            all l.
        population: Candidates of *all* packets that pass each stage, with the same classes, which
            give the number of packets of each class.
        link_values: Value that switches hash for each link, shape (L,).
        tolerance: Stop when the gap is at most this, in nats.

    Returns:
        The counts; a class without samples is spread evenly.

    Raises:
        RunError: There are more pairs of packet and candidate than memory allows, or a hash that
            no candidate of its packet has.
    """
    pairs = sum(int(part.sizes[part.of_packet].sum()) for _, part in stages)
    if pairs > MAX_PAIRS:
        raise RunError(
            f"{pairs} pairs of packet and candidate link are too many for maximum likelihood",
            remedy="take a window with fewer packets, or use the linear estimate",
        )
    stage_count = np.zeros(len(samples.ids))
    for rows, _ in stages:
        stage_count[rows] += 1.0
    # Stage after stage, class after class: every class's candidates are variables of their own.
    links = np.concatenate([part.links for _, part in stages])
    sizes = np.concatenate([part.sizes for _, part in stages])
    groups = Groups(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), np.ones(len(sizes)))
    matrix = _matrix(core, samples, stages, link_values, stage_count, len(links))
    present = np.diff(matrix.indptr) > 0
    if not present[stage_count > 0].all():
        row = int(np.flatnonzero(~present & (stage_count > 0))[0])
        raise RunError(
            f"no candidate link of packet {int(samples.ids[row])} has the hash it carries",
            remedy="candidates, link numbers and hash must be those the switches use",
        )
    matrix = matrix[stage_count > 0]
    transposed = matrix.T.tocsr()

    def objective(shares: Floats) -> tuple[float, Floats]:
        chance = matrix @ shares
        if not (chance > 0).all():
            return float("inf"), np.zeros_like(shares)
        return -float(np.log(chance).sum()), -np.asarray(transposed @ (1.0 / chance), np.float64)

    # Curvature of a class in which every link has its share: samples × (2^bits − 1).
    arrived = np.concatenate(
        [np.bincount(part.of_packet, minlength=len(part.sizes)) for _, part in stages]
    )
    scale = 1.0 / (np.maximum(arrived, 1.0) * (2.0**samples.bits - 1.0))
    minimum = minimise(objective, groups, np.repeat(scale, sizes), tolerance, MAX_STEPS)
    packets = np.concatenate(
        [np.bincount(part.of_packet, minlength=len(part.sizes)) for part in population]
    )
    counts = np.bincount(
        links, np.repeat(packets, sizes) * minimum.point, minlength=len(link_values)
    )
    return LikelihoodFit(np.asarray(counts, np.float64), -minimum.value, minimum.gap, minimum.steps)


def _matrix(
    core: Matcher,
    samples: HashedSamples,
    stages: list[tuple[NDArray[np.intp], CandidateLinks]],
    link_values: NDArray[np.uint32],
    stage_count: Floats,
    variables: int,
) -> csr_matrix:
    """Probability of each sample's hash given each variable: 1/l if the hash matches."""
    shape = (len(samples.ids), variables)
    total = csr_matrix(shape)
    first = 0
    for rows, part in stages:
        candidates, starts = part.sizes[part.of_packet], part.start.astype(np.int64)
        blocks = []
        # In portions of so many pairs; a portion has whole packets.
        portion = np.cumsum(candidates) // PAIRS
        edges = np.flatnonzero(np.diff(portion, prepend=-1, append=portion[-1:] + 1))
        for begin, end in pairwise(edges.tolist()):
            blocks.append(
                _matching_pairs(
                    core, samples, rows[begin:end], part, begin, candidates, starts, link_values
                )
            )
        if blocks:
            packet = np.concatenate([block[0] for block in blocks])
            column = np.concatenate([block[1] for block in blocks]) + first
            total = total + csr_matrix((1.0 / stage_count[packet], (packet, column)), shape=shape)
        first += len(part.links)
    return total


def _matching_pairs(
    core: Matcher,
    samples: HashedSamples,
    rows: NDArray[np.intp],
    part: CandidateLinks,
    begin: int,
    candidates: NDArray[np.int64],
    starts: NDArray[np.int64],
    link_values: NDArray[np.uint32],
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """(row, position among the stage's candidates) of all pairs whose hash agrees."""
    sizes = candidates[begin : begin + len(rows)]
    row = np.repeat(rows, sizes)
    within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    position = np.repeat(starts[part.of_packet[begin : begin + len(rows)]], sizes) + within
    hashes = core.link_hash(
        "gf", samples.ids[row], link_values[part.links[position]], samples.bits, samples.field_bits
    )
    agree = hashes == samples.hashes[row]
    return row[agree], position[agree]
