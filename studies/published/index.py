"""An index of published figures: what each shows, theirs and ours, from the tables of other pages.

    python -m studies.published.index             print it
    python -m studies.published.index --write     also write it to its page

No number of ours is written here: each is looked up in a generated table of a page in
docs/measurements, by page, table, row and column.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from bench._pages import put

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "measurements"
PAGE: Final = FOLDER / "reproduction.md"
HEAD: Final = "| figure | theirs | ours | difference | reason, as tested | where |"


@dataclass(frozen=True)
class Cell:
    """One number of ours, by its place.

    Attributes:
        place: Page and table, like ``cases.md/stencil2d``.
        row: First cell of its row; ``row-major|leaf-up: congested`` names the first two.
        label: What to call it in the index; empty: nothing.
        theirs: The published value where the table has no column for it.
        column: Number of the column, from 1, where the table has no column "ours".
    """

    place: str
    row: str
    label: str = ""
    theirs: str | None = None
    column: int | None = None


@dataclass(frozen=True)
class Published:
    """One figure or table of a paper.

    Attributes:
        name: Its number, or the slide's title.
        shows: What it shows.
        cells: Numbers of ours for it.
        reason: Why both differ, as tested; or why nothing can be compared.
        picture: Our picture, relative to the page.
        theirs: What the paper says in words, where its figure has no number.
    """

    name: str
    shows: str
    cells: tuple[Cell, ...] = ()
    reason: str = ""
    picture: str = ""
    theirs: str = ""


@cache
def table_rows(place: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows of a generated table, by page and name: ``cases.md/stencil2d``."""
    page, _, name = place.partition("/")
    text = (FOLDER / page).read_text(encoding="utf-8")
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


_NUMBER: Final = re.compile(r"^[≈+]?\s*([-−]?[\d,]+(?:\.\d+)?)\s*([^\d\s(]*)\s*(?:$|\()")


def difference(cell: Cell) -> str:
    """Ours over theirs in percent, in points where both are percentages; a dash in words."""
    header, row = _row(cell)
    number = _column(header, "difference")
    if cell.theirs is None and number is not None and row[number]:
        return row[number]
    found = [_NUMBER.match(text) for text in (theirs(cell), ours(cell))]
    if found[0] is None or found[1] is None or found[0][2] != found[1][2]:
        return "–"
    before, after = (float(m[1].replace(",", "").replace("−", "-")) for m in found if m)
    if found[0][2] == "%":
        return f"{after - before:+.1f} points"
    return f"{100 * (after / before - 1):+.1f} %" if before else "–"


def line(entry: Published) -> str:
    """The entry's row of the index."""

    def joined(values: list[str]) -> str:
        pairs = zip(entry.cells, values, strict=True)
        return "; ".join(f"{cell.label}: {value}" if cell.label else value for cell, value in pairs)

    theirs_text = joined([theirs(cell) for cell in entry.cells])
    theirs_text = "; ".join(text for text in (entry.theirs, theirs_text) if text)
    pages = list(dict.fromkeys(cell.place.partition("/")[0] for cell in entry.cells))
    where = [f"[picture]({entry.picture})"] if entry.picture else []
    where += [f"[{page.removesuffix('.md')}]({page})" for page in pages if page != PAGE.name]
    where += ["below"] if PAGE.name in pages else []
    cells = (
        f"**{entry.name}** {entry.shows}", theirs_text or "–",
        joined([ours(cell) for cell in entry.cells]) or "–",
        "; ".join(difference(cell) for cell in entry.cells) or "–",
        entry.reason, ", ".join(where) or "–",
    )  # fmt: skip
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
