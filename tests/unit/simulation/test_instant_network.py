"""The network of POP's efficiencies: no latency, infinite bandwidth, only who waits for whom."""

from __future__ import annotations

import pytest

from tailback.evaluate import Change
from tailback.evidence.model import Efficiency
from tailback.scenario.model import parse
from tailback.simulation import PreparedScenario, make_evaluate, prepare
from tailback.traffic.program import Label, ProgramBuilder

US = 1_000_000


def waiting_ranks(size: int) -> PreparedScenario:
    """Rank 0 computes 10 us and sends; rank 1 computes 4 us, receives, computes 5 us."""
    builder = ProgramBuilder("two ranks", 2)
    label = builder.label(Label("phase", "MPI_Send", 0, "world"))
    builder.compute(0, 10 * US)
    builder.wait(0, builder.isend(0, 1, size, 0, label))
    builder.compute(1, 4 * US)
    builder.wait(1, builder.irecv(1, 0, size, 0, label))
    builder.compute(1, 5 * US)
    scenario = parse(
        {
            "fabric": {"fat_tree": {"hosts_per_leaf": 1, "leaves": 2, "aggregation": 1}},
            "job": [{"pattern": {"kind": "ring", "ranks": 2, "messages": 1, "size": "4 KiB"}}],
        }
    )
    return prepare(scenario).with_program(builder.build())


@pytest.mark.parametrize("size", [0, 1, 64 << 20])
def test_only_waits_for_other_ranks_remain(size: int) -> None:
    evaluate = make_evaluate(waiting_ranks(size))
    # An empty packet takes a picosecond.
    assert evaluate(Change(network="instant")).elapsed_ps == 15 * US + 1
    assert evaluate(Change()).elapsed_ps > 15 * US


def test_serialisation_and_transfer_factor_the_communication_efficiency() -> None:
    base = Efficiency(load_balance=0.9, communication=0.5, parallel=0.45)
    efficiencies = base.with_ideal_network(ideal_ps=15 * US, elapsed_ps=20 * US)
    assert efficiencies.transfer == 0.75 and efficiencies.serialisation == pytest.approx(2 / 3)
    # A replay that takes longer than was measured leaves nothing to the network.
    late = base.with_ideal_network(ideal_ps=30 * US, elapsed_ps=20 * US)
    assert (late.transfer, late.serialisation) == (1.0, 0.5)
