"""Times of sends, traced and simulated: they tell apart ranks that wait for one another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.evaluate import Change, Evaluate
from tailback.evidence import MeasuredRun, measure
from tailback.evidence.send_times import send_profile
from tailback.fabric.degraded import SlowLink
from tailback.inference.comparisons import SendSpread, SendTimes
from tailback.inference.measured_cables import (
    MessagePaths,
    StallClues,
    cable_suspects,
    carrying_cables,
    late_sends,
)
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import PreparedScenario, make_evaluate, prepare
from tests.factories.otf2_traces import writing
from tests.factories.simulated_traces import RESOLUTION, scripts_of

PATTERN = {
    "kind": "stencil2d",
    "dims": [4, 2],
    "size": "256 KiB",
    "rounds": 10,
    "post": "all",
    "boundary": "skip",
    "compute": "30 us",
}
TREE = {"hosts_per_leaf": 2, "leaves": 4, "aggregation": 2}
CHANGE = Change(computations=True, measure=True)


def world(job: dict[str, Any]) -> tuple[PreparedScenario, Evaluate]:
    prepared = prepare(parse({"fabric": {"fat_tree": TREE}, "job": [job]}))
    return prepared, make_evaluate(prepared)


def slow_host(prepared: PreparedScenario, node: int) -> tuple[int, float]:
    """The cable of a host, at a quarter of its rate."""
    fabric = prepared.fabric
    link = int(np.flatnonzero(fabric.link_src == node)[0])
    return SlowLink(link, 0.25 * float(fabric.link_gbps[link]))


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[MeasuredRun, Path]:
    """A run in which the cable of host 5 is slow, and its trace."""
    prepared, evaluate = world({"pattern": PATTERN})
    run = evaluate(replace(CHANGE, slow=(slow_host(prepared, 5),)))
    write = writing(tmp_path_factory.mktemp("traces"))
    path = write(scripts_of(prepared.observed.program, run), resolution=RESOLUTION)
    return measure(path, environment={}), path


@pytest.fixture(scope="module")
def simulated(traced: tuple[MeasuredRun, Path]) -> tuple[PreparedScenario, Evaluate, Run]:
    prepared, evaluate = world({"trace": str(traced[1])})
    return prepared, evaluate, evaluate(CHANGE)


def sends_of(run: Run) -> dict[str, pl.DataFrame]:
    """A measured run in which each message is sent by a call that waits until it is there."""
    rows = (
        run.tables["messages"]
        .with_row_index("send_call")
        .select(
            "send_call",
            "src_rank",
            "dst_rank",
            send_done_call="send_call",
            recv_done_call=pl.lit(None, pl.UInt32),
            send_enter_ps=pl.col("post_ps").cast(pl.Int64),
            leave_ps=pl.col("arrival_ps").cast(pl.Int64),
        )
    )
    return {
        "transfers": rows.drop("leave_ps"),
        "calls": rows.select(call="send_call", rank="src_rank", leave_ps="leave_ps"),
    }


def test_sends_identify_the_slow_cable_among_waiters() -> None:
    prepared, evaluate = world({"pattern": {**PATTERN, "post": "sequence"}})
    runs = [evaluate(replace(CHANGE, slow=(slow_host(prepared, node),))) for node in range(8)]
    alone = evaluate(CHANGE)
    profile = send_profile(sends_of(runs[5]), alone)
    assert profile is not None and profile.count.sum() == alone.tables["messages"].height
    misfit = [SendTimes(profile)(run) for run in (alone, *runs)]
    assert misfit[6] == pytest.approx(0.0, abs=1e-9)
    others = misfit[:6] + misfit[7:]
    assert all(other is not None and other > 0.02 for other in others)


def test_the_sender_distribution_tells_the_slowdown_only() -> None:
    prepared, evaluate = world({"pattern": {**PATTERN, "post": "sequence"}})
    runs = {node: evaluate(replace(CHANGE, slow=(slow_host(prepared, node),))) for node in (3, 5)}
    alone = evaluate(CHANGE)
    profile = send_profile(sends_of(runs[5]), alone)
    assert profile is not None
    spread, sends = SendSpread(profile), SendTimes(profile)
    assert spread(runs[5]) == pytest.approx(0.0, abs=1e-9)
    # Host 3 is where host 5 is, seen from the other end of the grid.
    like_it, misfit, without = spread(runs[3]), sends(runs[3]), spread(alone)
    assert like_it is not None and misfit is not None and without is not None
    assert like_it < 0.5 * misfit and like_it < 0.5 * without


def test_a_simulation_without_its_messages_is_not_compared(
    traced: tuple[MeasuredRun, Path], simulated: tuple[PreparedScenario, Evaluate, Run]
) -> None:
    alone = simulated[2]
    fewer = replace(alone, tables={**alone.tables, "messages": alone.tables["messages"][:-1]})
    assert send_profile(traced[0].tables, fewer) is None
    profile = send_profile(traced[0].tables, alone)
    assert profile is not None and SendTimes(profile)(fewer) is None


def test_a_trace_without_send_completions_has_no_profile(
    traced: tuple[MeasuredRun, Path], simulated: tuple[PreparedScenario, Evaluate, Run]
) -> None:
    tables = dict(traced[0].tables)
    tables["transfers"] = tables["transfers"].with_columns(send_done_call=pl.lit(None, pl.UInt32))
    assert send_profile(tables, simulated[2]) is None


def test_after_the_last_post_slow_cable_calls_lag(
    traced: tuple[MeasuredRun, Path], simulated: tuple[PreparedScenario, Evaluate, Run]
) -> None:
    """Waits for partners that post late spread over the grid; transfers do not."""
    prepared, evaluate, alone = simulated
    profile = send_profile(traced[0].tables, alone)
    assert profile is not None
    middle, near = 2, [1, 4, 5, 6]  # The median; host 5 and its partners.
    waits, transfers = (
        seen[:, middle] / usual[:, middle]
        for seen, usual in (
            (profile.quantiles_ps, profile.of_run(alone)),
            (profile.posted_quantiles_ps, profile.of_run(alone, posted=True)),
        )
        if usual is not None
    )
    assert len(waits) == len(transfers) == 8
    assert waits.min() > 3.0
    assert transfers[near].min() > 2.4 and np.delete(transfers, near).max() < 1.5
    # What no cable nearby explains, the right one does.
    sends = SendTimes(profile)
    misfit = [
        sends(evaluate(replace(CHANGE, slow=(slow_host(prepared, node),)))) for node in (4, 5, 6)
    ]
    assert misfit[1] is not None and all(
        other is not None and misfit[1] < 0.1 * other for other in (misfit[0], misfit[2])
    )


@pytest.mark.parametrize("tables", [False, True])
def test_the_slow_cable_best_explains_late_sends(
    traced: tuple[MeasuredRun, Path],
    simulated: tuple[PreparedScenario, Evaluate, Run],
    tables: bool,
) -> None:
    """All ranks wait equally long for one another, and host 5 carries as much as the others."""
    prepared, _, alone = simulated
    profile = send_profile(traced[0].tables, alone)
    assert profile is not None
    fabric = prepared.fabric
    asked = list[tuple[int, int]]()

    def forwarded(src: Any, dst: Any) -> tuple[Any, Any]:
        """Paths that end at the leaf switches: injection and ejection links."""
        asked.extend(zip(src.tolist(), dst.tolist(), strict=True))
        first = [int(np.flatnonzero(fabric.link_src == node)[0]) for node in src]
        last = [int(np.flatnonzero(fabric.link_dst == node)[0]) for node in dst]
        number = np.arange(len(src))
        return np.concatenate([number, number]), np.array(first + last, np.int64)

    paths = MessagePaths(fabric, forwarded if tables else None)
    slow = slow_host(prepared, 5).link
    late_links = late_sends(profile, alone, paths)
    assert late_links[0] == min(slow, int(fabric.link_reverse[slow]))
    assert (len(asked) > 0) is tables
    # Nothing is late compared with itself.
    same = SendTimes(profile).to(alone)
    assert same is not None and late_sends(same.profile, alone, paths) == []
    # Cables that stalls point to come first, then these, then all others in use, once each.
    suspects = cable_suspects(profile, alone, StallClues(ahead=(0,)), paths, 100)
    assert suspects[1] == late_links[0] and len(set(suspects)) == len(suspects) > len(late_links)
    assert (
        cable_suspects(None, alone, StallClues(), paths, 3)
        == carrying_cables(alone, fabric)[:3].tolist()
    )
    # Before all of them come cables with errors.
    last = suspects[-1]
    faulty_first = cable_suspects(profile, alone, StallClues(ahead=(0,)), paths, 100, [last])
    assert faulty_first == [last, *suspects[:-1]]
