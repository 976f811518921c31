"""Results found by the identity of their arguments."""

from __future__ import annotations

import gc
import weakref

from tailback.identity_cache import IdentityCache, PerObject


def test_only_the_same_object_is_cached() -> None:
    asked: list[list[int]] = []

    def total(given: list[int]) -> int:
        asked.append(given)
        return sum(given)

    cached = IdentityCache(total, size=2)
    one, other, third = [1, 2], [1, 2], [5]
    assert [cached(one), cached(other), cached(one)] == [3, 3, 3]
    assert len(asked) == 2
    # Only the last two are kept.
    assert [cached(third), cached(one)] == [5, 3]
    assert len(asked) == 4


class _Number:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        raise AssertionError("objects are not compared")


def test_results_live_as_long_as_their_object() -> None:
    asked: list[int] = []

    def doubled(given: _Number) -> int:
        asked.append(given.value)
        return 2 * given.value

    cached = PerObject(doubled)
    one, other = _Number(1), _Number(2)
    assert [cached(one), cached(other), cached(one), cached(other)] == [2, 4, 2, 4]
    assert asked == [1, 2]
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
    # New objects may get its number.
    assert [cached(_Number(value)) for value in range(3, 9)] == [2 * v for v in range(3, 9)]
    assert asked == [1, 2, *range(3, 9)]
