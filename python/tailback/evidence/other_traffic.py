"""Other traffic: bytes counted at host ports in excess of our own messages.

Ports of hosts outside our job carry only other traffic. Ports of our hosts also carry our messages,
known from the trace, plus the overhead of headers and acknowledgements, estimated from the median
port of our hosts. The rest is other traffic.

Counters do not show source-destination pairs. A traffic matrix is estimated from the bytes that
hosts sent and received and, if forwarding tables give the paths between hosts, from the loads of
links between switches (:mod:`tailback.evidence.traffic_matrix`); with a job list, separately for
each job. So other traffic is reported by job and by link, never by pairs of hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.evidence.counter_alignment import Sent, sent_bytes
from tailback.evidence.job_shares import OURS, SCHEMA, job_shares
from tailback.evidence.link_counters import LinkCounters
from tailback.evidence.traffic_matrix import (
    LinkLoads,
    Routes,
    TrafficMatrix,
    fit_to_links,
    gravity,
)
from tailback.fabric.model import Fabric
from tailback.units import percent

MAX_WINDOWS = 40
"""Maximum number of time windows of the job, because other traffic varies over time."""

MAX_MESSAGES = 6000
"""Approximate number of messages that represent other traffic; more traffic gives larger ones."""

MAX_OVERHEAD = 1.25
"""Maximum ratio of bytes on the wire to message bytes: except for tiny segments, headers and
acknowledgements of TCP take 8 %, of InfiniBand 2 to 25 % (256-byte MTU)."""

MAX_PORT_SPREAD = 0.05
"""Maximum relative deviation of a port's ratio of wire to message bytes if it carries only our
traffic: small messages and handshakes can double the bytes, but equally on all ports."""

MIN_LOAD_SHARE = 0.005
"""Minimum share of a port's rate for bytes to count as other traffic; less is subnet management,
clock synchronisation or job launch."""

MAYBE_COLLECTIVES = (
    "only ports of the job's own hosts counted more than its messages, and no more than another "
    "algorithm of its collectives would send: not taken for traffic of other jobs"
)
"""Note where the excess may be our own."""

UNKNOWN = "unknown"
"""Job name of traffic from hosts that are not in the job list."""


@dataclass(frozen=True)
class JobTraffic:
    """Traffic of another job while ours ran.

    Attributes:
        job: Its identifier in the job list, or :data:`UNKNOWN`.
        hosts: Names of its hosts that sent or received.
        sent_bytes: Bytes that it sent.
    """

    job: str
    hosts: tuple[str, ...]
    sent_bytes: float


@dataclass(frozen=True)
class OtherTraffic:
    """Other traffic while our job ran.

    Attributes:
        egress: Bytes that each node sent for other jobs, shape (N,).
        ingress: Bytes that each node received for other jobs, shape (N,).
        own_overhead: Bytes on the wire over bytes of our messages.
        error: Spread of that ratio over ports; smaller differences are not other traffic.
        jobs: Jobs with other traffic, largest first.
        flows: ``start_ps, length_ps, src_node, dst_node, size_bytes``: bytes between each pair of
            nodes in each window.
        packet_bytes: Packet size, which limits how finely flows are split into messages.
        links: Bytes of each job, including ours, on the links between switches, from
            :func:`tailback.evidence.job_shares.job_shares`.
        notes: Remarks on the comparison of counters and messages.
    """

    egress: Floats
    ingress: Floats
    own_overhead: float
    error: float
    jobs: tuple[JobTraffic, ...]
    flows: pl.DataFrame
    packet_bytes: int
    links: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SCHEMA))
    notes: tuple[str, ...] = ()

    @property
    def sent_bytes(self) -> float:
        """Bytes of other traffic, as far as counted."""
        return float(max(self.egress.sum(), self.ingress.sum()))

    def messages(self, bursts: int | None = None) -> pl.DataFrame:
        """Messages that represent the flows: ``time_ps, src_node, dst_node, size_bytes``, by time.

        Args:
            bursts: Number of bursts per window in which all nodes send at once; None for a constant
                rate. Counters do not show bursts within a window.
        """
        total_bytes = float(self.flows["size_bytes"].sum() or 0.0)
        largest = max(total_bytes / MAX_MESSAGES, 16.0 * self.packet_bytes)
        out = []
        for start, length, src, dst, size in self.flows.rows():
            count = max(round(size / largest), 1)
            # Evenly spaced over the window, interleaved with other flows.
            phase = (src * 0.618 + dst * 0.382) % 1.0
            fractions = (np.arange(count) + phase) / count
            if bursts is not None:
                fractions = (np.floor(fractions * bursts) + 0.5) / bursts
            message_bytes = max(int(size / count), 1)
            out += [(int(start + length * x), src, dst, message_bytes) for x in fractions.tolist()]
        return pl.DataFrame(
            out,
            orient="row",
            schema={
                "time_ps": pl.Int64,
                "src_node": pl.Int64,
                "dst_node": pl.Int64,
                "size_bytes": pl.Int64,
            },
        ).sort("time_ps", "src_node", "dst_node")


def find_other_traffic(
    counters: LinkCounters,
    fabric: Fabric,
    sent: Sent,
    jobs: Mapping[str, str] | None = None,
    *,
    packet_bytes: int,
    routes: Routes | None = None,
) -> OtherTraffic | None:
    """Find other traffic at host ports; None without counters of host ports.

    Args:
        counters: Port counters during the job.
        fabric: The fabric.
        sent: Messages of our job.
        jobs: Job of each host by host name, without ours.
        packet_bytes: Packet size, which limits how finely flows are split into messages.
        routes: The links between pairs of nodes; None without forwarding tables.
    """
    edges = np.linspace(counters.start_ns, counters.end_ns, _windows(counters) + 1)
    ends = (
        _Ports.of(counters, fabric, sent, fabric.link_src, sent.src_node),
        _Ports.of(counters, fabric, sent, fabric.link_dst, sent.dst_node),
    )
    if not any(port.links.size for port in ends):
        return None
    overheads = [_overhead(port) for port in ends]
    excess_bytes = [
        port.excess(*each, edges, fabric) for port, each in zip(ends, overheads, strict=True)
    ]
    job_nodes = np.unique(np.concatenate([sent.src_node, sent.dst_node]))
    otherwise = _may_be_collectives(excess_bytes, job_nodes, sent)
    if otherwise:
        excess_bytes = [np.zeros_like(each) for each in excess_bytes]
    overhead, error = max(overheads)
    job_of_node = _groups(fabric, jobs or {})
    totals = [each.sum(axis=1) for each in excess_bytes]
    matrices = _matrices(totals, job_of_node)
    if routes is not None and matrices:
        loads = _loads(counters, sent, routes, overhead, error)
        matrices = dict(zip(matrices, fit_to_links(list(matrices.values()), loads), strict=True))
    flows = _flows(excess_bytes, job_of_node, matrices, edges, counters.start_ns)
    jobs_found = _by_job(totals, job_of_node, fabric)
    links = pl.DataFrame(schema=SCHEMA)
    if jobs_found:
        own_sent = overhead * np.diff(sent_bytes(sent, (edges - counters.start_ns) * 1000.0))
        injected = {OURS: own_sent, **_injected_bytes(excess_bytes, job_of_node)}
        links = job_shares(counters.intervals, fabric, edges, injected)
    return OtherTraffic(
        totals[0],
        totals[1],
        overhead,
        error,
        jobs_found,
        flows,
        packet_bytes,
        links,
        _notes(overhead, maybe_collectives=otherwise),
    )


def _notes(overhead: float, *, maybe_collectives: bool) -> tuple[str, ...]:
    notes = [MAYBE_COLLECTIVES] if maybe_collectives else []
    if overhead < 1.0 - MAX_PORT_SPREAD:
        notes.append(
            f"the ports of the job's hosts counted {percent(overhead)} of the bytes of its "
            "messages: check the unit of the counters, and whether the hosts have further adapters"
        )
    return tuple(notes)


def _may_be_collectives(excess_bytes: list[Floats], job_nodes: Ints, sent: Sent) -> bool:
    """Whether the excess may be messages of our own collectives.

    A trace does not record these messages, so their algorithm is assumed. On a tree of P ranks a
    block crosses up to log2 P host links; sent directly, it crosses one.
    """
    total, at_own = (
        sum(float(x.sum()) for x in excess)
        for excess in (excess_bytes, [each[job_nodes] for each in excess_bytes])
    )
    most = 2.0 * sent.assumed_bytes * np.log2(max(len(job_nodes), 2))
    return bool(0.0 < total <= most and at_own >= 0.99 * total)


def _injected_bytes(excess_bytes: list[Floats], job_of_node: list[str]) -> dict[str, Floats]:
    """Bytes that each job injected per window, from sent or, if not counted, received bytes."""
    counted = excess_bytes[0] if excess_bytes[0].sum() > 0 else excess_bytes[1]
    names = np.array(job_of_node)
    return {name: counted[names == name].sum(axis=0) for name in sorted(set(job_of_node))}


def _windows(counters: LinkCounters) -> int:
    """Number of windows, each at least as long as the median counter interval."""
    length = float((counters.intervals["end_ns"] - counters.intervals["start_ns"]).median() or 1)  # type: ignore[arg-type]
    return int(np.clip((counters.end_ns - counters.start_ns) / max(length, 1.0), 1, MAX_WINDOWS))


@dataclass(frozen=True)
class _Ports:
    """Host ports in one direction.

    Attributes:
        links: Link of each port, shape (P,).
        nodes: Node of each port, shape (P,).
        start: Start of each interval, by port.
        end: End of each interval, by port.
        counted: Bytes counted in each interval, by port.
        ours: Bytes of our messages in each interval, by port.
    """

    links: Ints
    nodes: Ints
    start: list[Floats]
    end: list[Floats]
    counted: list[Floats]
    ours: list[Floats]

    @classmethod
    def of(
        cls,
        counters: LinkCounters,
        fabric: Fabric,
        sent: Sent,
        vertex: NDArray[np.uint32],
        node: Ints,
    ) -> _Ports:
        """Ports with counters of links whose endpoint ``vertex`` is a node."""
        links = np.flatnonzero((vertex < fabric.n_nodes) & ~np.isnan(counters.sent_bytes))
        rows = counters.intervals.filter(pl.col("data_bytes").is_not_null()).sort("link", "end_ns")
        rows_by_link = {int(key[0]): part for key, part in rows.group_by("link")}
        out = cls(links, vertex[links].astype(np.int64), [], [], [], [])
        for link, port_node in zip(links.tolist(), out.nodes.tolist(), strict=True):
            part = rows_by_link[link]
            start, end = (part[c].to_numpy().astype(np.float64) for c in ("start_ns", "end_ns"))
            own_messages = sent.of(node == port_node)
            edges = np.concatenate([start[:1], end])
            out.start.append(start)
            out.end.append(end)
            out.counted.append(part["data_bytes"].to_numpy())
            out.ours.append(np.diff(sent_bytes(own_messages, (edges - counters.start_ns) * 1000.0)))
        return out

    def totals(self) -> tuple[Floats, Floats]:
        """Total counted bytes and bytes of our messages, by port."""
        return (
            np.array([s.sum() for s in self.counted]),
            np.array([m.sum() for m in self.ours]),
        )

    def excess(self, overhead: float, error: float, edges: Floats, fabric: Fabric) -> Floats:
        """Bytes of other traffic by node and window, shape (N, windows)."""
        out = np.zeros((fabric.n_nodes, len(edges) - 1))
        counted, sent = self.totals()
        rate = fabric.link_gbps[self.links] / 8.0  # bytes per ns
        span = np.array([e[-1] - s[0] for s, e in zip(self.start, self.end, strict=True)])
        port_excess = counted - overhead * sent
        significant = port_excess > np.maximum(3.0 * error * sent, MIN_LOAD_SHARE * rate * span)
        for i in np.flatnonzero(significant).tolist():
            excess = self.counted[i] - overhead * self.ours[i]
            total = np.concatenate([[0.0], np.cumsum(excess)])
            at = np.concatenate([self.start[i][:1], self.end[i]])
            in_window = np.maximum(np.diff(np.interp(edges, at, total)), 0.0)
            # Messages and counters agree in total, but not in each interval.
            inside = float(np.interp(edges[-1], at, total) - np.interp(edges[0], at, total))
            if in_window.sum() > 0 and inside > 0:
                out[self.nodes[i]] += in_window * min(inside / in_window.sum(), 1.0)
        return out


def _overhead(ports: _Ports) -> tuple[float, float]:
    """Ratio of counted bytes to bytes of our messages, and its spread over ports.

    The ratio is less than 1 if counters cover only part of the time or have wrong time stamps.
    """
    counted, ours = ports.totals()
    has_own = ours > 0
    if not has_own.any():
        return 1.0, 0.02
    ratio = counted[has_own] / ours[has_own]
    median = float(np.median(ratio))
    similar = float((np.abs(ratio / median - 1.0) <= MAX_PORT_SPREAD).mean()) if median > 0 else 0.0
    if similar < 0.8:
        # Differing ports carry other traffic, and the median port may carry some too.
        median = float(np.clip(median, 0.9, MAX_OVERHEAD))
    plausible = ratio[ratio <= max(MAX_OVERHEAD, median)]
    spread = float(np.median(np.abs(plausible - median))) * 1.4826 if len(plausible) else 0.0
    return median, max(spread, 0.01)


def _groups(fabric: Fabric, jobs: Mapping[str, str]) -> list[str]:
    """Job of each node."""
    return [jobs.get(fabric.host_name[host], UNKNOWN) for host in fabric.node_host.tolist()]


def _matrices(totals: list[Floats], job_of_node: list[str]) -> dict[str, TrafficMatrix]:
    """Traffic matrix of each job, over all windows."""
    names, out = np.array(job_of_node), {}
    for name in sorted(set(job_of_node)):
        in_job = names == name
        egress, ingress = (np.where(in_job, each, 0.0) for each in totals)
        matrix = gravity(egress, ingress, in_job)
        if matrix is not None:
            out[name] = matrix
    return out


def _loads(
    counters: LinkCounters, sent: Sent, routes: Routes, overhead: float, error: float
) -> LinkLoads:
    """Bytes on links in excess of our own messages."""
    n_links = len(counters.sent_bytes)
    pairs, which = np.unique(np.stack([sent.src_node, sent.dst_node]), axis=1, return_inverse=True)
    size = np.bincount(which.ravel(), sent.size_bytes, pairs.shape[1])
    pair, link = routes(pairs[0], pairs[1])
    ours = overhead * np.bincount(link, size[pair], n_links).astype(np.float64)
    return LinkLoads(counters.sent_bytes - ours, 3.0 * error * ours, routes)


def _flows(
    excess_bytes: list[Floats],
    job_of_node: list[str],
    matrices: dict[str, TrafficMatrix],
    edges: Floats,
    zero: int,
) -> pl.DataFrame:
    """Bytes between each pair of nodes, by job and window.

    Flows smaller than 1 % of the largest are dropped.
    """
    names = np.array(job_of_node)
    rows: list[tuple[int, int, int, int, float]] = []
    for window in range(len(edges) - 1):
        begin, end = (int(max(edges[window + k] - zero, 0.0) * 1000) for k in (0, 1))
        for name, matrix in matrices.items():
            in_job = names == name
            egress, ingress = (np.where(in_job, each[:, window], 0.0) for each in excess_bytes)
            now = gravity(egress, ingress, in_job, matrix)
            if now is None:
                continue
            flow = now.share * now.total_bytes
            flow[flow <= flow.max() / 100.0] = 0.0
            flow *= now.total_bytes / flow.sum()
            for i, j in np.argwhere(flow > 0).tolist():
                src, dst = int(now.src[i]), int(now.dst[j])
                rows.append((begin, end - begin, src, dst, float(flow[i, j])))
    return pl.DataFrame(
        rows,
        orient="row",
        schema={
            "start_ps": pl.Int64,
            "length_ps": pl.Int64,
            "src_node": pl.Int64,
            "dst_node": pl.Int64,
            "size_bytes": pl.Float64,
        },
    )


def _by_job(totals: list[Floats], job_of_node: list[str], fabric: Fabric) -> tuple[JobTraffic, ...]:
    larger = np.maximum(totals[0], totals[1])
    out = []
    for name in sorted(set(job_of_node)):
        nodes = [n for n, job in enumerate(job_of_node) if job == name and larger[n] > 0]
        if nodes:
            hosts = dict.fromkeys(fabric.host_name[int(fabric.node_host[n])] for n in nodes)
            job_bytes = max(float(totals[0][nodes].sum()), float(totals[1][nodes].sum()))
            out.append(JobTraffic(name, tuple(hosts), job_bytes))
    return tuple(sorted(out, key=lambda job: (-job.sent_bytes, job.job)))
