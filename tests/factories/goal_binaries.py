"""Binary GOAL schedules as LogGOPSim's txt2bin writes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

SEND, RECEIVE, COMPUTE = 1, 2, 3


class Operation(NamedTuple):
    """An operation, and the numbers of those it requires to have ended or begun."""

    kind: int
    amount: int
    peer: int = 0
    tag: int = 0
    core: int = 0
    ended: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()


def schedule(*ranks: Sequence[Operation], more: bytes = b"") -> bytes:
    """The file of these operations of each rank; ``more``: further fields of each operation."""
    parts = [_part(operations, more) for operations in ranks]
    begin = 6 + 16 * len(parts)
    table = b""
    for part in parts:
        table += struct.pack("<QQ", begin, begin + len(part))
        begin += len(part)
    cores = max((operation.core for operations in ranks for operation in operations), default=0)
    return struct.pack("<QIBB", 4223, len(parts), cores, 0) + table + b"".join(parts)


def _part(operations: Sequence[Operation], more: bytes) -> bytes:
    roots = [n for n, operation in enumerate(operations) if not operation.ended + operation.begun]
    records, appendix = b"", list[int]()
    for number, operation in enumerate(operations):
        requirements = len(operation.ended) + len(operation.begun)
        records += struct.pack(
            "<IBIQIBB",
            requirements,
            operation.kind,
            operation.peer,
            operation.amount,
            operation.tag,
            operation.core,
            0,
        )
        for name in ("ended", "begun"):
            later = [n for n, other in enumerate(operations) if number in getattr(other, name)]
            records += struct.pack("<II", len(later), len(appendix))
            appendix += later
        records += more
    head = struct.pack(f"<II{len(roots)}I", len(operations), len(roots), *roots)
    return head + records + struct.pack(f"<{len(appendix)}I", *appendix)
