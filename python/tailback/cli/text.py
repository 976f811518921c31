"""Text for a terminal: cut, wrapped, in columns."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

import click

from tailback.names.display import (
    NO_BREAK,
    display_width,
    head_of,
    keep_units,
    printable,
    shorten_names,
)

NARROWEST, WIDEST = 80, 200
"""Columns of a terminal that tables are laid out for."""

WIDEST_TEXT = 110
"""Most columns of running text: longer lines are hard to read."""


def text_width() -> int:
    """Columns of running text."""
    return min(table_width(), WIDEST_TEXT)


def heading(title: str, subject: str = "", colour: str | None = None) -> str:
    """The first line of a section, in bold and colour on terminals that show them.

    Args:
        title: Its words, in capitals.
        subject: What follows on the same line.
        colour: Of what follows.
    """
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        title = click.style(title, bold=True)
        subject = click.style(subject, fg=colour, bold=colour is not None) if subject else ""
    return f"{title}  {subject}" if subject else title


SCREEN_LINES = 30
"""Lines of a result without ``--verbose``."""

Section = tuple[str, Sequence[str]]
"""What a part of a screen is about, in words, and its lines; none if it has nothing to say."""


def one_screen(sections: Iterable[Section], *, verbose: bool = False) -> list[str]:
    """Sections with a blank line between them, as many as fit on one screen, and what is left out.

    Args:
        sections: The sections, the most important first.
        verbose: Show all.
    """
    listed = list(sections)
    shown, left_out = fitting(listed, SCREEN_LINES, verbose=verbose)
    if not left_out:
        return shown
    shown, left_out = fitting(listed, SCREEN_LINES - 2)
    more = wrap(f"-v prints {', '.join(left_out)}", first="MORE  ", indent="      ")
    return [*shown, "", *more[:1]]


def fitting(
    sections: Iterable[Section], room: int, *, verbose: bool = False
) -> tuple[list[str], list[str]]:
    """Sections with a blank line between them, as many as fit; and what the others are about.

    Args:
        sections: The sections, the most important first. The first is always shown.
        room: Lines for all of them.
        verbose: Show all.
    """
    shown, left_out = list[str](), list[str]()
    for name, lines in sections:
        if lines and (verbose or not shown or len(shown) + 1 + len(lines) <= room):
            shown += ["", *lines] if shown else lines
        elif lines:
            left_out.append(name)
    return shown, left_out


def without_gap(lines: Sequence[str]) -> list[str]:
    """Lines without blank ones at their start."""
    start = next((i for i, line in enumerate(lines) if line), len(lines))
    return list(lines[start:])


def table_width() -> int:
    """Columns that a table may use: those of the terminal, 79 where there is none."""
    columns = shutil.get_terminal_size((NARROWEST, 24)).columns
    return min(max(columns, NARROWEST), WIDEST) - 1


def truncate(text: str, width: int) -> str:
    """A sentence cut after a word to at most ``width`` columns."""
    text = printable(text)
    if display_width(text) <= width:
        return text
    head = head_of(text, width).rpartition(" ")[0] or head_of(text, width - 1)
    return f"{head.rstrip(',;:')}…"


def align_columns(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: str = "",
    names: Collection[int] = (),
    *,
    to_type: bool = False,
) -> list[str]:
    """A plain table, not wider than the terminal where names can be shortened.

    Args:
        header: Titles of the columns.
        rows: Cells.
        right: Alignment of each column; ``r`` aligns to the right.
        names: Columns of names, which are shortened together if the table is too wide.
        to_type: Names are words to type, in the first column: one that is too long has a line of
            its own above its row instead.
    """
    columns = [list(column) for column in zip(header, *rows, strict=True)]
    widths = [max(map(display_width, column)) for column in columns]
    room = table_width() - sum(2 + width for i, width in enumerate(widths) if i not in names)
    above: dict[int, str] = {}
    # The narrowest first: the others get the width that it does not need.
    for place, i in enumerate(order := sorted(names, key=lambda i: widths[i])):
        share = room // (len(order) - place) - 2
        if widths[i] > share and to_type:
            above = {n: name for n, name in enumerate(columns[0]) if display_width(name) > share}
            columns[0] = ["" if n in above else name for n, name in enumerate(columns[0])]
            widths[0] = max(map(display_width, columns[0]))
        elif widths[i] > share:
            columns[i] = [header[i], *shorten_names(columns[i][1:], share)]
            widths[i] = max(map(display_width, columns[i]))
        room -= widths[i] + 2
    lines = []
    for number, row in enumerate(zip(*columns, strict=True)):
        padded = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - display_width(cell))
            padded.append(padding + cell if right[i : i + 1] == "r" else cell + padding)
        lines += [f"  {printable(above[number])}"] if number in above else []
        lines.append("  " + "  ".join(padded).rstrip())
    return lines


def wrap(text: str, indent: str = "  ", first: str | None = None) -> list[str]:
    """Text in lines of the screen's width, of which the first may begin in its own way.

    Lines are measured in columns as a terminal shows them (:func:`display_width`). A word that is
    longer than a line is cut.
    """
    # No line ends between a number and its unit.
    unbroken = keep_units(printable(text))
    begin = indent if first is None else first
    lines = _fill_lines(unbroken, text_width(), begin, indent, cut=True)
    return [line.replace(NO_BREAK, " ") for line in lines]


def more_line(count: int) -> list[str]:
    """A line that counts what is not on the screen; none for nothing."""
    return [f"  … and {count} more (--format json lists all)"] if count > 0 else []


def command_lines(command: str) -> list[str]:
    """A command to copy, whole: in lines that a shell joins again, if it has no quotes."""
    if "'" in command:
        return [f"  $ {printable(command)}"]
    lines = _fill_lines(printable(command), text_width() - 2, "  $ ", "      ", cut=False)
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


def _fill_lines(text: str, width: int, first: str, indent: str, *, cut: bool) -> list[str]:
    """Lines of limited width, broken at spaces. ``textwrap`` counts characters instead of columns.

    Args:
        text: The text, made safe.
        width: Columns of a line, with its beginning.
        first: Beginning of the first line.
        indent: Beginning of every other line.
        cut: Whether a word that is longer than a line is cut, or stands out.
    """
    lines: list[str] = []
    line, gap = first, ""
    for word in filter(None, text.split(" ")):
        longer = display_width(word) > width - display_width(indent)
        if gap and display_width(line + gap + word) > width and not (cut and longer):
            lines.append(line)
            line, gap = indent, ""
        while cut and display_width(line + gap + word) > width:
            head = head_of(word, max(width - display_width(line + gap), 0))
            lines.append((line + gap + head).rstrip())
            line, gap, word = indent, "", word[len(head) :]
        line, gap = line + gap + word, " "
    return [*lines, line] if gap else lines
