"""How often intervals of congested fractions hold the truth that a simulated run knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.report.figure_data import MIN_SAMPLES, FigureData
from tailback.telemetry.estimate import link_estimates
from tailback.units import percent

ROUNDING = 1e-12
PROMISE = 0.95


@dataclass(frozen=True, eq=False)
class Coverage:
    """Links with enough samples, their true congested fraction and its 95 % interval; shape (n,).

    Attributes:
        links: Their numbers.
        truth: Share of our packets that met congestion there, 0–1.
        estimate: The same as samples tell it, 0–1.
        low: Lower end of the interval that the verdict rests on (:func:`link_estimates`).
        high: Upper end.
    """

    links: NDArray[np.int64]
    truth: NDArray[np.float64]
    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whose interval holds the truth."""
        return (self.low <= self.truth + ROUNDING) & (self.truth <= self.high + ROUNDING)

    @property
    def congested(self) -> NDArray[np.bool_]:
        """Links where some packet met congestion.

        The interval of any other link holds its truth, 0, by construction, so these alone say
        whether 95 % is 95 %.
        """
        return self.truth > 0


def coverage(evidence: FigureData) -> Coverage | None:
    """Compare the intervals of links with the truth; None for a measured run."""
    if evidence.truth is None:
        return None
    truth = evidence.truth
    estimates = link_estimates(evidence.samples, hashed=evidence.hashed, shared=evidence.shared)
    estimates = estimates.filter(pl.col("samples") >= MIN_SAMPLES).sort("link")
    links = estimates["link"].to_numpy().astype(np.int64)
    crossed = truth.observed_packets[links] > 0
    links, estimates = links[crossed], estimates.filter(pl.Series(crossed))
    real = truth.observed_congested[links] / truth.observed_packets[links]
    estimate, low, high = (
        estimates[name].to_numpy() for name in ("fraction", "fraction_low", "fraction_high")
    )
    return Coverage(links, real, estimate, low, high)


def shown_coverage(evidence: FigureData) -> Coverage | None:
    """The same of the estimates that are drawn, with the evidence of their bundles."""
    if evidence.truth is None:
        return None
    truth, load = evidence.truth, evidence.load()
    shrunk = load.shrunk
    assert shrunk is not None  # a load of links
    links = np.flatnonzero(~np.isnan(load.fraction) & (truth.observed_packets > 0))
    real = truth.observed_congested[links] / truth.observed_packets[links]
    return Coverage(links, real, shrunk.value[links], shrunk.low[links], shrunk.high[links])


def coverage_sentence(evidence: FigureData) -> tuple[str, bool]:
    """How many intervals hold the truth, against the 95 % they promise, and whether too few do.

    Too few are more than chance explains: below 95 % by two standard deviations of a share.
    """
    parts, short = [], False
    counted = (
        ("links by their own samples", coverage(evidence)),
        ("links with the evidence of their bundles", shown_coverage(evidence)),
    )
    for what, intervals in counted:
        assert intervals is not None  # the caller saw the truth
        met = intervals.congested
        if not met.any():
            continue
        share = float(intervals.inside[met].mean())
        chance = 2.0 * (PROMISE * (1 - PROMISE) / int(met.sum())) ** 0.5
        short = short or share < PROMISE - chance
        parts.append(f"{percent(share, 1)} of {int(met.sum()):,} {what}")
    if not parts:
        return "no link that met congestion has enough samples", False
    return f"95 % intervals that hold the truth: {'; '.join(parts)}", short
