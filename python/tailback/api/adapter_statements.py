"""What adapters of hosts counted, as statements of a diagnosis."""

from __future__ import annotations

import polars as pl

from tailback.diagnosis.explanation import AdapterCount, AdapterFinding
from tailback.evidence.adapter_wording import adapters_counted


def adapter_statements(findings: pl.DataFrame | None) -> tuple[AdapterFinding, ...]:
    """A statement for each kind of finding, in their order.

    Args:
        findings: Rows of ``adapter_findings``; None without a recording.
    """
    if findings is None:
        return ()
    return tuple(
        AdapterFinding(
            finding=str(kind),
            statement=adapters_counted(rows),
            adapters=[
                AdapterCount(
                    host=row["node_name"], interface=row["interface"],
                    counters=tuple(row["counters"]), count=row["count"],
                    per_second=row["per_second"], paused_share=row["paused_share"],
                )
                for row in rows.iter_rows(named=True)
            ],
        )
        for (kind,), rows in findings.group_by("finding", maintain_order=True)
    )  # fmt: skip
