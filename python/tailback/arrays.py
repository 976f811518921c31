"""Types of arrays, by what they hold, and the different columns of an array."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def distinct_columns(columns: Ints) -> tuple[Ints, Ints]:
    """The different columns in lexicographic order, and the number of the one of each column.

    The same as ``np.unique`` with ``axis=1`` and ``return_inverse``, and twenty times as fast where
    a column fits into one number of 63 bits.

    Args:
        columns: Integers, shape (R, C).

    Returns:
        Shape (R, D), and shape (C,) with numbers below D.
    """
    if not columns.size:
        return np.unique(columns, axis=1), np.zeros(columns.shape[1], np.int64)
    low = columns.min(axis=1)
    width = [int(high) - int(least) + 1 for high, least in zip(columns.max(1), low, strict=True)]
    if math.prod(width) >= 1 << 63:
        distinct, number = np.unique(columns, axis=1, return_inverse=True)
        return distinct, number.ravel()
    packed = np.zeros(columns.shape[1], np.int64)
    for row, least, size in zip(columns, low, width, strict=True):
        packed = packed * size + (row - least)
    values, number = np.unique(packed, return_inverse=True)
    distinct = np.empty((len(width), len(values)), np.int64)
    for at in range(len(width) - 1, -1, -1):
        values, distinct[at] = np.divmod(values, width[at])
    return distinct + low[:, None], number
