"""Runs as objects of other libraries: graph frames of hatchet, traces of pipit."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import polars as pl

from tailback.errors import TailbackError
from tailback.report.attribution import attribute
from tailback.report.exports.otf2 import delivered_messages, message_events
from tailback.report.flame import Frame, title
from tailback.run.run import Run

_PS_PER_S = 1e12


def hatchet_frame(run: Run) -> Any:
    """The back-pressure flame graph of a run as a ``hatchet.GraphFrame``.

    Raises:
        TailbackError: hatchet is not installed.
        RunError: The run has no samples.
    """
    hatchet = _library("hatchet", "GraphFrame", "pip install llnl-hatchet")
    attribution = attribute(run)
    metric, scale = ("time", _PS_PER_S) if attribution.unit == "ps" else ("congested packets", 1)
    root = _node(attribution.flame, metric, scale)
    root["frame"]["name"] = run.scenario.name
    return hatchet.GraphFrame.from_literal([root])


def _node(frame: Frame, metric: str, scale: float) -> dict[str, Any]:
    """A box and the boxes that wait on it, as hatchet's literals have them."""
    alone = frame.value - sum(child.value for child in frame.children)
    return {
        "frame": {"name": title(frame), "type": frame.kind},
        "metrics": {f"{metric} (inc)": frame.value / scale, metric: max(alone, 0.0) / scale},
        "children": [_node(child, metric, scale) for child in frame.children],
    }


def pipit_trace(run: Run) -> Any:
    """The messages of a run as a ``pipit.Trace``, with the columns of its reader of OTF2.

    Raises:
        TailbackError: pipit or pandas is not installed.
    """
    pipit = _library(
        "pipit", "Trace", "pip install git+https://github.com/hpcgroup/pipit (not that of PyPI)"
    )
    events = message_events(delivered_messages(run)).with_row_index("at")
    ends = {"Enter": events["call"], "Instant": events["event"], "Leave": events["call"]}
    rows = pl.concat(
        events.select(
            (pl.col("time_ps") / 1000).alias("Timestamp (ns)"),
            pl.lit(kind).alias("Event Type"),
            name.alias("Name"),
            pl.lit(0).cast(pl.Int32).alias("Thread"),
            pl.col("rank").cast(pl.Int32).alias("Process"),
            "at",
            pl.lit(order).alias("order"),
        )
        for order, (kind, name) in enumerate(ends.items())
    ).sort("Timestamp (ns)", "at", "order")
    attributes = events.to_dicts()
    frame = rows.drop("at", "order").to_pandas()
    frame["Attributes"] = [
        _attributes(attributes[at]) if order == 1 else None
        for at, order in rows.select("at", "order").iter_rows()
    ]
    kinds = dict.fromkeys(("Event Type", "Name", "Thread", "Process"), "category")
    return pipit.Trace(None, frame.astype(kinds))


def _attributes(event: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a message event, named as in OTF2."""
    partner = "sender" if event["event"] == "MpiRecv" else "receiver"
    return {
        partner: event["partner_rank"],
        "communicator": event["job"],
        "msg_tag": event["tag"],
        "msg_length": event["size_bytes"],
    }


def _library(name: str, member: str, remedy: str) -> Any:
    """A library that is not among the dependencies of Tailback."""
    try:
        library = import_module(name)
        # Other packages have the same name.
        getattr(library, member)
    except (ImportError, AttributeError):
        raise TailbackError(f"needs the package {name}", remedy=remedy) from None
    return library
