"""Names that are listed together stay distinct, and keep the parts in which they differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailback.names.display import MIN_WIDTH, display_width, printable, shorten, shorten_names

MAKER = "SwitchIB Mellanox Technologies 0xec0d9a0300ec"
ONE = f"{MAKER}8480[21] → {MAKER}8200[3]"
BESIDE = f"{MAKER}8480[20] → {MAKER}8200[2]"
BACK = f"{MAKER}8200[3] → {MAKER}8480[21]"

PARTS = [
    *ONE.split(" "),
    " ",
    "[1]",
    "…",
    "leaf",
    "-",
    ";",
    "node001",
    "節点",
    "e\u0301",
    "\x1b",
    "$",
]
WORDS = st.sampled_from(PARTS)
NAMES = st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=12).map("".join))


@given(st.lists(NAMES, max_size=40), st.integers(0, 90))
def test_shortened_names_fit_and_stay_distinct(names: list[str], width: int) -> None:
    short = shorten_names(names, width)
    assert len(short) == len(names)
    for name, other in zip(names, short, strict=True):
        assert short[names.index(name)] == other
        assert display_width(other) <= max(width, MIN_WIDTH)
        assert other == printable(other)
    assert len(set(short)) == len(set(names))


@given(st.lists(NAMES, min_size=1, max_size=10, unique=True))
def test_names_with_room_stay_whole(names: list[str]) -> None:
    shown = [printable(name) for name in names]
    if len(set(shown)) == len(names):
        assert shorten_names(names, max(map(display_width, shown))) == shown


@pytest.mark.parametrize("width", [20, 33, 46])
def test_links_keep_what_differs_from_their_neighbours(width: int) -> None:
    short = ["…8480[21] → …8200[3]", "…8480[20] → …8200[2]", "…8200[3] → …8480[21]"]
    assert shorten_names([ONE, BESIDE, BACK], width) == short
    assert shorten_names([ONE, BACK], width) == [short[0], short[2]]
    assert shorten(ONE, width) == short[0]


def test_wider_names_lose_less() -> None:
    guids = "…0xec0d9a0300ec8480[21] → …0xec0d9a0300ec8200[3]"
    assert shorten_names([ONE, BESIDE], 60)[0] == guids
    assert shorten_names([ONE, BESIDE], len(ONE)) == [ONE, BESIDE]


@pytest.mark.parametrize(
    ("names", "width", "short"),
    [
        (["leaf-rack-one-switch-alpha", "leaf-rack-one-switch-beta"], 14, ["…-alpha", "…-beta"]),
        (
            ["incremental + ugal-routes", "tile + round-robin-leaves"],
            22,
            ["incr… + ugal-routes", "tile + rou…obin-leaves"],
        ),
        (["node001-east-partition", "node002-east-partition"], 14, ["node001-…", "node002-…"]),
        (["rackA-01234567", "rackB-01234567"], 12, ["rackA-…4567", "rackB-…4567"]),
        (["a" * 40, "a" * 41], 12, ["aaaaa…aaaaaa", "aaaaaaaaaa…1"]),
        ([f"{MAKER}8480: 8 up-links"], 30, ["…8480: 8 up-links"]),
    ],
)
def test_names_of_other_kinds(names: list[str], width: int, short: list[str]) -> None:
    assert shorten_names(names, width) == short


def test_name_from_a_file_cannot_move_the_cursor() -> None:
    assert shorten("\x1b[2Jleaf", 40) == r"\x1b[2Jleaf"
