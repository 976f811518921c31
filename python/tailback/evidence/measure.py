"""Turn a trace into a measured run: times on a common clock, and their breakdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.evidence.causality import CausalityRepair, correct
from tailback.evidence.clocks import Clocks, Latency, constraints, solve
from tailback.evidence.hosts import Hosts, find_hosts
from tailback.evidence.model import (
    ClockReport,
    Efficiency,
    HostReport,
    LateRank,
    Measured,
    Part,
    PhaseTime,
)
from tailback.evidence.one_sided import with_fences
from tailback.evidence.split import PART_NAMES, PARTS, Elapsed, elapsed, kind_of_rest, split
from tailback.evidence.tables import make_tables
from tailback.evidence.wait_reasons import wait_reasons
from tailback.evidence.waits import KINDS, find_waits
from tailback.traffic.readers import timed_reader
from tailback.traffic.readers.narrow_columns import return_freed_memory
from tailback.traffic.readers.otf2.names import normalised_call
from tailback.traffic.readers.recorded_run import RecordedRun
from tailback.units import counted

_WORTH_A_NOTE = 0.05
"""Share of the measured time from which on it is explained."""


_NAMED = 3


_ENDS = ("mpi_init", "mpi_init_thread", "mpi_finalize")

_PHASES = 20
_LATECOMERS = 16
"""Maximum number of late ranks that are reported: two hosts of eight ranks each."""


SLOW_RANK_RATIO = 1.2
"""Minimum ratio of a slow rank's computation time to that of the median rank."""


@dataclass(frozen=True)
class MeasuredRun:
    """A measured run.

    Attributes:
        measured: Its summary.
        tables: Its tables (:data:`tailback.evidence.tables.TABLES`) by name.
        origin_unix_ns: UTC of time 0 of the tables, when the first rank began; None if the trace
            does not record it.
    """

    measured: Measured
    tables: dict[str, pl.DataFrame]
    origin_unix_ns: int | None

    def write(self, folder: Path) -> None:
        """Write the tables as Parquet files into a new folder; raises OSError."""
        folder.mkdir()
        for name, frame in self.tables.items():
            frame.write_parquet(folder / f"{name}.parquet")


def has_times(path: Path, format: str | None = None) -> bool:
    """Whether a trace has the times of its calls; ``format`` is its reader, detected if None."""
    return timed_reader(path, format) is not None


def measure(
    path: Path,
    *,
    latency: Latency | None = None,
    environment: Mapping[str, str] | None = None,
    rank_file: Path | None = None,
    hosts: Sequence[str] | None = None,
    format: str | None = None,
) -> MeasuredRun:
    """Read the times of a trace and break them down.

    Args:
        path: A trace that has times (:func:`has_times`): a file, or the folder that holds it.
        latency: Minimum latency between ranks; 0.1 µs for all pairs if None.
        environment: Environment variables that may list the hosts; those of this process if None.
        rank_file: File that may list the hosts.
        hosts: Hosts in rank order, used if no other source lists them.
        format: Name of the reader; detected when None.

    Raises:
        TraceError: The trace is damaged, or has no times or no MPI call.
        PlacementError: The rank file cannot be read.
    """
    recorded = _read_recorded(Path(path), format)
    return_freed_memory()
    rank_hosts = find_hosts(
        recorded.system,
        recorded.n_ranks,
        environment=environment,
        rank_file=rank_file,
        hosts=hosts,
    )
    clocks = solve(
        constraints(recorded, latency),
        recorded.n_ranks,
        rank_hosts.of_rank if rank_hosts else None,
        recorded.resolution_ps,
        recorded.common_clock,
        recorded.start_ps if recorded.starts_together else None,
    )
    return_freed_memory()
    recorded, repair = correct(recorded, clocks, latency)
    synchronised = with_fences(recorded)
    waits = find_waits(synchronised, clocks)
    reasons = wait_reasons(synchronised, waits)
    total = elapsed(recorded, clocks)
    return_freed_memory()
    parts = split(recorded, clocks, waits, reasons, total)
    n_ranks = recorded.n_ranks
    if recorded.not_recorded:
        present = np.unique(recorded.calls.rank)
        parts, n_ranks = parts.filter(pl.col("rank").is_in(present)), len(present)
    del synchronised
    return_freed_memory()
    tables = make_tables(
        recorded,
        waits,
        reasons,
        parts,
        rank_hosts,
        np.rint(clocks.offset_ps).astype(np.int64),
        clocks.drift * 1e6,
    )
    measured = Measured(
        elapsed_ps=total.elapsed_ps,
        low_ps=total.low_ps,
        high_ps=total.high_ps,
        n_ranks=recorded.n_ranks,
        parts=_parts(parts, total, n_ranks),
        phases=_phases(parts, n_ranks),
        wait_states=_wait_states(tables["waits"], n_ranks),
        latecomers=[]
        if recorded.not_recorded
        else _latecomers(tables["waits"], parts, recorded, rank_hosts),
        slow_rank_waits_ps=_slow_rank_waits(tables["waits"], parts, recorded.n_ranks),
        dependency_waits_ps=int(reasons.dependency_ps.sum()) // recorded.n_ranks,
        ended_early_ps=_ended_early(recorded, total),
        efficiency=_efficiency(parts, total, recorded.n_ranks),
        clocks=_clock_report(recorded, clocks, repair),
        hosts=_host_report(rank_hosts),
        notes=[
            *recorded.notes,
            *_missing_offsets(recorded),
            *note_on_other_calls(recorded, total.elapsed_ps),
        ],
        caveat=recorded.caveat,
        not_recorded=recorded.not_recorded,
        durations_only=recorded.durations_only,
        parallelism=recorded.parallelism,
    )
    return MeasuredRun(measured, tables, recorded.origin_unix_ns)


def _read_recorded(path: Path, format: str | None) -> RecordedRun:
    """The recorded run of a trace."""
    reader = timed_reader(path, format)
    if reader is None:
        raise TraceError(
            "has no times of calls" if path.exists() else "no such file or folder",
            file=path,
            remedy="name a trace that has (tailback list reader)",
        )
    recorded = reader.record(path)
    if not len(recorded.calls):
        raise TraceError(
            "its ranks made no MPI call between MPI_Init and their end",
            file=path,
            remedy="record a run that communicates and calls MPI_Finalize",
        )
    return recorded


def _parts(split: pl.DataFrame, elapsed_time: Elapsed, n_ranks: int) -> list[Part]:
    """Mean of each part over the ranks, rounded so that the parts sum to the measured time."""
    sums = {
        name: bounds
        for name, *bounds in split.group_by("part")
        .agg(pl.col("value_ps", "low_ps", "high_ps").sum())
        .iter_rows()
    }
    out, assigned, total = [], 0, 0
    for name in PARTS:
        if name not in sums:
            continue
        value, low, high = sums[name]
        total += value
        ps = total // n_ranks - assigned
        assigned += ps
        out.append(
            Part(
                name=name,
                ps=ps,
                low_ps=min(low // n_ranks, ps),
                high_ps=max(-(-high // n_ranks), ps),
                share=ps / max(elapsed_time.elapsed_ps, 1),
            )
        )
    return out


def _ended_early(recorded: RecordedRun, elapsed_time: Elapsed) -> int:
    """Time between the end of a rank and the end of the run, averaged over the ranks."""
    called = recorded.end_ps > recorded.start_ps
    ended = np.maximum(elapsed_time.end_ps - recorded.end_ps[called], 0)
    return int(ended.sum()) // max(recorded.n_ranks, 1)


def _phases(split: pl.DataFrame, n_ranks: int) -> list[PhaseTime]:
    times = split.group_by("phase", "part").agg(pl.col("value_ps").sum())
    order = times.group_by("phase").agg(pl.col("value_ps").sum()).sort("value_ps", "phase")
    longest = order["phase"].to_list()[::-1][:_PHASES]
    phases: dict[str, dict[str, int]] = {phase: {} for phase in longest}
    for phase, part, value in times.sort("phase", "part").iter_rows():
        name = phase if phase in phases else f"({len(order) - len(longest)} other phases)"
        parts = phases.setdefault(name, {})
        parts[part] = parts.get(part, 0) + value
    return [
        PhaseTime(
            phase=phase,
            ps=sum(parts.values()) // n_ranks,
            parts={name: parts[name] // n_ranks for name in PARTS if parts.get(name)},
        )
        for phase, parts in phases.items()
    ]


def _wait_states(waits: pl.DataFrame, n_ranks: int) -> dict[str, int]:
    sums = dict(waits.group_by("kind").agg(pl.col("value_ps").sum()).iter_rows())
    return {kind: sums[kind] // n_ranks for kind in KINDS if sums.get(kind)}


def _latecomers(
    waits: pl.DataFrame, split: pl.DataFrame, recorded: RecordedRun, hosts: Hosts | None
) -> list[LateRank]:
    """Ranks that compute longer than others, then those whose computation others waited for.

    Times of computation compare no clocks; waits do, so the waits of the direct neighbours of a
    slow rank may be within the error of the clocks where those of others are not.
    """
    late = (
        waits.filter(pl.col("computing_rank").is_not_null())
        .group_by("computing_rank")
        .agg(
            (pl.col("imbalance_ps") + pl.col("noise_ps")).sum().alias("waited"),
            pl.col("noise_ps").sum(),
        )
    )
    waited = {rank: (ps, noise) for rank, ps, noise in late.iter_rows()}
    computed = _compute_times(split, recorded.n_ranks)
    idle = _idle_excess(recorded)
    excess = (computed - np.median(computed)).astype(np.int64)
    excess[computed <= SLOW_RANK_RATIO * np.median(computed)] = 0
    ranks = {*waited, *np.flatnonzero(excess).tolist()}
    order = sorted(ranks, key=lambda r: (-int(excess[r]), -waited.get(r, (0, 0))[0], r))
    return [
        LateRank(
            rank=rank,
            waited_ps=waited.get(rank, (0, 0))[0],
            noise_ps=waited.get(rank, (0, 0))[1],
            excess_ps=int(excess[rank]),
            host=hosts.of_rank[rank] if hosts else "",
            idle_share=None
            if idle is None or not excess[rank]
            else float(np.clip(idle[rank] / excess[rank], 0.0, 1.0)),
        )
        for rank in order[:_LATECOMERS]
    ]


def _idle_excess(recorded: RecordedRun) -> NDArray[np.float64] | None:
    """Time that each accelerator waits for its host beyond the median, ps, shape (R,)."""
    if recorded.idle_ps is None:
        return None
    idle = np.bincount(recorded.calls.rank, recorded.idle_ps, recorded.n_ranks)
    return np.asarray(idle - np.median(idle), np.float64)


def _slow_rank_waits(waits: pl.DataFrame, split: pl.DataFrame, n_ranks: int) -> int:
    computed = _compute_times(split, n_ranks)
    slow = np.flatnonzero(computed > SLOW_RANK_RATIO * np.median(computed))
    late = waits.filter(pl.col("computing_rank").is_in(slow))
    # Ranks that compute longer only occasionally are interrupted: that is noise, not imbalance.
    return int(late["imbalance_ps"].sum()) // n_ranks


def _compute_times(split: pl.DataFrame, n_ranks: int) -> NDArray[np.float64]:
    """Time that each rank computes, ps, shape (R,)."""
    computed = np.zeros(n_ranks)
    rows = (
        split.filter(pl.col("part") == "computation").group_by("rank").agg(pl.col("value_ps").sum())
    )
    computed[rows["rank"].to_numpy()] = rows["value_ps"].to_numpy()
    return computed


def _efficiency(split: pl.DataFrame, elapsed_time: Elapsed, n_ranks: int) -> Efficiency:
    useful: NDArray[np.int64] = (
        split.filter(pl.col("part") == "computation")
        .group_by("rank")
        .agg(pl.col("value_ps").sum())["value_ps"]
        .to_numpy()
    )
    longest, mean = int(useful.max(initial=0)), float(useful.sum()) / n_ranks
    total = max(elapsed_time.elapsed_ps, 1)
    return Efficiency(
        load_balance=mean / longest if longest else 1.0,
        communication=longest / total,
        parallel=mean / total,
    )


def _missing_offsets(recorded: RecordedRun) -> list[str]:
    """A line if the tracer compared the clocks of some ranks only, or a file of it is missing."""
    lacks = (recorded.start_ps >= 0) & (recorded.clock_offsets == 0)
    if not lacks.any() or not recorded.clock_offsets.any():
        return []
    return [
        f"the trace has no clock offsets of {counted(int(lacks.sum()), 'rank')} (first: "
        f"{int(np.flatnonzero(lacks)[0])}), but of others: files of the trace may be missing"
    ]


def _clock_report(recorded: RecordedRun, clocks: Clocks, repair: CausalityRepair) -> ClockReport:
    widths = clocks.bounds.widths()
    finite = widths[np.isfinite(widths)]
    median = float(np.median(widths)) if len(widths) else 0.0
    return ClockReport(
        unit=clocks.unit,
        drifting=bool(clocks.drift.any()),
        largest_offset_ps=int(np.ptp(clocks.offset_ps)),
        recorded_offsets=int(recorded.clock_offsets.sum()),
        error_ps=int(median) if np.isfinite(median) else None,
        largest_error_ps=int(finite.max(initial=0)),
        one_way=int(np.isinf(widths).sum()),
        violated=clocks.violated,
        largest_violation_ps=clocks.largest_ps,
        repaired=clocks.left,
        largest_repair_ps=clocks.left_largest_ps,
        left=repair.left,
        clocks=len(np.unique(clocks.bounds.clock_of)),
    )


def _host_report(hosts: Hosts | None) -> HostReport | None:
    if hosts is None:
        return None
    return HostReport(
        source=hosts.source, hosts=len(set(hosts.of_rank)), most_ranks=hosts.most_ranks
    )


def note_on_other_calls(recorded: RecordedRun, elapsed_ps: int) -> list[str]:
    """A line on which calls these are, and that no verdict covers them; empty if they take little.

    Args:
        recorded: The run.
        elapsed_ps: Its measured time.
    """
    calls, n = recorded.calls, len(recorded.names)
    inside = np.bincount(calls.name, weights=calls.leave_ps - calls.enter_ps, minlength=n)
    other = [
        kind_of_rest(name) == "other_mpi" and normalised_call(name) not in _ENDS
        for name in recorded.names
    ]
    inside[~np.array(other, bool)] = 0
    total = max(elapsed_ps * recorded.n_ranks, 1)
    if inside.sum() < _WORTH_A_NOTE * total:
        return []
    longest = np.argsort(-inside, kind="stable")[:_NAMED]
    shares = ", ".join(
        f"{recorded.names[name]} {100 * inside[name] / total:.2g} %"
        for name in longest.tolist()
        if inside[name] > 0
    )
    return [
        f"{PART_NAMES['other_mpi']}: {shares} of the time. They send none of the program's data, "
        "and no verdict covers them"
    ]
