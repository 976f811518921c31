"""The present state of a fabric and its last minutes, from intervals as they arrive.

A port *stalls* from a threshold on. Stalled ports that wait for one another form a *tree*: a port
waits for the ports of the switch at its far end that lead on. The roots of a tree are its ports
that wait for none of the others (Taffet, 2019, theorem 4.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Bools, Floats
from tailback.names.ports import link_name, port_name
from tailback.port_counters.analysis.evolution import component_of_each
from tailback.port_counters.analysis.limits import FULL_UTILIZATION
from tailback.port_counters.schema import ends_with_full_stall_counter

MOST_MISSED: Final = 3
"""Usual intervals without a reading after which the last one of a port counts no more."""


GROWTH_SHARE: Final = 0.2
"""Part of the course over which the growth of trees is told."""


@dataclass(frozen=True)
class HotPort:
    """A port that stalls.

    Attributes:
        name: Its link.
        stall: Share of its last interval, 0–1; NaN where a full counter hides it.
        full: Its stall counter is full.
        used: Share of its rate that it sent, NaN unknown.
        lost_gbps: Bandwidth lost to the stall, NaN unknown.
        course: Largest stall in each bin of time, oldest first; NaN without a reading.
    """

    name: str
    stall: float
    full: bool
    used: float
    lost_gbps: float
    course: Floats


@dataclass(frozen=True)
class CongestionTree:
    """Stalled ports that wait for one another.

    Attributes:
        roots: Ports where the waiting may begin, the busiest first.
        at_host: The first root leads to a host, which takes in data slowly.
        ports: Number of stalled ports.
        ports_before: Number of them in the tree that one of its ports was in ``GROWTH_SHARE`` of
            the course earlier; 0 for a new tree.
        lost_gbps: Bandwidth that its ports lose.
    """

    roots: list[str]
    at_host: bool
    ports: int
    ports_before: int
    lost_gbps: float


@dataclass(frozen=True)
class LiveView:
    """What happens now.

    Attributes:
        time_ns: Time of the last reading, UTC nanoseconds; 0 before the first.
        bin_ns: Length of a bin of time.
        ports: Ports that are read.
        stalled: Number of stalled ports in each bin, oldest first.
        hottest: Ports that lose most, full counters first.
        trees: Congestion trees, those that lose most first.
    """

    time_ns: int
    bin_ns: int
    ports: int
    stalled: list[int]
    hottest: list[HotPort]
    trees: list[CongestionTree]


@dataclass
class LiveState:
    """State of every port, and its course over some bins of time.

    Attributes:
        span_ns: Length of the course.
        bins: Number of its bins.
        threshold: Share of an interval from which a port stalls, 0–1.
    """

    span_ns: int
    bins: int
    threshold: float
    _ports: pl.DataFrame = field(default_factory=pl.DataFrame)
    _wiring: _PortWiring | None = None
    _row_of: pl.DataFrame = field(default_factory=pl.DataFrame)
    _time: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _stall: Floats = field(default_factory=lambda: np.zeros(0))
    _used: Floats = field(default_factory=lambda: np.zeros(0))
    _full: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    # Largest stall of each port in each bin, shape (bins, ports), and the ports that stalled in it.
    _course: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _last_bin: int = 0
    _period_ns: float = 0.0
    _trees: deque[tuple[int, NDArray[np.int64]]] = field(default_factory=deque)

    @property
    def bin_ns(self) -> int:
        """Length of a bin, nanoseconds."""
        return max(self.span_ns // self.bins, 1)

    def set_ports(self, ports: pl.DataFrame) -> None:
        """Replace the ports; those that stay keep their state.

        Args:
            ports: Rows of ``targets.PORTS``.
        """
        key = ["node_guid", "port"]
        before = self._row_of
        self._ports = ports.unique(key, keep="last", maintain_order=True)
        self._wiring = _PortWiring.of(self._ports)
        self._row_of = self._ports.select(key).with_row_index("row")
        if before.equals(self._row_of):
            return
        count = self._ports.height
        fresh = {
            "_time": np.zeros(count, np.int64),
            "_stall": np.full(count, np.nan),
            "_used": np.full(count, np.nan),
            "_full": np.zeros(count, np.bool_),
            "_course": np.full((self.bins, count), np.nan, np.float32),
        }
        if before.width:
            kept = self._row_of.join(before, on=key, suffix="_before")
            new, old = kept["row"].to_numpy(), kept["row_before"].to_numpy()
            for name, column in fresh.items():
                column[..., new] = getattr(self, name)[..., old]
        for name, column in fresh.items():
            setattr(self, name, column)
        self._counts = (self._course >= self.threshold).sum(axis=1)
        self._trees.clear()

    def update(self, intervals: pl.DataFrame) -> None:
        """Add intervals.

        Args:
            intervals: Rows of ``counter_intervals``, those of a port in order of time.
        """
        rows = intervals.join(self._row_of, on=["node_guid", "port"], maintain_order="left")
        if rows.is_empty():
            return
        rows = rows.select(
            "row",
            "time_ns",
            "interval_ns",
            stall=pl.col("stall_fraction").fill_null(np.nan),
            used=pl.col("utilization").fill_null(np.nan),
            full=ends_with_full_stall_counter(),
        )
        at, time = rows["row"].to_numpy(), rows["time_ns"].to_numpy()
        stall, full = rows["stall"].to_numpy(), rows["full"].to_numpy()
        bins = time // self.bin_ns
        self._advance(int(bins.max()))
        recent = bins > self._last_bin - self.bins
        shown = np.where(full & np.isnan(stall), self.threshold, stall).astype(np.float32)
        cell = (bins[recent] % self.bins, at[recent])
        np.fmax.at(self._course, cell, shown[recent])
        for changed in np.unique(cell[0]).tolist():
            self._counts[changed] = np.count_nonzero(self._course[changed] >= self.threshold)
        # Of several intervals of a port the last counts: assignment goes in order.
        self._time[at], self._stall[at] = time, stall
        self._used[at], self._full[at] = rows["used"].to_numpy(), full
        self._period_ns = float(np.median(rows["interval_ns"].to_numpy()))

    def _advance(self, newest: int) -> None:
        """Clear the bins between the newest one so far and ``newest``."""
        if newest > self._last_bin:
            first = max(self._last_bin + 1, newest - self.bins + 1)
            cleared = np.arange(first, newest + 1) % self.bins
            self._course[cleared], self._counts[cleared] = np.nan, 0
            self._last_bin = newest

    def look(self, most: int) -> LiveView:
        """What happens now, with at most ``most`` ports and trees."""
        now = int(self._time.max(initial=0))
        fresh = self._time > now - MOST_MISSED * max(self._period_ns, 1.0)
        gbps = self._ports["capacity_gbps"].fill_null(np.nan).to_numpy() if len(fresh) else fresh
        stalled = fresh & (self._full | (np.nan_to_num(self._stall) >= self.threshold))
        lost = np.clip(self._stall, 0.0, 1.0) * gbps
        rank = np.lexsort((-np.nan_to_num(lost), ~(self._full & fresh)))
        order = rank[stalled[rank]][:most].tolist()
        bins = np.arange(self._last_bin - self.bins + 1, self._last_bin + 1) % self.bins
        hottest = [
            HotPort(
                self._name(row),
                float(self._stall[row]),
                bool(self._full[row]),
                float(self._used[row]),
                float(lost[row]),
                self._course[bins, row].astype(np.float64),
            )
            for row in order
        ]
        return LiveView(
            now,
            self.bin_ns,
            len(fresh),
            self._counts[bins].tolist() if len(fresh) else [0] * self.bins,
            hottest,
            self._find_trees(now, stalled, fresh, lost, most),
        )

    def _name(self, row: int) -> str:
        facts = self._ports.row(row, named=True)
        far = facts["peer_name"] and port_name(facts["peer_name"], facts["peer_port"])
        return link_name(port_name(facts["node_name"], facts["port"]), far)

    def _find_trees(
        self, now: int, stalled: Bools, fresh: Bools, lost: Floats, most: int
    ) -> list[CongestionTree]:
        """The ``most`` trees of stalled ports that lose most."""
        if self._wiring is None:
            return []
        hot = np.flatnonzero(stalled)
        waits, on = self._wiring.onward(hot, hot)
        place = np.full(len(stalled), -1, np.int64)
        place[hot] = np.arange(len(hot))
        label = component_of_each(place[waits], place[on], len(hot))
        sizes = np.zeros(len(stalled), np.int64)
        sizes[hot] = np.bincount(label)[label] if len(hot) else 0
        earlier = self._remember(now, sizes)
        busy = np.flatnonzero((np.nan_to_num(self._used) >= FULL_UTILIZATION) & fresh & ~stalled)
        lost_of = np.bincount(label, np.nan_to_num(lost[hot])) if len(hot) else np.zeros(0)
        order = np.lexsort((-np.bincount(label, minlength=len(lost_of)), -lost_of))
        trees = []
        for number in order[:most].tolist():
            members = hot[label == number]
            roots, at_host = self._roots(members, waits, busy)
            trees.append(
                CongestionTree(
                    [self._name(row) for row in roots],
                    at_host,
                    len(members),
                    int(earlier[members].max(initial=0)),
                    float(lost_of[number]),
                )
            )
        return trees

    def _roots(
        self, members: NDArray[np.int64], waits: NDArray[np.int64], busy: NDArray[np.int64]
    ) -> tuple[list[int], bool]:
        """Rows of the ports where the waiting of a tree may begin, and whether a host is at fault.

        A member that waits for no other is one, unless a port onward of it is full and does not
        wait: then that port is.
        """
        assert self._wiring is not None
        last = members[~np.isin(members, waits)]
        if not len(last):  # Ports that wait for one another in a circle.
            last = members
        at_host = last[self._wiring.leads_to_host[last]]
        if len(at_host):
            order = np.argsort(-np.nan_to_num(self._stall[at_host]), kind="stable")
            return at_host[order].tolist(), True
        _, full = self._wiring.onward(last, busy)
        chosen = np.unique(full) if len(full) else last
        order = np.argsort(-np.nan_to_num(self._used[chosen]), kind="stable")
        return chosen[order].tolist(), False

    def _remember(self, now: int, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Keep the size of the tree of each port; returns those ``GROWTH_SHARE`` earlier."""
        self._trees.append((now, sizes))
        due = now - GROWTH_SHARE * self.span_ns
        while len(self._trees) > 1 and self._trees[1][0] <= due:
            self._trees.popleft()
        # Within the first part of a course, the first look is the earliest that there is.
        return self._trees[0][1]


@dataclass(frozen=True)
class _PortWiring:
    """Which ports lead on from which.

    Attributes:
        device: Device of each port, by number.
        far: Device at its far end, -1 unknown.
        back: Row of the port at its far end, -1 unknown.
        leads_to_host: Its far end is an adapter.
        down: It leads to a switch that is nearer to hosts.
    """

    device: NDArray[np.int64]
    far: NDArray[np.int64]
    back: NDArray[np.int64]
    leads_to_host: Bools
    down: Bools

    @classmethod
    def of(cls, ports: pl.DataFrame) -> _PortWiring:
        """The wiring of rows of ``targets.PORTS``."""
        guids = np.unique(np.append(ports["node_guid"].to_numpy(), ports["peer_guid"].to_numpy()))
        device = np.searchsorted(guids, ports["node_guid"].to_numpy())
        is_linked = (ports["peer_guid"] > 0).to_numpy()
        far = np.where(is_linked, np.searchsorted(guids, ports["peer_guid"].to_numpy()), -1)
        is_switch = np.zeros(len(guids), np.bool_)
        is_switch[device[ports["switch"].to_numpy()]] = True
        back = ports.join(
            ports.select("node_guid", "port").with_row_index("back"),
            left_on=["peer_guid", "peer_port"],
            right_on=["node_guid", "port"],
            how="left",
            maintain_order="left",
        )["back"]
        depth = _depths(device, far, is_switch)
        return cls(
            device,
            far,
            back.cast(pl.Int64).fill_null(-1).to_numpy(),
            is_linked & ~is_switch[far],
            is_linked & (depth[far] < depth[device]),
        )

    def onward(
        self, here: NDArray[np.int64], there: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of ports of which the first feeds the second.

        A route that went down goes up no more, and never back through the same cable.
        """
        pairs = (
            pl.DataFrame({"a": here, "device": self.far[here]})
            .join(pl.DataFrame({"b": there, "device": self.device[there]}), on="device")
            .select("a", "b")
        )
        a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
        down = self.down[a] & ~self.down[b] & ~self.leads_to_host[b]
        keep = (self.back[a] != b) & ~self.leads_to_host[a] & ~down
        return a[keep], b[keep]


def _depths(
    device: NDArray[np.int64], far: NDArray[np.int64], is_switch: Bools
) -> NDArray[np.int64]:
    """Hops from each device to the nearest adapter; -1 of adapters, and equal without any."""
    depth = np.where(is_switch, np.iinfo(np.int64).max // 2, -1)
    linked = far >= 0
    while True:
        nearer = depth.copy()
        np.minimum.at(nearer, device[linked], depth[far[linked]] + 1)
        np.minimum.at(nearer, far[linked], depth[device[linked]] + 1)
        nearer[~is_switch] = -1
        if (nearer == depth).all():
            return depth
        depth = nearer


def count_course(counts: Sequence[int]) -> Floats:
    """Counts as shares of the largest one, for a raster."""
    values = np.asarray(counts, np.float64)
    return values / max(float(values.max(initial=0.0)), 1.0)
