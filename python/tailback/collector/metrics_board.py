"""The latest state of every port and of the collector itself, for monitoring."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tailback.collector import mad as mads
from tailback.collector.difference import IntervalColumns, difference, stall_fraction
from tailback.collector.exchange import ExchangeStatistics
from tailback.collector.readings import ERRORS, RAW, WORD_BYTES, Rows, TargetTable
from tailback.fabric.rates import speed_name
from tailback.io.exposition import INFO, by_label, family, labelled, sample, samples
from tailback.port_counters.changes import KINDS
from tailback.port_counters.schema import Flag
from tailback.port_counters.targets import PortTarget

MAX_MISSED_SWEEPS: Final = 3
"""Consecutive sweeps without a reading of a port after which its metrics are withdrawn."""

_ERROR_METRICS: Final = dict(
    zip(
        mads.ERROR_COUNTERS,
        (
            "symbol_error",
            "link_error_recovery",
            "link_downed",
            "receive_errors",
            "receive_remote_physical_errors",
            "receive_switch_relay_errors",
            "transmit_discards",
            "transmit_constraint_errors",
            "receive_constraint_errors",
            "local_link_integrity_errors",
            "excessive_buffer_overrun_errors",
            "vl15_dropped",
        ),
        strict=True,
    )
)
"""Names that exporters of InfiniBand counters give the counters of errors."""


@dataclass(frozen=True)
class WorstPort:
    """One of the ports that lost most bandwidth.

    Attributes:
        target: The port.
        stall_fraction: Share of its last interval; where its counter is full, of the last interval
            in which it counted, 0 where none is known.
        lost_gbps: Bandwidth lost to the stall, Gb/s.
        at_least: Whether the counter was reset or is full, so that the last interval was not
            measured in full.
        latched_seconds: Stall since the last reset that a full counter shows; None where it is not
            full.
    """

    target: PortTarget
    stall_fraction: float
    lost_gbps: float
    at_least: bool
    latched_seconds: float | None


@dataclass
class MetricsBoard:
    """Current state, written by the collector and read by the metrics endpoint.

    Attributes:
        sweeps: Sweeps completed.
        readings: Readings taken.
        failed: Readings that failed, by name of the device.
        sweep_seconds: How long the last sweep took.
        overruns: Sweeps that took longer than the interval.
        changes: Changes of links and devices, by kind.
        down: Ports whose links were in use and are not.
        extra: Returns further metrics of the collector: name, kind, help and value.

    A port without a reading in ``MAX_MISSED_SWEEPS`` sweeps is hidden until it is read again, as
    its last values are out of date. Of rounds, the last one of each port is shown.

    A full stall counter no longer counts, so a port that stalls would appear to recover when its
    counter fills up. The share of its last measured interval is kept instead until the counter is
    reset, or less where the traffic leaves less room: a port does not wait while it sends.
    """

    sweeps: int = 0
    readings: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    down: list[PortTarget] = field(default_factory=list)
    sweep_seconds: float = 0.0
    overruns: int = 0
    totals: ExchangeStatistics = field(default_factory=ExchangeStatistics)
    unreachable: int = 0
    started: float = field(default_factory=time.monotonic)
    _lock: Lock = field(default_factory=Lock)
    _table: TargetTable = field(default_factory=lambda: TargetTable.of(()))
    _labels: list[str] = field(default_factory=list)
    _last: Rows = field(default_factory=lambda: np.zeros(0, RAW))
    _stall: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _measured: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _flags: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    _errors: Rows = field(default_factory=lambda: np.zeros(0, ERRORS["values"]))
    _sweep: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _jumped: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    _resets: int = 0
    _wraps: int = 0
    _impossible: int = 0
    extra: Callable[[], Sequence[tuple[str, str, str, float | int]]] = tuple

    def begin(self, targets: Sequence[PortTarget], earlier: Rows | None = None) -> None:
        """Replace the ports. Those that stay keep their state.

        Args:
            targets: The ports.
            earlier: Last readings of a previous session, as rows of ``targets``. Intervals begin
                there. The readings themselves are out of date and not shown.
        """
        count = len(targets)
        with self._lock:
            before = {_identity(target): row for row, target in enumerate(self._table.targets)}
            kept = [(row, before.get(_identity(target), -1)) for row, target in enumerate(targets)]
            new, old = np.array([pair for pair in kept if pair[1] >= 0], np.int64).reshape(-1, 2).T
            fresh = {
                "_last": np.zeros(count, RAW),
                "_stall": np.full(count, np.nan),
                "_measured": np.full(count, np.nan),
                "_flags": np.zeros(count, np.uint32),
                "_errors": np.zeros(count, ERRORS["values"]),
                "_sweep": np.full(count, -MAX_MISSED_SWEEPS - 1),
                "_jumped": np.zeros(count, np.bool_),
            }
            if earlier is not None:
                fresh["_last"][earlier["target"]] = earlier
            for name, column in fresh.items():
                column[new] = getattr(self, name)[old]
                setattr(self, name, column)
            self._last["target"] = np.arange(count)
            self._table = TargetTable.of(targets)
            self._labels = [_port_labels(target) for target in targets]

    def update(self, rows: Rows) -> None:
        """Add readings. Of several readings of a port the last counts."""
        if not len(rows):
            return
        _, reverse = np.unique(rows["target"][::-1], return_index=True)
        latest = rows[len(rows) - 1 - reverse]
        at = latest["target"]
        with self._lock:
            before = self._last[at]
            seen = (before["time_ns"] > 0) & (before["time_ns"] < latest["time_ns"])
            steps = difference(before[seen], latest[seen], self._table)
            self._flags[at[seen]] = steps.flags
            self._resets += int(np.count_nonzero(steps.flags & int(Flag.RESET)))
            wrong = int(Flag.IMPOSSIBLE)
            self._impossible += int(
                np.count_nonzero(steps.flags & (wrong | int(Flag.DATA_IMPOSSIBLE)))
            )
            # A counter that reached its largest value faster than possible is not a lower bound.
            self._jumped[at[seen]] |= (steps.flags & wrong) != 0
            self._jumped[at] &= self._table.latched(latest)
            self._note_stall(latest[seen], steps)
            self._wraps += int(np.count_nonzero(steps.flags & int(Flag.WRAP)))
            self._last[at] = latest
            self._sweep[at] = self.sweeps
            self.readings += len(rows)

    def update_errors(self, errors: Rows) -> None:
        """Add counters of errors, rows of ``ERRORS``."""
        with self._lock:
            self._errors[errors["target"]] = errors["values"]

    def _note_stall(self, rows: Rows, steps: IntervalColumns) -> None:
        """Take over the stall of the intervals that end with ``rows``. The lock is held."""
        at = rows["target"]
        share = stall_fraction(steps, at, self._table)
        full = self._table.latched(rows) & ~self._jumped[at]
        # The interval in which a counter fills up is cut short by it.
        measured = np.where(full, np.fmax(self._measured[at], share), share)
        with np.errstate(divide="ignore", invalid="ignore"):
            sent = steps.words * 8.0 * WORD_BYTES / (self._table.gbps[at] * steps.interval_ns)
        sent[steps.unknown["words"] | ~np.isfinite(sent)] = 0.0
        self._stall[at] = np.where(full, np.minimum(measured, np.clip(1 - sent, 0, 1)), share)
        self._measured[at] = measured

    def _find_full(self) -> NDArray[np.bool_]:
        """Which ports have a full stall counter that is plausible. The lock is held."""
        out = np.zeros(len(self._last), np.bool_)
        read = np.flatnonzero(self._last["time_ns"] > 0)
        out[read] = self._table.latched(self._last[read]) & ~self._jumped[read]
        return out

    def _stall_bounds(self) -> NDArray[np.float64]:
        """Stall fractions of the last intervals; where a counter is full and none is known, 0."""
        return np.where(self._find_full() & np.isnan(self._stall), 0.0, self._stall)

    def lost_gbps(self) -> NDArray[np.float64]:
        """Bandwidth each port lost to stalls in its last interval, Gb/s; NaN where not known."""
        return np.clip(self._stall_bounds(), 0.0, 1.0) * self._table.gbps

    def _find_recent(self) -> NDArray[np.bool_]:
        """Which ports were read recently. The lock is held."""
        missed = self.sweeps - self._sweep - 1
        return np.asarray((self._last["time_ns"] > 0) & (missed < MAX_MISSED_SWEEPS), np.bool_)

    def worst(self, count: int) -> list[WorstPort]:
        """The ports that lost most, those whose stall counter is full first."""
        with self._lock:
            bound, full, shown = self._stall_bounds(), self._find_full(), self._find_recent()
            lost = np.where(shown, np.nan_to_num(self.lost_gbps(), nan=-1.0), -1.0)
            first = full & shown
            order = np.lexsort((-lost, ~first))[:count].tolist()
            least = ((self._flags & int(Flag.AT_LEAST)) != 0) | full
            return [
                WorstPort(
                    self._table.targets[i],
                    float(bound[i]),
                    float(lost[i]),
                    bool(least[i]),
                    float(self._table.latched_ns[i]) / 1e9 if first[i] else None,
                )
                for i in order
                if first[i] or lost[i] > 0
            ]

    @property
    def resets(self) -> int:
        """Number of counter resets by others that were detected."""
        return self._resets

    @property
    def edition(self) -> tuple[int, int]:
        """Changes when a sweep ends.

        If none has ended, as in rounds, it changes with every reading.
        """
        return self.sweeps, 0 if self.sweeps else self.readings

    def metrics(self) -> str:
        """Everything in the text format of Prometheus, version 0.0.4."""
        with self._lock:
            table, last = self._table, self._last.copy()
            stall, flags, lost = self._stall_bounds(), self._flags.copy(), self.lost_gbps()
            full, errors = self._find_full(), self._errors.copy()
            seen = np.flatnonzero(self._find_recent())
            labels = [self._labels[i] for i in seen.tolist()]
        at_least = ((flags & int(Flag.AT_LEAST)) != 0) | full
        latched = np.where(full, table.latched_ns / 1e9, np.nan)
        high = np.maximum(np.minimum(stall * table.tick_high_ns / table.tick_ns, 1.0), stall)
        high[~(table.tick_high_ns > table.tick_ns)] = np.nan
        # Of 29,808 ports each metric without a gap takes 100 kB of a page.
        lost[~((lost > 0) | full)] = np.nan
        lines = self._collector_metrics()
        columns: list[_Family] = [
            *_counter_families(last[seen]),
            (
                "stall_ratio",
                "gauge",
                "Share of the last interval with data and no credit; of a "
                "full counter, of the last interval in which it counted.",
                stall[seen].tolist(),
            ),
            (
                "stall_high_ratio",
                "gauge",
                "The most that stall_ratio may be, where the length of a "
                "tick is known within bounds only.",
                high[seen].tolist(),
            ),
            (
                "lost_gbps",
                "gauge",
                "Bandwidth that ports lost to stalls, Gb/s: stall_ratio times data rate.",
                lost[seen].tolist(),
            ),
            ("capacity_gbps", "gauge", "Data rate of the port, Gb/s.", table.gbps[seen].tolist()),
            (
                "at_least",
                "gauge",
                "1 of ports whose stall counter is at its maximum or was reset.",
                np.where(at_least, 1.0, np.nan)[seen].tolist(),
            ),
            (
                "latched_stall_seconds",
                "gauge",
                "Lower bound of the stall since the last reset of a port whose counter is full.",
                latched[seen].tolist(),
            ),
            *_error_families(errors[seen]),
        ]
        for name, kind, help_text, values in columns:
            lines += family(f"tailback_port_{name}", kind, help_text)
            lines += samples(f"tailback_port_{name}", values, labels)
        lines += self._link_metrics([table.targets[i] for i in seen.tolist()], labels)
        return "\n".join(lines) + "\n"

    def _link_metrics(self, targets: Sequence[PortTarget], labels: list[str]) -> list[str]:
        """Whether links are in use, and what they are, those that are down last."""
        down = list(self.down)
        name = "tailback_port_up"
        lines = family(name, "gauge", "1 if the link is in use, 0 if it was and is not.")
        lines += samples(name, [1] * len(labels), labels)
        lines += [sample(name, 0, _port_labels(target)) for target in down]
        lines += family(INFO, "gauge", "1; what the link of the port is, or was.")
        return lines + [sample(INFO, 1, _link_labels(target)) for target in (*targets, *down)]

    def _collector_metrics(self) -> list[str]:
        seconds = max(time.monotonic() - self.started, 1e-9)
        families: list[tuple[str, str, str, float | int]] = [
            ("sweeps_total", "counter", "Sweeps completed.", self.sweeps),
            ("readings_total", "counter", "Readings taken.", self.readings),
            ("overruns_total", "counter", "Sweeps longer than the interval.", self.overruns),
            ("sweep_seconds", "gauge", "Duration of the last sweep.", self.sweep_seconds),
            ("mads_sent_total", "counter", "Management datagrams sent.", self.totals.sent),
            ("mads_repeated_total", "counter", "Datagrams sent again.", self.totals.repeated),
            ("mads_per_second", "gauge", "Average since the start.", self.totals.sent / seconds),
            (
                "cpu_seconds_total",
                "counter",
                "Processor time of the collector.",
                time.process_time(),
            ),
            ("nodes_unreachable", "gauge", "Devices given up in the last sweep.", self.unreachable),
            ("resets_total", "counter", "Counters found reset.", self._resets),
            ("wraps_total", "counter", "Counters found wrapped.", self._wraps),
            (
                "impossible_readings_total",
                "counter",
                "Readings left out: they rose faster than possible.",
                self._impossible,
            ),
            *self.extra(),
        ]
        lines = []
        for name, kind, help_text, value in families:
            lines += family(f"tailback_collector_{name}", kind, help_text)
            lines.append(sample(f"tailback_collector_{name}", value))
        name = "tailback_collector_reads_failed_total"
        lines += family(name, "counter", "Readings failed.")
        failed = by_label(sorted(self.failed.copy().items()))
        lines += [sample(name, count, f'{{node="{node}"}}') for node, count in failed.items()]
        name = "tailback_collector_changes_total"
        lines += family(name, "counter", "Changes of links and devices.")
        lines += [
            sample(name, self.changes[change], f'{{change="{change}"}}') for change in sorted(KINDS)
        ]
        return lines


_Family = tuple[str, str, str, list[float | int]]
"""Name, kind, help and values of a metric of ports."""


def _counter_families(rows: Rows) -> list[_Family]:
    """The counters of data, packets and waits as read."""
    # No value where the device has no counter: a 0 would mean that nothing waits there.
    counts = ((rows["flags"] & int(Flag.NO_COUNTER)) == 0).tolist()
    waits = [
        wait if count else np.nan for wait, count in zip(rows["wait"].tolist(), counts, strict=True)
    ]
    families: list[_Family] = []
    for name, done, data, packets in (
        ("xmit", "sent", "words", "packets"),
        ("receive", "received", "received_words", "received_packets"),
    ):
        octets = [words * WORD_BYTES for words in rows[data].tolist()]
        by_device = f"{done}, as counted by the device."
        families += [
            (f"{name}_bytes_total", "counter", f"Bytes {by_device}", octets),
            (f"{name}_packets_total", "counter", f"Packets {by_device}", rows[packets].tolist()),
        ]
    help_text = "Ticks with data to send and no credit."
    return [*families, ("xmit_wait_ticks_total", "counter", help_text, waits)]


def _error_families(errors: Rows) -> list[_Family]:
    """Each counter of errors, also of those that are 0.

    Without them a rise from 0 could not be seen in the series.
    """
    return [
        (
            f"{name}_total",
            "counter",
            f"{counter} of the device, which may stop at its maximum.",
            errors[:, column].tolist(),
        )
        for column, (counter, name) in enumerate(_ERROR_METRICS.items())
    ]


def _identity(target: PortTarget) -> tuple[int, int, bool, bool]:
    """Port and widths of its counters: if these agree, its series of readings continues."""
    return target.guid, target.port, target.extended, target.extended_wait


def _port_labels(target: PortTarget, more: Mapping[str, str] = MappingProxyType({})) -> str:
    return labelled(
        {
            "guid": f"0x{target.guid:016x}",
            "node": target.node_name,
            "port": str(target.port),
            **more,
        }
    )


def _link_labels(target: PortTarget) -> str:
    """Labels of the port and of its link; empty where it is not known."""
    more = {
        "peer": target.peer_name,
        "peer_port": str(target.peer_port or ""),
        "width": f"{target.lanes}x" if target.lanes else "",
        "speed": speed_name(target.gbps, target.lanes) or "",
    }
    return _port_labels(target, more)
