"""The screen of a training run that hangs."""

from __future__ import annotations

from tailback.api.hang import HangResult
from tailback.cli.text import heading, wrap
from tailback.names.display import printable


def hang_lines(result: HangResult) -> list[str]:
    """Who holds up the run, and what to do."""
    return [
        heading("VERDICT", "A COLLECTIVE DOES NOT COMPLETE", "red"),
        *wrap(printable(result.headline)),
        "",
        *wrap(printable(result.next_step), indent=" " * 6, first="NEXT  "),
    ]
