"""``tailback collect`` where something is missing or wrong: said, never a traceback."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import re
import signal
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest

import tailback.cli as command_line
from tailback.cli.collect import collect
from tailback.collector import mad as mads
from tailback.collector import umad
from tailback.collector.store import Collection
from tests.factories.collect_subnet import row_of_switches


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command_line.cli.commands, "collect", collect)


def test_without_the_library_the_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: object, **__: object) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    monkeypatch.setattr(umad.ctypes.util, "find_library", lambda name: None)
    assert command_line.run(["collect", "--out", str(tmp_path / "c"), "--sweeps", "1"]) == 2
    error = capsys.readouterr().err
    assert (
        "libibumad.so.3 is not on this machine" in error and "apt-get install libibumad3" in error
    )


class NoAdapter:
    """A library on a machine without InfiniBand, or one whose device is not ours to use."""

    def __init__(self, number: int) -> None:
        self.number = number

    def umad_init(self) -> int:
        return 0

    def umad_open_port(self, name: bytes | None, port: int) -> int:
        return -self.number


@pytest.mark.parametrize(("number", "words"), [(19, "ibstat"), (13, "/dev/infiniband/umad")])
def test_without_an_adapter_the_remedy_is_named(
    number: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(umad, "load_library", lambda: NoAdapter(number))
    assert command_line.run(["collect", "--out", str(tmp_path / "c"), "--sweeps", "1"]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "c").exists(), "an empty collection stays behind"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--interval", "10"], "no unit|not a time"),
        (["--tick", "22 miles"], "not a time"),
        (["--sweeps", "0"], "0 is not in the range"),
        (["--metrics", "elsewhere:x", "--sweeps", "1"], "not an address to serve metrics on"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(["collect", "--out", str(tmp_path / "c"), *arguments]) == 2
    error = capsys.readouterr().err
    assert any(word in error for word in words.split("|")), error
    assert "Traceback" not in error
    assert not (tmp_path / "c").exists(), "an empty collection stays behind"


def test_compacting_an_empty_collection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["collect", "--out", str(tmp_path / "c"), "--compact"]) == 2
    assert "is not a collection" in capsys.readouterr().err and not (tmp_path / "c").exists()
    Collection(tmp_path / "c").close()
    assert command_line.run(["collect", "--out", str(tmp_path / "c"), "--compact"]) == 0
    assert "Parquet" in capsys.readouterr().out


def test_a_session_reports_its_work_and_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subnet = row_of_switches(2, 1)
    subnet.devices[0x1001].name = b"evil\x1b[31m\nname"
    subnet.script[0x1001, 2] = [4_000_000]
    monkeypatch.setattr(import_module("tailback.cli.collect"), "UmadPort", lambda *_: subnet)
    out = str(tmp_path / "c")
    arguments = ["--interval", "200 ms", "--sweeps", "2", "--tick", "22 ns"]
    before = signal.getsignal(signal.SIGTERM)
    assert command_line.run(["collect", "--out", out, *arguments]) == 0
    assert signal.getsignal(signal.SIGTERM) is before
    captured = capsys.readouterr()
    assert "4 devices, 6 ports; 2 sweeps, 12 readings, 0 failed" in captured.out
    assert "MADs in" in captured.out and "of a processor" in captured.out
    row = pl.read_parquet(f"{out}/intervals/*.parquet").sort("xmit_wait_ticks").row(-1, named=True)
    share = 4_000_000 * 22 / row["interval_ns"]
    assert row["stall_fraction"] == pytest.approx(share)
    stalled = re.search(r"name\[2\].*?\s(\d+) %\s+(\d+\.\d\d)\s+22 ns given", captured.out)
    assert stalled and int(stalled[1]) == round(100 * share)
    assert float(stalled[2]) == pytest.approx(share * 54.545, abs=0.01)
    assert "\x1b" not in captured.out + captured.err
    for folder in ("readings", "intervals"):
        assert list((tmp_path / "c" / folder).glob("*.parquet"))


def test_no_answer_however_odd_is_a_crash() -> None:
    draw = random.Random(3)
    for _ in range(300):
        answer = draw.randbytes(256)
        mads.port_info(answer), mads.node_info(answer), mads.capability(answer)
        mads.port_counters(answer), mads.port_counters_extended(answer)
        assert len(mads.node_description(answer)) <= 64


def test_a_vanished_device_ends_the_session_with_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subnet = row_of_switches(2, 1)
    send = subnet.send

    def unplugged(mad_class: int, lid: int, mad: bytearray, timeout_ms: int) -> None:
        if subnet.sent >= 80:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        send(mad_class, lid, mad, timeout_ms)

    monkeypatch.setattr(subnet, "send", unplugged)
    monkeypatch.setattr(import_module("tailback.cli.collect"), "UmadPort", lambda *_: subnet)
    out = str(tmp_path / "c")
    assert command_line.run(["collect", "--out", out, "--interval", "5 ms"]) == 2
    error = capsys.readouterr().err
    assert "No such device" in error and "ibstat" in error and "Traceback" not in error
    assert pl.read_parquet(f"{out}/readings/*.parquet").height >= 12
