"""Figures of the viewer other than links: bars, columns, points and lines, as plain values.

The figures of ``tailback report --figures`` take their numbers from the same functions. Only the
drawing differs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.diagnosis.cause_wording import VERDICTS
from tailback.diagnosis.model import Diagnosis, Status, Times, WaterfallBar
from tailback.diagnosis.waterfall import displayed_bars
from tailback.diagnosis.wording import bar_name
from tailback.evidence.split import PART_NAMES
from tailback.report.coverage import coverage_sentence, shown_coverage
from tailback.report.difference import (
    MAX_DEVIATION,
    LinkDeviations,
    call_site_changes,
    compared,
    link_deviations,
)
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.grids import groups, rings, slices
from tailback.report.layout import tier_direction_name
from tailback.report.packing import Packer
from tailback.report.rank_pairs import distances
from tailback.report.scales import CAUSE_COLOURS, INK, KIND_COLOURS, MUTED
from tailback.report.timeline import Timeline
from tailback.units import counted, format_time, percent

POINTS = 400
TIER_COLOURS = ("#9aa4af", "#c2571a", "#2c5c9e", "#7a5ea8", "#2f7f86")
BEST, OTHER = "#1f7a4d", "#b4bcc6"
LESS, MORE = "#3f74b5", "#b5662b"
SMALL = 0.005
"""Share of the measured time below which a part is combined with others."""
LINES = 14
CANDIDATES = 8
"""Candidates with a bar; the table has all."""
OVER_SEEDS = "range over seeds"
"""Meaning of the whiskers of re-simulated times."""
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

_LEAST_VISIBLE = {"computation": "#8fb387", "not_running": "#c9ced6", "not_recorded": "#b9c0c8"}
"""Colours of bars whose colour in the rank timeline is too pale for a bar on white."""


def bar_figures(case: FigureCase) -> dict[str, Any]:
    """The waterfalls and the bars of candidates and of lines that changed, those that have rows.

    A row is ``name``, ``from`` and ``to`` on the axis, the interval ``low`` to ``high`` (null for
    none), the ``text`` beside it, its ``colour`` and whether it is ``strong``.
    """
    figures = {
        "waterfall": waterfall_bars(case),
        "measured_parts": measured_bars(case.diagnosis),
        "attainable": attainable_bars(case.diagnosis),
        "before_after": before_after_bars(case),
        "change_back_pressure": changed_line_bars(case),
    }
    return {name: figure for name, figure in figures.items() if figure}


def _row(
    name: str,
    start: float,
    end: float,
    text: str,
    colour: str,
    *,
    interval: tuple[float, float] | None = None,
    strong: bool = False,
) -> dict[str, Any]:
    low, high = interval or (None, None)
    return {
        "name": name,
        "from": start,
        "to": end,
        "low": low,
        "high": high,
        "text": text,
        "colour": colour,
        "strong": strong,
    }


def waterfall_bars(case: FigureCase) -> dict[str, Any] | None:
    """Steps from the ideal time to that of the run."""
    every = displayed_bars(case.diagnosis.waterfall) if case.diagnosis else []
    if case.diagnosis is None or not every:
        return None
    times, observed = case.diagnosis.times, every[-1].elapsed_ps
    rows = []
    for bar in every:
        is_total = bar.name in TOTAL_BARS
        if not is_total and not _adds_time(bar, observed):
            continue
        start = 0 if is_total else bar.elapsed_ps - bar.delta_ps
        rows.append(
            _row(
                bar_name(bar, times) if is_total else _step_name(bar),
                start,
                bar.elapsed_ps,
                _bar_text(bar, is_total, observed, times),
                STEP_COLOURS.get(bar.name, MUTED),
                interval=None if is_total else (start + bar.low_ps, start + bar.high_ps),
                strong=is_total,
            )
        )
    left = [
        bar.name for bar in every if bar.name not in TOTAL_BARS and not _adds_time(bar, observed)
    ]
    note = f"adds nothing: {', '.join(left)}" if left else ""
    return {
        "rows": rows,
        "unit": "ps",
        "axis": "time of the job",
        "note": note,
        "line": None,
        "range": OVER_SEEDS,
    }


def before_after_bars(case: FigureCase) -> dict[str, Any] | None:
    """Time of the job as it is and with every candidate that was simulated."""
    diagnosis = case.diagnosis
    remedy = diagnosis.remedy if diagnosis else None
    if diagnosis is None or remedy is None or not remedy.before_ps:
        return None
    tried = sorted(remedy.shown_candidates, key=diagnosis.time_with)
    if not tried:
        return None
    failed = [
        c.name for c in remedy.candidates if c.status not in (Status.PROVED, Status.NOT_APPLICABLE)
    ]
    rows = [_row("as it is", 0, remedy.before_ps, format_time(remedy.before_ps), INK, strong=True)]
    left = len(tried) - CANDIDATES if len(tried) > CANDIDATES + 1 else 0
    for candidate in tried[: len(tried) - left]:
        mean, low, high = diagnosis.time_with(candidate)
        best = candidate.name == remedy.name
        text = format_time(mean)
        if diagnosis.explanation is None:
            # Shares of the simulated time are not those of the measured one.
            change = percent(mean / remedy.before_ps - 1, sign="+").replace("-", "−")
            text += f" ({change})"
        rows.append(
            _row(
                candidate.name,
                0,
                mean,
                text,
                BEST if best else OTHER,
                interval=(low, high),
                strong=best,
            )
        )
    more = [f"{counted(left, 'slower one')} in the table"] if left else []
    more += [f"without a result: {', '.join(failed)}"] if failed else []
    return {
        "rows": rows,
        "unit": "ps",
        "axis": "time of the job, re-simulated",
        "note": "; ".join(more),
        "line": remedy.before_ps,
        "range": "range",
    }


def changed_line_bars(case: FigureCase) -> dict[str, Any] | None:
    """Lines of the program whose stall differs most between two runs."""
    before, after = case.attribution, case.after_attribution
    if compared(case) is None or before is None or after is None:
        return None
    rows = []
    for line in call_site_changes(before, after)[:LINES]:
        ratio_text = "new"
        if line.before > 0:
            ratio = line.after / line.before
            # A factor is clearer than thousands of per cent.
            ratio_text = f"×{ratio:.0f}" if ratio >= 10 else percent(ratio - 1, sign="+")
        rows.append(
            _row(
                line.line,
                line.before,
                line.after,
                ratio_text.replace("-", "−"),
                LESS if line.after < line.before else MORE,
            )
        )
    axis = "stall" if before.unit == "ps" else "congested packets"
    unit = "ps" if before.unit == "ps" else ""
    if not rows:
        return None
    return {"rows": rows, "unit": unit, "axis": axis, "note": "", "line": None, "range": ""}


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
            _part_row(
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
        rows.append(_part_row("smaller parts", at, at + small, measured.elapsed_ps, MUTED))
    rows.append(
        _row("measured", 0, measured.elapsed_ps, format_time(measured.elapsed_ps), INK, strong=True)
    )
    return {
        "rows": rows,
        "unit": "ps",
        "axis": "measured time, mean over the ranks",
        "note": "",
        "line": None,
        "range": "bounds by the clocks",
    }


def attainable_bars(diagnosis: Diagnosis | None) -> dict[str, Any] | None:
    """The measured time without each cause and with the remedy; None without an explanation.

    All on the scale of the measured time: the bar of a cause ends at the measured time and is as
    long as its cost, so it begins at the time that is left without that cause.
    """
    if diagnosis is None or diagnosis.explanation is None:
        return None
    elapsed = diagnosis.explanation.elapsed_ps
    names = {str(cause): words for cause, words in VERDICTS.items()}
    rows = [_row("measured", 0, elapsed, format_time(elapsed), INK, strong=True)]
    for cost in diagnosis.explanation.costs:
        if cost.share < SMALL:
            continue
        rows.append(
            _row(
                names[cost.cause],
                max(elapsed - cost.ps, 0),
                elapsed,
                f"−{format_time(cost.ps)} ({percent(cost.share)})",
                CAUSE_COLOURS.get(cost.cause, MUTED),
                interval=(max(elapsed - cost.high_ps, 0), elapsed - cost.low_ps),
            )
        )
    unexplained = diagnosis.explanation.not_explained_ps
    name = "not explained" if unexplained >= 0 else "model exceeds measured"
    share = percent(abs(unexplained) / max(elapsed, 1))
    text = f"{format_time(abs(unexplained))} ({share})"
    rows.append(_row(name, elapsed - unexplained, elapsed, text, "#d8b3ae"))
    remedy = diagnosis.remedy
    if remedy is not None and (gain := remedy.predicted_gain) is not None:
        after, low, high = ((1 - share) * elapsed for share in (gain.value, gain.high, gain.low))
        text = f"{format_time(round(after))} predicted"
        interval = (low, high)
        rows.append(_row("with the remedy", 0, after, text, BEST, interval=interval, strong=True))
    return {
        "rows": rows,
        "unit": "ps",
        "axis": "measured time of the job",
        "note": "",
        "line": elapsed,
        "range": "range",
    }


def _part_row(
    name: str,
    start: int,
    end: int,
    elapsed_ps: int,
    colour: str,
    interval: tuple[int, int] | None = None,
) -> dict[str, Any]:
    share = percent((end - start) / max(elapsed_ps, 1)).replace("-", "−")
    text = f"{format_time(end - start)} ({share})"
    return _row(name, start, end, text, colour, interval=interval)


def _adds_time(bar: WaterfallBar, observed: int) -> bool:
    """Whether a step adds anything worth a bar, in any repetition."""
    return max(abs(bar.delta_ps), abs(bar.low_ps), abs(bar.high_ps)) >= MIN_SHARE * observed


def time_unit(largest: float) -> tuple[str, float]:
    """Unit for an axis that ends at ``largest`` picoseconds, and its size in picoseconds."""
    for unit, scale in (("s", 1e12), ("ms", 1e9), ("µs", 1e6), ("ns", 1e3)):
        if largest >= 2 * scale:
            return unit, scale
    return "ps", 1.0


def _step_name(bar: WaterfallBar) -> str:
    """Name of a step beside its bar."""
    return f"+ {bar.name}"


def _bar_text(bar: WaterfallBar, is_total: bool, observed: int, times: Times) -> str:
    """Text beside a bar: its time, or the added time and its share of the total."""
    if is_total:
        return format_time(bar.elapsed_ps)
    sign = "−" if bar.delta_ps < 0 else "+"
    share = abs(bar.delta_ps) / observed if observed else 0.0
    return f"{sign}{format_time(abs(bar.delta_ps))}  ({sign}{percent(share)} of {times})"


def column_figures(case: FigureCase) -> dict[str, Any]:
    """``samples``, ``distance_histogram`` and ``change_how_sure``.

    Columns at ``labels``, one value for each series, side by side or ``stacked``.
    """
    deviations = link_deviations(case)
    figures = {
        "samples": sample_columns(case.observed),
        "distance_histogram": distance_columns(case),
        "change_how_sure": None if deviations is None else deviation_columns(deviations),
    }
    return {name: figure for name, figure in figures.items() if figure}


def sample_columns(evidence: FigureData) -> dict[str, Any] | None:
    """Links by their number of samples, in bins that double."""
    if not evidence.measured:
        return None
    samples = evidence.load().samples
    top = max(int(np.ceil(np.log2(max(samples.max(), 2)))), 1)
    edges = 2.0 ** np.arange(top + 1)
    edges[-1] += 1  # the highest count itself
    series = []
    for tier in sorted(set(evidence.tier.tolist())):
        counts, _ = np.histogram(samples[(evidence.tier == tier) & (samples > 0)], edges)
        name = tier_direction_name(tier, "up", evidence.flat).replace("→", "–")
        series.append(
            {
                "name": name,
                "colour": TIER_COLOURS[tier % len(TIER_COLOURS)],
                "values": counts.tolist(),
            }
        )
    unseen = int((samples == 0).sum())
    return {
        "labels": [
            f"{int(a)}–{int(b) - 1}" if b - a > 1 else f"{int(a)}"
            for a, b in zip(edges, [*edges[1:-1], 2.0**top + 1], strict=False)
        ],
        "edges": [f"{2**power:,}" for power in range(top + 1)],
        "series": series,
        "stacked": True,
        "curve": None,
        "unit": "links",
        "title": f"{len(samples) - unseen:,} links sampled, {unseen:,} never",
        "x": "hop samples of a link, whole run",
        "y": "links",
    }


def distance_columns(case: FigureCase) -> dict[str, Any] | None:
    """Share of bytes by the number of switches visited."""
    runs = [(case.names[0], case.reference, INK)]
    if case.after is not None:
        runs.append((case.names[1], case.after, BEST))
    by_distance = [
        (name, colour, part)
        for name, evidence, colour in runs
        if (part := _shares(evidence)) is not None
    ]
    if not by_distance:
        return None
    every = sorted({int(hops) for _, _, part in by_distance for hops in part[0]})
    series = []
    for name, colour, (hops, share, mean) in by_distance:
        at = dict(zip(hops.tolist(), (100 * share).tolist(), strict=True))
        series.append(
            {
                "name": f"{name}: {mean:.2f} switches on average",
                "colour": colour,
                "values": [at.get(hop, 0.0) for hop in every],
            }
        )
    return {
        "labels": [str(hop) for hop in every],
        "edges": None,
        "series": series,
        "stacked": False,
        "curve": None,
        "unit": "% of bytes",
        "title": "How far the bytes travel",
        "x": "switches visited (0: within a host)",
        "y": "share of bytes, %",
    }


def _shares(
    evidence: FigureData,
) -> tuple[NDArray[np.int64], NDArray[np.float64], float] | None:
    """Distances in switches, share of the observed bytes at each, and the mean over packets."""
    tables = evidence.run.tables
    ours = tables["jobs"].filter(pl.col("observed")).select("job")
    ranks = tables["ranks"].join(ours, on="job", how="semi").select("rank")
    messages = tables["messages"].join(ranks, left_on="src_rank", right_on="rank", how="semi")
    if messages.height == 0:
        return None
    packets = pl.col("packets").cast(pl.Float64)
    hops = pl.when(packets > 0).then(pl.col("switch_hops") / packets).otherwise(0.0)
    sums = (
        messages.with_columns(hops.round().cast(pl.Int64).alias("hops"))
        .group_by("hops")
        .agg(pl.col("size_bytes").sum())
        .sort("hops")
    )
    size = sums["size_bytes"].to_numpy().astype(np.float64)
    mean = float(messages["switch_hops"].sum()) / max(float(messages["packets"].sum()), 1.0)
    return sums["hops"].to_numpy(), size / max(size.sum(), 1.0), mean


def distance_change_columns(pairs: pl.DataFrame) -> dict[str, Any]:
    """Change of the share of bytes by the number of switches visited."""
    hops, change = distances(pairs)
    return {
        "labels": [str(hop) for hop in hops],
        "edges": None,
        "stacked": False,
        "curve": None,
        "series": [{"name": "change", "colour": MUTED, "values": (100 * change).tolist()}],
        "unit": "percentage points",
        "title": "Bytes by distance, change",
        "x": "switches visited",
        "y": "change of the share of bytes, points",
    }


def deviation_columns(deviations: LinkDeviations) -> dict[str, Any]:
    """Links by their change in standard errors, and how many there were without any."""
    score = deviations.score
    edges = np.linspace(-MAX_DEVIATION, MAX_DEVIATION, 33)
    counts, _ = np.histogram(score, edges)
    middle = (edges[1:] + edges[:-1]) / 2
    names = [f"{at:g}".replace("-", "−") for at in edges.tolist()]
    return {
        "labels": [f"{a} to {b}" for a, b in pairwise(names)],
        "edges": names,
        "series": [{"name": "links", "colour": "#7f96b0", "values": counts.tolist()}],
        "curve": {
            "name": "if nothing had changed",
            "values": (len(score) * normal_density(middle) * (edges[1] - edges[0])).tolist(),
        },
        "stacked": False,
        "unit": "links",
        "title": deviations.title,
        "x": "change in standard errors (ends: and beyond)",
        "y": "links",
    }


def normal_density(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Density of the standard normal distribution."""
    return np.asarray(np.exp(-np.square(score) / 2) / np.sqrt(2 * np.pi), np.float64)


def truth_points(evidence: FigureData) -> dict[str, Any] | None:
    """Estimates against the truth, at most POINTS links, and how many intervals hold it."""
    shown_links = shown_coverage(evidence)
    if shown_links is None:
        return None
    order = np.argsort(shown_links.truth, kind="stable")
    shown = order[:: max(1, -(-len(order) // POINTS))]
    sentence, short = coverage_sentence(evidence)
    return {
        "title": sentence,
        "short": short,
        "link": shown_links.links[shown].tolist(),
        "x": np.round(shown_links.truth[shown], 4).tolist(),
        "y": np.round(shown_links.estimate[shown], 4).tolist(),
        "low": np.round(shown_links.low[shown], 4).tolist(),
        "high": np.round(shown_links.high[shown], 4).tolist(),
        "colours": list(TIER_COLOURS),
    }


def course_sums(packer: Packer, course: Timeline) -> dict[str, Any]:
    """Packets that arrived in each frame, and congested ones by tier and direction."""
    evidence = course.evidence
    tiers = []
    for tier, direction, sums in course.tiers():
        low, high = sums.interval(hashed=evidence.hashed)
        tiers.append(
            {
                "name": tier_direction_name(tier, direction, evidence.flat),
                "tier": tier,
                "direction": direction,
                "samples": packer.count(sums.samples),
                "value": packer.add(sums.fraction, "f4"),
                "low": packer.add(low, "f4"),
                "high": packer.add(high, "f4"),
            }
        )
    return {"tiers": tiers, "bytes": packer.add(course.delivered_bytes(), "f4")}


def grid_figures(packer: Packer, evidence: FigureData) -> dict[str, Any] | None:
    """Tori as rings and slices, dragonflies as groups: cells, each with its links.

    ``cell`` and ``link`` are pairs: a cell shows the worst of its links.
    """
    kind, pictures = "torus", [*rings(evidence), *slices(evidence)]
    if not pictures:
        pairs = groups(evidence)
        kind, pictures = "dragonfly", [] if pairs is None else [pairs]
    packed = [
        {
            "name": grid.name,
            "rows": grid.shape[0],
            "columns": grid.shape[1],
            "x": grid.axes[0],
            "y": grid.axes[1],
            "cell": packer.add(grid.cell, "u4"),
            "link": packer.add(grid.link, "u4"),
            "wide": grid.wide,
        }
        for grid in pictures
    ]
    return {"kind": kind, "grids": packed} if packed else None
