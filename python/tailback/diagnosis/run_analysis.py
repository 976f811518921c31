"""Input of the rules: congestion trees of each phase and the utilization of their roots.

Phases overlap in time, so packets of one phase may wait for those of another. Each phase has trees
of *its own* congested packets, but downstream congestion and link traffic come from all our packets
in the same time windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from tailback.arrays import Bools, Floats, Ints
from tailback.diagnosis.activity import MessageActivity
from tailback.diagnosis.adapter_load import AdapterLoad, adapter_load, slow_adapter
from tailback.diagnosis.cable_search import CandidatePaths
from tailback.diagnosis.congestion_trees import (
    CONGESTED_FRACTION,
    MIN_SAMPLES,
    CongestedLinks,
    CongestionForest,
    build_forest,
    find_congested_links,
)
from tailback.diagnosis.message_delays import MessageDelays, message_delays
from tailback.diagnosis.model import Cause, Estimate, Finding, LinkEvidence
from tailback.diagnosis.root_utilization import FULL_UTILIZATION, RootUtilization, fullest_links
from tailback.diagnosis.slow_link_checks import (
    explains_delays,
    slow_ejection_links,
    slower_than_equivalents,
)
from tailback.diagnosis.topology import LinkTopology
from tailback.fabric.model import Fabric
from tailback.run.run import Run
from tailback.scenario.model import OWN_FIELDS
from tailback.telemetry.estimate import (
    SUMS,
    Selection,
    contrast_excess,
    link_estimates,
    packets_to_settle,
    select,
)
from tailback.telemetry.header_counts import NOISY_AT_ZERO, ONE_RESERVOIR

MAX_PHASES = 12
"""Number of phases with their own trees, heaviest first; the others share one analysis."""

PHASE_SHARE = 0.02
"""Smallest share of all congested packets at which a phase gets its own trees."""

MIN_SPLIT_COVERAGE = 0.80
"""Trees by phase are used if they account for at least this share of the congested packets that
trees of the whole run account for."""

MAX_UNSETTLED_SHARE = 0.25
"""Share of congested packets that may remain unsettled without putting the verdict in doubt."""

MAX_LINKS = 20
"""Maximum number of links listed with a finding."""

MAX_ACCUSED = 2
"""Maximum number of congested links that a headline names if no cause is sure."""

OTHER_PHASES = "other phases"

ROOT_KIND_OF_CAUSE: dict[Cause, str] = {
    "pattern": "ours",
    "placement": "ours",
    "routing": "routing",
    "slow-link": "slow",
    "other-traffic": "others",
}
"""Verdict on roots that supports each cause; for our own traffic, roots at endpoints mean pattern,
others placement."""


@dataclass(frozen=True)
class PhaseAnalysis:
    """Congestion and trees of one phase, or of the whole run.

    Attributes:
        name: Name of the phase, empty for the whole run, :data:`OTHER_PHASES` for the light phases.
        congestion: Congestion experienced by the packets of this phase.
        forest: Its trees.
        roots: ``link, weight, endpoint, verdict, utilization(_se, _low, _high)``, heaviest first;
            ``verdict`` is ``ours`` (we fill it), ``routing`` (we do, and its equivalents together
            are not full), ``others`` (congested, not by us), ``slow`` (and provably slower than
            equivalent links: :mod:`tailback.diagnosis.slow_link_checks`), ``transient`` (too little
            congestion to distinguish from our short bursts) or ``unsettled``. ``hot_ps`` is
            the time it was congested while messages of ours that may cross it were in flight,
            ``growth`` the factor by which samples must grow to show that we do not fill it.
    """

    name: str
    congestion: CongestedLinks
    forest: CongestionForest
    roots: pl.DataFrame


class RunAnalysis:
    """All input of the rules, computed once for a run."""

    def __init__(self, run: Run, network: SimulatedNetwork | None = None) -> None:
        """Analyse ``run``; ``network``: what it is known to contain, if it is an expected run."""
        self.run = run
        self.network = network
        self.topology = LinkTopology.of(run)
        self.activity = MessageActivity(run.tables, self.topology)
        jobs = run.tables["jobs"].filter("observed")["job"].to_list()
        samples = select(run.tables, Selection(jobs=jobs))
        inner = pl.Series("inner", np.flatnonzero(~self.topology.from_node).astype(np.uint32))
        samples = samples.filter(pl.col("link").is_in(inner.implode()))
        self.scheme = run.scenario.telemetry.scheme
        self._shared = self.scheme in ONE_RESERVOIR
        self.received = self._received(samples)
        rows = sums_by_window(samples, self.topology.n_links)
        bundle = self.topology.bundle[rows["link"].to_numpy()]
        self._rows = rows.with_columns(bundle=pl.Series(bundle))
        windows = run.tables["windows"].sort("window")
        self._start = windows["start_ps"].cast(pl.Int64).to_numpy()
        self._end = windows["end_ps"].cast(pl.Int64).to_numpy()
        served = network.with_served_rates(self.topology) if network else self.topology
        self._measure = RootUtilization(
            served,
            self.activity,
            self._start,
            self._end,
            run.scenario.packet_header_bytes,
            self.hashed,
        )
        self.whole = self._congestion(self._rows)
        self.congested_packets = float(self.whole.weight.sum())
        self.views = self._grow_views()

    # --- recorded data -----------------------------------------------------------------------

    def _received(self, samples: pl.DataFrame) -> int:
        """Number of packets that arrived with a sample."""
        if self.scheme in OWN_FIELDS:
            # Every packet counts at all hops, of which one leads to its node.
            last = pl.Series(np.flatnonzero(self.topology.to_node).astype(np.uint32))
            samples = samples.filter(pl.col("link").is_in(last.implode()))
        return int(samples["hop_samples"].sum())

    @property
    def crosses(self) -> bool:
        """Whether any of our messages crosses a switch; False if all stay within hosts.

        True if the run has no such record.
        """
        return float(self.run.summary.get("average_path_length", 1.0)) > 0.0

    @property
    def captured(self) -> bool:
        """Whether the run is a packet capture, without information on the sending ranks."""
        return self.run.summary.get("source") == "capture"

    @property
    def hashed(self) -> bool:
        """Whether counts vary on links without congestion, as those of link hashes do."""
        return self.scheme in NOISY_AT_ZERO

    @cached_property
    def phase_weight(self) -> dict[str, float]:
        """Congested packets of each phase, heaviest first."""
        frame = self._rows.group_by("phase").agg(pl.col("congested_weight").sum())
        ordered = frame.sort(["congested_weight", "phase"], descending=[True, False])
        return {name: float(weight) for name, weight in ordered.iter_rows() if weight > 0}

    @cached_property
    def overall(self) -> Estimate:
        """Congested packet-hops over packet-hops of all our traffic; exact if all were counted."""
        if not self._rows.height:
            return Estimate(value=0.0, standard_error=0.0, low=0.0, high=1.0)
        everything = self._rows.with_columns(all=pl.lit(0))
        row = self._estimates(everything, "all").row(0, named=True)
        if self._every_hop_counted:
            return Estimate.of_share(row["fraction"], 0.0, row["fraction"], row["fraction"])
        return Estimate.of_share(
            row["fraction"], row["fraction_se"], row["fraction_low"], row["fraction_high"]
        )

    @property
    def _every_hop_counted(self) -> bool:
        """Whether packets carry their hop and congested-hop counts in addition to a sampled link.

        Scheme ``full`` counts both (section 3.2): over all links their sums are no estimates.
        """
        telemetry = self.run.scenario.telemetry
        if self.scheme != "full" or telemetry.count_injection or telemetry.stamping != "all":
            return False
        sent = self.run.summary.get("observed_packets")
        if self.run.tables["messages"].height:
            # Messages between ranks of one host carry no sample.
            labels = self.run.tables["labels"].join(
                self.run.tables["jobs"].filter("observed"), on="job", how="semi"
            )
            crossing = self.run.tables["messages"].join(labels, on="label", how="semi")
            sent = crossing.filter(pl.col("switch_hops") > 0)["packets"].sum()
        return self.received == sent

    @property
    def undecoded(self) -> bool:
        """Whether packets arrived with headers that cannot be decoded."""
        packets = self.run.tables.get("packets")
        return not self.received and packets is not None and packets.height > 0

    @cached_property
    def communication_fraction(self) -> float:
        """Share of rank time blocked in communication, over observed ranks."""
        jobs = self.run.tables["jobs"].filter("observed")["job"]
        ranks = self.run.tables["ranks"].filter(pl.col("job").is_in(jobs.implode()))
        # Time before a job starts is excluded.
        start = dict(enumerate(job.start for job in self.run.scenario.job))
        began = ranks["job"].replace_strict(start, default=0, return_dtype=pl.Int64)
        finish = ranks["finish_ps"].cast(pl.Int64)
        if not self.run.complete:
            # Ranks that have not finished were still running.
            finish = finish.replace(0, int(self.run.summary.get("end_ps", self.run.elapsed_ps)))
        total = float((finish - began).clip(lower_bound=0).sum())
        return min(float(ranks["wait_ps"].sum()) / total, 1.0) if total > 0 else 0.0

    @cached_property
    def adapters(self) -> AdapterLoad:
        """Bytes that each node sends, and the rates it reaches."""
        return adapter_load(self.run)

    @cached_property
    def losses(self) -> MessageDelays | None:
        """Where our messages lost time according to the message log; None without one."""
        return message_delays(self.run, self.topology)

    @cached_property
    def slow_node(self) -> int | None:
        """Our only node with a slower cable than all others; None if there is none.

        Static routes may put all flows of a healthy node on busy links. With static routes, the
        cable must therefore also explain which messages are late.
        """
        node = slow_adapter(self.adapters)
        if node is not None and self.network is not None:
            cables = self.topology.src[list(self.network.slow_gbps)]
            return node if node in cables else None
        if node is None or self.run.scenario.engine.routing not in ("deterministic", "ecmp"):
            return node
        links = np.flatnonzero(self.topology.src == node)
        return node if explains_delays(links, self._explained).any() else None

    def candidate_paths(self, messages: pl.DataFrame) -> CandidatePaths:
        """Candidate paths of messages with columns ``src, dst, took, expected``."""
        used = (self.whole.packets > 0) | self.topology.from_node
        return CandidatePaths(self.topology, self.reverses, used, messages)

    @property
    def one_cable(self) -> float:
        """Largest share of message delays inside the network that one slow cable explains, 0–1."""
        return float(self._explained.max(initial=0.0))

    @property
    def only_cable(self) -> float:
        """How much less than that any cable on other paths explains, as a share of it, 0–1."""
        best, bundle = int(self._explained.argmax()), self.topology.bundle
        same = np.isin(bundle, [bundle[best], bundle[self.reverse(best)]])
        others = self._explained[~(same | same[self.reverses])]
        return 1.0 - float(others.max(initial=0.0)) / self.one_cable if self.one_cable else 0.0

    def explained(self, link: int) -> float:
        """Share of these delays that the cable of a link explains, 0–1."""
        return float(self._explained[link])

    @cached_property
    def _explained(self) -> Floats:
        """The same for all links, shape (L,); 0 without a message log."""
        if self.losses is None:
            return np.zeros(self.topology.n_links)
        return self.candidate_paths(self.losses.messages).explained

    @cached_property
    def wire_share(self) -> float:
        """Share of the observed time that the busiest adapter needs at its line rate."""
        busiest = float(self.adapters.wire_ps.max(initial=0.0))
        return busiest / self.run.elapsed_ps if self.run.elapsed_ps > 0 else 0.0

    @cached_property
    def adapter_share(self) -> float:
        """The same, to send or to receive its data."""
        return max(self.wire_share, self.receive_ps / max(self.run.elapsed_ps, 1))

    @cached_property
    def receive_ps(self) -> int:
        """Time that the busiest adapter needs to receive its data at line rate, ps."""
        return round(float(self.adapters.took_ps.max(initial=0.0)))

    @cached_property
    def roots(self) -> pl.DataFrame:
        """Roots of all views: the columns of :attr:`PhaseAnalysis.roots` and ``phase``."""
        frames = [view.roots.with_columns(phase=pl.lit(view.name)) for view in self.views]
        return pl.concat(frames).sort(["weight", "link"], descending=[True, False])

    def share(self, roots: pl.DataFrame) -> float:
        """Share of all congested packets in the trees of ``roots``, 0–1."""
        if self.congested_packets <= 0:
            return 0.0
        return min(float(roots["weight"].sum()) / self.congested_packets, 1.0)

    # --- computation -------------------------------------------------------------------------

    def _congestion(self, rows: pl.DataFrame) -> CongestedLinks:
        both = (self._estimates(rows, by) for by in ("link", "bundle"))
        return find_congested_links(self.topology, *both)

    def _estimates(self, rows: pl.DataFrame, by: str) -> pl.DataFrame:
        return link_estimates(rows, (by,), self.hashed, shared=self._shared)

    def _grow_views(self) -> list[PhaseAnalysis]:
        whole_run = self._view("", self._rows)
        heavy = [
            name
            for name, weight in self.phase_weight.items()
            if weight >= PHASE_SHARE * self.congested_packets
        ][:MAX_PHASES]
        if len(self.phase_weight) < 2 or not heavy:
            name = next(iter(self.phase_weight), "")
            return [PhaseAnalysis(name, whole_run.congestion, whole_run.forest, whole_run.roots)]
        names = pl.Series(heavy)
        views = [self._view(name, self._rows.filter(pl.col("phase") == name)) for name in heavy]
        other_rows = self._rows.filter(~pl.col("phase").is_in(names.implode()))
        if other_rows["congested_weight"].sum() > 0:
            views.append(self._view(OTHER_PHASES, other_rows))
        split = sum(view.forest.attributed for view in views)
        return views if split >= MIN_SPLIT_COVERAGE * whole_run.forest.attributed else [whole_run]

    def _view(self, name: str, rows: pl.DataFrame) -> PhaseAnalysis:
        congestion = self._congestion(rows)
        hot = rows.filter(pl.col("congested_weight") > 0)["window"].unique()
        around = self._rows.filter(pl.col("window").is_in(hot.implode()))
        together = congestion if not name else self._congestion(around)
        congested = congestion.congested | together.congested
        fraction = np.where(congestion.congested, congestion.fraction, together.fraction)
        slow = self._filled_slow_links(around)
        congested[slow], fraction[slow] = True, 1.0
        inputs = (self.topology, congested, fraction, together.packets, congestion.weight)
        filled = np.zeros(self.topology.n_links, np.bool_)
        inner = np.flatnonzero(congested)
        if len(inner):
            filled[inner] = self._measure.use(around, "bundle", inner)[2] >= FULL_UTILIZATION
        forest = build_forest(*inputs, filled=filled)
        roots = self._measure.roots(forest, around, together, fraction)
        # A root is attributed to other traffic only if no congested link downstream explains it.
        thin = roots.filter(pl.col("verdict").is_in(["others", "slow", "transient"]))["link"]
        if thin.len():
            concentrated = np.zeros(self.topology.n_links, np.bool_)
            concentrated[thin.to_numpy()] = True
            forest = build_forest(*inputs, concentrated, filled)
            roots = self._measure.roots(forest, around, together, fraction)
        roots = self._confirm_slow(roots, together)
        return PhaseAnalysis(
            name, congestion, forest, self.network.corrected(roots) if self.network else roots
        )

    def _filled_slow_links(self, rows: pl.DataFrame) -> Ints:
        """Links known to be slow that our traffic fills at the rate at which they serve.

        Others wait for them even where small buffers keep their own queues short.
        """
        if self.network is None:
            return np.zeros(0, np.int64)
        links = np.array([n for n in self.network.slow_gbps if self.whole.packets[n] > 0], np.int64)
        return links[self._measure.use(rows, "link", links)[0] >= FULL_UTILIZATION]

    def _confirm_slow(self, roots: pl.DataFrame, together: CongestedLinks) -> pl.DataFrame:
        """Keep verdict ``slow`` only for links proved slow; reclassify the others."""
        suspects = roots.filter(pl.col("verdict") == "slow")
        if not suspects.height:
            return roots
        t, links = self.topology, suspects["link"].to_numpy().astype(np.int64)
        slow = slow_ejection_links(t, links, self.adapters)
        inner = ~t.to_node[links]
        if inner.any():
            slow |= inner & slower_than_equivalents(t, links, together, self._explained)
        # No other job sends to our nodes, so only our own bursts remain.
        verdict = np.select([slow, inner], ["slow", "others"], "transient").tolist()
        verdict_of = dict(zip(links.tolist(), verdict, strict=True))
        proved = pl.col("link").replace_strict(verdict_of, default=None, return_dtype=pl.String)
        return roots.with_columns(verdict=pl.coalesce(proved, "verdict"))

    # --- uncertainty -------------------------------------------------------------------------

    @cached_property
    def unsure(self) -> Bools:
        """Links with our traffic whose samples do not settle whether they are congested."""
        w = self.whole
        open_ = ~w.decided
        if self.scheme == "csig":
            # Congestion may hide behind more congested links; only its presence is certain.
            open_ = open_ | ~w.congested
        return open_ & (w.packets + w.weight > 0) & ~self.topology.from_node

    @cached_property
    def links_seen(self) -> int:
        """Links with at least one hop sample."""
        return int((self.whole.samples > 0).sum())

    @cached_property
    def links_sure(self) -> int:
        """Number of those links whose samples settle whether they are congested."""
        return int(((self.whole.samples > 0) & ~self.unsure).sum())

    @cached_property
    def unsure_share(self) -> float:
        """Share of congested packets on links, or charged to roots, that remain unsettled."""
        if self.congested_packets <= 0:
            return 0.0
        open_roots = self.roots.filter(pl.col("verdict") == "unsettled")
        weight = float(self.whole.weight[self.unsure].sum()) + float(open_roots["weight"].sum())
        return min(weight / self.congested_packets, 1.0)

    @cached_property
    def cause_shares(self) -> dict[Cause, float]:
        """Share of all congested packets in the trees of each cause, by their roots."""
        return {
            cause: self.share(self.roots.filter(_of_cause(cause))) for cause in ROOT_KIND_OF_CAUSE
        }

    def burden(self, cause: Cause) -> tuple[float, float]:
        """Estimate the cost of a cause from samples.

        Returns:
            The share of congested packets in its trees, weighted by the share of the run in which
            each root was congested; and the largest of these shares of the run. A cause delays no
            rank while none of its roots is congested, so its cost is at most the latter times the
            number of roots that are congested one after another.
        """
        roots = self.roots.filter(_of_cause(cause))
        if not roots.height or self.congested_packets <= 0 or self.run.elapsed_ps <= 0:
            return 0.0, 0.0
        hot = roots["hot_ps"].to_numpy() / self.run.elapsed_ps
        weight = roots["weight"].to_numpy() / self.congested_packets
        return float((hot * weight).sum()), float(hot.max())

    @cached_property
    def filled(self) -> dict[Cause, float]:
        """How full we keep the links that our traffic fills under a cause, while communicating."""
        time_ps = self.communication_fraction * self.run.elapsed_ps
        return fullest_links(self._rows, self.topology, time_ps)

    @cached_property
    def uncertainty_matters(self) -> bool:
        """Whether the unsettled packets could change which cause has the largest share."""
        first, second, *_ = sorted(self.cause_shares.values(), reverse=True)
        return self.unsure_share > max(MAX_UNSETTLED_SHARE, first - second)

    def most_uncertain(self) -> tuple[str, list[int]]:
        """The phase and up to 3 links for which more samples would settle the most packets.

        Weighted by congested packets: links not known to be congested or uncongested, and roots
        not known to be filled by our own or other traffic.
        """
        weight = np.where(self.unsure, self.whole.weight, 0.0)
        open_roots = self.roots.filter(pl.col("verdict") == "unsettled")
        np.add.at(weight, open_roots["link"].to_numpy(), open_roots["weight"].to_numpy())
        order = np.argsort(-weight, kind="stable")[:3]
        links = [int(link) for link in order if weight[link] > 0]
        return (self._phase_of(links[0]) if links else ""), links

    def packets_needed(self) -> int:
        """Further packets that would settle three quarters of the unsettled ones.

        From the variance formulas: a link needs :func:`packets_to_settle` packets, and at least
        :data:`MIN_SAMPLES` samples. A root needs enough samples for the upper bound of our
        utilization of it, and of its bundle, to fall below :data:`FULL_UTILIZATION`. The run must
        grow by the largest factor required for any of these.
        """
        w, at = self.whole, self.unsure
        need = packets_to_settle(
            w.fraction[at],
            CONGESTED_FRACTION,
            w.congested_excess[at],
            w.hop_excess[at],
            hashed=self.hashed,
            shared=self._shared,
        )
        growth, weight = need / np.maximum(w.packets[at], 1.0), w.weight[at] + 1e-9 * w.packets[at]
        growth = np.maximum(growth, MIN_SAMPLES / np.maximum(w.samples[at], 1.0))
        roots = self.roots.filter(pl.col("verdict") == "unsettled")
        growth = np.concatenate([growth, roots["growth"].to_numpy(), [1.0]])
        weight = np.concatenate([weight, roots["weight"].to_numpy(), [0.0]])
        order = np.argsort(growth)
        reached = np.cumsum(weight[order]) >= 0.75 * weight.sum()
        factor = max(float(growth[order][np.argmax(reached)]), 1.25)
        return int(np.ceil((factor - 1.0) * max(self.received, 1)))

    # --- presentation in a diagnosis ---------------------------------------------------------

    def link_evidence(self, link: int, root: dict[str, float] | None = None) -> LinkEvidence:
        """The evidence of one link; ``root`` is its row of :attr:`PhaseAnalysis.roots`."""
        t, w = self.topology, self.whole
        if root is None:
            use = self._measure.use(self._rows, "link", np.array([link]))
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
            utilization=Estimate.of_share(value, error, low, high),
            congested_fraction=Estimate.of_share(
                w.fraction[link], self._fraction_error(link), w.low[link], w.high[link]
            ),
            samples=int(w.samples[link]),
            tree_links=max((len(forest.waiting(link)) for forest in trees), default=0),
            flat_direction=t.flat_direction[link] if t.flat_direction else "",
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
        """Build a finding based on ``roots`` (rows of :attr:`roots`)."""
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

    def reverse(self, link: int) -> int:
        """The opposite link of the same cable."""
        return int(self.reverses[link])

    @cached_property
    def reverses(self) -> Ints:
        """The opposite link of the same cable, for every link, shape (L,)."""
        return self.run.tables["links"].sort("link")["reverse"].cast(pl.Int64).to_numpy()

    def top_links(self, count: int) -> list[LinkEvidence]:
        """The links with the most congested packets of our job."""
        order = np.argsort(-self.whole.weight, kind="stable")[:count]
        root_rows = {int(row["link"]): row for row in self.roots.reverse().iter_rows(named=True)}
        return [
            self.link_evidence(int(link), root_rows.get(int(link)))
            for link in order
            if self.whole.weight[link] > 0
        ]

    @property
    def accused(self) -> tuple[str, ...]:
        """The links that samples surely show congested, most congested first."""
        links = sorted(self.top_links(MAX_LINKS), key=lambda link: -link.congested_fraction.low)
        sure = [link.name for link in links if link.congested_fraction.low > CONGESTED_FRACTION]
        return tuple(sure[:MAX_ACCUSED])

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
        a, b = w.congested_excess[[link]], w.hop_excess[[link]]
        variance = f * a[0] + f * f * contrast_excess(b, a, shared=self._shared)[0]
        return float(np.sqrt(max(variance, 0.0) / n))


def _of_cause(cause: Cause) -> pl.Expr:
    """Rows of :attr:`RunAnalysis.roots` that support a cause."""
    mine = pl.col("verdict") == ROOT_KIND_OF_CAUSE[cause]
    if cause == "pattern":
        return mine & pl.col("endpoint")
    return mine & ~pl.col("endpoint") if cause == "placement" else mine


def phases_of(roots: pl.DataFrame, evidence: RunAnalysis) -> list[str]:
    """Names of the phases of ``roots``, heaviest first; all phases if they are not split."""
    names = roots["phase"].unique(maintain_order=True).to_list()
    if "" in names or OTHER_PHASES in names:
        return list(evidence.phase_weight)
    return [str(name) for name in names]


def analyse_once(network: SimulatedNetwork | None = None) -> Callable[[Run], RunAnalysis]:
    """Return a function that analyses runs on ``network`` and caches the last analysis."""
    kept: list[RunAnalysis] = []

    def analyse(run: Run) -> RunAnalysis:
        if not kept or kept[0].run is not run:
            kept[:] = [RunAnalysis(run, network)]
        return kept[0]

    return analyse


def sums_by_window(samples: pl.DataFrame, n_links: int) -> pl.DataFrame:
    """Sums of samples by ``window``, ``phase`` and ``link``, sorted by these.

    Args:
        samples: Rows of table ``samples`` with their ``phase``.
        n_links: Number of links.
    """
    by, columns = ["window", "phase", "link"], list(SUMS)
    phases = samples.select("label", "phase").unique().sort("phase", "label")
    labels = phases["label"].to_numpy()
    number = np.zeros(labels.max(initial=0) + 1, np.int64)
    number[labels] = phases["phase"].rank("dense").to_numpy() - 1
    count = number.max() + 1
    window, label, link = (samples[name].to_numpy() for name in ("window", "label", "link"))
    key = (window.astype(np.int64) * count + number[label]) * n_links + link
    order = np.argsort(key, kind="stable")
    if (np.diff(key[order]) == 0).any():
        return samples.group_by(by).agg(pl.col(columns).sum()).sort(by)
    # One row each: most runs have one label in a phase. Sorting numbers is much faster than
    # grouping by three columns and sorting text.
    return samples.select(*by, *columns)[order]


# --- the simulated network of an expected run --------------------------------------------------

# The rules infer the state of links from samples alone. In the expected run of a measured one,
# slow links and other jobs were put in because the evidence shows them, so there is nothing to
# infer: the rules explain that run and must not contradict it.


@dataclass(frozen=True)
class SimulatedNetwork:
    """Slow links and other jobs of a simulated run.

    Attributes:
        slow_gbps: Rate of each link that serves less than its nominal rate, by link number.
        other_jobs: Whether jobs besides the observed ones send traffic.
    """

    slow_gbps: Mapping[int, float]
    other_jobs: bool

    @staticmethod
    def of(fabric: Fabric, run: Run) -> SimulatedNetwork:
        """The network of a run on ``fabric``."""
        slow = dict[int, float]()
        if fabric.nominal_gbps is not None:
            links = np.flatnonzero(fabric.link_gbps < fabric.nominal_gbps)
            slow = {int(link): float(fabric.link_gbps[link]) for link in links}
        return SimulatedNetwork(slow, not run.tables["jobs"]["observed"].all())

    def with_served_rates(self, topology: LinkTopology) -> LinkTopology:
        """The links with the rates at which they serve, in place of their nominal ones."""
        if not self.slow_gbps:
            return topology
        rate = topology.rate_gbps.copy()
        rate[list(self.slow_gbps)] = list(self.slow_gbps.values())
        return replace(topology, rate_gbps=rate)

    def corrected(self, roots: pl.DataFrame) -> pl.DataFrame:
        """Roots of congestion trees whose verdicts agree with this network.

        A slow link that our traffic fills is ``slow``; no other link is. Without other jobs, what
        our traffic does not fill on average was congested by our own bursts (``transient``).

        Args:
            roots: Columns ``link`` and ``verdict`` (:class:`.run_analysis.PhaseAnalysis`), with
                utilizations as shares of the rates at which the links serve.
        """
        verdict = pl.col("verdict")
        is_slow = pl.col("link").is_in(pl.Series(list(self.slow_gbps), dtype=pl.UInt32).implode())
        other_verdict = pl.lit("others" if self.other_jobs else "transient")
        return roots.with_columns(
            verdict=pl.when(is_slow & verdict.is_in(["ours", "routing", "slow"]))
            .then(pl.lit("slow"))
            .when(verdict.is_in(["slow", "others"]))
            .then(other_verdict)
            .otherwise(verdict)
        )
