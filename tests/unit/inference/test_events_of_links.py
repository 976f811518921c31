"""Errors and pauses of a job's links, from readings that are not taken at the same instants."""

from __future__ import annotations

import polars as pl

from tailback.inference.evidence import _of_links
from tailback.port_counters.findings.port_events import READINGS, port_events
from tailback.port_counters.schema import INTERVALS, conform


def test_rises_begin_at_the_reading_before_the_job() -> None:
    """One port is read just before the job, the other long before: both rose within it."""
    rows = [
        (time, 1, "sw", port, None, "SymbolErrorCounter", value)
        for port, values in ((1, {0: 3, 90: 3, 150: 5}), (2, {10: 2, 20: 4, 130: 9, 300: 40}))
        for time, value in values.items()
    ]
    events = pl.DataFrame(rows, schema=READINGS, orient="row")
    ports = pl.DataFrame({"node_name": ["sw"] * 2, "port": [1, 2], "link": [1, 2]})
    mine = _of_links(events, conform(INTERVALS, ports), [1, 2], 100, 200)
    # The reading after the job is the first that shows all of it.
    assert dict(port_events(mine).select("port", "count").iter_rows()) == {1: 2, 2: 36}
