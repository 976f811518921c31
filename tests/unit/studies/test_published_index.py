"""The index of published figures: nothing is left out, and every number is found in its table."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from studies.published import index
from studies.published.papers import PAPERS

FIGURES = {
    "thesis": [
        "Figure 3.1",
        "Table 3.1",
        *(f"Figure 4.{n}" for n in range(1, 18)),
        "Table 4.1",
        *(f"Figure 5.{n}" for n in range(1, 8)),
    ],
    "infiniband": [
        *(f"Figure {n}" for n in range(1, 8) if n not in {5, 6}),
        "Table I",
        "Table II",
        "Table III",
    ],
    "torus": [f"Figure {n}" for n in range(1, 11)],
}
"""Every numbered figure and table of the papers that number them, but for what was fitted: Figures
5 and 6 of Alali et al., Table I of Jha et al."""


@pytest.mark.parametrize("paper", FIGURES)
def test_no_figure_is_left_out(paper: str) -> None:
    names = {entry.name for entry in PAPERS[paper]} - {
        "Section 4.3",
        "Section 5.3",
        "Section 5.6",
        "Section 6.1",
        "Section III-A",
    }
    assert names == set(FIGURES[paper])


def test_every_index_number_is_in_its_table() -> None:
    for entries in PAPERS.values():
        for entry in entries:
            text = index.line(entry)
            assert text.count(" | ") == 5, text
            assert entry.cells or entry.theirs, entry.name
            if entry.picture:
                assert index.picture_file(entry.picture).is_file(), entry.picture


def test_the_page_is_what_the_tables_give() -> None:
    page = index.PAGE.read_text(encoding="utf-8")
    for name, part in index.index_parts().items():
        assert f"<!-- {name} -->\n{part}\n<!-- end {name} -->" in page, (
            f"{name} is stale; remedy: python -m studies.published.index --write"
        )


CELL = index.Cell("taffet2019/stencil2d", "Row major: time of a round")


def test_differences_are_computed_where_both_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(theirs: str, ours: str) -> str:
        table = (("quantity", "theirs", "ours"), (("x", theirs, ours),))
        monkeypatch.setattr(index, "table_rows", lambda _: table)
        return index.difference(replace(CELL, row="x"))

    assert compared("50 µs", "60 µs") == "+20.0 %"
    assert compared("50 %", "37.8 %") == "-12.2 points"
    assert compared("2.9×", "2.43×") == "-16.2 %"
    assert compared("61,213 ns", "61,001 ns") == "-0.3 %"
    assert compared("0.87", "0.99 (p = 0.002)") == "+13.8 %"
    assert compared("0", "0.0000") == "none"
    assert compared("X 0.60, Y 0.50", "X 0.55, Y 0.55, Z 0.1") == "X -0.05, Y +0.05"
    assert compared("X 4.1 %, the most", "X 22 %, Y 13 %") == "X +17.9 points"
    assert compared("86 %", "13 % – 70 %") == "-16.0 points"
    assert compared("74 %", "13 % – 75 %") == "inside"
    assert compared("< 0.4 %", "0.37 %") == "met" and compared("> 0.998", "0.997") == "-0.001"
    assert compared("41 – 70 min (1.71×)", "2092 – 4222 µs (2.02×)") == "+18.1 %"
    # Units differ, or one is a range or in words.
    assert compared("41 – 70 min", "2092 – 4222 µs") == "–"
    assert compared("50 ms", "60 µs") == compared("severe", "0.47") == "–"


def test_a_missing_row_is_an_error() -> None:
    with pytest.raises(KeyError, match="no row 'Diagonal"):
        index.ours(replace(CELL, row="Diagonal: time of a round"))


def entry(name: str) -> index.Published:
    return next(
        published for entries in PAPERS.values() for published in entries if published.name == name
    )


def test_an_unsupported_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    row = entry("Figure 4.1")
    assert "61,213 ns" in index.reason(row) and row.claims
    before = index.ours
    monkeypatch.setattr(
        index, "ours", lambda cell: "75,000 ns" if cell.column == 4 else before(cell)
    )
    with pytest.raises(index.StaleReasonError, match=r"Figure 4\.1"):
        index.line(row)


def status_of(monkeypatch: pytest.MonkeyPatch, theirs: str, ours: str, **fields: str) -> str:
    table = (("quantity", "theirs", "ours"), (("x", theirs, ours),))
    monkeypatch.setattr(index, "table_rows", lambda _: table)
    row = index.Published("Figure 1", "x", (replace(CELL, row="x"),), **fields)
    return index.status(row)


def test_a_row_beyond_tolerance_is_not_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert status_of(monkeypatch, "100 ns", "104 ns") == "reproduced"
    assert status_of(monkeypatch, "100 ns", "94 ns") == index.NOT_REPRODUCED
    assert status_of(monkeypatch, "X 0.60, Y 0.50", "X 0.62, Y 0.56") == index.NOT_REPRODUCED
    assert status_of(monkeypatch, "4.8 %", "5.7 %") == "reproduced"
    assert status_of(monkeypatch, "3.7 %", "-0.4 %") == index.NOT_REPRODUCED
    assert status_of(monkeypatch, "> 0.9", "0.897") == "reproduced"
    assert status_of(monkeypatch, "< 0.4 %", "0.37 %", kind="in kind") == "in kind"
    assert status_of(monkeypatch, "a drawing", "another") == "–"


def test_numbers_of_stale_tables_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"old/a": "| 1 |\n\n*Made at 1a2b; inputs changed since.*", "new/a": "| 1 |"}
    monkeypatch.setattr(index, "table_part", parts.__getitem__)
    old, new = (replace(CELL, place=place) for place in parts)
    assert index.mark_of((new, old)) == index.STALE and index.mark_of((new,)) == ""


@pytest.mark.parametrize(("held_out", "status"), [(0.2, "fitted"), (0.3, index.NOT_REPRODUCED)])
def test_a_fit_must_beat_its_baselines(
    monkeypatch: pytest.MonkeyPatch, held_out: float, status: str
) -> None:
    errors = {"fit": 0.1, "held out": held_out, "constant": 0.25, "shuffled": 0.4}
    monkeypatch.setattr(index, "ours", lambda cell: f"load 3: all within {errors[cell.row]}")
    cells = {name: replace(CELL, row=name) for name in errors}
    fit = index.Fit(
        "Table I",
        "its numbers",
        cells["fit"],
        (cells["held out"],),
        (cells["constant"], cells["shuffled"]),
    )
    assert fit.status() == status
    assert replace(fit, held_out=()).status() == index.NOT_REPRODUCED


def test_no_reason_contains_our_typed_numbers() -> None:
    """Every number in a reason is quoted, published, or in the name of a row or a setting."""
    for entries in PAPERS.values():
        for published in entries:
            cells = [
                *published.cells,
                *published.quoted,
                *(
                    side.cell
                    for claim in published.claims
                    for side in (claim.left, claim.right)
                    if not isinstance(side, float)
                ),
            ]
            typed = " ".join(
                [
                    published.theirs,
                    *(c.row for c in cells),
                    *(index.theirs(c) for c in cells),
                    *(str(claim.right) for claim in published.claims),
                ]
            )
            text = re.sub(r"\[[^]]*\]\([^)]*\)|\{\d+\}|\d+³", "", published.reason)
            for number in re.findall(r"\d[\d,.]*\d|\d", text):
                assert number in typed or number in ALLOWED, (published.name, number)


ALLOWED = {"7.25", "2.9", "60", "5", "150", "1", "4", "100", "10"}
"""What follows from published numbers alone (the talk's factors), and settings of the studies."""
