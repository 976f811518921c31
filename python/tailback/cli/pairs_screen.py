"""The screen of a diagnosis of benchmarks between pairs of hosts."""

from __future__ import annotations

from tailback.api.pairs import PairsResult, SlowPart
from tailback.cli.text import align_columns, heading, wrap
from tailback.names.display import printable
from tailback.units import percent

_TITLES = {
    "corrupted": "DATA CORRUPTED",
    "slow-link": "SLOW HOST OR CABLE",
    "healthy": "NO SLOW HOST OR CABLE",
    "undetermined": "UNDETERMINED",
}
_COLOURS = {"corrupted": "red", "slow-link": "red", "healthy": "green", "undetermined": "yellow"}
_PAIRS = 6


def pairs_lines(result: PairsResult) -> list[str]:
    """The verdict, what is slow, what to check, and what was not used."""
    title = _TITLES[result.cause]
    if result.slow and not result.corrupted:
        title += f", {percent(result.slow[0].probability, 0)} sure"
    lines = [heading("VERDICT", title, _COLOURS[result.cause]), *wrap(printable(result.headline))]
    if result.slow:
        rows = [
            (
                printable(part.subject),
                f"{part.gbps:.4g}",
                f"{part.slowdown:.2f}",
                percent(part.probability, 0),
            )
            for part in result.slow
        ]
        header = ("what is slow", "Gb/s", "times as long", "sure")
        lines += ["", heading("SLOW"), *align_columns(header, rows, " rrr", names=(0,))]
    for part in result.slow:
        lines += wrap(f"{printable(part.subject)} in the tests {_pairs(part)}")
        if part.rivals:
            others = ", ".join(f"{name} ({percent(chance)})" for name, chance in part.rivals)
            lines += wrap(f"instead of {printable(part.subject)}: {printable(others)}")
    notes = [text for note in result.notes for text in wrap(f"not used: {printable(note)}")]
    lines += ["", *notes] if notes else []
    return [*lines, "", *wrap(printable(result.next_step), indent=" " * 6, first="NEXT  ")]


def _pairs(part: SlowPart) -> str:
    shown = ", ".join(part.pairs[:_PAIRS])
    more = len(part.pairs) - _PAIRS
    return printable(shown + (f" and {more} more" if more > 0 else ""))
