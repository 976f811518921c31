"""PyTorch's names of NCCL's collectives and types, and what it counts of their buffers."""

from __future__ import annotations

import re
from typing import Final

ELEMENT_BYTES: Final = {
    "float": 4,
    "double": 8,
    "half": 2,
    "bfloat16": 2,
    "long": 8,
    "int": 4,
    "short": 2,
    "byte": 1,
    "char": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "complexfloat": 8,
    "complexdouble": 16,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
}
"""Bytes of an element by the name of its type, in small letters."""

_CALLS: Final = {
    "allreduce": "AllReduce",
    "allgather": "AllGather",
    "reducescatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "alltoall": "AllToAll",
    "alltoallv": "AllToAll",
    "gather": "Gather",
    "scatter": "Scatter",
    "barrier": "AllReduce",
    "send": "SendRecv",
    "recv": "SendRecv",
}
_SUFFIXES: Final = re.compile(r"(base|intotensor|tensor|coalesced|single|out|oop)+$")


def letters_of(name: str) -> str:
    """The small letters of a name: ``_allgather_base`` is ``allgatherbase``."""
    return re.sub("[^a-z]", "", name.lower())


def call_of(name: str) -> str | None:
    """The call of :data:`tailback.traffic.nccl.messages.CALLS` behind :func:`letters_of` a name.

    None if it cannot be expanded to messages.
    """
    return _CALLS.get(name) or _CALLS.get(_SUFFIXES.sub("", name))


def buffer_elements(call: str, into: int, out: int, n: int) -> int:
    """Elements of the whole buffer of a collective.

    Args:
        call: A name of :data:`tailback.traffic.nccl.messages.CALLS`.
        into: Elements that a member gives.
        out: Elements that it gets.
        n: Number of members.
    """
    if call in ("AllGather", "Gather"):
        return max(out, into * n)
    if call in ("ReduceScatter", "Scatter"):
        return max(into, out * n)
    return max(into, out) if call == "SendRecv" else into or out
