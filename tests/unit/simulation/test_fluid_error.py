"""Runs of the fluid model state in which interval packets would end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.cli import run as tailback
from tailback.scenario.model import parse
from tailback.simulation import FluidOptions, prepare, simulate, simulate_fluid
from tailback.simulation.fluid_error import BEYOND, Communication

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


@pytest.mark.parametrize("buffer", ["64 KiB", "256 KiB"])
@pytest.mark.parametrize(
    ("kind", "waits"), [("reduce-naive", False), ("ring", False), ("alltoall-naive", True)]
)
def test_ranks_waiting_in_step_have_no_interval(kind: str, waits: bool, buffer: str) -> None:
    prepared = prepare(parse(data(kind, buffer=buffer)))
    fluid = simulate_fluid(prepared)
    assert ("packets_low_ps" not in fluid.summary) == waits
    assert any("wait for each other" in note for note in fluid.notes) == waits
    if not waits:
        low, high = (fluid.summary[f"packets_{end}_ps"] for end in ("low", "high"))
        assert low < simulate(prepared, threads=1).elapsed_ps < high


@pytest.mark.parametrize(
    ("elapsed", "flight", "busiest"), [(100, 60, 40), (100, 60, 90), (9, 0, 0)]
)
def test_interval_ends_at_the_measured_quantiles(elapsed: int, flight: int, busiest: int) -> None:
    unit = 10**9
    communication = Communication(elapsed * unit, flight * unit, busiest * unit, 0, 1.0)
    ends = communication.packet_interval()
    below, above = zip(*map(communication.beyond, ends), strict=True)
    assert (below[0], above[1]) == pytest.approx(BEYOND, abs=1e-6)
    assert ends[0] < elapsed * unit < ends[1]


@pytest.mark.parametrize(
    ("messages", "flight", "fan_in"),
    [
        ([(0, 1, 0, 4), (2, 1, 0, 4)], 4, 2.0),
        ([(0, 1, 0, 4), (0, 2, 0, 4)], 4, 0.5),
        ([(0, 1, 5, 9), (1, 2, 8, 12), (2, 0, 20, 21), (0, 2, 3, 3)], 8, 1.0),
        ([], 0, 1.0),
    ],
)
def test_communication_counts_overlaps_once(
    messages: list[tuple[int, ...]], flight: int, fan_in: float
) -> None:
    run = simulate_fluid(prepare(parse(data("ring"))))
    columns = ("src_rank", "dst_rank", "start_ps", "arrival_ps")
    schema = {name: run.tables["messages"].schema[name] for name in columns}
    tables = {"messages": pl.DataFrame(messages, schema=schema, orient="row")}
    communication = Communication.of(replace(run, tables=tables), 2.0, 1.0, 3)
    assert (communication.flight_ps, communication.busiest_ps) == (3 * flight, 6)
    assert communication.fan_in == fan_in


def test_interval_begins_at_the_busiest_adapter() -> None:
    prepared = prepare(parse(data("reduce-naive")))
    fluid = simulate_fluid(prepared)
    incoming = prepared.observed.program.traffic_matrix()[2].sum()
    gbps = float(prepared.fabric.link_gbps[0])
    assert fluid.summary["packets_low_ps"] >= int(incoming) * 8000 / gbps


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
