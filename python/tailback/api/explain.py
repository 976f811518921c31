"""From evidence to an explained run: what is put into the expected run, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tailback.api import explain_wording as wording
from tailback.api.evidence import NetworkEvidence
from tailback.diagnosis.comparisons import (
    CallTimes,
    LinkSamples,
    PortStalls,
    SendTimes,
    stall_error_ps,
)
from tailback.diagnosis.hidden_cables import CableSearch, Misfit, search_cables
from tailback.diagnosis.intermittent import Intermittent, find_intermittent
from tailback.diagnosis.measured_suspects import cable_suspects
from tailback.diagnosis.measured_verdict import EvidenceSummary
from tailback.diagnosis.topology import LinkTopology, link_totals
from tailback.diagnosis.traffic_bursts import BurstFit, Outcome, fit_bursts
from tailback.diagnosis.waterfall import Progress
from tailback.evaluate import Change
from tailback.evidence import MeasuredRun
from tailback.evidence.call_profile import CallProfile, call_profile, step_times
from tailback.evidence.other_traffic import UNKNOWN, OtherTraffic
from tailback.evidence.send_times import send_profile
from tailback.fabric.model import Fabric
from tailback.run import Run
from tailback.simulation import PreparedScenario, make_evaluate

MIN_MISSING_SHARE = 0.08
"""Share of the time in calls and computation that must be missing before causes are sought."""

SEARCH_EVENTS = 200_000_000
"""Events that the search for slow cables may simulate: about a minute. Counted in events and not in
time, so that a diagnosis is the same on every machine."""

FEWEST_TRIALS, MOST_TRIALS = 12, 160
"""Simulations of that search, whatever one takes."""

MIN_STRETCHES = 50
"""Stretches in MPI calls, of all ranks, from which their times alone can speak for a slow cable:
with fewer some cable nearly always fits."""

MAX_MISFIT_OF_OTHERS = 0.6
"""Misfit to calls and stalls, over that without other traffic, from which a slow cable is looked
for although traffic of others explains the time."""

EQUAL_MISFIT = 0.005
"""Misfits below it are equal: differences of a thousandth do not say how adapters share a link."""

CLEARLY_BETTER = 0.8
"""Mean ratio of misfits from which other adapters than usual are taken where both explain the time:
on four simulated machines with a slow cable that queue messages it is 0.62, 0.76, 0.85 and 1.68, on
two that take turns 1.05 and 1.45."""

MIN_OTHER_SHARE = 0.02
"""Bytes of others over our own from which they are put into the expected run."""

Slow = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class ScenarioWithEvidence:
    """The expected run with what there is evidence for.

    Attributes:
        prepared: The scenario with slow cables and other traffic.
        found: What was found, in words.
        slow: One link of each slow cable, and its rate in Gb/s.
    """

    prepared: PreparedScenario
    found: EvidenceSummary
    slow: Slow = ()


@dataclass
class _Statements:
    """What is said of what was found, as it is gathered."""

    sources: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def add_evidence(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    run: Run,
    evidence: NetworkEvidence,
    progress: Progress,
    *,
    fifo: PreparedScenario | None = None,
    threads: int | None = None,
) -> ScenarioWithEvidence:
    """Put into the expected run what the evidence shows.

    Args:
        prepared: The scenario with the job alone.
        measured: What its trace says.
        run: The expected run of it.
        evidence: Counters and job list.
        progress: Called with the current step.
        fifo: The same scenario with adapters that send messages one after the other, where
            nobody said how they share their link.
        threads: Threads of the engine.
    """
    words = _Statements()
    _name_sources(words, measured, evidence)
    others = _Others.of(prepared, evidence, run)
    profile = call_profile(measured.tables, prepared.observed.program)
    comparisons = _comparisons(prepared, measured, evidence, run, profile)
    case = _Case(others, profile, comparisons, measured, evidence, progress, threads)
    if not case.recorded_on(prepared):
        words.missing.append(wording.HOSTS)
    attempt = case.best(prepared, fifo)
    search, fit, intermittent = attempt.search, attempt.fit, attempt.intermittent
    slow = attempt.slow
    if attempt.prepared is fifo:
        words.sources.append(wording.MESSAGES_IN_ORDER)
    prepared = others.add_to(attempt.prepared, fit.bursts if fit is not None else None)
    fabric = prepared.fabric
    candidates = tuple(
        wording.candidate(fabric.link_name(link), rate, float(fabric.link_gbps[link]))
        for trial in _candidates(search) for link, rate in trial
    )  # fmt: skip
    _ask_for_more(words, measured, evidence, bool(candidates))
    whose, shown = others.whose, others.shown
    if intermittent is not None:
        whose, shown = _intermittent_text(intermittent, search, fabric)
    found = EvidenceSummary(
        slow=tuple(_slow_cable_text(link, rate, fabric) for link, rate in slow),
        slow_shown_by=attempt.slow_shown,
        others=whose,
        others_shown_by=shown,
        intermittent=intermittent,
        others_range=_range(fit),
        lossy=_is_lossy(evidence, fabric),
        fifo=attempt.prepared is fifo,
        rests_on={
            "slow-link": ("counters", "model") if evidence.counters else ("trace", "model"),
            "other-traffic": ("counters" if evidence.counters else "trace", "model"),
        },
        candidates=candidates,
        sources=tuple(words.sources),
        missing=tuple(words.missing),
    )
    return ScenarioWithEvidence(prepared.with_slow_cables(slow), found, slow)


@dataclass(frozen=True)
class _Attempt:
    """What was found, with adapters of one kind.

    Attributes:
        prepared: The scenario with the job alone.
        fit: How traffic of others came, None for none.
        slow: Slow cables.
        slow_shown: What shows them.
        search: What came of the search for them.
        gap: Measured time that is missing in the simulation with all of it, as a share.
        misfits: Misfit to each kind of evidence, None where it cannot be compared.
        intermittent: Missing time that comes and goes, where no counters tell of other traffic.
    """

    prepared: PreparedScenario
    fit: BurstFit | None
    slow: Slow
    slow_shown: str
    search: CableSearch
    gap: float
    misfits: tuple[float | None, ...]
    intermittent: Intermittent | None = None

    @property
    def explains(self) -> bool:
        """Whether the simulation takes as long as was measured."""
        return abs(self.gap) < MIN_MISSING_SHARE

    def agrees_better(self, other: _Attempt, at_most: float = 1.0) -> bool:
        """Whether calls, sends and stalls agree better than with other adapters, or as well.

        ``at_most``: mean ratio of the misfits.
        """
        ratios = [
            max(mine, EQUAL_MISFIT) / max(its, EQUAL_MISFIT)
            for mine, its in zip(self.misfits, other.misfits, strict=True)
            if mine is not None and its is not None
        ]
        return bool(ratios) and sum(ratios) / len(ratios) <= at_most


@dataclass(frozen=True)
class _Case:
    """One measured run, of which several explanations are tried."""

    others: _Others
    profile: CallProfile
    comparisons: Sequence[Misfit]
    measured: MeasuredRun
    evidence: NetworkEvidence
    progress: Progress
    threads: int | None
    seen: dict[tuple[int, Slow, int | None, bool], Outcome] = field(default_factory=dict)
    """Outcomes of simulations by adapters, slow cables and bursts: explanations share many."""

    def recorded_on(self, prepared: PreparedScenario) -> bool:
        """Whether the run was recorded on this fabric, so that its times speak about the links.

        A trace that does not say where its ranks ran may come from any machine, often from a
        single one with all ranks on it. Counters are of the machine that the run was on.
        """
        if self.evidence.counters is not None or self.evidence.congested is not None:
            return True
        hosts = self.measured.measured.hosts
        used = prepared.fabric.node_host[prepared.observed.node]
        return hosts is not None and hosts.hosts == len(np.unique(used))

    def best(self, round_robin: PreparedScenario, fifo: PreparedScenario | None) -> _Attempt:
        """What explains the run: the simplest first, and adapters as they usually are first."""
        usual = self.attempt(round_robin, search=False)
        if _is_lossy(self.evidence, round_robin.fabric):
            fifo = None  # Hosts share their link between sockets.
        if fifo is not None and not usual.explains:
            other = self.attempt(fifo, search=False)
            if other.explains and other.agrees_better(usual):
                return other
        usual = self.attempt(round_robin, search=True)
        if fifo is None:
            return usual
        if usual.explains and usual.search.found is not None:
            # With other adapters the same cables may explain it as well, and cost less.
            cables = tuple(link for link, _ in usual.slow)
            other = self.attempt(fifo, search=True, among=cables)
            clearly = other.explains and other.agrees_better(usual, CLEARLY_BETTER)
            return other if clearly and other.slow else usual
        if usual.explains or usual.gap < 0:
            return usual
        other = self.attempt(fifo, search=True)
        return other if other.explains and other.agrees_better(usual) else usual

    def attempt(
        self, prepared: PreparedScenario, *, search: bool, among: tuple[int, ...] = ()
    ) -> _Attempt:
        """What is found with adapters of one kind.

        ``search``: also look for slow cables, only ``among`` some where those are given.
        """
        evidence, measured = self.evidence, self.measured
        search = search and self.recorded_on(prepared)
        fit = self._fit(prepared, ())
        slow, shown = _counted_slow(evidence, prepared.fabric)
        found = CableSearch()
        if search and not slow and not _fits(fit, measured):
            beside = self.others.add_to(prepared, None)
            found = _search(
                beside, measured, evidence, self.comparisons, self.progress, self.threads, among
            )
            if found.found is not None:
                slow, shown = found.found.cables, _search_text(found, evidence)
        intermittent = self._intermittent(prepared, found) if search else None
        if intermittent is not None:
            slow, shown = (), ""
        if slow:
            fit = self._fit(prepared, slow)
        inside = modelled_part_ps(measured)
        came = self._outcome(prepared, slow, None if fit is None else fit.bursts)
        gap = (inside - came.elapsed_ps) / inside
        return _Attempt(prepared, fit, slow, shown, found, gap, came.misfits, intermittent)

    def _intermittent(self, prepared: PreparedScenario, search: CableSearch) -> Intermittent | None:
        """Missing time that comes and goes, as no slow cable explains it.

        Counters tell of other traffic themselves. Where queues drop packets, retransmission makes
        steps of healthy runs differ as much.
        """
        if self.evidence.counters is not None or _is_lossy(self.evidence, prepared.fabric):
            return None
        run = self._simulated(prepared, ())
        inside = modelled_part_ps(self.measured)
        missing = inside - run.elapsed_ps
        if missing < MIN_MISSING_SHARE * inside:
            return None
        profile, program = self.profile, prepared.observed.program
        alone = step_times(profile, run, program)
        if alone is None:
            return None
        best = search.found or search.best
        slow = (
            step_times(profile, self._simulated(prepared, best.cables), program) if best else None
        )
        return find_intermittent(alone, slow, missing)

    def _fit(self, prepared: PreparedScenario, slow: Slow) -> BurstFit | None:
        """How traffic of others came; None where there is none."""
        if self.others.traffic is None:
            return None
        return fit_bursts(
            self._outcome(prepared, slow, None, beside=False),
            lambda bursts: self._outcome(prepared, slow, bursts),
            modelled_part_ps(self.measured),
        )

    def _outcome(
        self, prepared: PreparedScenario, slow: Slow, bursts: int | None, *, beside: bool = True
    ) -> Outcome:
        """How a simulation compares with what was measured; ``beside``: traffic of others."""
        key = (id(prepared), slow, bursts, beside)
        if key not in self.seen:
            scenario = self.others.add_to(prepared, bursts) if beside else prepared
            run = self._simulated(scenario, slow)
            misfits = tuple(compare(run) for compare in self.comparisons)
            self.seen[key] = Outcome(run.elapsed_ps, misfits)
        return self.seen[key]

    def _simulated(self, prepared: PreparedScenario, slow: Slow) -> Run:
        evaluate = make_evaluate(prepared, threads=self.threads)
        return evaluate(Change(slow=slow, computations=True, measure=True))


@dataclass(frozen=True)
class _Others:
    """Traffic of others, where there is enough of it.

    Attributes:
        traffic: What was counted, None for none that matters.
        whose: Whose it was.
        shown: What shows it.
    """

    traffic: OtherTraffic | None = None
    whose: str = ""
    shown: str = ""

    @classmethod
    def of(cls, prepared: PreparedScenario, evidence: NetworkEvidence, run: Run) -> _Others:
        """What counters say of it."""
        traffic = evidence.others
        if traffic is None or not _matters(traffic, run):
            return cls()
        return cls(traffic, *_others_text(traffic, evidence))

    def add_to(self, prepared: PreparedScenario, bursts: int | None) -> PreparedScenario:
        """The scenario with this traffic added, in ``bursts`` per window of the counters."""
        if self.traffic is None:
            return prepared
        name = f"other traffic ({_job_names(self.traffic)})"
        return prepared.with_other_traffic(name, self.traffic.messages(bursts).rows())


def _fits(fit: BurstFit | None, measured: MeasuredRun) -> bool:
    """Whether traffic of others explains the time, and what ports and calls show."""
    if fit is None:
        return False
    inside = modelled_part_ps(measured)
    missing = inside - fit.elapsed_ps
    return missing < MIN_MISSING_SHARE * inside and fit.misfit < MAX_MISFIT_OF_OTHERS


def _range(fit: BurstFit | None) -> tuple[int, int]:
    """How much less and more time the run may take by how traffic of others came."""
    return (0, 0) if fit is None else (fit.low_ps - fit.elapsed_ps, fit.high_ps - fit.elapsed_ps)


def _candidates(search: CableSearch) -> list[Slow]:
    """Cables of which one may be slow, where the search could not tell."""
    if search.best is None or not search.rivals:
        return []
    return [search.best.cables, *(trial.cables for trial in search.rivals)]


def _matters(others: OtherTraffic, run: Run) -> bool:
    if not others.flows.height:
        return False
    own = float(run.tables["messages"]["size_bytes"].sum() or 0.0)
    return others.sent_bytes >= MIN_OTHER_SHARE * max(own, 1.0)


def _job_names(others: OtherTraffic) -> str:
    return ", ".join(job.job for job in others.jobs[:3]) or UNKNOWN


def _others_text(others: OtherTraffic, evidence: NetworkEvidence) -> tuple[str, str]:
    """Whose traffic it was, and what shows it."""
    assert evidence.counters is not None
    seconds = evidence.counters.seconds
    named = [
        wording.job_traffic(None if job.job == UNKNOWN else job.job, job.hosts,
                            job.sent_bytes * 8 / seconds / 1e9)
        for job in others.jobs[:3]
    ]  # fmt: skip
    shown = wording.counted_traffic(others.sent_bytes, others.own_overhead - 1.0)
    return "; ".join(named), shown


def _intermittent_text(
    intermittent: Intermittent, search: CableSearch, fabric: Fabric
) -> tuple[str, str]:
    """Whose traffic may be behind time that comes and goes, and what shows it."""
    near = None
    if search.best is not None and search.best.misfit < MAX_MISFIT_OF_OTHERS:
        near = fabric.link_name(search.best.cables[0][0])
    shown = wording.intermittent_steps(intermittent.longer, intermittent.steps)
    return wording.unknown_senders(near), shown


def _counted_slow(evidence: NetworkEvidence, fabric: Fabric) -> tuple[Slow, str]:
    """Links that counters of queues show to serve less than their rate."""
    counters = evidence.counters
    if counters is None or not counters.findings.height:
        return (), ""
    rows = counters.findings.filter(
        (pl.col("finding") == "degraded") & pl.col("link").is_not_null()
    )
    cables: dict[int, list[float]] = {}
    for link, gbps in rows.select("link", "served_gbps").rows():
        cables.setdefault(min(int(link), int(fabric.link_reverse[int(link)])), []).append(gbps)
    slow = tuple((cable, float(np.mean(rates))) for cable, rates in cables.items())
    return slow, wording.QUEUED_BELOW_RATE


def _is_lossy(evidence: NetworkEvidence, fabric: Fabric) -> bool:
    """Whether the network drops packets: its counters say so, or its ports are interfaces."""
    counted = evidence.counters is not None and evidence.counters.lossy
    return counted or fabric.link_interface is not None


def _all_queues_counted(evidence: NetworkEvidence, fabric: Fabric) -> bool:
    """Whether every link between switches has counters of bytes and queue."""
    counters = evidence.counters
    if counters is None or not counters.lossy:
        return False
    inner = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    return not bool(np.isnan(counters.sent_bytes[inner]).any())


def _queued_more_than_busy(evidence: NetworkEvidence, fabric: Fabric) -> set[int]:
    """Cables with a port that was found with a queue more often than its nominal rate explains.

    By themselves such readings may be chance. But where every queue is counted, a cable that slows
    a run has such a port.
    """
    assert evidence.counters is not None
    rows = evidence.counters.findings.filter(
        pl.col("link").is_not_null()
        & (pl.col("finding") == "queued")
        & (pl.col("queued_share") > pl.col("busy_share"))
    )
    return {min(link, int(fabric.link_reverse[link])) for link in map(int, rows["link"])}


def _comparisons(
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
        out.append(
            PortStalls(counters.stall_ps, counters.latched, topology.from_node, elapsed, error)
        )
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
) -> CableSearch:
    """Look for slow cables by simulation, where time is missing; only ``among`` some, if given."""
    evaluate = make_evaluate(prepared, threads=threads)
    run = evaluate(Change(computations=True, measure=True))
    inside = modelled_part_ps(measured)
    if inside - run.elapsed_ps < MIN_MISSING_SHARE * inside:
        return CableSearch()
    calls = next(one for one in comparisons if isinstance(one, CallTimes))
    if evidence.counters is None and calls.profile.count.sum() < MIN_STRETCHES:
        return CableSearch()
    each = max(int(run.summary["events"]), 1)
    budget = min(max(SEARCH_EVENTS // each, FEWEST_TRIALS), MOST_TRIALS)
    fabric = prepared.fabric
    suspects = list(among) or cable_suspects(measured, run, evidence.counters, fabric, budget)
    if not among and _all_queues_counted(evidence, fabric):
        queued = _queued_more_than_busy(evidence, fabric)
        suspects = [cable for cable in suspects if cable in queued]
        if not suspects:
            return CableSearch()
    return search_cables(
        evaluate, comparisons, suspects, np.asarray(fabric.link_gbps, np.float64),
        measured_ps=inside, healthy=run, budget=budget, measure=True,
        progress=progress,
    )  # fmt: skip


def modelled_part_ps(measured: MeasuredRun) -> int:
    """Measured time that a simulation of the program stands for."""
    whole = measured.measured
    return max(whole.elapsed_ps - whole.outside_model_ps, 1)


def _slow_cable_text(link: int, rate: float, fabric: Fabric) -> str:
    nominal = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    return wording.slow_cable(fabric.link_name(link), rate, float(nominal[link]))


def _search_text(search: CableSearch, evidence: NetworkEvidence) -> str:
    assert search.found is not None
    return wording.reproduced(
        1.0 - search.found.misfit, stalls=evidence.counters is not None, alone=not search.rivals
    )


def _name_sources(words: _Statements, measured: MeasuredRun, evidence: NetworkEvidence) -> None:
    words.sources.append(wording.traced_calls(measured.tables["calls"].height))
    counters = evidence.counters
    if counters is not None:
        counted = int((~np.isnan(counters.sent_bytes)).sum())
        words.sources.append(wording.counted_links(counted, lossy=counters.lossy))
        words.sources += counters.notes
        if counters.lossy:
            words.sources.append(wording.DROPS)
    if evidence.congested is not None:
        sampled = int((~np.isnan(evidence.congested)).sum())
        words.sources.append(wording.sampled_links(sampled))
    if evidence.jobs is not None:
        words.sources.append(wording.listed_jobs(len(evidence.jobs)))


def _ask_for_more(
    words: _Statements, measured: MeasuredRun, evidence: NetworkEvidence, ambiguous: bool
) -> None:
    """What would settle what is open, with the command that gets it."""
    if evidence.counters is None:
        words.missing.append(wording.COUNTERS)
    elif evidence.others is not None and evidence.jobs is None and evidence.others.jobs:
        words.missing.append(wording.JOB_LIST)
    if ambiguous:
        words.missing.append(wording.FORWARDING)
