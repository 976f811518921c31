"""Valid values of a key, from its type: the remedy when a value is out of range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from tailback.errors import nearest
from tailback.units import (
    exact_bytes,
    exact_rate,
    exact_time,
    parse_bytes,
    parse_gbps,
    parse_time_ps,
)

_WRITTEN: dict[object, Callable[[Any], str]] = {
    parse_time_ps: exact_time,
    parse_bytes: exact_bytes,
    parse_gbps: exact_rate,
}
"""How a quantity is written in a scenario, by the function that reads it."""

_BOUNDS = {
    "greater_than": "gt",
    "greater_than_equal": "ge",
    "less_than": "lt",
    "less_than_equal": "le",
}
"""The bound that a value violates, by pydantic's type of error."""


def range_problem(
    error: dict[str, Any], field: FieldInfo, value_read: object
) -> tuple[str, str] | None:
    """Message and remedy for a value that is out of range or none of the valid choices.

    Args:
        error: ``type``, ``ctx`` and ``input``, as pydantic reports them.
        field: The key.
        value_read: The value as it stands in the file.

    Returns:
        None if the value is wrong for another reason.
    """
    if error["type"] == "literal_error":
        choices = [choice for choice in _choices(field.annotation) if isinstance(choice, str)]
        return f"{value_read!r} is not a valid value", nearest(str(value_read), choices)
    violated = _BOUNDS.get(error["type"])
    if violated is None:
        return None
    bounds = {violated: error["ctx"][violated]}
    written: Callable[[Any], str] = str
    for item in [*field.metadata, *_metadata(field.annotation)]:
        written = _WRITTEN.get(getattr(item, "func", None), written)
        if not isinstance(item, BeforeValidator):
            bounds |= {
                name: value
                for name in _BOUNDS.values()
                if (value := getattr(item, name, None)) is not None
            }
    shown = value_read if isinstance(value_read, str) else f"{value_read}"
    return f"{shown} is out of range", f"give {_range(bounds, written)}"


def _range(bounds: dict[str, Any], written: Callable[[Any], str]) -> str:
    """The range between bounds in words: ``1 to 8``, ``a value above 0``."""
    if written in (exact_time, exact_bytes) and "gt" in bounds:
        # Picoseconds and bytes are whole.
        bounds = {"ge": bounds["gt"] + 1, **{k: v for k, v in bounds.items() if k != "gt"}}
    if {"ge", "le"} <= bounds.keys():
        return f"{written(bounds['ge'])} to {written(bounds['le'])}"
    words = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))
    parts = [f"{word} {written(bounds[name])}" for name, word in words if name in bounds]
    text = " and ".join(parts)
    return f"a value {text}" if text.startswith(("above", "below")) else text


def _metadata(annotation: Any) -> Iterator[Any]:
    """What ``Annotated`` says about the parts of a type, such as those of ``X | None``."""
    for part in get_args(annotation):
        if hasattr(part, "__metadata__"):
            # Of a number with bounds, FieldInfo holds those stated in Field.
            for item in part.__metadata__:
                yield from [item, *getattr(item, "metadata", ())]
        yield from _metadata(part)


def _choices(annotation: Any) -> Iterator[Any]:
    """Values of the ``Literal`` types within a type."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        return
    for part in get_args(annotation):
        yield from _choices(part)
