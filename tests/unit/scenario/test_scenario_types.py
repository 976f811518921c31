"""Every value of a scenario has one type and one meaning: nothing is cut, wrapped or guessed."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from tailback.errors import ScenarioError, TailbackError
from tailback.fabric.topologies import TOPOLOGIES
from tailback.scenario.engine import (
    AdaptiveSection,
    CongestionControlSection,
    EngineSection,
    PacingSection,
)
from tailback.scenario.model import (
    Degraded,
    FatTree,
    JobSection,
    ProbesSection,
    Scenario,
    TelemetrySection,
    load,
    parse,
)
from tailback.simulation import prepare
from tailback.traffic.patterns import PATTERNS
from tailback.units import BYTES, GBPS, parse_bytes, parse_gbps, parse_time_ps, transfer_ps

MODELS: list[type[BaseModel]] = [
    Scenario,
    FatTree,
    Degraded,
    JobSection,
    AdaptiveSection,
    CongestionControlSection,
    PacingSection,
    EngineSection,
    TelemetrySection,
    ProbesSection,
    *(entry.part for entry in TOPOLOGIES),
    *(entry.part for entry in PATTERNS),
]
TREE = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 2}
JOB = {"pattern": {"kind": "ring", "ranks": 4, "size": "8 KiB"}}


def scalars(annotation: Any) -> set[type]:
    """The plain types that a field may have, on its own or in lists."""
    if isinstance(annotation, type) and not get_args(annotation):
        return {annotation}
    if get_origin(annotation) is Annotated:
        return scalars(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*map(scalars, get_args(annotation)))
    return set()


def fields() -> list[tuple[type[BaseModel], str, set[type]]]:
    return [
        (model, name, scalars(field.annotation))
        for model, (name, field) in (
            (model, item) for model in MODELS for item in model.model_fields.items()
        )
    ]


def complaint(model: type[BaseModel], name: str, value: Any) -> list[Any]:
    """What the model says of one value of a field, whatever it says of others."""
    try:
        model.model_validate({name: value})
    except ValueError as error:
        return [entry for entry in error.errors() if entry["loc"][:1] == (name,)]  # type: ignore[attr-defined]
    return []


@pytest.mark.parametrize(
    ("model", "name", "types"), [pytest.param(*f, id=f"{f[0].__name__}.{f[1]}") for f in fields()]
)
def test_no_field_takes_a_value_of_another_type(
    model: type[BaseModel], name: str, types: set[type]
) -> None:
    if types & {int, float} and bool not in types:
        assert complaint(model, name, True) and complaint(model, name, False)
        assert complaint(model, name, "1"), "a number in quotes"
    if int in types and float not in types:
        assert complaint(model, name, 1.5)
    if bool in types:
        assert complaint(model, name, 1) and complaint(model, name, "yes")
    if str in types:
        assert complaint(model, name, 1) and complaint(model, name, True)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"seed": True}, ["seed: true:", "whole number without quotes"]),
        ({"engine": {"services": True}}, ["[engine] services: true:", "whole number"]),
        ({"engine": {"packet": "0.5 B"}}, ["'0.5 B' is 0.5 B", "write 1 B"]),
        ({"engine": {"buffer": "1.7 KiB"}}, ["is 1740.8 B", "write 1741 B"]),
        ({"engine": {"switch_delay": "0.1 ps"}}, ["'0.1 ps' is 0.1 ps", "write 1 ps"]),
        ({"engine": {"switch_delay": False}}, ["False has no unit"]),
        ({"engine": {"packet": False}}, ["False has no unit"]),
        ({"engine": {"eager": "1e999999999999999999999999 B"}}, ["out of range"]),
        ({"telemetry": {"count_injection": "yes"}}, ["'yes'", "true or false, without quotes"]),
        ({"job": [{**JOB, "compute_scale": True}]}, ["true:", "number without quotes"]),
        (
            {"job": [{"pattern": {"kind": "ring", "ranks": True, "size": "1 B"}}]},
            ["[job.pattern] ranks: true:", "whole number without quotes"],
        ),
    ],
)
def test_a_wrong_type_is_refused_with_a_remedy(data: dict[str, Any], expected: list[str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        prepare(parse({"fabric": {"fat_tree": TREE}, "job": [JOB], **data}))
    for text in (*expected, "remedy"):
        assert text in str(caught.value)


def test_units_come_in_whole_families() -> None:
    for prefix in "KMGTP":
        assert BYTES[f"{prefix}iB"] == 1024 ** ("KMGTP".index(prefix) + 1)
        assert BYTES["kB" if prefix == "K" else f"{prefix}B"] == 1000 ** ("KMGTP".index(prefix) + 1)
    for prefix, unit in product(("k", "M", "G", "T"), ("b/s", "bit/s", "B/s")):
        bits = 8 if unit == "B/s" else 1
        power = 1000 ** ("kMGT".index(prefix) + 1)
        assert GBPS[prefix + unit] == pytest.approx(bits * power / 1e9, rel=1e-12)
    assert parse_bytes("1.5 TiB") == 3 * 2**39 and parse_bytes("2 TB") == 2 * 10**12
    assert parse_gbps("1 Tb/s") == 1000 and parse_gbps("1 kB/s") == 8e-6


def test_numbers_with_units_are_exact() -> None:
    assert parse_time_ps("0.3 us") == 300_000 and parse_time_ps("1.000001 s") == 10**12 + 10**6
    assert parse_bytes("9007199254740993 B") == 2**53 + 1  # no double holds it
    assert parse_bytes(0) == parse_time_ps(0) == 0


def test_a_rate_beyond_the_clock_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slow.toml"
    path.write_text(
        'name = "x"\n[fabric.fat_tree]\nhosts_per_leaf = 2\nleaves = 2\naggregation = 2\n'
        '[[job]]\nranks_per_host = 4\n[job.pattern]\nkind = "ring"\nranks = 4\nsize = "8 KiB"\n'
        '[engine]\nlocal_rate = "1e-13 Gb/s"\n'
    )
    with pytest.raises(TailbackError, match=r"local_rate.*8 KiB at 1e-13 Gb/s take more than 53"):
        prepare(load(path))
    path.write_text(path.read_text().replace("ranks_per_host = 4", "ranks_per_host = 1"))
    prepare(load(path))  # Nothing is sent within a host.


def test_transfer_time_is_finite_or_an_error() -> None:
    assert transfer_ps(8192, 100) == 655_360
    for size, rate in ((8192, 1e-13), (2**62, 1e-300), (1, 0.0), (1, float("nan"))):
        with pytest.raises(ValueError, match="more than 53 days"):
            transfer_ps(size, rate)
