"""Results for objects that are never modified, found by identity."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
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


class PerObject(Generic[K, V]):
    """Result of a function for each object, found by identity, for as long as the object lives.

    A result must not refer to its object, which would then live forever.

    Args:
        compute: The function.
    """

    def __init__(self, compute: Callable[[K], V]) -> None:
        self._compute = compute
        self._known: dict[int, tuple[weakref.ref[K], V]] = {}

    def __call__(self, given: K) -> V:
        """The result for ``given``, computed unless known."""
        number = id(given)
        known = self._known.get(number)
        if known is not None and known[0]() is given:
            return known[1]
        result = self._compute(given)

        def forget(dead: weakref.ref[K]) -> None:
            # Another object may have the number by now.
            if self._known.get(number, (None,))[0] is dead:
                del self._known[number]

        self._known[number] = (weakref.ref(given, forget), result)
        return result
