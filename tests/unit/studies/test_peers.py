"""The comparison with other simulators: its traffic, routes and readers of their output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from studies.conformance import peers
from studies.conformance.peer_runs import (
    PACKET,
    RATE_GBPS,
    Shape,
    Traffic,
    _merlin_arrivals,
    _merlin_ends,
    _merlin_links,
    route,
)
from studies.conformance.up_down import UpDown

SHAPE = Shape(hosts_per_leaf=4, leaves=4, aggregation=2)


@pytest.mark.parametrize("number", range(4))
def test_engine_and_reference_agree_exactly(number: int) -> None:
    traffic = peers.cases(SHAPE, size=128 * PACKET)[number]
    model = peers.prepared(SHAPE, traffic, "store-and-forward", "fcfs")
    ours, theirs = peers.engine(model, traffic), peers.second(model, traffic)
    assert ours.arrival_ps.tolist() == theirs.arrival_ps.tolist()
    assert ours.bytes.tolist() == theirs.bytes.tolist()
    assert ours.stall_ps.tolist() == theirs.stall_ps.tolist()
    assert ours.stall_ps.sum() > 0


def test_htsim_gets_the_engines_routes() -> None:
    traffic = peers.cases(SHAPE, size=PACKET)[2]
    model = peers.prepared(SHAPE, traffic, "cut-through", "fcfs")
    routes, sums = UpDown(model.fabric), np.zeros(model.fabric.n_links, np.int64)
    for src, dst in zip(traffic.src, traffic.dst, strict=True):
        sums[route(routes, model.fabric, src, dst)] += PACKET
    assert sums.tolist() == peers.engine(model, traffic).bytes.tolist()


@pytest.mark.parametrize(
    ("component", "port", "ends"),
    [
        ("host5:networkIF", "", (5, 17)),
        ("rtr1", "port2", (17, 6)),
        ("rtr1", "port5", (17, 21)),
        ("rtr5", "port3", (21, 19)),
    ],
)
def test_ports_of_merlin_are_links_of_the_fabric(
    component: str, port: str, ends: tuple[int, int]
) -> None:
    assert _merlin_ends(component, port, SHAPE) == ends


def test_counters_and_times_of_merlin_are_read(tmp_path: Path) -> None:
    traffic = Traffic("two", (5, 6), (0, 0), 4 * PACKET)
    fabric = peers.prepared(SHAPE, traffic, "cut-through", "fcfs").fabric
    path = tmp_path / "counters.csv"
    path.write_text(
        "ComponentName, StatisticName, StatisticSubId, StatisticType, SimTime, Rank, Sum.u64\n"
        "host5:networkIF, send_bit_count, , Accumulator, 9, 0, 65536\n"
        "rtr1, output_port_stalls, port4, Accumulator, 9, 0, 1234\n"
        "rtr1, idle_time, port4, Accumulator, 9, 0, 9\n",
        encoding="utf-8",
    )
    links = _merlin_links(path, fabric, SHAPE)
    ends = list(zip(fabric.link_src.tolist(), fabric.link_dst.tolist(), strict=True))
    assert links["send_bit_count"].sum() == links["send_bit_count"][ends.index((5, 17))] == 65536
    stalls = links["output_port_stalls"]
    assert stalls.sum() == stalls[ends.index((17, 20))] == 1234
    text = (
        "For src = 5 and dest = 0:\n  First packet received at: 310 ns\n"
        "  Last packet received at: 1.5 us\n  Bandwidth: 1 b/s (1 B/s)\n\n"
        "For src = 6 and dest = 0:\n  First packet received at: 310 ns\n"
        "  Last packet received at: 900 ns\n  Bandwidth: 1 b/s (1 B/s)\n\n"
    )
    tail = PACKET * 8000 // RATE_GBPS
    assert _merlin_arrivals(text, traffic).tolist() == [1_500_000 + tail, 900_000 + tail]
