"""Names of ports and links in every table, message, figure and report.

A port is named by its device and, in brackets, its interface if the fabric or the source of the
counters has one, else its number: ``l2[swp5]``, ``leaf3[7]``. A link is named by the ports at its
ends: ``l2[swp5] → s1[2]``. Inputs that name a port, such as ``[[fabric.degraded]]``, accept both
interface and number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from tailback.names.display import shorten_names

Peers = Mapping[tuple[str, int], str]
"""Port at the far end of each port, by device and number of the port."""

_IN_A_SENTENCE = 40
"""Columns of a name in a sentence: three names fill two lines."""
_PORT = re.compile(r"^(.+)\[([^\[\]]+)\]$", re.DOTALL)


def port_name(device: str, port: int | str, interface: str | None = None) -> str:
    """A port: ``l2[swp5]`` by its interface, ``leaf3[7]`` if it only has a number."""
    return f"{device}[{interface or port}]"


def link_name(port: str, far: str | None) -> str:
    """A directed link, ``l2[swp5] → s1[2]``, by its ports; the first if the other is unknown."""
    return port if far is None else f"{port} → {far}"


def split_port(text: str) -> tuple[str, str] | None:
    """Device and interface or number of ``leaf3[7]``; None if the text is not a port's name."""
    match = _PORT.match(text.strip())
    return None if match is None else (match.group(1), match.group(2).strip())


def link_names(links: pl.DataFrame) -> list[str]:
    """Names of the rows of the whole table ``links`` of a run, in their order."""
    ports = links.select(port=_port_names(_interface_or_number()))["port"]
    return [link_name(port, far) for port, far in zip(ports, far_ports(links), strict=True)]


def far_ports(links: pl.DataFrame) -> list[str]:
    """Names of the ports at which the rows of the whole table ``links`` end, in their order."""
    ports = links.select(reverse="link", far=_port_names(_interface_or_number()))
    return links.join(ports, on="reverse", how="left", maintain_order="left")["far"].to_list()


def links_by_port(links: pl.DataFrame) -> dict[str, int]:
    """The link that leaves each port of table ``links``, by number and by interface."""
    number = links["link"].to_list()
    by = (_port_names(pl.col("src_port").cast(pl.String)), _port_names(_interface_or_number()))
    by_number, by_interface = (links.select(name=name)["name"].to_list() for name in by)
    return dict(zip(by_number, number, strict=True)) | dict(zip(by_interface, number, strict=True))


def _interface_or_number() -> pl.Expr:
    interface = pl.col("src_interface").cast(pl.String)
    return (
        pl.when(interface.is_null() | (interface == ""))
        .then(pl.col("src_port").cast(pl.String))
        .otherwise(interface)
    )


def _port_names(port: pl.Expr) -> pl.Expr:
    """As :func:`port_name`, of the ports that links leave."""
    return pl.concat_str("src_name", pl.lit("["), port, pl.lit("]"))


def some_ports(ports: pl.DataFrame, most: int = 3) -> str:
    """The first few ports of a table with ``node_name`` and ``port``, for a sentence.

    Args:
        ports: The ports, with column ``interface`` if known.
        most: How many to name.
    """
    interface = pl.col("interface") if "interface" in ports.columns else pl.lit(None, pl.String)
    rows = ports.head(most).select("node_name", "port", interface=interface)
    names = [port_name(str(device), port, name) for device, port, name in rows.iter_rows()]
    return ", ".join(shorten_names(names, _IN_A_SENTENCE))
