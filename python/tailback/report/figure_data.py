"""Data of the figures, computed once from the tables: loads of links by phase and by window.

A report uses the same few numbers many times. They are derived here from the tables of a run, as
plain arrays over links, and cached. Figures and the HTML report share them and therefore agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.diagnosis.congestion_trees import CONGESTED_FRACTION
from tailback.diagnosis.link_directions import is_flat
from tailback.diagnosis.model import Diagnosis
from tailback.diagnosis.topology import LinkTopology
from tailback.diagnosis.wording import run_label
from tailback.errors import RunError
from tailback.names.ports import link_names
from tailback.report.attribution import Attribution, attribute
from tailback.report.layout import FabricLayout, layout_fabric
from tailback.report.rank_timeline import RankTimeline
from tailback.report.time_at_link import samples_by_time_at_link
from tailback.run.run import Run
from tailback.telemetry.estimate import (
    SUMS,
    congested_excess,
    contrast_excess,
    fraction_interval,
    fraction_lower_bound,
    hop_excess,
)
from tailback.telemetry.header_counts import NOISY_AT_ZERO, ONE_RESERVOIR
from tailback.telemetry.shrinkage import MIN_SAMPLES as FEWEST
from tailback.telemetry.shrinkage import Shrunk, beyond_one, shrink

MIN_SAMPLES = 20
"""Hop samples from which a link's congested fraction is drawn in aggregates that keep extremes."""


@dataclass(frozen=True, eq=False)
class LinkLoad:
    """Estimates of every link from one selection of the samples.

    All arrays have shape (L,) or (…, L).

    Attributes:
        samples: Hop samples.
        weight: Estimated packets through the link.
        variance: Estimated variance of ``weight``.
        bytes: Estimated bytes through the link.
        congested_samples: Samples that met congestion there.
        congested_weight: Estimated packets that met congestion there.
        congested_variance: Estimated variance of ``congested_weight``.
        duration_ps: Time the selection spans, picoseconds.
        bundle: Bundle of each link, whose samples its estimate uses. None where rows are windows of
            several links.
        kind: Tier and direction of each link as a number.
        shared: Whether one reservoir made both counts.
    """

    samples: Floats
    weight: Floats
    variance: Floats
    bytes: Floats
    congested_samples: Floats
    congested_weight: Floats
    congested_variance: Floats
    duration_ps: float
    bundle: Ints | None = None
    kind: Ints | None = None
    shared: bool = False

    @cached_property
    def shrunk(self) -> Shrunk | None:
        """Estimates of links with the samples of their bundles; None if rows are not links."""
        if self.bundle is None or self.kind is None:
            return None
        return shrink(
            self.congested_weight,
            self.congested_variance,
            self.weight,
            self.variance,
            self.samples,
            self.bundle,
            self.kind,
            shared=self.shared,
        )

    @cached_property
    def raw_fraction(self) -> Floats:
        """Congested fraction (Taffet, 2019, section 3.2); may exceed 1, NaN without samples."""
        out = np.full(self.weight.shape, np.nan)
        np.divide(self.congested_weight, self.weight, out=out, where=self.weight > 0)
        return out

    @cached_property
    def fraction(self) -> Floats:
        """Congested fraction as it is shown, 0–1, of links with the evidence of their bundles.

        NaN without data, with fewer than ten samples, and where the samples contradict every
        fraction up to 1.
        """
        if self.shrunk is not None:
            return np.where(self.samples > 0, self.shrunk.value, np.nan)
        excess = hop_excess(self.weight, self.variance)
        met = congested_excess(self.congested_weight, self.congested_variance, excess)
        excess = contrast_excess(excess, met, shared=self.shared)
        unknown = beyond_one(self.congested_weight, self.weight, met, excess)
        few = self.samples < FEWEST
        return np.asarray(np.where(unknown | few, np.nan, np.minimum(self.raw_fraction, 1.0)))

    @cached_property
    def error(self) -> Floats:
        """Standard error of :attr:`fraction`, NaN where there is no data.

        Of windows: where two reservoirs are sampled independently, the variance of the quotient is
        ``(Var[Ŵ] + F² Var[W]) / W²`` to first order (Taffet, 2019, section 3.3); of one reservoir
        it is ``((1 − 2F) Var[Ŵ] + F² Var[W]) / W²``.
        """
        if self.shrunk is not None:
            return np.where(self.samples > 0, self.shrunk.error, np.nan)
        out = np.full(self.weight.shape, np.nan)
        congested_factor = 1.0 - 2.0 * self.raw_fraction if self.shared else 1.0
        spread = (
            congested_factor * self.congested_variance
            + np.square(self.raw_fraction) * self.variance
        )
        np.divide(np.sqrt(np.maximum(spread, 0.0)), self.weight, out=out, where=self.weight > 0)
        return out

    def interval(self, *, hashed: bool = False) -> tuple[Floats, Floats]:
        """95 % interval of :attr:`raw_fraction`, as in the tables (``link_estimates``).

        Args:
            hashed: Whether the samples were hashes.

        Returns:
            ``(low, high)`` within 0–1, NaN where there is no data.
        """
        weight, met = self.weight, self.congested_weight
        excess = hop_excess(weight, self.variance)
        met_excess = congested_excess(met, self.congested_variance, excess)
        spread = contrast_excess(excess, met_excess, shared=self.shared)
        low, high = fraction_interval(met, weight, met_excess, spread)
        if hashed:
            bound = fraction_lower_bound(
                met, weight, self.congested_variance, self.variance, shared=self.shared
            )
            low = np.minimum(low, bound)
        seen = weight > 0
        return np.where(seen, low, np.nan), np.where(seen, high, np.nan)

    def utilization(self, rate_gbps: Floats) -> Floats:
        """Share of the line rate that our own packets took, 0–1; NaN where never sampled."""
        capacity = rate_gbps * self.duration_ps / 8e3  # Gb/s is bits per ns; bytes in the selection
        out = np.full(self.weight.shape, np.nan)
        np.divide(self.bytes, capacity, out=out, where=(self.weight > 0) & (capacity > 0))
        return np.asarray(np.clip(out, 0.0, 1.0), np.float64)


def load_of(
    columns: list[Floats],
    duration_ps: float,
    bundle: Ints | None = None,
    kind: Ints | None = None,
    *,
    shared: bool = False,
) -> LinkLoad:
    """A load from its sums in the order of SUMS."""
    samples, weight, variance, size, met_samples, met_weight, met_variance = columns
    return LinkLoad(
        samples,
        weight,
        variance,
        size,
        met_samples,
        met_weight,
        met_variance,
        duration_ps,
        bundle,
        kind,
        shared,
    )


@dataclass(frozen=True, eq=False)
class LinkTruth:
    """The actual traffic of every link (simulated runs only); arrays have shape (L,).

    Attributes:
        observed_packets: Packets of the observed jobs.
        observed_congested: Observed packets for which the link was congested.
        utilization: Busy share of the run, 0–1.
        stall: Share of the run in which it had data but no credit, 0–1.
    """

    observed_packets: Floats
    observed_congested: Floats
    utilization: Floats
    stall: Floats


class FigureData:
    """The arrays of the figures of one run.

    Args:
        run: The run; its tables follow ``tailback.run.schema``.

    Raises:
        RunError: The run has no links, or its tables name links that do not exist.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.links = run.tables["links"].sort("link")
        self.n_links = self.links.height
        if self.n_links == 0:
            raise RunError("the run has no links", remedy="draw a simulated or measured run")
        if not np.array_equal(self.links["link"].to_numpy(), np.arange(self.n_links)):
            raise RunError("table 'links' does not number its links 0, 1, 2, …")
        for name in ("samples", "truth"):
            frame = run.tables[name]
            highest = frame["link"].max() if frame.height else 0
            if isinstance(highest, int) and highest >= self.n_links:
                raise RunError(f"table {name!r} names link {highest} of {self.n_links}")

    @cached_property
    def rate_gbps(self) -> Floats:
        """Data rate of each link, shape (L,)."""
        return self.links["rate_gbps"].to_numpy().astype(np.float64)

    @cached_property
    def flat(self) -> bool:
        """Whether the network has no tiers of switches: a torus, a mesh, a dragonfly."""
        return is_flat(self.run.tables)

    @cached_property
    def tier(self) -> NDArray[np.int64]:
        """Tier of each link, shape (L,)."""
        return self.links["tier"].to_numpy().astype(np.int64)

    @cached_property
    def direction(self) -> NDArray[np.str_]:
        """``up``, ``down`` or ``flat`` of each link, shape (L,)."""
        return np.array(self.links["direction"].to_list(), dtype=np.str_)

    @cached_property
    def bundle(self) -> Ints:
        """Bundle of each link: links among which routing spreads the same traffic, shape (L,)."""
        return np.asarray(LinkTopology.of(self.run).bundle, np.int64)

    @cached_property
    def kind(self) -> Ints:
        """Tier and direction of each link as a number, shape (L,)."""
        return np.asarray(
            self.tier * 3 + np.unique(self.direction, return_inverse=True)[1], np.int64
        )

    @property
    def hashed(self) -> bool:
        """Whether counts vary on links without congestion, as those of hashes do."""
        return self.run.scenario.telemetry.scheme in NOISY_AT_ZERO

    @property
    def shared(self) -> bool:
        """Whether one reservoir made the counts of packets and of congested packets."""
        return self.run.scenario.telemetry.scheme in ONE_RESERVOIR

    @cached_property
    def layout(self) -> FabricLayout:
        """Positions of switches and hosts."""
        return layout_fabric(self.run.tables["nodes"], self.run.tables["switches"], self.links)

    @cached_property
    def lower_switch(self) -> NDArray[np.int64]:
        """The switch at the lower end of each link (its leaf for a host link), shape (L,)."""
        n_nodes = self.run.tables["nodes"].height
        src = self.links["src"].to_numpy().astype(np.int64) - n_nodes
        dst = self.links["dst"].to_numpy().astype(np.int64) - n_nodes
        lower: NDArray[np.int64] = np.where(self.direction == "down", dst, src)
        return np.where(lower >= 0, lower, np.maximum(src, dst))

    @cached_property
    def link_names(self) -> list[str]:
        """Names of the directed links, ``l2[swp5] → s1[2]``, length L."""
        return link_names(self.links)

    @cached_property
    def samples(self) -> pl.DataFrame:
        """Samples of the observed jobs with their phase."""
        ours = self.run.tables["jobs"].filter(pl.col("observed")).select("job")
        phases = self.run.tables["labels"].select("label", "phase")
        return (
            self.run.tables["samples"]
            .drop("receive_label", "receiver")
            .join(ours, on="job", how="semi")
            .join(phases, on="label", how="left")
        )

    @cached_property
    def samples_by_link_time(self) -> pl.DataFrame:
        """The same by the time at which packets reached the link, else by arrival."""
        return samples_by_time_at_link(
            self.samples, self.run.tables["truth"], self.windows["window"], self.n_links
        )

    @cached_property
    def phase_numbers(self) -> tuple[pl.Series, Ints]:
        """Phases in the order of their names, and of each row at the link the number of its own."""
        phases = self.samples_by_link_time["phase"].unique().sort()
        number = pl.DataFrame({"phase": phases, "number": np.arange(len(phases), dtype=np.int64)})
        labels = (
            self.samples_by_link_time.select("label", "phase")
            .unique("label")
            .join(number, on="phase", nulls_equal=True)
            .sort("label")
        )
        row = np.searchsorted(labels["label"].to_numpy(), self.samples_by_link_time["label"])
        return phases, labels["number"].to_numpy()[row]

    @property
    def dated(self) -> bool:
        """Whether it is known when packets were at a link."""
        return self.run.tables["truth"].height > 0

    @property
    def time_meaning(self) -> str:
        """Meaning of the time of a sample, for an axis."""
        return "at the link" if self.dated else "arrival of the packets"

    @property
    def measured(self) -> bool:
        """Whether receivers took samples. A re-simulation for its time alone has none."""
        return self.samples.height > 0

    @cached_property
    def phases(self) -> list[str]:
        """Phases of the observed jobs that carried packets, in order of first appearance."""
        first = (
            self.samples.filter(pl.col("phase").is_not_null())
            .group_by("phase")
            .agg(pl.col("window").min(), pl.col("label").min())
            .sort("window", "label", "phase")
        )
        return first["phase"].to_list()

    @cached_property
    def windows(self) -> pl.DataFrame:
        """Time windows in order, with their length ``length_ps``."""
        return (
            self.run.tables["windows"]
            .sort("window")
            .with_columns(
                (pl.col("end_ps").cast(pl.Int64) - pl.col("start_ps").cast(pl.Int64)).alias(
                    "length_ps"
                )
            )
        )

    def load(self, phase: str | None = None) -> LinkLoad:
        """Loads of all links in the whole run, or in one phase."""
        if phase not in self._loads:
            chosen = self.samples
            if phase is not None:
                chosen = chosen.filter(pl.col("phase") == phase)
            self._loads[phase] = self._sum(chosen)
        return self._loads[phase]

    @cached_property
    def _loads(self) -> dict[str | None, LinkLoad]:
        return {}

    def _sum(self, chosen: pl.DataFrame) -> LinkLoad:
        # Sums of whole numbers below 2^53, so exact.
        link = chosen["link"].to_numpy()
        columns = [
            np.bincount(link, chosen[name].to_numpy(), self.n_links).astype(np.float64)
            for name in SUMS
        ]
        used = self.windows.join(chosen.select("window").unique(), on="window", how="semi")
        duration = float(used["length_ps"].sum()) if used.height else float(self.run.elapsed_ps)
        return load_of(columns, duration, self.bundle, self.kind, shared=self.shared)

    @cached_property
    def truth(self) -> LinkTruth | None:
        """The actual traffic of the links; None for a measured run."""
        table = self.run.tables["truth"]
        if table.height == 0:
            return None
        names = ("observed_packets", "observed_congested_packets", "busy_ps", "stall_ps")
        link = table["link"].to_numpy()
        dense = {
            name: np.bincount(link, table[name].fill_null(0).to_numpy(), self.n_links).astype(
                np.float64, copy=False
            )
            for name in names
        }
        span = max(float(self.windows["length_ps"].sum()), 1.0)
        return LinkTruth(
            dense["observed_packets"],
            dense["observed_congested_packets"],
            np.clip(dense["busy_ps"] / span, 0.0, 1.0),
            np.clip(dense["stall_ps"] / span, 0.0, 1.0),
        )

    @cached_property
    def tier_directions(self) -> list[tuple[int, str]]:
        """The (tier, direction) pairs that exist, from the top of the network downwards."""
        order = {"up": 0, "down": 1, "flat": 2}
        pairs = set(zip(self.tier.tolist(), self.direction.tolist(), strict=True))
        return sorted(pairs, key=lambda pair: (-pair[0], order.get(pair[1], 3)))


@dataclass(frozen=True, eq=False)
class FigureCase:
    """The data of all figures.

    Attributes:
        observed: The run that was diagnosed.
        diagnosis: Its diagnosis; None for the tables alone.
        before: A re-simulation of the unchanged run; the observed run if there is none.
        after: A re-simulation with the remedy, None if there is none.
        attributed: Stall time of the observed run by its causes, if already computed.
        names: Names of the reference and the other run within a sentence.
        labels: Labels of the observed and the other run on a toggle.
        ranks: Activity of each rank in the measured run, None if nothing was measured.
    """

    observed: FigureData
    diagnosis: Diagnosis | None = None
    before: FigureData | None = None
    after: FigureData | None = None
    attributed: Attribution | None = None
    names: tuple[str, str] = ("as it is", "with the remedy")
    labels: tuple[str, str] = (run_label("expected"), "With the remedy")
    ranks: RankTimeline | None = None

    @cached_property
    def attribution(self) -> Attribution | None:
        """Stall time by saturated link, line of the program and rank; None without samples."""
        if self.attributed is not None:
            return self.attributed
        return attribute(self.observed.run) if self.observed.measured else None

    @cached_property
    def after_attribution(self) -> Attribution | None:
        """The same of the run 'after'; None without one or without its samples."""
        return attribute(self.after.run) if self.after is not None and self.after.measured else None

    @cached_property
    def roots(self) -> list[int]:
        """Links at which congestion begins, those that the verdict names or rests on first."""
        if self.diagnosis is None:
            return []
        cause, explanation = self.diagnosis.cause, self.diagnosis.explanation
        cost = None if explanation is None else explanation.cost(cause)
        named = [] if cost is None else [link.link for link in cost.links]
        findings = sorted(self.diagnosis.findings, key=lambda each: each.cause != cause)
        links = (link.link for each in findings for link in each.links)
        return list(dict.fromkeys([*named, *links]))

    @cached_property
    def waiting(self) -> list[int]:
        """Links whose queues wait for another link, in ascending order."""
        if self.attribution is None:
            return []
        links = set[int]()
        frames = [frame for root in self.attribution.flame.children for frame in root.children]
        while frames:
            frame = frames.pop()
            if frame.kind == "link":
                links.add(frame.link)
                frames += frame.children
        return sorted(links.difference(self.roots))

    @cached_property
    def quantity(self) -> Literal["congestion", "utilization"]:
        """What the plots of links show first: utilization where no link is congested."""
        fraction = self.observed.load().fraction
        if self.diagnosis is None or (fraction > CONGESTED_FRACTION).any():
            return "congestion"
        return "utilization"

    @property
    def reference(self) -> FigureData:
        """The reference of 'after'."""
        return self.before or self.observed

    @property
    def sampled_reference(self) -> FigureData:
        """The reference for the samples of 'after': a re-simulation may have none."""
        return self.reference if self.reference.measured else self.observed
