"""Slingshot adapters: ``/sys/class/cxi`` or a copy of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailback as tb
from tailback.port_counters.readers import read_counters
from tailback.port_counters.schema import CounterError

SECOND = 10**9


def adapter(folder: Path, seconds: int, link: int = 1, **counters: int) -> Path:
    """Telemetry of one adapter at an instant, as the driver of Cassini 1 writes it."""
    telemetry = folder / "cxi0" / "device" / "telemetry"
    telemetry.mkdir(parents=True)
    for name, value in counters.items():
        (telemetry / name).write_text(f"{value}@{1_790_000_000 + seconds}.500000000\n")
    properties = folder / "cxi0" / "device" / "properties"
    properties.mkdir()
    (properties / "speed").write_text("200000\n")
    (properties / "link").write_text(f"{link}\n")
    return folder


def test_values_have_times_and_units(tmp_path: Path) -> None:
    folder = adapter(
        tmp_path,
        0,
        hni_sts_tx_ok_octets=9000,
        hni_sts_rx_ok_octets=700,
        hni_pkts_sent_by_tc_0=3,
        hni_pkts_sent_by_tc_1=4,
        atu_cache_miss_0=1,
    )
    data = read_counters(folder)
    (row,) = data.readings.to_dicts()
    assert row["time_ns"] == 1_790_000_000 * SECOND + SECOND // 2
    assert (row["data_bytes"], row["received_bytes"], row["packets"]) == (9000, 700, 7)
    assert row["capacity_gbps"] == 200.0
    assert data.unknown == ["atu_cache_miss_0"]
    assert not data.untimed


@pytest.mark.parametrize(
    ("place", "text"), [("port/speed", "BS_200G"), ("port/0/link/speed", "ck400G")]
)
def test_rates_have_names_in_other_places(tmp_path: Path, place: str, text: str) -> None:
    device = adapter(tmp_path, 0, hni_sts_tx_ok_octets=9000) / "cxi0" / "device"
    (device / "properties" / "speed").unlink()
    (device / place).parent.mkdir(parents=True)
    (device / place).write_text(f"{text}\n")
    (rate,) = read_counters(tmp_path).readings["capacity_gbps"]
    assert rate == float(text[2:].strip("_G"))


def pair(folder: Path, **rises: int) -> tb.CountersResult:
    """Counters of an adapter that rose by so much in ten seconds."""
    return tb.counters(
        [
            adapter(
                folder / str(number),
                10 * number,
                hni_sts_tx_ok_octets=10**9 * (number + 1),
                **{name: rise * number for name, rise in rises.items()},
            )
            for number in range(2)
        ]
    )


def test_pauses_count_as_stalls(tmp_path: Path) -> None:
    counters = pair(tmp_path, hni_tx_paused_0=10**9, hni_tx_paused_1=3 * SECOND, hni_pause_recv_1=6)
    (row,) = counters.frame.to_dicts()
    assert row["stall_fraction"] == pytest.approx(0.3)
    (event,) = counters.verdict.events.to_dicts()
    assert (event["finding"], event["count"]) == ("paused", 6)
    assert event["paused_share"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("kind", "rises"),
    [
        ("errors", {"hni_pcs_uncorrected_cw": 12, "hni_llr_tx_replay_event": 3}),
        ("corrected", {"hni_pcs_corrected_cw": 15}),
        ("discarded-sent", {"hni_discard_cntr_2": 8, "hni_discard_cntr_5": 7}),
        ("timeouts", {"pct_spt_timeouts": 15}),
        ("pausing", {"hni_pause_xoff_sent_1": 9, "hni_pause_xoff_sent_2": 6}),
    ],
)
def test_telemetry_becomes_events(tmp_path: Path, kind: str, rises: dict[str, int]) -> None:
    (row,) = pair(tmp_path, **rises).verdict.events.to_dicts()
    assert (row["finding"], row["count"], row["counters"]) == (kind, 15, sorted(rises))


def test_pausing_the_network_is_timed(tmp_path: Path) -> None:
    (row,) = pair(tmp_path, hni_rx_paused_4=2 * SECOND).verdict.events.to_dicts()
    assert (row["finding"], row["count"]) == ("pausing", 0)
    assert row["paused_share"] == pytest.approx(0.2)


def test_link_down_is_an_event(tmp_path: Path) -> None:
    folders = [
        adapter(tmp_path / str(up), 10 - 10 * up, link=up, hni_sts_tx_ok_octets=10**9)
        for up in (1, 0)
    ]
    (row,) = tb.counters(folders).verdict.events.to_dicts()
    assert (row["finding"], row["counters"]) == ("slower", ["from 200 Gb/s to down"])


def test_damaged_value_names_its_file(tmp_path: Path) -> None:
    folder = adapter(tmp_path, 0, hni_sts_tx_ok_octets=5)
    file = folder / "cxi0" / "device" / "telemetry" / "hni_sts_tx_ok_octets"
    file.write_text("5 octets\n")
    with pytest.raises(CounterError) as caught:
        read_counters(folder)
    assert caught.value.file == file
