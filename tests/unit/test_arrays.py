"""Different columns of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tailback.arrays import distinct_columns


@given(
    arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.integers(-3, 3)),
    st.sampled_from([1, 1 << 40]),
)
def test_columns_are_those_of_numpy(columns: np.ndarray, factor: int) -> None:
    """With the factor, a column does not fit into one number."""
    distinct, number = distinct_columns(columns * factor)
    expected, inverse = np.unique(columns * factor, axis=1, return_inverse=True)
    assert distinct.tolist() == expected.tolist()
    assert number.tolist() == inverse.ravel().tolist()


@pytest.mark.parametrize("rows", [1, 3])
def test_no_columns_are_none(rows: int) -> None:
    distinct, number = distinct_columns(np.zeros((rows, 0), np.int64))
    assert (distinct.shape, number.shape) == ((rows, 0), (0,))
