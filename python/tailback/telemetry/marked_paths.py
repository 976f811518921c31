"""Congestion of links from packets whose whole path is known, and whether any hop marked them.

A packet's entropy value and the hash of the switches give its path, its ECN mark says whether any
hop of the path was congested. Packets of a link are therefore counted without error. Which hop
marked a packet is inferred from packets of other paths.

**Model.** In a block of time, link d marks a share f_d of its packets, each independently of the
other hops of the packet, whatever path it takes. Of the N_g packets of path g, M_g are marked; a
packet is marked with probability p_g = 1 − Π (1 − f_d) over the links of the path (noisy or; the
inverse problem is that of multicast and binary tomography, Cáceres et al. 1999, Duffield 2006). The
estimate has maximum likelihood (expectation maximisation). The congested packets of link d are
Σ_g M_g r_gd with r_gd = f_d / p_g, the probability that d was congested for a marked packet.

**Variance.** Given the marks, two errors remain, and they are independent: which packets of the
marked ones d marked, Σ_g M_g r_gd (1 − r_gd), and the error of the rates, (J Σ Jᵀ)_dd with Σ the
inverse of the Fisher information and J the derivative of the estimate. A link that alone explains
the marks of its paths has r = 1 and both errors are 0. Hops of a congestion tree mark together, and
rates change within a block: the variance is multiplied by the dispersion of the marks about the fit
(Pearson's χ² per degree of freedom, if above 1: quasi-likelihood, McCullagh and Nelder 1989).

**Which links are told apart.** log (1 − p_g) is the sum of log (1 − f_d) over a path, so rates are
determined up to the null space of the matrix of paths and links. Where all leaves send to all
others over a spine, the rates of its up-links may rise together while those of its down-links
fall, as far as one of them is 0. :func:`undetermined` bounds what each link may have.
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
        variance: Variance of ``congested`` under the model.
        low: Fewest congested packets that explain the marks as well.
        high: Most of them.
    """

    rate: Floats
    congested: Floats
    variance: Floats
    low: Floats
    high: Floats

    @property
    def total_variance(self) -> Floats:
        """Variance that makes a 95 % interval include what the paths leave undetermined."""
        doubt = np.maximum(self.high - self.congested, self.congested - self.low)
        return self.variance + (np.maximum(doubt, 0.0) / Z95) ** 2


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


def _most(paths: csr_matrix, value: Floats) -> Floats:
    """Largest of values of the elements of paths, by link, not below 0, (L,)."""
    most = np.zeros(paths.shape[1])
    np.maximum.at(most, paths.indices, value)
    return most


def undetermined(
    paths: csr_matrix, rate: Floats, error: Floats | None = None
) -> tuple[Floats, Floats]:
    """Bounds of rates that give every path the same probability of a mark, (L,) each.

    A link explains at most the marks of its cleanest path, and at least what is left of a path when
    the other links explain as much as they can. For paths of two links the bounds are attained.

    Args:
        paths: Whether each path crosses each link, shape (G, L).
        rate: Rates, shape (L,).
        error: Standard error of log (1 − rate), by which paths may differ; None for 0.
    """
    slack = 0.0 if error is None else Z95 * np.sqrt(paths @ error**2)
    weight = -np.maximum(np.log1p(-np.minimum(rate, 1.0 - 1e-12)), -700.0)
    of_path = np.asarray(paths @ weight, np.float64)
    high = np.maximum(_least(paths, of_path + slack), weight)
    at_most = np.repeat(np.asarray(paths @ high, np.float64), np.diff(paths.indptr))
    element = np.repeat(of_path, np.diff(paths.indptr)) - (at_most - high[paths.indices])
    low = np.minimum(_most(paths, element), weight)
    return -np.expm1(-low), -np.expm1(-high)


def infer_marks(data: MarkedPaths, start: Floats | None = None) -> MarkRates:
    """Infer which links marked the packets.

    Args:
        data: Packets by path.
        start: Rates to start from, shape (L,).
    """
    rate, crossing = fit_rates(data, start), data.crossing
    variance = _variance(data, rate)
    unmarked = np.maximum(crossing * (1.0 - rate), 1.0)
    low, high = undetermined(data.paths, rate, np.sqrt(variance) / unmarked)
    return MarkRates(rate, rate * crossing, variance, low * crossing, high * crossing)


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
