"""Ranks that share processor cores or a clock, as ``tailback record`` stored with their hosts."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TailbackError
from tailback.io.input_files import text_content
from tailback.traffic.program import RecordedTimes
from tailback.units import counted, format_time


def note_on_times(recording: RecordedTimes) -> str:
    """Why the times of a recording are not used, in one line; empty if they are."""
    if not recording.sharing:
        return ""
    total = f"its times ({format_time(recording.calls_ps)} per rank in calls) are not used"
    if recording.processor_time:
        return f"recording: {recording.sharing}: {total}; computation is their processor time"
    return f"recording: {recording.sharing}: {total}"


def sharing_ranks(folder: Path) -> str | None:
    """How many ranks share too few cores, and on which host; empty if none, None if unknown.

    Args:
        folder: A recording; its ``rank_host.csv`` has columns rank, host and cores (``0-3,8``).
    """
    ranks: dict[str, int] = defaultdict(int)
    cores: dict[str, set[int]] = defaultdict(set)
    try:
        for row in rank_rows(folder):
            ranks[row["host"]] += 1
            cores[row["host"]] |= core_numbers(row["cores"] or "")
    except (TailbackError, KeyError, ValueError, TypeError, csv.Error):
        # A file of this name that others wrote may have no cores.
        return None
    few = sorted(host for host in ranks if 0 < len(cores[host]) < ranks[host])
    if not few:
        return "" if ranks and all(cores.values()) else None
    first = few[0]
    others = f", likewise on {counted(len(few) - 1, 'more host')}" if few[1:] else ""
    return f"{ranks[first]} ranks share {counted(len(cores[first]), 'core')} on {first}{others}"


def common_clocks(folder: Path, ranks: int) -> NDArray[np.int64] | None:
    """Number of the clock of each rank, shape (ranks,); None if the folder does not say.

    Args:
        folder: A recording; its ``rank_host.csv`` has columns rank and clock: the first rank that
            has this clock, itself where nobody else has it.
        ranks: Number of ranks.
    """
    if not (folder / "recording.json").is_file():
        return None
    clocks = np.arange(ranks)
    try:
        for row in rank_rows(folder):
            clocks[int(row["rank"])] = int(row["clock"])
    except (TailbackError, KeyError, ValueError, TypeError, IndexError, OverflowError, csv.Error):
        return None
    return clocks


def rank_rows(folder: Path) -> Iterator[dict[str, str]]:
    """Rows of the ranks of a recording; raises TailbackError if they cannot be read."""
    return csv.DictReader(io.StringIO(text_content(folder / "rank_host.csv"), newline=""))


def core_numbers(text: str) -> set[int]:
    """Numbers of a list like ``0-3,8``, of at most 1024 cores."""
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), min(int(last or first), int(first) + 1023) + 1))
    return cores
