"""Search for slow cables that explain time not accounted for by re-simulating known causes.

A scenario may lack two causes: other jobs and slow links. Both appear as congested links that our
job hardly uses. But a slow link is a hypothesis that can be simulated: the few cables suggested by
samples and message log are slowed down, first one and then several, and the simulation predicts a
time for every message of our job. If these times fit the observed ones far better than those of a
healthy network, and so does the time of the job, these cables are the explanation. Other traffic
varies over time and delays other messages too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tailback.arrays import Floats, Ints
from tailback.diagnosis.cable_suspects import CandidatePaths
from tailback.diagnosis.likelihood import likelihood, time_agreement
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.evaluate import Change, Evaluate
from tailback.fabric.degraded import SlowLink, within_engine
from tailback.run.run import Run
from tailback.scenario.model import TelemetrySection

CANDIDATES_TRIED = 4
"""Number of cables tried for each kind of indication."""

TRIED_RATES = (0.1, 0.3, 0.6)
"""Shares of the nominal rate tried in addition to the apparent rate of a suspect."""

CONCLUSIVE_FIT = 0.97
"""Fit above which no other cable is tried."""

MIN_FIT = 0.1
"""Fit below which neither the rate is refined nor a second cable tried."""

MAX_SLOW_CABLES = 4
"""Maximum number of slow cables."""

MIN_ADDED_FIT = 0.3
"""Share of the unexplained excess that an additional cable must explain: every additional cable
improves the fit slightly."""

_KEY = ["src_rank", "dst_rank", "label", "number"]


@dataclass(frozen=True)
class SlowCableFit:
    """The slow cables that explain the observed times best.

    Attributes:
        cables: The cables with their best-fitting rates; the first explains most.
        fit: Share of the squared excess of message times over a healthy network that a simulation
            with them reproduces: 1 for all of it, 0 or less for none.
        elapsed: Time the job takes in that simulation, as a share of the observed time.
        lead: How much less than the best cable any on other paths explains of the observed delays,
            as a share of it, 0–1: from the message log alone. ½ for several cables.
    """

    cables: tuple[SlowLink, ...]
    fit: float
    elapsed: float = 1.0
    lead: float = 0.5

    @property
    def probability(self) -> float:
        """Probability that slow cables, rather than other traffic, explain the observed times.

        Both are equally likely beforehand. Slow cables predict all of the excess and the time of
        the job, and that no other cable explains it as well. Other traffic predicts that no cable
        reproduces the excess, that it delays messages of several cables alike, and nothing about
        the time. Every cable beyond the first is charged: each improves the fit a little.
        """
        slow = likelihood(self.fit) * likelihood(time_agreement(self.elapsed))
        slow *= likelihood(self.lead) * 0.5 ** (len(self.cables) - 1)
        other = likelihood(1.0 - self.fit) * likelihood(0.5) * likelihood(1.0 - self.lead)
        return slow / (slow + other)

    @property
    def explains(self) -> bool:
        """Whether slow cables are more probable than other traffic."""
        return self.probability > 0.5


def find_slow_cables(evidence: RunAnalysis, evaluate: Evaluate) -> SlowCableFit | None:
    """Find the slow cables that reproduce the observed times of our messages.

    Cables are added one by one while each explains at least :data:`MIN_ADDED_FIT` of the remaining
    excess.

    Args:
        evidence: Samples and message log.
        evaluate: Simulates a change.

    Returns:
        The best fit; None without a message log or suspects.
    """
    seen = _durations(evidence.run)
    if not seen.height:
        return None
    search = _SlowCableSearch(evidence, evaluate, seen)
    best = search.add(SlowCableFit((), 0.0), search.suspects())
    if best is None:
        return None
    while MIN_FIT <= best.fit <= CONCLUSIVE_FIT and len(best.cables) < MAX_SLOW_CABLES:
        more = search.add(best, search.remaining_suspects(best))
        if more is None or 1.0 - more.fit > (1.0 - MIN_ADDED_FIT) * (1.0 - best.fit):
            return best
        best = search.tuned(more)
    return best


class _SlowCableSearch:
    """Tries slow cables."""

    def __init__(self, evidence: RunAnalysis, evaluate: Evaluate, seen: pl.DataFrame) -> None:
        self._evidence, self._evaluate, self._seen = evidence, evaluate, seen
        self._network = evaluate(Change(network="healthy", measure=True))
        self._healthy = _durations(self._network)

    def attempt(self, cables: tuple[SlowLink, ...]) -> SlowCableFit:
        """Simulate slow cables."""
        cables = within_engine(cables)
        run = self._evaluate(Change(network="healthy", slow=cables))
        fit = _fit(self._seen, self._healthy, _durations(run))
        elapsed = run.elapsed_ps / max(self._evidence.run.elapsed_ps, 1)
        # Of several cables none leads.
        lead = self._evidence.only_cable if len(cables) == 1 else 0.5
        return SlowCableFit(cables, fit, elapsed, lead)

    def suspects(self) -> list[tuple[int, float]]:
        """Cables that may be slow, with their apparent rates."""
        return _suspects(self._evidence, self._network, self._candidate_paths(self._healthy))

    def remaining_suspects(self, found: SlowCableFit) -> list[tuple[int, float]]:
        """Cables on the paths of messages that the slow cables found so far do not explain."""
        run = self._evaluate(Change(network="healthy", slow=found.cables))
        known = {min(link, self._evidence.reverse(link)) for link, *_ in found.cables}
        remaining = self._candidate_paths(_durations(run)).suspects(2 * CANDIDATES_TRIED)
        return [(link, rate) for link, rate in remaining if link not in known]

    def _candidate_paths(self, expected: pl.DataFrame) -> CandidatePaths:
        """The paths of our messages, with the expected time of each."""
        ranks = self._evidence.run.tables["ranks"].select("rank", "node")
        both = self._seen.join(expected.select(*_KEY, expected="took"), on=_KEY)
        for end in ("src", "dst"):
            both = both.join(ranks.rename({"rank": f"{end}_rank", "node": end}), on=f"{end}_rank")
        return self._evidence.ways(both)

    def add(self, before: SlowCableFit, suspects: list[tuple[int, float]]) -> SlowCableFit | None:
        """The best fit with one more cable."""
        best: SlowCableFit | None = None
        for link, gbps in suspects:
            nominal = float(self._evidence.topology.rate_gbps[link])
            for rate in (gbps, *(share * nominal for share in TRIED_RATES)):
                tried = self.attempt((*before.cables, SlowLink(link, rate)))
                if best is None or tried.fit > best.fit:
                    best = tried
            if best is not None and best.fit > CONCLUSIVE_FIT:
                break
        return best if best is None or len(before.cables) else self.tuned(best)

    def tuned(self, best: SlowCableFit) -> SlowCableFit:
        """Refine the rates, one cable after another."""
        # Several cables affect the same messages: a second round with smaller steps.
        rounds = [(0.7, 1.4, 0.85, 1.15)] + [(0.93, 1.08)] * (len(best.cables) > 1)
        for number, steps in ((i, steps) for steps in rounds for i in range(len(best.cables))):
            for step in steps:
                if best.fit < MIN_FIT:
                    return best
                link, rate, _ = best.cables[number]
                if rate * step >= float(self._evidence.topology.rate_gbps[link]):
                    continue
                others = best.cables[:number], best.cables[number + 1 :]
                tried = self.attempt((*others[0], SlowLink(link, rate * step), *others[1]))
                if tried.fit > best.fit:
                    best = tried
        return best


def _durations(run: Run) -> pl.DataFrame:
    """Mean time in flight of each of our messages that crosses the network, by sender and receiver.

    Repetitions of the same message, consecutive in the log, form one row.
    """
    observed = run.tables["jobs"].filter("observed")["job"]
    labels = run.tables["labels"].filter(pl.col("job").is_in(observed.implode()))["label"]
    log = run.tables["messages"].filter(
        pl.col("label").is_in(labels.implode())
        & (pl.col("switch_hops") > 0)
        & (pl.col("arrival_ps") > pl.col("start_ps"))
    )
    order = log.group_by("message").agg(
        pl.col("src_rank", "dst_rank", "label").first(),
        took=(pl.col("arrival_ps") - pl.col("start_ps")).cast(pl.Float64).mean(),
    )
    return order.sort("message").with_columns(
        number=pl.int_range(pl.len()).over("src_rank", "dst_rank", "label")
    )


def _fit(seen: pl.DataFrame, healthy: pl.DataFrame, slow: pl.DataFrame) -> float:
    """Share of the squared excess of observed times that the slow network reproduces."""
    both = seen.join(healthy.select(*_KEY, healthy="took"), on=_KEY).join(
        slow.select(*_KEY, slow="took"), on=_KEY
    )
    observed, healthy_ps, slow_ps = (both[name].to_numpy() for name in ("took", "healthy", "slow"))
    excess = float(((observed - healthy_ps) ** 2).sum())
    return 1.0 - float(((observed - slow_ps) ** 2).sum()) / excess if excess > 0 else 0.0


def _suspects(evidence: RunAnalysis, healthy: Run, ways: CandidatePaths) -> list[tuple[int, float]]:
    """Cables that may be slow, by one link each, with their apparent rates.

    They are links on the paths of late messages, links congested more often than expected, links
    that carry fewer packets than expected because adaptive routing avoids them, and injection links
    of adapters that never reach their line rate.
    """
    t = evidence.topology
    # Simulated packets carry full link numbers, whatever the scheme of the run.
    scenario = evidence.run.scenario.model_copy(update={"telemetry": TelemetrySection()})
    expected = RunAnalysis(replace(healthy, scenario=scenario)).whole
    seen = evidence.whole
    scale = float(seen.packets.sum()) / max(float(expected.packets.sum()), 1.0)
    rate = t.rate_gbps
    suspects: dict[int, float] = dict(ways.suspects(2 * CANDIDATES_TRIED))

    def add(links: Ints, share: Floats) -> None:
        for link, part in list(zip(links.tolist(), share.tolist(), strict=True))[:CANDIDATES_TRIED]:
            cable = min(link, evidence.reverse(link))
            if cable not in suspects:
                suspects[cable] = float(np.clip(part, 0.02, 0.9)) * float(rate[link])

    excess = seen.weight - expected.weight * scale
    roots = evidence.roots.filter(pl.col("verdict") != "ours")
    if roots.height:
        first = roots.unique("link", keep="first", maintain_order=True)
        add(first["link"].to_numpy().astype(np.int64), first["utilization"].to_numpy())
    order = np.argsort(-excess)[:CANDIDATES_TRIED]
    order = order[excess[order] > 0]
    if len(order):
        add(order, evidence.utilization_while_congested(order))
    deficit = expected.packets * scale - seen.packets
    order = np.argsort(-deficit)[:CANDIDATES_TRIED]
    order = order[deficit[order] > 0]
    add(order, seen.packets[order] / np.maximum(expected.packets[order] * scale, 1.0))
    fastest = evidence.adapters.fastest
    known = np.flatnonzero(np.isfinite(fastest))
    slow = known[np.argsort(fastest[known])][:CANDIDATES_TRIED]
    links = np.flatnonzero(t.from_node)
    of_node = dict(zip(t.src[links].tolist(), links.tolist(), strict=True))
    add(np.array([of_node[int(n)] for n in slow], np.int64), fastest[slow])
    return list(suspects.items())


def slow_links(slow: SlowCableFit | None, evidence: RunAnalysis) -> list[str]:
    """Links known to be slow: those found by re-simulation, else those listed in the scenario.

    Of the latter, only those that carry our traffic, if any does.
    """
    topology = evidence.topology
    if slow is not None and slow.explains:
        return [topology.name[link] for link, *_ in slow.cables]
    given = [(s.cable or s.link or "").strip() for s in evidence.run.scenario.fabric.degraded]
    stated = [topology.leaving[name] for name in given if name in topology.leaving]
    # Injection links are not sampled, so those of our own nodes count as used.
    jobs = evidence.run.tables["jobs"].filter("observed").select("job")
    nodes = evidence.run.tables["ranks"].join(jobs, on="job", how="semi")["node"].to_numpy()
    carried = (evidence.whole.packets > 0) | np.isin(topology.src, nodes)
    used = [n for n in stated if carried[n] or carried[evidence.reverse(n)]]
    return [topology.name[link] for link in used or stated]
