"""Events of a simulated run, as a tracer that is part of the machine would have recorded them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tailback.report.operation_times import OperationTimes
from tailback.traffic.program import IS_POST, POSTS, SENDS, Label, Op, Program

Event = tuple[Any, ...]
"""Name of an OTF2 event, its time, and its arguments."""

_NO_TAG = 1 << 31
"""Tags from here on are those of no program: of collectives, and of labels with several tags."""


def is_non_blocking(call: str) -> bool:
    """Whether a call returns before its messages are complete: ``MPI_Isend``, ``MPI_Start``."""
    return call.lower().startswith(("mpi_i", "mpi_start"))


class RankEvents:
    """The events of the ranks of a job.

    A computation is the time between two calls. A post of a non-blocking call is a call by itself,
    and so is each wait; a blocking call lasts until the messages that it posted are complete.

    Args:
        program: The job's program.
        times: Times of its operations.
        communicator: Number of the communicator of its ranks.
        region: Gives the number of a region by its name, and whether it is a call.
    """

    def __init__(
        self,
        program: Program,
        times: OperationTimes,
        communicator: int,
        region: Callable[[str, bool], int],
    ) -> None:
        # As lists, whose elements are read many times faster than those of arrays.
        self._kind, self._request = program.kind.tolist(), program.request.tolist()
        self._peer, self._size = program.peer.tolist(), program.amount.tolist()
        self._tag, self._label = program.tag.tolist(), program.label.tolist()
        self._begin, self._end = times.begin_ps.tolist(), times.end_ps.tolist()
        self._program, self._times = program, times
        self._communicator, self._region = communicator, region
        self._tags = _tags(program)

    def of_rank(self, rank: int) -> Iterator[Event]:
        """The events of a rank, in their order."""
        low, high = (int(self._program.rank_start[rank + k]) for k in (0, 1))
        start, finish = int(self._times.start_ps[rank]), int(self._times.finish_ps[rank])
        yield from self._call("MPI_Init", None, start, start, ())
        open_ = dict[int, int]()
        at = low
        while at < high:
            if self._kind[at] == Op.COMPUTE:
                at += 1
                continue
            end = self._end_of_blocking_call(at, high, bool(open_))
            yield from self._operations(at, end, open_)
            at = end
        yield from self._call("MPI_Finalize", None, finish, finish, ())

    def _end_of_blocking_call(self, at: int, high: int, others_open: bool) -> int:
        """The operation behind the call that begins with this one."""
        label = self._label_of(at)
        if self._kind[at] not in POSTS or is_non_blocking(label.call):
            return at + 1
        requests = set[int]()
        for each in range(at, high):
            kind, request = self._kind[each], self._request[each]
            if kind in POSTS:
                other = self._label_of(each)
                if (other.call, other.path, other.phase) != (label.call, label.path, label.phase):
                    break
                requests.add(request)
            elif kind == Op.WAIT and request in requests:
                requests.remove(request)
            elif kind == Op.WAITALL and not others_open:
                requests.clear()
            else:
                break
            if not requests:
                return each + 1
        return at + 1

    def _operations(self, at: int, end: int, open_: dict[int, int]) -> Iterator[Event]:
        """The call of some operations, with records of their messages.

        Args:
            at: First operation.
            end: Behind the last one.
            open_: Post of each request that is not complete yet; changed.
        """
        records, label = list[Event](), None
        for each in range(at, end):
            request = self._request[each]
            if self._kind[each] in POSTS:
                open_[request] = each
                label = label or self._label_of(each)
                records.append(self._posted(each))
                continue
            done = [request] if self._kind[each] == Op.WAIT else [*open_]
            posts = [open_.pop(number) for number in done if number in open_]
            label = label or (self._label_of(posts[0]) if posts else None)
            records += [self._completed(post, self._end[each]) for post in posts]
        yield from self._call(
            self._name(at, label), label, self._begin[at], self._end[end - 1], records
        )

    def _label_of(self, post: int) -> Label:
        return self._program.labels[int(self._label[post])]

    def _name(self, at: int, label: Label | None) -> str:
        """Name of the call that begins with an operation."""
        kind = self._kind[at]
        if kind not in POSTS or label is None:
            return "MPI_Waitall" if kind == Op.WAITALL else "MPI_Wait"
        if label.call.startswith(("MPI_", "nccl")):
            return label.call
        return "MPI_Isend" if kind in SENDS else "MPI_Irecv"

    def _call(
        self, name: str, label: Label | None, enter: int, leave: int, records: Any
    ) -> Iterator[Event]:
        """A call in the regions that enclose it."""
        around = [self._region(each, False) for each in _regions_around(label)]
        region = self._region(name, True)
        yield from (("Enter", enter, each) for each in (*around, region))
        yield from records
        yield from (("Leave", leave, each) for each in (region, *reversed(around)))

    def _message(self, post: int) -> tuple[int, int, int, int]:
        """Partner, communicator, tag and bytes."""
        tag = self._tags[self._tag[post], self._label_of(post).tag]
        return self._peer[post], self._communicator, tag, self._size[post]

    def _posted(self, post: int) -> Event:
        if self._kind[post] in SENDS:
            return ("MpiIsend", self._begin[post], *self._message(post), post)
        return ("MpiIrecvRequest", self._begin[post], post)

    def _completed(self, post: int, time: int) -> Event:
        if self._kind[post] in SENDS:
            return ("MpiIsendComplete", time, post)
        return ("MpiIrecv", time, *self._message(post), post)


def _tags(program: Program) -> dict[tuple[int, int], int]:
    """The tag to record for each tag by which messages match, and the tag of their labels.

    It is that of the labels where that tells messages apart as well.
    """
    posts = IS_POST[program.kind]
    of_label = [label.tag for label in program.labels]
    pairs = {
        (tag, of_label[label])
        for tag, label in set(
            zip(program.tag[posts].tolist(), program.label[posts].tolist(), strict=True)
        )
    }
    matching = {tag: {shown for other, shown in pairs if other == tag} for tag, _ in pairs}
    uses = {shown: {tag for tag, other in pairs if other == shown} for _, shown in pairs}
    numbers = {tag: _NO_TAG + number for number, tag in enumerate(sorted(matching))}
    return {
        (tag, shown): shown
        if shown >= 0 and len(uses[shown]) == 1 == len(matching[tag])
        else numbers[tag]
        for tag, shown in pairs
    }


def _regions_around(label: Label | None) -> list[str]:
    """Names of the regions around a call, outermost first."""
    if label is None:
        return []
    path = [name for name in label.path.split(" > ") if name and name != label.call]
    # A phase that is no region is named by the tag or the call.
    named_otherwise = (label.call, f"tag {label.tag}", *path[-1:])
    return path if label.phase in named_otherwise else [*path, label.phase]
