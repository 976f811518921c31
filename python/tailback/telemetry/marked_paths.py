"""Congestion of links from packets whose whole path is known, and whether any hop marked them.

A packet's entropy value and the hash of the switches give its path, its ECN mark says whether any
hop of the path was congested. Packets of a link are therefore counted without error. Which hop
marked a packet is inferred from packets of other paths.

**Model.** In a block of time, link d marks a share f_d of its packets, each independently of the
other hops of the packet, whatever path it takes. Of the N_g packets of path g, M_g are marked; a
packet is marked with probability p_g = 1 − Π (1 − f_d) over the links of the path (noisy or; the
inverse problem is that of multicast and binary tomography, Cáceres et al. 1999, Duffield 2006). The
estimate has maximum likelihood (expectation maximisation).

**Bounds.** Neither assumption holds in a congestion tree, whose hops mark the same packets.
Intervals do without the first one. Link d marked at most all marked packets that crossed it,
Σ M_g. Of each path it marked at least the share p_g − Σ_e min p, where each other link e explains
as much as the cleanest of its paths allows (:func:`least_marked`). A link that alone explains the
marks of its paths has both bounds at the estimate; where trees fill all paths, they are far
apart.

**Noise.** Two errors remain given the marks, and they are independent: which packets of the marked
ones d marked, Σ_g M_g r_gd (1 − r_gd) with r_gd = f_d / p_g, and the error of the rates,
(J Σ Jᵀ)_dd with Σ the inverse of the Fisher information and J the derivative of the estimate. Rates
differ between paths and change within a block: the variance is multiplied by the dispersion of the
marks about the fit (Pearson's χ² per degree of freedom, if above 1: quasi-likelihood, McCullagh and
Nelder 1989). The lower bound is lowered by 1.96 standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from scipy.sparse.csgraph import connected_components

from tailback.arrays import Floats, Ints
from tailback.telemetry.estimate import Z95

_STEPS = 400
_SETTLED_PACKETS = 0.01
"""Largest change of a link in a step of the fit at which it ends."""
_MAX_DENSE = 1000
"""Largest number of links, connected by paths, whose information matrix is inverted as a whole."""
_SMALLEST = 1e-12


@dataclass(frozen=True)
class MarkedPaths:
    """Packets by path.

    Attributes:
        paths: Whether each path crosses each link, shape (G, L).
        packets: Packets of each path, shape (G,).
        marked: Those with a mark, shape (G,).
    """

    paths: csr_matrix
    packets: Floats
    marked: Floats

    @property
    def crossing(self) -> Floats:
        """Packets of each link, (L,)."""
        return np.asarray(self.paths.T @ self.packets, np.float64)


@dataclass(frozen=True)
class MarkRates:
    """What marks say about links.

    Attributes:
        rate: Share of packets that each link marks, shape (L,).
        congested: Congested packets of each link.
        low: Fewest congested packets that marks allow, with 95 % confidence.
        high: Most of them.
    """

    rate: Floats
    congested: Floats
    low: Floats
    high: Floats

    @property
    def variance(self) -> Floats:
        """Variance of ``congested``.

        ``low`` follows from it if it is constant, ``high`` if it grows with the packets.
        """
        w, high = self.congested, np.maximum(self.high, 1e-9)
        return np.asarray(np.maximum((w - self.low) ** 2, w * (high - w) ** 2 / high) / Z95**2)

    @property
    def score_terms(self) -> tuple[Floats, Floats]:
        """Variance at 0, and growth of it, whose score interval is from ``low`` to ``high``.

        Or wider, where no such variance has just this interval.
        """
        w, low, high = self.congested, self.low, np.maximum(self.high, 1e-9)
        null, slope = w**2 - low * high, low + high - 2.0 * w
        from_zero, above_middle = null < 0.0, slope < 0.0
        slope = np.where(from_zero, (high - w) ** 2 / high, np.where(above_middle, 0.0, slope))
        null = np.where(from_zero, 0.0, np.where(above_middle, (w - low) ** 2, null))
        return null / Z95**2, slope / Z95**2


def by_path(path_of: Ints, link: Ints, row: Ints, marked: NDArray[np.bool_], n: int) -> MarkedPaths:
    """Packets grouped by path.

    Args:
        path_of: Path of each packet, shape (P,).
        link: Link of each element of all paths.
        row: Path of each element.
        marked: Whether each packet is marked, shape (P,).
        n: Number of links.
    """
    count = int(max(path_of.max(initial=-1), row.max(initial=-1))) + 1
    paths = csr_matrix((np.ones(len(row)), (row, link)), shape=(count, n))
    return MarkedPaths(
        paths,
        np.bincount(path_of, minlength=count).astype(np.float64),
        np.bincount(path_of, marked, minlength=count).astype(np.float64),
    )


def fit_rates(data: MarkedPaths, start: Floats | None = None) -> Floats:
    """Rates of maximum likelihood, from ``start`` or from the cleanest path of each link, (L,).

    Where the paths do not determine the rates, the result is the solution nearest to the start in
    the sense of the expectation maximisation.
    """
    crossing = data.crossing
    rate = _cleanest(data) if start is None else np.clip(start, 0.0, 1.0 - 1e-9)
    back = csr_matrix(data.paths.T)
    for _ in range(_STEPS):
        share = data.marked / np.maximum(_any_mark(data.paths, rate), _SMALLEST)
        congested = rate * (back @ share)
        new = np.divide(congested, crossing, out=np.zeros_like(rate), where=crossing > 0)
        change = float((np.abs(new - rate) * crossing).max(initial=0.0))
        rate = np.clip(new, 0.0, 1.0)
        if change < _SETTLED_PACKETS:
            break
    return rate


def _any_mark(paths: csr_matrix, rate: Floats) -> Floats:
    """Probability of a mark on each path, (G,)."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(paths @ np.maximum(np.log1p(-rate), -700.0)), np.float64)


def _cleanest(data: MarkedPaths) -> Floats:
    """Smallest marked share of a path of each link, with half a packet of each kind added.

    It is above 0, from where no rate would rise.
    """
    share = (data.marked + 0.5) / (data.packets + 1.0)
    return _least(data.paths, np.where(data.packets > 0, share, np.inf))


def _least(paths: csr_matrix, value: Floats) -> Floats:
    """Smallest value of the paths of each link, 0 without paths, (L,)."""
    least = np.full(paths.shape[1], np.inf)
    np.minimum.at(least, paths.indices, np.repeat(value, np.diff(paths.indptr)))
    return np.where(np.isfinite(least), least, 0.0)


def least_marked(data: MarkedPaths, rate: Floats) -> Floats:
    """Fewest packets that each link marks, however hops of a packet depend on one another, (L,).

    Args:
        data: Packets by path.
        rate: Rates that give the probabilities of marks, shape (L,).
    """
    paths, marked = data.paths, _any_mark(data.paths, rate)
    most = np.maximum(_least(paths, marked), rate)
    row, link = np.repeat(np.arange(len(marked)), np.diff(paths.indptr)), paths.indices
    others = np.asarray(paths @ most)[row] - most[link]
    unexplained = np.maximum(marked[row] - others, 0.0) * data.packets[row]
    return np.bincount(link, unexplained, minlength=len(rate)).astype(np.float64)


def infer_marks(data: MarkedPaths, start: Floats | None = None) -> MarkRates:
    """Infer which links marked the packets.

    Args:
        data: Packets by path.
        start: Rates to start from, shape (L,).
    """
    rate, crossing = fit_rates(data, start), data.crossing
    congested = rate * crossing
    noise = Z95 * np.sqrt(_variance(data, rate))
    low = np.clip(least_marked(data, rate) - noise, 0.0, congested)
    high = np.maximum(np.asarray(data.paths.T @ data.marked, np.float64), congested)
    return MarkRates(rate, congested, low, high)


def _variance(data: MarkedPaths, rate: Floats) -> Floats:
    """Variance of the congested packets of each link (module docstring), (L,)."""
    active = np.flatnonzero(rate * data.crossing > _SETTLED_PACKETS)
    out = np.zeros(len(rate))
    if not len(active):
        return out
    paths, marks, f = csr_matrix(data.paths[:, active]), data.marked, rate[active]
    p = np.maximum(_any_mark(data.paths, rate), _SMALLEST)
    q = np.maximum(1.0 - p, _SMALLEST)
    slope = csr_matrix(diags(q) @ paths @ diags(1.0 / np.maximum(1.0 - f, _SMALLEST)))
    information = csr_matrix(slope.T @ diags(data.packets / (p * q)) @ slope)
    attributed = np.asarray(paths.T @ (marks / p), np.float64)
    # J = diag(Σ M/p) − f Σ M/p² ∂p/∂f.
    shared = diags(f) @ paths.T @ diags(marks / p**2) @ slope
    jacobian = csr_matrix(diags(attributed) - shared)
    share = csr_matrix(diags(1.0 / p) @ paths @ diags(f))
    spread = _chosen(share, marks) + _spread(information, jacobian)
    out[active] = spread * _dispersion(data, p, len(active))
    return out


def _dispersion(data: MarkedPaths, p: Floats, parameters: int) -> float:
    """χ² of the marks of paths per degree of freedom, at least 1."""
    expected = data.packets * p
    some = (p > _SMALLEST) & (expected * (1.0 - p) > _SMALLEST)
    free = int(some.sum()) - parameters
    if free <= 0:
        return 1.0
    off = (data.marked - expected)[some] ** 2 / (expected * (1.0 - p))[some]
    return max(float(off.sum()) / free, 1.0)


def _chosen(share: csr_matrix, marks: Floats) -> Floats:
    """Σ_g M_g r (1 − r) of each link, (L,)."""
    part = share.copy()
    part.data = part.data * (1.0 - np.minimum(part.data, 1.0))
    return np.asarray(part.T @ marks, np.float64)


def _spread(information: csr_matrix, jacobian: csr_matrix) -> Floats:
    """(J Σ Jᵀ)_dd, without the directions that the paths do not determine."""
    n, label = connected_components(information, directed=False)
    out = np.zeros(information.shape[0])
    order = np.argsort(label, kind="stable")
    for part in np.split(order, np.cumsum(np.bincount(label, minlength=n))[:-1]):
        if len(part) > _MAX_DENSE:
            diagonal = information.diagonal()[part]
            scale = jacobian[part][:, part].power(2) @ (1.0 / np.maximum(diagonal, _SMALLEST))
            out[part] = np.asarray(scale).ravel()
            continue
        inverse = np.linalg.pinv(information[part][:, part].toarray(), rcond=1e-9, hermitian=True)
        j = jacobian[part][:, part].toarray()
        out[part] = np.maximum(np.einsum("ij,jk,ik->i", j, inverse, j), 0.0)
    return out
