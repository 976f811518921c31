"""The part of the screen of counters on jobs: what each lost to stalls, and who held it up."""

from __future__ import annotations

from typing import Final

from tailback.cli.ill_links_screen import format_gbps
from tailback.cli.text import align_columns, heading, more_line, wrap
from tailback.evidence.culprits import JobHarm
from tailback.evidence.repeated_runs import run_cells
from tailback.units import percent

_JOBS: Final = 6


def job_lines(harm: JobHarm | None) -> list[str]:
    """The jobs that lost most; none without a job list."""
    if harm is None:
        return []
    if harm.jobs.is_empty():
        return [heading("JOBS"), *wrap("no job of the list ran on hosts that were read meanwhile")]
    rows = []
    reasons = []
    for row in harm.jobs.head(_JOBS).iter_rows(named=True):
        share = row["share"]
        rows.append(
            (
                row["job"],
                f"{row['hosts']:,}",
                percent(row["stall_fraction"]),
                percent(row["maximum"]),
                f"{row['stalled_node_hours']:,.3g}",
                format_gbps(row["lost_gbps"]),
                row["culprit"] or "?",
                "" if share is None else percent(min(share, 1.0)),
                "" if row["p"] is None else f"{row['p']:.2g}",
            )
        )
        if row["stall_fraction"] > 0:
            reasons.append(f"{row['job']}: {row['why']}")
    lines = [heading("JOBS")]
    lines += align_columns(
        ("job", "hosts", "stalled", "most", "node-h", "Gb/s lost", "held up by", "share", "p"),
        rows,
        " rrrrr rr",
        names=(0, 6),
    )
    lines += more_line(harm.jobs.height - len(rows))
    for reason in reasons[:3]:
        lines += wrap(reason)
    return [*lines, *_run_lines(harm)]


def _run_lines(harm: JobHarm) -> list[str]:
    """The jobs that ran several times."""
    if harm.runs.is_empty():
        return []
    rows = [run_cells(row) for row in harm.runs.head(_JOBS).iter_rows(named=True)]
    header = ("runs of", "runs", "hosts", "slowest", "stalled", "corr.", "p", "node-h lost")
    table = align_columns(header, rows, " rrrrrrr", names=(0,))
    return ["", heading("DO RUNS TAKE LONGER WHEN THEY STALL?"), *table]
