"""Names of hosts: lists of Slurm and PBS, and names that differ in their domain or in case.

A list is like ``node[001-003,7],login1,rack[1-2]n[1-4]``. ``h00``, ``H00`` and ``h00.example.org``
may be one host: files of several tools are joined by such names (:class:`HostNames`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tailback.errors import PlacementError, TailbackError

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


def fold_hosts(hosts: Iterable[str]) -> str:
    """A list of hosts with ranges in brackets: the inverse of :func:`expand_hosts`.

    Args:
        hosts: Their names. Those that differ in their last number alone are joined.
    """
    numbers: dict[tuple[str, int], list[int]] = {}
    for host in dict.fromkeys(hosts):
        match = re.search(r"(?<![0-9])[0-9]{1,18}$", host, re.ASCII)
        start = host[: match.start()] if match else host
        numbers.setdefault((start, len(match[0]) if match else 0), []).append(
            int(match[0]) if match else 0
        )
    items = []
    for (start, width), listed in numbers.items():
        ranges = list[list[int]]()
        for number in sorted(listed):
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        parts = [f"{a:0{width}d}" + (f"-{b:0{width}d}" if b > a else "") for a, b in ranges]
        bracketed = parts[0] if len(listed) == 1 else f"[{','.join(parts)}]"
        items.append(start + bracketed if width else start)
    return ",".join(items)


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


class HostNames:
    """The hosts or devices of a fabric, found by names that differ in their domain or in case.

    Two names agree if they are equal apart from case, or if one of them lacks the end of the
    other's domain. What follows a blank, the adapter of a host, must agree too.

    Args:
        names: The names in the fabric.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)
        self._short: dict[tuple[str, str], list[str]] = {}
        for name in sorted(self._names):
            domain, adapter = _parts(name)
            self._short.setdefault((domain[0], adapter), []).append(name)

    def find(self, name: str) -> str | None:
        """The name in the fabric; None if it has no such name.

        Raises:
            TailbackError: Several names agree with it.
        """
        if name in self._names:
            return name
        domain, adapter = _parts(name)
        agreeing = [
            other
            for other in self._short.get((domain[0], adapter), [])
            if all(a == b for a, b in zip(domain, _parts(other)[0], strict=False))
        ]
        if len(agreeing) > 1:
            raise TailbackError(
                f"{name[:80]!r} may be {agreeing[0][:80]!r} or {agreeing[1][:80]!r} of the fabric",
                remedy="name it as the fabric does",
            )
        return agreeing[0] if agreeing else None

    def joined(self, names: Iterable[str]) -> dict[str, str]:
        """Names in the fabric of those names that differ from them.

        Raises:
            TailbackError: Several names agree with one, or two of the names are one in the fabric.
        """
        spelling: dict[str, str] = {}
        for name in dict.fromkeys(names):
            same = self.find(name)
            if same is not None and spelling.setdefault(same, name) != name:
                raise two_spellings(spelling[same], name, same)
        return {name: same for same, name in spelling.items() if same != name}


def two_spellings(first: str, second: str, name: str) -> TailbackError:
    """The error for two names of a file that may be one in the fabric."""
    return TailbackError(
        f"{first[:80]!r} and {second[:80]!r} may both be {name[:80]!r} of the fabric",
        remedy="give each host one name",
    )


def spelling_notes(joined: dict[str, str], source: str) -> list[str]:
    """A note on names of a source that differ from those in the fabric."""
    if not joined:
        return []
    name, same = next(iter(joined.items()))
    return [
        f"names in {source} that differ in domain or case from those in the fabric: "
        f"{len(joined)}, like {name[:60]} for {same[:60]}"
    ]


def _parts(name: str) -> tuple[list[str], str]:
    """The labels of a host's domain name, and what follows it, without case."""
    host, _, adapter = name.casefold().partition(" ")
    labels = host.split(".")
    # An address is not a name with a domain.
    return ([host] if labels[0].isdecimal() else labels), adapter
