"""Output of ``ibnetdiscover``: a block for each switch, adapter and router.

A block is a header and one line for each connected port::

    Switch  36 "S-0008f10500200b50"  # "name" enhanced port 0 lid 9 lmc 0
    [4]     "H-003048c749cd0000"[1](3048c749cd0001)  # "name" lid 72 4xDDR

This module also defines :class:`Discovery`, the result of every parser, which
:mod:`tailback.fabric.readers` assembles to a fabric.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tailback.errors import FabricError, option
from tailback.fabric.rates import LinkSpeed, link_speed
from tailback.names.ports import port_name


class Kind(Enum):
    """Kind of a device."""

    SWITCH = "switch"
    ADAPTER = "adapter"
    ROUTER = "router"


@dataclass(slots=True)
class Device:
    """One switch, adapter or router.

    Attributes:
        key: Its identifier, unique in the file.
        kind: Switch, adapter or router.
        name: Its node description as printed, blanks at the ends removed; may be empty.
        guid: Its GUID as ``0x`` and 16 hexadecimal digits, or its key if that is not a GUID.
        chassis: System image GUID, which the boards of a director share; None if unknown.
        device_id: NodeInfo's device id, which tells the model; None if unknown.
    """

    key: str
    kind: Kind
    name: str
    guid: str
    chassis: str | None = None
    device_id: int | None = None


@dataclass(slots=True, frozen=True)
class PortEnd:
    """One line for a connected port: this end, the other end, and the rate.

    Attributes:
        key: Device of this end.
        port: Port number of this end.
        peer: Device of the other end.
        peer_port: Port number of the other end.
        gbps: Data rate in gigabits per second; None if the line does not have it.
        line: Line number in the file, from 1.
    """

    key: str
    port: int
    peer: str
    peer_port: int
    gbps: float | None
    line: int


@dataclass
class Discovery:
    """Content of a discovery file.

    Attributes:
        devices: Every device by its key, in the order of the file.
        ends: Every connected port line; most cables appear twice, once from each end.
        odd: Irregularities: examples by kind.
        one_way: Whether the rate of an end is that of the link leaving it, so that the two
            directions of a cable may differ; else both ends have the rate of the cable.
        interface: Name of the interface of an end, (device key, port), if it is not a number.
        speed: Active width and speed of the InfiniBand link at an end, if the file has them.
        lid: Local identifier of an end; a switch has one for all its ports, also at port 0.
        link_id: Identifier in the file of the link that leaves an end.
        in_host_gbps: Rate between the ranks of a host, by its name.
        nominal_gbps: Nominal rate of the link that leaves an end, where the file states that the
            link runs at less.
        uncounted: Devices that are joined by a number of cables that the file does not have:
            the lower one, the upper one, and the line number.
        level: Tier of each switch by its key, if the file tells; empty if cables must.
        remedy_without_rates: What to do, other than to state one rate for all cables, if no line
            has the speed of a link.
        notes: Further notes for the user.
    """

    devices: dict[str, Device] = field(default_factory=dict)
    ends: list[PortEnd] = field(default_factory=list)
    odd: dict[str, list[str]] = field(default_factory=dict)
    one_way: bool = False
    interface: dict[tuple[str, int], str] = field(default_factory=dict)
    speed: dict[tuple[str, int], LinkSpeed] = field(default_factory=dict)
    lid: dict[tuple[str, int], int] = field(default_factory=dict)
    link_id: dict[tuple[str, int], str] = field(default_factory=dict)
    in_host_gbps: dict[str, float] = field(default_factory=dict)
    nominal_gbps: dict[tuple[str, int], float] = field(default_factory=dict)
    uncounted: list[tuple[str, str, int]] = field(default_factory=list)
    level: dict[str, int] = field(default_factory=dict)
    remedy_without_rates: str = "state the rate of all cables"
    notes: list[str] = field(default_factory=list)

    def device(self, key: str, kind: Kind, name: str, guid: str) -> Device:
        """Return the device with ``key``, created if new; a missing name is filled in."""
        device = self.devices.get(key)
        if device is None:
            device = self.devices[key] = Device(key, kind, name, guid)
        elif name and not device.name:
            device.name = name
        return device

    def add_note(self, what: str, example: str) -> None:
        """Record an irregularity."""
        self.odd.setdefault(what, []).append(clip(example, 60))

    def add_end(
        self,
        here: tuple[str, int],
        there: tuple[str, int],
        words: tuple[str, str] | None,
        line: int,
    ) -> None:
        """Add a line for a connected port of an InfiniBand fabric.

        Args:
            here: This end, (device key, port).
            there: The other end.
            words: Width and speed, ``("4x", "EDR")``; unknown ones are recorded. None without.
            line: Line number.
        """
        speed = link_speed(*words) if words else None
        if speed is not None:
            self.speed[here] = speed
            # Both ends of a link run at one width and speed.
            self.speed.setdefault(there, speed)
        elif words:
            self.add_note("ports with an unknown rate", " ".join(words))
        self.ends.append(PortEnd(*here, *there, speed.gbps if speed else None, line))

    def lid_of(self, key: str, port: int) -> int | None:
        """Return the local identifier that answers for a port, None if unknown."""
        return self.lid.get((key, port), self.lid.get((key, 0)))

    def add_lid(self, key: str, port: int, digits: str | None) -> None:
        """Record the local identifier of a port, a number of 16 bits; the first is kept."""
        if digits and len(digits) <= len("65535"):
            self.lid.setdefault((key, port), int(digits))


WITH_RATES = (
    "port lines state width and speed, like 4xEDR: make the file again with a current "
    "ibnetdiscover: ibnetdiscover > FILE"
)


def port_number(text: str, line: int) -> int:
    """Return a port number; raises FabricError unless it is 1 to 254 (IBA: NumPorts is 8 bits)."""
    number = int(text) if len(text) <= 4 else 0
    if not 1 <= number <= 254:
        raise FabricError(
            f"port number {clip(text)} is not one of 1 to 254",
            place=f"line {line}",
            remedy="check that the line is as ibnetdiscover printed it, or make the file again",
        )
    return number


def clip(text: str, width: int = 100) -> str:
    """Return ``text`` quoted and cut to ``width`` characters for a message."""
    text = text.strip()
    return repr(text if len(text) <= width else text[:width] + "…")


@dataclass(slots=True, frozen=True)
class Cable:
    """A cable: both ends, (device key, port), and its data rates in gigabits per second.

    Attributes:
        a: One end.
        b: The other.
        gbps: Rate from ``a`` to ``b``.
        back_gbps: Rate from ``b`` to ``a``.
        stated: Whether the file states the rate; otherwise it is assumed.
    """

    a: tuple[str, int]
    b: tuple[str, int]
    gbps: float
    back_gbps: float
    stated: bool = True


def join_cables(
    discovery: Discovery, notes: list[str], cable_gbps: float | None = None
) -> list[Cable]:
    """Join the port lines into cables, those described from both ends first.

    Args:
        discovery: Content of the file.
        notes: Gets the tolerated irregularities.
        cable_gbps: Rate of the cables for which the file states none; that of most others if None.

    Returns:
        The cables, in the order of the file.

    Raises:
        FabricError: No line has the speed of a link and no rate is given; or a rate is given
            although every line states one.
    """
    end_at: dict[tuple[str, int], PortEnd] = {}
    odd: dict[str, list[str]] = {}

    def port_of(end: PortEnd) -> str:
        return clip(port_name(discovery.devices[end.key].name or end.key, end.port), 60)

    for end in discovery.ends:
        first = end_at.setdefault((end.key, end.port), end)
        if (first.peer, first.peer_port) != (end.peer, end.peer_port):
            odd.setdefault("listed with two partners, the first kept", []).append(port_of(end))
    mutual, single = [], []
    for end in end_at.values():
        mate = end_at.get((end.peer, end.peer_port))
        if (end.key, end.port) == (end.peer, end.peer_port):
            odd.setdefault("cabled to themselves, left out", []).append(port_of(end))
        elif mate is not None and (mate.peer, mate.peer_port) == (end.key, end.port):
            # One line may describe both ends.
            if (mate.line, mate.key, mate.port) > (end.line, end.key, end.port):
                mutual.append((end, mate))
        else:
            single.append(end)
    used = {side for pair in mutual for end in pair for side in [(end.key, end.port)]}
    pairs: list[tuple[PortEnd, PortEnd | None]] = list(mutual)
    for end in single:
        sides = {(end.key, end.port), (end.peer, end.peer_port)}
        if sides & used:
            odd.setdefault("contradicted by their partners, left out", []).append(port_of(end))
            continue
        used |= sides
        pairs.append((end, None))
        odd.setdefault("seen from one side only, the other completed", []).append(port_of(end))
    stated = _rates(pairs, odd, port_of)
    rates = _fill_rates(stated, pairs, odd, port_of, discovery, cable_gbps)
    cables = []
    for (end, mate), gbps, stated_gbps in zip(pairs, rates, stated, strict=True):
        if end.key == end.peer:
            odd.setdefault("cabled to their own device, left out", []).append(port_of(end))
            continue
        there, back = gbps, gbps
        if discovery.one_way and mate is not None:
            there, back = end.gbps or gbps, mate.gbps or gbps
        ends = (end.key, end.port), (end.peer, end.peer_port)
        cables.append(Cable(*ends, there, back, stated_gbps is not None))
    if discovery.one_way:
        odd.pop(_RATES_DIFFER, None)
    for what, where in odd.items():
        notes.append(tally(f"ports {what}", where))
    return cables


_RATES_DIFFER = "at odds with their partners on speed, the slower taken"


def _rates(
    pairs: list[tuple[PortEnd, PortEnd | None]],
    odd: dict[str, list[str]],
    port_of: Callable[[PortEnd], str],
) -> list[float | None]:
    """Data rate of the slower end of each cable in gigabits per second; None if unknown."""
    rates: list[float | None] = []
    for end, mate in pairs:
        seen = {e.gbps for e in (end, mate) if e is not None and e.gbps is not None}
        if len(seen) > 1:
            odd.setdefault(_RATES_DIFFER, []).append(port_of(end))
        rates.append(min(seen) if seen else None)
    return rates


def _fill_rates(
    rates: list[float | None],
    pairs: list[tuple[PortEnd, PortEnd | None]],
    odd: dict[str, list[str]],
    port_of: Callable[[PortEnd], str],
    discovery: Discovery,
    cable_gbps: float | None,
) -> list[float]:
    """The rates; unknown ones become the stated rate, or the rate of most cables."""
    counts = Counter(gbps for gbps in rates if gbps is not None)
    if rates and not counts and cable_gbps is None:
        raise FabricError(
            "no line states the speed of a link",
            place=f"line {pairs[0][0].line}",
            remedy=f"{discovery.remedy_without_rates}; or add {option('cable_rate', '100 Gb/s')}",
        )
    if cable_gbps is not None and None not in rates:
        raise FabricError(
            f"a cable rate of {cable_gbps:g} Gb/s is given, but the file states that of every link",
            remedy="leave out the cable rate; [[fabric.degraded]] slows a cable down",
        )
    usual = min(counts, key=lambda gbps: (-counts[gbps], gbps)) if counts else 0.0
    assumed = f"assumed to be {usual:g} Gb/s"
    if cable_gbps is not None:
        if discovery.uncounted:
            # A file that has no rates at all: nothing is odd about a link.
            return [cable_gbps] * len(rates)
        usual, assumed = cable_gbps, f"{cable_gbps:g} Gb/s as stated with the file"
    for (end, _), gbps in zip(pairs, rates, strict=True):
        if gbps is None:
            odd.setdefault(f"of unknown speed, {assumed}", []).append(port_of(end))
    return [usual if gbps is None else gbps for gbps in rates]


def tally(what: str, items: Sequence[str]) -> str:
    """Return a note with the number of items and the first three."""
    more = ", …" if len(items) > 3 else ""
    return f"{what}: {len(items)} ({', '.join(items[:3])}{more})"


# Mail, tickets and editors add or remove white space, so patterns require no more of it than is
# needed to separate words.
_HEADER = re.compile(r'^(Switch|Ca|Hca|Rt)\s*(\d+)\s*"([^"]+)"\s*(?:#\s*(.*))?$')
_HEADER_START = re.compile(r'^(Switch|Ca|Hca|Rt)(?:\s+(?:[^\s"]+\s*)?|\d+\s*)"')
_HEADER_WORD = re.compile(r"^(?:Switch|Ca|Hca|Rt)(?:[\s\d\"]|$)")
_EXT = r"(?:\s*\[\s*ext\s*\d+\s*\])?"
_GUID_OF_PORT = r"(?:\s*\(\s*([0-9a-fA-F]+)\s*\))?"
_PORT = re.compile(
    rf"^\[\s*(\d+)\s*\]{_EXT}{_GUID_OF_PORT}\s*"
    rf'"([^"]+)"\s*\[\s*(\d+)\s*\]{_EXT}{_GUID_OF_PORT}\s*(?:#(.*))?$'
)
# The name is everything between the first quote and the last one before the lid: real names contain
# quotes.
_PORT_NOTE = re.compile(
    r'^\s*(?:lid\s+(\d+)\b)?[^"]*"(.*)"(?:\s+lid\s+(\d+))?'
    r"\s*(?:(\d+x)\s*([A-Z?][A-Z0-9?]*))?.*$"
)
_HEADER_NAME = re.compile(r'^"(.*)"(?:.*\bport\s+0\s+lid\s+(\d+))?')
_DEVICE_ID = re.compile(r"^devid\s*=\s*0x([0-9a-fA-F]{1,8})")
_SYSTEM_GUID = re.compile(r"^sysimgguid\s*=\s*0x([0-9a-fA-F]+)")
_KINDS = {"Switch": Kind.SWITCH, "Ca": Kind.ADAPTER, "Hca": Kind.ADAPTER, "Rt": Kind.ROUTER}
_PREFIXES = {"S": Kind.SWITCH, "H": Kind.ADAPTER, "R": Kind.ROUTER}
_GUID = re.compile(r"^(?:[SHR]-)?(?:0x)?([0-9a-fA-F]{1,16})$")
# Lines of the format that do not describe cables.
_KNOWN_LINES = (
    "#",
    "vendid=",
    "devid=",
    "sysimgguid=",
    "switchguid=",
    "caguid=",
    "rtguid=",
    "hcaguid=",
    "DR path",
    "Chassis ",
)


def _guid_of(key: str) -> str:
    match = _GUID.match(key)
    return f"0x{int(match.group(1), 16):016x}" if match else key


def _broken_header(text: str, line: int) -> FabricError:
    return FabricError(
        f"{clip(text)} starts like a block but is not one",
        place=f"line {line}",
        remedy='a block starts with one line like: Switch 36 "S-0008f10500200b50"  # "name"; if '
        "lines were broken or joined, make the file again: ibnetdiscover > FILE",
    )


class _BlockParser:
    """Parses the lines of one file into ``discovery``."""

    def __init__(self) -> None:
        self.discovery = Discovery(remedy_without_rates=WITH_RATES)
        self.here: Device | None = None
        self.system: str | None = None
        self.device_id: int | None = None
        self.blocks: set[str] = set()

    def header(self, text: str, line: int) -> None:
        match = _HEADER.match(text)
        if match is None:
            raise _broken_header(text, line)
        word, _, key, note = match.groups()
        name = _HEADER_NAME.match(note or "")
        shown = (name.group(1) if name else "").strip()
        self.here = self.discovery.device(key, _KINDS[word], shown, _guid_of(key))
        if self.here.kind is not _KINDS[word]:
            # A free-form key that appeared as a neighbour before its block gave its kind.
            self.here.kind = _KINDS[word]
        self.here.chassis = self.system or self.here.chassis
        self.here.device_id = self.device_id or self.here.device_id
        self.system = self.device_id = None
        if name:
            self.discovery.add_lid(key, 0, name.group(2))
        if key in self.blocks:
            self.discovery.add_note("blocks given more than once", shown or key)
        self.blocks.add(key)

    def port(self, text: str, line: int) -> None:
        match = _PORT.match(text)
        if match is None:
            raise FabricError(
                f"{clip(text)} starts like a port but is not one",
                place=f"line {line}",
                remedy='a port reads like: [1] "H-0002c90300100ee8"[1](2c90300100ee9)  '
                '# "name" lid 7 4xEDR; make the file again with: ibnetdiscover > FILE',
            )
        if self.here is None:
            raise FabricError(
                f"port {clip(text)} comes before any Switch, Ca or Rt line",
                place=f"line {line}",
                remedy="the start of the file is missing; make it again: ibnetdiscover > FILE",
            )
        port, _, peer, peer_port, _, note = match.groups()
        port_note = _PORT_NOTE.match(note) if note else None
        groups: tuple[str | None, ...] = port_note.groups() if port_note else (None,) * 5
        own_lid, name, peer_lid, width, speed = groups
        kind = _PREFIXES.get(peer[0], Kind.ADAPTER) if peer[1:2] == "-" else Kind.SWITCH
        self.discovery.device(peer, kind, (name or "").strip(), _guid_of(peer))
        here = self.here.key, port_number(port, line)
        there = peer, port_number(peer_port, line)
        self.discovery.add_end(here, there, (width, speed) if width and speed else None, line)
        self.discovery.add_lid(*here, own_lid)
        self.discovery.add_lid(*there, peer_lid)

    def other(self, text: str, line: int) -> None:
        if _HEADER_WORD.match(text):
            # Otherwise its ports would be assigned to the block before.
            raise _broken_header(text, line)
        if system := _SYSTEM_GUID.match(text):
            self.system = system.group(1).lower().lstrip("0") or None
        elif device_id := _DEVICE_ID.match(text):
            self.device_id = int(device_id.group(1), 16)
        elif not text.startswith(_KNOWN_LINES):
            self.discovery.add_note("lines that are not in the format", text)


class BlockFormat:
    """Output of `ibnetdiscover`: a block for each switch, adapter and router."""

    def recognises(self, text: str) -> bool:
        """Whether the text has at least one block header."""
        return any(_HEADER_START.match(line.strip()) for line in text.split("\n"))

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the number of a line that cannot be read."""
        parser = _BlockParser()
        for number, raw in enumerate(text.split("\n"), start=1):
            line = raw.strip()
            if not line:
                continue
            if line[0] == "[":
                parser.port(line, number)
            elif _HEADER_START.match(line):
                parser.header(line, number)
            else:
                parser.other(line, number)
        return parser.discovery
