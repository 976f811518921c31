"""Values that are assigned to the fields of a scenario, read as in its file."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import ValidationError, create_model

from tailback.scenario import TABLE_MODELS, Scenario, explained
from tailback.scenario_engine import Section


def field_value(model: type[Section], name: str, value: object) -> object:
    """A value for one field of a table, as a scenario file may state it.

    Args:
        model: The table.
        name: The field.
        value: The value, or what the file would have for it.

    Returns:
        The validated value.

    Raises:
        ScenarioError: There is no such field, or the value is invalid.
    """
    place = _place_of(model)
    if name not in model.model_fields:
        loc = (*place, name)
        raise explained({"type": "extra_forbidden", "loc": loc}, None, None)
    try:
        return getattr(_alone(model, name).model_validate({name: value}), name)
    except ValidationError as error:
        first = error.errors()[0]
        raise explained({**first, "loc": (*place, *first["loc"])}, None, None) from None


@cache
def _alone(model: type[Section], name: str) -> type[Section]:
    """A table with one field of another: what its fields require of each other is left out."""
    field = model.model_fields[name]
    alone: dict[str, Any] = {name: (field.annotation, field)}
    return create_model(model.__name__, __base__=Section, **alone)


@cache
def _place_of(model: type[Section]) -> tuple[str, ...]:
    """Names of the tables down to one: ``("engine", "pacing")``; none for the scenario."""
    for name, table in TABLE_MODELS.items():
        if table is model:
            tables: list[type[Section]] = [Scenario, *TABLE_MODELS.values()]
            parent = next(other for other in tables if name in other.model_fields)
            return (*_place_of(parent), name)
    return ()
