"""Trace events as JSON, for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

The format is the *Trace Event Format* of Chromium: a list of events with a phase ``ph``, times in
microseconds, and a process and thread that Perfetto draws as a group and a track.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import polars as pl

from tailback.diagnosis.congestion_trees import CONGESTED_FRACTION
from tailback.evidence.split import PART_NAMES
from tailback.report.exports.model import EXPORTS, OURS, Exported, Result

RANKS, LINKS, COUNTERS = 10_000_001, 10_000_002, 10_000_003
"""Processes of the trace: ranks, spans of congestion by link, and counters of links. Perfetto takes
a thread with the number of a process for its main thread, wherever it is, and merges the two."""

MAX_COUNTERS = 500
"""Links with counters, the most congested ones: each is a track."""

_COUNTED = {"congested": "congested %", "busy": "busy %", "stalled": "stalled %"}

Event = dict[str, Any]


@EXPORTS.register("perfetto")
def perfetto(result: Result) -> Exported:
    """Ranks with calls, waits and messages, and congestion of links over time, as a JSON trace."""
    loads = result.loads
    worst = loads.group_by("link").agg(pl.col("congested").max(), pl.col("busy").max())
    order = ["congested", "busy", "link"]
    worst = worst.sort(order, descending=[True, True, False], nulls_last=True)
    shown = worst["link"].head(MAX_COUNTERS).sort()
    measured = result.measured is not None
    ranks = _measured_ranks(result) if measured else _expected_ranks(result)
    events = chain(
        _process(RANKS, "ranks, measured time" if measured else "ranks, simulated time"),
        _rank_names(result),
        ranks,
        _process(LINKS, "congested links, simulated time"),
        _congested_spans(result),
        _process(COUNTERS, "load of links, simulated time"),
        _counters(result, loads.filter(pl.col("link").is_in(shown.implode()))),
    )
    what = "calls, waits and messages" if measured else "messages"
    ranks_count, left_out = result.run.tables["ranks"].height, worst.height - len(shown)
    more = f" (of {worst.height:,}, the most congested)" if left_out else ""
    return Exported(
        f"{what} of {ranks_count:,} ranks, load of {len(shown):,} links{more}",
        "open it in https://ui.perfetto.dev",
        _document(events),
    )


def _document(events: Iterator[Event]) -> Iterator[str]:
    """The events as one JSON document, an event a line."""
    yield '{"displayTimeUnit": "ns", "traceEvents": ['
    before = ""
    for event in events:
        if before:
            yield before + ","
        before = json.dumps(event, ensure_ascii=False)
    yield before
    yield "]}"


def _us(ps: int) -> float:
    """Microseconds in whole nanoseconds, the unit of Perfetto."""
    return ps // 1000 / 1e3


def _span(start_ps: int, end_ps: int) -> Event:
    """Begin and duration of a slice.

    Perfetto rounds both, and drops a slice that then ends after the one around it.
    """
    return {"ts": _us(start_ps), "dur": (end_ps // 1000 - start_ps // 1000) / 1e3}


def _process(number: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": number, "name": "process_sort_index", "args": {"sort_index": number}}


def _thread(process: int, number: int, name: str) -> Event:
    return {
        "ph": "M",
        "pid": process,
        "tid": number,
        "name": "thread_name",
        "args": {"name": name},
    }


def _rank_names(result: Result) -> Iterator[Event]:
    """A track for each rank, named by its number and host."""
    tables = result.run.tables
    ranks = tables["ranks"].join(tables["nodes"].select("node", "host_name"), on="node")
    jobs = tables["jobs"].filter(OURS).select("job")
    ours = ranks.join(jobs, on="job", how="semi")
    number = "job_rank" if result.measured is not None else "rank"
    for row in (ours if result.measured is not None else ranks).sort("rank").iter_rows(named=True):
        yield _thread(RANKS, row[number], f"rank {row[number]} · {row['host_name']}")


def _measured_ranks(result: Result) -> Iterator[Event]:
    """Calls as slices, waits as slices within them, messages as arrows."""
    tables = result.measured
    assert tables is not None  # the caller knows
    origin = tables["hosts"]["start_ps"].min() or 0
    assert isinstance(origin, int)  # a column of integers
    calls = tables["calls"].sort("rank", "enter_ps", "leave_ps", descending=[False, False, True])
    for row in calls.iter_rows(named=True):
        details = {"path": row["path"], "communicator": row["communicator"]}
        details |= {"sent_bytes": row["sent_bytes"], "received_bytes": row["received_bytes"]}
        yield {
            "ph": "X",
            "pid": RANKS,
            "tid": row["rank"],
            "cat": "call",
            "name": row["name"],
            **_span(row["enter_ps"] - origin, row["leave_ps"] - origin),
            "args": {name: value for name, value in details.items() if value not in (None, "")},
        }
    ends = tables["calls"].select("call", "enter_ps", "leave_ps")
    waits = tables["waits"].filter(pl.col("value_ps") > 0).join(ends, on="call")
    for row in waits.sort("rank", "start_ps").iter_rows(named=True):
        start = max(row["start_ps"], row["enter_ps"])
        end = min(row["start_ps"] + row["value_ps"], row["leave_ps"])
        if end <= start:
            continue
        yield {
            "ph": "X",
            "pid": RANKS,
            "tid": row["rank"],
            "cat": "wait",
            "name": PART_NAMES[row["kind"]],
            **_span(start - origin, end - origin),
            "args": {"waits for rank": row["partner"]},
        }
    done = pl.col("recv_done_ps").is_not_null() & pl.col("recv_done_call").is_not_null()
    arrows = tables["transfers"].filter(done)
    for number, row in enumerate(arrows.iter_rows(named=True)):
        arrow = {"pid": RANKS, "cat": "message", "name": f"tag {row['tag']}", "id": number}
        sent = {"ph": "s", "tid": row["src_rank"], "ts": _us(row["send_enter_ps"] - origin)}
        # An arrow ends in the slice that encloses its end: one that just ends does not.
        received = {
            "ph": "f",
            "bp": "e",
            "tid": row["dst_rank"],
            "ts": _us(max(row["recv_done_ps"] - 1000, row["send_enter_ps"]) - origin),
        }
        yield arrow | sent | {"args": {"bytes": row["size_bytes"]}}
        yield arrow | received


def _expected_ranks(result: Result) -> Iterator[Event]:
    """Messages of a simulated run, from their send to their arrival, on the sender's track."""
    tables = result.run.tables
    messages = tables["messages"].filter(pl.col("arrival_ps").is_not_null())
    labels = tables["labels"].select("label", "call", pl.col("phase").fill_null(""))
    named = messages.join(labels, on="label", how="left").sort("message")
    for row in named.with_columns(pl.col("call").fill_null("message")).iter_rows(named=True):
        # Messages of a rank overlap, which slices of one track cannot: asynchronous events may.
        event = {
            "pid": RANKS,
            "tid": row["src_rank"],
            "cat": "message",
            "name": f"{row['call']} in {row['phase']}" if row["phase"] else row["call"],
            "id": row["message"],
        }
        details = {"to rank": row["dst_rank"], "bytes": row["size_bytes"]}
        yield event | {"ph": "b", "ts": _us(row["post_ps"]), "args": details}
        yield event | {"ph": "e", "ts": _us(row["arrival_ps"])}


def _congested_spans(result: Result) -> Iterator[Event]:
    """A track for each link that was congested, with a slice for each span of congestion."""
    roots = set[int]()
    if result.diagnosis is not None:
        findings = result.diagnosis.findings
        roots = {link.link for finding in findings for link in finding.links}
    hot = result.loads.filter(pl.col("congested") > CONGESTED_FRACTION)
    new = (pl.col("link") != pl.col("link").shift()) | (
        pl.col("start_ps") != pl.col("end_ps").shift()
    )
    spans = (
        hot.with_columns(span=new.fill_null(True).cum_sum())
        .group_by("span", maintain_order=True)
        .agg(
            pl.col("link").first(),
            pl.col("start_ps").first(),
            pl.col("end_ps").last(),
            pl.col("congested").max(),
        )
    )
    for link in spans["link"].unique().sort():
        yield _thread(LINKS, link, result.link_names[link])
    for row in spans.iter_rows(named=True):
        yield {
            "ph": "X",
            "pid": LINKS,
            "tid": row["link"],
            "cat": "congestion",
            "name": "root" if row["link"] in roots else "congested",
            **_span(row["start_ps"], row["end_ps"]),
            "args": {"highest congested %": round(100 * row["congested"], 1)},
        }


def _counters(result: Result, loads: pl.DataFrame) -> Iterator[Event]:
    """The load of each link: a counter for each quantity, 0 where the link has none."""
    for row in loads.iter_rows(named=True):
        name = result.link_names[row["link"]]
        for column, quantity in _COUNTED.items():
            if row[column] is not None:
                yield {
                    "ph": "C",
                    "pid": COUNTERS,
                    "name": f"{name} {quantity}",
                    "ts": _us(row["start_ps"]),
                    "args": {"value": round(100 * row[column], 2)},
                }
