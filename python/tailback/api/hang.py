"""Who holds up a training run that hangs: ``tb.diagnose_hang``."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from tailback.api.stored_result import StoredResult
from tailback.errors import known_keywords, option
from tailback.inference.last_ranks import LastRank, Starts, find_last_ranks
from tailback.inference.stuck_collectives import (
    Hang,
    LaunchOrder,
    OpenCollective,
    Stop,
    find_hang,
)
from tailback.io.input_files import recording_files
from tailback.sources.request import DiagnosisRequest
from tailback.traffic.readers.flight_recorder.dump import Operation
from tailback.traffic.readers.flight_recorder.folder import DumpFolder, read_dumps
from tailback.units import counted, format_bytes, format_time, percent, utc

_NAMED: Final = 8
"""Ranks that a sentence names."""

_LATE: Final = 3
"""Late ranks that a sentence tells of, each with two figures."""


class HangResult(StoredResult):
    """The collective that holds up a training run, and who holds it up.

    Attributes:
        cause: Why it does not complete (:data:`tailback.inference.stuck_collectives.Stop`).
        headline: The same in a sentence or two.
        next_step: What to do next.
        ranks: Ranks that hold it up.
        waiting: Ranks that wait in it.
        collective: Its name in PyTorch.
        number: Its number in its process group.
        group: What the program calls the process group.
        members: Ranks of the group.
        size_bytes: Bytes of its buffer; 0 if unknown.
        since_ns: When the first rank launched it, UTC ns since 1970.
        others: Number of other collectives that are not complete.
        dumps: Number of dumps.
        notes: What of the dumps could not be read or was assumed.
    """

    cause: Stop
    headline: str
    next_step: str
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    collective: str
    number: int
    group: str
    members: tuple[int, ...]
    size_bytes: int
    since_ns: int
    others: int
    dumps: int
    notes: tuple[str, ...] = ()


class CompletedResult(StoredResult):
    """What dumps tell in which all collectives are complete: who begins them last.

    Attributes:
        cause: Always ``complete``: nothing hangs.
        headline: What the dumps show, in a sentence or two.
        next_step: What to do next.
        collectives: Number of collectives whose ranks all have a dump.
        has_durations: Whether durations of accelerators tell it; else launches of hosts, whose
            clocks may differ.
        last: Ranks that were last, by the time that others waited for them.
        dumps: Number of dumps.
        notes: What of the dumps could not be read or was assumed.
    """

    cause: Literal["complete"] = "complete"
    headline: str
    next_step: str
    collectives: int
    has_durations: bool
    last: tuple[LastRank, ...]
    dumps: int
    notes: tuple[str, ...] = ()


@known_keywords()
def diagnose_hang(dumps: str | Path) -> HangResult | CompletedResult:
    """Find the ranks that hold up a training run, from dumps of PyTorch's Flight Recorder.

    Args:
        dumps: Folder with the dumps of all ranks, ``nccl_trace_rank_<N>`` as pickle or JSON.

    Returns:
        The collective that does not complete, and who holds it up. If all are complete: who begins
        them last.

    Raises:
        TraceError: No dump can be read.

    Example:
        >>> tb.diagnose_hang("dumps/").headline
    """
    path = Path(dumps)
    with recording_files() as read:
        folder = read_dumps(path)
    request = DiagnosisRequest.of([path], read, {})
    hang = find_hang(folder.of_rank)
    if hang is None:
        return _completed(folder, request)
    stuck = hang.collective
    return HangResult(
        cause=hang.stop,
        headline=_headline(hang),
        next_step=_next_step(hang),
        ranks=hang.ranks,
        waiting=tuple(stuck.waiting),
        collective=stuck.first.name,
        number=stuck.number,
        group=stuck.group.label,
        members=stuck.group.members,
        size_bytes=stuck.first.buffer_bytes(len(stuck.group.members)),
        since_ns=stuck.since_ns,
        others=hang.others,
        dumps=len(folder.of_rank),
        notes=folder.notes,
        request=request,
    )


def _completed(folder: DumpFolder, request: DiagnosisRequest) -> CompletedResult:
    starts = find_last_ranks(folder.of_rank)
    what = counted(starts.collectives, "collective")
    if starts.collectives:
        headline = f"All are complete: nothing hangs. {_who_is_last(starts)}"
    else:
        headline = "Nothing hangs, and who is late is unknown"
    return CompletedResult(
        headline=f"The dumps of {counted(len(folder.of_rank), 'rank')} hold {what} of two or more "
        f"ranks that all left a dump. {headline}.",
        next_step=_step_when_complete(starts),
        collectives=starts.collectives,
        has_durations=starts.has_durations,
        last=starts.last,
        dumps=len(folder.of_rank),
        notes=folder.notes,
        request=request,
    )


def _who_is_last(starts: Starts) -> str:
    """The ranks that others wait for most, with how often and how long."""
    listed = ", ".join(
        f"rank {last.rank} in {last.collectives:,} ({format_time(last.waited_ns * 1000)})"
        for last in starts.last[:_LATE]
    )
    if not starts.last:
        return "No rank is later than the others"
    if not starts.has_durations:
        return (
            "Last to launch by the clocks of the hosts, which may differ, and how much earlier the "
            f"others did, in all: {listed}"
        )
    waited = sum(last.waited_ns for last in starts.last)
    return (
        f"Last to begin, and how long the others waited for them, in all: {listed}. Waits are "
        f"{percent(waited / starts.spent_ns)} of the time in collectives"
    )


def _step_when_complete(starts: Starts) -> str:
    if not starts.collectives:
        return (
            "Have all ranks dump after some steps, with TORCH_NCCL_TRACE_BUFFER_SIZE=2000, and "
            "give their folder."
        )
    if not starts.has_durations:
        return (
            "Record durations by the accelerators' clocks, which tell who is late: "
            "TORCH_NCCL_ENABLE_TIMING=1."
        )
    return (
        f"For what the waits cost and which of them the network causes, add {option('fabric')}; "
        "Kineto traces of all ranks show what late ranks do."
    )


def _headline(hang: Hang) -> str:
    stuck, ranks = hang.collective, some_ranks(hang.ranks)
    what, n = _what(stuck), len(stuck.waiting)
    has, their = ("have", "their accelerators have")
    if len(hang.ranks) == 1:
        has, their = ("has", "its accelerator has")
    if hang.stop == "not-entered":
        text = f"{ranks} {has} not entered {what}"
    elif hang.stop == "no-dump":
        text = f"{ranks} left no readable dump and may not have entered {what}"
    elif hang.stop == "different-calls":
        text = _difference(hang)
    elif hang.stop == "circle" and hang.orders:
        text = f"Ranks launched the same collectives in different orders: {_orders(hang.orders)}"
    elif hang.stop == "circle":
        text = f"{ranks} wait for each other in different orders of collectives, such as {what}"
    elif hang.stop == "not-completed":
        done = sorted(set(stuck.calls) - set(hang.ranks))
        text = f"{ranks} {has} not completed {what}, which {_have_completed(done)}"
    elif hang.stop == "not-started":
        text = f"{ranks} {has} launched {what}, but {their} not begun it"
    else:
        text = f"All ranks have entered {what}, and it does not complete"
    since = f"{counted(n, 'rank')} {'waits' if n == 1 else 'wait'} in it since"
    more = f" {counted(hang.others, 'other collective')} not complete, too." if hang.others else ""
    return f"{text}; {since} {utc(stuck.since_ns)}.{more}"


def _difference(hang: Hang) -> str:
    """Who called what where others called something else."""
    stuck, n = hang.collective, len(hang.collective.group.members)
    if stuck.is_p2p:
        src, dst = stuck.group.members
        sent, received = (_size(stuck.calls[rank], n) for rank in (src, dst))
        return (
            f"Rank {src} sends {sent} to rank {dst} of {stuck.group.label}, which receives "
            f"{received}"
        )
    has = "has" if len(hang.ranks) == 1 else "have"
    call = stuck.calls[hang.ranks[0]]
    usual = next(stuck.calls[rank] for rank in sorted(stuck.calls) if rank not in hang.ranks)
    types = ["", ""]
    if call.element_type != usual.element_type:
        types = [f" ({each.element_type or 'type unknown'})" for each in (call, usual)]
    if sides := _equal_sides(hang):
        called = [
            f"{each.name} of {_size(each, n)}{kind}"
            for each, kind in zip((call, usual), types, strict=True)
        ]
        return (
            f"{some_ranks(sides[0])} called {called[0]} and {some_ranks(sides[1]).lower()} "
            f"{called[1]} as number {stuck.number} of {stuck.group.label} ({counted(n, 'rank')}): "
            "which of them made a call too many or too few, the dumps do not tell"
        )
    return (
        f"{some_ranks(hang.ranks)} {has} called {call.name} of {_size(call, n)}{types[0]} where "
        f"the others called {usual.name} {stuck.number} of {stuck.group.label} "
        f"({counted(n, 'rank')}, {_size(usual, n)}){types[1]}"
    )


def _equal_sides(hang: Hang) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The ranks of the two calls where neither has a majority; None if one has."""
    stuck = hang.collective
    others = tuple(sorted(set(stuck.calls) - set(hang.ranks)))
    is_tie = hang.stop == "different-calls" and len(hang.ranks) >= len(others)
    return (hang.ranks, others) if is_tie and not stuck.is_p2p else None


def _orders(orders: tuple[LaunchOrder, ...]) -> str:
    return ", ".join(
        f"rank {each.rank} {_what(each.first)} before {_what(each.second)}"
        for each in orders[:_NAMED]
    )


def _have_completed(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    return f"the {len(ranks)} others have"


def _next_step(hang: Hang) -> str:
    ranks = some_ranks(hang.ranks)
    last = hang.last.get(hang.ranks[0])
    done = f" The last call of rank {hang.ranks[0]} was {_called(last)}." if last else ""
    if sides := _equal_sides(hang):
        ends = [(side[0], hang.last.get(side[0])) for side in sides]
        done = "".join(
            f" The last call of rank {rank} was {_called(call)}." for rank, call in ends if call
        )
    if hang.stop == "not-entered":
        return (
            "Look at what the process does (its log, py-spy dump), and at its host and accelerator."
            f"{done}"
        )
    if hang.stop == "different-calls":
        what = "all ranks of a group call the same collectives in the same order and size"
        if hang.collective.is_p2p:
            what = "a receive is of the size of its send, and they follow in one order"
        return f"Correct the program: {what}.{done}"
    return {
        "no-dump": f"Give the dumps of {ranks[:1].lower()}{ranks[1:]}; if there are none, look at "
        "these processes and their hosts first: one that died or is stuck leaves none.",
        "circle": "Correct the program: ranks that share two groups must call their collectives in "
        "one order; sends and receives that cross belong into one batch_isend_irecv.",
        "not-completed": "Look at the accelerators and adapters of these ranks: Xid errors "
        "(dmesg), errors of their ports (tailback counters), their processes (py-spy dump).",
        "not-started": "Look at what these accelerators run before it: a kernel that does not end, "
        "or a collective of another group.",
        "within": "Look at the network and the accelerators: errors of ports (tailback counters), "
        "Xid errors (dmesg), NCCL_DEBUG=INFO.",
    }[hang.stop]


def _what(stuck: OpenCollective) -> str:
    n = len(stuck.group.members)
    if stuck.is_p2p:
        src, dst = stuck.group.members
        return f"the message from rank {src} to rank {dst} ({_size(stuck.first, n)})"
    return (
        f"{stuck.first.name} {stuck.number} of {stuck.group.label} ({counted(n, 'rank')}, "
        f"{_size(stuck.first, n)})"
    )


def _called(call: Operation) -> str:
    where = f" at {call.called_from}" if call.called_from else ""
    return f"{call.name} {call.number}{where}, launched {utc(call.created_ns)}"


def _size(call: Operation, n: int) -> str:
    nbytes = call.buffer_bytes(n)
    return format_bytes(nbytes) if nbytes else "size unknown"


def some_ranks(ranks: tuple[int, ...]) -> str:
    """Ranks as the begin of a sentence."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    listed = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"Ranks {listed}{more}"
