"""Estimates of links that use the samples of their bundle: empirical Bayes.

A network has thousands of links with a few dozen samples each. Most of the raw differences between
neighbouring links are chance, and the highest estimates are those with the largest positive errors.
Routing spreads the same traffic over the links of a *bundle*
(:mod:`tailback.diagnosis.topology`), so their common value is known far better than that of a
single link.

For link i of bundle b, with estimated packets Wᵢ and congested packets Mᵢ, xᵢ = Mᵢ/Wᵢ:

- the bundle's fraction μ = ΣM/ΣW, and the variance of xᵢ if it were that of the bundle,
  sᵢ² = [μ (gᵢ−1) + μ² (lᵢ−1)] / Wᵢ, with l−1 and g−1 as in :func:`.fraction_interval` (l−1 by
  :func:`.contrast_excess`). They are
  the link's own: deterministic routing sends different flows, with different numbers of hops, over
  each link of a bundle;
- the variance τ² between the links of a bundle, by moments (DerSimonian and Laird, 1986):
  τ² = max(0, (Q − (k−1)) / (S₁ − S₂/S₁)), Q = Σ(xᵢ − x̄)²/vᵢ, x̄ weighted by 1/vᵢ, Sₙ = Σ vᵢ⁻ⁿ,
  vᵢ the variance of xᵢ if τ were 0. A bundle of two or three links hardly determines τ², so it is
  not taken below that of all bundles of its kind together;
- the estimate is for the fraction of *this run*: even identical links vary by μ (1−μ) / Wᵢ by
  chance, most with few packets. The variance of the link's true fraction is
  τᵢ² = τ² + μ (1−μ) / Wᵢ, and vᵢ = sᵢ² + μ (1−μ) / Wᵢ;
- the shrunk estimate μ + Bᵢ (xᵢ − μ), Bᵢ = τᵢ² / (τᵢ² + sᵢ²), and its variance
  B s² + (1−B)² Var μ + 2/(k−1) · (1−B)² (xᵢ − μ)², whose last term is for τ² not being known
  (Morris, 1983). Var μ = Σ Wᵢ² (sᵢ² + τᵢ²) / (ΣW)²: the mean of few links differs from that of
  their kind.

A link that differs clearly is not shrunk away: it makes τ² of its bundle large. A single link keeps
its estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.telemetry.estimate import (
    Z95,
    congested_excess,
    contrast_excess,
    fraction_interval,
    hop_excess,
)

MIN_SAMPLES = 10
"""Hop samples of a link, with its bundle, below which its congested fraction is not shown."""


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Shrunk congested fractions of links; arrays of shape (L,).

    Attributes:
        value: Congested fraction, 0–1; NaN without data and where :attr:`impossible`.
        error: Its standard error; NaN like the value.
        low: Lower end of its 95 % interval, 0–1.
        high: Upper end.
        impossible: Whether the samples contradict every fraction up to 1.
    """

    value: Floats
    error: Floats
    low: Floats
    high: Floats
    impossible: NDArray[np.bool_]


def beyond_one(congested: Floats, packets: Floats, g: Floats, b: Floats) -> NDArray[np.bool_]:
    """Links whose estimates reject even a fraction of 1: too many packets met congestion.

    Args:
        congested: Estimated congested packets M.
        packets: Estimated packets W.
        g: g−1 of the congested packets (:func:`.congested_excess`).
        b: l−1 of the packets, as in :func:`.fraction_interval`.
    """
    spread = Z95 * np.sqrt(np.maximum(packets, 0.0) * (g + b))
    return np.asarray(congested - packets > spread, np.bool_)


def shrink(
    congested: Floats,
    congested_variance: Floats,
    packets: Floats,
    packets_variance: Floats,
    samples: Floats,
    bundle: Ints,
    kind: Ints,
    *,
    shared: bool = False,
) -> Shrunk:
    """Shrink the congested fractions of links toward those of their bundles.

    Args:
        congested: Estimated congested packets of each link, shape (L,).
        congested_variance: Their estimated variances.
        packets: Estimated packets.
        packets_variance: Their estimated variances.
        samples: Hop samples.
        bundle: Number of each link's bundle.
        kind: Number of each link's kind (tier and direction), the same for all links of a bundle.
        shared: Whether one reservoir made both counts (:func:`.contrast_excess`).

    Returns:
        Estimates; the same arithmetic as ``web/src/shrinkage.ts``.
    """
    excess = hop_excess(packets, packets_variance)
    g = congested_excess(congested, congested_variance, excess)
    b = contrast_excess(excess, g, shared=shared)
    impossible = (packets > 0) & beyond_one(congested, packets, g, b)
    seen = (packets > 0) & ~impossible
    n = int(bundle.max(initial=-1)) + 1

    def total(values: Floats, of: Ints, size: int) -> Floats:
        return np.bincount(of[seen], values[seen], size).astype(np.float64)

    def ratio(numerator: Floats, denominator: Floats) -> Floats:
        return np.divide(
            numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0
        )

    through, met = total(packets, bundle, n), total(congested, bundle, n)
    mean = np.minimum(ratio(met, through), 1.0)
    x, mu = ratio(congested, packets), mean[bundle]
    variance = ratio(mu * g + mu**2 * b, packets)
    realized = ratio(mu * (1 - mu), packets)
    tau = _between(x, variance + realized, seen, bundle, kind) + realized
    keep = np.divide(tau, tau + variance, out=np.ones_like(tau), where=tau + variance > 0)
    size = np.bincount(bundle[seen], minlength=n)[bundle]
    alone = size < 2
    keep = np.where(alone, 1.0, keep)
    value = mu + keep * (x - mu)
    at = np.clip(value, 0.0, 1.0)
    own_variance = ratio(at * g + at**2 * b, packets)
    of_mean = ratio(total(packets**2 * (variance + tau), bundle, n), through**2)[bundle]
    unknown_tau = 2.0 / np.maximum(size - 1, 1) * (x - mu) ** 2
    error = np.sqrt(keep * own_variance + (1 - keep) ** 2 * (of_mean + unknown_tau))
    low, high = fraction_interval(congested, packets, g, b)
    # A bundle without a congested sample: each link gets the bound from all packets of the bundle.
    together = _bundle_bound(through, ratio(total(packets * excess, bundle, n), through))
    none = met[bundle] <= 0
    low = np.where(alone, low, np.clip(value - Z95 * error, 0.0, 1.0))
    high = np.where(
        alone,
        high,
        np.where(
            none, np.maximum(high * keep, together[bundle]), np.clip(value + Z95 * error, 0.0, 1.0)
        ),
    )
    enough = seen & (np.bincount(bundle[seen], samples[seen], n)[bundle] >= MIN_SAMPLES)
    at, error, low, high = (np.where(enough, column, np.nan) for column in (at, error, low, high))
    return Shrunk(at, error, low, high, impossible)


def _bundle_bound(through: Floats, b: Floats) -> Floats:
    """Upper ends of the score intervals of bundles without a congested sample."""
    return fraction_interval(np.zeros_like(through), through, b, b)[1]


def _between(
    x: Floats, variance: Floats, seen: NDArray[np.bool_], bundle: Ints, kind: Ints
) -> Floats:
    """τ² of each link's bundle, at least the τ² of its kind, shape (L,)."""
    used = seen & (variance > 0)
    weight = np.divide(1.0, variance, out=np.zeros_like(variance), where=used)
    n = int(bundle.max(initial=-1)) + 1

    def total(values: Floats) -> Floats:
        return np.bincount(bundle[used], values[used], n).astype(np.float64)

    first, second = total(weight), total(weight**2)
    centre = np.divide(total(weight * x), first, out=np.zeros(n), where=first > 0)
    beyond = total(weight * (x - centre[bundle]) ** 2) - (total(np.ones_like(x)) - 1)
    scale = first - np.divide(second, first, out=np.zeros(n), where=first > 0)
    # Bundles whose links are all alike in weight have a positive scale; one link has none.
    many = scale > 1e-9 * np.maximum(first, 1e-300)
    tau = np.divide(np.maximum(beyond, 0.0), scale, out=np.zeros(n), where=many)
    kinds = int(kind.max(initial=-1)) + 1
    kind_of = np.zeros(n, np.int64)
    kind_of[bundle] = kind
    over = np.bincount(kind_of[many], beyond[many], kinds).astype(np.float64)
    under = np.bincount(kind_of[many], scale[many], kinds).astype(np.float64)
    pooled = np.maximum(np.divide(over, under, out=np.zeros(kinds), where=under > 0), 0.0)
    return np.asarray(np.maximum(tau, pooled[kind_of])[bundle], np.float64)
