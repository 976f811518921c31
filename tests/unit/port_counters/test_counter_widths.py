"""How wide a counter is and what one count is worth, reader by reader, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.analysis.timestamp_checks import check
from tailback.port_counters.increments import possible
from tailback.port_counters.readers import read_counters
from tailback.port_counters.readers.engine_run import from_run
from tailback.port_counters.schema import INTERVALS, READINGS, CounterError, Flag, conform
from tailback.run.schema import TABLES
from tests.factories.counter_files import put, run_tables, sysfs

TOP = 2**32 - 1
MINUTE = 60 * 10**9
DATA_RESET = Flag.RESET | Flag.DATA_AT_LEAST


def perfquery(words: int) -> str:
    return f"# Port counters: Lid 7 port 3 (CapMask: 0x1300)\nPortXmitData:...{words}\n"


def ibqueryerrors(words: int) -> str:
    return f'Errors for "sw"\n   GUID 0x2c9 port 1: [PortXmitData == {words}]\n'


def ibqueryerrors_wide(words: int) -> str:
    return ibqueryerrors(words).replace("]\n", "] [PortUnicastXmitPkts == 5]\n")


@pytest.mark.parametrize(
    ("text", "data_bytes", "flags"),
    [
        # 100 words to the top and over it, 100 words from 0: 200 of 4 octets
        (perfquery, 800, Flag.WRAP),
        (ibqueryerrors, 800, Flag.WRAP),
        # counters of 64 bits come round in no lifetime: set back, 100 words since
        (ibqueryerrors_wide, 400, DATA_RESET),
    ],
)
def test_words_through_the_top(
    tmp_path: Path, text: Callable[[int], str], data_bytes: int, flags: Flag
) -> None:
    tables = [
        read_counters(put(tmp_path, f"{n}.txt", text(words)), time_ns=n * MINUTE).readings
        for n, words in enumerate((TOP - 99, 100))
    ]
    row = difference(pl.concat(tables)).row(0, named=True)
    assert (row["data_bytes"], row["flags"] & ~int(Flag.NO_COUNTER)) == (data_bytes, flags)


def test_counter_beyond_32_bits_was_not_full() -> None:
    """The values of the whole series tell the width, so all of its intervals have numbers."""
    values = [TOP - 8, TOP, TOP + 8]
    readings = pl.DataFrame(
        {
            "time_ns": [0, MINUTE, 2 * MINUTE],
            "node_name": "leaf",
            "port": 1,
            "xmit_wait_ticks": values,
            "packets": values,
            "data_bytes": [4 * v for v in values],
        }
    )
    rows = difference(conform(READINGS, readings), tick_ns=22.0)
    assert rows["xmit_wait_ticks"].to_list() == rows["packets"].to_list() == [8, 8]
    assert rows["data_bytes"].to_list() == [32, 32]
    assert rows["flags"].to_list() == [0, 0]


@pytest.mark.parametrize("stated", [None, TOP, 2**64 - 1])
def test_counters_at_32_ones_are_full_everywhere(stated: int | None) -> None:
    columns = {
        "xmit_wait_ticks": ("wait_limit", 1),
        "packets": ("packets_limit", 1),
        "data_bytes": ("data_limit", 4),
    }
    readings = {"time_ns": [0, MINUTE], "node_name": "leaf", "port": 1}
    for counter, (limit, unit) in columns.items():
        readings |= {counter: TOP * unit, limit: None if stated is None else stated}
    rows = difference(conform(READINGS, pl.DataFrame(readings)), tick_ns=22.0)
    assert rows.select(*columns).row(0) == (None, None, None)
    full = Flag.LATCHED | Flag.AT_LEAST | Flag.DATA_LATCHED | Flag.DATA_AT_LEAST
    assert rows["flags"].to_list() == [full]


def test_sysfs_reports_uncounted_packets(tmp_path: Path) -> None:
    folder = sysfs(tmp_path)
    (folder / "mlx5_0/ports/1/counters/port_xmit_packets").unlink()
    row = read_counters(folder).readings.row(0, named=True)
    assert (row["packets"], row["xmit_wait_ticks"], row["flags"]) == (None, 17, Flag.NO_COUNTER)


@pytest.mark.parametrize("source", ["sysfs", "sysclassib"])
def test_a_wait_beyond_32_bits_continues(tmp_path: Path, source: str) -> None:
    """A number above 32 ones says itself that the counter is wider: it stands at no top."""
    ticks = (2**33, 2**33 + 100)
    if source == "sysfs":
        tables = []
        for n, value in enumerate(ticks):
            folder = sysfs(tmp_path)
            put(tmp_path, "ib/mlx5_0/ports/1/counters/port_xmit_wait", f"{value}\n")
            tables.append(read_counters(folder, time_ns=n * MINUTE).readings.filter(port=1))
        readings = pl.concat(tables)
    else:
        head = "#Time,Time_usec,ProducerName,ib.port_xmit_wait#mlx5_0.1\n"
        rows = "".join(f"{60 * n},0,n1,{value}\n" for n, value in enumerate(ticks))
        readings = read_counters(put(tmp_path, "a.csv", head + rows)).readings
    assert readings["flags"].to_list() == [0, 0]
    row = difference(readings).row(0, named=True)
    assert (row["xmit_wait_ticks"], row["flags"]) == (100, 0)


def test_ambiguous_ldms_words_take_the_largest_octets(tmp_path: Path) -> None:
    text = f"#Time,Time_usec,ProducerName,ib.port_xmit_data#mlx5_0.1\n1,0,n1,{2**63}\n"
    readings = read_counters(put(tmp_path, "a.csv", text)).readings
    assert readings["data_bytes"].to_list() == [2**64 - 4]


def test_ldms_times_keep_their_microseconds(tmp_path: Path) -> None:
    text = "#Time,ProducerName,ib.port_xmit_wait#mlx5_0.1\n1456790400.123456,n1,1\n"
    readings = read_counters(put(tmp_path, "a.csv", text)).readings
    assert readings["time_ns"].to_list() == [1456790400_123456000]


def test_gemini_percentages_as_time(tmp_path: Path) -> None:
    """25 % of a minute are 15 s."""
    text = "#Time, X-_SAMPLE_GEMINI_LINK_CREDIT_STALL (% x1e6)\n60,25000000\n"
    row = read_counters(put(tmp_path, "a.csv", text)).intervals.row(0, named=True)
    assert (row["interval_ns"], row["stall_ns"]) == (MINUTE, 15e9)


@pytest.mark.parametrize(("axis", "tiles"), [("X", 8), ("Y", 4), ("Z", 8)])
def test_a_gemini_stall_is_shared_by_tiles(tmp_path: Path, axis: str, tiles: int) -> None:
    """The counters of all tiles are summed: 2.4 s of stall in a second are a part of each."""
    text = f"#Time,Time_usec,CompId,{axis}+_credit_stall (ns),{axis}+_inq_stall (ns)\n"
    text += "1,0,7,0,0\n2,0,7,2400000000,1200000000\n"
    interval = read_counters(put(tmp_path, "a.csv", text)).all_intervals().row(0, named=True)
    assert interval["stall_fraction"] == pytest.approx(2.4 / tiles)
    assert interval["internal_stall_fraction"] == pytest.approx(1.2 / tiles)


def test_simulated_counters_start_in_nanoseconds() -> None:
    run = run_tables()
    run.summary.update(end_ps=2_500_000, counters_ps=1_000_000)
    schema = TABLES["counters"].polars_schema
    row = dict.fromkeys(schema) | {
        "link": 0,
        "time_ps": 1_000_000,
        "data_bytes": 900,
        "packets": 2,
        "stall_ps": 400_000,
        "inq_ps": 300_000,
    }
    run.tables["counters"] = pl.DataFrame([row], schema=schema)
    readings = from_run(run).readings.filter(pl.col("link") == 0)  # type: ignore[arg-type]
    assert readings["time_ns"].to_list() == [0, 1000, 2000, 2500]
    assert readings["data_bytes"].to_list() == [0, 900, 900, 900]
    assert readings["stall_ns"].to_list() == [0, 400, 400, 400]
    assert readings["internal_stall_ns"].to_list() == [0, 300, 300, 300]


@pytest.mark.parametrize(("share", "refused"), [(1.4, False), (1.6, True)])
def test_a_stall_longer_than_time_is_refused(share: float, refused: bool) -> None:
    row = {"node_name": ["leaf"], "port": [1], "interval_ns": [MINUTE], "stall_fraction": [share]}
    intervals = possible(conform(INTERVALS, pl.DataFrame(row)).lazy()).collect()
    readings = pl.DataFrame(schema=READINGS.polars_schema)
    if refused:
        with pytest.raises(CounterError, match="more than is possible"):
            check(readings, intervals, "every")
    else:
        check(readings, intervals, "every")
