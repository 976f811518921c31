"""The part of the screen with the cost of each cause and the unexplained time."""

from __future__ import annotations

from collections.abc import Sequence

from tailback.cli.text import align_columns, command_lines, heading, wrap
from tailback.diagnosis.cause_wording import NAMES
from tailback.diagnosis.explanation import BusBandwidth, Cost, Explanation, NextMeasurement
from tailback.evidence.other_traffic import UNKNOWN
from tailback.units import counted, format_bytes, format_time, format_times, percent

_SMALL = 0.005
"""Minimum fraction of the measured time of a cause on the screen; others are in
``diagnosis.json``."""

_ROWS = 3
"""Causes on one screen; others are counted."""

_PORT_EVENTS = 2
"""Findings on ports on one screen."""


def explanation_lines(explanation: Explanation, *, verbose: bool = False) -> list[str]:
    """Cost and evidence of each cause, and the unexplained time.

    Args:
        explanation: What was found.
        verbose: Whether to show all causes and all evidence; otherwise one screen.
    """
    large = [cost for cost in explanation.costs if cost.share >= _SMALL]
    shown = large if verbose else large[:_ROWS]
    rows = [
        (
            NAMES.get(cost.cause, cost.cause),
            format_time(cost.ps),
            percent(cost.share),
            _range(cost),
            ", ".join(cost.rests_on),
        )
        for cost in shown
    ]
    unexplained_ps = explanation.not_explained_ps
    total_ps = max(explanation.elapsed_ps, 1)
    name = "not explained" if unexplained_ps >= 0 else "model exceeds measured"
    rows.append(
        (name, format_time(abs(unexplained_ps)), percent(abs(unexplained_ps) / total_ps), "", "")
    )
    lines = ["", heading("COST OF EACH CAUSE", "of the measured time")]
    lines += align_columns(("cause", "time", "share", "range", "rests on"), rows, " rr")
    lines += _bus_bandwidths(explanation.bus_bandwidths, verbose=verbose)
    if verbose:
        lines += _evidence(explanation, shown)
    elif len(large) > len(shown):
        lines += [f"  {counted(len(large) - len(shown), 'smaller cause')}"]
    suspects = [link for link in explanation.suspect_links if link.status != "named"]
    if suspects and not verbose:
        lines += [f"  {counted(len(suspects), 'suspect link')} beside the verdict"]
    if verbose:
        lines += port_event_lines(explanation, verbose=True)
    if explanation.smallest_fault is not None:
        lines += wrap(explanation.smallest_fault.statement)
    return lines


def port_event_lines(explanation: Explanation, *, verbose: bool = False) -> list[str]:
    """Errors, pauses and discards of the job's ports; without ``verbose`` the first few."""
    events = explanation.port_events if verbose else explanation.port_events[:_PORT_EVENTS]
    return [line for event in events for line in wrap(f"ports counted: {event.statement}")]


def _bus_bandwidths(rows: Sequence[BusBandwidth], *, verbose: bool) -> list[str]:
    """Bus bandwidth of collectives, from line rate to what the median rank measured."""
    shown = rows if verbose else rows[:_ROWS]
    if not shown:
        return []
    table = [
        (
            row.call.removeprefix("nccl"),
            format_bytes(row.size_bytes),
            f"{row.n_ranks}/{row.n_hosts}",
            "–" if row.line_gbytes is None else f"{row.line_gbytes:.3g}",
            *(
                f"{rate:.3g}"
                for rate in (
                    row.expected_gbytes,
                    row.explained_gbytes,
                    row.measured_gbytes,
                    row.with_waits_gbytes,
                )
            ),
        )
        for row in shown
    ]
    names = ("collective", "size", "ranks/hosts", "line", "healthy", "as found")
    return [
        "",
        heading("BUS BANDWIDTH", "GB/s, of the last rank to begin"),
        *align_columns((*names, "measured", "waiting"), table, " rrrrrrr"),
    ]


def _evidence(explanation: Explanation, shown: Sequence[Cost]) -> list[str]:
    """What the costs rest on, and suspect links and ports with what became of them."""
    lines = list[str]()
    for cost in shown:
        details = [part for part in (cost.subject, cost.evidence) if part]
        if details:
            lines += wrap(f"{NAMES.get(cost.cause, cost.cause)}: {'; '.join(details)}")
    for link in explanation.shared_links:
        jobs = ", ".join(f"{_job_name(job)} {percent(part)}" for job, part in link.jobs.items())
        lines += wrap(
            f"shared link {link.link}: {jobs}, your job {percent(link.ours)} of its "
            f"bytes (± {_points(200 * link.error)})"
        )
    for suspect in explanation.suspect_links:
        lines += wrap(f"suspect link {suspect.statement}")
    lines += wrap(f"evidence: {'; '.join(explanation.sources)}")
    if explanation.next_measurement is None:
        for text in explanation.missing:
            lines += wrap(f"still missing: {text}")
    return lines


def measurement_lines(measurement: NextMeasurement) -> list[str]:
    """The measurement that would tell most, with its command."""
    return [
        "",
        heading("NEXT MEASUREMENT", f"{measurement.bits:.2g} bits expected"),
        *wrap(measurement.text),
        *command_lines(measurement.command_line),
    ]


def _points(value: float) -> str:
    """Percentage points."""
    shown = f"{value:.0f}"
    return f"{shown} point{'s' * (shown != '1')}"


def _range(cost: Cost) -> str:
    return format_times(cost.low_ps, cost.high_ps)


def _job_name(job: str) -> str:
    return "unknown senders" if job == UNKNOWN else f"job {job}"
