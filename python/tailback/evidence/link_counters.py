"""Port counters of links, aligned with the trace of a job and restricted to its time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.evidence.counter_alignment import Alignment, JoinError, Sent, align
from tailback.fabric.model import Fabric
from tailback.port_counters.findings.port_findings import (
    CLOCK_OUTLIERS,
    port_findings,
    queue_readings,
)
from tailback.port_counters.findings.port_series import JUMBO_BYTES, PACKET_BYTES, clock_error_ns
from tailback.port_counters.schema import Flag, exact_data
from tailback.units import counted, format_time


@dataclass(frozen=True)
class LinkCounters:
    """Port counters during a job.

    Attributes:
        alignment: How the times of counters and trace were aligned.
        start_ns: Start of the time range, UTC nanoseconds since 1970.
        end_ns: End of the time range.
        sent_bytes: Bytes sent on each link in that range, NaN if not counted, shape (L,).
        covered: Share of the range for which the bytes of a link are known, 0-1, shape (L,).
        stall: Mean stall fraction of each link in that range, NaN if unknown, shape (L,).
        stall_ps: Time that each link stalled, over whole intervals, NaN if unknown, shape (L,).
        latched: Whether the stall counter of a link was saturated, so that ``stall`` is a lower
            bound, shape (L,).
        drops: Packets dropped at each link, NaN if unknown, shape (L,).
        queues_read: Whether the queue of a link was read in that range, shape (L,).
        intervals: ``link, start_ns, end_ns, data_bytes, stall_fraction`` of intervals that overlap
            the range.
        findings: Table ``port_findings``; empty for a lossless network whose queues were not read.
        queue_readings: ``link, queued, busy, readings``, as :func:`.queue_readings` returns them.
        lossy: Whether full queues drop packets instead of stopping senders by credits or pauses.
        notes: Remarks on the data.
    """

    alignment: Alignment
    start_ns: int
    end_ns: int
    sent_bytes: Floats
    covered: Floats
    stall: Floats
    stall_ps: Floats
    latched: NDArray[np.bool_]
    drops: Floats
    queues_read: NDArray[np.bool_]
    intervals: pl.DataFrame
    findings: pl.DataFrame
    queue_readings: pl.DataFrame
    lossy: bool
    notes: list[str]

    @property
    def seconds(self) -> float:
        """Length of the time range."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def mostly_outside(self) -> bool:
        """Whether at least half of the time of the intervals lies outside the range.

        How much of what was counted in them happened within the range is unknown then.
        """
        times = self.intervals.select(pl.col("end_ns").max(), pl.col("start_ns").min()).row(0)
        return bool(times[0] - times[1] >= 2 * (self.end_ns - self.start_ns))


def join_counters(
    intervals: pl.DataFrame,
    fabric: Fabric,
    sent: Sent,
    *,
    elapsed_ps: int,
    origin_unix_ns: int | None,
    lossy: bool,
) -> LinkCounters:
    """Restrict intervals to the time of the job and sum them up for each link.

    Args:
        intervals: Rows of ``counter_intervals`` with ``link``.
        fabric: The fabric that the links belong to.
        sent: The messages of the job.
        elapsed_ps: Duration of the job, from time 0 of its tables.
        origin_unix_ns: UTC of that time 0; None if unknown.
        lossy: Whether full queues drop packets.

    Raises:
        JoinError: No interval belongs to a link of the fabric, or none overlaps the job.
    """
    on_link = intervals.filter(pl.col("link").is_not_null() & (pl.col("link") < fabric.n_links))
    if intervals.is_empty():
        raise JoinError(
            "the counters have a single reading of each port, so they count nothing",
            remedy="give two readings or more, from before, during and after the job",
        )
    if on_link.is_empty():
        raise JoinError(
            "no counter belongs to a link of the fabric",
            remedy="give the fabric that the counters are of; device names must agree",
        )
    rows = on_link.select(
        pl.col("link").cast(pl.Int64),
        start_ns=pl.col("time_ns") - pl.col("interval_ns"),
        end_ns=pl.col("time_ns"),
        data_bytes=exact_data("data_bytes").cast(pl.Float64),
        reset=(pl.col("flags") & int(Flag.RESET)) > 0,
        stall_fraction=pl.col("stall_fraction"),
        drops=pl.col("drops").cast(pl.Float64),
        latched=pl.col("latched_stall_ns").is_not_null(),
    )
    alignment = align(rows, fabric, sent, elapsed_ps, origin_unix_ns)
    start, end = alignment.zero_ns, alignment.zero_ns + max(elapsed_ps // 1000, 1)
    overlapping = rows.filter((pl.col("end_ns") > start) & (pl.col("start_ns") < end))
    if overlapping.is_empty():
        raise JoinError(
            "no counter was read while the job ran",
            remedy="give counters of the time of the job, in UTC",
        )
    job_intervals = on_link.filter(
        (pl.col("time_ns") > start) & (pl.col("time_ns") - pl.col("interval_ns") < end)
    )
    with_queue = job_intervals.filter(pl.col("backlog_bytes").is_not_null())["link"]
    # Queues show slow links, whether they drop packets or pause ports: paused time is left out.
    queues_counted = lossy or not with_queue.is_empty()
    with_findings = job_intervals if queues_counted else job_intervals.clear()
    return LinkCounters(
        alignment,
        start,
        end,
        *_sum_by_link(overlapping, fabric.n_links, start, end),
        np.isin(np.arange(fabric.n_links), with_queue.to_numpy()),
        overlapping,
        port_findings(with_findings),
        queue_readings(with_findings),
        lossy,
        _notes(overlapping, alignment),
    )


def served_gbps(intervals: pl.DataFrame, n_links: int) -> Floats:
    """Highest rate at which each link has sent, a lower bound of its capacity, Gb/s, shape (L,).

    Rates are those of single intervals, and of 2, 4, 8 … successive ones up to all. A link sends
    nothing while it stalls, so what it sent took only the rest of an interval. A packet at
    each end may be counted in the wrong one, and time stamps are off. So more windows of a length
    must show the rate than may have worse time stamps, of those in which the link sent: others
    pretend nothing. 0 for links without counters.

    Args:
        intervals: Rows of ``counter_intervals`` with ``link``.
        n_links: Number of links.
    """
    with_bytes = intervals.filter(
        pl.col("link").is_not_null()
        & (pl.col("link") < n_links)
        & pl.col("data_bytes").is_not_null()
    ).sort("link", "time_ns")
    clock = clock_error_ns(with_bytes)
    usual = (pl.col("data_bytes") / pl.col("packets")).max().over("link") <= PACKET_BYTES
    rows = with_bytes.select(
        "link",
        end=pl.col("time_ns"),
        length=pl.col("interval_ns").cast(pl.Int64),
        sent=pl.col("data_bytes").cast(pl.Float64),
        # A port that is paused for one priority may send at others.
        stalled=pl.when(pl.col("paused_fraction").is_null())
        .then(pl.col("stall_fraction").fill_null(0.0) * pl.col("interval_ns"))
        .otherwise(0.0),
        most=pl.col("capacity_gbps").fill_null(math.inf).max().over("link"),
        packet=pl.when(usual).then(PACKET_BYTES).otherwise(JUMBO_BYTES),
        number=pl.int_range(pl.len()).over("link"),
    )
    # Intervals before which readings are missing last longer; those of two sources are added up.
    span = (pl.col("end").max() - (pl.col("end") - pl.col("length")).min()).clip(
        pl.col("length").sum()
    )
    free = (span - pl.col("stalled").sum()).clip(0.0) + clock
    out = np.zeros(n_links)
    most, width = int(rows["number"].max() or 0) + 1, 1  # type: ignore[arg-type]
    while width < 2 * most:
        bits = (pl.col("sent").sum() - 2 * pl.col("packet").first()) * 8.0
        windows = rows.group_by("link", pl.col("number") // width).agg(
            gbps=(bits / free.clip(1.0)).clip(upper_bound=pl.col("most").first())
        )
        windows = windows.filter(pl.col("gbps") > 0)
        beyond = (pl.len() * CLOCK_OUTLIERS).floor().cast(pl.Int64)
        shown = (
            windows.sort("gbps", descending=True).group_by("link").agg(pl.col("gbps").get(beyond))
        )
        link = shown["link"].to_numpy()
        out[link] = np.maximum(out[link], shown["gbps"].to_numpy())
        width *= 2
    return out


def _sum_by_link(
    rows: pl.DataFrame, n_links: int, start: int, end: int
) -> tuple[Floats, Floats, Floats, Floats, NDArray[np.bool_], Floats]:
    """Totals of each link, with the overlapping part of each interval.

    Returns:
        Bytes, covered share, stall fraction, stalled ps, latched flag and drops, shape (L,) each.
    """
    overlap = (
        pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    ) / 1.0
    overlap_share = overlap / (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    has_bytes, stalled = pl.col("data_bytes").is_not_null(), pl.col("stall_fraction").is_not_null()
    sums = rows.group_by("link").agg(
        sent=(pl.col("data_bytes") * overlap_share).sum(),
        counted=(overlap * has_bytes).sum(),
        stall=(pl.col("stall_fraction") * overlap).sum(),
        stall_counted=(overlap * stalled).sum(),
        stalled_ns=(pl.col("stall_fraction") * (pl.col("end_ns") - pl.col("start_ns"))).sum(),
        latched=pl.col("latched").any(),
        drops=(pl.col("drops") * overlap_share).sum(),
        drops_known=pl.col("drops").is_not_null().any(),
    )
    out = [np.full(n_links, np.nan) for _ in range(4)]
    covered, latched = np.zeros(n_links), np.zeros(n_links, np.bool_)
    link = sums["link"].to_numpy()
    counted, stall_counted = sums["counted"].to_numpy(), sums["stall_counted"].to_numpy()
    share = counted / (end - start)
    # Bytes of links without counters for part of the time are scaled to the full time.
    with np.errstate(divide="ignore", invalid="ignore"):
        out[0][link] = np.where(share > 0.5, sums["sent"].to_numpy() / share, np.nan)
        out[1][link] = np.where(
            stall_counted > 0.5 * (end - start), sums["stall"].to_numpy() / stall_counted, np.nan
        )
    out[2][link] = np.where(sums["drops_known"].to_numpy(), sums["drops"].to_numpy(), np.nan)
    out[3][link] = np.where(
        stall_counted > 0.5 * (end - start), sums["stalled_ns"].to_numpy() * 1000.0, np.nan
    )
    covered[link] = np.minimum(share, 1.0)
    latched[link] = sums["latched"].to_numpy()
    return out[0], covered, out[1], out[3], latched, out[2]


def _notes(rows: pl.DataFrame, alignment: Alignment) -> list[str]:
    length = float((rows["end_ns"] - rows["start_ns"]).median() or 0.0)  # type: ignore[arg-type]
    aligned = (
        f"counters every {format_time(round(length * 1000))}; trace and counters aligned by "
        f"{alignment.source}, to ±{alignment.error_ns / 1e6:.3g} ms"
    )
    reset = rows.filter("reset")
    if reset.is_empty():
        return [aligned]
    ports = counted(reset["link"].n_unique(), "port")
    return [aligned, f"counters of {ports} were reset during the run: these intervals are left out"]
