"""The screen of dumps of PyTorch's Flight Recorder."""

from __future__ import annotations

from tailback.api.hang import CompletedResult, HangResult
from tailback.cli.text import heading, wrap
from tailback.names.display import printable


def hang_lines(result: HangResult | CompletedResult) -> list[str]:
    """Who holds up the run or is late, and what to do."""
    hangs = result.cause != "complete"
    title = "A COLLECTIVE DOES NOT COMPLETE" if hangs else "NO COLLECTIVE HANGS"
    return [
        heading("VERDICT", title, "red" if hangs else "green"),
        *wrap(printable(result.headline)),
        "",
        *wrap(printable(result.next_step), indent=" " * 6, first="NEXT  "),
        *(line for note in result.notes for line in wrap(printable(note), " " * 6, "NOTE  ")),
    ]
