"""Times of a trace's uncontended messages, for calibration.

Clocks of two ranks differ by an unknown offset. Messages in one direction appear longer by it, in
the other shorter, so the mean of both directions is correct for any offset. Only pairs of ranks
with usable messages in both directions count, and each gives one time per size, that of its fastest
messages. Noise and contention only add to it: for all pairs at the same distance, the end point
below the fastest times is used.

A message is usable if its receive was posted before it was sent and its receiver was in the call
for at least half of the transfer (else the receiver was late), if it was the last one sent of those
for which the receiver's call waited, if the receivers of the messages that this call sends were in
their calls by then, and if hardly any other bytes passed either adapter meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Bools, Floats, Ints
from tailback.calibration.estimates import FittedValue
from tailback.calibration.fitted_series import Placed
from tailback.calibration.model import Series
from tailback.calibration.routes import LOCAL, Machine, Route
from tailback.calibration.shortest_times import Gaps, PairTimes, end_points
from tailback.errors import option
from tailback.scenario.engine import MEMORY_GBPS

SOURCE: Final = "trace"

_OTHERS: Final = 0.05
"""Limit for the bytes of other messages in flight at its adapters, as a share of its own."""

_SMALL_BYTES: Final = 64
"""Additional bytes allowed: a message of a few bytes delays no other."""

_WAITED: Final = 0.5
_CONTRADICTED: Final = 0.05
"""Share of sends that may contradict a rendezvous threshold."""


@dataclass
class TraceTimes:
    """Results of a trace for calibration.

    Attributes:
        placed: Times by size, one series per distance.
        eager: The rendezvous threshold, if there were sends to late receivers, or sends that were
            copied; else None.
        copies: Whether sends up to the threshold were complete before their bytes can have left.
        overhead: Processor time of a message; None if no calls show it.
        copy_rate: Rate at which sends copy messages up to the threshold; None if unknown.
        notes: What was left out.
    """

    placed: list[Placed] = field(default_factory=list)
    eager: FittedValue | None = None
    copies: bool = False
    overhead: FittedValue | None = None
    copy_rate: FittedValue | None = None
    notes: list[str] = field(default_factory=list)


def trace_times(
    transfers: pl.DataFrame,
    calls: pl.DataFrame,
    hosts: Sequence[str | None],
    machine: Machine | None,
    resolution_ps: int = 1,
) -> TraceTimes:
    """Times of a trace's uncontended messages.

    Args:
        transfers: Table ``transfers`` of a measured run.
        calls: Table ``calls`` of it.
        hosts: Host of each rank, shape (R,); None where unknown.
        machine: Paths of the fabric; None without a fabric.
        resolution_ps: One tick of the trace's clock.

    Raises:
        FabricError: There is no path between two hosts.
    """
    out = TraceTimes()
    complete = transfers.drop_nulls(
        ["send_enter_ps", "recv_post_ps", "recv_enter_ps", "recv_done_ps"]
    )
    complete = complete.filter(pl.col("src_rank") != pl.col("dst_rank"))
    if not complete.height:
        out.notes.append("the trace has no point-to-point message with both ends")
        return out
    routes = _Routes(hosts, machine)
    src, dst, size, start, done = (
        complete[name].to_numpy().astype(np.int64)
        for name in ("src_rank", "dst_rank", "size_bytes", "send_enter_ps", "recv_done_ps")
    )
    remote = np.asarray(routes.host[src] != routes.host[dst], np.bool_)
    complete = complete.with_columns(others=bytes_meanwhile(size, start, done, remote))
    usable = complete.filter(_usable(complete, routes))
    times = _by_direction(usable)
    pairs = _join_directions(times)
    out.placed = _series(pairs, times, routes, resolution_ps)
    both = int((pairs["n"] + pairs["n_back"]).sum())
    out.notes.append(
        f"{usable.height:,} of {transfers.height:,} messages of the trace met no other and no late "
        f"receiver; {both:,} of them have one of their size the other way"
    )
    if routes.unknown:
        out.notes.append(f"{routes.unknown}: distances of the trace are unknown")
    out.eager = _fit_eager(complete, calls, pairs)
    if machine is not None and machine.adapter_gbps:
        copied = fit_copied(complete.filter(remote), machine.adapter_gbps)
        out.eager, out.copies = copied or out.eager, copied is not None
    _fit_processors(complete, calls, out)
    return out


class _Routes:
    """Paths between ranks."""

    def __init__(self, hosts: Sequence[str | None], machine: Machine | None) -> None:
        self.machine = machine
        self.unknown = ""
        number_of = {name: i for i, name in enumerate(dict.fromkeys(h for h in hosts if h))}
        # A rank with unknown host gets a separate one.
        self.host = np.array(
            [number_of[h] if h else len(number_of) + rank for rank, h in enumerate(hosts)], np.int64
        )
        self._number: dict[int, int] = {}
        if machine is None:
            self.unknown = "no fabric is given"
            return
        numbers = {name: i for i, name in reversed(list(enumerate(machine.fabric.host_name)))}
        foreign = next((name for name in number_of if name not in numbers), None)
        if None in hosts or foreign is not None:
            why = f"host {foreign[:60]!r} is not in the fabric" if foreign else "hosts are unknown"
            self.unknown = f"{why} (give {option('hosts')} or {option('rankfile')})"
            self.machine = None
        self._number = {i: numbers[name] for name, i in number_of.items() if name in numbers}

    def switches(self, src: Ints, dst: Ints) -> NDArray[np.float64]:
        """Switches between ranks; NaN where unknown."""
        a, b = self.host[src], self.host[dst]
        out = np.where(a == b, 0.0, np.nan)
        if self.machine is not None:
            number = np.array([self._number[i] for i in range(len(self._number))], np.int64)
            out = self.machine.switches(number[a], number[b]).astype(np.float64)
        return out

    def between(self, src: int, dst: int) -> Route | None:
        """The path between two ranks; None where unknown."""
        a, b = int(self.host[src]), int(self.host[dst])
        if a == b:
            return LOCAL
        if self.machine is None:
            return None
        return self.machine.route(self._number[a], self._number[b])


def _usable(transfers: pl.DataFrame, routes: _Routes) -> Bools:
    """Which messages were uncontended and had no late receiver."""
    src, dst, size, start, post, enter, done = (
        transfers[name].to_numpy().astype(np.int64)
        for name in (
            "src_rank",
            "dst_rank",
            "size_bytes",
            "send_enter_ps",
            "recv_post_ps",
            "recv_enter_ps",
            "recv_done_ps",
        )
    )
    # A call that waits for several messages lasts as long as the last of them.
    last = (
        transfers.select(pl.col("send_enter_ps").max().over("recv_done_call"))
        .to_series()
        .to_numpy()
    )
    # A large message that it sends is complete only once its receiver calls, too.
    receivers = (
        transfers.group_by(recv_done_call="send_done_call")
        .agg(pl.col("recv_enter_ps").max())
        .drop_nulls("recv_done_call")
    )
    awaited = (
        transfers.select("recv_done_call")
        .join(receivers, on="recv_done_call", how="left", maintain_order="left")["recv_enter_ps"]
        .fill_null(start.min(initial=0))
        .to_numpy()
    )
    took = done - start
    out = (start == last) & (post <= start) & (done - enter >= _WAITED * took) & (took > 0)
    out &= awaited <= start
    remote = routes.host[src] != routes.host[dst]
    limit = _OTHERS * size + _SMALL_BYTES
    for host, before_only in ((routes.host[src], True), (routes.host[dst], False)):
        others = _others(host, size * remote, start, done, before_only)
        out &= ~remote | (others <= limit)
    return np.asarray(out, np.bool_)


def _others(host: Ints, size: Ints, start: Ints, done: Ints, before_only: bool) -> Ints:
    """Bytes of other messages of the same host in flight during each message.

    Args:
        host: Host whose adapter they share, shape (T,).
        size: Bytes on the wire, shape (T,).
        start: When each was sent, shape (T,).
        done: When each had arrived, shape (T,).
        before_only: Count only those sent before: an adapter sends in order.
    """
    out = np.zeros(len(size), np.int64)
    order = np.argsort(host, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(host[order])) + 1):
        first = rows[np.argsort(start[rows], kind="stable")]
        last = rows[np.argsort(done[rows], kind="stable")]
        sent = np.concatenate([[0], np.cumsum(size[first])])
        over = np.concatenate([[0], np.cumsum(size[last])])
        finished = over[np.searchsorted(done[last], start[first], side="right")]
        if before_only:
            begun = sent[:-1]
        else:
            begun = sent[np.searchsorted(start[first], done[first])] - size[first]
        out[first] = np.maximum(begun - finished, 0)
    return out


def bytes_meanwhile(size: Ints, start: Ints, done: Ints, remote: Bools) -> NDArray[np.float64]:
    """Bytes that other messages sent between hosts during each message, each at a constant rate.

    Args:
        size: Bytes of each message, shape (T,).
        start: When it was sent, shape (T,).
        done: When it had arrived, shape (T,).
        remote: Whether it was sent between hosts, shape (T,).
    """
    moving = remote & (done > start)
    rate = np.where(moving, size / np.maximum(done - start, 1), 0.0)
    at = np.concatenate([start, done])
    order = np.argsort(at, kind="stable")
    at, change = at[order], np.concatenate([rate, -rate])[order]
    sent = np.concatenate([[0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(at))])
    during = np.interp(done, at, sent) - np.interp(start, at, sent)
    return np.asarray(np.maximum(during - np.where(moving, size, 0), 0.0))


def _by_direction(usable: pl.DataFrame) -> pl.DataFrame:
    """Times of messages, the shortest first in each direction of a pair and size.

    Columns ``rank`` (0 for the shortest), ``n`` (messages of the direction and size) and
    ``others`` (bytes that others sent meanwhile, mean of these messages).
    """
    direction = ["src_rank", "dst_rank", "size_bytes"]
    return (
        usable.select(
            *direction, "others", (pl.col("recv_done_ps") - pl.col("send_enter_ps")).alias("took")
        )
        .sort(*direction, "took")
        .with_columns(
            pl.int_range(pl.len()).over(direction).alias("rank"),
            pl.len().over(direction).alias("n"),
            pl.col("others").mean().over(direction),
        )
    )


def _join_directions(times: pl.DataFrame) -> pl.DataFrame:
    """One row per pair of ranks and size: the mean over both directions of the shortest time."""
    there = times.filter(pl.col("rank") == 0).drop("rank")
    back = there.rename({"src_rank": "dst_rank", "dst_rank": "src_rank"})
    both = there.join(back, on=["src_rank", "dst_rank", "size_bytes"], suffix="_back")
    return (
        both.filter(pl.col("src_rank") < pl.col("dst_rank"))
        .with_columns(((pl.col("took") + pl.col("took_back")) / 2).alias("time_ps"))
        .drop("took", "took_back")
        .filter(pl.col("time_ps") > 0)
        .sort("size_bytes", "src_rank", "dst_rank")
    )


def _gaps(times: pl.DataFrame, routes: _Routes, inside: bool) -> Gaps:
    """Gaps between the faster messages of each direction and size.

    Only the faster half counts, as the slower ones may have met others' traffic.
    """
    direction = ["src_rank", "dst_rank", "size_bytes"]
    gap = pl.col("took").shift(-1).over(direction) - pl.col("took")
    longer = pl.col("n") - pl.col("rank") - 1
    fast = (pl.col("rank") == 0) | (2 * (pl.col("rank") + 1) <= pl.col("n"))
    src, dst = (times[name].to_numpy().astype(np.int64) for name in ("src_rank", "dst_rank"))
    mine = times.with_columns(gap=gap * longer).filter(
        fast & (longer > 0) & ((routes.host[src] == routes.host[dst]) == inside)
    )
    return Gaps(*(mine[name].to_numpy().astype(np.float64) for name in ("gap", "others")))


def _series(
    pairs: pl.DataFrame, times: pl.DataFrame, routes: _Routes, resolution_ps: int
) -> list[Placed]:
    """A series for each distance."""
    src, dst = (pairs[name].to_numpy().astype(np.int64) for name in ("src_rank", "dst_rank"))
    switches = routes.switches(src, dst)
    out = []
    # Software in the way differs within a host and between hosts.
    for inside in (True, False):
        distances = np.unique(switches[(switches == 0) == inside])
        mine = [
            np.isnan(switches) if np.isnan(distance) else switches == distance
            for distance in distances
        ]
        measured = [_times_by_size(pairs.filter(some)) for some in mine]
        flat = [pair_times for by_size in measured for pair_times in by_size.values()]
        ends = None
        if flat:
            gaps = _gaps(times, routes, inside)
            ends = end_points(flat, gaps, resolution_ps)
        at = 0
        for some, by_size in zip(mine, measured, strict=True):
            rows = slice(at, at := at + len(by_size))
            size = np.array(list(by_size), np.float64)
            time = np.array([pair_times.time_ps.min() for pair_times in by_size.values()])
            error, deviation = None, None
            if ends is not None:
                time = np.maximum(ends.time_ps[rows], time / 2)
                error, deviation = ends.error_ps[rows], ends.deviation_ps[rows]
            # Both ends of both directions are rounded.
            step = np.full(len(size), float(resolution_ps))
            n = int(pairs.filter(some).select(pl.col("n") + pl.col("n_back")).to_series().sum())
            series = Series(
                "latency",
                "mpi",
                size,
                time,
                step,
                n,
                SOURCE,
                error_ps=error,
                deviation_ps=deviation,
            )
            first = int(np.flatnonzero(some)[0])
            out.append(Placed(series, routes.between(int(src[first]), int(dst[first]))))
    return out


def _times_by_size(pairs: pl.DataFrame) -> dict[int, PairTimes]:
    """Shortest times of the pairs at one distance, by size."""
    size, time, there, back, others, others_back = (
        pairs[name].to_numpy().astype(np.float64)
        for name in ("size_bytes", "time_ps", "n", "n_back", "others", "others_back")
    )
    messages, met = np.stack([there, back], axis=1), np.stack([others, others_back], axis=1)
    return {
        int(nbytes): PairTimes(time[size == nbytes], messages[size == nbytes], met[size == nbytes])
        for nbytes in np.unique(size)
    }


def _fit_eager(
    transfers: pl.DataFrame, calls: pl.DataFrame, pairs: pl.DataFrame
) -> FittedValue | None:
    """The threshold between sends that completed before their receive and sends that waited.

    As clocks of two ranks are compared, a receive counts as late only beyond half a round trip, the
    possible clock error.
    """
    slack = pairs.group_by("src_rank", "dst_rank").agg(pl.col("time_ps").min().alias("slack"))
    swapped = slack.rename({"src_rank": "dst_rank", "dst_rank": "src_rank"})
    slacks = pl.concat([slack, swapped.select(slack.columns)])
    entered = calls.select(
        pl.col("call").alias("send_done_call"), pl.col("enter_ps").alias("done_enter_ps")
    )
    timed = (
        transfers.drop_nulls(["send_done_call", "send_done_ps"])
        .join(slacks, on=["src_rank", "dst_rank"])
        .join(entered, on="send_done_call")
        .with_columns(late=pl.col("recv_post_ps") - pl.col("slack"))
        .filter(
            (pl.col("done_enter_ps") < pl.col("late")) & (pl.col("send_enter_ps") < pl.col("late"))
        )
    )
    if not timed.height:
        return None
    size = timed["size_bytes"].to_numpy().astype(np.int64)
    waited = timed["send_done_ps"].to_numpy() > timed["late"].to_numpy()
    sizes = np.unique(size)
    wrong = [int((waited & (size <= at)).sum() + (~waited & (size > at)).sum()) for at in sizes]
    at = int(np.argmin(wrong))
    if at == len(sizes) - 1 or waited.all() or wrong[at] > _CONTRADICTED * len(size):
        return None
    return FittedValue(
        "eager",
        "size",
        float(sizes[at]),
        float(sizes[at]),
        float(sizes[at + 1]) - 1,
        f"{SOURCE}: sends to late receivers",
        len(size),
    )


def fit_copied(transfers: pl.DataFrame, adapter_gbps: float) -> FittedValue | None:
    """Largest size of which most blocking sends were complete before their bytes can have left.

    They are copied to a buffer, of the MPI library or of the operating system, whose sizes are
    unknown: smaller messages are, too, larger ones need not be. Needs no clocks of other ranks.

    Args:
        transfers: Messages between hosts.
        adapter_gbps: Line rate of adapters.
    """
    blocking = transfers.drop_nulls("send_done_ps").filter(
        pl.col("send_done_call") == pl.col("send_call")
    )
    took = pl.col("send_done_ps") - pl.col("send_enter_ps")
    # Half of it: neither stated rates nor time stamps are that far off.
    on_wire = pl.col("size_bytes") * (8_000.0 / adapter_gbps)
    sizes = (
        blocking.group_by("size_bytes")
        .agg(copied=(took < on_wire / 2.0).mean(), number=pl.len())
        .filter(pl.col("number") >= _MIN_COPIED)
        .sort("size_bytes")
    )
    size, copied = sizes["size_bytes"].to_numpy(), sizes["copied"].to_numpy() > 0.5
    if not copied.any():
        return None
    most = int(size[copied].max())
    later = size[size > most]
    high = float(later.min() - 1 if len(later) else most)
    text = f"{SOURCE}: sends complete before their bytes can have left"
    return FittedValue("eager", "size", float(most), float(most), high, text, blocking.height)


_MIN_COPIED = 10
"""Minimum number of sends of a size: with fewer, a majority may be chance."""


def _fit_processors(transfers: pl.DataFrame, calls: pl.DataFrame, out: TraceTimes) -> None:
    """Processor time of a message: that of calls which send one and wait for nothing.

    These are MPI_Isend, and MPI_Send where it copies. Some of them waited all the same, so the
    lower quartile is taken.
    """
    copied = out.eager.value if out.copies and out.eager is not None else -1.0
    took = pl.col("leave_ps") - pl.col("enter_ps")
    timed = transfers.join(calls, left_on="send_call", right_on="call").with_columns(took=took)
    posts = timed.filter(pl.col("name") == "MPI_Isend")
    copying = _fit_copying(posts)
    if copying is not None:
        out.eager, out.copy_rate = copying
        out.copies = True
        byte_ps = pl.when(pl.col("size_bytes") <= out.eager.value).then(
            8000.0 / out.copy_rate.value
        )
        posts = posts.with_columns(
            took=pl.col("took") - pl.col("size_bytes") * byte_ps.otherwise(0)
        )
    sends = timed.filter((pl.col("name") == "MPI_Send") & (pl.col("size_bytes") <= copied))
    times = np.sort(np.concatenate([part["took"].to_numpy() for part in (posts, sends)]))
    if len(times) >= _MIN_POSTS:
        text = f"{SOURCE}: calls that send a message"
        value, low, high = np.maximum(_lower_quartile(times), 0.0).tolist()
        out.overhead = FittedValue("overhead", "time", value, low, high, text, len(times))


def _fit_copying(posts: pl.DataFrame) -> tuple[FittedValue, FittedValue] | None:
    """Largest size that MPI_Isend copies, and the rate at which it does; None if it copies none.

    A post that takes less than a copy by the fastest memory copies nothing. Shorter messages are
    copied if their posts take longer, the more the longer they are.

    Args:
        posts: Messages that MPI_Isend posts, with the time that it ``took``, ps.
    """
    sizes = (
        posts.group_by("size_bytes")
        .agg(took=pl.col("took").quantile(_QUARTILE), number=pl.len())
        .sort("size_bytes")
    )
    size, took = (sizes[name].to_numpy().astype(float) for name in ("size_bytes", "took"))
    most = int(np.sum(took >= size * (8000.0 / MEMORY_GBPS)))
    # All that may be copied are shorter than all that are not.
    if most < _MIN_SIZES or (took < size * (8000.0 / MEMORY_GBPS))[:most].any():
        return None
    few = np.unique(np.linspace(0, most - 1, min(most, _MOST_SIZES)).round().astype(int))
    first, second = np.triu_indices(len(few), 1)
    rise, run = (values[few][second] - values[few][first] for values in (took, size))
    # Theil and Sen's slope with its 95 % interval (Sen, 1968).
    n_few, slopes = len(few), np.sort(rise / run)
    reach = 1.96 * np.sqrt(n_few * (n_few - 1) * (2 * n_few + 5) / 18.0) / 2.0
    ranks = np.rint((len(slopes) - 1) / 2.0 + np.array([-reach, 0.0, reach])).astype(int)
    low, slope, high = slopes[np.clip(ranks, 0, len(slopes) - 1)].tolist()
    if low <= 0.0:
        return None
    n = int(sizes["number"][:most].sum())
    later = float(size[most] - 1 if most < len(size) else size[most - 1])
    text = f"{SOURCE}: posts take as long as a copy"
    largest = float(size[most - 1])
    return (
        FittedValue("eager", "size", largest, largest, max(later, largest), text, n),
        FittedValue("copy_rate", "rate", 8000.0 / slope, 8000.0 / high, 8000.0 / low, text, n),
    )


def _lower_quartile(times: Floats) -> Floats:
    """The lower quartile of sorted times with the ends of its 95 % interval.

    Order statistics around a quantile contain it with 95 %, for any distribution.
    """
    reach = 1.96 * np.sqrt(len(times) * _QUARTILE * (1.0 - _QUARTILE))
    ranks = np.rint(len(times) * _QUARTILE + np.array([0.0, -reach, reach])).astype(int)
    return np.asarray(times[np.clip(ranks, 0, len(times) - 1)], np.float64)


_MIN_SIZES: Final = 3
"""Minimum number of sizes: through two there is always a line."""

_MOST_SIZES: Final = 100
"""Maximum number of sizes in a fit, evenly spread: pairs of them are compared."""

_QUARTILE: Final = 0.25

_MIN_POSTS: Final = 10
"""Minimum number of calls: the interval of the quartile of fewer reaches the least of them."""
