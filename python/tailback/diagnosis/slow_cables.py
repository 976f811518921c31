"""Search for slow cables that explain time not accounted for by re-simulating known causes.

A scenario may lack two causes: other jobs and slow links. Both appear as congested links that our
job hardly uses. But a slow link is a hypothesis that can be simulated: the few cables suggested by
samples and message log are slowed down, first one and then several, and the simulation predicts a
time for every message of our job. If these times fit the observed ones far better than those of a
healthy network, and so does the time of the job, these cables are the explanation. Other traffic
varies over time and delays other messages too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tailback.arrays import Floats
from tailback.diagnosis.cable_search import (
    CableSearch,
    CableTrials,
    CandidatePaths,
    Outcome,
    Trial,
)
from tailback.diagnosis.confidence import likelihood, time_agreement
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.evaluate import Change, Evaluate
from tailback.fabric.degraded import SlowLink
from tailback.run.run import Run
from tailback.scenario.model import TelemetrySection

CANDIDATES_TRIED = 4
"""Number of cables tried for each kind of indication."""

CONCLUSIVE_FIT = 0.97
"""Fit above which no other cable is tried."""

MOST_TRIALS = 100
"""Simulations after which rates and further cables are no longer looked for: two for each of two
dozen suspects, and fifty for rates."""

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

    Args:
        evidence: Samples and message log.
        evaluate: Simulates a change.

    Returns:
        The best fit; None without a message log or suspects.
    """
    seen = _durations(evidence.run)
    if not seen.height:
        return None
    network = evaluate(Change(network="healthy", measure=True))
    healthy = _durations(network)
    trials = LoggedCableTrials(
        evidence=evidence,
        evaluate=evaluate,
        seen=seen,
        healthy=healthy,
        measured_ps=evidence.run.elapsed_ps,
        expected_ps=network.elapsed_ps,
        nominal=evidence.topology.rate_gbps,
        most_trials=MOST_TRIALS,
    )
    suspects = _suspects(evidence, network, _candidate_paths(evidence, seen, healthy))
    search = CableSearch(trials, suspects, evidence.reverses)
    search.screen()
    search.refine()
    if not trials.trials:
        return None
    best = max(trials.trials, key=lambda trial: trial.score)
    elapsed = best.elapsed_ps / max(evidence.run.elapsed_ps, 1)
    # Of several cables none leads.
    lead = evidence.only_cable if len(best.cables) == 1 else 0.5
    return SlowCableFit(best.cables, _fit_of(best), elapsed, lead)


@dataclass(kw_only=True)
class LoggedCableTrials(CableTrials):
    """Simulates slow cables and compares the times of messages with those of the log.

    Attributes:
        evidence: Samples and message log.
        evaluate: Simulates a change.
        seen: Observed times of messages.
        healthy: Those in a healthy network.
    """

    evidence: RunAnalysis
    evaluate: Evaluate
    seen: pl.DataFrame
    healthy: pl.DataFrame

    def simulate(self, cables: tuple[SlowLink, ...]) -> Trial:
        """Simulate slow cables and score what that predicts."""
        run = self.evaluate(Change(network="healthy", slow=cables))
        misfit = 1.0 - _fit(self.seen, self.healthy, _durations(run))
        shape = _shape(misfit)
        score = shape + len(cables) * math.log(1.0 - MIN_ADDED_FIT)
        return Trial(cables, Outcome(run.elapsed_ps, {"messages": misfit}), shape, score)

    def suspects_besides(self, trial: Trial) -> list[int]:
        """Cables on the paths of messages that these slow cables do not explain."""
        run = self.evaluate(Change(network="healthy", slow=trial.cables))
        paths = _candidate_paths(self.evidence, self.seen, _durations(run))
        return paths.suspects(2 * CANDIDATES_TRIED)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of evidence that are compared."""
        return ("messages",)

    @property
    def worth_fitting(self) -> float:
        """Value of :attr:`Trial.shape` above which a cable is better than none."""
        return _shape(1.0)

    def agrees(self, trial: Trial) -> bool:
        """Whether the evidence agrees as well as under the right hypothesis."""
        return _fit_of(trial) > CONCLUSIVE_FIT

    def is_conclusive(self, trials: Sequence[Trial]) -> bool:
        """Whether the search can stop: each message has its own time, unlike calls."""
        return any(map(self.agrees, trials))


def _shape(misfit: float) -> float:
    """Logarithm of the likelihood of the times of messages, up to a factor."""
    return -math.log(1.0 - CONCLUSIVE_FIT + misfit)


def _fit_of(trial: Trial) -> float:
    misfit = trial.outcome.misfits["messages"]
    return 0.0 if misfit is None else 1.0 - misfit


def _candidate_paths(
    evidence: RunAnalysis, seen: pl.DataFrame, expected: pl.DataFrame
) -> CandidatePaths:
    """The paths of our messages, with the expected time of each."""
    ranks = evidence.run.tables["ranks"].select("rank", "node")
    both = seen.join(expected.select(*_KEY, expected="took"), on=_KEY)
    for end in ("src", "dst"):
        both = both.join(ranks.rename({"rank": f"{end}_rank", "node": end}), on=f"{end}_rank")
    return evidence.candidate_paths(both)


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


def _suspects(evidence: RunAnalysis, healthy: Run, paths: CandidatePaths) -> list[int]:
    """Cables that may be slow, by one link each, most likely first.

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
    roots = evidence.roots.filter(pl.col("verdict") != "ours")
    congested = roots["link"].unique(maintain_order=True).to_list()
    fastest = evidence.adapters.fastest
    measured_nodes = np.flatnonzero(np.isfinite(fastest))
    injection = np.flatnonzero(t.from_node)
    link_of = dict(zip(t.src[injection].tolist(), injection.tolist(), strict=True))
    slow = [link_of[node] for node in measured_nodes[np.argsort(fastest[measured_nodes])].tolist()]
    indications = [
        congested,
        _largest(seen.weight - expected.weight * scale),
        _largest(expected.packets * scale - seen.packets),
        slow,
    ]
    links = [link for likely in indications for link in likely[:CANDIDATES_TRIED]]
    cables = [min(link, evidence.reverse(link)) for link in links]
    return list(dict.fromkeys([*paths.suspects(2 * CANDIDATES_TRIED), *cables]))


def _largest(excess: Floats) -> list[int]:
    """Links with an excess, largest first."""
    return [link for link in np.argsort(-excess).tolist() if excess[link] > 0]


def slow_links(slow: SlowCableFit | None, evidence: RunAnalysis) -> list[str]:
    """Links known to be slow: those found by re-simulation, else those listed in the scenario.

    Of the latter, only those that carry our traffic, if any does.
    """
    topology = evidence.topology
    if slow is not None and slow.explains:
        return [topology.name[link] for link, *_ in slow.cables]
    degraded = [(s.cable or s.link or "").strip() for s in evidence.run.scenario.fabric.degraded]
    stated = [topology.leaving[name] for name in degraded if name in topology.leaving]
    # Injection links are not sampled, so those of our own nodes count as used.
    jobs = evidence.run.tables["jobs"].filter("observed").select("job")
    nodes = evidence.run.tables["ranks"].join(jobs, on="job", how="semi")["node"].to_numpy()
    carried = (evidence.whole.packets > 0) | np.isin(topology.src, nodes)
    used = [n for n in stated if carried[n] or carried[evidence.reverse(n)]]
    return [topology.name[link] for link in used or stated]
