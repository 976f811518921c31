"""From operations that depend on each other to a rank program: GOAL schedules, Chakra traces.

The operations of a rank are put in sequence: in order of the earliest time at which they can begin
if messages take no time, each preceded by waits for its dependencies. All ranks can run in this
order, so a valid schedule does not deadlock. Operations that could run concurrently on one rank (on
several cores or GPU streams) are serialised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.io.delimited import NotUsed
from tailback.traffic.program import Label, Program

NOTHING = 255
"""Kind of an operation that only has dependencies."""

ANY_TAG = -(2**63)
"""Tag of a receive with any tag."""


class DependencyCycle(Exception):  # noqa: N818 - a reader turns it into an error with a place
    """Operations that depend on each other; ``node`` is one of them."""

    def __init__(self, node: int) -> None:
        super().__init__(f"operation {node} waits for itself")
        self.node = node


@dataclass
class DependencyGraph:
    """The N operations of R ranks and the E dependencies within ranks.

    Attributes:
        rank_start: First operation of each rank, shape (R + 1,).
        kind: :class:`Op` ISEND, IRECV or COMPUTE (of more than 0 ps), or NOTHING, shape (N,).
        peer: The other rank of a send or receive, -1 of a receive from any, shape (N,).
        amount: Bytes or picoseconds, shape (N,).
        stream: Number of the tag and label of a send or receive, shape (N,).
        tag: Matching tag of each stream, ANY_TAG of receives with any, shape (streams,).
        label: Number of the label of each stream, shape (streams,).
        required: End of the list of requirements of each operation, shape (N,), and the lists,
            shape (E,): the operation required, plus 2**31 if it needs only to have begun.
    """

    rank_start: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    peer: NDArray[np.int32]
    amount: NDArray[np.uint64]
    stream: NDArray[np.uint32]
    tag: NDArray[np.int64]
    label: NDArray[np.uint32]
    required: tuple[NDArray[np.uint32], NDArray[np.uint32]]


def compile_graph(
    name: str, graph: DependencyGraph, labels: list[Label], notes: list[str]
) -> Program:
    """Compile a graph to a program.

    Args:
        name: What to call the application.
        graph: The operations.
        labels: Labels by number.
        notes: Notes so far; gets a line for messages without a partner, and one for receives from
            any source or with any tag.

    Returns:
        The program.

    Raises:
        DependencyCycle: The operations cannot all run.
    """
    try:
        columns, used, sends, receives, buffered, wildcards = _core.compile_graph(
            (graph.rank_start, graph.kind, graph.peer, graph.amount, graph.stream),
            (graph.tag, graph.label),
            graph.required,
        )
    except ValueError as error:
        if error.args[0] != "cycle":
            raise
        raise DependencyCycle(error.args[1]) from None
    for lost, kind, other in ((sends, "sends", "receive"), (receives, "receives", "send")):
        if lost:
            notes.append(NotUsed(f"{lost} {kind} without a matching {other} are left out"))
    if wildcards:
        notes.append(
            f"{wildcards} receives from any source or with any tag are matched in the order in "
            "which messages would arrive if they took no time; on a network it may be another"
        )
    if buffered:
        notes.append(
            "operations wait for sends that are received later only: sends are taken to be buffered"
        )
    used_labels = [labels[number] for number in used] or [Label("all", "none")]
    program = Program(name=name, labels=used_labels, notes=notes, **columns)
    program.check()
    return program
