"""What counters of a lossy network say at a glance, from the findings on its ports.

A lossless network is judged by how long ports wait for credit. A lossy one (Ethernet with TCP) has
no such wait: it is judged by how full links are, by what waits in queues, and by what is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import polars as pl

from tailback.evidence.port_findings import port_findings, queue_windows
from tailback.port_names import link_name
from tailback.units import counted, percent

Kind = Literal["degraded", "drops", "busy", "queues", "quiet"]
Peers = Mapping[tuple[str, int], str]
"""Where the link of a port ends, by its device and number."""

CANNOT_TELL: Final = (
    "whose packets waited: ours or another job's",
    "why a link serves less: a cable or transceiver, a shaper, or pause frames of the far end, "
    "which these counters do not have",
    "what a change would gain",
)
"""What these counters leave open, each in a few words."""


@dataclass(frozen=True)
class PortVerdict:
    """What counters of queues, drops and bytes show.

    Attributes:
        kind: The worst there is: a link that serves less than its rate, ports that drop, links at
            their rate with a queue, ports that queue, or none of these.
        threshold: From which share of its time a port counts as dropping or queueing, 0-1.
        findings: Table ``port_findings``.
        windows: Table ``queue_windows``.
        ports: Number of ports.
        devices: Number of devices they belong to.
        intervals: Number of intervals.
        rated: Ports whose nominal rate is known.
        start_ns: Start of the first interval, UTC nanoseconds.
        end_ns: End of the last.
        peers: Where links end, if known.
    """

    kind: Kind
    threshold: float
    findings: pl.DataFrame
    windows: pl.DataFrame
    ports: int
    devices: int
    intervals: int
    rated: int
    start_ns: int
    end_ns: int
    peers: Peers = field(default_factory=dict)

    def of(self, finding: str) -> pl.DataFrame:
        """The rows of one kind of finding, the worst first."""
        return self.findings.filter(pl.col("finding") == finding)


def is_lossy(intervals: pl.DataFrame) -> bool:
    """Whether these counters tell of queues or drops, and nothing of waiting for credit."""
    told = any(intervals[name].is_not_null().any() for name in ("backlog_bytes", "drops"))
    return told and intervals["stall_fraction"].is_null().all()


def judge(
    intervals: pl.DataFrame, *, threshold: float = 0.01, peers: Peers | None = None
) -> PortVerdict:
    """Judge a lossy network by utilization, queues and drops.

    Args:
        intervals: Rows of ``counter_intervals`` of which :func:`is_lossy` holds.
        threshold: From which share of its time a port counts as dropping or queueing, 0-1.
        peers: Where the links of ports end.
    """
    findings = port_findings(intervals)
    each = intervals.group_by("node_name", "port").agg(
        _n=pl.len(), _rated=pl.col("capacity_gbps").is_not_null().any()
    )
    share = findings.join(each, on=["node_name", "port"], how="left").select(
        "finding", "queued_share", dropping=pl.col("intervals") / pl.col("_n")
    )
    of = {name: share.filter(pl.col("finding") == name) for name in ("degraded", "busy", "drops")}
    kind: Kind = "quiet"
    if of["degraded"].height:
        kind = "degraded"
    elif (of["drops"]["dropping"] >= threshold).any():
        kind = "drops"
    elif of["busy"].height:
        kind = "busy"
    elif (share["queued_share"] >= threshold).any():
        kind = "queues"
    return PortVerdict(
        kind, threshold, findings, queue_windows(intervals), each.height,
        intervals["node_name"].n_unique(), intervals.height, int(each["_rated"].sum()),
        int((intervals["time_ns"] - intervals["interval_ns"]).min() or 0),  # type: ignore[arg-type]
        int(intervals["time_ns"].max() or 0),  # type: ignore[arg-type]
        peers or {},
    )  # fmt: skip


def port_label(row: Mapping[str, Any], peers: Peers) -> str:
    """Name of the port of a row and, where it is known, of the device that it leads to."""
    device, port = str(row["node_name"]), int(row["port"])
    return link_name(device, port, peers.get((device, port)), row["interface"])


def rate_of_rate(served_gbps: float, nominal_gbps: float) -> str:
    """Both rates in the unit of the larger: ``10 of 40 Mb/s``."""
    units = (("Tb/s", 1e3), ("Gb/s", 1.0), ("Mb/s", 1e-3), ("kb/s", 1e-6))
    unit, size = next((pair for pair in units if nominal_gbps >= pair[1]), units[-1])
    return f"{served_gbps / size:.3g} of {nominal_gbps / size:.4g} {unit}"


def sentence(verdict: PortVerdict) -> str:
    """The verdict in one or two sentences that claim no more than these counters tell."""
    if verdict.kind == "degraded":
        return _degraded(verdict)
    ports = verdict.ports
    if verdict.kind == "drops":
        drops = verdict.of("drops")
        worst = drops.row(0, named=True)
        text = (
            f"{drops.height} of {counted(ports, 'port')} dropped {drops['drops'].sum():,} packets, "
            f"most of them {port_label(worst, verdict.peers)}: {worst['drops']:,}"
        )
        return text + (
            "" if worst["drop_share"] is None else f" ({percent(worst['drop_share'])} of its own)"
        )
    if verdict.kind == "busy":
        busy = verdict.of("busy")
        fullest = port_label(busy.row(0, named=True), verdict.peers)
        return (
            f"{busy.height} of {counted(ports, 'link')} sent at the nominal rate with packets "
            f"waiting behind, like {fullest}: more traffic was offered than they can carry"
        )
    if verdict.kind == "queues":
        queued = verdict.of("queued")
        worst = queued.row(0, named=True)
        return (
            f"{queued.height} of {counted(ports, 'port')} had packets waiting at times, most "
            f"often {port_label(worst, verdict.peers)}: at {percent(worst['queued_share'])} of "
            "its readings. " + _no_slow_link(verdict)
        )
    return (
        f"of {counted(ports, 'port')} none dropped packets or had any waiting for "
        f"{percent(verdict.threshold)} of its time. {_no_slow_link(verdict)}"
    )


def _degraded(verdict: PortVerdict) -> str:
    rows = list(verdict.of("degraded").iter_rows(named=True))
    told = [
        f"{port_label(row, verdict.peers)} serves "
        f"{rate_of_rate(row['served_gbps'], row['nominal_gbps'])} while it queues"
        for row in rows[:3]
    ]
    more = f"; and {len(rows) - 3} more" if len(rows) > 3 else ""
    return "; ".join(told) + more


def _no_slow_link(verdict: PortVerdict) -> str:
    if not verdict.rated:
        return "Whether a link is slower than its rate is unknown: no source states the rates"
    if verdict.rated < verdict.ports:
        rest = verdict.ports - verdict.rated
        return f"No link shows less than its rate; of {rest} the rate is unknown"
    return "No link shows less than its rate"


def facts(verdict: PortVerdict) -> dict[str, Any]:
    """The verdict as plain values, for ``--format json``."""
    return {
        "verdict": verdict.kind,
        "network": "lossy",
        "sentence": sentence(verdict),
        "threshold": verdict.threshold,
        "ports": verdict.ports,
        "rated_ports": verdict.rated,
        "intervals": verdict.intervals,
        "start_ns": verdict.start_ns,
        "end_ns": verdict.end_ns,
        "findings": verdict.findings.to_dicts(),
        "cannot_tell": list(CANNOT_TELL),
    }
