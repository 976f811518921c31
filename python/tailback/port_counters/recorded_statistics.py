"""Statistics of adapters besides bytes, from the tables of ``tailback record``.

``ethtool-HOST-RANK.csv`` has a row for each statistic of a network driver that changed::

    time_utc,node,iface,counter,value
    2026-11-22T11:06:10.4Z,n3,eth2,rx_prio3_pause,12

``infiniband-*.csv`` and ``ethernet-*.csv`` have a column for each counter. Losses and errors are
read less often than bytes. Their cells are empty in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from tailback.errors import TailbackError
from tailback.io.delimited import instants
from tailback.io.input_files import content
from tailback.port_counters.findings.port_events import READINGS, meaning_of

_PLACE: Final = ("time_utc", "node", "iface")
_KEY: Final = ("node_name", "interface", "counter")


def recorded_statistics(folder: Path) -> tuple[pl.DataFrame, list[str]]:
    """Readings of all adapters of a recording, of each counter those at which it changed.

    Damaged values are left out. A rank that was killed may leave half a line.

    Args:
        folder: The folder ``counters`` of the recording.

    Returns:
        Rows of ``port_events.READINGS``, and notes on omitted values.
    """
    parts, notes = [pl.DataFrame(schema=READINGS)], []
    for kind in ("ethtool", "infiniband", "ethernet"):
        for file in sorted(folder.glob(f"{kind}-*.csv")):
            readings, bad = _readings(file)
            if kind == "infiniband":
                # The recorder shortens the name. The packets were marked before they arrived.
                marked = {"ecn_marked": "np_ecn_marked_roce_packets"}
                readings = readings.with_columns(pl.col("counter").replace(marked))
            parts.append(readings)
            if bad:
                notes.append(f"{file.name}: what adapters counted is damaged, left out: {bad}")
    return pl.concat(parts), notes


def _readings(file: Path) -> tuple[pl.DataFrame, int]:
    """Readings of one table, and how many of its values are damaged."""
    nothing = pl.DataFrame(schema=READINGS)
    try:
        table = pl.scan_csv(
            content(file),
            infer_schema=False,
            quote_char=None,
            truncate_ragged_lines=True,
            ignore_errors=True,
            encoding="utf8-lossy",
        )
        names = table.collect_schema().names()
    except (pl.exceptions.PolarsError, TailbackError):
        return nothing, 0 if file.stat().st_size == 0 else 1
    if not set(_PLACE) <= set(names):
        return nothing, 1
    if not {"counter", "value"} <= set(names):
        counters = [name for name in names if meaning_of(name) is not None]
        table = table.unpivot(counters, index=_PLACE, variable_name="counter")
        table = table.filter(pl.col("value").is_not_null())
    rows = table.select(*_PLACE, "counter", "value").collect()
    rows = rows.select(
        time_ns=instants(rows["time_utc"], "UTC"),
        node_guid=pl.lit(0, pl.UInt64),
        node_name="node",
        port=pl.lit(0, pl.UInt16),
        interface="iface",
        counter="counter",
        value=pl.col("value").cast(pl.UInt64, strict=False),
    )
    complete = rows.drop_nulls()
    value = pl.col("value")
    same = (value == value.shift(1).over(_KEY)) & (value == value.shift(-1).over(_KEY))
    changes = complete.filter(~same.fill_null(False))
    return changes.select(*READINGS), rows.height - complete.height
