"""CSV of Ethernet interfaces: bytes, packets, queue, drops of each interface at each instant.

Written by samplers of ``ip -s link`` and ``tc -s qdisc`` and by exports of SNMP (IF-MIB)::

    time_utc,node,iface,tx_bytes,tx_packets,qdisc_backlog,qdisc_drops,qdisc_overlimits
    2026-11-22T11:06:10.4Z,s0,l0,12903787,13197,0,0,13999

Only what a port *sends* is kept: what it receives is sent by the port at the other end. Plain or
    gzip.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import polars as pl

from tailback.io.delimited import Delimited, header_names, header_of, normal, parse
from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.findings import port_events
from tailback.port_counters.findings.port_events import meaning_of
from tailback.port_counters.readers.model import CounterData, numbered
from tailback.port_counters.schema import ETHERNET, READINGS, U32_MAX, CounterError, conform

HAS_TIME_STAMPS = True

ALIASES: Final = {
    "time": (
        "time_utc",
        "timestamp_utc",
        "utc",
        "time",
        "timestamp",
        "datetime",
        "time_ns",
        "timestamp_ns",
        "time_unix_ns",
        "time_unix_s",
        "unix_s",
        "unix_time",
        "epoch",
        "time_s",
        "ts",
        "time_ms",
    ),
    "node": (
        "node",
        "node_name",
        "host",
        "hostname",
        "device",
        "switch",
        "instance",
        "agent_host",
        "sysname",
        "sys_name",
    ),
    "interface": (
        "iface",
        "interface",
        "ifname",
        "if_name",
        "netdev",
        "port_name",
        "dev",
        "port",
        "ifdescr",
    ),
    "bytes": (
        "tx_bytes",
        "bytes_tx",
        "out_octets",
        "tx_octets",
        "ifhcoutoctets",
        "ifoutoctets",
        "out_bytes",
        "bytes_out",
        "bytes_sent",
        "transmit_bytes",
        "transmit_bytes_total",
    ),
    "packets": (
        "tx_packets",
        "packets_tx",
        "out_packets",
        "packets_out",
        "packets_sent",
        "ifhcoutucastpkts",
        "ifoutucastpkts",
        "transmit_packets",
        "transmit_packets_total",
    ),
    "backlog": (
        "qdisc_backlog",
        "backlog_bytes",
        "backlog",
        "queue_bytes",
        "queue_length_bytes",
        "queue_depth_bytes",
        "qdepth_bytes",
    ),
    "drops": (
        "qdisc_drops",
        "tx_drops",
        "tx_dropped",
        "drops",
        "dropped",
        "out_discards",
        "tx_discards",
        "ifoutdiscards",
        "transmit_drop_total",
    ),
    "overlimits": ("qdisc_overlimits", "overlimits"),
    "rate": (
        "rate_mbit",
        "rate_mbps",
        "speed_mbps",
        "speed_mbit",
        "ifhighspeed",
        "rate_gbit",
        "rate_gbps",
        "speed_gbps",
        "speed",
        "ifspeed",
    ),
}
"""Names of the columns, as ``delimited.normal`` gives them.

``speed`` is Linux's, in Mb/s; ``ifspeed`` is that of IF-MIB, in b/s."""

_NEEDED: Final = ("time", "node", "interface", "bytes")
_TARGETS: Final = {
    "bytes": "data_bytes",
    "packets": "packets",
    "backlog": "backlog_bytes",
    "drops": "drops",
    "overlimits": "overlimits",
}
_GIGABIT: Final = re.compile(r"g(?:bit|bps)$")
_COUNTER32: Final = {
    "bytes": ("ifoutoctets", "data_limit"),
    "packets": ("ifoutucastpkts", "packets_limit"),
}
"""Columns that IF-MIB (RFC 2863) counts in 32 bits, and the column of their largest value."""


def sniff(path: Path) -> bool:
    """A CSV whose header names a time, a node, an interface and the bytes it sent."""
    if not is_input_file(path):
        return False
    text = head(path)
    if text.lstrip().startswith("#"):  # LDMS
        return False
    if "xmit_wait" in text.partition("\n")[0]:  # adapters of InfiniBand, recorded
        return False
    return not missing_columns(text)


def missing_columns(text: str) -> list[str]:
    """Which of the columns it needs are not in the header that ``text`` starts with."""
    found = header_of(text, ALIASES) or {}
    return [role for role in _NEEDED if role not in found]


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the counters of one file.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every row has its time. Given, it is added to all of them.

    Raises:
        CounterError: It is damaged, a column is missing, or a value is not a number; with line and
            column.
    """
    names = [name for name in header_names(head(path)) if meaning_of(name) is not None]
    aliases = {**ALIASES, **{f"event {name}": (normal(name),) for name in names}}
    table = parse(content(path, CounterError), aliases, _NEEDED, path=path, error_type=CounterError)
    columns = {
        "time_ns": _times(table) + (time_ns or 0),
        "node_name": table.need("node"),
        "interface": table.need("interface"),
        **{
            target: table.number(role, whole=True)
            for role, target in _TARGETS.items()
            if role in table.header
        },
    }
    for role, (name, limit) in _COUNTER32.items():
        if normal(table.header.get(role, "")) == name:
            values = columns[_TARGETS[role]]
            # Exporters of 64 bits use the name too.
            narrow = U32_MAX if (values <= U32_MAX).all() else None
            columns[limit] = pl.repeat(narrow, len(values), dtype=pl.UInt64, eager=True)
    rate = _rates(table)
    # An interface that is down has speed 0 or -1.
    columns["capacity_gbps"] = pl.select(pl.when(rate > 0).then(rate)).to_series()
    frame = pl.DataFrame(columns).with_columns(port=pl.lit(0, pl.UInt16), source=pl.lit(ETHERNET))
    out = CounterData(numbered(conform(READINGS, frame)), unknown=table.unused)
    down = frame.filter(rate <= 0).with_columns(capacity_gbps=0.0)
    out.events = pl.concat(
        [_events(table, frame, names), port_events.speeds(conform(READINGS, down))]
    )
    if "data_limit" in frame.columns and frame["data_limit"].is_not_null().any():
        out.notes.append(
            f"{path.name}: {table.header['bytes']} counts 32 bits, which are full after 34 s at "
            "1 Gb/s: bytes are lower bounds where an interval is longer; read ifHCOutOctets"
        )
    if frame.is_empty():
        out.notes.append(f"{path.name}: no row under its header")
    again = frame.select("time_ns", "node_name", "interface").is_duplicated().sum()
    if again:
        out.notes.append(f"{path.name}: rows of one interface at one and the same time: {again}")
    return out


def _times(table: Delimited) -> pl.Series:
    table.need("time")
    return table.instants("time")


def _rates(table: Delimited) -> pl.Series:
    """The rate of each row in Gb/s, null where unknown."""
    if "rate" not in table.header:
        return pl.repeat(None, table.rows.height, dtype=pl.Float64, eager=True)
    name, rate = normal(table.header["rate"]), table.number("rate")
    if name == "ifspeed":  # its largest value stands for every higher rate (RFC 2863)
        return pl.select(pl.when(rate != U32_MAX).then(rate / 1e9)).to_series()
    return rate * (1.0 if _GIGABIT.search(name) else 1e-3)


def _events(table: Delimited, frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The columns of errors, pauses and marks as rows of ``port_events.READINGS``."""
    counters = {
        name: table.number(role, whole=True)
        for name in names
        if (role := f"event {name}") in table.header
    }
    place = frame.select("time_ns", "node_name", "interface", "port").with_columns(
        **counters, node_guid=pl.lit(0, pl.UInt64)
    )
    rows = place.unpivot(
        list(counters),
        variable_name="counter",
        index=["time_ns", "node_guid", "node_name", "port", "interface"],
    )
    kept = rows.drop_nulls("value") if counters else rows.clear()
    return kept.select(pl.col(name).cast(dtype) for name, dtype in port_events.READINGS.items())
