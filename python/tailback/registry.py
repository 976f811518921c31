"""Registries: each kind of part by name; a part is one file with one registration line.

A function or class is registered by decorator in its file, and :func:`import_parts` finds the file.
A module or object that is one, like the reader of a format, is registered where it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from tailback.errors import ScenarioError, TailbackError, nearest, option_error

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
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


def with_options(
    registry: Registry[type[Model]], options: Mapping[str, object], *, section: str, page: str
) -> Model:
    """The part ``options["kind"]`` with its options checked.

    Args:
        registry: Parts whose options are their fields.
        options: ``kind`` and the options of that part.
        section: Section of the scenario that holds them, for errors.
        page: Documentation page of the parts, for errors.

    Raises:
        ScenarioError: Unknown part or option, a wrong unit or value.
    """
    kind = options.get("kind")
    if not isinstance(kind, str):
        raise ScenarioError(
            f"kind is {kind!r}",
            place=section,
            remedy=f"name a {registry.kind}; see 'tailback list {registry.kind}'",
        )
    try:
        part = registry[kind]
    except TailbackError as error:
        raise ScenarioError(error.message, place=f"{section} kind", remedy=error.remedy) from None
    try:
        return part.model_validate(options)
    except ValidationError as error:
        # An unknown key first: it is often a misspelling of one that is missing.
        first: dict[str, Any] = dict(
            min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        )
        descriptions = {name: field.description or "" for name, field in part.model_fields.items()}
        raise option_error(first, descriptions, section=section, page=page) from None


def import_parts(package: str, path: Iterable[str]) -> None:
    """Import all modules of a package, which registers their parts.

    Args:
        package: Its ``__name__``.
        path: Its ``__path__``.
    """
    for module in iter_modules(path):
        if module.name != "__main__":
            import_module(f"{package}.{module.name}")


def kinds() -> dict[str, Registry[object]]:
    """Every registry by its kind."""
    return dict(sorted(_KINDS.items()))
