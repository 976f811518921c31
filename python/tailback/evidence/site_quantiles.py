"""Quantiles over the repetitions of call sites: the distribution of their durations.

The mean shows how much time is lost. The spread indicates the cause: a slow cable delays all
repetitions of a site equally, adapters that send messages one after another vary their order, and
traffic of other jobs delays only some repetitions.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tailback.arrays import Floats, Ints

QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Quantiles that are compared; robust against single outliers."""


def site_quantiles(site: Ints, ps: Floats, sites: int) -> Floats:
    """Quantiles of the durations of each site, shape (K, Q), with linear interpolation.

    Args:
        site: Site of each repetition, shape (S,).
        ps: Duration of each repetition, shape (S,).
        sites: Number of sites K; sites without repetitions get zeros.
    """
    count = np.bincount(site, minlength=sites)
    ordered = np.append(ps[np.lexsort((ps, site))], 0.0)
    first = np.cumsum(count) - count
    position = np.maximum(count - 1, 0)[:, None] * np.asarray(QUANTILES)[None, :]
    low = np.floor(position).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(count - 1, 0)[:, None])
    below, above = ordered[first[:, None] + low], ordered[first[:, None] + high]
    out = below + (position - low) * (above - below)
    return np.asarray(np.where(count[:, None] > 0, out, 0.0), np.float64)


def alternate(site: Ints, ps: Floats, other_ps: Floats, share: float) -> Floats:
    """Durations of which a share of each site's repetitions, evenly spread, is of another run.

    Args:
        site: Site of each repetition, in order of time, shape (S,).
        ps: Durations in one run, shape (S,).
        other_ps: Durations in the other, shape (S,).
        share: Share of the repetitions that are of the other, 0–1.
    """
    order = np.argsort(site, kind="stable")
    count = np.bincount(site)
    nth = np.empty(len(site), np.int64)
    nth[order] = np.arange(len(site)) - np.repeat(np.cumsum(count) - count, count)
    is_other = np.floor((nth + 1) * share) > np.floor(nth * share)
    return np.asarray(np.where(is_other, other_ps, ps), np.float64)
