"""Names of ports and links in every table, message, figure and report.

A port is named by its device and, in brackets, its interface if the fabric or the source of the
counters has one, else its number: ``l2[swp5]``, ``leaf3[7]``. A link is named by the port that it
leaves and the device that it leads to: ``l2[swp5] → s1``. Inputs that name a port, such as
``[[fabric.degraded]]``, accept both interface and number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import polars as pl

Peers = Mapping[tuple[str, int], str]
"""Device at the far end of each port, by device and number of the port."""

_PORT = re.compile(r"^(.+)\[([^\[\]]+)\]$", re.DOTALL)


def port_name(device: str, port: int | str, interface: str | None = None) -> str:
    """A port: ``l2[swp5]`` by its interface, ``leaf3[7]`` if it only has a number."""
    return f"{device}[{interface or port}]"


def link_name(device: str, port: int | str, peer: str | None, interface: str | None = None) -> str:
    """A directed link: ``l2[swp5] → s1``; only the port if its far end is unknown."""
    name = port_name(device, port, interface)
    return name if peer is None else f"{name} → {peer}"


def split_port(text: str) -> tuple[str, str] | None:
    """Device and interface or number of ``leaf3[7]``; None if the text is not a port's name."""
    found = _PORT.match(text.strip())
    return None if found is None else (found.group(1), found.group(2).strip())


def link_names(links: pl.DataFrame) -> list[str]:
    """Names of the rows of table ``links`` of a run, in their order."""
    columns = links.select("src_name", "src_port", "dst_name", "src_interface")
    return [link_name(*row) for row in columns.iter_rows()]


def links_by_port(links: pl.DataFrame) -> dict[str, int]:
    """The link that leaves each port of table ``links``, by number and by interface."""
    columns = links.select("src_name", "src_port", "src_interface", "link").rows()
    by_number = {port_name(device, port): link for device, port, _, link in columns}
    return by_number | {port_name(*row): link for *row, link in columns}


def some_ports(ports: pl.DataFrame, most: int = 3) -> str:
    """The first few ports of a table with ``node_name`` and ``port``, for a sentence.

    Args:
        ports: The ports, with column ``interface`` if known.
        most: How many to name; names are cut to 30 characters.
    """
    columns = [name for name in ("node_name", "port", "interface") if name in ports.columns]
    rows: Iterable[tuple[object, ...]] = ports.select(columns).head(most).iter_rows()
    return ", ".join(port_name(str(row[0])[:30], *map(_text, row[1:])) for row in rows)


def _text(value: object) -> str:
    return "" if value is None else str(value)
