"""perftest: ib_write_lat, ib_write_bw, ib_send_lat, ib_send_bw, ib_read_lat and ib_read_bw.

They run on verbs, below MPI: latencies include the switches but not MPI's software. ``MB/sec`` are
2^20 bytes, ``Gb/sec`` 10^9 bits. The typical latency (median) is used, else the mean. Latencies of
reads are round trips and are left out.
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

_TITLE: Final = re.compile(
    r"\b(?:RDMA_|Send |Send_|Write_|Read_)?(?P<verb>Write|Send|Read)\s+"
    r"(?P<both>Bidirectional )?(?P<what>Latency|BW|Bandwidth|Post List BW)\b[\w ]*Test"
)
_MTU: Final = re.compile(r"\bMtu\s*:\s*(\d{1,6})\s*\[B\]", re.IGNORECASE)
_HEADER: Final = re.compile(r"#bytes\s+#iterations\s")
_MIB: Final = 1 << 20


@dataclass
class _Block:
    """One test's output."""

    verb: str = ""
    both: bool = False
    header: list[str] = field(default_factory=list)
    line: int = 0
    rows: list[Row] = field(default_factory=list)


def sniff(text: str) -> bool:
    """Whether the text has a header of perftest."""
    header = _HEADER.search(text)
    return header is not None and ("usec]" in text or "/sec]" in text)


def read(text: str, path: Path) -> BenchmarkData:
    """Read the output; raises CalibrationError."""
    out = BenchmarkData()
    mtu = {int(match[1]) for match in _MTU.finditer(text)}
    if len(mtu) == 1:
        out.packet_bytes = mtu.pop()
    elif mtu:
        out.notes.append(f"several MTUs ({', '.join(map(str, sorted(mtu)))} B): none is used")
    for block in _blocks(text):
        series = _series(block, path, out.notes)
        if isinstance(series, str):
            out.notes.append(series)
        else:
            out.series.append(series)
    return out


def _columns(line: str) -> list[str]:
    """Names of the columns: each ends with its unit in brackets, or is one word."""
    return [
        " ".join(column.split()) for column in re.findall(r"#\w+|[^\[\]#]+?\[[^\]]*\]|\S+", line)
    ]


def _blocks(text: str) -> list[_Block]:
    out: list[_Block] = []
    verb, both = "", False
    for count, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if title := _TITLE.search(plain):
            verb, both = title["verb"].lower(), title["both"] is not None
        elif _HEADER.match(plain):
            out.append(_Block(verb, both, _columns(plain), count))
        elif plain[:1].isdigit() and out:
            out[-1].rows.append(Row(count, plain.split()))
    # Server and client on one terminal print the header twice.
    return [block for block in out if block.rows or block is out[-1]]


def _series(block: _Block, path: Path, notes: list[str]) -> Series | str:
    """The series of a test, or why it is not used; ``notes`` gets a line on a cut row."""
    require_rows(block.rows, "perftest", block.line, path)
    lower = [name.lower() for name in block.header]
    for wanted in ("t_typical[usec]", "t_avg[usec]"):
        if wanted in lower:
            if block.verb == "read":
                return "latencies of reads are round trips of another kind, and not used"
            points, n = _points(block, lower.index(wanted), "time in µs", path, notes)
            return latency("verbs", points, n, f"ib_{block.verb or 'write'}_lat")
    column = next((i for i, name in enumerate(lower) if name.startswith("bw average")), None)
    if column is None:
        raise CalibrationError(
            f"neither latency nor bandwidth in the header: {shown(' '.join(block.header))}",
            file=path,
            place=f"line {block.line}",
            remedy="give the output as the benchmark prints it",
        )
    unit = 1e9 / 8 if "gb/sec" in lower[column] else float(_MIB)
    points, n = _points(block, column, "bandwidth", path, notes)
    each = unit / (2 if block.both else 1)
    rates = [(at, rate * each, part * each) for at, rate, part in points if at > 0]
    return stream("verbs", rates, n, f"ib_{block.verb or 'write'}_bw")


def _points(
    block: _Block, column: int, what: str, path: Path, notes: list[str]
) -> tuple[list[tuple[float, float, float]], int]:
    points, n = [], 0
    for row in without_cut_row(block.rows, notes, columns=len(block.header), column=column):
        require_fields(row, block.header, path)
        value = row.fields[column]
        n += int(number(row.fields[1], row.line, "number of iterations", path))
        bytes_ = size(row.fields[0], row.line, path)
        points.append((bytes_, positive(value, row.line, what, path), step(value)))
    return points, n
