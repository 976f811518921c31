"""Results for objects that are never modified, found by identity."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class PerObject(Generic[V]):
    """Result of a function for each object, or tuple of objects, for as long as all of them live.

    Objects are compared with ``is``: for arguments that cannot be hashed and are expensive to
    compare, such as tables. A result must not refer to its objects, which would then live forever.

    Args:
        compute: The function.
    """

    def __init__(self, compute: Callable[..., V]) -> None:
        self._compute = compute
        self._known: dict[tuple[int, ...], tuple[tuple[weakref.ref[object], ...], V]] = {}

    def __call__(self, *objects: object) -> V:
        """The result for these objects, computed unless known."""
        key = tuple(map(id, objects))
        cached = self._known.get(key)
        if cached is not None and all(
            reference() is each for reference, each in zip(cached[0], objects, strict=True)
        ):
            return cached[1]
        result = self._compute(*objects)

        def forget(dead: weakref.ref[object]) -> None:
            # Other objects may have the numbers by now.
            references, _ = self._known.get(key, ((), None))
            if any(reference is dead for reference in references):
                del self._known[key]

        self._known[key] = tuple(weakref.ref(each, forget) for each in objects), result
        return result
