"""What is read from the message log counts messages of steps that were left out, too."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.diagnosis.adapter_load import adapter_load
from tailback.diagnosis.message_delays import message_delays
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.topology import LinkTopology
from tailback.report.attribution import attribute
from tailback.report.figure_data import FigureData
from tailback.report.rank_pairs import binned
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate
from tailback.telemetry.left_out import copies, simulated_ps, skipped_times, whole_messages

TREE = {"fat_tree": {"hosts_per_leaf": 8, "leaves": 4, "aggregation": 2}}


def run(*, skip: bool, scheme: str = "full") -> Run:
    """A stencil whose computation is as long as its communication."""
    pattern = {
        "kind": "stencil3d",
        "dims": [4, 4, 2],
        "size": "64 KiB",
        "compute": "60 us",
        "post": "all",
    }
    return simulate(
        prepare(
            parse(
                {
                    "fabric": TREE,
                    "job": [{"pattern": pattern, "repeat": 160, "placement": "random"}],
                    "engine": {"routing": "deterministic", "skip_repeats": skip},
                    "telemetry": {"scheme": scheme},
                }
            )
        ),
        threads=1,
    )


@pytest.fixture(scope="module")
def both() -> tuple[Run, Run]:
    """The whole run and the one with steps left out."""
    return run(skip=False), run(skip=True)


def test_messages_stand_for_those_left_out(both: tuple[Run, Run]) -> None:
    complete, skipped = both
    assert skipped.tables["messages"].height < 0.6 * complete.tables["messages"].height
    assert copies(complete.tables).max() == 1
    assert simulated_ps(complete) == complete.elapsed_ps
    (window,) = skipped_times(skipped.tables)
    assert simulated_ps(skipped) == skipped.elapsed_ps - (window.end_ps - window.start_ps)
    counted = copies(skipped.tables)
    assert counted.sum() == pytest.approx(complete.summary["messages"], rel=0.03)
    size = skipped.tables["messages"]["size_bytes"].to_numpy() @ counted
    assert whole_messages(skipped.tables)["size_bytes"].sum() == pytest.approx(size, rel=1e-4)
    assert whole_messages(skipped.tables)["arrival_ps"].max() <= skipped.elapsed_ps


def test_without_windows_rows_share_what_was_skipped() -> None:
    skipped = run(skip=True, scheme="off")
    assert skipped.tables["skips"].height == 1
    counted = copies(skipped.tables)
    assert counted.sum() == pytest.approx(skipped.summary["messages"], rel=0.2)


def test_message_sums_are_the_runs(both: tuple[Run, Run]) -> None:
    stall = [sum(line.stall for line in attribute(each_run).lines) for each_run in both]
    assert stall[1] == pytest.approx(stall[0], rel=0.1)
    loads = [adapter_load(each_run).sent_bytes.max() for each_run in both]
    assert loads[1] == pytest.approx(loads[0], rel=0.03)
    lost = [message_delays(run, LinkTopology.of(run)) for run in both]
    assert lost[0] is not None
    assert lost[1] is not None
    assert lost[1].total == pytest.approx(lost[0].total, rel=0.15)
    cells = [binned(FigureData(each_run)) for each_run in both]
    assert cells[0] is not None
    assert cells[1] is not None
    assert cells[1][0].sum() == pytest.approx(cells[0][0].sum(), rel=0.03)


def test_skipped_steps_have_the_same_active_share(both: tuple[Run, Run]) -> None:
    shares = []
    for each_run in both:
        analysis = RunAnalysis(each_run)
        links = np.arange(analysis.topology.n_links)
        begin, end = (np.full(len(links), at) for at in (0, each_run.elapsed_ps))
        shares.append(analysis.activity.time_ps(links, begin, end) / each_run.elapsed_ps)
    assert shares[0].mean() < 0.9
    assert np.allclose(shares[0], shares[1], atol=0.05)
