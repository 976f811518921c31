"""nccl-tests: the printed table, or the JSON file of ``-J``.

The bus bandwidth is what each rank must send and receive, independent of the algorithm, so its
limit for large sizes is the rate of the adapters of a host; within one host it is the rate between
GPUs. Out-of-place results are used. GB/s are 10^9 bytes.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tailback.calibration.model import BenchmarkData, CalibrationError, Series, stream
from tailback.calibration.readers.rows import (
    Row,
    number,
    positive,
    require_rows,
    size,
    step,
    without_cut_row,
)
from tailback.io.delimited import shown
from tailback.units import counted

_BEGIN: Final = re.compile(r"^# (?:nccl-tests version|Collective test starting|nThread)\b", re.M)
_HEADER: Final = re.compile(r"#\s+size\s+count\s+type\s")
_RANK: Final = re.compile(r"#?\s*Rank\s+\d+\s.*?\bon\s+(\S{1,255})\s+device\s+(\d{1,4})?")
_REMEDY: Final = "run the test again, and keep its output alone"


def sniff(text: str) -> bool:
    """Whether the text has the table's header, or is JSON with bus bandwidths."""
    return any(_HEADER.match(line) for line in text.splitlines()) or (
        text.lstrip().startswith("{") and '"bus_bw"' in text
    )


_DIGITS: Final = 18
"""Digits of a number of wrong values: one with more is damaged text."""

_WRONG: Final = re.compile(
    rf"^# Out of bounds values\s*:\s*([1-9]\d{{0,{_DIGITS - 1}}})\s+FAILED", re.M
)


def read(text: str, path: Path) -> BenchmarkData:
    """Read the output; raises CalibrationError."""
    out = BenchmarkData()
    if text.lstrip().startswith("{"):
        data = _json(text, path)
        points, wrong = _results(data, path)
        out.hosts = _json_hosts(data)
    else:
        points, wrong = _table(text, path, out.notes)
        out.hosts, out.devices = _hosts(text)
        # A cut output lacks the sum below the table, and a row may be cut before its own count.
        wrong = max(wrong, sum(int(match[1]) for match in _WRONG.finditer(text)))
    if wrong:
        out.corrupted = f"{counted(wrong, 'received value')} wrong"
    out.series.append(_series(points))
    return out


def split_runs(text: str) -> list[str]:
    """The runs whose outputs follow one another in a file, as a loop over pairs of hosts writes."""
    starts = [match.start() for match in _BEGIN.finditer(text)]
    if len(starts) < 2:
        return [text]
    # The version is printed before the parameters, so a run may begin with either.
    apart = [at for last, at in pairwise([-1, *starts]) if _HEADER.search(text, last + 1, at)]
    return [text[begin:end] for begin, end in pairwise([0, *apart, len(text)])]


def _hosts(text: str) -> tuple[list[str], list[int]]:
    """Host and device of each rank; no devices unless all have one."""
    matches = [match for line in text.splitlines() if (match := _RANK.search(line))]
    devices = [int(match[2]) for match in matches if match[2]]
    return [match[1] for match in matches], devices if len(devices) == len(matches) else []


def _json_hosts(data: dict[str, Any]) -> list[str]:
    """Host of each rank; its position in the file depends on the version."""
    host_of: dict[int, str] = {}
    open_: list[Any] = [value for name, value in data.items() if name != "results"]
    while open_:
        entry = open_.pop()
        if isinstance(entry, dict):
            rank, host = entry.get("rank"), entry.get("hostname")
            if isinstance(rank, int) and isinstance(host, str):
                host_of[rank] = host
            open_ += entry.values()
        elif isinstance(entry, list):
            open_ += entry
    return [host_of[rank] for rank in sorted(host_of)]


def _table(text: str, path: Path, notes: list[str]) -> tuple[list[tuple[float, float, float]], int]:
    """Size, bytes a second and step of each row; and the number of received values that are wrong.

    The latter is not printed if the test does not check them (``N/A``).
    """
    header, line, rows = list[str](), 1, list[Row]()
    for count, plain in enumerate(text.splitlines(), 1):
        if _HEADER.match(plain):
            header, line = plain.lstrip("# ").split(), count
        elif header and plain.strip()[:1].isdigit():
            rows.append(Row(count, plain.split()))
    require_rows(rows, "nccl-tests", line, path)
    if "time" not in header or "busbw" not in header:
        raise CalibrationError(
            f"no columns time and busbw in the header: {shown(' '.join(header))}",
            file=path,
            place=f"line {line}",
            remedy=_REMEDY,
        )
    out, wrong = [], 0
    for row in without_cut_row(rows, notes):
        # Tests without root or operation leave these columns empty; the results are at the end.
        missing = len(header) - len(row.fields)
        if not 0 <= missing <= 2:
            raise CalibrationError(
                f"{len(row.fields)} fields where the header has {len(header)}: "
                f"{shown(' '.join(row.fields))}",
                file=path,
                place=f"line {row.line}",
                remedy=f"the output is cut: {_REMEDY}",
            )
        took = row.fields[header.index("time") - missing]
        bus = row.fields[header.index("busbw") - missing]
        bytes_ = size(row.fields[0], row.line, path)
        positive(took, row.line, "time in µs", path)
        rate = number(bus, row.line, "bus bandwidth", path)
        if bytes_ > 0 and rate > 0:
            out.append((bytes_, rate * 1e9, step(bus) * 1e9))
        counts = [
            cell
            for name, cell in zip(header[missing:], row.fields, strict=True)
            if name == "#wrong"
        ]
        wrong += sum(int(cell) for cell in counts if cell.isdecimal() and len(cell) <= _DIGITS)
    require_rows(out, "nccl-tests", line, path)
    return out, wrong


def _json(text: str, path: Path) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CalibrationError(
            f"not valid JSON: {error}", file=path, remedy=f"the file is cut: {_REMEDY}"
        ) from None
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        raise CalibrationError(
            "has no list of results", file=path, remedy="give the file that -J wrote"
        )
    return data


def _results(data: dict[str, Any], path: Path) -> tuple[list[tuple[float, float, float]], int]:
    """As :func:`_table`."""
    out, wrong = [], 0.0
    for count, result in enumerate(data["results"], 1):
        place = f"results, number {count}"
        inside = None
        if isinstance(result, dict):
            both = result.get("out_of_place"), result.get("in_place")
            inside = both[0] or both[1]
            # Absent, or text, if the test does not check what it receives.
            counts = [each.get("nwrong") for each in both if isinstance(each, dict)]
            wrong += sum(
                _number(number, "nwrong", place, path)
                for number in counts
                if isinstance(number, int | float)
            )
        bus = inside.get("bus_bw") if isinstance(inside, dict) else None
        sent = result.get("size") if isinstance(result, dict) else None
        bytes_, rate = _number(sent, "size", place, path), _number(bus, "bus_bw", place, path)
        if bytes_ and rate:
            out.append((bytes_, rate * 1e9, 0.0))
    require_rows(out, "nccl-tests", 1, path)
    return out, int(wrong)


def _number(value: object, name: str, place: str, path: Path) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    number = float(value) if fine and abs(value) < 2.0**60 else -1.0  # type: ignore[arg-type]
    if not number >= 0:
        raise CalibrationError(
            f"{name} is {shown(repr(value))}", file=path, place=place, remedy=_REMEDY
        )
    return number


def _series(points: list[tuple[float, float, float]]) -> Series:
    # Ranks of several hosts take part at once.
    return stream("nccl", points, len(points), "nccl-tests", pairs=max(2, len(points)))
