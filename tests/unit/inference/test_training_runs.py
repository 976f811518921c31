"""Training runs: bus bandwidth, and which connection is slow by its network steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tailback as tb
from tailback.cli.explanation_screen import explanation_lines
from tailback.diagnosis.explanation import Explanation
from tailback.evidence import MeasuredRun
from tailback.evidence.model import LateRank
from tailback.evidence.step_times import step_profile
from tailback.fabric.degraded import SlowLink, degrade
from tailback.inference import measured_wording as wording
from tailback.inference.bus_bandwidth import bus_bandwidths
from tailback.inference.comparisons import NetworkStepTimes
from tailback.inference.hypothesis_space import HypothesisSpace
from tailback.inference.machine_models import MachineModel
from tailback.inference.measured_cables import equally_busy, late_groups
from tailback.inference.measured_run import measured_run
from tailback.run.run import Run
from tailback.scenario.model import Degraded
from tailback.simulation import PreparedScenario, execute, prepare
from tailback.sources.source import Source
from tests.factories.inspector_files import all_reduce, process, send_step, write

FOLLOWING = {0: 1, 1: 2, 2: 3, 3: 0}
SLOW = 2


@dataclass(frozen=True)
class Case:
    """A ring of four ranks; the cable of rank 2 has a quarter of the rate."""

    prepared: PreparedScenario
    measured: MeasuredRun

    def simulated(self, cable: str | None = None) -> Run:
        fabric = self.prepared.fabric
        slow = [] if cable is None else [Degraded(cable=cable, rate="25 Gb/s")]
        return execute(self.prepared, fabric=degrade(fabric, slow), record_computation=True)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    traces = tmp_path / "traces"
    traces.mkdir()
    # Rank 3 begins 100 us late: the others wait, and its own time is that of the network.
    ranks = [
        [
            *(
                all_reduce(k, 1000 * k + (100 if rank == 3 else 0), 1000 * k + 600, 1 << 20)
                for k in range(1, 4)
            ),
            send_step(1, FOLLOWING[rank], 84 if SLOW in (rank, FOLLOWING[rank]) else 21, 1 << 18),
        ]
        for rank in range(4)
    ]
    links = tmp_path / "links.csv"
    links.write_text("a,b,gbps\n" + "".join(f"n{k},leaf0,100\n" for k in range(4)))
    origin = Source.of(write(traces, *ranks), fabric=str(links))
    prepared = prepare(origin.scenario)
    measured = measured_run(prepared)
    assert measured is not None
    return Case(prepared, measured)


def test_bus_bandwidth_excludes_waits_for_late_ranks(case: Case) -> None:
    job = case.prepared.observed
    run, slow = case.simulated(), case.simulated("n2[1]")
    (row,) = bus_bandwidths(
        case.measured, job.program, case.prepared.fabric, job.node.astype(np.int64), (run, slow)
    )
    assert (row.call, row.n_ranks, row.n_hosts, row.count) == ("ncclAllReduce", 4, 4, 3)
    bus_bytes = 1.5 * (1 << 20)
    assert row.measured_gbytes == pytest.approx(bus_bytes / 500e3)
    assert row.with_waits_gbytes == pytest.approx(bus_bytes / 600e3)
    assert not row.contradicts_fabric
    faster = row.model_copy(update={"line_gbytes": row.measured_gbytes / 1.2})
    assert "check their rates" in faster.contradicts_fabric
    assert row.line_gbytes == 12.5
    assert row.line_gbytes > row.expected_gbytes > 2 * row.explained_gbytes > 0


def test_healthy_bandwidth_has_no_slow_cable(case: Case) -> None:
    """Which counters may show, so that every hypothesis has it."""
    times = []
    for slow in ((), (SlowLink(0, 10.0),)):
        space = SimpleNamespace(
            machines={"m": MachineModel(case.prepared, 0.0, slow)},
            threads=1,
            alone=lambda *_, **__: case.simulated(),
        )
        times.append(HypothesisSpace.healthy(space, "m").elapsed_ps)  # type: ignore[arg-type]
    assert times[1] == pytest.approx(times[0], rel=0.01)


def test_network_steps_tell_slow_connection(case: Case) -> None:
    healthy = case.simulated()
    profile = step_profile(case.measured.tables, healthy)
    assert profile is not None
    compare = NetworkStepTimes(profile)
    misfits = {f"n{k}": compare(case.simulated(f"n{k}[1]")) for k in range(4)}
    without = compare(healthy)
    assert without is not None
    assert min(misfits, key=lambda cable: misfits[cable] or 1.0) == f"n{SLOW}"
    assert (misfits[f"n{SLOW}"] or 1.0) < without / 3
    like = compare.to(case.simulated(f"n{SLOW}[1]"))
    assert like is not None
    assert like(case.simulated(f"n{SLOW}[1]")) == pytest.approx(0.0, abs=1e-9)


def test_equally_busy_cables_stand_for_one_another(case: Case) -> None:
    """All four cables of a ring; one of twice the rate is busy half as long."""
    run, fabric = case.simulated(), case.prepared.fabric
    assert len(set(equally_busy(run, fabric).values())) == 1
    assert len(equally_busy(run, fabric)) == 4
    doubled = np.asarray(fabric.link_gbps, np.float64).copy()
    doubled[[0, int(fabric.link_reverse[0])]] *= 2
    assert len(set(equally_busy(run, replace(fabric, link_gbps=doubled)).values())) == 2


def _two_groups(folder: Path, slow: int) -> Case:
    """Two rings of two hosts each; those of ``slow`` and its peer take 300 µs longer."""
    traces = folder / "traces"
    traces.mkdir(parents=True)
    for rank in range(4):
        took = 500 if rank // 2 == slow // 2 else 200
        entries = [all_reduce(k, 1000 * k, 1000 * k + took, 1 << 20) for k in (1, 2, 3)]
        text = process(rank % 2, 2, entries, comm=f"0x{rank // 2}", host=f"n{rank}")
        (traces / f"n{rank}-pid100.log").write_text(text)
    links = folder / "links.csv"
    links.write_text("a,b,gbps\n" + "".join(f"n{k},leaf0,100\n" for k in range(4)))
    prepared = prepare(Source.of(traces, fabric=str(links)).scenario)
    measured = measured_run(prepared)
    assert measured is not None
    return Case(prepared, measured)


def test_late_group_names_its_cables(tmp_path: Path) -> None:
    """Only cables of one group stand for one another, and those of the late one come first."""
    case = _two_groups(tmp_path, slow=2)
    run, fabric = case.simulated(), case.prepared.fabric
    assert len(set(equally_busy(run, fabric).values())) == 2
    late = late_groups(case.measured.tables, run, fabric)
    assert {fabric.link_name(link)[:2] for link in late[:2]} == {"n2", "n3"}


def test_late_ranks_are_of_hosts_or_accelerators() -> None:
    def late(share: float | None) -> list[LateRank]:
        return [LateRank(rank=3, waited_ps=9, excess_ps=10, idle_share=share)]

    assert "on the accelerator for 90 %" in wording.slow_side(late(0.1), "imbalance")
    assert "waiting for launches by the host for 80 %" in wording.slow_side(late(0.8), "imbalance")
    assert wording.slow_side(late(None), "imbalance") == wording.check_side(late(None)) == ""
    assert wording.slow_side(late(0.8), "noise") == ""
    assert "data loading" in wording.check_side(late(0.8))
    assert "clocks, power" in wording.check_side(late(0.1))


def test_screen_shows_bus_bandwidth(case: Case) -> None:
    job, run = case.prepared.observed, case.simulated()
    node = job.node.astype(np.int64)
    rows = bus_bandwidths(case.measured, job.program, case.prepared.fabric, node, (run, run))
    explanation = Explanation(
        elapsed_ps=10,
        parts={"not explained": 10},
        costs=[],
        not_explained_ps=10,
        model_error_ps=0,
        missing=[],
        sources=[],
        bus_bandwidths=list(rows),
    )
    lines = explanation_lines(explanation)
    assert any(line.split()[:4] == ["AllReduce", "1", "MiB", "4/4"] for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_contradicting_steps_leave_cause_open(case: Case, tmp_path: Path) -> None:
    links = case.prepared.scenario.fabric.file
    result = tb.diagnose(tmp_path / "traces", fabric=links, seeds=1, methods=["block"])
    # The steps show a slow cable, and the calls take no longer than on a healthy network.
    assert result.cause == "undetermined"
    result.write(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Bus bandwidth of collectives" in page
