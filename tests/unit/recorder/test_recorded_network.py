"""A diagnosis of a recording with its InfiniBand counters, fabric and forwarding tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.cli.record import _network
from tailback.cli.render import diagnosis_lines
from tailback.port_counters.analysis.port_inventory import from_discovery
from tailback.port_counters.analysis.sources import load
from tailback.port_counters.readers import read_counters, reader_of
from tailback.port_counters.schema import CounterError, Flag
from tailback.recorder.session import record
from tailback.sources.recording import recorded_counters
from tailback.sources.source import load_scenario
from tests.factories.forwarding_tables import DISCOVERY, LEFT, RIGHT
from tests.factories.recorded_programs import idle_program, library_to_preload
from tests.factories.recordings import HEAD, MIB, diagnosed, infiniband_recording, row

ADAPTERS = """\
Ca 1 "H-0000000000000010" # "a HCA-1"
[1](11) "S-0000000000000001"[1] # lid 3 lmc 0 "left" lid 1 4xFDR
Ca 1 "H-0000000000000020" # "b HCA-1"
[1](21) "S-0000000000000001"[2] # lid 4 lmc 0 "left" lid 1 4xFDR
Ca 1 "H-0000000000000030" # "c HCA-1"
[1](31) "S-0000000000000002"[1] # lid 5 lmc 0 "right" lid 2 4xFDR
"""


def test_bytes_packets_and_stalls_of_a_recorded_port(tmp_path: Path) -> None:
    (tmp_path / "fabric.txt").write_text(DISCOVERY + ADAPTERS)
    file = tmp_path / "infiniband-a-0.csv"
    file.write_text(
        HEAD
        + row("a", 0, 5 * MIB, 7)
        + row("a", 100, 9 * MIB, 1007)
        # A second adapter, which the fabric does not have.
        + row("a", 0, 0, port="mlx5_1/1", guid="0000:0000:0000:0099")
        + row("a", 100, 4096, port="mlx5_1/1", guid="0000:0000:0000:0099")
    )
    assert reader_of(file).__name__.endswith("recorded_infiniband")
    archive, _ = load([file]).intervals(from_discovery(tmp_path / "fabric.txt"), None)
    rows = archive.rows.collect().sort("node_guid").to_dicts()
    assert len(rows) == 2
    assert (rows[0]["node_name"], rows[0]["port"], rows[0]["data_bytes"]) == ("a HCA-1", 1, 4 * MIB)
    assert (rows[0]["packets"], rows[0]["xmit_wait_ticks"]) == (2048, 1000)
    # An adapter may count 8 bytes of its port in a tick, or 32 of each of its four lanes.
    gbps = rows[0]["capacity_gbps"]
    assert rows[0]["stall_fraction"] == pytest.approx(1000 * (8 * 8 / gbps) / 100e6)
    assert rows[0]["stall_high_fraction"] == pytest.approx(1000 * (8 * 32 * 4 / gbps) / 100e6)
    assert rows[0]["capacity_gbps"] == pytest.approx(54.54, abs=0.01)


def test_missing_counters_of_a_recorded_port_are_flagged(tmp_path: Path) -> None:
    file = tmp_path / "infiniband-a-0.csv"
    full = 2**32 - 1
    file.write_text(
        HEAD
        + row("a", 0, 4 * full, full)
        + row("a", 100, 8 * full, 2**40)
        + "2026-11-22T11:06:11Z,a,mlx5_0/1,,,,,,,,,,,,\n"
    )
    readings = read_counters(file).readings
    assert readings["flags"].to_list() == [0, 0, int(Flag.NO_COUNTER)]
    assert readings["node_guid"].to_list() == [0x10, 0x10, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2026-11-22T11:06:10Z,a,mlx5_0,1,1,1,0,0,0,,,,,,\n", "'mlx5_0' is not a device and"),
        ("2026-11-22T11:06:10Z,a,mlx5_0/1,1,1,1,0,0,0,,,,,g:1,\n", "'g:1' is not a GUID"),
        ("2026-11-22T11:06:10Z,a,mlx5_0/999,1,1,1,0,0,0,,,,,0:0,\n", "'0:0' is not a GUID"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "infiniband-a-0.csv"
    file.write_text(HEAD + row("a", 0, 1) + line)
    with pytest.raises(CounterError) as error:
        read_counters(file)
    text = str(error.value)
    assert "infiniband-a-0.csv" in text and message in text and "line 3" in text
    assert error.value.remedy


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2026-11-22T11:06:10Z,a,mlx5_0/1,-4,1,1,0,0,0,,,,,,\n", "'-4' is not a whole number"),
        ("2026-11-22T11:06:10Z,a,mlx5_0/1,1,1,1e99,0,0,0,,,,,,\n", "'1e99' is not a whole number"),
        ("2026-11-22T1,a,mlx5_0/1,1,1,1,0,0,0,,,,,,\n", "'2026-11-22T1' is not a time"),
        ("2026-11-22T11:06:10Z,a,ml", "fields where the header has"),
    ],
)
def test_damaged_row_is_left_out_by_line(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "infiniband-a-0.csv"
    file.write_text(HEAD + row("a", 0, 1) + line)
    counters = read_counters(file)
    (left_out,) = counters.left_out
    assert "left out: 1 damaged row" in left_out and message in left_out and "line 3" in left_out
    assert counters.readings.height == 1


@pytest.fixture(params=["", ADAPTERS], ids=["without-adapters", "with-adapters"])
def recording(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Rank 0 on host a sends 64 MiB to rank 1 on host c; the recorder counted just that."""
    return infiniband_recording(tmp_path, request.param)[0]


def test_a_recording_needs_nothing_else(recording: Path) -> None:
    assert _network(recording) == ""
    diagnosis = diagnosed(recording).diagnosis
    assert "fabric: from the recording (fabric.txt and lfts.txt)" in diagnosis.warnings
    assert diagnosis.explanation is not None
    assert not any("tailback collect" in text for text in diagnosis.explanation.missing)
    assert any("counters of 2 links" in text for text in diagnosis.explanation.sources)
    assert "fabric: from the recording" in "\n".join(
        diagnosis_lines(diagnosis, recording, verbose=True)
    )


def test_an_adapter_outside_the_fabric_is_not_joined(tmp_path: Path) -> None:
    trace, now = infiniband_recording(tmp_path, ADAPTERS)
    alone = diagnosed(trace).diagnosis.explanation
    file = trace / "counters" / "infiniband-a-0.csv"
    other = [
        row("a", at, at * MIB, first=now, port="mlx5_1/1", guid="0000:0000:0000:0099")
        for at in range(500, 1601, 100)
    ]
    file.write_text(file.read_text() + "".join(other))
    explanation = diagnosed(trace).diagnosis.explanation
    assert explanation is not None and alone is not None
    assert explanation.costs == alone.costs and any(
        "counters of 2 links" in s for s in explanation.sources
    )


def test_given_options_replace_what_was_recorded(recording: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(DISCOVERY)
    scenario = load_scenario(recording, fabric=other)
    assert scenario.fabric.file == other and scenario.fabric.forwarding is None
    tables = tmp_path / "tables.txt"
    tables.write_text(LEFT + RIGHT)
    scenario = load_scenario(recording, forwarding=tables)
    assert scenario.fabric.file == recording / "fabric.txt"
    assert scenario.fabric.forwarding == tables


def test_counters_of_the_fabrics_kind_come_first(recording: Path) -> None:
    (recording / "counters" / "ethernet-a-0.csv").write_text("")
    for interfaces, first in ((False, "infiniband"), (True, "ethernet")):
        kinds = recorded_counters(recording, ["a", "b", "c"], interfaces=interfaces)
        assert len(kinds) == 2 and kinds[0][0].name.startswith(first)
    assert recorded_counters(recording, ["x"], interfaces=False) == []


def test_damaged_recorded_counters_are_left_out_by_name(recording: Path) -> None:
    file = recording / "counters" / "infiniband-c-0.csv"
    file.write_text(file.read_text() + "2026-11-22T11:06:11Z,c,mlx5_0/1,x1,0,0,0,0,0,,,,,,\n")
    explanation = diagnosed(recording).diagnosis.explanation
    assert explanation is not None
    (note,) = [text for text in explanation.sources if "left out: " in text]
    assert "infiniband-c-0.csv" in note and "'x1' is not a whole number" in note


REDIRECT = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* InfiniBand devices are those of a folder. */
static const char *moved(const char *path, char *buffer) {
  if (strncmp(path, "/sys/class/infiniband", 21)) return path;
  snprintf(buffer, 4096, "%s%s", getenv("TEST_DEVICES"), path + 21);
  return buffer;
}
DIR *opendir(const char *path) {
  char buffer[4096];
  return ((DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir"))(moved(path, buffer));
}
int open(const char *path, int flags, ...) {
  char buffer[4096];
  va_list rest;
  va_start(rest, flags);
  int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
  va_end(rest);
  int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  return real(moved(path, buffer), flags, mode);
}
"""


@pytest.mark.tools
def test_the_recorder_writes_what_the_reader_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev")
    device = tmp_path / "devices" / "fake_0"
    counters = device / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    (device / "node_guid").write_text("b859:9f03:00c9:1a2c\n")
    (device / "ports" / "1" / "rate").write_text("100 Gb/sec (4X EDR)\n")
    # The words of a counter that is full are more bytes than 64 bits hold.
    values = {
        "port_xmit_data": 1000,
        "port_xmit_packets": 3,
        "port_xmit_wait": 2**32 - 1,
        "port_rcv_data": 2**64 - 1,
    }
    for name, value in values.items():
        (counters / name).write_text(f"{value}\n")
    (counters / "symbol_error").write_text("4\n")
    hardware = device / "ports" / "1" / "hw_counters"
    hardware.mkdir()
    for number, name in enumerate(("np_cnp_sent", "packet_seq_err", "local_ack_timeout_err")):
        (hardware / name).write_text(f"{number + 7}\n")
    program = idle_program(tmp_path, 300_000)
    redirect = library_to_preload(tmp_path, REDIRECT)
    monkeypatch.setenv("TEST_DEVICES", str(tmp_path / "devices"))
    monkeypatch.setenv("LD_PRELOAD", str(redirect))
    record(["mpirun", "--oversubscribe", "-np", "2", str(program)], tmp_path / "out")
    (file,) = (tmp_path / "out" / "counters").glob("infiniband-*.csv")
    received = pl.read_csv(file, schema_overrides={"rx_bytes": pl.UInt64})["rx_bytes"]
    assert set(received) == {2**64 - 1}
    # Losses and errors are read seldom, and at both ends.
    rows = pl.read_csv(file)
    assert set(rows["cnp_sent"]) == {7}
    for name, value in (("packet_seq_err", 8), ("local_ack_timeout_err", 9), ("symbol_error", 4)):
        assert rows[name][0] == rows[name][-1] == value and rows[name].null_count() > 0
    assert rows["rnr_nak_retry_err"].is_null().all()
    readings = read_counters(file).readings
    assert readings.height >= 3
    assert set(readings["node_guid"]) == {0xB8599F0300C91A2C} and set(readings["port"]) == {1}
    assert set(readings["data_bytes"]) == {4000} and set(readings["packets"]) == {3}
    assert set(readings["xmit_wait_ticks"]) == {2**32 - 1}
    assert np.allclose(readings["capacity_gbps"].to_numpy(), 100.0, rtol=0.04)


def test_forecast_says_that_recorded_counters_are_not_used(tmp_path: Path) -> None:
    trace, _ = infiniband_recording(tmp_path)
    diagnosis = diagnosed(trace, forecast=True).diagnosis
    assert diagnosis.forecast is not None and diagnosis.measured is None
    assert any(
        "port counters of the recording are not used" in note for note in diagnosis.assumptions
    )
