"""GPCNeT (network_test and network_load_test): the isolated tests of its table.

The latency of random rings is a mean over messages between random hosts of the machine: one point,
over the mean distance. Rates are per rank and include synchronisation, and congestion factors are
ratios of rounded numbers: no setting can be derived from either, so both are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tailback.calibration.model import BenchmarkData, CalibrationError, latency
from tailback.calibration.readers.rows import positive, step
from tailback.io.delimited import shown

_TABLE: Final = re.compile(r"\|\s+(Isolated Network Tests|Isolated Congestion|Network Tests run)")
_RING: Final = re.compile(r"RR Two-sided Lat \((\d{1,9}) B\)")
_RANKS: Final = re.compile(r"Test with (\d{1,9}) MPI ranks \((\d{1,9}) nodes\)")


def sniff(text: str) -> bool:
    """Whether the text has GPCNeT's table of isolated tests."""
    return "Isolated Network Tests" in text and _TABLE.search(text) is not None


def read(text: str, path: Path) -> BenchmarkData:
    """Read the output; raises CalibrationError."""
    out = BenchmarkData()
    ranks = _RANKS.search(text)
    isolated, header, points = False, list[str](), list[tuple[float, float, float]]()
    left_out: set[str] = set()
    for line, plain in enumerate(text.splitlines(), 1):
        if table := _TABLE.search(plain):
            isolated = table[1] == "Isolated Network Tests"
        cells = [cell.strip() for cell in plain.strip().strip("|").split("|")]
        if not isolated or len(cells) < 3 or not plain.strip().startswith("|"):
            continue
        if cells[0] == "Name":
            header = cells
        elif header and len(cells) != len(header):
            raise CalibrationError(
                f"{len(cells)} cells where the header has {len(header)}: {shown(plain.strip())}",
                file=path,
                place=f"line {line}",
                remedy="the output is cut: run the test again",
            )
        elif header and (ring := _RING.fullmatch(cells[0])):
            value = _value(header, cells, line, path)
            points.append(
                (float(ring[1]), positive(value, line, "latency in µs", path), step(value))
            )
        elif header and cells[0]:
            left_out.add(cells[0])
    if not points:
        raise CalibrationError(
            "no latency of random rings among the isolated tests",
            file=path,
            remedy="the output is cut, or the test failed: run it again",
        )
    if left_out:
        out.notes.append(f"not used: {', '.join(shown(name) for name in sorted(left_out))}")
    n = int(ranks[1]) if ranks else 1
    out.series.append(latency("mpi", points, n, "GPCNeT", pairs=0))
    return out


def _value(header: list[str], cells: list[str], line: int, path: Path) -> str:
    row = dict(zip(header, cells, strict=True))
    if "Avg" not in row or row.get("Units") != "usec":
        raise CalibrationError(
            f"no mean in µs: {shown(' | '.join(cells))}",
            file=path,
            place=f"line {line}",
            remedy="give the output as the test prints it",
        )
    return row["Avg"]
