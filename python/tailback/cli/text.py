"""Text for a terminal of 80 columns: made safe, cut, wrapped, in columns. Needs nothing to load."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

WIDTH = 79


def printable(text: str, *, keep_newlines: bool = False) -> str:
    """Text from a file made safe for a terminal: control characters become visible."""
    return "".join(
        char
        if (char == "\n" and keep_newlines) or unicodedata.category(char)[0] != "C"
        else f"\\x{ord(char):02x}"
        for char in text
    )


def display_width(text: str) -> int:
    """Width of a text in terminal columns: wide East Asian characters 2, combining marks 0."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


_MARKS = 4
"""Characters a column is taken to hold at most: a letter and marks on it."""


def _head(text: str, width: int) -> str:
    """The longest prefix of a text that fits the given number of columns."""
    text = text[: _MARKS * width]
    while display_width(text) > width:
        text = text[:-1]
    return text


def shorten_middle(text: str, width: int) -> str:
    """Text cut in the middle to at most ``width`` columns."""
    text = printable(text)
    if display_width(text) <= width:
        return text
    head = (width - 1) // 2
    tail = text[-_MARKS * width :]
    while display_width(tail) > width - 1 - head:
        tail = tail[1:]
    return f"{_head(text, head)}…{tail}"


def truncate(text: str, width: int) -> str:
    """A sentence cut after a word to at most ``width`` columns."""
    text = printable(text)
    if display_width(text) <= width:
        return text
    head = _head(text, width).rpartition(" ")[0] or _head(text, width - 1)
    return f"{head.rstrip(',;:')}…"


def align_columns(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: str = ""
) -> list[str]:
    """A plain table; columns whose letter in ``right`` is ``r`` are aligned to the right."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(display_width(row[i]) for row in table) for i in range(len(header))]
    lines = []
    for row in table:
        padded = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - display_width(cell))
            padded.append(padding + cell if right[i : i + 1] == "r" else cell + padding)
        lines.append("  " + "  ".join(padded).rstrip())
    return lines


def wrap(text: str, indent: str = "  ", first: str | None = None) -> list[str]:
    """Text in lines of the screen's width, of which the first may begin in its own way.

    Lines are measured in columns as a terminal shows them (:func:`display_width`); a word that no
    line holds is cut.
    """
    # No line ends between a number and its per cent sign.
    whole = printable(text).replace(" %", "\N{NO-BREAK SPACE}%")
    lines = _filled(whole, WIDTH, indent if first is None else first, indent, cut=True)
    return [line.replace("\N{NO-BREAK SPACE}%", " %") for line in lines]


def command_lines(command: str) -> list[str]:
    """A command to copy, whole: in lines that a shell joins again, if it has no quotes."""
    if "'" in command:
        return [f"  $ {printable(command)}"]
    lines = _filled(printable(command), WIDTH - 2, "  $ ", "      ", cut=False)
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


def _filled(text: str, width: int, first: str, indent: str, *, cut: bool) -> list[str]:
    """Lines of at most so many columns, broken at spaces; ``textwrap`` counts characters.

    Args:
        text: What is broken, made safe.
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
            head = _head(word, max(width - display_width(line + gap), 0))
            lines.append((line + gap + head).rstrip())
            line, gap, word = indent, "", word[len(head) :]
        line, gap = line + gap + word, " "
    return [*lines, line] if gap else lines
