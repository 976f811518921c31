"""Results found by the identity of their arguments."""

from __future__ import annotations

import gc
import weakref

from tailback.identity_cache import PerObject


class _Number:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        raise AssertionError("objects are not compared")


def test_results_live_as_long_as_their_object() -> None:
    asked: list[int] = []

    def doubled(number: _Number) -> int:
        asked.append(number.value)
        return 2 * number.value

    cached = PerObject(doubled)
    first, other = _Number(1), _Number(2)
    assert [cached(first), cached(other), cached(first), cached(other)] == [2, 4, 2, 4]
    assert asked == [1, 2]
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    # New objects may get its number.
    assert [cached(_Number(value)) for value in range(3, 9)] == [2 * v for v in range(3, 9)]
    assert asked == [1, 2, *range(3, 9)]


def test_result_for_several_objects_ends_with_the_first() -> None:
    asked: list[tuple[int, int]] = []

    def total(first: _Number, second: _Number) -> int:
        asked.append((first.value, second.value))
        return first.value + second.value

    cached = PerObject(total)
    first_number, other = _Number(1), _Number(2)
    assert [
        cached(first_number, other),
        cached(first_number, other),
        cached(other, first_number),
    ] == [3, 3, 3]
    assert asked == [(1, 2), (2, 1)]
    del first_number
    gc.collect()
    assert not cached._known
