"""Other algorithms of NCCL as remedies."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

from tailback.diagnosis import diagnose_cause
from tailback.errors import ScenarioError
from tailback.evaluate import Change
from tailback.inference.machine_models import TREES_IN_TURN, with_algorithm
from tailback.remedy import RemedyContext, find_remedy
from tailback.scenario.model import Scenario, parse
from tailback.simulation import make_evaluate, prepare, simulate
from tests.factories.repository import ROOT

EXAMPLE = (ROOT / "examples" / "training" / "tree.toml").read_text().replace("4 MiB", "512 KiB")


def scenario(text: str) -> Scenario:
    return parse(tomllib.loads(text))


def test_another_algorithm_is_proved_to_be_faster() -> None:
    """Sums over trees with a flag for every word, where a ring sends half as much."""
    prepared = prepare(scenario(EXAMPLE))
    evaluate = make_evaluate(prepared, threads=1)
    run = simulate(prepared.scenario, threads=1)
    means = RemedyContext(
        evaluate, program=prepared.observed.program, kinds=frozenset({"collectives"})
    )
    diagnosis = find_remedy(run, diagnose_cause(run, evaluate, seeds=1), means, seeds=1)
    assert diagnosis.remedy is not None
    assert diagnosis.remedy.name in ("nccl-ring-simple", "nccl-tree-simple")
    names = {candidate.name for candidate in diagnosis.remedy.candidates}
    assert {"nccl-ring", "nccl-ring-simple", "nccl-tree-simple"} <= names
    assert "nccl-tree" not in names  # It runs so already.
    best = diagnosis.remedy.candidates[0]
    assert best.proved and best.elapsed_ps < 0.7 * run.summary["elapsed_ps"]
    assert "NCCL_PROTO=Simple" in best.action


def test_the_scenario_chooses_how_collectives_run() -> None:
    program = prepare(scenario(EXAMPLE)).observed.program
    assert "2 ncclAllReduce: tree, ll, 2 channels" in program.notes[-1]
    repeated = EXAMPLE.replace('name = "training"\n', 'name = "training"\nrepeat = 2\n')
    twice = prepare(scenario(repeated)).observed.program
    assert twice.recompile is not None
    ring = twice.recompile(scenario(EXAMPLE).job[0].nccl)  # type: ignore[arg-type]
    assert np.array_equal(ring.amount, twice.amount) and len(ring.kind) == 2 * len(program.kind)


def test_a_job_without_nccl_refuses_the_table() -> None:
    other = EXAMPLE.partition("[job.pattern]")[0] + (
        '[job.pattern]\nkind = "ring"\nranks = 16\nsize = "1 KiB"\n[job.nccl]\nchannels = 2\n'
    )
    with pytest.raises(ScenarioError, match="no collectives of NCCL") as caught:
        prepare(scenario(other))
    assert caught.value.place and "job.nccl" in caught.value.place


def test_trees_in_turn_take_longer() -> None:
    tree = prepare(scenario(EXAMPLE))
    in_turn = with_algorithm(tree, TREES_IN_TURN)
    assert in_turn is not None
    times = [make_evaluate(each, threads=1)(Change()).elapsed_ps for each in (tree, in_turn)]
    assert times[1] > times[0]
    ring = prepare(scenario(EXAMPLE.replace('algorithm = "tree"', 'algorithm = "ring"')))
    assert with_algorithm(ring, TREES_IN_TURN) is None
