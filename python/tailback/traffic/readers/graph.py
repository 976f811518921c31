"""From operations that depend on each other to a rank program: GOAL schedules, Chakra traces.

The operations of a rank become a sequence: each stands where it can begin at the earliest if
messages take no time, and waits for what it requires right before. That order is one in which all
ranks together can run, so a schedule that can run does not block. Operations that could run side by
side on one rank (several cores, streams of a GPU) compute one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import Label, Op, Program
from tailback.traffic.readers.assembly import Computes, ImpliedWaits, compile_posts
from tailback.traffic.readers.posts import UNKNOWN, Posts, index_within_group

NOTHING = 255
"""Kind of an operation that only passes dependencies on."""


class DependencyCycle(Exception):  # noqa: N818 - a reader turns it into an error with a place
    """Operations that wait for each other; ``node`` is one of them."""

    def __init__(self, node: int) -> None:
        super().__init__(f"operation {node} waits for itself")
        self.node = node


@dataclass
class Graph:
    """Operations of all ranks, N of them, and E dependencies within ranks.

    Attributes:
        n_ranks: Number of ranks.
        rank: Rank of each operation, in order, shape (N,).
        kind: :class:`Op` ISEND, IRECV or COMPUTE, or NOTHING, shape (N,).
        peer: The other rank of a send or receive, shape (N,).
        tag: Matching tag, shape (N,).
        amount: Bytes or picoseconds, shape (N,).
        label: Number of the label, shape (N,).
        before: Operation that another depends on, shape (E,).
        after: That other one, shape (E,).
        begun: Whether it is enough that ``before`` has begun, shape (E,).
    """

    n_ranks: int
    rank: NDArray[np.int64]
    kind: NDArray[np.int64]
    peer: NDArray[np.int64]
    tag: NDArray[np.int64]
    amount: NDArray[np.int64]
    label: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    begun: NDArray[np.bool_]


def compile_graph(name: str, graph: Graph, labels: list[Label], notes: list[str]) -> Program:
    """Make a program of a graph.

    Args:
        name: What to call the application.
        graph: The operations.
        labels: Labels by number.
        notes: What is odd so far; gets a line for messages without a partner.

    Returns:
        The program.

    Raises:
        DependencyCycle: The operations cannot all run.
    """
    n = len(graph.rank)
    graph.kind = np.where((graph.kind == Op.COMPUTE) & (graph.amount == 0), NOTHING, graph.kind)
    _inherit(graph)
    pair = _match(graph, notes)
    place, buffered = _sequence(graph, pair)
    if buffered:
        notes.append(
            "operations wait for sends that are received later only: sends are taken to be buffered"
        )
    # Where a message is waited for: right before the first operation that requires it.
    needed = np.full(n, np.iinfo(np.int64).max)
    ends = ~graph.begun
    np.minimum.at(needed, graph.before[ends], place[graph.after[ends]])
    at = np.flatnonzero(pair >= 0)
    is_send = graph.kind[at] == Op.ISEND
    required = (needed[at] < np.iinfo(np.int64).max) & ~(is_send & buffered)
    zeros = np.zeros(len(at), np.int64)
    posts = Posts(
        rank=graph.rank[at], thread=zeros, position=2 * place[at], step=zeros, is_send=is_send,
        peer=graph.peer[at],
        # A separate channel for each message: the order of posts is that of the sequence.
        channel=np.minimum(at, pair[at]), size=graph.amount[at].astype(np.uint64),
        label=graph.label[at], wait_position=np.where(required, 2 * needed[at] - 1, UNKNOWN),
        wait_step=zeros, collective=np.zeros(len(at), np.bool_), peer_known=is_send,
    )  # fmt: skip
    busy = np.flatnonzero(graph.kind == Op.COMPUTE)
    computes = Computes(graph.rank[busy], 2 * place[busy], graph.amount[busy].astype(np.uint64))
    none = np.zeros(0, np.int64)
    waits = ImpliedWaits(none, none, none)
    program = compile_posts(name, graph.n_ranks, posts, labels, waits, computes, notes)
    # Messages have numbers of their own; small ones, as tags are.
    message = (program.kind == Op.ISEND) | (program.kind == Op.IRECV)
    _, program.tag[message] = np.unique(program.tag[message], return_inverse=True)
    return program


def _match(graph: Graph, notes: list[str]) -> NDArray[np.int64]:
    """The operation that each send or receive meets, -1 for others and those without a partner.

    Of each source, destination and tag the k-th send meets the k-th receive, in the order in which
    their rank can begin them.
    """
    depth = _run(len(graph.rank), graph.before, graph.after, np.zeros(len(graph.before), np.int64))
    pair = np.full(len(graph.rank), -1, np.int64)
    message = np.flatnonzero((graph.kind == Op.ISEND) | (graph.kind == Op.IRECV))
    message = message[np.lexsort((message, depth.level[message]))]
    sends = graph.kind[message] == Op.ISEND
    here, there = graph.rank[message], graph.peer[message]
    _, tag = np.unique(graph.tag[message], return_inverse=True)
    key = np.where(sends, here * graph.n_ranks + there, there * graph.n_ranks + here)
    key = key * (int(tag.max(initial=0)) + 1) + tag
    turn = np.zeros(len(message), np.int64)
    for side in (sends, ~sends):
        turn[side] = index_within_group(key[side])
    slot = key * (int(turn.max(initial=0)) + 1) + turn
    send, receive = message[sends], message[~sends]
    order = np.argsort(slot[~sends], kind="stable")
    sorted_slots = slot[~sends][order]
    if len(send) and len(receive):
        at = np.minimum(np.searchsorted(sorted_slots, slot[sends]), len(receive) - 1)
        found = sorted_slots[at] == slot[sends]
        pair[send[found]] = receive[order[at[found]]]
        pair[receive[order[at[found]]]] = send[found]
    for one, other, mine in (("sends", "receive", send), ("receives", "send", receive)):
        lost = int((pair[mine] < 0).sum())
        if lost:
            notes.append(f"{lost} {one} without a matching {other} are left out")
    return pair


def _sequence(graph: Graph, pair: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
    """Place of each operation in the sequence of all: rank after rank, as they can begin.

    Two events stand for a receive: it is posted, and its message is there. Says too whether the
    operations can only run if sends complete before they are received.
    """
    n = len(graph.rank)
    receive = np.flatnonzero((graph.kind == Op.IRECV) & (pair >= 0))
    arrival = np.full(n, -1, np.int64)
    arrival[receive] = n + np.arange(len(receive))
    source, target, begun = graph.before, graph.after, graph.begun
    waits = (arrival[source] >= 0) & ~begun
    lasts = np.where((graph.kind[source] == Op.COMPUTE) & ~begun, graph.amount[source], 0)
    edges = [
        (np.where(waits, arrival[source], source), target, np.where(waits, 0, lasts)),
        (receive, arrival[receive], np.zeros(len(receive), np.int64)),
        (pair[receive], arrival[receive], np.zeros(len(receive), np.int64)),
    ]
    # A large message is through for its sender only once it is received, if that can be.
    sent = (graph.kind[source] == Op.ISEND) & (pair[source] >= 0) & ~begun
    strict = (pair[source[sent]], target[sent], np.zeros(int(sent.sum()), np.int64))
    buffered = False
    try:
        run = _run(n + len(receive), *_joined([*edges, strict]))
    except DependencyCycle:
        buffered = True
        try:
            run = _run(n + len(receive), *_joined(edges))
        except DependencyCycle as cycle:
            node = cycle.node
            raise DependencyCycle(int(receive[node - n]) if node >= n else node) from None
    busy = graph.kind == Op.COMPUTE
    order = np.lexsort((np.arange(n), run.level[:n], busy, run.time[:n], graph.rank))
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    return place, buffered


def _inherit(graph: Graph) -> None:
    """Give what begins with a computation the requirements of that computation.

    It stands before it in the sequence, for a rank does nothing else while it computes.
    """
    early = graph.begun & (graph.kind[graph.before] == Op.COMPUTE)
    ends = np.flatnonzero(~graph.begun)
    ends = ends[np.argsort(graph.after[ends], kind="stable")]
    first = np.searchsorted(graph.after[ends], graph.before[early], side="left")
    number = np.searchsorted(graph.after[ends], graph.before[early], side="right") - first
    of = np.repeat(np.arange(len(number)), number)
    row = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number)
    graph.before = np.concatenate([graph.before, graph.before[ends[row]]])
    graph.after = np.concatenate([graph.after, graph.after[early][of]])
    graph.begun = np.concatenate([graph.begun, np.zeros(len(of), np.bool_)])


def _joined(
    edges: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]],
) -> list[NDArray[np.int64]]:
    return [np.concatenate(column) for column in zip(*edges, strict=True)]


class _Order(NamedTuple):
    """Earliest time of each event, and the length of the longest way to it."""

    time: NDArray[np.int64]
    level: NDArray[np.int64]


def _run(
    n: int, source: NDArray[np.int64], target: NDArray[np.int64], lasts: NDArray[np.int64]
) -> _Order:
    """Let events happen as soon as all that they depend on have.

    Args:
        n: Number of events.
        source: Event that another depends on, shape (E,).
        target: That other one, shape (E,).
        lasts: Time between the two, shape (E,).

    Raises:
        DependencyCycle: Some never can.
    """
    order = np.argsort(source, kind="stable")
    target, lasts = target[order], lasts[order]
    degree = np.bincount(source, minlength=n)
    first = np.cumsum(degree) - degree
    missing = np.bincount(target, minlength=n)
    time, level = np.zeros(n, np.int64), np.zeros(n, np.int64)
    ready = np.flatnonzero(missing == 0)
    done, step = 0, 0
    while len(ready):
        level[ready] = step
        done += len(ready)
        number = degree[ready]
        total = int(number.sum())
        edge = np.repeat(first[ready] - (np.cumsum(number) - number), number) + np.arange(total)
        to = target[edge]
        np.maximum.at(time, to, np.repeat(time[ready], number) + lasts[edge])
        np.subtract.at(missing, to, 1)
        ready = np.unique(to[missing[to] == 0])
        step += 1
    if done < n:
        raise DependencyCycle(_on_a_cycle(source, order, target, missing))
    return _Order(time, level)


def _on_a_cycle(
    source: NDArray[np.int64], order: NDArray[np.int64], target: NDArray[np.int64],
    missing: NDArray[np.int64],
) -> int:  # fmt: skip
    """An event that waits for itself, by going backwards from one that never happens."""
    stuck = missing > 0
    back = {}
    for here, there in zip(source[order].tolist(), target.tolist(), strict=True):
        if stuck[here] and stuck[there]:
            back[there] = here
    event: int = next(iter(back))
    seen: set[int] = set()
    while event not in seen:
        seen.add(event)
        event = back[event]
    return event
