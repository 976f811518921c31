"""Encoding and decoding of the few management datagrams that a collector sends.

A MAD has 256 octets: a common header of 24 and, from octet 64 on (for performance management and
for directed-route subnet management alike), the attribute. Field positions follow the *InfiniBand
Architecture Specification*, volume 1: section 13.4.3 (header), 14.2 (subnet management) and 16.1
(performance management).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tailback.fabric.rates import WIDTHS, data_rate_gbps

MAD_BYTES: Final = 256
DATA: Final = 64
"""Where the attribute starts."""

GET = 0x01

CLASS_DIRECTED, CLASS_SUBNET, CLASS_PERFORMANCE = 0x81, 0x01, 0x04
PERMISSIVE_LID: Final = 0xFFFF
MAX_HOPS: Final = 63

NODE_DESCRIPTION, NODE_INFO, PORT_INFO = 0x0010, 0x0011, 0x0015
CLASS_PORT_INFO, PORT_SAMPLES_CONTROL = 0x0001, 0x0010
PORT_COUNTERS, PORT_COUNTERS_EXTENDED = 0x0012, 0x001D

BUSY: Final = 0x0001
"""Status of an answer: the request was discarded and may be repeated (IBA 13.4.7)."""

ALL_ONES_32: Final = 2**32 - 1
ALL_ONES_64: Final = 2**64 - 1

_HEADER = struct.Struct(">BBBBHHQHHI")
_PORT_COUNTERS = struct.Struct(">IIIII")
_EXTENDED = struct.Struct(">QQQQ")
_ERRORS = struct.Struct(">HBBHHHHBBxB2xH")
_ERRORS_EXTENDED = struct.Struct(">12Q")
_NODE_INFO = struct.Struct(">BBBBQQQHHIB")


class NodeType(IntEnum):
    """NodeType of NodeInfo."""

    ADAPTER = 1
    SWITCH = 2
    ROUTER = 3


def _frame(mad_class: int, method: int, attribute: int, modifier: int = 0) -> bytearray:
    mad = bytearray(MAD_BYTES)
    _HEADER.pack_into(mad, 0, 1, mad_class, 1, method, 0, 0, 0, attribute, 0, modifier)
    return mad


def performance_get(attribute: int, port: int = 0) -> bytearray:
    """Request an attribute of one port from a performance agent (port 0 for ClassPortInfo)."""
    mad = _frame(CLASS_PERFORMANCE, GET, attribute)
    mad[DATA + 1] = port
    return mad


def directed_get(path: bytes, attribute: int, modifier: int = 0) -> bytearray:
    """Request an attribute from the device at the end of ``path`` (an output port for each hop)."""
    mad = _frame(CLASS_DIRECTED, GET, attribute, modifier)
    mad[7] = len(path)
    mad[32:36] = b"\xff\xff\xff\xff"
    mad[129 : 129 + len(path)] = path
    return mad


def subnet_get(attribute: int, modifier: int = 0) -> bytearray:
    """Request an attribute of subnet management from the device with a local identifier."""
    return _frame(CLASS_SUBNET, GET, attribute, modifier)


def set_transaction(mad: bytearray, number: int) -> None:
    """Number a request. The answer returns the number's low 32 bits."""
    struct.pack_into(">Q", mad, 8, number)


def transaction(mad: bytes | memoryview) -> int:
    """Low 32 bits of an answer's transaction number (the kernel owns the high ones)."""
    return int.from_bytes(mad[12:16], "big")


def status(mad: bytes | memoryview) -> int:
    """Status of an answer, 0 for success. The direction bit of a directed route is masked.

    Performance agents return 0x000c for an attribute or a port they do not have.
    """
    return int.from_bytes(mad[4:6], "big") & 0x7FFF


@dataclass(frozen=True, slots=True)
class Capability:
    """Capabilities that a performance agent announces in ClassPortInfo.

    Attributes:
        extended: 64-bit data and packet counters (bit 9 or 10 of CapabilityMask).
        xmit_wait: PortXmitWait in PortCounters (bit 12).
        extended_wait: 64-bit PortXmitWait in PortCountersExtended (bit 1 of CapabilityMask2).
    """

    extended: bool
    xmit_wait: bool
    extended_wait: bool


def capability(mad: bytes | memoryview) -> Capability:
    """Read the answer to ClassPortInfo (IBA 13.4.8.1, 16.1.3.1)."""
    mask = int.from_bytes(mad[DATA + 2 : DATA + 4], "big")
    mask2 = int.from_bytes(mad[DATA + 4 : DATA + 8], "big") >> 5
    extended = bool(mask & 0x0600)
    return Capability(extended, bool(mask & 0x1000), extended and bool(mask2 & 0x2))


def tick_bytes(mad: bytes | memoryview) -> int:
    """Bytes in a tick, from the answer to PortSamplesControl: its ``Tick`` + 1 (IBA 16.1.3.2).

    0 where ``Tick`` is 0: agents without the optional sampling answer with zeros.
    """
    return mad[DATA + 2] + 1 if mad[DATA + 2] else 0


@dataclass(frozen=True, slots=True)
class PortCounterValues:
    """Counters of one port. The wire counts data in words of 4 octets.

    Attributes:
        data_words: Words sent.
        packets: Packets sent.
        xmit_wait: Ticks with data to send and no credit.
        received_words: Words received.
        received_packets: Packets received.
    """

    data_words: int
    packets: int
    xmit_wait: int
    received_words: int
    received_packets: int


def port_counters(mad: bytes | memoryview) -> PortCounterValues:
    """Read the answer to PortCounters: 32 bits each, which stop at all ones (IBA 16.1.3.5)."""
    words, received_words, packets, received, wait = _PORT_COUNTERS.unpack_from(mad, DATA + 24)
    return PortCounterValues(words, packets, wait, received_words, received)


def port_counters_extended(mad: bytes | memoryview) -> PortCounterValues:
    """Read the answer to PortCountersExtended: 64 bits each (IBA 16.1.4.11).

    ``xmit_wait`` means something only where :attr:`Capability.extended_wait` is announced.
    """
    words, received_words, packets, received = _EXTENDED.unpack_from(mad, DATA + 8)
    wait = int.from_bytes(mad[DATA + 168 : DATA + 176], "big")
    return PortCounterValues(words, packets, wait, received_words, received)


ERROR_COUNTERS: Final = (
    "SymbolErrorCounter",
    "LinkErrorRecoveryCounter",
    "LinkDownedCounter",
    "PortRcvErrors",
    "PortRcvRemotePhysicalErrors",
    "PortRcvSwitchRelayErrors",
    "PortXmitDiscards",
    "PortXmitConstraintErrors",
    "PortRcvConstraintErrors",
    "LocalLinkIntegrityErrors",
    "ExcessiveBufferOverrunErrors",
    "VL15Dropped",
)
"""Counters of errors, named as by libibmad. Every performance agent has them."""


def error_octets(mad: bytes, *, extended: bool) -> bytes:
    """The part of PortCounters, or of PortCountersExtended, that holds the counters of errors.

    In the extended one it means something only where :attr:`Capability.extended_wait` is announced.
    """
    return mad[DATA + 72 : DATA + 168] if extended else mad[DATA + 4 : DATA + 24]


def error_counters(octets: bytes) -> tuple[int, ...]:
    """Values of ``ERROR_COUNTERS`` from :func:`error_octets` (IBA 16.1.3.5, 16.1.4.11).

    Those of PortCounters have 4, 8 or 16 bits and stop at all ones, the extended ones have 64.
    """
    if len(octets) == _ERRORS_EXTENDED.size:
        return _ERRORS_EXTENDED.unpack(octets)
    *counters, nibbles, dropped = _ERRORS.unpack(octets)
    return (*counters, nibbles >> 4, nibbles & 0xF, dropped)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A device's description of itself, and the port on which the request arrived."""

    kind: int
    ports: int
    guid: int
    device_id: int
    local_port: int


def node_info(mad: bytes | memoryview) -> NodeInfo:
    """Read the answer to NodeInfo (IBA 14.2.5.3)."""
    _, _, kind, ports, _, guid, _, _, device, _, local = _NODE_INFO.unpack_from(mad, DATA)
    return NodeInfo(kind, ports, guid, device, local)


def node_description(mad: bytes | memoryview) -> str:
    """Read the answer to NodeDescription: 64 octets of free text."""
    raw = bytes(mad[DATA : DATA + 64]).split(b"\0", 1)[0]
    return raw.decode("utf-8", "replace").strip()


_WIDTH = {1: "1x", 2: "4x", 4: "8x", 8: "12x", 16: "2x"}
_SPEED = {1: "SDR", 2: "DDR", 4: "QDR"}
_SPEED_EXTENDED = {1: "FDR", 2: "EDR", 4: "HDR", 8: "NDR"}


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A port's address and link.

    Attributes:
        lid: Local identifier of the port (on a switch only that of port 0 counts).
        active: The link is up and carries traffic (PortState 4).
        up: The cable is connected (PortState 2, 3 or 4).
        speed: ``"EDR"`` …, ``""`` where the code is not known.
        lanes: Active lanes, 0 where the code is not known.
        gbps: Data rate in gigabits per second after line coding, None where not known.
    """

    lid: int
    active: bool
    up: bool
    speed: str
    gbps: float | None
    lanes: int = 0


def port_info(mad: bytes | memoryview) -> PortInfo:
    """Read the answer to PortInfo (IBA 14.2.5.6)."""
    data = mad[DATA : DATA + 64]
    state = data[32] & 0x0F
    width = _WIDTH.get(data[31], "")
    speed = _SPEED_EXTENDED.get(data[62] >> 4) or _SPEED.get(data[35] >> 4, "")
    lid = int.from_bytes(data[16:18], "big")
    rate = data_rate_gbps(width, speed)
    return PortInfo(lid, state == 4, 2 <= state <= 4, speed, rate, WIDTHS.get(width, 0))
