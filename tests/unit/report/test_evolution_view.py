"""The evolution page, tier panels, stalls spread over windows, and the studies' relations."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.cli import run as tailback
from tailback.fabric.builders import fat_tree
from tailback.port_counters.analysis.evolution import columns_of, from_torus, time_unit
from tailback.port_counters.analysis.evolution_run import (
    torus_rows,
)
from tailback.port_counters.analysis.evolution_tiers import tier_panels
from tailback.port_counters.readers.engine_run import from_run, spread_stalls
from tailback.port_counters.schema import INTERVALS, CounterError, conform
from tailback.report.evolution import render_evolution, torus_panels
from tailback.run.run import Run
from tailback.scenario.model import FatTree, load, parse
from tailback.simulation import prepare, simulate
from tests.factories.repository import ROOT


def rows(stall: list[list[float]]) -> pl.DataFrame:
    """Intervals of 10 ns of some links."""
    table = np.array(stall)
    links, windows = table.shape
    return conform(
        INTERVALS,
        pl.DataFrame(
            {
                "link": np.repeat(np.arange(links), windows),
                "time_ns": np.tile(10 * np.arange(1, windows + 1), links),
                "interval_ns": 10,
                "stall_ns": table.ravel(),
                "stall_fraction": table.ravel() / 10,
            }
        ),
    )


def test_a_long_stall_is_spread_backwards() -> None:
    spread_rows = spread_stalls(rows([[0, 2, 25, 4], [1, 0, 0, 10]]))
    assert spread_rows["stall_ns"].to_list() == [7, 10, 10, 4, 1, 0, 0, 10]
    assert spread_rows["stall_fraction"].max() == 1.0
    assert spread_stalls(spread_rows).equals(spread_rows)
    with pytest.raises(CounterError, match="different windows"):
        spread_stalls(rows([[0, 2], [1, 0]]).head(3))


def test_tier_panels_hold_every_link_once() -> None:
    fabric = fat_tree(
        FatTree(hosts_per_leaf=3, leaves=4, aggregation=2, pods=2, cores=2, aggregation_uplinks=2)
    )
    panels = tier_panels(fabric)
    placed = np.concatenate([panel.links[panel.links >= 0] for panel in panels])
    assert np.array_equal(np.sort(placed), np.arange(fabric.n_links))
    assert [panel.title for panel in panels][:2] == [
        "aggregation → core",
        "core → aggregation",
    ]
    counts = {panel.title: panel.links.shape for panel in panels}
    assert counts["leaf → aggregation"] == (2, 8) and counts["host → leaf"] == (3, 8)
    names = {0: "ToR", 1: "leaf", 2: "spine"}
    assert tier_panels(fabric, names)[0].title == "leaf → spine"


def small_torus(y: str) -> Run:
    """Uniform traffic that fills Y of a small torus."""
    return simulate(
        prepare(
            parse(
                {
                    "fabric": {
                        "topology": {
                            "kind": "blue-waters",
                            "dims": [6, 6, 3],
                            "rates": ["9.4 GB/s", y, "15 GB/s"],
                        }
                    },
                    "engine": {"packet": "4 KiB", "buffer": "32 KiB"},
                    "telemetry": {"windows": 8},
                    "job": [
                        {
                            "pattern": {
                                "kind": "paced",
                                "ranks": 216,
                                "size": "32 KiB",
                                "load": 0.5,
                                "duration": "120 us",
                                "line_rate": "83.2 Gb/s",
                            }
                        }
                    ],
                }
            )
        )
    )


@pytest.mark.slow
def test_x_stalls_most_because_y_is_narrow(tmp_path: Path) -> None:
    stall = {}
    for y in ("4.7 GB/s", "18.8 GB/s"):
        run = small_torus(y)
        intervals = torus_rows(run, from_run(run).intervals)
        assert set(intervals["direction"].unique()) == {"X+", "X-", "Y+", "Y-", "Z+", "Z-"}
        sums = intervals.group_by(pl.col("direction").str.head(1)).agg(
            pl.col("stall_fraction").mean()
        )
        stall[y] = dict(sums.iter_rows())
    narrow, wide = stall["4.7 GB/s"], stall["18.8 GB/s"]
    assert narrow["X"] > max(narrow["Y"], narrow["Z"])
    assert narrow["X"] > 2 * wide["X"]
    run.write(tmp_path / "run")
    out = tmp_path / "page.html"
    assert (
        tailback(["evolution", str(tmp_path / "run"), "--threshold", "5", "--out", str(out)]) == 0
    )
    text = out.read_text()
    assert "z = 2" in text and "<h1>" in text
    assert re.search(
        r"<td>z = 0</td><td class=\"n\">[\d.]+</td><td class=\"n\">\d+ of 36</td>", text
    )
    assert "report.html" not in text
    # The page of a result, or of a run in it, links to its report.
    (tmp_path / "diagnosis.json").write_text("{}")
    (tmp_path / "report.html").write_text("")
    (tmp_path / "a b").mkdir()
    linked = tmp_path / "a b" / "linked.html"
    assert tailback(["evolution", str(tmp_path / "run"), "--out", str(linked)]) == 0
    assert '<a href="../report.html">Report</a>' in linked.read_text()
    # A torus is drawn as rings and slices: a drawing of its switches in one row says nothing.
    assert tailback(["report", str(tmp_path / "run"), "--out", str(tmp_path / "torus.html")]) == 0
    report = (tmp_path / "torus.html").read_text()
    assert 'id="grids"' in report and 'id="fabric"' not in report
    assert tailback(["evolution", str(tmp_path / "run"), "--out", str(out)]) == 2


def test_names_never_become_markup() -> None:
    evil = "</script><script>alert(1)</script>\x1b[31m"
    where = pl.DataFrame({"node_name": [f"{evil}{n}" for n in range(4)], "x": range(4)})
    where = where.with_columns(y=pl.lit(0), z=pl.lit(0))
    stalls = conform(
        INTERVALS,
        pl.DataFrame(
            {
                "node_name": where["node_name"].to_list() * 2,
                "time_ns": [1] * 4 + [2] * 4,
                "direction": "X+",
                "stall_fraction": [0.9, 0.8, 0.0, 0.5] * 2,
            }
        ),
    )
    graph = from_torus(stalls, where, "X+")
    page = render_evolution(graph, torus_panels(where, graph.places), title=evil)
    assert page == render_evolution(graph, torus_panels(where, graph.places), title=evil)
    assert page.count("<script") == 3 and "alert(1)</script>" not in page
    assert "\x1b" not in page and r"\x1b[31m" in page
    assert re.search(r"script-src &#39;sha256-[^&]+&#39;", page)
    assert re.search(r"<p>2 features of links that stall for .* %.*, in 1 evolution; 0 split", page)
    columns = columns_of(graph)
    assert columns.tolist() == [0, 0]
    assert time_unit(graph.steps)[0] == "ns"


def test_evolution_of_a_run_with_counter_probes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All nodes of a small torus send to one: X links into its column stall."""
    topology = {"kind": "torus", "dims": [4, 4], "nodes_per_switch": 1}
    job = {"pattern": {"kind": "reduce-naive", "ranks": 16, "arrays": 8, "size": "64 KiB"}}
    data = {
        "fabric": {"topology": topology},
        "job": [job],
        "probes": {"counters": "20 us"},
        "engine": {"routing": "deterministic"},
    }
    simulate(parse(data)).write(tmp_path / "run")
    page = str(tmp_path / "page.html")
    assert tailback(["evolution", str(tmp_path / "run"), "--out", page]) == 0
    assert not capsys.readouterr().out.startswith("0 features")


def test_evolution_needs_the_fabric_of_measured_counters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    look = ROOT / "examples" / "counters" / "leaf06-12h00.txt"
    assert tailback(["evolution", str(look), "--out", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err
    assert "--fabric" in error and "--geometry" in error


GEMINI = "#Time, Time_usec, ProducerName, X+_traffic (B), X+_credit_stall (ns)"
STALLED = {"nid0": (0, 30), "nid1": (0, 30), "nid2": (45, 45), "nid4": (0, 0)}
"""Seconds that the X+ link of the router of a node stalled in the first and second minute."""


def gemini(path: Path, coordinates: dict[str, tuple[int, int, int]] | None = None) -> Path:
    """An LDMS CSV of three instants; stall is summed over the eight tiles of an X link."""
    lines = [GEMINI]
    if coordinates is not None:
        lines[0] += "".join(f", nettopo_mesh_coord_{axis}" for axis in "XYZ")
    for minute in range(3):
        for node, seconds in STALLED.items():
            stall = 8 * 10**9 * sum(seconds[:minute])
            place = "" if coordinates is None else ", " + ", ".join(map(str, coordinates[node]))
            lines.append(f"{60 * minute + 60}.0, 0, {node}, 0, {stall}{place}")
    path.write_text("\n".join(lines) + "\n")
    return path


PLACES = {"nid0": (0, 2, 1), "nid1": (0, 2, 1), "nid2": (1, 2, 1), "nid4": (2, 0, 0)}


@pytest.mark.parametrize("inside", [True, False])
def test_evolution_of_gemini_counters_with_coordinates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inside: bool
) -> None:
    """The coordinates are in the counters, or in a file; two nodes share router (0,2,1)."""
    counters = gemini(tmp_path / "day.csv", PLACES if inside else None)
    words = ["evolution", str(counters), "--threshold", "40", "--out", str(tmp_path / "p.html")]
    if not inside:
        rows = [f"{name},{x},{y},{z}" for name, (x, y, z) in PLACES.items()]
        (tmp_path / "routers.csv").write_text("\n".join(["name,x,y,z", *rows]) + "\n")
        words += ["--geometry", str(tmp_path / "routers.csv")]
    assert tailback(words) == 0
    # (1,2,1) in both minutes; in the second (0,2,1) joins it: one evolution of two features.
    assert "2 features in 1 evolutions, 0 split, 0 merge" in capsys.readouterr().out
    assert "X+" in (tmp_path / "p.html").read_text()
    assert tailback([*words, "--direction", "Y-", "--force"]) == 2
    assert "direction Y-" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,x,y\nnid0,1,2\n", "no column for the z"),
        ("name,x,y,z\nnid0,1,2,\n", "line 2, column 4"),
        ("name,x,y,z\nnid0,1,-2,0\n", "line 2, column 3"),
        ("name,x,y,z\nnid0,1,2,0\nnid0,1,2,3\n", "has two places"),
        ("name,x,y,z\nnid0,1,2,9999999999\n", "too large"),
        ("name,x,y,z\nnid77,1,2,3\n", "none of its nodes"),
    ],
)
def test_mistakes_in_a_geometry_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "routers.csv").write_text(text)
    words = ["evolution", str(gemini(tmp_path / "day.csv")), "--geometry"]
    assert tailback([*words, str(tmp_path / "routers.csv"), "--out", str(tmp_path / "p")]) == 2
    assert message in capsys.readouterr().err


def test_options_without_effect_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    demo, looks = ROOT / "examples" / "demo", ROOT / "examples" / "counters"
    fabric = str(demo / "fabric.ibnetdiscover")
    tree = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}}
    job = {"pattern": {"kind": "ring", "ranks": 16, "size": "64 KiB"}}
    run = tmp_path / "result" / "run"
    simulate(parse({"fabric": tree, "job": [job]})).write(run)
    look = str(looks / "leaf06-12h00.txt")
    for words, expected in (
        ([str(run), "--fabric", fabric], f"error: {run}: --fabric has no effect"),
        ([str(run), "--direction", "X-"], f"error: {run}: --direction X- applies to a torus"),
        ([look, "--fabric", fabric, "--direction", "X+"], "--direction has no effect"),
        # One look at counters is no calm network.
        ([look, "--fabric", fabric], f"error: {look}: no port gives its stall"),
    ):
        assert tailback(["evolution", *words, "--out", str(tmp_path / "page.html")]) == 2
        assert expected in capsys.readouterr().err
    # Counters of one machine on the fabric of another.
    counters = from_run(Run.read(run))
    counters.intervals = counters.intervals.with_columns(
        node_name=pl.lit("elsewhere"), node_guid=pl.lit(0, pl.UInt64), link=pl.lit(None, pl.UInt32)
    )
    monkeypatch.setattr("tailback.cli.evolution.read_counters", lambda _: counters)
    page = str(tmp_path / "page.html")
    assert tailback(["evolution", look, "--fabric", fabric, "--out", page]) == 2
    assert f"error: {look}: none of its ports is in {fabric}" in capsys.readouterr().err
    # The result of a diagnosis stands for its run.
    (tmp_path / "result" / "diagnosis.json").write_text("{}")
    assert tailback(["evolution", str(tmp_path / "result"), "--out", str(tmp_path / "p.html")]) == 0


@pytest.mark.parametrize("name", ["yellowstone", "blue-waters"])
def test_the_study_scenarios_are_whole(name: str) -> None:
    scenario = load(ROOT / "examples" / name / f"{name}.toml")
    prepared = prepare(scenario)
    assert len(prepared.jobs) == 4
    assert (
        sum(len(job.node) for job in prepared.jobs)
        == {"yellowstone": 4556, "blue-waters": 3456}[name]
    )
