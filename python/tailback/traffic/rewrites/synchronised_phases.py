"""A barrier after each phase of an exchange, so that no rank runs ahead into the next."""

from __future__ import annotations

from difflib import SequenceMatcher

import numpy as np

from tailback.arrays import Ints
from tailback.traffic.collectives import barrier_partners
from tailback.traffic.program import Label, Op, Program
from tailback.traffic.rewrites.edit import (
    MessageSet,
    ProgramEdit,
    fresh_tag,
    messages_of,
    waited_at,
)
from tailback.traffic.rewrites.rewrite import (
    MIN_SENDERS,
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    whole_exchange,
)

CALL = "MPI_Barrier"


@REWRITES.register("synchronised-phases")
def synchronised_phases(program: Program, focus: Focus) -> Rewritten:
    """Ranks run ahead into the next phase: finish each phase, then MPI_Barrier.

    Applies where ranks run two or more phases in the same order (ranks at the edge of a grid may
    skip some). Each rank completes its sends and receives of a phase, then waits for all others.
    """
    messages = messages_of(program, whole_exchange(program, focus))
    members = np.unique(messages.src)
    if len(members) < MIN_SENDERS:
        raise DoesNotApplyError(f"fewer than {MIN_SENDERS} ranks send there")
    phases, place = _phase_order(program, messages, members)
    edit = ProgramEdit(program)
    begin = _barriers(program, messages, members, place, len(phases) - 1)
    index = _member_index(program, members)
    label = edit.label(Label("barrier", CALL))
    tag = fresh_tag(program)
    steps = barrier_partners(len(members), np.arange(len(members)))
    needed = waited_at(program)
    for number, at in enumerate(begin.T):
        for rank, post in ((messages.src, messages.send), (messages.dst, messages.receive)):
            mine = (index[rank] >= 0) & (place == number)
            posts, there = post[mine], at[index[rank[mine]]]
            edit.wait_for(posts[needed[posts] >= there], there[needed[posts] >= there])
        for to, source in steps:
            received = edit.post_at_ranks(members, at, Op.IRECV, members[source], 0, tag, label)
            sent = edit.post_at_ranks(members, at, Op.ISEND, members[to], 0, tag, label)
            edit.wait(members, at, received)
            edit.wait(members, at, sent)
    names = ", ".join(repr(phase) for phase in dict.fromkeys(phases))
    return Rewritten(
        edit.build(),
        f"Finish each phase ({names}) and call {CALL} before the next one, so that ranks with less "
        "to send do not run ahead and meet the others at one node.",
        "messages",
    )


def _phase_order(program: Program, messages: MessageSet, members: Ints) -> tuple[list[str], Ints]:
    """The common order of phases, and the position of each message in it.

    Raises:
        DoesNotApplyError: The ranks have no common order.
    """
    names = [label.phase for label in program.labels]
    number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
    phase = np.array([number_of[name] for name in names])[messages.label]
    new = np.append(True, (phase[1:] != phase[:-1]) | (messages.src[1:] != messages.src[:-1]))
    runs = np.flatnonzero(new)
    of_rank = messages.src[runs]
    start = np.searchsorted(of_rank, members)
    end = np.searchsorted(of_rank, members, side="right")
    sequences = [
        tuple(phase[runs[a:b]].tolist()) for a, b in zip(start.tolist(), end.tolist(), strict=True)
    ]
    order = _merge_orders(sequences)
    place = np.concatenate([_positions(sequence, order) for sequence in sequences])
    text = list(number_of)
    return [text[number] for number in order], place[np.cumsum(new) - 1]


def _merge_orders(sequences: list[tuple[int, ...]]) -> list[int]:
    """One order of phases that every rank's own is a part of; raises DoesNotApplyError."""
    longest = max(sequences, key=len)
    order = list(longest)
    for sequence in sorted(set(sequences), key=lambda sequence: (-len(sequence), sequence)):
        matched = SequenceMatcher(None, order, sequence, autojunk=False).get_opcodes()
        order = [
            n for _, a, b, c, d in matched for n in _join_stretches(order[a:b], list(sequence[c:d]))
        ]
    if len(order) < 2:
        raise DoesNotApplyError("there is only one phase, and no rank runs ahead into the next")
    if len(order) > 2 * len(longest):
        raise DoesNotApplyError("ranks do not go through the phases in the same order")
    return order


def _join_stretches(first: list[int], other: list[int]) -> list[int]:
    """Two stretches concatenated, or one of them if they are equal."""
    return first if first == other else first + other


def _barriers(
    program: Program, messages: MessageSet, members: Ints, place: Ints, count: int
) -> Ints:
    """Operation before which each rank calls each barrier, shape (members, count).

    The barrier follows the last post of the preceding phases. A rank without posts there calls it
    at once.
    """
    index = _member_index(program, members)
    first = np.full(len(members), len(program.kind), np.int64)
    behind = np.full((len(members), count + 1), -1, np.int64)
    for rank, post in ((messages.src, messages.send), (messages.dst, messages.receive)):
        mine = index[rank] >= 0
        np.minimum.at(first, index[rank][mine], post[mine])
        np.maximum.at(behind, (index[rank][mine], place[mine]), post[mine] + 1)
    return np.maximum(np.maximum.accumulate(behind, axis=1), first[:, None])[:, :count]


def _positions(sequence: tuple[int, ...], order: list[int]) -> list[int]:
    """Places of a rank's phases in the whole order, the earliest."""
    out, at = [], 0
    for phase in sequence:
        at = order.index(phase, at) + 1
        out.append(at - 1)
    return out


def _member_index(program: Program, members: Ints) -> Ints:
    """Number of each rank among the members, -1 for others, shape (R,)."""
    index = np.full(program.n_ranks, -1, np.int64)
    index[members] = np.arange(len(members))
    return index
