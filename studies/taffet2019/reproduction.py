"""Rows of the page that compares the thesis's figures with ours, and its command line.

Each study gives rows; ``--write`` puts them into README.md of the study.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from measuring import put

PAGE = Path(__file__).resolve().with_name("README.md")
FIGURES = PAGE.with_name("figures")

HEAD = "| quantity | theirs | ours | difference | reason, as tested |"


@dataclass(frozen=True)
class Row:
    """A figure of the thesis and ours.

    Attributes:
        quantity: What it is a figure of.
        theirs: As published; a dash where the thesis gives none.
        ours: As computed or measured.
        difference: Between both, as computed; see ``state_agreement`` for rows without a number.
        reason: Why they differ, as found by changing one thing at a time; where they agree, what
            was tested.
    """

    quantity: str
    theirs: str
    ours: str
    difference: str
    reason: str = ""


def state_agreement(holds: bool) -> str:
    """Difference of a row whose numbers were compared: "none" where the comparison holds."""
    return "none" if holds else "see ours"


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    lines = [HEAD, "|---" * 5 + "|"]
    lines += [
        f"| {row.quantity} | {row.theirs} | {row.ours} | {row.difference} | {row.reason} |"
        for row in rows
    ]
    return "\n".join(lines)


def run(doc: str, name: str, parts: Callable[[], str], page: Path = PAGE) -> None:
    """Command line of a study: print its part of the page, and write it on request."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    text = parts()
    print(text)
    if arguments.write:
        put(page, {name: text})
