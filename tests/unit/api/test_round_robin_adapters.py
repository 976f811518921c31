"""What a measured run takes for granted of adapters, unless the scenario says otherwise."""

from __future__ import annotations

import tailback as tb
from tailback.api.measured_run import with_round_robin_adapters
from tailback.api.source import Source
from tailback.evaluate import Change
from tailback.simulation import make_evaluate, prepare

EXCHANGE = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [{"pattern": {"kind": "stencil2d", "dims": [4, 4], "size": "256 KiB"}}],
}


def test_adapters_serve_messages_in_turn_unless_the_scenario_says_how() -> None:
    made = prepare(Source.of(EXCHANGE, seed=3).scenario)
    real = with_round_robin_adapters(made)
    assert made.scenario.engine.injection == "fifo"
    assert real.scenario.engine.injection == "round-robin"
    # What a run's folder keeps is what was simulated.
    assert tb.load_scenario(real.scenario).engine.injection == "round-robin"
    told = {**EXCHANGE, "engine": {"injection": "fifo"}}
    same = prepare(Source.of(told, seed=3).scenario)
    assert with_round_robin_adapters(same) is same


def test_messages_to_a_busy_receiver_do_not_hold_back_the_others() -> None:
    """All begin with the same receiver: in turn, the other messages go on meanwhile."""
    pattern = {"kind": "alltoall-naive", "ranks": 16, "size": "64 KiB", "post": "all"}
    made = prepare(Source.of({**EXCHANGE, "job": [{"pattern": pattern}]}).scenario)
    fifo, round_robin = (
        make_evaluate(scenario)(Change()).elapsed_ps
        for scenario in (made, with_round_robin_adapters(made))
    )
    assert round_robin < 0.9 * fifo
