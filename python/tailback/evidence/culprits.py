"""Which job holds up which, from the counters of adapters and the job list alone.

The adapters of a job stall while the network takes its data more slowly than it sends them. If that
rises and falls with what another job injects, or with the ports into its hosts being full, the
other job may be the cause. Three tests keep coincidence out. The other job must use links of the
routes of the first, where forwarding tables are known. Their agreement in time must exceed that
after a shift in time, which leaves the course of each as it is (a permutation test by circular
shifts). And it must remain first in resampled blocks of time. A receiver that is full all the time
shows no course; then the place tells: congestion begins at a port that is full (Taffet 2019,
theorem 4.2), and what goes into a host belongs to its job. Otherwise no job is named. Jobs must be
alone on their hosts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.evidence.jobs import JobList
from tailback.evidence.repeated_runs import JOB_RUNS, repeated_runs
from tailback.names.hosts import HostNames
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Aggregate, Archive, Engine, Piece
from tailback.run.schema import Column, Table
from tailback.units import counted

MAX_WINDOWS: Final = 2000
"""Most windows of time: a finer course of a long time costs more and tells no more."""
LEAST_WINDOWS: Final = 40
"""Fewest windows in which a job ran for its stall to be explained."""
LEAST_STALL: Final = 0.005
"""Share of the time that the adapters of a job must stall to be worth an explanation."""
SIGNIFICANCE: Final = 0.05
"""Largest p of a job that is named, over all jobs that were compared."""
FIRST_IN: Final = 0.9
"""Share of resamplings in which the named job must explain the stall better than any other."""
CLEARLY: Final = 0.98
"""Ratio of the squares that are left from which one job explains a stall better than another."""
LEAST_SHARE: Final = 0.2
"""Share of the stall that the named job must explain."""
FULL_RECEIVER: Final = 0.9
"""Utilization from which the port into a host is full."""
COVERED: Final = 0.8
"""Share of a stall during which a job must have full receivers to be named by place."""
UNCOVERED: Final = 0.3
"""The most of it during which any other job, the victim included, may have them."""
RESAMPLINGS: Final = 200
MAX_VICTIMS: Final = 20

JOB_STALLS: Final = Table(
    "job_stalls",
    "a job, what its adapters waited for the network, and the job that held it up",
    (
        Column("job", pl.String, "identifier, as the scheduler has it"),
        Column("hosts", pl.UInt32, "hosts whose adapters were read"),
        Column("seconds", pl.Float64, "time of the counters in which it ran"),
        Column("stall_fraction", pl.Float64, "share of the time that its adapters stalled"),
        Column("maximum", pl.Float64, "largest such share in one window of time"),
        Column("stalled_windows", pl.Float64, "share of the windows in which they stalled"),
        Column("stalled_node_hours", pl.Float64, "node-hours in which they stalled"),
        Column("lost_gbps", pl.Float64, "bandwidth that they lost to it, Gb/s, sum over adapters"),
        Column("sent_gbps", pl.Float64, "what they sent, Gb/s, sum over adapters"),
        Column("culprit", pl.String, "job that held it up; null: none is named"),
        Column("share", pl.Float64, "share of its stall that the culprit explains"),
        Column("p", pl.Float64, "chance of such an agreement, over all jobs compared"),
        Column("why", pl.String, "why this job is named, or none"),
    ),
)

JOB_PAIRS: Final = Table(
    "job_pairs",
    "a job that stalled and another that ran at the same time",
    (
        Column("victim", pl.String, "the job that stalled"),
        Column("aggressor", pl.String, "the other job"),
        Column("correlation", pl.Float64, "of the stall of one with what the other sent"),
        Column("p", pl.Float64, "chance of it after a shift in time, over all jobs compared"),
        Column("share", pl.Float64, "share of the stall that it explains; null: not significant"),
        Column("share_low", pl.Float64, "lower end of the 90 % interval of the share"),
        Column("share_high", pl.Float64, "upper end"),
        Column("lost_gbps", pl.Float64, "bandwidth that the victim lost to it, Gb/s"),
        Column("shares_links", pl.Boolean, "their routes have links in common; null unknown"),
    ),
)

Overlaps = Callable[[Sequence[str], Sequence[str]], bool | None]
"""Whether routes among some hosts share links with those among others; None unknown."""


@dataclass(frozen=True)
class JobHarm:
    """Jobs by what they lost to stalls, and who may have caused it.

    Attributes:
        jobs: Rows of :data:`JOB_STALLS`, most lost bandwidth first.
        pairs: Rows of :data:`JOB_PAIRS`.
        notes: What was left out.
        runs: Rows of ``JOB_RUNS``: jobs that ran several times.
    """

    jobs: pl.DataFrame
    pairs: pl.DataFrame
    notes: list[str] = field(default_factory=list)
    runs: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=JOB_RUNS.polars_schema))


@dataclass(frozen=True)
class HostCourse:
    """What the adapters of hosts did, by window of time.

    Attributes:
        hosts: Names, length H.
        edges_ns: Edges of the windows, UTC nanoseconds, shape (W + 1,).
        sent: Bytes sent, shape (H, W), NaN unknown.
        stall: Share of the time that the adapters stalled, shape (H, W), NaN unknown.
        gbps: Rate of the adapters of a host, shape (H,).
        full: Share of the ports into each host that are full, 0 unknown, shape (H, W).
    """

    hosts: list[str]
    edges_ns: Floats
    sent: Floats
    stall: Floats
    gbps: Floats
    full: Floats


def host_course(
    rows: pl.LazyFrame | Archive,
    host_of: Mapping[str, str],
    receivers: Mapping[tuple[str, int], str] | None = None,
    engine: Engine = LOCAL_ENGINE,
) -> HostCourse | None:
    """The course of the adapters of hosts.

    Args:
        rows: Rows of ``counter_intervals``.
        host_of: Host of each adapter, by the adapter's name in ``node_name``.
        receivers: Host behind each port of a switch that leads to one, where known.
        engine: Processes the pieces.

    Returns:
        The course; None if no adapter has an interval.
    """
    pieces = Archive.of(rows).pieces()
    spans = Aggregate(partial(_spans, adapters=list(host_of)), _add_spans, _SPAN_COLUMNS)
    about = engine.add_up(pieces, [spans])[0]
    start, end, observed, intervals = about.row(0) if about.height else (None,) * 4
    if start is None or end <= start:
        return None
    count = int(np.clip(np.ceil((end - start) * intervals / max(observed, 1)), 1, MAX_WINDOWS))
    width = (end - start) / count
    hosts = sorted(set(host_of.values()))
    place = {host: number for number, host in enumerate(hosts)}
    ends: list[tuple[str, int | None, int]] = [
        *((adapter, None, place[host]) for adapter, host in host_of.items()),
        *((*port, place[host]) for port, host in (receivers or {}).items() if host in place),
    ]
    schema = {"node_name": pl.String, "into": pl.UInt16, "host": pl.UInt32}
    ports = pl.DataFrame(ends, schema=schema, orient="row")
    cells = Aggregate(
        partial(_cells, ends=ports, start=start, width=width, count=count),
        _add_cells,
        _CELL_COLUMNS,
    )
    sums = {name: np.zeros((len(hosts), count)) for name in _CELLS}
    gbps = np.zeros(len(hosts))
    # A table of all cells takes several times the memory of these arrays.
    for first in range(0, len(pieces), engine.ahead):
        table = engine.add_up(pieces[first : first + engine.ahead], [cells])[0]
        at = table["host"].to_numpy(), table["window"].to_numpy()
        for name, values in sums.items():
            values[at] += table[name].to_numpy()
        np.maximum.at(gbps, at[0], table["gbps"].to_numpy())
    read = np.flatnonzero(sums["readings"].any(axis=1))
    sums = {name: values[read] for name, values in sums.items()}
    with np.errstate(invalid="ignore"):
        stall = np.clip(sums["stalled"] / sums["timed"], 0.0, 1.0)
    sent = np.where(sums["counted"] > 0, sums["sent"], np.nan)
    full = sums["full"] / np.maximum(sums["into"], 1)
    edges = start + width * np.arange(count + 1, dtype=np.float64)
    return HostCourse([hosts[number] for number in read], edges, sent, stall, gbps[read], full)


_CELLS: Final = ("readings", "counted", "sent", "stalled", "timed", "into", "full")
"""Sums of a host in a window: of its adapters, and of the ports into it."""
_SPAN_COLUMNS: Final = ("node_name", "time_ns", "interval_ns")
_CELL_COLUMNS: Final = (
    *_SPAN_COLUMNS,
    *("port", "data_bytes", "stall_fraction", "capacity_gbps", "utilization"),
)


def _spans(piece: Piece, adapters: Sequence[str]) -> pl.LazyFrame:
    """When the adapters were observed: first and last instant, time, and number of intervals."""
    return piece.rows.filter(pl.col("node_name").is_in(adapters)).select(
        start=(pl.col("time_ns") - pl.col("interval_ns")).min(),
        end=pl.col("time_ns").max(),
        observed=pl.col("interval_ns").sum(),
        intervals=pl.len(),
    )


def _add_spans(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts.select(
        pl.col("start").min(),
        pl.col("end").max(),
        pl.col("observed").sum(),
        pl.col("intervals").sum(),
    )


def _cells(piece: Piece, ends: pl.DataFrame, start: int, width: float, count: int) -> pl.LazyFrame:
    """What hosts sent and waited, and how often ports into them were full, by window.

    Args:
        piece: Rows of ``counter_intervals``.
        ends: Number of the host of each adapter (``into`` null) and of each port into a host.
        start: Begin of the first window, UTC nanoseconds.
        width: Length of a window, nanoseconds.
        count: Number of windows.
    """
    middle = pl.col("time_ns") - pl.col("interval_ns") / 2
    window = ((middle - start) / width).floor().clip(0, count - 1).cast(pl.UInt16)
    adapters = ends.filter(pl.col("into").is_null()).drop("into").lazy()
    into = ends.drop_nulls("into").rename({"into": "port"}).lazy()
    stall, length = pl.col("stall_fraction"), pl.col("interval_ns")
    sending = (
        piece.rows.join(adapters, on="node_name")
        .group_by("host", window.alias("window"))
        .agg(
            readings=pl.len(),
            counted=pl.col("data_bytes").count(),
            sent=pl.col("data_bytes").sum(),
            stalled=(stall * length).sum(),
            timed=length.filter(stall.is_not_null()).sum(),
            gbps=pl.col("capacity_gbps").max() * pl.struct("node_name", "port").n_unique(),
        )
    )
    receiving = (
        piece.rows.join(into, on=["node_name", "port"])
        .group_by("host", window.alias("window"))
        .agg(
            into=pl.col("utilization").count(),
            full=(pl.col("utilization") >= FULL_RECEIVER).sum(),
        )
    )
    key = ["host", "window"]
    cells = sending.join(receiving, on=key, how="full", coalesce=True)
    return cells.with_columns(pl.exclude(key).fill_null(0).cast(pl.Float64))


def _add_cells(parts: pl.LazyFrame) -> pl.LazyFrame:
    sums = parts.group_by("host", "window")
    return sums.agg(pl.col(*_CELLS).sum(), pl.col("gbps").max())


@dataclass(frozen=True)
class _Job:
    """A job in the time of the counters.

    Attributes:
        name: Its identifier.
        hosts: Its hosts that were read.
        runs: Whether it ran throughout each window, shape (W,).
        stall: Mean stall of its adapters by window, 0 while it does not run, shape (W,).
        sent_gbps: What they sent, 0 while it does not run, shape (W,).
        gbps: Rate of its adapters together.
        full: How many of its hosts have a full receiver, by window, shape (W,).
    """

    name: str
    hosts: list[str]
    runs: Floats
    stall: Floats
    sent_gbps: Floats
    gbps: float
    full: Floats


def explain_stalls(
    course: HostCourse, listed: JobList, overlaps: Overlaps = lambda a, b: None, *, seed: int = 1
) -> JobHarm:
    """Say what each job lost to stalls, and which job held it up.

    Args:
        course: What the adapters of hosts did.
        listed: The jobs.
        overlaps: Whether routes among two sets of hosts share links.
        seed: Of the resampling.
    """
    jobs, notes = _jobs(course, listed)
    order = sorted(jobs, key=lambda job: (-float((job.stall * job.gbps).mean()), job.name))
    rng = np.random.default_rng(seed)
    rows, pairs = [], []
    for number, victim in enumerate(order):
        mine: list[dict[str, Any]] = []
        why = "stalled too little to explain" if number < MAX_VICTIMS else "others lost more"
        stalled = _mean(victim.stall, victim.runs)
        if number < MAX_VICTIMS and stalled >= LEAST_STALL:
            mine, why = _explain(victim, [j for j in jobs if j is not victim], overlaps, rng)
        pairs += mine
        named = next((pair for pair in mine if pair.pop("named", False)), None)
        lost = stalled * victim.gbps
        for pair in mine:
            share = pair["share"]
            pair["lost_gbps"] = None if share is None else share * lost
        seconds = float(victim.runs.sum() * (course.edges_ns[1] - course.edges_ns[0]) / 1e9)
        rows.append(
            {
                "job": victim.name,
                "hosts": len(victim.hosts),
                "seconds": seconds,
                "stall_fraction": stalled,
                "maximum": float(victim.stall.max()),
                "stalled_windows": _mean((victim.stall > 0).astype(np.float64), victim.runs),
                "stalled_node_hours": stalled * seconds * len(victim.hosts) / 3600,
                "lost_gbps": lost,
                "sent_gbps": _mean(victim.sent_gbps, victim.runs),
                "culprit": None if named is None else named["aggressor"],
                "share": None if named is None else named["share"],
                "p": None if named is None else named["p"],
                "why": why,
            }
        )
    frame = pl.DataFrame(rows, schema=JOB_STALLS.polars_schema)
    return JobHarm(
        frame.sort("lost_gbps", "job", descending=[True, False]),
        pl.DataFrame(pairs, schema=JOB_PAIRS.polars_schema),
        [*listed.notes, *notes],
        repeated_runs(_complete_runs(frame, course, listed), seed=seed),
    )


def _complete_runs(jobs: pl.DataFrame, course: HostCourse, listed: JobList) -> pl.DataFrame:
    """Name, hosts, time and stall of the jobs with a name that began and ended meanwhile."""
    names = pl.DataFrame(
        list(listed.names.items()), schema={"job": pl.String, "name": pl.String}, orient="row"
    )
    within = pl.col("start_ns") >= course.edges_ns[0], pl.col("end_ns") <= course.edges_ns[-1]
    return (
        listed.jobs.filter(*within, pl.col("job").is_unique())
        .join(names, on="job")
        .join(jobs.select("job", "stall_fraction", read="hosts"), on="job")
        # The stall of a run is known only if all its hosts were read.
        .filter(pl.col("hosts").list.len() == pl.col("read"))
        .select(
            "name",
            "stall_fraction",
            hosts="read",
            seconds=(pl.col("end_ns") - pl.col("start_ns")) / 1e9,
        )
    )


def _mean(values: Floats, runs: Floats) -> float:
    """Mean over the windows in which a job ran, 0 without any."""
    return float(values[runs > 0].mean()) if (runs > 0).any() else 0.0


def _jobs(course: HostCourse, listed: JobList) -> tuple[list[_Job], list[str]]:
    """The jobs that ran on hosts that were read."""
    edges = course.edges_ns
    entries = listed.during(int(edges[0]), int(edges[-1]))
    names = sorted({host for hosts in entries["hosts"] for host in hosts})
    spelled = HostNames(set(course.hosts)).joined(names)
    place = {host: number for number, host in enumerate(course.hosts)}
    seconds = (edges[1] - edges[0]) / 1e9
    jobs: list[_Job] = []
    unread: set[str] = set()
    taken = np.zeros((len(course.hosts), len(edges) - 1), np.int64)
    for name, start, end, hosts in entries.iter_rows():
        at = [place[h] for host in hosts if (h := spelled.get(host, host)) in place]
        unread.update(host for host in hosts if spelled.get(host, host) not in place)
        runs = (edges[:-1] >= start) & (edges[1:] <= (edges[-1] if end is None else end))
        if not at or not runs.any():
            continue
        taken[at] += runs
        with np.errstate(invalid="ignore"):
            stall = np.nan_to_num(np.nanmean(_known(course.stall[at]), axis=0)) * runs
            sent = np.nansum(course.sent[at], axis=0) * 8e-9 / seconds * runs
        jobs.append(
            _Job(
                name,
                [course.hosts[i] for i in at],
                runs.astype(np.float64),
                stall,
                sent,
                float(course.gbps[at].sum()),
                course.full[at].sum(axis=0) * runs,
            )
        )
    notes = []
    if unread:
        notes.append(f"hosts of jobs whose adapters were not read: {len(unread)}")
    if shared := int((taken > 1).any(axis=1).sum()):
        notes.append(f"{counted(shared, 'host')} ran several jobs at a time: they count for each")
    return jobs, notes


def _known(values: Floats) -> Floats:
    """Values with 0 in windows that are known of no host, so that their mean exists."""
    return np.where(np.isnan(values).all(axis=0), 0.0, values)


def _explain(
    victim: _Job, others: list[_Job], overlaps: Overlaps, rng: np.random.Generator
) -> tuple[list[dict[str, Any]], str]:
    """Pairs of a victim with other jobs, and why one of them is named or none."""
    at = victim.runs > 0
    stall, own_gbps = victim.stall[at], victim.sent_gbps[at]
    windows = len(stall)
    if windows < LEAST_WINDOWS:
        return [], f"ran for {windows} readings, too few to explain"
    pairs: list[dict[str, Any]] = []
    courses: dict[str, list[Floats]] = {}
    weight = stall / stall.sum()
    covers = {victim.name: float(weight[victim.full[at] > 0].sum())}
    for other in others:
        possible = [course[at] for course in (other.sent_gbps, other.full)]
        varying = [c for c in possible if c.std() > 1e-9 * max(c.mean(), 1e-300)]
        if not any(course.any() for course in possible):
            continue
        shared = overlaps(victim.hosts, other.hosts)
        if shared is False:
            continue
        courses[other.name] = varying
        covers[other.name] = float(weight[other.full[at] > 0].sum())
        pairs.append(
            {
                "victim": victim.name,
                "aggressor": other.name,
                **dict.fromkeys(("share", "share_low", "share_high", "lost_gbps")),
                "shares_links": shared,
            }
        )
    if not pairs:
        return [], "no other job on its routes sent anything"
    best_course: dict[str, Floats] = {}
    for pair in pairs:
        name = pair["aggressor"]
        tests = [(*_shift_test(stall, own_gbps, course), course) for course in courses[name]]
        pair["correlation"], p, best_course[name] = min(
            tests, key=lambda test: (test[1], -test[0]), default=(0.0, 1.0, np.zeros(windows))
        )
        pair["p"] = min(1.0, p * len(pairs) * max(len(tests), 1))
    pairs.sort(key=lambda pair: (pair["p"], -pair["correlation"], pair["aggressor"]))
    significant = [pair for pair in pairs if pair["p"] <= SIGNIFICANCE]
    if not significant:
        return pairs, _named_by_place(pairs, covers)
    kept = [best_course[pair["aggressor"]] for pair in significant]
    shares, samples = _shares(stall, own_gbps, kept, rng)
    for number, pair in enumerate(significant):
        low, high = np.quantile(samples[:, number], [0.05, 0.95])
        pair |= {
            "share": float(shares[number]),
            "share_low": float(low),
            "share_high": float(high),
        }
    significant.sort(key=lambda pair: -pair["share"])
    best = int(np.argmax(shares))
    first = _first_in(stall, own_gbps, kept, best, rng)
    insignificant = [pair for pair in pairs if pair not in significant]
    if shares[best] < LEAST_SHARE:
        return [*significant, *insignificant], "other jobs explain little of its stall"
    if first < FIRST_IN:
        names = " and ".join(pair["aggressor"] for pair in significant[:2])
        return [*significant, *insignificant], f"{names} cannot be told apart"
    significant[0]["named"] = True
    return [*significant, *insignificant], "its stall follows what this job sent"


def _named_by_place(pairs: list[dict[str, Any]], covers: Mapping[str, float]) -> str:
    """Name the one job whose receivers were full while the victim stalled; says why, or why not."""
    for pair in pairs:
        name = pair["aggressor"]
        others = [share for other, share in covers.items() if other != name]
        if covers[name] >= COVERED and max(others) <= UNCOVERED:
            pair |= {"named": True, "share": covers[name], "p": None}
            return "the ports into its hosts were full meanwhile, and those of no other job"
    return "its stall does not follow what another job sent"


def _shift_test(stall: Floats, own_gbps: Floats, sent: Floats) -> tuple[float, float]:
    """Correlation of a stall with what another job sent, and its p by circular shifts.

    Args:
        stall: Stall of the victim, shape (W,).
        own_gbps: What the victim sent: what it explains by itself is taken out, shape (W,).
        sent: What the other job sent, shape (W,).
    """
    # A stall is a sum of few waits, so its variance grows with its mean; that of its root does not
    # (Bartlett 1947). A few long waits would decide on the correlation otherwise.
    residual = _without(np.sqrt(stall), own_gbps)
    course = sent - sent.mean()
    scale = np.sqrt((residual**2).sum() * (course**2).sum())
    if scale <= 0:
        return 0.0, 1.0
    windows = len(stall)
    products = np.fft.irfft(np.fft.rfft(residual) * np.conj(np.fft.rfft(course)), windows)
    # Shifts by less than a twentieth of the time leave most of the agreement.
    least = max(2, windows // 20)
    shifted = products[least : windows - least + 1]
    p = (1 + int((shifted >= products[0] - 1e-12 * scale).sum())) / (1 + len(shifted))
    correlation = float(products[0] / scale)
    # Few bursts make few independent shifts, whose ranks are then too coarse.
    spread = np.sqrt(_independent(residual, course))
    return correlation, max(p, 0.5 * math.erfc(correlation * spread / math.sqrt(2)))


def _independent(a: Floats, b: Floats) -> float:
    """Number of independent values that two courses with memory amount to (Bartlett 1935)."""
    windows = len(a)
    lags = np.arange(1, max(2, windows // 4))
    memory = []
    for course in (a, b):
        power = np.abs(np.fft.rfft(course, 2 * windows)) ** 2
        products = np.fft.irfft(power)[:windows]
        memory.append(products[lags] / max(products[0], 1e-300))
    inflation = 1 + 2 * float(((1 - lags / windows) * memory[0] * memory[1]).sum())
    return windows / max(inflation, 1.0)


def _without(values: Floats, cause: Floats) -> Floats:
    """Values without their mean, and without what rises with a cause."""
    centred, course = values - values.mean(), cause - cause.mean()
    power = (course**2).sum()
    slope = max(0.0, float((centred * course).sum() / power)) if power > 0 else 0.0
    out: Floats = centred - slope * course
    return out


def _first_in(
    stall: Floats, own_gbps: Floats, others: Sequence[Floats], best: int, rng: np.random.Generator
) -> float:
    """Share of resamplings in which one job alone explains a stall clearly better than others."""
    if len(others) == 1:
        return 1.0
    residual = _without(stall, own_gbps)
    wins = 0
    for rows in _resampled(len(stall), rng):
        left = [float((_without(residual[rows], course[rows]) ** 2).sum()) for course in others]
        wins += left[best] < CLEARLY * min(left[:best] + left[best + 1 :])
    return wins / RESAMPLINGS


def _resampled(windows: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Windows of blocks of time drawn with replacement, :data:`RESAMPLINGS` times."""
    length = max(3, windows // 20)
    for _ in range(RESAMPLINGS):
        starts = rng.integers(0, windows, -(-windows // length))
        yield (starts[:, None] + np.arange(length)).ravel()[:windows] % windows


def _shares(
    stall: Floats, own_gbps: Floats, others: Iterable[Floats], rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Share of a stall that each job explains, by non-negative least squares.

    Returns:
        The shares, shape (J,); and those of blocks of time drawn with replacement, shape
        (RESAMPLINGS, J).
    """
    from scipy.optimize import nnls  # takes half a second to import: only where it is needed

    columns = np.stack([np.ones_like(stall), own_gbps, *others], axis=1)
    scale = np.maximum(columns.mean(axis=0), 1e-300)
    design = columns / scale

    def fit(rows: NDArray[np.int64]) -> Floats:
        weights, _ = nnls(design[rows], stall[rows])
        explained = weights * design[rows].mean(axis=0)
        share: Floats = explained[2:] / max(float(stall[rows].mean()), 1e-300)
        return share

    samples = [fit(rows) for rows in _resampled(len(stall), rng)]
    return fit(np.arange(len(stall))), np.array(samples)
