"""The congestion evolution graph: features of contiguous congested links through time.

Jha et al., *Characterizing Supercomputer Traffic Networks Through Link-Level Analysis* (HPCMASPA
2018), section VI. At each step, neighbouring links above a threshold form a *feature*. A feature
evolves into every feature of the next step with a link in common. Features therefore split and
merge, and the graph is acyclic. A feature that is absent for one step and comes back is a new one.
A step is a sweep (:mod:`tailback.port_counters.analysis.sweeps`): ports are not read at one
instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.fabric.model import Fabric
from tailback.port_counters.analysis.sweeps import Sweeps
from tailback.port_counters.schema import ROUNDING, CounterError, counter_is_full

FEATURES: Final[dict[str, type[pl.DataType]]] = {
    "feature": pl.UInt32,
    "step": pl.UInt32,
    "time_ns": pl.Int64,
    "extent": pl.UInt32,
    "maximum": pl.Float64,
    "mean": pl.Float64,
    "evolution": pl.UInt32,
    "at_least": pl.Boolean,
}
"""Table of features: number, step and its time, links in it, largest and mean value in percent, the
evolution (connected component of the graph) it belongs to, and whether one of its links has a full
stall counter, so that the values are lower bounds."""


@dataclass(frozen=True)
class Evolution:
    """A congestion evolution graph.

    Attributes:
        features: Table ``FEATURES``, in order of time.
        edges: ``source, target``: feature numbers; the target is one step later.
        members: ``feature, place``: the links (rows of ``places``) of each feature.
        places: Label of each link or router, as the counters name it.
        threshold: Percent above which a link counts.
        sweeps: The steps. A sweep without any interval is no step, and no feature continues across
            it.
    """

    features: pl.DataFrame
    edges: pl.DataFrame
    members: pl.DataFrame
    places: list[str]
    threshold: float
    sweeps: Sweeps

    @property
    def steps(self) -> NDArray[np.int64]:
        """Time of every step, nanoseconds, shape (steps,)."""
        return self.sweeps.time_ns

    @property
    def splits(self) -> int:
        """Features that continue as more than one."""
        return int((self.edges.group_by("source").len()["len"] > 1).sum())

    @property
    def merges(self) -> int:
        """Features that come from more than one."""
        return int((self.edges.group_by("target").len()["len"] > 1).sum())


def torus_neighbours(
    coordinates: NDArray[np.int64], shape: tuple[int, int, int], axis: int
) -> NDArray[np.int64]:
    """Pairs of routers that are neighbours along one axis of a torus, wrap-around included.

    Features in one direction are contiguous along it (section VI), so a feature is at most a ring.

    Args:
        coordinates: x, y, z of each router, shape (routers, 3).
        shape: Routers in x, y and z.
        axis: 0, 1 or 2.

    Returns:
        Pairs of rows of ``coordinates``, shape (pairs, 2).
    """
    size = np.array(shape, np.int64)
    weights = np.array([1, size[0], size[0] * size[1]], np.int64)
    where = np.full(int(size.prod()), -1, np.int64)
    where[coordinates @ weights] = np.arange(len(coordinates))
    ahead = coordinates.copy()
    ahead[:, axis] = (ahead[:, axis] + 1) % size[axis]
    other = where[ahead @ weights]
    there = (other >= 0) & (other != np.arange(len(coordinates)))
    return np.column_stack([np.flatnonzero(there), other[there]])


def fabric_neighbours(fabric: Fabric) -> NDArray[np.int64]:
    """Pairs of links of any fabric of which one ends where the other starts.

    That is how back-pressure spreads: from a link to those that feed it. The two directions of one
    cable are not neighbours.

    Returns:
        Pairs of link numbers, shape (pairs, 2).
    """
    number = np.arange(fabric.n_links, dtype=np.uint32)
    into = pl.DataFrame({"vertex": fabric.link_dst, "a": number})
    out = pl.DataFrame({"vertex": fabric.link_src, "b": number})
    switches = pl.col("vertex") >= fabric.n_nodes
    pairs = into.lazy().filter(switches).join(out.lazy(), on="vertex").select("a", "b").collect()
    both = pairs.to_numpy().astype(np.int64)
    return np.asarray(both[fabric.link_reverse[both[:, 0]] != both[:, 1]], np.int64)


def evolve(
    intervals: pl.DataFrame,
    place: NDArray[np.int64],
    percent: NDArray[np.float64],
    neighbours: NDArray[np.int64],
    places: list[str],
    *,
    threshold: float = 40.0,
    full: NDArray[np.bool_] | None = None,
) -> Evolution:
    """Build the graph.

    Args:
        intervals: Columns ``time_ns`` and ``interval_ns`` of ``counter_intervals``, n rows.
        place: Place (link or router) of each interval, a row of ``places``, shape (n,).
        percent: The values, percent, shape (n,); NaN where unknown. If a place has several in a
            step, the largest counts.
        neighbours: Pairs of places, shape (pairs, 2).
        places: Label of each place.
        threshold: A place counts from this value on, percent.
        full: Intervals whose stall counter is full, shape (n,). Their stall is unknown, so they
            count with at least the threshold.

    Returns:
        The graph; empty when no value reaches the threshold.
    """
    if not 0 < threshold <= 100:
        raise CounterError(
            f"threshold {threshold} % is outside 0 to 100", remedy="the paper has 40 %"
        )
    sweeps = Sweeps.of(intervals)
    # A missing sweep separates the steps around it. A gap of 2 is enough. A longer one could
    # overflow the keys.
    apart = np.concatenate([[0], np.cumsum(np.minimum(np.diff(sweeps.number), 2))])
    n_places = len(places)
    if full is None:
        full = np.zeros(len(percent), np.bool_)
    percent = np.where(full, np.fmax(percent, threshold), percent)
    hot = np.isfinite(percent) & (percent >= threshold * (1 - ROUNDING))
    step = sweeps.at(intervals.filter(hot))
    key, row = np.unique(apart[step] * n_places + place[hot], return_inverse=True)
    value = np.full(len(key), -np.inf)
    np.maximum.at(value, row, percent[hot])
    unbounded = np.zeros(len(key), np.bool_)
    np.logical_or.at(unbounded, row, full[hot])
    feature = _features(key, neighbours, n_places)
    count = int(feature.max(initial=-1)) + 1
    edges = _edges(key, feature, n_places)
    pieces = component_of_each(edges[:, 0], edges[:, 1], count)
    extent = np.bincount(feature, minlength=count)
    largest = np.full(count, -np.inf)
    np.maximum.at(largest, feature, value)
    at_least = np.zeros(count, np.bool_)
    np.logical_or.at(at_least, feature, unbounded)
    own_step = np.zeros(count, np.int64)
    own_step[feature] = np.searchsorted(apart, key // n_places)
    features = pl.DataFrame(
        {
            "feature": np.arange(count),
            "step": own_step,
            "time_ns": sweeps.time_ns[own_step],
            "extent": extent,
            "maximum": largest,
            "mean": np.bincount(feature, value, count) / np.maximum(extent, 1),
            "evolution": pieces,
            "at_least": at_least,
        },
        schema_overrides=FEATURES,
    )
    return Evolution(
        features,
        pl.DataFrame({"source": edges[:, 0], "target": edges[:, 1]}, schema_overrides=_PAIR),
        pl.DataFrame({"feature": feature, "place": key % n_places}, schema_overrides=_PAIR),
        places,
        threshold,
        sweeps,
    )


_PAIR: Final[dict[str, type[pl.DataType]]] = {
    "source": pl.UInt32,
    "target": pl.UInt32,
    "feature": pl.UInt32,
    "place": pl.UInt32,
}


def component_of_each(
    source: NDArray[np.int64], target: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Number of the connected component of each of ``count`` vertices."""
    # Imported here because it takes half a second, which the analysis of an archive does not need.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(source), np.int8), (source, target)), (count, count))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


def _features(
    key: NDArray[np.int64], neighbours: NDArray[np.int64], n_places: int
) -> NDArray[np.int64]:
    """Number of the feature of each hot (step, place), in order of time."""
    if len(key) == 0:
        return np.zeros(0, np.int64)
    # All steps at once: the pairs of a step join hot places of that step only.
    order = (
        np.argsort(neighbours[:, 0], kind="stable") if len(neighbours) else np.zeros(0, np.int64)
    )
    pairs = neighbours[order]
    start = np.searchsorted(pairs[:, 0], np.arange(n_places + 1))
    here, step = key % n_places, key // n_places
    many = start[here + 1] - start[here]
    source = np.repeat(np.arange(len(key)), many)
    within = np.arange(len(source)) - np.repeat(np.cumsum(many) - many, many)
    target_key = step[source] * n_places + pairs[start[here[source]] + within, 1]
    target = np.searchsorted(key, target_key)
    is_hot = (target < len(key)) & (key[np.minimum(target, len(key) - 1)] == target_key)
    label = component_of_each(source[is_hot], target[is_hot], len(key))
    _, earliest = np.unique(label, return_index=True)
    rank = np.empty(len(earliest), np.int64)
    rank[np.argsort(earliest, kind="stable")] = np.arange(len(earliest))
    return rank[label]


def _edges(key: NDArray[np.int64], feature: NDArray[np.int64], n_places: int) -> NDArray[np.int64]:
    """Pairs of features in consecutive steps that share a place, shape (edges, 2)."""
    if len(key) == 0:
        return np.zeros((0, 2), np.int64)
    later = np.searchsorted(key, key + n_places)
    goes_on = (later < len(key)) & (key[np.minimum(later, len(key) - 1)] == key + n_places)
    pairs = np.column_stack([feature[goes_on], feature[later[goes_on]]])
    return np.unique(pairs, axis=0) if len(pairs) else np.zeros((0, 2), np.int64)


def from_torus(
    intervals: pl.DataFrame,
    coordinates: pl.DataFrame,
    direction: str,
    *,
    measure: str = "stall_fraction",
    threshold: float = 40.0,
) -> Evolution:
    """The graph of one direction of a torus, as the paper draws it (Figure 9).

    Args:
        intervals: Rows of ``counter_intervals``.
        coordinates: ``node_name, x, y, z`` of the routers.
        direction: ``X+`` … ``Z-``.
        measure: Column of the value, a fraction.
        threshold: Percent.

    Raises:
        CounterError: Not a direction, no coordinates, or two routers with the same coordinates.
    """
    if direction not in ("X+", "X-", "Y+", "Y-", "Z+", "Z-"):
        raise CounterError(f"no direction {direction!r}", remedy="X+, X-, Y+, Y-, Z+ or Z-")
    routers = coordinates.unique(maintain_order=True).drop_nulls()
    xyz = routers.select("x", "y", "z").to_numpy().astype(np.int64)
    if len(xyz) == 0 or (xyz < 0).any() or len(np.unique(xyz, axis=0)) != len(xyz):
        raise CounterError(
            f"{len(xyz)} routers without unique coordinates in the torus",
            remedy="coordinates start at 0, and no two routers share them",
        )
    if int(np.prod(xyz.max(axis=0) + 1)) > 1 << 26:
        raise CounterError("coordinates of a torus of more than 67 million routers")
    shape = tuple(int(n) for n in xyz.max(axis=0) + 1)
    place = routers.select("node_name").with_row_index("place")
    rows = (
        intervals.filter(pl.col("direction") == direction)
        .join(place, on="node_name", how="inner")
        .select("time_ns", "interval_ns", "place", value=pl.col(measure).cast(pl.Float64) * 100)
        .sort("time_ns", "place")
    )
    return evolve(
        rows,
        rows["place"].to_numpy().astype(np.int64),
        rows["value"].fill_null(np.nan).to_numpy(),
        torus_neighbours(xyz, (shape[0], shape[1], shape[2]), "XYZ".index(direction[0])),
        routers["node_name"].to_list(),
        threshold=threshold,
    )


def from_fabric(
    intervals: pl.DataFrame,
    fabric: Fabric,
    *,
    measure: str = "stall_fraction",
    threshold: float = 40.0,
) -> Evolution:
    """The graph of any fabric: links are neighbours where one feeds the other.

    Args:
        intervals: Rows of ``counter_intervals`` with ``link`` numbers of this fabric, or the total
            of ``instants.hot_links_pass``.
        fabric: The fabric.
        measure: Column of the value, a fraction.
        threshold: Percent.
    """
    on_links = intervals.filter(pl.col("link").is_not_null())
    if "full" not in on_links.columns:
        on_links = on_links.with_columns(full=counter_is_full("link"))
    rows = on_links.sort("time_ns", "link")
    link = rows["link"].to_numpy().astype(np.int64)
    if len(link) and int(link.max()) >= fabric.n_links:
        raise CounterError(
            f"link {int(link.max())} of a fabric that has {fabric.n_links}",
            remedy="the counters are of another fabric",
        )
    return evolve(
        rows,
        link,
        (rows[measure].cast(pl.Float64) * 100).fill_null(np.nan).to_numpy(),
        fabric_neighbours(fabric),
        [fabric.link_name(n) for n in range(fabric.n_links)],
        threshold=threshold,
        full=rows["full"].to_numpy(),
    )


BANDS: Final = (
    (40.0, "#f3d9ee"),
    (50.0, "#dfa6dc"),
    (60.0, "#b96cc4"),
    (70.0, "#83409e"),
    (80.0, "#4a1f6b"),
)
"""From which percentage a colour applies: light to dark, in order of lightness."""


def colour(percent: float) -> str:
    """Colour of a feature by its largest value, ``#rrggbb``."""
    chosen = "#faf0f8"
    for start, name in BANDS:
        if percent >= start:
            chosen = name
    return chosen


UNITS: Final = (("min", 60e9), ("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
"""Units of time and their nanoseconds, largest first."""


def time_unit(steps: NDArray[np.int64]) -> tuple[str, float]:
    """Unit in which the span of ``steps`` (nanoseconds) reads well, and its nanoseconds."""
    span = float(np.ptp(steps)) if len(steps) else 0.0
    for unit, scale in UNITS:
        if span >= 2 * scale:
            return unit, scale
    return UNITS[-1]


def columns_of(graph: Evolution) -> NDArray[np.int64]:
    """Column of each feature in its step: below its predecessors, or the nearest free one.

    Returns:
        Columns from 0, distinct within a step, shape (features,).
    """
    step = graph.features["step"].to_numpy().astype(np.int64)
    out = np.zeros(len(step), np.int64)
    parents: dict[int, list[int]] = {}
    for source, target in graph.edges.iter_rows():
        parents.setdefault(target, []).append(source)
    for now in np.unique(step):
        taken: set[int] = set()
        mine = np.flatnonzero(step == now).tolist()
        wish = {f: float(np.mean([out[p] for p in parents[f]])) for f in mine if f in parents}
        # Features that continue keep their columns. New ones take the first free one.
        for feature in sorted(mine, key=lambda f: (f not in wish, wish.get(f, 0.0), f)):
            near, far = round(wish.get(feature, 0.0)), 0
            while True:
                free = [c for c in (near - far, near + far) if c >= 0 and c not in taken]
                if free:
                    break
                far += 1
            out[feature] = free[0]
            taken.add(free[0])
    return out
