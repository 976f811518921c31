"""Nodes of a Chakra execution trace, from the protobuf messages of a file.

A file is a sequence of messages, each after its length: a ``GlobalMetadata``, then a ``Node`` each
(mlcommons/chakra, ``schema/protobuf/et_def.proto``). Only the fields that make traffic are kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Types of nodes that do something; the others only pass dependencies on."""

_LENGTH, _FIXED64, _FIXED32, _VARINT = 2, 1, 5, 0
_NAME, _VALUES = 1, range(3, 33)
_SIGNED = (7, 9)
_ZIGZAG = (15, 17)
_TEXT = (29, 31)


class WireError(ValueError):
    """Bytes that are no protobuf message; ``at`` is the offset within it."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass
class Node:
    """One node.

    Attributes:
        number: Its ``id``.
        name: Its name.
        kind: Its type.
        after: Nodes that it depends on, by control or data.
        duration_us: How long it takes, in microseconds.
        attributes: Numbers and texts by name.
    """

    number: int = 0
    name: str = ""
    kind: int = 0
    after: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, int | float | str] = field(default_factory=dict)


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each message of a file; raises WireError where one is cut short."""
    at = 0
    while at < len(data):
        begin = at
        length, at = varint(data, at)
        if at + length > len(data):
            raise WireError(f"a message of {length} B in the last {len(data) - at} B", begin)
        yield begin, data[at : at + length]
        at += length


def parse(message: bytes) -> Node:
    """A node from its message; raises WireError."""
    node = Node()
    for number, kind, value in _fields(message):
        if number == 1:
            node.number = _whole(value)
        elif number == 2:
            node.name = _text(value)
        elif number == 3:
            node.kind = _whole(value)
        elif number in (4, 5):
            node.after += _packed(value) if kind == _LENGTH else [_whole(value)]
        elif number == 7:
            node.duration_us = _whole(value)
        elif number == 10:
            name, content = _attribute(_bytes(value))
            if content is not None:
                node.attributes[name] = content
    return node


@lru_cache(maxsize=1 << 14)
def _attribute(message: bytes) -> tuple[str, int | float | str | None]:
    """Name and value of an attribute; lists have none."""
    name, content = "", None
    for number, kind, value in _fields(message):
        if number == _NAME:
            name = _text(value)
        elif number in _VALUES:
            content = _content(number, kind, value)
    return name, content


def _content(number: int, kind: int, value: int | bytes) -> int | float | str | None:
    if number in _TEXT and kind == _LENGTH:
        return _text(value)
    if kind == _LENGTH:
        return None
    if isinstance(value, bytes):
        wide = kind == _FIXED64
        form = {3: "<d", 5: "<f", 23: "<i", 25: "<q"}.get(number, "<Q" if wide else "<I")
        if struct.calcsize(form) != len(value):
            return None
        found: int | float = struct.unpack(form, value)[0]
        return found
    if number in _SIGNED and value >= 1 << 63:
        return value - (1 << 64)
    if number in _ZIGZAG:
        return (value >> 1) ^ -(value & 1)
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of each field."""
    at, size = 0, len(data)
    while at < size:
        begin = at
        # Nearly all numbers are of one byte, and this is the loop that takes the time.
        key, at = (data[at], at + 1) if data[at] < 128 else varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            short = at < size and data[at] < 128
            value, at = (data[at], at + 1) if short else varint(data, at)
            yield key >> 3, kind, value
            continue
        if kind == _LENGTH:
            short = at < size and data[at] < 128
            length, at = (data[at], at + 1) if short else varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"a field of wire type {kind}", begin)
        if at + length > size:
            raise WireError(f"a field of {length} B in the last {len(data) - at} B", begin)
        yield key >> 3, kind, data[at : at + length]
        at += length


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; raises WireError."""
    begin, value, shift = at, 0, 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("a number without an end", begin)
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7


def _packed(value: int | bytes) -> list[int]:
    data, at, out = _bytes(value), 0, []
    while at < len(data):
        one, at = varint(data, at)
        out.append(one)
    return out


def _whole(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise WireError("text where a number is expected", 0)
    return value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise WireError("a number where text is expected", 0)
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode("utf-8")
    except UnicodeDecodeError as error:
        raise WireError("a name that is not text", error.start) from None
