"""``tailback watch``: a running collection in the terminal."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from tailback.api.watch import CollectionWatch, WatchResult
from tailback.api.watch import watch as watch_collection
from tailback.arrays import Floats
from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.ill_links_screen import change_lines, format_gbps
from tailback.cli.option_types import Duration, FiniteRange, format_option
from tailback.cli.text import align_columns, heading, table_width, wrap
from tailback.names.display import printable
from tailback.port_counters.analysis.live_state import LiveView, count_course
from tailback.units import counted, format_time, percent, utc

_LEVELS = " ▁▂▃▄▅▆▇█"
_CLEAR = "\x1b[H\x1b[2J"
_CLOCK = slice(0, 19)
_BESIDE_COURSE = 62
"""Columns of a table beside the course of its ports, at the width of 80."""


@click.command(cls=GroupedHelp)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--span",
    type=Duration("nanosecond", long=True),
    default="5 min",
    show_default=True,
    help="How far back it shows.",
)
@click.option(
    "--every",
    type=Duration("nanosecond"),
    default="2 s",
    show_default=True,
    help="Time between two looks.",
)
@click.option(
    "--threshold",
    type=FiniteRange(0, 100, min_open=True),
    default=10.0,
    show_default=True,
    help="Percentage of an interval from which a port stalls.",
)
@click.option("--once", is_flag=True, help="Look once and end.")
@format_option
def watch(folder: Path, span: float, every: float, threshold: float, once: bool, form: str) -> None:
    """Watch a collection that 'tailback collect' writes.

    Shows the links that lose most, congestion trees, where they may begin and whether they grow,
    and changes. Ctrl-C ends it.
    """
    watched = watch_collection(folder, span_ns=round(span), threshold=threshold / 100)
    try:
        _show(watched, folder, every / 1e9, once, form)
    finally:
        watched.close()


def _show(watched: CollectionWatch, folder: Path, every_s: float, once: bool, form: str) -> None:
    on_screen = sys.stdout.isatty() and form == "text" and not once
    while True:
        begun = time.monotonic()
        result = watched.look()
        if form == "json":
            click.echo(json.dumps(_facts(result), allow_nan=False))
        else:
            text = "\n".join(watch_lines(result, folder))
            click.echo(_CLEAR + text if on_screen else text)
        if once:
            return
        time.sleep(max(every_s - (time.monotonic() - begun), 0.0))


def watch_lines(result: WatchResult, folder: Path) -> list[str]:
    """The lines of one look.

    Args:
        result: The look.
        folder: The collection.
    """
    view, name = result.view, folder.resolve().name
    if not view.time_ns:
        return [heading("WATCH", f"{printable(name)}: no reading yet")]
    span = format_time(1000 * view.bin_ns * len(view.stalled))
    lines = [
        heading("WATCH", f"{printable(name)}, {utc(view.time_ns)[_CLOCK]} UTC"),
        f"  {counted(view.ports, 'port')}; {view.stalled[-1]} stall; the last {span}: "
        f"{draw_course(count_course(view.stalled), _course_width())} "
        f"(up to {max(view.stalled)})",
    ]
    if view.hottest or result.changes.height:
        command = shlex.join(["tailback", "counters", str(folder)])
        lines += ["", *wrap(f"what to do about it: {command}", " " * 6, first="NEXT  ")]
    lines += _hot_lines(view)
    lines += _tree_lines(view)
    changes = change_lines(result.changes)
    return [*lines, "", *changes] if changes else lines


def _course_width() -> int:
    """Columns of a course: those that a table leaves in this terminal."""
    return max(table_width() - _BESIDE_COURSE, 12)


def _hot_lines(view: LiveView) -> list[str]:
    if not view.hottest:
        return ["", "no port stalls"]
    width = _course_width()
    rows = [
        (
            port.name,
            draw_course(port.course, width),
            _share(port.stall, full=port.full),
            _share(port.used),
            format_gbps(None if math.isnan(port.lost_gbps) else port.lost_gbps, port.full),
        )
        for port in view.hottest
    ]
    header = ("link", "stalled so far", "now", "used", "Gb/s lost")
    return [
        "",
        "LINKS THAT LOSE MOST",
        *align_columns(header, rows, "  rrr", names=(0,)),
    ]


def _share(value: float, *, full: bool = False) -> str:
    shown = "?" if math.isnan(value) else percent(min(value, 1.0))
    return f"≥ {shown}" if full else shown


def _tree_lines(view: LiveView) -> list[str]:
    if not view.trees:
        return []
    rows = []
    for tree in view.trees:
        more = f" and {len(tree.roots) - 1} more" if len(tree.roots) > 1 else ""
        change = tree.ports - tree.ports_before
        rows.append(
            (
                tree.roots[0],
                f"slow host{more}" if tree.at_host else more.strip(),
                str(tree.ports),
                "new" if not tree.ports_before else f"{change:+d}" if change else "steady",
                format_gbps(tree.lost_gbps),
            )
        )
    header = ("may begin at", "", "ports", "growth", "Gb/s lost")
    return ["", "CONGESTION TREES", *align_columns(header, rows, "  rrr", names=(0,))]


def draw_course(course: Floats, width: int) -> str:
    """Values of 0–1 as a row of blocks, the largest of each column; a dot without a reading."""
    columns = np.array_split(course, min(width, len(course)))
    out = []
    for column in columns:
        readings = column[~np.isnan(column)]
        level = float(np.clip(readings.max(initial=0.0), 0.0, 1.0))
        out.append("·" if not len(readings) else _LEVELS[math.ceil(level * (len(_LEVELS) - 1))])
    return "".join(out)


def _facts(result: WatchResult) -> dict[str, Any]:
    view = asdict(result.view)
    for port in view["hottest"]:
        port["course"] = [_number(value) for value in port["course"].tolist()]
        port |= {name: _number(port[name]) for name in ("stall", "used", "lost_gbps")}
    return {**view, "changes": result.changes.to_dicts()}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
