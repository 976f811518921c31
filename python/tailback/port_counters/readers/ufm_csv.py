"""CSV of UFM Telemetry, one line a port and sample.

``curl http://UFM:9001/csv/cset/converted_enterprise`` prints the latest sample of every port; files
of several samples may follow one another. Counters have the names of InfiniBand, as of libibmad.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import polars as pl

from tailback.io.delimited import Delimited, header_of
from tailback.io.input_files import head, is_input_file
from tailback.port_counters.readers.model import (
    U32_MAX,
    WORD_BYTES,
    CounterData,
    events_of_table,
    parse_with_events,
)
from tailback.port_counters.schema import READINGS, conform

HAS_TIME_STAMPS = True

ALIASES: Final = {
    "time": ("timestamp", "sample_time"),
    "guid": ("node_guid", "nodeguid", "node_guid_hex"),
    "port": ("port_num", "port_number", "portnumber", "port"),
    "name": ("node_description", "node_desc", "node_name"),
    "wide bytes": ("portxmitdataextended",),
    "bytes": ("portxmitdata",),
    "wide packets": ("portxmitpktsextended",),
    "packets": ("portxmitpkts",),
    "wide wait": ("portxmitwaitextended",),
    "wait": ("portxmitwait",),
    "wide received bytes": ("portrcvdataextended",),
    "received bytes": ("portrcvdata",),
    "wide received packets": ("portrcvpktsextended",),
    "received packets": ("portrcvpkts",),
}
_NEEDED: Final = ("time", "guid", "port")
_COUNTERS: Final = ("wide bytes", "bytes", "wide wait", "wait")
_GUID: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}")


def sniff(path: Path) -> bool:
    """A CSV with the GUID and number of a port, a time, and counters of InfiniBand."""
    if not is_input_file(path):
        return False
    roles = header_of(head(path), ALIASES) or {}
    return set(_NEEDED) <= set(roles) and any(role in roles for role in _COUNTERS)


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the samples of one file.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every row has its time. Given, it is added to all of them.

    Raises:
        CounterError: It is damaged, a column is missing, or a value is not a number; with line and
            column.
    """
    integers = [role for role in ALIASES if role not in ("time", "guid", "name")]
    table, names, left_out = parse_with_events(path, ALIASES, _NEEDED, integers=integers)
    columns = {
        "time_ns": table.instants("time") + (time_ns or 0),
        "node_guid": _guids(table),
        "port": table.number("port", integer=True),
        "node_name": _names(table),
        "data_bytes": _best(table, "bytes", WORD_BYTES),
        "packets": _best(table, "packets"),
        "xmit_wait_ticks": _best(table, "wait"),
        "received_bytes": _best(table, "received bytes", WORD_BYTES),
        "received_packets": _best(table, "received packets"),
    }
    limit = {"bytes": "data_limit", "packets": "packets_limit", "wait": "wait_limit"}
    for role, column in limit.items():
        if role in table.header and f"wide {role}" not in table.header:
            worth = WORD_BYTES if role == "bytes" else 1
            columns[column] = pl.repeat(
                U32_MAX * worth, table.rows.height, dtype=pl.UInt64, eager=True
            )
    frame = pl.DataFrame(columns).with_columns(source=pl.lit("ufm csv"))
    # The endpoint repeats a sample until the next one.
    frame = frame.with_columns(pl.col("port").cast(pl.UInt16))
    readings = conform(READINGS, frame).unique(
        ["time_ns", "node_guid", "port"], keep="first", maintain_order=True
    )
    events = events_of_table(table, frame, names).unique(maintain_order=True)
    return CounterData(readings, unknown=table.unused, events=events, left_out=left_out)


def _best(table: Delimited, role: str, worth: int = 1) -> pl.Series:
    """A counter of 64 bits where there is one, else that of 32 bits."""
    for name in (f"wide {role}", role):
        if name in table.header:
            return table.number(name, integer=True) * worth
    return pl.repeat(None, table.rows.height, dtype=pl.UInt64, eager=True)


def _guids(table: Delimited) -> pl.Series:
    text = table.need("guid")
    bad = ~text.str.contains(rf"^{_GUID.pattern}$").fill_null(False)
    if bad.any():
        row = int(bad.arg_true()[0])
        raise table.error_at(
            "guid", int(table.rows["line"][row]), f"{str(text[row])[:60]!r} is not a GUID", ""
        )
    values = {guid: int(guid, 16) for guid in text.unique().to_list()}
    return text.replace_strict(values, return_dtype=pl.UInt64)


def _names(table: Delimited) -> pl.Series:
    """Names of devices, their GUID where there is none."""
    guid = table.rows["guid"]
    if "name" not in table.header:
        return guid
    name = table.rows["name"].str.strip_chars('"')
    return pl.select(pl.coalesce(name, guid)).to_series()
