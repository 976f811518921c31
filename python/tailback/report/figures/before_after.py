"""The remedy against things as they are, and everything else that was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailback.diagnosis.model import Candidate, Remedy, Status
from tailback.names.display import shorten, shorten_names
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figures.waterfall import time_unit
from tailback.report.scales import FAINT, INK, MUTED
from tailback.units import format_time, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BEST, _OTHER, _NOW = "#1f7a4d", "#b4bcc6", INK


@figure("before_after")
def before_after(case: FigureCase, options: Options) -> Figure | None:
    """Time of the job as it is and with every candidate that was re-simulated."""
    remedy = case.diagnosis.remedy if case.diagnosis else None
    if remedy is None or not remedy.candidates:
        return None
    tried = [candidate for candidate in remedy.candidates if candidate.proved]
    failed = [
        c for c in remedy.candidates if c.status not in (Status.PROVED, Status.NOT_APPLICABLE)
    ]
    rows = 1 + len(tried) + len(failed)
    drawn = canvas(7.6, 0.7 + 0.3 * rows)
    axes = drawn.add_subplot()
    longest = max([remedy.before_ps, *(c.high_ps or c.elapsed_ps for c in tried)], default=1)
    unit, scale = time_unit(longest)
    axes.barh(0, remedy.before_ps / scale, height=0.62, color=_NOW, linewidth=0)
    _note(axes, 0, remedy.before_ps / scale, longest / scale, format_time(remedy.before_ps), True)
    for row, candidate in enumerate(tried, start=1):
        _candidate(axes, row, candidate, remedy, scale, longest)
    for row, candidate in enumerate(failed, start=1 + len(tried)):
        reason = shorten(candidate.remark, 70)
        axes.text(0.006 * longest / scale, row, reason, va="center", fontsize=8, color=MUTED)
    axes.axvline(remedy.before_ps / scale, color=MUTED, linewidth=0.8, zorder=0)
    names = ["as it is", *shorten_names((c.name for c in [*tried, *failed]), 34)]
    axes.set_yticks(range(rows), names)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlim(0, 1.22 * longest / scale)
    axes.set_xlabel(f"time of the job, {unit} (re-simulated; whiskers: range over seeds)")
    axes.grid(axis="x", color=FAINT)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return drawn


def _candidate(
    axes: Axes, row: int, candidate: Candidate, remedy: Remedy, scale: float, longest: float
) -> None:
    best = candidate.name == remedy.name
    time = candidate.elapsed_ps / scale
    low = (candidate.low_ps or candidate.elapsed_ps) / scale
    high = (candidate.high_ps or candidate.elapsed_ps) / scale
    axes.barh(row, time, height=0.62, color=_BEST if best else _OTHER, linewidth=0)
    axes.errorbar(
        time,
        row,
        xerr=[[max(time - low, 0)], [max(high - time, 0)]],
        color=INK,
        linewidth=1.0,
        capsize=3,
        capthick=1.0,
    )
    change = candidate.elapsed_ps / remedy.before_ps - 1 if remedy.before_ps else 0.0
    sign = "−" if change < 0 else "+" if change > 0 else "±"
    text = f"{format_time(candidate.elapsed_ps)}  ({sign}{percent(abs(change))})"
    _note(axes, row, max(time, high), longest / scale, text, best)


def _note(axes: Axes, row: int, x: float, span: float, text: str, strong: bool) -> None:
    axes.text(
        x + 0.012 * span,
        row,
        text,
        va="center",
        fontsize=8.5,
        zorder=5,
        fontweight="bold" if strong else "normal",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )
