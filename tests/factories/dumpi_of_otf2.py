"""Runs that are written as OTF2, as SST DUMPI would have recorded them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.factories.dumpi_traces import WORLD, Script

BYTE = 2
"""Number of a type of one byte."""
_ROOTED = ("MPI_Bcast", "MPI_Gather", "MPI_Scatter", "MPI_Reduce")


def with_init_and_finalize(script: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The events between those of MPI_Init and MPI_Finalize that a DUMPI file is written with."""
    last = script[-1][0]
    return [
        (0, "enter", "MPI_Init"),
        (10, "leave", "MPI_Init"),
        *script,
        (last, "enter", "MPI_Finalize"),
        (last + 5, "leave", "MPI_Finalize"),
    ]


def dumpi_scripts(
    scripts: Sequence[list[tuple[Any, ...]]],
    comms: Mapping[str, list[int]] | None = None,
    *,
    any_source: bool = False,
) -> list[Script]:
    """Calls of each rank with the arguments that events of OTF2 tell.

    Args:
        scripts: Events of each rank; an ``enter`` of MPI_Comm_split also has the name of what it
            makes, and that of MPI_Test the request it asks for.
        comms: World ranks of the members of communicators beside MPI_COMM_WORLD.
        any_source: Whether receives ask for any source and tag, and statuses say which came.
    """
    members = {"MPI_COMM_WORLD": list(range(len(scripts)))} | dict(comms or {})
    handles = {name: WORLD + at + 5 * bool(at) for at, name in enumerate(members)}
    return [
        _Rank(rank, members, handles, any_source).calls(script)
        for rank, script in enumerate(scripts)
    ]


class _Rank:
    def __init__(
        self,
        rank: int,
        members: Mapping[str, list[int]],
        handles: Mapping[str, int],
        any_source: bool,
    ) -> None:
        self.rank, self.members, self.handles = rank, members, handles
        self.any_source = any_source

    def calls(self, script: Sequence[tuple[Any, ...]]) -> Script:
        """The calls of the rank; what a program does around them is not recorded."""
        came = {event[-1]: event for event in script if event[1] == "mpi_irecv"}
        out: list[tuple[int, int, str, dict[str, Any]]] = []
        call: tuple[Any, ...] = ()
        records: list[tuple[Any, ...]] = []
        for event in script:
            if event[1] == "enter" and event[2].startswith("MPI_"):
                call, records = event, []
            elif event[1] != "leave":
                records.append(event[1:])
            elif call and event[2] == call[2]:
                if call[2] not in ("MPI_Init", "MPI_Finalize"):
                    arguments = self._arguments(call, records, came)
                    out.append((call[0], event[0], call[2], arguments))
                call = ()
        return out

    def _arguments(
        self, call: tuple[Any, ...], records: list[tuple[Any, ...]], came: dict[int, Any]
    ) -> dict[str, Any]:
        name = call[2]
        if name == "MPI_Comm_split":
            new = call[3]
            key = self.members[new].index(self.rank)
            return {
                "oldcomm": WORLD,
                "color": self.handles[new],
                "key": key,
                "newcomm": self.handles[new],
            }
        if name == "MPI_Irecv":
            request = records[0][1]
            return self._side(came[request][1:], request=request)
        if name == "MPI_Sendrecv":
            sent, received = (self._side(record) for record in records)
            return {
                "comm": sent["comm"],
                "status": received["status"],
                **{
                    key: side[of]
                    for side, keys in (
                        (
                            sent,
                            {
                                "sendcount": "count",
                                "sendtype": "datatype",
                                "dest": "dest",
                                "sendtag": "tag",
                            },
                        ),
                        (
                            received,
                            {
                                "recvcount": "count",
                                "recvtype": "datatype",
                                "source": "source",
                                "recvtag": "tag",
                            },
                        ),
                    )
                    for key, of in keys.items()
                },
            }
        if name in ("MPI_Send", "MPI_Recv"):
            return self._side(records[0])
        if name == "MPI_Isend":
            return self._side(records[0], request=records[0][5])
        if name in ("MPI_Wait", "MPI_Waitall", "MPI_Test"):
            return self._completed(call, records)
        return self._collective(name, records[-1])

    def _side(self, record: tuple[Any, ...], **more: int) -> dict[str, Any]:
        """Arguments of a send or receive from its record."""
        what, peer, comm, tag, size = record[:5]
        receives = "recv" in what
        asked = (-1, -1) if receives and self.any_source else (peer, tag)
        return {
            "count": size,
            "datatype": BYTE,
            "dest": peer,
            "source": asked[0],
            "tag": asked[1],
            "comm": self.handles[comm],
            "status": [(peer, tag)],
            **more,
        }

    def _completed(self, call: tuple[Any, ...], records: list[tuple[Any, ...]]) -> dict[str, Any]:
        requests = [record[-1] for record in records]
        statuses = [
            (record[1], record[3]) if record[0] == "mpi_irecv" else (0, 0) for record in records
        ]
        if call[2] == "MPI_Waitall":
            return {"count": len(requests), "requests": requests, "statuses": statuses}
        request = requests[0] if requests else call[3]
        return {"request": request, "flag": int(bool(requests)), "status": statuses}

    def _collective(self, name: str, record: tuple[Any, ...]) -> dict[str, Any]:
        _, _, comm, root, sent, received = record
        size = max(sent, received)
        arguments = {
            "comm": self.handles[comm],
            "count": size,
            "datatype": BYTE,
            "op": 1,
            "sendcount": size,
            "sendtype": BYTE,
            "recvcount": size,
            "recvtype": BYTE,
            "commrank": self.members[comm].index(self.rank),
        }
        return arguments | ({"root": root} if name in _ROOTED else {})
