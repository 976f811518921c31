"""Quantiles over the repetitions of call sites: how long they take, and how much that varies.

A mean shows how much time is missing. The spread shows the kind of cause: a slow cable delays every
repetition of a site alike, adapters that send messages one after another change which message goes
first, and traffic of other jobs delays some repetitions and not others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Those that are compared; single outliers move none of them."""


def site_quantiles(site: Ints, ps: Floats, sites: int) -> Floats:
    """Quantiles of the times of each site, shape (sites, Q), linear between repetitions.

    Args:
        site: Site of each repetition, shape (S,).
        ps: Its time, shape (S,).
        sites: Number of sites K; one without repetitions has zeros.
    """
    count = np.bincount(site, minlength=sites)
    ordered = np.append(ps[np.lexsort((ps, site))], 0.0)
    first = np.cumsum(count) - count
    at = np.maximum(count - 1, 0)[:, None] * np.asarray(QUANTILES)[None, :]
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(count - 1, 0)[:, None])
    below, above = ordered[first[:, None] + low], ordered[first[:, None] + high]
    out = below + (at - low) * (above - below)
    return np.asarray(np.where(count[:, None] > 0, out, 0.0), np.float64)
