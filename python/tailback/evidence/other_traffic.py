"""Other traffic: bytes that host ports counted beyond our own messages.

A port of a host without our job carries only other traffic. A port of one of our hosts also carries
our messages, known from the trace; headers and acknowledgements add a share on the wire, taken from
the median port of our hosts. The rest is other traffic.

Counters do not show which host sent to which. A traffic matrix is estimated from the bytes that
hosts sent and received and, if forwarding tables give the links of each pair of hosts, from the
loads of links between switches (:mod:`tailback.evidence.traffic_matrix`); with a job list, within
each job. So results on other traffic are given by job and by link, never by pairs of hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.evidence.counter_alignment import Floats, Ints, Sent, sent_bytes
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

MAX_WINDOWS = 40
"""Maximum number of windows in the time of the job: other traffic varies over time."""

MAX_MESSAGES = 6000
"""Maximum number of messages that represent other traffic; more traffic gives longer messages."""

MAX_OVERHEAD = 1.25
"""Bytes on the wire over bytes of messages, at most: minimum-size segments aside, headers and
acknowledgements of TCP take 8 %, of InfiniBand 2 to 25 % (256-byte MTU)."""

MAX_PORT_SPREAD = 0.05
"""Ports whose ratio of wire bytes to message bytes differs by less carry only our traffic: small
messages and handshakes can double the bytes, but equally on all ports."""

MIN_LOAD_SHARE = 0.005
"""Other traffic on a port counts from this share of its rate; less is subnet
management, clock synchronisation, job launch."""

UNKNOWN = "unknown"
"""Name of traffic whose job is not in a job list."""


@dataclass(frozen=True)
class JobTraffic:
    """Traffic of one other job while ours ran.

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
        error: Relative standard error of that; smaller differences are not other traffic.
        jobs: Jobs that sent it, largest first.
        flows: ``start_ps, length_ps, src_node, dst_node, size_bytes``: bytes that each node sent to
            each other node in a window.
        packet_bytes: Messages of other jobs are multiples of this size.
        links: Bytes of each job, including ours, on the links between switches, from
            :func:`tailback.evidence.job_shares.job_shares`.
    """

    egress: Floats
    ingress: Floats
    own_overhead: float
    error: float
    jobs: tuple[JobTraffic, ...]
    flows: pl.DataFrame
    packet_bytes: int
    links: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SCHEMA))

    @property
    def sent_bytes(self) -> float:
        """Bytes that others sent, as far as counted."""
        return float(max(self.egress.sum(), self.ingress.sum()))

    def messages(self, bursts: int | None = None) -> pl.DataFrame:
        """Messages that represent it: ``time_ps, src_node, dst_node, size_bytes``, by time.

        Args:
            bursts: Bursts per window, in which all nodes send at once, None for even spreading. The
                counters of a window do not show bursts.
        """
        whole = float(self.flows["size_bytes"].sum() or 0.0)
        largest = max(whole / MAX_MESSAGES, 16.0 * self.packet_bytes)
        out = []
        for start, length, src, dst, size in self.flows.rows():
            count = max(round(size / largest), 1)
            # Evenly over the window, interleaved with other flows.
            phase = (src * 0.618 + dst * 0.382) % 1.0
            at = (np.arange(count) + phase) / count
            if bursts is not None:
                at = (np.floor(at * bursts) + 0.5) / bursts
            each = max(int(size / count), 1)
            out += [(int(start + length * x), src, dst, each) for x in at.tolist()]
        return pl.DataFrame(
            out, orient="row",
            schema={"time_ps": pl.Int64, "src_node": pl.Int64, "dst_node": pl.Int64,
                    "size_bytes": pl.Int64},
        ).sort("time_ps", "src_node", "dst_node")  # fmt: skip


def find_other_traffic(
    counters: LinkCounters,
    fabric: Fabric,
    sent: Sent,
    jobs: Mapping[str, str] | None = None,
    *,
    packet_bytes: int,
    routes: Routes | None = None,
) -> OtherTraffic | None:
    """Other traffic over the ports of hosts; None if no port of a host was counted.

    Args:
        counters: What was counted.
        fabric: The fabric.
        sent: Messages of our job.
        jobs: Job of each host by its name, without ours.
        packet_bytes: Messages of other jobs are multiples of this size.
        routes: The links that packets of a pair of nodes take; None where forwarding tables do not
            say.
    """
    edges = np.linspace(counters.start_ns, counters.end_ns, _windows(counters) + 1)
    ends = (
        _Ports.of(counters, fabric, sent, fabric.link_src, sent.src_node),
        _Ports.of(counters, fabric, sent, fabric.link_dst, sent.dst_node),
    )
    if not any(port.links.size for port in ends):
        return None
    own = [_overhead(port) for port in ends]
    extra = [port.beyond(*each, edges, fabric) for port, each in zip(ends, own, strict=True)]
    overhead, error = max(own)
    group = _groups(fabric, jobs or {})
    totals = [each.sum(axis=1) for each in extra]
    matrices = _matrices(totals, group)
    if routes is not None and matrices:
        loads = _loads(counters, sent, routes, overhead, error)
        matrices = dict(zip(matrices, fit_to_links(list(matrices.values()), loads), strict=True))
    flows = _flows(extra, group, matrices, edges, counters.start_ns)
    jobs_found = _by_job(totals, group, fabric)
    links = pl.DataFrame(schema=SCHEMA)
    if jobs_found:
        own_sent = overhead * np.diff(sent_bytes(sent, (edges - counters.start_ns) * 1000.0))
        injected = {OURS: own_sent, **_injected(extra, group)}
        links = job_shares(counters.intervals, fabric, edges, injected)
    return OtherTraffic(
        totals[0], totals[1], overhead, error, jobs_found, flows, packet_bytes, links
    )


def _injected(extra: list[Floats], group: list[str]) -> dict[str, Floats]:
    """Bytes of each job by window: what its nodes sent, or received where that is not counted."""
    counted = extra[0] if extra[0].sum() > 0 else extra[1]
    names = np.array(group)
    return {name: counted[names == name].sum(axis=0) for name in sorted(set(group))}


def _windows(counters: LinkCounters) -> int:
    """Windows no shorter than the intervals of the counters."""
    length = float((counters.intervals["end_ns"] - counters.intervals["start_ns"]).median() or 1)  # type: ignore[arg-type]
    return int(np.clip((counters.end_ns - counters.start_ns) / max(length, 1.0), 1, MAX_WINDOWS))


@dataclass(frozen=True)
class _Ports:
    """Ports of hosts in one direction.

    Attributes:
        links: Their links, shape (P,).
        nodes: Their nodes, shape (P,).
        start: Beginning of each of their intervals, by port.
        end: End of each.
        seen: Bytes counted in it.
        mine: Bytes of our messages in it.
    """

    links: Ints
    nodes: Ints
    start: list[Floats]
    end: list[Floats]
    seen: list[Floats]
    mine: list[Floats]

    @classmethod
    def of(
        cls, counters: LinkCounters, fabric: Fabric, sent: Sent, vertex: NDArray[np.uint32],
        node: Ints,
    ) -> _Ports:  # fmt: skip
        """The counted ports whose end ``vertex`` is a node."""
        links = np.flatnonzero((vertex < fabric.n_nodes) & ~np.isnan(counters.sent_bytes))
        rows = counters.intervals.filter(pl.col("data_bytes").is_not_null()).sort("link", "end_ns")
        by = {int(key[0]): part for key, part in rows.group_by("link")}
        out = cls(links, vertex[links].astype(np.int64), [], [], [], [])
        for link, of in zip(links.tolist(), out.nodes.tolist(), strict=True):
            part = by[link]
            start, end = (part[c].to_numpy().astype(np.float64) for c in ("start_ns", "end_ns"))
            own = sent.of(node == of)
            edges = np.concatenate([start[:1], end])
            out.start.append(start)
            out.end.append(end)
            out.seen.append(part["data_bytes"].to_numpy())
            out.mine.append(np.diff(sent_bytes(own, (edges - counters.start_ns) * 1000.0)))
        return out

    def totals(self) -> tuple[Floats, Floats]:
        """Bytes counted on each port and bytes of our messages, over its intervals."""
        return (np.array([s.sum() for s in self.seen]), np.array([m.sum() for m in self.mine]))

    def beyond(self, overhead: float, error: float, edges: Floats, fabric: Fabric) -> Floats:
        """Bytes of others by node and window, shape (N, windows)."""
        out = np.zeros((fabric.n_nodes, len(edges) - 1))
        seen, mine = self.totals()
        rate = fabric.link_gbps[self.links] / 8.0  # bytes a nanosecond
        span = np.array([e[-1] - s[0] for s, e in zip(self.start, self.end, strict=True)])
        extra = seen - overhead * mine
        real = extra > np.maximum(3.0 * error * mine, MIN_LOAD_SHARE * rate * span)
        for i in np.flatnonzero(real).tolist():
            course = self.seen[i] - overhead * self.mine[i]
            total = np.concatenate([[0.0], np.cumsum(course)])
            at = np.concatenate([self.start[i][:1], self.end[i]])
            part = np.maximum(np.diff(np.interp(edges, at, total)), 0.0)
            # Messages and counters agree only in sum, not in each interval.
            inside = float(np.interp(edges[-1], at, total) - np.interp(edges[0], at, total))
            if part.sum() > 0 and inside > 0:
                out[self.nodes[i]] += part * min(inside / part.sum(), 1.0)
        return out


def _overhead(ports: _Ports) -> tuple[float, float]:
    """Bytes counted over bytes of our messages, and the spread of that over ports.

    Less than 1 if counters were read for part of the time only, or at other times than recorded.
    """
    counted, ours = ports.totals()
    some = ours > 0
    if not some.any():
        return 1.0, 0.02
    ratio = counted[some] / ours[some]
    middle = float(np.median(ratio))
    alike = float((np.abs(ratio / middle - 1.0) <= MAX_PORT_SPREAD).mean()) if middle > 0 else 0.0
    if alike < 0.8:
        # Ports that differ carry other traffic; then the median may carry some too.
        middle = float(np.clip(middle, 0.9, MAX_OVERHEAD))
    near = ratio[ratio <= max(MAX_OVERHEAD, middle)]
    spread = float(np.median(np.abs(near - middle))) * 1.4826 if len(near) else 0.0
    return middle, max(spread, 0.01)


def _groups(fabric: Fabric, jobs: Mapping[str, str]) -> list[str]:
    """Job of each node."""
    return [jobs.get(fabric.host_name[host], UNKNOWN) for host in fabric.node_host.tolist()]


def _matrices(totals: list[Floats], group: list[str]) -> dict[str, TrafficMatrix]:
    """Traffic matrix of each job over the whole time."""
    names, out = np.array(group), {}
    for name in sorted(set(group)):
        mine = names == name
        egress, ingress = (np.where(mine, each, 0.0) for each in totals)
        found = gravity(egress, ingress, mine)
        if found is not None:
            out[name] = found
    return out


def _loads(
    counters: LinkCounters, sent: Sent, routes: Routes, overhead: float, error: float
) -> LinkLoads:
    """Bytes on links beyond our own messages."""
    n_links = len(counters.sent_bytes)
    pairs, which = np.unique(np.stack([sent.src_node, sent.dst_node]), axis=1, return_inverse=True)
    size = np.bincount(which.ravel(), sent.size_bytes, pairs.shape[1])
    pair, link = routes(pairs[0], pairs[1])
    ours = overhead * np.bincount(link, size[pair], n_links).astype(np.float64)
    return LinkLoads(counters.sent_bytes - ours, 3.0 * error * ours, routes)


def _flows(
    extra: list[Floats],
    group: list[str],
    matrices: dict[str, TrafficMatrix],
    edges: Floats,
    zero: int,
) -> pl.DataFrame:
    """What each node sent to each, job by job and window by window.

    Flows of less than a hundredth of the largest are left out.
    """
    names = np.array(group)
    rows: list[tuple[int, int, int, int, float]] = []
    for window in range(len(edges) - 1):
        begin, end = (int(max(edges[window + k] - zero, 0.0) * 1000) for k in (0, 1))
        for name, matrix in matrices.items():
            mine = names == name
            egress, ingress = (np.where(mine, each[:, window], 0.0) for each in extra)
            now = gravity(egress, ingress, mine, matrix)
            if now is None:
                continue
            flow = now.share * now.total_bytes
            flow[flow <= flow.max() / 100.0] = 0.0
            flow *= now.total_bytes / flow.sum()
            for i, j in np.argwhere(flow > 0).tolist():
                src, dst = int(now.src[i]), int(now.dst[j])
                rows.append((begin, end - begin, src, dst, float(flow[i, j])))
    return pl.DataFrame(
        rows, orient="row",
        schema={"start_ps": pl.Int64, "length_ps": pl.Int64, "src_node": pl.Int64,
                "dst_node": pl.Int64, "size_bytes": pl.Float64},
    )  # fmt: skip


def _by_job(totals: list[Floats], group: list[str], fabric: Fabric) -> tuple[JobTraffic, ...]:
    most = np.maximum(totals[0], totals[1])
    out = []
    for name in sorted(set(group)):
        nodes = [n for n, job in enumerate(group) if job == name and most[n] > 0]
        if nodes:
            hosts = dict.fromkeys(fabric.host_name[int(fabric.node_host[n])] for n in nodes)
            sums = max(float(totals[0][nodes].sum()), float(totals[1][nodes].sum()))
            out.append(JobTraffic(name, tuple(hosts), sums))
    return tuple(sorted(out, key=lambda job: (-job.sent_bytes, job.job)))
