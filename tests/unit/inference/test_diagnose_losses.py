"""Where messages lost their time, and what adapters reached: small logs, worked out by hand.

At line rate (100 Gb/s) a packet takes 0.32768 µs, 30 packets take 9.83 of the 10 µs of a window.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tailback.diagnosis.adapter_load import AdapterLoad, adapter_load, slow_adapter
from tailback.diagnosis.fanin import fan_in, hot_receiver_share
from tailback.diagnosis.message_delays import MessageDelays, message_delays
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.topology import LinkTopology
from tailback.run.run import Run
from tests.factories.diagnosis_runs import HOSTS, NODES, Flow, eject, endpoint_run, make_run, ups

PACKET_US = 0.32768
LATENCY_US = 10 - 30 * PACKET_US
QUICK = Flow(5, HOSTS + 5, 30, first=0, last=0)
"""Takes what its bytes need and the latency of all ways over three switches: it loses nothing."""


def lost(run: Run) -> MessageDelays:
    delays = message_delays(run, LinkTopology.of(run))
    assert delays is not None
    return delays


def test_time_without_busy_nodes_is_lost_inside() -> None:
    delays = lost(make_run([QUICK, Flow(0, HOSTS, 30, last=3)], {}))
    assert delays.inside == pytest.approx(30 / 200) and delays.endpoint == 0
    assert delays.endpoint_share == 0
    assert delays.messages["expected"].to_list() == pytest.approx([10e6, 10e6])


def test_time_of_nodes_busy_with_others_is_theirs() -> None:
    """Two send to one: each waits for the other's bytes, and neither sender is busy."""
    flows = [QUICK, *(Flow(HOSTS * n, 0, 30, last=1) for n in (1, 2))]
    delays = lost(make_run(flows, {}))
    assert delays.endpoint == pytest.approx(30 * PACKET_US / 200)
    assert delays.inside == pytest.approx(LATENCY_US / 200)
    # A node that is busy for less than 70 % of a message's time did not hold it up.
    half = lost(make_run([QUICK, *(replace(flow, packets=15) for flow in flows[1:])], {}))
    assert half.endpoint == 0 and half.inside > delays.inside


def test_the_node_that_lost_most_counts() -> None:
    """The run ends when its last rank does, however many others lost little."""
    late = Flow(0, HOSTS, 30, last=3)
    few, many = (
        lost(make_run([late, *(replace(QUICK, src=n, dst=HOSTS + n) for n in range(1, m))], {}))
        for m in (2, HOSTS)
    )
    assert few.total == pytest.approx(many.total) == pytest.approx(30 / 200)


def test_simultaneous_messages_lose_the_same_time() -> None:
    flows = [QUICK, Flow(0, HOSTS, 30, last=3), Flow(0, HOSTS + 1, 30, first=2, last=5)]
    delays = lost(make_run(flows, {}))
    sent = delays.messages.filter(pl.col("src") == 0)
    each = (sent["took"] - sent["expected"]).sum()
    assert delays.endpoint == 0
    assert delays.inside == pytest.approx(each / 80e6 * 60 / 200)


def test_longer_ways_need_no_less_than_shorter_ones() -> None:
    """Over one switch nobody was quicker than 20 µs: so much of a longer way is latency, too."""
    run = make_run([Flow(0, 1, 30, last=1), QUICK, Flow(2, HOSTS, 30, last=3)], {})
    hops = pl.when(pl.col("message") == 0).then(1).otherwise(3)
    log = run.tables["messages"]
    run.tables["messages"] = log.with_columns(
        switch_hops=(pl.col("packets") * hops).cast(log.schema["switch_hops"])
    )
    delays = lost(replace(run, summary={**run.summary, "times": "measured"})).messages.sort("src")
    inside = delays["took"] - delays["expected"]
    assert inside.to_list() == pytest.approx([0, 20e6, 0])


def test_what_delays_all_messages_alike_is_no_latency() -> None:
    """Of 40 µs, 10 are for bytes, and the delays of three switches and their cables below 2."""
    alike = make_run([Flow(n, HOSTS + n, 30, last=3) for n in range(4)], {})
    assert lost(alike).inside == pytest.approx(29 / 200, rel=0.03)
    # The delays of a measured network may be others than those of the scenario.
    measured = replace(alike, summary={**alike.summary, "times": "measured"})
    assert lost(measured).inside == 0


def test_the_slower_adapter_limits_a_message() -> None:
    run = make_run([Flow(0, HOSTS, 30, last=1)], {})
    links = run.tables["links"]
    rate = pl.when(pl.col("link") == eject(HOSTS)).then(50.0).otherwise(pl.col("rate_gbps"))
    run.tables["links"] = links.with_columns(rate_gbps=rate)
    load = adapter_load(run)
    assert load.fastest[[0, HOSTS]] == pytest.approx(2 * 30 * PACKET_US / 20)
    assert np.isnan(load.fastest[1]) and load.partners[[0, 1, HOSTS]].tolist() == [1, 0, 1]
    assert load.wire_ps[0] == pytest.approx(30 * PACKET_US * 1e6)
    # A header a packet takes its time as well.
    engine = run.scenario.engine.model_copy(update={"header": 1024})
    wide = replace(run, scenario=run.scenario.model_copy(update={"engine": engine}))
    assert adapter_load(wide).wire_ps[0] == pytest.approx(1.25 * 30 * PACKET_US * 1e6)


@pytest.mark.parametrize(
    ("fastest", "partners", "slow"),
    [
        ([0.9, 0.53, 0.9, 0.9], 3, 1),
        ([0.9, 0.55, 0.9, 0.9], 3, None),  # 61 % of the median
        ([0.9, 0.53, 0.71, 0.9, 0.9], 3, None),  # nor does another reach 80 % of it
        ([0.9, 0.53, 0.73, 0.9, 0.9], 3, 1),
        ([0.79, 0.3, 0.79, 0.79], 3, None),  # all of them are slow
        ([0.81, 0.3, 0.81, 0.81], 3, 1),
        ([0.9, 0.3, 0.9, 0.9], 2, None),  # two flows may share a link
        ([0.9, 0.3, np.nan, np.nan], 3, None),
        ([0.9, 0.3, np.nan, 0.9], 3, 1),
    ],
)
def test_one_slow_adapter_among_sound_ones(
    fastest: list[float], partners: int, slow: int | None
) -> None:
    n = len(fastest)
    load = AdapterLoad(np.ones(n), np.ones(n), np.ones(n), np.array(fastest), np.full(n, partners))
    assert slow_adapter(load) == slow


def test_receiver_and_call_are_those_of_most_bytes() -> None:
    flows = [Flow(8, 0, 10, call="MPI_Send"), Flow(16, 0, 100, call="MPI_Isend")]
    flows += [Flow(16, 1, 500, call="MPI_Put"), Flow(24, 0, 500, phase="later")]
    pattern = fan_in(make_run(flows, {}, ranks_per_node=2), 0, ["exchange"])
    assert pattern is not None
    assert (pattern.receiver, pattern.call, pattern.ranks_on_node) == (1, "MPI_Isend", 2)
    assert (pattern.senders, pattern.sender_ranks) == (2, 2)
    # Only who sends to it counts, with all it sends in these phases.
    assert pattern.peers in (1.0, 2.0)
    assert fan_in(make_run(flows, {}), 5, ["exchange"]) is None


def test_few_receivers_own_their_phases_congestion() -> None:
    """All to node 0, and then everybody to a partner of its own."""
    gather = [Flow(n, 0, 30, "gather") for n in range(HOSTS, NODES)]
    shift = [Flow(n, (n + HOSTS) % NODES, 30, "shift") for n in range(NODES)]
    hot = {link: 0.5 for leaf in range(1, 4) for link in ups(leaf)}
    assert hot_receiver_share(make_run(gather, hot)) == 1.0
    assert hot_receiver_share(make_run(shift, hot)) == 0.0
    assert 0.2 < hot_receiver_share(make_run(gather + shift, hot)) < 0.8
    assert hot_receiver_share(make_run(gather, {})) == 0.0
    assert hot_receiver_share(make_run([], {})) == 0.0


@pytest.mark.parametrize(("senders", "advice"), [(8, "MPI_Reduce"), (7, "take turns")])
def test_eight_senders_make_it_many_to_one(senders: int, advice: str) -> None:
    share = round(20 * 30.5 / senders)
    flows = [Flow(HOSTS + n, 0, share, "sum", "MPI_Send") for n in range(senders)]
    finding = RULES["TB001"](RunAnalysis(make_run(flows, {eject(0): 0.95})))
    assert finding is not None and advice in finding.advice


def test_a_run_without_a_log_has_no_losses() -> None:
    run = endpoint_run(log=False)
    assert message_delays(run, LinkTopology.of(run)) is None
    assert adapter_load(run).wire_ps.tolist() == [0.0] * NODES
