"""The programs of one command: each leaves its files in a folder of its own."""

from __future__ import annotations

import re
from pathlib import Path

from tailback.units import counted

_PREFIX = "program-"
_UTC = re.compile(rb"^utc \d+ (\d+)$", re.MULTILINE)
_NEVER = 1 << 63


def first_program(folder: Path, notes: list[str]) -> Path | None:
    """The folder of the MPI program that started first; None if no rank left a file.

    Args:
        folder: The folder that the ranks were given.
        notes: Gets a line if there were other programs.
    """
    started = {}
    for program in sorted(folder.glob(f"{_PREFIX}*/")):
        if ranks := sorted(program.glob("rank-*.meta")):
            started[program] = (min(_start(file) for file in ranks), len(ranks))
    programs = sorted(started, key=lambda program: started[program][0])
    if programs[1:]:
        more = sum(started[program][1] for program in programs[1:])
        notes.append(
            f"{counted(len(programs) - 1, 'other MPI program')} of this command "
            f"({counted(more, 'rank')}) left out: the one that started first is in the trace; "
            "processes that it spawned are programs of their own"
        )
    return programs[0] if programs else None


def _start(file: Path) -> int:
    """UTC at which a rank began to record, ns."""
    with file.open("rb") as lines:
        found = _UTC.search(lines.read(65536))
    return int(found[1]) if found else _NEVER
