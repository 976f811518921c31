"""Spreads what many ranks send to a few over more receivers, as more aggregators of I/O do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.traffic.program import Op, Program
from tailback.traffic.rewrites.edit import (
    MessageSet,
    ProgramEdit,
    fresh_tag,
    messages_of,
    rank_within_key,
    waited_at,
)
from tailback.traffic.rewrites.rewrite import (
    MIN_SENDERS,
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    describe,
)

MOST_BEFORE = 0.25
"""Largest share of the ranks that may receive already: more have no room for twice as many."""


@REWRITES.register("more-receivers")
def more_receivers(program: Program, focus: Focus) -> Rewritten:
    """Many ranks send to a few: half of all ranks receive instead.

    Applies where two or more ranks, and at most a quarter of all, receive everything, each of them
    from at least four others that send it equally many messages. Each receiver shares its senders
    with ranks that have not received before. What a rank would send to itself stays where it is.
    """
    messages = messages_of(program, focus)
    receivers = _few_receivers(program, messages)
    helpers = _helpers(program, messages, receivers)
    target = _targets(messages, helpers)
    _require_equal_counts(program, messages)
    moved = target != messages.dst
    edit = ProgramEdit(program)
    edit.remove(np.concatenate([messages.send[moved], messages.receive[moved]]))
    _post_again(edit, messages, target, moved & (target != messages.src))
    total = sum(len(group) for group in helpers.values())
    return Rewritten(
        edit.build(),
        f"Let {total} ranks receive {describe(program, focus)}, not {len(receivers)}, each from "
        f"{-(-len(np.unique(messages.src)) // max(total // len(receivers), 1))} ranks or fewer: in "
        "collective I/O these are the aggregators (cb_nodes of ROMIO).",
        "result",
        "any rank may receive these data, as when they are written to a file",
    )


def _few_receivers(program: Program, messages: MessageSet) -> Ints:
    pairs = np.unique(messages.dst * program.n_ranks + messages.src)
    receivers, senders = np.unique(pairs // program.n_ranks, return_counts=True)
    if len(receivers) < 2:
        raise DoesNotApplyError("one rank receives everything, and may need all of it")
    if len(receivers) > MOST_BEFORE * program.n_ranks:
        raise DoesNotApplyError(f"{len(receivers)} of {program.n_ranks} ranks receive already")
    if senders.min() < MIN_SENDERS:
        raise DoesNotApplyError(f"a rank there receives from fewer than {MIN_SENDERS} others")
    return receivers


def _helpers(program: Program, messages: MessageSet, receivers: Ints) -> dict[int, list[int]]:
    """Ranks that share the messages to each receiver, itself first."""
    senders = np.setdiff1d(np.unique(messages.src), receivers)
    wanted = min(program.n_ranks // 2 - len(receivers), len(senders))
    if wanted < len(receivers):
        raise DoesNotApplyError("no other ranks are there that could receive")
    spread = senders[np.arange(wanted) * len(senders) // wanted].tolist()
    return {
        receiver: [receiver, *spread[number :: len(receivers)]]
        for number, receiver in enumerate(receivers.tolist())
    }


def _targets(messages: MessageSet, helpers: dict[int, list[int]]) -> Ints:
    """Rank that receives each message, shape (K,)."""
    target = messages.dst.copy()
    for receiver, group in helpers.items():
        to = messages.dst == receiver
        turn = np.searchsorted(np.unique(messages.src[to]), messages.src[to])
        target[to] = np.array(group, np.int64)[turn % len(group)]
    return target


def _require_equal_counts(program: Program, messages: MessageSet) -> None:
    pair = messages.src * program.n_ranks + messages.dst
    if len(np.unique(np.unique(pair, return_counts=True)[1])) > 1:
        raise DoesNotApplyError("ranks send different numbers of messages there")


def _post_again(
    edit: ProgramEdit, messages: MessageSet, target: Ints, moved: NDArray[np.bool_]
) -> None:
    """Post the messages that other ranks receive, round by round.

    A rank posts the receives of a round before its own first send of that round, and waits for them
    where it waits for that send: receives are posted whenever their sends are, so nothing
    deadlocks.
    """
    program = edit.program
    needed = waited_at(program)
    turn = rank_within_key(messages.src * program.n_ranks + messages.dst)
    rounds = int(turn.max()) + 1
    first = np.full((program.n_ranks, rounds), len(program.kind), np.int64)
    last = np.full((program.n_ranks, rounds), -1, np.int64)
    np.minimum.at(first, (messages.src, turn), messages.send)
    np.maximum.at(last, (messages.src, turn), needed[messages.send])
    tag = fresh_tag(program)
    # Messages of equal size and label are posted together, in the order of their rounds.
    for k in range(rounds):
        for size, label in np.unique(
            np.stack([messages.size, messages.label])[:, moved & (turn == k)], axis=1
        ).T.tolist():
            chosen = moved & (turn == k) & (messages.size == size) & (messages.label == label)
            source, to = messages.src[chosen], target[chosen]
            received = edit.post_at_ranks(to, first[to, k], Op.IRECV, source, size, tag, label)
            sends = messages.send[chosen]
            sent = edit.post_at_ranks(source, sends, Op.ISEND, to, size, tag, label)
            edit.wait(to, np.maximum(last[to, k], first[to, k]), received)
            edit.wait(source, needed[sends], sent)
