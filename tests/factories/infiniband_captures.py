"""A second reader of what Tailback writes on the wire: plain Python, every checksum verified."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tailback.errors import TraceError
from tailback.telemetry.pcap import ERF_INFINIBAND, LINKTYPE_ERF
from tailback.telemetry.wire import (
    BTH_BYTES,
    DETH_BYTES,
    ICRC_BYTES,
    LRH_BYTES,
    UD_SEND_ONLY,
    VCRC_BYTES,
    IbPacket,
    invariant_crc,
    variant_crc,
)

_ERF = struct.Struct("<QBB")
_ERF_LENGTHS = struct.Struct(">HHH")
_ERF_BYTES = 16
_MAGIC_NS = 0xA1B23C4D


def read_pcap(path: Path) -> Iterator[tuple[int, IbPacket]]:
    """Read a capture that :func:`write_pcap` could have written, checksums verified.

    Yields:
        Arrival time in nanoseconds, and the packet.

    Raises:
        TraceError: Not such a file, cut short, or a packet that is damaged; the packet is named.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", file=path) from None
    if len(data) < 24 or struct.unpack_from("<I", data)[0] != _MAGIC_NS:
        raise TraceError(
            "no little-endian pcap file with nanoseconds",
            file=path,
            remedy="editcap -F nsecpcap converts other captures",
        )
    link_type = struct.unpack_from("<I", data, 20)[0] & 0xFFFF
    if link_type != LINKTYPE_ERF:
        raise TraceError(f"link type {link_type} is not ERF (197)", file=path)
    at, number = 24, 0
    while at < len(data):
        place = f"packet {number}"
        if at + 16 > len(data):
            raise TraceError("the file ends within a record header", file=path, place=place)
        seconds, nanoseconds, held, _ = struct.unpack_from("<IIII", data, at)
        if at + 16 + held > len(data):
            raise TraceError("the file ends within a packet", file=path, place=place)
        try:
            packet = decode(_behind_erf(data[at + 16 : at + 16 + held]))
        except TraceError as error:
            raise TraceError(error.message, file=path, place=place) from None
        yield seconds * 1_000_000_000 + nanoseconds, packet
        at, number = at + 16 + held, number + 1


def _behind_erf(record: bytes) -> bytes:
    if len(record) < _ERF_BYTES:
        raise TraceError(f"{len(record)} bytes hold no ERF header")
    kind = _ERF.unpack_from(record)[1]
    if kind != ERF_INFINIBAND:
        raise TraceError(f"ERF record type {kind} is not InfiniBand ({ERF_INFINIBAND})")
    length = _ERF_LENGTHS.unpack_from(record, _ERF.size)[2]
    if _ERF_BYTES + length > len(record):
        raise TraceError(f"a packet of {length} bytes is cut to {len(record) - _ERF_BYTES}")
    return record[_ERF_BYTES : _ERF_BYTES + length]


def decode(wire: bytes) -> IbPacket:
    """The packet of these bytes, both checksums verified.

    Raises:
        TraceError: Too short, not LRH followed by BTH, a wrong length or a wrong checksum.
    """
    least = LRH_BYTES + BTH_BYTES + ICRC_BYTES + VCRC_BYTES
    if len(wire) < least:
        raise TraceError(f"{len(wire)} bytes are no InfiniBand packet; {least} is the least")
    lane, service, destination, words, source = struct.unpack(">BBHHH", wire[:LRH_BYTES])
    if service & 3 != 0b10:
        raise TraceError(f"the header after the LRH is {service & 3}, not a BTH (2)")
    if 4 * (words & 0x7FF) + VCRC_BYTES != len(wire):
        raise TraceError(f"the LRH states {words & 0x7FF} words for a packet of {len(wire)} bytes")
    covered, end = wire[: -ICRC_BYTES - VCRC_BYTES], wire[-ICRC_BYTES - VCRC_BYTES :]
    if invariant_crc(covered) != end[:ICRC_BYTES]:
        raise TraceError(
            "the invariant CRC is wrong: a field that no switch may change was changed"
        )
    if variant_crc(wire[:-VCRC_BYTES]) != end[ICRC_BYTES:]:
        raise TraceError("the variant CRC is wrong: the packet was damaged on its last link")
    bth = wire[LRH_BYTES : LRH_BYTES + BTH_BYTES]
    opcode, flags, partition, queue, psn = struct.unpack(">BBHII", bth)
    payload, source_qp = covered[LRH_BYTES + BTH_BYTES :], None
    if opcode == UD_SEND_ONLY:
        if len(payload) < DETH_BYTES:
            raise TraceError(f"a datagram with {len(payload)} bytes behind its BTH; its DETH has 8")
        source_qp = int.from_bytes(payload[5:DETH_BYTES], "big")
        payload = payload[DETH_BYTES:]
    pad = (flags >> 4) & 3
    if pad > len(payload):
        raise TraceError(f"{pad} bytes of padding in a payload of {len(payload)} bytes")
    return IbPacket(
        source_lid=source,
        destination_lid=destination,
        psn=psn & 0xFFFFFF,
        sample=(queue >> 24) & 0x3F,
        payload=payload[: len(payload) - pad],
        fecn=bool(queue >> 31),
        becn=bool((queue >> 30) & 1),
        destination_qp=queue & 0xFFFFFF,
        source_qp=source_qp,
        service_level=service >> 4,
        virtual_lane=lane >> 4,
        opcode=opcode,
        partition=partition,
    )
