"""The course of a run: links against time, the phases over it, and what one frame of time holds.

A *frame* is one time window, or several neighbouring ones where there are too many to draw. The
static raster and the interactive one read the same cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.report.figure_data import FigureData, LinkLoad, load_of
from tailback.report.time_at_link import places_of
from tailback.telemetry.estimate import SUMS
from tailback.telemetry.shrinkage import MIN_SAMPLES, shrink

FRAMES = 200
"""Frames at most."""

ROWS = 500_000
"""Maximum number of rows (link, frame and phase) in a report. Beyond it, frames are joined."""

MIN_FRAMES = 12
"""Minimum number of frames. Instead of joining more, the least congested links are left out."""

BINS_A_BAND = 48
PHASES_SHOWN = 8
CELL_SAMPLES = MIN_SAMPLES


@dataclass(frozen=True, eq=False)
class TimelineBand:
    """The links of one tier and direction against time.

    Attributes:
        tier: Their tier.
        direction: ``up``, ``down`` or ``flat``.
        cells: Highest congested fraction of a row of links in a frame, shape (rows, F), NaN
            without enough samples.
        links: The links of it, shape (n,).
        row: Row of each of them, shape (n,).
        used: Whether any packet was sampled on a row in a frame, shape (rows, F).
        flat: Whether the network has no tiers of switches.
    """

    tier: int
    direction: str
    cells: NDArray[np.float64]
    links: NDArray[np.int64]
    row: NDArray[np.int64]
    used: NDArray[np.bool_]
    flat: bool = False


class Timeline:
    """One run in frames of time.

    Args:
        evidence: The run.
        frames: Number of frames; the windows' number, 200 at most, when absent.
    """

    def __init__(self, evidence: FigureData, frames: int | None = None) -> None:
        self.evidence = evidence
        self.frames = frames or min(evidence.windows.height, FRAMES)
        start = evidence.windows["start_ps"].to_numpy().astype(np.float64)
        end = evidence.windows["end_ps"].to_numpy().astype(np.float64)
        count = len(start)
        if self.frames == count:
            self.edges_ps = np.append(start, end[-1:])
            frame = np.arange(count)
        else:
            # By time, not by number: two runs in as many frames then agree on shares of their time.
            self.edges_ps = np.linspace(start[0], end[-1], self.frames + 1)
            frame = np.searchsorted(self.edges_ps, (start + end) / 2, side="right") - 1
        self._frame = np.clip(frame, 0, self.frames - 1).astype(np.int64)

    def _frame_of(self, samples: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Frame of each sample by its window, and whether the run has that window."""
        place, in_run = places_of(samples["window"], self.evidence.windows["window"])
        return self._frame[place], in_run

    @cached_property
    def _key(self) -> pl.Series:
        """Frame, phase and link of each sample at the link as one number, in their order."""
        evidence = self.evidence
        frame, in_run = self._frame_of(evidence.samples_by_link_time)
        phases, phase = evidence.phase_numbers
        link = evidence.samples_by_link_time["link"].to_numpy().astype(np.int64)
        key = (frame * len(phases) + phase) * evidence.n_links + link
        # Below all others: a sample of no window of the run, which is in no frame.
        return pl.Series("key", np.where(in_run, key, -1))

    @property
    def n_rows(self) -> int:
        """Rows of :attr:`samples`, counted without adding them up."""
        if "samples" in vars(self):
            return self.samples.height
        if len(self._key) == 0:
            return 0
        # One mark for each possible row: there are fewer than a few hundred million, and marking
        # is several times faster than sorting or hashing.
        key = self._key.to_numpy()
        seen = np.zeros(int(key.max()) + 2, np.bool_)
        seen[key + 1] = True
        return int(np.count_nonzero(seen[1:]))

    @cached_property
    def samples(self) -> pl.DataFrame:
        """Samples of the observed jobs by ``frame`` (at the link), ``phase`` and ``link``."""
        evidence = self.evidence
        phases, _ = evidence.phase_numbers
        sums = (
            evidence.samples_by_link_time.select(SUMS)
            .with_columns(self._key)
            .group_by("key")
            .agg(pl.col(name).sum() for name in SUMS)
            .filter(pl.col("key") >= 0)
            .sort("key")
        )
        row, link = np.divmod(sums["key"].to_numpy(), evidence.n_links)
        frame, phase = np.divmod(row, max(len(phases), 1))
        return sums.select(
            pl.Series("frame", frame.astype(np.int32)),
            phases.gather(phase).alias("phase"),
            pl.Series("link", link.astype(np.uint32)),
            *SUMS,
        )

    @cached_property
    def _links(self) -> pl.DataFrame:
        """Samples by frame and link, with the congested ``fraction``; NaN where unknown."""
        evidence = self.evidence
        sums = self.samples.group_by("frame", "link").agg(pl.col(name).sum() for name in SUMS)
        sums = sums.sort("frame", "link")
        link = sums["link"].to_numpy().astype(np.int64)
        bundles = int(evidence.bundle.max(initial=0)) + 1
        each = {name: sums[name].cast(pl.Float64).to_numpy() for name in SUMS}
        # Bundles within a frame are independent samples.
        _, bundle = np.unique(
            sums["frame"].to_numpy() * bundles + evidence.bundle[link], return_inverse=True
        )
        shrunk = shrink(
            each["congested_weight"],
            each["congested_variance"],
            each["hop_weight"],
            each["hop_variance"],
            each["hop_samples"],
            bundle,
            evidence.kind[link],
            shared=evidence.shared,
        )
        return sums.with_columns(fraction=pl.Series(shrunk.value))

    def sums(self, links: NDArray[np.bool_]) -> LinkLoad:
        """Loads of some links together in each frame, shape (F,)."""
        chosen = self._links.filter(pl.Series(links[self._links["link"].to_numpy()]))
        total = chosen.group_by("frame").agg(pl.col(name).sum() for name in SUMS)
        columns = []
        for name in SUMS:
            dense = np.zeros(self.frames)
            dense[total["frame"].to_numpy()] = total[name].to_numpy()
            columns.append(dense)
        span = float(self.edges_ps[-1] - self.edges_ps[0]) if self.frames else 0.0
        return load_of(columns, span, shared=self.evidence.shared)

    def tiers(self) -> Iterator[tuple[int, str, LinkLoad]]:
        """Tier, direction and loads in each frame of the links together; those with samples."""
        evidence = self.evidence
        for tier, direction in evidence.tier_directions:
            load = self.sums((evidence.tier == tier) & (evidence.direction == direction))
            if load.samples.any():
                yield tier, direction, load

    def delivered_bytes(self) -> NDArray[np.float64]:
        """Bytes that arrived at hosts in each frame, shape (F,)."""
        into = pl.Series(np.flatnonzero(self.evidence.links["to_node"].to_numpy()))
        arrived = self.evidence.samples.filter(pl.col("link").is_in(into.implode()))
        frame, in_run = self._frame_of(arrived)
        size = arrived["hop_bytes"].to_numpy()[in_run]
        return np.bincount(frame[in_run], size, self.frames).astype(np.float64)

    def phase_shares(self) -> tuple[list[str], NDArray[np.float64]]:
        """Share of each frame's samples that each of the heaviest phases has, shape (P, F)."""
        evidence = self.evidence
        total = self.samples.group_by("phase").agg(pl.col("hop_samples").sum())
        heavy = total.sort("hop_samples", "phase", descending=[True, False])["phase"].to_list()
        kept = [phase for phase in evidence.phases if phase in heavy[:PHASES_SHOWN]]
        out, every = np.zeros((len(kept), self.frames)), np.zeros(self.frames)
        sums = self.samples.group_by("phase", "frame").agg(pl.col("hop_samples").sum())
        for phase, frame, count in sums.iter_rows():
            every[frame] += count
            if phase in kept:
                out[kept.index(phase), frame] += count
        return kept, out / np.maximum(every, 1)

    @cached_property
    def bands(self) -> list[TimelineBand]:
        """Links against time by tier and direction, from the top of the network downwards."""
        return [self._band(*pair) for pair in self.evidence.tier_directions]

    def _band(self, tier: int, direction: str) -> TimelineBand:
        """Highest congested fraction of each group of neighbouring links in each frame.

        Means hide hot links, so a cell keeps the maximum. A fraction of a few samples is mostly
        noise and would always be the maximum. So each link counts with the evidence of its bundle,
        and the links of one switch count together. Frames are short and have few samples of one
        link.
        """
        evidence = self.evidence
        links = np.flatnonzero((evidence.tier == tier) & (evidence.direction == direction))
        switch = evidence.lower_switch[links]
        bins = min(BINS_A_BAND, len(set(switch.tolist())))
        order = np.unique(switch, return_inverse=True)[1]
        row = (order * bins // max(int(order.max(initial=0)) + 1, 1)).astype(np.int64)
        cells = np.full((bins, self.frames), np.nan)
        owner = pl.DataFrame({"link": links.astype(np.uint32), "switch": switch, "row": row})
        chosen = self._links.join(owner, on="link", how="inner")
        place = (chosen["row"].to_numpy(), chosen["frame"].to_numpy())
        np.fmax.at(cells, place, chosen["fraction"].to_numpy())
        sums = (
            chosen.group_by("frame", "row", "switch")
            .agg(pl.col("hop_samples", "hop_weight", "congested_weight").sum())
            .filter((pl.col("hop_samples") >= CELL_SAMPLES) & (pl.col("hop_weight") > 0))
        )
        met, through = sums["congested_weight"].to_numpy(), sums["hop_weight"].to_numpy()
        place = (sums["row"].to_numpy(), sums["frame"].to_numpy())
        np.fmax.at(cells, place, np.clip(met / through, 0, 1))
        used = np.zeros(cells.shape, np.bool_)
        used[chosen["row"].to_numpy(), chosen["frame"].to_numpy()] = True
        return TimelineBand(tier, direction, cells, links, row, used, evidence.flat)


def timeline_within_budget(evidence: FigureData, frames: int | None = None) -> Timeline:
    """A course with few enough rows for a report to carry: fewer frames where there are more."""
    course = Timeline(evidence, frames)
    while course.n_rows > ROWS and course.frames > MIN_FRAMES:
        course = Timeline(evidence, max(course.frames // 2, MIN_FRAMES))
    return course


def timelines_with_equal_frames(runs: list[FigureData]) -> list[Timeline]:
    """The courses of runs in the same number of frames, few enough for each of them."""
    courses = [timeline_within_budget(evidence) for evidence in runs]
    frames = min(course.frames for course in courses)
    return [
        course if course.frames == frames else Timeline(course.evidence, frames)
        for course in courses
    ]


def band_changes(before: Timeline, after: Timeline) -> list[TimelineBand]:
    """Bands of two aligned courses with the change of their cells.

    A row that one run does not use in a frame counts as 0 there. It is NaN where neither run uses
    it, or where one has too few samples.
    """
    out = []
    for earlier, other in zip(before.bands, after.bands, strict=True):
        cells = [np.where(band.used, band.cells, 0.0) for band in (earlier, other)]
        used = earlier.used | other.used
        change = np.where(used, cells[1] - cells[0], np.nan)
        out.append(
            TimelineBand(earlier.tier, earlier.direction, change, earlier.links, earlier.row, used)
        )
    return out


def embedded_samples(course: Timeline) -> tuple[pl.DataFrame, int]:
    """The samples a report carries frame by frame, and of how many links it carries none.

    Where even the fewest frames have too many rows, the links that met least congestion go.
    """
    if course.samples.height <= ROWS:
        return course.samples, 0
    by_link = (
        course.samples.group_by("link")
        .agg(rows=pl.len(), met=pl.col("congested_weight").sum())
        .sort("met", "link", descending=[True, False])
        .with_columns(total=pl.col("rows").cum_sum())
    )
    kept = by_link.filter(pl.col("total") <= ROWS)
    rows = course.samples.join(kept.select("link"), on="link", how="semi", maintain_order="left")
    return rows, by_link.height - kept.height
