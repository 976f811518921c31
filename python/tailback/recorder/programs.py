"""The programs of one command: each leaves its files in a folder of its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tailback.recorder.rank_files import RecordError
from tailback.units import counted

_PREFIX = "program-"
_UTC = re.compile(rb"^utc \d+ (\d+)$", re.MULTILINE)
_NEVER = 1 << 63


def take_first_program(folder: Path, notes: list[str]) -> bool:
    """Move the files of the MPI program that started first into the folder; drop those of others.

    Args:
        folder: The folder that the ranks were given.
        notes: Gets a line if there were other programs.

    Returns:
        Whether there is one.

    Raises:
        RecordError: The files cannot be moved.
    """
    started = {}
    for program in sorted(folder.glob(f"{_PREFIX}*/")):
        if ranks := sorted(program.glob("rank-*.meta")):
            started[program] = (min(_start(file) for file in ranks), len(ranks))
    others = sorted(started, key=lambda program: started[program][0])
    try:
        for program in others[:1]:
            for file in program.iterdir():
                # Not what the ranks agreed on: a link, and a file for each host.
                if file.suffix:
                    file.rename(folder / file.name)
        for program in folder.glob(f"{_PREFIX}*/"):
            shutil.rmtree(program)
    except OSError as error:
        raise RecordError(
            f"the files of the ranks cannot be moved: {error.strerror}", file=folder,
            remedy="record the program again, into a folder that nothing else changes",
        ) from None  # fmt: skip
    if others[1:]:
        more = sum(started[program][1] for program in others[1:])
        notes.append(
            f"{counted(len(others) - 1, 'other MPI program')} of this command "
            f"({counted(more, 'rank')}) left out: the one that started first is in the trace; "
            "processes that it spawned are programs of their own"
        )
    return bool(others)


def _start(file: Path) -> int:
    """UTC at which a rank began to record, ns."""
    with file.open("rb") as lines:
        found = _UTC.search(lines.read(65536))
    return int(found[1]) if found else _NEVER
