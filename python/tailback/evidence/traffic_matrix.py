"""Bytes between each pair of nodes, estimated from link loads: a traffic matrix by tomogravity.

Host counters give the bytes each host sent and received. The gravity model (sent × received) gives
a first matrix, which the loads of links between switches correct: of
all matrices that agree with the links the one nearest to gravity, by relative entropy, is taken
(Zhang, Roughan, Duffield and Greenberg, SIGMETRICS 2003). It is found by simultaneous
multiplicative updates (Byrne, IEEE Transactions on Image Processing 2(1), 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.evidence.counter_alignment import Floats, Ints

Routes = Callable[[Ints, Ints], tuple[Ints, Ints]]
"""Of pairs of nodes, number of the pair and link for every link that its packets take."""

MOST_PAIRS = 40_000
"""Pairs of nodes up to which loads of links are fitted: 400 updates of 200,000 uses of links take
about a second. Beyond that, gravity alone."""

UPDATES, FITTINGS = 400, 20
"""Multiplicative updates by the loads of links, and proportional fittings to those of hosts: enough
for loads to agree within 2 % where the data are consistent (tests/unit/evidence)."""

MIN_SLACK = 1e-3
"""Share of the largest load that counts as no load, so that pairs are ruled out in steps."""


@dataclass(frozen=True)
class LinkLoads:
    """Bytes of other jobs on links.

    Attributes:
        carried_bytes: Bytes, NaN unknown, shape (L,).
        error_bytes: Error of each, shape (L,).
        routes: The links that packets of a pair of nodes take.
    """

    carried_bytes: Floats
    error_bytes: Floats
    routes: Routes


@dataclass(frozen=True)
class TrafficMatrix:
    """Shares of the bytes of a job by pair of nodes.

    Attributes:
        src: Nodes that sent, ascending, shape (S,).
        dst: Nodes that received, ascending, shape (D,).
        share: Share of the bytes from each to each, which add up to 1, shape (S, D).
        total_bytes: Bytes of all of them.
    """

    src: Ints
    dst: Ints
    share: Floats
    total_bytes: float

    def pairs(self) -> tuple[Ints, Ints]:
        """Positions in ``src`` and ``dst`` of the pairs that have a share."""
        row, column = np.nonzero(self.share > 0)
        return row, column

    def at(self, src: Ints, dst: Ints) -> Floats:
        """Its shares for some of its nodes, shape (len(src), len(dst))."""
        rows, columns = np.searchsorted(self.src, src), np.searchsorted(self.dst, dst)
        known = np.isin(src, self.src)[:, None] & np.isin(dst, self.dst)[None, :]
        rows, columns = (
            np.minimum(part, size - 1)
            for part, size in zip((rows, columns), self.share.shape, strict=True)
        )
        return np.where(known, self.share[np.ix_(rows, columns)], 0.0)


def gravity(
    egress: Floats, ingress: Floats, allowed: NDArray[np.bool_], prior: TrafficMatrix | None = None
) -> TrafficMatrix | None:
    """The matrix of what nodes sent and received; None where nothing was.

    Args:
        egress: Bytes that each node sent, shape (N,).
        ingress: Bytes that each received, shape (N,). Where one of the two was not counted, it is
            taken to be the same of all nodes.
        allowed: Nodes of the job, shape (N,).
        prior: A matrix to stay near to, in place of the product of the two.
    """
    total = float(max(egress.sum(), ingress.sum()))
    if total <= 0:
        return None
    even = np.where(allowed, 1.0, 0.0)
    sends = egress if egress.sum() > 0.05 * total else even
    takes = ingress if ingress.sum() > 0.05 * total else even
    src, dst = np.flatnonzero(sends > 0), np.flatnonzero(takes > 0)
    want = (sends[src] / sends.sum(), takes[dst] / takes.sum())
    share = np.outer(*want)
    if prior is not None and (near := prior.at(src, dst)).sum() > 0:
        share = near
    share[src[:, None] == dst[None, :]] = 0.0  # No node sends to itself.
    if share.sum() <= 0:
        return None
    for _ in range(FITTINGS):
        for axis in (1, 0):
            have = share.sum(axis=axis)
            scale = np.divide(want[1 - axis], have, out=np.zeros_like(have), where=have > 0)
            share *= scale[:, None] if axis == 1 else scale[None, :]
    return TrafficMatrix(src, dst, share / share.sum(), total)


def fit_to_links(matrices: Sequence[TrafficMatrix], loads: LinkLoads) -> list[TrafficMatrix]:
    """The matrices of several jobs, corrected by their total load on links.

    A link that carried almost nothing rules out the pairs of nodes whose packets would take it.
    """
    chosen = [one.pairs() for one in matrices]
    ends = [
        (one.src[row], one.dst[column]) for one, (row, column) in zip(matrices, chosen, strict=True)
    ]
    count = sum(len(row) for row, _ in chosen)
    if not 0 < count <= MOST_PAIRS:
        return list(matrices)
    src, dst = (np.concatenate(part) for part in zip(*ends, strict=True))
    first = np.concatenate(
        [one.share[at] * one.total_bytes for one, at in zip(matrices, chosen, strict=True)]
    )
    fitted = _nearest(first, *loads.routes(src, dst), loads)
    out, done = [], 0
    for one, (row, column) in zip(matrices, chosen, strict=True):
        share = np.zeros_like(one.share)
        share[row, column] = fitted[done : done + len(row)]
        done += len(row)
        whole = share.sum()
        out.append(replace(one, share=share / whole) if whole > 0 else one)
    return out


def _nearest(first: Floats, pair: Ints, link: Ints, loads: LinkLoads) -> Floats:
    """Bytes of each pair that agree with the links, nearest to the first ones."""
    known = ~np.isnan(loads.carried_bytes[link])
    pair, link = pair[known], link[known]
    size = len(loads.carried_bytes)
    slack = loads.error_bytes + MIN_SLACK * np.nanmax(loads.carried_bytes, initial=0.0) + 1.0
    seen = np.maximum(np.nan_to_num(loads.carried_bytes), 0.0) + slack
    used = np.maximum(np.bincount(pair, minlength=len(first)), 1)
    fitted = first.copy()
    for _ in range(UPDATES):
        load = np.bincount(link, fitted[pair], size) + slack
        step = np.bincount(pair, np.log(seen / load)[link], len(first)) / used
        fitted = fitted * np.exp(step)
    return fitted
