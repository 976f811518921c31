"""Utilization of the roots of congestion trees, and whose traffic fills them.

The utilization of a root is taken over the time in which it was congested and messages of ours that
may cross it were in flight (:mod:`tailback.diagnosis.activity`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tailback.arrays import Bools, Floats, Ints
from tailback.diagnosis.activity import MessageActivity
from tailback.diagnosis.congestion_trees import CONGESTED_FRACTION, CongestedLinks, CongestionForest
from tailback.diagnosis.model import Cause
from tailback.diagnosis.topology import LinkTopology
from tailback.telemetry.estimate import (
    SUMS,
    Z95,
    capacity_bytes,
    path_excess,
    usual_excess,
    utilization,
)

FULL_UTILIZATION = 0.70
"""Smallest share of the line rate at which a root counts as filled by our own traffic (theorem
4.2). The thesis measured 93 and 102 % on links filled by its application, below 30 % on others."""

LOW_UTILIZATION = 0.30
"""Smallest congested fraction at which a root that we do not fill is attributed to other traffic.
Our own bursts also fill a link briefly: less congestion than this on a lightly used link proves
nothing."""

CHUNK_SAMPLES = 20
"""Windows are joined until a link has this many hop samples; with fewer, the time of its congestion
is unreliable."""

MIN_EQUAL_LOAD = 0.8
"""Equivalent links count as equally loaded if they carry at least this share of a link's packets on
average."""

MAX_UNEQUAL_LOAD = 0.5
"""A link differs from its equivalents if their congested fraction is at most this share of its
own."""


@dataclass(frozen=True)
class RootUtilization:
    """Measures the utilization of links of one run.

    Attributes:
        topology: The links.
        activity: When messages of ours were in flight.
        start: First picosecond of each window, shape (W,).
        end: First picosecond after it, shape (W,).
        header_bytes: Bytes on the wire per packet, in addition to its size.
        hashed: Whether packets carried a hash in place of a link.
    """

    topology: LinkTopology
    activity: MessageActivity
    start: Ints
    end: Ints
    header_bytes: int
    hashed: bool = False

    def roots(
        self,
        forest: CongestionForest,
        rows: pl.DataFrame,
        together: CongestedLinks,
        fraction: Floats,
    ) -> pl.DataFrame:
        """The roots of a forest with their utilization and verdict: the columns of ``View.roots``.

        Args:
            forest: The trees.
            rows: Samples of all our traffic in the relevant windows.
            together: Congestion in these windows.
            fraction: Congested fraction of every link, shape (L,).
        """
        held = forest.root & (forest.tree_weight > 0)
        links, weight = forest.links[held], forest.tree_weight[held]
        link_use = self._use_and_time(rows, "link", links)
        bundle_use = self._use_and_time(rows, "bundle", links)
        # The bundle has more samples and a smaller error; a link with a higher utilization than its
        # bundle shows that routing does not spread the traffic there.
        by_link = link_use[2] > bundle_use[3]
        value, error, low, high = (
            np.where(by_link, a, b) for a, b in zip(link_use[:4], bundle_use[:4], strict=True)
        )
        ours = value >= FULL_UTILIZATION
        thin = ~ours & (high < FULL_UTILIZATION) & (link_use[3] < FULL_UTILIZATION)
        clearly_congested = fraction[links] >= LOW_UTILIZATION
        apart, equals = self._among_equivalents(links, together, fraction)
        uneven = ours & by_link & (bundle_use[0] < FULL_UTILIZATION) & (equals > 1)
        own_node = self.topology.to_node[links]
        slow = thin & clearly_congested & (apart | own_node)
        verdict = np.select(
            [uneven, ours, slow, thin & clearly_congested, thin],
            ["routing", "ours", "slow", "others", "transient"],
            "unsettled",
        )
        return pl.DataFrame(
            {
                "link": links.astype(np.uint32),
                "weight": weight,
                "endpoint": self.topology.to_node[links],
                "verdict": pl.Series(verdict.tolist(), dtype=pl.String),
                "utilization": value,
                "utilization_se": error,
                "utilization_low": low,
                "utilization_high": high,
                "hot_ps": link_use[4],
                "growth": np.maximum(
                    _growth(value, error, high), _growth(link_use[0], link_use[1], link_use[3])
                ),
            }
        ).sort(["weight", "link"], descending=[True, False])

    def use(
        self, rows: pl.DataFrame, unit: str, links: Ints
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Our utilization of each link (or of its bundle) while it was congested.

        Returns:
            Share of the line rate, its standard error, and its 95 % interval.
        """
        return self._use_and_time(rows, unit, links)[:4]

    def _use_and_time(
        self, rows: pl.DataFrame, unit: str, links: Ints
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Like :meth:`use`, plus the congested time in ps with messages of ours in flight."""
        t = self.topology
        number = links if unit == "link" else t.bundle[links]
        wanted, first = np.unique(number, return_index=True)
        rate = np.array(t.rate_gbps, np.float64)
        if unit == "bundle":
            rate = np.bincount(t.bundle, weights=t.rate_gbps).astype(np.float64)[t.bundle]
        chunks = self._hot_chunks(rows, unit, wanted)
        at = np.searchsorted(wanted, chunks[unit].to_numpy())
        link = links[first[at]]
        time = self.activity.time_ps(
            link,
            self.start[chunks["first"].to_numpy()],
            self.end[chunks["last"].to_numpy()],
        )
        n = len(wanted)

        def total(values: Floats) -> Floats:
            return np.bincount(at, weights=values, minlength=n).astype(np.float64)

        def column(name: str) -> Floats:
            return total(chunks[name].cast(pl.Float64).to_numpy())

        packets, variance = column("hop_weight"), column("hop_variance")
        sums = ("hop_samples", "hop_weight", "hop_variance")
        usual = usual_excess(*(rows[name].cast(pl.Float64).to_numpy() for name in sums))
        use = utilization(
            column("hop_bytes"),
            packets,
            variance,
            path_excess(column("hop_samples"), packets, variance),
            usual,
            total(capacity_bytes(rate[link], time)),
            self.header_bytes,
            hashed=self.hashed,
        )
        back = np.searchsorted(wanted, number)
        return use[0][back], use[1][back], use[2][back], use[3][back], total(time)[back]

    def _among_equivalents(
        self, links: Ints, seen: CongestedLinks, fraction: Floats
    ) -> tuple[Bools, Ints]:
        """Links with equally loaded but uncongested equivalents, and the bundle sizes."""
        bundle = self.topology.bundle
        count = np.bincount(bundle)
        packets = np.bincount(bundle, weights=seen.packets)
        weight = np.bincount(bundle, weights=seen.weight)
        size = count[bundle[links]]
        others = np.maximum(size - 1, 1)
        other_packets = packets[bundle[links]] - seen.packets[links]
        congested = weight[bundle[links]] - seen.weight[links]
        light = np.divide(
            congested, other_packets, out=np.zeros(len(links)), where=other_packets > 0
        )
        busy = other_packets / others >= MIN_EQUAL_LOAD * seen.packets[links]
        return (size > 1) & busy & (light <= MAX_UNEQUAL_LOAD * fraction[links]), size

    def _hot_chunks(self, rows: pl.DataFrame, unit: str, wanted: Ints) -> pl.DataFrame:
        """Runs of windows in which each unit was congested, with sums over them.

        Windows are joined until a unit has :data:`CHUNK_SAMPLES` samples. For a unit that is never
        congested, the run with the highest congested fraction is kept.
        """
        keep = pl.Series(wanted, dtype=rows.schema[unit])
        each = (
            rows.filter(pl.col(unit).is_in(keep.implode()))
            .group_by(unit, "window")
            .agg(pl.col(SUMS).sum())
            .sort(unit, "window")
        )
        seen = pl.col("hop_samples").cum_sum().over(unit) - pl.col("hop_samples")
        chunks = (
            each.with_columns(chunk=seen // CHUNK_SAMPLES)
            .group_by(unit, "chunk")
            .agg(
                pl.col(SUMS).sum(),
                first=pl.col("window").min(),
                last=pl.col("window").max(),
            )
            .sort(unit, "chunk")
        )
        heat = pl.col("congested_weight") / pl.col("hop_weight").clip(lower_bound=1)
        chunks = chunks.with_columns(heat=heat)
        hottest = pl.col("heat") == pl.col("heat").max().over(unit)
        return chunks.filter((pl.col("heat") >= CONGESTED_FRACTION) | hottest)


def _growth(value: Floats, error: Floats, high: Floats) -> Floats:
    """Factor by which samples must grow to show that our utilization is below the threshold.

    Solves :func:`tailback.telemetry.estimate.count_interval` for the number of samples: one part of
    its variance is due to sampled packets, the other to missed ones; both shrink with more samples.
    0 if the interval is already below :data:`FULL_UTILIZATION`. The distance to the threshold is
    at least a quarter of it, since no number of samples separates equal values.
    """
    seen = np.maximum(value, 1e-9)
    gap = np.maximum(FULL_UTILIZATION - value, FULL_UTILIZATION / 4) / seen
    up = np.maximum(high / seen - 1.0, 1e-9)
    variance = (Z95 * error / seen) ** 2
    missed = np.maximum(up - variance / up, 0.0)
    return np.where(high < FULL_UTILIZATION, 0.0, variance / gap**2 + missed / gap)


def fullest_links(rows: pl.DataFrame, topology: LinkTopology, time_ps: float) -> dict[Cause, float]:
    """Utilization by us of the links that our traffic fills under each cause that fills any.

    The root of a congestion tree is full (theorem 4.2, Taffet 2019): a link to a node if the
    pattern is the cause, a link inside the network if the routing is, and the whole bundle of links
    if the placement is.

    Args:
        rows: Sums of samples by link.
        topology: The links.
        time_ps: Time spent communicating.

    Returns:
        The utilization of the fullest of these links or bundles, 0–1, by cause.
    """
    sent = np.zeros(topology.n_links)
    sums = rows.group_by("link").agg(pl.col("hop_bytes").sum())
    sent[sums["link"].to_numpy()] = sums["hop_bytes"].to_numpy() * 8000.0
    inside = ~(topology.from_node | topology.to_node)
    rate = np.bincount(topology.bundle, topology.rate_gbps)
    bundles = np.bincount(topology.bundle, sent) / np.maximum(rate, 1e-9)
    links = sent / topology.rate_gbps
    fullest: dict[Cause, Floats] = {
        "pattern": links[topology.to_node],
        "placement": bundles[topology.bundle[inside]],
        "routing": links[inside],
    }
    return {
        cause: min(float(busy.max(initial=0.0)) / max(time_ps, 1.0), 1.0)
        for cause, busy in fullest.items()
    }
