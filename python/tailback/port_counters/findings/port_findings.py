"""Findings on ports of lossy networks: links that serve less than their rate, full links, drops.

A port of a lossless network *stalls* without credit, and counters show for how long. An Ethernet
port carrying TCP queues and drops packets instead. Its service rate is the rate at which it sends
while packets are queued. A port with a service rate below its nominal rate is degraded. Queue
lengths are read only at instants, so a persistent queue must be inferred, in two ways:

*Outlasted*. Queues are FIFO. If a port sent fewer bytes in an interval than were queued at its
start, the queue was never empty in it, so the service rate is bytes over time. The only assumption
is that ports are work-conserving.

*Sampled*. Readings sample the queue over time. A work-conserving port sends whenever packets are
queued. At its nominal rate R, the expected share of readings with a queue is therefore at most the
share of time needed to send its bytes at R. If it is significantly larger, the port serves less
than R. Significance is tested with batch means, which account for autocorrelation, at a family-wise
level of 1 % over all ports. (Traffic synchronous with the readings can bias this test, but not the
first.) The test is skipped if an interval shows that the port reached R.

Where counters of bytes or packets are lower bounds, as in an interval with a reset, the bytes are
unknown, and such an interval proves nothing.

A link serves what its port carried over times as long, so no served rate is below that
(:func:`_carried`). Runs of outlasted queues are no evidence if the port sent faster for longer than
it was as slow: the sender or the reader was interrupted, not the link slow.

A port that its far end paused serves nothing meanwhile. Paused time is not counted, and an interval
with pauses of unknown length proves nothing.

There is no other threshold: a rate that cannot be distinguished from the nominal one within the
resolution is not degraded. The resolution comprises the framing bytes of each packet, which are on
the wire but not in the counters, one packet at each end of an interval, and the error of the time
stamps (:func:`~tailback.port_counters.findings.port_series.clock_error_ns`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import polars as pl

from tailback.arrays import Bools, Floats
from tailback.names.ports import Peers, link_name, port_name
from tailback.port_counters.findings.port_events import event_port
from tailback.port_counters.findings.port_series import (
    PLACE,
    QueueSeries,
    consecutive_runs,
    none_if_nan,
    port_series,
    sum_of_known,
)
from tailback.port_counters.increments import RATE_TOLERANCE
from tailback.run.schema import Column, Table
from tailback.units import counted, percent, rate_of_rate

LINKS_SHOWN: Final = 3
"""Maximum number of degraded links named in a sentence."""

FALSE_POSITIVE_RATE: Final = 0.01
"""Family-wise false positive rate of the sampling test: any degraded link in a healthy network."""
MIN_CLOCK_RATIO: Final = 4.0
"""Minimum ratio of the length of a window to the time stamp error for a usable rate."""
CLOCK_OUTLIERS: Final = 0.05
"""Share of time stamps that may be off by more than their error, the 95th percentile."""
MIN_BATCHES: Final = 2
"""Number of batches from which they have a variance. Student's quantile does the rest: with two, it
is too large for any significance."""

PORT_FINDINGS: Final = Table(
    "port_findings",
    "what counters show of one port: one of degraded, busy or queued, and drops",
    (
        *PLACE,
        Column("finding", pl.String, "degraded, busy (at its nominal rate), queued or drops"),
        Column("evidence", pl.String, "outlasted, sampled (or both) or counted"),
        Column("start_ns", pl.Int64, "start of the first interval that shows it, UTC nanoseconds"),
        Column("end_ns", pl.Int64, "end of the last"),
        Column("intervals", pl.UInt32, "intervals that show it"),
        Column("nominal_gbps", pl.Float64, "rate the link should have, null unknown"),
        Column("served_gbps", pl.Float64, "rate served with a queue, null where it never had one"),
        Column("served_low_gbps", pl.Float64, "95 % lower bound of the rate the link can serve"),
        Column("served_high_gbps", pl.Float64, "95 % upper bound, null where there is none"),
        Column("utilization", pl.Float64, "bytes over what the nominal rate allows, all intervals"),
        Column("queued_share", pl.Float64, "share of readings with a queue, of active intervals"),
        Column("busy_share", pl.Float64, "time their bytes take on the wire at the nominal rate"),
        Column("backlog_max_bytes", pl.UInt64, "largest queue at a reading, null unknown"),
        Column("drops", pl.UInt64, "packets dropped at the queue, null unknown"),
        Column("drops_at_least", pl.Boolean, "drops is a lower bound: a counter was reset"),
        Column("drop_share", pl.Float64, "drops over packets sent and dropped, null unknown"),
    ),
)

_ORDER: Final = ("degraded", "busy", "queued", "drops")


@dataclass(frozen=True)
class _Finding:
    """A finding with its evidence: intervals, kind, and service rate with bounds in Gb/s."""

    finding: str
    evidence: str
    chosen: Bools
    served: float | None = None
    low: float | None = None
    high: float | None = None


def port_findings(intervals: pl.DataFrame) -> pl.DataFrame:
    """Derive findings on each port from counters of queues and drops.

    Args:
        intervals: Rows of ``counter_intervals``; ``capacity_gbps`` is the nominal rate of the link.
            Ports without counters of bytes, queues or drops are left out.

    Returns:
        Rows of :data:`PORT_FINDINGS`: degraded links first, by ratio of served to nominal rate;
        then busy, queued and dropping ports, the most affected first. A port without a nominal rate
        is never degraded or busy; one that never queued or dropped packets has no row.
    """
    ports = port_series(intervals)
    level = FALSE_POSITIVE_RATE / _testable_ports(ports)
    rows = []
    for port in ports:
        finding = _find_degraded(port, level) or _find_busy(port) or _find_queued(port)
        if finding is not None:
            rows.append(_finding_row(port, finding))
        if np.nansum(port.drops) > 0:
            rows.append(_finding_row(port, _Finding("drops", "counted", port.drops > 0)))
    frame = pl.DataFrame(rows, schema=PORT_FINDINGS.polars_schema, orient="row")
    slowness = pl.when(pl.col("finding") == "degraded").then(
        pl.col("served_high_gbps") / pl.col("nominal_gbps")
    )
    return frame.sort(
        pl.col("finding").replace_strict(_ORDER, range(len(_ORDER)), return_dtype=pl.Int8),
        slowness,
        -pl.col("queued_share"),
        -pl.col("utilization"),
        -pl.col("drops").cast(pl.Int64),
        "node_name",
        "port",
        nulls_last=True,
    )


def _testable_ports(ports: list[QueueSeries]) -> int:
    """Ports on which the sampling test can find something: those that ever had a queue."""
    return max(1, sum(bool((port.after > 0).any()) for port in ports))


def _find_degraded(port: QueueSeries, level: float) -> _Finding | None:
    """A degraded link, by all available evidence."""
    by_outlasting, by_sampling = _test_outlasting(port), _test_sampling(port, level)
    if by_outlasting is None or by_sampling is None:
        finding = by_outlasting or by_sampling
    else:
        # Sampling shows the duration, and outlasted queues show the service rate.
        chosen = by_outlasting.chosen | by_sampling.chosen
        finding = replace(by_outlasting, evidence="outlasted, sampled", chosen=chosen)
    return None if finding is None else _at_least_carried(port, finding)


def _at_least_carried(port: QueueSeries, finding: _Finding) -> _Finding | None:
    """A degraded link at no less than it carried over times as long; None if that is its rate."""
    least = _carried(port, float(port.free[finding.chosen].sum()))
    if least >= port.nominal:
        return None
    served, low, high = (
        max(rate or 0.0, least) for rate in (finding.served, finding.low, finding.high)
    )
    return replace(finding, served=served, low=low, high=high)


def _carried(port: QueueSeries, span: float) -> float:
    """Lower bound of the highest rate over any ``span`` ns of its time, or over all of it, Gb/s."""
    free = np.concatenate([[0.0], np.cumsum(port.free)])
    sent = np.concatenate([[0.0], np.cumsum(np.nan_to_num(port.sent))])
    begin = np.arange(len(free) - 1)
    # The shortest window of sufficient length from each interval, and all intervals.
    end = np.searchsorted(free, free[:-1] + max(span, MIN_CLOCK_RATIO * port.clock, 1.0))
    begin, end = begin[end < len(free)], end[end < len(free)]
    begin, end = np.append(begin, 0), np.append(end, len(free) - 1)
    bits = np.maximum(sent[end] - sent[begin] - 2 * port.packet, 0.0) * 8.0
    return float((bits / (free[end] - free[begin] + port.clock)).max())


def _without_interruptions(port: QueueSeries, runs: list[tuple[slice, float]]) -> list[slice]:
    """Runs of intervals that show the rate of the link, of those that seem slow.

    Each comes with the upper bound of its rate, Gb/s. A run is an interruption if the port sent
    faster than that for longer than all runs that were as slow last, and for longer than late time
    stamps pretend.
    """
    sent = np.maximum(np.nan_to_num(port.sent) - 2 * port.packet, 0.0) * 8.0
    rates = sent / np.maximum(port.free + port.clock, 1.0)
    pretended = CLOCK_OUTLIERS * float(port.free.sum())
    kept, slow = list[slice](), 0.0
    for run, high in sorted(runs, key=lambda pair: pair[1]):
        slow += float(port.free[run].sum())
        if float(port.free[rates > high].sum()) <= max(slow, pretended):
            kept.append(run)
    return kept


def _test_outlasting(port: QueueSeries) -> _Finding | None:
    """A degraded link, by intervals whose queue was never empty."""
    runs = list[tuple[slice, float]]()
    for run in consecutive_runs(port, port.outlasted & ~np.isnan(port.sent)):
        span = float(port.free[run].sum()) - port.clock
        max_bits = (float(port.wire[run].sum()) + 2 * port.packet) * 8.0
        if span > 0 and max_bits / span < port.nominal:
            runs.append((run, max_bits / span))
    is_slow, kept = np.zeros(len(port.start), np.bool_), _without_interruptions(port, runs)
    for run in kept:
        is_slow[run] = True
    if not kept:
        return None
    n_runs = len(kept)
    sent, span = float(port.sent[is_slow].sum()), float(port.free[is_slow].sum())
    slack, clock = 2 * port.packet * n_runs, port.clock * n_runs
    return _Finding(
        "degraded",
        "outlasted",
        is_slow,
        sent * 8.0 / span,
        max(sent - slack, 0.0) * 8.0 / (span + clock),
        (float(port.wire[is_slow].sum()) + slack) * 8.0 / (span - clock),
    )


def _student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t distribution."""
    from scipy.special import stdtrit  # takes a third of a second to import

    return float(stdtrit(freedom, probability))


@dataclass(frozen=True)
class _Samples:
    """Shares of time of a port, of its active intervals.

    Attributes:
        active: These intervals.
        queued: Share of the readings with a queue, of each interval.
        busy: Mean share of the time that the bytes take at the nominal rate.
        excess: Mean of the queued share beyond the busy one.
        error: Limit of ``excess`` above which it is significant.
        batches: Number of batches.
    """

    active: Bools
    queued: Floats
    busy: float
    excess: float
    error: float
    batches: int


def _samples(port: QueueSeries, level: float) -> _Samples | None:
    """The shares that the test of sampling compares; None where it cannot be made."""
    active = (port.sent > 0) & ~np.isnan(port.before) & ~np.isnan(port.after)
    if np.isnan(port.nominal) or (active & port.unclear).any():
        return None
    queued = ((port.before > 0).astype(np.float64) + (port.after > 0)) / 2.0
    busy = port.wire * 8.0 / (port.nominal * port.length) + port.paused / port.length
    excess, error, batches = _mean((queued - busy)[active])
    if batches < MIN_BATCHES:
        return None
    # A few batches may be alike by chance, but independent readings vary by their binomial error.
    share = float(busy[active].mean())
    by_chance = math.sqrt(max(share * (1.0 - share), 0.0) / float(active.sum()))
    least = max(
        _student_quantile(1.0 - level, batches - 1) * error,
        NormalDist().inv_cdf(1.0 - level) * by_chance,
    )
    return _Samples(active, queued, share, excess, least, batches)


def _test_sampling(port: QueueSeries, level: float) -> _Finding | None:
    """A degraded link, by more readings with a queue than its nominal rate allows."""
    samples = _samples(port, level)
    if samples is None or samples.excess <= samples.error or _ran_full(port, samples.active):
        return None
    active, batches = samples.active, samples.batches
    queued = active & port.queued
    span = float(port.free[queued].sum())
    mean, error, _ = _mean(samples.queued[active])
    share = mean - _student_quantile(0.95, batches - 1) * error
    total = float(port.wire[active].sum()) * 8.0 / max(float(port.free[active].sum()), 1.0)
    # Bytes sent with a queue are at most all bytes.
    high = min(total / share, port.nominal) if share > 0 else port.nominal
    if not span:
        # No interval has a queue at both ends: assume that all bytes were sent with a queue.
        chosen = active & ((port.before > 0) | (port.after > 0))
        return _Finding("degraded", "sampled", chosen, min(total / mean, high), 0.0, high)
    served = float(port.sent[queued].sum()) * 8.0 / span
    low = max(served - 2 * port.packet * 8.0 / span, 0.0)
    return _Finding("degraded", "sampled", queued, served, low, max(high, served))


def queue_readings(intervals: pl.DataFrame) -> pl.DataFrame:
    """How often the queue of each link was not empty, where it can be compared with its bytes.

    Args:
        intervals: Rows of ``counter_intervals``, as for :func:`port_findings`, with ``link``.

    Returns:
        ``link``; ``queued``, the share of readings with a queue; ``busy``, the share of the time
        that the bytes take at the nominal rate; and ``readings``, the number of independent
        readings with the same error of their mean.
    """
    ports = port_series(intervals)
    level = FALSE_POSITIVE_RATE / _testable_ports(ports)
    rows = []
    for port in ports:
        samples = None if port.key[3] is None else _samples(port, level)
        if samples is not None:
            share, error, batches = _mean(samples.queued[samples.active])
            number = float(samples.active.sum())
            if error > 0:
                number = min(max(share * (1.0 - share) / error**2, batches), number)
            rows.append((port.key[3], share, samples.busy, number))
    names = {"link": pl.Int64, "queued": pl.Float64, "busy": pl.Float64, "readings": pl.Float64}
    return pl.DataFrame(rows, schema=names, orient="row")


@dataclass(frozen=True)
class RateTests:
    """For how many ports the counters tell whether their links serve their rates.

    Attributes:
        ports: Number of ports.
        rated: Of them, those with a known nominal rate.
        sending: Rated ports that sent anything.
        decided: Sending ports that reached their rate, and those whose readings would show a link
            at half its rate.
    """

    ports: int
    rated: int
    sending: int
    decided: int


def rate_tests(intervals: pl.DataFrame) -> RateTests:
    """Tests of the rates of the links that :func:`port_findings` can make.

    Args:
        intervals: Rows of ``counter_intervals``, as for :func:`port_findings`.
    """
    ports = port_series(intervals)
    rated = [port for port in ports if not np.isnan(port.nominal)]
    sending = [port for port in rated if (port.sent > 0).any()]
    level = FALSE_POSITIVE_RATE / _testable_ports(ports)
    decided = sum(_is_decided(port, level) for port in sending)
    return RateTests(len(ports), len(rated), len(sending), decided)


def _is_decided(port: QueueSeries, level: float) -> bool:
    """Whether the port reached its rate, or would have shown a queue at half of it.

    At half its rate its bytes take twice the time: it would be busy for as long again.
    """
    if _ran_full(port, port.sent > 0):
        return True
    samples = _samples(port, level)
    return samples is not None and samples.busy > samples.error


def _ran_full(port: QueueSeries, active: Bools) -> bool:
    """Whether the port ever sent at its nominal rate, over a window that time stamps resolve.

    The time stamp error applies once per window, however many intervals it has: with late readings
    a single interval is inconclusive, but several in a row are not.
    """
    ends = np.concatenate([[0.0], np.cumsum(port.free[active])])
    wire = np.concatenate([[0.0], np.cumsum(port.wire[active])])
    begin = np.arange(len(ends) - 1)
    # The shortest window of sufficient length from each interval.
    enough = ends[:-1] + max(MIN_CLOCK_RATIO * port.clock, 1.0)
    end = np.minimum(np.searchsorted(ends, enough), len(ends) - 1)
    room = port.nominal / 8.0 * np.maximum(ends[end] - ends[begin] - port.clock, 0.0)
    long_enough = ends[end] >= enough
    return bool((long_enough & (wire[end] - wire[begin] + 2 * port.packet >= room)).any())


def _mean(values: Floats) -> tuple[float, float, int]:
    """Mean of an autocorrelated series, its standard error and the number of batches.

    Batch means with √n batches of √n consecutive values. The method requires both to grow with n.
    """
    batches = int(np.sqrt(len(values)))
    if batches < 2:
        return 0.0, float("inf"), batches
    means = np.array([part.mean() for part in np.array_split(values, batches)])
    return float(values.mean()), float(means.std(ddof=1) / np.sqrt(batches)), batches


def _find_busy(port: QueueSeries) -> _Finding | None:
    """A port that sends at its nominal rate with a queue, or whose queue is unknown."""
    if np.isnan(port.nominal):
        return None
    # Without a queue, bytes alone must tell: more than the packets that an interval may miss.
    resolved = port.wire >= MIN_CLOCK_RATIO * 2 * port.packet
    unknown = np.isnan(port.before) & np.isnan(port.after)
    full = port.full(0.0) & (port.queued | (unknown & resolved))
    if not full.any():
        return None
    span = max(float(port.free[full].sum()), 1.0)
    served = float(port.sent[full].sum()) * 8.0 / span
    return _Finding("busy", "counted", full, served, served)


def _find_queued(port: QueueSeries) -> _Finding | None:
    """A port with packets queued at any reading."""
    seen_queued = (port.before > 0) | (port.after > 0)
    if not seen_queued.any():
        return None
    queued = port.queued & ~np.isnan(port.sent)
    if not queued.any():
        return _Finding("queued", "counted", seen_queued)
    served = float(port.sent[queued].sum()) * 8.0 / max(float(port.free[queued].sum()), 1.0)
    return _Finding("queued", "counted", seen_queued, served, served)


def _finding_row(port: QueueSeries, finding: _Finding) -> tuple[object, ...]:
    """One row of :data:`PORT_FINDINGS`."""
    chosen = finding.chosen
    is_known = ~np.isnan(port.sent)
    sent_gbps = (
        float(port.sent[is_known].sum()) * 8.0 / float(port.length[is_known].sum() or np.nan)
    )
    counts_queues = bool((~np.isnan(port.after)).any())
    active = is_known & (port.sent > 0) & (~np.isnan(port.after) | (not counts_queues))
    levels = np.concatenate([port.before, port.after])
    busy = float(port.wire[active].sum()) * 8.0 / float(port.length[active].sum() or np.nan)
    drops, packets = sum_of_known(port.drops), sum_of_known(port.packets)
    offered = (drops or 0) + (packets or 0)
    return (
        *port.key,
        finding.finding,
        finding.evidence,
        int(port.start[chosen].min()),
        int(port.end[chosen].max()),
        int(chosen.sum()),
        none_if_nan(port.nominal),
        finding.served,
        finding.low,
        finding.high,
        none_if_nan(sent_gbps / port.nominal),
        float((port.after[active] > 0).mean()) if active.any() and counts_queues else None,
        none_if_nan(busy / port.nominal),
        None if np.isnan(levels).all() else int(np.nanmax(levels)),
        drops,
        drops is not None and bool(port.drops_low.any()),
        drops / offered if drops is not None and packets is not None and offered else None,
    )


def cannot_tell(events: pl.DataFrame) -> list[str]:
    """Limits of the counters.

    Args:
        events: Table ``port_events``: with pauses in it, they are no open question.
    """
    why = "why a link serves less: a cable or transceiver, or a shaper"
    if not (events["finding"] == "paused").any():
        why += ", or pause frames of the far end, of which none were counted"
    return ["whose packets waited: ours or another job's", why, "what a change would gain"]


def port_label(row: Mapping[str, Any], peers: Peers) -> str:
    """Name of a port and, if known, of the port at the other end of its link."""
    device, port = str(row["node_name"]), int(row["port"])
    return link_name(port_name(device, port, row["interface"]), peers.get((device, port)))


def degraded_links(rows: pl.DataFrame, peers: Peers) -> str:
    """Links that serve less than their nominal rate although packets wait; rows worst first."""
    shown = [
        f"{port_label(row, peers)} serves "
        f"{rate_of_rate(row['served_gbps'], row['nominal_gbps'])} while it queues"
        for row in rows.head(LINKS_SHOWN).iter_rows(named=True)
    ]
    more = f"; and {rows.height - LINKS_SHOWN} more" if rows.height > LINKS_SHOWN else ""
    return "; ".join(shown) + more


def ports_paused(rows: pl.DataFrame, ports: int, peers: Peers) -> str:
    """Ports, of ``ports``, that their far ends paused; rows of ``port_events``, longest first."""
    worst = rows.row(0, named=True)
    share = f"{'≥ ' * worst['at_least']}{percent(min(worst['paused_share'], 1.0))}"
    longest = f"{event_port(worst, peers)}, {share} of the time"
    if rows.height == 1:
        text = f"1 of {counted(ports, 'port')} was paused by its far end: {longest}"
    else:
        text = f"{rows.height} of {counted(ports, 'port')} were paused by their far ends, longest "
        text += longest
    return f"{text}. A queue was full there or further on: the link itself is not at fault"


def ports_dropped(rows: pl.DataFrame, ports: int, peers: Peers) -> str:
    """Ports, of ``ports``, that dropped packets; rows worst first."""
    worst = rows.row(0, named=True)
    text = (
        f"{rows.height} of {counted(ports, 'port')} dropped "
        f"{'≥ ' * bool(rows['drops_at_least'].any())}{rows['drops'].sum():,} packets, most of them "
        f"{port_label(worst, peers)}: {'≥ ' * worst['drops_at_least']}{worst['drops']:,}"
    )
    share = worst["drop_share"]
    return text if share is None else f"{text} ({percent(share)} of its own)"


def links_full(rows: pl.DataFrame, ports: int, peers: Peers) -> str:
    """Links, of ``ports``, that sent at their rate; rows worst first.

    Where queues are counted, packets waited meanwhile.
    """
    text = f"{rows.height} of {counted(ports, 'link')} sent at the nominal rate"
    worst = rows.row(0, named=True)
    if rows["queued_share"].is_not_null().any():
        return (
            f"{text} with packets waiting, such as {port_label(worst, peers)}: more traffic was "
            "offered than they can carry"
        )
    return (
        f"{text} for a time, such as {port_label(worst, peers)} in "
        f"{counted(worst['intervals'], 'interval')}: whether packets waited is unknown, because no "
        "source counts queues"
    )


def ports_queued(rows: pl.DataFrame, ports: int, peers: Peers) -> str:
    """Ports, of ``ports``, with packets waiting at some readings; rows worst first."""
    worst = rows.row(0, named=True)
    return (
        f"{rows.height} of {counted(ports, 'port')} had packets waiting at times, most "
        f"often {port_label(worst, peers)}: in {percent(worst['queued_share'])} of its readings"
    )


def none_queued(ports: int, threshold: float) -> str:
    """No port dropped packets or queued for ``threshold`` (0–1) of its time."""
    return (
        f"none of {counted(ports, 'port')} dropped packets or had any waiting for "
        f"{percent(threshold)} of its time"
    )


def no_slow_link(tests: RateTests) -> str:
    """No link serves less than its rate, as far as rates are known and readings tell."""
    if not tests.rated:
        return "Whether a link is slower than its rate is unknown: no source states the rates"
    if not tests.decided:
        return (
            "Whether a link is slower than its rate is unknown: no port has enough readings of its "
            "queue while it sent"
        )
    undecided, unrated = tests.sending - tests.decided, tests.ports - tests.rated
    text = "No link serves less than its rate"
    if undecided:
        text = (
            f"No link is shown to serve less than its rate; {undecided} of {tests.sending} that "
            "sent have too few readings of their queues to tell"
        )
    return f"{text}; the rate of {unrated} is unknown" if unrated else text


LEAST_AFFECTED: Final = 3
"""Links from which a common factor is not one cable, which has two links."""
RATE_FACTORS: Final = (8.0, 1e3, 1024.0, 8e3, 1e6, 1024.0**2, 1e9)
"""Factors between units of rates: bits and bytes, powers of 1000 and of 1024."""
SMALLEST_FRAME_SHARE: Final = 60 / 84
"""Bytes that counters have of a frame of the smallest size on the wire (IEEE 802.3)."""


def unit_factor(findings: pl.DataFrame, peak: float) -> float | None:
    """Factor by which stated rates are too large, if a wrong unit explains most slow links.

    Links that serve one and the same fraction of their rates, and that of two units, are more
    likely stated wrongly than all damaged. Then no port used more than that fraction.

    Args:
        findings: Rows of :data:`PORT_FINDINGS`.
        peak: Largest share of its rate that a port used in an interval.

    Returns:
        The factor; None if units do not explain the slow links.
    """
    slow = findings.filter(pl.col("finding") == "degraded")
    if slow.height < LEAST_AFFECTED:
        return None
    for factor in RATE_FACTORS:
        if (
            2 * _serves_fraction(slow, factor).sum() > slow.height
            and peak * factor <= RATE_TOLERANCE
        ):
            return factor
    return None


def _serves_fraction(slow: pl.DataFrame, factor: float) -> pl.Series:
    """Which slow links serve about 1/``factor`` of their rates."""
    # Counters leave out a part of each frame, and a reading has an error to both sides.
    share = slow["served_gbps"] / slow["nominal_gbps"] * factor
    return (share >= SMALLEST_FRAME_SHARE) & (share <= 1 / SMALLEST_FRAME_SHARE)


def rates_too_high(rows: pl.DataFrame, factor: float) -> str:
    """The stated rates have another unit. ``rows`` are those of the links that seem slow."""
    about = int(_serves_fraction(rows, factor).sum())
    return (
        f"{about} of {counted(rows.height, 'link')} that seem slow serve about 1/{factor:,.0f} of "
        "the stated rate: check the unit of the rates. Until then no cable can be judged"
    )
