"""What two readings of a counter say, and what they do not."""

from __future__ import annotations

import struct

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailback.collector import mad as mads
from tailback.collector.difference import difference, intervals_frame, pairs
from tailback.collector.exchange import MadExchange, Reply, Request
from tailback.collector.readings import RAW, PortReader, TargetTable, readings_frame
from tailback.port_counters.schema import INTERVALS, READINGS, Flag
from tailback.port_counters.targets import PortTarget
from tests.factories.collect_subnet import Clock, row_of_switches

SECOND = 1_000_000_000
TOP = 2**32 - 1
TICK = 22.0


def target(**facts: object) -> PortTarget:
    base: dict[str, object] = {
        "guid": 2**63 + 5,
        "node_name": "sw",
        "switch": True,
        "port": 3,
        "lid": 7,
        "gbps": 54.5,
        "tick_ns": TICK,
        "tick_source": "published",
        "extended": True,
    }
    return PortTarget(**(base | facts))


def rows(*readings: dict[str, int]) -> np.ndarray:
    made = np.zeros(len(readings), RAW)
    for row, reading in zip(made, readings, strict=True):
        for name, value in reading.items():
            row[name] = value
    return made


def step(before: dict[str, int], after: dict[str, int], **facts: object) -> pl.DataFrame:
    table = TargetTable.of([target(**facts)])
    first, last = {"time_ns": SECOND} | before, {"time_ns": 2 * SECOND} | after
    return intervals_frame(rows(first), rows(last), table)


def test_a_plain_interval() -> None:
    row = step(
        {"wait": 10, "words": 100, "packets": 5}, {"wait": 11_000_010, "words": 350, "packets": 9}
    ).row(0, named=True)
    assert row["interval_ns"] == SECOND and row["node_guid"] == 2**63 + 5 and row["port"] == 3
    assert (row["xmit_wait_ticks"], row["data_bytes"], row["packets"]) == (11_000_000, 1000, 4)
    assert row["stall_ns"] == 11_000_000 * TICK
    assert row["stall_fraction"] == pytest.approx(0.242)
    assert row["utilization"] == pytest.approx(8000 / 54.5e9)
    assert row["flags"] == 0


@pytest.mark.parametrize(
    ("before", "after", "ticks", "flags"),
    [
        # Reaches the top: at least so much.
        (TOP - 1000, TOP, 1000, Flag.LATCHED | Flag.AT_LEAST),
        # Stands at the top: nothing is known.
        (TOP, TOP, None, Flag.LATCHED | Flag.AT_LEAST),
        # Was at the top and is low: it does not count on from there, somebody set it back.
        (TOP, 40, 40, Flag.RESET | Flag.AT_LEAST),
        # Close to the top and low a second later, within what a second allows: it wrapped.
        (TOP - 1000, 40, 1041, Flag.WRAP),
        # Far from the top: somebody set it back.
        (1_000_000_000, 40, 40, Flag.RESET | Flag.AT_LEAST),
        (77, 77, 0, Flag(0)),
    ],
)
def test_a_counter_of_32_bits(before: int, after: int, ticks: int | None, flags: Flag) -> None:
    # Words and packets are more than an interval allows: they were not reset.
    sent = {"words": 10**10, "packets": 10**10}
    row = step({"wait": before} | sent, {"wait": after} | sent).row(0, named=True)
    assert row["xmit_wait_ticks"] == ticks and Flag(row["flags"]) == flags
    assert (row["stall_fraction"] is None) == (ticks is None)


def test_a_64_bit_counter_passes_32_bits_unflagged() -> None:
    row = step({"wait": TOP}, {"wait": TOP + 500}, extended_wait=True).row(0, named=True)
    assert row["xmit_wait_ticks"] == 500 and row["flags"] == 0


def test_a_reset_beside_it_denies_a_wrap() -> None:
    # PortXmitWait alone would pass for a wrap.
    row = step({"wait": TOP - 10, "words": 10**12}, {"wait": 5, "words": 8}).row(0, named=True)
    assert Flag(row["flags"]) == Flag.RESET | Flag.AT_LEAST | Flag.DATA_AT_LEAST
    assert (row["xmit_wait_ticks"], row["data_bytes"]) == (5, 32)


def test_latched_32_bit_data_are_unknown_not_zero() -> None:
    row = step({"words": TOP, "packets": 3}, {"words": TOP, "packets": 9}, extended=False)
    assert row["data_bytes"].to_list() == [None] and row["utilization"].to_list() == [None]
    assert row["packets"].to_list() == [6]


def test_a_port_without_the_counter_has_null() -> None:
    flag = int(Flag.NO_COUNTER)
    row = step({"flags": flag}, {"flags": flag}).row(0, named=True)
    assert row["stall_fraction"] is None and row["xmit_wait_ticks"] is None
    made = readings_frame(rows({"flags": flag, "time_ns": 1}), TargetTable.of([target()]))
    assert made["xmit_wait_ticks"].to_list() == [None]


def test_readings_have_the_common_shape() -> None:
    table = TargetTable.of([target(), target(extended=False, gbps=0.0)])
    made = readings_frame(
        rows({"wait": TOP, "words": 2**62 + 1}, {"target": 1, "words": TOP}), table
    )
    assert made.schema == READINGS.polars_schema
    assert made["data_bytes"].to_list() == [2**64 - 1, TOP * 4]
    assert made["data_limit"].to_list() == [2**64 - 1, TOP * 4]
    assert made["wait_limit"].to_list() == [TOP, TOP]
    assert made["capacity_gbps"].to_list() == [54.5, None]
    assert made["flags"].to_list() == [
        int(Flag.LATCHED | Flag.AT_LEAST),
        int(Flag.DATA_LATCHED | Flag.DATA_AT_LEAST),
    ]


def test_pairs_do_not_cross_ports() -> None:
    series = rows(
        {"time_ns": 1, "target": 0},
        {"time_ns": 2, "target": 1},
        {"time_ns": 3, "target": 0},
    )
    before, after = pairs(series)
    assert list(zip(before["time_ns"], after["time_ns"], strict=True)) == [(1, 3)]


def test_a_clock_that_went_back_makes_no_interval() -> None:
    table = TargetTable.of([target()])
    made = intervals_frame(rows({"time_ns": 9}), rows({"time_ns": 9}), table)
    assert made.height == 0 and made.schema == INTERVALS.polars_schema


counter = st.one_of(st.integers(0, TOP), st.integers(TOP - 5, TOP), st.integers(0, 5), st.just(TOP))


@pytest.mark.slow
@settings(max_examples=200)
@given(before=counter, growth=st.integers(0, 10**8), resets=st.booleans())
def test_no_number_is_larger_than_the_truth(before: int, growth: int, resets: bool) -> None:
    """Whatever a latching counter goes through, a number without a flag is exact, and one with
    AT_LEAST is not above the truth."""
    start = 0 if resets else before
    after = min(start + growth, TOP)
    table = TargetTable.of([target()])
    made = difference(
        rows({"time_ns": 1, "wait": before}), rows({"time_ns": 5 * SECOND, "wait": after}), table
    )
    flags = Flag(int(made.flags[0]))
    ticks = int(made.ticks[0])
    if flags & Flag.AT_LEAST:
        assert ticks <= growth
    elif not resets:
        assert ticks == growth


def test_a_reading_of_two_halves_needs_both() -> None:
    subnet = row_of_switches(1, 1, clock=Clock())
    port = subnet.devices[0x1000].ports[1]
    port.words, port.packets, port.wait = 2**40, 2**33, 99
    exchange = MadExchange(subnet, clock=subnet.clock)
    near = target(guid=0x1000, port=1, lid=1)
    reader = PortReader([near], exchange, offset_ns=1000)
    reader.ask(0)
    readings = [
        outcome for reply in exchange.results() if (outcome := reader.take(reply)) is not None
    ]
    made = np.array(readings, RAW)[0]
    assert (made["words"], made["packets"], made["wait"]) == (2**40, 2**33, 99)
    assert made["flags"] == int(Flag.GAP), "the first of a session follows nothing"
    assert 0 < made["turnaround_ns"] < 10**6
    subnet.devices[0x1000].dead = True
    reader.ask(0)
    readings = [
        outcome for reply in exchange.results() if (outcome := reader.take(reply)) is not None
    ]
    assert readings == ["timeout"], "one failure, not one for each half"
    subnet.devices[0x1000].dead = False
    exchange.reset_unresponsive()
    for expected in (int(Flag.GAP), 0):
        reader.ask(0)
        outcomes = [o for r in exchange.results() if (o := reader.take(r)) is not None]
        assert outcomes[0][3] == expected  # type: ignore[index]


@pytest.mark.parametrize("narrow_first", [False, True])
def test_the_narrow_half_gives_wait_and_instant(narrow_first: bool) -> None:
    """An agent without a 64-bit PortXmitWait answers whatever it likes in its place."""
    wide, narrow = bytearray(mads.MAD_BYTES), bytearray(mads.MAD_BYTES)
    struct.pack_into(">QQQQ", wide, mads.DATA + 8, 2**40, 0, 2**33, 0)
    struct.pack_into(">Q", wide, mads.DATA + 168, 12345)
    struct.pack_into(">IIIII", narrow, mads.DATA + 24, 5, 0, 6, 0, 99)
    reader = PortReader([target()], MadExchange(row_of_switches(1, 1)), offset_ns=10**6)

    def reply(mad: bytearray, sent_ns: int, received_ns: int) -> Reply:
        asked = Request(7, 4, 7, mad, (0, mad is wide), sent_ns=sent_ns)
        return Reply(asked, bytes(mad), "", received_ns)

    halves = [reply(wide, 1000, 3000), reply(narrow, 2000, 7000)]
    first, second = reversed(halves) if narrow_first else halves
    assert reader.take(first) is None
    made = np.array([reader.take(second)], RAW)[0]
    assert (made["words"], made["packets"], made["wait"]) == (2**40, 2**33, 99)
    # Half-way between 2000 and 7000, and the offset.
    assert (made["time_ns"], made["turnaround_ns"]) == (1_004_500, 5000)


def test_64_ones_are_no_top_and_32_are() -> None:
    table = TargetTable.of([target(extended_wait=True), target()])
    made = readings_frame(rows({"wait": 2**64 - 1}, {"target": 1, "wait": TOP}), table)
    assert made["flags"].to_list() == [0, int(Flag.LATCHED | Flag.AT_LEAST)]


def test_a_64_bit_wait_takes_one_request() -> None:
    subnet = row_of_switches(1, 1, clock=Clock())
    subnet.devices[0x1000].ports[1].wait = 2**40
    exchange = MadExchange(subnet, clock=subnet.clock)
    near = target(guid=0x1000, port=1, lid=1, extended_wait=True)
    reader = PortReader([near], exchange, offset_ns=0)
    reader.ask(0)
    outcomes = [reader.take(reply) for reply in exchange.results()]
    assert len(outcomes) == 1 and outcomes[0][4] == 2**40  # type: ignore[index]
