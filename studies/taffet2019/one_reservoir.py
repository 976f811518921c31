"""Section 5.7 of Taffet (2019), one reservoir: variances, and the product's intervals.

    python -m studies.taffet2019.one_reservoir --write

The thesis proposes the variant of 5 to 6 bits (algorithms 8 and 9, our scheme ``compact``) and
leaves its error open. For N packets through a link, M of them congested there, Q that might have
used it, path length l and Σg congested hops of those Q: Var W = l²Q − N,
Var Ŵ = Cov(W, Ŵ) = lΣg − M, and Var[Ŵ/W] ≈ N⁻² [(1 − 2f)(lΣg − M) + f²(l²Q − N)] with f = M/N.
Both algorithms are run here as written in the thesis; the counts are made by the product's
estimator and its stated variances are compared with the formulas and with what happened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from studies.taffet2019.reproduction import Row, run, state_agreement, table
from tailback.simulation import COMPILED_DECODER, link_hash
from tailback.telemetry import (
    CandidateLinks,
    HashedCounts,
    HashedSamples,
    count_links,
    link_estimates,
)

Floats = NDArray[np.float64]

HOPS, WIDTH, FIELD = 5, 4, 24
PACKETS, RUNS = 60_000, 150


@dataclass(frozen=True)
class Traffic:
    """Packets on paths of five hops, each on one of four links, and where they met congestion."""

    links: NDArray[np.uint32]
    congested: NDArray[np.bool_]

    @property
    def through(self) -> Floats:
        """N of each link."""
        return np.bincount(self.links.ravel(), minlength=HOPS * WIDTH).astype(np.float64)

    @property
    def met(self) -> Floats:
        """M of each link."""
        return np.bincount(self.links.ravel(), self.congested.ravel(), HOPS * WIDTH)


@dataclass(frozen=True)
class Sampled:
    """Estimates of all runs: W and Ŵ with the variances that the product states, shape (R, L)."""

    packets: Floats
    packets_variance: Floats
    congested: Floats
    congested_variance: Floats


def make_traffic(chance: float, seed: int = 8) -> Traffic:
    """Every hop of every packet is congested with the same probability."""
    random = np.random.default_rng(seed)
    stage = WIDTH * np.arange(HOPS)
    links = (random.integers(0, WIDTH, (PACKETS, HOPS)) + stage).astype(np.uint32)
    return Traffic(links, random.random(links.shape) < chance)


def algorithm_8(traffic: Traffic, random: np.random.Generator) -> NDArray[np.int64]:
    """Which hop is in the reservoir of each packet when it arrives, switch by switch."""
    chosen = np.zeros(PACKETS, np.int64)
    for hop in range(HOPS):
        chosen[random.integers(0, hop + 1, PACKETS) == 0] = hop
    return chosen


def algorithm_9(traffic: Traffic, runs: int = RUNS) -> Sampled:
    """The receiver's counts, by the product's estimator over all links."""
    every = np.arange(PACKETS)
    values = np.arange(1, HOPS * WIDTH + 1, dtype=np.uint32)
    rows: list[tuple[Floats, ...]] = []
    for seed in range(runs):
        random = np.random.default_rng(seed)
        ids = random.integers(0, 1 << FIELD, PACKETS, dtype=np.uint32)
        hop = algorithm_8(traffic, random)
        hashes = link_hash("gf", ids, values[traffic.links[every, hop]], 1, FIELD)
        flag = traffic.congested[every, hop]
        both = [_count(ids[keep], hashes[keep], values) for keep in (np.ones_like(flag), flag)]
        rows.append((both[0].packets, both[0].variance, both[1].packets, both[1].variance))
    return Sampled(*(np.array(column) for column in zip(*rows, strict=True)))


def _count(
    ids: NDArray[np.uint32], hashes: NDArray[np.uint8], values: NDArray[np.uint32]
) -> HashedCounts:
    """The published estimator: every packet is charged to every link it may have used."""
    samples = HashedSamples(ids, hashes, np.full(len(ids), HOPS, np.uint8), 1, FIELD)
    anywhere = CandidateLinks(
        np.zeros(len(ids), np.uint32),
        np.array([0, len(values)], np.uint64),
        np.arange(len(values), dtype=np.uint32),
    )
    return count_links(COMPILED_DECODER, samples, [(np.arange(len(ids)), anywhere)], values, False)


def ratios(traffic: Traffic, sampled: Sampled) -> dict[str, float]:
    """Measured over stated: 1 if the formula, or the product, is correct."""
    n, m = traffic.through, traffic.met
    f, hops = m / n, float(traffic.congested.sum())
    var_w, var_m = HOPS**2 * PACKETS - n, HOPS * hops - m
    fraction = ((1 - 2 * f) * var_m + f**2 * var_w) / n**2
    independent = (var_m + f**2 * var_w) / n**2
    off = sampled.congested / sampled.packets - f
    both = (sampled.packets - n) * (sampled.congested - m)
    return {
        "Var W, measured": float((((sampled.packets - n) ** 2) / var_w).mean()),
        "Var W, stated": float((sampled.packets_variance / var_w).mean()),
        "Var Ŵ, measured": float((((sampled.congested - m) ** 2) / var_m).mean()),
        "Var Ŵ, stated": float((sampled.congested_variance / var_m).mean()),
        "Cov, measured": float((both / var_m).mean()),
        "fraction": float((off**2 / fraction).mean()),
        "fraction, as if independent": float((off**2 / independent).mean()),
    }


def coverage(truth: Floats, estimate: Floats, variance: Floats) -> float:
    """Share of 95 % intervals that contain the truth."""
    return float((np.abs(estimate - truth) <= 1.96 * np.sqrt(variance)).mean())


def fractions(traffic: Traffic, sampled: Sampled, *, shared: bool) -> tuple[float, float]:
    """Share of the product's 95 % intervals of a fraction that hold it, and their mean width."""
    runs, links = sampled.packets.shape
    columns = {
        "hop_samples": sampled.packets / HOPS,
        "hop_weight": sampled.packets,
        "hop_variance": sampled.packets_variance,
        "hop_bytes": sampled.packets,
        "congested_samples": sampled.congested / HOPS,
        "congested_weight": sampled.congested,
        "congested_variance": sampled.congested_variance,
    }
    rows = pl.DataFrame({name: np.maximum(values, 0).ravel() for name, values in columns.items()})
    rows = rows.with_columns(link=np.arange(runs * links))
    frame = link_estimates(rows, hashed=True, shared=shared)
    low, high = frame["fraction_low"].to_numpy(), frame["fraction_high"].to_numpy()
    real = np.tile(traffic.met / traffic.through, runs)
    return float(((low <= real) & (real <= high)).mean()), float((high - low).mean())


def rows() -> list[Row]:
    """For a low and a high congested fraction."""
    out = []
    chance = 4 * np.sqrt(2 / (RUNS * HOPS * WIDTH))
    for congested in (0.2, 0.7):
        traffic = make_traffic(congested)
        sampled = algorithm_9(traffic)
        ratio = ratios(traffic, sampled)
        covered = [
            coverage(traffic.through, sampled.packets, sampled.packets_variance),
            coverage(traffic.met, sampled.congested, sampled.congested_variance),
        ]
        single, usual = (fractions(traffic, sampled, shared=shared) for shared in (True, False))
        at = f"f = {congested:.1f}"
        out += [
            Row(
                f"variance of W over l²Q − N, {at}",
                "1 (section 5.3)",
                f"{ratio['Var W, measured']:.3f} measured, {ratio['Var W, stated']:.3f} stated by "
                "the product",
                state_agreement(abs(ratio["Var W, measured"] - 1) <= chance),
                f"±{chance:.2f} of chance; 95 % intervals hold the truth in {covered[0]:.1%}",
            ),
            Row(
                f"variance of Ŵ over lΣg − M, {at}",
                "left open",
                f"{ratio['Var Ŵ, measured']:.3f} measured, {ratio['Var Ŵ, stated']:.3f} stated by "
                "the product",
                "–",
                f"95 % intervals hold the truth in {covered[1]:.1%}",
            ),
            Row(
                f"covariance of W and Ŵ over lΣg − M, {at}",
                "left open",
                f"{ratio['Cov, measured']:.3f}",
                "–",
                "one reservoir fills both counts",
            ),
            Row(
                f"variance of Ŵ/W over the closed form, {at}",
                "left open",
                f"{ratio['fraction']:.3f}",
                "–",
                "as if W and Ŵ were independent, as in section 3.3, it would be too large by "
                f"{ratio['fraction'] / ratio['fraction, as if independent']:.2f}×",
            ),
            Row(
                f"95 % intervals of a fraction that hold it, {at}",
                "95 %",
                f"{single[0]:.1%}",
                f"{100 * single[0] - 95:+.1f} points",
                f"{usual[0]:.1%} of those for two reservoirs, {usual[1] / single[1]:.2f}× as "
                "wide; the diagnosis states the former of schemes with one reservoir",
            ),
        ]
    return out


if __name__ == "__main__":
    run(__doc__ or "", "one reservoir", lambda: table(rows()))
