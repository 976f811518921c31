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
from tailback.traffic.program import Label, Op, Program
from tailback.traffic.readers.posts import dense

NOTHING = 255
"""Kind of an operation that only has dependencies."""


class DependencyCycle(Exception):  # noqa: N818 - a reader turns it into an error with a place
    """Operations that depend on each other; ``node`` is one of them."""

    def __init__(self, node: int) -> None:
        super().__init__(f"operation {node} waits for itself")
        self.node = node


@dataclass
class DependencyGraph:
    """The N operations of all ranks and the E dependencies within ranks.

    Attributes:
        n_ranks: Number of ranks.
        rank: Rank of each operation, in order, shape (N,).
        kind: :class:`Op` ISEND, IRECV or COMPUTE, or NOTHING, shape (N,).
        peer: The other rank of a send or receive, shape (N,).
        tag: Matching tag, shape (N,).
        amount: Bytes or picoseconds, shape (N,).
        label: Number of the label, shape (N,).
        before: Operation that another depends on, shape (E,).
        after: The dependent operation, shape (E,).
        begun: Whether ``before`` needs only to have begun, shape (E,).
    """

    n_ranks: int
    rank: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    peer: NDArray[np.int32]
    tag: NDArray[np.int64]
    amount: NDArray[np.uint64]
    label: NDArray[np.uint32]
    before: NDArray[np.uint32]
    after: NDArray[np.uint32]
    begun: NDArray[np.bool_]


def compile_graph(
    name: str, graph: DependencyGraph, labels: list[Label], notes: list[str]
) -> Program:
    """Compile a graph to a program.

    Args:
        name: What to call the application.
        graph: The operations.
        labels: Labels by number.
        notes: Notes so far; gets a line for messages without a partner.

    Returns:
        The program.

    Raises:
        DependencyCycle: The operations cannot all run.
    """
    try:
        columns, sends, receives, buffered = _core.compile_graph(
            graph.n_ranks,
            (graph.rank, graph.kind, graph.peer, graph.tag, graph.amount, graph.label),
            (graph.before, graph.after, graph.begun),
        )
    except ValueError as error:
        if error.args[0] != "cycle":
            raise
        raise DependencyCycle(error.args[1]) from None
    for lost, one, other in ((sends, "sends", "receive"), (receives, "receives", "send")):
        if lost:
            notes.append(f"{lost} {one} without a matching {other} are left out")
    if buffered:
        notes.append(
            "operations wait for sends that are received later only: sends are taken to be buffered"
        )
    program = Program(name=name, labels=[], notes=notes, **columns)
    message = (program.kind == Op.ISEND) | (program.kind == Op.IRECV)
    used, place = dense(program.label[message])
    program.label[message] = place
    program.labels = [labels[number] for number in used] or [Label("all", "none")]
    program.check()
    return program
