"""Computed rates realised by packets, VC routing and congestion control, with small flows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import studies.birk_zdornov2009.congestion_control as control
import studies.birk_zdornov2009.packet_rates as rates
from measuring import put
from studies.birk_zdornov2009 import distributed

SIZE = 64 * rates.PACKET


@pytest.fixture(scope="module")
def net() -> rates.Network:
    """Four superposed permutations on 64 nodes."""
    return rates.network(rates.permutations(4, 1, SIZE))


def run(net: rates.Network, pacing: str, buffer: int) -> tuple[float, NDArray[np.float64], float]:
    """Time over the optimum, realised over computed rates, packets in queues on average."""
    plan = net.assigned()
    run = net.run(
        plan.rate_gbps,
        buffer_bytes=buffer * rates.PACKET,
        probes=rates.ProbeSettings(queues_ps=rates.SAMPLE_PS),
        **rates.PACING[pacing],
    )
    ratio = rates.realised(run, plan.rate_gbps)
    return run.elapsed_ps / 1000 / plan.completion_ns, ratio, rates.mean_queue(run)[0]


def test_the_paths_assigned_are_the_paths_packets_take(net: rates.Network) -> None:
    fabric = net.prepared.fabric
    crossed = net.run(measure=True).tables["truth"].group_by("link").sum()
    measured = np.zeros(len(fabric.link_src))
    measured[crossed["link"].to_numpy()] = crossed["bytes"].to_numpy()
    assert net.paths.link_sum(net.size, len(measured)) == pytest.approx(measured)


def test_a_runs_messages_are_the_ordered_flows(net: rates.Network) -> None:
    table = net.run().tables["messages"]
    ends = zip(table["src_rank"].to_list(), table["dst_rank"].to_list(), strict=True)
    assert list(ends) == [(src, dst) for src, dst, _ in net.flows]


def test_elastic_pacing_realises_what_was_computed(net: rates.Network) -> None:
    time, ratio, queue = run(net, "elastic, 25 %", 8)
    assert time < 1.02
    assert ratio.min() > 0.95 and ratio.max() < 1.05
    _, none, full = run(net, "none", 8)
    assert none.min() < 0.8 and full > 2 * queue


def test_spaced_loses_delays_and_a_bucket_bursts(net: rates.Network) -> None:
    _, spaced, _ = run(net, "spaced", 8)
    assert spaced.min() < 0.9
    _, bucket, queue = run(net, "leaky bucket, 16 packets", 8)
    assert bucket.min() < 0.8
    assert queue > 1.5 * run(net, "elastic, 25 %", 8)[2]


def test_a_one_packet_buffer_keeps_no_link_busy(net: rates.Network) -> None:
    assert run(net, "elastic, 25 %", 1)[0] > 1.2


def test_entries_take_flows_off_the_default_port() -> None:
    rows = rates.circuits(3, entries=(0, 2, 16), copies=(1,), arity=4, size=SIZE)
    time = {row["routing"]: row["time"] for row in rows}
    assert time["vc, 0"] == pytest.approx(time["deterministic"], rel=1e-6)
    assert time["vc, 16"] < 0.95 * time["deterministic"]
    assert time["adaptive"] < time["vc, 16"]


def test_permutations_have_no_pair_twice() -> None:
    flows = rates.permutations(8, 1, SIZE)
    assert len({flow[:2] for flow in flows}) == len(flows)
    assert all(src != dst for src, dst, _ in flows)


def test_jain_is_one_for_equals() -> None:
    assert control.jain(np.full(5, 3.0)) == pytest.approx(1)
    assert control.jain(np.array([7.0, 0, 0, 0])) == pytest.approx(0.25)


def test_congestion_control_trades_time_for_fairness() -> None:
    hot = rates.network(control.hot_spot(4))
    schemes = ("no control", "IB CC, slow timer", "assignment, elastic 25 %")
    none, slow, paced = (
        control.measure(hot, control.SCHEMES[scheme], hot=True) for scheme in schemes
    )
    assert slow["time"] > 1.5 * none["time"] and slow["queue"] < 0.5 * none["queue"]
    assert paced["time"] < 1.02 and paced["jain"] > 0.99
    assert paced["worst_victim_gbps"] > 2 * none["worst_victim_gbps"]
    assert slow["jain"] > none["jain"]


@pytest.mark.slow
def test_dcms_spares_innocents_and_lights_spare_victims() -> None:
    nets = control.networks()
    none, slow, dcms, lights = (
        {name: control.measure(nets[name], settings, name == "hot spot") for name in nets}
        for settings in (
            control.SCHEMES["no control"],
            *(
                {"congestion_control": control.SETS[name]}
                for name in ("IB CC, slow timer", "DCMS, slow timer", "RGBCC, 8 and 4 packets")
            ),
        )
    )
    assert slow["permutation"]["time"] > 1.5
    assert dcms["permutation"]["time"] < 1.02 and lights["permutation"]["time"] < 1.05
    worst = "worst_victim_gbps"
    assert dcms["hot spot"][worst] > 1.5 * none["hot spot"][worst]
    assert lights["hot spot"][worst] > 2 * none["hot spot"][worst]
    assert lights["hot spot"]["time"] < 1.05
    assert lights["hot spot"]["queue"] < 0.4 * none["hot spot"]["queue"]


def test_probes_bring_the_computed_rates() -> None:
    formula, often, once = distributed.rows((1,), (1,), (8, distributed.PACKETS))
    assert formula.time < 1.01 and often.time < 1.01
    assert often.worst > 0.97 * formula.worst and often.fastest < 1.04 * formula.fastest
    # Before all flows have announced themselves, links look lighter than they are.
    assert once.fastest > 1.1 * often.fastest


def test_tables_go_between_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- t -->\nold\n<!-- end t -->\nb\n", encoding="utf-8")
    put(page, {"t": "| new |"})
    assert page.read_text(encoding="utf-8") == "a\n<!-- t -->\n| new |\n<!-- end t -->\nb\n"
    with pytest.raises(SystemExit, match="no place for <!-- u -->"):
        put(page, {"u": ""})


@pytest.mark.parametrize("threshold", [15, 8, 2])
def test_marking_does_not_depend_on_who_is_next(threshold: int) -> None:
    # Where outputs are booked ahead their credit is spent early: they are roots all the same.
    net = rates.network([(n, 0, 1 << 20) for n in (1, 2, 3)])  # one switch, three to one
    ends = [
        net.run(
            buffer_bytes=control.BUFFER * rates.PACKET,
            arbitration=arbitration,
            congestion_control=control.parameters(threshold, 153.6),
        ).elapsed_ps
        for arbitration in ("round-robin", "fcfs")
    ]
    assert ends[1] == pytest.approx(ends[0], rel=0.2)
