"""The latest state of every port, and how the collector itself is doing, for those who watch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tailback.counters.collect import mad as mads
from tailback.counters.collect.difference import difference, stall_fraction
from tailback.counters.collect.exchange import Totals
from tailback.counters.collect.readings import RAW, WORD_BYTES, Rows, TargetTable
from tailback.counters.collect.subnet import PortTarget
from tailback.counters.schema import Flag

_LONGEST_LABEL: Final = 128

MISSED: Final = 3
"""Sweeps in a row without a reading of a port after which its metrics are gone."""


@dataclass
class Board:
    """What is known at present; written by the collector, read by the metrics endpoint.

    Attributes:
        sweeps: Sweeps completed.
        readings: Readings taken.
        failed: Readings that failed, by name of the device.
        sweep_seconds: How long the last sweep took.
        overruns: Sweeps that took longer than the interval.

    A port without a reading in ``MISSED`` sweeps is not shown until it is read again: what it did
    last is not what it does. Of rounds the last one of each port is shown.
    """

    sweeps: int = 0
    readings: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    sweep_seconds: float = 0.0
    overruns: int = 0
    totals: Totals = field(default_factory=Totals)
    unreachable: int = 0
    started: float = field(default_factory=time.monotonic)
    _lock: Lock = field(default_factory=Lock)
    _table: TargetTable = field(default_factory=lambda: TargetTable.of(()))
    _last: Rows = field(default_factory=lambda: np.zeros(0, RAW))
    _stall: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _flags: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    _sweep: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _resets: int = 0
    _wraps: int = 0

    def begin(self, targets: Sequence[PortTarget]) -> None:
        """Forget the ports and watch these from now on."""
        with self._lock:
            self._table = TargetTable.of(targets)
            self._last = np.zeros(len(targets), RAW)
            self._stall = np.full(len(targets), np.nan)
            self._flags = np.zeros(len(targets), np.uint32)
            self._sweep = np.zeros(len(targets), np.int64)

    def update(self, rows: Rows) -> None:
        """Take readings; of several of one port the last counts."""
        if not len(rows):
            return
        _, reverse = np.unique(rows["target"][::-1], return_index=True)
        latest = rows[len(rows) - 1 - reverse]
        at = latest["target"]
        with self._lock:
            before = self._last[at]
            seen = (before["time_ns"] > 0) & (before["time_ns"] < latest["time_ns"])
            steps = difference(before[seen], latest[seen], self._table)
            self._stall[at[seen]] = stall_fraction(steps, at[seen], self._table)
            self._flags[at[seen]] = steps.flags
            self._resets += int(np.count_nonzero(steps.flags & int(Flag.RESET)))
            self._wraps += int(np.count_nonzero(steps.flags & int(Flag.WRAP)))
            self._last[at] = latest
            self._sweep[at] = self.sweeps
            self.readings += len(rows)

    def lost_gbps(self) -> NDArray[np.float64]:
        """Bandwidth stalls kept from each port in its last interval, Gb/s; NaN where not known."""
        return np.clip(self._stall, 0.0, 1.0) * self._table.gbps

    def _shown(self) -> NDArray[np.bool_]:
        """Which ports were read, and lately; the lock is held."""
        missed = self.sweeps - self._sweep - 1
        return np.asarray((self._last["time_ns"] > 0) & (missed < MISSED), np.bool_)

    def worst(self, count: int) -> list[tuple[PortTarget, float, float, bool]]:
        """The ports that lost most: target, stall fraction, lost Gb/s, whether at least that."""
        with self._lock:
            lost = np.nan_to_num(self.lost_gbps(), nan=-1.0)
            lost[~self._shown()] = -1.0
            order = [int(i) for i in np.argsort(-lost, kind="stable")[:count] if lost[i] > 0]
            least = int(Flag.AT_LEAST)
            return [
                (
                    self._table.targets[i],
                    float(self._stall[i]),
                    float(lost[i]),
                    bool(self._flags[i] & least),
                )
                for i in order
            ]

    @property
    def resets(self) -> int:
        """Counters found set back by others."""
        return self._resets

    def metrics(self) -> str:
        """Everything in the text format of Prometheus, version 0.0.4."""
        with self._lock:
            table, last = self._table, self._last.copy()
            stall, flags, lost = self._stall.copy(), self._flags.copy(), self.lost_gbps()
            seen = np.flatnonzero(self._shown())
        labels = [_port_labels(table.targets[i]) for i in seen.tolist()]
        narrow = table.wait_top == mads.ALL_ONES_32
        latched = narrow & (last["wait"] == table.wait_top)
        at_least = ((flags & int(Flag.AT_LEAST)) != 0) | latched
        words, waits = last["words"].tolist(), last["wait"].tolist()
        # No number at all where the device has none: a 0 would say that nothing waits there.
        counted = (last["flags"] & int(Flag.NO_COUNTER)) == 0
        lines = self._own()
        columns: list[tuple[str, str, str, list[float | int]]] = [
            ("xmit_bytes_total", "counter", "Bytes sent, as the device counts.",
             [words[i] * WORD_BYTES for i in seen.tolist()]),
            ("xmit_packets_total", "counter", "Packets sent, as the device counts.",
             last["packets"][seen].tolist()),
            ("xmit_wait_ticks_total", "counter", "Ticks with data to send and no credit.",
             [waits[i] if counted[i] else np.nan for i in seen.tolist()]),
            ("stall_ratio", "gauge", "Share of the last interval with data and no credit.",
             stall[seen].tolist()),
            ("lost_gbps", "gauge", "Bandwidth lost to stalls in the last interval, Gb/s.",
             lost[seen].tolist()),
            ("capacity_gbps", "gauge", "Data rate of the port, Gb/s.", table.gbps[seen].tolist()),
            ("at_least", "gauge", "1 where a counter stands at its top or was set back.",
             at_least[seen].astype(int).tolist()),
            ("read_timestamp_seconds", "gauge", "When the port was last read.",
             (last["time_ns"][seen] / 1e9).tolist()),
        ]  # fmt: skip
        for name, kind, help_text, values in columns:
            lines += _family(f"tailback_port_{name}", kind, help_text)
            lines += [
                f"tailback_port_{name}{{{label}}} {_number(value)}"
                for label, value in zip(labels, values, strict=True)
                if value == value
            ]
        return "\n".join(lines) + "\n"

    def _own(self) -> list[str]:
        seconds = max(time.monotonic() - self.started, 1e-9)
        own: list[tuple[str, str, str, float | int]] = [
            ("sweeps_total", "counter", "Sweeps completed.", self.sweeps),
            ("readings_total", "counter", "Readings taken.", self.readings),
            ("overruns_total", "counter", "Sweeps longer than the interval.", self.overruns),
            ("sweep_seconds", "gauge", "Duration of the last sweep.", self.sweep_seconds),
            ("mads_sent_total", "counter", "Management datagrams sent.", self.totals.sent),
            ("mads_repeated_total", "counter", "Datagrams sent again.", self.totals.repeated),
            ("mads_per_second", "gauge", "Average since the start.", self.totals.sent / seconds),
            ("cpu_seconds_total", "counter", "Processor time of the collector.",
             time.process_time()),
            ("nodes_unreachable", "gauge", "Devices given up in the last sweep.",
             self.unreachable),
            ("counter_resets_total", "counter", "Counters found set back.", self._resets),
            ("counter_wraps_total", "counter", "Counters found wrapped.", self._wraps),
        ]  # fmt: skip
        lines = []
        for name, kind, help_text, value in own:
            lines += _family(f"tailback_collector_{name}", kind, help_text)
            lines.append(f"tailback_collector_{name} {_number(value)}")
        failed = sorted(self.failed.copy().items())
        lines += _family("tailback_collector_reads_failed_total", "counter", "Readings failed.")
        lines += [
            f'tailback_collector_reads_failed_total{{node="{label(name)}"}} {count}'
            for name, count in _merged(failed)
        ]
        return lines


def _merged(failed: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Names that are cut to the same label make one sample, as two would be refused."""
    merged: Counter[str] = Counter()
    for name, count in failed:
        merged[name[:_LONGEST_LABEL]] += count
    return list(merged.items())


def _family(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _port_labels(target: PortTarget) -> str:
    return (
        f'guid="0x{target.guid:016x}",node="{label(target.node_name)}",port="{target.port}",'
        f'peer="{label(target.peer_name)}"'
    )


def label(text: str) -> str:
    """Text as the value of a label: cut to 128 characters, escaped as the format asks.

    Backslash, quote and newline are escaped; other control characters, which the format allows and
    terminals do not, become a question mark.
    """
    text = text[:_LONGEST_LABEL]
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return "".join(c if c.isprintable() else "?" for c in text)


def _number(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}" if value < 1e9 else repr(value)
