"""OSU Micro-Benchmarks: osu_latency, osu_bw, osu_bibw and osu_mbw_mr, versions 3 to 7.

A file may contain the output of several. Columns are identified by the header: versions and options
add minimum, maximum, percentiles, iterations and validation. Means are used. MB/s are 10^6 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailback.calibration.model import BenchmarkData, CalibrationError, Series, latency, stream
from tailback.calibration.readers.rows import (
    Row,
    positive,
    require_fields,
    require_rows,
    size,
    step,
    without_cut_row,
)
from tailback.io.delimited import shown

_TITLE: Final = re.compile(r"#\s*OSU\s+(?P<name>.{1,80}?)\s+v?(?P<version>\d[\d.a-z]*)\s*\Z")
_PAIRS: Final = re.compile(r"#\s*\[\s*pairs:\s*(\d{1,7})\s*\]")
_TESTS: Final = {
    "latency test": "osu_latency",
    "bandwidth test": "osu_bw",
    "bi-directional bandwidth test": "osu_bibw",
    "multiple bandwidth / message rate test": "osu_mbw_mr",
}
_MEAN: Final = re.compile(r"(?:avg )?latency ?\(us\)|bandwidth ?\(mb/s\)|mb/s")
_ITERATIONS: Final = 1000
"""Default number of repetitions for large messages."""


@dataclass
class _Block:
    """One test's output."""

    title: str
    test: str
    pairs: int = 1
    header: list[str] = field(default_factory=list)
    header_line: int = 0
    rows: list[Row] = field(default_factory=list)


def sniff(text: str) -> bool:
    """Whether a title of an OSU benchmark is in the text."""
    return any(_TITLE.match(line.strip()) for line in text.splitlines())


def read(text: str, path: Path) -> BenchmarkData:
    """Read the output; raises CalibrationError."""
    out = BenchmarkData()
    for block in _blocks(text):
        if not block.test:
            out.notes.append(f"{shown(block.title)} is not used")
            continue
        out.series.append(_series(block, path, out))
        if "cuda" in block.title.lower() or "rocm" in block.title.lower():
            out.notes.append(f"{shown(block.title)} may move data of GPUs")
    return out


def _blocks(text: str) -> list[_Block]:
    out: list[_Block] = []
    for count, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if title := _TITLE.match(plain):
            name = re.sub(r"^(mpi|openshmem|upc\+?\+?)(-\w+)?\s+", "", title["name"].lower())
            test = _TESTS.get(name, "") if title["name"].lower().startswith("mpi") else ""
            out.append(_Block(title["name"], test))
        elif not out:
            continue
        elif pairs := _PAIRS.match(plain):
            out[-1].pairs = int(pairs[1])
        elif re.match(r"#\s*size\b", plain, re.IGNORECASE):
            names = re.split(r"\s{2,}|\t", plain.lstrip("# "))
            out[-1].header, out[-1].header_line = [name.lower() for name in names], count
        elif plain[:1].isdigit() and out[-1].header:
            out[-1].rows.append(Row(count, plain.split()))
    return out


def _series(block: _Block, path: Path, out: BenchmarkData) -> Series:
    """The series of a test; ``out`` gets notes, and what arrived damaged."""
    require_rows(block.rows, block.test, block.header_line or 1, path)
    column = next((i for i, name in enumerate(block.header) if _MEAN.fullmatch(name)), None)
    if column is None:
        raise CalibrationError(
            f"no column of {block.test} in the header: {shown(', '.join(block.header))}",
            file=path,
            place=f"line {block.header_line}",
            remedy="give the output as the benchmark prints it",
        )
    check = next((i for i, name in enumerate(block.header) if name == "validation"), None)
    points = []
    what = "latency in µs" if block.test == "osu_latency" else "bandwidth in MB/s"
    for row in without_cut_row(block.rows, out.notes, columns=len(block.header), column=column):
        require_fields(row, block.header, path)
        if check is not None and row.fields[check].lower() != "pass" and not out.corrupted:
            out.corrupted = f"line {row.line}: its own validation says {shown(row.fields[check])}"
        value = row.fields[column]
        bytes_ = size(row.fields[0], row.line, path)
        points.append((bytes_, positive(value, row.line, what, path), step(value)))
    n = _ITERATIONS * len(points)
    if block.test == "osu_latency":
        return latency("mpi", points, n, block.test)
    points = [point for point in points if point[0] > 0]
    require_rows(points, block.test, block.header_line, path)
    # osu_bibw adds up both directions; each adapter sends half.
    directions = 2 if block.test == "osu_bibw" else 1
    rates = [(at, rate * 1e6 / directions, part * 1e6 / directions) for at, rate, part in points]
    return stream("mpi", rates, n, block.test, block.pairs)
