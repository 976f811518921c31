"""The measured run in the report: where its time went, and what explains it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailback.diagnosis.model import Diagnosis
from tailback.evidence.model import Measured
from tailback.evidence.other_traffic import UNKNOWN
from tailback.evidence.split import PART_NAMES
from tailback.report.figure_data import LinkLoad
from tailback.units import format_bytes, percent

LATECOMERS = 10
PHASES = 12


def measured_view(diagnosis: Diagnosis, expected: LinkLoad) -> dict[str, Any] | None:
    """Texts for the tables of the measured run; None if nothing was measured.

    Args:
        diagnosis: The diagnosis.
        expected: Estimates of every link in the expected run.

    Returns:
        ``parts``: name, time, share, bounds by the clocks; ``efficiencies``: name and value;
        ``phases``: name, time, share, its largest parts; ``latecomers``; ``bus``: bus bandwidth of
        collectives, each with its size in words; ``shared``: links shared with other jobs;
        ``sampled``: links by the samples in real packets, each with its congested fraction in the
        expected run, None if that is unknown.
    """
    measured = diagnosis.measured
    if measured is None:
        return None
    shared = diagnosis.explanation.shared_links if diagnosis.explanation else []
    sampled = diagnosis.explanation.sampled_links if diagnosis.explanation else []
    fraction = expected.fraction
    return {
        "bus": [
            (row, format_bytes(row.size_bytes))
            for row in (diagnosis.explanation.bus_bandwidths if diagnosis.explanation else [])
        ],
        "parts": [
            (PART_NAMES[part.name], part.ps, part.share, part.low_ps, part.high_ps)
            for part in measured.parts
        ],
        "efficiencies": _efficiencies(measured),
        "phases": [
            (
                phase.phase,
                phase.ps,
                phase.ps / max(measured.elapsed_ps, 1),
                _largest_parts(phase.parts),
            )
            for phase in measured.phases[:PHASES]
        ],
        "latecomers": measured.latecomers[:LATECOMERS],
        "shared": [
            (
                link.link,
                link.ours,
                ", ".join(f"{_job(job)} {percent(part)}" for job, part in link.jobs.items()),
                link.error,
            )
            for link in shared
        ],
        "sampled": [
            (link, None if np.isnan(fraction[link.number]) else float(fraction[link.number]))
            for link in sampled
            if link.number < len(fraction)
        ],
    }


def _job(job: str) -> str:
    return "unknown senders" if job == UNKNOWN else f"job {job}"


def _largest_parts(parts: dict[str, int]) -> str:
    """The two largest parts of a phase as text."""
    total_ps = max(sum(parts.values()), 1)
    largest = sorted(parts.items(), key=lambda part: -part[1])[:2]
    return ", ".join(f"{PART_NAMES[name]} {percent(ps / total_ps)}" for name, ps in largest)


def _efficiencies(measured: Measured) -> list[tuple[str, float]]:
    """Efficiencies as the POP project names them, those that are known."""
    efficiency = measured.efficiency
    named = {
        "Parallel efficiency": efficiency.parallel,
        "Load balance": efficiency.load_balance,
        "Serialisation": efficiency.serialisation,
        "Transfer": efficiency.transfer,
    }
    return [(name, value) for name, value in named.items() if value is not None]
