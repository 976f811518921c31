"""Texts of tools that do not print which port they asked: a line above each block names it.

::

    # HOST INTERFACE SECONDS MBPS

``SECONDS`` is the time since 1970, ``MBPS`` the data rate in Mb/s; both may be missing, the last
one first. An ``INTERFACE`` that is a number is a port of a switch; ``mlx5_0/2`` is port 2 of an
adapter of InfiniBand, and ``mlx5_0`` its port 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tailback.port_counters.readers.model import (
    CounterData,
    cut_text,
    events_of,
    left_out_rows,
    read_text,
    readings_of,
    time_of,
)
from tailback.port_counters.schema import CounterError

_PLACE: Final = re.compile(
    r"#\s*(?P<node>\S+)\s+(?P<interface>\S+)(?:\s+(?P<time>[1-8]?[0-9]{9}(?:\.[0-9]+)?))?"
    r"(?:\s+(?P<mbps>-?[0-9]{1,8}))?\s*"
)
_NUMBERED: Final = re.compile(
    r"(?:(?P<device>(?:mlx[45]|hfi1)_[0-9]{1,3})(?:/(?P<port>[0-9]{1,3}))?|(?P<number>[0-9]{1,3}))"
)
REMEDY: Final = 'print a line above each block: echo "# $(hostname) {} $(date +%s)"'
"""How a text gets its lines of places; the interface is to be filled in."""


@dataclass
class PortText:
    """What a tool printed of one port.

    Attributes:
        place: The port and the time, as columns of ``READINGS``; no time if none is stated.
        lines: Number and text of its lines that are not empty.
    """

    place: dict[str, Any]
    lines: list[tuple[int, str]] = field(default_factory=list)


def read_blocks(
    path: Path,
    time_ns: int | None,
    source: str,
    is_head: Callable[[str], bool],
    row_of: Callable[[PortText], Sequence[dict[str, Any]]],
    unknown: dict[str, None],
    example: str,
) -> CounterData:
    """Read a text of blocks.

    Args:
        path: The text.
        time_ns: Time of blocks without one; the modification time of the file when None.
        source: Name of the reader.
        is_head: Whether a line begins a block.
        row_of: Columns of the reading of a block, and of earlier ones that have events alone.
        unknown: Names that are not used, which ``row_of`` adds.
        example: An interface, for the remedy.

    Raises:
        CounterError: A block does not name its port, or cannot be read, or there is none.
    """
    remedy = REMEDY.format(example)
    text = read_text(path)
    blocks = _split(path, text, is_head, remedy)
    left_out = list[str]()
    if blocks and not text.endswith("\n"):
        error = cut_text(path, text.count("\n") + 1)
        if len(blocks) == 1:
            raise error
        left_out = [left_out_rows([error], "damaged port")]
        blocks.pop()
    if not blocks:
        raise CounterError(
            "no statistics of a port in it", file=path, place="line 1, column 1", remedy=remedy
        )
    when = time_of(path, time_ns)
    untimed = any("time_ns" not in block.place for block in blocks)
    rows: list[dict[str, Any]] = []
    earlier: list[dict[str, Any]] = []
    for block in blocks:
        block.place = {"time_ns": when, "source": source} | block.place
        *before, row = row_of(block)
        rows.append(row)
        earlier += before
    return CounterData(
        readings_of(rows),
        unknown=list(unknown),
        untimed=untimed,
        events=events_of([*earlier, *rows]),
        left_out=left_out,
    )


def _split(path: Path, text: str, is_head: Callable[[str], bool], remedy: str) -> list[PortText]:
    """The blocks of a text, each with what the line above it names."""
    blocks: list[PortText] = []
    place: dict[str, Any] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            match = _PLACE.fullmatch(line.rstrip())
            place = None if match is None else _place(match)
        elif is_head(line):
            if place is None:
                raise CounterError(
                    "statistics of an interface that is not named",
                    file=path,
                    place=f"line {number}, column 1",
                    remedy=remedy,
                )
            blocks.append(PortText(place, [(number, line)]))
            place = None
        elif blocks and line.strip():
            blocks[-1].lines.append((number, line))
    return blocks


def _place(match: re.Match[str]) -> dict[str, Any]:
    """Columns of ``READINGS`` from a line that names a port."""
    out: dict[str, Any] = {"node_name": match["node"], "interface": match["interface"]}
    if numbered := _NUMBERED.fullmatch(match["interface"]):
        device = numbered["device"]
        out["port"] = int(numbered["number"] or numbered["port"] or 1)
        out["node_name"] += f" {device}" if device else ""
        out["interface"] = None
    if match["time"] is not None:
        out["time_ns"] = round(float(match["time"]) * 1e3) * 1_000_000
    if (mbps := int(match["mbps"] or 0)) > 0:
        out["capacity_gbps"] = mbps / 1e3
    return out
