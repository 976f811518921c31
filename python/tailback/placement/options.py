"""Reads the options of a placement, checks every value and refuses unknown names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tailback.errors import PlacementError, nearest

Options: TypeAlias = Mapping[str, object]
"""``placement_options`` of a scenario's job."""


def refuse_unknown(placement: str, options: Options, valid: Iterable[str] = ()) -> None:
    """Raise PlacementError if ``options`` contains an unknown option of ``placement``."""
    names = list(valid)
    for name in options:
        if name not in names:
            raise PlacementError(
                f"placement {placement!r} has no option {str(name)!r}",
                place="placement_options",
                remedy=nearest(str(name), names) if names else "it takes no options",
            )


def _wrong(name: str, value: object, what: str) -> PlacementError:
    return PlacementError(
        f"{name} = {value!r} is not {what}", place="placement_options", remedy=f"give {what}"
    )


def integer(options: Options, name: str, default: int, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _wrong(name, value, f"a whole number of at least {least}")
    return value


def number(options: Options, name: str, default: float) -> float:
    """A finite number of at least 0."""
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e300:
        raise _wrong(name, value, "a number of at least 0")
    return float(value)


def flag(options: Options, name: str, default: bool) -> bool:
    """True or false."""
    value = options.get(name, default)
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false")
    return value


def text(options: Options, name: str, default: str) -> str:
    """A text."""
    value = options.get(name, default)
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    return value


def extents(options: Options, name: str) -> tuple[int, ...]:
    """A list of whole numbers of at least 1; empty when the option is absent."""
    value = options.get(name, ())
    if not isinstance(value, list | tuple) or not all(
        isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**31 for n in value
    ):
        raise _wrong(name, value, "a list of whole numbers, like [8, 4]")
    return tuple(int(n) for n in value)
