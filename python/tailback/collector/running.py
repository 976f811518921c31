"""The readings of a collector that is still running, as a collection of their own.

The segment that is being written, and those that wait for their conversion, are copied and
converted elsewhere. The collector is not disturbed, and its folder need not be writable.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from tailback.collector.segments import SUFFIX
from tailback.collector.store import Collection


def convert_running(path: Path, folder: Path) -> list[str]:
    """Convert the segments of a collection that have no tables yet, in another folder.

    Args:
        path: The collection.
        folder: A new folder for theirs.

    Returns:
        The numbers of the segments, like ``"000007"``; empty if there are none.

    Raises:
        CounterError: A segment cannot be read, or ``folder`` cannot be written.
    """
    segments = sorted(path.glob(f"segments/*{SUFFIX}"))
    if not segments:
        return []
    collection = Collection(folder)
    try:
        # A file that is gone was converted by the collector meanwhile.
        for file in sorted(path.glob("carry-*.npy"))[-2:]:
            with suppress(FileNotFoundError):
                shutil.copy(file, folder / file.name)
        copied = []
        for file in segments:
            with suppress(FileNotFoundError):
                shutil.copy(file, folder / "segments" / file.name)
                copied.append(file.name.removesuffix(SUFFIX))
        collection.compact()
        return copied
    finally:
        collection.close()


def are_converted(path: Path, numbers: list[str]) -> bool:
    """Whether the collection has tables of one of these segments by now."""
    return any((path / "intervals" / f"{number}.parquet").exists() for number in numbers)
