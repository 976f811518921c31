"""``import tailback as tb``: every function on a tiny scenario, with the command line's results."""

from __future__ import annotations

import json
import pkgutil
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tailback as tb
from tailback.cli import run as cli
from tailback.report import FIGURES
from tests.factories.repository import ROOT

TOML = """
name = "tiny <b>"
[fabric.fat_tree]
hosts_per_leaf = 4
leaves = 4
aggregation = 2
[[job]]
pattern = { kind = "stencil2d", dims = [4, 4], size = "64 KiB" }
"""
FUNCTIONS = [
    "compare",
    "confirm",
    "counters",
    "diagnose",
    "load_scenario",
    "place",
    "read_run",
    "simulate",
    "sweep",
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "tiny.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def diagnosed(tiny: Path) -> tb.DiagnosisResult:
    return tb.diagnose(tiny, seeds=1, methods=["block", "rcm"])


def test_importing_loads_no_library_and_names_every_function() -> None:
    code = (
        "import sys, tailback\n"
        "for name in ('polars', 'numpy', 'matplotlib', 'pydantic', 'click'):\n"
        "    assert name not in sys.modules, name\n"
        "assert set(tailback.__all__) <= set(dir(tailback))\n"
        "assert tailback.__version__[0].isdigit()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_is_a_page_that_shows_each_function() -> None:
    page = pydoc.plain(pydoc.render_doc(tb))
    for name in FUNCTIONS:
        assert f"tb.{name}(" in (tb.__doc__ or "")
        assert f"\n    {name}(" in page
        assert "Example:" in (getattr(tb, name).__doc__ or ""), name


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/reference/api.md", "exec"), names)
    assert len(blocks) >= 2 and (tmp_path / "diagnosis" / "report.html").is_file()


def test_no_subpackage_is_named_as_a_public_function() -> None:
    """The import system would make the subpackage what the name means."""
    names = {module.name for module in pkgutil.iter_modules(tb.__path__)}
    assert "simulation" in names and not names & set(tb.__all__)


def test_options_change_a_copy_of_the_scenario(tiny: Path) -> None:
    scenario = tb.load_scenario(tiny)
    data = {
        "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
        "job": [{"pattern": {"kind": "stencil2d", "dims": [4, 4], "size": "64 KiB"}}],
        "name": "tiny <b>",
    }
    assert tb.load_scenario(data) == scenario
    changed = tb.load_scenario(scenario, placement="rcm", seed=7)
    assert (changed.job[0].placement, changed.seed) == ("rcm", 7)
    assert (scenario.job[0].placement, scenario.seed) == ("block", 1)
    with pytest.raises(tb.TailbackError, match=r"missing.toml.*does not exist"):
        tb.load_scenario("missing.toml")


def test_a_late_mistake_names_scenario_or_option(tiny: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(TOML + 'hosts = "0-3"\n')
    with pytest.raises(tb.TailbackError) as caught:
        tb.simulate(wrong)
    assert caught.value.file == wrong
    with pytest.raises(tb.TailbackError) as caught:
        tb.simulate(tiny, hosts="0-3")
    assert caught.value.file is None


def test_a_run_is_that_of_the_command_line(tiny: Path, tmp_path: Path) -> None:
    run = tb.simulate(tiny, threads=1)
    assert cli(["simulate", str(tiny), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    read = tb.read_run(tmp_path / "run")
    assert read.summary == run.summary
    assert all(read.tables[name].equals(frame) for name, frame in run.tables.items())
    assert isinstance(tb.Run.read(tmp_path / "run"), tb.Run)
    assert run.tables["links"].to_pandas().shape == run.tables["links"].shape
    frame = run.to_pandas()
    assert len(frame) == run.tables["messages"].height
    assert {"phase", "call", "src_host", "dst_host"} <= set(frame.columns)
    assert run.to_pandas("truth")["link_name"].str.contains("→").all()
    with pytest.raises(tb.TailbackError, match="did you mean 'messages'"):
        run.to_pandas("mesages")
    assert tb.simulate(tiny, model="fluid").summary["model"] == "fluid"
    assert "tiny &lt;b&gt;" in run._repr_html_() and "<b>" not in run._repr_html_()
    with pytest.raises(tb.TailbackError, match="less than 1"):
        tb.simulate(tiny, threads=0)


def test_figures_are_methods_of_a_run(tiny: Path, diagnosed: tb.DiagnosisResult) -> None:
    run = tb.simulate(tiny)
    assert set(FIGURES.names()) <= set(dir(run.plot))
    assert run.plot.congested_fraction().axes
    assert diagnosed.plot.waterfall().axes
    with pytest.raises(tb.TailbackError, match="there is no data for figure 'waterfall'"):
        run.plot.waterfall()
    with pytest.raises(tb.TailbackError, match="no phase 'x'"):
        run.plot.congested_fraction(phase="x")
    with pytest.raises(AttributeError, match="did you mean 'waterfall'"):
        _ = run.plot.waterfal


def test_results_print_as_one_line(diagnosed: tb.DiagnosisResult) -> None:
    assert re.fullmatch(r"<Run 'tiny <b>': [0-9.]+ .s, \d+ tables>", repr(diagnosed.run))
    assert repr(diagnosed) == f"<Diagnosis of 'tiny <b>': {diagnosed.cause}. {diagnosed.headline}>"
    assert set(dir(diagnosed.plot)) == set(FIGURES.names())


def test_a_diagnosis_is_that_of_the_command_line(
    tiny: Path, diagnosed: tb.DiagnosisResult, tmp_path: Path
) -> None:
    words = [
        "diagnose",
        str(tiny),
        "--seeds",
        "1",
        "--method",
        "block",
        "--method",
        "rcm",
        "--quiet",
    ]
    assert cli([*words, "--out", str(tmp_path / "cli")]) in (0, 3)
    diagnosed.write(tmp_path / "api", figures=["svg"])
    texts = [(tmp_path / name / "diagnosis.json").read_bytes() for name in ("cli", "api")]
    assert texts[0] == texts[1]
    names = {path.name for path in (tmp_path / "cli").iterdir()}
    assert {path.name for path in (tmp_path / "api").iterdir()} == names | {"figures"}
    assert diagnosed.cause == diagnosed.diagnosis.cause
    assert diagnosed.diagnosis.cause in diagnosed._repr_html_()


def test_placements_are_those_of_the_command_line(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = tb.place(tiny, methods=["block", "rcm"], simulate=True)
    words = ["place", str(tiny), "--method", "block", "--method", "rcm", "--simulate", "--quiet"]
    assert cli([*words, "--format", "json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (facts["best"], facts["placements"]) == (placed.best, placed.rows)
    assert placed.frame["elapsed_ps"].is_sorted() and placed.to_pandas().shape == (2, 5)
    placed.write(tmp_path / "ranks")
    assert {file.file for file in placed.rank_files} < {
        path.name for path in (tmp_path / "ranks").iterdir()
    }


def test_a_comparison_is_that_of_the_command_line(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("block", "random"):
        tb.simulate(tiny, placement=name).write(tmp_path / name)
    comparison = tb.compare(tmp_path / "block", tb.read_run(tmp_path / "random"))
    words = ["compare", str(tmp_path / "block"), str(tmp_path / "random"), "--format", "json"]
    assert cli(words) == 0
    assert json.loads(capsys.readouterr().out) == comparison.facts
    assert comparison.links.height == len(comparison.facts["links"]) > 0
    comparison.write(tmp_path / "changes")
    assert comparison.frame.height > 0 and (tmp_path / "changes" / "compare.html").is_file()


@pytest.mark.slow
def test_run_counters_are_those_of_the_command_line(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tb.simulate(tiny).write(tmp_path / "run")
    stalls = tb.counters(tmp_path / "run")
    assert cli(["counters", str(tmp_path / "run"), "--format", "json"]) in (0, 3)
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] == stalls.verdict.kind
    assert printed["ports"] == stalls.frame.height > 0
    stalls.write(tmp_path / "stalls")
    assert (tmp_path / "stalls" / "counters.json").is_file()
