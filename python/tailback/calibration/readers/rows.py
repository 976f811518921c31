"""Rows of numbers below a header in benchmark outputs; every error names the line."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailback.calibration.model import CalibrationError
from tailback.io.delimited import shown

LARGEST_BYTES: Final = 1 << 50
"""Larger message sizes indicate a damaged file."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,12})?(?:[eE][-+]?[0-9]{1,3})?\Z", re.ASCII)


@dataclass(frozen=True)
class Row:
    """One line of numbers.

    Attributes:
        line: Its number, from 1.
        fields: Its words.
    """

    line: int
    fields: list[str]


def number(text: str, line: int, what: str, path: Path) -> float:
    """A number that is finite and not negative.

    Args:
        text: The word.
        line: Line number.
        what: Name of its column.
        path: The file.

    Raises:
        CalibrationError: It is not such a number.
    """
    value = float(text) if _NUMBER.match(text) else math.nan
    if not math.isfinite(value):
        raise CalibrationError(
            f"{shown(text)} is not a {what}",
            file=path,
            place=f"line {line}",
            remedy="the output is damaged: run the benchmark again, and redirect its output alone",
        )
    return value


def positive(text: str, line: int, what: str, path: Path) -> float:
    """As :func:`number`, above 0."""
    value = number(text, line, what, path)
    if value == 0:
        raise CalibrationError(
            f"{shown(text)} cannot be a {what}",
            file=path,
            place=f"line {line}",
            remedy="the output is damaged, or has too few digits: run the benchmark again",
        )
    return value


def size(text: str, line: int, path: Path) -> float:
    """A message size in bytes."""
    value = number(text, line, "message size", path)
    if value != int(value) or value > LARGEST_BYTES:
        raise CalibrationError(
            f"{shown(text)} is not a message size in bytes",
            file=path,
            place=f"line {line}",
            remedy="the output is damaged: run the benchmark again",
        )
    return value


def step(text: str) -> float:
    """Value of the last digit of a printed number: 0.01 for ``"3.25"``."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return float(10.0 ** (int(exponent or 0) - digits))


def require_fields(row: Row, columns: Sequence[str], path: Path) -> None:
    """Refuse a row that does not have one field per column of its header.

    Raises:
        CalibrationError: It has more or fewer.
    """
    if len(row.fields) != len(columns):
        raise CalibrationError(
            f"{len(row.fields)} fields where the header has {len(columns)}: "
            f"{shown(' '.join(row.fields))}",
            file=path,
            place=f"line {row.line}",
            remedy="the output is cut or mixed with other output: run the benchmark again",
        )


def without_cut_row(
    rows: Sequence[Row], notes: list[str], *, columns: int | None = None, column: int | None = None
) -> list[Row]:
    """The rows without the last one if the file was cut within it.

    It has too few fields, or its value has fewer decimals than all above. A single row stays.

    Args:
        rows: The rows.
        notes: Gets a line on the row.
        columns: Number of fields of a row; None: as many as those above have.
        column: Number of the value's column; None: decimals are not compared.
    """
    above = rows[:-1]
    if not above:
        return list(rows)
    last = rows[-1]
    usual = columns or min(len(row.fields) for row in above)
    is_cut = len(last.fields) < usual
    if len(last.fields) == usual and column is not None and len(above) > 1:
        decimals = {
            len(row.fields[column].partition(".")[2]) for row in above if column < len(row.fields)
        }
        value = last.fields[column]
        is_cut = len(decimals) == 1 and len(value.partition(".")[2]) < min(decimals)
    if not is_cut:
        return list(rows)
    notes.append(f"line {last.line} is cut and left out: {shown(' '.join(last.fields))}")
    return list(above)


def require_rows(rows: Sequence[object], what: str, line: int, path: Path) -> None:
    """Refuse a header without a row below it.

    Raises:
        CalibrationError: There is none.
    """
    if not rows:
        raise CalibrationError(
            f"no row below the header of {what}",
            file=path,
            place=f"line {line}",
            remedy="the file is cut, or the benchmark failed: run it again",
        )
