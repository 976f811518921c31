"""Output of ``iblinkinfo``: every port of every device, with width, speed and far end.

A section begins with its device, and a line describes one port::

    Switch: 0x0002c90300a00001 orca1/S02:
        7  1[  ] ==( 4X  14.0625 Gbps Active/  LinkUp)==>  2  4[  ] "orca1/L01" ( Could be EDR)

Far ends are named by local identifier (LID) and port. Adapters are printed with the GUIDs of their
ports, not their own, so they are known by name.
"""

from __future__ import annotations

import re
from typing import Final

from tailback.errors import FabricError
from tailback.fabric.ibnetdiscover import Discovery, Kind, clip, port_number
from tailback.fabric.rates import LANE_SIGNAL_GBPS
from tailback.names.ports import port_name

_SECTION: Final = re.compile(
    r"^(?P<kind>Switch|CA|RT):\s*(?:(?P<guid>0x[0-9a-fA-F]{1,16})\s+)?(?P<name>.*?):?\s*$"
)
_PORT: Final = re.compile(
    r"^\s+(?:0x[0-9a-fA-F]{1,16}\s+)?(?P<lid>[0-9]{1,5})\s+(?P<port>[0-9]{1,4})\[.*?\]\s*"
    r"==\((?P<state>.*?)\)==>\s*(?P<far>.*)$"
)
_STATE: Final = re.compile(r"\s*(?P<width>[0-9]+X)\s+(?P<speed>[0-9.]+|[A-Z0-9]+)(?:\s+Gbps)?\s+\S")
_FAR: Final = re.compile(
    r'(?P<lid>[0-9]{1,5})\s+(?P<port>[0-9]{1,4})\[.*?\]\s*"(?P<name>[^"]*)"\s*(?:\((?P<could>.*)\))?'
)
_KINDS: Final = {"Switch": Kind.SWITCH, "CA": Kind.ADAPTER, "RT": Kind.ROUTER}
_SPEED_OF: Final = {float(signal): name for name, (signal, _) in LANE_SIGNAL_GBPS.items()}
_MAKE: Final = "make the file again: iblinkinfo > FILE"


class LinkInfo:
    """Text of iblinkinfo, without options that change its lines."""

    def recognises(self, text: str) -> bool:
        """Whether the text has a section of iblinkinfo and a line of a port."""
        start = text[: 1 << 16]
        return "==(" in start and re.search(r"^(?:Switch|CA|RT):\s", start, re.M) is not None

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the line that cannot be read."""
        discovery = Discovery()
        owner: dict[int, str] = {}
        links: list[tuple[int, tuple[str, int], re.Match[str], re.Match[str]]] = []
        key = ""
        for number, line in enumerate(text.splitlines(), start=1):
            if section := _SECTION.match(line):
                name, guid = section["name"].strip(), section["guid"]
                key = f"0x{int(guid, 16):016x}" if guid else f"{section['kind']} {name}"
                if key in discovery.devices:
                    discovery.add_note("devices of one name", name)
                    key = f"{key} of line {number}"
                discovery.device(key, _KINDS[section["kind"]], name, key)
            elif port := _PORT.match(line):
                if not key:
                    raise _line_error(number, "a port without the device that it belongs to")
                owner.setdefault(int(port["lid"]), key)
                far, state = _FAR.match(port["far"]), _STATE.match(port["state"])
                here = key, port_number(port["port"], number)
                switch = discovery.devices[key].kind is Kind.SWITCH
                discovery.add_lid(key, 0 if switch else here[1], port["lid"])
                if far is not None and state is not None:
                    links.append((number, here, far, state))
            elif "==(" in line:
                raise _line_error(number, f"{clip(line)} is not a port")
        _add_links(discovery, owner, links)
        return discovery


def _add_links(
    discovery: Discovery,
    owner: dict[int, str],
    links: list[tuple[int, tuple[str, int], re.Match[str], re.Match[str]]],
) -> None:
    """Join the ports with their far ends, which may stand in later sections."""
    for number, here, far, state in links:
        there = owner.get(int(far["lid"]))
        if there is None:
            discovery.add_note("far ends that are not listed", far["name"])
            continue
        speed = state["speed"]
        if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", speed):
            speed = _SPEED_OF.get(float(speed), speed)
        words = state["width"].lower(), speed
        discovery.add_end(here, (there, port_number(far["port"], number)), words, number)
        if "Could be" in (far["could"] or ""):
            name = discovery.devices[here[0]].name
            discovery.add_note("ports that could be wider or faster", port_name(name, here[1]))
    if not discovery.ends:
        raise FabricError("no port has a link that is up", place="line 1", remedy=_MAKE)


def _line_error(number: int, message: str) -> FabricError:
    return FabricError(message, place=f"line {number}", remedy=_MAKE)
