"""The MPI calls that are recorded: prototypes and what a call means, from c/calls.txt.

Arguments are declared there as in the MPI standard; :mod:`tailback.recorder.wrappers` writes the C
of both languages from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).parent / "c" / "calls.txt"

_COUNTS = ("count", "sendcount", "recvcount", "ocount", "tcount", "sendcounts", "recvcounts")
_OFFSETS = ("displs", "sdispls", "rdispls", "disp_unit")
"""Arguments that the large-count form of a call has as MPI_Count and as MPI_Aint."""

_LINE = re.compile(r"(?P<kind>[a-z_0-9]+)(?: (?P<op>[A-Z_]+))?: (?P<name>MPI_\w+)\((?P<args>.*)\)")
_ARGUMENT = re.compile(r"(?P<type>(?:const )?\w+)\s*(?P<star>\*?)(?P<name>\w+)(?P<array>(?:\[\])?)")

NON_BLOCKING = (
    "Barrier",
    "Bcast",
    "Gather",
    "Gatherv",
    "Scatter",
    "Scatterv",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Allreduce",
    "Reduce",
    "Reduce_scatter",
    "Scan",
    "Exscan",
    "Reduce_scatter_block",
    "Neighbor_allgather",
    "Neighbor_allgatherv",
    "Neighbor_alltoall",
    "Neighbor_alltoallv",
    "Neighbor_alltoallw",
)
"""Collectives with a non-blocking form, which has a request as its last argument."""


@dataclass(frozen=True)
class Argument:
    """One argument: its C type without star or brackets, its name, and whether it is an array."""

    type: str
    name: str
    pointer: bool
    array: bool

    @property
    def declared(self) -> str:
        """Its C declaration."""
        return f"{self.type} {'*' * self.pointer}{self.name}{'[]' * self.array}"


@dataclass(frozen=True)
class MpiCall:
    """One MPI call: ``kind`` says what it means, ``op`` which collective or one-sided it is."""

    name: str
    kind: str
    op: str
    arguments: tuple[Argument, ...]

    @property
    def large(self) -> bool:
        """Whether it takes large counts (``MPI_Send_c``)."""
        return self.name.endswith("_c")

    def has(self, name: str) -> bool:
        """Whether it has an argument of this name."""
        return any(argument.name == name for argument in self.arguments)

    @property
    def fortran(self) -> str:
        """Name of its Fortran entry point."""
        return self.name.lower() + "_"


def _parse(line: str) -> MpiCall:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"not a call: {line!r}")
    arguments = []
    for text in match["args"].split(", "):
        argument = _ARGUMENT.fullmatch(text)
        if argument is None:
            raise ValueError(f"not an argument: {text!r}")
        arguments.append(
            Argument(
                argument["type"], argument["name"], bool(argument["star"]), bool(argument["array"])
            )
        )
    return MpiCall(match["name"], match["kind"], match["op"] or "", tuple(arguments))


@cache
def calls() -> list[MpiCall]:
    """Every recorded call but MPI_Init, MPI_Init_thread and MPI_Finalize."""
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    parsed = [_parse(line) for line in lines if not line.startswith("#")]
    request = Argument("MPI_Request", "request", pointer=True, array=False)
    by_name = {call.name: call for call in parsed}
    for name in NON_BLOCKING:
        call = by_name[f"MPI_{name}"]
        kind = {"coll": "icoll", "neighbour": "ineighbour"}[call.kind]
        parsed.append(
            MpiCall(f"MPI_I{name[0].lower()}{name[1:]}", kind, call.op, (*call.arguments, request))
        )
        kind = {"coll": "coll_init", "neighbour": "neighbour_init"}[call.kind]
        info = Argument("MPI_Info", "info", pointer=False, array=False)
        parsed.append(MpiCall(f"MPI_{name}_init", kind, call.op, (*call.arguments, info, request)))
    return [*parsed, *filter(None, map(_with_large_counts, parsed))]


def _with_large_counts(call: MpiCall) -> MpiCall | None:
    """The form of a call that MPI 4 has for large counts; None if there is none."""
    types = {"int": {**dict.fromkeys(_COUNTS, "MPI_Count"), **dict.fromkeys(_OFFSETS, "MPI_Aint")}}
    types["const int"] = {name: f"const {new}" for name, new in types["int"].items()}
    if not any("MPI_Datatype" in argument.type for argument in call.arguments) and not call.has(
        "disp_unit"
    ):
        return None
    wider = tuple(
        replace(argument, type=types.get(argument.type, {}).get(argument.name, argument.type))
        for argument in call.arguments
    )
    if wider == call.arguments:
        return None
    return MpiCall(f"{call.name}_c", call.kind, call.op, wider)


SPECIAL = ("MPI_Init", "MPI_Init_thread", "MPI_Finalize")
"""Calls with a wrapper of their own, numbered before the others."""


def regions() -> list[str]:
    """Name of each region by its number."""
    return [*SPECIAL, *(call.name for call in calls())]
