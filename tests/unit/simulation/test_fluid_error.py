"""Runs of the fluid model state in which interval packets would end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailback.cli import run as tailback
from tailback.scenario import parse
from tailback.simulation import FluidOptions, prepare, simulate, simulate_fluid
from tailback.simulation.fluid_error import ERRORS, FAN_IN, message_fan_in

TREE = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}}


def data(kind: str, **engine: Any) -> dict[str, Any]:
    size = {"dims": [4, 4]} if kind == "stencil2d" else {"ranks": 16}
    return {"fabric": TREE, "job": [{"pattern": {"kind": kind, "size": "64 KiB", **size}}],
            "engine": engine}  # fmt: skip


@pytest.mark.parametrize("routing", ["deterministic", "adaptive", "vc", "ecmp"])
def test_packets_end_in_the_stated_interval(routing: str) -> None:
    prepared = prepare(parse(data("stencil2d", routing=routing)))
    fluid = simulate_fluid(prepared)
    assert fluid.summary["paths"] in ERRORS
    low, high = (fluid.summary[f"packets_{end}_ps"] for end in ("low", "high"))
    assert low < simulate(prepared, threads=1).elapsed_ps < high
    assert 0 < high - low < fluid.elapsed_ps
    assert any(note.startswith("packets would take") for note in fluid.notes)


def test_many_senders_to_one_have_an_interval_of_their_own() -> None:
    found = {}
    for kind in ("reduce-naive", "alltoall", "stencil2d"):
        fluid = simulate_fluid(prepare(parse(data(kind))))
        found[kind] = message_fan_in(fluid.tables["messages"])
        if kind == "reduce-naive":
            assert fluid.summary["packets_low_ps"] < 0.5 * fluid.elapsed_ps
    assert found["reduce-naive"] > FAN_IN > found["alltoall"]
    assert found["stencil2d"] < FAN_IN


def test_what_was_not_measured_has_no_interval() -> None:
    prepared = prepare(parse(data("stencil2d", crossbar_speedup=2.0)))
    assert "packets_low_ps" not in simulate_fluid(prepared).summary
    prepared = prepare(parse(data("stencil2d")))
    assert (
        "packets_low_ps" not in simulate_fluid(prepared, FluidOptions(rates="assignment")).summary
    )


def test_the_screen_states_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "app.toml"
    file.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 2\n[[job]]\n"
        'pattern = { kind = "stencil2d", dims = [4, 4], size = "64 KiB" }\n'
    )
    assert tailback(["simulate", str(file), "--model", "fluid", "--quiet"]) == 0
    assert "packets: " in capsys.readouterr().out
