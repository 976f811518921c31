"""The memory estimate of a run: close to what a run takes, and a refusal that says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailback.available import MEMORY_VARIABLE, available_memory
from tailback.errors import FabricError, ScenarioError
from tailback.fabric.builders import check_memory
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tailback.simulation.memory import estimate_memory, require_memory
from tailback.traffic.transform import repeat

# Runs a scenario in a process of its own and prints the estimate and what the run really added:
# writing 5 to clear_refs sets the high-water mark of resident memory to what it is now. Memory that
# reading the scenario has freed is given back before, as the run would use it unnoticed.
PEAK = """
import ctypes, json, sys
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tailback.simulation.execute import execute
from tailback.simulation.memory import estimate_memory

def resident(line):
    text = open("/proc/self/status").read()
    return int(text.split(line + ":")[1].split()[0]) * 1024

scenario = parse(json.loads(sys.argv[1]))
prepared = prepare(scenario)
estimate = estimate_memory(prepared.fabric, scenario, prepared.program)
getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
open("/proc/self/clear_refs", "w").write("5")
before = resident("VmRSS")
execute(prepared)
print(json.dumps([estimate.total, resident("VmHWM") - before, estimate.parts]))
"""


def scenario(**telemetry: Any) -> dict[str, Any]:
    """A two-level tree of 16 hosts under a stencil."""
    return {
        "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
        "job": [{"pattern": {"kind": "stencil2d", "dims": [4, 4], "size": "64 KiB"}}],
        "telemetry": telemetry,
    }


def tapered(size: str, messages: int, **telemetry: Any) -> dict[str, Any]:
    """4608 nodes, so many messages each to others at random."""
    pattern = {"kind": "uniform", "ranks": 4608, "size": size, "messages": messages}
    return {
        "fabric": {"preset": "tapered"},
        "job": [{"pattern": pattern}],
        "telemetry": telemetry,
    }


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(tapered("4 KiB", 120, scheme="off"), id="messages"),
        pytest.param(tapered("64 KiB", 10, windows=16), id="windows"),
        pytest.param(
            tapered("64 KiB", 4, scheme="off") | {"probes": {"counters": "500 ns"}}, id="counters"
        ),
        pytest.param(
            tapered("64 KiB", 1, scheme="off") | {"probes": {"counters": "40 ns"}}, id="often"
        ),
    ],
)
def test_the_estimate_is_within_a_factor_of_two(source: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps(source)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    estimate, measured, parts = json.loads(done.stdout)
    assert measured > 50 << 20, "too small a run to compare with"
    assert 0.5 <= estimate / measured <= 2, (estimate, measured, parts)


def test_a_run_too_large_states_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "1 MiB")
    prepared = prepare(parse(scenario(windows=4096)))
    with pytest.raises(ScenarioError) as caught:
        require_memory(prepared.fabric, prepared.scenario, prepared.program)
    text = str(caught.value)
    assert "1 MiB" in text
    assert "16 nodes" in text
    assert "remedy: " in text
    total = estimate_memory(prepared.fabric, prepared.scenario, prepared.program).total
    assert f"{total / 2**20:.4g} MiB" in text


def test_a_run_that_fits_goes_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(parse(scenario()))
    monkeypatch.setenv(MEMORY_VARIABLE, "1 GiB")
    estimate = require_memory(prepared.fabric, prepared.scenario, prepared.program)
    assert estimate.total == sum(estimate.parts.values()) < 1 << 30


def test_what_takes_the_most_decides_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(parse(tapered("64 KiB", 4, windows=4096)))
    smaller = prepare(parse(tapered("4 KiB", 1)))
    monkeypatch.setenv(MEMORY_VARIABLE, "1 MiB")
    with pytest.raises(ScenarioError, match="fewer \\[telemetry\\] windows"):
        require_memory(prepared.fabric, prepared.scenario, prepared.program)
    off = {"measure": False}
    with pytest.raises(ScenarioError, match="a machine with more memory"):
        require_memory(smaller.fabric, smaller.scenario, smaller.program, **off)


def test_a_fabric_is_built_within_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "1 MiB")
    check_memory(100, 10, 100, place="[fabric]")
    with pytest.raises(FabricError, match="1 MiB is available"):
        check_memory(4608, 288, 9216, place="[fabric]")


def test_more_of_anything_needs_more() -> None:
    few = prepare(parse(scenario()))
    least = estimate_memory(few.fabric, few.scenario, few.program, measure=False).total
    assert estimate_memory(few.fabric, few.scenario, few.program).total > least
    lanes = estimate_memory(few.fabric, few.scenario, few.program, measure=False, lanes=4)
    assert lanes.total > least
    often = estimate_memory(few.fabric, few.scenario, few.program, measure=False, times=3)
    in_full = estimate_memory(few.fabric, few.scenario, repeat(few.program, 3), measure=False)
    assert often == in_full


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1.7 GiB", 1825361100),  # 1 825 361 100.8
        ("8G", 8 << 30),
        ("1500 MB", 1_500_000_000),
        ("1.5M", 3 << 19),
        (" 2 TiB ", 2 << 40),
        ("1e9 B", 10**9),
        ("123_456 K", 123_456 << 10),
    ],
)
def test_a_limit_is_a_number_with_a_unit(
    monkeypatch: pytest.MonkeyPatch, text: str, size_bytes: int
) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, text)
    assert available_memory() == size_bytes


@pytest.mark.parametrize("text", ["much", "", "8", "8 GHz", "-1 GiB", "0 B", "0.4 B", "9e99 GiB"])
def test_a_limit_that_is_no_size_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, text)
    with pytest.raises(ScenarioError, match="TAILBACK_MEMORY") as caught:
        available_memory()
    message = str(caught.value)
    assert repr(text) in message and "for example TAILBACK_MEMORY='16 GiB'" in message
    assert ("'1.7 GiB', '8G' or '1500 MB'" in message) != (
        "at least 1 B and at most 4 EiB" in message
    )


def test_this_machine_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MEMORY_VARIABLE, raising=False)
    there = available_memory()
    assert there is None or there > 1 << 20
