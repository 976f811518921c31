"""A real fabric of namespaces on this machine: packets, counters, nothing left behind."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tailback.lab import counters, fabric, system
from tailback.lab.plan import Plan
from tailback.lab.spec import LabError
from tests.factories.lab import as_toml, left_over, tiny, up, why_not
from tests.factories.repository import ROOT

fabrics = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
jobs = pytest.mark.skipif(why_not(jobs=True) is not None, reason=str(why_not(jobs=True)))

SENT = 300_000


def _move(plan: Plan, source: str, target: str) -> int:
    """Send bytes from host to host by TCP; returns how many arrived."""
    with system.inside(plan.namespace(target)):
        server = socket.create_server((plan.address(target), 0))
    with system.inside(plan.namespace(source)):
        sender = socket.socket()
    with server, sender:
        sender.connect(server.getsockname())
        receiver, _ = server.accept()
        thread = threading.Thread(target=lambda: (sender.sendall(bytes(SENT)), sender.close()))
        thread.start()
        arrived = 0
        with receiver:
            while data := receiver.recv(1 << 16):
                arrived += len(data)
        thread.join()
    return arrived


def _read(plan: Plan, node: str) -> dict[str, tuple[int, ...]]:
    with (
        system.inside(plan.namespace(node)),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel,
    ):
        return counters.read(kernel)


@fabrics
def test_counters_on_the_path_count_the_bytes() -> None:
    with up(tiny("tbr")) as plan:
        fabric.settle(plan, {}, ["s1"])
        assert _move(plan, "h00", "h11") == SENT
        sent, received, packets = (_read(plan, "h00")["e0"][k] for k in (0, 2, 1))
        assert SENT < sent < 1.2 * SENT
        # A segment a packet, none of them larger than the wire takes.
        assert packets >= SENT / 1448
        assert 0 < received < sent
        assert _read(plan, "l0")["s1"][0] == pytest.approx(sent, rel=0.02)
        assert _read(plan, "s1")["l1"][0] == pytest.approx(sent, rel=0.02)
        assert _read(plan, "l1")["h11"][0] == pytest.approx(sent, rel=0.02)
        assert _read(plan, "l0")["s0"][0] == 0
    assert left_over(plan) == []


@fabrics
def test_a_slow_link_queues_without_foreign_drops() -> None:
    with up(tiny("tbs")) as plan:
        links = plan.cable("l0", "s1")
        assert links is not None
        fabric.settle(plan, {links[0].number: 400_000}, ["s1"])
        shown = system.run(system.Command(("tc", "-n", plan.namespace("l0"), "qdisc", "show")))
        assert "rate 400Kbit" in shown
        fabric.settle(plan, {}, plan.spines)
        shown = system.run(system.Command(("tc", "-n", plan.namespace("l0"), "qdisc", "show")))
        assert "rate 400Kbit" not in shown
        with pytest.raises(LabError, match="is up already"):
            fabric.bring_up(plan.spec)
        # The refusal takes nothing down.
        assert _move(plan, "h00", "h10") == SENT
    assert left_over(plan) == []


@fabrics
def test_a_failure_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny("tbh")
    plan = Plan(spec)

    def refuse(*_: object) -> None:
        raise LabError("no more")

    monkeypatch.setattr(fabric, "settle", refuse)
    with pytest.raises(LabError, match="no more"):
        fabric.bring_up(spec)
    assert left_over(plan) == []


@fabrics
def test_down_ends_processes_and_is_repeatable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tiny("tbd")
    plan = Plan(spec)
    try:
        assert tailback(["lab", "up", str(as_toml(spec, tmp_path / "lab.toml"))]) == 0
        assert "4 hosts, 2 leaves, 2 spines" in capsys.readouterr().out
        # A stubborn process of an earlier run, as one that was killed leaves it.
        stubborn = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                plan.namespace("h00"),
                sys.executable,
                "-c",
                "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
                "print('on', flush=True); time.sleep(600)",
            ],
            stdout=subprocess.PIPE,
        )
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        threading.Thread(target=stubborn.wait, daemon=True).start()
        system.delete([plan.namespace("s0")])  # half of it is gone already
        assert tailback(["lab", "down", spec.name]) == 0
        assert left_over(plan) == []
        assert stubborn.wait() == -signal.SIGKILL
        assert tailback(["lab", "down", spec.name]) == 0
        assert "no lab is up" in capsys.readouterr().out
    finally:
        fabric.take_down(spec.name)


@fabrics
def test_a_namespace_of_somebody_else_is_left_alone() -> None:
    spec = tiny("tbe")
    plan = Plan(spec)
    theirs = plan.namespace("h11")
    system.run(system.Command(("ip", "netns", "add", theirs)))
    try:
        with pytest.raises(LabError, match="does not belong to a lab"):
            fabric.bring_up(spec)
        assert not fabric.take_down(spec.name)
        assert left_over(plan) == [theirs]
    finally:
        system.delete([theirs])


@fabrics
def test_an_early_killed_up_is_taken_down() -> None:
    plan = Plan(tiny("tbk"))
    (fabric.STATE / plan.spec.name).mkdir(parents=True)
    assert fabric.take_down(plan.spec.name)
    assert left_over(plan) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../../tmp", "none"])
def test_down_removes_nothing_that_is_no_lab(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "require", lambda _tools: None)
    state = tmp_path / "state"
    (state / "other").mkdir(parents=True)
    monkeypatch.setattr(fabric, "STATE", state)
    assert not fabric.take_down(name)
    assert (state / "other").is_dir()


def test_without_root_the_remedy_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    file = as_toml(tiny("tbn"), tmp_path / "lab.toml")
    assert tailback(["lab", "up", str(file)]) == 2
    assert "as root" in capsys.readouterr().err
    assert not (fabric.STATE / tiny("tbn").name).exists()


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match=r"not found: ip, tc, .*mpirun, eztrace") as caught:
        system.require(system.FABRIC_TOOLS | system.JOB_TOOLS)
    assert "apt-get install" in str(caught.value.remedy)
    assert "openmpi-bin" in str(caught.value.remedy)


@pytest.fixture(scope="module")
def halo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example program, compiled."""
    program = tmp_path_factory.mktemp("halo") / "halo"
    source = ROOT / "examples" / "lab" / "halo.c"
    subprocess.run(["mpicc", "-O2", "-Wall", "-Werror", "-o", program, source], check=True)
    return program


@jobs
def test_a_run_separates_evidence_from_truth(
    halo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, out = tiny("tbj"), tmp_path / "case"
    with up(spec) as plan:
        code = tailback(
            [
                "lab",
                "run",
                "--lab",
                spec.name,
                "--out",
                str(out),
                "--quiet",
                "--cause",
                "slow-cable:l0-s1=50%",
                "--cause",
                "cross-traffic:h01-h11",
                "--",
                str(halo),
                "2",
                "1",
                "5",
                "20000",
                "2",
            ]
        )
        assert code == 0, capsys.readouterr().err
        # The next run finds the nominal network.
        shown = system.run(system.Command(("tc", "-n", plan.namespace("l0"), "qdisc", "show")))
        assert "rate 20Mbit" not in shown
        assert not (fabric.STATE / spec.name / "run").exists()
    seen = {path.name for path in out.iterdir()}
    assert seen == {
        "trace",
        "links.csv",
        "rank_host.csv",
        "counters.csv.gz",
        "clock.csv",
        "truth",
        "manifest.json",
    }
    truth = json.loads((out / "truth" / "truth.json").read_text())
    assert [cause["kind"] for cause in truth["causes"]] == ["slow-cable", "cross-traffic"]
    assert "slow-cable" not in (out / "links.csv").read_text()
    with (out / "links.csv").open() as file:
        rates = {(row["src"], row["dst"]): row["rate_mbit"] for row in csv.DictReader(file)}
    assert rates["l0", "s1"] == "40.0"
    with gzip.open(out / "counters.csv.gz", "rt") as packed:
        rows = list(csv.DictReader(packed))
    last = {(row["node"], row["iface"]): row for row in rows}
    first = {(row["node"], row["iface"]): row for row in reversed(rows)}
    moved = {port: int(last[port]["tx_bytes"]) - int(first[port]["tx_bytes"]) for port in last}
    assert len(last) == len(rates)
    assert moved["h00", "e0"] > 5 * 2 * 20_000
    assert moved["h01", "e0"] > moved["h11", "e0"]
    capsys.readouterr()
    command = [
        "diagnose",
        str(out / "trace"),
        "--fabric",
        str(out / "links.csv"),
        "--rankfile",
        str(out / "rank_host.csv"),
        "--out",
        str(tmp_path / "found"),
        "--quiet",
    ]
    assert tailback(command) in (0, 3)
    with (out / "clock.csv").open() as file:
        zeros = [float(row["trace_zero_unix_s"]) for row in csv.DictReader(file)]
    assert len(zeros) == 2
    assert all(truth["loop_start_unix"] - 60 < zero < truth["loop_start_unix"] for zero in zeros)


@pytest.mark.slow
@jobs
def test_run_like_another_repeats_its_causes(
    halo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, before, after = tiny("tbk"), tmp_path / "before", tmp_path / "after"
    ranks = tmp_path / "ranks"
    ranks.write_text("rank 0=h11 slot=0\nrank 1=h01 slot=0\n")
    run = ["lab", "run", "--lab", spec.name, "--quiet"]
    program = ["--", str(halo), "2", "1", "5", "20000", "2"]
    cause = ["--cause", "slow-cable:l0-s1=50%"]
    with up(spec):
        assert tailback([*run, "--out", str(before), *cause, *program]) == 0
        again = ["--out", str(after), "--like", str(before), "--rankfile", str(ranks)]
        capsys.readouterr()
        assert tailback([*run, *again, *program]) == 0
        shown = "".join(capsys.readouterr())
        assert "slow" not in shown and "l0-s1" not in shown
        assert tailback([*run, "--out", str(tmp_path / "x"), *cause, *again[2:], *program]) == 2
        assert "--cause and --like exclude each other" in capsys.readouterr().err
    truths = [json.loads((case / "truth" / "truth.json").read_text()) for case in (before, after)]
    assert truths[0]["causes"] == truths[1]["causes"] and truths[1]["causes"]
    assert truths[0]["path_seed"] == truths[1]["path_seed"] == spec.fabric.ecmp_seed
    with (after / "rank_host.csv").open() as file:
        assert [row["host"] for row in csv.DictReader(file)] == ["h11", "h01"]


@pytest.mark.slow
@jobs
def test_a_failing_program_is_quoted_and_harmless(
    halo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, out = tiny("tbf"), tmp_path / "case"
    with up(spec) as plan:
        assert (
            tailback(
                [
                    "lab",
                    "run",
                    "--lab",
                    spec.name,
                    "--out",
                    str(out),
                    "--quiet",
                    "--",
                    str(halo),
                    "3",
                    "1",
                    "1",
                    "8",
                    "1",
                ]
            )
            == 2
        )
        assert "halo: 3 x 1 is not 2 ranks" in capsys.readouterr().err
        assert not out.exists()
        assert _move(plan, "h00", "h10") == SENT


@pytest.mark.slow
@jobs
def test_down_cleans_up_a_killed_run(halo: Path, tmp_path: Path) -> None:
    spec = tiny("tbx")
    with up(spec) as plan:
        running = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tailback",
                "lab",
                "run",
                "--lab",
                spec.name,
                "--out",
                str(tmp_path / "case"),
                "--cause",
                "slow-cable:l0-s0=50%",
                "--",
                str(halo),
                "2",
                "1",
                "100000",
                "1000",
                "10",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        notes = fabric.STATE / spec.name / "run" / "trace"
        while not notes.exists():
            assert running.poll() is None
        ranks = system.run(system.Command(("ip", "netns", "pids", plan.namespace("h10"))))
        assert ranks.split()
        # A priority given to a session (autogroup) reaches them only there.
        assert {os.getsid(int(pid)) for pid in ranks.split()} == {os.getsid(running.pid)}
        running.kill()
        running.wait()
        assert fabric.take_down(spec.name)
        assert left_over(plan) == []
        for pid in ranks.split():
            state = Path(f"/proc/{pid}/stat")
            assert not state.exists() or state.read_text().split()[2] == "Z"
