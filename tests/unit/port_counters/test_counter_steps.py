"""The one rule of differences: the collector and the readers of files say the same of it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailback.collector.difference import intervals_frame
from tailback.collector.readings import RAW, TargetTable, readings_frame
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.schema import READINGS, Flag, conform
from tailback.port_counters.targets import PortTarget

SECOND = 1_000_000_000
TOP = 2**32 - 1
RESET, DATA_RESET = Flag.RESET | Flag.AT_LEAST, Flag.RESET | Flag.DATA_AT_LEAST

IDLE = {"words": 3 * 10**9, "packets": 2 * 10**9, "wait": 10**9}
"""More than a port counts in an interval: these counters were not reset."""


def both(
    before: dict[str, int], after: dict[str, int], *, gbps: float = 54.5, seconds: float = 1.0
) -> dict[str, object]:
    """One interval by the collector, checked to be the one that the reader of its readings has."""
    target = PortTarget(
        guid=7,
        node_name="sw",
        switch=True,
        port=3,
        lid=7,
        gbps=gbps,
        tick_ns=22.0,
        tick_source="given",
    )
    table = TargetTable.of([target])
    rows = np.zeros(2, RAW)
    times = ({"time_ns": SECOND}, {"time_ns": SECOND + round(seconds * SECOND)})
    for row, reading, time in zip(rows, (before, after), times, strict=True):
        for name, value in (IDLE | time | reading).items():
            row[name] = value
    collected = intervals_frame(rows[:1], rows[1:], table)
    read = difference(readings_frame(rows, table))
    assert collected.height == read.height == 1
    mine = collected.row(0, named=True)
    other = read.row(0, named=True)
    for name in ("data_bytes", "packets", "xmit_wait_ticks", "flags", "interval_ns"):
        assert mine[name] == other[name], name
    for name in ("stall_fraction", "utilization"):
        assert mine[name] == pytest.approx(other[name]), name
    return mine


@pytest.mark.parametrize(
    ("before", "after", "words", "flags"),
    [
        # 32 bits of data through the top, 400 words: within a second of 54.5 Gb/s
        (TOP - 199, 200, 400, Flag.WRAP),
        # to 0 itself: that is where somebody sets it, and a wrap hardly ever ends
        (TOP - 199, 0, 0, DATA_RESET),
        # the middle of the range: somebody set it back, whatever the time allows
        (TOP // 2, 200, 200, DATA_RESET),
        # nor from below the last quarter: 0.6 of the range
        (2_576_980_377, 200, 200, DATA_RESET),
        # from the top, but not into the first quarter
        (TOP - 10, TOP // 2, TOP // 2, DATA_RESET),
        # stood at the top: it stops there, so it did not come round
        (TOP, 200, 200, DATA_RESET),
        (TOP, TOP, None, Flag.DATA_LATCHED | Flag.DATA_AT_LEAST),
        (TOP - 7, TOP, 7, Flag.DATA_LATCHED | Flag.DATA_AT_LEAST),
        (5, 6, 1, Flag(0)),
    ],
)
def test_data_of_32_bits(before: int, after: int, words: int | None, flags: Flag) -> None:
    row = both({"words": before}, {"words": after})
    assert row["data_bytes"] == (None if words is None else 4 * words)
    assert Flag(int(str(row["flags"]))) == flags


def test_a_wrap_beyond_the_speed_is_a_reset() -> None:
    # 0.3 of 2^32 words are 5.2 GB: more than 54.5 Gb/s bring in half a second.
    start, end = int(0.80 * TOP), int(0.10 * TOP)
    assert both({"words": start}, {"words": end}, seconds=0.5)["flags"] == int(DATA_RESET)
    row = both({"words": start}, {"words": end}, seconds=2.0)
    assert row["flags"] == int(Flag.WRAP)
    assert row["data_bytes"] == 4 * (TOP - start + end + 1)


def test_the_shortest_packet_bounds_a_packet_wrap() -> None:
    """1 Gb/s for 60 us with its slack are 11 250 octets: 468 packets of 24, but not 470."""
    row = both({"packets": TOP - 199}, {"packets": 268}, gbps=1.0, seconds=60e-6)
    assert (row["packets"], row["flags"]) == (468, int(Flag.WRAP))
    row = both({"packets": TOP - 199}, {"packets": 270}, gbps=1.0, seconds=60e-6)
    assert (row["packets"], row["flags"]) == (270, int(DATA_RESET))


def test_a_counter_too_large_did_not_restart() -> None:
    """After the clock was set back an older reading comes second; its whole past is no interval."""
    second = both({"words": 2_000_000_000, "wait": 3 * 10**9}, {"words": 10**9, "wait": 10**9})
    assert second["data_bytes"] == 4 * 10**9 and second["xmit_wait_ticks"] is None
    assert Flag(second["flags"]) == RESET | DATA_RESET  # type: ignore[arg-type]
    assert second["stall_fraction"] is None
    readings = pl.DataFrame(
        {
            "time_ns": [0, SECOND, 2 * SECOND],
            "node_name": "r",
            "port": 0,
            "lanes": 8,
            "stall_ns": [9 * 10**12, 8 * 10**12, 10**9],
            "internal_stall_ns": [10**12, 10**11, 10**10],
        }
    )
    intervals = difference(conform(READINGS, readings))
    assert intervals["stall_fraction"].to_list() == [None, 0.125]
    assert intervals["internal_stall_fraction"].to_list() == [None, 1.25]


def test_without_a_speed_the_quarters_decide() -> None:
    start, end = int(0.80 * TOP), int(0.10 * TOP)
    assert both({"words": start}, {"words": end}, gbps=0.0, seconds=0.5)["flags"] == int(Flag.WRAP)


def test_a_reset_counter_denies_anothers_wrap_only() -> None:
    row = both(
        {"words": TOP - 9, "packets": 10**6, "wait": 10**9},
        {"words": 3, "packets": 4, "wait": 10**9 + 400},
    )
    assert (row["data_bytes"], row["packets"], row["xmit_wait_ticks"]) == (12, 4, 400)
    assert row["flags"] == int(DATA_RESET), "the stall is exact: its counter did not fall"


def test_a_reset_wait_leaves_the_data_exact() -> None:
    start = IDLE["words"]
    row = both({"words": start, "wait": 10**6}, {"words": start + 200, "wait": 7})
    assert (row["data_bytes"], row["xmit_wait_ticks"], row["flags"]) == (800, 7, int(RESET))


def test_counters_that_may_have_been_reset_are_bounds() -> None:
    row = both({"words": 100, "wait": 10**6}, {"words": 300, "wait": 7})
    assert (row["data_bytes"], row["flags"]) == (800, int(RESET | Flag.DATA_AT_LEAST))


value = st.one_of(st.integers(0, TOP), st.integers(TOP - 9, TOP), st.integers(0, 9))


@pytest.mark.slow
@settings(max_examples=30)
@given(
    before=st.tuples(value, value, value),
    after=st.tuples(value, value, value),
    gbps=st.sampled_from([0.0, 8.0, 400.0]),
    seconds=st.sampled_from([0.001, 1.0, 600.0]),
)
def test_both_ways_agree_on_everything(
    before: tuple[int, int, int], after: tuple[int, int, int], gbps: float, seconds: float
) -> None:
    names = ("words", "packets", "wait")
    row = both(
        dict(zip(names, before, strict=True)),
        dict(zip(names, after, strict=True)),
        gbps=gbps,
        seconds=seconds,
    )
    # A number without a flag is the plain difference; nothing is ever negative or wider.
    if Flag(int(str(row["flags"]))) == Flag(0):
        assert row["xmit_wait_ticks"] == after[2] - before[2]
    for name in ("data_bytes", "packets", "xmit_wait_ticks"):
        assert row[name] is None or 0 <= int(str(row[name])) <= 4 * 2**32


def test_a_counter_of_64_bits_never_comes_round() -> None:
    rows = pl.DataFrame(
        {
            "time_ns": [0, SECOND],
            "port": [1, 1],
            "node_name": ["a", "a"],
            "packets": pl.Series([2**64 - 3, 5], dtype=pl.UInt64),
            "packets_limit": pl.Series([2**64 - 1] * 2, dtype=pl.UInt64),
        }
    )
    out = difference(rows).row(0, named=True)
    assert (out["packets"], out["flags"]) == (5, int(DATA_RESET))
