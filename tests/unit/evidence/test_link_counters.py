"""Port counters cut to the time of a job, and put on the clock of its trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailback.evidence.counter_alignment import CLOCK_ERROR_NS, JoinError, sent_bytes
from tailback.evidence.link_counters import join_counters, served_gbps
from tailback.port_counters.findings.port_findings import CLOCK_OUTLIERS
from tailback.port_counters.findings.port_series import JUMBO_BYTES, clock_error_ns
from tailback.port_counters.findings.port_verdict import drops_packets
from tailback.port_counters.schema import Flag
from tests.factories.counted_links import UTC, bursts, counted, egress, joined, small_tree

FABRIC = small_tree()
OWN = bursts([(0, 5, 4e7), (1, 6, 3e7), (5, 0, 2e7)], 10.0)


def test_bytes_outside_the_job_do_not_count() -> None:
    others = bursts([(0, 7, 9e8)], 20.0)
    before = replace(others, start_ps=others.start_ps - 21e12, end_ps=others.end_ps - 21e12)
    everything = type(OWN)(
        *(
            np.concatenate([getattr(OWN, name), getattr(before, name)])
            for name in ("src_node", "dst_node", "size_bytes", "start_ps", "end_ps")
        )
    )
    counters = joined(FABRIC, counted(FABRIC, everything, start_s=-30.0), OWN)
    link = egress(FABRIC, 0)
    assert counters.sent_bytes[link] == pytest.approx(
        OWN.size_bytes[OWN.src_node == 0].sum(), rel=0.01
    )
    assert counters.covered[link] == pytest.approx(1.0)
    assert np.isnan(counters.sent_bytes[FABRIC.link_src >= FABRIC.n_nodes]).any()


def test_intervals_across_the_ends_count_partly() -> None:
    steady = type(OWN)(
        np.array([0]), np.array([5]), np.array([40e9]), np.array([-15e12]), np.array([25e12])
    )
    # One interval of 40 s, of which the job has the 10 s from 15 s on.
    rows = counted(FABRIC, steady, start_s=-15.0, end_s=25.0, every_s=40.0, stall=0.25)
    counters = joined(FABRIC, rows, steady)
    link = egress(FABRIC, 0)
    assert counters.sent_bytes[link] == pytest.approx(10e9, rel=0.01)
    assert counters.stall[link] == pytest.approx(0.25)


def test_intervals_with_a_reset_are_left_out() -> None:
    steady = type(OWN)(
        np.array([0]), np.array([5]), np.array([10e9]), np.array([0.0]), np.array([10e12])
    )
    link = egress(FABRIC, 0)
    rows = counted(FABRIC, steady, start_s=0.0, end_s=10.0, links=[link])
    reset = pl.int_range(pl.len()) == 3
    low = int(Flag.RESET | Flag.DATA_AT_LEAST)
    rows = rows.with_columns(
        data_bytes=pl.when(reset).then(0).otherwise("data_bytes").cast(pl.UInt64),
        flags=pl.when(reset).then(low).otherwise(0).cast(pl.UInt32),
    )
    counters = joined(FABRIC, rows, steady)
    assert counters.sent_bytes[link] == pytest.approx(10e9, rel=0.02)
    assert counters.covered[link] < 1
    assert any("counters of 1 port were reset during the run" in note for note in counters.notes)


def test_a_partly_counted_link_is_extrapolated_or_unknown() -> None:
    steady = type(OWN)(
        np.array([0]), np.array([5]), np.array([10e9]), np.array([0.0]), np.array([10e12])
    )
    link = egress(FABRIC, 0)
    for end, expected in ((8.0, 10e9), (4.0, float("nan"))):
        rows = counted(FABRIC, steady, start_s=0.0, end_s=end, links=[link])
        counters = joined(FABRIC, rows, steady)
        assert counters.sent_bytes[link] == pytest.approx(expected, rel=0.02, nan_ok=True)
        assert counters.covered[link] == pytest.approx(end / 10, abs=0.02)


@pytest.mark.parametrize("every", [0.1, 1.0])
@pytest.mark.parametrize("late_s", [0.0, 37.4, 213.0])
def test_a_trace_without_utc_is_located_within_error(every: float, late_s: float) -> None:
    rows = counted(
        FABRIC,
        OWN,
        zero_ns=UTC + round(late_s * 1e9),
        start_s=-20 - late_s,
        end_s=300 - late_s,
        every_s=every,
        overhead=1.05,
        error=0.03,
    )
    counters = joined(FABRIC, rows, OWN, origin=None)
    truth = UTC + late_s * 1e9
    assert abs(counters.alignment.zero_ns - truth) <= counters.alignment.error_ns
    # An error that is wide enough for everything says nothing.
    assert counters.alignment.error_ns <= 1.5e9
    assert (
        "bytes" in counters.alignment.source
        and f"±{counters.alignment.error_ns / 1e6:.3g}" in (counters.notes[0])
    )


@pytest.mark.parametrize("shift_ms", [-25, 0, 8, 30])
def test_bytes_correct_clocks_that_are_slightly_off(shift_ms: int) -> None:
    rows = counted(FABRIC, OWN, zero_ns=UTC + shift_ms * 10**6, every_s=0.01, error=0.02)
    counters = joined(FABRIC, rows, OWN)
    assert abs(counters.alignment.zero_ns - UTC - shift_ms * 10**6) <= counters.alignment.error_ns
    assert counters.alignment.error_ns <= 2 * CLOCK_ERROR_NS
    assert ("by the bytes sent" in counters.alignment.source) == (counters.alignment.zero_ns != UTC)


def test_a_short_job_may_miss_its_counters() -> None:
    """Nine milliseconds, by a clock that is twelve behind the collector's."""
    length = 9 * 10**9
    begins = np.linspace(0.0, 0.8 * length, 40)
    job = type(OWN)(
        np.zeros(40, np.int64), np.full(40, 5), np.geomspace(1e5, 1e6, 40), begins, begins + 1e9
    )
    rows = counted(
        FABRIC, job, zero_ns=UTC + 12 * 10**6, start_s=0.0, end_s=0.02, every_s=0.001, error=0.0
    )
    begin = (rows["time_ns"] - rows["interval_ns"]).min()
    assert begin > UTC + length // 1000  # type: ignore[operator]
    counters = join_counters(rows, FABRIC, job, elapsed_ps=length, origin_unix_ns=UTC, lossy=False)
    assert abs(counters.alignment.zero_ns - UTC - 12 * 10**6) <= counters.alignment.error_ns
    with pytest.raises(JoinError, match="but the counters are from"):
        join_counters(rows, FABRIC, job, elapsed_ps=length, origin_unix_ns=UTC - 10**9, lossy=False)


def test_bytes_correct_a_second_and_report_it() -> None:
    short = OWN.of(OWN.start_ps < 1e12)
    rows = counted(FABRIC, short, zero_ns=UTC + 2 * 10**9, start_s=-5.0, end_s=5.0, every_s=0.05)
    counters = join_counters(
        rows, FABRIC, short, elapsed_ps=10**12, origin_unix_ns=UTC, lossy=False
    )
    assert abs(counters.alignment.zero_ns - UTC - 2 * 10**9) <= counters.alignment.error_ns
    assert "UTC time is off by +2 s" in counters.notes[0]


def test_idle_counters_during_sending_are_refused() -> None:
    idle = counted(FABRIC, OWN, start_s=0.0).with_columns(data_bytes=pl.lit(64, pl.UInt64))
    with pytest.raises(JoinError, match=r"hosts sent .*, but their ports counted") as error:
        joined(FABRIC, idle, OWN)
    assert error.value.remedy and "rates" not in error.value.remedy
    # What rises faster than the line rate is left out before.
    left_out = idle.with_columns(data_bytes=pl.lit(None, pl.UInt64))
    with pytest.raises(JoinError, match="hosts sent") as error:
        joined(FABRIC, left_out, OWN)
    assert "compare the rates of the fabric" in str(error.value.remedy)


def test_counters_of_few_bytes_are_not_shifted_away() -> None:
    """A run of five milliseconds is shorter than the shift that clocks allow."""
    length = 5 * 10**9
    begins = np.linspace(0.0, 0.8 * length, 40)
    job = type(OWN)(np.zeros(40, np.int64), np.full(40, 5), np.full(40, 1e6), begins, begins + 1e8)
    rows = counted(FABRIC, job, start_s=-0.001, end_s=0.006, every_s=0.001, error=0.0)
    tenth = rows.with_columns(data_bytes=(pl.col("data_bytes") / 10).cast(pl.UInt64))
    with pytest.raises(JoinError, match=r"hosts sent .*, but their ports counted"):
        join_counters(tenth, FABRIC, job, elapsed_ps=length, origin_unix_ns=UTC, lossy=False)
    with pytest.raises(JoinError, match="single reading"):
        join_counters(rows.clear(), FABRIC, job, elapsed_ps=length, origin_unix_ns=UTC, lossy=False)


def test_counters_of_another_day_or_fabric_are_refused() -> None:
    day = 86_400 * 10**9
    # The same bytes at the same times, a day later: both tell UTC, so these are not of the job.
    with pytest.raises(
        JoinError, match=r"began at 2023-11-14 22:13:20\.000 UTC and took 10 s, but"
    ) as error:
        joined(FABRIC, counted(FABRIC, OWN, zero_ns=UTC + day), OWN)
    assert "2023-11-15" in str(error.value) and error.value.remedy
    quiet = OWN.of(OWN.src_node == 99)
    with pytest.raises(JoinError, match="record when the job ran") as error:
        joined(FABRIC, counted(FABRIC, quiet), OWN, origin=None)
    assert error.value.remedy
    foreign = counted(FABRIC, OWN).with_columns(link=pl.lit(None, pl.UInt32))
    with pytest.raises(JoinError, match="no counter belongs to a link") as error:
        joined(FABRIC, foreign, OWN)
    assert "names must agree" in str(error.value.remedy)


@pytest.mark.parametrize("seed", range(4))
def test_bytes_of_another_run_align_no_trace(seed: int) -> None:
    """The same program on another day sends as much between the same hosts, at other times."""
    flows = [(0, 4, 2e8), (4, 0, 2e8), (5, 1, 2e8)]
    job, later = (bursts(flows, 10.0, seed=10 * seed + k) for k in (1, 2))
    assert joined(FABRIC, counted(FABRIC, job), job, origin=None).alignment.error_ns < 10**9
    with pytest.raises(JoinError, match="may be of different days"):
        joined(FABRIC, counted(FABRIC, later), job, origin=None)
    collectives = replace(job, assumed=np.ones(len(job.size_bytes), np.bool_))
    assert not joined(FABRIC, counted(FABRIC, job), collectives, origin=None).alignment.is_checked


def test_bytes_under_way_spread_over_their_message() -> None:
    edges = np.array([-1.0, 0.0, 2.5e12, 5e12, 10e12, 20e12])
    message = type(OWN)(
        np.array([0]), np.array([1]), np.array([100.0]), np.array([0.0]), np.array([10e12])
    )
    np.testing.assert_allclose(sent_bytes(message, edges), [0, 0, 25, 50, 100, 100])


@pytest.mark.parametrize(("every_s", "outside"), [(0.001, False), (0.05, True)])
def test_long_intervals_lie_mostly_outside_the_job(every_s: float, outside: bool) -> None:
    length = 9 * 10**9
    begins = np.linspace(0.0, 0.8 * length, 40)
    job = type(OWN)(np.zeros(40, np.int64), np.full(40, 5), np.full(40, 1e6), begins, begins + 1e9)
    rows = counted(FABRIC, job, zero_ns=UTC, start_s=-0.1, end_s=0.1, every_s=every_s, error=0.0)
    counters = join_counters(rows, FABRIC, job, elapsed_ps=length, origin_unix_ns=UTC, lossy=False)
    assert counters.mostly_outside is outside


@pytest.mark.parametrize("gbps", [0.05, 1.0, 40.0])
def test_links_serve_what_most_intervals_show(gbps: float) -> None:
    sent = gbps * 1e9 / 8 * 10
    steady = type(OWN)(
        np.array([0]), np.array([5]), np.array([sent]), np.array([0.0]), np.array([10e12])
    )
    link = egress(FABRIC, 0)
    rows = counted(FABRIC, steady, start_s=0.0, end_s=10.0, links=[link])
    served = served_gbps(rows, FABRIC.n_links)
    # Packets at both ends and time stamps may be counted wrongly, so it is a lower bound.
    assert 0.8 * gbps <= served[link] <= gbps
    assert served.sum() == served[link]
    # Late time stamps of a few readings, which take the bytes of the next, do not raise it.
    number = pl.int_range(rows.height)
    late = number < 2 * int(CLOCK_OUTLIERS * (1.0 - CLOCK_OUTLIERS) * rows.height)
    moved = pl.when(late).then(pl.col("data_bytes") * 2 * (1 - number % 2)).otherwise("data_bytes")
    moved = moved.cast(pl.UInt64)
    assert served_gbps(rows.with_columns(data_bytes=moved), FABRIC.n_links)[link] <= gbps
    unknown = rows.with_columns(data_bytes=pl.lit(None, pl.UInt64))
    assert not served_gbps(unknown, FABRIC.n_links).any()


@settings(max_examples=30)
@given(
    sent=st.lists(st.integers(0, 10**9), min_size=1, max_size=60),
    lengths=st.lists(st.sampled_from([10**7, 10**8, 10**9]), min_size=60, max_size=60),
)
def test_served_rate_reaches_the_mean(sent: list[int], lengths: list[int]) -> None:
    """Evidence of one interval never outweighs what the link carried over all of them."""
    length = np.array(lengths[: len(sent)])
    rows = counted(FABRIC, OWN, start_s=0.0, end_s=len(sent) / 10, links=[egress(FABRIC, 0)])
    rows = rows.with_columns(
        time_ns=pl.Series(UTC + np.cumsum(length)),
        interval_ns=pl.Series(length),
        data_bytes=pl.Series(sent, dtype=pl.UInt64),
    )
    mean = 8.0 * max(sum(sent) - 2 * 9216, 0) / (length.sum() + clock_error_ns(rows))
    served = served_gbps(rows, FABRIC.n_links)[egress(FABRIC, 0)]
    assert mean <= served * (1.0 + 1e-9)
    assert served <= 8.0 * (np.array(sent) / length).max()


@pytest.mark.parametrize("busy_intervals", [3, 15, 80])
def test_idle_time_hides_no_full_link(busy_intervals: int) -> None:
    """A link that others fill for a short time of a long record is known to serve its rate."""
    rate = 100e9 / 8
    first, last = 20.0, 20.0 + busy_intervals / 10
    full = type(OWN)(
        np.array([0]),
        np.array([5]),
        np.array([rate * (last - first)]),
        np.array([first * 1e12]),
        np.array([last * 1e12]),
    )
    link = egress(FABRIC, 0)
    rows = counted(FABRIC, full, start_s=0.0, end_s=60.0, links=[link])
    assert 95.0 < served_gbps(rows, FABRIC.n_links)[link] <= 100.0


@settings(max_examples=30)
@given(
    rate=st.floats(5.0, 100.0),
    stalls=st.lists(st.floats(0.0, 0.99), min_size=3, max_size=40),
    busy=st.floats(0.5, 1.0),
)
def test_served_rate_excludes_stalled_time(rate: float, stalls: list[float], busy: float) -> None:
    """A link that waits for credit sends the rest of the time, at no more than its rate."""
    stall = np.array(stalls)
    rows = counted(FABRIC, OWN, start_s=0.0, end_s=len(stalls) / 10, links=[egress(FABRIC, 0)])
    length = rows["interval_ns"].to_numpy()
    # In one interval it sends all the time that it does not stall.
    share = np.where(np.arange(len(stall)) == len(stall) // 2, 1.0, busy)
    sent = rate / 8 * length * (1.0 - stall) * share
    rows = rows.with_columns(
        data_bytes=pl.Series(sent).cast(pl.UInt64),
        stall_fraction=pl.Series(stall),
        capacity_gbps=pl.lit(100.0),
    )
    served = served_gbps(rows, FABRIC.n_links)[egress(FABRIC, 0)]
    few = len(stalls) < 20
    # A packet at each end may be counted in the wrong interval.
    middle = len(stall) // 2
    packets = 2 * JUMBO_BYTES * 8 / (length[middle] * (1.0 - stall[middle]))
    assert 0.99 * (rate - packets) * (1.0 if few else busy) <= served <= rate * (1.0 + 1e-6)


def test_pauses_of_queued_ports_are_stalls() -> None:
    paused = counted(FABRIC, OWN, stall=0.3).with_columns(
        paused_fraction=pl.lit(0.3),
        backlog_bytes=pl.lit(0, pl.UInt64),
        flags=pl.lit(0, pl.UInt32),
    )
    assert not drops_packets(paused)
    counters = join_counters(
        paused,
        FABRIC,
        OWN,
        elapsed_ps=10**13,
        origin_unix_ns=UTC,
        lossy=drops_packets(paused),
    )
    assert counters.stall[egress(FABRIC, 0)] == pytest.approx(0.3)
    assert counters.stall_ps[egress(FABRIC, 0)] == pytest.approx(3e12, rel=0.02)


def test_queues_that_cannot_be_paused_drop_packets() -> None:
    queued = counted(FABRIC, OWN).with_columns(
        stall_fraction=pl.lit(None, pl.Float64), backlog_bytes=pl.lit(0, pl.UInt64)
    )
    assert drops_packets(queued)
    # Nothing filled a queue of ports that can be paused.
    free = queued.with_columns(paused_fraction=pl.lit(0.0))
    assert not drops_packets(free)
    # Another class of traffic is paused, and this one is not.
    both = free.with_columns(paused_fraction=pl.lit(0.3), drops=pl.lit(2, pl.UInt64))
    assert drops_packets(both)
