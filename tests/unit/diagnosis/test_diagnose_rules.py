"""Each rule: a run where it fires and one where it must not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.fanin import FanIn, fan_in
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.rules.__main__ import markdown
from tailback.diagnosis.run_analysis import MAX_UNSETTLED_SHARE, RunAnalysis
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import simulate
from tests.factories.diagnosis_runs import (
    HOSTS,
    NODES,
    Flow,
    adapter_run,
    downs,
    eject,
    endpoint_run,
    line_run,
    make_run,
    other_run,
    placement_run,
    quiet_run,
    routing_run,
    slow_run,
    sparse_run,
    ups,
)
from tests.factories.repository import ROOT


def idle_run() -> Run:
    """Congested, but ranks communicate for 2 % of their time only."""
    return placement_run(wait=0.02)


def host_run(sharing: str) -> Run:
    """Three ranks of a host send 8 MiB to the fourth at once, 503 µs in all at 400 Gb/s."""
    return simulate(
        parse(
            {
                "fabric": {"fat_tree": {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}},
                "job": [
                    {
                        "pattern": {
                            "kind": "reduce-naive",
                            "ranks": 4,
                            "arrays": 1,
                            "size": "8 MiB",
                        },
                        "ranks_per_host": 4,
                    }
                ],
                "engine": {
                    "local_rate": "400 Gb/s",
                    "local_sharing": sharing,
                    **({"memory_rate": "1200 Gb/s"} if sharing == "memory" else {}),
                },
                "telemetry": {"scheme": "full"},
            }
        )
    )


def in_host_run() -> Run:
    return host_run("ports")


def memory_run() -> Run:
    return host_run("memory")


def test_a_host_port_is_named_with_its_rate() -> None:
    runs = {sharing: host_run(sharing) for sharing in ("memory", "ports")}
    # One message takes 168 µs; the port of the receiver takes three, one after another.
    alone = 2**23 * 8000 // 400
    assert runs["ports"].elapsed_ps - runs["memory"].elapsed_ps == pytest.approx(2 * alone, abs=3)
    finding = RULES["TB009"](RunAnalysis(runs["ports"]))
    assert finding is not None
    assert "The port of rank 0" in finding.explanation
    assert "receive" in finding.explanation and "400 Gb/s" in finding.explanation


FIRES: dict[str, list[Callable[[], Run]]] = {
    "TB001": [endpoint_run],
    "TB002": [placement_run],
    "TB003": [other_run],
    "TB004": [quiet_run, idle_run],
    "TB005": [sparse_run],
    "TB006": [routing_run],
    "TB007": [slow_run, adapter_run],
    "TB008": [line_run],
    "TB009": [in_host_run],
}
SILENT: dict[str, list[Callable[[], Run]]] = {
    "TB001": [placement_run, other_run, quiet_run, sparse_run, routing_run, slow_run, line_run],
    "TB002": [endpoint_run, other_run, quiet_run, sparse_run, routing_run, slow_run, line_run],
    "TB003": [endpoint_run, placement_run, quiet_run, sparse_run, routing_run, slow_run, line_run],
    "TB004": [endpoint_run, placement_run, other_run, sparse_run, routing_run, slow_run, line_run],
    "TB005": [endpoint_run, placement_run, other_run, quiet_run, routing_run, slow_run, line_run],
    "TB006": [endpoint_run, placement_run, other_run, quiet_run, sparse_run, slow_run, line_run],
    "TB007": [endpoint_run, placement_run, other_run, quiet_run, sparse_run, routing_run, line_run],
    "TB008": [endpoint_run, placement_run, other_run, quiet_run, sparse_run, slow_run],
    "TB009": [endpoint_run, quiet_run, line_run, memory_run],
}


def cases(table: dict[str, list[Callable[[], Run]]]) -> list[object]:
    return [
        pytest.param(code, make, id=f"{code}-{make.__name__}")
        for code, makers in table.items()
        for make in makers
    ]


def test_every_rule_has_a_positive_and_negative_case() -> None:
    assert set(RULES.names()) == set(FIRES) == set(SILENT)


@pytest.mark.parametrize(("code", "make"), cases(FIRES))
def test_fires(code: str, make: Callable[[], Run]) -> None:
    finding = RULES[code](RunAnalysis(make()))
    assert finding is not None and finding.code == code
    assert finding.title and finding.explanation.endswith(".") and finding.advice.endswith(".")
    assert not re.search(r"\b1 (links|nodes|ranks)\b", finding.explanation), finding.explanation


@pytest.mark.parametrize(("code", "make"), cases(SILENT))
def test_stays_silent(code: str, make: Callable[[], Run]) -> None:
    assert RULES[code](RunAnalysis(make())) is None


@pytest.mark.parametrize("seed", range(6))
def test_the_verdict_does_not_hang_on_the_seed(seed: int) -> None:
    for code, make in (("TB001", endpoint_run), ("TB002", placement_run), ("TB003", other_run)):
        analysis = RunAnalysis(make(seed=seed))
        fired = [entry.name for entry in RULES if entry.part(analysis) is not None]
        assert fired == [code]


def test_endpoint_names_receiver_senders_and_the_collective() -> None:
    finding = RULES["TB001"](RunAnalysis(endpoint_run()))
    assert finding is not None
    assert "24 ranks on 24 nodes" in finding.explanation and "MPI_Send" in finding.explanation
    assert "MPI_Reduce" in finding.advice and "'reduce'" in finding.advice
    assert [link.link for link in finding.links] == [eject(0)]
    assert finding.links[0].utilization.low < 1.0 and finding.links[0].tree_links >= 4
    assert finding.phases == ["reduce"]


def test_one_sender_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(*messages: Any) -> FanIn:
        pattern = fan_in(*messages)
        assert pattern is not None
        return replace(pattern, senders=1, sender_ranks=1)

    monkeypatch.setattr(import_module("tailback.diagnosis.rules.tb001_endpoint"), "fan_in", alone)
    finding = RULES["TB001"](RunAnalysis(endpoint_run()))
    assert finding is not None and ". 1 rank on 1 node sends to it" in finding.explanation


def test_several_ranks_of_a_node_are_one_endpoint() -> None:
    finding = RULES["TB001"](RunAnalysis(endpoint_run(ranks_per_node=4)))
    assert finding is not None and "4 ranks share it" in finding.explanation


def test_neighbours_that_meet_are_told_to_take_turns() -> None:
    flows = [Flow(8, 0, 305, "+x"), Flow(16, 0, 305, "+x")]
    finding = RULES["TB001"](RunAnalysis(make_run(flows, {eject(0): 0.5})))
    assert finding is not None and "take turns" in finding.advice


def test_lock_step_alltoall_is_advised_to_stagger() -> None:
    flows = [Flow(a, b, 20, "fft") for a in range(NODES) for b in range(NODES) if a // 8 != b // 8]
    hot = {eject(n): 0.5 for n in range(NODES)}
    finding = RULES["TB001"](RunAnalysis(make_run(flows, hot)))
    assert finding is not None and "different partner" in finding.advice


def test_a_thin_unshared_endpoint_is_a_slow_cable() -> None:
    healthy = [Flow(16 + n, 24 + n, 30, last=0) for n in range(4)]
    thin = [Flow(8, 0, 200), Flow(16, 1, 100)]
    evidence = RunAnalysis(make_run([*thin, *healthy], {eject(0): 0.9}))
    assert RULES["TB001"](evidence) is None and RULES["TB003"](evidence) is None
    finding = RULES["TB007"](evidence)
    assert finding is not None and finding.links[0].utilization.high < 0.7
    assert "one of your nodes" in finding.explanation


@pytest.mark.parametrize("fast", [True, False])
def test_fast_or_uniform_endpoints_are_not_slow(fast: bool) -> None:
    """One message at line rate, of the node's own, proves its cable; slow equals prove nothing."""
    other = Flow(0, 16, 30, last=0) if fast else Flow(0, 16, 30)
    healthy = [Flow(16 + n, 24 + n, 30, last=0 if fast else 19) for n in range(4)]
    evidence = RunAnalysis(make_run([Flow(8, 0, 200), other, *healthy], {eject(0): 0.9}))
    assert evidence.roots["link"].to_list() == [eject(0)]
    assert evidence.roots["verdict"].to_list() == ["transient"]


def test_the_slow_link_is_named_and_only_it() -> None:
    finding = RULES["TB007"](RunAnalysis(slow_run()))
    assert finding is not None and [link.link for link in finding.links] == [ups(0)[1]]
    assert "explains" in finding.explanation


def test_links_that_are_all_dark_are_not_slow() -> None:
    run = make_run(
        [Flow(n, 8 + n, 76) for n in range(8)], dict.fromkeys(ups(0), 0.8)
    )  # as thin as in slow_run, but one as dark as the other
    evidence = RunAnalysis(run)
    assert RULES["TB007"](evidence) is None and RULES["TB003"](evidence) is not None


def test_the_slow_adapter_is_named() -> None:
    finding = RULES["TB007"](RunAnalysis(adapter_run()))
    assert finding is not None and "node3 " in finding.explanation and "25 %" in finding.explanation


def test_a_node_with_one_partner_is_not_slow() -> None:
    flows = [Flow(n, n + 8, 30, first=0, last=3 if n == 3 else 0) for n in range(8)]
    assert RULES["TB007"](RunAnalysis(make_run(flows, {}))) is None


def test_an_imbalance_names_full_and_idle_links() -> None:
    finding = RULES["TB006"](RunAnalysis(routing_run()))
    assert finding is not None and [link.link for link in finding.links] == [ups(0)[0]]
    assert "3 of its 3 equivalents carried" in finding.explanation


def test_evenly_spread_traffic_is_no_imbalance() -> None:
    run = make_run([Flow(n, 8 + n, 305) for n in range(2)], dict.fromkeys(ups(0), 0.85))
    assert RULES["TB006"](RunAnalysis(run)) is None


def test_thin_and_hardly_dark_blames_nobody() -> None:
    flows = [Flow(0, HOSTS, 2000, last=99), Flow(1, 9, 2000, last=99)]
    run = make_run(flows, dict.fromkeys(downs(1), 0.2), windows=100)
    evidence = RunAnalysis(run)
    assert set(evidence.roots["verdict"]) == {"transient"}
    assert RULES["TB003"](evidence) is None


def test_without_a_message_log_bursts_are_mentioned() -> None:
    finding = RULES["TB003"](RunAnalysis(other_run(log=False)))
    assert finding is not None and "message log" in finding.explanation


def test_too_few_samples_says_how_many_more() -> None:
    evidence = RunAnalysis(sparse_run())
    finding = RULES["TB005"](evidence)
    assert finding is not None
    more = evidence.packets_needed()
    assert f"{more} more packets" in finding.explanation and 50 < more < 2000
    assert "Least certain: leaf0" in finding.explanation and "'exchange'" in finding.advice


def test_so_many_more_packets_do_settle_it() -> None:
    more = RunAnalysis(sparse_run()).packets_needed()
    flows = [Flow(n, HOSTS + n, 2 + more // 6) for n in range(6)]
    assert RULES["TB005"](RunAnalysis(make_run(flows, dict.fromkeys(ups(0), 0.5)))) is None


def test_the_note_says_whether_open_samples_matter() -> None:
    assert diagnose_cause(placement_run()).sampling.note.endswith(
        "in unsettled trees, too few to matter."
    )
    full = [Flow(n, HOSTS + n, 60) for n in range(HOSTS)]
    open_ = [Flow(2 * HOSTS + n, 2 * HOSTS + (n + HOSTS) % 16, 200) for n in range(16)]
    hot = dict.fromkeys(ups(0), 0.85) | dict.fromkeys(ups(2) + ups(3), 0.11)
    run = make_run(full + open_, hot)
    evidence = RunAnalysis(run)
    assert evidence.unsure_share > MAX_UNSETTLED_SHARE and RULES["TB005"](evidence) is None
    note = diagnose_cause(run).sampling.note
    assert note.endswith("in unsettled trees, not enough to make another cause the heaviest.")


def test_telemetry_off_is_said() -> None:
    run = quiet_run()
    run.tables["samples"] = run.tables["samples"].clear()
    finding = RULES["TB005"](RunAnalysis(run))
    assert finding is not None and "telemetry" in finding.advice
    assert RULES["TB004"](RunAnalysis(run)) is None


def test_hosts_shared_by_ranks_need_no_telemetry_advice() -> None:
    run = quiet_run()
    run.tables["samples"] = run.tables["samples"].clear()
    inside = replace(run, summary={**run.summary, "average_path_length": 0.0})
    diagnosis = diagnose_cause(inside)
    assert diagnosis.cause == "not-network"
    assert [finding.code for finding in diagnosis.findings] == ["TB004"]
    assert "nothing to sample" in diagnosis.sampling.note
    assert diagnose_cause(run).cause == "undetermined"


def test_hostile_names_pass_through_as_text() -> None:
    run = endpoint_run()
    run.tables["links"] = run.tables["links"].with_columns(
        src_name=run.tables["links"]["src_name"] + "<b>{0}%s"
    )
    finding = RULES["TB001"](RunAnalysis(run))
    assert finding is not None and "<b>{0}%s" in finding.links[0].name


def test_page_of_rules_is_current() -> None:
    page = ROOT / "docs" / "reference" / "rules.md"
    text = page.read_text(encoding="utf-8")
    assert text == markdown(), "python -m tailback.diagnosis.rules > docs/reference/rules.md"
    for section in ("What it does", "Why it matters", "Example", "What to do"):
        assert text.count(f"\n**{section}.** ") == len(RULES.names())
