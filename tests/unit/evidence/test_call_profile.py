"""Time in calls by rank and site: of a trace, and the same of a simulation of its program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.evaluate import Change
from tailback.evidence import measure
from tailback.evidence.call_profile import CallProfile, call_profile, times_between_computations
from tailback.evidence.site_quantiles import QUANTILES
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tailback.traffic.program import Op, Program
from tests.factories.otf2_traces import writing
from tests.factories.simulated_traces import RESOLUTION, scripts_of

PATTERN = {
    "kind": "stencil2d",
    "dims": [4, 2],
    "size": "64 KiB",
    "rounds": 5,
    "post": "all",
    "boundary": "skip",
    "compute": "30 us",
}
TREE = {"hosts_per_leaf": 2, "leaves": 4, "aggregation": 2}


def simulated(job: dict[str, Any]) -> tuple[Run, Program]:
    prepared = prepare(parse({"fabric": {"fat_tree": TREE}, "job": [job]}))
    return make_evaluate(prepared)(Change(computations=True)), prepared.observed.program


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Program, Path]:
    """A run, its program, and a trace of it."""
    run, program = simulated({"pattern": PATTERN})
    write = writing(tmp_path_factory.mktemp("traces"))
    return run, program, write(scripts_of(program, run), resolution=RESOLUTION)


@pytest.fixture(scope="module")
def profiled(recorded: tuple[Run, Program, Path]) -> tuple[CallProfile, Program, Run]:
    """The profile of the trace, the program compiled of it, and a simulation of that."""
    run, program = simulated({"trace": str(recorded[2])})
    return call_profile(measure(recorded[2], environment={}).tables, program), program, run


def test_a_simulation_has_the_profile_of_its_trace(
    recorded: tuple[Run, Program, Path], profiled: tuple[CallProfile, Program, Run]
) -> None:
    profile, program, _ = profiled
    assert profile.complete.all() and len(profile.rank) >= program.n_ranks
    quantiles_ps = profile.of_run(recorded[0], recorded[1])
    assert quantiles_ps is not None
    # Each call takes a tick at least.
    np.testing.assert_allclose(quantiles_ps, profile.quantiles_ps, atol=2)
    assert profile.quantiles_ps.min() > 1e6


def test_a_traces_program_simulates_to_its_times(
    profiled: tuple[CallProfile, Program, Run],
) -> None:
    profile, program, run = profiled
    quantiles_ps = profile.of_run(run, program)
    assert quantiles_ps is not None
    np.testing.assert_allclose(quantiles_ps, profile.quantiles_ps, rtol=0.1, atol=1e6)


def test_repetitions_of_a_site_are_one(profiled: tuple[CallProfile, Program, Run]) -> None:
    profile, program, _ = profiled
    # 5 rounds of a corner's exchange with its two neighbours are one site, of an edge's with three.
    assert np.bincount(profile.rank, minlength=program.n_ranks).tolist() == [1] * 8
    assert set(profile.count.tolist()) == {5.0}
    for number, rank in enumerate(profile.rank):
        site = profile.duration_ps[profile.site_of == number]
        assert profile.quantiles_ps[number] == pytest.approx(np.quantile(site, QUANTILES))
        assert profile.name[number] == "MPI_Irecv MPI_Isend MPI_Waitall"
        assert (np.repeat(np.arange(8), profile.stretches)[profile.site_of == number] == rank).all()


def test_ranks_with_other_calls_are_left_out(
    recorded: tuple[Run, Program, Path], profiled: tuple[CallProfile, Program, Run]
) -> None:
    run, program, path = recorded
    tables = dict(measure(path, environment={}).tables)
    calls = tables["calls"]
    last = calls.filter(pl.col("rank") == 3).sort("enter_ps")["call"][-3:]
    tables["calls"] = calls.filter(~pl.col("call").is_in(last.implode()))
    profile = call_profile(tables, program)
    assert profile.complete.tolist() == [True] * 3 + [False] + [True] * 4
    assert 3 not in profile.rank
    quantiles_ps = profile.of_run(run, program)
    assert quantiles_ps is not None
    np.testing.assert_allclose(quantiles_ps, profile.quantiles_ps, atol=2)


def test_another_program_or_missing_computations_prevent_comparison(
    recorded: tuple[Run, Program, Path], profiled: tuple[CallProfile, Program, Run]
) -> None:
    profile, _, run = profiled
    fewer, other = simulated({"pattern": {**PATTERN, "rounds": 4}})
    assert profile.of_run(fewer, other) is None
    assert times_between_computations(run, other) is None
    assert profile.of_run(replace(run, computations=None), recorded[1]) is None


def test_stretches_and_computations_fill_each_ranks_time(
    recorded: tuple[Run, Program, Path],
) -> None:
    run, program, _ = recorded
    stretches = times_between_computations(run, program)
    assert stretches is not None
    durations, counts = stretches
    inside = np.bincount(np.repeat(np.arange(8), counts), durations)
    compute = program.kind == Op.COMPUTE
    computed_ps = np.bincount(program.op_rank[compute], program.amount[compute], 8)
    finish = run.tables["ranks"].sort("job_rank")["finish_ps"].to_numpy()
    np.testing.assert_allclose(inside + computed_ps, finish, atol=1)
    assert (durations >= 0).all()
