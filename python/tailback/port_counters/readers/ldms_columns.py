"""Meaning of the columns of LDMS samplers: ibnet, sysclassib, Gemini and Aries.

For each family: the columns of a port, and their contents. Sources: the samplers' manual pages
(ovis-hpc/ldms), the header lists of NCSA's Blue Waters data set, and Jha et al.,
*Characterizing Supercomputer Traffic Networks Through Link-Level Analysis* (HPCMASPA 2018), section
II, for the Gemini torus.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from tailback.port_counters.findings.port_events import meaning_of
from tailback.port_counters.readers.model import WORD_BYTES

Family = Literal["ibnet", "sysclassib", "gemini", "aries"]

DIRECTIONS: Final = ("X+", "X-", "Y+", "Y-", "Z+", "Z-")

GEMINI_GBPS: Final = {"X": 75.2, "Y": 37.6, "Z": 120.0}
"""Data rate of a whole directional link: 9.4, 4.7 and 15 GB/s (Jha et al., II-A; one Z link in
eight has 9.4 GB/s, which no counter shows)."""

GEMINI_TILES: Final = {"X": 8, "Y": 4, "Z": 8}
"""Tile links of a directional link: 8, 4 and 8 of a router's 40 network tiles."""

LANES_A_TILE: Final = 3
"""``sendlinkstatus`` counts lanes, of which a tile link has three."""


@dataclass(frozen=True)
class Value:
    """A column that is used, and its target.

    Attributes:
        index: Number of the column in the file, from 0.
        target: Column of ``READINGS`` or ``INTERVALS``, or ``lanes``.
        scale: Value of one count.
    """

    index: int
    target: str
    scale: float = 1.0


@dataclass
class LdmsPort:
    """The columns of one port of the sampled node.

    Attributes:
        port: Its number, None where the rows state it.
        device: Its adapter.
        direction: Its direction in a torus.
        cumulative: Columns of counters.
        derived: Columns of percentages.
        events: Index and name of the columns of errors, pauses and marks.
    """

    port: int | None
    device: str = ""
    direction: str | None = None
    cumulative: list[Value] = field(default_factory=list)
    derived: list[Value] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)


ADAPTER: Final = "adapter"
FILES: Final = "files"
"""What a Cray node counts of itself, beside its router: its adapter, and its reads and writes."""

_NODE: Final = {
    "RDMA_tx_bytes": (ADAPTER, "data_bytes"),
    "SMSG_tx_bytes": (ADAPTER, "data_bytes"),
    "RDMA_rx_bytes": (ADAPTER, "received_bytes"),
    "SMSG_rx_bytes": (ADAPTER, "received_bytes"),
    "write_bytes": (FILES, "data_bytes"),
    "read_bytes": (FILES, "received_bytes"),
}
"""Columns of a node; those of a file system end in its name, like ``read_bytes#stats.snx11001``."""


@dataclass
class LdmsLayout:
    """Content of a file's header.

    Attributes:
        family: Sampler.
        place: Column numbers of time, node name, component id, coordinates, lid, port.
        ports: Columns of each port.
        unknown: Names of columns that are not used.
    """

    family: Family
    place: dict[str, int]
    ports: list[LdmsPort]
    unknown: list[str]


_PLACE: Final = {
    "Time": "time",
    "Time_usec": "time_usec",
    "ProducerName": "producer",
    "CompId": "component",
    "component_id": "component",
    "nettopo_mesh_coord_X": "x",
    "nettopo_mesh_coord_Y": "y",
    "nettopo_mesh_coord_Z": "z",
    "lid": "lid",
    "port": "port",
    "node_name": "node_name",
    "port_query_time": "turnaround",
}

_UNIT = re.compile(r"(?P<name>.*?)(?: \((?P<unit>[^()]*)\))?")
_GEMINI = re.compile(r"(?P<direction>[XYZ][+-])_(?P<what>[A-Za-z_]+)")
_ARIES = re.compile(r"(?P<what>traffic|stalled|sendlinkstatus)_(?P<tile>[0-9]{3})")
_SYSCLASSIB = re.compile(
    r"ib\.(?P<what>[A-Za-z0-9_.]+)#(?P<device>[^#.]{1,64})\.(?P<port>[0-9]{1,4})"
)

_GEMINI_RAW = {
    "traffic": "data_bytes",
    "packets": "packets",
    "credit_stall": "stall_ns",
    "inq_stall": "internal_stall_ns",
    "sendlinkstatus": "lanes",
}
_GEMINI_DERIVED = {
    # LDMS writes percent × 10^6
    "SAMPLE_GEMINI_LINK_CREDIT_STALL": ("stall_fraction", 1e-8),
    "SAMPLE_GEMINI_LINK_INQ_STALL": ("internal_stall_fraction", 1e-8),
    "SAMPLE_GEMINI_LINK_USED_BW": ("utilization", 1e-8),
}
_ARIES_RAW = {"traffic": "data_bytes", "stalled": "stall_ns"}
_IBNET = {
    "PortXmitData": Value(0, "data_bytes", WORD_BYTES),
    "PortXmitPkts": Value(0, "packets"),
    "PortXmitWait": Value(0, "xmit_wait_ticks"),
    "PortRcvData": Value(0, "received_bytes", WORD_BYTES),
    "PortRcvPkts": Value(0, "received_packets"),
}
_SYSCLASSIB_RAW = {
    "port_xmit_data": Value(0, "data_bytes", WORD_BYTES),
    "port_rcv_data": Value(0, "received_bytes", WORD_BYTES),
    "port_rcv_packets": Value(0, "received_packets"),
    "port_xmit_packets": Value(0, "packets"),
    "port_xmit_wait": Value(0, "xmit_wait_ticks"),
}


def parse_header(names: list[str]) -> LdmsLayout | None:
    """Parse a header; None if it is not of a known sampler.

    Args:
        names: The names in the header, without the leading ``#``.
    """
    place: dict[str, int] = {}
    ports: dict[tuple[str, int | None], LdmsPort] = {}
    of_node: dict[str, LdmsPort] = {}
    unknown: list[str] = []
    families: set[Family] = set()
    cray = any(_GEMINI.match(name) or _ARIES.match(name) for name in names)
    for index, full in enumerate(names):
        matched = _UNIT.fullmatch(full)
        name = matched["name"] if matched else full
        if name in _PLACE and _PLACE[name] not in place:
            place[_PLACE[name]] = index
        elif (family := _port_column(name, index, ports)) is not None:
            families.add(family)
        elif cray and (meaning := _NODE.get(name.partition("#")[0])) is not None:
            part, target = meaning
            port = of_node.setdefault(part, LdmsPort(0, device=part))
            port.cumulative.append(Value(index, target))
        else:
            unknown.append(full)
    if len(families) != 1 or "time" not in place:
        return None
    if families == {"ibnet"}:
        # Its columns have no port in their names, so only the sampler tells whose they are.
        (port,) = ports.values()
        port.events = [(names.index(name), name) for name in unknown if meaning_of(name)]
        unknown = [name for name in unknown if not meaning_of(name)]
    return LdmsLayout(families.pop(), place, [*ports.values(), *of_node.values()], unknown)


def _port_column(
    name: str, index: int, ports: dict[tuple[str, int | None], LdmsPort]
) -> Family | None:
    """Assign a column to its port; None if it belongs to none."""
    if match := _GEMINI.fullmatch(name):
        number = DIRECTIONS.index(match["direction"])
        port = LdmsPort(number, direction=match["direction"])
        if target := _GEMINI_RAW.get(match["what"]):
            ports.setdefault(("", number), port).cumulative.append(Value(index, target))
            return "gemini"
        if derived := _GEMINI_DERIVED.get(match["what"]):
            ports.setdefault(("", number), port).derived.append(Value(index, *derived))
            return "gemini"
        return None
    if match := _ARIES.fullmatch(name):
        if target := _ARIES_RAW.get(match["what"]):
            tile = int(match["tile"])
            ports.setdefault(("", tile), LdmsPort(tile)).cumulative.append(Value(index, target))
            return "aries"
        return None
    if match := _SYSCLASSIB.fullmatch(name):
        raw = _SYSCLASSIB_RAW.get(match["what"])
        if raw is None and meaning_of(match["what"]) is None:
            return None
        key = (match["device"], int(match["port"]))
        port = ports.setdefault(key, LdmsPort(key[1], device=key[0]))
        if raw is None:
            port.events.append((index, match["what"]))
        else:
            port.cumulative.append(Value(index, raw.target, raw.scale))
        return "sysclassib"
    if raw := _IBNET.get(name):
        port = ports.setdefault(("", None), LdmsPort(None))
        # The 32-bit and 64-bit sets have the same names. The later, wider one is used.
        port.cumulative = [value for value in port.cumulative if value.target != raw.target]
        port.cumulative.append(Value(index, raw.target, raw.scale))
        return "ibnet"
    return None
