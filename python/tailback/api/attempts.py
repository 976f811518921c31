"""Explanations of a measured run, tried with either adapter model and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from tailback.api import explain_wording as wording
from tailback.api.evidence import NetworkEvidence
from tailback.api.unknown_hosts import unknown_hosts
from tailback.diagnosis.comparisons import (
    MAX_SCALE,
    CallTimes,
    LinkSamples,
    PortStalls,
    SendTimes,
    stall_error_ps,
)
from tailback.diagnosis.hidden_cables import MAX_TIME_RATIO, CableSearch, Misfit, search_cables
from tailback.diagnosis.measured_suspects import ahead_of_stalls, cable_suspects
from tailback.diagnosis.topology import LinkTopology, link_totals
from tailback.diagnosis.traffic_bursts import BurstFit, Outcome, fit_bursts
from tailback.diagnosis.unknown_job import Draw, UnknownJob, fit_unknown_job
from tailback.diagnosis.waterfall import Progress
from tailback.evaluate import Change
from tailback.evidence import MeasuredRun
from tailback.evidence.assumed_traffic import assumed_messages, hosts_of_others
from tailback.evidence.call_profile import CallProfile
from tailback.evidence.other_traffic import UNKNOWN, OtherTraffic
from tailback.evidence.send_times import send_profile
from tailback.fabric.degraded import SlowLink
from tailback.fabric.model import Fabric
from tailback.run import Run
from tailback.scenario_engine import Routing
from tailback.simulation import PreparedScenario, make_evaluate

MIN_MISSING_SHARE = 0.08
"""Share of the measured time that the simulation must lack before causes are searched for."""

SEARCH_EVENTS = 200_000_000
"""Events that the search for slow cables may simulate: about a minute. A limit in events, not in
time, makes a diagnosis the same on every machine."""

MIN_TRIALS, MAX_TRIALS = 12, 160
"""Minimum and maximum number of simulations in that search, however long each takes."""

OTHER_ROUTING: tuple[Routing, ...] = ("random", "deterministic")
"""Routing to try if nothing explains the time with adaptive routing and the scenario does not state
the routing: adaptive traffic avoids slow links, so that they cost little."""

SUSPECTS_PER_ROUTING = 12
"""Cables to try with each of them. With up to three simulations per cable, it takes less than half
as long as the first search; with counters, the right cable is among the most suspect."""

TRIALS_PER_SUSPECT = 3
"""Simulations per suspect in that search, over rates and directions: one to screen it, and on
average two for the few that are examined further."""

MIN_STRETCHES = 50
"""Minimum number of intervals in MPI calls, over all ranks, to infer a slow cable from times alone;
with fewer, some cable nearly always fits."""

MAX_MISFIT_OF_OTHERS = 0.6
"""Ratio of the misfit to calls and stalls with other traffic to that without it. From this ratio
on, a slow cable is sought even though other jobs' traffic explains the time."""

EQUAL_MISFIT = 0.005
"""Misfits below this count as equal: such small ones do not tell adapter models apart."""

CLEARLY_BETTER = 0.8
"""Mean ratio of misfits up to which the other adapter model replaces the usual one if both explain
the time. On simulated machines with a slow cable it is 0.62, 0.76, 0.85 and 1.68 where adapters
queue messages, and 1.05 and 1.45 where they take turns. An unknown job must be better than a slow
cable by the same ratio."""

EQUAL_SPREAD = 0.002
"""Differences in distribution below this count as equal: simulations of healthy machines with the
right adapter model differ from the measurement by 0.001 to 0.015."""

CLEARLY_UNKNOWN_JOB = 0.5
"""Ratio of the difference in distribution with an unknown job to that with the other adapter model,
if that explains the time without one. The job is assumed only up to this ratio."""

MIN_OTHER_SHARE = 0.02
"""Ratio of other jobs' bytes to ours from which the expected run includes their traffic."""

Slow = tuple[SlowLink, ...]


@dataclass(frozen=True)
class Attempt:
    """Best explanation with one adapter model.

    Attributes:
        prepared: The scenario with the job alone.
        fit: Bursts of other jobs' traffic; None without such traffic.
        slow: Slow cables.
        slow_shown: The evidence for them.
        search: Result of the search for them.
        gap: Share of the measured time that the simulation with all of these lacks.
        misfits: Misfit to each kind of evidence; None if they cannot be compared.
        unknown_job: An unknown job, if one explains the times of messages.
        spread: Difference in distribution of these times; None if they cannot be compared.
        rival: An unknown job that explains them equally well with the usual adapter model.
    """

    prepared: PreparedScenario
    fit: BurstFit | None
    slow: Slow
    slow_shown: str
    search: CableSearch
    gap: float
    misfits: tuple[float | None, ...]
    unknown_job: UnknownJob | None = None
    spread: float | None = None
    rival: UnknownJob | None = None

    @property
    def explains(self) -> bool:
        """Whether the simulation takes as long as the measured run."""
        return abs(self.gap) < MIN_MISSING_SHARE

    def agrees_better(self, other: Attempt, at_most: float = 1.0) -> bool:
        """Whether calls, sends and stalls agree at least as well as in the other attempt.

        An unknown job is compared by the distribution of times: since it is unknown where it sends,
        so is the time of each call site.

        Args:
            other: The attempt to compare with.
            at_most: Maximum mean ratio of the misfits.
        """
        if self.unknown_job is not None or other.unknown_job is not None:
            if self.spread is None or other.spread is None:
                return False
            return self.spread <= at_most * max(other.spread, EQUAL_SPREAD)
        ratios = [
            max(mine, EQUAL_MISFIT) / max(its, EQUAL_MISFIT)
            for mine, its in zip(self.misfits, other.misfits, strict=True)
            if mine is not None and its is not None
        ]
        return bool(ratios) and sum(ratios) / len(ratios) <= at_most


@dataclass(frozen=True)
class ExplanationSearch:
    """The search for an explanation of one measured run."""

    others: OtherJobs
    profile: CallProfile
    comparisons: Sequence[Misfit]
    measured: MeasuredRun
    evidence: NetworkEvidence
    progress: Progress
    threads: int | None
    outcomes: dict[tuple[int, Slow, int | None, bool], Outcome] = field(default_factory=dict)
    """Outcomes of simulations by scenario, slow cables and bursts: explanations share many."""
    unknown_jobs: dict[int, UnknownJob | None] = field(default_factory=dict)
    """Unknown jobs by scenario."""
    routed: dict[Routing, PreparedScenario] = field(default_factory=dict)
    """Scenarios with other routing, kept alive because outcomes are keyed by their identity."""

    def recorded_on(self, prepared: PreparedScenario) -> bool:
        """Whether the run was recorded on this fabric, so that its times are evidence on the links.

        A trace that does not say where its ranks ran may come from any machine, often a single
        host. Counters always come from the machine that the run used.
        """
        if self.evidence.counters is not None or self.evidence.congested is not None:
            return True
        return not unknown_hosts(prepared, self.measured)

    def best(self, round_robin: PreparedScenario, fifo: PreparedScenario | None) -> Attempt:
        """The best explanation: the simplest first, with the usual routing and adapters.

        Other routing is tried only together with slow cables: routes that cost time by themselves
        show up in the bytes of links.
        """
        usual = self._with_either_adapter(round_robin, fifo)
        if usual.gap < MIN_MISSING_SHARE or not self._routing_is_open(round_robin):
            return usual
        for routing in OTHER_ROUTING:
            self.routed[routing] = _with_routing(round_robin, routing)
            other = self.attempt(
                self.routed[routing], search=True, max_suspects=SUSPECTS_PER_ROUTING
            )
            if other.slow and other.explains:
                return other
        return usual

    def _routing_is_open(self, prepared: PreparedScenario) -> bool:
        """Whether switches may route differently than simulated, and counters can show it."""
        scenario = prepared.scenario
        stated = scenario.fabric.forwarding is not None or not (
            scenario.engine.model_fields_set.isdisjoint(("routing", "adaptive"))
        )
        counted = self.evidence.counters is not None and not is_lossy(
            self.evidence, prepared.fabric
        )
        return counted and not stated

    def _with_either_adapter(
        self, round_robin: PreparedScenario, fifo: PreparedScenario | None
    ) -> Attempt:
        """The best explanation: the simplest and the usual adapter model first."""
        usual = self.attempt(round_robin, search=False)
        if is_lossy(self.evidence, round_robin.fabric):
            fifo = None  # Hosts share their link between sockets.
        if fifo is not None and not usual.explains:
            other = self.attempt(fifo, search=False)
            if other.explains and other.agrees_better(usual):
                job = self._unknown_job(round_robin)
                if job is None or not _clearly_better(job, other.spread, CLEARLY_UNKNOWN_JOB):
                    rival = job if job is not None and _as_good(job, other.spread) else None
                    return replace(other, rival=rival)
        usual = self.attempt(round_robin, search=True, other=fifo)
        if fifo is None:
            return usual
        if usual.explains and usual.search.found is not None and usual.unknown_job is None:
            # With other adapters the same cables may explain it equally well, and cost less.
            cables = tuple(cable.link for cable in usual.slow)
            other = self.attempt(fifo, search=True, among=cables)
            clearly = other.explains and other.agrees_better(usual, CLEARLY_BETTER)
            return other if clearly and other.slow else usual
        if usual.gap < 0 or (usual.explains and usual.unknown_job is None):
            return usual
        other = self.attempt(fifo, search=True, other=round_robin)
        at_most = CLEARLY_BETTER if usual.explains else 1.0
        return other if other.explains and other.agrees_better(usual, at_most) else usual

    def attempt(
        self,
        prepared: PreparedScenario,
        *,
        search: bool,
        among: tuple[int, ...] = (),
        max_suspects: int = MAX_TRIALS,
        other: PreparedScenario | None = None,
    ) -> Attempt:
        """The best explanation with one adapter model.

        Args:
            prepared: The scenario with the job alone.
            search: Also search for slow cables and unknown jobs.
            among: The only cables to try; all if empty.
            max_suspects: Maximum number of cables to try.
            other: The scenario with the other adapter model, if that is possible.
        """
        evidence, measured = self.evidence, self.measured
        search = search and self.recorded_on(prepared)
        fit = self._fit(prepared, ())
        slow, shown = _counted_slow(evidence, prepared.fabric)
        found = CableSearch()
        if search and not slow and not _others_explain(fit, measured):
            scenario = self.others.add_to(prepared, None)
            found = _search(
                scenario, measured, evidence, self.comparisons, self.progress, self.threads, among,
                max_suspects,
            )  # fmt: skip
            if found.found is not None:
                slow, shown = found.found.cables, _search_text(found, evidence)
        unknown_job = self._unknown_job(prepared) if search and not among else None
        if unknown_job is not None and self._explained_otherwise(
            unknown_job, slow, prepared, other
        ):
            unknown_job = None
        if unknown_job is not None:
            slow, shown = (), ""
        if slow:
            fit = self._fit(prepared, slow)
        inside = modelled_part_ps(measured)
        outcome = self._outcome(prepared, slow, None if fit is None else fit.bursts)
        explained = outcome.elapsed_ps + (0 if unknown_job is None else unknown_job.ps)
        gap = (inside - explained) / inside
        spread = outcome.spread if unknown_job is None else unknown_job.spread
        return Attempt(prepared, fit, slow, shown, found, gap, outcome.misfits, unknown_job, spread)

    def _explained_otherwise(
        self,
        job: UnknownJob,
        slow: Slow,
        prepared: PreparedScenario,
        other: PreparedScenario | None,
    ) -> bool:
        """Whether the slow cables found, or other adapters, explain the times equally well.

        Other adapters are compared up to a common factor, as a model error affects all messages.
        """
        rivals = [self._spread(self._simulated(prepared, slow))] if slow else []
        if other is not None:
            alone = self._simulated(other, ())
            if alone.elapsed_ps <= MAX_TIME_RATIO * modelled_part_ps(self.measured):
                rivals.append(self._spread(alone, MAX_SCALE))
        return not all(_clearly_better(job, one, CLEARLY_BETTER) for one in rivals)

    def _unknown_job(self, prepared: PreparedScenario) -> UnknownJob | None:
        """An unknown job, if the missing time looks like the effect of one.

        With counters there is no need: they show other traffic. In a lossy network there is no
        evidence: retransmissions scatter the repetitions of healthy runs as much.
        """
        if self.evidence.counters is not None or _lossy_or_elsewhere(self, prepared):
            return None
        if id(prepared) not in self.unknown_jobs:
            self.unknown_jobs[id(prepared)] = self._fit_unknown_job(prepared)
        return self.unknown_jobs[id(prepared)]

    def _fit_unknown_job(self, prepared: PreparedScenario) -> UnknownJob | None:
        alone = self._simulated(prepared, ())
        inside = modelled_part_ps(self.measured)
        nodes = hosts_of_others(prepared.fabric, prepared.observed.node)
        # A model error affects every repetition of every message alike.
        off = self._spread(alone, MAX_SCALE)
        missing = inside - alone.elapsed_ps
        if off is None or missing < MIN_MISSING_SHARE * inside or len(nodes) < 2:
            return None

        def with_job(draw: Draw) -> Run:
            messages = assumed_messages(
                prepared.fabric, nodes, draw.load, draw.bursts, round(1.1 * inside), draw.seed
            )
            return self._simulated(prepared.with_other_traffic("an unknown job", messages), ())

        self.progress("searching for traffic of other jobs", 0.0)
        return fit_unknown_job(with_job, self._spread, alone.elapsed_ps, inside, off)

    def _spread(self, run: Run, max_scale: float = 1.0) -> float | None:
        """Difference in distribution of the times of messages; None if these are unknown."""
        sends = next((one for one in self.comparisons if isinstance(one, SendTimes)), None)
        return None if sends is None else sends.spread(run, max_scale)

    def _fit(self, prepared: PreparedScenario, slow: Slow) -> BurstFit | None:
        """Bursts of other jobs' traffic that fit best; None without such traffic."""
        if self.others.traffic is None:
            return None
        return fit_bursts(
            self._outcome(prepared, slow, None, with_others=False),
            lambda bursts: self._outcome(prepared, slow, bursts),
            modelled_part_ps(self.measured),
        )

    def _outcome(
        self,
        prepared: PreparedScenario,
        slow: Slow,
        bursts: int | None,
        *,
        with_others: bool = True,
    ) -> Outcome:
        """How a simulation, with or without other jobs' traffic, compares with the measurement."""
        key = (id(prepared), slow, bursts, with_others)
        if key not in self.outcomes:
            scenario = self.others.add_to(prepared, bursts) if with_others else prepared
            run = self._simulated(scenario, slow)
            misfits = tuple(compare(run) for compare in self.comparisons)
            self.outcomes[key] = Outcome(run.elapsed_ps, misfits, self._spread(run))
        return self.outcomes[key]

    def _simulated(self, prepared: PreparedScenario, slow: Slow) -> Run:
        evaluate = make_evaluate(prepared, threads=self.threads)
        return evaluate(Change(slow=slow, computations=True, measure=True))


@dataclass(frozen=True)
class OtherJobs:
    """Traffic of other jobs, if there is enough to matter.

    Attributes:
        traffic: Counted traffic; None if too little to matter.
        whose: The jobs, in words.
        shown: The evidence, in words.
    """

    traffic: OtherTraffic | None = None
    whose: str = ""
    shown: str = ""

    @classmethod
    def of(cls, prepared: PreparedScenario, evidence: NetworkEvidence, run: Run) -> OtherJobs:
        """Other traffic according to the counters."""
        traffic = evidence.others
        if traffic is None or not _is_significant(traffic, run):
            return cls()
        return cls(traffic, *_others_text(traffic, evidence))

    def add_to(self, prepared: PreparedScenario, bursts: int | None) -> PreparedScenario:
        """The scenario with this traffic, in ``bursts`` per window of the counters."""
        if self.traffic is None:
            return prepared
        name = f"other traffic ({_job_names(self.traffic)})"
        return prepared.with_other_traffic(name, self.traffic.messages(bursts).rows())


def _with_routing(prepared: PreparedScenario, routing: Routing) -> PreparedScenario:
    """The scenario with another choice among the paths of a route."""
    engine = prepared.scenario.engine.model_copy(update={"routing": routing})
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": engine}))


def _clearly_better(job: UnknownJob, spread: float | None, at_most: float) -> bool:
    """Whether a job leaves at most ``at_most`` of a spread that is not negligible."""
    return spread is not None and spread > EQUAL_SPREAD and job.spread <= at_most * spread


def _as_good(job: UnknownJob, spread: float | None) -> bool:
    """Whether a job leaves no larger difference than ``spread``."""
    return spread is not None and job.spread <= max(spread, EQUAL_SPREAD)


def _lossy_or_elsewhere(case: ExplanationSearch, prepared: PreparedScenario) -> bool:
    """Whether the network drops packets, or the run was recorded on another machine."""
    return is_lossy(case.evidence, prepared.fabric) or not case.recorded_on(prepared)


def _others_explain(fit: BurstFit | None, measured: MeasuredRun) -> bool:
    """Whether other jobs' traffic explains the time, and what ports and calls show."""
    if fit is None:
        return False
    inside = modelled_part_ps(measured)
    missing = inside - fit.elapsed_ps
    return missing < MIN_MISSING_SHARE * inside and fit.misfit < MAX_MISFIT_OF_OTHERS


def _is_significant(others: OtherTraffic, run: Run) -> bool:
    if not others.flows.height:
        return False
    own = float(run.tables["messages"]["size_bytes"].sum() or 0.0)
    return others.sent_bytes >= MIN_OTHER_SHARE * max(own, 1.0)


def _job_names(others: OtherTraffic) -> str:
    return ", ".join(job.job for job in others.jobs[:3]) or UNKNOWN


def _others_text(others: OtherTraffic, evidence: NetworkEvidence) -> tuple[str, str]:
    """Whose traffic it was, and the evidence for it."""
    assert evidence.counters is not None
    seconds = evidence.counters.seconds
    named = [
        wording.job_traffic(None if job.job == UNKNOWN else job.job, job.hosts,
                            job.sent_bytes * 8 / seconds / 1e9)
        for job in others.jobs[:3]
    ]  # fmt: skip
    shown = wording.counted_traffic(others.sent_bytes, others.own_overhead - 1.0)
    return "; ".join(named), shown


def _counted_slow(evidence: NetworkEvidence, fabric: Fabric) -> tuple[Slow, str]:
    """Links that carry less than their rate according to counters of queues."""
    counters = evidence.counters
    if counters is None or not counters.findings.height:
        return (), ""
    rows = counters.findings.filter(
        (pl.col("finding") == "degraded") & pl.col("link").is_not_null()
    )
    cables: dict[int, list[float]] = {}
    for link, gbps in rows.select("link", "served_gbps").rows():
        cables.setdefault(min(int(link), int(fabric.link_reverse[int(link)])), []).append(gbps)
    slow = tuple(SlowLink(cable, float(np.mean(rates))) for cable, rates in cables.items())
    return slow, wording.QUEUED_BELOW_RATE


def is_lossy(evidence: NetworkEvidence, fabric: Fabric) -> bool:
    """Whether the network drops packets: by its counters, else by its having named interfaces."""
    counters = evidence.counters
    if counters is not None and (counters.lossy or not np.isnan(counters.stall).all()):
        return counters.lossy
    return fabric.link_interface is not None


def _all_queues_counted(evidence: NetworkEvidence, fabric: Fabric) -> bool:
    """Whether every link between switches has counters of bytes and queues."""
    counters = evidence.counters
    if counters is None or not counters.lossy:
        return False
    inner = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    return not bool(np.isnan(counters.sent_bytes[inner]).any())


def _queued_more_than_busy(evidence: NetworkEvidence, fabric: Fabric) -> set[int]:
    """Cables with a port that had a queue more often than its nominal rate explains.

    A single such reading may be chance; but if every queue is counted, a cable that slows a run has
    such a port.
    """
    assert evidence.counters is not None
    rows = evidence.counters.findings.filter(
        pl.col("link").is_not_null()
        & (pl.col("finding") == "queued")
        & (pl.col("queued_share") > pl.col("busy_share"))
    )
    return {min(link, int(fabric.link_reverse[link])) for link in map(int, rows["link"])}


def comparisons(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    evidence: NetworkEvidence,
    run: Run,
    profile: CallProfile,
) -> list[Misfit]:
    """Kinds of evidence that a simulation can be compared with."""
    program = prepared.observed.program
    topology = LinkTopology.of(run.tables)
    out: list[Misfit] = [CallTimes(profile, program)]
    sends = send_profile(measured.tables, run)
    if sends is not None:
        out.append(SendTimes(sends))
    counters = evidence.counters
    if counters is not None and not counters.lossy:
        elapsed = modelled_part_ps(measured)
        sizes = run.tables["messages"]["size_bytes"]
        error = stall_error_ps(
            link_totals(run, "bytes"), prepared.fabric.link_gbps,
            prepared.scenario.engine.buffer, float(sizes.mean() or 0.0),  # type: ignore[arg-type]
        )  # fmt: skip
        out.append(PortStalls(counters.stall_ps, counters.latched, elapsed, error))
    if evidence.congested is not None and evidence.sampled is not None:
        out.append(LinkSamples(evidence.congested, evidence.sampled, topology.from_node))
    return out


def _search(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    evidence: NetworkEvidence,
    comparisons: Sequence[Misfit],
    progress: Progress,
    threads: int | None,
    among: tuple[int, ...] = (),
    max_suspects: int = MAX_TRIALS,
) -> CableSearch:
    """Search for slow cables by simulation if time is missing; only ``among`` some, if given."""
    evaluate = make_evaluate(prepared, threads=threads)
    run = evaluate(Change(computations=True, measure=True))
    inside = modelled_part_ps(measured)
    if inside - run.elapsed_ps < MIN_MISSING_SHARE * inside:
        return CableSearch()
    calls = next(one for one in comparisons if isinstance(one, CallTimes))
    if evidence.counters is None and calls.profile.count.sum() < MIN_STRETCHES:
        return CableSearch()
    each = max(int(run.summary["events"]), 1)
    budget = min(max(SEARCH_EVENTS // each, MIN_TRIALS), max_suspects)
    fabric = prepared.fabric
    ahead = [] if among else ahead_of_stalls(evidence.counters, run, fabric)
    suspects = list(among) or cable_suspects(measured, run, ahead, fabric, budget)
    if not among and _all_queues_counted(evidence, fabric):
        queued = _queued_more_than_busy(evidence, fabric)
        suspects = [cable for cable in suspects if cable in queued]
        if not suspects:
            return CableSearch()
    return search_cables(
        evaluate, comparisons, suspects, fabric, measured_ps=inside, healthy=run, measure=True,
        ahead=ahead, most_trials=TRIALS_PER_SUSPECT * budget, progress=progress,
    )  # fmt: skip


def modelled_part_ps(measured: MeasuredRun) -> int:
    """Measured time that a simulation of the program covers."""
    whole = measured.measured
    return max(whole.elapsed_ps - whole.outside_model_ps, 1)


def _search_text(search: CableSearch, evidence: NetworkEvidence) -> str:
    assert search.found is not None
    return wording.reproduced(
        1.0 - search.found.misfit, stalls=evidence.counters is not None, alone=not search.rivals
    )
