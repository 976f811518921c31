"""Scripts of small traces whose wait states are worked out by hand. Times are nanoseconds."""

from __future__ import annotations

from typing import Any

Script = list[tuple[Any, ...]]

WORLD = "MPI_COMM_WORLD"
NO_ROOT = 2**32 - 1


def collective(
    enter: int, leave: int, operation: str = "BARRIER", root: int = NO_ROOT, size: int = 8
) -> Script:
    """A collective from `enter` to `leave`."""
    from otf2.enums import CollectiveOp

    size = 0 if operation == "BARRIER" else size
    name = f"MPI_{operation.capitalize()}"
    end = ("mpi_collective_end", getattr(CollectiveOp, operation), WORLD, root, size, size)
    return [
        (enter, "enter", name),
        (enter, "mpi_collective_begin"),
        (leave, *end),
        (leave, "leave", name),
    ]


def send(enter: int, leave: int, to: int, tag: int = 7, size: int = 1024) -> Script:
    """A blocking send."""
    return [
        (enter, "enter", "MPI_Send"),
        (enter, "mpi_send", to, WORLD, tag, size),
        (leave, "leave", "MPI_Send"),
    ]


def receive(enter: int, leave: int, source: int, tag: int = 7, size: int = 1024) -> Script:
    """A blocking receive."""
    return [
        (enter, "enter", "MPI_Recv"),
        (leave, "mpi_recv", source, WORLD, tag, size),
        (leave, "leave", "MPI_Recv"),
    ]


def shifted(script: Script, by: int) -> Script:
    """The script by a clock that is ahead by so much."""
    return [(time + by, *call) for time, *call in script]


def stretched(script: Script, factor: int) -> Script:
    """The script with everything so many times as long."""
    return [(time * factor, *call) for time, *call in script]


def late_sender() -> list[Script]:
    """Rank 0 computes 3 ms before it sends; rank 1 has been in its receive all that time."""
    barriers = [collective(0, 1_000), collective(3_003_000, 3_004_000)]
    return [
        [*barriers[0], *send(3_001_000, 3_001_500, to=1), *barriers[1]],
        [*barriers[0], *receive(1_000, 3_003_000, source=0), *barriers[1]],
    ]
