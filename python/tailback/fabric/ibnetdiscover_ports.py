"""Output of ``ibnetdiscover -p``: one line per port.

::

    CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'o0001' - 'ib-i1l1' )
    SW  2052 37 0x506b4b03005c2740 4x ???                                    'ib-i4l1s01'

The GUID is the port's, so the two ports of one adapter are distinguished by name and port number
alone. With ``-s`` the discovery's own steps (``DR path slid …``) come before the list.
"""

from __future__ import annotations

import re

from tailback.errors import FabricError
from tailback.fabric.ibnetdiscover import WITH_RATES, Discovery, Kind, clip, port_number

_START = re.compile(r"^(CA|SW|RT)\s+\d")
_RECOGNISE = re.compile(r"^\s*(CA|SW|RT)\s+\d+\s+\d+\s+0x[0-9a-fA-F]", re.MULTILINE)
_LINE = re.compile(
    r"^(CA|SW|RT)\s+(\d+)\s+(\d+)\s+0x([0-9a-fA-F]{1,16})\s+(\d+x|\?+)"
    r"\s+([A-Z0-9?]+|undefined \(\d+\))"
    r"(?:\s+-\s+(CA|SW|RT)\s+(\d+)\s+(\d+)\s+0x([0-9a-fA-F]{1,16})(?:\s+\(\s*'(.*)'\s*\))?"
    r"|(?:\s+(.*))?)$"
)
# A truncated remote end must not be read as the name of an unconnected port.
_CUT_REMOTE = re.compile(r"^-(?:\s|$)")
_KINDS = {"CA": Kind.ADAPTER, "SW": Kind.SWITCH, "RT": Kind.ROUTER}


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == "'":
        text = text[1:-1]
    return text.strip()


class PortFormat:
    """Output of `ibnetdiscover -p`: one line for each port."""

    def recognises(self, text: str) -> bool:
        """Whether the text has at least one port line."""
        return _RECOGNISE.search(text) is not None

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the number of a line that cannot be read."""
        discovery = Discovery(remedy_without_rates=WITH_RATES)
        seen: set[str] = set()
        for number, raw in enumerate(text.split("\n"), start=1):
            line = raw.strip()
            if _START.match(line):
                if line in seen:
                    discovery.add_note("port lines given more than once", line)
                    continue
                seen.add(line)
                _add_port(discovery, line, number)
            elif line and not line.startswith(("#", "DR path")):
                discovery.add_note("lines that are not in the format", line)
        return discovery


def _add_port(discovery: Discovery, text: str, line: int) -> None:
    match = _LINE.match(text)
    if match is None or (match.group(12) and _CUT_REMOTE.match(match.group(12))):
        raise FabricError(
            f"{clip(text)} starts like a port but is not one",
            place=f"line {line}",
            remedy="a port reads like: CA 134 1 0x7cfe9003003b4bde 4x EDR - SW 1719 10 "
            "0x7cfe9003009ce5b0 ( 'host HCA-1' - 'switch' ); make the file again with: "
            "ibnetdiscover -p > FILE",
        )
    word, lid, port, guid, width, speed, peer_word, peer_lid, peer_port, peer_guid, names, alone = (
        match.groups()
    )
    key, kind = f"{word} {int(guid, 16):016x}", _KINDS[word]
    here = f"0x{int(guid, 16):016x}"
    if peer_word is None:
        # An adapter's idle second port is not a separate device; a switch without cables is one.
        if kind is Kind.SWITCH:
            discovery.device(key, kind, _unquoted(alone or ""), here)
        return
    name, _, peer_name = (names or "").partition("' - '")
    if peer_name.count("' - '"):
        discovery.add_note("pairs of names that are ambiguous", names)
    peer = f"{peer_word} {int(peer_guid, 16):016x}"
    discovery.device(key, kind, name.strip(), here)
    discovery.device(peer, _KINDS[peer_word], peer_name.strip(), f"0x{int(peer_guid, 16):016x}")
    ends = (key, port_number(port, line)), (peer, port_number(peer_port, line))
    discovery.add_end(*ends, (width, speed), line)
    for end, printed in zip(ends, (lid, peer_lid), strict=True):
        discovery.add_lid(*end, printed)
