"""From the calls of SST DUMPI to a rank program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tailback.errors import TraceError
from tailback.traffic.collectives_of_counts import Counts
from tailback.traffic.program import Label, Op, Program, RecordedTimes
from tailback.traffic.readers.assembly import LATE, Computes, ImpliedWaits, compile_posts
from tailback.traffic.readers.collective_posts import Calls, collective_posts
from tailback.traffic.readers.dumpi_communicators import Communicators, Key
from tailback.traffic.readers.dumpi_files import Call, RankCalls
from tailback.traffic.readers.otf2_names import OPERATIONS, ROOTED, communicates
from tailback.traffic.readers.posts import UNKNOWN, Posts, dense, guess_sources
from tailback.units import LONGEST_PS

_SENDS = tuple(
    f"MPI_{one}" for one in
    ("Send", "Bsend", "Ssend", "Rsend", "Isend", "Ibsend", "Issend", "Irsend")
)  # fmt: skip
_ANY = -1
_MOST_BYTES = 1 << 53
_TYPE_BYTES = dict(enumerate((0, 0, 1, 1, 1, 1, 4, 2, 2, 4, 4, 8, 8, 4, 8, 16, 8, 8, 8, 1, 0, 0,
                              8, 16, 16, 8, 8, 32)))  # fmt: skip
"""Sizes of the predefined types where a trace does not tell them."""


@dataclass(eq=False)
class _Post:
    """A send or receive, and where it is waited for."""

    position: int
    is_send: bool
    peer: int
    comm: Key
    tag: int
    size: int
    call: str
    wait: int = UNKNOWN


@dataclass
class _Collective:
    """A collective call: what the schedule of its messages is made from."""

    position: int
    comm: Key
    operation: int
    root: int
    sent: int
    received: int
    counts: Counts | None


@dataclass
class _Rank:
    """What a rank does."""

    source: RankCalls
    communicators: Communicators
    posts: list[_Post] = field(default_factory=list)
    collectives: list[_Collective] = field(default_factory=list)
    open: dict[int, _Post] = field(default_factory=dict)
    persistent: dict[int, tuple[Call, Key]] = field(default_factory=dict)
    odd: Counter[str] = field(default_factory=Counter)

    def bytes_of(self, count: int, kind: int) -> int:
        size = self.source.type_bytes.get(kind, _TYPE_BYTES.get(kind))
        if size is None:
            self.odd["sends and receives of a type of unknown size move nothing"] += 1
            return 0
        if not 0 <= count * size <= _MOST_BYTES:
            raise ValueError(f"{count} elements of {size} B")
        return count * size


def compile_ranks(name: str, ranks: list[RankCalls], path: Path) -> Program:
    """Compile the calls of all ranks; raises TraceError for one that does not fit."""
    rows = []
    shared = Communicators.world(len(ranks))
    for number, source in enumerate(ranks):
        rank = _Rank(source, shared.of_rank(number))
        for at, call in enumerate(source.calls):
            try:
                _take(rank, call, at)
            except (KeyError, TypeError, IndexError) as error:
                raise source.fault(call, f"{call.name} lacks an argument ({error})") from None
            except ValueError as error:
                raise source.fault(call, f"{call.name}: {error}") from None
        rows.append(rank)
    notes = [f"{number} {what}" for what, number in sorted(
        sum((rank.odd for rank in rows), Counter()).items()
    )]  # fmt: skip
    members = shared.members()
    labels: dict[Label, int] = {}
    posts = _posts(rows, members, labels, notes)
    channels, posts.channel = dense(posts.channel)
    expanded = _expand(rows, members, labels, len(channels), notes, path)
    computes = _computes(ranks)
    none = np.zeros(0, np.int64)
    program = compile_posts(
        name, len(ranks), Posts.join([posts, expanded]), list(labels),
        ImpliedWaits(none, none, none), computes, notes,
    )  # fmt: skip
    names = {call.name for one in ranks for call in one.calls}
    counted = {name for name in names if communicates(name)}
    inside = sum(
        call.leave_ns - call.enter_ns for one in ranks for call in one.calls if call.name in counted
    )
    between = int(program.amount[program.kind == Op.COMPUTE].sum())
    program.recording = RecordedTimes(inside * 1000 // len(ranks), between // len(ranks))
    return program


def _take(rank: _Rank, call: Call, at: int) -> None:
    """Note what one call does."""
    name, given = call.name, call.arguments
    if name in _SENDS or name in ("MPI_Recv", "MPI_Irecv"):
        post = _post(rank, call, 2 * at, given)
        if name.startswith("MPI_I"):
            rank.open[_one(given["request"])] = post
        else:
            post.wait = 2 * at + 1
            _fill_from_status(post, given.get("status"))
        _add(rank, post)
    elif name in ("MPI_Sendrecv", "MPI_Sendrecv_replace"):
        _exchange(rank, call, at)
    elif name.endswith("_init"):
        rank.persistent[_one(given["request"])] = (call, rank.communicators.key(given["comm"]))
    elif name in ("MPI_Start", "MPI_Startall"):
        started = given["requests"] if name == "MPI_Startall" else [_one(given["request"])]
        for request in started:
            first, _ = rank.persistent[request]
            rank.open[request] = post = _post(rank, first, 2 * at, first.arguments)
            _add(rank, post)
    elif name.startswith(("MPI_Wait", "MPI_Test")):
        _complete(rank, call, 2 * at + 1)
    elif name in ("MPI_Cancel", "MPI_Request_free") and _one(given["request"]) in rank.open:
        if name == "MPI_Cancel":
            rank.odd["cancelled requests are left out"] += 1
            rank.posts.remove(rank.open.pop(_one(given["request"])))
    elif name in OPERATIONS:
        if (collective := _collective(rank, call, 2 * at)) is not None:
            rank.collectives.append(collective)
    else:
        rank.communicators.note(name, given)


def _one(request: Any) -> int:
    return int(request[0]) if isinstance(request, list) else int(request)


def _add(rank: _Rank, post: _Post) -> None:
    if post.peer < _ANY or (post.is_send and post.peer < 0):
        rank.odd["sends and receives of MPI_PROC_NULL move nothing"] += 1
        rank.open = {request: one for request, one in rank.open.items() if one is not post}
    else:
        rank.posts.append(post)


def _post(rank: _Rank, call: Call, position: int, given: dict[str, Any]) -> _Post:
    is_send = "dest" in given
    size = rank.bytes_of(given["count"], given["datatype"])
    name = call.name.replace("_init", "")
    return _Post(position, is_send, given["dest" if is_send else "source"],
                 rank.communicators.key(given["comm"]), given["tag"], size, name)  # fmt: skip


def _exchange(rank: _Rank, call: Call, at: int) -> None:
    """A receive and a send that are both posted before either is waited for."""
    given = call.arguments
    replaced = call.name == "MPI_Sendrecv_replace"
    for side, peer in (("recv", "source"), ("send", "dest")):
        count, kind = ("count", "datatype") if replaced else (f"{side}count", f"{side}type")
        post = _Post(2 * at, side == "send", given[peer], rank.communicators.key(given["comm"]),
                     given[f"{side}tag"], rank.bytes_of(given[count], given[kind]), call.name,
                     2 * at + 1)  # fmt: skip
        if side == "recv":
            _fill_from_status(post, given.get("status"))
        _add(rank, post)


def _fill_from_status(post: _Post, statuses: Any, at: int = 0) -> None:
    """Fill in who sent what was received from any source, where the trace says so."""
    if post.is_send or not isinstance(statuses, list) or at >= len(statuses):
        return
    source, tag = statuses[at]
    if post.peer == _ANY and source >= 0:
        post.peer = source
    if post.tag == _ANY and tag >= 0:
        post.tag = tag


def _complete(rank: _Rank, call: Call, position: int) -> None:
    """Wait for the requests that a call completes."""
    given, name = call.arguments, call.name.removeprefix("MPI_")
    statuses = given.get("statuses", given.get("status"))
    if name in ("Wait", "Test"):
        requests = [_one(given["request"])] if name == "Wait" or given["flag"] else []
    elif name in ("Waitall", "Testall"):
        requests = given["requests"] if name == "Waitall" or given["flag"] else []
    elif name in ("Waitany", "Testany"):
        done = given["index"] >= 0 and (name == "Waitany" or given["flag"])
        requests = [given["requests"][given["index"]]] if done else []
    elif name in ("Waitsome", "Testsome"):
        requests = [given["requests"][index] for index in given["indices"] if index >= 0]
    else:
        return
    for at, request in enumerate(requests):
        post = rank.open.pop(request, None)
        if post is not None:
            post.wait = position
            _fill_from_status(post, statuses, at)


def _collective(rank: _Rank, call: Call, position: int) -> _Collective | None:
    """Root and bytes of a collective."""
    given, name = call.arguments, call.name
    comm = rank.communicators.key(given["comm"])
    root = given["root"] if name in ROOTED else 0
    counts: Counts | None = None
    sent = received = 0
    size = rank.bytes_of
    if name == "MPI_Bcast":
        received = size(given["count"], given["datatype"])
    elif name in ("MPI_Reduce", "MPI_Allreduce", "MPI_Scan", "MPI_Exscan"):
        sent = size(given["count"], given["datatype"])
    elif name in ("MPI_Gather", "MPI_Allgather", "MPI_Alltoall"):
        sent = size(given["sendcount"], given["sendtype"])
        if name != "MPI_Gather":
            received = size(given["recvcount"], given["recvtype"])
    elif name == "MPI_Scatter":
        received = size(given["recvcount"], given["recvtype"])
    elif name == "MPI_Reduce_scatter":
        sent = size(sum(given["recvcounts"]), given["datatype"])
    elif name != "MPI_Barrier":
        counts = _counts(rank, name, given)
    return _Collective(position, comm, OPERATIONS.index(name), root, sent, received, counts)


def _counts(rank: _Rank, name: str, given: dict[str, Any]) -> Counts:
    def sizes(side: str) -> tuple[int, ...]:
        numbers = given.get(f"{side}counts", [])
        kinds = given.get(f"{side}types")
        if kinds is None:
            kinds = [given[f"{side}type"]] * len(numbers)
        return tuple(rank.bytes_of(*one) for one in zip(numbers, kinds, strict=True))

    if name == "MPI_Gatherv":
        own = rank.bytes_of(given["sendcount"], given["sendtype"])
        return Counts((own,), sizes("recv"))
    if name == "MPI_Scatterv":
        own = rank.bytes_of(given["recvcount"], given["recvtype"])
        return Counts(sizes("send"), (own,))
    if name == "MPI_Allgatherv":
        return Counts((), sizes("recv"))
    return Counts(sizes("send"), sizes("recv"))


def _posts(
    rows: list[_Rank], members: dict[Key, list[int]], labels: dict[Label, int], notes: list[str]
) -> Posts:
    """Sends and receives of all ranks, with world ranks."""
    columns: list[tuple[Any, ...]] = []
    numbers = {key: number for number, key in enumerate(members)}
    lost = 0
    for rank, row in enumerate(rows):
        for post in row.posts:
            group = members.get(post.comm)
            if group is None or post.peer >= len(group):
                lost += 1
                continue
            anyone = not post.is_send and (post.peer == _ANY or post.tag == _ANY)
            label = labels.setdefault(
                Label(f"tag {post.tag}", post.call, post.tag, _name(post.comm)), len(labels)
            )
            channel = (numbers[post.comm] << 32) | (post.tag & 0xFFFF_FFFF)
            peer = UNKNOWN if anyone else group[post.peer]
            columns.append((rank, 0, post.position, int(post.is_send), post.is_send, peer, channel,
                            post.size, label, post.wait, LATE, False,
                            post.is_send or not anyone))  # fmt: skip
    if lost:
        notes.append(f"{lost} sends and receives on communicators whose members the trace does "
                     f"not record are left out")  # fmt: skip
    kinds = (*(np.int64,) * 4, np.bool_, *(np.int64,) * 2, np.uint64, *(np.int64,) * 3,
             np.bool_, np.bool_)  # fmt: skip
    values = list(zip(*columns, strict=True)) or [()] * len(kinds)
    posts = Posts(*(np.array(one, kind) for one, kind in zip(values, kinds, strict=True)))
    guessed, _ = guess_sources(posts, len(rows))
    if guessed:
        notes.append(f"{guessed} receives from any source have no status: matched to the messages "
                     "no other receive takes")  # fmt: skip
    return posts


def _name(key: Key) -> str:
    return "MPI_COMM_WORLD" if len(key) == 1 else f"communicator {'.'.join(map(str, key[1:]))}"


def _expand(
    rows: list[_Rank], members: dict[Key, list[int]], labels: dict[Label, int], first_channel: int,
    notes: list[str], path: Path,
) -> Posts:  # fmt: skip
    """Messages of the collectives that all members of a communicator take part in."""
    numbers = {key: number for number, key in enumerate(members)}
    groups: dict[tuple[Key, int], list[tuple[int, _Collective]]] = {}
    for rank, row in enumerate(rows):
        turns: Counter[Key] = Counter()
        for one in row.collectives:
            groups.setdefault((one.comm, turns[one.comm]), []).append((rank, one))
            turns[one.comm] += 1
    counts: list[Counts] = []
    table: list[tuple[int, ...]] = []
    lost = 0
    for instance, ((comm, _), calls) in enumerate(groups.items()):
        group = members.get(comm, [])
        alike = {(one.operation, one.root) for _, one in calls}
        if len(calls) != len(group) or len(alike) > 1:
            lost += 1
            continue
        if len(group) == 1:
            continue
        place = {world: local for local, world in enumerate(group)}
        call = OPERATIONS[calls[0][1].operation]
        label = labels.setdefault(Label(call, call, -1, _name(comm)), len(labels))
        for rank, one in calls:
            vector = -1
            if one.counts is not None:
                vector = len(counts)
                counts.append(one.counts)
            table.append((rank, 0, one.position, one.position, numbers[comm], instance, label,
                          one.operation, len(group), place[rank], one.root, one.sent, one.received,
                          vector))  # fmt: skip
    if lost:
        notes.append(f"{lost} collectives that were not recorded by all members of their "
                     "communicator are left out")  # fmt: skip
    columns = np.array(table, np.int64).reshape(-1, 14).T
    arrays = {numbers[key]: np.array(group) for key, group in members.items()}
    return collective_posts(Calls(*columns), OPERATIONS, arrays, first_channel, path, counts)


def _computes(ranks: list[RankCalls]) -> Computes:
    """The time between calls."""
    rows = []
    for rank, one in enumerate(ranks):
        now = None
        for at, call in enumerate(one.calls):
            if now is not None and call.enter_ns > now:
                if 1000 * (call.enter_ns - now) > LONGEST_PS:
                    raise one.fault(call, f"{call.name} begins {call.enter_ns - now} ns later")
                rows.append((rank, 2 * at, 1000 * (call.enter_ns - now)))
            now = max(now or 0, call.leave_ns)
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return Computes(columns[0], columns[1], columns[2].astype(np.uint64))


def check_world(ranks: list[RankCalls]) -> None:
    """Refuse a set of files that is not that of all ranks.

    Raises:
        TraceError: A rank recorded another number of ranks than there are files.
    """
    for one in ranks:
        for call in one.calls:
            if call.name == "MPI_Comm_size" and call.arguments.get("comm") == 2:
                size = call.arguments.get("size")
                if size != len(ranks):
                    raise TraceError(
                        f"is of a run of {size} ranks, and there are files of {len(ranks)}",
                        file=one.file, place=call.place,
                        remedy="copy the files of all ranks into one folder",
                    )  # fmt: skip
