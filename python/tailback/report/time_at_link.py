"""When sampled packets were at a link: samples say only when they arrived at the receiver.

In a simulated run the simulator recorded, for every link and window, how many packets of the
observed jobs met congestion there and how many left it. The samples of a link are put on these
times in the order in which they arrived: the time between a link and the receiver is thus the
model's, queues on the rest of the way included. A run without that record keeps arrival.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RESERVOIRS = {
    "hop": ("hop_samples", "hop_weight", "hop_variance", "hop_bytes"),
    "congested": ("congested_samples", "congested_weight", "congested_variance"),
}
_KEYS = ("job", "label", "link")
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
    phases = samples.select("label", "phase").unique()
    number = pl.DataFrame({"window": windows, "place": np.arange(windows.len(), dtype=np.int64)})
    left, met = (
        _dense(truth.join(number, on="window"), name, n_links, windows.len())
        for name in ("observed_packets", "observed_congested_packets")
    )
    placed = samples.join(number, on="window", maintain_order="left")
    parts = [
        _moved(placed, "hop", _reached(left, met)),
        _moved(placed, "congested", met),
    ]
    return (
        pl.concat(parts, how="diagonal")
        .group_by("place", *_KEYS)
        .agg(pl.col(name).sum() for names in _RESERVOIRS.values() for name in names)
        .join(number, on="place")
        .join(phases, on="label", nulls_equal=True)
        .sort("place", "label", "link")
        .select(samples.columns)
    )


def _dense(table: pl.DataFrame, name: str, links: int, windows: int) -> Floats:
    """A column by link and window, shape (L, W)."""
    out = np.zeros((links, windows))
    np.add.at(out, (table["link"].to_numpy(), table["place"].to_numpy()), table[name].to_numpy())
    return out


def _reached(left: Floats, met: Floats) -> Floats:
    """Packets that reached each link's queue in each window, shape (L, W).

    The record has packets when they leave, and those that met congestion when they reached the
    queue. Packets that met none hardly wait: they reach and leave it in one window. While packets
    that met congestion wait, the queue sends these first, as it is first in, first out.
    """
    out = np.zeros_like(left)
    waiting = np.zeros(len(left))
    for window in range(left.shape[1]):
        waiting += met[:, window]
        gone = np.minimum(left[:, window], waiting)
        waiting -= gone
        out[:, window] = met[:, window] + left[:, window] - gone
    return out


def _moved(samples: pl.DataFrame, reservoir: str, when: Floats) -> pl.DataFrame:
    """The samples of one reservoir, ``place`` being that of ``when``, shape (L, W)."""
    count, *sums = _RESERVOIRS[reservoir]
    rows = samples.filter(pl.any_horizontal(pl.col(count, *sums) > 0))
    link = rows["link"].to_numpy()
    counted = rows.select(pl.col(count) > 0).to_series().to_numpy()
    weight = np.bincount(link[counted], rows[sums[0]].to_numpy()[counted], len(when))
    dated = pl.Series(counted & ((when.sum(axis=1) > 0) & (weight > 0))[link])
    kept, rows = rows.filter(~dated), rows.filter(dated)
    columns = [*_KEYS, "place", count, *sums]
    if rows.height == 0:
        return kept.select(columns)
    # Rows of one link and window stand at one time; which of their samples goes where is spread
    # evenly over the rows, so that single samples do not all fall to one side.
    spread = (np.arange(rows.height) * _GOLDEN) % 1.0
    split = rows.with_columns(spread=spread).join(
        _shares(rows, sums[0], when), on=["link", "place"], maintain_order="left"
    )
    whole = pl.col(count).cast(pl.Float64)
    first, last = ((pl.col(name) * whole + pl.col("spread")).floor() for name in ("low", "high"))
    split = split.with_columns(first=first, last=last).filter(pl.col("last") > pl.col("first"))

    def part(name: str) -> pl.Expr:
        total = pl.col(name).cast(pl.Float64) / whole
        share = (total * pl.col("last")).round() - (total * pl.col("first")).round()
        return share.cast(rows.schema[name]).alias(name)

    split = split.with_columns(part(name) for name in sums).with_columns(
        part(count), place=pl.col("to")
    )
    return pl.concat([kept.select(columns), split.select(columns)])


def _shares(rows: pl.DataFrame, weight: str, when: Floats) -> pl.DataFrame:
    """Which shares of what arrived from a link in a window belong to which window there.

    Returns:
        ``link``, ``place`` (of arrival), ``to`` (place at the link), and the part of the arrivals
        that it is: from ``low`` to ``high``, 0–1, in order.
    """
    arrived = rows.group_by("link", "place").agg(pl.col(weight).sum()).sort("link", "place")
    link = arrived["link"].to_numpy().astype(np.int64)
    amount = arrived[weight].to_numpy().astype(np.float64)
    ends = _ends(link, amount)
    links = np.unique(link)
    there, to = np.nonzero(when[links] > 0)
    ends_there = _ends(links[there], when[links][there, to])
    # Number line on which link i takes the span from i to i + 1, cut wherever either part ends.
    cuts = np.unique(np.concatenate([links.astype(np.float64), ends, ends_there]))
    low, high = cuts[:-1], cuts[1:]
    middle = (low + high) / 2
    real = (high - low > 1e-9) & np.isin(middle.astype(np.int64), links)
    row = np.searchsorted(ends, middle[real])
    upto = np.cumsum((high - low)[real])
    first = np.flatnonzero(np.diff(row, prepend=-1))
    pieces = np.diff(np.append(first, len(row)))
    before = np.repeat(np.append(0.0, upto)[first], pieces)
    share = (upto - before) / np.repeat(upto[first + pieces - 1] - before[first], pieces)
    share[first + pieces - 1] = 1.0
    low_share = np.append(0.0, share[:-1])
    low_share[first] = 0.0
    return pl.DataFrame({
        "link": arrived["link"].gather(row), "place": arrived["place"].gather(row),
        "to": to[np.searchsorted(ends_there, middle[real])], "low": low_share, "high": share,
    })  # fmt: skip


def _ends(link: NDArray[np.int64], amount: Floats) -> Floats:
    """Where each part of a link ends on the line on which link i takes i to i + 1."""
    total = np.cumsum(amount)
    first = np.flatnonzero(np.diff(link, prepend=-1))
    before = np.repeat(np.append(0.0, total)[first], np.diff(np.append(first, len(link))))
    whole = np.bincount(link, amount)[link]
    return np.asarray(link + (total - before) / whole)
