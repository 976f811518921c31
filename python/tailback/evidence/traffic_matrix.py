"""Traffic matrix: bytes between each pair of nodes, estimated from link loads by tomogravity.

Host counters give the bytes that each host sent and received, from which the gravity model (sent ×
received) gives a prior. The estimate is the matrix consistent with the loads of links between
switches that has the minimum relative entropy to the prior (Zhang, Roughan, Duffield and Greenberg,
SIGMETRICS 2003). It is computed by simultaneous multiplicative updates (Byrne, IEEE Transactions on
Image Processing 2(1), 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints

Routes = Callable[[Ints, Ints], tuple[Ints, Ints]]
"""Maps pairs of nodes (sources, destinations) to index of the pair and link, for each link of its
path."""

MAX_FITTED_PAIRS = 40_000
"""Maximum number of pairs of nodes for the fit to link loads: 400 updates of 200,000 hops take
about a second. Beyond, the gravity model is used alone."""

LINK_UPDATES, HOST_FITTINGS = 400, 20
"""Iterations of the multiplicative updates for link loads, and of the proportional fitting to bytes
of hosts: enough for loads to agree within 2 % for consistent data (tests/unit/evidence)."""

MIN_SLACK = 1e-3
"""Slack added to all loads, as a share of the largest: limits the step of a link without load."""


@dataclass(frozen=True)
class LinkLoads:
    """Bytes of other jobs on links.

    Attributes:
        carried_bytes: Bytes on each link, NaN if unknown, shape (L,).
        error_bytes: Error of these, shape (L,).
        routes: The links between pairs of nodes.
    """

    carried_bytes: Floats
    error_bytes: Floats
    routes: Routes


@dataclass(frozen=True)
class TrafficMatrix:
    """Bytes of a job by pair of nodes.

    Attributes:
        src: Nodes that sent, ascending, shape (S,).
        dst: Nodes that received, ascending, shape (D,).
        share: Share of each source and destination in the bytes, with sum 1, shape (S, D).
        total_bytes: Total bytes.
    """

    src: Ints
    dst: Ints
    share: Floats
    total_bytes: float

    def pairs(self) -> tuple[Ints, Ints]:
        """Indices into ``src`` and ``dst`` of the pairs with a positive share."""
        row, column = np.nonzero(self.share > 0)
        return row, column

    def at(self, src: Ints, dst: Ints) -> Floats:
        """Shares of the given nodes, 0 for unknown ones, shape (len(src), len(dst))."""
        rows, columns = np.searchsorted(self.src, src), np.searchsorted(self.dst, dst)
        has_pair = np.isin(src, self.src)[:, None] & np.isin(dst, self.dst)[None, :]
        rows, columns = (
            np.minimum(part, size - 1)
            for part, size in zip((rows, columns), self.share.shape, strict=True)
        )
        return np.where(has_pair, self.share[np.ix_(rows, columns)], 0.0)


def gravity(
    egress: Floats, ingress: Floats, allowed: NDArray[np.bool_], prior: TrafficMatrix | None = None
) -> TrafficMatrix | None:
    """Estimate a matrix from sent and received bytes; None without any.

    Args:
        egress: Bytes that each node sent, shape (N,).
        ingress: Bytes that each node received, shape (N,). If one of the two was not counted, it is
            assumed to be uniform.
        allowed: Mask of the nodes of the job, shape (N,).
        prior: Prior to use instead of the gravity model.
    """
    total = float(max(egress.sum(), ingress.sum()))
    if total <= 0:
        return None
    uniform = np.where(allowed, 1.0, 0.0)
    sends = egress if egress.sum() > 0.05 * total else uniform
    receives = ingress if ingress.sum() > 0.05 * total else uniform
    src, dst = np.flatnonzero(sends > 0), np.flatnonzero(receives > 0)
    target = (sends[src] / sends.sum(), receives[dst] / receives.sum())
    share = np.outer(*target)
    if prior is not None and (prior_share := prior.at(src, dst)).sum() > 0:
        share = prior_share
    share[src[:, None] == dst[None, :]] = 0.0  # No node sends to itself.
    if share.sum() <= 0:
        return None
    for _ in range(HOST_FITTINGS):
        for axis in (1, 0):
            current = share.sum(axis=axis)
            scale = np.divide(
                target[1 - axis], current, out=np.zeros_like(current), where=current > 0
            )
            share *= scale[:, None] if axis == 1 else scale[None, :]
    return TrafficMatrix(src, dst, share / share.sum(), total)


def fit_to_links(matrices: Sequence[TrafficMatrix], loads: LinkLoads) -> list[TrafficMatrix]:
    """Fit the matrices of several jobs to the link loads that they cause together.

    Links without load exclude the pairs of nodes whose paths contain them.
    """
    indices = [matrix.pairs() for matrix in matrices]
    ends = [
        (matrix.src[row], matrix.dst[column])
        for matrix, (row, column) in zip(matrices, indices, strict=True)
    ]
    count = sum(len(row) for row, _ in indices)
    if not 0 < count <= MAX_FITTED_PAIRS:
        return list(matrices)
    src, dst = (np.concatenate(part) for part in zip(*ends, strict=True))
    first = np.concatenate(
        [
            matrix.share[at] * matrix.total_bytes
            for matrix, at in zip(matrices, indices, strict=True)
        ]
    )
    fitted = _fit_pairs(first, *loads.routes(src, dst), loads)
    out, offset = [], 0
    for matrix, (row, column) in zip(matrices, indices, strict=True):
        share = np.zeros_like(matrix.share)
        share[row, column] = fitted[offset : offset + len(row)]
        offset += len(row)
        total = share.sum()
        out.append(replace(matrix, share=share / total) if total > 0 else matrix)
    return out


def _fit_pairs(first: Floats, pair: Ints, link: Ints, loads: LinkLoads) -> Floats:
    """Bytes of each pair that agree with the link loads, nearest to the prior ``first``."""
    measured_link = ~np.isnan(loads.carried_bytes[link])
    pair, link = pair[measured_link], link[measured_link]
    size = len(loads.carried_bytes)
    slack = loads.error_bytes + MIN_SLACK * np.nanmax(loads.carried_bytes, initial=0.0) + 1.0
    measured = np.maximum(np.nan_to_num(loads.carried_bytes), 0.0) + slack
    hops = np.maximum(np.bincount(pair, minlength=len(first)), 1)
    fitted = first.copy()
    for _ in range(LINK_UPDATES):
        load = np.bincount(link, fitted[pair], size) + slack
        step = np.bincount(pair, np.log(measured / load)[link], len(first)) / hops
        fitted = fitted * np.exp(step)
    return fitted
