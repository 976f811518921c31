"""Checks that the tables of a run fit together: readers use their numbers as array indices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from tailback.errors import RunError

NUMBERED = {
    "nodes": "node",
    "switches": "switch",
    "links": "link",
    "jobs": "job",
    "ranks": "rank",
    "labels": "label",
    "windows": "window",
}
"""Tables whose rows are numbered 0, 1, 2 …, and the column with the number."""

REFERENCES = {
    "nodes": {"switch": "switches"},
    "links": {"reverse": "links"},
    "ranks": {"job": "jobs", "node": "nodes"},
    "labels": {"job": "jobs"},
    "samples": {
        "window": "windows",
        "job": "jobs",
        "label": "labels",
        "receive_label": "labels",
        "receiver": "nodes",
        "link": "links",
    },
    "truth": {"window": "windows", "link": "links"},
    "messages": {
        "src_rank": "ranks",
        "dst_rank": "ranks",
        "label": "labels",
        "receive_label": "labels",
    },
    "counters": {"link": "links"},
    "queues": {"link": "links"},
    "skips": {"job": "jobs"},
    "packets": {
        "src_node": "nodes",
        "dst_node": "nodes",
        "label": "labels",
        "receive_label": "labels",
    },
}
"""Columns that refer to rows of another table; -1 in ``nodes`` stands for no switch."""

NON_EMPTY_TABLES = ("nodes", "switches", "links", "labels", "windows", "samples")
"""Tables without null values."""

MAY_BE_UNKNOWN = ("receive_label", "receiver")
"""Columns that may have nulls even so: captures and the fluid model do not know them."""

KEPT_PACKET_COLUMNS = {"packets": ("packet", "sequence", "time_ps", "size_bytes", "header")}
"""Columns of other tables without null values, besides those that refer to other tables."""


def check_tables(tables: Mapping[str, pl.DataFrame]) -> None:
    """Refuse tables that are truncated, belong to another run, or have nulls where none may be.

    Args:
        tables: Frame of every table in ``schema.TABLES``.

    Raises:
        RunError: For the first inconsistency; its place is table and column.
    """
    for name, frame in tables.items():
        columns = (
            frame.columns
            if name in NON_EMPTY_TABLES
            else [*REFERENCES.get(name, ()), *KEPT_PACKET_COLUMNS.get(name, ())]
        )
        for column in columns:
            if column not in MAY_BE_UNKNOWN and frame[column].null_count():
                raise _damaged(name, column, "contains nulls")
    for name, column in NUMBERED.items():
        frame = tables[name]
        if frame.select((pl.col(column) != pl.int_range(pl.len())).any()).item():
            raise _damaged(name, column, "is not 0, 1, 2, … row by row")
    vertices = tables["nodes"].height + tables["switches"].height
    for column in ("src", "dst"):
        _require_below(tables, "links", column, vertices, "nodes and switches")
    for name, references in REFERENCES.items():
        for column, other in references.items():
            _require_below(tables, name, column, tables[other].height, other)


def check_summary(summary: Any, notes: Any) -> None:
    """Refuse a summary of ``run.json`` with missing or malformed entries.

    Raises:
        RunError: For the first one; its place is its name.
    """
    if not isinstance(summary, dict):
        raise RunError("is damaged", place="summary")
    for key in ("elapsed_ps", "complete"):
        if key not in summary:
            raise RunError(f"lacks {key!r}")
    for key in ("elapsed_ps", "average_path_length", "one_in"):
        value = summary.get(key, 0)
        if not (isinstance(value, int | float) and math.isfinite(value)):
            raise RunError(f"{value!r} is not a number", place=key)
    if summary.get("model") == "fluid":
        for key in ("rates", "paths"):
            if not isinstance(summary.get(key), str):
                raise RunError(
                    f"{summary.get(key)!r} is not a choice of the fluid model", place=key
                )
    assumptions = summary.get("assumptions", {})
    if not isinstance(assumptions, dict):
        raise RunError("is no object", place="assumptions")
    for place, texts in (("notes", notes), *assumptions.items()):
        if not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            raise RunError("is not a list of sentences", place=str(place))


def _require_below(
    tables: Mapping[str, pl.DataFrame], name: str, column: str, rows: int, other: str
) -> None:
    lowest, highest = -1 if name == "nodes" else 0, tables[name][column].max()
    if isinstance(highest, int) and highest >= rows:
        raise _damaged(name, column, f"contains {highest}, but there are only {rows} {other}")
    smallest = tables[name][column].min()
    if isinstance(smallest, int) and smallest < lowest:
        raise _damaged(name, column, f"contains {smallest}")


def _damaged(name: str, column: str, what: str) -> RunError:
    return RunError(f"damaged table: {what}", place=f"{name}.parquet {column}")
