"""Whether the folder of a diagnosis stands: what was repeated, and what came out differently."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl
from pydantic import Field

from tailback.errors import RunError
from tailback.frozen_model import FrozenModel
from tailback.io.input_files import text_content
from tailback.io.manifest import MANIFEST, read_manifest, sha256_of
from tailback.io.parquet import read_table
from tailback.sources.diagnosis_folder import DIAGNOSE_AGAIN

UNREPEATABLE: Final = frozenset({MANIFEST, "performance.json", "profile.json"})
"""Files with wall-clock times, or with digests of these: no two runs have the same."""

FIGURES: Final = "figures"
"""Folder of figures (``--figures``), drawn from the same tables, with dates and random names."""

LONGEST: Final = 60
"""Characters of a value that are shown: a line of a terminal holds one place and two values."""

Outcome = Literal["stands", "differs", "not-repeatable"]


class Difference(FrozenModel):
    """A value that the repeated diagnosis does not have.

    Attributes:
        file: Path relative to the folder.
        place: Key, column and row, or line; empty for the file as a whole.
        stated: What the folder states.
        again: What came out again.
    """

    file: str
    place: str
    stated: str
    again: str


class Verification(FrozenModel):
    """Whether a diagnosis stands.

    Attributes:
        outcome: ``stands``; ``differs``: repeated, something else came out; or
            ``not-repeatable``.
        headline: The verdict that the folder states.
        remedy: The remedy that it states; empty if none.
        reason: Why it could not be repeated; empty if it was.
        inputs: SHA-256 of every input by its recorded path; None for a pipe.
        checked: Number of files whose SHA-256 is the one in the manifest.
        compared: Number of files that were made again.
        differences: What differs, first of all in ``diagnosis.json``.
        not_compared: Files that are not made again: wall-clock times, figures, foreign files.
    """

    outcome: Outcome
    headline: str
    remedy: str = ""
    reason: str = ""
    inputs: dict[str, str | None] = Field(default_factory=dict)
    checked: int
    compared: int = 0
    differences: list[Difference] = Field(default_factory=list)
    not_compared: list[str] = Field(default_factory=list)


def check_files(folder: Path) -> int:
    """Check the SHA-256 of all files of a diagnosis.

    Returns:
        Their number.

    Raises:
        RunError: Files are missing or have changed, all of which it names, or there is no manifest.
    """
    manifest = read_manifest(folder)
    if manifest.sha256 is None:
        raise RunError("is missing", file=folder / MANIFEST, remedy=DIAGNOSE_AGAIN)
    if "diagnosis.json" not in manifest.sha256:
        raise RunError(
            "does not list diagnosis.json", file=folder / MANIFEST, remedy=DIAGNOSE_AGAIN
        )
    faults = manifest.faults()
    if len(faults) == 1:
        manifest.check(*faults)
    if faults:
        listed = "".join(f"\n  {name}: {fault}" for name, fault in faults.items())
        raise RunError(
            f"{len(faults)} of {len(manifest.sha256)} files are not as they were written:{listed}",
            file=folder,
            remedy=f"restore the files, or {DIAGNOSE_AGAIN}",
        )
    return len(manifest.sha256)


def compared_files(folder: Path, again: Path) -> tuple[list[str], list[str]]:
    """Files to compare and files not to, of a diagnosis and its repetition.

    Returns:
        Relative paths, ``diagnosis.json`` first.
    """
    listed = read_manifest(folder).sha256 or {}
    made = {path.relative_to(again).as_posix() for path in again.rglob("*") if path.is_file()}
    names = sorted(listed.keys() | made, key=lambda name: (name != "diagnosis.json", name))
    compare = [name for name in names if _is_repeatable(name)]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    # Manifests are no results.
    left_out = sorted(name for name in there - set(compare) if Path(name).name != MANIFEST)
    return compare, left_out


def differences(folder: Path, again: Path, names: list[str]) -> list[Difference]:
    """All values in which two folders differ.

    Raises:
        RunError: A table cannot be decoded.
    """
    return [each for name in names for each in _file_differences(folder, again, name)]


def _is_repeatable(name: str) -> bool:
    return Path(name).name not in UNREPEATABLE and not name.startswith(f"{FIGURES}/")


def _file_differences(folder: Path, again: Path, name: str) -> Iterator[Difference]:
    before, after = folder / name, again / name
    if not (before.is_file() and after.is_file()):
        there = [("present" if path.is_file() else "missing") for path in (before, after)]
        yield Difference(file=name, place="", stated=there[0], again=there[1])
    elif sha256_of(before) != sha256_of(after):
        for place, stated, repeated in _value_differences(before, after):
            yield Difference(file=name, place=place, stated=stated, again=repeated)


def _value_differences(before: Path, after: Path) -> Iterator[tuple[str, str, str]]:
    """Place and both values of each difference between two files of one format."""
    if before.suffix == ".parquet":
        return _table_differences(_table(before), _table(after))
    stated, again = (text_content(file, RunError) for file in (before, after))
    if before.suffix == ".json":
        try:
            return _json_differences(json.loads(stated), json.loads(again), "")
        except ValueError as error:
            raise RunError(f"damaged: {error}", file=before, remedy=DIAGNOSE_AGAIN) from None
    return _line_differences(stated, again)


def _table(file: Path) -> pl.DataFrame:
    return read_table(file, error=RunError, remedy=DIAGNOSE_AGAIN)


def _table_differences(stated: pl.DataFrame, again: pl.DataFrame) -> Iterator[tuple[str, str, str]]:
    """The first different row of each column."""
    if stated.schema != again.schema:
        yield "columns", _shown(list(stated.schema.items())), _shown(list(again.schema.items()))
    elif stated.height != again.height:
        yield "", f"{stated.height:,} rows", f"{again.height:,} rows"
    else:
        for name in stated.columns:
            before, after = stated[name], again[name]
            rows = before.ne_missing(after).arg_true()
            if len(rows):
                row = int(rows[0])
                more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
                yield f"{name}, row {row}{more}", _shown(before[row]), _shown(after[row])


def _json_differences(stated: Any, again: Any, place: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(stated, dict) and isinstance(again, dict):
        for key in [*stated, *(key for key in again if key not in stated)]:
            where = f"{place}.{key}" if place else str(key)
            yield from _json_differences(stated.get(key, _ABSENT), again.get(key, _ABSENT), where)
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for number, (before, after) in enumerate(zip(stated, again, strict=True)):
            yield from _json_differences(before, after, place + f"[{number}]")
    elif stated != again or type(stated) is not type(again):
        before, after = _as_text(stated), _as_text(again)
        if max(len(before), len(after)) > LONGEST:
            _, before, after = _parting(before, after)
        yield place, _cut(before), _cut(after)


_ABSENT: Final = "absent"


def _line_differences(stated: str, again: str) -> Iterator[tuple[str, str, str]]:
    """The first different line, from the first different character."""
    before, after = stated.split("\n"), again.split("\n")
    length = max(len(before), len(after))
    before += [""] * (length - len(before))
    after += [""] * (length - len(after))
    line = next(at for at in range(length) if before[at] != after[at])
    column, before_it, after_it = _parting(before[line], after[line])
    yield f"line {line + 1}, column {column + 1}", _cut(before_it), _cut(after_it)


def _parting(stated: str, again: str) -> tuple[int, str, str]:
    """The first different character of two texts, and both from a little before it."""
    shortest = min(len(stated), len(again))
    column = next((at for at in range(shortest) if stated[at] != again[at]), shortest)
    start = max(0, column - LONGEST // 3)
    return column, stated[start:], again[start:]


def _shown(value: Any) -> str:
    return _cut(_as_text(value))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
