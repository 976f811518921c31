"""The opposite order of sends on every other rank: not all send in one direction at once."""

from __future__ import annotations

import numpy as np

from tailback.traffic.program import Program
from tailback.traffic.rewrites.edit import messages_of
from tailback.traffic.rewrites.rewrite import (
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    describe,
    whole_exchange,
)
from tailback.traffic.rewrites.rotated_order import stretches, with_sends_moved


@REWRITES.register("mirrored-order")
def mirrored_order(program: Program, focus: Focus) -> Rewritten:
    """All ranks send to their neighbours in the same order: ranks of odd number reverse theirs.

    Applies where ranks post sends to two or more others without a wait between them. Messages of a
    pair keep their order.
    """
    focus = whole_exchange(program, focus)
    messages = messages_of(program, focus)
    stretch = stretches(program)[messages.send]
    key = stretch * program.n_ranks + messages.dst
    pairs, first, pair = np.unique(key, return_index=True, return_inverse=True)
    several = np.bincount(pairs // program.n_ranks) > 1
    if not several.any():
        raise DoesNotApplyError("no rank posts sends to two others without a wait between them")
    # Within a pair the order of the messages stays.
    turn = np.where(messages.src % 2 == 1, -first[pair], first[pair])
    order = np.lexsort((messages.send, turn, stretch))
    return Rewritten(
        with_sends_moved(program, messages.send, messages.send[order]),
        f"Let ranks of odd number post the sends of {describe(program, focus)} in the opposite "
        "order: the last neighbour first.",
        "messages",
    )
