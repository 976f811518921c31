"""Resets of counters as changes: by another tool, or as a device restarted."""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.port_counters.analysis.passes import Aggregate, Archive, Engine, Piece
from tailback.port_counters.changes import LINK_CHANGES
from tailback.port_counters.schema import Flag
from tailback.units import counted

_MINUTE_NS: Final = 60_000_000_000
_DEVICE: Final = ("node_guid", "node_name", "minute")


def _resets(piece: Piece) -> pl.LazyFrame:
    flags = pl.col("flags")
    return (
        piece.rows.filter((flags & int(Flag.RESET)) > 0)
        .with_columns(minute=pl.col("time_ns") // _MINUTE_NS)
        .group_by(_DEVICE)
        .agg(
            ports=pl.struct("port", "interface").n_unique().cast(pl.UInt32),
            missed=((flags & int(Flag.GAP)) > 0).sum().cast(pl.UInt32),
            time_ns=pl.col("time_ns").min(),
            earliest_ns=(pl.col("time_ns") - pl.col("interval_ns")).min(),
        )
    )


def _add(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts.group_by(_DEVICE).agg(
        pl.col("ports", "missed").sum(), pl.col("time_ns", "earliest_ns").min()
    )


RESET_PASS: Final = Aggregate(
    _resets,
    _add,
    ("node_guid", "node_name", "port", "interface", "time_ns", "interval_ns", "flags"),
)
"""Pass of :func:`resets`."""


def resets(rows: Archive, ports: pl.DataFrame, engine: Engine) -> pl.DataFrame:
    """Resets of counters, those of one minute together, as rows of ``changes.LINK_CHANGES``.

    A device restarted if the counters of all its ports were reset and it missed a reading.

    Args:
        rows: Rows of ``counter_intervals``.
        ports: Table of ``verdict.by_port``.
        engine: Processes the pieces.
    """
    total = engine.add_up(rows.pieces(), [RESET_PASS])[0]
    size = ports.group_by("node_guid", "node_name").agg(of=pl.len())
    total = total.join(size, on=["node_guid", "node_name"], how="left").with_columns(
        restarted=(pl.col("ports") >= pl.col("of")) & (pl.col("missed") >= pl.col("of"))
    )
    made = []
    restarted = total.filter("restarted").sort("time_ns", "node_name")
    for row in restarted.iter_rows(named=True):
        made.append(
            {
                **_facts(row),
                "change": "restarted",
                "node_name": row["node_name"],
                "node_guid": row["node_guid"],
                "links": row["ports"],
            }
        )
    others = total.filter(~pl.col("restarted")).sort("minute", "node_name")
    for _, mine in others.group_by("minute", maintain_order=True):
        row = mine.row(0, named=True)
        single = mine.height == 1
        name = row["node_name"] if single else counted(mine.height, "device")
        made.append(
            {
                **_facts(row),
                "change": "counters reset",
                "node_name": name,
                "node_guid": row["node_guid"] if single else 0,
                "links": mine["ports"].sum(),
            }
        )
    frame = pl.DataFrame(made, schema=LINK_CHANGES.polars_schema)
    return frame.sort("time_ns", maintain_order=True)


def _facts(row: dict[str, object]) -> dict[str, object]:
    absent = {"port": 0, "peer_guid": 0, "peer_port": 0, "gbps": 0.0}
    return {"time_ns": row["time_ns"], "earliest_ns": row["earliest_ns"], **absent}
