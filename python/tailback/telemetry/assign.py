"""Assigns each hash to one link, drawn from its candidates by their probabilities.

A hash matches several links. The probability of each depends on how many similar packets use it,
which is estimated from all hashes together: a few steps of expectation maximisation, starting from
unbiased counts. Packets between the same two switches form a class whose distribution is estimated
separately if it has many packets, and follows the overall distribution if it has few.

Assigning each packet to one link *drawn* with these probabilities, instead of fractions of it to
all links, keeps counts whole and gives them the same variance as samples of whole links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.telemetry.likelihood import Matcher

PAIRS = 1 << 22
"""Number of pairs of packet and candidate link that are hashed at a time."""

MAX_FITTED = 1 << 22
"""Maximum number of matching pairs from which the use of links is estimated; of more, every k-th
packet is used."""

STEPS = 8
"""Steps of expectation maximisation: few, as they start close to the maximum."""

UNUSED = 0.01
"""Minimum use of every candidate, as a fraction of the mean, so that none has probability 0."""


@dataclass(frozen=True)
class AmbiguousPackets:
    """Packets with several candidate links after hash and routing.

    Attributes:
        ids: Packet ids, shape (P,).
        seen: Received hashes, shape (P,).
        of: Class of each packet, shape (P,).
        start: Class k has the candidates ``links[start[k]:start[k + 1]]``.
        links: Candidate links.
        hop: Hop at which a packet of the class would pass each candidate, (E,); candidates of the
            same hop are contiguous.
        last: Ejection link of each packet, shape (P,).
        ejected: Whether the ejection link is a candidate too.
        bits: Bits per hash.
        field_bits: n of the GF(2^n) hash.
    """

    ids: NDArray[np.uint32]
    seen: NDArray[np.uint32]
    of: Ints
    start: Ints
    links: Ints
    hop: Ints
    last: Ints
    ejected: bool
    bits: int
    field_bits: int

    def take(self, rows: slice) -> AmbiguousPackets:
        """A slice of the packets."""
        ids, seen = np.ascontiguousarray(self.ids[rows]), self.seen[rows]
        return AmbiguousPackets(
            ids,
            seen,
            self.of[rows],
            self.start,
            self.links,
            self.hop,
            self.last[rows],
            self.ejected,
            self.bits,
            self.field_bits,
        )

    @property
    def sizes(self) -> Ints:
        """Candidates of each class."""
        return np.diff(self.start)


@dataclass(frozen=True)
class _Matches:
    """Pairs of packet and candidate whose hashes match, in the order of packets.

    Attributes:
        row: Packet of each pair.
        entry: Entry of ``AmbiguousPackets.links`` of each pair.
        last: 1 if the ejection link is a candidate and its hash matches, else 0; (P,).
    """

    row: Ints
    entry: Ints
    last: Floats


@dataclass(frozen=True)
class _Chances:
    """Prior probability of each link, before the hash is taken into account.

    Attributes:
        entry: Probability of each entry among the candidates of its class, (E,).
        last: Probability of each ejection link for the packets to its node, by link, (L,).
    """

    entry: Floats
    last: Floats


def draw_links(core: Matcher, packets: AmbiguousPackets, usual: Floats, uniform: Floats) -> Ints:
    """Draw the link of every packet.

    Args:
        core: The compiled core.
        packets: The received packets.
        usual: Initial estimate of the use of each link, shape (L,); negative values count as 0.
        uniform: Uniform random number in [0, 1) for each packet, shape (P,).

    Returns:
        The link of each packet, shape (P,); -1 if no candidate has the hash.
    """
    chance = _estimate_chances(core, packets, usual)
    out = np.full(len(packets.ids), -1, np.int64)
    for rows in _blocks(packets):
        part = packets.take(rows)
        pairs = _match_hashes(core, part)
        weight, last = _weigh(chance, part, pairs)
        total = np.bincount(pairs.row, weight, len(part.ids))
        target = uniform[rows] * (total + last)
        # Each packet has its own range in the cumulative sums over all pairs.
        sums = np.cumsum(weight)
        begin = np.concatenate([[0.0], np.cumsum(total)[:-1]])
        at = np.searchsorted(sums, begin + target, side="right")
        count = np.bincount(pairs.row, minlength=len(part.ids))
        end = np.cumsum(count)
        # Stay within the packet's own pairs despite rounding.
        at = np.clip(at, end - count, np.maximum(end - 1, 0))
        inner = (count > 0) & (target < total)
        drawn = np.where((last > 0) & ~inner, part.last, -1)
        drawn[inner] = packets.links[pairs.entry[at[inner]]]
        # Rounding put the target beyond the end of the range.
        stray = (drawn < 0) & (count > 0)
        drawn[stray] = packets.links[pairs.entry[at[stray]]]
        out[rows] = drawn
    return out


def _estimate_chances(core: Matcher, packets: AmbiguousPackets, usual: Floats) -> _Chances:
    """Estimate the use of links from all hashes."""
    hops, n_links = _Hops.of(packets), len(usual)
    use = np.maximum(usual, 0.0)
    sizes = packets.sizes
    expected = int((sizes[packets.of]).sum()) >> packets.bits
    fitted = packets.take(slice(None, None, max(-(-expected // MAX_FITTED), 1)))
    parts = [(rows.start, _match_hashes(core, fitted.take(rows))) for rows in _blocks(fitted)]
    to_node = np.bincount(fitted.last, minlength=n_links).astype(np.float64)
    chance = _Chances(
        hops.chances(np.zeros(len(packets.links)), use), _ejection_chances(packets, usual, to_node)
    )
    if not parts:
        return chance
    pairs = _Matches(
        np.concatenate([part.row + first for first, part in parts]),
        np.concatenate([part.entry for _, part in parts]),
        np.concatenate([part.last for _, part in parts]),
    )
    scale = len(packets.ids) / len(fitted.ids)
    for _ in range(STEPS):
        weight, last = _weigh(chance, fitted, pairs)
        total = np.maximum(np.bincount(pairs.row, weight, len(last)) + last, 1e-300)
        packets_at = _sums(pairs.entry, weight / total[pairs.row], len(packets.links)) * scale
        use = _sums(packets.links, packets_at, n_links)
        entry = hops.chances(packets_at, use)
        ejected = _sums(fitted.last, last / total, n_links)
        mean = float(ejected.sum() / len(last))
        if packets.ejected:
            ejected = (ejected + mean) / (to_node + 1.0)
        chance = _Chances(entry, ejected)
    return chance


@dataclass(frozen=True)
class _Hops:
    """The candidates of each class, grouped by hop.

    Attributes:
        links: Candidate of each entry, (E,).
        of_entry: Index of the (class, hop) pair of each entry, (E,).
        of_hop: Class of each (class, hop) pair, (H,).
        kind: Kind of each pair, (H,): the same for equal hops of classes with equally many hops.
        size: Number of candidates of each pair, (H,).
    """

    links: Ints
    of_entry: Ints
    of_hop: Ints
    kind: Ints
    size: Ints

    @staticmethod
    def of(packets: AmbiguousPackets) -> _Hops:
        """Index the pairs of class and hop."""
        sizes = packets.sizes
        owner = np.repeat(np.arange(len(sizes)), sizes)
        new = (np.diff(owner, prepend=-1) != 0) | (np.diff(packets.hop, prepend=-1) != 0)
        of_entry = np.cumsum(new) - 1
        of_hop = owner[new]
        many = np.bincount(of_hop, minlength=len(sizes))
        kind = many[of_hop] * (int(packets.hop.max(initial=0)) + 1) + packets.hop[new]
        kind = np.unique(kind, return_inverse=True)[1].reshape(-1)
        return _Hops(packets.links, of_entry, of_hop, kind, np.bincount(of_entry))

    def chances(self, packets_at: Floats, use: Floats) -> Floats:
        """Prior probability of each entry within its class, (E,).

        Args:
            packets_at: Estimated packets of the class at each entry; zeros before the first
                estimate, (E,).
            use: Packets of all classes on each link, (L,).
        """
        if not len(self.links):
            return np.zeros(0)
        each = use[self.links] + UNUSED * float(use.mean()) + 1e-12
        usual = each / np.bincount(self.of_entry, each)[self.of_entry]
        # Pseudo-counts: one packet per candidate, distributed like all packets; and one per class,
        # distributed over the hops like the packets of all classes with equally many hops.
        at_hop = np.bincount(self.of_entry, packets_at)
        size = self.size.astype(np.float64)
        inside = (packets_at + size[self.of_entry] * usual) / (at_hop + size)[self.of_entry]
        pooled = (np.bincount(self.kind, at_hop) if packets_at.any() else self._used(use)) + 1e-9
        pooled = pooled[self.kind]
        pooled /= np.bincount(self.of_hop, pooled)[self.of_hop]
        of_class = np.bincount(self.of_hop, at_hop)
        share = (at_hop + pooled) / (of_class + 1.0)[self.of_hop]
        return np.asarray(share[self.of_entry] * inside, np.float64)

    def _used(self, use: Floats) -> Floats:
        """Use of the links of each kind of hop, every link once."""
        key = np.unique(self.kind[self.of_entry] * len(use) + self.links)
        return np.asarray(np.bincount(key // len(use), use[key % len(use)]), np.float64)


def _ejection_chances(packets: AmbiguousPackets, usual: Floats, to_node: Floats) -> Floats:
    """Initial probabilities of ejection links for the packets to each node, by unbiased counts."""
    if not packets.ejected:
        return np.zeros(len(usual))
    inner = np.unique(packets.links)
    usual = np.maximum(usual, 0.0)
    ends = np.flatnonzero(to_node)
    mean = float(usual[ends].sum() / max(usual[ends].sum() + usual[inner].sum(), 1e-12))
    # Packets are weighted by path length, so a node's packets are its share of the total weight.
    packets_to = (usual[ends].sum() + usual[inner].sum()) * to_node / max(to_node.sum(), 1.0)
    share = np.divide(usual, packets_to, out=np.full(len(usual), mean), where=packets_to > 0)
    return np.asarray(np.clip(share, UNUSED, 1.0 - UNUSED), np.float64)


def _weigh(chance: _Chances, packets: AmbiguousPackets, pairs: _Matches) -> tuple[Floats, Floats]:
    """Weight of every pair, and of the ejection link of every packet."""
    ejected = chance.last[packets.last]
    return chance.entry[pairs.entry] * (1.0 - ejected[pairs.row]), ejected * pairs.last


def _sums(at: Ints, values: Floats, length: int) -> Floats:
    return np.asarray(np.bincount(at, values, length), np.float64)


def _blocks(packets: AmbiguousPackets) -> Iterator[slice]:
    """Ranges of packets with at most about :data:`PAIRS` pairs each."""
    pairs = np.cumsum(packets.sizes[packets.of])
    first = 0
    while first < len(pairs):
        before = int(pairs[first - 1]) if first else 0
        end = max(int(np.searchsorted(pairs, before + PAIRS, side="right")), first + 1)
        yield slice(first, end)
        first = end


def _match_hashes(core: Matcher, packets: AmbiguousPackets) -> _Matches:
    sizes = packets.sizes[packets.of]
    row = np.repeat(np.arange(len(sizes)), sizes)
    first = packets.start[packets.of] - (np.cumsum(sizes) - sizes)
    entry = np.arange(len(row)) + np.repeat(first, sizes)
    links = packets.links[entry]
    agrees = _hash(core, packets, packets.ids[row], links) == packets.seen[row]
    last = np.zeros(len(packets.ids))
    if packets.ejected:
        last[_hash(core, packets, packets.ids, packets.last) == packets.seen] = 1.0
    return _Matches(row[agrees], entry[agrees], last)


def _hash(
    core: Matcher, packets: AmbiguousPackets, ids: NDArray[np.uint32], links: Ints
) -> NDArray[np.uint8]:
    """Hash of links, which switches number from 1."""
    values = (links + 1).astype(np.uint32)
    return core.link_hash("gf", ids, values, packets.bits, packets.field_bits)
