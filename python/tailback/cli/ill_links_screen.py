"""The parts of a screen of counters on links that need a hand, and on what changed."""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.cli.text import align_columns, heading, more_line, table_width, truncate
from tailback.port_counters.changes import described
from tailback.units import instant

_LINKS, _CHANGES = 8, 6
_TO_MINUTES: Final = slice(0, 16)
_TO_SECONDS: Final = slice(5, 19)


def ill_lines(ill: pl.DataFrame) -> list[str]:
    """The links that need a hand, the worst first.

    Args:
        ill: Rows of ``ill_links``.
    """
    room = table_width() - 50
    rows = [
        (
            row["link"],
            truncate(row["what"], room),
            _since(row["since_ns"]),
            format_gbps(row["lost_gbps"]),
        )
        for row in ill.head(_LINKS).iter_rows(named=True)
    ]
    if not rows:
        return []
    header = ("link", "what is wrong", "since (UTC)", "Gb/s lost")
    table = align_columns(header, rows, "   r", names=(0,))
    return [heading("LINKS THAT NEED A HAND"), *table, *more_line(ill.height - len(rows))]


def change_lines(changes: pl.DataFrame) -> list[str]:
    """The last changes of links and devices.

    Args:
        changes: Rows of ``link_changes``, in order.
    """
    # Other tools reset counters as often as they read them.
    resets = pl.col("change") == "counters reset"
    shown = changes.filter(~resets).tail(_CHANGES)
    if shown.is_empty():
        shown = changes.filter(resets).tail(2)
    rows = [
        (instant(row["time_ns"])[_TO_SECONDS], *described(row).rsplit(": ", 1))
        for row in shown.iter_rows(named=True)
    ]
    if not rows:
        return []
    table = align_columns(("UTC", "", ""), rows, "", names=(1, 2))
    return [heading("WHAT CHANGED"), *table, *more_line(changes.height - len(rows))]


def _since(time_ns: int | None) -> str:
    """An instant as date, hours and minutes."""
    return "start" if time_ns is None else instant(time_ns)[_TO_MINUTES]


def format_gbps(value: float | None, least: bool = False) -> str:
    """A bandwidth in Gb/s, ``?`` if unknown, ``≥`` before a lower bound."""
    if value is None:
        return "?"
    return ("≥ " if least else "") + (f"{value:.3g}" if value < 1000 else f"{value:,.0f}")
