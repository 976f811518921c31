"""What the rules judge: congestion trees of each phase, and how full their roots are.

Phases overlap in time, so a phase's packets may wait for another phase's. Each phase therefore gets
the trees of *its* congested packets, but what is congested downstream, and what traffic a link
carries, is looked up in everything we sent in the time windows concerned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tailback.diagnose.activity import Activity
from tailback.diagnose.model import Cause, Estimate, Finding, LinkEvidence
from tailback.diagnose.topology import Bools, Floats, Ints, Topology
from tailback.diagnose.trees import (
    CONGESTED_FRACTION,
    Congestion,
    Forest,
    find_congestion,
    grow,
)
from tailback.run import Run
from tailback.telemetry.estimate import (
    SUMS,
    Selection,
    capacity_bytes,
    link_estimates,
    packets_to_settle,
    path_excess,
    select,
    utilization,
)

FILLED = 0.70
"""A root counts as filled by our own traffic from this share of the line rate on (theorem 4.2). The
thesis measured 93 and 102 % on links its application filled, under 30 % where it did not."""

DARK = 0.30
"""Congested fraction from which a root that we do not fill is put down to others. Our own bursts
fill a link for moments, too: less congestion than this on a thin link says nothing."""

CHUNK_SAMPLES = 20
"""Windows are joined until a link has so many hop samples: fewer cannot say when it was hot."""

MAX_PHASES = 12
"""Phases that get their own trees, heaviest first; the rest is judged together."""

PHASE_SHARE = 0.02
"""Share of all congested packets from which a phase gets its own trees."""

SPLIT_KEEPS = 0.80
"""Trees by phase are used when they explain this share of what trees of the whole run do."""

OPEN_SHARE = 0.25
"""Share of congested packets that may stay unsettled before a verdict can be in doubt."""

MAX_LINKS = 20
"""Links listed with a finding."""

REST = "other phases"


@dataclass(frozen=True)
class View:
    """One phase (or everything): its congestion and its trees.

    Attributes:
        name: Name of the phase, empty for the whole run, :data:`REST` for the light phases.
        own: Congestion as this phase's packets saw it.
        forest: Its trees.
        roots: ``link, weight, endpoint, verdict, utilization(_se, _low, _high)``, heaviest first;
            ``verdict`` is ``ours`` (we fill it), ``others`` (dark and thin), ``transient`` (thin,
            but not dark enough to tell from short bursts of our own) or ``unsettled``.
    """

    name: str
    own: Congestion
    forest: Forest
    roots: pl.DataFrame


class Evidence:
    """Everything the rules look at, computed once for a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.topology = Topology.of(run.tables)
        self.activity = Activity(run.tables, self.topology)
        jobs = run.tables["jobs"].filter("observed")["job"].to_list()
        samples = select(run.tables, Selection(jobs=jobs))
        inner = pl.Series("inner", np.flatnonzero(~self.topology.from_node).astype(np.uint32))
        samples = samples.filter(pl.col("link").is_in(inner.implode()))
        self.received = int(samples["hop_samples"].sum())
        bundles = pl.DataFrame(
            {"link": np.arange(self.topology.n_links, dtype=np.uint32),
             "bundle": self.topology.bundle}
        )  # fmt: skip
        self._rows = (
            samples.group_by("window", "phase", "link")
            .agg(pl.col(SUMS).sum())
            .join(bundles, on="link", how="inner")
            .sort("window", "phase", "link")
        )
        windows = run.tables["windows"].sort("window")
        self._start = windows["start_ps"].cast(pl.Int64).to_numpy()
        self._end = windows["end_ps"].cast(pl.Int64).to_numpy()
        self.whole = self._congestion(self._rows)
        self.congested_packets = float(self.whole.weight.sum())
        self.views = self._grow_views()

    # --- what there is -----------------------------------------------------------------------

    @cached_property
    def phase_weight(self) -> dict[str, float]:
        """Congested packets of each phase, heaviest first."""
        frame = self._rows.group_by("phase").agg(pl.col("congested_weight").sum())
        ordered = frame.sort(["congested_weight", "phase"], descending=[True, False])
        return {name: float(weight) for name, weight in ordered.iter_rows() if weight > 0}

    @cached_property
    def overall(self) -> Estimate:
        """Congested packet-hops over packet-hops, of all our traffic."""
        if not self._rows.height:
            return Estimate(value=0.0, standard_error=0.0, low=0.0, high=1.0)
        row = link_estimates(self._rows.with_columns(all=pl.lit(0)), ("all",)).row(0, named=True)
        return _estimate(
            row["fraction"], row["fraction_se"], row["fraction_low"], row["fraction_high"]
        )

    @cached_property
    def communication_fraction(self) -> float:
        """Share of rank time blocked in communication, over observed ranks."""
        jobs = self.run.tables["jobs"].filter("observed")["job"]
        ranks = self.run.tables["ranks"].filter(pl.col("job").is_in(jobs.implode()))
        total = float(ranks["finish_ps"].sum())
        return min(float(ranks["wait_ps"].sum()) / total, 1.0) if total > 0 else 0.0

    @cached_property
    def roots(self) -> pl.DataFrame:
        """Roots of all views: the columns of :attr:`View.roots` and ``phase``."""
        frames = [view.roots.with_columns(phase=pl.lit(view.name)) for view in self.views]
        return pl.concat(frames).sort(["weight", "link"], descending=[True, False])

    def share(self, roots: pl.DataFrame) -> float:
        """Share of all congested packets that the trees of ``roots`` hold, 0–1."""
        if self.congested_packets <= 0:
            return 0.0
        return min(float(roots["weight"].sum()) / self.congested_packets, 1.0)

    # --- how it is computed ------------------------------------------------------------------

    def _congestion(self, rows: pl.DataFrame) -> Congestion:
        return find_congestion(
            self.topology, link_estimates(rows), link_estimates(rows, ("bundle",))
        )

    def _grow_views(self) -> list[View]:
        whole = self._view("", self._rows)
        heavy = [
            name
            for name, weight in self.phase_weight.items()
            if weight >= PHASE_SHARE * self.congested_packets
        ][:MAX_PHASES]
        if len(self.phase_weight) < 2 or not heavy:
            name = next(iter(self.phase_weight), "")
            return [View(name, whole.own, whole.forest, whole.roots)]
        names = pl.Series(heavy)
        views = [self._view(name, self._rows.filter(pl.col("phase") == name)) for name in heavy]
        rest = self._rows.filter(~pl.col("phase").is_in(names.implode()))
        if rest["congested_weight"].sum() > 0:
            views.append(self._view(REST, rest))
        split = sum(view.forest.attributed for view in views)
        return views if split >= SPLIT_KEEPS * whole.forest.attributed else [whole]

    def _view(self, name: str, rows: pl.DataFrame) -> View:
        own = self._congestion(rows)
        hot = rows.filter(pl.col("congested_weight") > 0)["window"].unique()
        around = self._rows.filter(pl.col("window").is_in(hot.implode()))
        together = own if not name else self._congestion(around)
        congested = own.congested | together.congested
        fraction = np.where(own.congested, own.fraction, together.fraction)
        inputs = (self.topology, congested, fraction, together.packets, own.weight)
        filled = np.zeros(self.topology.n_links, np.bool_)
        inner = np.flatnonzero(congested)
        if len(inner):
            filled[inner] = self._use(around, "bundle", inner)[2] >= FILLED
        forest = grow(*inputs, filled=filled)
        roots = self._measure_roots(forest, around, fraction)
        # Before others are blamed, every congested link of ours further on is considered.
        thin = roots.filter(pl.col("verdict").is_in(["others", "transient"]))["link"]
        if thin.len():
            concentrated = np.zeros(self.topology.n_links, np.bool_)
            concentrated[thin.to_numpy()] = True
            forest = grow(*inputs, concentrated, filled)
            roots = self._measure_roots(forest, around, fraction)
        return View(name, own, forest, roots)

    def _measure_roots(self, forest: Forest, rows: pl.DataFrame, fraction: Floats) -> pl.DataFrame:
        held = forest.root & (forest.tree_weight > 0)
        links, weight = forest.links[held], forest.tree_weight[held]
        link_use = self._use(rows, "link", links)
        bundle_use = self._use(rows, "bundle", links)
        # The bundle is the better measure, having more samples; a link fuller than its bundle shows
        # that routing does not spread the traffic there.
        by_link = link_use[2] > bundle_use[3]
        value, error, low, high = (
            np.where(by_link, a, b) for a, b in zip(link_use, bundle_use, strict=True)
        )
        ours = value >= FILLED
        thin = ~ours & (high < FILLED) & (link_use[3] < FILLED)
        dark = fraction[links] >= DARK
        verdict = np.select([ours, thin & dark, thin], ["ours", "others", "transient"], "unsettled")
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
            }
        ).sort(["weight", "link"], descending=[True, False])

    def _use(
        self, rows: pl.DataFrame, unit: str, links: Ints
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Utilization of each link (or its bundle) in the time it was congested."""
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
            self._start[chunks["first"].to_numpy()],
            self._end[chunks["last"].to_numpy()],
        )
        n = len(wanted)

        def total(values: Floats) -> Floats:
            return np.bincount(at, weights=values, minlength=n).astype(np.float64)

        def column(name: str) -> Floats:
            return total(chunks[name].cast(pl.Float64).to_numpy())

        packets, variance = column("hop_weight"), column("hop_variance")
        use = utilization(
            column("hop_bytes"),
            packets,
            variance,
            path_excess(column("hop_samples"), packets, variance),
            total(capacity_bytes(rate[link], time)),
            self.run.scenario.engine.header,
        )
        back = np.searchsorted(wanted, number)
        return use[0][back], use[1][back], use[2][back], use[3][back]

    def _hot_chunks(self, rows: pl.DataFrame, unit: str, wanted: Ints) -> pl.DataFrame:
        """Stretches of windows in which each unit was congested, with sums over them.

        Windows are joined until a unit has :data:`CHUNK_SAMPLES` samples. Of a unit that is hot in
        no stretch, the hottest one stands.
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

    # --- how sure ----------------------------------------------------------------------------

    @cached_property
    def unsure(self) -> Bools:
        """Links with traffic of ours whose samples do not settle whether they are congested."""
        w = self.whole
        return ~w.decided & (w.packets + w.weight > 0) & ~self.topology.from_node

    @cached_property
    def links_seen(self) -> int:
        """Links with at least one hop sample."""
        return int((self.whole.samples > 0).sum())

    @cached_property
    def links_sure(self) -> int:
        """Of them, links whose samples settle whether they are congested."""
        return int(((self.whole.samples > 0) & ~self.unsure).sum())

    @cached_property
    def unsure_share(self) -> float:
        """Share of congested packets on links, or held by roots, that samples do not settle."""
        if self.congested_packets <= 0:
            return 0.0
        open_roots = self.roots.filter(pl.col("verdict") == "unsettled")
        weight = float(self.whole.weight[self.unsure].sum()) + float(open_roots["weight"].sum())
        return min(weight / self.congested_packets, 1.0)

    @cached_property
    def cause_shares(self) -> dict[Cause, float]:
        """Share of all congested packets in trees of each cause, as the roots tell it."""
        ours, inside = pl.col("verdict") == "ours", ~pl.col("endpoint")
        return {
            "pattern": self.share(self.roots.filter(ours & ~inside)),
            "placement": self.share(self.roots.filter(ours & inside)),
            "other-traffic": self.share(self.roots.filter(pl.col("verdict") == "others")),
        }

    @cached_property
    def open_matters(self) -> bool:
        """True when what the samples leave open could change which cause is the heaviest."""
        first, second, *_ = sorted(self.cause_shares.values(), reverse=True)
        return self.unsure_share > max(OPEN_SHARE, first - second)

    def packets_wanting(self) -> int:
        """Further packets that would settle three quarters of what the samples leave open.

        From the variance formulas: a link needs :func:`packets_to_settle` packets, a root
        ``z² (l−1) u² / (u − FILLED)²``; the run must grow by what the most of them lack.
        """
        w, at = self.whole, self.unsure
        need = packets_to_settle(
            w.fraction[at], CONGESTED_FRACTION, w.congested_excess[at], w.hop_excess[at]
        )
        growth, weight = need / np.maximum(w.packets[at], 1.0), w.weight[at] + 1e-9 * w.packets[at]
        roots = self.roots.filter(pl.col("verdict") == "unsettled")
        value = roots["utilization"].to_numpy()
        spread = roots["utilization_se"].to_numpy() * 1.96
        gap = np.maximum(np.abs(value - FILLED), FILLED / 4)
        growth = np.concatenate([growth, (spread / gap) ** 2, [1.0]])
        weight = np.concatenate([weight, roots["weight"].to_numpy(), [0.0]])
        order = np.argsort(growth)
        reached = np.cumsum(weight[order]) >= 0.75 * weight.sum()
        factor = max(float(growth[order][np.argmax(reached)]), 1.25)
        return int(np.ceil((factor - 1.0) * max(self.received, 1)))

    # --- what it looks like in a diagnosis ---------------------------------------------------

    def link_evidence(self, link: int, root: dict[str, float] | None = None) -> LinkEvidence:
        """The evidence of one link; ``root`` is its row of :attr:`View.roots`, if it is one."""
        t, w = self.topology, self.whole
        if root is None:
            use = self._use(self._rows, "link", np.array([link]))
            value, error, low, high = (float(x[0]) for x in use)
        else:
            value, error = root["utilization"], root["utilization_se"]
            low, high = root["utilization_low"], root["utilization_high"]
        trees = [v.forest for v in self.views if link in v.forest.links]
        return LinkEvidence(
            link=link,
            name=t.name[link],
            tier=int(t.tier[link]),
            direction={1: "up", 0: "flat", -1: "down"}[int(t.direction[link])],
            phase=self._phase_of(link),
            utilization=_estimate(value, error, low, high),
            congested_fraction=_estimate(
                w.fraction[link], self._fraction_error(link), w.low[link], w.high[link]
            ),
            samples=int(w.samples[link]),
            tree_links=max((len(forest.waiting(link)) for forest in trees), default=0),
        )

    def finding(
        self,
        code: str,
        cause: Cause,
        title: str,
        explanation: str,
        roots: pl.DataFrame,
        advice: str,
    ) -> Finding:
        """Make the finding that rests on ``roots`` (rows of :attr:`roots`)."""
        by_phase = roots.group_by("phase").agg(pl.col("weight").sum())
        by_phase = by_phase.sort(["weight", "phase"], descending=[True, False])
        heaviest = roots.unique("link", keep="first", maintain_order=True).head(MAX_LINKS)
        return Finding.model_validate(
            {
                "code": code,
                "cause": cause,
                "title": title,
                "explanation": explanation,
                "share": self.share(roots),
                "phases": [name for name in by_phase["phase"] if name],
                "links": [
                    self.link_evidence(int(row["link"]), row)
                    for row in heaviest.iter_rows(named=True)
                ],
                "advice": advice,
            }
        )

    def top_links(self, count: int) -> list[LinkEvidence]:
        """The links that held the most congested packets of ours."""
        order = np.argsort(-self.whole.weight, kind="stable")[:count]
        known = {int(row["link"]): row for row in self.roots.reverse().iter_rows(named=True)}
        return [
            self.link_evidence(int(link), known.get(int(link)))
            for link in order
            if self.whole.weight[link] > 0
        ]

    @cached_property
    def _heaviest_phase(self) -> dict[int, str]:
        frame = self._rows.group_by("link", "phase").agg(
            pl.col("congested_weight").sum(), pl.col("hop_weight").sum()
        )
        order = ["link", "congested_weight", "hop_weight", "phase"]
        frame = frame.sort(order, descending=[False, True, True, False])
        first = frame.unique("link", keep="first", maintain_order=True)
        return dict(zip(first["link"].to_list(), first["phase"].to_list(), strict=True))

    def _phase_of(self, link: int) -> str:
        return self._heaviest_phase.get(link, "")

    def _fraction_error(self, link: int) -> float:
        w = self.whole
        n = max(float(w.packets[link]), 1.0)
        f = float(w.fraction[link])
        variance = f * float(w.congested_excess[link]) + f * f * float(w.hop_excess[link])
        return float(np.sqrt(variance / n))


def _estimate(value: float, error: float, low: float, high: float) -> Estimate:
    """An estimate of a share: what sampling noise puts beyond 1 is shown as 1."""
    return Estimate(
        value=min(float(value), 1.0),
        standard_error=float(error),
        low=min(float(low), 1.0),
        high=min(float(high), 1.0),
    )


def phases_of(roots: pl.DataFrame, evidence: Evidence) -> list[str]:
    """Names of the phases of ``roots``, heaviest first; all phases where they are not split."""
    names = roots["phase"].unique(maintain_order=True).to_list()
    if "" in names or REST in names:
        return list(evidence.phase_weight)
    return [str(name) for name in names]
