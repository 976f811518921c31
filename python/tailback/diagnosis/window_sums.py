"""Sums of samples by time window."""

from __future__ import annotations

import numpy as np
import polars as pl

from tailback.telemetry.estimate import SUMS


def sums_by_window(samples: pl.DataFrame, n_links: int) -> pl.DataFrame:
    """Sums of samples by ``window``, ``phase`` and ``link``, sorted by these.

    Args:
        samples: Rows of table ``samples`` with their ``phase``.
        n_links: Number of links.
    """
    by, columns = ["window", "phase", "link"], list(SUMS)
    phases = samples.select("label", "phase").unique().sort("phase", "label")
    labels = phases["label"].to_numpy()
    number = np.zeros(labels.max(initial=0) + 1, np.int64)
    number[labels] = phases["phase"].rank("dense").to_numpy() - 1
    count = number.max() + 1
    window, label, link = (samples[name].to_numpy() for name in ("window", "label", "link"))
    key = (window.astype(np.int64) * count + number[label]) * n_links + link
    order = np.argsort(key, kind="stable")
    if (np.diff(key[order]) == 0).any():
        return samples.group_by(by).agg(pl.col(columns).sum()).sort(by)
    # One row each: most runs have one label in a phase. Sorting numbers is much faster than
    # grouping by three columns and sorting text.
    return samples.select(*by, *columns)[order]
