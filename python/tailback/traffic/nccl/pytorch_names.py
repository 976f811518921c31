"""PyTorch's names of NCCL's collectives and types, and what it counts of their buffers."""

from __future__ import annotations

import re
from typing import Final

_ELEMENT_BYTES: Final = {
    1: "byte char bool int8 uint8 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
    "float8_e8m0fnu float4_e2m1fn_x2",
    2: "half bfloat16 short float16 int16 uint16",
    4: "float int float32 int32 uint32 complexhalf complex32",
    8: "double long float64 int64 uint64 complexfloat complex64",
    16: "complexdouble complex128",
}
"""Types by the bytes of an element: the names of its C++ and its Python library."""

_BYTES: Final = {name: size for size, names in _ELEMENT_BYTES.items() for name in names.split()}

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


def element_bytes(dtype: str) -> int:
    """Bytes of an element of a type such as ``c10::Half`` or ``torch.float32``; 0 if unknown."""
    return _BYTES.get(dtype.rpartition(":")[2].rpartition(".")[2].lower(), 0)


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
