"""Chakra execution traces: the protobuf messages of a node each."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

METADATA = b"\x0a\x050.0.4"
"""A GlobalMetadata with a version."""


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    """A field: a number, or text or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name: str, value: int | str | float) -> bytes:
    """An AttributeProto: int64_val, string_val or double_val."""
    if isinstance(value, float):
        content = varint(3 << 3 | 1) + struct.pack("<d", value)
    else:
        content = field(9, value) if isinstance(value, int) else field(29, value.encode())
    return field(1, name.encode()) + content


def node(
    number: int,
    kind: int,
    *,
    after: Sequence[int] = (),
    packed: bool = True,
    duration: int = 0,
    **attributes: int | str | float,
) -> bytes:
    """A Node of a type; its data dependencies packed, as proto3 writes them, or not."""
    out = field(1, number) + field(2, f"node {number}".encode()) + field(3, kind)
    if packed and after:
        out += field(5, b"".join(map(varint, after)))
    else:
        out += b"".join(field(4, dependency) for dependency in after)
    out += field(7, duration) if duration else b""
    return out + b"".join(field(10, attribute(*item)) for item in attributes.items())


def compute(number: int, duration: int, after: Sequence[int] = ()) -> bytes:
    """A computation of so many microseconds."""
    return node(number, 4, after=after, duration=duration)


def send(number: int, to: int, size: int, tag: int, after: Sequence[int] = ()) -> bytes:
    """A COMM_SEND_NODE."""
    return node(number, 5, after=after, comm_size=size, comm_dst=to, comm_tag=tag)


def receive(number: int, source: int, size: int, tag: int, after: Sequence[int] = ()) -> bytes:
    """A COMM_RECV_NODE."""
    return node(number, 6, after=after, comm_size=size, comm_src=source, comm_tag=tag)


def write(folder: Path, *ranks: Sequence[bytes]) -> Path:
    """The traces of all ranks; returns the folder."""
    for rank, nodes in enumerate(ranks):
        data = b"".join(varint(len(message)) + message for message in (METADATA, *nodes))
        (folder / f"step.{rank}.et").write_bytes(data)
    return folder
