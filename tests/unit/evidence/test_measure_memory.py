"""Memory of splitting the measured time, and the narrow columns that halve it."""

from __future__ import annotations

import shutil
import tracemalloc
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.evidence import measure
from tailback.traffic.readers.narrow_columns import narrow_columns, narrowed
from tests.factories import otf2_halo


@narrow_columns("number", "size")
@dataclass(frozen=True)
class _Table:
    number: NDArray[np.int64]
    size: NDArray[np.uint64]
    time: NDArray[np.int64]


def _table(number: list[int], size: list[int]) -> _Table:
    return _Table(np.array(number), np.array(size, np.uint64), np.arange(len(number)))


def test_narrow_columns_widen_where_values_need_it() -> None:
    table = _table([-1, 2**31 - 1], [0, 2**32 - 1])
    assert {column.dtype for column in vars(table).values()} == {
        np.dtype(np.int32),
        np.dtype(np.uint32),
        np.dtype(np.int64),
    }
    assert (table.number * 4).tolist() == [-4, 4 * (2**31 - 1)]
    assert table.size.dtype == np.uint64 and table.size.tolist() == [0, 2**32 - 1]
    large = replace(table, number=np.array([-1, 2**31]), size=np.array([0, 2**32], np.uint64))
    assert large.number.tolist() == [-1, 2**31] and large.size.tolist() == [0, 2**32]
    assert _table([], []).number.tolist() == []


def test_writing_to_what_was_read_changes_no_column() -> None:
    table = _table([1, 2**40], [3, 4])
    table.number[0] = 9
    assert table.number.tolist() == [1, 2**40]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.bool_])
def test_columns_that_are_narrow_already_are_not_copied(dtype: Any) -> None:
    values = np.zeros(3, dtype)
    assert narrowed(values) is values


def test_measuring_takes_at_most_100_bytes_per_event(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    otf2_halo.write(small, 3, 10)
    events = otf2_halo.write(large, 8, 2500)
    # What is loaded at the first use is not of this trace.
    measure(small)
    tracemalloc.start()
    measure(large)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Of a trace of 1.8 M events NumPy holds 85 B an event at once, and the process 98.
    assert peak <= 100 * events


def test_a_recording_without_calls_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Reader:
        def record(self, _: Path) -> Any:
            return SimpleNamespace(calls=())

    module = import_module("tailback.evidence.measure")
    monkeypatch.setattr(module, "timed_reader", lambda *_: Reader())
    with pytest.raises(TraceError, match="no MPI call between MPI_Init and their end"):
        measure(tmp_path)
