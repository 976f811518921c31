"""Host lists of launchers: one host per line, with or without a number of slots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tailback.errors import PlacementError, nearest

# Behind the ranks of a host, hydra's descendants take its processors or adapter.
_HOST = re.compile(
    r"(?:[^\s:=,@]+@)?([^\s:=,@]+)(?::(\d{1,9})(?::[^\s:=]+)?)?((?:\s+[^\s=]+=\S+)*)\Z", re.ASCII
)
_NUMBER = re.compile(r"\d{1,9}\Z", re.ASCII)
_SLOT_KEYS = ("slots", "count", "cpu")
_MAX_KEYS = ("max_slots", "max-slots", "slots_max", "slots-max")
# Keys for reaching a host and for binding, which do not affect its ranks.
_IGNORED_KEYS = ("port", "username", "user", "binding", "map", "ifname")


@dataclass(frozen=True)
class HostLine:
    """A line of the list.

    Attributes:
        host: Its name.
        count: Slots or ranks in the line; ``None`` if it has none.
        line: Line number, from 1.
    """

    host: str
    count: int | None
    line: int


@dataclass(frozen=True)
class HostList:
    """Content of a list of hosts.

    Attributes:
        lines: Its lines in order.
        slots: Whether it is an Open MPI list with slots: ranks fill host after host, and a host
            listed several times has all its slots at its first position.
        turns: Whether it is a hydra list with ``host:n``, which starts again at its end.
    """

    lines: list[HostLine]
    slots: bool
    turns: bool


def host_list(path: Path, lines: list[tuple[int, str]]) -> HostList:
    """Read numbered lines without comments, at least one.

    Raises:
        PlacementError: A line is not a host, or its slots are contradictory.
    """
    entries: list[HostLine] = []
    slots = turns = False
    for line, text in lines:
        match = _HOST.match(re.sub(" ?= ?", "=", " ".join(text.split())))
        if not match:
            raise _line_error(path, line, f"{text[:80]!r} is not a host")
        stated = _stated(path, line, match[3].split())
        if match[2] is not None and stated is not None:
            raise _line_error(
                path, line, f"{text[:80]!r} gives the number of ranks of the host twice"
            )
        slots |= stated is not None
        turns |= match[2] is not None
        entries.append(HostLine(match[1], int(match[2]) if match[2] else stated, line))
    if slots and turns:
        raise PlacementError(
            "some lines use host:n and others slots=n",
            file=path,
            remedy="write one form: host:n is MPICH's, slots=n is Open MPI's",
        )
    if slots:
        _refuse_duplicate_slots(path, entries)
    return HostList(entries, slots, turns)


def _line_error(path: Path, line: int, message: str) -> PlacementError:
    return PlacementError(
        message,
        file=path,
        place=f"line {line}",
        remedy="write one host per line, host:n for n ranks in turn, or host slots=n max_slots=m",
    )


def _stated(path: Path, line: int, words: list[str]) -> int | None:
    """Slots from the keys after a host's name, or from ``max_slots`` alone."""
    slots: int | None = None
    most: int | None = None
    for word in words:
        key, _, value = word.partition("=")
        if key in _IGNORED_KEYS:
            continue
        if key not in (*_SLOT_KEYS, *_MAX_KEYS):
            raise PlacementError(
                f"a host has no {key[:80]!r}",
                file=path,
                place=f"line {line}",
                remedy=nearest(key[:80], (*_SLOT_KEYS, *_MAX_KEYS, *_IGNORED_KEYS)),
            )
        if not _NUMBER.match(value):
            raise _line_error(path, line, f"{key} = {value[:80]!r} is not a number")
        if key in _SLOT_KEYS:
            slots = int(value)
        else:
            most = int(value)
    if slots is not None and most is not None and most < slots:
        raise PlacementError(
            f"max_slots = {most} is less than slots = {slots}",
            file=path,
            place=f"line {line}",
            remedy="Open MPI refuses that; raise max_slots or leave it out",
        )
    return most if slots is None else slots


def _refuse_duplicate_slots(path: Path, entries: list[HostLine]) -> None:
    """Open MPI accepts a host either on several lines or with slots, not both."""
    first: dict[str, HostLine] = {}
    for entry in entries:
        before = first.setdefault(entry.host, entry)
        if before is not entry and (before.count is not None or entry.count is not None):
            raise PlacementError(
                f"host {entry.host!r} is listed again after line {before.line}, with slots stated",
                file=path,
                place=f"line {entry.line}",
                remedy="list it once with slots=n, or n times without",
            )
