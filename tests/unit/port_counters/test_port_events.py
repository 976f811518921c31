"""What ports counted of errors, pauses, marks and losses, and how it is worded."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tailback.cli.queues_screen import event_lines
from tailback.port_counters.findings.port_events import (
    KINDS,
    MEANINGS,
    READINGS,
    SPEED,
    meaning_of,
    pauses,
    port_events,
    ports_counted,
)
from tailback.port_counters.recorded_statistics import recorded_statistics
from tests.factories.recordings import HEAD, STATISTICS_HEAD, row, stamp

Rise = tuple[str, str, str, int, int]


def findings_of(*rises: Rise, unused: dict[str, frozenset[str]] | None = None) -> pl.DataFrame:
    """Findings of counters that go from one value to another within ten seconds."""
    rows = [
        (at * 10**9, 0, host, 0, interface, counter, value)
        for host, interface, counter, first, last in rises
        for at, value in ((0, first), (10, last))
    ]
    return port_events(pl.DataFrame(rows, schema=READINGS, orient="row"), unused)


@pytest.mark.parametrize(
    ("counter", "kind"),
    [
        # mlx5, by the kernel's documentation of its counters.
        ("rx_prio3_pause", "paused"),
        ("tx_prio3_pause", "pausing"),
        ("rx_global_pause", "paused"),
        ("tx_pause_ctrl_phy", "pausing"),
        ("rx_prio3_pause_duration", "paused"),
        ("tx_prio3_pause_duration", "pausing"),
        ("rx_prio3_pause_transition", None),
        ("tx_pause_storm_warning_events", None),
        ("rx_discards_phy", "discarded"),
        ("tx_discards_phy", "discarded-sent"),
        ("rx_prio3_discards", "discarded"),
        ("rx_out_of_buffer", "no-buffer"),
        ("rx_ecn_mark", "marked"),
        # Marks of the adapter itself, for a slow host, say nothing of the network.
        ("rx_prio3_marked", None),
        # Names of other drivers, and of SAI.
        ("port.link_xoff_rx", "paused"),
        ("port.link_xon_rx", None),
        ("rx_pfc_ena_frames_pri3", "paused"),
        ("pfc_pri3_rx_duration_us", None),
        ("SAI_PORT_STAT_PFC_3_RX_PKTS", "paused"),
        ("SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US", "paused"),
        ("cnp_sent", "notifying"),
        ("packet_seq_err", "lost"),
        ("pause", None),
        ("", None),
        # A switch marks what it sends, an adapter counts marks of what it receives.
        ("ecn_marked", "marking"),
        ("np_ecn_marked_roce_packets", "marked"),
        ("PortXmitTimeCong", "congested"),
        ("PortXmitCongTime", "congested"),
        ("port_xmit_time_cong", "congested"),
        ("PortPktRcvFECN", "marked"),
        ("PortRcvSwitchRelayErrors", "unrouted"),
        ("VL15Dropped", "management"),
        ("PortFECUncorrectableBlockCounter", "errors"),
        ("PortFECCorrectedSymbolCtr", "corrected"),
    ],
)
def test_names_of_counters(counter: str, kind: str | None) -> None:
    meaning = meaning_of(counter)
    assert (None if meaning is None else meaning.kind) == kind


@pytest.mark.parametrize(
    ("spellings", "kind"),
    [
        # perfquery and ibqueryerrors, sysfs, node_exporter, infiniband_exporter.
        (
            (
                "SymbolErrorCounter",
                "symbol_error",
                "node_infiniband_symbol_error_total",
                "infiniband_switch_port_symbol_error_total",
            ),
            "errors",
        ),
        (
            (
                "LinkErrorRecoveryCounter",
                "link_error_recovery",
                "node_infiniband_link_error_recovery_total",
                "infiniband_hca_port_link_error_recovery_total",
            ),
            "errors",
        ),
        (
            (
                "LinkDownedCounter",
                "link_downed",
                "node_infiniband_link_downed_total",
                "infiniband_switch_port_link_downed_total",
            ),
            "errors",
        ),
        (
            (
                "PortRcvErrors",
                "port_rcv_errors",
                "node_infiniband_port_errors_received_total",
                "infiniband_switch_port_receive_errors_total",
            ),
            "errors",
        ),
        (
            (
                "LocalLinkIntegrityErrors",
                "local_link_integrity_errors",
                "node_infiniband_local_link_integrity_errors_total",
                "infiniband_switch_port_local_link_integrity_errors_total",
            ),
            "errors",
        ),
        (
            (
                "PortRcvRemotePhysicalErrors",
                "port_rcv_remote_physical_errors",
                "node_infiniband_port_receive_remote_physical_errors_total",
                "infiniband_switch_port_receive_remote_physical_errors_total",
            ),
            "damaged",
        ),
        (
            (
                "PortXmitDiscards",
                "port_xmit_discards",
                "node_infiniband_port_discards_transmitted_total",
                "infiniband_switch_port_transmit_discards_total",
            ),
            "discarded-sent",
        ),
        (("np_cnp_sent", "node_infiniband_np_cnp_packets_sent_total"), "notifying"),
        (("rx_prio3_pause", "node_ethtool_rx_prio3_pause_total"), "paused"),
    ],
)
def test_spellings_of_every_source_have_one_meaning(spellings: tuple[str, ...], kind: str) -> None:
    meanings = {meaning_of(name) for name in spellings}
    assert len(meanings) == 1 and {m.kind for m in meanings if m} == {kind}


def test_no_spelling_has_two_meanings() -> None:
    names = [name for key, (_, others) in MEANINGS.items() for name in (key, *others)]
    assert len(names) == len(set(names))


def test_full_counters_are_faults_without_a_rise() -> None:
    for counter, (meaning, _) in MEANINGS.items():
        if meaning.largest is None:
            continue
        (row,) = findings_of(("s", "1", counter, meaning.largest, meaning.largest)).to_dicts()
        assert (row["count"], row["full"]) == (0, [counter])
        assert row["since_reset"] == meaning.largest
        assert f"≥ {meaning.largest:,}" in ports_counted(
            findings_of(("s", "1", counter, meaning.largest, meaning.largest))
        )
        assert findings_of(("s", "1", counter, meaning.largest - 1, meaning.largest - 1)).is_empty()


def test_priority_pauses_last_at_least_the_longest() -> None:
    rows = [
        (at, 0, "s", 0, "e", f"rx_prio{priority}_pause_duration", value)
        for at, values in ((0, (5, 7)), (1, (105, 57)), (2, (105, 257)), (3, (105, 257)))
        for priority, value in zip((3, 4), values, strict=True)
    ]
    frame = pauses(pl.DataFrame(rows, schema=READINGS, orient="row")).sort("time_ns")
    assert frame["paused_ns"].to_list() == [0, 100_000, 300_000, 300_000]
    assert frame["several"].to_list() == [False, True, False, False]


def test_received_pause_frames_have_host_and_rate() -> None:
    rows = findings_of(
        ("n3", "eth2", "rx_prio3_pause", 55, 12_400),
        ("n3", "eth2", "rx_prio4_pause", 0, 10),
        # The same frames, counted for the port.
        ("n3", "eth2", "rx_pause_ctrl_phy", 1, 12_356),
        ("n3", "eth2", "rx_prio3_pause_duration", 7, 250_007),
        ("n4", "eth2", "rx_prio3_pause", 0, 45),
        ("n5", "eth2", "rx_prio3_pause", 9, 9),
    )
    assert rows["count"].to_list() == [12_355, 45]
    text = ports_counted(rows, during_run=True)
    assert text.startswith(
        "n3[eth2] received 12,355 pause frames during the run (1,236 "
        "a second, paused 2.5 % of the time, rx_pause_ctrl_phy, rx_prio3_pause …; "
        "45 on 1 other port): "
    )
    assert text.endswith("whose packets filled it is not known")


@pytest.mark.parametrize("kind", KINDS)
def test_figures_of_a_reset_counter_are_lower_bounds(kind: str) -> None:
    if kind == "slower":
        return  # From speeds, which are not counted.
    names = [name for name, (meaning, _) in MEANINGS.items() if meaning.kind == kind]
    names += {
        "paused": ["rx_pause", "rx_prio3_pause_duration"],
        "pausing": ["tx_pause", "tx_prio3_pause_duration"],
        "discarded": ["rx_discards_phy"],
    }.get(kind, [])
    for name in names:
        for first, bounded in ((9, True), (0, False)):
            rows = findings_of(("n1", "e", name, first, 3), ("n2", "e", name, first, 2))
            assert rows["at_least"].to_list() == [bounded] * 2
            assert ports_counted(rows).count("≥") == (rows["count"] > 0).sum() * bounded + bounded
            assert ("≥" in "\n".join(event_lines(rows, {}, kind))) == bounded


def test_a_time_without_frames_and_a_reset_counter() -> None:
    (event,) = findings_of(("n3", "e", "rx_global_pause_duration", 0, 5_000_000)).to_dicts()
    assert (event["finding"], event["count"], event["paused_share"]) == ("paused", 0, 0.5)
    rows = findings_of(("n3", "e", "tx_discards_phy", 900, 12))
    assert rows["count"].to_list() == [12]
    assert "discarded ≥ 12 packets instead of sending them" in ports_counted(rows, during_run=True)


def test_interfaces_outside_the_job_are_left_out() -> None:
    rise = ("n3", "eth0", "rx_pause", 0, 5)
    assert findings_of(rise).height == 1
    assert findings_of(rise, unused={"n3": frozenset({"eth0"})}).is_empty()
    assert findings_of().is_empty()


def test_notifications_are_reported_without_their_marks() -> None:
    sent = ("n1", "mlx5_0/1", "cnp_sent", 0, 4)
    assert findings_of(sent)["finding"].to_list() == ["notifying"]
    both = findings_of(sent, ("n1", "mlx5_0/1", "np_ecn_marked_roce_packets", 0, 90))
    assert both.select("finding", "count").rows() == [("marked", 90)]


def test_losses_precede_pauses_and_all_have_sentences() -> None:
    kinds = [
        "rx_pause",
        "tx_pause",
        "ecn_marked",
        "rx_ecn_mark",
        "cnp_handled",
        "out_of_sequence",
        "packet_seq_err",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "out_of_buffer",
        "rx_discards_phy",
        "tx_discards",
        "link_downed",
        "port_rcv_remote_physical_errors",
        "port_xmit_constraint_errors",
        "rcv_switch_relay_errors",
        "vl15_dropped",
        "fec_corrected_symbol",
        "xmit_time_cong",
        "PortVLXmitWait0",
    ]
    rows = findings_of(
        *(("n1", "i", name, 0, 1) for name in kinds),
        ("n2", "i", "cnp_sent", 0, 1),
        ("n2", "i", SPEED, 200_000, 25_000),
    )
    assert rows["finding"].to_list()[0] == "errors"
    assert set(rows["finding"]) == set(KINDS)
    for (_,), part in rows.group_by("finding"):
        text = ports_counted(part, during_run=True)
        assert " during the run (" in text and "{}" not in text and " 1 times" not in text


def test_truncated_recording_tables_are_read(tmp_path: Path) -> None:
    (tmp_path / "ethtool-a-0.csv").write_text(
        STATISTICS_HEAD
        + f"{stamp(0)},a,e0,rx_pause,5\n{stamp(100)},a,e0,rx_pause,9\n"
        f"{stamp(200)},a,e0,rx_pause,x\n{stamp(300)},a,e".replace("\\\n", "\n")
    )
    (tmp_path / "infiniband-a-0.csv").write_text(
        HEAD + row("a", 0, 1, seen="1,0,0,0") + row("a", 100, 2, seen="5,0,7,0")
    )
    (tmp_path / "ethernet-a-0.csv").write_bytes(b"\0\xff\x1b[2J")
    (tmp_path / "ethernet-b-0.csv").write_text("")
    readings, notes = recorded_statistics(tmp_path)
    rows = port_events(readings)
    assert dict(rows.select("finding", "count").rows()) == {"paused": 4, "marked": 4, "slowed": 7}
    assert any("ethtool-a-0.csv" in note and "left out: 2" in note for note in notes)
    assert any("ethernet-a-0.csv" in note for note in notes) and len(notes) == 2


def test_other_full_counters_are_lower_bounds() -> None:
    full = ("s", "1", "SymbolErrorCounter", 65535, 65535)
    others = [("s", "2", "LinkDownedCounter", 255, 255), ("s", "3", "LinkDownedCounter", 0, 1)]
    assert "at its largest value (≥ 256 on 2 other ports): " in ports_counted(
        findings_of(full, *others)
    )
    exact = [("s", "2", "LinkDownedCounter", 0, 4), ("s", "3", "LinkDownedCounter", 0, 1)]
    assert "; 1 on 1 other port): " in ports_counted(findings_of(*exact))
    assert "(5 on 2 other ports): " in ports_counted(findings_of(full, *exact))
