"""InfiniBand packets that carry a sample: headers, the six reserved bits, and both checksums.

A packet is a local route header (LRH, 8 bytes), a base transport header (BTH, 12 bytes), payload,
the invariant and the variant CRC. Byte 4 of the BTH is FECN, BECN and six reserved bits, which the
invariant CRC leaves out (InfiniBand Architecture Specification, volume 1, sections 5.2.2, 7.8 and
9.2): a switch may rewrite them, and only the variant CRC changes, which is recomputed on every link
anyway. So the compact schemes of 5 or 6 bits (thesis section 5.7) and the coordinated ones add no
overhead. Packet sequence number, local ids and queue pair make the packet id
(:mod:`tailback.telemetry.packet_ids`); a datagram names its sender's queue pair in a datagram
extended transport header (DETH, 8 bytes) after the BTH.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from tailback.errors import TraceError
from tailback.scenario.model import RESERVED_BITS

RC_SEND_ONLY = 0x04
"""Opcode of a reliable-connection send of one packet."""
UD_SEND_ONLY = 0x64
"""Opcode of an unreliable datagram; a DETH follows the BTH."""
LRH_BYTES, BTH_BYTES, DETH_BYTES, ICRC_BYTES, VCRC_BYTES = 8, 12, 8, 4, 2


@dataclass(frozen=True)
class IbPacket:
    """A packet with a sample in its reserved bits: of a reliable connection, or a datagram.

    Attributes:
        source_lid: Local id of the sending port, 16 bits.
        destination_lid: Local id of the receiving port, 16 bits.
        psn: Packet sequence number, 24 bits.
        sample: The six reserved bits.
        payload: Message bytes; padded to a multiple of 4 on the wire.
        fecn: Forward congestion notification.
        becn: Backward congestion notification.
        destination_qp: Queue pair at the receiver, 24 bits.
        source_qp: Queue pair at the sender, 24 bits; of datagrams only, whose opcode is
            ``UD_SEND_ONLY``.
        service_level: Service level, 4 bits.
        virtual_lane: Virtual lane, 4 bits; a switch may change it.
        opcode: BTH opcode, 8 bits.
        partition: Partition key, 16 bits.
    """

    source_lid: int
    destination_lid: int
    psn: int
    sample: int
    payload: bytes = b""
    fecn: bool = False
    becn: bool = False
    destination_qp: int = 2
    source_qp: int | None = None
    service_level: int = 0
    virtual_lane: int = 0
    opcode: int = RC_SEND_ONLY
    partition: int = 0xFFFF


_WIDTHS = {
    "source_lid": 16,
    "destination_lid": 16,
    "psn": 24,
    "sample": RESERVED_BITS,
    "destination_qp": 24,
    "source_qp": 24,
    "service_level": 4,
    "virtual_lane": 4,
    "opcode": 8,
    "partition": 16,
}


def encode(packet: IbPacket) -> bytes:
    """The bytes on the wire, from the LRH to the variant CRC.

    Raises:
        TraceError: A field does not fit its bits, the payload is over 4096 bytes, or a source
        queue pair is given for another opcode than ``UD_SEND_ONLY`` or missing for that one.
    """
    if (packet.source_qp is None) == (packet.opcode == UD_SEND_ONLY):
        raise TraceError(
            f"opcode {packet.opcode:#04x} with source queue pair {packet.source_qp}",
            remedy=f"datagrams, opcode {UD_SEND_ONLY:#04x}, have a source queue pair; no others do",
        )
    for field, bits in _WIDTHS.items():
        value = getattr(packet, field)
        if value is None:
            continue
        if not 0 <= value < 1 << bits:
            raise TraceError(f"{field} is {value}, which does not fit {bits} bits")
    if len(packet.payload) > 4096:
        raise TraceError(f"a payload of {len(packet.payload)} bytes; InfiniBand carries 4096")
    pad = -len(packet.payload) % 4
    body = packet.payload + bytes(pad)
    if packet.source_qp is not None:
        body = struct.pack(">II", 0, packet.source_qp) + body  # queue key 0
    words = (LRH_BYTES + BTH_BYTES + len(body) + ICRC_BYTES) // 4
    lrh = struct.pack(
        ">BBHHH",
        packet.virtual_lane << 4,
        (packet.service_level << 4) | 0b10,  # next header: BTH
        packet.destination_lid,
        words,
        packet.source_lid,
    )
    notice = (packet.fecn << 7) | (packet.becn << 6) | packet.sample
    bth = struct.pack(
        ">BBHIII",
        packet.opcode,
        0x40 | (pad << 4),  # migrated path, transport version 0
        packet.partition,
        (notice << 24) | packet.destination_qp,
        packet.psn,
        0,
    )[:BTH_BYTES]
    covered = lrh + bth + body
    sealed = covered + invariant_crc(covered)
    return sealed + variant_crc(sealed)


def invariant_crc(covered: bytes) -> bytes:
    """ICRC of a packet with LRH and BTH (no GRH), without its CRCs: 4 bytes as sent.

    The CRC-32 of Ethernet over all bytes, with ones in place of fields that may change in transit:
    the virtual lane and the byte of FECN, BECN and the reserved bits.
    """
    masked = bytearray(covered)
    masked[0] |= 0xF0
    masked[LRH_BYTES + 4] = 0xFF
    return zlib.crc32(masked).to_bytes(4, "little")


def _reflect(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def _vcrc_table() -> list[int]:
    # x^16 + x^12 + x^3 + x + 1 (0x100B), least bit first.
    polynomial = _reflect(0x100B, 16)
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
        table.append(value)
    return table


_VCRC = _vcrc_table()


def variant_crc(covered: bytes) -> bytes:
    """VCRC of everything from the LRH to the ICRC: 2 bytes as sent."""
    crc = 0xFFFF
    for byte in covered:
        crc = (crc >> 8) ^ _VCRC[(crc ^ byte) & 0xFF]
    return (crc ^ 0xFFFF).to_bytes(2, "little")
