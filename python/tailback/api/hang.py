"""Who holds up a training run that hangs: ``tb.diagnose_hang``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailback.api.stored_result import StoredResult
from tailback.errors import known_keywords
from tailback.inference.stuck_collectives import Hang, OpenCollective, Stop, find_hang
from tailback.io.input_files import recording_files
from tailback.sources.request import DiagnosisRequest
from tailback.traffic.nccl.pytorch_names import buffer_elements, call_of, letters_of
from tailback.traffic.readers.flight_recorder import reader
from tailback.traffic.readers.flight_recorder.dump import Operation
from tailback.units import counted, format_bytes, utc

_NAMED: Final = 8
"""Ranks that a sentence names."""


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


@known_keywords()
def diagnose_hang(dumps: str | Path) -> HangResult | None:
    """Find the ranks that hold up a training run, from dumps of PyTorch's Flight Recorder.

    Args:
        dumps: Folder with the dumps of all ranks, ``nccl_trace_rank_<N>`` as pickle or JSON.

    Returns:
        The collective that does not complete, and who holds it up; None if all are complete.

    Raises:
        TraceError: A dump is damaged.

    Example:
        >>> tb.diagnose_hang("dumps/").headline
    """
    path = Path(dumps)
    with recording_files() as read:
        of_rank = reader.read_dumps(path)
    hang = find_hang(of_rank)
    if hang is None:
        return None
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
        size_bytes=_bytes(stuck.first, len(stuck.group.members)),
        since_ns=stuck.since_ns,
        others=hang.others,
        dumps=len(of_rank),
        request=DiagnosisRequest.of([path], read, {}),
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
        text = f"{ranks} left no dump and may not have entered {what}"
    elif hang.stop == "different-calls":
        other = stuck.calls[hang.ranks[0]]
        called = f"{other.name} of {_size(other, len(stuck.group.members))}"
        text = f"{ranks} {has} called {called} where the others called {what}"
    elif hang.stop == "circle":
        text = f"{ranks} wait for each other in different orders of collectives, such as {what}"
    elif hang.stop == "not-started":
        text = f"{ranks} {has} launched {what}, but {their} not begun it"
    else:
        text = f"All ranks have entered {what}, and it does not complete"
    since = f"{counted(n, 'rank')} {'waits' if n == 1 else 'wait'} in it since"
    more = f" {counted(hang.others, 'other collective')} not complete, too." if hang.others else ""
    return f"{text}; {since} {utc(stuck.since_ns)}.{more}"


def _next_step(hang: Hang) -> str:
    ranks = some_ranks(hang.ranks)
    last = hang.last.get(hang.ranks[0])
    done = f" The last call of rank {hang.ranks[0]} was {_called(last)}." if last else ""
    if hang.stop == "not-entered":
        return (
            "Look at what the process does (its log, py-spy dump), and at its host and accelerator."
            f"{done}"
        )
    if hang.stop == "different-calls":
        return (
            "Correct the program: all ranks of a group call the same collectives in the same order "
            f"and size.{done}"
        )
    return {
        "no-dump": f"Give the dumps of {ranks[:1].lower()}{ranks[1:]}; if there are none, look at "
        "these processes and their hosts first: one that died or is stuck leaves none.",
        "circle": "Correct the program: ranks that share two groups must call their collectives in "
        "one order.",
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
    nbytes = _bytes(call, n)
    return format_bytes(nbytes) if nbytes else "size unknown"


def _bytes(call: Operation, n: int) -> int:
    name = call_of(letters_of(call.name))
    if name is None:
        return 0
    return buffer_elements(name, call.into, call.out, n) * call.element_bytes


def some_ranks(ranks: tuple[int, ...]) -> str:
    """Ranks as the begin of a sentence."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    listed = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"Ranks {listed}{more}"
