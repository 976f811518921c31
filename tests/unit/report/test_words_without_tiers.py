"""A torus and a dragonfly in their own words: no word of trees in diagnosis and report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tailback import load_scenario, simulate
from tailback.cli import run as tailback
from tailback.diagnosis.link_directions import GLOBAL, LOCAL
from tailback.diagnosis.topology import LinkTopology
from tailback.report.figure_data import FigureData
from tailback.report.grids import rings, slices
from tailback.report.layout import blocks, tier_direction_name

TREE = re.compile(r"\b(lea(f|ves)|spines?|(up|down)-?links?|aggregation)\b", re.IGNORECASE)

SCENARIO = """\
name = "flat"
seed = 1
[fabric.topology]
{topology}
[[job]]
name = "job"
placement = "random"
[job.pattern]
kind = "stencil2d"
dims = [8, 8]
size = "256 KiB"
[engine]
packet = "4 KiB"
"""
TORUS = 'kind = "torus"\ndims = [4, 4, 4]'
DRAGONFLY = 'kind = "dragonfly"\nnodes_per_router = 2\nrouters = 4\nglobal_ports = 2\ngroups = 8'


def written(folder: Path, topology: str) -> Path:
    path = folder / "flat.toml"
    path.write_text(SCENARIO.format(topology=topology), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "link_pattern"),
    [
        (TORUS, r"mostly links in direction [XYZ][+-] \("),
        (DRAGONFLY, r"mostly (global|local) links"),
    ],
)
def test_a_diagnosis_names_links_as_the_network_does(
    topology: str, link_pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    tailback(["diagnose", str(written(tmp_path, topology)), "--out", str(out), "--quiet"])
    tailback(["diagnose", str(out / "run"), "--out", str(tmp_path / "again")])
    terminal = capsys.readouterr().out
    report = (out / "diagnosis.json").read_text(encoding="utf-8")
    assert "VERDICT" in terminal
    congested = terminal.split("MOST CONGESTED LINKS")[1].split("\n\n")[0]
    assert "direction" in congested and re.search(r" ([XYZ][+-]|local|global) ", congested)
    assert re.search(link_pattern, json.loads(report) and report)
    assert not [match[0] for text in (terminal, report) for match in TREE.finditer(text)]
    attribution = (out / "attribution.json").read_text(encoding="utf-8")
    assert not [match[0] for match in TREE.finditer(attribution)]


def test_directions_of_a_torus(tmp_path: Path) -> None:
    run = simulate(load_scenario(written(tmp_path, TORUS)))
    words = dict(
        zip(
            run.tables["links"].sort("link").select("src_name", "dst_name").rows(),
            LinkTopology.of(run).flat_direction,
            strict=True,
        )
    )
    assert words["r0-0-0", "r1-0-0"] == "X+"
    assert words["r0-0-0", "r3-0-0"] == "X-"
    assert words["r1-3-2", "r1-0-2"] == "Y+"
    assert words["r1-3-2", "r1-3-1"] == "Z-"
    assert not TREE.search(" ".join(_names(FigureData(run))))


def test_links_of_a_dragonfly(tmp_path: Path) -> None:
    run = simulate(load_scenario(written(tmp_path, DRAGONFLY)))
    links = run.tables["links"].sort("link").select("src_name", "dst_name").rows()
    for (src, dst), word in zip(links, LinkTopology.of(run).flat_direction, strict=True):
        if src[0] == dst[0] == "g":
            assert word == (LOCAL if src.split("r")[0] == dst.split("r")[0] else GLOBAL)
        else:
            assert word == ""


def test_a_tree_has_no_such_words(tmp_path: Path) -> None:
    path = tmp_path / "tree.toml"
    path.write_text(
        SCENARIO.replace(
            "[fabric.topology]\n{topology}",
            "[fabric.fat_tree]\nhosts_per_leaf = 16\nleaves = 4\naggregation = 2",
        ),
        encoding="utf-8",
    )
    run = simulate(load_scenario(path))
    assert LinkTopology.of(run).flat_direction == []
    assert "leaf → aggregation" in _names(FigureData(run))


def _names(evidence: FigureData) -> list[str]:
    """What the report calls its groups of links."""
    return [tier_direction_name(*pair, evidence.flat) for pair in evidence.tier_directions]


def test_a_torus_has_its_own_words(tmp_path: Path) -> None:
    evidence = FigureData(simulate(load_scenario(written(tmp_path, TORUS))))
    assert [band[0].band for band in blocks(evidence)] == ["switch", "hosts → switch"]
    names = [grid.name for grid in (*rings(evidence), *slices(evidence))]
    assert [name.split(":")[0] for name in names[:6]] == ["X+", "X-", "Y+", "Y-", "Z+", "Z-"]
    assert names[6].startswith("slice Z=")
