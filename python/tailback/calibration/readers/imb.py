"""Intel MPI Benchmarks (IMB-MPI1): PingPong and PingPing.

Only times are used: versions differ in whether a megabyte is 10^6 or 2^20 bytes. PingPong prints
half of the round trip. In PingPing both ranks send at once, so its times are not latencies of one
message; their slope gives the rate of an adapter that sends and receives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailback.calibration.model import BenchmarkData, CalibrationError, Series, latency, stream
from tailback.calibration.readers.rows import (
    Row,
    number,
    positive,
    require_fields,
    require_rows,
    size,
    step,
    without_cut_row,
)
from tailback.io.delimited import shown

_TITLE: Final = re.compile(r"#\s*Benchmarking\s+(\w{1,40})\b")
_PROCESSES: Final = re.compile(r"#\s*#processes\s*=\s*(\d{1,9})\b")
_HEADER: Final = re.compile(r"#bytes\s+#repetitions\s")
_USED: Final = ("PingPong", "PingPing")


@dataclass
class _Block:
    """One benchmark's output."""

    test: str
    line: int
    processes: int = 2
    header: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def sniff(text: str) -> bool:
    """Whether the text has a title and a header of IMB-MPI1."""
    return _TITLE.search(text) is not None and _HEADER.search(text) is not None


def read(text: str, path: Path) -> BenchmarkData:
    """Read the output; raises CalibrationError."""
    out = BenchmarkData()
    for block in _blocks(text):
        if block.test not in _USED:
            out.notes.append(f"benchmark {shown(block.test)} is not used")
        elif block.processes != 2:
            out.notes.append(
                f"{block.test} of {block.processes} processes is not used: pairs of "
                "ranks share adapters"
            )
        else:
            out.series.append(_series(block, path, out.notes))
    return out


def _blocks(text: str) -> list[_Block]:
    out: list[_Block] = []
    for count, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if title := _TITLE.match(plain):
            out.append(_Block(title[1], count))
        elif not out:
            continue
        elif processes := _PROCESSES.match(plain):
            out[-1].processes = int(processes[1])
        elif _HEADER.match(plain):
            out[-1].header, out[-1].line = plain.split(), count
        elif plain[:1].isdigit() and out[-1].header:
            out[-1].rows.append(Row(count, plain.split()))
    return out


def _series(block: _Block, path: Path, notes: list[str]) -> Series:
    require_rows(block.rows, block.test, block.line, path)
    column = next((i for i, name in enumerate(block.header) if name.startswith("t[usec]")), None)
    if column is None:
        raise CalibrationError(
            f"no column t[usec] in the header: {shown(' '.join(block.header))}",
            file=path,
            place=f"line {block.line}",
            remedy="give the output as the benchmark prints it",
        )
    points, n = [], 0
    for row in without_cut_row(block.rows, notes, columns=len(block.header), column=column):
        require_fields(row, block.header, path)
        value = row.fields[column]
        n += int(number(row.fields[1], row.line, "number of repetitions", path))
        bytes_ = size(row.fields[0], row.line, path)
        points.append((bytes_, positive(value, row.line, "time in µs", path), step(value)))
    source = f"IMB {block.test}"
    if block.test == "PingPong":
        return latency("mpi", points, n, source)
    points = [point for point in points if point[0] > 0]
    require_rows(points, block.test, block.line, path)
    rates = [(at, at / us * 1e6, at / us**2 * part * 1e6) for at, us, part in points]
    return stream("mpi", rates, n, source)
