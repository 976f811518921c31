"""CSV of Ethernet interfaces: bytes, packets, queue, drops of each interface at each instant.

Written by samplers of ``ip -s link`` and ``tc -s qdisc`` and by exports of SNMP (IF-MIB)::

    time_utc,node,iface,tx_bytes,tx_packets,qdisc_backlog,qdisc_drops,qdisc_overlimits
    2026-11-22T11:06:10.4Z,s0,l0,12903787,13197,0,0,13999

Only counters of *sent* data are kept. The port at the other end sends the received data. Plain or
    gzip.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from tailback.errors import InvalidValueError
from tailback.io.delimited import Delimited, header_names, header_of, normal
from tailback.io.input_files import head, is_input_file
from tailback.port_counters.findings import port_events
from tailback.port_counters.readers.model import (
    FAR_ENDS,
    CounterData,
    events_of_table,
    identified,
    parse_with_events,
    with_all_drops,
)
from tailback.port_counters.schema import ETHERNET, READINGS, U32_MAX, conform
from tailback.units import RATE_UNITS, column_gbps

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
    "queue drops": ("qdisc_drops",),
    "drops": (
        "tx_drops",
        "tx_dropped",
        "drops",
        "dropped",
        "out_discards",
        "tx_discards",
        "ifoutdiscards",
        "if_out_discards",
        "transmit_drop_total",
    ),
    "overlimits": ("qdisc_overlimits", "overlimits"),
    "rate": (
        *(f"{stem}_{unit}" for unit in RATE_UNITS for stem in ("rate", "speed")),
        "ifhighspeed",
        "speed",
        "ifspeed",
    ),
    "peer": (
        *("peer", "peer_name", "peer_node", "neighbor", "neighbour", "lldp_neighbor"),
        *("remote_host", "remote_device", "remote_node", "far_end"),
    ),
}
"""Names of the columns, as ``delimited.normal`` gives them.

``speed`` is Linux's, in Mb/s; ``ifspeed`` is that of IF-MIB, in b/s."""

_LABELS: Final = frozenset(
    (
        *ALIASES["node"],
        *ALIASES["interface"],
        *("cluster", "fabric", "site", "datacenter", "region", "zone", "pod", "rack", "chassis"),
        *("slot", "unit", "vrf", "netns", "ifindex", "if_index", "mac", "serial", "component_id"),
    )
)
"""Columns that identify a device or interface beside those that name it."""

NEEDED: Final = ("time", "node", "interface", "bytes")
_TARGETS: Final = {
    "bytes": "data_bytes",
    "packets": "packets",
    "backlog": "backlog_bytes",
    "queue drops": "queue_drops",
    "drops": "drops",
    "overlimits": "overlimits",
}
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
    return set(NEEDED) <= set(header_of(text, ALIASES) or {})


def _unit(table: Delimited) -> float:
    """Unit of the rates in gigabits per second: Mb/s in a column that states none."""
    try:
        unit = column_gbps(table.header["rate"])
    except InvalidValueError as error:
        raise table.error_at("rate", 1, error.message, error.remedy) from None
    return 1e-3 if unit is None else unit


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the counters of one file.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every row has its time. Given, it is added to all of them.

    Raises:
        CounterError: It is damaged, a column is missing, or a value is not a number; with line and
            column.
    """
    taken = set((header_of(head(path), ALIASES) or {}).values())
    labels = [
        name
        for index, name in enumerate(header_names(head(path)))
        if normal(name) in _LABELS and index not in taken
    ]
    of_label = {f"label {name}": name for name in labels}
    aliases = {**ALIASES, **{role: (normal(name),) for role, name in of_label.items()}}
    table, names, left_out = parse_with_events(
        path, aliases, NEEDED, integers=_TARGETS, numbers=("rate",)
    )
    columns = {
        "time_ns": table.instants("time") + (time_ns or 0),
        "node_name": table.need("node"),
        "interface": table.need("interface"),
        **{
            target: table.number(role, integer=True)
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
    columns["peer_name"] = (
        table.rows["peer"]
        if "peer" in table.header
        else pl.repeat(None, table.rows.height, dtype=pl.String, eager=True)
    )
    columns |= {role: table.rows[role] for role in of_label}
    frame = pl.DataFrame(columns).with_columns(port=pl.lit(0, pl.UInt16), source=pl.lit(ETHERNET))
    frame = with_all_drops(frame)
    frame, devices = identified(frame, of_label)
    out = CounterData(
        conform(READINGS, frame.drop("peer_name", *of_label)),
        unknown=table.unused,
        devices=devices,
        left_out=left_out,
        far_ends=_far_ends(frame),
    )
    down = frame.filter(rate <= 0).with_columns(capacity_gbps=0.0).drop("peer_name", *of_label)
    out.events = pl.concat(
        [events_of_table(table, frame, names), port_events.speeds(conform(READINGS, down))]
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


def _far_ends(frame: pl.DataFrame) -> pl.DataFrame:
    """Far ends of the interfaces, ``FAR_ENDS``."""
    absent = {"node_guid": 0}
    columns = [
        pl.col(name).cast(dtype)
        if name in frame.columns
        else pl.lit(absent.get(name), dtype).alias(name)
        for name, dtype in FAR_ENDS.items()
    ]
    return frame.drop_nulls("peer_name").select(columns).unique(maintain_order=True)


def _rates(table: Delimited) -> pl.Series:
    """The rate of each row in Gb/s, null where unknown."""
    if "rate" not in table.header:
        return pl.repeat(None, table.rows.height, dtype=pl.Float64, eager=True)
    rate = table.number("rate")
    if normal(table.header["rate"]) == "ifspeed":
        # Its largest value stands for every higher rate (RFC 2863).
        return pl.select(pl.when(rate != U32_MAX).then(rate / 1e9)).to_series()
    return rate * _unit(table)
