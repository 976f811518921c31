"""SHA-256 of the files of a collection: one file per finished segment.

While a segment is written, every record has a checksum. The tables of a finished segment never
change, and ``sha256/000006.json`` holds the SHA-256 of each. Collections of earlier versions have
none and are still read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tailback.io.input_files import text_content
from tailback.io.manifest import sha256_of
from tailback.io.parquet import scan_tables
from tailback.port_counters.schema import CounterError
from tailback.units import counted

FOLDER: Final = "sha256"

_REMEDY: Final = "restore the file from a copy, or move it out of the folder"
_NUMBER: Final = re.compile(r"(?:carry-)?([0-9]{6})\.")


def digests_of(collection: Path, name: str) -> str:
    """The text of the file for segment ``name``, like ``"000006"``."""
    files = [
        *collection.glob(f"*/{name}.parquet"),
        *collection.glob(f"*/{name}.jsonl"),
        *collection.glob(f"carry-{name}.npy"),
    ]
    return _text({path.relative_to(collection).as_posix(): sha256_of(path) for path in files})


def check(file: Path) -> None:
    """Check that a file of a collection is unchanged.

    Args:
        file: A table or the last readings of a segment. A file outside a collection, or of a
            segment without SHA-256, is not checked.

    Raises:
        CounterError: It has changed, or the file with its SHA-256 is damaged.
    """
    segment_digests = _digests(file)
    if segment_digests is None:
        return
    beside, digests = segment_digests
    collection = beside.parent.parent
    stated = digests.get(file.relative_to(collection).as_posix())
    try:
        if stated is not None and sha256_of(file) == stated:
            return
    except OSError as error:
        raise CounterError(f"cannot be read: {error.strerror}", file=file) from None
    where = beside.relative_to(collection)
    what = f"its SHA-256 is not the one in {where}" if stated else f"{where} does not list it"
    raise CounterError(f"damaged or edited: {what}", file=file, remedy=_REMEDY)


def readable_files(files: Sequence[Path]) -> tuple[list[Path], tuple[str, ...]]:
    """The Parquet files that are whole, by digest where they have one, and notes on the others.

    Raises:
        CounterError: None of them can be read.
    """
    sound, problems = [], []
    for file in files:
        try:
            check(file)
            scan_tables(file, error=CounterError, remedy="move the file out of the folder")
            sound.append(file)
        except CounterError as error:
            problems.append(error)
    if problems and not sound:
        raise problems[0]
    return sound, tuple(left_out(error) for error in problems)


def left_out(error: CounterError) -> str:
    """Note on a file that is not read while others are."""
    name = "a file" if error.file is None else Path(error.file).name
    place = f"{error.place}: " if error.place else ""
    return f"left out: {name}: {place}{error.message}"


def unchecked(collection: Path) -> list[str]:
    """A note on segments whose files have no SHA-256, if there are any."""
    tables = {path.stem for path in (collection / "intervals").glob("*.parquet")}
    missing = tables - {path.stem for path in (collection / FOLDER).glob("*.json")}
    if not missing:
        return []
    amount = f"{len(missing)} of {counted(len(tables), 'segment')}"
    return [f"{amount} have no SHA-256, so damage to them may go unnoticed"]


def _digests(file: Path) -> tuple[Path, dict[str, str]] | None:
    """The file with the SHA-256 of a file, and its content; None if there is none."""
    match = _NUMBER.match(file.name)
    if match is None:
        return None
    collection = file.parent if file.name.startswith("carry-") else file.parent.parent
    path = collection / FOLDER / f"{match[1]}.json"
    if not path.exists():
        return None
    text = text_content(path, CounterError)
    try:
        content = json.loads(text)
        if not isinstance(content, dict) or _text(content) != text:
            raise ValueError("it has changed since it was written")
    except (ValueError, RecursionError) as error:
        raise CounterError(
            f"damaged: {error}",
            file=path,
            remedy="delete it: the tables of its segment are then read unchecked",
        ) from None
    return path, content


def _text(content: dict[str, str]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
