"""Delimited text (CSV): columns by any of their usual names, located errors.

Inventories, samplers and schedulers all export CSV, each with its own names for the same columns.
A reader lists the names that it knows for each *role*; it gets a column of text for each role, and
numbers on request. Every error names the file, the line, the column and the value.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from tailback.errors import TailbackError
from tailback.io.input_files import require_text
from tailback.units import counted

Aliases = Mapping[str, Sequence[str]]
"""Names that a column may have, normalised by :func:`normal`, by role."""

ErrorType = Callable[..., TailbackError]
"""The type of error to raise, like ``FabricError``."""

_DELIMITERS: Final = (",", ";", "\t", "|")


def normal(name: str) -> str:
    """A column name in lower case, with underscores: ``"Rate (Mbit)"`` becomes ``rate_mbit``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def shown(text: str) -> str:
    """Text from a file, quoted and short enough for a message."""
    return repr(text if len(text) <= 60 else text[:57] + "…")


@dataclass
class Delimited:
    """A table as text.

    Attributes:
        rows: ``line`` (line number in the file, from 1) and a String column for each role that the
            file has, stripped of white space, null where a field is empty.
        header: Name of each role's column in the file.
        column: Number of each role's column, from 1.
        unused: Names of the columns without a role, in order.
        path: The file, None for text without one.
        error_type: Error to raise.
    """

    rows: pl.DataFrame
    header: dict[str, str]
    column: dict[str, int]
    unused: list[str] = field(default_factory=list)
    path: Path | None = None
    error_type: ErrorType = TailbackError

    def error_at(self, role: str, line: int, message: str, remedy: str) -> TailbackError:
        """The error for one value."""
        where = f"line {line}, column {self.column[role]} ({self.header[role][:40]})"
        return self.error_type(message, file=self.path, place=where, remedy=remedy)

    def need(self, role: str) -> pl.Series:
        """A column without empty fields.

        Raises:
            TailbackError: A field is empty.
        """
        values = self.rows[role]
        if values.null_count():
            raise self._empty(role, int(values.is_null().arg_true()[0]))
        return values

    def _empty(self, role: str, row: int) -> TailbackError:
        line = int(self.rows["line"][row])
        return self.error_at(role, line, "the field is empty", "fill it in, or drop the line")

    def number(self, role: str, *, integer: bool = False) -> pl.Series:
        """A column as UInt64 or Float64, null where a field is empty.

        Args:
            role: The column.
            integer: Whether only whole numbers from 0 to 2^64 - 1 are valid; ``12.0`` is one.

        Raises:
            TailbackError: A field holds something else.
        """
        out, bad = _numbers(self.rows[role], integer=integer)
        if bad.any():
            raise self._no_number(role, int(bad.arg_true()[0]), integer=integer)
        return out.alias(role)

    def _no_number(self, role: str, row: int, *, integer: bool) -> TailbackError:
        what = "whole number from 0 to 2^64 − 1" if integer else "number"
        return self.error_at(
            role,
            int(self.rows["line"][row]),
            f"{shown(str(self.rows[role][row]))} is not a {what}",
            "correct it, or leave the line out; the file may be truncated",
        )

    def instants(self, role: str, zone: str | None = None) -> pl.Series:
        """A column of times as UTC nanoseconds since 1970 (Int64), null where a field is empty.

        A number is seconds, milliseconds, microseconds or nanoseconds since 1970, depending on its
        magnitude. A date and time states its zone (``Z``, ``+01:00``), or its column's name has
        ``utc`` in it.

        Args:
            role: The column.
            zone: Name of the zone of times that state none, like ``Europe/Paris``.

        Raises:
            TailbackError: A field is not a time, or a time without a zone.
        """
        default_zone = self._zone(role) or zone
        out = instants(self.rows[role], default_zone)
        bad = out.is_null() & self.rows[role].is_not_null()
        if bad.any():
            raise self._no_time(role, int(bad.arg_true()[0]), default_zone)
        return out.alias(role)

    def _zone(self, role: str) -> str | None:
        return "UTC" if "utc" in normal(self.header[role]).split("_") else None

    def _no_time(self, role: str, row: int, zone: str | None) -> TailbackError:
        text, line = self.rows[role], int(self.rows["line"][row])
        value = shown(str(text[row]))
        if zone is None and instants(text[row : row + 1], "UTC").is_not_null().all():
            return self.error_at(
                role,
                line,
                f"{value} has no time zone",
                "write UTC with a Z at the end, 2026-11-22T11:06:10Z, or seconds since 1970",
            )
        return self.error_at(
            role,
            line,
            f"{value} is not a time",
            "write it like 2026-11-22T11:06:10.4Z, or as seconds since 1970",
        )

    def without_damaged_rows(
        self,
        *,
        needed: Collection[str] = (),
        times: Collection[str] = (),
        integers: Collection[str] = (),
        numbers: Collection[str] = (),
    ) -> tuple[Delimited, list[TailbackError]]:
        """The table without rows that hold a wrong value, and one error for each of these.

        Args:
            needed: Roles whose fields must not be empty.
            times: Roles of times, as :meth:`instants` reads them.
            integers: Roles of whole numbers.
            numbers: Roles of other numbers. Roles that the table does not have are ignored.
        """
        problems: dict[int, TailbackError] = {}

        def note(bad: pl.Series, error: Callable[[int], TailbackError]) -> None:
            for row in bad.arg_true().to_list():
                problems.setdefault(row, error(row))

        for role in self._present(needed):
            note(self.rows[role].is_null(), partial(self._empty, role))
        for role in self._present(times):
            text, zone = self.rows[role], self._zone(role)
            bad = instants(text, zone).is_null() & text.is_not_null()
            # Times without a zone are a matter of the file, not of a row.
            is_local = bad & instants(text, "UTC").is_not_null()
            note(bad & ~is_local, partial(self._no_time, role, zone=zone))
        for roles, integer in ((integers, True), (numbers, False)):
            for role in self._present(roles):
                bad = _numbers(self.rows[role], integer=integer)[1]
                note(bad, partial(self._no_number, role, integer=integer))
        kept = self.rows.filter(~pl.int_range(pl.len()).is_in(list(problems)))
        return replace(self, rows=kept), [problems[row] for row in sorted(problems)]

    def _present(self, roles: Iterable[str]) -> list[str]:
        return [role for role in roles if role in self.header]


def _numbers(text: pl.Series, *, integer: bool) -> tuple[pl.Series, pl.Series]:
    """Text as UInt64 or Float64, null where it is none; and which text is no number."""
    clean = text.str.replace(r"\.0+$", "") if integer else text
    out = clean.cast(pl.UInt64 if integer else pl.Float64, strict=False)
    bad = out.is_null() & text.is_not_null()
    if not integer:
        bad = bad | (out.is_not_null() & ~out.is_finite())
    return out, bad


_EARLIEST_S: Final = 1e8
"""In 1973: a smaller number is not counted from 1970 but from some start."""
_SCALES_NS: Final = ((1e11, 10**9), (1e14, 10**6), (1e17, 10**3), (9.2e18, 1))
"""Upper limit and unit: seconds, milliseconds …, for times in the years 1973 to 5138."""


def instants(text: pl.Series, zone: str | None = None) -> pl.Series:
    """Times as UTC nanoseconds since 1970 (Int64), null for text that is not a time.

    Args:
        text: Numbers since 1970 or dates as :meth:`Delimited.instants` takes them.
        zone: Zone of dates that state none; without it they are null.

    Raises:
        TailbackError: There is no such zone.
    """
    number = text.cast(pl.Float64, strict=False)
    number = pl.select(pl.when(number.is_finite()).then(number)).to_series()
    seconds, fraction = number.floor(), number - number.floor()
    out = pl.Series([None] * len(text), dtype=pl.Int64)
    for most, scale in reversed(_SCALES_NS):
        # Float64 holds seconds since 1970 to a quarter of a microsecond.
        time = seconds.cast(pl.Int64, strict=False) * scale + (fraction * scale).cast(pl.Int64)
        fits = (number >= _EARLIEST_S) & (number < most)
        out = pl.select(pl.when(fits.fill_null(False)).then(time).otherwise(out)).to_series()
    plain = text.str.replace(" ", "T").str.replace(r"([+-]\d\d)(\d\d)$", "$1:$2")
    parsed = plain.str.to_datetime("%+", time_unit="ns", strict=False, time_zone="UTC")
    out = pl.select(pl.coalesce(out, parsed.dt.epoch("ns"))).to_series()
    if zone is not None:
        local = plain.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="ns", strict=False)
        try:
            # Of the hour that occurs twice in autumn, take the first.
            local = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        except pl.exceptions.PolarsError:
            raise TailbackError(
                f"there is no time zone {shown(zone)}", remedy="name it like Europe/Paris or UTC"
            ) from None
        out = pl.select(pl.coalesce(out, local.dt.epoch("ns"))).to_series()
    return out


def header_of(text: str, aliases: Aliases) -> dict[str, int] | None:
    """Index of the column of each role in the header that ``text`` starts with.

    Args:
        text: Start of a file; lines that begin with ``#`` before the header are skipped.
        aliases: Names of each role.

    Returns:
        The roles found; None if the text has no header line.
    """
    header = _header(text)
    return None if header is None else _roles(header[1], aliases)


def header_names(text: str) -> list[str]:
    """The names in the header that ``text`` starts with; none without a header."""
    header = _header(text)
    return [] if header is None else header[1]


def _header(text: str) -> tuple[int, list[str], str] | None:
    """Number of lines before the header, the header's names and the delimiter."""
    for number, line in enumerate(text.splitlines()):
        if not line.strip() or line.startswith("#"):
            continue
        delimiter = max(_DELIMITERS, key=line.count)
        try:
            names = next(csv.reader([line], delimiter=delimiter))
        except (csv.Error, StopIteration):
            return None
        return number, [name.strip() for name in names], delimiter
    return None


def _roles(names: Sequence[str], aliases: Aliases) -> dict[str, int]:
    """Column of each role, by its first name that is in the header and not yet taken."""
    plain = [normal(name) for name in names]
    out: dict[str, int] = {}
    for role, spellings in aliases.items():
        for name in spellings:
            if name in plain and plain.index(name) not in out.values():
                out[role] = plain.index(name)
                break
    return out


def parse(
    data: str | bytes,
    aliases: Aliases,
    needed: Sequence[str] = (),
    *,
    path: Path | None = None,
    error_type: ErrorType = TailbackError,
    damaged: list[TailbackError] | None = None,
) -> Delimited:
    """Read delimited text with a header.

    Args:
        data: The text, delimited by comma, semicolon, tab or vertical bar.
        aliases: Names of each role.
        needed: Required roles.
        path: The file, for errors.
        error_type: Error to raise.
        damaged: Lines with too few or too many fields are left out, with an error each in this
            list. None: the first is an error.

    Raises:
        TailbackError: A column is missing or occurs twice, a line has too few or too many fields,
            or the text is not CSV.
    """
    raw = data.encode() if isinstance(data, str) else data
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    require_text(raw, path, error_type)
    if (zero := raw.find(b"\0")) >= 0:
        line = raw[:zero].count(b"\n") + 1
        column = zero - raw.rfind(b"\n", 0, zero)
        raise error_type(
            "contains a zero byte",
            file=path,
            place=f"line {line}, column {column}",
            remedy="copy or create the file again",
        )
    header = _header(raw[: 1 << 20].decode("utf-8", errors="replace"))
    if header is None:
        raise error_type(
            "has no header line",
            file=path,
            place="line 1, column 1",
            remedy="name the columns in the first line",
        )
    skip, names, delimiter = header
    roles = _roles(names, aliases)
    for role in needed:
        if role not in roles:
            listed = ", ".join(shown(name) for name in names[:12])
            raise error_type(
                f"no column for the {role.replace('_', ' ')}; its columns are: {listed}",
                file=path,
                place=f"line {skip + 1}, column 1",
                remedy=f"name one of them {' or '.join(aliases[role][:4])}",
            )
    try:
        rows = _rows(raw, skip, len(names), delimiter, path, error_type)
    except TailbackError:
        if damaged is None:
            raise
        lines = _ragged(raw, skip, len(names), delimiter, path, error_type)
        if not lines:
            raise
        damaged += lines.values()
        empty = delimiter.encode() * (len(names) - 1)
        kept = [empty if n in lines else line for n, line in enumerate(raw.split(b"\n"), 1)]
        rows = _rows(b"\n".join(kept), skip, len(names), delimiter, path, error_type)
    # Comments and empty lines are not rows.
    some = pl.any_horizontal(pl.exclude("line").is_not_null())
    rows = rows.filter(~pl.col("c0").str.starts_with("#").fill_null(False) & some)
    columns = {role: pl.col(f"c{index}") for role, index in roles.items()}
    text = {role: c.str.strip_chars().replace("", None) for role, c in columns.items()}
    used = set(roles.values())
    return Delimited(
        rows.select("line", **text),
        {role: names[index] for role, index in roles.items()},
        {role: index + 1 for role, index in roles.items()},
        [name for index, name in enumerate(names) if index not in used],
        path,
        error_type,
    )


def _rows(
    raw: bytes, skip: int, width: int, delimiter: str, path: Path | None, error_type: ErrorType
) -> pl.DataFrame:
    """All rows below the header as text, numbered by line."""
    quote = '"' if b'"' in raw else None
    try:
        frame = pl.read_csv(
            io.BytesIO(raw),
            has_header=False,
            skip_lines=skip + 1,
            infer_schema=False,
            separator=delimiter,
            quote_char=quote,
            encoding="utf8-lossy",
            raise_if_empty=False,
            schema={f"c{i}": pl.String for i in range(width)},
            missing_columns="insert",
        )
    except pl.exceptions.PolarsError as error:
        for bad in _ragged(raw, skip, width, delimiter, path, error_type).values():
            raise bad from None
        raise error_type(
            f"cannot be read as CSV: {str(error).splitlines()[0][:200]}",
            file=path,
            place=f"line {skip + 2}, column 1",
            remedy="export it again, with quotes around fields that contain the delimiter",
        ) from None
    if frame[f"c{width - 1}"].null_count() or quote:
        for bad in _ragged(raw, skip, width, delimiter, path, error_type).values():
            raise bad
    return frame.with_row_index("line", offset=skip + 2)


def _ragged(
    raw: bytes, skip: int, width: int, delimiter: str, path: Path | None, error_type: ErrorType
) -> dict[int, TailbackError]:
    """An error for each line that does not have ``width`` fields, by its number."""
    reader = csv.reader(io.StringIO(raw.decode("utf-8", errors="replace")), delimiter=delimiter)
    out: dict[int, TailbackError] = {}
    try:
        for fields in reader:
            line = reader.line_num
            if line <= skip + 1 or not fields or fields[0].startswith("#"):
                continue
            if any("\n" in part for part in fields) or len(fields) != width:
                out[line] = error_type(
                    f"{len(fields)} fields where the header has {width}",
                    file=path,
                    place=f"line {line}, column {min(len(fields), width) + 1}",
                    remedy="the line is truncated, or an unquoted field contains the delimiter",
                )
    except csv.Error as error:
        place = f"line {reader.line_num}, column 1"
        out[reader.line_num] = error_type(f"{error}", file=path, place=place, remedy="correct it")
    return out


_NAMED: Final = 12
"""Names in a note on what is not used: those of a table of counters or of ``sacct``."""
KEYS_NAMED: Final = 3
"""The same for formats with dozens of keys that do not concern the network: Slurm's JSON."""
FILES_NAMED: Final = 3
"""The same for files of a folder."""


_TELLING: Final = re.compile(
    r"rate|speed|width|wait|stall|pause|xoff|drop|discard|err|retr|ecn|cnp|congest|queue|credit|"
    r"time|duration|size|bytes|priority|dim|group|ops|rout|seed|engine|telemetry",
    re.IGNORECASE,
)
"""Parts of names of what may change an answer: rates, waits, losses, times, sizes and members."""


def telling_first(names: Iterable[str]) -> list[str]:
    """Names of unused columns or keys; names that may change an answer come first."""
    return sorted(names, key=lambda name: _TELLING.search(name) is None)


class NotUsed(str):
    """A note on what was read and not used; shown on every screen, unlike other notes."""

    __slots__ = ()


def not_used(names: Sequence[str], what: str = "columns", most: int = _NAMED) -> list[str]:
    """The note that names the unused parts of a file; empty without any.

    Names of what may change an answer come first.

    Args:
        names: What it leaves out, as the file names it.
        what: What these are.
        most: Number of names in the note; it counts the others.
    """
    if not names:
        return []
    first = telling_first(names)[:most]
    some = ", ".join(name if name.isidentifier() else shown(name) for name in first)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return [NotUsed(f"{what} not used: {some}{more}")]


def not_readable(damaged: Sequence[TailbackError], number: int, what: str) -> list[str]:
    """The note that counts files that cannot be read, and tells of the first; empty without any.

    Args:
        damaged: The error of each.
        number: Number of all files.
        what: What one is called.
    """
    if not damaged:
        return []
    first = damaged[0]
    name = first.file.name if first.file else ""
    where = f" ({first.place})" if first.place else ""
    return [
        NotUsed(
            f"{len(damaged)} of {counted(number, what)} cannot be read (the first: "
            f"{name}{where} {first.message})"
        )
    ]


def unused_keys(objects: Iterable[object], used: Collection[str]) -> list[str]:
    """Keys of JSON objects that a reader neither uses nor knows to be irrelevant, each once."""
    keys = (key for each in objects if isinstance(each, dict) for key in each)
    return list(dict.fromkeys(str(key) for key in keys if key not in used))


_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Characters at which a spreadsheet starts to read a formula."""


def for_spreadsheets(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with formulas disarmed: names from files are hostile, and spreadsheets run them."""
    text = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    starts = {name: pl.col(name).str.slice(0, 1).is_in(_FORMULA) for name in text}
    return frame.with_columns(
        pl.when(starts[name]).then("'" + pl.col(name)).otherwise(pl.col(name)).alias(name)
        for name in text
    )
