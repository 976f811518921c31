"""A setting that the engine refuses: its key, its value with a unit, and the valid range."""

from __future__ import annotations

from typing import Any

import pytest

from tailback.errors import FabricError, ScenarioError
from tailback.scenario.model import parse
from tailback.simulation import simulate

FABRIC = {"fat_tree": {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}}
RING = {"pattern": {"kind": "ring", "ranks": 4, "size": "64 KiB"}}
PER_DESTINATION = {"injection": "per-destination"}


def run(fabric: dict[str, Any] = FABRIC, **tables: Any) -> None:
    simulate(parse({"fabric": fabric, "job": [RING], **tables}))


def control(**keys: Any) -> dict[str, Any]:
    return {**PER_DESTINATION, "congestion_control": keys}


@pytest.mark.parametrize(
    ("engine", "expected", "remedy"),
    [
        ({"packet": "0 B"}, "[engine] packet: 0 B is out of range", "give 1 B to 1 MiB"),
        ({"packet": "2 MiB"}, "[engine] packet: 2 MiB is out of range", "give 1 B to 1 MiB"),
        ({"header": "1 MiB"}, "[engine] header: 1 MiB is out of range", "at most 64 KiB"),
        (
            {"buffer": "1 KiB", "header": "8 B"},
            "[engine] buffer: 1 KiB is less than a packet with its header, 4104 B",
            "give at least 4104 B",
        ),
        (
            {"send_delay": "5000 s"},
            "[engine] send_delay: 5000 s is out of range",
            "give at most 4503 s",
        ),
        (
            {"adaptive": {"per": "flowlet", "gap": "5000 s"}},
            "[engine.adaptive] gap: 5000 s is out of range",
            "give at most 4503 s",
        ),
        (
            {"local_rate": "0 Gb/s"},
            "[engine] local_rate: 0 Gb/s is out of range",
            "give a rate above 0",
        ),
        (
            {"injection_rate": "1 kb/s"},
            "[engine] injection_rate: 1 kb/s is out of range",
            "give 0.001 Gb/s to",
        ),
        ({"services": 9}, "[engine] services: 9 is out of range", "give 1 to 8"),
        (
            {"services": 2, "lane_weights": ["8 KiB"]},
            "[engine] lane_weights: a list of 1 does not fit services = 2",
            "give one weight",
        ),
        (
            {"crossbar_speedup": 0.01},
            "[engine] crossbar_speedup: 0.01 is out of range",
            "0.1 to 1000",
        ),
        ({"crossbar_speedup": -1}, "[engine] crossbar_speedup: -1 is out of range", "0 to 1000"),
        ({"routing": "adaptiv"}, "[engine] routing: 'adaptiv' is not a valid value", "'adaptive'"),
        (
            {"pacing": {"kind": "elastic", "percent": 0}},
            "[engine.pacing] percent: 0 is out of range",
            "give 1 to 100",
        ),
        (
            {"pacing": {"kind": "elastic"}},
            "[engine] injection: fifo has no queue per destination",
            'set injection = "per-destination", or leave [engine.pacing] out',
        ),
        (
            control(scheme="rgbcc", green="64 KiB"),
            "[engine.congestion_control]: green = 64 KiB is not below threshold = 32 KiB",
            "lower green",
        ),
    ],
)
def test_a_wrong_engine_setting(engine: dict[str, Any], expected: str, remedy: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        run(engine=engine)
    assert str(caught.value).startswith(expected)
    assert remedy in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("telemetry", "expected", "remedy"),
    [
        (
            {"rule": "proportional", "rule_bytes": "0 B"},
            "[telemetry] rule_bytes: 0 B is no threshold",
            "give at least 1 B",
        ),
        (
            {"header_loss": 1.0},
            "[telemetry] header_loss: 1.0 is out of range",
            "give at least 0 and below 1",
        ),
        ({"windows": 0}, "[telemetry] windows: 0 is out of range", "give 1 to 4096"),
    ],
)
def test_a_wrong_telemetry_setting(telemetry: dict[str, Any], expected: str, remedy: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        run(telemetry=telemetry)
    assert str(caught.value).startswith(expected)
    assert remedy in str(caught.value.remedy)


def test_a_cable_too_long_to_simulate_is_named() -> None:
    ring = {"topology": {"kind": "torus", "dims": [4, 4], "delay": "5 ms"}}
    with pytest.raises(FabricError, match=r"r0-0\[\d+\] → r\S+ has a delay of 5 ms; the engine"):
        run(fabric=ring)


def test_counts_beyond_the_engine_say_what_to_change() -> None:
    job = {"pattern": {"kind": "ring", "ranks": 2, "size": "4 TiB"}}
    scenario = parse({"fabric": FABRIC, "job": [job], "engine": {"packet": "1 B"}})
    with pytest.raises(ScenarioError, match="packets of a message: 4398046511104 is more") as error:
        simulate(scenario)
    assert "larger [engine] packet" in str(error.value.remedy)
