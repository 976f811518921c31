"""Findings on ports of lossy networks: links that serve less than their rate, full links, drops.

A port of a lossless network *stalls* without credit, and its counters show for how long. An
Ethernet port under TCP queues and drops instead. Its rate is what it sends while packets wait; a
port that sends below its nominal rate although packets wait all the time is degraded. Counters are
read at instants, so the continuous queue needs evidence:

*Outlasted*. A queue is served in order. If a port sent fewer bytes in an interval than were queued
at its start, the queue was never empty in it: its rate is bytes over time. The only assumption is
that a port with packets sends.

*Sampled*. Readings are samples of the time. A port with packets waiting sends; so, at its nominal
rate R, the share of readings with a queue is on average at most the share of time needed to send
its bytes at R. If it is significantly larger, the port serves less than R. Significance is tested
with means of batches of consecutive readings, whose spread includes their autocorrelation, at 1 %
for all ports together. (Traffic synchronous with the readings could mislead this test, but not the
first.) The test is skipped if an interval shows that the port reached R.

There is no threshold besides this 1 %: a rate that cannot be distinguished from the nominal one
within the resolution is not called degraded. Resolution is :data:`FRAME_BYTES` a packet,
which the wire carries and counters leave out, a packet at each end of an interval, and the error of
the times (:func:`clock_error_ns`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.schema import Column, Table

FRAME_BYTES: Final = 24
"""Preamble, check sequence and gap of an Ethernet frame (IEEE 802.3), in no counter of bytes."""
PACKET_BYTES: Final = 1514
"""Ethernet frame of 1,500 bytes of payload; where packets are larger on average, a jumbo frame."""
JUMBO_BYTES: Final = 9216
"""What most switches take for the largest frame."""
FALSE_ALARMS: Final = 0.01
"""Probability that sampling reports any degraded link in a healthy network."""
MIN_CLOCK_RATIO: Final = 4.0
"""Smallest ratio of a window's length to the error of a time for bytes in it to show a rate."""
FEWEST_BATCHES: Final = 5
"""With fewer batches, Student's quantile is too large to show anything."""

_PLACE: Final = (
    Column("node_name", pl.String, "name of the node or switch"),
    Column("port", pl.UInt16, "port number"),
    Column("interface", pl.String, "name of the interface, null where ports have numbers alone"),
    Column("link", pl.UInt32, "directed link that leaves the port, null without a fabric"),
)

QUEUE_WINDOWS: Final = Table(
    "queue_windows",
    "a time in which one port had packets waiting at every reading",
    (
        *_PLACE,
        Column("start_ns", pl.Int64, "first reading with a queue, UTC nanoseconds since 1970"),
        Column("end_ns", pl.Int64, "last reading with a queue"),
        Column("intervals", pl.UInt32, "intervals between these readings"),
        Column("outlasted", pl.UInt32, "of them, those in which the queue cannot have been empty"),
        Column("nominal_gbps", pl.Float64, "rate the link should have, null unknown"),
        Column("served_gbps", pl.Float64, "bytes sent over time"),
        Column("backlog_bytes", pl.Float64, "mean queue at the readings"),
        Column("backlog_max_bytes", pl.UInt64, "largest queue at a reading"),
        Column("drops", pl.UInt64, "packets dropped at the queue, null unknown"),
    ),
)

PORT_FINDINGS: Final = Table(
    "port_findings",
    "what counters show of one port: one of degraded, busy or queued, and drops",
    (
        *_PLACE,
        Column("finding", pl.String, "degraded, busy (at its nominal rate), queued or drops"),
        Column("evidence", pl.String, "outlasted, sampled (or both) or counted"),
        Column("start_ns", pl.Int64, "start of the first interval that shows it, UTC nanoseconds"),
        Column("end_ns", pl.Int64, "end of the last"),
        Column("intervals", pl.UInt32, "intervals that show it"),
        Column("nominal_gbps", pl.Float64, "rate the link should have, null unknown"),
        Column("served_gbps", pl.Float64, "rate served with a queue, null where it never had one"),
        Column("served_low_gbps", pl.Float64, "95 % lower bound of the rate the link can serve"),
        Column("served_high_gbps", pl.Float64, "95 % upper bound, null where there is none"),
        Column("utilization", pl.Float64, "bytes over what the nominal rate allows, all intervals"),
        Column("queued_share", pl.Float64, "share of readings with a queue, of active intervals"),
        Column("busy_share", pl.Float64, "time their bytes take on the wire at the nominal rate"),
        Column("backlog_max_bytes", pl.UInt64, "largest queue at a reading, null unknown"),
        Column("drops", pl.UInt64, "packets dropped at the queue, null unknown"),
        Column("drop_share", pl.Float64, "drops over packets sent and dropped, null unknown"),
    ),
)

_ORDER: Final = ("degraded", "busy", "queued", "drops")
_KEY: Final = ("node_name", "port", "interface", "link")

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def clock_error_ns(intervals: pl.DataFrame) -> float:
    """Error of the times of readings: 95 % of intervals differ from their usual length by less.

    A collector that is late between rounds may also be late between noting the time and reading the
    counter.

    Args:
        intervals: ``time_ns, interval_ns`` of ``counter_intervals``.
    """
    length = intervals["interval_ns"].cast(pl.Float64)
    usual = length.median()
    if not isinstance(usual, float):
        return 0.0
    # Missing readings are not a clock error.
    whole = (length / usual).round().clip(lower_bound=1.0) * usual
    return float((length - whole).abs().quantile(0.95) or 0.0)


@dataclass
class _Port:
    """The intervals of one port in order of time, as arrays of one length.

    Attributes:
        key: ``node_name, port, interface, link``.
        nominal: Nominal rate in Gb/s, NaN where unknown.
        start: Start of each interval, ns.
        end: End, ns.
        sent: Bytes sent, NaN where unknown.
        packets: Packets sent, NaN where unknown.
        before: Queue at the start, bytes, NaN where unknown.
        after: Queue at the end.
        drops: Packets dropped, NaN where unknown.
        clock: Error of a time, ns.
    """

    key: tuple[str, int, str | None, int | None]
    nominal: float
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    sent: Floats
    packets: Floats
    before: Floats
    after: Floats
    drops: Floats
    clock: float

    @property
    def length(self) -> Floats:
        """Length of each interval, ns."""
        return (self.end - self.start).astype(np.float64)

    @property
    def packet(self) -> float:
        """A packet that may be counted in the wrong interval, in bytes."""
        size = np.divide(self.sent, self.packets, out=np.zeros_like(self.sent),
                         where=self.packets > 0)  # fmt: skip
        return PACKET_BYTES if np.nanmax(size, initial=0.0) <= PACKET_BYTES else JUMBO_BYTES

    @property
    def wire(self) -> Floats:
        """Most bytes that the wire carried in each interval, with what counters leave out."""
        most = np.where(np.isnan(self.packets), self.sent / 64.0, self.packets)
        return np.asarray(self.sent + FRAME_BYTES * most, np.float64)

    @property
    def queued(self) -> Flags:
        """Intervals with a queue at both ends."""
        return (self.before > 0) & (self.after > 0)

    @property
    def outlasted(self) -> Flags:
        """Intervals whose queue at the start was more than was sent: it was never empty."""
        return self.queued & (self.before >= self.sent + 2 * self.packet)

    def full(self, clock: float) -> Flags:
        """Intervals whose bytes are those of the nominal rate, if times are off by ``clock`` ns."""
        room = self.nominal / 8.0 * np.maximum(self.length - clock, 0.0)
        return np.asarray(self.wire + 2 * self.packet >= room, np.bool_)


def _ports(intervals: pl.DataFrame) -> list[_Port]:
    """The ports whose counters include queues or drops, by name."""
    clock = clock_error_ns(intervals)
    telling = (pl.col("backlog_bytes").is_not_null() | pl.col("drops").is_not_null()).any()
    rows = intervals.filter(telling.over("node_name", "port")).sort(*_KEY, "time_ns")
    out = []
    for frame in rows.partition_by("node_name", "port", maintain_order=True):

        def column(name: str, frame: pl.DataFrame = frame) -> Floats:
            return np.asarray(frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy())

        key = frame.select(_KEY).row(0)
        # The rate of the link is that of its latest reading with a rate.
        rates = frame["capacity_gbps"].drop_nulls()
        end = frame["time_ns"].to_numpy()
        out.append(
            _Port(
                (str(key[0]), int(key[1]), key[2], key[3]),
                float(rates[-1]) if len(rates) else float("nan"),
                end - frame["interval_ns"].to_numpy(), end, column("data_bytes"),
                column("packets"), column("backlog_before_bytes"), column("backlog_bytes"),
                column("drops"), clock,
            )
        )  # fmt: skip
    return out


def _runs(port: _Port, chosen: Flags) -> list[slice]:
    """The runs of consecutive chosen intervals."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    runs = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        # A run ends where readings are missing.
        breaks = np.flatnonzero(port.start[first + 1 : last] != port.end[first : last - 1])
        cuts = [first, *(first + 1 + breaks).tolist(), last]
        runs += [slice(a, b) for a, b in pairwise(cuts)]
    return runs


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _count(values: Floats) -> int | None:
    """Sum of the known values, None if there is none."""
    return None if np.isnan(values).all() else int(np.nansum(values))


def queue_windows(intervals: pl.DataFrame) -> pl.DataFrame:
    """The times in which each port had packets waiting, and what it served then.

    Args:
        intervals: Rows of ``counter_intervals`` with ``backlog_before_bytes`` and
            ``backlog_bytes``; ``capacity_gbps`` is the nominal rate of the link.

    Returns:
        Rows of :data:`QUEUE_WINDOWS` in order of port and time. A queue at both ends of an interval
        may have been empty in between, except where ``outlasted`` counts it.
    """
    rows = []
    for port in _ports(intervals):
        outlasted = port.outlasted
        for run in _runs(port, port.queued):
            span = float(port.end[run][-1] - port.start[run][0])
            levels = np.append(port.before[run][:1], port.after[run])
            rows.append(
                (
                    *port.key, int(port.start[run][0]), int(port.end[run][-1]),
                    run.stop - run.start, int(outlasted[run].sum()), _known(port.nominal),
                    _known(float(port.sent[run].sum()) * 8.0 / span), float(levels.mean()),
                    int(levels.max()), _count(port.drops[run]),
                )
            )  # fmt: skip
    return pl.DataFrame(rows, schema=QUEUE_WINDOWS.polars_schema, orient="row")


@dataclass(frozen=True)
class _Shown:
    """Evidence of a finding: intervals, kind, and the rate served with its bounds, Gb/s."""

    finding: str
    evidence: str
    chosen: Flags
    served: float | None = None
    low: float | None = None
    high: float | None = None


def port_findings(intervals: pl.DataFrame) -> pl.DataFrame:
    """Findings on each port from counters of queues and drops.

    Args:
        intervals: Rows of ``counter_intervals``; ``capacity_gbps`` is the nominal rate of the link.
            Ports without counters of queues or drops are left out.

    Returns:
        Rows of :data:`PORT_FINDINGS`: degraded links first, the slowest of its nominal rate before
        the others, then busy, queued and dropping ones, those most so first. A port without a
        nominal rate is never degraded or busy; one that never queued nor dropped has no row.
    """
    ports = _ports(intervals)
    tested = max(1, sum(bool((port.after > 0).any()) for port in ports))
    rows = []
    for port in ports:
        shown = _degraded(port, FALSE_ALARMS / tested) or _busy(port) or _queued(port)
        if shown is not None:
            rows.append(_row(port, shown))
        if np.nansum(port.drops) > 0:
            rows.append(_row(port, _Shown("drops", "counted", port.drops > 0)))
    frame = pl.DataFrame(rows, schema=PORT_FINDINGS.polars_schema, orient="row")
    slowness = pl.when(pl.col("finding") == "degraded").then(
        pl.col("served_high_gbps") / pl.col("nominal_gbps")
    )
    return frame.sort(
        pl.col("finding").replace_strict(_ORDER, range(len(_ORDER)), return_dtype=pl.Int8),
        slowness, -pl.col("queued_share"), -pl.col("utilization"), -pl.col("drops").cast(pl.Int64),
        "node_name", "port", nulls_last=True,
    )  # fmt: skip


def _degraded(port: _Port, chance: float) -> _Shown | None:
    """A link that serves less than its rate, by all available evidence."""
    certain, likely = _outlasted(port), _sampled(port, chance)
    if certain is None or likely is None:
        return certain or likely
    # Sampling shows how long it lasted; outlasted queues show the rate served.
    chosen = certain.chosen | likely.chosen
    return replace(certain, evidence="outlasted, sampled", chosen=chosen)


def _outlasted(port: _Port) -> _Shown | None:
    """A degraded link by intervals that its queue outlasted."""
    slow = np.zeros(len(port.start), np.bool_)
    clocks = 0
    for run in _runs(port, port.outlasted & ~np.isnan(port.sent)):
        span = float(port.end[run][-1] - port.start[run][0]) - port.clock
        most = (float(port.wire[run].sum()) + 2 * port.packet) * 8.0
        if span > 0 and most / span < port.nominal:
            slow[run] = True
            clocks += 1
    if not slow.any():
        return None
    sent, span = float(port.sent[slow].sum()), float(port.length[slow].sum())
    slack, clock = 2 * port.packet * clocks, port.clock * clocks
    return _Shown(
        "degraded", "outlasted", slow, sent * 8.0 / span,
        max(sent - slack, 0.0) * 8.0 / (span + clock),
        (float(port.wire[slow].sum()) + slack) * 8.0 / (span - clock),
    )  # fmt: skip


def _student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t distribution."""
    from scipy.special import stdtrit  # takes a third of a second to import

    return float(stdtrit(freedom, probability))


def _sampled(port: _Port, chance: float) -> _Shown | None:
    """A degraded link by readings that find a queue more often than its nominal rate allows."""
    active = (port.sent > 0) & ~np.isnan(port.before) & ~np.isnan(port.after)
    if np.isnan(port.nominal) or _ran_full(port, active):
        return None
    waiting = ((port.before > 0).astype(np.float64) + (port.after > 0)) / 2.0
    busy = port.wire * 8.0 / (port.nominal * port.length)
    excess, error, batches = _mean((waiting - busy)[active])
    if batches < FEWEST_BATCHES:
        return None
    if excess - _student_quantile(1.0 - chance, batches - 1) * error <= 0:
        return None
    both = active & port.queued
    span = float(port.length[both].sum())
    mean, error, _ = _mean(waiting[active])
    share = mean - _student_quantile(0.95, batches - 1) * error
    total = float(port.wire[active].sum()) * 8.0 / float(port.length[active].sum())
    # Of the bytes sent, those sent with a queue are no more than all.
    high = min(total / share, port.nominal) if share > 0 else port.nominal
    if not span:
        # No interval has a queue at both ends: what was sent was sent while one was seen.
        chosen = active & ((port.before > 0) | (port.after > 0))
        return _Shown("degraded", "sampled", chosen, min(total / mean, high), 0.0, high)
    served = float(port.sent[both].sum()) * 8.0 / span
    least = max(served - 2 * port.packet * 8.0 / span, 0.0)
    return _Shown("degraded", "sampled", both, served, least, max(high, served))


def _ran_full(port: _Port, active: Flags) -> bool:
    """Whether the port ever sent at its nominal rate, over a time that its clock resolves.

    An error of a time counts once in a window, however many intervals it has: with late readings a
    single interval shows nothing, but several in a row do.
    """
    ends = np.concatenate([[0.0], np.cumsum(port.length[active])])
    wire = np.concatenate([[0.0], np.cumsum(port.wire[active])])
    begin = np.arange(len(ends) - 1)
    # The shortest window from each interval on that is long enough.
    enough = ends[:-1] + max(MIN_CLOCK_RATIO * port.clock, 1.0)
    end = np.minimum(np.searchsorted(ends, enough), len(ends) - 1)
    room = port.nominal / 8.0 * np.maximum(ends[end] - ends[begin] - port.clock, 0.0)
    long_enough = ends[end] >= enough
    return bool((long_enough & (wire[end] - wire[begin] + 2 * port.packet >= room)).any())


def _mean(values: Floats) -> tuple[float, float, int]:
    """Mean of a series that may be autocorrelated, its standard error, and the batches behind it.

    √n batches of √n consecutive values: both grow with n, as the method of batch means requires.
    """
    batches = int(np.sqrt(len(values)))
    if batches < 2:
        return 0.0, float("inf"), batches
    means = np.array([part.mean() for part in np.array_split(values, batches)])
    return float(values.mean()), float(means.std(ddof=1) / np.sqrt(batches)), batches


def _busy(port: _Port) -> _Shown | None:
    """A port that sends at its nominal rate with a queue."""
    if np.isnan(port.nominal):
        return None
    full = port.full(0.0) & port.queued
    if not full.any():
        return None
    span = float(port.length[full].sum())
    served = float(port.sent[full].sum()) * 8.0 / span
    return _Shown("busy", "counted", full, served, served)


def _queued(port: _Port) -> _Shown | None:
    """A port that had packets waiting at a reading."""
    some = (port.before > 0) | (port.after > 0)
    if not some.any():
        return None
    both = port.queued & ~np.isnan(port.sent)
    if not both.any():
        return _Shown("queued", "counted", some)
    served = float(port.sent[both].sum()) * 8.0 / float(port.length[both].sum())
    return _Shown("queued", "counted", some, served, served)


def _row(port: _Port, shown: _Shown) -> tuple[object, ...]:
    """One row of :data:`PORT_FINDINGS`."""
    chosen = shown.chosen
    known = ~np.isnan(port.sent)
    used = float(port.sent[known].sum()) * 8.0 / float(port.length[known].sum() or np.nan)
    active = known & (port.sent > 0) & ~np.isnan(port.after)
    levels = np.concatenate([port.before, port.after])
    busy = float(port.wire[active].sum()) * 8.0 / float(port.length[active].sum() or np.nan)
    drops, packets = _count(port.drops), _count(port.packets)
    handled = (drops or 0) + (packets or 0)
    return (
        *port.key, shown.finding, shown.evidence, int(port.start[chosen].min()),
        int(port.end[chosen].max()), int(chosen.sum()), _known(port.nominal), shown.served,
        shown.low, shown.high, _known(used / port.nominal),
        float((port.after[active] > 0).mean()) if active.any() else None,
        _known(busy / port.nominal),
        None if np.isnan(levels).all() else int(np.nanmax(levels)), drops,
        drops / handled if drops is not None and packets is not None and handled else None,
    )  # fmt: skip


__all__ = ["PORT_FINDINGS", "QUEUE_WINDOWS", "clock_error_ns", "port_findings", "queue_windows"]
