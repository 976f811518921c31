"""The counters of each port as series of intervals, and the times in which packets were queued."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Bools, Floats
from tailback.port_counters.schema import Flag, exact_data
from tailback.run.schema import Column, Table

FRAME_BYTES: Final = 24
"""Preamble, frame check sequence and interframe gap (IEEE 802.3), not in byte counters."""
PACKET_BYTES: Final = 1514
"""Ethernet frame with 1,500 bytes of payload."""
JUMBO_BYTES: Final = 9216
"""Maximum frame size of most switches, assumed where mean packets exceed :data:`PACKET_BYTES`."""

PLACE: Final = (
    Column("node_name", pl.String, "name of the node or switch"),
    Column("port", pl.UInt16, "port number"),
    Column("interface", pl.String, "name of the interface, null where ports have numbers alone"),
    Column("link", pl.UInt32, "directed link that leaves the port, null without a fabric"),
)

QUEUE_WINDOWS: Final = Table(
    "queue_windows",
    "a time in which one port had packets waiting at every reading",
    (
        *PLACE,
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

_KEY: Final = ("node_name", "port", "interface", "link")


def clock_error_ns(intervals: pl.DataFrame) -> float:
    """Error of time stamps: 95th percentile of the deviation of intervals from their usual length.

    A collector delayed between rounds may equally be delayed between taking the time stamp and
    reading the counter.

    Args:
        intervals: ``time_ns, interval_ns`` of ``counter_intervals``.
    """
    length = intervals["interval_ns"].cast(pl.Float64)
    usual = length.median()
    if not isinstance(usual, float):
        return 0.0
    # Missing readings are not time stamp errors.
    expected = (length / usual).round().clip(lower_bound=1.0) * usual
    return float((length - expected).abs().quantile(0.95) or 0.0)


@dataclass
class QueueSeries:
    """The intervals of one port in order of time, as arrays of equal length.

    Attributes:
        key: ``node_name, port, interface, link``.
        nominal: Nominal rate in Gb/s, NaN where unknown.
        start: Start of each interval, ns.
        end: End, ns.
        sent: Bytes sent, NaN where unknown or a lower bound.
        packets: Packets sent, NaN in the same intervals.
        before: Queue at the start, bytes, NaN where unknown.
        after: Queue at the end.
        drops: Packets dropped, NaN where unknown.
        drops_low: Intervals whose drops are a lower bound.
        paused: Time in each interval in which the far end paused the port, ns.
        pauses: Pause frames received in each interval, 0 where unknown.
        unclear: Intervals with pauses whose length is not known.
        clock: Error of a time stamp, ns.
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
    drops_low: Bools
    paused: Floats
    pauses: Floats
    unclear: Bools
    clock: float

    @property
    def free(self) -> Floats:
        """Time in each interval in which the port was free to send, ns."""
        return np.maximum(self.length - self.paused, 0.0)

    @property
    def length(self) -> Floats:
        """Length of each interval, ns."""
        return (self.end - self.start).astype(np.float64)

    @property
    def packet(self) -> float:
        """Size in bytes of a packet that may be counted in the wrong interval."""
        size = np.divide(
            self.sent, self.packets, out=np.zeros_like(self.sent), where=self.packets > 0
        )
        return PACKET_BYTES if np.nanmax(size, initial=0.0) <= PACKET_BYTES else JUMBO_BYTES

    @property
    def wire(self) -> Floats:
        """Upper bound of bytes on the wire in each interval, with framing overhead.

        A port that is paused completes its packet first, which takes a packet's time of each pause.
        """
        packets = np.where(np.isnan(self.packets), self.sent / 64.0, self.packets)
        begun = self.packet * self.pauses
        return np.asarray(self.sent + FRAME_BYTES * packets + begun, np.float64)

    @property
    def queued(self) -> Bools:
        """Intervals with a queue at both ends."""
        return (self.before > 0) & (self.after > 0)

    @property
    def outlasted(self) -> Bools:
        """Intervals in which the queue was never empty: more was queued at the start than sent."""
        return self.queued & (self.before >= self.sent + 2 * self.packet) & ~self.unclear

    def full(self, clock: float) -> Bools:
        """Intervals at the nominal rate, given a time stamp error of ``clock`` ns."""
        room = self.nominal / 8.0 * np.maximum(self.free - clock, 0.0)
        return np.asarray(self.wire + 2 * self.packet >= room, np.bool_)


def port_series(intervals: pl.DataFrame) -> list[QueueSeries]:
    """Ports with counters of bytes, queues or drops, by name."""
    clock = clock_error_ns(intervals)
    counters = pl.any_horizontal(pl.col("data_bytes", "backlog_bytes", "drops").is_not_null()).any()
    rows = (
        intervals.filter(counters.over("node_name", "port"))
        .with_columns(exact_data("data_bytes", "packets"))
        .sort(*_KEY, "time_ns")
    )
    out = []
    for frame in rows.partition_by("node_name", "port", maintain_order=True):

        def column(name: str, frame: pl.DataFrame = frame) -> Floats:
            return np.asarray(frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy())

        key = frame.select(_KEY).row(0)
        paused = pl.col("paused_fraction").fill_null(0.0)
        # The pauses of several priorities may overlap: their sum, a lower bound, is marked so.
        vague = (pl.col("pause_frames").fill_null(0) > 0) & pl.col("paused_fraction").is_null()
        vague |= (paused > 0) & ((pl.col("flags") & int(Flag.AT_LEAST)) > 0)
        held = frame.select(
            time=(paused * pl.col("interval_ns")).cast(pl.Float64), vague=vague.fill_null(False)
        )
        # The nominal rate is the latest known one.
        rates = frame["capacity_gbps"].drop_nulls()
        end = frame["time_ns"].to_numpy()
        out.append(
            QueueSeries(
                (str(key[0]), int(key[1]), key[2], key[3]),
                float(rates[-1]) if len(rates) else float("nan"),
                end - frame["interval_ns"].to_numpy(),
                end,
                column("data_bytes"),
                column("packets"),
                column("backlog_before_bytes"),
                column("backlog_bytes"),
                column("drops"),
                (frame["flags"].to_numpy() & int(Flag.RESET) > 0)
                | frame["drops"].is_null().to_numpy(),
                held["time"].to_numpy(),
                np.nan_to_num(column("pause_frames")),
                held["vague"].to_numpy(),
                clock,
            )
        )
    return out


def consecutive_runs(port: QueueSeries, chosen: Bools) -> list[slice]:
    """Runs of consecutive chosen intervals."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    runs = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        # A run ends where readings are missing.
        breaks = np.flatnonzero(port.start[first + 1 : last] != port.end[first : last - 1])
        cuts = [first, *(first + 1 + breaks).tolist(), last]
        runs += [slice(a, b) for a, b in pairwise(cuts)]
    return runs


def none_if_nan(value: float) -> float | None:
    """The value; None if it is not a number."""
    return None if np.isnan(value) else float(value)


def sum_of_known(values: Floats) -> int | None:
    """Sum of the known values; None if all are unknown."""
    return None if np.isnan(values).all() else int(np.nansum(values))


def queue_windows(intervals: pl.DataFrame) -> pl.DataFrame:
    """Times in which packets were queued at each port, and its service rate in them.

    Args:
        intervals: Rows of ``counter_intervals`` with ``backlog_before_bytes`` and
            ``backlog_bytes``; ``capacity_gbps`` is the nominal rate of the link.

    Returns:
        Rows of :data:`QUEUE_WINDOWS` in order of port and time. A queue at both ends of an interval
        may have been empty in between, except in intervals counted by ``outlasted``.
    """
    rows = []
    for port in port_series(intervals):
        outlasted = port.outlasted
        for run in consecutive_runs(port, port.queued):
            span = float(port.end[run][-1] - port.start[run][0])
            levels = np.append(port.before[run][:1], port.after[run])
            rows.append(
                (
                    *port.key,
                    int(port.start[run][0]),
                    int(port.end[run][-1]),
                    run.stop - run.start,
                    int(outlasted[run].sum()),
                    none_if_nan(port.nominal),
                    none_if_nan(float(port.sent[run].sum()) * 8.0 / span),
                    float(levels.mean()),
                    int(levels.max()),
                    sum_of_known(port.drops[run]),
                )
            )
    return pl.DataFrame(rows, schema=QUEUE_WINDOWS.polars_schema, orient="row")
