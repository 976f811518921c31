"""Parameter studies: points, folders, workers that are killed, Dask, Slurm, the command line."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tailback.api.sweep import continue_sweep, follow, plan_sweep, sweep
from tailback.api.sweep.plan import points_of, scenario_at
from tailback.api.sweep.study import ParameterStudy, run_point
from tailback.cli import run as cli
from tailback.cli.sweep import _lines as screen_lines
from tailback.cli.sweep import axis_from_text
from tailback.errors import RunError, ScenarioError
from tailback.scenario.model import parse
from tailback.simulation import simulate
from tailback.workers import LocalProcesses

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "demo"

BASE = {
    "name": "tiny",
    "fabric": {"topology": {"kind": "k-ary-n-tree", "k": 2, "n": 2}},
    "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "4 KiB"}}],
    "telemetry": {"scheme": "off"},
}


def test_points_are_all_combinations_the_last_key_fastest() -> None:
    assert points_of({"a": [1, 2], "b": "xy"}) == [{"a": 1, "b": "xy"}, {"a": 2, "b": "xy"}]
    assert [p["b"] for p in points_of({"a": range(2), "b": [5, 6]})] == [5, 6, 5, 6]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "at least one key"),
        ({"seed": []}, "no values"),
        ({"a": range(2000), "b": range(2000)}, "4,000,000 combinations"),
    ],
)
def test_what_is_no_study_is_refused(over: dict[str, list[int]], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        points_of(over)


def test_keys_reach_every_table_or_are_refused() -> None:
    two = {**BASE, "job": [{**BASE["job"][0], "observed": False, "hosts": "0-1"}, BASE["job"][0]]}  # type: ignore[index,dict-item]
    scenario = scenario_at(
        two, {"job.placement": "rcm", "job.0.hosts": "2-3", "engine.buffer": "8 KiB"}
    )
    assert (scenario.job[1].placement, scenario.job[0].hosts, scenario.engine.buffer) == (
        "rcm",
        "2-3",
        8192,
    )
    assert two["job"][0]["hosts"] == "0-1"  # type: ignore[index]
    with pytest.raises(ScenarioError, match="unknown key 'placment'"):
        scenario_at(BASE, {"job.placment": "rcm"})
    with pytest.raises(ScenarioError, match="not one of 1 tables"):
        scenario_at(BASE, {"job.3.placement": "rcm"})


def children() -> list[int]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in task.read_text().split()]


@pytest.mark.slow
def test_five_hundred_scenarios_survive_a_killed_worker(tmp_path: Path) -> None:
    over = {"seed": range(1, 126), "job.pattern.size": ["1 KiB", "2 KiB", "4 KiB", "8 KiB"]}
    study = plan_sweep(BASE, over, tmp_path / "s", tables=["messages"])
    before = set(children())
    progress_lines: list[str] = []
    with LocalProcesses(2).submit(run_point, study.path, study.pending()) as runs:
        ended = [next(runs)]
        # Until the last points every worker has one to run: this one is told of as killed.
        os.kill(next(pid for pid in children() if pid not in before), signal.SIGKILL)
        follow(
            study,
            (ended.append(run) or run for run in runs),
            499,
            lambda w, _: progress_lines.append(w),
        )
    killed = [number for number, reason in ended if reason is not None]
    assert sorted(number for number, _ in ended) == list(range(500))
    assert len(killed) == 1 and set(study.failures()) == set(study.pending()) <= set(killed)
    assert progress_lines[-1].startswith("499 of 499 runs")
    study_results = continue_sweep(study.path, workers=1)
    assert study.pending() == []
    frame = study_results.frame
    assert frame.height == 500 and frame["run"].to_list() == list(range(500))
    assert frame.schema["seed"] == pl.Int64 and frame.schema["job.pattern.size"] == pl.String
    sizes = frame.group_by("job.pattern.size").agg(pl.col("elapsed_ps").mean()).sort("elapsed_ps")
    assert sizes["job.pattern.size"].to_list() == ["1 KiB", "2 KiB", "4 KiB", "8 KiB"]
    assert study_results.table("messages").height == 500 * 4
    simulated = simulate(scenario_at(study.base, study.points[123]))
    assert frame["elapsed_ps"][123] == simulated.elapsed_ps


def test_a_study_resumes_and_is_not_replaced(tmp_path: Path) -> None:
    over = {"seed": [1, 2, 3]}
    half = continue_sweep(plan_sweep(BASE, over, tmp_path / "s").path, workers=1, part=(0, 2))
    assert half.frame["seed"].to_list() == [1, 3]
    first = (tmp_path / "s" / "summary" / "000000.parquet").stat().st_mtime_ns
    resumed = sweep(BASE, over, tmp_path / "s", workers=1)
    assert resumed.frame["seed"].to_list() == [1, 2, 3]
    assert (tmp_path / "s" / "summary" / "000000.parquet").stat().st_mtime_ns == first
    with pytest.raises(RunError, match="another parameter study"):
        plan_sweep(BASE, {"seed": [1, 2]}, tmp_path / "s")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "mine").touch()
    with pytest.raises(RunError, match="not empty"):
        plan_sweep(BASE, over, tmp_path / "t")
    with pytest.raises(ScenarioError, match="no part 2 of 2"):
        continue_sweep(tmp_path / "s", part=(2, 2))


def test_a_point_that_is_wrong_costs_only_itself(tmp_path: Path) -> None:
    study_results = sweep(BASE, {"job.pattern.ranks": [4, 9]}, tmp_path / "s", workers=1)
    assert study_results.frame["job.pattern.ranks"].to_list() == [4]
    assert list(study_results.failures) == [1] and "rank" in study_results.failures[1]
    # The same command would fail again.
    (next_line,) = [line for line in screen_lines(study_results) if line.startswith("NEXT")]
    assert next_line.startswith("NEXT  start a sweep without the values that failed")


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    over = {"seed": [1, 2, 3, 4]}
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = sweep(BASE, over, tmp_path / "dask", dask=client)
    here = sweep(BASE, over, tmp_path / "here", workers=1)
    assert there.frame.equals(here.frame)


@pytest.mark.slow
def test_a_slurm_script_runs_every_part_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(
        'name = "tiny"\n[fabric]\ntopology = {kind = "k-ary-n-tree", k = 2, n = 2}\n'
        '[[job]]\npattern = {kind = "ring", ranks = 4, size = "4 KiB"}\n'
        '[telemetry]\nscheme = "off"\n'
    )
    folder = tmp_path / "s"
    arguments = ["sweep", str(tmp_path / "tiny.toml"), "--over", "seed=1..3", "--out", str(folder)]
    assert cli([*arguments, "--slurm", "2"]) == 0
    assert capsys.readouterr().out == f"sbatch {folder}/sweep.sbatch\n"
    script = folder / "sweep.sbatch"
    assert "#SBATCH --array=0-1\n" in script.read_text()
    for task in "01":
        env = {**os.environ, "SLURM_ARRAY_TASK_ID": task, "PYTHONPATH": ":".join(sys.path)}
        subprocess.run(["bash", script], check=True, capture_output=True, env=env)
    assert cli(["sweep", str(folder), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["runs"], facts["done"], facts["failed"]) == (3, 3, {})
    assert cli(["sweep", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "3 of 3 runs done, 0 failed" in lines[0] and lines[1].startswith("FASTEST  run ")
    assert [line.split()[0] for line in lines[3:7]] == ["run", "0", "1", "2"]
    assert cli(["sweep", str(folder), "--over", "seed=1"]) == 2


@pytest.mark.slow
def test_sweep_with_failed_runs_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(
        '[fabric]\ntopology = {kind = "k-ary-n-tree", k = 2, n = 2}\n'
        '[[job]]\npattern = {kind = "ring", ranks = 4, size = "4 KiB"}\n'
    )
    buffers = "engine.buffer=16 KiB,1 KiB"
    arguments = ["sweep", str(tmp_path / "tiny.toml"), "--over", buffers, "--workers", "1"]
    assert cli([*arguments, "--out", str(tmp_path / "s")]) == 2
    out, err = capsys.readouterr()
    assert "1 of 2 runs done, 1 failed" in out and "1 run of the sweep failed" in err
    assert "less than a packet" in out and "\n    remedy: give at least" in out
    assert "\\x" not in out + err
    assert cli(["sweep", str(tmp_path / "s"), "--format", "json"]) == 2
    assert list(json.loads(capsys.readouterr().out)["failed"]) == ["1"]
    # A task of an array answers for its own runs.
    assert cli(["sweep", str(tmp_path / "s"), "--part", "0/2"]) == 0
    assert cli(["sweep", str(tmp_path / "s"), "--part", "1/2"]) == 2


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seed=1..3", [1, 2, 3]),
        ("a.b=1,2.5,x y,true", [1, 2.5, "x y", True]),
        ("s=8 KiB", ["8 KiB"]),
    ],
)
def test_axes_on_the_command_line(text: str, values: list[object]) -> None:
    assert axis_from_text(text) == (text.split("=")[0], values)


@pytest.mark.parametrize("text", ["seed", "=1", "seed=", "seed=3..1"])
def test_axes_that_are_none(text: str) -> None:
    with pytest.raises(ScenarioError):
        axis_from_text(text)


@pytest.mark.slow
def test_a_figure_has_a_curve_for_every_value(tmp_path: Path) -> None:
    over = {
        "seed": [1, 2],
        "engine.routing": ["adaptive", "deterministic"],
        "job.pattern.size": ["1 KiB", "8 KiB"],
    }
    study_results = sweep(BASE, over, tmp_path / "s", workers=1)
    axes = study_results.plot("job.pattern.size", by="engine.routing").axes[0]
    assert len(axes.lines) == 2 and axes.get_xlabel() == "job.pattern.size"
    assert re.fullmatch("elapsed, (ms|µs|ns)", axes.get_ylabel())
    assert 0.5 < max(axes.lines[0].get_ydata()) < 5000
    with pytest.raises(ScenarioError, match="no column 'elapsed'"):
        study_results.plot("seed", "elapsed")
    assert "elapsed_ps" in study_results._repr_html_()


def test_base_scenarios_are_objects_files_or_data(tmp_path: Path) -> None:
    from_object = plan_sweep(parse(BASE), {"seed": [1]}, tmp_path / "a")
    from_data = plan_sweep(BASE, {"seed": [1]}, tmp_path / "b")
    assert from_object.base == from_data.base


def test_a_trace_is_swept_on_a_fabric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLE)
    network, out = ["--fabric", "fabric.ibnetdiscover"], str(tmp_path / "study")
    command = ["sweep", "trace", *network, "--hosts", "0-31", "--over", "seed=1,2", "--out", out]
    study = ParameterStudy.open(plan(command))
    base = scenario_at(study.base, study.points[1])
    assert base.seed == 2 and base.job[0].hosts == "0-31"
    assert base.job[0].trace is not None and Path(base.job[0].trace).is_absolute()
    assert cli(["sweep", out, *network]) == 2
    assert f"tailback sweep {out}" in capsys.readouterr().err


def plan(command: list[str]) -> Path:
    """Write the study of a command without running it: as a script for Slurm."""
    assert cli([*command, "--slurm", "1"]) == 0
    return Path(command[-1])
