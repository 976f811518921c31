"""One thing, one file, one registration line: how every kind of part is found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from tailback.errors import TailbackError, nearest

T = TypeVar("T")
_KINDS: dict[str, Registry[object]] = {}


@dataclass(frozen=True)
class RegistryEntry(Generic[T]):
    """One registered part: its name, a one-line summary and the part itself."""

    name: str
    summary: str
    part: T


class Registry(Generic[T]):
    """The parts of one kind by name; ``tailback list KIND`` prints it."""

    def __init__(self, kind: str, summary: str) -> None:
        self.kind = kind
        self.summary = summary
        self._entries: dict[str, RegistryEntry[T]] = {}
        _KINDS[kind] = self  # type: ignore[assignment]

    def register(self, name: str) -> Callable[[T], T]:
        """Decorate a part to register it; its docstring's first line is the summary."""

        def add(part: T) -> T:
            if name in self._entries:
                raise RuntimeError(f"{self.kind} {name!r} is registered twice")
            doc = (getattr(part, "__doc__", None) or "").strip().split("\n", 1)[0]
            self._entries[name] = RegistryEntry(name, doc, part)
            return part

        return add

    def __getitem__(self, name: str) -> T:
        """Return the part called ``name`` or raise an error that names the nearest one."""
        try:
            return self._entries[name].part
        except KeyError:
            raise TailbackError(
                f"unknown {self.kind} {name!r}", remedy=nearest(name, self._entries)
            ) from None

    def __iter__(self) -> Iterator[RegistryEntry[T]]:
        return iter(sorted(self._entries.values(), key=lambda entry: entry.name))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries)


def kinds() -> dict[str, Registry[object]]:
    """Every registry by its kind."""
    return dict(sorted(_KINDS.items()))
