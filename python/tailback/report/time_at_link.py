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

from tailback import _core
from tailback.arrays import Ints

_HOP = ("hop_samples", "hop_weight", "hop_variance", "hop_bytes")
_CONGESTED = ("congested_samples", "congested_weight", "congested_variance")
_RECORD = ("observed_packets", "observed_congested_packets")


def samples_by_time_at_link(
    samples: pl.DataFrame, truth: pl.DataFrame, windows: pl.Series, n_links: int
) -> pl.DataFrame:
    """Samples by the ``window`` in which they reached the link's queue.

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
    place, in_run = places_of(samples["window"], windows)
    if not in_run.all():
        samples, place = samples.filter(pl.Series(in_run)), place[in_run]
    there, recorded = places_of(truth["window"], windows)
    if not recorded.all():
        truth, there = truth.filter(pl.Series(recorded)), there[recorded]
    # Labels have one job each: a number for the pair, in the order of labels, stands for both.
    pair = samples.select(pl.col("label").cast(pl.UInt64) * 2**32 + pl.col("job")).to_series()
    pairs = pair.unique().sort()
    at = np.searchsorted(pairs.to_numpy(), pair.to_numpy())
    moved, number, link, sums = _core.date_samples(
        (samples["link"].to_numpy(), place.astype(np.uint32)),
        at.astype(np.uint32),
        (_columns(samples, _HOP), _columns(samples, _CONGESTED)),
        ((truth["link"].to_numpy(), there.astype(np.uint32)), _columns(truth, _RECORD)),
        (n_links, windows.len()),
    )
    phases = samples.select("label", "phase").unique()
    label, job = (pairs // 2**32).cast(pl.UInt32), (pairs % 2**32).cast(pl.UInt32)
    of = pl.DataFrame({"label": label, "job": job}).join(
        phases, on="label", how="left", maintain_order="left"
    )
    return (
        pl.DataFrame(
            {
                "window": windows.gather(moved),
                "link": link,
                **dict(zip((*_HOP, *_CONGESTED), sums, strict=True)),
            }
        )
        .with_columns(of[name].gather(number) for name in ("job", "label", "phase"))
        .select(samples.columns)
    )


def _columns(table: pl.DataFrame, names: tuple[str, ...]) -> list[NDArray[np.uint64]]:
    return [np.ascontiguousarray(table[name].to_numpy(), np.uint64) for name in names]


def places_of(values: pl.Series, windows: pl.Series) -> tuple[Ints, NDArray[np.bool_]]:
    """Place of each window among ``windows``, which are in order, and whether it is one of them."""
    numbers, wanted = windows.to_numpy(), values.to_numpy()
    place = np.minimum(np.searchsorted(numbers, wanted), max(len(numbers) - 1, 0))
    return place, numbers[place] == wanted
