"""Runs that are written as OTF2, as Nsight Systems would have recorded them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.factories.nsight_exports import WORLD, Call


def nsight_calls(script: Sequence[tuple[Any, ...]], *, any_source: bool = False) -> list[Call]:
    """Calls of one rank, all on MPI_COMM_WORLD, between those of MPI_Init and MPI_Finalize.

    Args:
        script: Events of the rank.
        any_source: Whether receives ask for any source, which an export then does not tell.
    """
    came = {event[-1]: event for event in script if event[1] == "mpi_irecv"}
    out: list[Call] = [(0, 10, "MPI_Init", {})]
    call: tuple[Any, ...] = ()
    records: list[tuple[Any, ...]] = []
    for event in script:
        if event[1] == "enter":
            call, records = event, []
        elif event[1] != "leave":
            records.append(event)
        else:
            rows = _rows(records, came, any_source)
            out += [(call[0], event[0], call[2], row) for row in rows or [{}]]
    last = script[-1][0]
    return [*out, (last, last + 5, "MPI_Finalize", {})]


def _rows(
    records: Sequence[tuple[Any, ...]], came: dict[int, Any], any_source: bool
) -> list[dict[str, int]]:
    rows = []
    for record in records:
        what = record[1]
        if what in ("mpi_isend_complete",) or (what == "mpi_irecv"):
            rows.append({"requestHandle": record[-1]})
        elif what in ("mpi_send", "mpi_isend", "mpi_recv", "mpi_irecv_request"):
            detail = came[record[2]] if what == "mpi_irecv_request" else record
            peer = -1 if any_source and "recv" in what else detail[2]
            row = {"commHandle": WORLD, "remoteRank": peer, "tag": detail[4], "size": detail[5]}
            if what in ("mpi_isend", "mpi_irecv_request"):
                row["requestHandle"] = record[-1]
            rows.append(row)
        elif what == "mpi_collective_end":
            *_, root, sent, received = record
            rows.append(
                {
                    "commHandle": WORLD,
                    "rootRank": -1 if root == 2**32 - 1 else root,
                    "size": sent,
                    "recvSize": received,
                }
            )
    return rows
