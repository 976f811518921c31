"""Runs of the fluid model state in which interval packets would end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailback.cli import run as tailback
from tailback.scenario.model import parse
from tailback.simulation import FluidOptions, has_fan_in, prepare, simulate, simulate_fluid

TREE = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}}


def data(kind: str, **engine: Any) -> dict[str, Any]:
    size = {"dims": [4, 4]} if kind == "stencil2d" else {"ranks": 16}
    return {
        "fabric": TREE,
        "job": [{"pattern": {"kind": kind, "size": "64 KiB", **size}}],
        "engine": engine,
    }


@pytest.mark.parametrize("routing", ["deterministic", "adaptive", "vc", "ecmp"])
def test_packets_end_in_the_stated_interval(routing: str) -> None:
    prepared = prepare(parse(data("stencil2d", routing=routing)))
    fluid = simulate_fluid(prepared)
    low, high = (fluid.summary[f"packets_{end}_ps"] for end in ("low", "high"))
    assert low < simulate(prepared, threads=1).elapsed_ps < high
    assert any(note.startswith("packets would take") for note in fluid.notes)


def test_many_to_one_has_its_own_interval() -> None:
    classes = {}
    for kind in ("reduce-naive", "alltoall", "stencil2d"):
        fluid = simulate_fluid(prepare(parse(data(kind))))
        classes[kind] = has_fan_in(fluid.tables["messages"])
        if kind == "reduce-naive":
            assert fluid.summary["packets_low_ps"] < 0.6 * fluid.elapsed_ps
    assert classes == {"reduce-naive": True, "alltoall": False, "stencil2d": False}


OTHER_JOB = {
    "pattern": {"kind": "uniform", "ranks": 4, "size": "1 MiB"},
    "hosts": "12-15",
    "name": "other",
    "observed": False,
}


@pytest.mark.parametrize(
    ("engine", "jobs", "options", "reason"),
    [
        ({"crossbar_speedup": 2.0}, [], FluidOptions(), "ignores some settings"),
        ({}, [OTHER_JOB], FluidOptions(), "other jobs"),
        ({}, [], FluidOptions(rates="assignment"), "assignment"),
        ({}, [], FluidOptions(paths="random"), "choice of paths"),
        ({"buffer": "4 KiB"}, [], FluidOptions(), "buffers"),
    ],
)
def test_what_was_not_measured_has_no_interval(
    engine: dict[str, Any], jobs: list[dict[str, Any]], options: FluidOptions, reason: str
) -> None:
    scenario = data("stencil2d", **engine)
    if jobs:
        scenario["job"][0] = {
            "pattern": {"kind": "ring", "ranks": 12, "size": "64 KiB"},
            "hosts": "0-11",
        }
    scenario["job"] += jobs
    fluid = simulate_fluid(prepare(parse(scenario)), options)
    assert "packets_low_ps" not in fluid.summary
    assert any("no interval" in note and reason in note for note in fluid.notes)


def test_the_screen_states_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "app.toml"
    file.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 2\n[[job]]\n"
        'pattern = { kind = "stencil2d", dims = [4, 4], size = "64 KiB" }\n'
    )
    assert tailback(["simulate", str(file), "--model", "fluid", "--quiet"]) == 0
    assert "packets: " in capsys.readouterr().out
