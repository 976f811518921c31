"""The screen of ``tailback counters`` for a lossy network: rates served, queues and drops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from tailback.cli.ill_links_screen import ill_lines
from tailback.cli.text import (
    Section,
    align_columns,
    heading,
    more_line,
    one_screen,
    truncate,
    wrap,
)
from tailback.io.delimited import telling_first
from tailback.names.display import printable, shorten_names
from tailback.names.ports import Peers
from tailback.port_counters.analysis.verdict import Verdict
from tailback.port_counters.findings.port_events import bound_sign, event_port, ports_counted
from tailback.port_counters.findings.port_findings import cannot_tell, port_label
from tailback.port_counters.findings.port_verdict import PortVerdict, sentence
from tailback.units import counted, format_bytes, format_time, percent, rate_of_rate

_TITLE: Final = {
    "faults": "LINKS HAVE ERRORS",
    "slower": "LINKS RUN BELOW THEIR SPEED",
    "rates": "UNDETERMINED",
    "unknown": "UNDETERMINED",
    "paused": "PORTS ARE PAUSED BY THEIR FAR ENDS",
    "degraded": "LINKS SERVE LESS THAN THEIR RATE",
    "drops": "PORTS DROP PACKETS",
    "busy": "LINKS ARE FULL",
    "queues": "PORTS QUEUE",
    "quiet": "LITTLE QUEUEING",
}
_NOTICED: Final = {
    "at_least": "with a lower bound of the stall only (≥)",
    "data_at_least": "with a lower bound of data or packets only (≥)",
    "latched": "with a stall counter at its largest value",
    "data_latched": "with a counter of data or packets at its largest value",
    "wraps": "with a counter that wrapped",
    "resets": "with a counter that was reset",
    "gaps": "longer than usual: readings are missing",
    "rate_changed": "in which a port changed speed: shares are of the new speed",
    "stale": "of a device that was not read again",
    "no_counter": "of a device without the counter",
    "impossible": "with more stall than time: left out",
    "data_impossible": "with more bytes or packets than the link carries: left out",
}
_PORTS, _COLUMNS, _NOTES = 4, 4, 3
"""Rows, columns that were not used, and notes on the screen."""


def queues_screen(
    verdict: PortVerdict,
    judged: Verdict,
    kinds: list[str],
    out: Path | None,
    classes: Sequence[str] = (),
    *,
    left_out: Sequence[str] = (),
    verbose: bool = False,
) -> list[str]:
    """The lines to print.

    Args:
        verdict: What was found.
        judged: Verdict of the same counters that does not depend on the kind of network.
        kinds: What the counters were read from.
        out: Where tables were written, None when nowhere.
        classes: Lines on the classes of ports, of counters of pauses.
        left_out: Notes on damaged files and rows.
        verbose: Whether to show more than one screen.
    """
    scope = (
        f"{_judged_by(verdict)}; {counted(verdict.ports, 'port')} of "
        f"{counted(verdict.devices, 'device')}, {counted(verdict.intervals, 'interval')} over "
        f"{format_time(1000 * (verdict.end_ns - verdict.start_ns))}; from "
        f"{truncate(', '.join(kinds), 40)}"
    )
    served = [] if verdict.kind == "rates" else _degraded(verdict)
    queued = [] if verdict.kind == "rates" else _queued(verdict)
    named_above = told_of(verdict.kind)
    sections: list[Section] = [
        (
            "verdict",
            [
                heading("VERDICT", _TITLE[verdict.kind], colour_of(verdict.kind)),
                *wrap(sentence(verdict)),
                *wrap(scope),
                *wrap(judged.contradiction),
                *left_out_lines(left_out),
            ],
        ),
        ("next step", _next_step(verdict, out)),
        ("ill links", ill_lines(judged.ill)),
        ("slow links", served),
        ("ports that queue", queued),
        ("classes of ports", classes),
        ("errors and pauses", event_lines(verdict.events, verdict.peers, named_above)),
        *noticed_sections(judged, [*left_out, judged.contradiction], verbose=verbose),
        ("what counters cannot tell", limit_lines(cannot_tell(verdict.events))),
    ]
    return one_screen(sections, verbose=verbose)


def limit_lines(limits: Sequence[str]) -> list[str]:
    """What counters cannot tell."""
    return [heading("WHAT COUNTERS CANNOT TELL"), *wrap("; ".join(limits))]


def left_out_lines(notes: Sequence[str]) -> list[str]:
    """What of the files is damaged, and was left out."""
    shown = [line for note in notes[:_NOTES] for line in wrap(truncate(note, 230))]
    return [*shown, *more_line(len(notes) - _NOTES)]


def colour_of(kind: str) -> str:
    """Colour of a verdict by its kind."""
    return {"quiet": "green", "unknown": "yellow", "rates": "yellow"}.get(kind, "red")


def told_of(kind: str) -> str:
    """Kind of events in the sentence of a verdict; empty if there is none."""
    return {"faults": "errors", "slower": "slower"}.get(kind, "")


def noticed_sections(
    verdict: Verdict, above: Sequence[str], *, verbose: bool = False
) -> list[Section]:
    """Columns that were not used, the notes, and oddities of the counters.

    Args:
        verdict: What was found.
        above: Notes that are on the screen already.
        verbose: Whether to show all of them.
    """
    seen = [(str(count), _NOTICED[name]) for name, count in verdict.noticed.items() if count > 0]
    beyond = verdict.ports.filter(pl.col("maximum") > 1).height
    if beyond:
        seen.append((str(beyond), "ports with an interval above 100 %: instants are estimates"))
    odd = [heading("NOTICED"), *align_columns(("", "intervals"), seen, "r ")] if seen else []
    unused = list[str]()
    if verdict.unknown:
        most = len(verdict.unknown) if verbose else _COLUMNS
        some = ", ".join(shorten_names(telling_first(verdict.unknown)[:most], 30))
        n_left = len(verdict.unknown) - most
        tail = f" and {n_left} more" if n_left > 0 else ""
        unused = wrap(f"columns {some}{tail}", indent=" " * 10, first="NOT USED  ")
    notes = [note for note in verdict.notes if note not in above]
    listed = notes if verbose else notes[:_NOTES]
    lines = [line for note in listed for line in wrap(truncate(note, 230))]
    lines += more_line(len(notes) - len(listed))
    return [
        ("columns not used", unused),
        ("notes", [heading("NOTES"), *lines] if lines else []),
        ("oddities", odd),
    ]


def _judged_by(verdict: PortVerdict) -> str:
    """Evidence of the verdict."""
    if verdict.counted("paused").height:
        return "Ethernet with pause frames: judged by utilization, queues, drops and pauses"
    return "a lossy network: judged by utilization, queues and drops"


def _name(row: dict[str, Any], verdict: PortVerdict) -> str:
    return port_label(row, verdict.peers)


def _degraded(verdict: PortVerdict) -> list[str]:
    rows = []
    for row in verdict.of("degraded").head(_PORTS).iter_rows(named=True):
        scale = row["nominal_gbps"]
        interval = f"{percent(row['served_low_gbps'] / scale)} to " + percent(
            row["served_high_gbps"] / scale
        )
        seconds = (row["end_ns"] - row["start_ns"]) * 1000
        rows.append(
            (
                _name(row, verdict),
                rate_of_rate(row["served_gbps"], scale),
                interval,
                format_time(seconds),
                row["evidence"],
            )
        )
    if not rows:
        return []
    header = ("link", "serves", "95 % interval", "over", "evidence")
    return [
        heading("LINKS THAT SERVE LESS THAN THEIR RATE"),
        *align_columns(header, rows, " rrr ", names=(0,)),
    ]


def _queued(verdict: PortVerdict) -> list[str]:
    """Ports by how often they queue, then the other ports with drops."""
    noteworthy = verdict.findings.filter(
        pl.col("queued_share").is_not_null() | (pl.col("drops") > 0)
    )
    some = noteworthy.unique(["node_name", "port"], keep="first", maintain_order=True)
    if some.is_empty():
        return []
    worst = some.sort(
        "queued_share",
        "drops",
        "node_name",
        "port",
        descending=[True, True, False, False],
        nulls_last=True,
    )
    rows = [
        (
            _name(row, verdict),
            "?" if row["queued_share"] is None else percent(row["queued_share"]),
            "?" if row["backlog_max_bytes"] is None else format_bytes(row["backlog_max_bytes"]),
            "?" if row["utilization"] is None else percent(row["utilization"]),
            "?" if row["drops"] is None else f"{'≥ ' * row['drops_at_least']}{row['drops']:,}",
        )
        for row in worst.head(_PORTS).iter_rows(named=True)
    ]
    more = worst.height - len(rows)
    lines = [heading("PORTS THAT QUEUE MOST")]
    lines += align_columns(
        ("port", "queued", "longest", "used", "drops"), rows, " rrrr", names=(0,)
    )
    return [*lines, *([f"  … and {more} more"] if more > 0 else [])]


def event_lines(events: pl.DataFrame, peers: Peers, shown_kind: str) -> list[str]:
    """Counts of errors, pauses, marks and losses of ports.

    Args:
        events: Table ``port_events``.
        peers: Device at the far end of each port, where known.
        shown_kind: Kind whose largest figure is in the verdict. If several ports have it, they are
            listed.
    """
    lines = []
    for (kind,), rows in events.group_by("finding", maintain_order=True):
        if kind != shown_kind:
            lines += wrap(printable(ports_counted(rows, peers)))
        elif rows.height > 1:
            cells = [
                (
                    event_port(row, peers),
                    f"{bound_sign(row)}{row['since_reset' if row['full'] else 'count']:,}",
                    ", ".join(row["counters"]),
                )
                for row in rows.head(_PORTS).iter_rows(named=True)
            ]
            lines += align_columns(("port", str(kind), "counters"), cells, " r ", names=(0,))
            if rows.height > _PORTS:
                lines.append(f"  … and {rows.height - _PORTS} more")
    return [heading("ERRORS, PAUSES, MARKS AND LOSSES"), *lines] if lines else []


def _next_step(verdict: PortVerdict, out: Path | None) -> list[str]:
    return next_lines(_what_next(verdict), out)


def next_lines(step: str, out: Path | None) -> list[str]:
    """What to do next, and where tables are."""
    where = [] if out is None else wrap(f"tables are in {printable(str(out))}", "      ", "      ")
    return [*wrap(step, "      ", heading("NEXT  ")), *where]


def trace_next(kind: str) -> str:
    """The step after counters that show congestion, or little of it."""
    if kind == "quiet":
        return (
            "if a program is slow all the same, diagnose its trace: tailback record, then "
            "tailback diagnose"
        )
    return "learn whose traffic it was from a trace: tailback record, then tailback diagnose"


def _what_next(verdict: PortVerdict) -> str:
    if verdict.kind == "unknown" and not verdict.moved:
        return "give readings of different instants, each in its own file"
    if verdict.kind == "unknown":
        return (
            "also record queues and drops: tc -s qdisc (qdisc_backlog, qdisc_drops) on hosts, "
            "ifOutDiscards or the queue lengths of the vendor on switches"
        )
    if verdict.kind == "rates":
        return "check the unit of the rates: that of the column's name in --fabric FILE"
    if not verdict.tests.rated:
        return "give --fabric FILE with the rates of the links"
    if verdict.kind == "paused":
        return "read the counters of the far end: what it waits for, or which of its ports is full"
    if verdict.kind in ("degraded", "faults", "slower"):
        return "check that cable, its transceivers and the settings of both its ports"
    return trace_next(verdict.kind)
