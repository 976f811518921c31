"""Verdict on a lossy network, from the findings on its ports.

Lossless networks are assessed by stalls: how long ports wait for credit. Lossy ones (Ethernet with
TCP) have none, so they are assessed by link utilization, queues and drops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from tailback.names.ports import Peers
from tailback.port_counters.findings.port_events import no_events, ports_counted
from tailback.port_counters.findings.port_findings import (
    cannot_tell,
    degraded_links,
    links_full,
    no_slow_link,
    none_queued,
    port_findings,
    ports_dropped,
    ports_paused,
    ports_queued,
    queue_windows,
)

Kind = Literal["faults", "degraded", "paused", "drops", "busy", "queues", "quiet"]


@dataclass(frozen=True)
class PortVerdict:
    """Verdict from counters of queues, drops and bytes.

    Attributes:
        kind: The most severe finding: links with errors (faults), degraded links, ports that their
            far ends paused, drops, full links with queues (busy), queues, or none (quiet).
        threshold: Minimum share of its time for a port to count as dropping or queueing, 0-1.
        findings: Table ``port_findings``.
        windows: Table ``queue_windows``.
        ports: Number of ports.
        devices: Number of devices with these ports.
        intervals: Number of intervals.
        rated: Number of ports with a known nominal rate.
        start_ns: Start of the first interval, UTC nanoseconds.
        end_ns: End of the last.
        peers: Remote ends of links, if known.
        events: Table ``port_events``: errors, pauses and marks.
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
    events: pl.DataFrame = field(default_factory=no_events)

    @property
    def paused(self) -> pl.DataFrame:
        """Ports that their far ends paused for at least the threshold, longest first."""
        paused = self.counted("paused").filter(pl.col("paused_share") >= self.threshold)
        return paused.sort("paused_share", descending=True)

    def counted(self, kind: str) -> pl.DataFrame:
        """The events of one kind, largest first."""
        return self.events.filter(pl.col("finding") == kind)

    def of(self, finding: str) -> pl.DataFrame:
        """The findings of one kind, most severe first."""
        return self.findings.filter(pl.col("finding") == finding)


def is_lossy(intervals: pl.DataFrame) -> bool:
    """Whether the counters include queues or drops but no stalls other than pauses."""
    lossy = any(intervals[name].is_not_null().any() for name in ("backlog_bytes", "drops"))
    no_credits = pl.col("stall_fraction").is_null() | pl.col("paused_fraction").is_not_null()
    return lossy and bool(intervals.select(no_credits.all()).item())


def assess_ports(
    intervals: pl.DataFrame,
    *,
    threshold: float = 0.01,
    peers: Peers | None = None,
    events: pl.DataFrame | None = None,
) -> PortVerdict:
    """Assess a lossy network by utilization, queues and drops.

    Args:
        intervals: Rows of ``counter_intervals`` for which :func:`is_lossy` is true.
        threshold: Minimum share of its time for a port to count as dropping or queueing, 0-1.
        peers: Remote ends of the ports' links.
        events: Table ``port_events`` of the same ports.
    """
    counted = no_events() if events is None else events
    paused = counted.filter(pl.col("finding") == "paused")["paused_share"]
    findings = port_findings(intervals)
    by_port = intervals.group_by("node_name", "port").agg(
        _n=pl.len(), _rated=pl.col("capacity_gbps").is_not_null().any()
    )
    shares = findings.join(by_port, on=["node_name", "port"], how="left").select(
        "finding", "queued_share", dropping=pl.col("intervals") / pl.col("_n")
    )
    by_finding = {
        name: shares.filter(pl.col("finding") == name) for name in ("degraded", "busy", "drops")
    }
    kind: Kind = "quiet"
    if (counted["finding"] == "errors").any():
        kind = "faults"
    elif by_finding["degraded"].height:
        kind = "degraded"
    elif (paused >= threshold).any():
        kind = "paused"
    elif (by_finding["drops"]["dropping"] >= threshold).any():
        kind = "drops"
    elif by_finding["busy"].height:
        kind = "busy"
    elif (shares["queued_share"] >= threshold).any():
        kind = "queues"
    return PortVerdict(
        kind,
        threshold,
        findings,
        queue_windows(intervals),
        by_port.height,
        intervals["node_name"].n_unique(),
        intervals.height,
        int(by_port["_rated"].sum()),
        int((intervals["time_ns"] - intervals["interval_ns"]).min() or 0),  # type: ignore[arg-type]
        int(intervals["time_ns"].max() or 0),  # type: ignore[arg-type]
        peers or {},
        counted,
    )


def sentence(verdict: PortVerdict) -> str:
    """The verdict in one or two sentences, limited to what these counters show."""
    if verdict.kind == "faults":
        return ports_counted(verdict.counted("errors"), verdict.peers)
    if verdict.kind == "paused":
        return ports_paused(verdict.paused, verdict.ports, verdict.peers)
    if verdict.kind == "degraded":
        return degraded_links(verdict.of("degraded"), verdict.peers)
    if verdict.kind == "drops":
        return ports_dropped(verdict.of("drops"), verdict.ports, verdict.peers)
    if verdict.kind == "busy":
        return links_full(verdict.of("busy"), verdict.ports, verdict.peers)
    rates = no_slow_link(verdict.ports, verdict.rated)
    if verdict.kind == "queues":
        return f"{ports_queued(verdict.of('queued'), verdict.ports, verdict.peers)}. {rates}"
    return f"{none_queued(verdict.ports, verdict.threshold)}. {rates}"


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
        "events": verdict.events.to_dicts(),
        "cannot_tell": cannot_tell(verdict.events),
    }
