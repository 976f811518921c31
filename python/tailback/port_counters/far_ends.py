"""Far ends of ports as their counters state them, compared with those of a fabric.

Counters belong to a port; which cable they speak of follows from the fabric. Where both state
another far end, a cable was moved, or one of them is of another time or machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from tailback.errors import TailbackError, option
from tailback.names.hosts import HostNames
from tailback.names.ports import port_name

_NAMED: Final = 3


def check_cabling() -> str:
    """What to do about contradictions."""
    return (
        f"give the cabling of the time of the counters ({option('fabric')}), or leave wrong far "
        "ends out of them"
    )


@dataclass(frozen=True)
class Contradiction:
    """A port whose far end is another one by its counters than by the fabric.

    Attributes:
        node_name: Name of its device.
        port: Number of the port.
        name: Name of the port.
        stated: Far end by the counters.
        cabled: Far end by the fabric.
    """

    node_name: str
    port: int
    name: str
    stated: str
    cabled: str


def contradictions(
    far_ends: pl.DataFrame, peers: Mapping[tuple[str, int], str], hosts: Mapping[str, str]
) -> list[Contradiction]:
    """Ports with another far end by their counters than by the fabric.

    Args:
        far_ends: ``node_name, port, interface, peer_name, peer_port`` with names of the fabric.
        peers: Port at the far end of each port of the fabric.
        hosts: Name of the host of each adapter.
    """
    devices = {_device(name) for name in peers.values()} | {name for name, _ in peers}
    names = HostNames(devices | set(hosts.values()))
    out: list[Contradiction] = []
    unknown = compared = 0
    for row in far_ends.unique(maintain_order=True).iter_rows(named=True):
        place = row["node_name"], row["port"]
        cabled = peers.get(place)
        if cabled is None or not row["peer_name"]:
            continue
        compared += 1
        stated, agrees = _compared(row, cabled, names, hosts)
        unknown += stated is None
        if not agrees:
            name = port_name(*place, row["interface"])
            out.append(Contradiction(*place, name, stated or row["peer_name"], cabled))
    # A source that has other names for devices states nothing that can be compared.
    return [] if 2 * unknown > compared else out


def _compared(
    row: Mapping[str, str], cabled: str, names: HostNames, hosts: Mapping[str, str]
) -> tuple[str | None, bool]:
    """The far end that a row states, and whether it is that of the fabric.

    The former has its name in the fabric; None if it has none.
    """
    peer, number = str(row["peer_name"]), int(row["peer_port"] or 0)
    try:
        device = names.find(peer) or names.find(_device(peer))
    except TailbackError:
        return peer, True
    if device is None:
        return None, False
    same = device in (_device(cabled), hosts.get(_device(cabled)))
    port = cabled.removeprefix(_device(cabled)).strip("[]")
    if same and number and port.isdecimal():
        same = number == int(port)
    return port_name(device, number) if number else device, same


def _device(port: str) -> str:
    """Name of the device of a port: ``leaf1`` of ``leaf1[3]``."""
    return port.rpartition("[")[0] or port


def described(ports: Sequence[Contradiction], fabric: str) -> str:
    """What contradicts what, in a sentence without a full stop.

    Args:
        ports: The ports, at least one.
        fabric: Where the fabric is from.
    """
    shown = "; ".join(
        f"{each.name} is connected to {each.stated} by the counters and to {each.cabled} by "
        f"{fabric}"
        for each in ports[:_NAMED]
    )
    more = len(ports) - _NAMED
    return f"counters and cabling contradict each other: {shown}" + (
        f"; and {more} more" if more > 0 else ""
    )
