"""What a measured run takes for granted of adapters, unless the scenario says otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tailback as tb
from tailback.evaluate import Change
from tailback.inference.further_costs import adapter_order_costs
from tailback.inference.measured_run import sends_whole_messages, with_round_robin_adapters
from tailback.simulation import make_evaluate, prepare
from tailback.sources.source import Source

EXCHANGE = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [{"pattern": {"kind": "stencil2d", "dims": [4, 4], "size": "256 KiB"}}],
}


def test_adapters_alternate_messages_unless_configured() -> None:
    made = prepare(Source.of(EXCHANGE, seed=3).scenario)
    real = with_round_robin_adapters(made)
    assert made.scenario.engine.injection == "fifo"
    assert real.scenario.engine.injection == "round-robin"
    # What a run's folder keeps is what was simulated.
    assert tb.load_scenario(real.scenario).engine.injection == "round-robin"
    in_order = {**EXCHANGE, "engine": {"injection": "fifo"}}
    same = prepare(Source.of(in_order, seed=3).scenario)
    assert with_round_robin_adapters(same) is same


@pytest.mark.parametrize(
    ("gbps", "size", "unbroken"),
    [(1.0, "16 KiB", True), (1.0, "64 KiB", False), (100.0, "16 KiB", False)],
)
def test_short_messages_of_tcp_leave_unbroken(gbps: float, size: str, *, unbroken: bool) -> None:
    """By the initial window; RDMA's adapters take turns whatever the size."""
    job = {"pattern": {"kind": "stencil2d", "dims": [4, 4], "size": size}}
    made = prepare(Source.of({**EXCHANGE, "job": [job]}).scenario)
    rates = np.full_like(made.fabric.link_gbps, gbps)
    interfaces = ["e0"] * made.fabric.n_links
    fabric = replace(made.fabric, link_gbps=rates, link_interface=interfaces)
    assert sends_whole_messages(replace(made, fabric=fabric)) == unbroken


def test_a_busy_receiver_holds_back_no_others() -> None:
    """All begin with the same receiver: in turn, the other messages go on meanwhile."""
    pattern = {"kind": "alltoall-naive", "ranks": 16, "size": "64 KiB", "post": "all"}
    made = prepare(Source.of({**EXCHANGE, "job": [{"pattern": pattern}]}).scenario)
    fifo, round_robin = (
        make_evaluate(scenario)(Change()).elapsed_ps
        for scenario in (made, with_round_robin_adapters(made))
    )
    assert round_robin < 0.9 * fifo


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [("alltoall-naive", 0.1, 1.0), ("reduce-naive", 0.0, 0.0)],
)
def test_an_ideal_switch_separates_order_from_receivers(
    pattern: str, least: float, most: float
) -> None:
    """All ranks send to one receiver after another, or all only to the same one."""
    kinds = {"alltoall-naive": {"post": "all"}, "reduce-naive": {}}
    job = {"pattern": {"kind": pattern, "ranks": 16, "size": "64 KiB", **kinds[pattern]}}
    made = prepare(Source.of({**EXCHANGE, "job": [job]}).scenario)
    evaluate = make_evaluate(made)
    star = evaluate(Change(network="star", background=False)).elapsed_ps
    costs = adapter_order_costs(made, evaluate, 2)
    assert len(costs) == 2
    assert least * star <= min(costs) and max(costs) <= most * star
    shared = with_round_robin_adapters(made)
    assert adapter_order_costs(shared, make_evaluate(shared), 2) == ()
