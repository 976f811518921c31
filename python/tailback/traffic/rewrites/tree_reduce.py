"""Replaces a loop of sends to one rank by a reduction over a binomial tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.traffic.collectives import schedule
from tailback.traffic.program import Label, Program
from tailback.traffic.rewrites.edit import (
    MessageSet,
    ProgramEdit,
    fan_in_receivers,
    format_ranks,
    fresh_tag,
    messages_of,
    rank_within_key,
    waited_at,
)
from tailback.traffic.rewrites.rewrite import (
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    describe,
)

CALL = "MPI_Reduce"


@REWRITES.register("tree-reduce")
def tree_reduce(program: Program, focus: Focus) -> Rewritten:
    """All ranks send to one: use MPI_Reduce over a binomial tree instead of the loop.

    Applies where at least four ranks send only to one root, all of them the same number of
    messages, the k-th of each of the same size. Several roots may have separate groups. The k-th
    messages become one reduction: a sender takes part where it sent, the root where it waited.
    """
    if any(program.labels[i].call == CALL for i in focus):
        raise DoesNotApplyError(f"it is {CALL} already")
    messages = messages_of(program, focus)
    roots, inside = _roots(program, messages)
    edit = ProgramEdit(program)
    edit.remove(np.concatenate([messages.send[inside], messages.receive[inside]]))
    needed = waited_at(program)
    tag = fresh_tag(program)
    for root in roots.tolist():
        _reduce(edit, messages.only(messages.dst == root), root, needed, tag)
    ranks = format_ranks(roots)
    return Rewritten(
        edit.build(),
        f"Replace the loop of {describe(program, focus)} to {ranks} by {CALL}: ranks combine "
        "partial results in a binomial tree.",
        "result",
        f"what {ranks} receive{'s' if len(roots) == 1 else ''} is combined (a sum, a maximum); "
        "if every part is needed, all its bytes must arrive and a tree saves none",
    )


def _roots(program: Program, messages: MessageSet) -> tuple[Ints, NDArray[np.bool_]]:
    """Ranks that receive from many, and the messages to them; raises DoesNotApplyError."""
    roots = fan_in_receivers(program, messages)
    pair = messages.dst * program.n_ranks + messages.src
    pairs, count = np.unique(pair, return_counts=True)
    to, source = np.divmod(pairs, program.n_ranks)
    inside = np.isin(messages.dst, roots)
    if (np.bincount(source)[np.unique(messages.src[inside])] > 1).any():
        raise DoesNotApplyError(
            "ranks send to several receivers: there is no single root to reduce to"
        )
    turn = rank_within_key(pair)
    for root in roots.tolist():
        if len(np.unique(count[to == root])) > 1:
            raise DoesNotApplyError(f"ranks send different numbers of messages to rank {root}")
        mine = messages.dst == root
        size = np.zeros(int(turn[mine].max()) + 1, np.int64)
        size[turn[mine]] = messages.size[mine]
        if (size[turn[mine]] != messages.size[mine]).any():
            raise DoesNotApplyError(
                f"messages to rank {root} differ in size, so they cannot be reduced"
            )
    return roots, inside


def _reduce(edit: ProgramEdit, group: MessageSet, root: int, needed: Ints, tag: int) -> None:
    """One reduction for the k-th messages of all senders, for every k."""
    members = np.unique(np.append(group.src, root))
    place = {rank: number for number, rank in enumerate(members.tolist())}
    old = edit.labels[int(group.label[0])]
    label = edit.label(Label(old.phase, CALL, communicator=old.communicator, path=old.path))
    turn = rank_within_key(group.src)
    for rank, at, size in zip(
        group.src.tolist(), group.send.tolist(), group.size.tolist(), strict=True
    ):
        steps = schedule(CALL, len(members), place[rank], place[root], size, size)
        edit.insert_steps(rank, at, steps, members, tag, label)
    first = group.only(group.src == group.src[0])
    for k, size in enumerate(first.size.tolist()):
        # The root needs the result where it waited for the last message.
        at = int(needed[group.receive[turn == k]].max())
        steps = schedule(CALL, len(members), place[root], place[root], size, size)
        edit.insert_steps(root, at, steps, members, tag, label)
