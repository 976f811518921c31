"""From the lines of a time-independent trace to a rank program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.available import available_memory
from tailback.errors import TraceError, nearest, option
from tailback.io.delimited import NotUsed, shown
from tailback.traffic.collectives_of_counts import Counts
from tailback.traffic.program import Label, Program, require_memory
from tailback.traffic.readers.assembly import LATE, Computes, ImpliedWaits, compile_posts
from tailback.traffic.readers.collective_posts import Calls, collective_posts
from tailback.traffic.readers.posts import (
    UNKNOWN,
    Posts,
    dense,
    guess_sources,
    index_within_group,
)
from tailback.traffic.readers.simgrid.collectives import (
    OPERATIONS,
    TYPE_BYTES,
    CollectiveLine,
    OtherRanksError,
    parse,
)
from tailback.traffic.readers.text_lines import Text
from tailback.units import LONGEST_PS

FLOPS_PER_SECOND = 1e9
"""Assumed rate of computation: flops in a trace do not depend on a machine."""

_PS_PER_FLOP = round(1e12 / FLOPS_PER_SECOND)
_POSTS = (
    "MPI_Send",
    "MPI_Ssend",
    "MPI_Bsend",
    "MPI_Recv",
    "MPI_Isend",
    "MPI_Issend",
    "MPI_Ibsend",
    "MPI_Irecv",
    "MPI_Sendrecv",
)
"""Names of the calls that post a message, in the order of their numbers."""
_KNOWN = (
    "send",
    "recv",
    "isend",
    "irecv",
    "sendrecv",
    "init",
    "finalize",
    "compute",
    "sleep",
    "wait",
    "waitall",
    "waitany",
    "waitsome",
    "test",
    "testall",
    "testany",
    "probe",
    "iprobe",
    "comm_size",
    "comm_split",
    "comm_dup",
    *OPERATIONS,
    *(f"i{name}" for name in OPERATIONS),
)
"""Calls to suggest for an unknown one."""
_DAMAGED = "the trace is damaged, or of another version: copy it again or record it again"
_CUT = "the trace is cut short: copy it again, or record it again and let the program end normally"


def compile_text(text: Text, path: Path) -> Program:
    """Compile the lines of all ranks; raises TraceError for an invalid one.

    Args:
        text: All files.
        path: Path of the trace, for its name and for errors.
    """
    decoded = _decode_text(text, path)
    n_ranks = decoded["n_ranks"]
    computes, collectives = decoded["computes"], decoded["collectives"]
    calls = len(decoded["posts"]["rank"]) + len(computes["rank"]) + len(collectives["rank"])
    try:
        require_memory(
            2 * calls,
            available_memory(),
            what="the trace",
            error=TraceError,
            remedy="record a shorter run",
        )
    except TraceError as error:
        raise error.located(path) from None
    group, after = _collectives(text, decoded)
    # Free the text, which is as large as the result.
    text.data.clear()
    notes: list[str] = []
    labels = [Label(f"tag {tag}", _POSTS[call], tag) for call, tag in decoded["labels"]]
    posts = _point_to_point(decoded, notes)
    _note_calls(decoded, notes)
    _note_collectives(decoded, group, notes)
    channels, posts.channel = dense(posts.channel)
    members = {0: np.arange(n_ranks)}
    taken = _label_calls(group, labels)
    expanded = collective_posts(
        taken, list(OPERATIONS.values()), members, len(channels), path, group.counts
    )
    every = decoded["waitalls"]
    none = np.full(len(every["rank"]), -1)
    waits = ImpliedWaits(every["rank"], 2 * every["row"] + 1, none)
    busy = Computes(computes["rank"], 2 * computes["row"], computes["ps"])
    decoded.clear()
    everything = Posts.join([posts, expanded])
    del posts, expanded
    if len(after.rank):
        busy = Computes(*(np.concatenate(pair) for pair in zip(busy, after, strict=True)))
    name = (path if path.is_dir() else path.parent / path.name.split(".")[0]).name
    if len(busy.rank):
        notes.append(
            f"computation is in flops, taken at {FLOPS_PER_SECOND / 1e9:g} Gflop/s: for a machine "
            f"of F Gflop/s use {option('compute_scale')} with 1/F"
        )
    return compile_posts(name, n_ranks, everything, labels, waits, busy, notes)


def _decode_text(text: Text, path: Path) -> dict[str, Any]:
    """The calls of all ranks as columns."""
    try:
        return _core.read_simgrid_ti(text.data, list(TYPE_BYTES), _PS_PER_FLOP, LONGEST_PS)
    except ValueError as error:
        raise _decode_error(text, path, *error.args) from None


def _decode_error(
    text: Text, path: Path, kind: str, row: int, detail: str, number: int, limit: float
) -> TraceError:
    """The error for a line or file that cannot be decoded."""
    match kind:
        case "empty":
            return TraceError("holds no call", file=path, remedy=_DAMAGED)
        case "missing":
            return TraceError(
                f"holds lines of rank {detail}, and none of rank {number}",
                file=path,
                remedy="copy the files of all ranks, or name the index file beside their folder",
            )
        case "large":
            return TraceError(
                "has more lines than Tailback can number", file=path, remedy="record a shorter run"
            )
        case "unknown":
            return text.fault(
                row,
                f"unknown call in {text.quoted(row)}",
                f"{nearest(detail, _KNOWN)}; or {_DAMAGED}",
            )
        case "twice":
            remedy = "the files are of several traces: name one, or its index file"
            return text.fault(row, f"rank {number} begins a second time", remedy)
        case "no-call":
            return text.fault(row, f"{text.quoted(row)} names no call", _CUT)
        case "unfinished":
            return text.fault(row, f"rank {number} has no finalize after this", _CUT)
        case "lacks":
            return text.fault(row, f"{text.quoted(row)} has no {detail}", _CUT)
    what, _, word = detail.partition(" ")
    messages = {
        "no-rank": f"{text.quoted(row)} does not begin with a rank",
        "not-whole": f"{what} {shown(word)} is not a whole number",
        "not-count": f"{what} {shown(word)} is not a number from 0 to {limit:g}",
        "no-type": f"the type {shown(detail)} is not one of 0 to {len(TYPE_BYTES) - 1}",
        "beyond": f"names rank {number}, but the trace has {detail} ranks, from 0",
    }
    return text.fault(row, messages[kind], _DAMAGED)


def _point_to_point(decoded: dict[str, Any], notes: list[str]) -> Posts:
    """Sends and receives, with the waits that name them."""
    if decoded["proc_null"]:
        notes.append(f"{decoded['proc_null']} sends and receives of MPI_PROC_NULL move nothing")
    columns = decoded.pop("posts")
    n = len(columns["rank"])
    posts = Posts(
        thread=np.zeros(n, np.int64),
        wait_step=np.full(n, LATE),
        collective=np.zeros(n, np.bool_),
        **columns,
    )
    guessed, even = guess_sources(posts, decoded["n_ranks"])
    if guessed:
        notes.append(
            f"{guessed} receives from any source or with any tag: matched to the messages no other "
            "receive takes, in the order of waits"
            + ("" if even else "; streams differ in length, so the order of the run may be another")
        )
    return posts


def _note_calls(decoded: dict[str, Any], notes: list[str]) -> None:
    """Note calls whose messages or completions the trace does not record."""
    if decoded["left_out"]:
        notes.append(NotUsed(f"{decoded['left_out']} one-sided and persistent calls are left out"))
    if decoded["unnamed_completions"]:
        calls = decoded["unnamed_completions"]
        notes.append(
            f"{calls} calls of MPI_Test, MPI_Waitany and the like do not record what "
            "they completed: it is waited for by the next MPI_Wait or MPI_Waitall that does, or at "
            "the end"
        )


class _CollectiveGroup(NamedTuple):
    """Collectives of all ranks.

    Attributes:
        calls: One row per rank and call; labels are not set.
        blocking: Whether each call blocks, shape (C,).
        agree: Whether all ranks take part with the same call and root, shape (C,).
        counts: Vectors of counts.
    """

    calls: Calls
    blocking: NDArray[np.bool_]
    agree: NDArray[np.bool_]
    counts: list[Counts]


def _collectives(text: Text, decoded: dict[str, Any]) -> tuple[_CollectiveGroup, Computes]:
    """The collectives, and the computation after them."""
    n_ranks, columns = decoded["n_ranks"], decoded["collectives"]
    index, rank, row = columns["kind"], columns["rank"], columns["row"]
    kinds = decoded["kinds"]
    parsed = _parse_each(text, kinds, n_ranks, decoded["default_bytes"])
    fits = np.array([line is not None for line in parsed], np.bool_)[index]
    table = [line or CollectiveLine() for line in parsed]
    operation = np.array([kind[0] for kind in kinds], np.int64)[index]
    blocking = np.array([kind[1] for kind in kinds], np.bool_)[index]
    root, sent, received, flops = (
        np.array([getattr(line, field) for line in table], np.int64)[index]
        for field in ("root", "sent", "received", "flops")
    )
    vectors = [line.counts for line in table if line.counts is not None]
    number = np.cumsum([line.counts is not None for line in table]) - 1
    has = np.array([line.counts is not None for line in table], np.bool_)
    counts = np.where(has, number, -1)[index] if len(table) else np.zeros(0, np.int64)
    # Blocking and non-blocking collectives never match one another.
    stream = 2 * index_within_group(2 * rank + blocking) + blocking
    agree = _agree(stream, fits, operation, root, n_ranks)
    zeros = np.zeros(len(row), np.int64)
    calls = Calls(
        rank=rank,
        thread=zeros,
        position=2 * row,
        wait_position=np.where(blocking, 2 * row, UNKNOWN),
        comm=zeros,
        instance=stream,
        label=zeros,
        operation=operation,
        size=np.full(len(row), n_ranks),
        me=rank,
        root=root,
        sent=sent,
        received=received,
        counts=counts,
    )
    some = np.flatnonzero(flops > 0)
    some = some[np.argsort(row[some], kind="stable")] if len(text.files) == 1 else some
    too_long = flops[some] > LONGEST_PS // _PS_PER_FLOP
    if too_long.any():
        at = int(row[some][too_long][0])
        raise text.fault(at, f"computes too long in {text.quoted(at)}", _DAMAGED)
    ps = (flops[some] * _PS_PER_FLOP).astype(np.uint64)
    return _CollectiveGroup(calls, blocking, agree, vectors), Computes(
        rank[some], 2 * row[some] + 1, ps
    )


def _label_calls(group: _CollectiveGroup, labels: list[Label]) -> Calls:
    """The calls that all ranks take part in, with their labels."""
    calls = group.calls
    names = list(OPERATIONS.values())
    kind = 2 * calls.operation + ~group.blocking
    numbers = np.zeros(2 * len(names), np.int64)
    for key in np.unique(kind).tolist():
        name = names[key // 2]
        call = f"MPI_I{name[4:].lower()}" if key % 2 else name
        numbers[key] = len(labels)
        labels.append(Label(call, call))
    many = group.agree if int(calls.size.max(initial=0)) > 1 else np.zeros(len(kind), np.bool_)
    return replace(calls, label=numbers[kind]).take(many)


def _parse_each(
    text: Text, kinds: list[tuple[int, bool, int, str, int]], n_ranks: int, default: int
) -> list[CollectiveLine | None]:
    """Arguments of the distinct calls, None for those of other communicators."""
    names = list(OPERATIONS)
    parsed: list[CollectiveLine | None] = []
    for operation, _, me, arguments, row in kinds:
        try:
            parsed.append(parse(names[operation], arguments, n_ranks, me, default))
        except OtherRanksError:
            parsed.append(None)
        except ValueError as error:
            message = f"{error} in {text.quoted(row)}"
            raise text.fault(row, message, _DAMAGED) from None
    return parsed


def _agree(
    stream: NDArray[np.int64],
    fits: NDArray[np.bool_],
    operation: NDArray[np.int64],
    root: NDArray[np.int64],
    n_ranks: int,
) -> NDArray[np.bool_]:
    """Whether all ranks take part in the collective of a row with the same call and root."""
    n = int(stream.max(initial=-1)) + 1
    what = operation * n_ranks + root
    low, high = np.full(n, 2**62), np.full(n, -1)
    np.minimum.at(low, stream, what)
    np.maximum.at(high, stream, what)
    right = (np.bincount(stream[fits], minlength=n) == n_ranks) & (low == high)
    return np.asarray(right[stream], np.bool_)


def _note_collectives(decoded: dict[str, Any], group: _CollectiveGroup, notes: list[str]) -> None:
    stream = group.calls.instance
    if not group.agree.all():
        notes.append(
            NotUsed(
                f"{len(np.unique(stream[~group.agree]))} collectives that differ between ranks are "
                "left out: they may belong to smaller communicators, which this format does not "
                "name"
            )
        )
    elif len(stream) and decoded["splits"]:
        notes.append(
            "the trace creates communicators but does not record which collectives use them: all "
            "are assumed to be on MPI_COMM_WORLD"
        )
