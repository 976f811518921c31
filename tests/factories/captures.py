"""The packets of a capture that ``tailback export pcap`` wrote, in other formats and networks."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

import polars as pl

from tailback.telemetry.wire import IbPacket, encode
from tests.factories.infiniband_captures import read_pcap

ETHERNET, INFINIBAND = 1, 247
Frames = list[tuple[int, bytes]]
"""Nanoseconds and bytes."""


def infiniband(path: Path, *, grh: bool = False) -> Frames:
    """Frames from the local route header on, with a global route header if asked for."""
    return [
        (time, _grh(encode(packet)) if grh else encode(packet)) for time, packet in read_pcap(path)
    ]


def _grh(wire: bytes) -> bytes:
    words = int.from_bytes(wire[4:6], "big") + 10
    lrh = wire[:1] + bytes([wire[1] | 1]) + wire[2:4] + words.to_bytes(2, "big") + wire[6:8]
    return lrh + struct.pack(">IHBB", 6 << 28, len(wire) - 10, 0x1B, 64) + bytes(32) + wire[8:]


def address(lid: int, version: int) -> str:
    """An address whose last three bytes are the local id, so that packets keep their ids."""
    high, low = divmod(lid, 256)
    return f"10.0.{high}.{low}" if version == 4 else f"fd00::{lid:x}"


def rocev2(path: Path, version: int, *, tags: int = 0) -> Frames:
    """The same over Ethernet, with so many VLAN tags, and IPv4 or IPv6."""
    out = []
    for time, packet in read_pcap(path):
        source, target = (
            ipaddress.ip_address(address(lid, version)).packed
            for lid in (packet.source_lid, packet.destination_lid)
        )
        body = encode(packet)[8:-2]
        out.append((time, _ethernet((source, target), body, tags=tags)))
    return out


def _ethernet(
    ends: tuple[bytes, bytes], body: bytes, *, port: int = 0xC000, ecn: int = 2, tags: int = 0
) -> bytes:
    """A frame of RoCEv2 between packed addresses, from a base transport header on."""
    udp = struct.pack(">HHHH", port, 4791, 8 + len(body), 0) + body
    return bytes(12) + b"\x81\0\0\5" * tags + _ip(ends, udp, 17, ecn)


def _ip(ends: tuple[bytes, ...], body: bytes, protocol: int, ecn: int) -> bytes:
    """Ethernet type and IP header, between packed addresses, and what is in the packet."""
    if len(ends[0]) == 4:
        length = 20 + len(body)
        head = struct.pack(">HBBHHHBBH", 0x0800, 0x45, ecn, length, 0, 1 << 14, 64, protocol, 0)
    else:
        head = struct.pack(">HIHBB", 0x86DD, 6 << 28 | ecn << 20, len(body), protocol, 64)
    return head + b"".join(ends) + body


def _packed(row: dict[str, int], version: int) -> tuple[bytes, ...]:
    nodes = (row["src_node"], row["dst_node"])
    return tuple(ipaddress.ip_address(address(node + 1, version)).packed for node in nodes)


def marked_tcp(packets: pl.DataFrame, version: int) -> Frames:
    """Packets of scheme entropy-ecn, each flow a TCP connection that begins with its SYN."""
    out, at = [], dict[tuple[int, int, int], int]()
    for row in packets.iter_rows(named=True):
        ends, port = _packed(row, version), row["header"] >> 1
        flow = (row["src_node"], row["dst_node"], port)
        # Close to where sequence numbers wrap around.
        starts, first = flow not in at, 2**32 - 700
        byte = at.get(flow, 0)
        at[flow] = byte + row["size_bytes"]
        ecn = 3 if row["header"] & 1 else 2
        segments = [(first, 2, 0, b"")] if starts else []
        segments.append((first + 1 + byte, 16, ecn, bytes(row["size_bytes"])))
        for sequence, flags, mark, body in segments:
            head = struct.pack(
                ">HHIIBBHHH", port, 5001, sequence % 2**32, 0, 5 << 4, flags, 1, 0, 0
            )
            out.append((row["time_ps"] // 1000, bytes(12) + _ip(ends, head + body, 6, mark)))
    return out


def marked_rocev2(packets: pl.DataFrame, version: int) -> Frames:
    """Packets of scheme entropy-ecn: the mark in IP, the entropy value as UDP source port."""
    columns = ("time_ps", "src_node", "dst_node", "sequence", "queue_pair", "size_bytes", "header")
    out = []
    for time, src, dst, psn, pair, size, header in packets.select(columns).iter_rows():
        ends = tuple(ipaddress.ip_address(address(node + 1, version)).packed for node in (src, dst))
        packet = IbPacket(src + 1, dst + 1, psn, 0, bytes(size), destination_qp=pair)
        ecn = 3 if header & 1 else 2
        frame = _ethernet(ends, encode(packet)[8:-2], port=header >> 1, ecn=ecn)
        out.append((time // 1000, frame))
    return out


def pcap(
    path: Path, frames: Frames, link: int, *, order: str = "<", unit_ns: int = 1, snap: int = 65535
) -> Path:
    """Write a pcap file in microseconds (``unit_ns`` 1000) or nanoseconds."""
    magic = 0xA1B23C4D if unit_ns == 1 else 0xA1B2C3D4
    data = bytearray(struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap, link))
    for time, frame in frames:
        seconds, fraction_ns = divmod(time, 10**9)
        kept = frame[:snap]
        data += (
            struct.pack(order + "IIII", seconds, fraction_ns // unit_ns, len(kept), len(frame))
            + kept
        )
    path.write_bytes(data)
    return path


def pcapng(
    path: Path, frames: Frames, link: int, *, order: str = "<", outbound: bool = False
) -> Path:
    """Write a pcapng file of one interface in nanoseconds, packets sent or of no direction."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        length = struct.pack(order + "I", 12 + len(body))
        return struct.pack(order + "I", kind) + length + body + length

    data = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += block(1, struct.pack(order + "HHIHHBxxxHH", link, 0, 0, 9, 1, 9, 0, 0))
    option = struct.pack(order + "HHIHH", 2, 4, 2, 0, 0) if outbound else b""
    for time, frame in frames:
        head = struct.pack(
            order + "IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(frame), len(frame)
        )
        data += block(6, head + frame + bytes(-len(frame) % 4) + option)
    path.write_bytes(data)
    return path


def erf(path: Path, frames: Frames, kind: int) -> Path:
    """Write ERF records of type 21 (InfiniBand) or 2 (Ethernet)."""
    data = b""
    for time, frame in frames:
        seconds, fraction_ns = divmod(time, 10**9)
        pad = bytes(2) if kind == 2 else b""
        data += struct.pack("<QBB", (seconds << 32) | ((fraction_ns << 32) // 10**9), kind, 4)
        data += struct.pack(">HHH", 16 + len(pad) + len(frame), 0, len(frame)) + pad + frame
    path.write_bytes(data)
    return path
