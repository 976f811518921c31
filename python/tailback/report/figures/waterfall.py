"""Where the time goes: each bar is a re-simulation with one more thing made real."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailback.diagnosis.model import Times, WaterfallBar
from tailback.diagnosis.waterfall import displayed_bars
from tailback.diagnosis.wording import bar_name
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.scales import CAUSE_COLOURS, FAINT, INK, MUTED
from tailback.units import format_time, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOTAL_BARS = ("ideal", "observed")
MIN_SHARE = 0.0005
"""Share of the observed time from which a step is drawn."""

STEP_COLOURS = {
    "ideal": "#7b8794",
    "paths": "#aab2bb",
    "in-host": CAUSE_COLOURS["in-host"],
    "injection": CAUSE_COLOURS["injection"],
    "pattern": CAUSE_COLOURS["pattern"],
    "placement": CAUSE_COLOURS["placement"],
    "routing": CAUSE_COLOURS["routing"],
    "slow links": CAUSE_COLOURS["slow-link"],
    "other traffic": CAUSE_COLOURS["other-traffic"],
    "observed": INK,
}


@figure("waterfall")
def waterfall(case: FigureCase, options: Options) -> Figure | None:
    """Where the time goes: from the ideal time to that of the run, one cause after the other."""
    every = displayed_bars(case.diagnosis.waterfall) if case.diagnosis else []
    if not every or case.diagnosis is None:
        return None
    times = case.diagnosis.times
    bars = [bar for bar in every if bar.name in TOTAL_BARS or adds(bar, every[-1].elapsed_ps)]
    drawn = canvas(7.6, 0.62 + 0.42 * len(bars))
    axes = drawn.add_subplot()
    unit, scale = time_unit(max(bar.elapsed_ps for bar in bars))
    end = max(max(bar.elapsed_ps, bar.elapsed_ps - bar.delta_ps + bar.high_ps) for bar in bars)
    observed = bars[-1].elapsed_ps
    for row, bar in enumerate(bars):
        whole = row == 0 or bar.name == "observed"
        left = 0 if whole else min(bar.elapsed_ps - bar.delta_ps, bar.elapsed_ps)
        width = bar.elapsed_ps if whole else abs(bar.delta_ps)
        colour = STEP_COLOURS.get(bar.name, MUTED)
        axes.barh(row, width / scale, left=left / scale, height=0.62, color=colour, linewidth=0)
        right = (left + width) / scale
        if not whole:
            start = bar.elapsed_ps - bar.delta_ps
            low, high = (start + bar.low_ps) / scale, (start + bar.high_ps) / scale
            end_at = bar.elapsed_ps / scale
            axes.errorbar(
                end_at,
                row,
                xerr=[[max(end_at - low, 0)], [max(high - end_at, 0)]],
                color=INK,
                linewidth=1.1,
                capsize=3,
                capthick=1.1,
            )
            right = max(right, high)
        if row + 1 < len(bars):
            axes.plot([bar.elapsed_ps / scale] * 2, [row + 0.31, row + 0.69], color=MUTED, lw=0.7)
        axes.text(
            right + 0.012 * end / scale,
            row,
            amount(bar, whole, observed, times),
            va="center",
            fontsize=8.8,
            fontweight="bold" if whole else "normal",
            color=INK if whole or bar.delta_ps else MUTED,
        )
    axes.set_yticks(range(len(bars)), [_name(bar, row, times) for row, bar in enumerate(bars)])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.24 * end / scale)
    nothing = ", ".join(bar.name for bar in every if bar not in bars)
    more = f"\nnothing comes from: {nothing}" if nothing else ""
    axes.set_xlabel(f"time of the job, {unit}{more}")
    axes.grid(axis="x", color=FAINT)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return drawn


def adds(bar: WaterfallBar, observed: int) -> bool:
    """Whether a step adds anything worth a bar, in any repetition."""
    return max(abs(bar.delta_ps), abs(bar.low_ps), abs(bar.high_ps)) >= MIN_SHARE * observed


def time_unit(largest: float) -> tuple[str, float]:
    """Unit for an axis that ends at ``largest`` picoseconds, and its size in picoseconds."""
    for unit, scale in (("s", 1e12), ("ms", 1e9), ("µs", 1e6), ("ns", 1e3)):
        if largest >= 2 * scale:
            return unit, scale
    return "ps", 1.0


def _name(bar: WaterfallBar, row: int, times: Times) -> str:
    return bar_name(bar, times) if row == 0 or bar.name == "observed" else step_name(bar)


def step_name(bar: WaterfallBar) -> str:
    """What a step is called beside its bar."""
    return f"+ {bar.name}"


def amount(bar: WaterfallBar, whole: bool, observed: int, times: Times) -> str:
    """What stands beside a bar: its time, or what it adds and its share of the whole."""
    if whole:
        return format_time(bar.elapsed_ps)
    sign = "−" if bar.delta_ps < 0 else "+"
    share = abs(bar.delta_ps) / observed if observed else 0.0
    return f"{sign}{format_time(abs(bar.delta_ps))}  ({sign}{percent(share)} of {times})"
