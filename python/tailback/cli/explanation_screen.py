"""The part of the screen with the cost of each cause and the unexplained time."""

from __future__ import annotations

from tailback.cli.text import align_columns, command_lines, truncate, wrap
from tailback.diagnosis.cause_wording import NAMES
from tailback.diagnosis.explanation import Cost, Explanation, NextMeasurement
from tailback.evidence.other_traffic import UNKNOWN
from tailback.units import counted, format_time, percent

_SMALL = 0.005
"""Minimum fraction of the measured time of a cause on the screen; others are in
``diagnosis.json``."""

_SAID = 3
"""Causes for which the screen shows the evidence."""


_PORT_EVENTS = 4
"""Findings on adapters on the screen; the report has all of them."""


_SUSPECTS = 6
"""Suspect links on the screen, those that are not ruled out first; the report has all of them."""


def explanation_lines(explanation: Explanation | None) -> list[str]:
    """Cost and evidence of each cause, the unexplained time, and what would resolve it."""
    if explanation is None:
        return []
    shown = [cost for cost in explanation.costs if cost.share >= _SMALL]
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
    lines = ["", "COST OF EACH CAUSE, of the measured time"]
    lines += align_columns(("cause", "time", "share", "range", "rests on"), rows, " rr")
    for cost in shown[:_SAID]:
        details = [part for part in (cost.subject, cost.evidence) if part]
        if details:
            lines += wrap(
                f"{NAMES.get(cost.cause, cost.cause)}: {truncate('; '.join(details), 600)}"
            )
    for link in explanation.shared_links[:_SAID]:
        jobs = ", ".join(f"{_job_name(job)} {percent(part)}" for job, part in link.jobs.items())
        lines += wrap(
            f"shared link {link.link}: {jobs}, your job {percent(link.ours)} of its "
            f"bytes (± {_points(200 * link.error)})"
        )
    for suspect in explanation.suspect_links[:_SUSPECTS]:
        lines += wrap(f"suspect link {suspect.statement}")
    if len(explanation.suspect_links) > _SUSPECTS:
        more = len(explanation.suspect_links) - _SUSPECTS
        lines += [f"  {counted(more, 'more suspect link')} in the report"]
    for finding in explanation.port_events[:_PORT_EVENTS]:
        lines += wrap(f"ports counted: {finding.statement}")
    if len(explanation.port_events) > _PORT_EVENTS:
        more = len(explanation.port_events) - _PORT_EVENTS
        lines += [f"  ports counted: {counted(more, 'more finding')} in the report"]
    if explanation.smallest_fault is not None:
        lines += wrap(explanation.smallest_fault.statement)
    lines += wrap(f"evidence: {'; '.join(explanation.sources)}")
    if explanation.next_measurement is not None:
        return lines + _measurement_lines(explanation.next_measurement)
    for text in explanation.missing[:2]:
        lines += wrap(f"still missing: {text}")
    return lines


def _measurement_lines(measurement: NextMeasurement) -> list[str]:
    """The measurement that would tell most, with its command."""
    bits = f"{measurement.bits:.2g} bits expected"
    return [
        "",
        f"NEXT MEASUREMENT, {bits}",
        *wrap(measurement.text),
        *command_lines(measurement.command_line),
    ]


def _points(value: float) -> str:
    """Percentage points."""
    shown = f"{value:.0f}"
    return f"{shown} point{'s' * (shown != '1')}"


def _range(cost: Cost) -> str:
    return f"{format_time(cost.low_ps)}–{format_time(cost.high_ps)}"


def _job_name(job: str) -> str:
    return "unknown senders" if job == UNKNOWN else f"job {job}"
