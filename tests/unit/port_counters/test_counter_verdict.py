"""What counters alone say of ports and of classes of ports."""

from __future__ import annotations

import polars as pl
import pytest

from tailback.port_counters.analysis import rounds, verdict
from tailback.port_counters.schema import INTERVALS, Flag, conform

MINUTE = 60 * 10**9


def hour(name: str, stall: list[float | None], used: list[float | None]) -> pl.DataFrame:
    """Minutes of a port."""
    return conform(
        INTERVALS,
        pl.DataFrame(
            {"node_name": name, "port": 1, "direction": "up", "stall_fraction": stall,
             "utilization": used, "interval_ns": MINUTE, "capacity_gbps": 100.0,
             "time_ns": [MINUTE * (1 + n) for n in range(len(stall))]}
        ),
    )  # fmt: skip


def classed(ports: pl.DataFrame) -> pl.DataFrame:
    return ports.with_columns(category=pl.lit("ToR"), port_type=pl.lit("up"))


def test_a_port_counts_by_the_time_in_which_its_stall_is_known() -> None:
    latched: list[float | None] = [1.0, *[None] * 59]
    rows = pl.concat(
        [hour("a", latched, [0.5] * 60), hour("b", [0.0] * 60, [0.1, *[None] * 59]),
         hour("c", [None] * 60, [None] * 60)]
    )  # fmt: skip
    ports = verdict.by_port(rows.lazy())
    by_name = {row["node_name"]: row for row in ports.iter_rows(named=True)}
    assert [by_name[n]["stall_known_intervals"] for n in "abc"] == [1, 60, 0]
    stall_s = [by_name[n]["stall_known_seconds"] for n in "abc"]
    use_s = [by_name[n]["use_known_seconds"] for n in "abc"]
    assert (stall_s, use_s) == (pytest.approx([60, 3600, 0]), pytest.approx([3600, 60, 0]))
    group = verdict.by_group(classed(ports)).row(0, named=True)
    assert group["intervals"] == 180
    assert group["stall_fraction"] == pytest.approx(1 / 61)
    assert group["stalled_percent"] == pytest.approx(100 / 61)
    assert group["utilization"] == pytest.approx((60 * 0.5 + 0.1) / 61)
    nothing = verdict.by_group(classed(ports.filter(pl.col("node_name") == "c")))
    for column in ("stall_fraction", "stalled_percent", "utilization"):
        assert nothing[column].to_list() == [None]


def test_rounds_count_by_the_intervals_that_were_not_left_out() -> None:
    low = int(Flag.RESET | Flag.AT_LEAST)
    parts = [
        pl.DataFrame(
            {"round": number, "node_guid": number, "node_name": f"s{number}", "port": 1,
             "time_ns": [0, 100, 200, 300, 400], "xmit_wait_ticks": [0, *waits],
             "flags": [0, *flags]}
        )
        for number, waits, flags in (
            (1, [10, 11, 12, 13], [0, low, low, low]), (2, [0, 0, 0, 0], [0] * 4),
        )
    ]  # fmt: skip
    summary = rounds.summarise(pl.concat(parts).lazy(), 10.0)
    ports = verdict.from_rounds(summary.with_columns(node_name=pl.col("node_guid").cast(pl.String)))
    assert ports["stall_known_intervals"].to_list() == [1, 4]
    group = verdict.by_group(classed(ports)).row(0, named=True)
    assert (group["intervals"], group["utilization"]) == (8, None)
    assert group["stall_fraction"] == pytest.approx(1 / 5)
    assert group["stalled_percent"] == pytest.approx(20.0)
