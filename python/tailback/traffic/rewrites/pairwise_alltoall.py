"""Replaces a loop of exchanges between all pairs of ranks by MPI_Alltoall."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from tailback.traffic.collectives import schedule
from tailback.traffic.program import Label, Program
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
    describe,
)

CALL = "MPI_Alltoall"


@REWRITES.register("pairwise-alltoall")
def pairwise_alltoall(program: Program, focus: Focus) -> Rewritten:
    """All ranks exchange with all others in a loop: use MPI_Alltoall, in which partners alternate.

    Applies where the ranks form groups of four or more in which each rank sends the same number of
    blocks of one size to each other rank. A rank takes part where it sent its last block of an
    exchange.
    """
    if any(program.labels[i].call == CALL for i in focus):
        raise DoesNotApplyError(f"it is {CALL} already")
    messages = messages_of(program, focus)
    n = program.n_ranks
    ones = np.ones(len(messages))
    graph = csr_array((ones, (messages.src, messages.dst)), shape=(n, n))
    _, group_of = connected_components(graph, directed=False)
    group = group_of[messages.src]
    if (messages.src == messages.dst).any():
        raise DoesNotApplyError("ranks send to themselves")
    edit = ProgramEdit(program)
    edit.remove(np.concatenate([messages.send, messages.receive]))
    tag = fresh_tag(program)
    for number in np.unique(group).tolist():
        _exchange(edit, messages.only(group == number), n, tag)
    return Rewritten(
        edit.build(),
        f"Replace the loop of {describe(program, focus)} by {CALL}: in each of its steps every "
        "rank has another partner.",
        "result",
        "no block of an exchange depends on another block of the same exchange",
    )


def _exchange(edit: ProgramEdit, messages: MessageSet, n: int, tag: int) -> None:
    """Insert the collective of one group; raises DoesNotApplyError."""
    members = np.unique(messages.src)
    size = len(members)
    if size < MIN_SENDERS:
        raise DoesNotApplyError(f"no {MIN_SENDERS} ranks there all send to one another")
    pairs, count = np.unique(messages.src * n + messages.dst, return_counts=True)
    if len(pairs) != size * (size - 1):
        raise DoesNotApplyError("not every rank sends to every other one there")
    if len(np.unique(count)) > 1 or len(np.unique(messages.size)) > 1:
        raise DoesNotApplyError("blocks differ in size or number between pairs of ranks")
    block = int(messages.size[0])
    old = edit.labels[int(messages.label[0])]
    label = edit.label(Label(old.phase, CALL, communicator=old.communicator, path=old.path))
    round_ = rank_within_key(messages.src * n + messages.dst)
    # The last send of each rank in each round.
    last = np.full((size, int(round_.max()) + 1), -1, np.int64)
    place = np.searchsorted(members, messages.src)
    np.maximum.at(last, (place, round_), messages.send)
    for me, rank in enumerate(members.tolist()):
        steps = schedule(CALL, size, me, 0, block, block)
        for at in last[me].tolist():
            edit.insert_steps(rank, at, steps, members, tag, label)
