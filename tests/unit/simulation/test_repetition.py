"""Runs with steps left out, against whole ones."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback import _core
from tailback.api import run as api
from tailback.api.compare import compare
from tailback.cli import run as tailback
from tailback.errors import ScenarioError
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import PreparedScenario, prepare, simulate
from tailback.simulation.repetition import continued
from tailback.simulation.repetition.step_rounds import SINGLE_MARKS, marks_of_steps
from tailback.simulation.repetition.step_times import Extrapolation, extrapolate
from tailback.traffic.program import Label, Program, ProgramBuilder
from tailback.traffic.steps import StepProgram

TREE = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 4}}
TIMES = 120
ALLTOALL = {"kind": "alltoall", "ranks": 16, "size": "16 KiB"}


def prepared(
    *jobs: dict[str, Any], routing: str = "deterministic", skip: bool = True, **more: Any
) -> PreparedScenario:
    """A scenario on a small tree."""
    engine = {"routing": routing, "skip_repeats": skip}
    return prepare(parse({"fabric": TREE, "job": list(jobs), "engine": engine} | more))


def both(*jobs: dict[str, Any], **options: Any) -> tuple[Run, Run]:
    """The whole run and the one with steps left out."""
    complete, skipped = (
        simulate(prepared(*jobs, skip=skip, **options), threads=1) for skip in (False, True)
    )
    return complete, skipped


def per_link(run: Run) -> pl.DataFrame:
    """What each link carried in the whole run."""
    table = run.tables["truth"].group_by("link").agg(pl.all().exclude("window").sum())
    return table.filter(pl.col("packets") > 0).sort("link")


def test_a_run_that_repeats_itself_is_extrapolated_exactly() -> None:
    complete, skipped = both({"pattern": ALLTOALL, "repeat": TIMES})
    assert skipped.summary["skipped"]["simulated"] == [9]
    assert skipped.tables["skips"]["exact"].to_list() == [True]
    assert skipped.elapsed_ps == complete.elapsed_ps
    assert skipped.tables["ranks"].equals(complete.tables["ranks"])
    assert per_link(skipped).equals(per_link(complete))
    for name in (
        "packets",
        "observed_packets",
        "packet_hops",
        "messages",
        "end_ps",
        "job_elapsed_ps",
    ):
        assert skipped.summary[name] == complete.summary[name], name
    low, high = (skipped.summary["skipped"][f"elapsed_{end}_ps"] for end in ("low", "high"))
    assert low == high == complete.elapsed_ps


def test_without_telemetry_there_are_times_alone(tmp_path: Path) -> None:
    job = {"pattern": ALLTOALL, "repeat": TIMES}
    complete, skipped = both(job, telemetry={"scheme": "off"})
    assert skipped.elapsed_ps == complete.elapsed_ps
    assert skipped.tables["skips"]["window"].to_list() == [None]
    skipped.write(tmp_path / "run")
    assert Run.read(tmp_path / "run").tables["ranks"].equals(complete.tables["ranks"])


@pytest.mark.slow
def test_screens_say_what_was_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tmp_path / "repeated.toml"
    scenario.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 4\n[[job]]\n"
        'pattern = { kind = "alltoall", ranks = 16, size = "16 KiB" }\nrepeat = 120\n'
        '[engine]\nrouting = "deterministic"\n'
    )
    args = [str(scenario), "--skip-repeats", "--quiet"]
    out, diagnosis = str(tmp_path / "run"), tmp_path / "diagnosis"
    page, table = tmp_path / "evolution.html", str(tmp_path / "table")
    for arguments, expected in (
        (["simulate", *args, "--out", out], "111 of the 120 steps"),
        (["diagnose", *args, "--seeds", "1", "--out", str(diagnosis)], "111 of the 120 steps"),
        (["compare", out, str(diagnosis / "run")], "111 of 120 steps extrapolated"),
        (["counters", out], "111 of the 120 steps"),
        (["counters", out, "--format", "json"], "111 of the 120 steps"),
        (["evolution", out, "--out", str(page), "--threshold", "1"], "111 of the 120 steps"),
        (["export", "counts", out], "111 of the 120 steps"),
        (["export", "attribution", out, table], "111 of the 120 steps"),
        (["place", *args, "--method", "block", "--simulate"], "block: skipped: 111 of the 120"),
        (
            [
                "sweep",
                str(scenario),
                "--over",
                "engine.skip_repeats=true",
                "--quiet",
                "--out",
                str(tmp_path / "study"),
            ],
            "steps of 1 run are extrapolated: elapsed ± 0.0 %",
        ),
    ):
        assert tailback(arguments) in (0, 3)
        shown = capsys.readouterr()
        assert expected in " ".join((shown.out + shown.err).split()), arguments
    for file in (diagnosis / "report.html", page):
        assert "111 of the 120 steps" in file.read_text("utf-8")


def test_notebooks_and_figures_say_what_was_skipped() -> None:
    run = api.Run.of(both({"pattern": ALLTOALL, "repeat": TIMES})[1])
    (note,) = run.skip_notes
    assert note.startswith("skipped: 111 of the 120 steps")
    assert note in unescape(compare(run, run)._repr_html_())
    drawn = run.plot.time_course()
    assert " ".join(drawn.get_supxlabel().split()) == note


def test_without_the_key_nothing_is_skipped() -> None:
    run = simulate(prepared({"pattern": ALLTOALL, "repeat": 20}, skip=False), threads=1)
    assert run.tables["skips"].is_empty()
    assert "skipped" not in run.summary


def test_a_window_stands_for_each_skip() -> None:
    _, run = both({"pattern": ALLTOALL, "repeat": TIMES})
    (row,) = run.tables["skips"].to_dicts()
    windows = run.tables["windows"]
    stands = windows.row(row["window"], named=True)
    assert stands["end_ps"] - stands["start_ps"] == row["time_ps"]
    assert windows["start_ps"][1:].equals(windows["end_ps"][:-1])
    assert windows["end_ps"][-1] == run.summary["end_ps"]
    messages = run.tables["messages"]
    assert messages.height == 9 * 16 * 15
    inside = messages.filter(pl.col("post_ps").is_between(stands["start_ps"], stands["end_ps"] - 1))
    assert inside.is_empty()
    assert messages["arrival_ps"].max() <= run.summary["end_ps"]


def test_the_seed_of_the_samples_changes_nothing_else() -> None:
    runs = [both({"pattern": ALLTOALL, "repeat": TIMES}, seed=seed)[1] for seed in (1, 2)]
    assert per_link(runs[0]).equals(per_link(runs[1]))
    assert not runs[0].tables["samples"].equals(runs[1].tables["samples"])


def test_samples_estimate_the_skipped_without_bias() -> None:
    scores: dict[str, list[float]] = {"hop": [], "congested": []}
    exact = {"hop": 0, "congested": 0}
    tapered = {"fat_tree": TREE["fat_tree"] | {"aggregation": 1}}
    for seed in range(6):
        job = {"pattern": ALLTOALL | {"size": "64 KiB"}, "repeat": TIMES}
        run = simulate(prepared(job, seed=seed, fabric=tapered), threads=1)
        (row,) = run.tables["skips"].to_dicts()
        there = pl.col("window") == row["window"]
        switches = run.tables["links"].filter(~pl.col("from_node"))["link"].implode()
        truth = run.tables["truth"].filter(there, pl.col("link").is_in(switches))
        sums = run.tables["samples"].filter(there).group_by("link").agg(pl.all().sum())
        joined = truth.join(sums, on="link", how="left", suffix="_sum").fill_null(0)
        for about, actual in (
            ("hop", "observed_packets"),
            ("congested", "observed_congested_packets"),
        ):
            for number, weight, variance in joined.select(
                actual, f"{about}_weight", f"{about}_variance"
            ).rows():
                if variance == 0:
                    # All of their packets are sampled there: they visit, or meet congestion at,
                    # one switch.
                    assert weight == number
                    exact[about] += number > 0
                elif number > 100:
                    scores[about].append((weight - number) / variance**0.5)
    assert exact["congested"] + len(scores["congested"]) >= 20
    for about, score in [(about, score) for about, score in scores.items() if score]:
        assert abs(np.mean(score)) < 4 / len(score) ** 0.5, about
        assert 0.8 < np.std(score) < 1.2, about
    assert len(scores["hop"]) > 100


def pair(steps: list[tuple[int, int]]) -> Program:
    """Two ranks that compute (ps) and exchange a message (bytes), step by step."""
    builder = ProgramBuilder("pair", 2)
    label = builder.label(Label("exchange", "MPI_Isend"))
    for rank in range(2):
        for ps, size in steps:
            builder.compute(rank, ps * (1 + rank))
            builder.irecv(rank, 1 - rank, size, 1, label)
            builder.isend(rank, 1 - rank, size, 1, label)
            builder.waitall(rank)
    return builder.build()


def of_program(program: Program, *, skip: bool) -> Run:
    """A run of two ranks on hosts of different leaves."""
    placeholder = {"pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}, "hosts": "0,4"}
    scenario = prepared(placeholder, skip=skip).with_program(program)
    return simulate(scenario, threads=1)


STEP = (2_000_000, 10_000)


@pytest.mark.parametrize(
    ("steps", "simulated"),
    [
        # A rank computes for long once, and messages grow.
        ([STEP] * 60 + [(9_000_000, 10_000)] + [STEP] * 59, 9 + 1 + 9),
        ([STEP] * 60 + [(2_000_000, 40_000)] * 60, 9 + 9),
    ],
)
def test_a_program_that_changes_is_not_skipped_over(
    steps: list[tuple[int, int]], simulated: int
) -> None:
    complete, skipped = (of_program(pair(steps), skip=skip) for skip in (False, True))
    assert skipped.tables["skips"].height == 2
    # Beginning, middle and end of a program, which no two steps share, are simulated too.
    assert simulated <= skipped.summary["skipped"]["simulated"][0] <= simulated + 6
    assert skipped.elapsed_ps == complete.elapsed_ps
    assert per_link(skipped).equals(per_link(complete))
    assert skipped.tables["ranks"].equals(complete.tables["ranks"])


def test_a_drift_ends_a_skip() -> None:
    steps = [(2_000_000 + 20_000 * i, 10_000) for i in range(150)]
    complete, skipped = (of_program(pair(steps), skip=skip) for skip in (False, True))
    facts = skipped.summary.get("skipped")
    # Every 1 % of the computation, a stretch: none is long enough to leave much out.
    assert facts is None or facts["simulated"][0] > 40
    assert abs(skipped.elapsed_ps / complete.elapsed_ps - 1) < 0.02


def test_traffic_of_others_ends_a_skip() -> None:
    ours = {"pattern": ALLTOALL | {"ranks": 8}, "hosts": "0-3,8-11", "repeat": 300}
    others = {
        "pattern": {"kind": "uniform", "ranks": 8, "size": "64 KiB", "messages": 6},
        "hosts": "4-7,12-15",
        "repeat": 60,
        "observed": False,
    }
    complete, skipped = both(ours, others, routing="adaptive")
    rows = skipped.tables["skips"].filter(pl.col("job") == 0)
    assert rows.height == 2, skipped.notes
    assert abs(skipped.elapsed_ps / complete.elapsed_ps - 1) < 0.03
    alone = skipped.summary["job_elapsed_ps"]["1"]
    assert abs(alone / complete.summary["job_elapsed_ps"]["1"] - 1) < 0.03


def test_ranks_of_different_speed_are_simulated_in_full() -> None:
    reduction = {"kind": "reduce-naive", "ranks": 16, "arrays": 4, "size": "16 KiB"}
    complete, skipped = both({"pattern": reduction, "repeat": 80})
    assert any(note.startswith("nothing was skipped: ") for note in skipped.notes)
    assert skipped.elapsed_ps == complete.elapsed_ps
    assert skipped.tables["messages"].equals(complete.tables["messages"])


def test_what_records_every_packet_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"\[probes\]") as refused:
        prepared({"pattern": ALLTOALL}, probes={"counters": "1 us"})
    assert "skip_repeats = false" in str(refused.value.remedy)


def test_results_do_not_depend_on_threads() -> None:
    scenario = prepared({"pattern": ALLTOALL, "repeat": TIMES})
    single, parallel = (simulate(scenario, threads=threads) for threads in (1, 2))
    assert all(single.tables[name].equals(parallel.tables[name]) for name in single.tables)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = simulate(prepared({"pattern": ALLTOALL, "repeat": TIMES}), threads=1)
    run.write(tmp_path / "run")
    again = Run.read(tmp_path / "run")
    assert again.tables["skips"].equals(run.tables["skips"])
    assert again.summary == run.summary


def test_an_attempt_in_vain_is_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that wait for nobody move apart: nothing is skipped, one simulation, equal tables."""
    job = {
        "pattern": {"kind": "permutation", "ranks": 16, "size": "32 KiB", "messages": 2},
        "repeat": 60,
    }
    runs = list[object]()
    engine = _core.simulate

    def counted(*args: Any, **options: Any) -> _core.PacketOutcome:
        runs.append(options.get("steps"))
        return engine(*args, **options)

    monkeypatch.setattr(_core, "simulate", counted)
    complete, attempt = both(job, routing="random", seed=3)
    assert [checks is not None for checks in runs] == [False, True]
    assert "skipped" not in attempt.summary
    assert any(note.startswith("nothing was skipped: ") for note in attempt.notes)
    assert attempt.summary == complete.summary
    for name, table in complete.tables.items():
        assert attempt.tables[name].equals(table), name


def test_a_check_costs_no_new_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that become stationary late are left out of the simulation that has shown it."""
    job = {
        "pattern": {"kind": "stencil2d", "dims": [4, 4], "size": "64 KiB", "compute": "20 us"},
        "repeat": TIMES,
    }
    runs = list[object]()
    engine = _core.simulate
    monkeypatch.setattr(
        _core, "simulate", lambda *args, **options: runs.append(1) or engine(*args, **options)
    )
    skipped = simulate(prepared(job), threads=1)
    assert len(runs) == 1
    (simulated,) = skipped.summary["skipped"]["simulated"]
    assert 9 < simulated < TIMES


def test_groups_of_steps_grow() -> None:
    marks = marks_of_steps(500)
    sizes = np.bincount(marks)[1:]
    assert (np.diff(marks) >= 0).all() and (sizes > 0).all()
    assert (sizes[:SINGLE_MARKS] == 1).all()
    before = np.cumsum(sizes) - sizes
    assert (sizes[SINGLE_MARKS:-1] <= before[SINGLE_MARKS:-1] / SINGLE_MARKS + 1).all()
    assert len(sizes) < 150


@pytest.mark.parametrize("routing", ["deterministic", "adaptive"])
def test_the_engine_repeats_a_step(routing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_steps = list[tuple[int, int]]()

    def simulated(*args: Any, steps: Any = None, **options: Any) -> _core.PacketOutcome:
        recorded_steps.append((len(args[2].program.kind), steps.count))
        return real(*args, steps=steps, **options)

    real = _core.simulate
    monkeypatch.setattr(_core, "simulate", simulated)
    scenario = prepared({"pattern": ALLTOALL, "repeat": 60}, routing=routing)
    once = simulate(scenario, threads=1)
    monkeypatch.setattr(StepProgram, "is_repetition", False)
    in_full = simulate(scenario, threads=1)
    (step, steps), (operations, _) = recorded_steps
    assert operations == step * steps > step
    assert once.tables.keys() == in_full.tables.keys()
    for name, table in once.tables.items():
        assert table.equals(in_full.tables[name]), name
    assert once.summary == in_full.summary


@pytest.mark.parametrize(("limit", "simulations"), [(1, 2), (4_000_000, 1)])
def test_an_attempt_with_all_steps_is_the_run(
    limit: int, simulations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated step may have more operations before its later steps are left to a second run."""

    def simulated(*args: Any, **options: Any) -> _core.PacketOutcome:
        calls.append(options["steps"].count)
        return real(*args, **options)

    def never(*args: Any, **options: Any) -> Extrapolation:
        return replace(extrapolate(*args, **options), why_not="never")

    calls, real = list[int](), _core.simulate
    monkeypatch.setattr(_core, "simulate", simulated)
    monkeypatch.setattr(continued, "extrapolate_steps", never)
    monkeypatch.setattr(continued, "REPEATED_OPERATIONS", limit)
    monkeypatch.setattr(continued, "FIRST_OPERATIONS", 1)
    run = simulate(prepared({"pattern": ALLTOALL, "repeat": 80}), threads=1)
    assert "skipped" not in run.summary
    assert len(calls) == simulations and calls[-1] == 80
