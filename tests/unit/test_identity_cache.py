"""Results found by the identity of their arguments."""

from __future__ import annotations

from tailback.identity_cache import IdentityCache


def test_equal_objects_are_computed_each_and_the_same_object_once() -> None:
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
