"""Port counters of a fabric's links, cut to the time of a job and put on the clock of its trace.

Counters record UTC; many tracers do not. The start time of the trace is used if recorded. Else the
offset is the one at which the bytes that hosts sent by the trace agree best with the bytes that
their ports counted (largest cross-correlation). Its error follows from how fast the agreement
falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.errors import TailbackError
from tailback.evidence.port_findings import port_findings
from tailback.fabric.model import Fabric
from tailback.units import format_time

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GRID = 4096
"""Grid points at which offsets are tried, over the time of the counters."""

_AGREEMENT = 0.9
"""Share of the best correlation from which an offset counts as possible."""


CLOCK_ERROR_NS = 10_000_000
"""Usual difference between the clocks of hosts and collector if both record UTC: NTP in
one machine room keeps 1 to 10 ms."""

MAX_CLOCK_SHIFT_NS = 4 * CLOCK_ERROR_NS
"""Largest shift of the trace against the counters that is tried."""


class JoinError(TailbackError):
    """Counters that cannot be joined to the fabric or to the time of the job."""


@dataclass(frozen=True)
class Alignment:
    """Time 0 of a trace by the clock of the counters.

    Attributes:
        zero_ns: UTC nanoseconds since 1970.
        error_ns: Error of that.
        source: Its origin, as text for readers.
    """

    zero_ns: int
    error_ns: int
    source: str


@dataclass(frozen=True)
class LinkCounters:
    """Counters of ports while a job ran.

    Attributes:
        alignment: How the times of counters and trace were aligned.
        start_ns: Start of the time examined, UTC nanoseconds since 1970.
        end_ns: Its end.
        sent_bytes: Bytes sent on each link in that time, NaN if not counted, shape (L,).
        covered: Share of that time for which a link's bytes are known, 0-1, shape (L,).
        stall: Mean stall fraction of each link over its intervals, NaN unknown, shape (L,).
        stall_ps: Time it stalled in them, NaN unknown, shape (L,).
        latched: Links whose stall counter was full, so that ``stall`` is a lower bound (L,).
        drops: Packets dropped at each link, NaN unknown, shape (L,).
        intervals: ``link, start_ns, end_ns, data_bytes, stall_fraction`` of the intervals in it.
        findings: Table ``port_findings`` of a lossy network, without rows elsewhere.
        lossy: Whether the network queues and drops instead of using credits.
        notes: Remarks on the data.
    """

    alignment: Alignment
    start_ns: int
    end_ns: int
    sent_bytes: Floats
    covered: Floats
    stall: Floats
    stall_ps: Floats
    latched: NDArray[np.bool_]
    drops: Floats
    intervals: pl.DataFrame
    findings: pl.DataFrame
    lossy: bool
    notes: list[str]

    @property
    def seconds(self) -> float:
        """Length of the time examined."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True)
class Sent:
    """Messages between hosts, from the trace.

    Attributes:
        src_node: Node that sent each message, shape (M,).
        dst_node: Node it went to, shape (M,).
        size_bytes: Its size, shape (M,).
        start_ps: When its sending began, by the common clock of the trace, shape (M,).
        end_ps: When it had arrived at the latest, shape (M,).
    """

    src_node: Ints
    dst_node: Ints
    size_bytes: Floats
    start_ps: Floats
    end_ps: Floats

    def of(self, chosen: NDArray[np.bool_]) -> Sent:
        """Some of the messages."""
        return Sent(
            self.src_node[chosen], self.dst_node[chosen], self.size_bytes[chosen],
            self.start_ps[chosen], self.end_ps[chosen],
        )  # fmt: skip


def join_counters(
    intervals: pl.DataFrame,
    fabric: Fabric,
    sent: Sent,
    *,
    elapsed_ps: int,
    origin_unix_ns: int | None,
    lossy: bool,
) -> LinkCounters:
    """Cut intervals to the time of the job, link by link.

    Args:
        intervals: Rows of ``counter_intervals`` with ``link``.
        fabric: The fabric whose links these are.
        sent: The messages of the job.
        elapsed_ps: Time of the job, from time 0 of its tables.
        origin_unix_ns: UTC of that time 0, None unknown.
        lossy: Whether the counters are of queues and drops.

    Raises:
        JoinError: No interval belongs to a link, or none to the time of the job.
    """
    known = intervals.filter(pl.col("link").is_not_null() & (pl.col("link") < fabric.n_links))
    if known.is_empty():
        raise JoinError(
            "no counter belongs to a link of the fabric",
            remedy="give the fabric that the counters are of; device names must agree",
        )
    rows = known.select(
        pl.col("link").cast(pl.Int64),
        start_ns=pl.col("time_ns") - pl.col("interval_ns"),
        end_ns=pl.col("time_ns"),
        data_bytes=pl.col("data_bytes").cast(pl.Float64),
        stall_fraction=pl.col("stall_fraction"),
        drops=pl.col("drops").cast(pl.Float64),
        latched=pl.col("latched_stall_ns").is_not_null(),
    )
    alignment = _align(rows, fabric, sent, elapsed_ps, origin_unix_ns)
    start, end = alignment.zero_ns, alignment.zero_ns + max(elapsed_ps // 1000, 1)
    inside = rows.filter((pl.col("end_ns") > start) & (pl.col("start_ns") < end))
    if inside.is_empty():
        raise JoinError(
            "no counter was read while the job ran",
            remedy="give counters of the time of the job, in UTC",
        )
    cut = known.filter(
        (pl.col("time_ns") > start) & (pl.col("time_ns") - pl.col("interval_ns") < end)
    )
    findings = port_findings(cut) if lossy else port_findings(cut.clear())
    return LinkCounters(
        alignment, start, end, *_totals(inside, fabric.n_links, start, end), inside, findings,
        lossy, _notes(inside, alignment),
    )  # fmt: skip


def _totals(
    rows: pl.DataFrame, n_links: int, start: int, end: int
) -> tuple[Floats, Floats, Floats, Floats, NDArray[np.bool_], Floats]:
    """Bytes, covered share, stall, latched and drops of each link; intervals are cut in part."""
    overlap = (pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal(
        "start_ns", pl.lit(start))) / 1.0  # fmt: skip
    part = overlap / (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    known, stalled = pl.col("data_bytes").is_not_null(), pl.col("stall_fraction").is_not_null()
    by = rows.group_by("link").agg(
        sent=(pl.col("data_bytes") * part).sum(),
        counted=(overlap * known).sum(),
        stall=(pl.col("stall_fraction") * overlap).sum(),
        stall_counted=(overlap * stalled).sum(),
        stalled_ns=(pl.col("stall_fraction") * (pl.col("end_ns") - pl.col("start_ns"))).sum(),
        latched=pl.col("latched").any(),
        drops=(pl.col("drops") * part).sum(),
        drops_known=pl.col("drops").is_not_null().any(),
    )
    out = [np.full(n_links, np.nan) for _ in range(4)]
    covered, latched = np.zeros(n_links), np.zeros(n_links, np.bool_)
    link = by["link"].to_numpy()
    counted, stall_counted = by["counted"].to_numpy(), by["stall_counted"].to_numpy()
    share = counted / (end - start)
    # Bytes of a link that was not read all the time are scaled to the full time.
    with np.errstate(divide="ignore", invalid="ignore"):
        out[0][link] = np.where(share > 0.5, by["sent"].to_numpy() / share, np.nan)
        out[1][link] = np.where(
            stall_counted > 0.5 * (end - start), by["stall"].to_numpy() / stall_counted, np.nan
        )
    out[2][link] = np.where(by["drops_known"].to_numpy(), by["drops"].to_numpy(), np.nan)
    out[3][link] = np.where(
        stall_counted > 0.5 * (end - start), by["stalled_ns"].to_numpy() * 1000.0, np.nan
    )
    covered[link] = np.minimum(share, 1.0)
    latched[link] = by["latched"].to_numpy()
    return out[0], covered, out[1], out[3], latched, out[2]


def _notes(rows: pl.DataFrame, alignment: Alignment) -> list[str]:
    length = float((rows["end_ns"] - rows["start_ns"]).median() or 0.0)  # type: ignore[arg-type]
    return [
        f"counters every {length / 1e6:.3g} ms; trace and counters aligned by "
        f"{alignment.source}, to ±{alignment.error_ns / 1e6:.3g} ms"
    ]


def _align(
    rows: pl.DataFrame, fabric: Fabric, sent: Sent, elapsed_ps: int, origin_ns: int | None
) -> Alignment:
    """Time 0 of the trace."""
    first, last = int(rows["start_ns"].min()), int(rows["end_ns"].max())  # type: ignore[arg-type]
    length = float((rows["end_ns"] - rows["start_ns"]).median() or 1.0)  # type: ignore[arg-type]
    if origin_ns is not None:
        length_ns = elapsed_ps // 1000
        found = None
        # Clock errors may shift a short job outside its counters. Larger shifts are not tried:
        # bytes would agree somewhere by chance, and both clocks record UTC.
        if first - MAX_CLOCK_SHIFT_NS <= origin_ns + length_ns and (
            origin_ns <= last + MAX_CLOCK_SHIFT_NS
        ):
            found = _near(rows, fabric, sent, origin_ns, length)
        if found is None or not (first < found.zero_ns + length_ns and found.zero_ns < last):
            raise JoinError(
                f"the job began at {_utc(origin_ns)} and took {format_time(elapsed_ps)}, but the "
                f"counters are from {_utc(first)} to {_utc(last)}",
                remedy="give counters of the time of the job",
            )
        return found
    step = max((last - first) / _GRID, length / 8, 1.0)
    zeros, score = _agreement(rows, fabric, sent, elapsed_ps, (first, last, step))
    if not score.any():
        raise JoinError(
            "neither trace nor counters record when the job ran: no port of its hosts counted "
            "bytes",
            remedy="give counters of the ports of its hosts, or a trace with a UTC time",
        )
    best = int(np.argmax(score))
    # Offsets that agree nearly as well, measured from the level that a wrong offset reaches.
    level = float(np.median(score[score > 0]))
    good = np.flatnonzero(score - level >= _AGREEMENT * (score[best] - level))
    spread = float(max(best - good.min(), good.max() - best, 1)) * step
    return Alignment(
        int(zeros[best]), int(max(spread, length / 2)),
        "the bytes that the job's hosts sent",
    )  # fmt: skip


def _utc(time_ns: int) -> str:
    try:
        when = datetime.fromtimestamp(time_ns / 10**9, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{time_ns} ns since 1970"
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def _near(
    rows: pl.DataFrame, fabric: Fabric, sent: Sent, origin_ns: int, length: float
) -> Alignment:
    """The offset near the recorded UTC at which messages explain the counted bytes best.

    Bytes on the wire are those of the messages, or up to half as many more; fewer if counters were
    read for part of the time. Larger clock offsets need better agreement.
    """
    ports = _by_port(rows, fabric, sent)
    step = max(min(length / 16, CLOCK_ERROR_NS / 4), 1.0)
    reach = int(np.ceil(MAX_CLOCK_SHIFT_NS / step))
    shifts = np.arange(-reach, reach + 1) * step
    seen = [part["data_bytes"].fill_null(0.0).to_numpy() for part, _ in ports]
    edges = [
        np.concatenate([part["start_ns"].to_numpy()[:1], part["end_ns"].to_numpy()]) - origin_ns
        for part, _ in ports
    ]
    counted = np.concatenate(seen) if seen else np.zeros(0)
    whole = float((counted**2).sum())
    if whole <= 0:
        return Alignment(origin_ns, int(CLOCK_ERROR_NS), "the trace's UTC time")
    lack = np.zeros(len(shifts))
    for i, shift in enumerate(shifts):
        mine = np.concatenate(
            [np.diff(sent_bytes(messages, (edge - shift) * 1000.0))
             for edge, (_, messages) in zip(edges, ports, strict=True)]
        )  # fmt: skip
        norm = float((mine**2).sum())
        scale = float(np.clip((counted * mine).sum() / norm, 0.5, 1.5)) if norm > 0 else 1.0
        lack[i] = ((counted - scale * mine) ** 2).sum() / whole
    score = lack + 0.005 * (shifts / CLOCK_ERROR_NS) ** 2
    best = int(np.argmin(score))
    good = shifts[score <= score[best] + 0.01]
    error = int(max(np.ptp(good) / 2, step))
    return Alignment(
        origin_ns + int(shifts[best]), error,
        "the trace's UTC time" + (
            f", {shifts[best] / 1e6:+.3g} ms by the bytes sent" if shifts[best] else ""
        ),
    )  # fmt: skip


def _agreement(
    rows: pl.DataFrame, fabric: Fabric, sent: Sent, elapsed_ps: int,
    time: tuple[int, int, float],
) -> tuple[Floats, Floats]:  # fmt: skip
    """Candidates for time 0 of the trace, and how well counters and messages agree for each."""
    # Deferred: scipy.signal takes a second to load, and traces with UTC times do not need it.
    from scipy.signal import fftconvolve

    first, last, step = time
    count = max(int((last - first) / step), 2)
    grid = np.asarray(first + step * np.arange(count + 1), np.float64)
    job = max(int(np.ceil(elapsed_ps / 1000 / step)), 1)
    score = np.zeros(count + job - 1)
    edges = np.asarray(np.arange(job + 1) * step * 1000.0, np.float64)
    for ports, messages in _by_port(rows, fabric, sent):
        seen = np.diff(_cumulative(ports, grid))
        mine = np.diff(sent_bytes(messages, edges))
        if seen.std() <= 0 or mine.sum() <= 0:
            continue
        # Relative to the mean: a port that is always busy contains no timing information.
        mine = mine / np.sqrt((mine**2).sum())
        score += fftconvolve((seen - seen.mean()) / seen.std(), mine[::-1], mode="full")
    zeros = first + (np.arange(len(score)) - (job - 1)) * step
    return np.asarray(zeros, np.float64), np.asarray(np.maximum(score, 0.0), np.float64)


def _by_port(rows: pl.DataFrame, fabric: Fabric, sent: Sent) -> list[tuple[pl.DataFrame, Sent]]:
    """Intervals of a host port and the messages that cross it: of those that send, else receive."""
    out = []
    for ends, node in ((fabric.link_src, sent.src_node), (fabric.link_dst, sent.dst_node)):
        of_node = {int(v): link for link, v in enumerate(ends) if int(v) < fabric.n_nodes}
        links = {of_node[int(n)]: int(n) for n in np.unique(node) if int(n) in of_node}
        mine = rows.filter(pl.col("link").is_in(list(links)))
        for (link,), ports in mine.group_by("link", maintain_order=True):
            take = node == links[int(link)]
            out.append((ports.sort("end_ns"), sent.of(take)))
        if out:
            break
    return out


def _cumulative(ports: pl.DataFrame, grid: Floats) -> Floats:
    """Bytes that a port had sent by each instant."""
    end = ports["end_ns"].to_numpy().astype(np.float64)
    sent = np.cumsum(ports["data_bytes"].fill_null(0.0).to_numpy())
    first = float(ports["start_ns"][0])
    return np.asarray(
        np.interp(grid, np.concatenate([[first], end]), np.concatenate([[0.0], sent])), np.float64
    )


def sent_bytes(sent: Sent, edges_ps: Floats) -> Floats:
    """Bytes that messages had sent by each instant, each spread evenly over its time."""
    span = np.maximum(sent.end_ps - sent.start_ps, 1.0)
    rate = sent.size_bytes / span
    if not len(rate):
        return np.zeros(len(edges_ps))
    times = np.concatenate([sent.start_ps, sent.start_ps + span])
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(np.concatenate([rate, -rate])[order])
    total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    return np.asarray(np.interp(edges_ps, times, total, left=0.0), np.float64)
