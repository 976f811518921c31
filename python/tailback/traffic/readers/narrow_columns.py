"""Columns of whole numbers kept in 32 bits where their values allow, and read in 64.

Tables of a trace hold several columns for each event, most of them ranks, rows or numbers of names.
In 32 bits they take half the memory; read in 64, products and sums of them do not overflow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Table = TypeVar("_Table")


class _NarrowColumn:
    """A field of a dataclass: an array of whole numbers, shape (N,), kept narrow."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NDArray[Any]:
        column: NDArray[Any] = vars(instance)[self._name]
        return column.astype(np.int64 if column.dtype.kind == "i" else np.uint64)

    def __set__(self, instance: object, values: NDArray[Any]) -> None:
        vars(instance)[self._name] = narrowed(values)


def narrow_columns(*names: str) -> Callable[[type[_Table]], type[_Table]]:
    """Decorator of a dataclass without slots that keeps these fields in 32 bits where they fit.

    Reading such a field gives a new array, of int64 or uint64 as it was set.
    """

    def decorate(cls: type[_Table]) -> type[_Table]:
        for name in names:
            setattr(cls, name, _NarrowColumn(name))
        return cls

    return decorate


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in 32 bits, signed or not as they are, if all of them fit; else as they are.

    For columns that are made before the dataclass that holds them.
    """
    if values.dtype.itemsize <= 4:
        return values
    narrow = np.dtype(np.int32 if values.dtype.kind == "i" else np.uint32)
    limits = np.iinfo(narrow)
    if len(values) and not limits.min <= values.min() <= values.max() <= limits.max:
        return values
    return values.astype(narrow)


def return_freed_memory() -> None:
    """Give memory of freed arrays back to the system, where the C library can (glibc).

    It keeps that of arrays below 32 MB for later ones, but libraries with an allocator of their own
    (Polars) and threads cannot use it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
