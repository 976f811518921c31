"""Rows that name a sender, a receiver and a size, as tools of data frames export them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tailback.errors import TraceError
from tailback.traffic.program import Label, Program
from tailback.traffic.readers.pair_totals import program_of_totals

_MAX_RANKS = 1 << 24

Totals = Mapping[tuple[int, int, str], Counter[int]]
"""Number of messages by size in bytes, by (source, destination, call)."""


def whole(value: object) -> int:
    """A whole number, also one written as text or with a decimal point; raises ValueError."""
    if isinstance(value, str):
        value = value.strip()
        if len(value) > 20:
            raise ValueError(f"{value[:20]!r} … is not a whole number")
        value = int(value) if value.lstrip("-").isdecimal() else float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number")
    return int(value)


def check_message(source: int, target: int, size: int, count: int) -> None:
    """Raise ValueError for a message that cannot be."""
    if not (0 <= source < _MAX_RANKS and 0 <= target < _MAX_RANKS):
        raise ValueError(f"a message from rank {source} to rank {target}")
    if not (0 <= size < 1 << 62 and 0 <= count < 1 << 62):
        raise ValueError(f"{count} messages of {size} B")


def program_of_rows(path: Path, n_ranks: int, totals: Totals, notes: list[str]) -> Program:
    """The messages as a rank program without times; raises TraceError if there are too many."""
    calls = sorted({key[2] for key in totals})
    rows = [
        (source, target, calls.index(call), size * count, count)
        for (source, target, call), sizes in sorted(totals.items())
        for size, count in sorted(sizes.items())
        if count
    ]
    labels = [Label(call, call) for call in calls] or [Label("point-to-point", "point-to-point")]
    try:
        return program_of_totals(path.name.split(".")[0], n_ranks, rows, labels, notes)
    except TraceError as error:
        raise error.located(path) from None
