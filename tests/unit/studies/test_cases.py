"""The case studies: their patterns message by message, and each case scaled down or in part."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest

from studies.taffet2019 import case_minighost, case_model, case_reasons, cases, minighost_rules
from tailback.errors import ScenarioError
from tailback.evaluate import Change
from tailback.run.run import Run
from tailback.scenario.model import Scenario, load, parse
from tailback.simulation import make_evaluate, prepare, simulate
from tailback.traffic.patterns import build
from tailback.traffic.program import Op, Program
from tests.factories.repository import ROOT

EXAMPLES = ROOT / "examples"

GHOST: dict[str, Any] = {"kind": "minighost", "dims": [3, 4, 2], "cells": [6, 4, 2], "variables": 3}


def sends(program: Program) -> np.ndarray:
    """Rank, peer, bytes, tag and position in its rank of every send, a row each."""
    at = np.flatnonzero(program.kind == Op.ISEND)
    place = at - program.rank_start[program.op_rank[at]].astype(np.int64)
    columns = (program.op_rank[at], program.peer[at], program.amount[at], program.tag[at], place)
    return np.stack([np.asarray(column, np.int64) for column in columns], axis=1)


def phases(program: Program, rank: int) -> list[str]:
    """Phases of a rank's sends, repetitions joined."""
    mine = (program.op_rank == rank) & (program.kind == Op.ISEND)
    names = [program.labels[label].phase for label in program.label[mine]]
    return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]


def test_the_public_defaults_of_minighost_give_416160_bytes() -> None:
    pattern = {"kind": "minighost", "dims": [2, 1, 1], "sums": "none"}
    assert set(sends(build(pattern, None, 1))[:, 2]) == {416_160}


def test_minighost_exchanges_y_x_z_and_sums() -> None:
    program = build(GHOST, None, 1)
    centre = 1 + 3 * 1  # a rank with all neighbours but one in z
    assert phases(program, centre) == ["y", "x", "z", "sum"]
    tags = {(row[1] - row[0]): row[3] for row in sends(program) if row[0] == centre and row[3]}
    assert tags == {3: 1000, -3: 2000, 1: 3000, -1: 4000, 12: 6000}
    sizes = {row[3]: row[2] for row in sends(program) if row[3]}
    faces = {1000: 8 * 4, 2000: 8 * 4, 3000: 6 * 4, 4000: 6 * 4, 5000: 8 * 6, 6000: 8 * 6}
    assert sizes == {tag: cells * 3 * 8 for tag, cells in faces.items()}
    calls = Counter(label.call for label in program.labels)
    assert calls == {"MPI_Isend": 6, "MPI_Allreduce": 1}


def test_the_axes_may_change_order() -> None:
    usual = sends(build({**GHOST, "sums": "none"}, None, 1))
    other = build({**GHOST, "sums": "none", "order": "zxy"}, None, 1)
    assert phases(other, 4) == ["z", "x", "y"]
    once = build({**GHOST, "sums": "none", "wait": "exchange"}, None, 1)
    waits = [int((p.kind == Op.WAITALL).sum()) for p in (other, once)]
    assert waits == [3 * 24, 24]
    for program in (other, once):
        reordered = sends(program)
        assert sorted(map(tuple, reordered[:, :4].tolist())) == sorted(
            map(tuple, usual[:, :4].tolist())
        )


def test_minighost_may_wait_and_send_synchronously() -> None:
    usual = build({**GHOST, "sums": "none"}, None, 1)
    each = build({**GHOST, "sums": "none", "wait": "direction"}, None, 1)
    waits = [int((p.kind == Op.WAITALL).sum()) for p in (usual, each)]
    assert waits == [3 * 24, 6 * 24]
    assert sorted(map(tuple, sends(each)[:, :4].tolist())) == sorted(
        map(tuple, sends(usual)[:, :4].tolist())
    )
    delivered = build({**GHOST, "sums": "none", "completion": "delivered"}, None, 1)
    kinds = [
        (int((p.kind == Op.ISEND).sum()), int((p.kind == Op.ISSEND).sum()))
        for p in (usual, delivered)
    ]
    assert kinds == [(kinds[0][0], 0), (0, kinds[0][0])] and kinds[0][0] > 0


def test_minighost_ends_at_the_boundary() -> None:
    rows = sends(build({**GHOST, "sums": "none"}, None, 1))
    assert len(rows) == 2 * (2 * 4 * 2 + 3 * 3 * 2 + 3 * 4 * 1)
    assert Counter(rows[:, 0].tolist())[0] == 3


def test_single_variables_move_equal_bytes_in_smaller_messages() -> None:
    all_sums = sends(build({**GHOST, "sums": "none"}, None, 1))
    parts = sends(build({**GHOST, "sums": "none", "method": "svaf"}, None, 1))
    assert len(parts) == 3 * len(all_sums) and parts[:, 2].sum() == all_sums[:, 2].sum()


def test_one_sum_a_step_is_a_third() -> None:
    def count(sums: str) -> int:
        return int((sends(build({**GHOST, "sums": sums}, None, 1))[:, 3] == 0).sum())

    assert count("variable") == 3 * count("step") > 0


def test_imbalance_lengthens_computation_by_its_share() -> None:
    def computed(seed: int) -> np.ndarray:
        options = {**GHOST, "compute": "100 us", "imbalance": 0.5, "sums": "none"}
        program = build(options, None, seed)
        time = np.where(program.kind == Op.COMPUTE, program.amount.astype(np.float64), 0)
        return np.bincount(program.op_rank, weights=time)

    once = computed(7)
    assert np.array_equal(once, computed(7)) and not np.array_equal(once, computed(8))
    assert (once >= 3e8).all() and (once <= 4.5e8).all() and len(set(once.tolist())) > 12


def test_transforms_stay_in_plane_and_return() -> None:
    pattern = {"kind": "fft2d", "plane": [4, 3], "planes": 5, "size": "16 KiB", "rounds": 2}
    program = build(pattern, None, 1)
    rows = sends(program)
    assert program.n_ranks == 60 and program.grid == (4, 3, 5)
    assert (rows[:, 0] // 12 == rows[:, 1] // 12).all()
    assert set(Counter(rows[:, 0].tolist()).values()) == {2 * 2 * (3 + 2)}
    same_row = rows[:, 0] // 4 == rows[:, 1] // 4
    same_column = rows[:, 0] % 4 == rows[:, 1] % 4
    assert (same_row ^ same_column).all()
    assert {label.communicator for label in program.labels} == {"rows", "columns"}


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ({"kind": "minighost", "dims": [3, 4]}, "3 positive extents"),
        ({"kind": "minighost", "dims": [3, 4, 2], "method": "bsp"}, "bsp"),
        ({"kind": "minighost", "dims": [2**10, 2**10, 2**10]}, "more than"),
        ({"kind": "fft2d", "plane": [3, 0], "size": "1 KiB"}, "2 positive extents"),
        ({"kind": "fft2d", "plane": [3, 3], "planes": 2**30, "size": "1 KiB"}, "more than"),
        ({"kind": "fft2d", "plane": [3, 3], "size": "1 KiB", "plains": 3}, "plains"),
    ],
)
def test_mistakes_are_named(pattern: dict[str, object], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        build(pattern, None, 1)


def quick(path: str) -> Scenario:
    scenario = load(EXAMPLES / path)
    scenario.telemetry.scheme = "off"
    return scenario


def test_naive_reduction_runs_at_line_rate() -> None:
    scenario = quick("reduction/reduction.toml")
    pattern = scenario.job[0].pattern
    assert pattern is not None
    times = []
    for root in (0, 388):
        pattern.update(arrays=5, root=root)
        times.append(simulate(prepare(scenario)).elapsed_ps)
    floor = 1023 * 5 * 4096 * 80
    assert floor < times[0] < 1.01 * floor and abs(times[1] / times[0] - 1) < 1e-3


@pytest.mark.slow
def test_the_tree_beats_naive_reduction_as_published() -> None:
    naive = simulate(prepare(quick("reduction/reduction.toml"))).elapsed_ps
    tree = simulate(prepare(quick("reduction/tree.toml"))).elapsed_ps
    assert 0.85 < naive / tree / 86.9 < 1.15


def test_background_slows_the_ring_as_published() -> None:
    scenario = quick("background/background.toml")
    evaluate = make_evaluate(prepare(scenario))
    alone = evaluate(Change(background=False)).elapsed_ps
    assert abs(alone / 33.6e6 - 1) < 0.05
    assert evaluate(Change()).elapsed_ps > 1.4 * alone


def small_ghost(placement: str, method: str = "bspma", sums: str = "variable") -> Run:
    """miniGhost scaled down: again a row of x is a node and a plane a leaf of a 2:1 tree."""
    pattern = {
        "kind": "minighost",
        "dims": [6, 8, 4],
        "cells": [60, 60, 60],
        "method": method,
        "sums": sums,
        "compute": "1 ms",
    }
    job = {"ranks_per_host": 6, "placement": placement, "pattern": pattern}
    tree = {"hosts_per_leaf": 8, "leaves": 4, "aggregation": 4}
    engine = {"buffering": "output", "eager": "1 GiB"}
    return simulate(prepare(parse({"fabric": {"fat_tree": tree}, "job": [job], "engine": engine})))


def test_tiling_and_fewer_sums_shorten_communication() -> None:
    linear, tiled = small_ghost("block"), small_ghost("tile")
    changed = small_ghost("tile", "svaf", "step")
    times = [case_minighost.communication(run) for run in (linear, tiled, changed)]
    assert times[0] > 1.3 * times[1] and times[1] > 1.2 * times[2]
    x, y, z = case_minighost.phase_rows(linear, tiled)
    assert x.ours.startswith("no use") and y.ours.startswith("no use")
    assert int(z.ours.split("%")[0]) > 50
    assert len(case_minighost.boundary_rows(tiled)) == 3 * 3
    links = case_minighost.layers(tiled)
    assert set(links["tag"]) == {1000, 2000, 3000, 4000, 5000, 6000}
    # Nobody sends upwards into the first layer, nor downwards into the last.
    up, down = (
        links.filter((pl.col("axis") == "y") & (pl.col("tag") == tag))
        for tag in case_minighost.TAGS["y"]
    )
    assert 0 not in up["layer"] and up["count"][0] - 1 not in down["layer"]
    names = {name for row in case_minighost.tag_grid() for name, _ in row}
    assert names <= set(case_minighost.by_tag(tiled).tables["labels"]["phase"])


@pytest.mark.slow
def test_shifted_planes_use_the_same_hosts() -> None:
    default, shifted = quick("pf3d/pf3d.toml"), quick("pf3d/shifted.toml")
    assert default.job[1] == shifted.job[1] and default.engine == shifted.engine
    for scenario in (default, shifted):
        for job, messages in zip(scenario.job, (None, 7), strict=True):
            assert job.pattern is not None
            job.pattern.update({"rounds": 1} if messages is None else {"messages": messages})
    usual, moved = prepare(default), prepare(shifted)
    assert set(usual.observed.problem.slot_host) == set(moved.observed.problem.slot_host)
    leaf = moved.fabric.node_switch[moved.observed.node].reshape(-1, 144)
    assert (leaf == leaf[:, :1]).all()
    evaluate = make_evaluate(usual)
    alone = evaluate(Change(background=False)).elapsed_ps
    assert evaluate(Change()).elapsed_ps > 1.05 * alone
    assert simulate(moved).elapsed_ps < 1.01 * alone


@pytest.mark.parametrize("name", list(case_reasons.QUESTIONS))
def test_reasons_change_one_scenario_property(name: str) -> None:
    question = case_reasons.QUESTIONS[name]
    path = {"background": "background/background.toml", "minighost": "minighost/step.toml"}[name]
    usual = case_model.example(path).model_dump()
    for number, setting in enumerate(question.settings):
        changed = case_model.example(path)
        changed.job[0].placement = "tile" if name == "minighost" else changed.job[0].placement
        before = changed.model_dump()
        setting.change(changed)
        parts = [key for key in usual if changed.model_dump()[key] != before[key]]
        same = setting.change is case_reasons.nothing
        assert len(parts) == (0 if same else 1), (number, setting.name)
        for job in changed.job:
            assert job.pattern is not None
            build(
                {**job.pattern, "dims": [3, 4, 2]}
                if "dims" in job.pattern
                else {**job.pattern, "ranks": 8},
                None,
                1,
            )


def test_reasons_are_a_table_and_a_chart() -> None:
    question = case_reasons.QUESTIONS["background"]
    outcomes = [
        case_reasons.Outcome(name, 60.0 + n, 58.0, 62.0 + n, ("x", "y"))
        for n, name in enumerate(("as it is", "other"))
    ]
    text = case_reasons.table(question, outcomes)
    assert text.splitlines()[0].count("|") == 4 and "| other | x | y |" in text
    drawn = case_reasons.chart(question, outcomes)
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["as it is", "other"]
    page = case_reasons.PAGE.read_text(encoding="utf-8")
    for name, asked in case_reasons.QUESTIONS.items():
        part = page.split(f"<!-- {name} reasons -->\n")[1].split(f"<!-- end {name} reasons -->")[0]
        assert len(re.findall(r"^\|", part, re.M)) == len(asked.settings) + 2


def test_every_case_and_figure_is_on_the_page() -> None:
    text = cases.PAGE.read_text(encoding="utf-8")
    for name in cases.CASES:
        part = text.split(f"<!-- {name} -->\n", 1)[1].split(f"<!-- end {name} -->", 1)[0]
        assert "| quantity | theirs | ours |" in part and "tailback diagnose examples/" in part
    named = {cases.FIGURES / name for name in re.findall(r"\]\(figures/([\w.-]+\.png)\)", text)}
    assert named and all(path.stat().st_size < 300 * 1024 for path in named)
    assert named == set(cases.FIGURES.glob("*.png"))


def test_the_page_quotes_the_diagnosis() -> None:
    answer = case_model.DiagnoseAnswer(
        "tailback diagnose x", 1.0, "pattern", "placement", "H", ["F"], "R", ["W"]
    )
    case = case_model.Found("x", [case_model.Row("q", "1", "2")], [answer], seconds=2.0)
    text = cases.section(case)
    assert "| q | 1 | 2 |" in text and "**placement** (expected pattern)" in text
    assert "* H" in text and "* F" in text and "* remedy: R" in text and "* note: W" in text


def test_three_figures_contradict_one_another() -> None:
    """2.9× and 60 % less make 7.25×, whatever the rule; read as 60 % faster, all three can hold."""
    exact = minighost_rules.Outcome("x", 2.9, 7.25)
    assert exact.readings()["less time"] == pytest.approx(0.6)
    assert exact.met("less time") == [True, True, False]
    faster = minighost_rules.Outcome("y", 2.9, 2.9 * 1.6)
    assert all(faster.met("as much faster")) and not all(faster.met("less time"))
    assert "7.25×" in minighost_rules.summary([exact])
    assert len(minighost_rules.outcomes()) == len(case_reasons.MINIGHOST)
