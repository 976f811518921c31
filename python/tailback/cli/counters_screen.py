"""The one screen of ``tailback counters``: its facts, in the terminal's width."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from tailback.cli.ill_links_screen import change_lines, format_gbps, ill_lines
from tailback.cli.queues_screen import (
    colour_of,
    event_lines,
    left_out_lines,
    limit_lines,
    next_lines,
    noticed_sections,
    told_of,
    trace_next,
)
from tailback.cli.text import (
    Section,
    align_columns,
    heading,
    more_line,
    one_screen,
    truncate,
    wrap,
)
from tailback.names.display import printable
from tailback.names.ports import Peers, link_name, port_name
from tailback.port_counters.analysis.limits import cannot_tell, roots
from tailback.port_counters.analysis.port_inventory import PortInventory
from tailback.port_counters.analysis.verdict import FULL_COUNTER, Verdict, sentence
from tailback.units import counted, format_time, percent

_TITLE: Final = {
    "faults": "LINKS HAVE ERRORS",
    "down": "LINKS ARE DOWN",
    "unequal": "CABLES LOSE WHAT IS SENT",
    "slower": "LINKS RUN BELOW THEIR SPEED",
    "stalls": "PORTS STALL",
    "quiet": "LITTLE STALL",
    "unknown": "UNDETERMINED",
}
_PORTS, _GROUPS = 5, 5


def screen(
    verdict: Verdict,
    inventory: PortInventory,
    kinds: list[str],
    out: Path | None,
    by_job: Sequence[str] = (),
    *,
    left_out: Sequence[str] = (),
    verbose: bool = False,
) -> list[str]:
    """The lines to print.

    Args:
        verdict: What was found.
        inventory: The ports of the fabric, for the other end of a link.
        kinds: What the counters were read from.
        out: Where tables were written, None when nowhere.
        by_job: Lines on jobs.
        left_out: Notes on damaged files and rows.
        verbose: Whether to show more than one screen.
    """
    measured = verdict.ports["stall_fraction"].count() or verdict.stalling.height
    root = roots(verdict, inventory.wiring) if measured else ""
    title = heading("VERDICT", _title(verdict), colour_of(verdict.kind))
    about = [*wrap(sentence(verdict)), *wrap(_scope(verdict, kinds)), *wrap(verdict.contradiction)]
    about += left_out_lines(left_out)
    sections: list[Section] = [
        ("verdict", [title, *about]),
        ("next step", next_lines(_what_next(verdict, damaged=bool(left_out)), out)),
        ("ill links", ill_lines(verdict.ill)),
        ("jobs", by_job),
        ("links that stall", _port_lines(verdict) if measured else []),
        ("where it may start", [heading("WHERE IT MAY START"), *wrap(root)] if root else []),
        ("what changed", change_lines(verdict.changes)),
        ("errors and pauses", event_lines(verdict.events, verdict.peers, told_of(verdict.kind))),
        ("tiers and directions", group_lines(verdict) if measured else []),
        *noticed_sections(verdict, [*left_out, verdict.contradiction], verbose=verbose),
        ("what counters cannot tell", limit_lines(cannot_tell(verdict)) if measured else []),
    ]
    return one_screen(sections, verbose=verbose)


def _title(verdict: Verdict) -> str:
    """The verdict in capitals; of little stall, for how many ports it is known."""
    n_known, ports = verdict.n_known, verdict.ports.height + verdict.read_once
    of = f" IN {n_known} OF {ports} PORTS" if verdict.kind == "quiet" and n_known < ports else ""
    return _TITLE[verdict.kind] + of


def _scope(verdict: Verdict, kinds: list[str]) -> str:
    """Summary of the input."""
    devices = verdict.ports.select("node_name", "node_guid").n_unique()
    if verdict.intervals:
        ports = f"{counted(verdict.ports.height, 'port')} of {counted(devices, 'device')}"
        text = f"{ports}, {counted(verdict.intervals, 'interval', ',')}"
    else:
        names = verdict.devices_read_once
        some = ", ".join(map(printable, names[:3])) + ", …" * (len(names) > 3)
        text = f"{counted(verdict.read_once, 'port')} of {counted(len(names), 'device')}"
        text += f" ({some}), each read once"
    if verdict.end_ns > verdict.start_ns:
        text += f" over {_duration(verdict.end_ns - verdict.start_ns)}"
    return f"{text}; from {truncate(', '.join(kinds) or 'nothing', 40)}"


def _share(value: float | None, least: bool = False) -> str:
    """A share; ``?`` if it is unknown, or a lower bound that says nothing."""
    shown = "?" if value is None else percent(value)
    if not least:
        return shown
    return "?" if shown in ("?", percent(0.0)) else f"≥ {shown}"


def _stalled(row: dict[str, Any]) -> str:
    """Stall fraction of a port, or its lower bound if the counter latched."""
    bound, seconds = row["stall_at_least"], row["latched_stall_seconds"]
    if bound is None:
        return _range(row["stall_fraction"], row["stall_high_fraction"], row["at_least"] > 0)
    if bound == 0:
        return "?" if seconds is None else f"≥ {seconds:.3g} s"
    return _share(bound, True)


def _range(low: float | None, high: float | None, least: bool = False) -> str:
    """A share, from the least to the most that it may be where its tick is not known."""
    if low is None or high is None or percent(low) == percent(high):
        return _share(low, least)
    return f"{_share(low, least)} to {percent(high)}"


def _is_bound(row: dict[str, Any]) -> bool:
    """Whether the stall of a port is a lower bound: its counter is full, or its tick not known."""
    high = row["stall_high_fraction"]
    return row["stall_at_least"] is not None or (high or 0.0) > (row["stall_fraction"] or 0.0)


def _duration(nanoseconds: int) -> str:
    """A duration such as 6 h 2 min."""
    minutes = nanoseconds // 60_000_000_000
    if minutes < 2:
        return format_time(1000 * nanoseconds)
    for unit, many in (("d", 1440), ("h", 60)):
        if minutes >= 2 * many:
            smaller, name = (many // 24, "h") if unit == "d" else (1, "min")
            remainder = minutes % many // smaller
            return f"{minutes // many} {unit}" + (f" {remainder} {name}" if remainder else "")
    return f"{minutes} min"


def _port_lines(verdict: Verdict) -> list[str]:
    """The links that stall most."""
    stalling = verdict.ports.filter((pl.col("stall_fraction") > 0) | FULL_COUNTER).head(_PORTS)
    if stalling.is_empty():
        return []
    rows = []
    for row in stalling.iter_rows(named=True):
        rows.append(
            (
                _link(row, verdict.peers),
                _stalled(row),
                _share(row["maximum"], _is_bound(row)),
                _share(row["utilization"]),
                format_gbps(row["lost_gbps"], _is_bound(row)),
            )
        )
    more = verdict.stalling.height - len(rows)
    lines = [heading("LINKS THAT STALL MOST")]
    lines += align_columns(
        ("port", "stalled", "most", "used", "Gb/s lost"), rows, " rrrr", names=(0,)
    )
    return [*lines, *([f"  … and {more} more"] if more > 0 else [])]


def _link(row: dict[str, Any], peers: Peers) -> str:
    name, port = str(row["node_name"]), int(row["port"])
    if row["direction"] and port < 6 and row["direction"][1:] in ("+", "-"):
        return f"{name} {row['direction']}"
    return link_name(port_name(name, port, row["interface"]), peers.get((name, port)))


def group_lines(verdict: Verdict) -> list[str]:
    """By tier and direction."""
    if verdict.groups.height == 1 and verdict.groups["port_type"][0] == "any":
        return []
    rows = [
        (
            _class(row),
            str(row["ports"]),
            "?" if (ever := row["stalled_percent"]) is None else f"{ever:.0f} %",
            _range(row["stall_fraction"], row["stall_high_fraction"], row["at_least"] > 0),
            _share(row["maximum"], row["full_ports"] > 0 or row["stall_high_fraction"] is not None),
            _share(row["utilization"]),
            format_gbps(
                row["lost_gbps"], row["full_ports"] > 0 or row["stall_high_fraction"] is not None
            ),
        )
        for row in verdict.groups.head(_GROUPS).iter_rows(named=True)
    ]
    header = ("ports", "", "ever", "stalled", "most", "used", "Gb/s lost")
    table = align_columns(header, rows, " rrrrrr", names=(0,))
    return [heading("BY TIER AND DIRECTION"), *table, *more_line(verdict.groups.height - len(rows))]


def _class(row: dict[str, Any]) -> str:
    """Tier and direction; without a fabric there is no tier."""
    kind = str(row["port_type"])
    return kind if row["category"] == "Port" else f"{row['category']} {kind}"


def _what_next(verdict: Verdict, *, damaged: bool) -> str:
    if verdict.kind in ("faults", "down", "unequal", "slower"):
        return "check that cable, its transceivers and the settings of both its ports"
    if verdict.kind == "unknown" and verdict.still:
        return "give readings of different instants, each in its own file"
    if verdict.may_stall.height and verdict.kind == "unknown":
        return "give --fabric FILE with device ids and widths (ibnetdiscover), or --tick"
    if verdict.kind == "unknown" and damaged:
        return "correct what was left out, or collect it again: tailback collect --out FOLDER"
    if verdict.kind == "unknown" and verdict.intervals:
        if verdict.noticed.get("no_counter", 0) >= verdict.intervals:
            return (
                "add PortXmitWait and the bytes of the same ports, which no file has (perfquery "
                "prints both), or collect them: tailback collect --out FOLDER"
            )
        return (
            "if stalls were counted in ticks, give --fabric FILE or --tick TIME; if not, collect "
            "them: tailback collect (PortXmitWait)"
        )
    if verdict.kind == "unknown":
        return "read again later and give both files; or: tailback collect --out FOLDER"
    return trace_next(verdict.kind)
