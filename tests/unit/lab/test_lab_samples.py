"""Samples of a lab: real MPI traffic against the kernel's counters, killed writers, clean ends."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.cli import run as tailback
from tailback.fabric.model import in_port_order
from tailback.fabric.readers import read_fabric
from tailback.lab import fabric, system, telemetry
from tailback.lab.datapath.record import COLUMNS
from tailback.lab.datapath.sampling import PacketScheme
from tailback.lab.plan import Plan
from tailback.lab.spec import parse
from tailback.telemetry.samples_csv import read_samples
from tests.factories.datapath import why_no_bpf
from tests.factories.lab import as_toml, left_over, tiny, up
from tests.factories.repository import ROOT

bpf = pytest.mark.skipif(why_no_bpf() is not None, reason=str(why_no_bpf()))
jobs = pytest.mark.skipif(why_no_bpf(jobs=True) is not None, reason=str(why_no_bpf(jobs=True)))


@pytest.fixture(scope="module")
def halo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example program, compiled."""
    program = tmp_path_factory.mktemp("halo") / "halo"
    source = ROOT / "examples" / "lab" / "halo.c"
    subprocess.run(["mpicc", "-O2", "-Wall", "-Werror", "-o", program, source], check=True)
    return program


@contextmanager
def four_ranks(name: str, ip: int, scheme: str, rule: str = "queue") -> Iterator[Plan]:
    """Two leaves and spines, a rank on each of four hosts; a tenth of a queue is soon exceeded."""
    spec = parse(
        {
            "name": f"{name}{os.getpid()}",
            "fabric": {
                "leaves": 2,
                "spines": 2,
                "hosts_per_leaf": 2,
                "ip": ip,
                "congested": "3 kB",
                "rule": rule,
            },
            "job": {"hosts": ["h00", "h10", "h01", "h11"]},
        }
    )
    plan = fabric.bring_up(spec, PacketScheme.parse(scheme))
    try:
        yield plan
    finally:
        fabric.take_down(spec.name)


@jobs
@pytest.mark.slow
@pytest.mark.parametrize(("ip", "scheme"), [(4, "coordinated:4"), (6, "full")])
def test_estimates_of_a_real_run_match_the_kernel(
    ip: int, scheme: str, halo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "case"
    with four_ranks("tbt", ip, scheme) as plan:
        code = tailback(
            [
                "lab",
                "run",
                "--lab",
                plan.spec.name,
                "--out",
                str(out),
                "--quiet",
                "--cause",
                "slow-cable:l0-s0=50%",
                "--",
                str(halo),
                "2",
                "2",
                "15",
                "40000",
                "2",
            ]
        )
        shown = capsys.readouterr()
        assert code == 0, shown.err
    assert f"tailback diagnose {out}\n" in shown.out
    truth = pl.read_csv(out / "truth" / "links.csv").sort("link")
    text = gzip.decompress((out / "counters.csv.gz").read_bytes())
    read = pl.read_csv(io.BytesIO(text)).sort("time_utc").group_by("link")
    counters = read.agg(pl.col("tx_packets").last() - pl.col("tx_packets").first()).sort("link")
    # All but requests for neighbours' addresses got a sample.
    differ = counters["tx_packets"] - truth["packets"]
    assert differ.min() >= 0 and differ.max() < 60  # type: ignore[operator]
    assert truth["super_packets"].sum() == truth["lost"].sum() == 0
    # What hosts received, the last links sent.
    last = [number for link in plan.links if link.target in plan.hosts for number in (link.number,)]
    assert truth["received"].sum() == truth["packets"][[n - 1 for n in last]].sum()
    rows = pl.read_csv(out / "samples.csv", infer_schema_length=None)
    assert tuple(rows.columns) == COLUMNS
    final = rows.sort("time_utc").group_by("rank", "call", "link").last()
    # The halo exchange waits for its messages in one call.
    by_call = dict(final.group_by("call").agg(pl.col("samples").sum()).iter_rows())
    assert max(by_call, key=lambda call: by_call[call]) == "MPI_Waitall"
    assert by_call["MPI_Waitall"] > 0.5 * sum(by_call.values()) and "MPI_Allreduce" in by_call
    assert set(final["rank"].drop_nulls().to_list()) == {0, 1, 2, 3}
    estimates = final.group_by("link").agg(pl.exclude("time_utc", "rank", "call").sum())
    both = truth.join(estimates, on="link", how="left", suffix="_estimate").fill_null(0.0)
    # A link without samples has no estimated variance: that of its packets, with four links each.
    unseen = pl.col("packets_estimate") == 0
    variance = pl.when(unseen).then(3 * pl.col("packets")).otherwise(pl.col("packets_variance"))
    sd = both.select(variance.sqrt().clip(1.0)).to_series()
    z = ((both["packets_estimate"] - both["packets"]) / sd).to_numpy()
    # 16 links: the chance that one is further off is 10^-5.
    assert np.abs(z).max() < 5.0 and both["packets"].sum() > 10_000
    error = (both["congested_estimate"] - both["congested"]).to_numpy()
    sd = (both["packets_variance"] + 9.0).sqrt().to_numpy()
    assert np.abs(error / sd).max() < 5.0 and both["congested"].sum() > 200
    # Samples are of those who received them: the last link of rank 2 leads to h01.
    of_rank = final.group_by("rank", "link").agg(pl.col("samples").sum())
    to_rank = of_rank.filter((pl.col("rank") == 2) & (pl.col("samples") > 50))["link"].to_list()
    ends = {link.target for link in plan.links if link.number in to_rank}
    assert ends & set(plan.hosts) == {"h01"}
    code = tailback(["diagnose", str(out), "--out", str(tmp_path / "found"), "--quiet"])
    assert code in (0, 3), capsys.readouterr().err
    diagnosis = json.loads((tmp_path / "found" / "diagnosis.json").read_text())
    assert "samples in packets" in json.dumps(diagnosis)
    worst = diagnosis["explanation"]["sampled_links"][0]
    assert sum(worst["calls"].values()) == pytest.approx(
        worst["packets"] * worst["congested_fraction"], rel=0.05
    )


def _send(plan: Plan, end: threading.Event) -> threading.Thread:
    """Bytes from h00 to h11, until told to end."""
    with system.inside(plan.namespace("h11")):
        server = socket.create_server((plan.address("h11"), 0))
    with system.inside(plan.namespace("h00")):
        sender = socket.socket()

    def discard() -> None:
        connection, _ = server.accept()
        with connection:
            while connection.recv(1 << 16):
                pass

    def send() -> None:
        with sender, server:
            threading.Thread(target=discard, daemon=True).start()
            sender.connect(server.getsockname())
            with suppress(OSError):
                while not end.is_set():
                    sender.sendall(bytes(1 << 14))
                    end.wait(0.01)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def _samples(written: bytes) -> int:
    """Samples in the last instant of a file."""
    rows = list(csv.DictReader(written.decode().splitlines()))
    last = max(row["time_utc"] for row in rows)
    return sum(int(row["samples"]) for row in rows if row["time_utc"] == last)


def _marked(plan: Plan, host: str) -> int:
    """Packets that reached a host with *congestion experienced*, as its kernel counts them."""
    counters = Path("/proc/thread-self/net")
    with system.inside(plan.namespace(host)):
        if plan.ip == 6:
            words = (counters / "snmp6").read_text().split()
            return int(words[words.index("Ip6InCEPkts") + 1])
        lines = (counters / "netstat").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("IpExt:"))
    return int(values[names.index("InCEPkts")])


@pytest.mark.slow
@bpf
@pytest.mark.parametrize(("rule", "ip"), [("ecn", 4), ("ecn", 6), ("queue", 4)])
def test_a_marking_port_gives_the_congested_bit(rule: str, ip: int) -> None:
    """A sender of 50 Mb/s through cables of 40 Mb/s; acknowledgements may not be marked."""
    with four_ranks("tbe", ip, "coordinated:4", rule) as plan:
        fabric.settle(plan, {}, ["s0"])
        with system.inside(plan.namespace("h11")):
            server = socket.create_server(
                (plan.address("h11"), 0), family=socket.AF_INET if ip == 4 else socket.AF_INET6
            )
        with system.inside(plan.namespace("h00")):
            sender = socket.socket(server.family)
        received = 0
        with server, sender:
            sender.connect(server.getsockname()[:2])
            receiver, _ = server.accept()
            thread = threading.Thread(
                target=lambda: (sender.sendall(bytes(2_000_000)), sender.close())
            )
            thread.start()
            with receiver:
                while data := receiver.recv(1 << 16):
                    received += len(data)
            thread.join()
        counts = telemetry.truth(plan, fabric.folder_of(plan))
        arrived = _marked(plan, "h11")
    met = int(counts.congested.sum())
    assert received == 2_000_000 and met > 20
    if rule == "queue":
        assert arrived == 0
    else:
        # A packet may be marked by several ports; none is marked by any other.
        assert 0 < arrived <= met and int(counts.congested.max()) <= arrived


@bpf
@pytest.mark.slow
def test_a_killed_writer_loses_its_last_second(tmp_path: Path) -> None:
    file, end = tmp_path / "samples.csv", threading.Event()
    spec = tiny("tbw")
    plan = fabric.bring_up(spec, PacketScheme.parse("full"))
    writer = again = None
    try:
        before = telemetry.truth(plan, fabric.folder_of(plan))
        writer = subprocess.Popen(
            [sys.executable, "-m", "tailback", "lab", "samples", "--lab", spec.name, "--out", file]
        )
        while not (file.exists() and file.stat().st_size):
            assert writer.poll() is None
            time.sleep(0.02)
        traffic = _send(plan, end)
        # Three appended blocks with traffic; what the ports had counted when each appeared.
        seen, size = [], file.stat().st_size
        while len(seen) < 3:
            assert writer.poll() is None
            time.sleep(0.005)
            if file.stat().st_size > size:
                size = file.stat().st_size
                seen.append(telemetry.truth(plan, fabric.folder_of(plan)).since(before))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        killed = file.read_bytes()
        end.set()
        traffic.join()
        # Part of a line, as it may be left.
        file.write_bytes(killed + b"2026-11-25T15:0")
        again = subprocess.Popen(writer.args)
        while file.stat().st_size <= len(killed) + 15:
            assert again.poll() is None
            time.sleep(0.02)
        again.terminate()
        assert again.wait() == 0
        after = telemetry.truth(plan, fabric.folder_of(plan)).since(before)
    finally:
        end.set()
        for process in (writer, again):
            if process is not None:
                process.kill()
        fabric.take_down(spec.name)
    # The file has all that was there at the second append, and no more than there was in the end.
    kept, finally_ = _samples(killed), _samples(file.read_bytes())
    assert 0 < int(seen[1].received.sum()) <= kept <= int(after.received.sum())
    # Who starts the writer again has lost nothing.
    assert finally_ == int(after.received.sum())
    # It is read as it is, and if its last line were cut too.
    out = tmp_path / "links.csv"
    telemetry_links = [
        f"{link.number},{link.source},{link.target},{link.mbit}" for link in plan.links
    ]
    out.write_text("link,src,dst,rate_mbit\n" + "\n".join(telemetry_links) + "\n")
    network = in_port_order(read_fabric(out))
    samples = read_samples(file, network)
    assert int(samples.samples["hop_samples"].sum()) == finally_
    file.write_bytes(file.read_bytes()[:-7])
    assert len(read_samples(file, network).windows) == len(samples.windows)


@jobs
@pytest.mark.slow
def test_a_killed_run_leaves_samples_in_its_case(halo: Path, tmp_path: Path) -> None:
    with four_ranks("tbb", 4, "full") as plan:
        running = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tailback",
                "lab",
                "run",
                "--lab",
                plan.spec.name,
                "--out",
                tmp_path / "case",
                "--",
                halo,
                "2",
                "2",
                "100000",
                "8000",
                "2",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seen: list[int] = []
        while len(seen) < 3:
            assert running.poll() is None
            time.sleep(0.01)
            written = b"".join(file.read_bytes() for file in tmp_path.glob(".case*/samples.csv"))
            if written.count(b"\n") > 1 and written.endswith(b"\n"):
                samples = _samples(written)
                seen += [samples] if not seen or samples > seen[-1] else []
        running.kill()
        running.wait()
    (left,) = tmp_path.glob(".case*/samples.csv")
    assert not (tmp_path / "case").exists()
    assert _samples(left.read_bytes()) >= seen[-1] > seen[0]


def _mounts() -> str:
    return Path("/proc/self/mounts").read_text()


@bpf
def test_down_leaves_no_program_and_no_file_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tiny("tbz")
    plan, file = Plan(spec), as_toml(spec, tmp_path / "lab.toml")
    try:
        assert tailback(["lab", "up", str(file), "--telemetry", "compact:2"]) == 0
        assert "its ports sample packets: compact:2" in capsys.readouterr().out
        folder = fabric.folder_of(plan)
        assert str(folder) in _mounts()
        shown = subprocess.run(
            [
                "bpftool",
                "-j",
                "prog",
                "show",
                "pinned",
                folder / telemetry.FOLDER / "programs" / "tailback_egress",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        program = json.loads(shown.stdout)
        attached = system.run(
            system.Command(
                ("tc", "-n", plan.namespace("h00"), "filter", "show", "dev", "e0", "egress")
            )
        )
        assert "tailback_egress" in attached
    finally:
        assert tailback(["lab", "down", spec.name]) == 0
    assert left_over(plan) == []
    assert str(folder) not in _mounts()
    wanted = [*map(str, program["map_ids"]), str(program["id"])]
    for kind, number in [("map", map_id) for map_id in wanted[:-1]] + [("prog", wanted[-1])]:
        # The kernel frees them a moment after the last reference has gone.
        for _ in range(200):
            gone = subprocess.run(["bpftool", kind, "show", "id", number], capture_output=True)
            if gone.returncode != 0:
                break
            time.sleep(0.05)
        assert gone.returncode != 0


@bpf
def test_a_program_that_cannot_be_built_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny("tby")
    monkeypatch.setattr(PacketScheme, "defines", lambda *_: ["-DSCHEME=nonsense("])
    with pytest.raises(system.LabError, match="clang"):
        fabric.bring_up(spec, PacketScheme.parse("coordinated"))
    assert left_over(Plan(spec)) == []
    assert spec.name not in _mounts()


@bpf
def test_a_lab_without_telemetry_has_no_samples(capsys: pytest.CaptureFixture[str]) -> None:
    with up(tiny("tbv")) as plan:
        assert fabric.sampling_of(plan) is None
        assert tailback(["lab", "samples", "--lab", plan.spec.name, "--out", "/nowhere/x"]) == 2
    assert "bring it up with --telemetry" in capsys.readouterr().err


def test_an_unknown_scheme_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = as_toml(tiny("tbu"), tmp_path / "lab.toml")
    assert tailback(["lab", "up", str(file), "--telemetry", "coordinate"]) == 2
    assert "did you mean 'coordinated'" in capsys.readouterr().err


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(system.LabError, match=r"not found: .*clang, bpftool") as caught:
        system.require(system.FABRIC_TOOLS | telemetry.TOOLS)
    assert "bpftool clang" in str(caught.value.remedy)


DELIVERY_S = 10.0
"""Acknowledgements are still under way when the last byte has arrived."""


@bpf
@pytest.mark.slow
def test_known_paths_count_the_packets_of_all_ports() -> None:
    """Without samples: by the hash of the kernel, for TCP connections between all leaves."""
    shape = {"leaves": 3, "spines": 2, "hosts_per_leaf": 1, "congested": "3 kB", "rule": "ecn"}
    job = {"hosts": ["h00", "h10"]}
    scheme = PacketScheme.parse("entropy-ecn")
    plan = fabric.bring_up(
        parse({"name": f"tbk{os.getpid()}", "fabric": shape, "job": job}), scheme
    )
    try:
        folder = fabric.folder_of(plan)
        before = telemetry.truth(plan, folder)
        receivers = telemetry.receivers(plan, scheme, folder, from_now=True)
        for source, target in itertools.permutations(plan.hosts, 2):
            with system.inside(plan.namespace(target)):
                server = socket.create_server((plan.address(target), 0))
            with system.inside(plan.namespace(source)):
                sender = socket.socket()
            with server, sender:
                sender.connect(server.getsockname())
                with server.accept()[0] as receiver:
                    sender.sendall(bytes(50_000))
                    sender.shutdown(socket.SHUT_WR)
                    while receiver.recv(1 << 16):
                        pass
        links = [link.number for link in plan.links]
        deadline = time.monotonic() + DELIVERY_S
        equal = False
        while not equal and time.monotonic() < deadline:
            counted, true = receivers.count(), telemetry.truth(plan, folder).since(before)
            packets = sum(sums.packets for sums in counted.packets.values())
            equal = np.asarray(packets)[links].tolist() == true.packets[links].tolist()
    finally:
        fabric.take_down(plan.spec.name)
    assert counted.unrouted == 0
    assert np.asarray(packets)[links].tolist() == true.packets[links].tolist()
