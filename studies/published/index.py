"""An index of published figures: what each shows, theirs and ours, from the tables of other pages.

    python -m studies.published.index             print it
    python -m studies.published.index --write     also write it to its page

A row is *reproduced* (the published inputs, nothing fitted), or *in kind* (only a direction is
claimed), or *not reproduced* where our numbers do not agree. What was fitted has a table of its
own, with what was held out and baselines (``Fit``).

No number of ours is written here. Each is looked up in a generated table of a study's README.md or
of docs/measurements/simulators.md, by page, table, row and column. Reasons quote numbers in the
same way, and rest on claims, comparisons of such numbers, that are checked whenever the index is
made: a reason that its tables no longer support is an error.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

from measuring import put
from measuring.records import MARK

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "measurements" / "published.md"
HEAD: Final = "| figure | kind | theirs | ours | difference | reason, as tested |"
FIT_HEAD: Final = "| figure | kind | fitted to | error of the fit | held out | baselines | reason |"
TOLERANCE: Final = 5.0
"""Percent of theirs within which a number agrees: what Table 4.1 of the thesis is allowed."""
POINTS: Final = 1.0
"""Points within which a share agrees in any case; of a number without unit a hundredth."""
Kind = Literal["reproduced", "in kind"]


@dataclass(frozen=True)
class Cell:
    """One number of ours, by its place.

    Attributes:
        place: Study, or page, and table, like ``taffet2019/stencil2d``.
        row: First cell of its row; ``row-major|leaf-up: congested`` names the first two.
        label: What to call it in the index; empty: nothing.
        theirs: The published value where the table has no column for it.
        column: Number of the column, from 1, where the table has no column "ours".
        stated: What the paper states in words, as comparisons of our numbers.
        same_text: Whether both are names, which must be equal.
    """

    place: str
    row: str
    label: str = ""
    theirs: str | None = None
    column: int | None = None
    stated: tuple[Claim, ...] = ()
    same_text: bool = False


@dataclass(frozen=True)
class CellNumber:
    """One number in a cell, for a claim.

    Attributes:
        cell: The cell.
        part: Which of its numbers, from 0.
        published: Whether theirs is meant.
    """

    cell: Cell
    part: int = 0
    published: bool = False

    def value(self) -> float:
        """The number, without its unit."""
        text = theirs(self.cell) if self.published else ours(self.cell)
        return float(_DIGITS.findall(text)[self.part].replace(",", "").replace("−", "-"))


@dataclass(frozen=True)
class Claim:
    """A comparison that a reason rests on.

    Attributes:
        left: What is compared.
        relation: ``about``: within ``share`` of the other.
        right: With what.
        share: Largest relative difference of ``about``.
    """

    left: CellNumber
    relation: Literal["below", "above", "about"]
    right: CellNumber | float
    share: float = 0.03

    def holds(self) -> bool:
        """Whether the tables say so."""
        a = self.left.value()
        b = self.right if isinstance(self.right, float) else self.right.value()
        if self.relation == "about":
            return abs(a - b) <= self.share * abs(b)
        return a < b if self.relation == "below" else a > b


class StaleReasonError(Exception):
    """A reason that its tables no longer support."""


@dataclass(frozen=True)
class Published:
    """One figure or table of a paper.

    Attributes:
        name: Its number, or the slide's title.
        shows: What it shows.
        cells: Numbers of ours for it.
        reason: Why both differ, as tested; or why nothing can be compared. ``{0}`` stands for our
            value in the first of ``quoted``, and so on.
        picture: Our picture: study and file.
        theirs: What the paper says in words, where its figure has no number.
        quoted: Cells that the reason quotes.
        claims: What the reason rests on.
        kind: What is claimed: the published numbers from the published inputs, or a direction.
    """

    name: str
    shows: str
    cells: tuple[Cell, ...] = ()
    reason: str = ""
    picture: str = ""
    theirs: str = ""
    quoted: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()
    kind: Kind = "reproduced"


@dataclass(frozen=True)
class Fit:
    """A figure for which settings were chosen by its own numbers.

    The last number of each cell is an error, and the smaller the better.

    Attributes:
        name: Its number, or the slide's title.
        used: The published numbers that chose the settings.
        fitted: Error on those.
        held_out: Errors on numbers that were not used; empty: there were none.
        baselines: Errors of predictions that use no model.
        reason: What this shows.
    """

    name: str
    used: str
    fitted: Cell
    held_out: tuple[Cell, ...]
    baselines: tuple[Cell, ...]
    reason: str = ""

    def status(self) -> str:
        """Whether what was held out is predicted better than by any baseline."""
        worst = max((abs(last_number(cell)) for cell in self.held_out), default=float("inf"))
        best = min(abs(last_number(cell)) for cell in self.baselines)
        return "fitted" if worst < best else NOT_REPRODUCED


NOT_REPRODUCED: Final = "**not reproduced**"
STALE: Final = "†"

NONE, SEVERE = 0.05, 0.25
"""A congested fraction below the first is "almost none", one above the second "severe"."""


def worded(
    place: str,
    row: str,
    label: str,
    words: str | None,
    *tests: tuple[int, str, float],
    column: int | None = None,
) -> Cell:
    """A cell that the paper describes in words: part, relation and bound of each test."""
    cell = Cell(place, row, label, words, column)
    claims = tuple(
        Claim(CellNumber(cell, part), relation, bound)  # type: ignore[arg-type]
        for part, relation, bound in tests
    )
    return replace(cell, stated=claims)


def page_of(study: str) -> Path:
    """The page with the tables of a study, or the page of that name beside the index."""
    page = PAGE.with_name(f"{study}.md")
    return page if page.is_file() else ROOT / "studies" / study / "README.md"


def picture_file(picture: str) -> Path:
    """A picture, by study and file: ``taffet2019/figure-4.3.png``."""
    study, _, name = picture.partition("/")
    return ROOT / "studies" / study / "figures" / name


@cache
def table_part(place: str) -> str:
    """A generated table as on its page, by study and name: ``taffet2019/stencil2d``."""
    study, _, name = place.partition("/")
    text = page_of(study).read_text(encoding="utf-8")
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- end {name} -->")[0]


def mark_of(cells: Sequence[Cell]) -> str:
    """The mark of a number from a table whose inputs changed since; empty if all are current."""
    return STALE if any(MARK.search(table_part(cell.place)) for cell in cells) else ""


@cache
def table_rows(place: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows of a generated table."""
    lines = [line for line in table_part(place).split("\n") if line.startswith("|")]
    if not lines:
        raise KeyError(f"no table {place!r}")
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return cells[0], tuple(cells[2:])


def _row(cell: Cell) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Header and the row of a cell."""
    header, rows = table_rows(cell.place)
    keys = tuple(part.strip("`") for part in cell.row.split("|"))
    for row in rows:
        if tuple(part.strip("`") for part in row[: len(keys)]) == keys:
            return header, row
    raise KeyError(f"{cell.place} has no row {cell.row!r}")


def _column(header: Sequence[str], word: str) -> int | None:
    return next((n for n, name in enumerate(header) if name.startswith(word)), None)


def ours(cell: Cell) -> str:
    """Our value."""
    header, row = _row(cell)
    number = cell.column - 1 if cell.column is not None else _column(header, "ours")
    if number is None:
        raise KeyError(f"{cell.place} has no column of ours")
    return row[number]


def theirs(cell: Cell) -> str:
    """The published value."""
    if cell.theirs is not None:
        return cell.theirs
    header, row = _row(cell)
    number = _column(header, "theirs")
    return "–" if number is None else row[number]


_NUMBER: Final = re.compile(
    r"^(?:nearly |about |[≈+])?\s*([-−]?[\d,]+(?:\.\d+)?)\s*([^\d\s(]*)\s*(?:$|\()"
)
_RANGE: Final = re.compile(r"^([\d.]+) % – ([\d.]+) %$")
_BOUND: Final = re.compile(r"^(?:up to )?([<>≤≥]) ([\d.]+)")
_AXIS: Final = re.compile(r"\b([XYZ]) ([\d.]+)( %)?")
_TIMES: Final = re.compile(r"\(([\d.]+)×\)$")


def difference(cell: Cell) -> str:
    """Ours over theirs in percent, in points where both are percentages; a dash in words.

    Of three axes each by itself; of ranges of times, that of their ratios; of a range of ours,
    how far theirs lies outside it; of a published bound, whether it is met; of a statement in
    words, whether ours is as stated.
    """
    if cell.stated:
        return "as stated" if all(claim.holds() for claim in cell.stated) else "not as stated"
    if cell.same_text:
        return "none" if theirs(cell) == ours(cell) else "another"
    header, row = _row(cell)
    number = _column(header, "difference")
    if cell.theirs is None and number is not None and row[number]:
        return row[number]
    before, after = theirs(cell), ours(cell)
    for compare in (_single, _by_axis, _outside, _bound, _ratio_of_ranges):
        comparison = compare(before, after)
        if comparison:
            return comparison
    return "–"


def _single(before: str, after: str) -> str:
    numbers = [_NUMBER.match(text) for text in (before, after)]
    if numbers[0] is None or numbers[1] is None:
        return ""
    a, b = (float(m[1].replace(",", "").replace("−", "-")) for m in numbers if m)
    if a == b == 0:
        return "none"
    if numbers[0][2] != numbers[1][2]:
        return ""
    if numbers[0][2] == "%":
        return f"{b - a:+.1f} points"
    return f"{100 * (b / a - 1):+.1f} %" if a else ""


def _by_axis(before: str, after: str) -> str:
    both = [
        {axis: (float(n), unit) for axis, n, unit in _AXIS.findall(text)}
        for text in (before, after)
    ]
    if not both[0] or not both[0].keys() <= both[1].keys():
        return ""
    out = []
    for axis, (value, unit) in both[0].items():
        mine = both[1][axis][0]
        out.append(f"{axis} {mine - value:+.1f}" if unit else f"{axis} {mine - value:+.2f}")
    return ", ".join(out) + (" points" if any(unit for _, unit in both[0].values()) else "")


def _outside(before: str, after: str) -> str:
    number, span = _NUMBER.match(before), _RANGE.match(after)
    if number is None or number[2] != "%" or span is None:
        return ""
    value, low, high = float(number[1]), float(span[1]), float(span[2])
    if low <= value <= high:
        return "inside"
    return f"{(high if value > high else low) - value:+.1f} points"


def _bound(before: str, after: str) -> str:
    bound, number = _BOUND.match(before), _NUMBER.match(after)
    if bound is None or number is None:
        return ""
    value, limit = float(number[1].replace("−", "-")), float(bound[2])
    met = value <= limit if bound[1] in "<≤" else value >= limit
    return "met" if met else f"{value - limit:+.2g}"


def _ratio_of_ranges(before: str, after: str) -> str:
    factors = [_TIMES.search(text) for text in (before, after)]
    if factors[0] is None or factors[1] is None:
        return ""
    return f"{100 * (float(factors[1][1]) / float(factors[0][1]) - 1):+.1f} %"


_DIGITS: Final = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?")


def reason(entry: Published) -> str:
    """The entry's reason with the numbers it quotes.

    Raises:
        StaleReasonError: A claim that it rests on does not hold.
    """
    for claim in entry.claims:
        if not claim.holds():
            raise StaleReasonError(f"{entry.name}: {entry.reason!r} rests on {claim}")
    return entry.reason.format(*(ours(cell).replace("**", "") for cell in entry.quoted))


def linked(target: Path) -> str:
    """A file as the page links to it."""
    return os.path.relpath(target, PAGE.parent)


def last_number(cell: Cell) -> float:
    """The last number of our value: the error that a cell of a fit ends with."""
    return float(_DIGITS.findall(ours(cell))[-1].replace(",", "").replace("−", "-"))


_CHANGE: Final = re.compile(r"[-−]?\d+(?:\.\d+)?")


def agrees(text: str, published: str) -> bool:
    """Whether a difference is within the tolerance, or in words that both agree."""
    if text in {"none", "met", "inside", "as stated"}:
        return True
    changes, numbers = (
        [abs(float(number.replace("−", "-"))) for number in _CHANGE.findall(part)]
        for part in (text, published.replace(",", ""))
    )
    if "points" in text or "%" not in text:
        scale = 1.0 if "points" in text else 100.0
        allowed = max(POINTS, scale * TOLERANCE / 100 * max(numbers, default=0.0))
    else:
        scale, allowed = 1.0, TOLERANCE
    return bool(changes) and all(scale * change <= allowed for change in changes)


def status(entry: Published) -> str:
    """The kind of an entry; that it is not reproduced; or a dash where nothing is comparable."""
    compared = [
        (text, theirs(cell))
        for cell, text in ((cell, difference(cell)) for cell in entry.cells)
        if text != "–"
    ]
    if not compared:
        return "–"
    return entry.kind if all(agrees(*pair) for pair in compared) else NOT_REPRODUCED


def linked_name(name: str, picture: str = "") -> str:
    """The name of a figure, with our picture of it."""
    return f"**[{name}]({linked(picture_file(picture))})**" if picture else f"**{name}**"


def line(entry: Published) -> str:
    """The entry's row of the index."""

    def joined(values: list[str]) -> str:
        pairs = zip(entry.cells, values, strict=True)
        return "; ".join(f"{cell.label}: {value}" if cell.label else value for cell, value in pairs)

    theirs_text = joined([theirs(cell) for cell in entry.cells])
    ours_text = joined([ours(cell) for cell in entry.cells])
    if ours_text == theirs_text:
        ours_text = "the same" if ours_text else "–"
    theirs_text = "; ".join(text for text in (entry.theirs, theirs_text) if text)
    differences = list(map(difference, entry.cells))
    # A word that holds of all of them is said once.
    alike = len(set(differences)) == 1
    cells = (
        f"{linked_name(entry.name, entry.picture)} {entry.shows}",
        status(entry) + mark_of((*entry.cells, *entry.quoted)),
        theirs_text or "–",
        ours_text,
        "; ".join(differences[:1] if alike else differences) or "–",
        reason(entry),
    )
    return f"| {' | '.join(cells)} |"


def fit_line(fit: Fit) -> str:
    """The row of a fit."""

    def joined(cells: tuple[Cell, ...]) -> str:
        return "; ".join(f"{cell.label}: {abs(last_number(cell)):g}" for cell in cells) or "nothing"

    cells = (
        f"**{fit.name}**",
        fit.status() + mark_of((fit.fitted, *fit.held_out, *fit.baselines)),
        fit.used,
        f"{abs(last_number(fit.fitted)):g}",
        joined(fit.held_out),
        joined(fit.baselines),
        fit.reason,
    )
    return f"| {' | '.join(cells)} |"


def table(entries: Sequence[Published]) -> str:
    """The index of one paper in Markdown."""
    return "\n".join([HEAD, "|---" * 6 + "|", *map(line, entries)])


def fit_table(fits: Sequence[Fit]) -> str:
    """All fits in Markdown."""
    return "\n".join([FIT_HEAD, "|---" * 7 + "|", *map(fit_line, fits)])


def index_parts() -> dict[str, str]:
    """Every part of the page."""
    from studies.published.papers import FITS, PAPERS

    parts = {f"index {name}": table(entries) for name, entries in PAPERS.items()}
    return {**parts, "index fits": fit_table(FITS)}


def main() -> None:
    """Print the index; write it on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help=f"update docs/measurements/{PAGE.name}"
    )
    arguments = parser.parse_args()
    parts = index_parts()
    for name, text in parts.items():
        print(f"## {name}\n\n{text}\n")
    if arguments.write:
        put(PAGE, parts)


if __name__ == "__main__":
    main()
