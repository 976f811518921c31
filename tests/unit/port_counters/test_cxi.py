"""Slingshot adapters: ``/sys/class/cxi`` or a copy of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailback as tb
from tailback.port_counters.readers import read_counters
from tailback.port_counters.schema import CounterError

SECOND = 10**9


def adapter(folder: Path, seconds: int, **counters: int) -> Path:
    """Telemetry of one adapter at an instant."""
    telemetry = folder / "cxi0" / "device" / "telemetry"
    telemetry.mkdir(parents=True)
    for name, value in counters.items():
        (telemetry / name).write_text(f"{value}@{1_790_000_000 + seconds}.500000000\n")
    properties = folder / "cxi0" / "device" / "properties"
    properties.mkdir()
    (properties / "speed").write_text("BS_200G\n")
    return folder


def test_values_have_times_and_units(tmp_path: Path) -> None:
    folder = adapter(
        tmp_path,
        0,
        hni_sts_tx_ok_octets=9000,
        hni_sts_rx_ok_octets=700,
        hni_pkts_sent_by_tc_0=3,
        hni_pkts_sent_by_tc_1=4,
        hni_tx_paused_0=50,
        hni_tx_paused_1=80,
        hni_pause_recv_1=6,
        atu_cache_miss_0=1,
    )
    data = read_counters(folder)
    (row,) = data.readings.to_dicts()
    assert row["time_ns"] == 1_790_000_000 * SECOND + SECOND // 2
    assert (row["data_bytes"], row["received_bytes"], row["packets"]) == (9000, 700, 7)
    assert (row["paused_ns"], row["pause_frames"], row["capacity_gbps"]) == (80, 6, 200.0)
    assert data.unknown == ["atu_cache_miss_0"]
    assert not data.untimed


def test_uncorrected_words_are_errors_of_the_link(tmp_path: Path) -> None:
    folders = [
        adapter(
            tmp_path / str(number),
            60 * number,
            hni_sts_tx_ok_octets=10**9 * number,
            hni_pcs_uncorrected_cw=12 * number,
        )
        for number in range(2)
    ]
    counters = tb.counters(folders)
    (row,) = counters.verdict.events.to_dicts()
    assert (row["finding"], row["count"], row["counters"]) == (
        "errors",
        12,
        ["hni_pcs_uncorrected_cw"],
    )


def test_damaged_value_names_its_file(tmp_path: Path) -> None:
    folder = adapter(tmp_path, 0, hni_sts_tx_ok_octets=5)
    file = folder / "cxi0" / "device" / "telemetry" / "hni_sts_tx_ok_octets"
    file.write_text("5 octets\n")
    with pytest.raises(CounterError) as caught:
        read_counters(folder)
    assert caught.value.file == file
