"""What adapters of hosts counted of pauses, marks, losses and errors while a program ran.

Names of counters are the driver's. Those of mlx5 are used with the meaning that the kernel
documents (Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst, and NVIDIA's
list of RDMA ``hw_counters``); of other drivers only the names that state direction and kind: frames
of link-level or priority flow control received and sent, and discarded packets. None of these
counters knows whose packets they were, and a number of pause frames is not a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import polars as pl

from tailback.schema import Column, Table

READINGS: Final = {
    "time_ns": pl.Int64, "node_name": pl.String, "interface": pl.String, "counter": pl.String,
    "value": pl.UInt64,
}  # fmt: skip
"""Columns of readings: a value of one counter of one adapter at one instant, cumulative."""

ADAPTER_FINDINGS: Final = Table(
    "adapter_findings",
    "what an adapter of a host counted while the program ran, one row for each kind",
    (
        Column("finding", pl.String, "paused, pausing, marked, slowed, lost … (see KINDS)"),
        Column("node_name", pl.String, "host"),
        Column("interface", pl.String, "interface, or device and port"),
        Column("counters", pl.List(pl.String), "counters that rose, as the driver names them"),
        Column("count", pl.UInt64, "events while the program ran"),
        Column("per_second", pl.Float64, "the same a second"),
        Column("paused_share", pl.Float64, "share of the time that it was paused, null unknown"),
    ),
)

KINDS: Final = (
    "errors", "timeouts", "lost", "discarded-sent", "discarded", "no-buffer", "not-ready",
    "paused", "pausing", "marked", "notifying", "slowed", "out-of-order",
)  # fmt: skip
"""Kinds of findings, in the order in which they are told."""

_EXACT: Final = {
    "packet_seq_err": "lost", "local_ack_timeout_err": "timeouts", "rnr_nak_retry_err": "not-ready",
    "out_of_sequence": "out-of-order", "out_of_buffer": "no-buffer", "rx_out_of_buffer":
    "no-buffer", "ecn_marked": "marked", "rx_ecn_mark": "marked", "cnp_sent": "notifying",
    "cnp_handled": "slowed", "tx_discards": "discarded-sent", "symbol_error": "errors",
    "port_rcv_errors": "errors", "link_error_recovery": "errors", "link_downed": "errors",
    "rx_errors": "errors", "tx_errors": "errors",
}  # fmt: skip
"""Counters of InfiniBand ports as the recorder's columns name them, and of network drivers."""

_PAUSE: Final = re.compile(r"pause|xoff|pfc")
_NOT_FRAMES: Final = re.compile(r"duration|transition|xon|storm|stop|_us$|time")
_PAUSED_US: Final = re.compile(r"rx_(?:prio[0-7]|global)_pause_duration")
"""The only durations whose unit, microseconds, is documented."""
_DISCARDS: Final = re.compile(r"(?:prio[0-7]_|pri[0-7]_)?discards?(?:_phy)?")
_PRIORITY: Final = re.compile(r"pri(?:o|ority)?[_-]?[0-7]")
_DIRECTION: Final = re.compile(r"(?:^|[._-])(rx|tx)(?=[._-]|$)")


def kind_of(counter: str) -> str | None:
    """The kind of finding that the rise of a counter is; None if its name does not say."""
    name = counter.lower()
    if name in _EXACT:
        return _EXACT[name]
    found = _DIRECTION.search(name)
    if found is None or _NOT_FRAMES.search(name):
        return None
    received = found[1] == "rx"
    if _PAUSE.search(name):
        return "paused" if received else "pausing"
    rest = _DIRECTION.sub("", name).strip("._-")
    if _DISCARDS.fullmatch(rest):
        return "discarded" if received else "discarded-sent"
    return None


def adapter_findings(
    readings: pl.DataFrame, unused: Mapping[str, frozenset[str]] | None = None
) -> pl.DataFrame:
    """Sum up what rose, by adapter and kind.

    Args:
        readings: Rows of :data:`READINGS`, in any order.
        unused: Interfaces of each host that do not carry the job's messages, such as that of its
            management network; they are left out.

    Returns:
        Rows of :data:`ADAPTER_FINDINGS`, by kind and number; empty if nothing rose.
    """
    rises = _rises(readings)
    rows = []
    for (host, interface), part in rises.group_by("node_name", "interface", maintain_order=True):
        if str(interface) in (unused or {}).get(str(host), ()):
            continue
        counts = dict(part.select("counter", "rise").rows())
        seconds = float(part["seconds"].max() or 0.0)  # type: ignore[arg-type]
        paused = [counts[c] / 1e6 for c in counts if _PAUSED_US.fullmatch(c) and counts[c]]
        by_kind: dict[str, dict[str, int]] = {}
        for counter, rise in counts.items():
            kind = kind_of(counter)
            if rise and kind is not None:
                by_kind.setdefault(kind, {})[counter] = rise
        if "marked" in by_kind:
            by_kind.pop("notifying", None)  # They follow from the marked packets.
        if paused and "paused" not in by_kind:
            by_kind["paused"] = {}
        for kind, own in by_kind.items():
            total = _total(kind, own)
            # Priorities are paused at the same time or not: the longest is the least it can be.
            share = max(paused) / seconds if kind == "paused" and paused and seconds else None
            rate = total / seconds if seconds else None
            rows.append((kind, host, interface, sorted(own), total, rate, share))
    frame = pl.DataFrame(rows, schema=ADAPTER_FINDINGS.polars_schema, orient="row")
    order = pl.col("finding").replace_strict(KINDS, range(len(KINDS)), return_dtype=pl.Int8)
    return frame.sort(order, -pl.col("count").cast(pl.Float64), "node_name", "interface")


def _total(kind: str, counts: Mapping[str, int]) -> int:
    """Events of several counters of one kind.

    A driver counts the same frames for each priority and for the port.
    """
    if kind == "errors":
        return sum(counts.values())
    priorities = sum(count for name, count in counts.items() if _PRIORITY.search(name.lower()))
    others = (count for name, count in counts.items() if not _PRIORITY.search(name.lower()))
    return max(priorities, *others, 0)


def _rises(readings: pl.DataFrame) -> pl.DataFrame:
    """Rise of each counter of each adapter, and the seconds between its readings.

    A counter that fell was reset: what it counted before is known, and what it counted since.
    """
    key = ("node_name", "interface", "counter")
    value = pl.col("value").cast(pl.Int128)
    step = value - value.shift(1).over(key)
    return (
        readings.drop_nulls().sort("time_ns", maintain_order=True)
        .with_columns(step=pl.when(step >= 0).then(step).otherwise(pl.when(step < 0).then(value)))
        .group_by(key, maintain_order=True)
        .agg(
            rise=pl.col("step").sum(),
            seconds=(pl.col("time_ns").max() - pl.col("time_ns").min()) / 1e9,
        )
        .sort(key)
    )  # fmt: skip
