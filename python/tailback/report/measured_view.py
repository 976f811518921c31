"""The measured run in the report: where its time went, and what explains it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailback.diagnosis.model import Diagnosis
from tailback.evidence.model import Measured
from tailback.evidence.other_traffic import UNKNOWN
from tailback.evidence.split import PART_NAMES
from tailback.report.figure_data import LinkLoad
from tailback.report.scales import CAUSE_COLOURS, INK, KIND_COLOURS, MUTED
from tailback.units import format_time, percent

SMALL = 0.005
"""Share of the measured time below which a part is combined with others."""

LATECOMERS = 10
PHASES = 12

_LEAST_VISIBLE = {"computation": "#8fb387", "not_running": "#c9ced6", "not_recorded": "#b9c0c8"}
"""Colours of bars whose colour in the rank timeline is too pale for a bar on white."""

_PART_COLOURS = {
    "pattern": CAUSE_COLOURS["pattern"],
    "placement": CAUSE_COLOURS["placement"],
    "routing": CAUSE_COLOURS["routing"],
    "slow links": CAUSE_COLOURS["slow-link"],
    "other traffic": CAUSE_COLOURS["other-traffic"],
    "injection": CAUSE_COLOURS["injection"],
    "in-host": CAUSE_COLOURS["in-host"],
}


def measured_bars(diagnosis: Diagnosis | None) -> dict[str, Any] | None:
    """Parts of the measured time, one after the other, for the viewer; None without any.

    Whiskers are the bounds that the uncertainty of the clocks leaves.
    """
    if diagnosis is None or diagnosis.measured is None:
        return None
    measured = diagnosis.measured
    rows, at, small = [], 0, 0
    for part in measured.parts:
        wide = part.high_ps - part.low_ps >= SMALL * measured.elapsed_ps
        if part.share < SMALL and not wide:
            small += part.ps
            continue
        colour = _LEAST_VISIBLE.get(part.name, KIND_COLOURS.get(part.name, MUTED))
        rows.append(
            _bar(
                PART_NAMES[part.name],
                at,
                at + part.ps,
                measured.elapsed_ps,
                colour,
                (at + part.low_ps, at + part.high_ps) if wide else None,
            )
        )
        at += part.ps
    if small:
        rows.append(_bar("smaller parts", at, at + small, measured.elapsed_ps, MUTED))
    rows.append(_total("measured", measured.elapsed_ps))
    return {
        "rows": rows,
        "unit": "ps",
        "axis": "measured time, mean over the ranks",
        "note": "",
        "line": None,
    }


def explained_bars(diagnosis: Diagnosis | None) -> dict[str, Any] | None:
    """What the model explains of the measured time, one cause after the other; None without."""
    if diagnosis is None or diagnosis.explanation is None:
        return None
    found = diagnosis.explanation
    rows, at, left = [], 0, []
    for name, ps in found.parts.items():
        if abs(ps) < SMALL * found.elapsed_ps and name != "not explained":
            left.append(f"{name} {format_time(ps)}")
        else:
            colour = "#d8b3ae" if name == "not explained" else _PART_COLOURS.get(name, "#7b8794")
            rows.append(_bar(name, at, at + ps, found.elapsed_ps, colour))
        at += ps
    rows.append(_total("measured", found.elapsed_ps))
    note = f"below {percent(SMALL, 1)}: {', '.join(left)}" if left else ""
    return {"rows": rows, "unit": "ps", "axis": "measured time", "note": note, "line": None}


def _bar(
    name: str,
    start: int,
    end: int,
    whole: int,
    colour: str,
    interval: tuple[int, int] | None = None,
) -> dict[str, Any]:
    low, high = interval or (None, None)
    share = percent((end - start) / max(whole, 1)).replace("-", "−")
    text = f"{format_time(end - start)} ({share})"
    return {
        "name": name,
        "from": start,
        "to": end,
        "low": low,
        "high": high,
        "text": text,
        "colour": colour,
        "strong": False,
    }


def _total(name: str, ps: int) -> dict[str, Any]:
    return {
        "name": name,
        "from": 0,
        "to": ps,
        "low": None,
        "high": None,
        "text": format_time(ps),
        "colour": INK,
        "strong": True,
    }


def measured_view(diagnosis: Diagnosis, expected: LinkLoad) -> dict[str, Any] | None:
    """Texts for the tables of the measured run; None if nothing was measured.

    Args:
        diagnosis: The diagnosis.
        expected: Estimates of every link in the expected run.

    Returns:
        ``parts``: name, time, share, bounds by the clocks; ``efficiencies``: name and value;
        ``phases``: name, time, share, its largest parts; ``latecomers``; ``shared``: links shared
        with other jobs; ``sampled``: links by the samples in real packets, each with its congested
        fraction in the expected run, None if that is unknown.
    """
    measured = diagnosis.measured
    if measured is None:
        return None
    shared = diagnosis.explanation.shared_links if diagnosis.explanation else []
    sampled = diagnosis.explanation.sampled_links if diagnosis.explanation else []
    fraction = expected.fraction
    return {
        "parts": [
            (PART_NAMES[part.name], part.ps, part.share, part.low_ps, part.high_ps)
            for part in measured.parts
        ],
        "efficiencies": _efficiencies(measured),
        "phases": [
            (phase.phase, phase.ps, phase.ps / max(measured.elapsed_ps, 1), _mostly(phase.parts))
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


def _mostly(parts: dict[str, int]) -> str:
    """The two largest parts of a phase as text."""
    whole = max(sum(parts.values()), 1)
    largest = sorted(parts.items(), key=lambda part: -part[1])[:2]
    return ", ".join(f"{PART_NAMES[name]} {percent(ps / whole)}" for name, ps in largest)


def _efficiencies(measured: Measured) -> list[tuple[str, float]]:
    """Efficiencies as the POP project names them, those that are known."""
    found = measured.efficiency
    named = {
        "Parallel efficiency": found.parallel,
        "Load balance": found.load_balance,
        "Serialisation": found.serialisation,
        "Transfer": found.transfer,
    }
    return [(name, value) for name, value in named.items() if value is not None]
