"""The rule that finds tiers and pods, on trees whose truth is known."""

from __future__ import annotations

import random

import pytest

from tailback.fabric.tiers import find_tiers


class Tree:
    """A three-tier tree that knows its own tiers and pods; switches are numbered in any order."""

    def __init__(self, pods: int, leaves: int, spines: int, cores: int, hosts: int) -> None:
        self.tier: list[int] = []
        self.hosts: list[int] = []
        self.pod: list[int] = []
        self.cables: list[tuple[int, int]] = []
        self.cores = [self.add(2, -1) for _ in range(cores)]
        self.leaves: list[list[int]] = []
        self.spines: list[list[int]] = []
        for pod in range(pods):
            low = [self.add(0, pod, hosts) for _ in range(leaves)]
            mid = [self.add(1, pod) for _ in range(spines)]
            self.cables += [(a, b) for a in low for b in mid]
            self.cables += [(s, c) for i, s in enumerate(mid) for c in self.cores[i::spines]]
            self.leaves.append(low)
            self.spines.append(mid)

    def add(self, tier: int, pod: int, hosts: int = 0) -> int:
        self.tier.append(tier)
        self.pod.append(pod)
        self.hosts.append(hosts)
        return len(self.tier) - 1

    def check(self, names: list[str] | None = None) -> list[str]:
        """Assert the truth under three numberings; returns the notes of the last."""
        notes: list[str] = []
        for seed in range(3):
            order = list(range(len(self.tier)))
            random.Random(seed).shuffle(order)
            place = {old: new for new, old in enumerate(order)}
            tiers = find_tiers(
                [(place[b], place[a]) for a, b in self.cables],
                [self.hosts[old] for old in order],
                None if names is None else [names[old] for old in order],
            )
            assert [int(tiers.tier[place[s]]) for s in range(len(order))] == self.tier
            pods = [int(tiers.pod[place[s]]) for s in range(len(order))]
            match = set(zip(pods, self.pod, strict=True))
            assert len(match) == len({a for a, _ in match}) == len({b for _, b in match})
            assert all((a == -1) == (b == -1) for a, b in match)
            notes = tiers.notes
        return notes


@pytest.mark.parametrize(
    ("pods", "leaves", "spines", "cores", "hosts"),
    [(2, 2, 2, 2, 2), (6, 24, 16, 48, 32), (11, 18, 18, 108, 18), (3, 4, 2, 4, 1)],
)
def test_plain_trees(pods: int, leaves: int, spines: int, cores: int, hosts: int) -> None:
    assert Tree(pods, leaves, spines, cores, hosts).check() == []


def test_two_tiers_make_every_leaf_a_pod() -> None:
    tiers = find_tiers([(leaf, spine) for leaf in (0, 1, 2) for spine in (3, 4)], [9, 9, 9, 0, 0])
    assert tiers.tier.tolist() == [0, 0, 0, 1, 1]
    assert tiers.pod.tolist() == [0, 1, 2, -1, -1]


@pytest.mark.parametrize("hosts", [1, 4, 10])
def test_storage_on_spines_leaves_them_spines(hosts: int) -> None:
    tree = Tree(4, 18, 9, 18, 18)
    tree.hosts[tree.spines[0][0]] = hosts
    tree.hosts[tree.spines[2][3]] = hosts
    assert any("with hosts above the leaves: 2" in note for note in tree.check())


def test_hosts_on_every_spine_of_a_pod() -> None:
    tree = Tree(3, 16, 8, 16, 16)
    for spine in tree.spines[1]:
        tree.hosts[spine] = 4
    tree.check()


@pytest.mark.parametrize("hosts", [1, 3])
def test_login_hosts_leave_a_core_a_core(hosts: int) -> None:
    tree = Tree(6, 8, 4, 8, 8)
    tree.hosts[tree.cores[3]] = hosts
    assert any("with hosts above the leaves: 1" in note for note in tree.check())


def test_a_stray_leaf_lowers_no_core() -> None:
    tree = Tree(4, 8, 4, 8, 16)
    stray = tree.add(0, 99, 3)
    tree.cables.append((stray, tree.cores[0]))
    assert "cables that skip a tier: 1" in tree.check()


def test_a_thin_management_leaf_below_a_spine() -> None:
    tree = Tree(4, 8, 4, 8, 16)
    leaf = tree.add(0, 1, 2)
    tree.cables += [(leaf, tree.spines[1][0])] * 2
    tree.check()


def test_an_underfilled_leaf_with_all_its_uplinks() -> None:
    tree = Tree(4, 8, 4, 8, 16)
    tree.hosts[tree.leaves[2][5]] = 1
    assert tree.check() == []


def test_an_empty_leaf_in_a_pod() -> None:
    tree = Tree(4, 8, 4, 8, 16)
    tree.hosts[tree.leaves[2][5]] = 0
    assert any("treated as empty leaves: 1" in note for note in tree.check())


def test_an_empty_leaf_is_recognised_by_name() -> None:
    cables = [(leaf, spine) for leaf in (0, 1, 2) for spine in (3, 4)]
    hosts = [9, 9, 0, 0, 0]
    names = ["leaf-01", "leaf-02", "leaf-03", "spine-01", "spine-02"]
    assert find_tiers(cables, hosts, names).tier.tolist() == [0, 0, 0, 1, 1]
    # One name for all kinds of switch tells nothing: the rule must not make the spines leaves.
    same = find_tiers(cables, hosts, ["Infiniscale-IV Mellanox Technologies"] * 5)
    assert same.tier.tolist() == [0, 0, 2, 1, 1]


def test_a_direct_network_is_one_tier() -> None:
    side = 5
    ring = [
        (x * side + y, other)
        for x in range(side)
        for y in range(side)
        for other in ((x + 1) % side * side + y, x * side + (y + 1) % side)
    ]
    hosts = [16] * side**2
    hosts[7] = 1
    hosts[8] = 9
    tiers = find_tiers(ring, hosts)
    assert set(tiers.tier.tolist()) == {0}
    assert set(tiers.pod.tolist()) == {-1}


def test_two_switches_joined_are_both_leaves() -> None:
    assert find_tiers([(0, 1)] * 4, [20, 1]).tier.tolist() == [0, 0]


def test_boards_of_a_director() -> None:
    # Four line boards, two spine boards; the fourth line board is empty.
    cables = [(line, spine) for line in range(4) for spine in (4, 5) for _ in range(2)]
    tors = [(6, 0), (7, 1), (8, 2), (6, 1), (7, 2), (8, 0)]
    hosts = [0] * 6 + [10] * 3
    truth = [1, 1, 1, 1, 2, 2, 0, 0, 0]
    by_name = [f"big/L{i:02d}/U1" for i in range(4)] + ["big/S01/U1", "big/S02/U1"] + ["tor"] * 3
    assert find_tiers(cables + tors, hosts, by_name).tier.tolist() == truth
    system = ["ab"] * 6 + [None] * 3
    assert find_tiers(cables + tors, hosts, None, system).tier.tolist() == truth


def test_boards_without_two_sides_are_left_alone() -> None:
    tiers = find_tiers([(0, 1), (1, 2), (2, 0)], [5, 5, 5], None, ["ab"] * 3)
    assert tiers.tier.tolist() == [0, 0, 0]


def test_islands_have_tiers_of_their_own() -> None:
    tree = Tree(2, 4, 2, 4, 8)
    count = len(tree.tier)
    tiers = find_tiers(
        [*tree.cables, (count, count + 2), (count + 1, count + 2)], [*tree.hosts, 2, 2, 0, 0]
    )
    assert tiers.tier.tolist() == [*tree.tier, 0, 0, 1, 0]
    assert tiers.pod.tolist()[-4:-2] == [2, 3]
    assert tiers.pod.tolist()[-2:] == [-1, -1]


def test_nothing_at_all() -> None:
    tiers = find_tiers([], [])
    assert tiers.tier.shape == tiers.pod.shape == (0,)
