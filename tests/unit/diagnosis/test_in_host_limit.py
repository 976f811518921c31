"""Transfers within hosts as a cause: the step of the waterfall, the verdict, exposed and hidden
communication."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.api.diagnose import diagnose as diagnose_source
from tailback.diagnosis import Diagnosis
from tailback.diagnosis.overlap import hidden_fraction, may_overlap
from tailback.evaluate import Change
from tailback.remedy import diagnose
from tailback.run.run import Run
from tailback.scenario.model import Scenario, parse
from tailback.simulation import make_evaluate, prepare
from tailback.traffic.program import Label, ProgramBuilder


def tensor_parallel(rate: str, sharing: str = "ports", **fabric: Any) -> Scenario:
    """Two hosts of four accelerators: layers are summed within hosts, gradients between them."""
    return parse(
        {
            "fabric": {
                "topology": {
                    "kind": "pgft",
                    "children": [2, 4],
                    "parents": [1, 2],
                    "rails": 4,
                    "rail_leaf": "own",
                    "rates": ["200 Gb/s"],
                    "host_rate": "200 Gb/s",
                },
                **fabric,
            },
            "job": [
                {
                    "ranks_per_host": 4,
                    "pattern": {
                        "kind": "training",
                        "data": 2,
                        "tensor": 4,
                        "layers": 2,
                        "activation": "16 MiB",
                        "gradient": "64 KiB",
                        "compute": "100 us",
                    },
                }
            ],
            "engine": {"local_rate": rate, "local_sharing": sharing},
        }
    )


def diagnosed(scenario: Scenario) -> tuple[Diagnosis, Any]:
    prepared = prepare(scenario)
    evaluate = make_evaluate(prepared)
    return diagnose(evaluate(Change(measure=True)), evaluate, seeds=1), evaluate


def test_slow_transfers_within_hosts_are_the_cause() -> None:
    diagnosis, evaluate = diagnosed(tensor_parallel("400 Gb/s"))
    assert diagnosis.cause == "in-host"
    bars = {bar.name: bar for bar in diagnosis.waterfall}
    assert list(bars)[:4] == ["ideal", "paths", "in-host", "injection"]
    # Nothing else costs time here, so the step is what free transfers save of the full run.
    free = evaluate(Change(in_host="free")).elapsed_ps
    saved = diagnosis.elapsed_ps - free
    assert bars["in-host"].delta_ps == pytest.approx(saved, rel=0.02)
    share = next(in_host for in_host in diagnosis.shares if in_host.cause == "in-host")
    assert share.removed == pytest.approx(saved / diagnosis.elapsed_ps, rel=1e-6)
    assert f"{share.charged:.0%}".replace("%", " %") in diagnosis.headline
    assert diagnosis.agreement is not None
    assert diagnosis.agreement.holds == diagnosis.agreement.of


def test_a_fast_host_switch_is_not_the_cause() -> None:
    diagnosis, _ = diagnosed(tensor_parallel("400 Tb/s"))
    assert diagnosis.cause != "in-host"
    step = next(bar for bar in diagnosis.waterfall if bar.name == "in-host")
    assert 0 < step.delta_ps < 0.05 * diagnosis.elapsed_ps


def test_one_host_of_an_older_generation_is_named() -> None:
    old = [{"hosts": "1", "rate": "200 Gb/s"}]
    diagnosis, _ = diagnosed(tensor_parallel("3600 Gb/s", in_host=old))
    assert diagnosis.cause == "in-host"
    finding = next(older_host for older_host in diagnosis.findings if older_host.code == "TB009")
    assert "at 200 Gb/s" in finding.explanation
    assert any(f"rank {rank} " in finding.explanation for rank in range(4, 8))


def test_an_assumed_rate_within_hosts_is_no_cause() -> None:
    """Without a rate of the memory, the rate that messages share is a default."""
    diagnosis, _ = diagnosed(tensor_parallel("400 Gb/s", sharing="memory"))
    assert diagnosis.cause != "in-host"
    assert all(bar.name != "in-host" for bar in diagnosis.waterfall)


def run_of(log: list[tuple[int, int, int, int]], finish: int, began: dict[str, list[int]]) -> Run:
    names = ("src_rank", "dst_rank", "start_ps", "arrival_ps")
    scenario = parse(
        {
            "fabric": {"preset": "tapered"},
            "job": [{"pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}}],
        }
    )
    tables = {
        "messages": pl.DataFrame(log, schema=dict.fromkeys(names, pl.UInt64), orient="row"),
        "ranks": pl.DataFrame({"finish_ps": [finish, finish]}),
    }
    return Run(scenario, tables, {}, computations=pl.DataFrame(began))


def test_hidden_communication_is_computation_during_messages() -> None:
    builder = ProgramBuilder("overlap", 2)
    label = builder.label(Label("phase", "MPI_Isend", 0, ""))
    for rank in range(2):
        for _ in range(2):
            builder.isend(rank, 1 - rank, 8, 0, label)
            builder.irecv(rank, 1 - rank, 8, 0, label)
        builder.compute(rank, 100)
        builder.waitall(rank)
        builder.compute(rank, 50)
    program = builder.build()
    assert may_overlap(program)
    began = {"rank": [0, 0, 1, 1], "start_ps": [10, 300, 10, 300]}
    # In flight 20–60 and 50–90, which overlap, and 105–130: 75 ps of 10–110, none of 300–350.
    log = [(0, 1, 20, 60), (1, 0, 50, 90), (0, 1, 105, 130)]
    assert hidden_fraction(run_of(log, 400, began), program) == pytest.approx(75 / 400)
    # A message that is longer than a later one.
    log = [(0, 1, 0, 200), (1, 0, 50, 90), (0, 1, 340, 400)]
    assert hidden_fraction(run_of(log, 400, began), program) == pytest.approx(110 / 400)
    assert hidden_fraction(run_of([], 400, began), program) == 0
    other = {"rank": [0, 1], "start_ps": [10, 10]}
    assert hidden_fraction(run_of(log, 400, other), program) is None


def test_a_program_waiting_before_computing_hides_nothing() -> None:
    builder = ProgramBuilder("blocking", 2)
    label = builder.label(Label("phase", "MPI_Isend", 0, ""))
    for rank in range(2):
        builder.isend(rank, 1 - rank, 8, 0, label)
        builder.irecv(rank, 1 - rank, 8, 0, label)
        builder.waitall(rank)
        builder.compute(rank, 100)
    assert not may_overlap(builder.build())


@pytest.mark.parametrize("times", [6, 60])
def test_hidden_communication_is_known_without_skipped_steps(tmp_path: Path, times: int) -> None:
    trace = tmp_path / "ahead.ti"
    # Rank 0 runs ahead of rank 1, which computes for longer, so no step can be skipped.
    trace.write_text(
        "0 init\n1 init\n0 isend 1 7 2000 6\n0 compute 20000\n0 waitall 1\n0 finalize\n"
        "1 irecv 0 7 2000 6\n1 compute 30000\n1 waitall 1\n1 finalize\n"
    )
    scenario = tmp_path / "ahead.toml"
    scenario.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 2\nleaves = 2\naggregation = 1\n"
        f"[[job]]\ntrace = 'ahead.ti'\nrepeat = {times}\n[engine]\nrouting = 'deterministic'\n"
    )
    complete, attempt = (
        diagnose_source(scenario, skip_repeats=skip, seeds=1, remedies=("routing",), threads=1)
        for skip in (False, True)
    )
    assert "skipped" not in attempt.run.summary
    hidden = complete.diagnosis.hidden_fraction
    assert hidden is not None and hidden > 0
    assert attempt.diagnosis.hidden_fraction == hidden
