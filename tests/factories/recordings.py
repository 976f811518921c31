"""Folders as ``tailback record`` writes them: two hosts, of which one sends 64 MiB to the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tailback.api.diagnose import DiagnosisResult, diagnose
from tests.factories.evidence_traces import collective, receive, send
from tests.factories.forwarding_tables import DISCOVERY, LEFT, RIGHT
from tests.factories.otf2_traces import Build, writing

HEAD = (
    "time_utc,node,iface,tx_bytes,tx_packets,xmit_wait,rx_bytes,rx_packets,tx_discards,"
    "ecn_marked,cnp_sent,cnp_handled,out_of_sequence,node_guid,rate\n"
)
ETHERNET_HEAD = (
    "time_utc,node,iface,tx_bytes,tx_packets,tx_dropped,rx_bytes,rx_packets,rx_dropped,speed_mbps\n"
)
STATISTICS_HEAD = "time_utc,node,iface,counter,value\n"
GUIDS = {"a": "0000:0000:0000:0010", "b": "0000:0000:0000:0020", "c": "0000:0000:0000:0030"}
FIRST = datetime(2026, 11, 22, 11, 6, 10, tzinfo=UTC)
MIB = 1 << 20
SENT = 64 * MIB
"""Bytes that rank 0 on host a sends to rank 1 on host c, 200 ms after the start."""

EDGES = "src,dst,rate_gbit\na,left,10\nb,left,10\nc,right,10\nleft,right,10\nleft,right,10\n"
"""The same fabric as an edge list without interfaces."""


def stamp(at_ms: int, first: datetime = FIRST) -> str:
    return (first + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def row(
    host: str, at_ms: int, sent: int, wait: int = 0, first: datetime = FIRST, **other: str
) -> str:
    """A reading of an InfiniBand port."""
    port, guid = other.get("port", "mlx5_0/1"), other.get("guid", GUIDS[host])
    seen = other.get("seen", ",,,")
    return (
        f"{stamp(at_ms, first)},{host},{port},{sent},{sent // 2048},{wait},0,0,0,{seen},{guid},"
        "56 Gb/sec (4X FDR)\n"
    )


def ethernet_row(
    host: str, interface: str, at_ms: int, sent: int, first: datetime, speed: str = "10000"
) -> str:
    """A reading of an Ethernet interface."""
    return f"{stamp(at_ms, first)},{host},{interface},{sent},{sent // 1448},0,0,0,0,{speed}\n"


def transfer(folder: Path) -> tuple[Path, datetime]:
    """A recording without counters and network, and its start: 400 ms on hosts a and c."""
    build: Build = writing(folder)
    now = datetime.now(UTC)  # The package dates the trace so.
    end = 400_000_000
    first, last = collective(0, 1_000), collective(end, end + 1_000)
    trace = build(
        [
            [*first, *send(200_000_000, 212_000_000, to=1, size=SENT), *last],
            [*first, *receive(2_000, 212_000_000, source=0, size=SENT), *last],
        ],
        hosts=["a", "c"],
    )
    (trace / "rank_host.csv").write_text("rank,host,cores\n0,a,0\n1,c,0\n")
    (trace / "recording.json").write_text("{}\n")
    (trace / "counters").mkdir()
    return trace, now


def infiniband_recording(folder: Path, adapters: str = "") -> tuple[Path, datetime]:
    """A recording with its InfiniBand fabric, whose ports counted just that transfer."""
    trace, now = transfer(folder)
    (trace / "fabric.txt").write_text(DISCOVERY + adapters)
    (trace / "lfts.txt").write_text(LEFT + RIGHT)
    for host, step in (("a", SENT), ("c", 4096)):
        rows = [
            row(host, at, 10**9 + (step if at > 200 else 0), 10**6 if at > 200 else 0, now)
            for at in range(-500, 1001, 100)
        ]
        (trace / "counters" / f"infiniband-{host}-0.csv").write_text(HEAD + "".join(rows))
    return trace, now


def diagnosed(trace: Path, **options: object) -> DiagnosisResult:
    """The diagnosis of a recording, as briefly as possible."""
    return diagnose(
        trace,
        seeds=1,
        methods=("block",),
        remedies=("placement",),
        **options,  # type: ignore[arg-type]
    )


def evidence_of(trace: Path, **options: object) -> str:
    """The evidence that a diagnosis names."""
    explanation = diagnosed(trace, **options).diagnosis.explanation
    assert explanation is not None
    return "; ".join(explanation.sources)
