"""Edge lists: a CSV with one line per link or cable and its rate.

Exported by inventories, or written by hand for a network without ``ibnetdiscover``::

    src,dst,iface,rate_mbit
    h00,l0,e0,50
    l0,h00,h00,50

If the file lists both directions of its links, a line is one direction; otherwise it is a cable.
Column names of NetBox, of LLDP tables and of hand-made lists are known. A rate needs a unit, in the
name of its column or in the field. A cable whose status is down is left out. A negotiated rate
below the nominal one makes a slow cable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tailback.errors import FabricError, InvalidValueError
from tailback.fabric.ibnetdiscover import Device, Discovery, Kind, PortEnd, tally
from tailback.io.delimited import Delimited, header_of, not_used, parse, shown
from tailback.units import RATE_UNITS, column_gbps, is_in_bytes

_RATES: Final = ("rate", "speed", "bandwidth", "capacity")
_RATES_IN_UNITS: Final = tuple(f"{stem}_{unit}" for stem in _RATES for unit in RATE_UNITS)
_NEGOTIATED: Final = tuple(
    f"{word}_{name}"
    for word in ("actual", "negotiated", "current", "oper", "operational", "active")
    for name in (*_RATES_IN_UNITS, *_RATES, *RATE_UNITS)
)
"""Columns of the rate that a link trained to, beside or instead of its nominal one."""

ALIASES: Final = {
    "source": (
        "src",
        "source",
        "from",
        "src_name",
        "src_node",
        "src_device",
        "source_node",
        "source_device",
        "src_host",
        "device_a",
        "a_device",
        "node_a",
        "side_a_device",
        "termination_a_device",
        "device1",
        "node1",
        "local_device",
        "local_host",
        "a",
    ),
    "destination": (
        "dst",
        "destination",
        "dest",
        "to",
        "target",
        "dst_name",
        "dst_node",
        "dst_device",
        "dest_node",
        "dest_device",
        "destination_node",
        "destination_device",
        "dst_host",
        "device_b",
        "b_device",
        "node_b",
        "side_b_device",
        "termination_b_device",
        "device2",
        "node2",
        "remote_device",
        "remote_host",
        "peer",
        "neighbor",
        "neighbour",
        "b",
    ),
    "source_interface": (
        "iface",
        "interface",
        "src_iface",
        "src_interface",
        "source_interface",
        "src_port",
        "source_port",
        "interface_a",
        "a_interface",
        "port_a",
        "a_port",
        "side_a_name",
        "termination_a",
        "local_interface",
        "local_port",
        "port",
        "ifname",
    ),
    "destination_interface": (
        "dst_iface",
        "dst_interface",
        "destination_interface",
        "dest_interface",
        "dst_port",
        "dest_port",
        "destination_port",
        "interface_b",
        "b_interface",
        "port_b",
        "b_port",
        "side_b_name",
        "termination_b",
        "remote_interface",
        "remote_port",
        "peer_iface",
        "peer_port",
    ),
    "source_kind": (
        "src_kind",
        "src_role",
        "source_role",
        "src_type",
        "role_a",
        "a_role",
        "device_a_role",
        "side_a_role",
        "kind_a",
    ),
    "destination_kind": (
        "dst_kind",
        "dst_role",
        "destination_role",
        "dst_type",
        "role_b",
        "b_role",
        "device_b_role",
        "side_b_role",
        "kind_b",
    ),
    "rate": (
        *_RATES_IN_UNITS,
        *("gbps", "gbit", "mbps", "mbit"),
        *_RATES,
        *_NEGOTIATED,
    ),
    "negotiated": _NEGOTIATED,
    "status": ("status", "state", "link_status", "link_state", "cable_status"),
    "oper_status": (
        *("oper_status", "oper_state", "operstatus", "ifoperstatus", "operational_status"),
        *("operational_state", "physical_state", "phys_state"),
    ),
    "admin_status": ("admin_status", "admin_state", "adminstatus", "ifadminstatus", "enabled"),
    "link": ("link", "link_id", "id", "cable", "cable_id", "label"),
    "queue": ("queue_limit_bytes", "queue_bytes", "limit_bytes", "buffer_bytes"),
}
"""Names of the columns, as ``delimited.normal`` gives them."""

_FIELD: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?)\s*(\S.*)?", re.IGNORECASE)
_ETHERNET: Final = re.compile(r"([gmkt])(?:be|base\S*|e)?", re.IGNORECASE)
"""What follows the number in names of Ethernet's speeds: 100G, 100GbE, 100GBASE-CR4."""
_STATUS: Final = ("status", "oper_status", "admin_status")
_UP: Final = re.compile(
    "1|active|connected|dormant|enabled?|good|healthy|installed|linkup|ok|on|online|true|up|yes"
)
_DOWN: Final = re.compile(
    "0|2|absent|administrativelydown|broken|decommission(?:ed|ing)|disabled?|disconnected|down"
    "|errdisabled|failed|false|faulty|inactive|(?:admin|link|lowerlayer)down|no|nolink|offline|off"
    "|notconnect(?:ed)?|notpresent|planned|polling|removed|shutdown"
)
"""Statuses of NetBox, SNMP (ifOperStatus: 1 is up, 2 is down), switches and InfiniBand."""
_SWITCH: Final = re.compile(
    r"\b(?:switch|leaf|spine|tor|core|aggregation|router|superspine|fabric)\b", re.IGNORECASE
)
_HOST: Final = re.compile(
    r"\b(?:host|server|node|compute|endpoint|hca|nic|adapter|storage|login|management)\b",
    re.IGNORECASE,
)
FASTEST_GBPS: Final = 1e6
"""A link of more than a petabit per second indicates a wrong unit."""


@dataclass(slots=True)
class _Row:
    """One line: ends, interfaces, actual and nominal rate, and a status that says it is down."""

    line: int
    source: str
    destination: str
    leaves: str
    arrives: str
    link: str
    gbps: float
    nominal_gbps: float
    down: str


@dataclass(slots=True)
class _Wire:
    """A cable: the line of one direction and, if present, the line of the other."""

    there: _Row
    back: _Row | None = None
    ports: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def down(self) -> str:
        """The status of a direction that is down; a cable needs both."""
        return self.there.down or (self.back.down if self.back else "")

    def interface(self, end: int) -> str:
        """Name of the interface at the source (0) or the destination (1) of ``there``."""
        if end == 0:
            return self.there.leaves or (self.back.arrives if self.back else "")
        return (self.back.leaves if self.back else "") or self.there.arrives


class EdgeList:
    """CSV with a line for each link or cable: ends, interface, rate."""

    def recognises(self, text: str) -> bool:
        """Whether the first line names two ends and a rate or an interface."""
        roles = header_of(text[: 1 << 16], ALIASES)
        return (
            roles is not None
            and {"source", "destination"} <= set(roles)
            and bool({"rate", "source_interface"} & set(roles))
        )

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the number of a line that cannot be read."""
        table = parse(text, ALIASES, ("source", "destination", "rate"), error_type=FabricError)
        lines = _rows(table)
        rows = [row for row in lines if row.source != row.destination]
        if not rows:
            raise FabricError("a header and no links", remedy="give a line for each link")
        wires = _join_lines(rows, table)
        kinds, guessed = _classify_devices(wires, table)
        standing = [wire for wire in wires if not wire.down]
        if not standing:
            raise table.error_at(
                next(role for role in _STATUS if role in table.header),
                rows[0].line,
                "every link is down",
                "check the column, or leave it out",
            )
        _number_ports(standing, table)
        discovery = _discovery(standing, rows, kinds)
        discovery.in_host_gbps = _in_host(lines, table)
        # In front, because screens show the first few notes of a file.
        discovery.notes[:0] = [
            *_down_notes(wires, table),
            *_rate_notes(rows, table),
            *_queues(table),
        ]
        if guessed:
            hosts = sum(kind is Kind.ADAPTER for kind in kinds.values())
            discovery.notes.append(
                f"devices with one cable treated as hosts: {hosts} (to override, add columns "
                "src_role and dst_role: host or switch)"
            )
        discovery.notes += not_used(table.unused)
        return discovery


def _rows(table: Delimited) -> list[_Row]:
    """The lines, with their rates in gigabits per second; 0 for a link that is down."""
    lines = table.rows["line"].to_list()
    blank = [""] * len(lines)

    def texts(role: str) -> list[str]:
        if role not in table.header:
            return blank
        return [value or "" for value in table.rows[role].to_list()]

    down = [
        next((text for text in states if _DOWN.fullmatch(_state(text))), "")
        for states in zip(*map(texts, _STATUS), strict=True)
    ]
    nominal = _rates(table, "rate", down)
    trained = _rates(table, "negotiated", down) if "negotiated" in table.header else nominal
    actual = [trained_gbps or rated for trained_gbps, rated in zip(trained, nominal, strict=True)]
    for line, rate, why in zip(lines, actual, down, strict=True):
        if not (rate or why):
            message = "the field is empty"
            raise table.error_at("rate", line, message, "fill it in, or drop the line")
    return [
        _Row(*fields)
        for fields in zip(
            lines,
            table.need("source").to_list(),
            table.need("destination").to_list(),
            texts("source_interface"),
            texts("destination_interface"),
            texts("link"),
            actual,
            nominal,
            down,
            strict=True,
        )
    ]


def _known(text: str) -> bool:
    return any(states.fullmatch(_state(text)) for states in (_UP, _DOWN))


def _state(text: str) -> str:
    """A status in plain letters: ``down`` of ``Down(2)``; a number stays."""
    return re.sub(r"[^a-z]", "", text.lower()) or text.strip()


def _down_notes(wires: Sequence[_Wire], table: Delimited) -> list[str]:
    """Notes on the cables that are left out, and on statuses that are not known."""
    down = [
        f"{shown(wire.there.source)} to {shown(wire.there.destination)}: {shown(wire.down)}"
        for wire in wires
        if wire.down
    ]
    states = [text for role in _STATUS if role in table.header for text in table.rows[role]]
    unknown = [text for text in states if text and not _known(text)]
    notes = [tally("cables that are down, left out", down)] if down else []
    if unknown:
        notes.append(tally("statuses not known, taken for up", list(map(shown, unknown))))
    return notes


def _rate_notes(rows: Sequence[_Row], table: Delimited) -> list[str]:
    """Notes on rates in bytes, and on links that are faster than their nominal rate."""
    notes = []
    for role in ("rate", "negotiated"):
        if role in table.header and is_in_bytes(table.header[role]):
            unit = column_gbps(table.header[role])
            name = shown(table.header[role])
            notes.append(f"rates in bytes: column {name}, where 1 is {unit:g} Gb/s")
    fast = [row for row in rows if not row.down and row.gbps > row.nominal_gbps > 0]
    if fast:
        names = [f"{shown(row.source)} to {shown(row.destination)}" for row in fast]
        notes.append(tally("links that run at more than their nominal rate", names))
    return notes


def _in_host(rows: Sequence[_Row], table: Delimited) -> dict[str, float]:
    """Rates within hosts: of the lines whose two ends are one device.

    Raises:
        FabricError: A host has two.
    """
    out: dict[str, float] = {}
    for row in rows:
        if row.source == row.destination and out.setdefault(row.source, row.gbps) != row.gbps:
            raise table.error_at(
                "rate",
                row.line,
                f"{shown(row.source)} has another rate within itself already",
                "give one line for each host",
            )
    return out


def _rates(table: Delimited, role: str, down: Sequence[str]) -> list[float]:
    """Rate of each line in gigabits per second; 0 where the field is empty or the link down."""
    name, out = table.header[role], []
    rows = zip(table.rows["line"].to_list(), table.rows[role].to_list(), down, strict=True)
    try:
        unit = column_gbps(name)
        for line, text, why in rows:
            out.append(0.0 if why or text is None else _gbps(table, role, line, text, unit))
    except InvalidValueError as error:
        line = int(table.rows["line"][len(out)])
        raise table.error_at(role, line, error.message, error.remedy) from None
    return out


def _gbps(table: Delimited, role: str, line: int, text: str, column: float | None) -> float:
    """The rate in one field, in the unit of the field or else of the column."""
    match = _FIELD.fullmatch(text)
    unit = column
    if match is not None and match[2]:
        speed = _ETHERNET.fullmatch(match[2])
        unit = column_gbps(f"{speed[1]}bit" if speed else match[2])
    if match is None or (match[2] and unit is None):
        raise table.error_at(
            role, line, f"{shown(text)} is not a rate", "write it like 40 Mb/s or 100 Gb/s"
        )
    if unit is None:
        raise table.error_at(
            role,
            line,
            f"{shown(text)} has no unit",
            "write it like 40 Mb/s, or call the column rate_mbit or rate_gbit",
        )
    gbps = float(match[1]) * unit
    if not 0 < gbps <= FASTEST_GBPS:
        raise table.error_at(
            role,
            line,
            f"{shown(text)} is not a rate of a link ({gbps:g} Gb/s)",
            "give a rate above 0; links that are down are left out, or have status down",
        )
    return gbps


def _join_lines(rows: Sequence[_Row], table: Delimited) -> list[_Wire]:
    """Join lines to cables: the directions of a cable are paired by interface, else in order.

    Raises:
        FabricError: Some links have both directions and others only one.
    """
    between = Counter((row.source, row.destination) for row in rows)
    both = any(between[b, a] for a, b in between if a != b)
    if not both:
        return [_Wire(row) for row in rows]
    waiting: dict[tuple[str, str], list[_Wire]] = {}
    wires = []
    for row in rows:
        mates = waiting.get((row.destination, row.source), [])
        mate = next((wire for wire in mates if _same_cable(wire.there, row)), None)
        if mate is not None:
            mates.remove(mate)
            mate.back = row
            continue
        wires.append(_Wire(row))
        waiting.setdefault((row.source, row.destination), []).append(wires[-1])
    alone = next((wire.there for wire in wires if wire.back is None), None)
    if alone is not None:
        raise table.error_at(
            "source",
            alone.line,
            f"the link from {shown(alone.source)} to {shown(alone.destination)} has no line for "
            "its other direction, as other links have",
            "list both directions of every link, or every cable once; with interfaces of both "
            "ends these must agree",
        )
    return wires


def _same_cable(first: _Row, other: _Row) -> bool:
    """Whether two opposite lines can be one cable: their interfaces agree where both are given."""
    pairs = ((first.leaves, other.arrives), (first.arrives, other.leaves))
    return all(a == b for a, b in pairs if a and b)


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"([0-9]{1,18})", name)
    return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts if p]


def _number_ports(wires: Sequence[_Wire], table: Delimited) -> None:
    """Number the ports of each device: by interface numbers, or 1 … n in natural order.

    Raises:
        FabricError: An interface of a device is in two cables.
    """
    ends: dict[str, list[tuple[_Wire, int]]] = {}
    for wire in wires:
        ends.setdefault(wire.there.source, []).append((wire, 0))
        ends.setdefault(wire.there.destination, []).append((wire, 1))
    for device, mine in ends.items():
        first: dict[str, int] = {}
        for wire, end in mine:
            name = wire.interface(end)
            line = (wire.there if end == 0 or wire.back is None else wire.back).line
            if name and first.setdefault(name, line) != line:
                role = "source_interface"
                raise table.error_at(
                    role if role in table.column else "destination_interface",
                    line,
                    f"interface {shown(name)} of {shown(device)} is in another cable already, "
                    f"line {first[name]}",
                    "correct one of the two lines",
                )
        names = [wire.interface(end) for wire, end in mine]
        plain = all(re.fullmatch(r"[1-9][0-9]{0,3}", name) for name in names)
        order = sorted(range(len(mine)), key=lambda i: (names[i] == "", _natural(names[i])))
        for rank, index in enumerate(order, start=1):
            wire, end = mine[index]
            wire.ports[end] = int(names[index]) if plain else rank


def _discovery(wires: Sequence[_Wire], rows: Sequence[_Row], kinds: dict[str, Kind]) -> Discovery:
    """Devices and port lines of the cables."""
    discovery = Discovery(one_way=True)
    for row in rows:
        for name in (row.source, row.destination):
            discovery.devices.setdefault(name, Device(name, kinds[name], name, name))
    for wire in wires:
        there, back = wire.there, wire.back
        a, b = (there.source, wire.ports[0]), (there.destination, wire.ports[1])
        discovery.ends.append(PortEnd(*a, *b, there.gbps, there.line))
        # A cable with one line: add its other direction directly after it.
        discovery.ends.append(PortEnd(*b, *a, (back or there).gbps, (back or there).line))
        for end, port in enumerate((a, b)):
            if wire.interface(end):
                discovery.interface[port] = wire.interface(end)
        if there.link:
            discovery.link_id[a] = there.link
        if back is not None and back.link:
            discovery.link_id[b] = back.link
        for port, row in ((a, there), (b, back or there)):
            if row.gbps < row.nominal_gbps:
                discovery.nominal_gbps[port] = row.nominal_gbps
    return discovery


def _classify_devices(wires: Sequence[_Wire], table: Delimited) -> tuple[dict[str, Kind], bool]:
    """Kind of each device, by role or number of cables, and whether any is guessed.

    Raises:
        FabricError: A role is neither a host's nor a switch's, or no device is a host.
    """
    kinds: dict[str, Kind] = {}
    for end in ("source", "destination"):
        role = f"{end}_kind"
        if role not in table.header:
            continue
        columns = (table.rows["line"], table.rows[end], table.rows[role])
        for line, name, text in zip(*columns, strict=True):
            if text is None:
                continue
            plain = re.sub(r"[^A-Za-z]+", " ", text)
            kind = Kind.SWITCH if _SWITCH.search(plain) else Kind.ADAPTER
            if kind is Kind.ADAPTER and not _HOST.search(plain):
                raise table.error_at(
                    role,
                    line,
                    f"{shown(text)} is neither a host nor a switch",
                    "write host or switch, or leave the field empty",
                )
            if kinds.setdefault(name, kind) is not kind:
                raise table.error_at(
                    role,
                    line,
                    f"an earlier line says {shown(name)} is of another kind",
                    "give a device one role",
                )
    cables = Counter(name for w in wires for name in (w.there.source, w.there.destination))
    guessed = [name for name in cables if name not in kinds]
    for name in guessed:
        kinds[name] = Kind.ADAPTER if cables[name] == 1 else Kind.SWITCH
    if Kind.ADAPTER not in kinds.values():
        raise FabricError(
            "no device is a host: every one has two cables or more",
            remedy="say which are hosts: add columns src_role and dst_role with host or switch",
        )
    return kinds, bool(guessed)


def _queues(table: Delimited) -> list[str]:
    """The queue limits stated in the file, as a note."""
    if "queue" not in table.header:
        return []
    limits = table.number("queue").drop_nulls()
    if limits.is_empty():
        return []
    low, high = float(limits.min()), float(limits.max())  # type: ignore[arg-type]
    sizes = f"{low:,.0f} B" if low == high else f"{low:,.0f} to {high:,.0f} B"
    return [
        f"lossy network: queues drop packets beyond {sizes}; the model has back-pressure instead "
        "of drops"
    ]
