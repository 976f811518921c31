"""A diagnosis uses the Ethernet counters of a recording, of the interface of the job's network."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.factories.recordings import (
    EDGES,
    ETHERNET_HEAD,
    SENT,
    STATISTICS_HEAD,
    diagnosed,
    ethernet_row,
    evidence_of,
    stamp,
    transfer,
)


@pytest.fixture
def recording(tmp_path: Path) -> tuple[Path, datetime]:
    return transfer(tmp_path)


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    file = tmp_path / "edges.csv"
    file.write_text(EDGES)
    return file


def write_counters(
    trace: Path, now: datetime, interfaces: dict[str, dict[str, tuple[int, int]]]
) -> None:
    """Counters of the interfaces of each host: bytes sent at 200 ms and at 700 ms."""
    for host, mine in interfaces.items():
        rows = [
            ethernet_row(host, name, at, 10**6 + (at > 200) * early + (at > 700) * late, now)
            for at in range(-500, 1001, 100)
            for name, (early, late) in mine.items()
        ]
        (trace / "counters" / f"ethernet-{host}-0.csv").write_text(ETHERNET_HEAD + "".join(rows))


def counted(trace: Path, edges: Path) -> str:
    return evidence_of(trace, fabric=edges)


def test_the_interface_is_that_which_sent_the_messages(
    recording: tuple[Path, datetime], edges: Path
) -> None:
    trace, now = recording
    others = {"docker0": (9 * SENT, 0), "eth0": (2000, 0)}
    write_counters(
        trace,
        now,
        {
            "a": {**others, "eth2": (int(1.05 * SENT), 0)},
            "c": {**others, "eth2": (4000, 0)},
        },
    )
    explanation = diagnosed(trace, fabric=edges).diagnosis.explanation
    assert explanation is not None
    evidence = "; ".join(explanation.sources)
    assert "the adapter of host a is interface eth2, which sent the bytes of the job's" in evidence
    # Host c only receives: its bytes do not tell.
    assert "the adapter of host c is interface eth2, as on the other hosts" in evidence
    assert "counters of 2 links" in evidence
    # Nine times as many bytes of another network are not other traffic on this one.
    assert explanation.cost("other-traffic") is None and not explanation.shared_links


def test_traffic_at_another_time_is_not_ours(recording: tuple[Path, datetime], edges: Path) -> None:
    trace, now = recording
    # The file system's network sends as much, after the job.
    write_counters(
        trace,
        now,
        {
            "a": {"eth0": (0, 3 * SENT), "eth2": (SENT, 0)},
            "c": {"eth0": (0, 0), "eth2": (0, 0)},
        },
    )
    assert "the adapter of host a is interface eth2, which sent" in counted(trace, edges)


def test_an_open_interface_is_not_used(recording: tuple[Path, datetime], edges: Path) -> None:
    trace, now = recording
    write_counters(
        trace, now, {host: {"eth0": (2000, 0), "eth2": (3000, 0)} for host in ("a", "c")}
    )
    evidence = counted(trace, edges)
    assert "recorded counters not used (ethernet-a-0.csv …)" in evidence
    assert "which interface is the adapter of 2 hosts (a …) is open (eth0, eth2)" in evidence
    assert "counters of" not in evidence.replace("recorded counters not", "")


def test_a_fabric_that_names_the_interface_decides(
    recording: tuple[Path, datetime], tmp_path: Path
) -> None:
    trace, now = recording
    edges = tmp_path / "named.csv"
    edges.write_text(
        "src,iface,dst,dst_iface,rate_gbit\na,eth2,left,p1,10\nb,eth2,left,p2,10\n"
        "c,eth2,right,p1,10\nleft,p3,right,p3,10\nleft,p4,right,p4,10\n"
    )
    # docker0 would have the number of the fabric's port.
    write_counters(
        trace,
        now,
        {
            "a": {"docker0": (5 * SENT, 0), "eth2": (SENT, 0)},
            "c": {"docker0": (5 * SENT, 0), "eth2": (3000, 0)},
        },
    )
    explanation = diagnosed(trace, fabric=edges).diagnosis.explanation
    assert explanation is not None and explanation.cost("other-traffic") is None
    assert "counters of 2 links" in "; ".join(explanation.sources)


def test_the_screen_shows_pauses_of_the_interface(
    recording: tuple[Path, datetime], edges: Path, tmp_path: Path
) -> None:
    from tailback.cli.render import diagnosis_lines

    trace, now = recording
    write_counters(
        trace,
        now,
        {
            "a": {"eth0": (2000, 0), "eth2": (SENT, 0)},
            "c": {"eth0": (0, 0), "eth2": (0, 0)},
        },
    )
    rows = "".join(
        f"{stamp(at, now)},a,{name},rx_prio3_pause,{value}\n"
        for at, value in ((0, 100), (400, 12_445))
        for name in ("eth0", "eth2")
    )
    (trace / "counters" / "ethtool-a-0.csv").write_text(STATISTICS_HEAD + rows)
    result = diagnosed(trace, fabric=edges)
    result.write(tmp_path / "out")
    assert "received 12,345 pause frames" in (tmp_path / "out" / "report.html").read_text()
    quiet = result.diagnosis
    (trace / "counters" / "ethtool-a-0.csv").unlink()
    without = diagnosed(trace, fabric=edges).diagnosis
    assert quiet.explanation is not None and without.explanation is not None
    (finding,) = quiet.explanation.port_events
    (adapter,) = finding.ports
    assert (adapter.device, adapter.interface, adapter.count) == ("a", "eth2", 12_345)
    screen = " ".join(line.strip() for line in diagnosis_lines(quiet, trace))
    assert "ports counted: a[eth2] received 12,345 pause frames during the" in screen
    # It is evidence beside the verdict.
    assert quiet.cause == without.cause and quiet.confidence == without.confidence
    assert without.explanation.port_events == []
