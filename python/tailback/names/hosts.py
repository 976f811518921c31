"""Host lists of Slurm and PBS: ``node[001-003,7],login1,rack[1-2]n[1-4]``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tailback.errors import PlacementError

MAX_HOSTS = 1 << 20
"""A longer list of hosts is a mistake or an attempt to exhaust memory."""

_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_REMEDY = "write hosts like node[001-003,7],login1"


def expand_hosts(text: str) -> list[str]:
    """The hosts that a list names, in its order.

    Args:
        text: Names with ranges in brackets, also several in a name, separated by commas, blanks or
            semicolons outside brackets. Digits keep their width: ``n[08-10]`` is n08, n09, n10.

    Raises:
        PlacementError: A bracket is unmatched, a range is invalid or descending, or there are more
            than a million hosts.
    """
    out: list[str] = []
    for item in _items(text):
        names = [""]
        for part in re.split(r"(\[[^\[\]]*\])", item):
            if not part.startswith("["):
                if "[" in part or "]" in part:
                    raise _wrong(item, "unmatched bracket")
                names = [name + part for name in names]
                continue
            numbers = list(_numbers(part[1:-1], item))
            if len(names) * len(numbers) + len(out) > MAX_HOSTS:
                raise _wrong(item, f"more than {MAX_HOSTS:,} hosts")
            names = [name + number for name in names for number in numbers]
        out.extend(names)
    return out


def _items(text: str) -> Iterator[str]:
    """The names, split outside of brackets."""
    for match in re.finditer(r"(?:\[[^\]]*(?:\]|$)|[^\s,;\[])+", text):
        yield match.group()


def _numbers(text: str, item: str) -> Iterator[str]:
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise _wrong(item, f"{part[:40]!r} is neither a number nor a range")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _wrong(item, f"the range {part[:40]!r} runs backwards")
        if int(last) - int(first) >= MAX_HOSTS:
            raise _wrong(item, f"more than {MAX_HOSTS:,} hosts")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


def _wrong(item: str, message: str) -> PlacementError:
    return PlacementError(f"{item[:60]!r}: {message}", remedy=_REMEDY)
