"""The points of a parameter study: a base scenario, and the values of some of its keys."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tailback.errors import ScenarioError, option
from tailback.scenario.model import Scenario, parse

Point = dict[str, Any]
"""One run of a study: scenario key → value, like ``{"job.placement": "rcm", "seed": 3}``."""

MAX_POINTS = 1_000_000
"""Limit on the number of runs: a typo in a range easily asks for more."""


def points_of(over: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination of the values, the last key varying fastest.

    Raises:
        ScenarioError: There is no key, a key has no value, or there are too many combinations.
    """
    if not over:
        raise ScenarioError(
            "a sweep needs at least one key to vary",
            remedy=f"name a key and its values in {option('over')}, like seed from 1 to 10",
        )
    total = 1
    for key, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            over = {**over, key: list(values) if not isinstance(values, str) else [values]}
        total *= len(over[key])
        if not len(over[key]):
            raise ScenarioError("has no values", place=f"sweep key {key}", remedy="give at least 1")
    if total > MAX_POINTS:
        raise ScenarioError(
            f"{total:,} combinations are more than {MAX_POINTS:,}", remedy="vary fewer keys at once"
        )
    return [
        dict(zip(over, combination, strict=True))
        for combination in itertools.product(*over.values())
    ]


def scenario_at(base: Mapping[str, Any], point: Point) -> Scenario:
    """The scenario of one point.

    Args:
        base: The base scenario as plain data, as :func:`plain_data` gives it.
        point: Keys and values. A key is a path like ``engine.routing`` or ``job.1.hosts``; without
            a number ``job.`` means the first observed job.

    Raises:
        ScenarioError: A key is unknown or a value is not valid there.
    """
    data = copy.deepcopy(dict(base))
    for key, value in point.items():
        _assign(data, key, value)
    return parse(data)


def _assign(data: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    here: Any = data
    for at, part in enumerate(path):
        if isinstance(here, list):
            here = _element(here, part, key)
            continue
        if here.get(part) is None:
            here[part] = {}
        here = here[part]
        if isinstance(here, list) and not [*path, last][at + 1].isdecimal():
            here = next((element for element in here if element.get("observed", True)), here[0])
    if not isinstance(here, dict):
        raise ScenarioError(
            f"{key!r} is not a key of any table",
            remedy="write a key as table.key, like engine.buffer or job.0.start",
        )
    here[last] = value


def _element(rows: list[Any], part: str, key: str) -> Any:
    if not part.isdecimal() or int(part) >= len(rows):
        raise ScenarioError(
            f"{part!r} in {key!r} is not one of {len(rows)} tables",
            remedy=f"tables are numbered 0 to {len(rows) - 1}",
        )
    return rows[int(part)]


def plain_data(scenario: Scenario) -> dict[str, Any]:
    """A scenario as plain data, with absolute paths."""
    data: dict[str, Any] = scenario.model_dump(mode="json", exclude_unset=True)
    places = [
        (data.get("fabric", {}), ("file", "forwarding")),
        (data.get("engine", {}).get("pacing", {}), ("rates_file",)),
        *((job, ("trace", "placement_file")) for job in data.get("job", [])),
        *((job.get("pattern") or {}, ("file",)) for job in data.get("job", [])),
    ]
    for table, keys in places:
        for key in keys:
            if table.get(key) is not None:
                table[key] = str(Path(table[key]).absolute())
    return data
