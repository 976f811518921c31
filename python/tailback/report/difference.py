"""Differences of two runs of one fabric: after minus before.

A link with samples in one run only counts as uncongested (0) in the other run, which hardly uses
it. So does a link with too few samples and less than a twentieth of the other run's packets. A link
without samples in either run has no data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.report.attribution import Attribution, by_call_site
from tailback.report.figure_data import MIN_SAMPLES, FigureCase, FigureData, LinkLoad
from tailback.report.flame import Frame
from tailback.run.schema import conform
from tailback.telemetry.estimate import Z95
from tailback.units import percent


@dataclass(frozen=True, eq=False)
class LinkChange:
    """Changes on every link in one selection; arrays have shape (L,).

    Attributes:
        before: Loads of the first run.
        after: Loads of the second run.
    """

    before: LinkLoad
    after: LinkLoad

    @property
    def value(self) -> Floats:
        """Change of the congested fraction, -1 to 1; NaN if neither run has samples."""
        return difference_of(
            _zero_if_unused(self.before, self.after), _zero_if_unused(self.after, self.before)
        )

    @property
    def error(self) -> Floats:
        """Its standard error: the samples of two runs are independent."""
        squares = [np.square(np.nan_to_num(load.error)) for load in (self.before, self.after)]
        return np.asarray(np.where(np.isnan(self.value), np.nan, np.sqrt(sum(squares))))

    @property
    def certain_change(self) -> Floats:
        """The change at its 95 % bound nearer to zero; 0 if there may be none, NaN like value."""
        least = np.maximum(np.abs(self.value) - Z95 * self.error, 0.0)
        return np.asarray(np.sign(self.value) * least, np.float64)

    @property
    def weight(self) -> Floats:
        """Packets of the run that has more."""
        return np.maximum(self.before.weight, self.after.weight)


MAX_DEVIATION = 8.0
"""Largest deviation drawn, in standard errors. A normal variable never reaches it."""

UNUSED_SHARE = 0.05
"""A link counts as unused below this share of the other run's packets."""


def _zero_if_unused(load: LinkLoad, other: LinkLoad) -> Floats:
    """Congested fractions; 0 if a run does not use a link that the other used."""
    unused = (load.weight <= UNUSED_SHARE * other.weight) & (other.weight > 0)
    return np.where(np.isnan(load.fraction) & unused, 0.0, load.fraction)


def difference_of(before: Floats, after: Floats) -> Floats:
    """``after - before``, NaN where one of them is unknown."""
    return np.asarray(after - before, np.float64)


def link_change(before: FigureData, after: FigureData, phase: str | None = None) -> LinkChange:
    """Changes on the links of two runs of one fabric, in the whole runs or one phase."""
    return LinkChange(before.load(phase), after.load(phase))


def phases_of(before: FigureData, after: FigureData) -> list[str]:
    """Phases of either run, those of the first run first."""
    return list(dict.fromkeys([*before.phases, *after.phases]))


def compared(case: FigureCase) -> tuple[FigureData, FigureData] | None:
    """The two runs of a case, whose samples can be compared; None if there is no second one."""
    after = case.after
    if after is None or not after.measured or not case.sampled_reference.measured:
        return None
    return case.sampled_reference, after


@dataclass(frozen=True, eq=False)
class LinkDeviations:
    """Changes of links in units of their standard error.

    Attributes:
        score: Change over standard error, limited to ±:data:`MAX_DEVIATION`, shape (K,) for the K
            links with enough samples in both runs and a standard error.
        beyond_noise: Share of the K links that changed beyond their 95 % interval.
        without_error: Number of links with enough samples but none congested in either run; they
            have no standard error.
    """

    score: Floats
    beyond_noise: float
    without_error: int

    @property
    def title(self) -> str:
        """Title of the figure."""
        share = percent(self.beyond_noise)
        return f"{share} of {len(self.score):,} links changed beyond noise (5 % would by chance)"


def link_deviations(case: FigureCase) -> LinkDeviations | None:
    """Deviations of all links of a case; None without a second run or without such links."""
    both = compared(case)
    if both is None:
        return None
    change = link_change(*both)
    sampled = (change.before.samples >= MIN_SAMPLES) & (change.after.samples >= MIN_SAMPLES)
    chosen = sampled & (change.error > 0)
    if not chosen.any():
        return None
    score = np.clip(change.value[chosen] / change.error[chosen], -MAX_DEVIATION, MAX_DEVIATION)
    met = change.before.congested_samples + change.after.congested_samples > 0
    return LinkDeviations(
        score,
        float(beyond_noise(change)[chosen].mean()),
        int((sampled & ~met & ~chosen).sum()),
    )


def change_table(before: FigureData, after: FigureData) -> pl.DataFrame:
    """Table ``changes`` of the schema: every link with samples in either run, by phase."""
    parts = []
    names = before.link_names
    rate = before.rate_gbps
    for phase in (None, *phases_of(before, after)):
        change = link_change(before, after, phase)
        links = np.flatnonzero(change.weight > 0)
        columns: dict[str, object] = {
            "link": links,
            "name": [names[link] for link in links.tolist()],
            "tier": before.tier[links],
            "direction": before.direction[links].tolist(),
            "phase": pl.Series([phase] * len(links), dtype=pl.String),
            "change": change.value[links],
            "standard_error": change.error[links],
        }
        for word, load in (("before", change.before), ("after", change.after)):
            columns[f"{word}_samples"] = load.samples[links].astype(np.uint64)
            columns[f"{word}_fraction"] = load.fraction[links]
            columns[f"{word}_utilization"] = load.utilization(rate)[links]
        parts.append(conform("changes", pl.DataFrame(columns).fill_nan(None)))
    return pl.concat(parts)


@dataclass(frozen=True)
class CallSiteChange:
    """Stall that one line of the program suffers in two runs, in ps or congested packets."""

    line: str
    phase: str
    before: float
    after: float


def call_site_changes(before: Attribution, after: Attribution) -> list[CallSiteChange]:
    """Stall by line of the program in two runs, largest change first; empty if units differ."""
    if before.unit != after.unit:
        return []
    stalls: dict[str, list[float]] = {}
    phase: dict[str, str] = {}
    for place, attribution in enumerate((before, after)):
        for row in by_call_site(attribution):
            stalls.setdefault(row.line, [0.0, 0.0])[place] += row.stall
            phase.setdefault(row.line, row.phase)
    lines = [CallSiteChange(line, phase[line], *both) for line, both in stalls.items()]
    return sorted(lines, key=lambda line: (-abs(line.after - line.before), line.line))


def flame_change(before: Frame, after: Frame) -> Frame:
    """Both flame graphs in one: the width of a frame is its stall in both runs together.

    ``Frame.change`` is after minus before, so that change over value ranges from -1 (gone) to 1
    (new), and frames still add up.
    """
    out = Frame(after.name, after.kind, link=after.link, tiers=after.tiers)
    _merge_frames(out, before, -1.0)
    _merge_frames(out, after, 1.0)
    return out


def _merge_frames(out: Frame, part: Frame, sign: float) -> None:
    out.value += part.value
    out.change += sign * part.value
    for child in part.children:
        frame = out.add(child.name, child.kind, child.link, child.tiers)
        frame.phase, frame.rank, frame.node = child.phase, child.rank, child.node
        for rank, value in child.waiting.items():
            frame.waiting[rank] = frame.waiting.get(rank, 0.0) + value
        frame.nodes |= child.nodes
        _merge_frames(frame, child, sign)


def pair_changes(before: FigureData, after: FigureData) -> pl.DataFrame | None:
    """Switches visited between ranks of our jobs in both runs, weighted by bytes.

    Returns:
        Rows ``src_rank, dst_rank, size_bytes, before, after`` (mean switches a packet visited)
        of the pairs that communicate in both; None without a message log of both.
    """
    pairs = []
    for evidence in (before, after):
        tables = evidence.run.tables
        ours = tables["jobs"].filter("observed").select("job")
        ranks = tables["ranks"].join(ours, on="job", how="semi").select("rank")
        packets = pl.col("packets").sum().cast(pl.Float64)
        pairs.append(
            tables["messages"]
            .join(ranks, left_on="src_rank", right_on="rank", how="semi")
            .group_by("src_rank", "dst_rank")
            .agg(
                pl.col("size_bytes").sum(),
                hops=pl.when(packets > 0).then(pl.col("switch_hops").sum() / packets).otherwise(0),
            )
        )
    if not all(frame.height for frame in pairs):
        return None
    first, second = pairs
    return (
        first.rename({"hops": "before"})
        .join(second.select("src_rank", "dst_rank", after="hops"), on=("src_rank", "dst_rank"))
        .sort("src_rank", "dst_rank")
    )


def beyond_noise(change: LinkChange, least: float = 1.96) -> NDArray[np.bool_]:
    """Links whose change is larger than ``least`` standard errors, shape (L,)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(change.value) > least * np.maximum(change.error, 1e-9))
