"""Other algorithms of MPI's collectives, which change no code: options of the MPI library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from tailback.arrays import Ints, distinct_columns
from tailback.traffic.collectives import (
    ALLTOALL_PAIRWISE_BYTES,
    CollectiveStep,
    alltoall_at_once,
    alltoall_pairwise,
    binary_broadcast,
    blocking_name,
    doubling_allgather,
    halving_allreduce,
)
from tailback.traffic.program import Program
from tailback.traffic.rewrites.edit import (
    MessageSet,
    ProgramEdit,
    fresh_tag,
    messages_of,
    rank_within_key,
)
from tailback.traffic.rewrites.rewrite import (
    MIN_SENDERS,
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
)

ALGORITHMS = ("binary-broadcast", "doubling-allgather", "halving-allreduce", "other-alltoall")
"""Rewrites that only select another algorithm of a collective."""

MAX_MESSAGES = 1 << 19
"""Most messages that are replaced: each takes several microseconds."""

_ASSUMES = "the MPI library has this algorithm and follows the option"

_OPTION = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_{}_algorithm {}"

Steps = Callable[[int, int], list[CollectiveStep]]
"""Steps of a member of a communicator: its size, and the number of the member."""


@REWRITES.register("other-alltoall")
def other_alltoall(program: Program, focus: Focus) -> Rewritten:
    """MPI_Alltoall runs pairwise: send all blocks at once; small ones the other way round.

    Applies to calls of four or more ranks with one message of one size for each pair.
    """
    messages = _messages_of_calls(program, focus, "MPI_Alltoall")
    pair = messages.src * program.n_ranks + messages.dst
    turn = rank_within_key(messages.label * program.n_ranks**2 + pair)
    block = int(messages.size.max())
    at_once = block >= ALLTOALL_PAIRWISE_BYTES
    edit, tag = ProgramEdit(program), fresh_tag(program)
    for call in _calls(program, messages, turn):
        size = len(np.unique(call.src))
        if len(call) != size * (size - 1) or (call.size != call.size[0]).any():
            raise DoesNotApplyError("MPI_Alltoall sends no single block to each other rank there")
        steps = alltoall_at_once if at_once else alltoall_pairwise
        _replace(edit, call, partial(_with_bytes, steps, int(call.size[0])), tag)
    number, how = (1, "all blocks at once") if at_once else (2, "to one partner after another")
    return Rewritten(
        edit.build(),
        f"Let MPI_Alltoall send {how}: {_OPTION.format('alltoall', number)} in Open MPI.",
        "result",
        _ASSUMES,
        _OPTION.format("alltoall", number),
    )


@REWRITES.register("binary-broadcast")
def broadcast_by_binary_tree(program: Program, focus: Focus) -> Rewritten:
    """MPI_Bcast scatters and gathers, or sends down a binomial tree: send down a binary one.

    Applies to calls of four or more ranks, one of which sends before it receives.
    """
    messages = _messages_of_calls(program, focus, "MPI_Bcast")
    edit, tag = ProgramEdit(program), fresh_tag(program)
    for call in _calls(program, messages, np.zeros(len(messages), np.int64)):
        members = np.unique(np.concatenate([call.src, call.dst]))
        begun = np.full((2, len(members)), len(program.kind), np.int64)
        received = np.zeros(len(members), np.int64)
        for first, rank, post in zip(
            begun, (call.src, call.dst), (call.send, call.receive), strict=True
        ):
            np.minimum.at(first, np.searchsorted(members, rank), post)
        np.add.at(received, np.searchsorted(members, call.dst), call.size)
        roots = np.flatnonzero(begun[0] < begun[1])
        if len(roots) != 1:
            raise DoesNotApplyError("MPI_Bcast is no message from one rank to all others there")
        # Ranks that scatter receive some shares again when they gather; others do not.
        total = int(np.delete(received, roots).min())
        steps = partial(_from_root, binary_broadcast, int(roots[0]), total)
        _replace(edit, call, steps, tag)
    return Rewritten(
        edit.build(),
        f"Let MPI_Bcast send down a binary tree: {_OPTION.format('bcast', 5)} in Open MPI.",
        "result",
        _ASSUMES,
        _OPTION.format("bcast", 5),
    )


def _from_root(
    algorithm: Callable[[int, int, int, int], list[CollectiveStep]],
    root: int,
    total: int,
    size: int,
    me: int,
) -> list[CollectiveStep]:
    return algorithm(size, me, root, total)


@REWRITES.register("doubling-allgather")
def allgather_by_doubling(program: Program, focus: Focus) -> Rewritten:
    """MPI_Allgather exchanges blocks with neighbours: double recursively.

    Applies to calls of four ranks or more, a power of two, with blocks of one size.
    """
    messages = _messages_of_calls(program, focus, "MPI_Allgather")
    edit, tag = ProgramEdit(program), fresh_tag(program)
    for call in _calls(program, messages, np.zeros(len(messages), np.int64)):
        size, block = len(np.unique(call.src)), int(call.size.min())
        # The first exchange is of one block, the others of two.
        neighbours = 2 * len(call) == size**2 and call.size.sum() == size * (size - 1) * block
        if not neighbours or size & (size - 1):
            raise DoesNotApplyError(
                "MPI_Allgather is no single exchange with neighbours of 4, 8, 16, … ranks there"
            )
        _replace(edit, call, partial(_with_bytes, doubling_allgather, block), tag)
    return Rewritten(
        edit.build(),
        f"Let MPI_Allgather double recursively: {_OPTION.format('allgather', 3)} in Open MPI.",
        "result",
        _ASSUMES,
        _OPTION.format("allgather", 3),
    )


@REWRITES.register("halving-allreduce")
def rabenseifner_allreduce(program: Program, focus: Focus) -> Rewritten:
    """MPI_Allreduce runs in a ring: halve and double recursively (Rabenseifner).

    Applies to rings of four ranks or more, a power of two, in separate calls of the trace.
    """
    messages = _messages_of_calls(program, focus, "MPI_Allreduce")
    edit, tag = ProgramEdit(program), fresh_tag(program)
    for call in _calls(program, messages, np.zeros(len(messages), np.int64)):
        size = len(np.unique(call.src))
        ring = len(np.unique(call.src * program.n_ranks + call.dst)) == size
        if not ring or size & (size - 1) or len(call) != 2 * size * (size - 1):
            raise DoesNotApplyError("MPI_Allreduce is no single ring of 4, 8, 16, … ranks there")
        total = round(int(call.size.sum()) / (2 * (size - 1)))
        _replace(edit, call, partial(_with_bytes, halving_allreduce, total), tag)
    return Rewritten(
        edit.build(),
        "Let MPI_Allreduce halve and double recursively (Rabenseifner): "
        f"{_OPTION.format('allreduce', 6)} in Open MPI.",
        "result",
        _ASSUMES,
        _OPTION.format("allreduce", 6),
    )


def _with_bytes(
    algorithm: Callable[[int, int, int], list[CollectiveStep]], total: int, size: int, me: int
) -> list[CollectiveStep]:
    return algorithm(size, me, total)


def _messages_of_calls(program: Program, focus: Focus, name: str) -> MessageSet:
    """Messages of the calls of one collective; raises DoesNotApplyError."""
    chosen = frozenset(i for i in focus if blocking_name(program.labels[i].call) == name)
    if not chosen:
        raise DoesNotApplyError(f"{name} is not called there")
    messages = messages_of(program, chosen)
    if len(messages) > MAX_MESSAGES:
        raise DoesNotApplyError(f"{name} sends more than {MAX_MESSAGES:,} messages")
    return messages


def _calls(program: Program, messages: MessageSet, turn: Ints) -> Iterator[MessageSet]:
    """The messages of each call: of one label, tag and turn, between ranks of one communicator.

    Raises:
        DoesNotApplyError: A call is of fewer than :data:`MIN_SENDERS` ranks.
    """
    n = program.n_ranks
    graph = csr_array((np.ones(len(messages)), (messages.src, messages.dst)), shape=(n, n))
    group = connected_components(graph, directed=False)[1][messages.src]
    keys = np.stack([messages.label, program.tag[messages.send], turn, group])
    _, number = distinct_columns(keys.astype(np.int64))
    order = np.argsort(number, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        call = MessageSet(*(column[rows] for column in messages.__dict__.values()))
        if len(np.unique(np.concatenate([call.src, call.dst]))) < MIN_SENDERS:
            raise DoesNotApplyError(f"calls there are of fewer than {MIN_SENDERS} ranks")
        yield call


def _replace(edit: ProgramEdit, call: MessageSet, steps: Steps, tag: int) -> None:
    """Replace the messages of a call: each rank takes part where its first operation was."""
    members = np.unique(np.concatenate([call.src, call.dst]))
    edit.remove(np.concatenate([call.send, call.receive]))
    first = np.full(len(members), len(edit.program.kind), np.int64)
    for rank, post in ((call.src, call.send), (call.dst, call.receive)):
        np.minimum.at(first, np.searchsorted(members, rank), post)
    for me, (rank, at) in enumerate(zip(members.tolist(), first.tolist(), strict=True)):
        edit.insert_steps(rank, at, steps(len(members), me), members, tag, int(call.label[0]))
