"""Text for a terminal of 80 columns: made safe, cut, wrapped, in columns. Needs nothing to load."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from tailback.units import percent

WIDTH = 79


def safe(text: str, *, keep_newlines: bool = False) -> str:
    """Text from a file made safe for a terminal: control characters become visible."""
    return "".join(
        char
        if (char == "\n" and keep_newlines) or unicodedata.category(char)[0] != "C"
        else f"\\x{ord(char):02x}"
        for char in text
    )


def cells(text: str) -> int:
    """Columns a text takes on a terminal: letters of East Asia take two, marks on letters none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


_MARKS = 4
"""Characters a column is taken to hold at most: a letter and marks on it."""


def _head(text: str, width: int) -> str:
    """As much of the beginning of a text as fits so many columns."""
    text = text[: _MARKS * width]
    while cells(text) > width:
        text = text[:-1]
    return text


def short(text: str, width: int) -> str:
    """Text cut in the middle to at most ``width`` columns."""
    text = safe(text)
    if cells(text) <= width:
        return text
    head = (width - 1) // 2
    tail = text[-_MARKS * width :]
    while cells(tail) > width - 1 - head:
        tail = tail[1:]
    return f"{_head(text, head)}…{tail}"


def clip(text: str, width: int) -> str:
    """A sentence cut after a word to at most ``width`` columns."""
    text = safe(text)
    if cells(text) <= width:
        return text
    head = _head(text, width).rpartition(" ")[0] or _head(text, width - 1)
    return f"{head.rstrip(',;:')}…"


def columns(header: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> list[str]:
    """A plain table; columns whose letter in ``right`` is ``r`` are aligned to the right."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(cells(row[i]) for row in table) for i in range(len(header))]
    lines = []
    for row in table:
        padded = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            room = " " * (width - cells(cell))
            padded.append(room + cell if right[i : i + 1] == "r" else cell + room)
        lines.append("  " + "  ".join(padded).rstrip())
    return lines


def wrap(text: str, indent: str = "  ", first: str | None = None) -> list[str]:
    """Text in lines of the screen's width, of which the first may begin in its own way."""
    # No line ends between a number and its per cent sign.
    lines = textwrap.wrap(
        safe(text).replace(" %", "\N{NO-BREAK SPACE}%"), WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\N{NO-BREAK SPACE}%", " %") for line in lines]


def command_lines(command: str) -> list[str]:
    """A command to copy, whole: in lines that a shell joins again, if it has no quotes."""
    if "'" in command:
        return [f"  $ {safe(command)}"]
    lines = textwrap.wrap(
        safe(command), WIDTH - 2, initial_indent="  $ ", subsequent_indent="      ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


def share_text(value: float) -> str:
    """A fraction as per cent: 0.423 → 42 %."""
    return percent(value) if value >= 0.0995 or value == 0 else percent(value, 1)
