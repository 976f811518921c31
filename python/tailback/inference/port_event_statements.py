"""What ports counted of errors, pauses, marks and losses, as statements of a diagnosis."""

from __future__ import annotations

import polars as pl

from tailback.diagnosis.explanation import PortCount, PortEvents
from tailback.port_counters.findings.port_event_wording import ports_counted


def port_event_statements(findings: pl.DataFrame | None) -> tuple[PortEvents, ...]:
    """A statement for each kind of finding, in their order.

    Args:
        findings: Rows of ``port_events``; None without counters.
    """
    if findings is None:
        return ()
    return tuple(
        PortEvents(
            finding=str(kind),
            statement=ports_counted(rows, during_run=True),
            ports=[
                PortCount(
                    device=row["node_name"],
                    port=row["port"],
                    interface=row["interface"],
                    counters=tuple(row["counters"]),
                    count=row["count"],
                    full=tuple(row["full"]),
                    per_second=row["per_second"],
                    paused_share=row["paused_share"],
                )
                for row in rows.iter_rows(named=True)
            ],
        )
        for (kind,), rows in findings.group_by("finding", maintain_order=True)
    )
