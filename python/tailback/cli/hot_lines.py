"""Which line of the program congests which links, for a terminal."""

from __future__ import annotations

from tailback.cli.text import align_columns, heading
from tailback.report import Attribution, by_call_site
from tailback.units import format_time, percent

MAX_LINES = 2


def hot_lines(attribution: Attribution) -> list[str]:
    """The program lines with the most congestion, as a table with a heading; empty without any."""
    call_sites = by_call_site(attribution)[:MAX_LINES]
    if not call_sites:
        return []
    time = attribution.unit == "ps"
    rows = [
        (
            line.line,
            line.place,
            percent(line.share),
            format_time(line.stall) if time else f"{line.stall:,.0f}",
        )
        for line in call_sites
    ]
    head = ("line of the program", "congested links", "share", "stall" if time else "packets")
    return [
        heading("CALL SITES THAT CONGEST LINKS"),
        *align_columns(head, rows, "  rr", names=(0, 1)),
    ]
