"""Errors and pauses of a job's links, from readings that are not taken at the same instants."""

from __future__ import annotations

import polars as pl

from tailback.inference.evidence import (
    _foreign_ports,
    _of_ports,
    _ports_of_links,
    host_events,
    link_events,
)
from tailback.port_counters.findings.port_events import READINGS, port_events, within
from tailback.port_counters.schema import INTERVALS, conform
from tests.factories.counted_links import egress, small_tree

ROWS = [
    (time, 1, "sw", port, None, "SymbolErrorCounter", value)
    for port, values in (
        (1, {0: 3, 90: 3, 150: 5}),
        (2, {10: 2, 20: 4, 130: 9, 300: 40}),
        (3, {0: 1, 50: 8, 90: 8, 300: 8}),
        (4, {0: 1, 300: 8}),
    )
    for time, value in values.items()
]
EVENTS = pl.DataFrame(ROWS, schema=READINGS, orient="row")
PORTS = _ports_of_links(
    conform(
        INTERVALS,
        pl.DataFrame({"node_name": ["sw"] * 4, "port": [1, 2, 3, 4], "link": [1, 2, 3, 9]}),
    ),
    [1, 2, 3],
)


def test_rises_begin_at_the_reading_before_the_job() -> None:
    """One port is read just before the job, the other long before: both rose within it."""
    mine = _of_ports(within(EVENTS, 100, 200), PORTS)
    # The reading after the job is the first that shows all of it.
    assert dict(port_events(mine).select("port", "count").iter_rows()) == {1: 2, 2: 36}


def test_rises_outside_the_job_have_no_count() -> None:
    during = port_events(_of_ports(within(EVENTS, 100, 200), PORTS))
    events = link_events(during, port_events(_of_ports(EVENTS, PORTS)), PORTS)
    counts = events.select("link", "count", "in_files").sort("link").rows()
    assert counts == [(1, 2, 2), (2, 36, 38), (3, None, 7)]
    assert events["counters"].to_list() == [["SymbolErrorCounter"]] * 3


def test_events_of_hosts_belong_to_their_only_port() -> None:
    fabric = small_tree()
    rows = [
        (time, 0, host, 0, "mlx5_0", "symbol_error", value)
        for host in (fabric.host_name[2], "elsewhere")
        for time, value in ((0, 1), (9, 5))
    ]
    counted = port_events(pl.DataFrame(rows, schema=READINGS, orient="row"))
    events = host_events(counted, fabric)
    assert events.select("link", "count", "in_files").rows() == [(egress(fabric, 2), 4, 4)]


def test_ports_that_the_fabric_lacks_are_said() -> None:
    """A cable that a description leaves out may be the one at fault."""
    intervals = pl.DataFrame(
        {
            "node_name": ["l3", "l3", "l3", "s0"],
            "port": [1, 1, 2, 3],
            "interface": ["s0", "s0", "s1", None],
            "link": [None, None, 5, None],
        }
    )
    (note,) = _foreign_ports(intervals)
    assert "2 of 3 ports" in note and "l3[s0]" in note
    assert _foreign_ports(intervals.filter(pl.col("link").is_not_null())) == []
