"""Alignment of a trace with port counters in time.

Counters record UTC; many tracers do not. The start time of the trace is used if recorded. Otherwise
the offset is the one at which the bytes that hosts sent according to the trace correlate best with
the bytes that their ports counted (maximum of the cross-correlation). Its error follows from the
width of that maximum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.errors import TailbackError
from tailback.fabric.model import Fabric
from tailback.units import format_bytes, format_time, percent

_BLOCK = 1 << 20
"""Expected bytes of ports that are computed at once: 8 MB."""

_GRID = 4096
"""Number of offsets tried over the time range of the counters."""

_AGREEMENT = 0.9
"""Minimum share of the best correlation for an offset to count as possible."""


CLOCK_ERROR_NS = 10_000_000
"""Typical difference between the clocks of hosts and collector if both record UTC: NTP within a
machine room achieves 1 to 10 ms."""

MAX_CLOCK_SHIFT_NS = 4 * CLOCK_ERROR_NS
"""Maximum shift of the trace relative to the counters that is tried around the recorded time."""

MAX_WRONG_CLOCK_NS = 5 * 10**9
"""Maximum shift where ports of the job's hosts counted almost nothing at the recorded time. A host
without NTP drifts by about a second per day; beyond, a periodic pattern may match by chance."""

MIN_COUNTED_SHARE = 0.3
"""Minimum share of the job's bytes that the ports of its hosts must have counted: hosts with two
adapters may send half of them over the other one."""

MIN_EXPLAINED = 2 / 3
"""Minimum share of the variation of the counted bytes that the job's messages explain where nothing
else tells that counters and trace are of one time: twice what they leave. The runs in examples/lab
reach 0.88 with their own counters, and 0.52 at most with those of another run of the program."""

Ports = list[tuple[pl.DataFrame, "Sent"]]
"""Intervals of each port of the job's hosts, and the messages sent or received through it."""


class JoinError(TailbackError):
    """Counters that match neither the links of the fabric nor the time of the job."""


@dataclass(frozen=True)
class Alignment:
    """Time 0 of a trace by the clock of the counters.

    Attributes:
        zero_ns: UTC nanoseconds since 1970.
        error_ns: Error of ``zero_ns``.
        source: How it was determined, as text for users.
        is_checked: Whether it is known that trace and counters are of one time.
    """

    zero_ns: int
    error_ns: int
    source: str
    is_checked: bool = True


@dataclass(frozen=True)
class Sent:
    """Messages between hosts, from the trace.

    Attributes:
        src_node: Node that sent each message, shape (M,).
        dst_node: Node that received it, shape (M,).
        size_bytes: Size, shape (M,).
        start_ps: Start of sending, by the common clock of the trace, shape (M,).
        end_ps: Latest possible arrival, shape (M,).
        assumed: Whether it is a message of a collective, which the trace does not record, shape
            (M,); None if none is.
    """

    src_node: Ints
    dst_node: Ints
    size_bytes: Floats
    start_ps: Floats
    end_ps: Floats
    assumed: NDArray[np.bool_] | None = None

    @property
    def assumed_bytes(self) -> float:
        """Bytes of the messages of collectives."""
        return 0.0 if self.assumed is None else float(self.size_bytes[self.assumed].sum())

    def of(self, chosen: NDArray[np.bool_]) -> Sent:
        """The messages selected by a mask, shape (M,)."""
        return Sent(
            self.src_node[chosen],
            self.dst_node[chosen],
            self.size_bytes[chosen],
            self.start_ps[chosen],
            self.end_ps[chosen],
            None if self.assumed is None else self.assumed[chosen],
        )


def align(
    rows: pl.DataFrame, fabric: Fabric, sent: Sent, elapsed_ps: int, origin_ns: int | None
) -> Alignment:
    """Find time 0 of the trace by the clock of the counters.

    Args:
        rows: Intervals: ``link, start_ns, end_ns, data_bytes``.
        fabric: The fabric of the links.
        sent: The messages of the job.
        elapsed_ps: Duration of the job, from time 0 of its tables.
        origin_ns: UTC of that time 0; None if unknown.

    Raises:
        JoinError: The counters are from another time, or did not count the traffic of the job.
    """
    first, last = int(rows["start_ns"].min()), int(rows["end_ns"].max())  # type: ignore[arg-type]
    length = float((rows["end_ns"] - rows["start_ns"]).median() or 1.0)  # type: ignore[arg-type]
    ports = _by_port(rows, fabric, sent)
    if origin_ns is None:
        alignment = _by_bytes(ports, elapsed_ps, (first, last, length))
        _require_counted(ports, alignment.zero_ns)
        # When the messages of collectives were sent is only modelled.
        if 2 * sent.assumed_bytes > float(sent.size_bytes.sum()):
            return replace(alignment, is_checked=False)
        _require_explained(ports, alignment.zero_ns)
        return alignment
    length_ns = elapsed_ps // 1000
    near_origin: Alignment | None = None
    # Clock errors may shift a short job outside its counters.
    if first - MAX_CLOCK_SHIFT_NS <= origin_ns + length_ns and (
        origin_ns <= last + MAX_CLOCK_SHIFT_NS
    ):
        near_origin = _near(ports, origin_ns, length)
        if (
            _counted_bytes(ports, near_origin.zero_ns)[1]
            < 0.5 * _counted_bytes(ports, origin_ns)[1]
        ):
            # Where the counted bytes do not fit, less traffic within the counters fits better.
            near_origin = _as_recorded(origin_ns)
    if near_origin is None or not (
        first < near_origin.zero_ns + length_ns and near_origin.zero_ns < last
    ):
        raise JoinError(
            f"the job began at {_utc(origin_ns)} and took {format_time(elapsed_ps)}, but the "
            f"counters are from {_utc(first)} to {_utc(last)}",
            remedy="give counters of the time of the job",
        )
    counted_bytes, own_bytes = _counted_bytes(ports, near_origin.zero_ns)
    if counted_bytes >= MIN_COUNTED_SHARE * own_bytes:
        return near_origin
    alignment = _despite_wrong_clock(ports, elapsed_ps, (first, last, length), origin_ns)
    _require_counted(ports, alignment.zero_ns)
    return alignment


def _as_recorded(origin_ns: int) -> Alignment:
    """The alignment by the UTC that the trace recorded."""
    return Alignment(origin_ns, CLOCK_ERROR_NS, "the trace's UTC time")


def _despite_wrong_clock(
    ports: Ports, elapsed_ps: int, span: tuple[int, int, float], origin_ns: int
) -> Alignment:
    """The alignment by bytes alone, if an unsynchronised clock can explain the offset."""
    if not any(part["data_bytes"].sum() for part, _ in ports):
        return _as_recorded(origin_ns)
    alignment = _by_bytes(ports, elapsed_ps, span)
    clock_error = alignment.zero_ns - origin_ns
    if abs(clock_error) > MAX_WRONG_CLOCK_NS:
        return _as_recorded(origin_ns)
    return Alignment(
        alignment.zero_ns,
        alignment.error_ns,
        f"{alignment.source} (the trace's UTC time is off by {clock_error / 1e9:+.3g} s)",
    )


def _require_counted(ports: Ports, zero_ns: int) -> None:
    """Raise JoinError if the ports counted far less than the job sent."""
    counted_bytes, own_bytes = _counted_bytes(ports, zero_ns)
    if counted_bytes >= MIN_COUNTED_SHARE * own_bytes:
        return
    remedy = (
        "give counters of its hosts from the time of the job, and compare the clocks of hosts and "
        "collector"
    )
    unknown = sum(part["data_bytes"].null_count() for part, _ in ports)
    if unknown:
        remedy = (
            f"{unknown} of their readings are without bytes, which is so where they rose by more "
            "than the link can carry: compare the rates of the fabric; otherwise " + remedy
        )
    raise JoinError(
        f"according to the trace, the job's hosts sent {format_bytes(own_bytes)}, but their ports "
        f"counted {format_bytes(counted_bytes)} at that time ({_utc(zero_ns)})",
        remedy=remedy,
    )


def _require_explained(ports: Ports, zero_ns: int) -> None:
    """Raise JoinError if the job's messages are not what the ports counted at that time.

    Any counters agree best at some offset, those of another day, too.
    """
    counted = np.concatenate([part["data_bytes"].fill_null(0.0).to_numpy() for part, _ in ports])
    sent = np.concatenate([_sent_in_intervals(part, messages, zero_ns) for part, messages in ports])
    scale = float(counted @ sent) / max(float(sent @ sent), 1.0)
    variation = float(((counted - counted.mean()) ** 2).sum())
    share = 1.0 - float(((counted - scale * sent) ** 2).sum()) / max(variation, 1.0)
    if share >= MIN_EXPLAINED:
        return
    raise JoinError(
        "trace and counters may be of different days: the trace does not record when the job ran, "
        f"and its messages explain {percent(max(share, 0.0))} of how the bytes of its hosts' ports "
        f"vary, where {percent(MIN_EXPLAINED)} are needed",
        remedy="give counters of the time of the job, read more often than the job alternates "
        "between sending and computing, or a trace with a UTC time",
    )


def _sent_in_intervals(part: pl.DataFrame, messages: Sent, zero_ns: int) -> Floats:
    """Bytes of messages in each interval of a port."""
    edges = ((part[name].to_numpy() - zero_ns) * 1000.0 for name in ("end_ns", "start_ns"))
    until, before = (sent_bytes(messages, edge) for edge in edges)
    return np.asarray(until - before, np.float64)


def _counted_bytes(ports: Ports, zero_ns: int) -> tuple[float, float]:
    """Bytes that the ports of the job's hosts counted while it sent, and bytes of its messages."""
    counted_bytes = own_bytes = 0.0
    for part, messages in ports:
        sent = _sent_in_intervals(part, messages, zero_ns)
        own_bytes += float(sent.sum())
        counted_bytes += float(part["data_bytes"].fill_null(0.0).to_numpy()[sent > 0].sum())
    return counted_bytes, own_bytes


def _by_bytes(ports: Ports, elapsed_ps: int, span: tuple[int, int, float]) -> Alignment:
    """The alignment at which sent and counted bytes agree best."""
    first, last, length = span
    step = max((last - first) / _GRID, length / 8, 1.0)
    zeros, score = _agreement(ports, elapsed_ps, (first, last, step))
    if not score.any():
        raise JoinError(
            "neither trace nor counters record when the job ran: no port of its hosts counted "
            "bytes",
            remedy="give counters of the ports of its hosts, or a trace with a UTC time",
        )
    best = int(np.argmax(score))
    # Offsets that agree nearly as well, relative to the level that wrong offsets reach.
    level = float(np.median(score[score > 0]))
    possible = np.flatnonzero(score - level >= _AGREEMENT * (score[best] - level))
    spread = float(max(best - possible.min(), possible.max() - best, 1)) * step
    return Alignment(
        int(zeros[best]), int(max(spread, length / 2)), "the bytes that the job's hosts sent"
    )


def _utc(time_ns: int) -> str:
    try:
        when = datetime.fromtimestamp(time_ns / 10**9, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{time_ns} ns since 1970"
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def _near(ports: Ports, origin_ns: int, length: float) -> Alignment:
    """The alignment near the recorded UTC at which messages explain the counted bytes best.

    Bytes on the wire are 0.5 to 1.5 times those of the messages: more because of headers, fewer if
    counters were read for part of the time. Larger clock offsets are penalised.
    """
    step = max(min(length / 16, CLOCK_ERROR_NS / 4), 1.0)
    reach = int(np.ceil(MAX_CLOCK_SHIFT_NS / step))
    shifts = np.arange(-reach, reach + 1) * step
    counted_by_port = [part["data_bytes"].fill_null(0.0).to_numpy() for part, _ in ports]
    edges = [
        np.concatenate([part["start_ns"].to_numpy()[:1], part["end_ns"].to_numpy()]) - origin_ns
        for part, _ in ports
    ]
    counted = np.concatenate(counted_by_port) if counted_by_port else np.zeros(0)
    total_square = float((counted**2).sum())
    if total_square <= 0:
        return _as_recorded(origin_ns)
    residual = np.zeros(len(shifts))
    curves = [sent_curve(messages) for _, messages in ports]
    at_once = max(_BLOCK // max(len(counted), 1), 1)
    for first in range(0, len(shifts), at_once):
        block = slice(first, first + at_once)
        expected = np.concatenate(
            [
                np.diff(curve.at((edge - shifts[block, None]) * 1000.0))
                for edge, curve in zip(edges, curves, strict=True)
            ],
            axis=1,
        )
        norm = (expected**2).sum(axis=1)
        ratio = (counted * expected).sum(axis=1) / np.where(norm > 0, norm, 1.0)
        scale = np.where(norm > 0, np.clip(ratio, 0.5, 1.5), 1.0)
        left = counted - scale[:, None] * expected
        residual[block] = (left**2).sum(axis=1) / total_square
    score = residual + 0.005 * (shifts / CLOCK_ERROR_NS) ** 2
    best = int(np.argmin(score))
    possible = shifts[score <= score[best] + 0.01]
    error = int(max(np.ptp(possible) / 2, step))
    return Alignment(
        origin_ns + int(shifts[best]),
        error,
        "the trace's UTC time"
        + (f", {shifts[best] / 1e6:+.3g} ms by the bytes sent" if shifts[best] else ""),
    )


def _agreement(
    by_port: Ports, elapsed_ps: int, span: tuple[int, int, float]
) -> tuple[Floats, Floats]:
    """Candidates for time 0 of the trace, and their correlation of counters and messages."""
    first, last, step = span
    count = max(int((last - first) / step), 2)
    grid = np.asarray(first + step * np.arange(count + 1), np.float64)
    job_steps = max(int(np.ceil(elapsed_ps / 1000 / step)), 1)
    score = np.zeros(count + job_steps - 1)
    edges = np.asarray(np.arange(job_steps + 1) * step * 1000.0, np.float64)
    for ports, messages in by_port:
        counted = np.diff(_cumulative(ports, grid))
        expected = np.diff(sent_bytes(messages, edges))
        if counted.std() <= 0 or expected.sum() <= 0:
            continue
        # Relative to the mean: a port that is always busy carries no timing information.
        expected = expected / np.sqrt((expected**2).sum())
        score += _convolved((counted - counted.mean()) / counted.std(), expected[::-1])
    zeros = first + (np.arange(len(score)) - (job_steps - 1)) * step
    return np.asarray(zeros, np.float64), np.asarray(np.maximum(score, 0.0), np.float64)


def _convolved(first: Floats, second: Floats) -> Floats:
    """Full convolution of two series by Fourier transforms.

    That of scipy.signal is the same, and takes a second to load.
    """
    from scipy import fft  # Traces with UTC times do not need it.

    if min(len(first), len(second)) == 1:
        return first * second
    length = len(first) + len(second) - 1
    size = fft.next_fast_len(length, real=True)
    product = fft.rfft(first, size) * fft.rfft(second, size)
    return np.asarray(fft.irfft(product, size)[:length], np.float64)


def _by_port(rows: pl.DataFrame, fabric: Fabric, sent: Sent) -> Ports:
    """Intervals and messages of each host port that sends or, without counters of any, receives."""
    out = []
    for link_end, node in ((fabric.link_src, sent.src_node), (fabric.link_dst, sent.dst_node)):
        link_of_node = {int(v): link for link, v in enumerate(link_end) if int(v) < fabric.n_nodes}
        links = {link_of_node[int(n)]: int(n) for n in np.unique(node) if int(n) in link_of_node}
        port_rows = rows.filter(pl.col("link").is_in(list(links)))
        for (link,), ports in port_rows.group_by("link", maintain_order=True):
            of_port = node == links[int(link)]
            out.append((ports.sort("end_ns"), sent.of(of_port)))
        if out:
            break
    return out


def _cumulative(ports: pl.DataFrame, grid: Floats) -> Floats:
    """Cumulative bytes of a port at each instant."""
    end = ports["end_ns"].to_numpy().astype(np.float64)
    sent = np.cumsum(ports["data_bytes"].fill_null(0.0).to_numpy())
    first = float(ports["start_ns"][0])
    return np.asarray(
        np.interp(grid, np.concatenate([[first], end]), np.concatenate([[0.0], sent])), np.float64
    )


def sent_bytes(sent: Sent, edges_ps: Floats) -> Floats:
    """Cumulative bytes of messages at each instant, each sent at a constant rate."""
    return sent_curve(sent).at(edges_ps)


@dataclass(frozen=True)
class SentCurve:
    """Cumulative bytes of messages over time, linear between its points.

    Attributes:
        time_ps: Times of the points, shape (P,).
        total_bytes: Bytes sent until then, shape (P,).
    """

    time_ps: Floats
    total_bytes: Floats

    def at(self, edges_ps: Floats) -> Floats:
        """Bytes sent until each instant, in the shape of ``edges_ps``."""
        if not len(self.time_ps):
            return np.zeros(edges_ps.shape)
        total = np.interp(edges_ps, self.time_ps, self.total_bytes, left=0.0)
        return np.asarray(total, np.float64)


def sent_curve(sent: Sent) -> SentCurve:
    """Cumulative bytes of messages, each sent at a constant rate."""
    duration_ps = np.maximum(sent.end_ps - sent.start_ps, 1.0)
    rate = sent.size_bytes / duration_ps
    times = np.concatenate([sent.start_ps, sent.start_ps + duration_ps])
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(np.concatenate([rate, -rate])[order])
    sums = np.cumsum(slope[:-1] * np.diff(times))
    return SentCurve(times, np.concatenate([np.zeros(min(len(times), 1)), sums]))
