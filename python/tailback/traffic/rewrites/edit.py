"""Edits of a program: removes and inserts operations and keeps waits consistent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.identity_cache import PerObject
from tailback.traffic.collectives import CollectiveStep
from tailback.traffic.program import POSTS, Label, Op, Program
from tailback.traffic.rewrites.rewrite import MIN_SENDERS, DoesNotApplyError, Focus


@dataclass(frozen=True, eq=False)
class MessageSet:
    """Messages of some labels, in the order of their sends.

    Attributes:
        send: Operation that sends each, shape (K,).
        receive: Operation that receives it, shape (K,).
        src: Sending rank, shape (K,).
        dst: Receiving rank, shape (K,).
        size: Bytes, shape (K,).
        label: Label, shape (K,).
    """

    send: Ints
    receive: Ints
    src: Ints
    dst: Ints
    size: Ints
    label: Ints

    def __len__(self) -> int:
        return len(self.send)

    def only(self, chosen: NDArray[np.bool_]) -> MessageSet:
        """The messages selected by ``chosen``, shape (K,)."""
        return MessageSet(*(column[chosen] for column in self.__dict__.values()))


def messages_of(program: Program, focus: Focus) -> MessageSet:
    """The messages whose sends have a label of ``focus``.

    Raises:
        DoesNotApplyError: Sends and receives do not pair up, or there is no such message.
    """
    messages = _all_messages(program)
    chosen = np.isin(messages.label, np.array(sorted(focus), np.int64))
    if not chosen.any():
        raise DoesNotApplyError("no message is sent there")
    return messages.only(chosen)


def _match(program: Program) -> MessageSet:
    """All messages of a program, in order of their sends."""
    rank, n = program.op_rank, program.n_ranks
    send = np.flatnonzero(program.sends)
    receive = np.flatnonzero(program.kind == Op.IRECV)
    peer = program.peer.astype(np.int64)
    # Messages of one (source, destination, tag) match in the order they are posted.
    order = np.lexsort((program.tag[send], rank[send] * n + peer[send]))
    from_peer = np.lexsort((program.tag[receive], peer[receive] * n + rank[receive]))
    if len(send) != len(receive) or (peer[send[order]] != rank[receive[from_peer]]).any():
        raise DoesNotApplyError("sends and receives do not pair up")
    matched = np.empty_like(receive)
    matched[order] = receive[from_peer]
    size, label = program.amount[send].astype(np.int64), program.label[send].astype(np.int64)
    return MessageSet(send, matched, rank[send], peer[send], size, label)


_all_messages = PerObject(_match)
"""All messages of a program: several rewrites of it ask one after the other."""


def fan_in_receivers(program: Program, messages: MessageSet) -> Ints:
    """Ranks that receive from :data:`MIN_SENDERS` or more others and do not send themselves.

    Raises:
        DoesNotApplyError: There is none, or one of them also sends.
    """
    pairs = np.unique(messages.dst * program.n_ranks + messages.src)
    receivers, senders = np.unique(pairs // program.n_ranks, return_counts=True)
    receivers = receivers[senders >= MIN_SENDERS]
    if not len(receivers):
        raise DoesNotApplyError(f"no rank there receives from {MIN_SENDERS} or more others")
    if np.isin(receivers, messages.src).any():
        raise DoesNotApplyError("the receivers also send there and would wait for one another")
    return receivers


def format_ranks(ranks: Ints) -> str:
    """Ranks as text for a sentence: ``rank 3``, ``ranks 3, 4``."""
    names = ", ".join(map(str, ranks[:3].tolist())) + (", …" if len(ranks) > 3 else "")
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}"


def posts_of_waits(program: Program) -> Ints:
    """The post each WAIT waits for, -1 for every other operation, shape (M,)."""
    return _posts_of_waits(program)


def _find_posts(program: Program) -> Ints:
    at = np.flatnonzero(np.isin(program.kind, (*POSTS, Op.WAIT)))
    request = program.request[at].astype(np.int64)
    key = program.op_rank[at] * (int(request.max(initial=0)) + 2) + request
    at = at[np.argsort(key, kind="stable")]
    waits = program.kind[at] == Op.WAIT
    last = np.maximum.accumulate(np.where(waits, -1, np.arange(len(at))))
    out = np.full(len(program.kind), -1, np.int64)
    out[at[waits]] = at[last[waits]]
    return out


_posts_of_waits = PerObject(_find_posts)


class ProgramEdit:
    """Collects removals and insertions of operations.

    Args:
        program: The program; it is not changed.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.labels = list(program.labels)
        self._rank = program.op_rank
        self._keep = np.ones(len(program.kind), np.bool_)
        self._added: list[tuple[NDArray[np.int64], ...]] = []
        self._ids = 0

    def label(self, label: Label) -> int:
        """Number of ``label``, new when needed."""
        if label not in self.labels:
            self.labels.append(label)
        return self.labels.index(label)

    def remove(self, posts: Ints) -> None:
        """Remove posts, and every WAIT for one of them."""
        self._keep[posts] = False
        target = posts_of_waits(self.program)
        self._keep[(target >= 0) & ~self._keep[target]] = False

    def insert_steps(
        self,
        rank: int,
        at: int,
        steps: Sequence[CollectiveStep],
        members: Ints,
        tag: int,
        label: int,
    ) -> None:
        """Insert the steps of a collective, from :func:`schedule`, before operation ``at``.

        Args:
            rank: Rank that executes them.
            at: One of its operations, or one past its last.
            steps: The steps; peers are numbers within ``members``.
            members: World ranks of the communicator.
            tag: Matching tag.
            label: Label.
        """
        rows: list[tuple[int, int, int, int]] = []
        for step in steps:
            first = self._ids
            for op, side in ((Op.IRECV, step.receives), (Op.ISEND, step.sends)):
                for peer, size in side:
                    rows.append((op, int(members[peer]), size, self._ids))
                    self._ids += 1
            rows += [(Op.WAIT, -1, 0, number) for number in range(first, self._ids)]
        kind, peers, amount, number = np.array(rows, np.int64).reshape(-1, 4).T
        ones = np.full(len(rows), 1, np.int64)
        self._added.append(
            (rank * ones, at * ones, kind, peers, amount, tag * ones, label * ones, number)
        )

    def post_at_ranks(
        self, rank: Ints, at: Ints, op: Op, peer: Ints, size: int, tag: int, label: int
    ) -> Ints:
        """Insert a send or receive in many ranks at once.

        Args:
            rank: Ranks, shape (K,).
            at: Operation of each before which it is inserted, shape (K,).
            op: ISEND or IRECV.
            peer: Other rank of each, shape (K,).
            size: Bytes.
            tag: Matching tag.
            label: Label.

        Returns:
            Numbers to wait for, shape (K,).
        """
        number = np.arange(self._ids, self._ids + len(rank))
        self._ids += len(rank)
        ones = np.full(len(rank), 1, np.int64)
        self._added.append(
            (rank, at, op * ones, peer, size * ones, tag * ones, label * ones, number)
        )
        return number

    def wait(self, rank: Ints, at: Ints, number: Ints) -> None:
        """Insert waits for inserted posts, shapes (K,)."""
        ones = np.full(len(rank), 1, np.int64)
        self._added.append((rank, at, Op.WAIT * ones, -ones, 0 * ones, 0 * ones, 0 * ones, number))

    def wait_for(self, post: Ints, at: Ints) -> None:
        """Insert waits for posts of the program before operations ``at``, shapes (K,)."""
        # Requests of the program itself are distinguished from numbers by their sign.
        self.wait(self._rank[post], at, -1 - self.program.request[post].astype(np.int64))

    def build(self) -> Program:
        """The edited program."""
        p = self.program
        kept = np.flatnonzero(self._keep)
        none = np.zeros(0, np.int64)
        added = [np.concatenate(parts) for parts in zip(*self._added, strict=True)] or [none] * 8
        rank, at, kind, peer, amount, tag, label, number = added
        request = self._requests(rank, kind, number)
        ranks = np.concatenate([self._rank[kept], rank])
        position = np.concatenate([kept, at])
        stage = np.concatenate([np.ones(len(kept), np.int64), np.zeros(len(at), np.int64)])
        order = np.lexsort((np.arange(len(ranks)), stage, position, ranks))

        def column(old: NDArray[Any], new: Ints) -> NDArray[Any]:
            return np.concatenate([old[kept], new.astype(old.dtype)])[order]

        start = np.zeros(p.n_ranks + 1, np.uint64)
        start[1:] = np.cumsum(np.bincount(ranks, minlength=p.n_ranks)).astype(np.uint64)
        program = replace(
            p,
            rank_start=start,
            kind=column(p.kind, kind),
            peer=column(p.peer, peer),
            amount=column(p.amount, amount),
            tag=column(p.tag, tag),
            request=column(p.request, request),
            label=column(p.label, label),
            labels=self.labels,
            recompile=None,
        )
        program.check()
        return program

    def _requests(self, rank: Ints, kind: Ints, number: Ints) -> Ints:
        """Request of each inserted operation, continuing the numbers of its rank, shape (K,)."""
        posts = kind != Op.WAIT
        request = np.zeros(self._ids, np.int64)
        mine = rank[posts]
        order = np.argsort(mine, kind="stable")
        first = np.searchsorted(mine[order], mine[order])
        place = np.empty(len(mine), np.int64)
        place[order] = np.arange(len(mine)) - first
        request[number[posts]] = int(self.program.request.max(initial=-1)) + 1 + place
        existing = number < 0
        return np.where(
            existing, -1 - number, request[np.where(existing, 0, number)] if self._ids else 0
        )


def fresh_tag(program: Program) -> int:
    """A matching tag that is unused in the program."""
    return int(program.tag.max(initial=0)) + 1


def rank_within_key(key: Ints) -> Ints:
    """Number of equal keys before each, shape (K,)."""
    order = np.argsort(key, kind="stable")
    out = np.empty(len(key), np.int64)
    out[order] = np.arange(len(key)) - np.searchsorted(key[order], key[order])
    return out


def waited_at(program: Program) -> Ints:
    """Operation by which each post is waited for, the end of its rank without one, shape (M,).

    That is the first WAIT for it, or the first WAITALL after it.
    """
    count = len(program.kind)
    all_ = np.append(np.flatnonzero(program.kind == Op.WAITALL), count)
    out: Ints = all_[np.searchsorted(all_, np.arange(count))]
    out = np.minimum(out, program.rank_start.astype(np.int64)[program.op_rank + 1])
    target = posts_of_waits(program)
    waits = np.flatnonzero(target >= 0)
    np.minimum.at(out, target[waits], waits)
    return out
