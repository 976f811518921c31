"""Results for objects that are never modified, found by identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class IdentityCache(Generic[V]):
    """Results of a function for the last few tuples of arguments, compared with ``is``.

    For arguments that cannot be hashed and are expensive to compare, such as tables. They are kept
    alive with their result.

    Args:
        compute: The function.
        size: Number of results kept.
    """

    def __init__(self, compute: Callable[..., V], size: int = 4) -> None:
        self._compute = compute
        self._size = size
        self._known: list[tuple[tuple[object, ...], V]] = []

    def __call__(self, *given: object) -> V:
        """The result for ``given``, computed unless known."""
        for known, result in self._known:
            if all(one is other for one, other in zip(known, given, strict=True)):
                return result
        result = self._compute(*given)
        self._known = [(given, result), *self._known][: self._size]
        return result
