"""When sampled packets were at a link: samples say only when they arrived at the receiver.

In a simulated run the simulator recorded, for every link and window, how many packets of the
observed jobs met congestion there and how many left it. The samples of a link are put on these
times in the order in which they arrived: the time between a link and the receiver is thus the
model's, queues on the rest of the way included. A run without that record keeps arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_RESERVOIRS = {
    "hop": ("hop_samples", "hop_weight", "hop_variance", "hop_bytes"),
    "congested": ("congested_samples", "congested_weight", "congested_variance"),
}
_GOLDEN = 0.6180339887498949


def samples_by_time_at_link(
    samples: pl.DataFrame, truth: pl.DataFrame, windows: pl.Series, n_links: int
) -> pl.DataFrame:
    """Samples with ``window`` changed from that of arrival to that of reaching the link's queue.

    Args:
        samples: Samples of the observed jobs, with their ``phase``.
        truth: Table ``truth`` of the run; empty where nothing is known.
        windows: Numbers of the run's windows, in order.
        n_links: Number of links.

    Returns:
        The same columns. Every sum over windows is unchanged, exactly. Links without a record
        keep the windows of arrival.
    """
    if truth.height == 0 or samples.height == 0 or windows.len() < 2:
        return samples
    left, met = (
        _dense(truth, name, n_links, windows)
        for name in ("observed_packets", "observed_congested_packets")
    )
    place, known = places_of(samples["window"], windows)
    if not known.all():
        samples, place = samples.filter(pl.Series(known)), place[known]
    # Labels have one job each: a number for the pair, in the order of labels, stands for both.
    pair = samples.select(pl.col("label").cast(pl.UInt64) * 2**32 + pl.col("job")).to_series()
    pairs = pair.unique().sort()
    at = np.searchsorted(pairs.to_numpy(), pair.to_numpy())
    keys = _Keys(at, samples["link"].to_numpy().astype(np.int64), place, len(pairs), n_links)
    parts = [
        _moved(samples, keys, "hop", _reached(left, met)),
        _moved(samples, keys, "congested", met),
    ]
    sums = (
        pl.concat(parts, how="diagonal")
        .group_by("key")
        .agg(pl.col(name).sum() for names in _RESERVOIRS.values() for name in names)
        .sort("key")
    )
    row, link = np.divmod(sums["key"].to_numpy(), n_links)
    place, at = np.divmod(row, len(pairs))
    phases = samples.select("label", "phase").unique()
    label, job = (pairs // 2**32).cast(pl.UInt32), (pairs % 2**32).cast(pl.UInt32)
    of = pl.DataFrame({"label": label, "job": job}).join(
        phases, on="label", how="left", maintain_order="left"
    )
    return sums.with_columns(
        windows.gather(place).alias("window"),
        pl.Series("link", link.astype(np.uint32)),
        *(of[name].gather(at) for name in ("job", "label", "phase")),
    ).select(samples.columns)


@dataclass(frozen=True, eq=False)
class _Keys:
    """What samples are told apart by, arrays of shape (N,); one number stands for all three.

    Attributes:
        pair: Number of label and job.
        link: Link.
        place: Place of the window of arrival among the run's windows.
        pairs: How many pairs of label and job there are.
        links: How many links there are.
    """

    pair: Ints
    link: Ints
    place: Ints
    pairs: int
    links: int

    def key(self, rows: NDArray[np.integer[Any]] | NDArray[np.bool_], place: Ints) -> Ints:
        """The number of some samples if they stood in windows ``place``."""
        return (place * self.pairs + self.pair[rows]) * self.links + self.link[rows]


def places_of(values: pl.Series, windows: pl.Series) -> tuple[Ints, NDArray[np.bool_]]:
    """Place of each window among ``windows``, which are in order, and whether it is one of them."""
    numbers, wanted = windows.to_numpy(), values.to_numpy()
    place = np.minimum(np.searchsorted(numbers, wanted), max(len(numbers) - 1, 0))
    return place, numbers[place] == wanted


def _dense(truth: pl.DataFrame, name: str, links: int, windows: pl.Series) -> Floats:
    """A column of the truth by link and window, shape (L, W)."""
    place, known = places_of(truth["window"], windows)
    cell = truth["link"].to_numpy().astype(np.int64) * windows.len() + place
    values = np.where(known, truth[name].to_numpy(), 0)
    out = np.bincount(cell, values, links * windows.len()).astype(np.float64)
    return out.reshape(links, windows.len())


def _reached(left: Floats, met: Floats) -> Floats:
    """Packets that reached each link's queue in each window, shape (L, W).

    The record has packets when they leave, and those that met congestion when they reached the
    queue. Packets that met none hardly wait: they reach and leave it in one window. While packets
    that met congestion wait, the queue sends these first, as it is first in, first out.
    """
    # Window by window: each one's links stand together in memory.
    met, left = np.ascontiguousarray(met.T), np.ascontiguousarray(left.T)
    out = np.empty_like(left)
    waiting = np.zeros(left.shape[1])
    for window in range(len(left)):
        waiting += met[window]
        gone = np.minimum(left[window], waiting)
        waiting -= gone
        out[window] = met[window] + left[window] - gone
    return np.ascontiguousarray(out.T)


def _moved(samples: pl.DataFrame, keys: _Keys, reservoir: str, when: Floats) -> pl.DataFrame:
    """The samples of one reservoir by ``key``, at the times of ``when``, shape (L, W)."""
    count, *sums = _RESERVOIRS[reservoir]
    columns = {name: samples[name].to_numpy() for name in (count, *sums)}
    counted = columns[count] > 0
    weight = np.bincount(keys.link[counted], columns[sums[0]][counted], len(when))
    dated = counted & ((when.sum(axis=1) > 0) & (weight > 0))[keys.link]
    stays = ~dated & np.any([columns[name] > 0 for name in (count, *sums)], axis=0)
    kept = samples.filter(pl.Series(stays)).select(
        pl.Series("key", keys.key(stays, keys.place[stays])), count, *sums
    )
    rows = np.flatnonzero(dated)
    if len(rows) == 0:
        return kept
    arrived = keys.link[rows] * when.shape[1] + keys.place[rows]
    shares = _shares(arrived, columns[sums[0]][rows], when)
    # Rows of one link and window stand at one time; which of their samples goes where is spread
    # evenly over the rows, so that single samples do not all fall to one side.
    spread = (np.arange(len(rows)) * _GOLDEN) % 1.0
    row, piece = shares.of_rows(arrived)
    whole = columns[count][rows].astype(np.float64)[row]
    first = np.floor(shares.low[piece] * whole + spread[row])
    last = np.floor(shares.high[piece] * whole + spread[row])
    some = last > first
    row, piece, whole = row[some], piece[some], whole[some]
    first, last = first[some], last[some]
    moved: dict[str, NDArray[Any]] = {"key": keys.key(rows[row], shares.to[piece])}
    for name in (count, *sums):
        each = columns[name][rows].astype(np.float64)[row] / whole
        moved[name] = (np.rint(each * last) - np.rint(each * first)).astype(np.uint64)
    return pl.concat([kept, pl.DataFrame(moved)])


@dataclass(frozen=True, eq=False)
class _Shares:
    """Which shares of what arrived from a link in a window belong to which window there.

    Pieces of one arrival stand together; arrays have shape (P,) if nothing else is said.

    Attributes:
        to: Place at the link.
        low: Where the piece begins among what arrived, 0–1.
        high: Where it ends.
        first: First piece of each arrival (a link and a window of arrival), shape (L·W,).
        pieces: Number of its pieces, shape (L·W,).
    """

    to: Ints
    low: Floats
    high: Floats
    first: Ints
    pieces: Ints

    def of_rows(self, arrived: Ints) -> tuple[Ints, Ints]:
        """Number of a row and of a piece of its arrival, for each piece of each row."""
        pieces = self.pieces[arrived]
        row = np.repeat(np.arange(len(arrived)), pieces)
        begin = np.cumsum(pieces) - pieces
        return row, np.arange(len(row)) + (self.first[arrived] - begin)[row]


def _shares(arrived: Ints, weight: NDArray[np.uint64], when: Floats) -> _Shares:
    """Lay what arrived from each link over the times there.

    Args:
        arrived: Link times W plus place of arrival, shape (N,).
        weight: What arrived, shape (N,).
        when: What was at the link, shape (L, W).
    """
    total = np.bincount(arrived, weight, when.size).astype(np.float64)
    cell = np.flatnonzero(np.bincount(arrived, minlength=when.size))
    link = cell // when.shape[1]
    ends = _ends(link, total[cell])
    used = np.zeros(len(when) + 1, np.bool_)
    used[link] = True
    links = np.flatnonzero(used)
    at_link = when[links]
    place = np.flatnonzero(at_link > 0)
    there, to = np.divmod(place, when.shape[1])
    ends_there = _ends(links[there], at_link.ravel()[place])
    # Number line on which link i takes the span from i to i + 1, cut wherever either part ends.
    # Three runs in order: a stable sort merges them.
    cuts = np.concatenate([links.astype(np.float64), ends, ends_there])
    order = np.argsort(cuts, kind="stable")
    cuts = cuts[order]
    low, high = cuts[:-1], cuts[1:]
    middle = (low + high) / 2
    real = np.flatnonzero((high - low > 1e-9) & used[middle.astype(np.int64)])
    # How many parts of either kind end at or before the low end of a piece.
    of_ends = (order >= len(links)) & (order < len(links) + len(ends))
    row = np.cumsum(of_ends)[real]
    row_there = np.cumsum(order >= len(links) + len(ends))[real]
    upto = np.cumsum((high - low)[real])
    first = np.flatnonzero(np.diff(row, prepend=-1))
    pieces = np.diff(np.append(first, len(row)))
    before = np.repeat(np.append(0.0, upto)[first], pieces)
    share = (upto - before) / np.repeat(upto[first + pieces - 1] - before[first], pieces)
    share[first + pieces - 1] = 1.0
    low_share = np.append(0.0, share[:-1])
    low_share[first] = 0.0
    begin, count = np.zeros(when.size, np.int64), np.zeros(when.size, np.int64)
    begin[cell[row[first]]], count[cell[row[first]]] = first, pieces
    return _Shares(to[row_there], low_share, share, begin, count)


def _ends(link: NDArray[np.int64], amount: Floats) -> Floats:
    """Where each part of a link ends on the line on which link i takes i to i + 1."""
    total = np.cumsum(amount)
    first = np.flatnonzero(np.diff(link, prepend=-1))
    before = np.repeat(np.append(0.0, total)[first], np.diff(np.append(first, len(link))))
    whole = np.bincount(link, amount)[link]
    return np.asarray(link + (total - before) / whole)
