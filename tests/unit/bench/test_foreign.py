"""The foreign reality: its simulator obeys closed forms, its files say what happened."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreign_case
import numpy as np
import pytest
import run as foreign
from foreign_case import KINDS, TREES, Case, Confirmed, draw, kinds_of
from foreign_machine import Job, Machine, Result, World, compiler, simulate
from foreign_programs import PROGRAMS, Program, Shape

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ (Debian: g++)")

LATENCY, SWITCH, HEADER, MTU = 50_000, 120_000, 50, 4096
RATE = 32.0
IDEAL: dict[str, float | int | str] = {
    "mtu": MTU,
    "header": HEADER,
    "latency_ps": LATENCY,
    "switch_ps": SWITCH,
    "overhead_ps": 0,
    "jitter": 0,
    "gap_ps": 0,
    "copy_gbps": 1e9,
    "eager": 1 << 30,
    "async": 1,
    "buffer": 16 * MTU,
}
"""A machine on which only the network takes time."""

TWO_LEAVES = Machine(2, 6, 1, speed="QDR")
"""Two leaves of six hosts with one cable upwards."""


def wire_ps(size: int, gbps: float = RATE) -> float:
    """Time of a message on a link, with the headers of its packets."""
    return (size + -(-size // MTU) * HEADER) * 8000 / gbps


def world(program: Program, hosts: list[int], machine: Machine = TWO_LEAVES, **more: Any) -> World:
    settings = IDEAL | more.pop("settings", {})
    return World(machine, settings, "static", machine.tables(), [Job(program, hosts)], **more)


def flows(*pairs: tuple[int, int], size: int, **more: Any) -> Result:
    """Each pair of hosts has a sender and a receiver that sends nothing."""
    program = Program(2 * len(pairs), 1)
    for n in range(len(pairs)):
        program.ranks[2 * n].send(2 * n + 1, size)
        program.ranks[2 * n + 1].recv(2 * n, size)
    return simulate(world(program, [host for pair in pairs for host in pair], **more))


@pytest.mark.parametrize("size", [64, 4096, 40_960])
@pytest.mark.parametrize(("receiver", "switches"), [(1, 1), (7, 3)])
def test_a_lone_message_takes_latency_and_rate(size: int, receiver: int, switches: int) -> None:
    elapsed_ps = flows((0, receiver), size=size).calls[1][0, 1]
    path = (switches + 1) * LATENCY + switches * SWITCH
    assert elapsed_ps == pytest.approx(path + wire_ps(size), abs=5)


def test_a_switch_that_stores_packets_adds_one_each() -> None:
    stored = flows((0, 1), size=40_960, settings={"cut_through": 0}).calls[1][0, 1]
    through = flows((0, 1), size=40_960).calls[1][0, 1]
    assert stored - through == pytest.approx(wire_ps(4096), abs=5)


def test_two_flows_share_a_link_equally() -> None:
    size = 1 << 20
    result = flows((0, 6), (1, 7), size=size)
    ends = [int(result.calls[rank][0, 1]) for rank in (1, 3)]
    assert ends == pytest.approx([2 * wire_ps(size)] * 2, rel=0.01)


@pytest.mark.parametrize("ethernet", [False, True])
@pytest.mark.parametrize("senders", [2, 5])
def test_an_incast_takes_as_long_as_its_bytes(senders: int, ethernet: bool) -> None:
    size = 1 << 20
    program = Program(senders + 1, 1)
    for rank in program.ranks[1:]:
        rank.send(0, size)
    for sender in range(1, senders + 1):
        program.ranks[0].recv(sender, size)
    machine = replace(TWO_LEAVES, ethernet=ethernet)
    result = simulate(world(program, list(range(senders + 1)), machine))
    assert result.elapsed_ps == pytest.approx(senders * wire_ps(size), rel=0.02)


@pytest.mark.parametrize("ethernet", [False, True])
def test_a_slow_link_stalls_its_source(ethernet: bool) -> None:
    size = 4 << 20
    machine = replace(TWO_LEAVES, ethernet=ethernet)
    slow = machine.links.index((machine.hosts + 1, 6))
    result = flows((0, 6), size=size, machine=machine, gbps={slow: RATE / 4})
    assert result.elapsed_ps == pytest.approx(wire_ps(size, RATE / 4), rel=0.02)
    # The source's link works a quarter of the time and waits for the rest.
    waited = result.links[machine.links.index((0, machine.hosts)), 2]
    assert waited / result.elapsed_ps == pytest.approx(0.75, abs=0.05)


def test_counters_equal_the_bytes_sent() -> None:
    size, packets = 100_000, -(-100_000 // MTU)
    result = flows((0, 6), (1, 7), size=size)
    for host in (0, 1):
        sent = result.links[TWO_LEAVES.links.index((host, TWO_LEAVES.hosts))]
        assert sent[0] == size + packets * HEADER
        assert sent[1] == packets


def test_readings_end_at_what_was_sent() -> None:
    result = flows((0, 6), size=1 << 20, settings={"interval_ps": 10**8, "tail_ps": 4 * 10**8})
    last = {int(row[0]): int(row[2]) for row in result.readings}
    assert [last[link] for link in range(len(TWO_LEAVES.links))] == result.links[:, 0].tolist()


def test_a_flaky_cable_serves_its_mean_rate() -> None:
    size = 8 << 20
    how = foreign_case.Flaky(10**8, 0.5, RATE / 4, 0)
    result = flows((0, 1), size=size, flaky={0: how})
    assert result.elapsed_ps == pytest.approx(wire_ps(size, RATE * 0.625), rel=0.05)


def test_the_same_seed_gives_the_same_run() -> None:
    case = replace(draw(0, 3, 0), shape=Shape(4, 100, 4096, 1))
    first, again = simulate(case.world()), simulate(case.world())
    assert all(np.array_equal(a, b) for a, b in zip(first.calls, again.calls, strict=True))
    settings = case.settings | {"seed": 5}
    assert simulate(replace(case, settings=settings).world()).elapsed_ps != first.elapsed_ps


@pytest.mark.parametrize("progress", [False, True])
def test_a_handshake_needs_a_call_or_progress(progress: bool) -> None:
    size, compute_us = 1 << 20, 2000
    program = Program(2, 1, spread=0.0)
    program.ranks[0].send(1, size)
    handle = program.ranks[1].irecv(0, size)
    program.ranks[1].compute(compute_us)
    program.ranks[1].waitall([handle])
    result = simulate(world(program, [0, 1], settings={"eager": 4096, "async": int(progress)}))
    late = 0 if progress else compute_us * 10**6
    assert result.calls[0][0, 1] == pytest.approx(late + wire_ps(size), rel=0.01)


def test_waitany_takes_what_arrived_first() -> None:
    program = Program(3, 1)
    program.ranks[1].compute(500)
    for rank in program.ranks[1:]:
        rank.send(0, 1000)
    handles = [program.ranks[0].irecv(source, 1000) for source in (1, 2)]
    program.ranks[0].waitany(handles, last=False)
    program.ranks[0].waitany(handles, last=True)
    result = simulate(world(program, [0, 1, 2]))
    assert [result.learned[0, call] for call in (2, 3)] == [1, 0]


@pytest.mark.parametrize("ranks", [2, 5, 8, 11])
@pytest.mark.parametrize("call", ["allreduce", "alltoall", "bcast"])
@pytest.mark.parametrize("size", [8, 20_000])
def test_collectives_end_after_all_began(ranks: int, call: str, size: int) -> None:
    program = Program(ranks, 1, spread=0.0)
    slow = 0 if call == "bcast" else ranks - 1
    program.ranks[slow].compute(300)
    for rank in program.ranks:
        getattr(rank, call)(size)
    result = simulate(world(program, list(range(ranks))))
    assert min(int(times[0, 1]) for times in result.calls[: slow or None]) >= 300 * 10**6 * (
        call != "bcast"
    )
    assert all(times[0, 1] > 300 * 10**6 for times in result.calls[1:] if call == "bcast")


@pytest.mark.parametrize("machine", [*TREES, *foreign_case.BISECTIONS])
def test_every_route_leads_to_its_host(machine: Machine) -> None:
    for table in (machine.tables(), machine.tables(1.0, 3), machine.candidates()):
        for host in range(machine.hosts):
            at = {machine.hosts + s for s in range(machine.leaves)}
            for _ in range(5):
                at = {
                    machine.links[link][1]
                    for vertex in at
                    for link in ([] if vertex == host else table[vertex - machine.hosts][host])
                } | (at & {host})
            assert at == {host}


def test_clumped_tables_fill_few_links() -> None:
    machine = Machine(8, 8, 4)

    def used(clumped: float) -> set[int]:
        rows = machine.tables(clumped, 1)[0]
        return {some[0] for some in rows if some[0] % 2 == 0}

    assert len(used(0.0)) == 4
    assert len(used(1.0)) == 1


def test_kinds_are_drawn_in_the_stated_shares() -> None:
    drawn = [kinds_of(n, np.random.Generator(np.random.Philox(key=[1, n]))) for n in range(100)]
    assert [sum(len(kinds) == count for kinds in drawn) for count in (0, 1, 2)] == [20, 60, 20]
    assert {kinds[0] for kinds in drawn if len(kinds) == 1} == set(KINDS)


@pytest.mark.parametrize("number", range(20))
def test_a_drawn_cause_changes_the_run(number: int) -> None:
    case = draw(number, 4, 0)
    for kind in set(case.kind.split("+")) - {"healthy", "capacity"}:
        assert case.world([kind]).text() != case.world().text()


# --- files -----------------------------------------------------------------------------------


@pytest.fixture(params=["perfquery", "prometheus", "ethernet"])
def written(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Case]:
    """A small case with counters of each form."""
    pytest.importorskip("otf2.writer", reason="it writes the traces")
    form = request.param
    base = draw(0, 9, 0)
    case = replace(
        base,
        machine=Machine(4, 8, 4, speed="FDR", ethernet=form == "ethernet"),
        program="anyorder",
        shape=Shape(12, 300, 65_536, 1),
        hosts=tuple(range(0, 32, 2)),
        ranks_per_host=1,
        routing="hash" if form == "ethernet" else "static",
        factors=(1.0,) * 16,
        idle=(1, 3),
    )
    elapsed = simulate(case.world()).elapsed_ps
    monkeypatch.setattr(foreign, "find_case", lambda *_: Confirmed(case, elapsed, {}, elapsed, 0.3))
    reader = foreign.Reader
    monkeypatch.setattr(foreign, "Reader", lambda _, *arguments: reader(form, *arguments))
    foreign.write_case(0, 9, tmp_path / "case")
    return tmp_path / "case", case


def test_tailback_reads_what_was_written(written: tuple[Path, Case]) -> None:
    from tailback.evidence.jobs import read_jobs
    from tailback.evidence.measure import measure
    from tailback.fabric.readers import read_fabric
    from tailback.port_counters.readers import read_counters
    from tailback.port_counters.readers.model import united

    folder, case = written
    seen = folder / "seen"
    truth = json.loads((folder / "truth.json").read_text())
    files = json.loads((seen / "case.json").read_text())
    measured = measure(seen / "trace").measured
    slack = truth["elapsed_ps"] * 60e-6 + 10_000
    assert measured.low_ps - slack <= truth["elapsed_ps"] <= measured.high_ps + slack
    assert measured.n_ranks == case.ranks
    fabric = read_fabric(seen / files["fabric"])
    assert (fabric.n_hosts, fabric.n_links) == (32, len(case.machine.links))
    counted = united([read_counters(file) for file in sorted((seen / "counters").iterdir())])
    sent = counted.all_intervals()["data_bytes"].sum()
    # Counters are read before the run and after it, of switches and perhaps of adapters.
    case_links = simulate(case.world()).links[:, 0]
    of_switches = case_links[[a >= 32 for a, _ in case.machine.links]].sum()
    hosts = case_links[[a < 32 for a, _ in case.machine.links]].sum()
    expected = of_switches + (hosts if truth["reader"]["hosts"] else 0)
    assert sent == pytest.approx(expected, abs=4 * len(case_links))
    assert "77001" in read_jobs(seen / "jobs.csv").jobs["job"].to_list()


# --- judging ---------------------------------------------------------------------------------

TRUTH = {"kind": "slow_link", "main": "slow_link", "program": "fft", "costs": {"slow_link": 0.2}}


@pytest.mark.parametrize(
    ("accepted", "cause", "outcome"),
    [
        (["slow_link"], "slow-link", "right"),
        (["slow_link"], "undetermined", "undetermined"),
        (["slow_link"], "routing", "wrong"),
        (["slow_link"], "", "failed"),
        (list(foreign.NOTHING), "injection", "right"),
        (list(foreign.NOTHING), "placement", "wrong"),
    ],
)
def test_a_verdict_is_held_against_the_truth(accepted: list[str], cause: str, outcome: str) -> None:
    diagnosis = {"cause": cause, "confidence": 0.95, "elapsed_ps": 100}
    answer = foreign.judge("one", TRUTH | {"accepted": accepted}, diagnosis, "all")
    assert answer.outcome == outcome


def test_a_stated_range_holds_the_true_cost() -> None:
    cost = {"cause": "slow-link", "share": 0.22, "low_ps": 19, "high_ps": 24}
    diagnosis = {"cause": "slow-link", "elapsed_ps": 100, "explanation": {"costs": [cost]}}
    answer = foreign.judge("one", TRUTH | {"accepted": ["slow_link"]}, diagnosis, "all")
    made = foreign.figures([answer])["all"]
    assert made["cost_in_range"] == [1, 1]
    assert made["right"] == 1
    narrow = replace(answer, stated=(0.22, 0.21, 0.24))
    assert foreign.figures([narrow])["all"]["cost_in_range"] == [0, 1]


def test_every_program_ends() -> None:
    machine = Machine(4, 8, 4, speed="FDR")
    for name in PROGRAMS.keys() - {"incast", "bursts"}:
        program = Program(16, 1)
        PROGRAMS[name](program, Shape(3, 20, 8192, 1, roots=2))
        assert simulate(world(program, list(range(16)), machine)).elapsed_ps > 0, name
