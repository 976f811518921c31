"""Where the bottlenecks of packets lay, from tags of scheme ``csig``.

The tag of a packet (Ravi et al. 2024) holds the largest signal on its path and the locator of the
port that had it. It is chosen by an extremum, not sampled: it says of every packet where its
bottleneck lay, and nothing of its other hops.

- **Estimated** is, for each link, the number of packets whose bottleneck it was, hence the
  distribution of bottlenecks. If every packet has a tag and every locator means one candidate link,
  this is a count without error.
- **Not estimated** are the packets of a link and its congested packets, because a congested link
  hides behind a more congested one. A link is the bottleneck of at most its congested packets, and
  each of its congested packets has a bottleneck somewhere; both bounds need no assumption.

A locator has seven bits, so several candidates of a packet may share it. The interval of a link
starts at the packets that no other candidate explains and ends at all that it may explain. The
estimate within it has maximum likelihood if candidates that share a locator are bottlenecks of a
packet in proportion to their totals. Its bias is that of this assumption: bottlenecks of two links
that routing and locator do not tell apart are divided evenly, whatever the number of packets. Of
equal signals the first on the path remains, so where a queue backs up through several switches with
nearly equal delays, bottlenecks lie somewhat too close to the senders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from tailback.arrays import Floats, Ints
from tailback.errors import RunError
from tailback.telemetry.candidates import PairCandidates
from tailback.telemetry.estimate import Z95
from tailback.telemetry.hashed import HashedCounts

LOCATOR_BITS: Final = 7
"""Bits of the locator metadata, the lowest of the tag."""
LOCATORS: Final = (1 << LOCATOR_BITS) - 1
"""Number of locators; 0 stands for no port."""
VALUE_BITS: Final = 5
"""Bits of the signal value, above the locator."""

SIGNAL_SHIFT: Final = 13
"""Position of the signal type, the upper three bits of the tag."""
MAXIMUM_SIGNALS: Final = (2, 3)
"""Signal types whose largest value is the bottleneck: delay of a hop, queue depth over speed."""

_STEPS: Final = 100
"""Maximum steps of the fit: a step costs 0.1 s for two million packets that are all different."""
_SETTLED_PACKETS: Final = 0.1
"""Largest change of a link in a step of the fit at which it ends; counts are whole."""


def writable(table: pl.DataFrame, pairs: PairCandidates) -> NDArray[np.int64]:
    """Tags that switches may have written on the path of each packet, other than an empty one.

    Args:
        table: Table ``packets`` with tags of scheme ``csig``.
        pairs: Candidates of the pairs of switches packets went between.

    Returns:
        Their number among the 2^16 possible tags, shape (P,); 0 where the packet has a tag that is
        not one of them.
    """
    header = table["header"].to_numpy()
    seen = np.asarray(header & np.uint64(LOCATORS), np.int64)
    value, kind = values(header), header >> np.uint64(VALUE_BITS + LOCATOR_BITS)
    # The bit between value and signal type is reserved.
    formed = np.isin(kind, np.array(MAXIMUM_SIGNALS) << 1) & ((value > 0) == (seen > 0))
    pair = pairs.of(table["src_node"].to_numpy(), table["dst_node"].to_numpy())
    start, links = pairs.any_hop()
    sizes = np.asarray(np.diff(start.astype(np.int64)), np.int64)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    entry = np.unique(owner << LOCATOR_BITS | locators(links.astype(np.int64)))
    last = table["dst_node"].to_numpy()
    ejects = pairs.ejects()[last]
    at_end = ejects & (locators(pairs.ejection[last].astype(np.int64)) == seen)
    between = pairs.length[pair] > 1
    count = np.bincount(entry >> LOCATOR_BITS, minlength=len(sizes))[pair] * between + ejects
    possible = at_end | (between & np.isin(pair << LOCATOR_BITS | seen, entry)) | (seen == 0)
    others = len(MAXIMUM_SIGNALS) * ((1 << VALUE_BITS) - 1)
    return np.asarray(np.where(formed & possible, others * count, 0), np.int64)


def values(header: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Signal value of each tag, 0 if no port was congested."""
    return np.asarray(
        (header >> np.uint64(LOCATOR_BITS)) & np.uint64((1 << VALUE_BITS) - 1), np.int64
    )


def locators(links: Ints) -> Ints:
    """Locator of each link."""
    return np.asarray(links % LOCATORS + 1, np.int64)


@dataclass(frozen=True)
class Bottlenecks:
    """Packets by the link that was their bottleneck.

    Attributes:
        packets: Packets with a tag.
        attributed: Estimated number of them whose bottleneck was each link, shape (L,).
        certain: Those that no other candidate explains, shape (L,).
        possible: Those of which the link may have been the bottleneck, shape (L,).
        crossing: Those that may have crossed the link and had a bottleneck anywhere, shape (L,).
        one_in: Packets for each packet with a tag.
    """

    packets: int
    attributed: Floats
    certain: Floats
    possible: Floats
    crossing: Floats
    one_in: float

    def counts(self) -> tuple[Floats, Floats, Floats]:
        """Packets whose bottleneck was each link, of all packets, with a 95 % interval; (L,) each.

        The interval includes which packets had a tag, and which links share locators.
        """
        low, high = self._scaled(self.certain)[0], self._scaled(self.possible)[1]
        return self.attributed * self.one_in, low, high

    def congested(self) -> tuple[Floats, Floats]:
        """Bounds of the congested packets of each link, with 95 % confidence; (L,) each."""
        return self._scaled(self.certain)[0], self._scaled(self.crossing)[1]

    def _scaled(self, packets: Floats) -> tuple[Floats, Floats]:
        """Interval of the packets that these are a random one in so many of."""
        k, zero = self.one_in, np.zeros(len(packets))
        return HashedCounts(packets * k, packets * k * (k - 1.0), zero, zero + (k - 1.0)).interval()


@dataclass(frozen=True)
class _Alike:
    """Packets with a bottleneck, by pair, locator, and ejection link if that has the locator.

    Attributes:
        rows: Rows of table ``packets`` with a bottleneck.
        of: Group of each row.
        size: Packets of each group, shape (G,).
        share: Candidates of each group, shape (G, L).
    """

    rows: NDArray[np.intp]
    of: Ints
    size: Floats
    share: csr_matrix


def find_bottlenecks(
    table: pl.DataFrame, pairs: PairCandidates, links: int, one_in: float
) -> Bottlenecks:
    """Count bottlenecks of packets by link.

    Args:
        table: Table ``packets`` with tags of scheme ``csig``.
        pairs: Candidates of the pairs of switches packets went between.
        links: Number of links L.
        one_in: Packets for each packet with a tag.

    Raises:
        RunError: A tag has a locator of no link on the routes of its packet.
    """
    alike = _grouped(table, pairs, links)
    return Bottlenecks(
        table.height,
        _fit_counts(alike),
        _certain(alike),
        np.asarray(alike.share.T @ alike.size, np.float64),
        _crossing(table[alike.rows], pairs, links),
        one_in,
    )


@dataclass(frozen=True)
class DrawnBottlenecks:
    """One link for every packet with a bottleneck, drawn by the estimated counts.

    Attributes:
        rows: Rows of table ``packets`` with a bottleneck.
        link: Link of each.
        excess: Variance of the number of each link, per packet drawn, shape (L,): its 95 % interval
            then begins at the packets that no other candidate explains.
    """

    rows: NDArray[np.intp]
    link: Ints
    excess: Floats


def draw_bottlenecks(
    table: pl.DataFrame, pairs: PairCandidates, links: int, uniform: Floats
) -> DrawnBottlenecks:
    """Draw the bottleneck of every packet among the candidates that have its locator.

    Args:
        table: Table ``packets``.
        pairs: Candidates of the pairs of switches packets went between.
        links: Number of links L.
        uniform: Uniform random number in [0, 1) for each packet of the table.

    Raises:
        RunError: As :func:`find_bottlenecks`.
    """
    alike = _grouped(table, pairs, links)
    # No candidate has probability 0.
    share = csr_matrix(alike.share.multiply(_fit_counts(alike)[None, :] + 1e-9))
    sums = np.concatenate([[0.0], np.cumsum(share.data)])
    first, last = share.indptr[alike.of], share.indptr[alike.of + 1] - 1
    target = sums[first] + uniform[alike.rows] * (sums[last + 1] - sums[first])
    at = np.clip(np.searchsorted(sums, target, side="right") - 1, first, last)
    link = share.indices[at].astype(np.int64)
    drawn = np.bincount(link, minlength=links).astype(np.float64)
    doubt = np.maximum(drawn - _certain(alike), 0.0) / Z95
    excess = np.divide(doubt**2, drawn, out=np.zeros(links), where=drawn > 0)
    return DrawnBottlenecks(alike.rows, link, excess)


def _certain(alike: _Alike) -> Floats:
    """Packets with a single candidate, by link, (L,)."""
    alone = np.asarray(alike.share.sum(axis=1)).ravel() == 1
    return np.asarray(alike.share[alone].T @ alike.size[alone], np.float64)


def _grouped(table: pl.DataFrame, pairs: PairCandidates, links: int) -> _Alike:
    header = table["header"].to_numpy()
    rows = np.flatnonzero(values(header) > 0)
    seen = np.asarray(header[rows] & np.uint64(LOCATORS), np.int64)
    src, dst = (table[name].to_numpy()[rows] for name in ("src_node", "dst_node"))
    pair = pairs.of(src, dst)
    last = pairs.ejection[dst].astype(np.int64)
    last = np.where((locators(last) == seen) & pairs.ejects()[dst], last, links)
    # A row of `entries` per pair and candidate, in the order of pair and locator.
    start, candidates = pairs.any_hop()
    sizes = np.asarray(np.diff(start.astype(np.int64)), np.int64)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    entry = owner << LOCATOR_BITS | locators(candidates.astype(np.int64))
    order = np.argsort(entry, kind="stable")
    entry, link = entry[order], candidates[order].astype(np.int64)
    within = pairs.length[pair] == 1
    key = np.where(within, -1, pair << LOCATOR_BITS | seen)
    both, of, size = np.unique(
        (key + 1) * (links + 1) + last, return_inverse=True, return_counts=True
    )
    of = of.reshape(-1)
    key, last = both // (links + 1) - 1, both % (links + 1)
    begin = np.searchsorted(entry, key, side="left")
    count = np.where(key < 0, 0, np.searchsorted(entry, key, side="right") - begin)
    ejected = last < links
    unknown = np.flatnonzero(count + ejected == 0)
    if len(unknown):
        row = int(np.flatnonzero(of == unknown[0])[0])
        raise RunError(
            f"packets.parquet header: packet {table['packet'][int(rows[row])]} carries locator "
            f"{seen[row]}, which no link on its routes has",
            remedy="run the scenario again: the table is damaged, or the fabric another one",
        )
    group = np.repeat(np.arange(len(both)), count)
    at = np.arange(len(group)) + np.repeat(begin - (np.cumsum(count) - count), count)
    row_of = np.concatenate([group, np.flatnonzero(ejected)])
    column = np.concatenate([link[at], last[ejected]])
    share = csr_matrix((np.ones(len(row_of)), (row_of, column)), shape=(len(both), links))
    return _Alike(rows, of, size.astype(np.float64), share)


def _fit_counts(alike: _Alike) -> Floats:
    """Counts of maximum likelihood, from an even division of the packets of each group, (L,)."""
    share, back = alike.share, csr_matrix(alike.share.T)
    counts = np.asarray(back @ (alike.size / np.asarray(share.sum(axis=1)).ravel()), np.float64)
    for _ in range(_STEPS):
        expected = share @ counts
        ratio = np.divide(alike.size, expected, out=np.zeros_like(expected), where=expected > 0)
        new = counts * (back @ ratio)
        change = float(np.abs(new - counts).max(initial=0.0))
        counts = new
        if change < _SETTLED_PACKETS:
            break
    return counts


def _crossing(hot: pl.DataFrame, pairs: PairCandidates, links: int) -> Floats:
    """Packets that may have crossed each link, (L,)."""
    src, dst = hot["src_node"].to_numpy(), hot["dst_node"].to_numpy()
    pair = pairs.of(src, dst)
    total = np.bincount(pair[pairs.length[pair] > 1], minlength=len(pairs.length))
    start, candidates = pairs.any_hop()
    each = np.repeat(total, np.asarray(np.diff(start.astype(np.int64)), np.int64))
    crossing = np.bincount(candidates.astype(np.int64), each, links)
    return np.asarray(crossing + np.bincount(pairs.ejection[dst], minlength=links), np.float64)
