"""An index of published figures: what each shows, theirs and ours, from the tables of other pages.

    python -m studies.published.index             print it
    python -m studies.published.index --write     also write it to its page

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

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "measurements" / "published.md"
HEAD: Final = "| figure | theirs | ours | difference | reason, as tested | where |"


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
    """

    place: str
    row: str
    label: str = ""
    theirs: str | None = None
    column: int | None = None
    stated: tuple[Claim, ...] = ()


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
class Ratio:
    """One number over another."""

    top: CellNumber
    bottom: CellNumber

    def value(self) -> float:
        """The quotient."""
        return self.top.value() / self.bottom.value()


@dataclass(frozen=True)
class Claim:
    """A comparison that a reason rests on.

    Attributes:
        left: What is compared.
        relation: ``about``: within ``share`` of the other.
        right: With what.
        share: Largest relative difference of ``about``.
    """

    left: CellNumber | Ratio
    relation: Literal["below", "above", "about"]
    right: CellNumber | Ratio | float
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
    """

    name: str
    shows: str
    cells: tuple[Cell, ...] = ()
    reason: str = ""
    picture: str = ""
    theirs: str = ""
    quoted: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()


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
def table_rows(place: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows of a generated table, by study and name: ``taffet2019/stencil2d``."""
    study, _, name = place.partition("/")
    page = page_of(study)
    text = page.read_text(encoding="utf-8")
    part = text.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end {name} -->")[0]
    lines = [line for line in part.split("\n") if line.startswith("|")]
    if not lines:
        raise KeyError(f"no table {name!r} in {page}")
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


def line(entry: Published) -> str:
    """The entry's row of the index."""

    def joined(values: list[str]) -> str:
        pairs = zip(entry.cells, values, strict=True)
        return "; ".join(f"{cell.label}: {value}" if cell.label else value for cell, value in pairs)

    theirs_text = joined([theirs(cell) for cell in entry.cells])
    theirs_text = "; ".join(text for text in (entry.theirs, theirs_text) if text)
    studies = dict.fromkeys(cell.place.partition("/")[0] for cell in entry.cells)
    where = [f"[picture]({linked(picture_file(entry.picture))})"] if entry.picture else []
    where += [f"[{study}]({linked(page_of(study))})" for study in studies]
    cells = (
        f"**{entry.name}** {entry.shows}",
        theirs_text or "–",
        joined([ours(cell) for cell in entry.cells]) or "–",
        "; ".join(difference(cell) for cell in entry.cells) or "–",
        reason(entry),
        ", ".join(where) or "–",
    )
    return f"| {' | '.join(cells)} |"


def table(entries: Sequence[Published]) -> str:
    """The index of one paper in Markdown."""
    return "\n".join([HEAD, "|---" * 6 + "|", *map(line, entries)])


def main() -> None:
    """Print the index; write it on request."""
    from studies.published.papers import PAPERS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help=f"update docs/measurements/{PAGE.name}"
    )
    arguments = parser.parse_args()
    parts = {f"index {name}": table(entries) for name, entries in PAPERS.items()}
    for name, text in parts.items():
        print(f"## {name}\n\n{text}\n")
    if arguments.write:
        put(PAGE, parts)


if __name__ == "__main__":
    main()
