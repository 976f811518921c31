"""Port counters of a fabric's links, cut to the time of a job and put on the clock of its trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.evidence.counter_alignment import Alignment, Floats, JoinError, Sent, align
from tailback.evidence.port_findings import port_findings
from tailback.fabric.model import Fabric
from tailback.units import format_time


@dataclass(frozen=True)
class LinkCounters:
    """Counters of ports while a job ran.

    Attributes:
        alignment: How the times of counters and trace were aligned.
        start_ns: Start of the time examined, UTC nanoseconds since 1970.
        end_ns: Its end.
        sent_bytes: Bytes sent on each link in that time, NaN if not counted, shape (L,).
        covered: Share of that time for which a link's bytes are known, 0-1, shape (L,).
        stall: Mean stall fraction of each link over its intervals, NaN unknown, shape (L,).
        stall_ps: Time it stalled in them, NaN unknown, shape (L,).
        latched: Links whose stall counter was full, so that ``stall`` is a lower bound (L,).
        drops: Packets dropped at each link, NaN unknown, shape (L,).
        intervals: ``link, start_ns, end_ns, data_bytes, stall_fraction`` of the intervals in it.
        findings: Table ``port_findings`` of a lossy network, without rows elsewhere.
        lossy: Whether the network queues and drops instead of using credits.
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
    intervals: pl.DataFrame
    findings: pl.DataFrame
    lossy: bool
    notes: list[str]

    @property
    def seconds(self) -> float:
        """Length of the time examined."""
        return (self.end_ns - self.start_ns) / 1e9


def join_counters(
    intervals: pl.DataFrame,
    fabric: Fabric,
    sent: Sent,
    *,
    elapsed_ps: int,
    origin_unix_ns: int | None,
    lossy: bool,
) -> LinkCounters:
    """Cut intervals to the time of the job, link by link.

    Args:
        intervals: Rows of ``counter_intervals`` with ``link``.
        fabric: The fabric whose links these are.
        sent: The messages of the job.
        elapsed_ps: Time of the job, from time 0 of its tables.
        origin_unix_ns: UTC of that time 0, None unknown.
        lossy: Whether the counters are of queues and drops.

    Raises:
        JoinError: No interval belongs to a link, or none to the time of the job.
    """
    known = intervals.filter(pl.col("link").is_not_null() & (pl.col("link") < fabric.n_links))
    if known.is_empty():
        raise JoinError(
            "no counter belongs to a link of the fabric",
            remedy="give the fabric that the counters are of; device names must agree",
        )
    rows = known.select(
        pl.col("link").cast(pl.Int64),
        start_ns=pl.col("time_ns") - pl.col("interval_ns"),
        end_ns=pl.col("time_ns"),
        data_bytes=pl.col("data_bytes").cast(pl.Float64),
        stall_fraction=pl.col("stall_fraction"),
        drops=pl.col("drops").cast(pl.Float64),
        latched=pl.col("latched_stall_ns").is_not_null(),
    )
    alignment = align(rows, fabric, sent, elapsed_ps, origin_unix_ns)
    start, end = alignment.zero_ns, alignment.zero_ns + max(elapsed_ps // 1000, 1)
    inside = rows.filter((pl.col("end_ns") > start) & (pl.col("start_ns") < end))
    if inside.is_empty():
        raise JoinError(
            "no counter was read while the job ran",
            remedy="give counters of the time of the job, in UTC",
        )
    cut = known.filter(
        (pl.col("time_ns") > start) & (pl.col("time_ns") - pl.col("interval_ns") < end)
    )
    findings = port_findings(cut) if lossy else port_findings(cut.clear())
    return LinkCounters(
        alignment, start, end, *_totals(inside, fabric.n_links, start, end), inside, findings,
        lossy, _notes(inside, alignment),
    )  # fmt: skip


def _totals(
    rows: pl.DataFrame, n_links: int, start: int, end: int
) -> tuple[Floats, Floats, Floats, Floats, NDArray[np.bool_], Floats]:
    """Bytes, covered share, stall, latched and drops of each link; intervals are cut in part."""
    overlap = (pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal(
        "start_ns", pl.lit(start))) / 1.0  # fmt: skip
    part = overlap / (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    known, stalled = pl.col("data_bytes").is_not_null(), pl.col("stall_fraction").is_not_null()
    by = rows.group_by("link").agg(
        sent=(pl.col("data_bytes") * part).sum(),
        counted=(overlap * known).sum(),
        stall=(pl.col("stall_fraction") * overlap).sum(),
        stall_counted=(overlap * stalled).sum(),
        stalled_ns=(pl.col("stall_fraction") * (pl.col("end_ns") - pl.col("start_ns"))).sum(),
        latched=pl.col("latched").any(),
        drops=(pl.col("drops") * part).sum(),
        drops_known=pl.col("drops").is_not_null().any(),
    )
    out = [np.full(n_links, np.nan) for _ in range(4)]
    covered, latched = np.zeros(n_links), np.zeros(n_links, np.bool_)
    link = by["link"].to_numpy()
    counted, stall_counted = by["counted"].to_numpy(), by["stall_counted"].to_numpy()
    share = counted / (end - start)
    # Bytes of a link that was not read all the time are scaled to the full time.
    with np.errstate(divide="ignore", invalid="ignore"):
        out[0][link] = np.where(share > 0.5, by["sent"].to_numpy() / share, np.nan)
        out[1][link] = np.where(
            stall_counted > 0.5 * (end - start), by["stall"].to_numpy() / stall_counted, np.nan
        )
    out[2][link] = np.where(by["drops_known"].to_numpy(), by["drops"].to_numpy(), np.nan)
    out[3][link] = np.where(
        stall_counted > 0.5 * (end - start), by["stalled_ns"].to_numpy() * 1000.0, np.nan
    )
    covered[link] = np.minimum(share, 1.0)
    latched[link] = by["latched"].to_numpy()
    return out[0], covered, out[1], out[3], latched, out[2]


def _notes(rows: pl.DataFrame, alignment: Alignment) -> list[str]:
    length = float((rows["end_ns"] - rows["start_ns"]).median() or 0.0)  # type: ignore[arg-type]
    return [
        f"counters every {format_time(round(length * 1000))}; trace and counters aligned by "
        f"{alignment.source}, to ±{alignment.error_ns / 1e6:.3g} ms"
    ]
