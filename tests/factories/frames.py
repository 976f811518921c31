"""Ethernet frames for the data path: TCP over IPv4 and IPv6, and RoCEv2."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass


def checksum(data: bytes) -> int:
    """Internet checksum (RFC 1071) of an even number of bytes."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(frozen=True)
class Frame:
    """A packet on its way.

    Attributes:
        source: Address of the sender.
        target: Address of the receiver.
        hop: How often it has been forwarded.
        sample: What it carries.
        first: TCP: sequence number; RoCEv2: packet sequence number.
        second: TCP: acknowledgement; RoCEv2: queue pair.
        ports: TCP or UDP ports.
        payload: Bytes behind the last header.
    """

    source: str
    target: str
    hop: int
    sample: int
    first: int
    second: int
    ports: tuple[int, int] = (40000, 1024)
    payload: bytes = b"payload!"

    def bytes(self, *, roce: bool = False, fragment: int = 0x4000) -> bytes:
        """The frame; fragments of IPv4 have other flags than "do not fragment"."""
        above = self._roce() if roce else self._tcp()
        protocol = 17 if roce else 6
        if ":" in self.source:
            label = 0 if roce else self.sample
            head = struct.pack("!IHBB", 6 << 28 | label, len(above), protocol, 64 - self.hop)
            ends = (ipaddress.ip_address(end).packed for end in (self.source, self.target))
            return bytes(12) + b"\x86\xdd" + head + b"".join(ends) + above
        identification = 7 if roce else self.sample
        head = struct.pack(
            "!BBHHHBBH4s4s",
            0x45,
            0,
            20 + len(above),
            identification,
            fragment,
            64 - self.hop,
            protocol,
            0,
            ipaddress.ip_address(self.source).packed,
            ipaddress.ip_address(self.target).packed,
        )
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        return bytes(12) + b"\x08\x00" + head + above

    def _tcp(self) -> bytes:
        return (
            struct.pack("!HHIIBBHHH", *self.ports, self.first, self.second, 0x50, 0x10, 1000, 0, 0)
            + self.payload
        )

    def _roce(self) -> bytes:
        transport = struct.pack("!BBHII", 4, 0, 0xFFFF, self.sample << 24 | self.second, self.first)
        above = transport + self.payload
        return struct.pack("!HHHH", self.ports[0], 4791, 8 + len(above), 0) + above


def sample_of(frame: bytes, *, roce: bool = False) -> int:
    """The sample in a frame."""
    v6 = frame[12:14] == b"\x86\xdd"
    if roce:
        return frame[14 + (40 if v6 else 20) + 8 + 4] & 63
    if v6:
        return int.from_bytes(frame[14:18]) & 0xFFFFF
    return int.from_bytes(frame[18:20])


def without_sample(frame: bytes, *, roce: bool = False) -> bytes:
    """The frame with zeros for the sample and, over IPv4, for the header's checksum."""
    out, v6 = bytearray(frame), frame[12:14] == b"\x86\xdd"
    if roce:
        out[14 + (40 if v6 else 20) + 8 + 4] &= 0xC0
    elif v6:
        out[14:18] = (int.from_bytes(out[14:18]) & 0xFFF00000).to_bytes(4)
    else:
        out[18:20] = out[24:26] = bytes(2)
    return bytes(out)
