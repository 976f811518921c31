"""LLDP neighbours as ``lldpctl -f json`` prints them, those of every switch in one file.

The output does not name the device that printed it, so a line ``# NAME`` precedes each::

    for s in leaf1 leaf2 spine1; do echo "# $s"; ssh $s lldpctl -f json; done > fabric.txt

Neighbours that are bridges or routers are switches, others hosts. The rate of a link is the
operational type that the neighbour states (``auto-negotiation``, ``current``: ``100GbaseCR4``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tailback.errors import FabricError
from tailback.fabric.ibnetdiscover import Discovery, Kind, PortEnd, clip
from tailback.io.delimited import KEYS_NAMED, not_used, unused_keys

_MARK = re.compile(r"^# (\S[^\n]*?)[ ]*$", re.MULTILINE)
_BEGINNING = re.compile(r"\A\s*(?:# [^\n]+\n\s*)?\{\s*\"lldp\"\s*:")
_MAU = re.compile(r"(?<![0-9.])([0-9]{1,4}(?:\.[0-9])?)(G?)(?:ig)?base", re.IGNORECASE)
_FORWARDS = ("bridge", "router")
_MAKE = (
    'make the file with: for s in SWITCHES; do echo "# $s"; ssh $s lldpctl -f json; done > '
    "fabric.txt (SONiC: docker exec lldp lldpctl -f json)"
)


@dataclass(slots=True, frozen=True)
class _Neighbour:
    """What a device says of the other end of one of its interfaces."""

    line: int
    device: str
    interface: str
    peer: str
    peer_interface: str
    forwards: bool | None
    gbps: float | None


_KEYS = frozenset(
    {
        "chassis",
        "port",
        "via",
        "rid",
        "age",
        "id",
        "capability",
        "descr",
        "ttl",
        "auto-negotiation",
        "mgmt-ip",
        "mgmt-iface",
    }
)
"""Keys of an interface, a chassis and a port that are used, or do not concern the cable."""


class LldpNeighbours:
    """Outputs of lldpctl -f json, each after a line with the name of its device."""

    def recognises(self, text: str) -> bool:
        """Tell whether the text begins as an output of lldpctl, perhaps after a name."""
        return _BEGINNING.match(text) is not None

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the number of a line that cannot be read."""
        marks = list(_MARK.finditer(text))
        if not marks:
            raise FabricError("does not say which device printed it", place="line 1", remedy=_MAKE)
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        neighbours: list[_Neighbour] = []
        unused: dict[str, None] = {}
        for mark, end in zip(marks, ends, strict=True):
            line = text.count("\n", 0, mark.start()) + 1
            neighbours += _section(mark[1], text[mark.end() : end], line, unused)
        if not neighbours:
            raise FabricError("no device has a neighbour", place="line 1", remedy=_MAKE)
        discovery = _discovery(neighbours)
        discovery.notes += not_used(list(unused), "keys", KEYS_NAMED)
        return discovery


def _section(device: str, text: str, line: int, unused: dict[str, None]) -> list[_Neighbour]:
    """The neighbours of one device; ``unused`` gets keys not used. Raises FabricError."""
    try:
        interfaces = json.loads(text)["lldp"].get("interface", [])
        if isinstance(interfaces, dict):
            interfaces = [{name: value} for name, value in interfaces.items()]
        return [
            _neighbour(device, str(name), value, line, unused)
            for entry in interfaces
            for name, value in entry.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        detail = error if isinstance(error, ValueError) else "other elements than lldpctl's"
        raise FabricError(
            f"the output of {clip(device, 40)} cannot be read: {detail}",
            place=f"line {line}",
            remedy=_MAKE,
        ) from None
    except RecursionError:
        raise FabricError(
            f"the output of {clip(device, 40)} is nested too deeply",
            place=f"line {line}",
            remedy=_MAKE,
        ) from None


def _neighbour(
    device: str, interface: str, value: dict[str, Any], line: int, unused: dict[str, None]
) -> _Neighbour:
    chassis, port = value["chassis"], value["port"]
    if "id" in chassis:
        name, about = str(chassis["id"]["value"]), chassis
    else:
        ((name, about),) = chassis.items()
    unused |= dict.fromkeys(unused_keys((value, about, port), _KEYS))
    capabilities = about.get("capability")
    if isinstance(capabilities, dict):
        capabilities = [capabilities]
    forwards = None
    if capabilities:
        forwards = any(
            str(capability["type"]).lower() in _FORWARDS
            and capability.get("enabled") in (True, "on", "true")
            for capability in capabilities
        )
    named = port["id"]["value"]
    # A host's port is often its address; its description is the interface.
    if str(port["id"].get("type")) == "mac":
        named = port.get("descr", named)
    speed = _MAU.search(str(port.get("auto-negotiation", {}).get("current", "")))
    gbps = float(speed[1]) * (1.0 if speed[2] else 1e-3) if speed else None
    return _Neighbour(line, device, interface, name, str(named), forwards, gbps or None)


def _discovery(neighbours: list[_Neighbour]) -> Discovery:
    """Devices and port lines, with the interfaces of a device numbered in natural order."""
    discovery = Discovery(
        remedy_without_rates="no neighbour tells its operational type (port, auto-negotiation, "
        "current), as virtual and some optical ports do not: "
        "write a CSV with the columns src, dst, interface and rate_gbit"
    )
    stated = {
        neighbour.peer: neighbour.forwards
        for neighbour in neighbours
        if neighbour.forwards is not None
    }
    printed = {neighbour.device for neighbour in neighbours}
    used: dict[str, set[str]] = {}
    for neighbour in neighbours:
        used.setdefault(neighbour.device, set()).add(neighbour.interface)
        used.setdefault(neighbour.peer, set()).add(neighbour.peer_interface)
    guessed = 0
    for name in used:
        forwards = stated.get(name)
        if forwards is None:
            guessed += 1
            forwards = name in printed and len(used[name]) > 1
        discovery.device(name, Kind.SWITCH if forwards else Kind.ADAPTER, name, name)
    number = {
        (name, interface): at
        for name, interfaces in used.items()
        for at, interface in enumerate(sorted(interfaces, key=_natural), start=1)
    }
    for neighbour in neighbours:
        here, there = (
            (neighbour.device, neighbour.interface),
            (neighbour.peer, neighbour.peer_interface),
        )
        discovery.ends.append(
            PortEnd(
                neighbour.device,
                number[here],
                neighbour.peer,
                number[there],
                neighbour.gbps,
                neighbour.line,
            )
        )
        for key in (here, there):
            discovery.interface[key[0], number[key]] = key[1]
    if guessed:
        discovery.notes.append(
            f"devices that state no capability, taken for switches if they printed "
            f"several neighbours, else for hosts: {guessed}"
        )
    return discovery


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"([0-9]{1,18})", name)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part]
