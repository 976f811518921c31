"""InfiniBand adapters of a host as CSV, as ``tailback record`` samples them from sysfs.

A line is one reading of one port::

    time_utc,node,iface,tx_bytes,tx_packets,xmit_wait,…,node_guid,rate
    2026-11-22T11:06:10.4Z,n1,mlx5_0/1,51615148,13197,90,…,b859:9f03:00c9:1a2c,100 Gb/sec (4X EDR)

A port is found in the fabric by the GUID of its adapter. In recordings without GUIDs it is found by
host and port number, if the host has one adapter. Only adapters are counted: no port of a switch is
in it. Data are bytes (the recorder multiplies the device's words of four octets), ``xmit_wait`` is
in ticks of the device.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import polars as pl

from tailback.fabric.rates import WIDTHS, data_rate_gbps
from tailback.io.delimited import Delimited, header_of
from tailback.io.input_files import head, is_input_file
from tailback.port_counters.readers.model import (
    CounterData,
    adapter_tick,
    events_of_table,
    identified,
    parse_with_events,
)
from tailback.port_counters.schema import READINGS, Flag, conform

HAS_TIME_STAMPS = True

ALIASES: Final = {
    "time": ("time_utc",),
    "node": ("node",),
    "interface": ("iface",),
    "bytes": ("tx_bytes",),
    "packets": ("tx_packets",),
    "wait": ("xmit_wait",),
    "guid": ("node_guid",),
    "rate": ("rate",),
}
_NEEDED: Final = ("time", "node", "interface", "bytes", "packets", "wait")
_PORT: Final = r"^([^/]+)/([0-9]{1,3})$"
_GUID: Final = re.compile(r"[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}")
_RATE: Final = re.compile(r"[0-9.]+ Gb/sec \((?P<width>[0-9]+X) (?P<speed>[A-Z0-9]+)\)")
_AGAIN: Final = "the file was cut or edited: drop the line, or record again"


def sniff(path: Path) -> bool:
    """A CSV whose header names a time, a node, a device and its ``xmit_wait``."""
    return is_input_file(path) and set(_NEEDED) <= set(header_of(head(path), ALIASES) or {})


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the counters of one file.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every row has its time. Given, it is added to all of them.

    Raises:
        CounterError: It is damaged, a column is missing, or a value is not what it should be; with
            line and column.
    """
    table, names, left_out = parse_with_events(
        path, ALIASES, _NEEDED, integers=("bytes", "packets", "wait")
    )
    device, port = _ports(table)
    frame = pl.DataFrame(
        {
            "time_ns": table.instants("time") + (time_ns or 0),
            "node_guid": _guids(table),
            "port": port,
            "node_name": table.need("node"),
            "device": device,
            "data_bytes": table.number("bytes", integer=True),
            "packets": table.number("packets", integer=True),
            "xmit_wait_ticks": table.number("wait", integer=True),
            "capacity_gbps": _rates(table),
        }
    ).with_columns(source=pl.lit("recorded infiniband"), flags=_missing())
    # Host and port number do not tell the ports of several adapters apart.
    several = pl.col("device").n_unique().over("node_name") > 1
    unclear = several & (pl.col("node_guid") == 0)
    frame = frame.with_columns(
        node_name=pl.when(unclear)
        .then(pl.concat_str("node_name", pl.lit(" "), "device"))
        .otherwise("node_name"),
        device=pl.when(pl.col("node_guid") == 0).then("device"),
    )
    frame, devices = identified(frame, {"device": "device"})
    # The recorder shortens the name. The packets were marked before they arrived.
    counter = pl.col("counter").replace("ecn_marked", "np_ecn_marked_roce_packets")
    events = events_of_table(table, frame, names).with_columns(counter)
    ticks = [
        adapter_tick(name, gbps, lanes)
        for name, gbps, lanes in zip(device, frame["capacity_gbps"], _lanes(table), strict=True)
    ]
    frame = frame.with_columns(
        pl.Series(column, [tick.get(column) for tick in ticks], pl.Float64)
        for column in ("tick_ns", "tick_high_ns")
    )
    out = CounterData(
        conform(READINGS, frame.drop("device")),
        unknown=table.unused,
        devices=devices,
        events=events,
        left_out=left_out,
    )
    if frame.is_empty():
        out.notes.append(f"{path.name}: no row under its header")
    return out


def _missing() -> pl.Expr:
    """Flags of readings that lack a counter."""
    missing = pl.col("xmit_wait_ticks").is_null() | pl.col("data_bytes").is_null()
    return pl.when(missing).then(int(Flag.NO_COUNTER)).otherwise(0)


def _ports(table: Delimited) -> tuple[pl.Series, pl.Series]:
    """Device and number of each row's port."""
    text = table.need("interface")
    device, port = text.str.extract(_PORT, 1), text.str.extract(_PORT, 2).cast(pl.UInt16)
    _refuse(table, "interface", device.is_null(), "a device and its port, like mlx5_0/1")
    return device, port


def _guids(table: Delimited) -> pl.Series:
    """GUID of each row's adapter, 0 where it is not recorded."""
    if "guid" not in table.header:
        return pl.Series([0], dtype=pl.UInt64).new_from_index(0, table.rows.height)
    text = table.rows["guid"]
    guid_of = {
        guid: int(guid.replace(":", ""), 16)
        for guid in text.unique().drop_nulls().to_list()
        if _GUID.fullmatch(guid)
    }
    out = text.replace_strict(guid_of, default=None, return_dtype=pl.UInt64)
    _refuse(table, "guid", out.is_null() & text.is_not_null(), "a GUID like b859:9f03:00c9:1a2c")
    return out.fill_null(0)


def _rates(table: Delimited) -> pl.Series:
    """Data rate of each row's port in Gb/s, null where it is unknown."""
    if "rate" not in table.header:
        return pl.Series([None], dtype=pl.Float64).new_from_index(0, table.rows.height)
    text = table.rows["rate"]
    rate_of = {rate: _RATE.fullmatch(rate) for rate in text.unique().drop_nulls().to_list()}
    gbps_of = {rate: data_rate_gbps(m["width"], m["speed"]) for rate, m in rate_of.items() if m}
    return text.replace_strict(gbps_of, default=None, return_dtype=pl.Float64)


def _lanes(table: Delimited) -> list[int]:
    """Active lanes of each row's port, 0 where unknown."""
    if "rate" not in table.header:
        return [0] * table.rows.height
    matches = (_RATE.fullmatch(text or "") for text in table.rows["rate"])
    return [WIDTHS.get(match["width"].lower(), 0) if match else 0 for match in matches]


def _refuse(table: Delimited, role: str, bad: pl.Series, wanted: str) -> None:
    """Raise CounterError at the first bad row."""
    if bad.any():
        row = int(bad.arg_true()[0])
        value, line = str(table.rows[role][row])[:60], int(table.rows["line"][row])
        raise table.error_at(role, line, f"{value!r} is not {wanted}", _AGAIN)
