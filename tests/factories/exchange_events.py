"""Events of a run that uses every kind of call, and its tables for comparison."""

from __future__ import annotations

import random
from typing import Any

import polars as pl

from tailback.evidence import MeasuredRun
from tests.factories.dumpi_traces import WORLD as WORLD_HANDLE
from tests.factories.evidence_traces import WORLD, Script

COMMS = {"even": [2, 0], "odd": [1, 3]}
"""Communicators that the run makes."""


class Exchange:
    """Events of four ranks that use every kind of call, after computations of random length.

    With ``in_world``, only calls on MPI_COMM_WORLD of which every tool records all.
    """

    def __init__(self, seed: int, *, in_world: bool = False) -> None:
        self._in_world = in_world
        self._draw = random.Random(seed)
        self._request = 0
        self.scripts: list[Script] = [[] for _ in range(4)]
        self._now = [20] * 4
        for rank in range(4):
            name = "even" if rank % 2 == 0 else "odd"
            self._call(rank, "MPI_Comm_split", [], name)
        for turn in range(6):
            kinds = [self._blocking, self._waits, self._tests, self._pairs]
            for exchange in kinds[: 2 if in_world else 4]:
                exchange(turn)
            self._collectives(turn)

    def _call(self, rank: int, name: str, records: list[Any], *more: Any) -> None:
        """A call with records, each ``(is at the end, what, *arguments)``."""
        enter = self._now[rank] + self._draw.randrange(1, 30_000)
        leave = self._now[rank] = enter + self._draw.randrange(1, 20_000)
        self.scripts[rank] += [
            (enter, "enter", name, *more),
            *((leave if late else enter, *record) for late, *record in records),
            (leave, "leave", name),
        ]

    def _next(self) -> int:
        self._request += 1
        return self._request

    def _blocking(self, turn: int) -> None:
        for rank in range(4):
            to, size = (rank + 1) % 4, 100 + turn
            source = (rank - 1) % 4
            calls = [
                ("MPI_Send", (False, "mpi_send", to, WORLD, turn, size)),
                ("MPI_Recv", (True, "mpi_recv", source, WORLD, turn, size)),
            ]
            for name, record in calls if rank % 2 else calls[::-1]:
                self._call(rank, name, [record])

    def _waits(self, turn: int) -> None:
        """Two receives and two sends of each rank, completed out of order, in two calls."""
        for rank in range(4):
            comm, peer = ("even" if rank % 2 == 0 else "odd"), 1 - (rank // 2 ^ (rank % 2 == 0))
            if self._in_world:
                comm, peer = WORLD, (rank + 2) % 4
            asked = [(self._next(), tag) for tag in (50, 51)]
            for request, _ in asked:
                self._call(rank, "MPI_Irecv", [(True, "mpi_irecv_request", request)])
            sent = [self._next() for _ in asked]
            for request, (_, tag) in zip(sent, asked, strict=True):
                self._call(
                    rank, "MPI_Isend", [(False, "mpi_isend", peer, comm, tag, 3000 + tag, request)]
                )
            came = [
                (True, "mpi_irecv", peer, comm, tag, 3000 + tag, request) for request, tag in asked
            ]
            self._call(rank, "MPI_Wait", [came[1]])
            self._call(
                rank,
                "MPI_Waitall",
                [came[0], *((True, "mpi_isend_complete", request) for request in sent)],
            )

    def _tests(self, turn: int) -> None:
        for rank in range(4):
            if rank % 2:
                self._call(rank, "MPI_Send", [(False, "mpi_send", rank - 1, WORLD, 9, 77)])
                continue
            request = self._next()
            self._call(rank, "MPI_Irecv", [(True, "mpi_irecv_request", request)])
            self._call(rank, "MPI_Test", [], request)
            came = (True, "mpi_irecv", rank + 1, WORLD, 9, 77, request)
            self._call(rank, "MPI_Test", [came], request)

    def _pairs(self, turn: int) -> None:
        for rank in range(4):
            peer = rank ^ 1
            self._call(
                rank,
                "MPI_Sendrecv",
                [
                    (False, "mpi_send", peer, WORLD, 70, 40 + rank),
                    (True, "mpi_recv", peer, WORLD, 70, 40 + peer),
                ],
            )

    def _collectives(self, turn: int) -> None:
        from otf2.enums import CollectiveOp

        none = 2**32 - 1
        for name, comm_of, root in (
            ("BARRIER", {}, none),
            ("ALLREDUCE", {}, none),
            ("BCAST", {}, 2),
            ("REDUCE", {}, 1),
            ("GATHER", {}, 3),
            ("SCATTER", {}, 0),
            ("ALLTOALL", COMMS, none),
            ("ALLGATHER", COMMS, none),
            ("BCAST", COMMS, 1),
        ):
            if comm_of and self._in_world:
                continue
            for rank in range(4):
                comm, members = next(
                    ((comm, group) for comm, group in comm_of.items() if rank in group),
                    (WORLD, list(range(4))),
                )
                is_root, size = members.index(rank) == root, 64 * (name != "BARRIER")
                sends = is_root if name == "BCAST" else name != "SCATTER" or is_root
                receives = (
                    not is_root
                    if name == "BCAST"
                    else (is_root if name in ("REDUCE", "GATHER") else True)
                )
                end = (
                    True,
                    "mpi_collective_end",
                    getattr(CollectiveOp, name),
                    comm,
                    root,
                    size * sends,
                    size * receives,
                )
                self._call(rank, f"MPI_{name.capitalize()}", [(False, "mpi_collective_begin"), end])


def same_names(table: pl.DataFrame) -> pl.DataFrame:
    """With the names of communicators of OTF2, which DUMPI does not record."""
    if "communicator" not in table.columns:
        return table
    names = {f"communicator 0.{WORLD_HANDLE + 5 + at}": name for at, name in enumerate(COMMS, 1)}
    return table.with_columns(pl.col("communicator").replace(names))


def comparable(run: MeasuredRun) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of all tables; the numbers of collectives depend on the order of reading."""
    tables = {name: same_names(table) for name, table in run.tables.items()}
    first = tables["collectives"].group_by("instance").agg(pl.col("call").min().alias("first"))
    tables["collectives"] = (
        tables["collectives"].join(first, on="instance").drop("instance").sort("first", "rank")
    )
    tables["waits"] = tables["waits"].sort("call", "kind")
    tables["split"] = tables["split"].sort("rank", "phase", "part")
    return {name: table.rows() for name, table in tables.items()}
