"""Links that serve less than their rate, told from queues: on queues whose truth is known."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tailback.cli import cli
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.findings.port_findings import (
    PORT_FINDINGS,
    no_slow_link,
    port_findings,
    ports_dropped,
    queue_readings,
    rate_tests,
)
from tailback.port_counters.findings.port_series import QUEUE_WINDOWS, clock_error_ns, queue_windows
from tailback.port_counters.findings.port_verdict import assess_ports, sentence
from tailback.port_counters.schema import ETHERNET, INTERVALS, READINGS, Flag, conform
from tailback.units import rate_of_rate
from tests.factories.public_data import real

STEP_NS = 1_000_000
"""Time step of the queues below."""


def queue(
    serves: float, nominal: float, arrivals: np.ndarray, every: int, jitter: int = 0, seed: int = 0
) -> pl.DataFrame:
    """Counters of a port, read every so many steps; rates in bytes a step, as are arrivals.

    The server is exact: it sends ``serves`` bytes a step while there is a queue.
    """
    total = np.cumsum(arrivals)
    # What a work-conserving server has sent: the least of arrivals until s and full service since.
    steps = np.arange(1, len(arrivals) + 1) * serves
    sent = steps + np.minimum(np.minimum.accumulate(total - steps), 0.0)
    backlog = total - sent
    draw = np.random.default_rng(seed)
    at = np.arange(every, len(arrivals) - every, every)
    at = at + (draw.integers(-jitter, jitter + 1, len(at)) if jitter else 0)
    rows = pl.DataFrame(
        {
            "time_ns": at[1:] * STEP_NS,
            "interval_ns": np.diff(at) * STEP_NS,
            "node_name": "s",
            "port": 1,
            "interface": "e0",
            "data_bytes": np.diff(np.floor(sent[at])).astype(np.uint64),
            "packets": np.ceil(np.diff(sent[at]) / 1500).astype(np.uint64),
            "backlog_before_bytes": np.round(backlog[at[:-1]]).astype(np.uint64),
            "backlog_bytes": np.round(backlog[at[1:]]).astype(np.uint64),
            "capacity_gbps": nominal * 8 / STEP_NS,
            "source": "test",
        }
    )
    return conform(INTERVALS, rows)


def bursts(load: float, steps: int, seed: int) -> np.ndarray:
    """Bytes a step, in bursts at random times: ``load`` on average."""
    draw = np.random.default_rng(seed)
    size = 40_000.0
    return draw.poisson(load / size, steps) * size


def test_a_queue_outlasting_its_interval_proves_the_rate() -> None:
    # 250,000 bytes at once; 1,250 a step served of 5,000: 125,000 in each of two intervals.
    arrivals = np.zeros(1000)
    arrivals[150] = 250_000
    frame = queue(1250, 5000, arrivals, 100)
    row = port_findings(frame).row(0, named=True)
    assert (row["finding"], row["evidence"], row["intervals"]) == ("degraded", "outlasted", 1)
    assert row["served_gbps"] == pytest.approx(0.01, rel=0.01)
    assert row["served_low_gbps"] < 0.01 < row["served_high_gbps"] < 0.04
    assert row["nominal_gbps"] == pytest.approx(0.04)
    # At its full rate the same queue is gone within the interval and proves nothing.
    healthy = port_findings(queue(5000, 5000, arrivals, 100))
    assert set(healthy["finding"]) <= {"queued", "busy"}
    # Nor does it without a nominal rate.
    unknown = frame.with_columns(capacity_gbps=pl.lit(None, pl.Float64))
    assert port_findings(unknown)["finding"].to_list() == ["queued"]


def restarted(frame: pl.DataFrame, device: str, at: float | None, begin: int) -> pl.DataFrame:
    """Readings of the intervals of a port, whose counters restart after ``at`` intervals."""

    def counter(name: str) -> np.ndarray:
        count = begin + np.concatenate([[0], np.cumsum(frame[name].to_numpy().astype(np.int64))])
        if at is None:
            return count
        point = int(np.interp(at, np.arange(len(count)), count))
        return np.where(np.arange(len(count)) >= at, count - point, count)

    first = frame["time_ns"][0] - frame["interval_ns"][0]
    rows = pl.DataFrame(
        {
            "time_ns": [first, *frame["time_ns"]],
            "node_name": device,
            "port": 1,
            "interface": "e0",
            "data_bytes": counter("data_bytes"),
            "packets": counter("packets"),
            "backlog_bytes": [frame["backlog_before_bytes"][0], *frame["backlog_bytes"]],
            "capacity_gbps": frame["capacity_gbps"][0],
            "source": ETHERNET,
        }
    )
    return conform(READINGS, rows)


INTERVALS_READ = 38
"""Intervals of each port below."""


@pytest.mark.slow
@settings(max_examples=8)
@given(
    at=st.one_of(st.integers(1, INTERVALS_READ), st.floats(0.01, INTERVALS_READ - 0.01)),
    reset=st.sampled_from([("a",), ("b",), ("a", "b", "c")]),
    begin=st.sampled_from([0, 10**6, 10**12]),
    seed=st.integers(0, 5),
)
def test_a_reset_makes_no_slow_link(
    at: float, reset: tuple[str, ...], begin: int, seed: int
) -> None:
    readings = pl.concat(
        restarted(
            queue(5000, 5000, bursts(0.8 * 5000, 4000, 10 * seed + k), 100),
            device,
            at if device in reset else None,
            begin,
        )
        for k, device in enumerate("abc")
    )
    fell = (readings["data_bytes"].cast(pl.Int64).diff() < 0) & (
        readings["node_name"] == readings["node_name"].shift(1)
    )
    assume(fell.any())
    intervals = difference(readings)
    assert ((intervals["flags"] & int(Flag.RESET)) > 0).any()
    assert "degraded" not in port_findings(intervals)["finding"].to_list()
    # A slow link beside them is still found.
    slow = restarted(queue(1250, 5000, np.full(4000, 1500.0), 100), "d", at, begin)
    rows = port_findings(difference(pl.concat([readings, slow])))
    assert rows.filter(pl.col("finding") == "degraded")["node_name"].to_list() == ["d"]


@pytest.mark.slow
@settings(max_examples=25)
@given(
    at=st.one_of(st.integers(1, 9), st.floats(0.01, 8.99)),
    begin=st.integers(0, 2**32 - 10**6),
    ports=st.sampled_from([(1,), (2,), (1, 2)]),
)
def test_a_reset_makes_no_stall(at: float, begin: int, ports: tuple[int, ...]) -> None:
    share, second, tick = 0.005, 10**9, 22.0
    rows = []
    for port in (1, 2):
        for k in range(10):
            since = k - at if port in ports and k >= at else None
            counts = {"data_bytes": 6e9, "packets": 4e6, "xmit_wait_ticks": share * 60e9 / tick}
            values = {
                name: int(rise * since if since is not None else begin + rise * k)
                for name, rise in counts.items()
            }
            place = {"time_ns": 60 * k * second, "node_name": "leaf", "port": port}
            rows.append(place | values | {"tick_ns": tick, "capacity_gbps": 54.5})
    readings = conform(READINGS, pl.DataFrame(rows)).sort("port", maintain_order=True)
    # One fall is from the last reading of port 1 to the first of port 2.
    assume((readings["data_bytes"].cast(pl.Int64).diff() < 0).sum() > 1)
    intervals = difference(readings)
    assert intervals["stall_fraction"].max() <= share * 1.001  # type: ignore[operator]
    assert ((intervals["flags"] & int(Flag.RESET)) > 0).any()


def test_too_few_readings_decide_nothing() -> None:
    arrivals = bursts(0.5 * 5000, 40_000, 1)
    few, many = queue(5000, 5000, arrivals, 2000), queue(5000, 5000, arrivals, 20)
    assert (rate_tests(few).sending, rate_tests(few).decided) == (1, 0)
    assert "unknown" in sentence(assess_ports(few))
    assert rate_tests(many).decided == 1
    assert no_slow_link(rate_tests(many)) == "No link serves less than its rate"


@pytest.mark.parametrize("factor", [8.0, 1000.0, 1024.0, 1e6])
def test_rates_of_another_unit_make_no_cable_suspect(factor: float) -> None:
    ports = pl.concat(
        queue(rate, 5000 * factor, bursts(0.85 * rate, 120_000, k), 1000, 30, k).with_columns(
            node_name=pl.lit(f"s{k}")
        )
        for k, rate in enumerate([5000.0, 5000.0, 5000.0, 5000.0, 1250.0])
    ).with_columns(
        utilization=pl.col("data_bytes") * 8 / (pl.col("capacity_gbps") * pl.col("interval_ns"))
    )
    verdict = assess_ports(ports)
    assert (verdict.kind, verdict.rate_factor) == ("rates", pytest.approx(factor, rel=0.05))
    assert "check the unit of the rates" in sentence(verdict)
    # Nor do rates that are right, with one slow cable.
    right = ports.with_columns(pl.col("capacity_gbps", "utilization") / 1)
    right = right.with_columns(
        capacity_gbps=pl.col("capacity_gbps") / factor, utilization=pl.col("utilization") * factor
    )
    assert assess_ports(right).kind == "degraded"


def test_a_full_link_is_busy_and_not_degraded() -> None:
    findings = port_findings(queue(5000, 5000, np.full(4000, 5500.0), 100))
    assert findings["finding"].to_list() == ["busy"]
    assert findings["served_gbps"][0] == pytest.approx(0.04, rel=0.02)


def test_uncounted_frames_make_no_slow_link() -> None:
    # 64-byte packets: a full wire shows 60 of 84 bytes, and its queue stays.
    frame = queue(5000 * 60 / 84, 5000, np.full(4000, 4000.0), 100)
    frame = frame.with_columns(packets=(pl.col("data_bytes") / 60).cast(pl.UInt64))
    assert "degraded" not in port_findings(frame)["finding"].to_list()


@pytest.mark.parametrize("share", [0.25, 0.5, 0.7])
def test_slow_links_are_found_in_sparse_readings(share: float) -> None:
    n_degraded = 0
    for seed in range(20):
        arrivals = bursts(0.85 * share * 5000, 120_000, seed)
        rows = port_findings(queue(share * 5000, 5000, arrivals, 1000, 30, seed))
        if rows["finding"][0] == "degraded":
            row = rows.row(0, named=True)
            assert row["evidence"] == "sampled"
            truth = share * 5000 * 8 / STEP_NS
            assert row["served_low_gbps"] <= truth <= row["served_high_gbps"]
            n_degraded += 1
    assert n_degraded >= 18


def test_eighteen_readings_show_a_slow_link() -> None:
    """Ports at nine tenths of what they serve: a quarter of the rate, and all of it."""
    n_degraded, alarms = 0, 0
    for seed in range(20):
        slow = queue(1250, 5000, bursts(0.9 * 1250, 21_000, seed), 1000, 30, seed)
        assert len(slow) == 18
        n_degraded += port_findings(slow)["finding"][0] == "degraded"
        healthy = queue(5000, 5000, bursts(0.9 * 5000, 21_000, seed), 1000, 30, seed)
        alarms += "degraded" in port_findings(healthy)["finding"].to_list()
    assert n_degraded >= 15 and alarms == 0


def test_a_slow_link_with_a_one_ended_queue() -> None:
    """Readings catch a queue every other time: no interval begins and ends with one."""
    arrivals = np.zeros(20_000)
    # At a quarter of the rate, 60,000 bytes take 48 of 200 steps: from 80 to 128.
    arrivals[80::200] = 60_000
    frame = queue(1250, 5000, arrivals, 100)
    seen = np.stack([frame["backlog_before_bytes"], frame["backlog_bytes"]]) > 0
    assert seen.any(axis=0).all() and not seen.all(axis=0).any()
    row = port_findings(frame).row(0, named=True)
    assert (row["finding"], row["evidence"], row["intervals"]) == (
        "degraded",
        "sampled",
        len(frame),
    )
    assert row["served_low_gbps"] <= row["served_gbps"] <= row["served_high_gbps"] < 0.02


def test_readings_that_come_late_hide_no_slow_link() -> None:
    """Most intervals are half as long again, or half as long, as they should be."""
    n_degraded = alarms = 0
    for seed in range(20):
        slow = queue(2000, 5000, bursts(0.8 * 2000, 60_000, seed), 200, 90, seed)
        assert clock_error_ns(slow) > 0.5 * float(slow["interval_ns"].median())  # type: ignore[arg-type]
        n_degraded += port_findings(slow)["finding"][0] == "degraded"
        healthy = queue(5000, 5000, bursts(0.6 * 5000, 60_000, seed), 200, 90, seed)
        alarms += "degraded" in port_findings(healthy)["finding"].to_list()
    assert n_degraded >= 18 and alarms == 0


@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
def test_healthy_links_are_not_called_slow(load: float) -> None:
    """300 healthy ports at three loads: the chance of an alarm is 1 % of all ports together."""
    alarms = 0
    for seed in range(100):
        frame = queue(5000, 5000, bursts(load * 5000, 30_000, seed), 100, 3, seed)
        alarms += "degraded" in port_findings(frame)["finding"].to_list()
    assert alarms <= 2


def test_healthy_queues_are_read_at_most_while_busy() -> None:
    """300 healthy ports; and ports at half their rate, busy for twice as long as stated."""

    def readings(serves: float, load: float, seed: int) -> tuple[float, float, float]:
        frame = queue(serves, 5000, bursts(load * serves, 30_000, seed), 500, 3, seed)
        rows = queue_readings(frame.with_columns(link=pl.lit(3, pl.Int64)))
        assert rows["link"].to_list() == [3]
        return rows.row(0)[1:]

    beyond = 0
    for load in (0.3, 0.6, 0.85):
        for seed in range(100):
            queued, busy, number = readings(5000, load, seed)
            assert 2 <= number <= 60 and busy == pytest.approx(load, rel=0.5)
            beyond += queued > busy + 2.0 * np.sqrt(busy * (1.0 - min(busy, 1.0)) / number)
    assert beyond <= 0.05 * 300
    slow = np.mean([readings(2500, 0.85, seed)[:2] for seed in range(40)], axis=0)
    assert slow[0] > 1.5 * slow[1]


def test_drops_are_listed_beside_other_findings() -> None:
    frame = queue(5000, 5000, np.full(2000, 5500.0), 100).with_columns(
        drops=pl.when(pl.int_range(pl.len()) == 3).then(7).otherwise(0).cast(pl.UInt64)
    )
    findings = port_findings(frame)
    assert findings["finding"].to_list() == ["busy", "drops"]
    row = findings.row(1, named=True)
    assert (row["drops"], row["intervals"]) == (7, 1)
    assert row["end_ns"] - row["start_ns"] == 100 * STEP_NS
    assert findings.schema == pl.Schema(PORT_FINDINGS.polars_schema)


@pytest.mark.parametrize(
    ("counted", "flag", "at_least"),
    [(True, Flag(0), False), (True, Flag.RESET, True), (False, Flag(0), True)],
)
def test_drops_beside_a_reset_are_lower_bounds(counted: bool, flag: Flag, at_least: bool) -> None:
    drops = pl.when(pl.int_range(pl.len()) == 3).then(7).otherwise(0)
    frame = queue(5000, 5000, np.full(2000, 5500.0), 100).with_columns(
        drops=pl.when((pl.int_range(pl.len()) != 9) | counted).then(drops).cast(pl.UInt64),
        flags=pl.when(pl.int_range(pl.len()) == 9)
        .then(pl.lit(int(flag)))
        .otherwise(pl.col("flags"))
        .cast(pl.UInt32),
    )
    rows = port_findings(frame).filter(pl.col("finding") == "drops")
    assert rows.select("drops", "drops_at_least").row(0) == (7, at_least)
    assert ("≥ 7 packets" in ports_dropped(rows, 1, {})) == at_least


def test_windows_end_with_empty_queues_or_gaps() -> None:
    arrivals = np.zeros(2000)
    arrivals[150], arrivals[1050] = 4_000_000, 1_000_000
    frame = queue(5000, 5000, arrivals, 100)
    windows = queue_windows(frame)
    assert windows.schema == pl.Schema(QUEUE_WINDOWS.polars_schema)
    assert windows["start_ns"].to_list() == [200 * STEP_NS, 1100 * STEP_NS]
    assert windows["served_gbps"].to_list() == pytest.approx([0.04, 0.04])
    assert windows["outlasted"].to_list() == [7, 1]
    cut = queue_windows(frame.filter(pl.col("time_ns") != 500 * STEP_NS))
    assert cut["end_ns"].to_list()[:2] == [400 * STEP_NS, 900 * STEP_NS]


def test_nothing_known_gives_no_finding() -> None:
    empty = conform(INTERVALS, pl.DataFrame())
    assert port_findings(empty).is_empty() and queue_windows(empty).is_empty()
    assert clock_error_ns(empty) == 0.0
    still = assess_ports(queue(5000, 5000, np.zeros(1000), 100))
    assert still.kind == "unknown" and "no counter moved" in sentence(still)
    quiet = queue(5000, 5000, np.full(1000, 10.0), 100)
    assert port_findings(quiet).is_empty()
    assert assess_ports(quiet).kind == "quiet"
    assert "none of 1 port dropped packets" in sentence(assess_ports(quiet))


def test_rates_in_the_unit_of_the_link() -> None:
    assert rate_of_rate(0.00995, 0.04) == "9.95 of 40 Mb/s"
    assert rate_of_rate(12.34, 100.0) == "12.3 of 100 Gb/s"


def lab(run: str, folder: Path) -> list[str]:
    with tarfile.open(real(f"real-lab/{run}.tar.gz")) as archive:
        for name in ("links.csv", "counters.csv.gz"):
            archive.extract(f"{run}/{name}", folder, filter="data")
    return [str(folder / run / "counters.csv.gz"), "--fabric", str(folder / run / "links.csv")]


@pytest.mark.data
def test_both_ways_name_a_real_runs_slow_cable(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["counters", *lab("r8", tmp_path), "--format", "json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert (facts["verdict"], facts["network"]) == ("degraded", "lossy")
    slow = [row for row in facts["findings"] if row["finding"] == "degraded"]
    assert {(row["node_name"], row["interface"]) for row in slow} == {("l2", "s1"), ("s1", "l2")}
    for row in slow:
        assert row["served_low_gbps"] <= 0.010 <= row["served_high_gbps"]
    text = CliRunner().invoke(cli, ["counters", *lab("r8", tmp_path)]).output
    assert "of 40 Mb/s while it queues" in " ".join(text.split())


@pytest.mark.data
def test_a_healthy_real_run_has_no_slow_link(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["counters", *lab("r9", tmp_path)])
    assert result.exit_code == 0
    assert "No link is shown to serve less than its rate" in " ".join(result.output.split())
    assert "SERVE LESS" not in result.output


def with_interruption(frame: pl.DataFrame, at: int, share: float) -> pl.DataFrame:
    """The readings of a port that sent only a share of an interval, with a queue all along."""
    sent = int(frame["data_bytes"][at] * share)
    waiting = max(int(frame["backlog_before_bytes"][at]), 4 * sent + 10_000)
    here = pl.int_range(pl.len()) == at
    return frame.with_columns(
        data_bytes=pl.when(here).then(sent).otherwise("data_bytes").cast(pl.UInt64),
        backlog_before_bytes=pl.when(here)
        .then(waiting)
        .otherwise("backlog_before_bytes")
        .cast(pl.UInt64),
        backlog_bytes=pl.when(here).then(waiting).otherwise("backlog_bytes").cast(pl.UInt64),
    )


@settings(max_examples=40)
@given(
    share=st.floats(0.0, 0.5),
    at=st.integers(1, 70),
    load=st.floats(0.3, 0.95),
    serves=st.sampled_from([1250.0, 2500.0, 5000.0]),
    seed=st.integers(0, 20),
)
def test_no_interval_outweighs_longer_times(
    share: float, at: int, load: float, serves: float, seed: int
) -> None:
    """A port that is interrupted for one interval carried more over all of them."""
    frame = queue(serves, 5000, bursts(load * serves, 8000, seed), 100, seed=seed)
    frame = with_interruption(frame, at, share)
    rows = port_findings(frame).filter(pl.col("finding") == "degraded")
    sent, length = frame["data_bytes"].sum(), frame["interval_ns"].sum()
    mean = 8.0 * (sent - 2 * 1514) / (length + clock_error_ns(frame))
    for row in rows.iter_rows(named=True):
        assert row["served_low_gbps"] >= mean * 0.999
        assert row["served_low_gbps"] <= row["served_gbps"] <= row["served_high_gbps"]
    if serves == 5000 and load < 0.8:
        assert rows.is_empty()


@pytest.mark.parametrize("slow_share", [0.6, 0.8, 1.0])
def test_mostly_slow_link_serves_its_slow_rate(slow_share: float) -> None:
    """A link that is slow most of the time is no interruption."""
    steps = 12_000
    fast = np.arange(steps) % 2000 >= slow_share * 2000
    arrivals = np.full(steps, 2000.0)
    sent, backlog, held = np.zeros(steps), np.zeros(steps), 0.0
    for step in range(steps):
        held += arrivals[step]
        sent[step] = min(held, 5000.0 if fast[step] else 1000.0)
        held -= sent[step]
        backlog[step] = held
    every = 100
    at = np.arange(every - 1, steps, every)
    total = np.cumsum(sent)
    rows = conform(
        INTERVALS,
        pl.DataFrame(
            {
                "time_ns": (at[1:] + 1) * STEP_NS,
                "interval_ns": np.diff(at) * STEP_NS,
                "node_name": "s",
                "port": 1,
                "interface": "e0",
                "data_bytes": np.diff(total[at]).astype(np.uint64),
                "packets": np.ceil(np.diff(total[at]) / 1500).astype(np.uint64),
                "backlog_before_bytes": backlog[at[:-1]].astype(np.uint64),
                "backlog_bytes": backlog[at[1:]].astype(np.uint64),
                "capacity_gbps": 5000 * 8 / STEP_NS,
                "source": "test",
            }
        ),
    )
    row = port_findings(rows).row(0, named=True)
    assert row["finding"] == "degraded"
    mean = total[-1] * 8 / (steps * STEP_NS)
    assert 0.97 * mean <= row["served_gbps"] < row["nominal_gbps"]
