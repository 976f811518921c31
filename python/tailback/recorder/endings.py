"""What the end of a program means for its recording."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from tailback.recorder.rank_files import RankRecord
from tailback.units import counted


def exit_status(code: int | None) -> int:
    """Exit code of a shell for that of a process, negative: a signal ended it; 0 if unknown."""
    if code is None:
        return 0
    return code if code >= 0 else 128 - code


def ended(code: int) -> str:
    """How the launcher ended: ``with exit code 3``, ``by SIGKILL``."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def notes_on_end(code: int | None, ranks: Sequence[RankRecord], calls: int) -> list[str]:
    """A line on a program that failed or did not come to its end, and what of it is recorded.

    Args:
        code: As of :func:`ended`; None if the recording was finished later.
        ranks: What the ranks left.
        calls: Recorded MPI calls of all of them, besides those that begin and end MPI.
    """
    recorded = [rank for rank in ranks if rank.recorded]
    left = [rank.rank for rank in recorded if rank.end == "exit"]
    killed = [rank.rank for rank in recorded if not rank.end and not rank.full]
    full = [rank.rank for rank in recorded if rank.full]
    if not (code is None or code or left or killed or full):
        return []
    parts = []
    if full:
        reason = next(rank.full for rank in recorded if rank.full)
        parts.append(f"{_named(full)} stopped recording: {reason}")
    if left:
        parts.append(f"{_named(left)} ended before MPI_Finalize, with all calls kept")
    if killed:
        parts.append(
            f"{_named(killed)} ended without a chance or room to write: up to 1 MiB of "
            "the last records of each is missing"
        )
    what = "; ".join(parts) or "all recorded ranks reached MPI_Finalize: the recording is whole"
    end = "; what is recorded can be diagnosed" if parts else ""
    if not calls:
        end = "; no MPI call besides MPI_Init is recorded, so there is nothing to diagnose"
    how = "nothing says how the program ended"
    if code is not None:
        how = f"the program ended {ended(code)}"
    return [f"{how}; {what}{end}"]


def notes_on_missing(ranks: Sequence[RankRecord]) -> list[str]:
    """Lines on ranks that are not recorded, and on clocks that were not compared."""
    notes = []
    missing = [rank.rank for rank in ranks if not rank.recorded]
    if missing:
        notes.append(
            f"not recorded: {len(missing)} of {len(ranks)} ranks ({number_ranges(missing)}): their "
            "program is statically linked, clears LD_PRELOAD or calls no MPI_Init, or --out is not "
            "on a file system that all hosts share"
        )
    recorded = [rank for rank in ranks if rank.recorded]
    apart = sorted({rank.host for rank in recorded if rank.by_utc} - {recorded[0].host})
    if apart:
        notes.append(
            f"the clocks of {counted(len(apart), 'host')} were not compared with that of "
            f"{recorded[0].host}: their system clocks (UTC) are used, which may be milliseconds "
            "apart; a diagnosis corrects what messages contradict"
        )
    return notes


def number_ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers as ranges, at most eight: ``0-3, 8``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{first}-{last}" if last > first else f"{first}" for first, last in ranges[:8]]
    return ", ".join(texts) + (", …" if ranges[8:] else "")


def _named(ranks: Sequence[int]) -> str:
    return f"{counted(len(ranks), 'rank')} ({number_ranges(ranks)})"
