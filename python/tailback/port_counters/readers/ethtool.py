r"""What ``ethtool -S`` prints, for one or more interfaces at one instant.

::

    for i in eth0 eth1; do echo "# $(hostname) $i $(date +%s)"; ethtool -S $i; done > 12h00.txt

The line above each block names its port (:mod:`~tailback.port_counters.readers.named_blocks`); a
fourth word is the speed in Mb/s (``/sys/class/net/eth0/speed``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tailback.port_counters.readers.interface_counters import interface_row
from tailback.port_counters.readers.model import (
    CounterData,
    begins_with,
    parse_counter,
    quoted_text,
)
from tailback.port_counters.readers.named_blocks import REMEDY, PortText, read_blocks
from tailback.port_counters.schema import CounterError

HAS_TIME_STAMPS = False

_HEAD: Final = "NIC statistics:"
_COUNTER: Final = re.compile(r"\s+(?P<name>\S.*?)\s*:\s*(?P<value>\S+)\s*")


def sniff(path: Path) -> bool:
    """A text with the heading that ethtool prints."""
    return begins_with(path, rf"^{_HEAD}\s*$")


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the statistics of some interfaces.

    Args:
        path: The text.
        time_ns: Time of blocks without one; the modification time of the file when None.

    Raises:
        CounterError: A block does not name its interface, or a counter is not a number.
    """
    unknown: dict[str, None] = {}

    def row_of(block: PortText) -> list[dict[str, Any]]:
        counters = {}
        for number, line in block.lines[1:]:
            match = _COUNTER.fullmatch(line)
            if match is None:
                raise CounterError(
                    f"{quoted_text(line)} is no counter of an interface",
                    file=path,
                    place=f"line {number}, column 1",
                    remedy=REMEDY.format("eth0"),
                )
            column = match.start("value") + 1
            counters[match["name"]] = parse_counter(match["value"], path, number, column)
        return [interface_row(counters, unknown) | block.place]

    return read_blocks(
        path, time_ns, "ethtool", lambda line: line.strip() == _HEAD, row_of, unknown, "eth0"
    )
