"""The shifted placement: the same nodes, from further on."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.errors import PlacementError
from tailback.placement import PlacementProblem, assign_slots, problem_for
from tailback.placement.problem import Traffic
from tests.factories.placement_fabrics import pairs, regular


def groups_of(size: int, ranks: int) -> list[tuple[int, int, int]]:
    """Traffic among the ranks of each group."""
    return [
        (a, b, 100)
        for first in range(0, ranks, size)
        for a in range(first, first + size)
        for b in range(first, first + size)
        if a != b
    ]


def problem_of(hosts: list[int], ranks: int) -> PlacementProblem:
    """Groups of four ranks on leaves of six hosts."""
    return problem_for(regular(4, 6, 2), pairs(ranks, groups_of(4, ranks // 4 * 4)), hosts, 1, 1)


HOSTS = [*range(6), *range(6, 10), *range(12, 16)]
"""Six hosts on the first leaf and four on two others: a group of four straddles unless shifted."""


def between_leaves(problem: PlacementProblem, slots: np.ndarray) -> int:  # type: ignore[type-arg]
    source, target, size = problem.traffic
    leaf = problem.slot_switch[slots]
    return int(size[leaf[source] != leaf[target]].sum())


def test_the_best_shift_is_found() -> None:
    problem = problem_of(HOSTS, 12)
    assert between_leaves(problem, np.arange(12)) > 0
    slots = assign_slots("shift", problem, {})
    assert between_leaves(problem, slots) == 0
    assert np.array_equal(slots, assign_slots("shift", problem, {"by": 2}))
    assert slots[0] == 2


def test_it_goes_around_the_end() -> None:
    problem = problem_of(HOSTS, 14 - 14 % 4)
    slots = assign_slots("shift", problem, {"by": 13})
    assert slots.tolist() == [13, *range(11)]
    assert np.array_equal(assign_slots("shift", problem, {"by": 0}), np.arange(12))


def test_hosts_to_avoid_are_used_last() -> None:
    problem = problem_of(HOSTS, 12)
    names = [problem.host_name[problem.slot_host[slot]] for slot in (3, 7)]
    slots = assign_slots("shift", problem, {"avoid": names, "by": 0})
    assert not {3, 7} & set(slots.tolist())
    # Where there are no others they are used after all.
    full = assign_slots("shift", problem_of(HOSTS[:12], 12), {"avoid": names, "by": 0})
    assert set(full.tolist()) == set(range(12)) and set(full[-2:].tolist()) == {3, 7}


def test_congested_leaves_weigh_more() -> None:
    """Two shifts that send as much between leaves: the one that keeps off the congested leaf."""
    traffic: Traffic = (np.array([0]), np.array([1]), np.array([10], np.uint64))
    problem = problem_of([0, 6, 7, 12], 2)
    free = PlacementProblem(**{**vars(problem), "traffic": traffic})
    assert between_leaves(free, assign_slots("shift", free, {})) == 0
    narrow = problem_of([0, 6, 12, 18], 2)
    hot = np.zeros(int(narrow.slot_switch.max()) + 1)
    hot[narrow.slot_switch[0]] = 0.9
    weighed = PlacementProblem(**{**vars(narrow), "traffic": traffic, "congestion": hot})
    assert 0 not in assign_slots("shift", weighed, {}).tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": -1}, "by = -1"),
        ({"by": True}, "by = True"),
        ({"avoid": "n0"}, "not a list"),
        ({"avoid": ["nowhere"]}, "no host 'nowhere'"),
        ({"bye": 1}, "no option 'bye'"),
    ],
)
def test_wrong_options_are_told(options: dict[str, object], words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        assign_slots("shift", problem_of(HOSTS, 12), options)
