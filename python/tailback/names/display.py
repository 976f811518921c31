"""Names from files on a screen or in a figure: made safe, measured, and shortened as a list.

A name that is cut by itself may lose the part by which it differs from its neighbours. Names that
are listed together are therefore shortened together: words that all of them share go first, then
the parts of long words that tell nothing, and two names never become one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence

MIN_WIDTH = 12
"""Least width of a shortened name in columns: an ellipsis, a number that tells a million names
apart, and some of the name."""

SHORT_WORD = 6
"""Words up to this length are kept: an ellipsis and four characters save nothing worth having."""

LEAST_KEPT = 4
"""Characters of a shortened word that are kept: as many as people read of a GUID or a serial."""

_LONGEST = 64
"""Words whose last and first so many characters are alike are not cut: no screen has more room."""
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_MAKER = re.compile(r"(?:\b[^\W\d]+\s+)+(?=\w*\d\w{6})")
_STRUCTURE = "[]→"
"""Signs of the names of ports and links, which stay."""
_MARKS = 4
"""Characters a column is taken to hold at most: a letter and marks on it."""


NO_BREAK = "\N{NO-BREAK SPACE}"
_UNIT = r"%|[pnµm]?s|[KMGT]?i?B|[kMGT]?b(?:it)?/s|[kKMGT]?i?B/s"
_NUMBER_AND_UNIT = re.compile(rf"(?<=[0-9]) (?=(?:{_UNIT})(?![A-Za-z0-9]))")


def keep_units(text: str) -> str:
    """Text in which no line ends between a number and its unit."""
    return _NUMBER_AND_UNIT.sub(NO_BREAK, text)


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


def head_of(text: str, width: int) -> str:
    """The longest prefix of a text that fits the given number of columns."""
    text = text[: _MARKS * width]
    while display_width(text) > width:
        text = text[:-1]
    return text


def shorten_names(names: Iterable[str], width: int) -> list[str]:
    """Names that are shown together, each at most ``width`` columns wide; distinct ones stay so.

    Args:
        names: The names, in their order; one that occurs twice is shortened once.
        width: Columns for each; :data:`MIN_WIDTH` if less and there are several.
    """
    listed = list(names)
    distinct = list(dict.fromkeys(listed))
    width = max(width, MIN_WIDTH if len(distinct) > 1 else 1)
    shown = [printable(name) for name in distinct]
    for change in (_without_makers, _without_shared_words, _with_short_words):
        if max(map(display_width, shown), default=0) > width:
            shorter = change(shown)
            shown = shorter if len(set(shorter)) == len(set(shown)) else shown
    short = dict(zip(distinct, _told_apart(shown, width), strict=True))
    return [short[name] for name in listed]


def shorten(name: str, width: int) -> str:
    """A name that is shown by itself, at most ``width`` columns wide."""
    return shorten_names([name], width)[0]


def _without_makers(names: Sequence[str]) -> list[str]:
    """The names without the words before a GUID or another long number, if all names have them."""
    words = [set(re.findall(r"\w+", "".join(_MAKER.findall(name)))) for name in names]
    left_out = set.intersection(*words)
    return [_with_ellipses(_TOKEN.findall(name), left_out) for name in names]


def _without_shared_words(names: Sequence[str]) -> list[str]:
    """The names without the words that all of them have.

    A number tells a device even if all names have it, unless both ends of each link have it.
    """
    tokens = [_TOKEN.findall(name) for name in names]
    shared = set.intersection(*map(set, tokens))
    twice = {token for token in shared if all(row.count(token) > 1 for row in tokens)}
    plain = {token for token in shared if not _has_digit(token)} if len(names) > 1 else set()
    left_out = {token for token in twice | plain if len(token) > 1 and token.isalnum()}
    return [_with_ellipses(row, left_out) for row in tokens]


def _with_short_words(names: Sequence[str]) -> list[str]:
    """The names with long words cut: to what distinguishes them, or else what one reads first.

    Words of a language are recognised by their start; serial numbers often differ only at the end.
    """
    tokens = [_TOKEN.findall(name) for name in names]
    shared = set.intersection(*map(set, tokens))
    words = {token for row in tokens for token in row if len(token) > SHORT_WORD}
    plain = {word for word in words if not _has_digit(word) and word not in shared}
    numbered = {word for word in words if _has_digit(word)}
    starts = _least_kept(plain, _first)
    ends, begins = _least_kept(numbered, _last), _least_kept(numbered, _first)

    def cut(token: str) -> str:
        if token in plain and len(token) > starts + 1:
            return f"{_first(token, starts)}…"
        if token not in numbered or len(token) <= min(ends, begins) + 1:
            return token
        return f"…{_last(token, ends)}" if ends <= begins else f"{_first(token, begins)}…"

    return [re.sub("…+", "…", "".join(map(cut, row))) for row in tokens]


def _least_kept(words: Collection[str], part: Callable[[str, int], str]) -> int:
    """Fewest characters that tell the words apart, at most :data:`_LONGEST`."""
    longest = min(max(map(len, words), default=0), _LONGEST)
    kept = range(LEAST_KEPT, longest)
    return next((k for k in kept if len({part(word, k) for word in words}) == len(words)), _LONGEST)


def _has_digit(word: str) -> bool:
    return any(char.isdigit() for char in word)


def _last(word: str, count: int) -> str:
    return word[-count:]


def _first(word: str, count: int) -> str:
    return word[:count]


def _with_ellipses(tokens: Sequence[str], left_out: Collection[str]) -> str:
    """The tokens, with one ellipsis for adjacent omitted ones and the separators between them."""
    parts: list[str] = []
    for token in tokens:
        if token not in left_out:
            parts.append(token)
            continue
        if len(parts) > 1 and parts[-2] == "…" and parts[-1] not in _STRUCTURE:
            parts.pop()
        if parts[-1:] != ["…"]:
            parts.append("…")
    return re.sub(r"…\s+(?![→])", "…", "".join(parts))


def _told_apart(names: Sequence[str], width: int) -> list[str]:
    """The names cut in the middle to a width; equal ones get a number."""
    used: set[str] = set()
    out: list[str] = []
    number = 0
    for name in names:
        short = _cut(name, width)
        while short in used:
            number += 1
            tag = f"…{number}"
            short = head_of(name, width - len(tag)) + tag
        used.add(short)
        out.append(short)
    return out


def _cut(text: str, width: int) -> str:
    """Text cut in the middle to at most ``width`` columns."""
    if display_width(text) <= width:
        return text
    head = (width - 1) // 2
    tail = text[-_MARKS * width :]
    while display_width(tail) > width - 1 - head:
        tail = tail[1:]
    return f"{head_of(text, head)}…{tail}"
