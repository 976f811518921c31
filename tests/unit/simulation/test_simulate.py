"""From scenario to tables: several jobs, repetition, what-if, and the tables themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.errors import RunError, ScenarioError, TailbackError
from tailback.evaluate import Change
from tailback.run.run import Run
from tailback.run.schema import TABLES
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare, simulate
from tests.factories.unchecked_runs import without_manifest

TREE = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}}


def scenario(*jobs: dict[str, Any], **engine: Any) -> Any:
    """Two-level tree of 16 hosts; jobs as given."""
    return parse({"fabric": TREE, "job": list(jobs), "engine": engine})


def stencil(**more: Any) -> dict[str, Any]:
    """A 4 x 4 stencil."""
    pattern = {"kind": "stencil2d", "dims": [4, 4], "size": "64 KiB"}
    return {"pattern": pattern, **more}


def test_every_table_conforms_and_survives_the_disk(tmp_path: Path) -> None:
    run = simulate(scenario(stencil()))
    run.write(tmp_path / "run")
    again = Run.read(tmp_path / "run")
    for name, table in TABLES.items():
        assert dict(run.tables[name].schema) == table.polars_schema
        assert run.tables[name].equals(again.tables[name]), name
    assert again.summary == run.summary
    assert again.scenario == run.scenario


def test_estimates_add_up_to_the_truth() -> None:
    run = simulate(scenario(stencil()))
    samples, truth = run.tables["samples"], run.tables["truth"]
    links = run.tables["links"]
    inner = links.filter(~pl.col("from_node"))["link"]
    # Each packet charges its path length once, so the weights sum to the hops exactly.
    hops = truth.filter(pl.col("link").is_in(inner.implode()))["observed_packets"].sum()
    assert samples["hop_weight"].sum() == hops
    assert samples["hop_samples"].sum() == run.summary["observed_packets"]


def test_a_job_draws_from_its_own_seed() -> None:
    """As docs/reference/traffic.md says: the same pattern twice makes different choices."""
    job = {"pattern": {"kind": "uniform", "ranks": 6, "size": "1 KiB", "messages": 3}}
    document = {"fabric": TREE, "seed": 5, "job": [job | {"hosts": "0-7"}, job | {"hosts": "8-15"}]}
    first, second = (prepared_job.program.peer for prepared_job in prepare(parse(document)).jobs)
    assert not np.array_equal(first, second)
    alone = prepare(parse({"fabric": TREE, "seed": 6, "job": [job]})).jobs[0].program.peer
    np.testing.assert_array_equal(second, alone)


def test_windows_cover_the_run_and_hold_its_samples() -> None:
    run = simulate(scenario(stencil()))
    windows = run.tables["windows"]
    assert len(windows) >= 32
    assert windows["start_ps"][0] == 0
    assert windows["end_ps"][-1] == run.summary["end_ps"]
    assert (windows["end_ps"][:-1] == windows["start_ps"][1:]).all()
    for name in ("samples", "truth"):
        assert set(run.tables[name]["window"]) <= set(windows["window"])


def test_background_is_simulated_but_not_sampled() -> None:
    ours = stencil()
    ours["pattern"] = {"kind": "ring", "ranks": 8, "size": "256 KiB"}
    ours["hosts"] = "0,2,4,6,8,10,12,14"
    other = {
        "name": "noise",
        "observed": False,
        "hosts": "1,3,5,7,9,11,13,15",
        "pattern": {"kind": "uniform", "ranks": 8, "messages": 20, "size": "256 KiB"},
    }
    run = simulate(scenario(ours, other))
    assert set(run.tables["samples"]["job"]) == {0}
    assert run.tables["truth"]["packets"].sum() > run.tables["truth"]["observed_packets"].sum()
    alone = make_evaluate(prepare(scenario(ours, other)))(Change(background=False))
    assert alone.elapsed_ps < run.elapsed_ps
    assert run.summary["job_elapsed_ps"]["1"] > 0


def test_repetition_and_compute_scale() -> None:
    once = stencil()
    once["pattern"] |= {"compute": "100 us", "boundary": "skip"}
    base = simulate(scenario(once)).elapsed_ps
    twice = simulate(scenario({**once, "repeat": 2})).elapsed_ps
    assert 1.9 < twice / base < 2.1
    scaled = simulate(scenario({**once, "compute_scale": 2.0})).elapsed_ps
    assert scaled - base == 100_000_000


def test_what_if_changes_one_thing() -> None:
    evaluate = make_evaluate(prepare(scenario(stencil())))
    base = evaluate(Change())
    assert evaluate(Change()).elapsed_ps == base.elapsed_ps
    ideal = evaluate(Change(network="no-contention"))
    star = evaluate(Change(network="star"))
    assert ideal.elapsed_ps <= base.elapsed_ps
    assert star.elapsed_ps <= base.elapsed_ps
    assert set(star.tables["switches"]["name"]) == {"ideal"}
    node = np.arange(16, dtype=np.uint32)[::-1].copy()
    moved = evaluate(Change(placement=node, placement_name="reversed", measure=True))
    assert moved.tables["ranks"]["node"].to_list() == node.tolist()
    assert len(moved.tables["samples"]) > 0 and len(base.tables["samples"]) == 0


def test_measuring_a_run_keeps_its_time() -> None:
    prepared = prepare(scenario(stencil()))
    assert simulate(prepared).elapsed_ps == make_evaluate(prepared)(Change()).elapsed_ps


@pytest.mark.parametrize("routing", ["adaptive", "random", "deterministic"])
@pytest.mark.parametrize("buffering", ["input", "output"])
def test_every_routing_and_buffering_delivers(routing: str, buffering: str) -> None:
    job = stencil()
    job["pattern"] = {"kind": "alltoall", "ranks": 16, "size": "16 KiB"}
    run = simulate(scenario(job, routing=routing, buffering=buffering))
    assert (run.tables["messages"]["arrival_ps"] > 0).all()


def test_more_repetitions_than_fit_in_memory_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"repeat = 1000000000 makes") as caught:
        prepare(scenario({**stencil(), "repeat": 10**9}))
    assert "[[job]]" in str(caught.value) and caught.value.remedy


def test_mistakes_between_jobs() -> None:
    with pytest.raises(ScenarioError, match="both use host"):
        prepare(scenario(stencil(), {**stencil(), "name": "second"}))
    with pytest.raises(ScenarioError, match="no job is observed"):
        prepare(scenario({**stencil(), "observed": False}))
    with pytest.raises(TailbackError, match="unknown placement"):
        prepare(scenario(stencil(placement="tyle")))


def test_damaged_runs_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run\.json"):
        Run.read(tmp_path)
    without_manifest(simulate(scenario(stencil())).write(tmp_path / "run"))
    (tmp_path / "run" / "samples.parquet").write_bytes(b"not parquet")
    with pytest.raises(RunError, match="damaged Parquet file"):
        Run.read(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("{")
    with pytest.raises(RunError, match="damaged run directory"):
        Run.read(tmp_path / "run")
