"""From the lines of a time-independent trace to a rank program."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.available import available_memory
from tailback.errors import TraceError, nearest
from tailback.traffic.collectives_of_counts import Counts
from tailback.traffic.program import Label, Program, require_room
from tailback.traffic.readers.assembly import LATE, Computes, ImpliedWaits, compile_posts
from tailback.traffic.readers.collective_posts import Calls, collective_posts
from tailback.traffic.readers.posts import UNKNOWN, Posts, guess_sources, index_within_group
from tailback.traffic.readers.simgrid_ti_collectives import (
    OPERATIONS,
    Collective,
    OtherRanksError,
    parse,
    type_bytes,
)
from tailback.traffic.readers.text_lines import Lines
from tailback.units import LONGEST_PS

FLOPS_PER_SECOND = 1e9
"""Rate at which the computation of a trace is taken to run: its flops are those of no machine."""

_PS_PER_FLOP = round(1e12 / FLOPS_PER_SECOND)
_POSTS = {
    "send": "MPI_Send", "ssend": "MPI_Ssend", "bsend": "MPI_Bsend", "recv": "MPI_Recv",
    "isend": "MPI_Isend", "issend": "MPI_Issend", "ibsend": "MPI_Ibsend", "irecv": "MPI_Irecv",
    "sendrecv": "MPI_Sendrecv",
}  # fmt: skip
_TESTS = ("test", "testall", "testany", "testsome")
_SILENT = (*_TESTS, "init", "finalize", "comm_size", "comm_split", "comm_dup", "probe", "iprobe",
           "location", "iteration_in", "iteration_out", "io")  # fmt: skip
_FOR_ONE = ("waitany", "waitsome")
_COLLECTIVES = (*OPERATIONS, *(f"i{name}" for name in OPERATIONS))
_ONE_SIDED = ("put", "get", "accumulate", "get_accumulate", "fetch_and_op", "compare_and_swap",
              "rput", "rget", "raccumulate", "rget_accumulate")  # fmt: skip
_LEFT_OUT = (*_ONE_SIDED, "start", "startall")
_WINDOWS = "win_"
_KNOWN = (*_POSTS, *_LEFT_OUT, *_SILENT, *_FOR_ONE, *_COLLECTIVES,
          "wait", "waitall", "compute", "sleep")  # fmt: skip
_NOBODY, _ANY_TAG = -666, -444
"""MPI_PROC_NULL and MPI_ANY_TAG of SimGrid; any other negative source is MPI_ANY_SOURCE."""
_DAMAGED = "the trace is damaged, or of another version: copy it again or record it again"
_CUT = "the trace is cut short: copy it again, or record it again and let the program end normally"


def compile_lines(lines: Lines, path: Path) -> Program:
    """Compile the lines of all ranks; raises TraceError for one that does not fit.

    Args:
        lines: Lines of all files.
        path: What to call the trace, for its name and for errors.
    """
    calls = _table(lines)
    n_ranks = _count_ranks(lines, calls, path)
    try:
        require_room(2 * len(calls), available_memory(), what="the trace", error=TraceError,
                     remedy="record a shorter run")  # fmt: skip
    except TraceError as error:
        raise error.located(path) from None
    notes: list[str] = []
    labels: dict[Label, int] = {}
    default = 8 if calls.filter(pl.col("op") == "init")["rest"].is_not_null().any() else 1
    posts = _point_to_point(lines, calls, n_ranks, default, labels, notes)
    _note_calls(calls, notes)
    channels, posts.channel = np.unique(posts.channel, return_inverse=True)
    group, flops = _collectives(lines, calls, n_ranks, default, labels, notes)
    expanded = collective_posts(
        group.calls, list(OPERATIONS.values()), {0: np.arange(n_ranks)}, len(channels), path,
        group.counts,
    )  # fmt: skip
    everything = Posts.join([posts, expanded])
    computes = _computes(lines, calls, flops)
    name = (path if path.is_dir() else path.parent / path.name.split(".")[0]).name
    if len(computes.rank):
        notes.append(
            f"computation is in flops, taken at {FLOPS_PER_SECOND / 1e9:g} Gflop/s: for a machine "
            "of F Gflop/s use --compute-scale 1/F"
        )
    return compile_posts(name, n_ranks, everything, list(labels), _waitalls(calls), computes, notes)


def _table(lines: Lines) -> pl.DataFrame:
    """Row, rank, call in lower case and arguments of each line, rank after rank."""
    text = lines.text
    if text.str.contains(r"\t|  ").any():
        text = text.str.replace_all(r"[ \t]+", " ")
    table = (
        pl.DataFrame({"row": np.arange(len(text)), "line": text})
        .filter(pl.col("line").is_not_null() & ~pl.col("line").str.starts_with("#"))
        .with_columns(pl.col("line").str.splitn(" ", 3).struct.rename_fields(["who", "op", "rest"]))
        .unnest("line")
        .with_columns(
            pl.col("who").str.strip_prefix("p").cast(pl.Int64, strict=False).alias("rank"),
            pl.col("op").str.to_lowercase(),
        )
    )
    odd = table.filter(pl.col("rank").is_null() | (pl.col("rank") < 0))
    if len(odd):
        row = int(odd["row"][0])
        raise lines.fault(row, f"{lines.quoted(row)} does not begin with a rank", _DAMAGED)
    known = pl.col("op").is_in(_KNOWN) | pl.col("op").str.starts_with(_WINDOWS)
    odd = table.filter(~known | pl.col("op").is_null())
    if len(odd):
        row, op = int(odd["row"][0]), odd["op"][0]
        if op is None:
            raise lines.fault(row, f"{lines.quoted(row)} names no call", _CUT)
        raise lines.fault(
            row, f"unknown call in {lines.quoted(row)}", f"{nearest(op, _KNOWN)}; or {_DAMAGED}"
        )
    return _with_both_sides(table.drop("who")).sort("rank", "row", "side").drop("side")


def _with_both_sides(table: pl.DataFrame) -> pl.DataFrame:
    """The lines with a receive and a send in place of each MPI_Sendrecv, which has tag 0."""
    table = table.with_columns(side=pl.lit(1))
    both = pl.col("op") == "sendrecv"
    names = ["sent", "to", "received", "source", "sent_type", "received_type"]
    split = table.filter(both).with_columns(
        pl.col("rest").str.splitn(" ", 6).struct.rename_fields(names)
    )
    if not len(split):
        return table.with_columns(is_send=pl.col("op").str.ends_with("send"))
    split = split.unnest("rest")
    sides = []
    for side, (peer, count, kind) in enumerate(
        (("source", "received", "received_type"), ("to", "sent", "sent_type"))
    ):
        rest = pl.concat_str([pl.col(peer), pl.lit("0"), pl.col(count)], separator=" ")
        rest = pl.concat_str([rest, pl.lit(" "), pl.col(kind).fill_null("")])
        sides.append(split.select("row", "op", rest.alias("rest"), "rank", side=pl.lit(side),
                                  is_send=pl.lit(side == 1)))  # fmt: skip
    alone = table.filter(~both).with_columns(is_send=pl.col("op").str.ends_with("send"))
    return pl.concat([alone, *sides])


def _count_ranks(lines: Lines, calls: pl.DataFrame, path: Path) -> int:
    """Number of ranks; every one must have its lines, from init to finalize."""
    if not len(calls):
        raise TraceError("holds no call", file=path, remedy=_DAMAGED)
    ranks = calls["rank"].unique().sort().to_numpy()
    gap = np.flatnonzero(ranks != np.arange(len(ranks)))
    if len(gap):
        missing = int(gap[0])
        raise TraceError(
            f"holds lines of rank {int(ranks[-1])}, and none of rank {missing}", file=path,
            remedy="copy the files of all ranks, or name the index file beside their folder",
        )  # fmt: skip
    begins = calls.filter(pl.col("op") == "init")
    twice = begins.filter(pl.col("rank").is_duplicated())
    if len(twice):
        row = int(twice["row"][1])
        raise lines.fault(
            row, f"rank {twice['rank'][1]} begins a second time",
            "the files are of several traces: name one, or its index file",
        )  # fmt: skip
    ended = np.zeros(len(ranks), np.bool_)
    ended[calls.filter(pl.col("op") == "finalize")["rank"].to_numpy()] = True
    if not ended.all():
        rank = int(np.flatnonzero(~ended)[0])
        row = int(calls.filter(pl.col("rank") == rank)["row"][-1])
        raise lines.fault(row, f"rank {rank} has no finalize after this", _CUT)
    return len(ranks)


def _point_to_point(
    lines: Lines, calls: pl.DataFrame, n_ranks: int, default: int, labels: dict[Label, int],
    notes: list[str],
) -> Posts:  # fmt: skip
    """Sends and receives, with the waits that name them."""
    mine = calls.filter(pl.col("op").is_in(list(_POSTS)))
    mine = mine.with_columns(
        pl.col("rest").str.splitn(" ", 4).struct.rename_fields(["peer", "tag", "size", "type"])
    ).unnest("rest")
    peer, tag = (_integers(lines, mine, column) for column in ("peer", "tag"))
    is_send = mine["is_send"].to_numpy()
    anyone = ~is_send & ((peer < 0) & (peer != _NOBODY) | (tag == _ANY_TAG))
    wrong = ~anyone & (peer != _NOBODY) & ((peer < 0) | (peer >= n_ranks))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise lines.fault(
            int(mine["row"][at]), f"names rank {peer[at]} of a trace of {n_ranks} ranks", _DAMAGED
        )
    size = _sizes(lines, mine, default)
    row = mine["row"].to_numpy()
    op = mine["op"].to_list()
    nobody = peer == _NOBODY
    if nobody.any():
        notes.append(f"{int(nobody.sum())} sends and receives of MPI_PROC_NULL move nothing")
    blocking = ~mine["op"].str.starts_with("i").to_numpy()
    wait = _named_waits(lines, calls, mine["rank"].to_numpy(), peer, tag, is_send, row)
    wait = np.where(blocking, 2 * row + 1, np.where(wait >= 0, 2 * wait + 1, UNKNOWN))
    zeros = np.zeros(len(row), np.int64)
    posts = Posts(
        rank=mine["rank"].to_numpy(), thread=zeros, position=2 * row, step=is_send.astype(np.int64),
        is_send=is_send, peer=np.where(anyone, UNKNOWN, peer), channel=tag, size=size,
        label=zeros.copy(), wait_position=wait, wait_step=np.full(len(row), LATE),
        collective=np.zeros(len(row), np.bool_), peer_known=~anyone & (is_send | (size > 0)),
    ).take(~nobody)  # fmt: skip
    guessed, even = guess_sources(posts, n_ranks)
    if guessed:
        notes.append(
            f"{guessed} receives from any source or with any tag: matched to the messages no other "
            "receive takes, evenly interleaved"
            + ("" if even else "; streams differ in length, so the order of the run may be another")
        )
    names = pl.Series(op).filter(pl.Series(~nobody))
    posts.label = _labels(names, posts.channel, labels)
    return posts


def _note_calls(calls: pl.DataFrame, notes: list[str]) -> None:
    """Count calls whose messages, or whose completion, the trace does not tell."""
    silent = len(calls.filter(pl.col("op").is_in(_LEFT_OUT)))
    if silent:
        notes.append(f"{silent} one-sided and persistent calls are left out")
    tests = len(calls.filter(pl.col("op").is_in([*_TESTS, *_FOR_ONE])))
    if tests:
        notes.append(
            f"{tests} calls of MPI_Test, MPI_Waitany and the like do not record what they "
            f"completed: it is waited for by the next MPI_Wait or MPI_Waitall, or at the end"
        )


def _labels(op: pl.Series, tag: NDArray[np.int64], labels: dict[Label, int]) -> NDArray[np.int64]:
    """Number of the label of each send and receive."""
    table = pl.DataFrame({"op": op, "tag": tag})
    kinds = table.unique(maintain_order=True)
    numbers = [
        labels.setdefault(Label(f"tag {number}", _POSTS[name], number), len(labels))
        for name, number in kinds.iter_rows()
    ]
    kinds = kinds.with_columns(pl.Series("label", numbers, pl.Int64))
    joined = table.join(kinds, on=["op", "tag"], how="left", maintain_order="left")
    return joined["label"].to_numpy().copy()


def _integers(lines: Lines, table: pl.DataFrame, column: str) -> NDArray[np.int64]:
    """A column of whole numbers; of 32 bits, as MPI's are."""
    values = table[column].cast(pl.Int32, strict=False)
    if values.null_count():
        at = int(values.is_null().arg_max() or 0)
        row, text = int(table["row"][at]), table[column][at]
        if text is None:
            raise lines.fault(row, f"{lines.quoted(row)} has no {column}", _CUT)
        raise lines.fault(row, f"{column} {text!r} is not a whole number", _DAMAGED)
    return np.asarray(values.cast(pl.Int64).to_numpy(), np.int64)


def _sizes(lines: Lines, table: pl.DataFrame, default: int) -> NDArray[np.uint64]:
    """Bytes of each send and receive; 0 for a receive that does not know its size."""
    count = _counts(lines, table, "size", lower=-1.0)
    width = np.zeros(len(table), np.int64)
    types = table["type"].fill_null("")
    for number in types.unique().to_list():
        mine = (types == number).to_numpy()
        try:
            width[mine] = type_bytes(number.strip(), default)
        except ValueError as error:
            row = int(table["row"][int(np.flatnonzero(mine)[0])])
            raise lines.fault(row, str(error), _DAMAGED) from None
    return (np.maximum(count, 0) * width).astype(np.uint64)


def _counts(
    lines: Lines, table: pl.DataFrame, column: str, lower: float = 0.0, most: float = 2.0**53
) -> NDArray[np.int64]:
    """A column of counts, which may be written like ``1e6``."""
    values = table[column].cast(pl.Float64, strict=False).to_numpy()
    wrong = ~((values >= lower) & (values <= most))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        row, text = int(table["row"][at]), table[column][at]
        if text is None:
            raise lines.fault(row, f"{lines.quoted(row)} has no {column}", _CUT)
        raise lines.fault(row, f"{column} {text!r} is not a number from 0 to {most:g}", _DAMAGED)
    return np.asarray(np.rint(values), np.int64)


def _named_waits(
    lines: Lines, calls: pl.DataFrame, rank: NDArray[np.int64], peer: NDArray[np.int64],
    tag: NDArray[np.int64], is_send: NDArray[np.bool_], row: NDArray[np.int64],
) -> NDArray[np.int64]:  # fmt: skip
    """Row of the wait for each send and receive, -1 without one.

    A wait names source, destination and tag, and takes the oldest such request; a wait for all
    takes all that are open.
    """
    waits = calls.filter(pl.col("op") == "wait")
    out = np.full(len(row), -1, np.int64)
    if not len(waits):
        return out
    waits = waits.with_columns(
        pl.col("rest").str.splitn(" ", 3).struct.rename_fields(["source", "destination", "tag"])
    ).unnest("rest")
    triple = [_integers(lines, waits, name) for name in ("source", "destination", "tag")]
    every = np.sort(calls.filter(pl.col("op") == "waitall")["row"].to_numpy())
    keys = [
        np.stack([who, source, target, number, np.searchsorted(every, at)])
        for who, source, target, number, at in (
            (rank, np.where(is_send, rank, peer), np.where(is_send, peer, rank), tag, row),
            (waits["rank"].to_numpy(), *triple, waits["row"].to_numpy()),
        )
    ]
    _, key = np.unique(np.concatenate(keys, axis=1), axis=1, return_inverse=True)
    key = key.reshape(-1)
    n = len(row)
    turn = np.concatenate([index_within_group(key[:n]), index_within_group(key[n:])])
    width = int(turn.max()) + 1
    slot = key * width + turn
    order = np.argsort(slot[n:])
    at = np.minimum(np.searchsorted(slot[n:][order], slot[:n]), len(order) - 1)
    found = slot[n:][order][at] == slot[:n]
    wait_row = waits["row"].to_numpy()[order[at]]
    found &= wait_row > row
    out[found] = wait_row[found]
    return out


class _Group(NamedTuple):
    """Collectives of all ranks that fit together, and their vectors of counts."""

    calls: Calls
    counts: list[Counts]


def _collectives(
    lines: Lines, calls: pl.DataFrame, n_ranks: int, default: int, labels: dict[Label, int],
    notes: list[str],
) -> tuple[_Group, pl.DataFrame]:  # fmt: skip
    """The collectives, and row, rank and flops of the computation after them."""
    mine = calls.filter(pl.col("op").is_in(_COLLECTIVES)).with_columns(pl.col("rest").fill_null(""))
    parsed, index = _parse_each(lines, mine, n_ranks, default)
    fits = np.array([one is not None for one in parsed], np.bool_)[index]
    table = [one or Collective() for one in parsed]
    blocking = mine["op"].is_in(list(OPERATIONS)).to_numpy()
    names = list(OPERATIONS)
    op = mine["op"].to_list()
    operation = np.array([names.index(n if n in OPERATIONS else n[1:]) for n in op], np.int64)
    root, sent, received, flops = (
        np.array([getattr(one, field) for one in table], np.int64)[index]
        for field in ("root", "sent", "received", "flops")
    )
    vectors = [one.counts for one in table if one.counts is not None]
    number = np.cumsum([one.counts is not None for one in table]) - 1
    has = np.array([one.counts is not None for one in table], np.bool_)
    counts = np.where(has, number, -1)[index] if len(table) else np.zeros(0, np.int64)
    rank, row = mine["rank"].to_numpy(), mine["row"].to_numpy()
    # Blocking and non-blocking collectives never match one another.
    stream = 2 * index_within_group(2 * rank + blocking) + blocking
    agree = _agree(stream, fits, operation, root, n_ranks)
    _note_collectives(calls, stream, agree, notes)
    label = np.zeros(len(row), np.int64)
    for name in set(op):
        call = OPERATIONS[name] if name in OPERATIONS else f"MPI_I{name[1:]}"
        at = labels.setdefault(Label(call, call), len(labels))
        label[(mine["op"] == name).to_numpy()] = at
    zeros = np.zeros(len(row), np.int64)
    columns = Calls(
        rank=rank, thread=zeros, position=2 * row,
        wait_position=np.where(blocking, 2 * row, UNKNOWN), comm=zeros, instance=stream,
        label=label, operation=operation, size=np.full(len(row), n_ranks), me=rank, root=root,
        sent=sent, received=received, counts=counts,
    )  # fmt: skip
    many = agree if n_ranks > 1 else np.zeros(len(row), np.bool_)
    after = pl.DataFrame({"row": row, "rank": rank, "flops": flops}).filter(pl.col("flops") > 0)
    return _Group(columns.take(many), vectors), after


def _parse_each(
    lines: Lines, mine: pl.DataFrame, n_ranks: int, default: int
) -> tuple[list[Collective | None], NDArray[np.int64]]:
    """Arguments of the different lines, None for those of other communicators, and their index."""
    # Only at the root do lines of the same arguments mean another thing.
    named = mine.with_columns(
        pl.when(pl.col("op").is_in(["gatherv", "scatterv", "igatherv", "iscatterv"]))
        .then(pl.col("rank")).otherwise(0).alias("me")
    )  # fmt: skip
    kinds = named.unique(["op", "rest", "me"], keep="first", maintain_order=True)
    parsed: list[Collective | None] = []
    for op, rest, me, row in kinds.select("op", "rest", "me", "row").iter_rows():
        name = op if op in OPERATIONS else op[1:]
        try:
            parsed.append(parse(name, rest, n_ranks, me, default))
        except OtherRanksError:
            parsed.append(None)
        except ValueError as error:
            message = f"{error} in {lines.quoted(row)}"
            raise lines.fault(row, message, _DAMAGED) from None
    kinds = kinds.select("op", "rest", "me").with_row_index("kind")
    joined = named.join(kinds, on=["op", "rest", "me"], how="left", maintain_order="left")
    return parsed, joined["kind"].cast(pl.Int64).to_numpy()


def _agree(
    stream: NDArray[np.int64], fits: NDArray[np.bool_], operation: NDArray[np.int64],
    root: NDArray[np.int64], n_ranks: int,
) -> NDArray[np.bool_]:  # fmt: skip
    """Whether all ranks take part in the collective of a row, and name one call and one root."""
    n = int(stream.max(initial=-1)) + 1
    what = operation * n_ranks + root
    low, high = np.full(n, 2**62), np.full(n, -1)
    np.minimum.at(low, stream, what)
    np.maximum.at(high, stream, what)
    right = (np.bincount(stream[fits], minlength=n) == n_ranks) & (low == high)
    return np.asarray(right[stream], np.bool_)


def _note_collectives(
    calls: pl.DataFrame, stream: NDArray[np.int64], agree: NDArray[np.bool_], notes: list[str]
) -> None:
    if not agree.all():
        notes.append(
            f"{len(np.unique(stream[~agree]))} collectives that differ between ranks are left "
            f"out: they may belong to smaller communicators, which this format does not name"
        )
    elif len(stream) and calls["op"].is_in(["comm_split"]).any():
        notes.append(
            "the trace creates communicators but does not record which collectives use them: all "
            "are assumed to be on MPI_COMM_WORLD"
        )


def _waitalls(calls: pl.DataFrame) -> ImpliedWaits:
    every = calls.filter(pl.col("op") == "waitall")
    row = every["row"].to_numpy()
    return ImpliedWaits(every["rank"].to_numpy(), 2 * row + 1, np.full(len(row), -1))


def _computes(lines: Lines, calls: pl.DataFrame, after: pl.DataFrame) -> Computes:
    """Computation between calls, pauses, and what reductions compute at their end."""
    parts = []
    for op, ps_of_one in (("compute", _PS_PER_FLOP), ("sleep", 10**12)):
        mine = calls.filter(pl.col("op") == op)
        amount = mine["rest"].str.splitn(" ", 2).struct.field("field_0").alias("amount")
        table = mine.select("row").with_columns(amount)
        most = LONGEST_PS / ps_of_one
        if op == "compute":
            value = _counts(lines, table, "amount", most=min(most, 2.0**53)) * ps_of_one
        else:
            in_ps = table.with_columns(
                (pl.col("amount").cast(pl.Float64, strict=False) * 1e12).cast(pl.String)
            )
            value = _counts(lines, in_ps, "amount", most=float(LONGEST_PS))
        parts.append((mine["rank"].to_numpy(), 2 * mine["row"].to_numpy(), value))
    row, flops = after["row"].to_numpy(), after["flops"].to_numpy()
    too_long = flops > LONGEST_PS // _PS_PER_FLOP
    if too_long.any():
        at = int(row[too_long][0])
        raise lines.fault(at, f"computes too long in {lines.quoted(at)}", _DAMAGED)
    parts.append((after["rank"].to_numpy(), 2 * row + 1, flops * _PS_PER_FLOP))
    rank, position, ps = (np.concatenate(column) for column in zip(*parts, strict=True))
    some = ps > 0
    return Computes(rank[some], position[some], ps[some].astype(np.uint64))
