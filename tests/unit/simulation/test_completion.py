"""When a send is complete, from the scenario to the times of a run; the rate of adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.api.sweep.plan import plain_data
from tailback.errors import ScenarioError
from tailback.run.run import Run
from tailback.scenario.model import Scenario, load, parse
from tailback.simulation import FluidOptions, prepare, simulate, simulate_fluid

TREE = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 2}}
SIZE = 8 * 4096
WIRE_PS = SIZE * 80
LATENCY_PS = 60_000
"""Over one switch: cables have no delay."""


def scenario(*jobs: dict[str, Any], **engine: Any) -> Scenario:
    """Two leaves of four hosts, no software, no handshake."""
    engine = {"send_delay": "0 s", "eager": "1 GiB", **engine}
    return parse({"fabric": TREE, "job": list(jobs), "engine": engine})


def ring(post: str, **more: Any) -> dict[str, Any]:
    """Three messages of each of four ranks on one leaf, to the left neighbour."""
    pattern = {"kind": "ring", "ranks": 4, "messages": 3, "size": "32 KiB", "post": post}
    return {"pattern": pattern, "hosts": "0-3", **more}


def fluid(case: Scenario) -> Run:
    """The fluid model, exact in time."""
    return simulate_fluid(prepare(case), FluidOptions(quantum_ps=0))


@pytest.mark.parametrize("model", [simulate, fluid])
@pytest.mark.parametrize(
    ("post", "elapsed_ps"),
    [
        ("sequence", 3 * WIRE_PS + LATENCY_PS),
        ("all", 3 * WIRE_PS + LATENCY_PS),
        ("delivered", 3 * (WIRE_PS + LATENCY_PS)),
        ("acknowledged", 3 * (WIRE_PS + LATENCY_PS) + 3 * LATENCY_PS),
    ],
)
def test_each_message_posted_on_delivery_costs_its_latency(
    post: str, elapsed_ps: int, model: Callable[[Scenario], Run]
) -> None:
    run: Run = model(scenario(ring(post)))
    if post == "acknowledged" and model is simulate:
        # An acknowledgement occupies its links as 32 B do; the fluid model gives it no bandwidth.
        elapsed_ps += 3 * 32 * 80
    assert run.elapsed_ps == elapsed_ps


@pytest.mark.parametrize("model", [simulate, fluid])
def test_senders_of_copied_messages_go_on(model: Callable[[Scenario], Run]) -> None:
    def posted(**engine: Any) -> set[int]:
        run = model(scenario(ring("sequence"), **engine))
        assert run.elapsed_ps == 3 * WIRE_PS + LATENCY_PS
        return set(run.tables["messages"]["post_ps"].to_list())

    assert posted(eager_sends="sent") == {0, WIRE_PS, 2 * WIRE_PS}
    assert posted(eager_sends="copied") == {0}


def test_a_stencil_posted_on_delivery_takes_its_turns() -> None:
    pattern = {
        "kind": "stencil2d",
        "dims": [4, 1],
        "size": "32 KiB",
        "periodic": True,
        "order": ["-x", "+x"],
    }
    times = []
    for post in ("sequence", "delivered", "acknowledged"):
        job = {"pattern": {**pattern, "post": post}, "hosts": "0-3"}
        times.append(simulate(scenario(job)).elapsed_ps)
    turn = WIRE_PS + LATENCY_PS
    assert times == [2 * WIRE_PS + LATENCY_PS, 2 * turn, 2 * (turn + 32 * 80 + LATENCY_PS)]


@pytest.mark.parametrize("post", ["delivered", "acknowledged"])
def test_threads_do_not_change_completion_on_delivery(post: str) -> None:
    pattern = {"kind": "uniform", "ranks": 8, "size": "20 KiB", "messages": 4, "post": post}
    single, four = (simulate(scenario({"pattern": pattern}), threads=n) for n in (1, 4))
    assert all(frame.equals(four.tables[name]) for name, frame in single.tables.items())


def test_an_adapter_below_link_rate_takes_longer() -> None:
    slow = simulate(scenario(ring("sequence"), injection_rate="50 Gb/s"))
    packet_ps = 4096 * 80
    assert slow.elapsed_ps == (3 * 8 - 1) * 2 * packet_ps + packet_ps + LATENCY_PS
    # Packets are on the wire at its rate: the link is busy half the time.
    busy = slow.tables["truth"].join(slow.tables["links"], on="link").filter("from_node")
    assert (
        busy.group_by("link").agg(pl.col("busy_ps").sum())["busy_ps"].to_list() == [3 * WIRE_PS] * 4
    )
    faster = simulate(scenario(ring("sequence"), injection_rate="400 Gb/s"))
    assert faster.elapsed_ps == 3 * WIRE_PS + LATENCY_PS


@pytest.mark.parametrize("rate", ["0 Gb/s", "-1 Gb/s", "1e9 Gb/s"])
def test_an_injection_rate_out_of_range_is_refused(rate: str) -> None:
    with pytest.raises(ScenarioError, match="injection_rate"):
        scenario(ring("all"), injection_rate=rate)


def test_the_fluid_model_reports_ignored_adapter_rates() -> None:
    run = simulate_fluid(prepare(scenario(ring("all"), injection_rate="50 Gb/s")))
    assert any("injection_rate" in note for note in run.notes)


def test_a_host_is_shared_only_on_request() -> None:
    other = {"name": "service", "pattern": ring("all")["pattern"], "hosts": "3-6"}
    with pytest.raises(ScenarioError, match="shared_hosts = true"):
        prepare(scenario(ring("all"), other))
    run = simulate(scenario(ring("all"), {**other, "shared_hosts": True}))
    alone = simulate(scenario(ring("all")))
    assert run.summary["messages"] == 2 * alone.summary["messages"]
    # Host 3 receives from both jobs, and sends for both.
    assert run.elapsed_ps > alone.elapsed_ps


def test_a_message_list_is_beside_its_scenario(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("source,destination,bytes\n0,1,32768\n", encoding="utf-8")
    (tmp_path / "one.toml").write_text(
        """
        [fabric.fat_tree]
        hosts_per_leaf = 4
        leaves = 2
        aggregation = 2

        [[job]]
        pattern = { kind = "listed", ranks = 2, file = "list.csv", post = "delivered" }

        [engine]
        send_delay = "0 s"
        eager = "1 GiB"
        """,
        encoding="utf-8",
    )
    loaded = load(tmp_path / "one.toml")
    assert simulate(loaded).elapsed_ps == WIRE_PS + LATENCY_PS
    # A sweep's copies of the scenario are elsewhere.
    assert plain_data(loaded)["job"][0]["pattern"]["file"] == str(tmp_path / "list.csv")


OVERLAP = """num_ranks 2
rank 0 {
l1: send 32768b to 1 tag 1
l2: calc 50000
}
rank 1 {
l1: recv 32768b from 0 tag 1
l2: calc 50000
}
"""
"""Both ranks compute for 50 us while a message is under way."""


@pytest.mark.parametrize(
    ("progress", "eager", "after_ps"),
    [
        ("always", "4 KiB", 0),
        ("calls", "64 KiB", 0),
        # Both answer a part of the handshake after their computation.
        ("calls", "4 KiB", WIRE_PS + 2 * LATENCY_PS),
    ],
)
def test_large_messages_wait_for_ranks_that_compute(
    tmp_path: Path, progress: str, eager: str, after_ps: int
) -> None:
    trace = tmp_path / "overlap.goal"
    trace.write_text(OVERLAP)
    case = scenario({"trace": str(trace), "hosts": "0-1"}, progress=progress, eager=eager)
    computation_ps = 50_000_000
    assert fluid(case).elapsed_ps == computation_ps + after_ps
    # The clear to send is a packet of 32 bytes, to which the fluid model gives no bandwidth.
    assert simulate(case).elapsed_ps == computation_ps + after_ps + 32 * 80 * (after_ps > 0)
