"""Splits messages into parts: the whole exchange for one part, then for the next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.traffic.program import Op, Program
from tailback.traffic.rewrites.edit import messages_of, posts_of_waits, waited_at
from tailback.traffic.rewrites.rewrite import (
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    describe,
    whole_exchange,
)

PARTS = 4
"""Parts of a message. More parts give shorter phases but more latency; the published case is
miniGhost's five variables, exchanged one at a time (studies/taffet2019/README.md)."""

MIN_PART_BYTES = 16384
"""Minimum size of a part: below, latency outweighs the gain of shorter phases."""


@REWRITES.register("small-phases")
def small_phases(program: Program, focus: Focus) -> Rewritten:
    """Long phases in which ranks drift apart: exchange the messages in four parts, in four rounds.

    Applies where an exchange is a stretch of only sends, receives and waits, messages have 64 KiB
    or more, and the exchange has at least two phases. The stretch is repeated four times, each with
    a quarter of every message, so that ranks wait for their neighbours four times as often.
    """
    focus = whole_exchange(program, focus)
    messages = messages_of(program, focus)
    small = int(messages.size.min())
    if small < PARTS * MIN_PART_BYTES:
        raise DoesNotApplyError(
            f"messages of {small} bytes are too small to be split into {PARTS} parts of "
            f"{MIN_PART_BYTES} bytes"
        )
    posts = np.zeros(len(program.kind), np.bool_)
    posts[messages.send] = posts[messages.receive] = True
    first, last = _stretches(program, posts)
    mine = np.searchsorted(first, np.arange(len(program.kind)), side="right") - 1
    inside = (mine >= 0) & (np.arange(len(program.kind)) <= last[np.maximum(mine, 0)])
    if not inside[posts].all():
        raise DoesNotApplyError(
            "sends and receives are interleaved with computation or other calls"
        )
    if not (waited_at(program)[posts] <= last[mine[posts]]).all():
        raise DoesNotApplyError(
            "other operations come between the posts of an exchange and their waits"
        )
    phases = {program.labels[i].phase for i in np.unique(messages.label).tolist()}
    if len(phases) < 2:
        raise DoesNotApplyError("there is only one phase: shorter messages do not shorten it")
    return Rewritten(
        _repeat_stretches(program, posts, inside, np.where(inside, first[np.maximum(mine, 0)], -1)),
        f"Exchange each message of {describe(program, focus)} in {PARTS} parts (variables one by "
        f"one, slices of a face), and go through all phases for one part before the next.",
        "bytes",
        "a message can be split: it holds several variables, or values that do not depend on one "
        "another",
    )


def _stretches(program: Program, posts: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """First and last operation of each stretch that holds nothing but the exchange."""
    target = posts_of_waits(program)
    fine = posts | (program.kind == Op.WAITALL) | ((target >= 0) & posts[target])
    rank = program.op_rank
    new = np.append(True, (fine[1:] != fine[:-1]) | (rank[1:] != rank[:-1]))
    begin = np.flatnonzero(new)
    end = np.append(begin[1:], len(fine)) - 1
    good = fine[begin]
    # A stretch begins with its first post: a WAITALL before it belongs to something else.
    at = np.append(np.flatnonzero(posts), len(fine))
    begin = at[np.searchsorted(at, begin[good])]
    end = end[good]
    return begin[begin <= end], end[begin <= end]


def _repeat_stretches(
    program: Program, posts: NDArray[np.bool_], inside: NDArray[np.bool_], first: Ints
) -> Program:
    """Repeat the stretches ``PARTS`` times, each time with a part of every message."""
    here = np.flatnonzero(inside)
    copies = np.repeat(np.arange(PARTS), len(here))
    op = np.concatenate([np.flatnonzero(~inside), np.tile(here, PARTS)])
    copy = np.concatenate([np.zeros(int((~inside).sum()), np.int64), copies])
    block = np.where(inside[op], first[op], op)
    order = np.lexsort((op, copy, block))
    op, copy = op[order], copy[order]
    amount = program.amount[op].astype(np.int64)
    part = posts[op]
    amount[part] = amount[part] // PARTS + (copy[part] < amount[part] % PARTS)
    requests = int(program.request.max(initial=-1)) + 1
    request = program.request[op].astype(np.int64)
    request = np.where(inside[op] & (request >= 0), request + copy * requests, request)
    start = np.zeros(program.n_ranks + 1, np.uint64)
    counts = np.bincount(program.op_rank[op], minlength=program.n_ranks)
    start[1:] = np.cumsum(counts).astype(np.uint64)
    return replace(
        program,
        rank_start=start,
        kind=program.kind[op],
        peer=program.peer[op],
        amount=amount.astype(np.uint64),
        tag=program.tag[op],
        request=request.astype(np.int32),
        label=program.label[op],
    )
