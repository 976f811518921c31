"""Computes counts of links, with variances and intervals, from the receivers' sums.

A sample represents one hop of a path of l links and has the weight l. For whole links the sums are
added. For hashes, the Walsh–Hadamard transform of the bins at link d is the score Σ (2^b [hash of d
agrees] − 1), exactly, and κ l times the score an unbiased count, with κ = 1/(2^b − 1)
(:mod:`tailback.telemetry.hashed`). If routing leaves only one link for the hop of a sample, nothing
has to be decoded, and the sample counts like a whole link.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.lab.datapath.kernel import NO_HOP, Sums
from tailback.lab.datapath.sampling import PacketScheme
from tailback.telemetry.estimate import Z95
from tailback.telemetry.hashed import HashedCounts, collision_factor

Routes = Callable[[int, int, int], list[list[int]]]
"""Links that a packet may have used, hop by hop, as a function of the last part of the sender's
address, the link of the receiver's interface, and the number of links of the path. Empty if there
is no such path."""


@dataclass(frozen=True)
class LinkSums:
    """Estimates, additive over senders, receivers and intervals: shape (L + 1,), by link number.

    Attributes:
        samples: Samples of the link, estimated if hashes are ambiguous.
        packets: Estimated packets. The estimate is unbiased and may be negative.
        variance: Estimated variance of ``packets``.
        idle: Variance that ``packets`` would have on a link without packets.
        bytes: Estimated bytes.
    """

    samples: Floats
    packets: Floats
    variance: Floats
    idle: Floats
    bytes: Floats

    @staticmethod
    def zero(links: int) -> LinkSums:
        """Sums of zero."""
        return LinkSums(*(np.zeros(links + 1) for _ in range(5)))

    def counts(self) -> HashedCounts:
        """The same as counts with intervals."""
        more = np.divide(
            self.variance - self.idle,
            self.packets,
            out=np.zeros_like(self.packets),
            where=self.packets > 0,
        )
        usual = float((self.variance - self.idle).sum() / max(self.packets.sum(), 1.0))
        slope = np.where(self.packets > 0, np.maximum(more, 0.0), max(usual, 0.0))
        return HashedCounts(self.packets, np.maximum(self.variance, 0.0), self.idle, slope)


@dataclass(frozen=True)
class Counted:
    """Counts of links by receiver.

    Attributes:
        packets: All packets, by mark of the receiving socket.
        congested: Packets that met congestion on the link, by mark.
        unrouted: Samples that match no path of the routes.
    """

    packets: dict[int, LinkSums]
    congested: dict[int, LinkSums]
    unrouted: int


def count(sums: Sums, sampling: PacketScheme, routes: Routes, links: int) -> Counted:
    """Count packets of links.

    Args:
        sums: The receivers' sums.
        sampling: The scheme.
        routes: Links that packets may have used.
        links: Number of links.
    """
    counts = Counted({}, {}, 0)
    unrouted = 0
    scores = sums.bins
    if sampling.hash_bits:
        from scipy.linalg import hadamard  # takes a third of a second to import

        scores = scores @ hadamard(sums.bins.shape[1], dtype=np.int64)
    for row, key in enumerate(sums.keys):
        n = int(sums.samples[row])
        if n == 0:
            continue
        mark, hot = int(key["mark"]), bool(key["congested"])
        weight, hop = int(key["weight"]), int(key["hop"])
        # With two reservoirs the second covers congested packets only. Its weight is the number of
        # congested hops, so the path length is unknown, but it is not needed either.
        into = [counts.congested] if hot else [counts.packets]
        if hot and sampling.one_reservoir:
            into.append(counts.packets)
        size = float(sums.bytes[row]) / n
        if not sampling.hash_bits:
            share = scores[row].astype(np.float64)
            seen = np.flatnonzero(share[: links + 1])
            for where in into:
                _add(where, mark, links, seen, share[seen], (weight, 0.0, size), 0.0)
            continue
        hops = weight if sampling.one_reservoir else 0
        candidates = _candidates(routes, key, hops, hop)
        if len(candidates) == 0:
            unrouted += n
            continue
        kappa = collision_factor(sampling.hash_bits)
        if hop != NO_HOP and len(candidates) == 1:
            share, kappa = np.array([float(n)]), 0.0
        else:
            share = kappa * scores[row][candidates]
        for where in into:
            _add(where, mark, links, candidates, share, (weight, kappa, size), float(n))
    return Counted(counts.packets, counts.congested, unrouted)


def _candidates(routes: Routes, key: np.void, hops: int, hop: int) -> NDArray[np.int64]:
    ends = int(key["source"]), int(key["interface"])
    if hops:
        path = routes(*ends, hops)
    else:
        # The paths between two hosts have one length.
        path = next((p for length in range(1, 16) if (p := routes(*ends, length))), [])
    if hop != NO_HOP:
        return np.array(path[hop] if hop < len(path) else [], np.int64)
    return np.unique(np.array([link for links in path for link in links], np.int64))


def _add(
    into: dict[int, LinkSums],
    mark: int,
    links: int,
    which: NDArray[np.int64],
    share: Floats,
    of: tuple[int, float, float],
    n: float,
) -> None:
    """Add samples of one key: of weight l, collision factor κ and mean size, n in all."""
    weight, kappa, size = of
    sums = into.setdefault(mark, LinkSums.zero(links))
    idle = kappa * weight * weight * n
    slope = weight - 1.0 - kappa * weight
    sums.samples[which] += share
    sums.packets[which] += weight * share
    sums.idle[which] += idle
    sums.variance[which] += idle + slope * weight * share
    sums.bytes[which] += size * weight * share


def fraction_interval(
    packets: LinkSums, congested: LinkSums, one_reservoir: bool, z: float = Z95
) -> tuple[Floats, Floats]:
    """95 % score interval of the congested fraction f = M/N of every link.

    The contrast Ŵ − f W has mean 0 under f. With one reservoir it equals (1 − f) Ŵ − f (W − Ŵ), two
    sums over disjoint samples, with variance (1 − f)² V(f N) + f² V'((1 − f) N); for whole links
    this is the known N f (1 − f)(l − 1). Two reservoirs are independent: V(f N) + f² V'(N). V is
    the variance of a count under the hypothesis: that of an idle link plus that of its packets.

    Returns:
        Bounds within 0–1, shape (L + 1,); 0 and 1 if there may be no packet.
    """
    w, m = packets.packets, congested.packets
    seen = w > 0
    total = np.where(seen, w, 1.0)
    both, hot = packets.counts(), congested.counts()
    cold_idle = np.maximum(packets.idle - congested.idle, 0.0)
    slope_hot = np.where(congested.packets > 0, hot.slope, both.slope)

    def beyond(f: Floats) -> NDArray[np.bool_]:
        if one_reservoir:
            variance = (1 - f) ** 2 * (congested.idle + both.slope * f * total) + f**2 * (
                cold_idle + both.slope * (1 - f) * total
            )
        else:
            variance = (
                congested.idle + slope_hot * f * total + f**2 * (packets.idle + both.slope * total)
            )
        return np.asarray((m - f * w) ** 2 > z * z * variance, np.bool_)

    middle = np.clip(m / total, 0.0, 1.0)
    ends = []
    for end in (0.0, 1.0):
        inside, outside = middle.copy(), np.full_like(middle, end)
        end_is_inside = ~beyond(outside)
        for _ in range(40):
            half = (inside + outside) / 2
            out = beyond(half)
            outside, inside = np.where(out, half, outside), np.where(out, inside, half)
        ends.append(np.where(end_is_inside | ~seen, end, inside))
    return ends[0], ends[1]
