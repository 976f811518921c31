"""Verdict on a lossy network, from the findings on its ports.

Lossless networks are assessed by stalls: how long ports wait for credit. Lossy ones (Ethernet with
TCP) have none, so they are assessed by link utilization, queues and drops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import polars as pl

from tailback.names.ports import Peers
from tailback.port_counters.findings.port_events import no_events, ports_counted
from tailback.port_counters.findings.port_findings import (
    RateTests,
    cannot_tell,
    degraded_links,
    links_full,
    no_slow_link,
    none_queued,
    port_findings,
    port_label,
    ports_dropped,
    ports_paused,
    ports_queued,
    rate_tests,
    rates_too_high,
    unit_factor,
)
from tailback.port_counters.findings.port_series import queue_windows
from tailback.port_counters.schema import ETHERNET, Flag
from tailback.units import counted, percent

Kind = Literal[
    "faults",
    "slower",
    "rates",
    "degraded",
    "paused",
    "drops",
    "busy",
    "queues",
    "quiet",
    "unknown",
]


@dataclass(frozen=True)
class PortVerdict:
    """Verdict from counters of queues, drops and bytes.

    Attributes:
        kind: The most severe finding: links with errors (faults), ports that came down to a lower
            speed (slower), stated rates of a wrong unit (rates), degraded links, ports that their
            far ends paused, drops, full links (busy), queues, or none (quiet). It is ``unknown``
            where nothing was counted, or no queues and drops.
        threshold: Minimum share of its time for a port to count as dropping or queueing, 0-1.
        findings: Table ``port_findings``.
        windows: Table ``queue_windows``.
        ports: Number of ports.
        devices: Number of devices with these ports.
        intervals: Number of intervals.
        tests: For how many ports the counters tell whether their links serve their rates.
        busiest: Share of its rate that the busiest port used, in words; empty where unknown.
        start_ns: Start of the first interval, UTC nanoseconds.
        end_ns: End of the last.
        moved: Whether any counter rose.
        rate_factor: Factor by which the stated rates seem too large, None if they do not.
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
    tests: RateTests
    busiest: str
    start_ns: int
    end_ns: int
    moved: bool
    rate_factor: float | None = None
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
    no_credits = pl.col("stall_fraction").is_null() | pl.col("paused_fraction").is_not_null()
    return _counts_queues(intervals) and bool(intervals.select(no_credits.all()).item())


def drops_packets(intervals: pl.DataFrame) -> bool:
    """Whether full queues drop packets: counters are those of a lossy network.

    Ports whose far ends can pause them (priority flow control) do not fill queues until packets are
    lost, whether or not they were paused. If packets were lost nevertheless, the network is lossy.
    """
    pausing = bool(intervals["paused_fraction"].is_not_null().any())
    dropped = bool((intervals["drops"] > 0).any())
    return is_lossy(intervals) and (dropped or not pausing)


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
    by_port = intervals.group_by("node_name", "port").agg(_n=pl.len())
    shares = findings.join(by_port, on=["node_name", "port"], how="left").select(
        "finding", "queued_share", dropping=pl.col("intervals") / pl.col("_n")
    )
    peak = float(intervals["utilization"].max() or 0.0)  # type: ignore[arg-type]
    factor = unit_factor(findings, peak)
    by_finding = {
        name: shares.filter(pl.col("finding") == name) for name in ("degraded", "busy", "drops")
    }
    kind: Kind = "quiet"
    if (counted["finding"] == "errors").any():
        kind = "faults"
    elif (counted["finding"] == "slower").any():
        kind = "slower"
    elif factor is not None:
        kind = "rates"
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
    elif not _counts_queues(intervals) or not moved(intervals):
        kind = "unknown"
    return PortVerdict(
        kind,
        threshold,
        findings,
        queue_windows(intervals),
        by_port.height,
        intervals["node_name"].n_unique(),
        intervals.height,
        rate_tests(intervals),
        _busiest(intervals, peers or {}),
        int((intervals["time_ns"] - intervals["interval_ns"]).min() or 0),  # type: ignore[arg-type]
        int(intervals["time_ns"].max() or 0),  # type: ignore[arg-type]
        moved(intervals),
        factor,
        peers or {},
        counted,
    )


def is_ethernet(intervals: pl.DataFrame) -> bool:
    """Whether all counters are those of Ethernet interfaces without stalls."""
    ethernet_only = intervals.select(
        (pl.col("source") == ETHERNET).all() & pl.col("stall_fraction").is_null().all()
    )
    return bool(ethernet_only.item())


def _counts_queues(intervals: pl.DataFrame) -> bool:
    return any(intervals[name].is_not_null().any() for name in ("backlog_bytes", "drops"))


def moved(intervals: pl.DataFrame) -> bool:
    """Whether a counter of bytes or packets rose in any interval, or none is known."""
    counters = [intervals[name].drop_nulls() for name in ("data_bytes", "packets")]
    return all(values.is_empty() for values in counters) or any(
        (values > 0).any() for values in counters
    )


def _busiest(intervals: pl.DataFrame, peers: Peers) -> str:
    """The port that used the largest share of its rate."""
    low = (pl.col("flags") & int(Flag.DATA_AT_LEAST)) > 0
    length = pl.col("interval_ns")
    used = (
        intervals.filter(pl.col("utilization").is_not_null())
        .group_by("node_name", "port", "interface")
        .agg(share=(pl.col("utilization") * length).sum() / length.sum(), least=low.any())
        .sort("share", "node_name", "port", descending=[True, False, False])
    )
    if used.is_empty():
        return ""
    top = used.row(0, named=True)
    least = "at least " if top["least"] else ""
    return f"the busiest, {port_label(top, peers)}, used {least}{percent(top['share'])} of its rate"


NOT_MOVED: Final = (
    "no counter moved between the readings, packets included: nothing was sent, or the files are "
    "copies of one reading"
)


def _why_unknown(verdict: PortVerdict) -> str:
    """Verdict without counters of queues and drops, or without any traffic."""
    if not verdict.moved:
        return NOT_MOVED
    text = f"no source counts the queues or drops of {counted(verdict.ports, 'port')}"
    return f"{text}; {verdict.busiest}" if verdict.busiest else text


def sentence(verdict: PortVerdict) -> str:
    """The verdict in one or two sentences, limited to what these counters show."""
    if verdict.kind == "faults":
        return ports_counted(verdict.counted("errors"), verdict.peers)
    if verdict.kind == "slower":
        return ports_counted(verdict.counted("slower"), verdict.peers)
    if verdict.kind == "rates":
        return rates_too_high(verdict.of("degraded"), verdict.rate_factor or 1.0)
    if verdict.kind == "unknown":
        return _why_unknown(verdict)
    if verdict.kind == "paused":
        return ports_paused(verdict.paused, verdict.ports, verdict.peers)
    if verdict.kind == "degraded":
        return degraded_links(verdict.of("degraded"), verdict.peers)
    if verdict.kind == "drops":
        return ports_dropped(verdict.of("drops"), verdict.ports, verdict.peers)
    if verdict.kind == "busy":
        return links_full(verdict.of("busy"), verdict.ports, verdict.peers)
    rates = no_slow_link(verdict.tests)
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
        "rated_ports": verdict.tests.rated,
        "judged_ports": verdict.tests.decided,
        "rate_factor": verdict.rate_factor,
        "intervals": verdict.intervals,
        "start_ns": verdict.start_ns,
        "end_ns": verdict.end_ns,
        "findings": verdict.findings.to_dicts(),
        "events": verdict.events.to_dicts(),
        "cannot_tell": cannot_tell(verdict.events),
    }
