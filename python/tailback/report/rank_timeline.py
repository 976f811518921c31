"""Activity of each rank over time: the calls and waits of a measured run, summed in windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tailback.arrays import Bools, Ints
from tailback.evidence.one_sided import fence_numbers, synchronises
from tailback.evidence.split import COMPLETIONS, PARTS, kind_of_rest
from tailback.run.run import Run

WINDOWS = 200
"""Windows of equal length that the measured time is cut into."""

ROWS = 500
"""Rows at most. Of more ranks neighbours stand together, as many in each row."""

CALLS_NAMED = 250
"""Maximum number of calls named, the longest ones. A report stores their numbers in a byte."""

KINDS = tuple(part for part in PARTS if part not in ("imbalance", "noise"))
"""Activities of a rank. A wait keeps its kind here, whatever made the other rank late."""

WAITS = tuple(
    kind
    for kind in KINDS
    if kind
    not in ("computation", "transfer", "one_sided", "other_mpi", "not_running", "not_recorded")
)

MESSAGES = 20_000
"""Point-to-point messages that a report carries: those that were received over the longest time."""

PIECES = 40_000
"""Pieces of single calls that a report carries, those of the windows with most waiting first."""

OTHER_CALLS = "other calls"


@dataclass(frozen=True, eq=False)
class RankTimeline:
    """Ranks against measured time, R rows and W windows.

    Attributes:
        edges_ps: Edges of the windows since the first rank began, shape (W + 1,).
        first_rank: First rank of each row, and the number of ranks, shape (R + 1,).
        hosts: Host of each row's ranks, or first and last of them; empty where unknown.
        kinds: Activities of the ranks, in the order of :data:`KINDS`. Only those that occur, K of
            them.
        spent_ps: Time that the ranks of a row spent so, shape (K, R, W). Over the kinds it adds up
            to the length of the window times the ranks of the row.
        call: MPI call that took longest, as an index into ``calls``; -1 without, shape (R, W).
        calls: Names of calls.
        posted_ps: When each point-to-point message was posted, in order, shape (M,).
        messages: ``src_rank, dst_rank, tag, communicator, size_bytes``, and the times at which
            the message was sent (``sent_ps``), its receiver began to wait for it or to receive it
            (``begun_ps``) and had it (``done_ps``); :data:`MESSAGES` at most, by receiver and time.
        pieces: ``rank, kind, start_ps, end_ps, call``: single calls, in pieces of one kind, and
            what is between them, with indices into ``kinds`` and ``calls`` (-1: no call), by rank
            and time. Complete in the windows of ``in_pieces``.
        in_pieces: Windows with single calls, shape (W,); none where rows hold several ranks.
    """

    edges_ps: Ints
    first_rank: Ints
    hosts: list[str]
    kinds: list[str]
    spent_ps: Ints
    call: Ints
    calls: list[str]
    posted_ps: Ints
    messages: pl.DataFrame
    pieces: pl.DataFrame
    in_pieces: Bools

    @property
    def ranks(self) -> Ints:
        """Ranks of each row, shape (R,)."""
        return np.diff(self.first_rank)

    @cached_property
    def totals_ps(self) -> Ints:
        """Time of each kind over all windows, shape (K, R)."""
        return np.asarray(self.spent_ps.sum(axis=2), np.int64)

    def expected_ps(self, run: Run) -> Ints | None:
        """The place in an expected run that each edge of a window stands for, by the messages.

        A simulated run takes another time than the measured one, so equal times are not equal
        places of the program. At the time returned the run posts the message that is posted next
        after the edge: as many have been posted before in both.

        Returns:
            Picoseconds, shape (W + 1,); None where the two do not post the same number of
            point-to-point messages, or none.
        """
        ours = run.tables["jobs"].filter(pl.col("observed")).select("job")
        labels = run.tables["labels"].join(ours, on="job", how="semi")
        # Messages of collectives have no tag.
        posted = (
            run.tables["messages"]
            .join(labels.filter(pl.col("tag") >= 0), on="label", how="semi")["post_ps"]
            .sort()
            .to_numpy()
            .astype(np.int64)
        )
        if len(posted) == 0 or len(posted) != len(self.posted_ps):
            return None
        before = np.searchsorted(self.posted_ps, self.edges_ps)
        out = np.append(posted, run.elapsed_ps)[before]
        out[0], out[-1] = 0, run.elapsed_ps
        return np.asarray(np.maximum.accumulate(out), np.int64)


def rank_timeline(
    tables: Mapping[str, pl.DataFrame], windows: int = WINDOWS, rows: int = ROWS
) -> RankTimeline | None:
    """Sum what each rank did in windows of the measured time.

    Args:
        tables: Tables of a measured run (:data:`tailback.evidence.tables.TABLES`).
        windows: Number of windows.
        rows: Rows at most; at least 1.

    Returns:
        None where the measured time is empty.
    """
    intervals = _Intervals(tables)
    length = intervals.end_ps - intervals.start_ps
    if length <= 0:
        return None
    windows = min(windows, length)
    edges = length * np.arange(windows + 1) // windows
    each = -(-intervals.n_ranks // rows)
    first = np.append(np.arange(0, intervals.n_ranks, each), intervals.n_ranks)
    n_rows = len(first) - 1
    rank, kind, start, end, of_call = intervals.columns()
    cell = kind * n_rows + rank // each
    spent = _sum_in_windows(edges, cell, start, end, len(KINDS) * n_rows)
    spent = spent.reshape(len(KINDS), n_rows, windows)
    used = np.flatnonzero(spent.any(axis=(1, 2)))
    number, calls = _call_names(intervals)
    call = _longest_calls(intervals, number, len(calls), edges, each, n_rows)
    pieces = pl.DataFrame(
        {
            "rank": rank,
            "kind": np.searchsorted(used, kind),
            "start_ps": start,
            "end_ps": end,
            "call": np.append(number, -1)[of_call],
        }
    )
    waiting = spent[[KINDS.index(wait) for wait in WAITS]].sum(axis=(0, 1))
    in_pieces = _windows_in_pieces(pieces, edges, waiting) & (each == 1)
    posted = np.sort(tables["transfers"]["send_enter_ps"].to_numpy() - intervals.start_ps)
    return RankTimeline(
        edges,
        first,
        _hosts(tables["hosts"], first),
        [KINDS[k] for k in used],
        spent[used],
        call,
        calls,
        posted,
        _messages(tables["transfers"], intervals.start_ps, length),
        _pieces_within(pieces, edges, in_pieces),
        in_pieces,
    )


class _Intervals:
    """Activity of each rank, as disjoint intervals of the time since the first rank began."""

    def __init__(self, tables: Mapping[str, pl.DataFrame]) -> None:
        hosts = tables["hosts"].sort("rank")
        self.calls = tables["calls"].sort("call")
        self.n_ranks = hosts.height
        self.rank = self.calls["rank"].to_numpy().astype(np.int64)
        begin, end = hosts["start_ps"].to_numpy(), hosts["end_ps"].to_numpy()
        ran = end > begin
        self.start_ps = int(begin[ran].min()) if ran.any() else 0
        self.end_ps = int(end[ran].max()) if ran.any() else 0
        self.enter = self.calls["enter_ps"].to_numpy() - self.start_ps
        self.leave = self.calls["leave_ps"].to_numpy() - self.start_ps
        self._columns: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
        self._add_outside_calls(np.maximum(begin - self.start_ps, 0), end - self.start_ps)
        self._add_inside_calls(tables["waits"])

    def columns(self) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Rank, number of the kind, beginning, end and row of the call (-1: none) of each interval.

        Empty intervals are left out.
        """
        rank, kind, start, end, call = (
            np.concatenate(parts) for parts in zip(*self._columns, strict=True)
        )
        length = self.end_ps - self.start_ps
        start, end = np.clip(start, 0, length), np.clip(end, 0, length)
        some = end > start
        return rank[some], kind[some], start[some], end[some], call[some]

    def _add_intervals(
        self, rank: Ints, kind: str | Ints, start: Ints, end: Ints, call: Ints | None = None
    ) -> None:
        which = np.full(len(rank), KINDS.index(kind)) if isinstance(kind, str) else kind
        calls = np.full(len(rank), -1) if call is None else call
        self._columns.append((rank, which, start, end, calls))

    def _add_outside_calls(self, begin: Ints, end: Ints) -> None:
        rank, ranks = self.rank, np.arange(self.n_ranks)
        first = np.append(True, rank[1:] != rank[:-1])[: len(rank)]
        before = np.where(first, begin[rank], np.append(0, self.leave[:-1])[: len(rank)])
        off = self.calls["paused"].to_numpy()
        gap = np.where(off, KINDS.index("not_recorded"), KINDS.index("computation"))
        self._add_intervals(rank, gap, before, self.enter)
        last = np.full(self.n_ranks, -1)
        np.maximum.at(last, rank, self.leave)
        total_time = np.full(self.n_ranks, self.end_ps - self.start_ps)
        # A rank without a call left nothing that says it ran.
        begin = np.where(last < 0, total_time, begin)
        last = np.where(last < 0, total_time, last)
        end = np.maximum(end, last)
        self._add_intervals(ranks, "not_running", np.zeros(self.n_ranks, np.int64), begin)
        self._add_intervals(ranks, "computation", last, end)
        self._add_intervals(ranks, "not_running", end, total_time)

    def _add_inside_calls(self, waits: pl.DataFrame) -> None:
        """Waits stand at the beginning and at the end of a call, its transfer between them."""
        row = np.searchsorted(self.calls["call"].to_numpy(), waits["call"].to_numpy())
        kind = (
            waits["kind"]
            .replace_strict({name: KINDS.index(name) for name in WAITS}, return_dtype=pl.Int64)
            .to_numpy()
        )
        begin = waits["start_ps"].to_numpy() - self.start_ps
        end = begin + waits["value_ps"].to_numpy()
        self._add_intervals(self.rank[row], kind, begin, end, row)
        start, stop = self.enter.copy(), self.leave.copy()
        late = waits["kind"].is_in(COMPLETIONS).to_numpy()
        np.maximum.at(start, row[~late], end[~late])
        np.minimum.at(stop, row[late], begin[late])
        self._add_intervals(
            self.rank, self._kinds_of_rest(), start, stop, np.arange(self.calls.height)
        )

    def _kinds_of_rest(self) -> Ints:
        """Kind of the time inside each call that is no wait, as in the parts of the time."""
        names = self.calls["name"].unique(maintain_order=True).to_list()
        name = (
            self.calls["name"]
            .replace_strict(
                {call_name: at for at, call_name in enumerate(names)}, return_dtype=pl.Int64
            )
            .to_numpy()
        )
        of_name: Ints = np.array(
            [KINDS.index(kind_of_rest(call_name)) for call_name in names], np.int64
        )
        # Without any call the column of names has no type.
        kinds = np.asarray(of_name[name.astype(np.int64)])
        if not any(synchronises(call_name) for call_name in names):
            return kinds
        comm = self.calls["communicator"].cast(pl.Categorical).to_physical().cast(pl.Int64)
        fences = fence_numbers(names, name, self.rank, comm.fill_null(-1).to_numpy())
        return np.where(fences >= 0, KINDS.index("transfer"), kinds)


def _sum_in_windows(edges: Ints, cell: Ints, start: Ints, end: Ints, cells: int) -> Ints:
    """Length of the intervals of each cell in each window, shape (cells, W)."""
    windows = len(edges) - 1
    first = np.searchsorted(edges, start, side="right") - 1
    last = np.searchsorted(edges, end, side="left") - 1
    out = np.zeros((cells, windows), np.int64)
    in_one_window = first == last
    np.add.at(out, (cell[in_one_window], first[in_one_window]), (end - start)[in_one_window])
    cell, start, end, first, last = (x[~in_one_window] for x in (cell, start, end, first, last))
    np.add.at(out, (cell, first), edges[first + 1] - start)
    np.add.at(out, (cell, last), end - edges[last])
    # Windows that an interval fills: one more from its second window on, one less from its last.
    filled = np.zeros((cells, windows + 1), np.int64)
    np.add.at(filled, (cell, first + 1), 1)
    np.add.at(filled, (cell, last), -1)
    return out + np.cumsum(filled[:, :-1], axis=1) * np.diff(edges)


def _call_names(intervals: _Intervals) -> tuple[Ints, list[str]]:
    """The place of each call's name among the names, the longest calls first, and the names."""
    calls = intervals.calls.select("name", length=pl.col("leave_ps") - pl.col("enter_ps"))
    names = calls.group_by("name").agg(pl.col("length").sum())
    heavy = names.sort("length", "name", descending=[True, False])["name"].to_list()
    named = heavy[:CALLS_NAMED] + [OTHER_CALLS] * (len(heavy) > CALLS_NAMED)
    number = {name: min(i, CALLS_NAMED) for i, name in enumerate(heavy)}
    return calls["name"].replace_strict(number, return_dtype=pl.Int64).to_numpy(), named


def _longest_calls(
    intervals: _Intervals, of: Ints, names: int, edges: Ints, each: int, n_rows: int
) -> Ints:
    """The name of the longest call of each row and window; -1 without any."""
    longest = np.zeros((n_rows, len(edges) - 1), np.int64)
    out = np.full(longest.shape, -1)
    start, end = (np.clip(at, 0, edges[-1]) for at in (intervals.enter, intervals.leave))
    # One call after the other: all at once would take memory for every name.
    for i in range(names):
        mine = np.flatnonzero((of == i) & (end > start))
        row = intervals.rank[mine] // each
        spent = _sum_in_windows(edges, row, start[mine], end[mine], n_rows)
        out[spent > longest] = i
        longest = np.maximum(longest, spent)
    return out


def _windows_in_pieces(pieces: pl.DataFrame, edges: Ints, waiting: Ints) -> Bools:
    """Windows whose calls are carried one by one: those with most waiting, as far as they fit."""
    first, last = _windows_of(pieces, edges)
    begun = np.bincount(first, minlength=len(edges))
    ended = np.bincount(last + 1, minlength=len(edges))
    inside = np.cumsum(begun - ended)[:-1]
    order = np.argsort(-waiting, kind="stable")
    chosen = np.zeros(len(waiting), bool)
    chosen[order] = np.cumsum(inside[order]) <= PIECES
    return chosen


def _pieces_within(pieces: pl.DataFrame, edges: Ints, windows: Bools) -> pl.DataFrame:
    """The pieces that some of the windows hold a part of."""
    before = np.append(0, np.cumsum(windows))
    first, last = _windows_of(pieces, edges)
    kept = pieces.filter(pl.Series(before[last + 1] > before[first]))
    return kept.sort("rank", "start_ps", maintain_order=True)


def _windows_of(pieces: pl.DataFrame, edges: Ints) -> tuple[Ints, Ints]:
    """First and last window of each piece."""
    first = np.searchsorted(edges, pieces["start_ps"].to_numpy(), side="right") - 1
    last = np.searchsorted(edges, pieces["end_ps"].to_numpy(), side="left") - 1
    return first, last


def _messages(transfers: pl.DataFrame, start_ps: int, length_ps: int) -> pl.DataFrame:
    """Messages with the times since ``start_ps`` at which they were sent and received."""
    times = {"sent_ps": "send_enter_ps", "begun_ps": "recv_enter_ps", "done_ps": "recv_done_ps"}
    return (
        transfers.with_columns(
            (pl.col(column) - start_ps).clip(0, length_ps).alias(name)
            for name, column in times.items()
        )
        .sort(
            pl.col("recv_done_ps") - pl.col("recv_enter_ps"), descending=True, maintain_order=True
        )
        .head(MESSAGES)
        .sort("dst_rank", "recv_done_ps", "src_rank", maintain_order=True)
        .select("src_rank", "dst_rank", "tag", "communicator", "size_bytes", *times)
    )


def _hosts(hosts: pl.DataFrame, first: Ints) -> list[str]:
    names = hosts.sort("rank")["host"].to_list()
    out = []
    for start, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        ends = list(dict.fromkeys(name or "" for name in (names[start], names[end - 1])))
        out.append(" … ".join(ends) if all(ends) else "")
    return out
