"""Readings to intervals: wraps, resets, latched counters, gaps; nothing becomes a plain number."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.analysis.timestamp_checks import note_clock_steps
from tailback.port_counters.schema import (
    INTERVALS,
    READINGS,
    CounterError,
    Flag,
    conform,
    lost_gbps,
    markdown,
)
from tests.factories.repository import ROOT

U32 = 2**32 - 1
SECOND = 1_000_000_000


def readings(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {"node_name": "leaf", "port": 1, "wait_limit": U32, "tick_ns": 22.0}
    return conform(
        READINGS,
        pl.DataFrame(
            [base | row for row in rows],
            schema_overrides={
                n: t for n, t in READINGS.polars_schema.items() if any(n in base | r for r in rows)
            },
        ),
    )


def single_interval(*rows: dict[str, Any]) -> dict[str, Any]:
    out = difference(readings(*rows))
    assert out.height == 1
    assert out.schema == pl.Schema(INTERVALS.polars_schema)
    return out.row(0, named=True)


def test_plain_interval() -> None:
    row = single_interval(
        {"time_ns": 0, "xmit_wait_ticks": 1000, "data_bytes": 0, "capacity_gbps": 8.0},
        {
            "time_ns": SECOND,
            "xmit_wait_ticks": 11_363_636 + 1000,
            "data_bytes": 500_000_000,
            "capacity_gbps": 8.0,
        },
    )
    assert row["interval_ns"] == SECOND
    assert row["xmit_wait_ticks"] == 11_363_636
    assert row["stall_fraction"] == pytest.approx(0.25, abs=1e-6)
    assert row["utilization"] == pytest.approx(0.5)
    assert row["flags"] == 0


@pytest.mark.parametrize("speeds", [(50.0, 100.0), (100.0, 50.0)])
def test_another_speed_is_reported_either_way(speeds: tuple[float, float]) -> None:
    row = single_interval(
        {"time_ns": 0, "data_bytes": 0, "capacity_gbps": speeds[0]},
        {"time_ns": SECOND, "data_bytes": 10**9, "capacity_gbps": speeds[1]},
    )
    assert row["flags"] == Flag.RATE_CHANGED
    assert row["utilization"] == pytest.approx(8 / speeds[1])


def test_a_repeated_reading_marks_its_interval() -> None:
    stale = [{"time_ns": n, "xmit_wait_ticks": 7, "flags": n * int(Flag.STALE)} for n in (0, 1)]
    assert single_interval(*stale)["flags"] == Flag.STALE


def test_a_reset_stall_time_is_a_lower_bound() -> None:
    row = single_interval({"time_ns": 0, "stall_ns": 900}, {"time_ns": 1000, "stall_ns": 250})
    assert (row["stall_ns"], row["stall_fraction"]) == (250.0, 0.25)
    assert row["flags"] == Flag.RESET | Flag.AT_LEAST


def test_a_fraction_above_one_stays() -> None:
    row = single_interval(
        {"time_ns": 0, "xmit_wait_ticks": 0}, {"time_ns": 100, "xmit_wait_ticks": 5}
    )
    assert row["stall_fraction"] == pytest.approx(1.1)


def test_reset_is_at_least() -> None:
    row = single_interval(
        {"time_ns": 0, "xmit_wait_ticks": 5000}, {"time_ns": SECOND, "xmit_wait_ticks": 400}
    )
    assert row["xmit_wait_ticks"] == 400
    assert row["flags"] == Flag.RESET | Flag.AT_LEAST


def test_wrap_is_corrected() -> None:
    row = single_interval(
        {"time_ns": 0, "xmit_wait_ticks": U32 - 9}, {"time_ns": SECOND, "xmit_wait_ticks": 90}
    )
    assert row["xmit_wait_ticks"] == 100
    assert row["flags"] == Flag.WRAP


def test_data_wraps_at_a_whole_word() -> None:
    limit = {"data_limit": 4 * U32, "capacity_gbps": 100.0}
    row = single_interval(
        {"time_ns": 0, "data_bytes": 4 * (U32 - 9)} | limit,
        {"time_ns": SECOND, "data_bytes": 4 * 90} | limit,
    )
    assert (row["data_bytes"], row["flags"]) == (400, Flag.WRAP)


def test_a_wrap_too_fast_is_a_reset() -> None:
    rows = ({"time_ns": 0, "xmit_wait_ticks": U32 - 9}, {"time_ns": 1400, "xmit_wait_ticks": 90})
    row = single_interval(*rows)
    assert row["xmit_wait_ticks"] == 90
    assert row["flags"] == Flag.RESET | Flag.AT_LEAST


@pytest.mark.parametrize(("before", "ticks"), [(U32 - 50, 50), (U32, None)])
def test_latched_is_never_a_number(before: int, ticks: int | None) -> None:
    row = single_interval(
        {"time_ns": 0, "xmit_wait_ticks": before}, {"time_ns": SECOND, "xmit_wait_ticks": U32}
    )
    assert row["xmit_wait_ticks"] == ticks
    assert row["flags"] == Flag.LATCHED | Flag.AT_LEAST


def test_reset_of_a_latched_counter() -> None:
    row = single_interval(
        {"time_ns": 0, "xmit_wait_ticks": U32}, {"time_ns": 9 * SECOND, "xmit_wait_ticks": 7}
    )
    assert (row["xmit_wait_ticks"], row["flags"]) == (7, Flag.RESET | Flag.AT_LEAST)


def test_latched_data_does_not_touch_the_stall() -> None:
    common = {"data_limit": 4 * U32, "data_bytes": 4 * U32}
    row = single_interval(
        {"time_ns": 0, "xmit_wait_ticks": 0} | common,
        {"time_ns": SECOND, "xmit_wait_ticks": 10} | common,
    )
    assert row["data_bytes"] is None
    assert row["stall_ns"] == 220.0
    assert row["flags"] == Flag.DATA_LATCHED | Flag.DATA_AT_LEAST


def test_64_bits_do_not_overflow() -> None:
    wide = {"wait_limit": 2**64 - 1}
    row = single_interval(
        {"time_ns": 0, "xmit_wait_ticks": 2**63 - 5} | wide,
        {"time_ns": SECOND, "xmit_wait_ticks": 2**63 + 5} | wide,
    )
    assert (row["xmit_wait_ticks"], row["flags"]) == (10, 0)


def test_long_intervals_are_gaps() -> None:
    times = [0, 10, 20, 30, 60, 70]
    rows = [{"time_ns": t, "xmit_wait_ticks": 0} for t in times]
    rows += [{"time_ns": 15, "xmit_wait_ticks": 9, "port": 2}]
    out = difference(readings(*reversed(rows)))
    assert out["interval_ns"].to_list() == [10, 10, 10, 30, 10]
    gaps = (out["flags"] & int(Flag.GAP)).to_list()
    assert [bool(g) for g in gaps] == [False, False, False, True, False]


def test_tiles_share_the_stall() -> None:
    row = single_interval(
        {"time_ns": 0, "stall_ns": 0, "internal_stall_ns": 0, "lanes": 4},
        {"time_ns": 100, "stall_ns": 200, "internal_stall_ns": 40, "lanes": 4},
    )
    assert row["stall_fraction"] == pytest.approx(0.5)
    assert row["internal_stall_fraction"] == pytest.approx(0.1)


def test_unknown_tick_is_null_until_given() -> None:
    rows = readings(
        {"time_ns": 0, "xmit_wait_ticks": 0, "tick_ns": None},
        {"time_ns": 100, "xmit_wait_ticks": 2, "tick_ns": None},
    )
    assert difference(rows)["stall_fraction"].to_list() == [None]
    assert difference(rows, tick_ns=22.0)["stall_fraction"].to_list() == [0.44]


def test_conform_names_a_column_that_is_not_there() -> None:
    with pytest.raises(CounterError, match="no column 'colour'"):
        conform(READINGS, pl.DataFrame({"colour": [1]}))
    assert conform(READINGS, pl.DataFrame()).height == 0


def test_lost_bandwidth_never_passes_the_capacity() -> None:
    frame = pl.DataFrame({"f": [0.25, 1.2], "c": [100.0, 100.0]})
    assert frame.select(lost_gbps(pl.col("f"), pl.col("c"))).to_series().to_list() == [25.0, 100.0]


def test_page_of_tables_describes_port_counters() -> None:
    page = ROOT / "docs" / "reference" / "tables.md"
    assert markdown() in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("step", [-25 * SECOND, -3600 * SECOND])
def test_a_clock_set_back_spans_no_interval(step: int) -> None:
    draw = np.random.default_rng(1)
    parts = []
    for port in (1, 2):
        wait = np.cumsum(draw.integers(1, 10**8, 8))
        times = [10 * SECOND * n + (step if n >= 4 else 0) for n in range(8)]
        parts.append(pl.DataFrame({"time_ns": times, "port": port, "xmit_wait_ticks": wait}))
    # Two ports, reading by reading, as a sampler writes them.
    readings = pl.concat(parts).with_columns(node_name=pl.lit("leaf")).with_row_index()
    readings = readings.sort(pl.col("index") % 8, "port").drop("index")
    rows = difference(conform(READINGS, readings), tick_ns=22.0)
    for port, part in zip((1, 2), parts, strict=True):
        mine = rows.filter(pl.col("port") == port)
        rises = part["xmit_wait_ticks"].diff().drop_nulls().to_list()
        assert mine["xmit_wait_ticks"].to_list() == rises[:3] + rises[4:]
        assert set(mine["interval_ns"]) == {10 * SECOND}
    assert (rows["flags"] & int(Flag.RESET)).sum() == 0
    assert note_clock_steps(conform(READINGS, readings))[0].startswith(
        "ports whose clock was set back: 2, like leaf[1]"
    )


@pytest.mark.slow
def test_readings_are_sorted_by_time() -> None:
    readings = pl.DataFrame(
        {
            "time_ns": [n * SECOND for n in range(9)],
            "node_name": "leaf",
            "port": 1,
            "xmit_wait_ticks": [n * n * 1000 for n in range(9)],
        }
    )
    expected = difference(conform(READINGS, readings), tick_ns=22.0)
    for seed in range(5):
        mixed = conform(READINGS, readings.sample(fraction=1, shuffle=True, seed=seed))
        assert difference(mixed, tick_ns=22.0).equals(expected)
        assert note_clock_steps(mixed) == []
