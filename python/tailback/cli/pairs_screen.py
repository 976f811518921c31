"""The screen of a diagnosis of benchmarks between pairs of hosts."""

from __future__ import annotations

from tailback.api.pairs import PairsResult, SlowPart
from tailback.cli.text import align_columns, heading, wrap
from tailback.names.display import printable
from tailback.units import percent

_TITLES = {
    "slow-link": "SLOW HOST OR CABLE",
    "healthy": "NO SLOW HOST OR CABLE",
    "undetermined": "UNDETERMINED",
}
_COLOURS = {"slow-link": "red", "healthy": "green", "undetermined": "yellow"}
_PAIRS = 6


def pairs_lines(result: PairsResult) -> list[str]:
    """The verdict, what is slow, what to check, and what was not used."""
    title = _TITLES[result.cause]
    if result.slow:
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
    return [*lines, "", *wrap(_what_next(result), indent=" " * 6, first="NEXT  ")]


def _what_next(result: PairsResult) -> str:
    """What to check, to measure or to diagnose."""
    if result.slow:
        first = result.slow[0]
        return f"of {printable(first.subject)}: {first.check[:1].lower()}{first.check[1:]}"
    if result.cause == "undetermined":
        return (
            "test more pairs, so that each host has two partners or more (sendrecv_perf, osu_bw, "
            "ib_write_bw), and give all outputs: tailback diagnose FOLDER --fabric FILE"
        )
    return "if a program is slow all the same, diagnose its trace: tailback diagnose TRACE"


def _pairs(part: SlowPart) -> str:
    shown = ", ".join(part.pairs[:_PAIRS])
    more = len(part.pairs) - _PAIRS
    return printable(shown + (f" and {more} more" if more > 0 else ""))
