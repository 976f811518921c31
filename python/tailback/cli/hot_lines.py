"""Which line of the program makes links hot, for a terminal of 80 columns."""

from __future__ import annotations

from tailback.cli.render import columns, percent, short
from tailback.report import Attribution, by_line
from tailback.units import format_time

SHOWN = 2


def hot_lines(attribution: Attribution) -> list[str]:
    """The lines of the program that suffer most, as a table with a heading; empty without any."""
    found = by_line(attribution)[:SHOWN]
    if not found:
        return []
    time = attribution.unit == "ps"
    rows = [
        (
            short(line.line, 27),
            short(line.place, 28),
            percent(line.share),
            format_time(line.stall) if time else f"{line.stall:,.0f}",
        )
        for line in found
    ]
    head = ("line of the program", "hot links", "share", "stall" if time else "packets")
    return ["WHICH LINE MAKES LINKS HOT", *columns(head, rows, "  rr")]
