"""Readings as they are stored: one fixed-size row per port and instant."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.collector import mad as mads
from tailback.collector.exchange import MadExchange, Reply, Request
from tailback.port_counters.findings import port_events
from tailback.port_counters.schema import READINGS, Flag, conform
from tailback.port_counters.targets import PortTarget

RAW: Final = np.dtype(
    [
        ("time_ns", "<i8"),  # UTC, half-way between request and answer
        ("target", "<u4"),  # index into the targets of the segment
        ("turnaround_ns", "<u4"),
        ("flags", "<u4"),
        ("wait", "<u8"),
        ("words", "<u8"),
        ("packets", "<u8"),
        ("received_words", "<u8"),
        ("received_packets", "<u8"),
    ]
)
"""One reading: 60 octets, little-endian. Data are counted in words of 4 octets, as on the wire."""

ERRORS: Final = np.dtype(
    [
        ("time_ns", "<i8"),
        ("target", "<u4"),
        ("values", "<u8", (len(mads.ERROR_COUNTERS),)),
    ]
)
"""Counters of errors of a port at the first reading in a segment, and whenever one has changed."""

Rows = NDArray[Any]
"""An array of ``RAW`` or ``ERRORS``."""

SOURCE: Final = "umad"
WORD_BYTES: Final = 4


@dataclass(frozen=True)
class TargetTable:
    """The targets of a segment as columns. Every array has one entry per target.

    Attributes:
        targets: The targets themselves.
        guid: GUID of the device.
        port: Port number.
        gbps: Data rate in gigabits per second, 0 where not known.
        tick_ns: Length of a tick, or the least it may be, nanoseconds.
        tick_high_ns: The longest that a tick may be, NaN where it is known.
        data_top: Largest value of the data counter, in words. The same limit holds for packets.
        wait_top: Largest value of PortXmitWait, in ticks.
    """

    targets: tuple[PortTarget, ...]
    guid: NDArray[np.uint64]
    port: NDArray[np.uint16]
    gbps: NDArray[np.float64]
    tick_ns: NDArray[np.float64]
    tick_high_ns: NDArray[np.float64]
    data_top: NDArray[np.uint64]
    wait_top: NDArray[np.uint64]

    @classmethod
    def of(cls, targets: Sequence[PortTarget]) -> TargetTable:
        """Build the columns."""

        def top(wide: bool) -> int:
            return mads.ALL_ONES_64 if wide else mads.ALL_ONES_32

        return cls(
            tuple(targets),
            np.array([t.guid for t in targets], np.uint64),
            np.array([t.port for t in targets], np.uint16),
            np.array([t.gbps for t in targets], np.float64),
            np.array([t.tick_ns for t in targets], np.float64),
            np.array([t.tick_high_ns for t in targets], np.float64),
            np.array([top(t.extended) for t in targets], np.uint64),
            np.array([top(t.extended_wait) for t in targets], np.uint64),
        )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def latched_ns(self) -> NDArray[np.float64]:
        """Stall that each PortXmitWait shows when it is full, nanoseconds, shape (targets,)."""
        return mads.ALL_ONES_32 * self.tick_ns

    def latched(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether PortXmitWait of each of ``rows`` is at its largest value, shape (rows,).

        As in ``increments.with_widths``, 32 ones tell that the counter has 32 bits, whatever the
        device announces.
        """
        return np.asarray(rows["wait"] == mads.ALL_ONES_32, np.bool_)

    def wait_tops(self, rows: Rows) -> NDArray[np.uint64]:
        """Largest value of PortXmitWait in each of ``rows``, shape (rows,)."""
        narrow = np.uint64(mads.ALL_ONES_32)
        return np.where(self.latched(rows), narrow, self.wait_top[rows["target"]])

    def data_tops(self, rows: Rows) -> NDArray[np.uint64]:
        """Largest value of the counters of data and packets in each of ``rows``, shape (rows,)."""
        return self._tops_of(rows, ("words", "packets"))

    def received_tops(self, rows: Rows) -> NDArray[np.uint64]:
        """Largest value of the counters of received data and packets, shape (rows,)."""
        return self._tops_of(rows, ("received_words", "received_packets"))

    def _tops_of(self, rows: Rows, counters: Sequence[str]) -> NDArray[np.uint64]:
        narrow = np.uint64(mads.ALL_ONES_32)
        latched = np.logical_or.reduce([rows[name] == narrow for name in counters])
        return np.where(latched, narrow, self.data_top[rows["target"]])


class PortReader:
    """Requests the counters of targets and combines the answers into readings.

    A target with 64-bit data and a 32-bit PortXmitWait takes two requests, sent one after the
    other. The reading has the instant of the one with PortXmitWait.

    Args:
        targets: The targets.
        exchange: Where requests go.
        offset_ns: Difference of UTC and the monotonic clock, nanoseconds.
        unbroken: Result of :meth:`unbroken` of the previous reader. These series continue.
    """

    def __init__(
        self,
        targets: Sequence[PortTarget],
        exchange: MadExchange,
        offset_ns: int,
        unbroken: Container[tuple[int, int]] = (),
    ) -> None:
        self.targets = targets
        self._exchange = exchange
        self._offset_ns = offset_ns
        self._partial: dict[int, tuple[mads.PortCounterValues, Reply, bool] | str] = {}
        # The reading after a failed one spans a gap. So does a session's first.
        self._missed = [(target.guid, target.port) not in unbroken for target in targets]
        self._changed: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        self.begin_errors()

    def unbroken(self) -> set[tuple[int, int]]:
        """GUID and port of the targets whose last reading did not fail."""
        targets = zip(self.targets, self._missed, strict=True)
        return {(target.guid, target.port) for target, missed in targets if not missed}

    def begin_errors(self) -> None:
        """Report the counters of errors of every port at its next reading, as a segment needs."""
        self._errors: list[tuple[bytes, tuple[int, ...]] | None] = [None] * len(self.targets)

    def changed_errors(self) -> Rows:
        """The latest counters of errors of ports whose counters changed since the last call."""
        changed = np.array(list(self._changed.values()), ERRORS)
        self._changed.clear()
        return changed

    def _note_errors(self, index: int, octets: bytes, reply: Reply) -> None:
        noted = self._errors[index]
        # Comparing octets is all that most readings cost: errors are rare.
        if noted is None or noted[0] != octets:
            values = mads.error_counters(octets)
            self._errors[index] = octets, values
            if noted is None or noted[1] != values:
                self._changed[index] = (reply.middle_ns + self._offset_ns, index, values)

    def ask(self, index: int) -> None:
        """Queue the request or the two requests of one target."""
        target = self.targets[index]
        wanted = [mads.PORT_COUNTERS_EXTENDED] if target.extended else []
        if not target.extended_wait:
            wanted.append(mads.PORT_COUNTERS)
        for attribute in wanted:
            self._exchange.submit(
                Request(
                    target.lid,
                    mads.CLASS_PERFORMANCE,
                    target.lid,
                    mads.performance_get(attribute, target.port),
                    (index, attribute == mads.PORT_COUNTERS_EXTENDED),
                )
            )

    def take(self, reply: Reply) -> tuple[int, ...] | str | None:
        """Handle a reply to one of this reader's requests.

        Returns:
            A row of ``RAW`` when the reading is complete, an error text when it failed, None while
            the other answer is missing.
        """
        index, wide = reply.request.tag
        target = self.targets[index]
        mad = reply.mad
        if mad is None:
            counters: mads.PortCounterValues | None = None
        else:
            counters = mads.port_counters_extended(mad) if wide else mads.port_counters(mad)
            if wide == target.extended_wait:
                self._note_errors(index, mads.error_octets(mad, extended=wide), reply)
        if target.extended and not target.extended_wait:
            other = self._partial.pop(index, None)
            if other is None:
                self._partial[index] = (
                    reply.problem if counters is None else (counters, reply, wide)
                )
                return None
            if counters is None or isinstance(other, str):
                return self._note_failure(index, other if isinstance(other, str) else reply.problem)
            data, narrow = (counters, other[0]) if wide else (other[0], counters)
            timed = other[1] if wide else reply
            return self._row(index, data, narrow.xmit_wait, timed)
        if counters is None:
            return self._note_failure(index, reply.problem)
        return self._row(index, counters, counters.xmit_wait, reply)

    def _note_failure(self, index: int, problem: str) -> str:
        self._missed[index] = True
        return problem

    def _row(
        self, index: int, data: mads.PortCounterValues, wait: int, reply: Reply
    ) -> tuple[int, ...]:
        target = self.targets[index]
        flags = int(Flag.GAP) if self._missed[index] else 0
        self._missed[index] = False
        # Some agents count without announcing it. An agent that returns 0 and announces nothing
        # does not count.
        if not wait and not (target.wait or target.extended_wait):
            flags |= int(Flag.NO_COUNTER)
        return (
            reply.middle_ns + self._offset_ns,
            index,
            min(reply.turnaround_ns, mads.ALL_ONES_32),
            flags,
            wait,
            data.data_words,
            data.packets,
            data.received_words,
            data.received_packets,
        )


def readings_frame(rows: Rows, table: TargetTable) -> pl.DataFrame:
    """Convert rows to the common table of readings (``tailback.port_counters.schema.READINGS``)."""
    at = rows["target"]
    names = np.array([t.node_name for t in table.targets], object)
    flags = rows["flags"].copy()
    data_top, wait_top = table.data_tops(rows), table.wait_tops(rows)
    data_full = (rows["words"] == mads.ALL_ONES_32) | (rows["packets"] == mads.ALL_ONES_32)
    flags[data_full] |= int(Flag.DATA_LATCHED | Flag.DATA_AT_LEAST)
    flags[table.latched(rows)] |= int(Flag.LATCHED | Flag.AT_LEAST)
    has_wait = (flags & int(Flag.NO_COUNTER)) == 0
    frame = pl.DataFrame(
        {
            "time_ns": rows["time_ns"],
            "turnaround_ns": rows["turnaround_ns"],
            "node_guid": table.guid[at],
            "port": table.port[at],
            "node_name": pl.Series(names[at], dtype=pl.String),
            "data_bytes": _bytes(rows["words"]),
            "data_limit": _bytes(data_top),
            "packets": rows["packets"],
            "packets_limit": data_top,
            "received_bytes": _bytes(rows["received_words"]),
            "received_packets": rows["received_packets"],
            "xmit_wait_ticks": rows["wait"],
            "wait_limit": wait_top,
            "tick_ns": table.tick_ns[at],
            "tick_high_ns": table.tick_high_ns[at],
            "capacity_gbps": table.gbps[at],
            "flags": flags,
            "source": pl.repeat(SOURCE, len(rows), eager=True),
            "has_wait": has_wait,
        }
    )
    frame = frame.with_columns(
        _null_unless(pl.col("has_wait"), "xmit_wait_ticks"),
        _null_unless(pl.col("tick_high_ns").is_not_nan(), "tick_high_ns"),
        _null_unless(pl.col("capacity_gbps") > 0, "capacity_gbps"),
    ).drop("has_wait")
    return conform(READINGS, frame)


def errors_frame(errors: Rows, rows: Rows, table: TargetTable) -> pl.DataFrame:
    """Convert counters of errors to rows of ``port_events.READINGS``.

    A counter that stays 0 has no rows. Of others the table has the first value, each change, and
    the value at the last reading.

    Args:
        errors: Rows of ``ERRORS``, those of a port in order.
        rows: Readings of the same ports, in order.
        table: The targets.
    """
    ends, values = last_of_each(rows), last_of_each(errors)
    targets, end_of, value_of = np.intersect1d(
        ends["target"], values["target"], return_indices=True
    )
    closing = np.empty(len(targets), ERRORS)
    closing["target"], closing["time_ns"] = targets, ends["time_ns"][end_of]
    closing["values"] = values["values"][value_of]
    errors = np.concatenate([errors, closing])
    errors = errors[np.argsort(errors["target"], kind="stable")]
    wide = np.array([target.extended_wait for target in table.targets], np.bool_)
    names = np.array([target.node_name for target in table.targets], object)
    parts = [pl.DataFrame(schema=port_events.READINGS)]
    for number, counter in enumerate(mads.ERROR_COUNTERS):
        risen = np.unique(errors["target"][errors["values"][:, number] > 0])
        if not len(risen):
            continue
        mine = errors[np.isin(errors["target"], risen)]
        at, value = mine["target"], mine["values"][:, number]
        begins = np.append(True, at[1:] != at[:-1])
        keep = begins | np.append(begins[1:], True) | np.append(True, value[1:] != value[:-1])
        at, value = at[keep], value[keep]
        extended = counter + port_events.EXTENDED
        parts.append(
            pl.DataFrame(
                {
                    "time_ns": mine["time_ns"][keep],
                    "node_guid": table.guid[at],
                    "node_name": pl.Series(names[at], dtype=pl.String),
                    "port": table.port[at],
                    "interface": pl.repeat(None, len(at), dtype=pl.String, eager=True),
                    "counter": pl.Series([extended if wide[t] else counter for t in at.tolist()]),
                    "value": value,
                },
                schema=port_events.READINGS,
            )
        )
    return pl.concat(parts).unique(maintain_order=True)


def last_of_each(rows: Rows) -> Rows:
    """The last row of each target, by target.

    In order of writing, not by time: the clock may have been set back between sessions.
    """
    rows = rows[np.argsort(rows["target"], kind="stable")]
    target = rows["target"]
    return rows[np.append(target[1:] != target[:-1], True)] if len(rows) else rows


def _null_unless(condition: pl.Expr, column: str) -> pl.Expr:
    return pl.when(condition).then(pl.col(column)).alias(column)


def _bytes(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Words as bytes, saturating at the largest 64-bit number."""
    most = np.uint64(mads.ALL_ONES_64 // WORD_BYTES)
    full: NDArray[np.uint64] = np.where(
        words > most, np.uint64(mads.ALL_ONES_64), np.minimum(words, most) * np.uint64(WORD_BYTES)
    )
    return full
