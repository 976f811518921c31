"""Programs of accelerators: computation and NCCL collectives of every rank, compiled to messages.

A collective that overlaps with computation is interleaved with it step by step: the steps have the
dependencies of NCCL's steps, and the computation keeps its total time. Other work that a rank's
streams run concurrently is serialised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tailback.available import available_memory
from tailback.errors import TailbackError, TraceError
from tailback.scenario.model import NcclSection
from tailback.traffic.nccl.choice import Choice, applied, default_choice, preferred
from tailback.traffic.nccl.messages import Messages, call_name, messages
from tailback.traffic.program import (
    OVERLAPPING,
    Label,
    Op,
    Program,
    RecordedTimes,
    require_memory,
)
from tailback.units import format_bytes, percent

COMPUTE_ONLY = -1
"""Number for computation that no collective overlaps."""


@dataclass(frozen=True, eq=False)
class Collective:
    """One collective of a communicator.

    Attributes:
        call: A name of :data:`tailback.traffic.nccl.messages.CALLS`.
        members: World rank of each member.
        nbytes: Bytes of the whole buffer, as :func:`messages` counts them.
        phase: Purpose of the collective.
        communicator: Name of the communicator.
        choice: How NCCL ran it, if known from a log; None for NCCL's default.
        channels: Number of channels, if nothing else is known.
        root: Member that is the root, or the sender.
        peer: Member that receives.
        counts: Bytes of an AllToAll from each member to each, shape (n, n).
        rings: Order of members in each channel's ring, if known.
        trees: Parent of each member in each channel's tree, if known.
    """

    call: str
    members: tuple[int, ...]
    nbytes: int
    phase: str
    communicator: str
    choice: Choice | None = None
    channels: int | None = None
    root: int = 0
    peer: int = 0
    counts: NDArray[np.int64] | None = None
    rings: tuple[tuple[int, ...], ...] = ()
    trees: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class GpuProgram:
    """Activity of the accelerators of all ranks.

    Attributes:
        name: What to call the application.
        hosts: Host of each rank, shape (R,); determines rings and trees.
        collectives: The collectives.
        timeline: For each rank, pairs of the number of a collective, or :data:`COMPUTE_ONLY`, and
            the picoseconds of computation that overlap with it. The order of collectives is the
            same for all ranks.
        notes: Notes so far.
        recording: How long the recorded run took.
        port_gbps: Rate of an accelerator to the others of its host, Gb/s; None if unknown.
        error: Type of the errors to raise.
        assumes_hosts: Whether nothing names the hosts, so that the placement decides.
    """

    name: str
    hosts: Sequence[int]
    collectives: list[Collective]
    timeline: list[list[tuple[int, int]]]
    notes: list[str] = field(default_factory=list)
    recording: RecordedTimes | None = None
    port_gbps: float | None = None
    error: type[TailbackError] = TraceError
    assumes_hosts: bool = False


@dataclass(frozen=True, eq=False)
class _MemberOperations:
    """Operations of one member in one collective.

    Attributes:
        kind: Operations; a COMPUTE in every step, shape (K,).
        peer: Member that a send or receive names, shape (K,).
        amount: Bytes, shape (K,).
        post: Number of the post to which a send, receive or WAIT belongs, shape (K,).
        steps: Number of its steps.
        posts: Number of its posts.
    """

    kind: NDArray[np.int64]
    peer: NDArray[np.int64]
    amount: NDArray[np.int64]
    post: NDArray[np.int64]
    steps: int
    posts: int


def compile_gpu(source: GpuProgram, chosen: NcclSection | None = None) -> Program:
    """Compile to a rank program.

    Args:
        source: Activity of the ranks.
        chosen: Overrides how collectives are run; None leaves them as recorded, or NCCL's default.

    Returns:
        The program; its ``recompile`` compiles it again with another ``chosen``.

    Raises:
        TailbackError: Of type ``source.error``: the messages do not fit in memory.
    """
    choices = [_choice(source, collective, chosen) for collective in source.collectives]
    labels: dict[Label, int] = {}
    label_of = [
        labels.setdefault(
            Label(
                collective.phase, call_name(collective.call), communicator=collective.communicator
            ),
            len(labels),
        )
        for collective in source.collectives
    ]
    templates = _templates(source, choices)
    columns: list[list[NDArray[np.int64]]] = [[] for _ in range(6)]
    start = [0]
    for rank, timeline in enumerate(source.timeline):
        total = posted = 0
        for number, overlapped in timeline:
            rows = _rows(source, templates, label_of, rank, number, overlapped, posted)
            posted += 0 if number == COMPUTE_ONLY else templates[number][rank].posts
            total += len(rows[0])
            for column, values in zip(columns, rows, strict=True):
                column.append(values)
        start.append(start[-1] + total)
    none = [np.zeros(0, np.int64)]
    kind, peer, amount, tag, request, label = (np.concatenate(c or none) for c in columns)
    return Program(
        name=source.name,
        rank_start=np.array(start, np.uint64),
        kind=kind.astype(np.uint8),
        peer=peer.astype(np.int32),
        amount=amount.astype(np.uint64),
        tag=tag,
        request=request.astype(np.int32),
        label=label.astype(np.uint32),
        labels=list(labels) or [Label("all", "none")],
        notes=[*source.notes, *_notes(source, choices)],
        recording=source.recording,
        recompile=partial(_recompile, source, chosen),
        for_hosts=partial(_for_hosts, source, chosen) if source.assumes_hosts else None,
        port_gbps=source.port_gbps,
    )


def _for_hosts(source: GpuProgram, chosen: NcclSection | None, hosts: Sequence[int]) -> Program:
    """Compile for hosts that a placement states."""
    return compile_gpu(replace(source, hosts=hosts, assumes_hosts=False), chosen)


def _recompile(source: GpuProgram, stated: NcclSection | None, chosen: NcclSection) -> Program:
    """Compile again with ``chosen`` overriding the earlier settings."""
    old = {} if stated is None else stated.model_dump(exclude_none=True)
    return compile_gpu(source, NcclSection(**{**old, **chosen.model_dump(exclude_none=True)}))


def _choice(source: GpuProgram, collective: Collective, chosen: NcclSection | None) -> Choice:
    """How a collective is run."""
    hosts = [source.hosts[rank] for rank in collective.members]
    default = collective.choice or default_choice(
        collective.call, collective.nbytes, hosts, collective.channels
    )
    return default if chosen is None else applied(chosen, default)


def _templates(source: GpuProgram, choices: list[Choice]) -> list[dict[int, _MemberOperations]]:
    """Operations of each member of each collective, by world rank; equal ones are shared."""
    expanded: dict[tuple[object, ...], tuple[Messages, list[_MemberOperations]]] = {}
    out: list[dict[int, _MemberOperations]] = []
    operations = 0
    for collective, choice in zip(source.collectives, choices, strict=True):
        hosts = _relative([source.hosts[rank] for rank in collective.members])
        counts = None if collective.counts is None else collective.counts.tobytes()
        key = (
            collective.call,
            hosts,
            collective.nbytes,
            choice,
            collective.root,
            collective.peer,
            counts,
            collective.rings,
            collective.trees,
        )
        if key not in expanded:
            sent = messages(
                collective.call,
                hosts,
                collective.nbytes,
                choice,
                root=collective.root,
                peer=collective.peer,
                counts=collective.counts,
                rings=collective.rings,
                trees=collective.trees,
            )
            expanded[key] = sent, _members(sent, len(hosts))
        sent, members = expanded[key]
        operations += 4 * len(sent.step)
        require_memory(
            operations,
            available_memory(),
            what="the collectives of the program",
            error=source.error,
            remedy="use fewer steps or ranks, or fewer channels",
        )
        out.append(dict(zip(collective.members, members, strict=True)))
    return out


def _relative(hosts: list[int]) -> tuple[int, ...]:
    """Hosts numbered in the order in which they occur."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(host, len(seen)) for host in hosts)


def _members(sent: Messages, n: int) -> list[_MemberOperations]:
    """Operations of each of ``n`` members for the messages of a collective."""
    count = len(sent.step)
    row = np.arange(count)
    member = np.concatenate([sent.dst, sent.src])
    step = np.concatenate([sent.step, sent.step])
    peer = np.concatenate([sent.src, sent.dst])
    size = np.concatenate([sent.size, sent.size])
    kind = np.repeat([int(Op.IRECV), int(Op.ISEND)], count)
    # Receives before sends, both by channel, so that equal partners match in order.
    order = np.lexsort((np.concatenate([row, row]), kind == Op.ISEND, step, member))
    bounds = np.searchsorted(member[order], np.arange(n + 1))
    return [
        _one_member(*(column[order[low:high]] for column in (kind, step, peer, size)))
        for low, high in pairwise(bounds.tolist())
    ]


def _one_member(
    kind: NDArray[np.int64],
    step: NDArray[np.int64],
    peer: NDArray[np.int64],
    size: NDArray[np.int64],
) -> _MemberOperations:
    """Posts of each step, a computation, and a wait for each post."""
    posts = np.arange(len(kind))
    used, turn = np.unique(step, return_inverse=True)
    steps = len(used)
    none, none_per_step = np.full(len(posts), -1), np.full(steps, -1)
    stage = np.repeat([0, 1, 2], [len(posts), steps, len(posts)])
    when = np.concatenate([turn, np.arange(steps), turn])
    number = np.concatenate([posts, none_per_step, posts])
    order = np.lexsort((number, stage, when))
    kinds = [kind, np.full(steps, int(Op.COMPUTE)), np.full(len(posts), int(Op.WAIT))]
    return _MemberOperations(
        kind=np.concatenate(kinds)[order],
        peer=np.concatenate([peer, none_per_step, none])[order],
        amount=np.concatenate([size, 0 * none_per_step, 0 * none])[order],
        post=number[order],
        steps=steps,
        posts=len(posts),
    )


def _rows(
    source: GpuProgram,
    templates: list[dict[int, _MemberOperations]],
    label_of: list[int],
    rank: int,
    number: int,
    overlapped: int,
    posted: int,
) -> tuple[NDArray[np.int64], ...]:
    """Columns of the operations of one entry of a rank's timeline."""
    ones = np.ones(1, np.int64)
    compute = (Op.COMPUTE * ones, -ones, overlapped * ones, 0 * ones, -ones, 0 * ones)
    if number == COMPUTE_ONLY:
        return compute if overlapped else tuple(column[:0] for column in compute)
    t = templates[number][rank]
    if not t.steps:
        return compute if overlapped else tuple(column[:0] for column in compute)
    amount = t.amount.copy()
    slots = t.kind == Op.COMPUTE
    amount[slots] = np.diff(np.arange(t.steps + 1) * overlapped // t.steps)
    keep = ~slots | (amount > 0)
    kind, post = t.kind[keep], t.post[keep]
    members = np.array(source.collectives[number].members, np.int64)
    peer = np.where(t.peer[keep] >= 0, members[t.peer[keep]], -1)
    message = (kind == Op.ISEND) | (kind == Op.IRECV)
    return (
        kind,
        peer,
        amount[keep],
        np.where(message, number, np.where(kind == Op.COMPUTE, OVERLAPPING, 0)),
        np.where(post >= 0, post + posted, -1),
        np.where(message, label_of[number], 0),
    )


def _notes(source: GpuProgram, choices: list[Choice]) -> list[str]:
    """Note the algorithms by which the collectives are expanded."""
    used = Counter(
        (
            collective.call,
            choice.algorithm if collective.call == "AllReduce" else "ring",
            choice.protocol,
            choice.channels,
        )
        for collective, choice in zip(source.collectives, choices, strict=True)
        if collective.call in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")
    )
    shown = [
        f"{number} nccl{call}: {Choice(algorithm, protocol, channels)}"
        for (call, algorithm, protocol, channels), number in used.most_common(4)
    ]
    if not shown:
        return []
    more = f"; and {len(used) - 4} other ways" if len(used) > 4 else ""
    notes = ["collectives are sent as NCCL sends them: " + "; ".join(shown) + more]
    return notes + _notes_on_tuning(source)


WORTH_TUNING = 0.1
"""Share of the time of a call from which on another algorithm is noted: NCCL's cost model is off by
as much between machines."""


def _notes_on_tuning(source: GpuProgram) -> list[str]:
    """A note if NCCL's cost model prefers another algorithm than that which is recorded."""
    saved: Counter[tuple[str, int, Choice, Choice]] = Counter()
    share: dict[tuple[str, int, Choice, Choice], float] = {}
    for collective in source.collectives:
        hosts = [source.hosts[rank] for rank in collective.members]
        choice = collective.choice
        better = choice and preferred(collective.call, collective.nbytes, hosts, choice)
        if choice is not None and better and better[1] >= WORTH_TUNING:
            key = (collective.call, collective.nbytes, choice, better[0])
            saved[key] += 1
            share[key] = better[1]
    if not saved:
        return []
    most = max(saved, key=lambda key: saved[key] * key[1] * share[key])
    call, nbytes, choice, other = most
    return [
        f"NCCL's cost model expects {percent(share[most])} less time of {saved[most]} nccl{call} "
        f"of {format_bytes(nbytes)} with {other.algorithm}, {other.protocol} than with "
        f"{choice.algorithm}, {choice.protocol}, which ran: NCCL_ALGO, NCCL_PROTO or a tuner may "
        "be set, or the network is not as its model has it"
    ]
