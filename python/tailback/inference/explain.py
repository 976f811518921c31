"""From evidence to an explained run: what is added to the expected run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.diagnosis.explanation import (
    Origin,
    PortCount,
    PortEvents,
    SampledLink,
    SharedLink,
    SubjectLink,
    SuspectLink,
)
from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change
from tailback.evidence import MeasuredRun
from tailback.evidence.call_profile import call_profile
from tailback.evidence.job_shares import OURS
from tailback.evidence.other_traffic import OtherTraffic
from tailback.fabric.degraded import SlowLink, nominal, slow_links
from tailback.fabric.model import Fabric
from tailback.inference import explain_wording as wording
from tailback.inference.bus_bandwidth import bus_bandwidths
from tailback.inference.cable_places import (
    as_busy,
    hides_places,
    host_of_cable,
    place_is_open,
    slow_candidates,
    with_parallel_links,
)
from tailback.inference.changes_over_time import ChangeOverTime
from tailback.inference.decision import Alternative, more_by_load_ps
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.evidence_table import evidence_rows
from tailback.inference.hashed_flows import collisions_of
from tailback.inference.hypotheses import CREDIBLE, LIKELY, NAMED, Hypothesis, Posterior
from tailback.inference.hypothesis_space import HypothesisSpace
from tailback.inference.machine_models import SETTINGS, chosen_by_chance, routing_choice
from tailback.inference.measured_wording import slower_part
from tailback.inference.network_clues import (
    OtherJobs,
    Slow,
    are_counted,
    comparisons,
    counted_slow,
    impossible_slow,
    is_lossy,
    unknown_hosts,
)
from tailback.inference.next_measurement import MeasurementChoice, possible_measurements
from tailback.inference.search import ExplanationSearch
from tailback.inference.smallest_fault import FaultSizes
from tailback.inference.suspect_links import CableCosts, charges, suspect_links
from tailback.inference.unknown_job import UnknownJob
from tailback.io.progress import Progress
from tailback.port_counters.findings.port_events import ports_counted
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.evaluate import has_no_probes
from tailback.sources.recording import ranks_missing_of

NEGLIGIBLE = 1e-4
"""Probability below which hypotheses are left out of the ensemble of the verdict."""


@dataclass(frozen=True)
class ScenarioWithEvidence:
    """The expected run with everything there is evidence for.

    Attributes:
        prepared: The scenario with slow cables and other traffic.
        found: The findings, in words.
        slow: The slow links.
        run: The run of the scenario, with telemetry but no other probes.
        others: Runs of changes of the scenario that were simulated on the way.
    """

    prepared: PreparedScenario
    summary: EvidenceSummary
    slow: Slow
    run: Run
    others: Sequence[tuple[Change, Run]] = ()


@dataclass
class _Statements:
    """Statements for the diagnosis, collected on the way."""

    sources: list[str] = field(default_factory=list)
    pairs: str = ""
    """Why hosts should be measured in pairs; empty: nothing in particular."""
    assumed_hosts: str = ""


def add_evidence(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    run: Run,
    evidence: NetworkEvidence,
    progress: Progress,
    *,
    fifo: PreparedScenario | None = None,
    threads: int | None = None,
    settings: str = "",
    flows_are_hashed: bool = False,
) -> ScenarioWithEvidence:
    """Add to the expected run what the evidence shows.

    Args:
        prepared: The scenario with the job alone.
        measured: The measured run.
        run: Its expected run, with computations.
        evidence: Counters and job list.
        progress: Called with the current step.
        fifo: The same scenario with adapters that send messages one after another, if the scenario
            does not state how they share their link.
        threads: Threads of the engine.
        settings: Where the settings of the engine come from, in words; empty: not said.
        flows_are_hashed: Whether switches are stated to hash flows to paths, by an unknown hash.
    """
    statements = _Statements()
    _name_sources(statements, measured, evidence, prepared)
    statements.sources += [settings] if settings else []
    space = _hypothesis_space(prepared, measured, run, evidence, progress, threads)
    statements.assumed_hosts = unknown_hosts(prepared, measured)
    search = ExplanationSearch(space, flows_are_hashed=flows_are_hashed)
    posterior = search.explained(prepared, fifo)
    if space.places_hidden:
        posterior = posterior.counting_any_place()
    best = posterior.best
    chosen = space.machines[best.machine].prepared
    statements.sources += _assumed(space, best, prepared)
    place_open = place_is_open(space, posterior, prepared)
    candidates, anywhere = _slow_places(space, posterior, statements, place_open=place_open)
    measurements = possible_measurements(
        space,
        chosen,
        assumed_hosts=bool(statements.assumed_hosts),
        candidates=candidates,
        counted=are_counted(evidence, (*best.slow, *candidates), prepared.fabric),
        pairs=statements.pairs,
    )
    with_others = space.others.add_to(chosen, best.bursts)
    expected = _expected(space, best)
    change = _change_over_time(space, best, expected)
    if change is not None and change.is_fault:
        statements.sources.append(slower_part(change))
    summary = _summary(space, posterior, candidates, statements)
    suspects = _suspect_links(space, posterior, expected, candidates)
    summary = replace(
        summary,
        slow_anywhere=anywhere,
        change=change,
        place_open=place_open,
        ranks_missing=measured.measured.not_recorded or ranks_missing_of(prepared.scenario),
        suspect_links=suspects,
        measurements=MeasurementChoice(space, posterior, measurements),
        sizes=FaultSizes(space, posterior),
        bus_bandwidths=bus_bandwidths(
            measured,
            prepared.observed.program,
            prepared.fabric,
            prepared.observed.node.astype(np.int64),
            (space.healthy(best.machine), expected),
        ),
        evidence=tuple(evidence_rows(space, posterior, suspects, change)),
        unknown_timing=posterior.unknown_timing,
        noise_in_calls_ps=posterior.noise_in_calls_ps,
        usual_delays=posterior.usual_delays,
        collisions=collisions_of(space, best),
    )
    explained = with_others.with_slow_links(best.slow)
    return ScenarioWithEvidence(
        explained,
        summary,
        best.slow,
        _as_run_of(explained, expected),
        [(changed, _as_run_of(explained, run)) for changed, run in _others(space, best)],
    )


def _hypothesis_space(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    run: Run,
    evidence: NetworkEvidence,
    progress: Progress,
    threads: int | None,
) -> HypothesisSpace:
    """The space of hypotheses, without any; arguments as in :func:`add_evidence`."""
    profile = call_profile(measured.tables, prepared.observed.program)
    is_first = has_no_probes(prepared.scenario) and run.computations is not None
    return HypothesisSpace(
        OtherJobs.of(prepared, evidence, run),
        profile,
        comparisons(prepared, measured, evidence, run, profile),
        measured,
        evidence,
        progress,
        threads,
        run if is_first else None,
        hides_places(prepared, measured, evidence),
    )


def _assumed(space: HypothesisSpace, best: Hypothesis, prepared: PreparedScenario) -> list[str]:
    """How the most probable machine model differs from what is stated, one line each."""
    sources: list[str] = []
    chosen = space.machines[best.machine].prepared
    if chosen.scenario.engine.injection != prepared.scenario.engine.injection:
        sources.append(wording.MESSAGES_IN_ORDER)
    if chosen.scenario.engine.progress != prepared.scenario.engine.progress:
        sources.append(wording.PROGRESS_IN_CALLS)
    if space.machines[best.machine].algorithm:
        sources.append(wording.run_by(space.machines[best.machine].algorithm))
    routing = routing_choice(chosen)
    if routing != routing_choice(prepared):
        sources.append(wording.ROUTED[routing])
    if (chosen.scenario.fabric.forwarding is None) != (prepared.scenario.fabric.forwarding is None):
        sources.append(wording.tables_not_used())
    if chosen.fabric.nominal_gbps is None and prepared.fabric.nominal_gbps is not None:
        sources.append(wording.STATED_SLOW_NOT_USED)
    if not best.slow and counted_slow(space.evidence, prepared.fabric):
        sources.append(wording.COUNTED_SLOW_NOT_USED)
    if space.machines[best.machine].small_buffers:
        sources.append(wording.SMALL_BUFFERS)
    return sources + [wording.ruled_out_coarsely(ranking) for ranking in space.rankings]


def _suspect_links(
    space: HypothesisSpace, posterior: Posterior, expected: Run, candidates: Sequence[SlowLink]
) -> tuple[SuspectLink, ...]:
    """The links that the evidence makes suspect.

    Args:
        space: The hypotheses.
        posterior: Their probabilities.
        expected: The best simulation of the run.
        candidates: Cables of which one is slow, or may be.
    """
    machine = space.machines[posterior.best.machine]
    fabric = machine.prepared.fabric
    costs = CableCosts(
        posterior,
        space.prior(),
        space.hypotheses,
        frozenset(machine.slow),
        np.asarray(fabric.link_gbps, np.float64),
        space.noise_in_calls_ps.get(machine.name, 0),
    )
    sent = link_totals(space.alone(machine.name, None, with_others=False), "bytes")
    lacking = posterior.model.missing_share(expected.elapsed_ps)
    against = charges(space.evidence, fabric, sent)
    suspects = suspect_links(against, fabric, expected, costs, lacking)
    reverse = fabric.link_reverse
    possible, slow = (
        {end for each in links for end in (each.link, int(reverse[each.link]))}
        for links in (candidates, (*slow_links(fabric), *posterior.best.slow))
    )
    return tuple(
        link.model_copy(update={"status": "candidate", "reason": wording.ONE_OF_CANDIDATES})
        if link.link in possible
        else link.model_copy(update={"status": "named", "reason": ""})
        if link.link in slow and not candidates
        else link
        for link in suspects
    )


def _as_run_of(prepared: PreparedScenario, run: Run) -> Run:
    """A run of the search as that of the scenario, which it equals in all but how it is stated."""
    return replace(run, scenario=prepared.scenario)


def _expected(space: HypothesisSpace, best: Hypothesis) -> Run:
    """The run with slow cables and counted traffic of the best hypothesis."""
    machine = space.machines[best.machine]
    if best.slow == machine.slow:
        return space.alone(best.machine, best.bursts)
    scenario = space.others.add_to(machine.prepared, best.bursts)
    return space.simulated(scenario, best.slow, measure=True)


def _others(space: HypothesisSpace, best: Hypothesis) -> list[tuple[Change, Run]]:
    """Runs of the search that are changes of the scenario with the best hypothesis."""
    machine = space.machines[best.machine]
    beside = space.alone(best.machine, best.bursts)
    alone = space.alone(best.machine, None, with_others=False)
    out: list[tuple[Change, Run]] = []
    if best.slow == machine.slow:
        out.append((Change(background=False), alone))
    if not machine.slow and nominal(machine.prepared.fabric) is machine.prepared.fabric:
        healthy = Change(network="healthy")
        out += [(healthy, beside), (replace(healthy, background=False), alone)]
    return [(replace(change, computations=True, measure=True), run) for change, run in out]


def _change_over_time(space: HypothesisSpace, best: Hypothesis, run: Run) -> ChangeOverTime | None:
    """A part of the run in which calls take longer than in ``run``, its best simulation."""
    machine, profile = space.machines[best.machine], space.profile
    program = machine.prepared.observed.program
    scenario = space.others.add_to(machine.prepared, best.bursts)
    change = ChangeOverTime.of(profile, run, program, space.measured.measured.elapsed_ps)
    if change is None or not change.is_fault:
        return None
    ordinary = []
    for settings in SETTINGS:
        varied = space.simulated(scenario, best.slow, settings)
        times = profile.with_times_of(varied, program)
        if times is not None:
            ordinary.append(ChangeOverTime.of(times, run, program, varied.elapsed_ps))
    return change.beside(ordinary)


def _slow_places(
    space: HypothesisSpace, posterior: Posterior, statements: _Statements, *, place_open: bool
) -> tuple[list[SlowLink], str]:
    """Cables of which one may be slow, and which others may be, in words."""
    fabric = next(iter(space.machines.values())).prepared.fabric
    candidates = slow_candidates(posterior, fabric, place_open=place_open)
    alike = as_busy(space, posterior, candidates) if space.places_hidden else []
    candidates = alike[:NAMED] if len(alike) > len(candidates) else candidates
    machine = space.machines[posterior.best.machine]
    named = candidates or [slow for slow in posterior.best.slow if slow not in machine.slow]
    anywhere = _slow_anywhere(posterior, len(alike), statements)
    if space.evidence.counters is not None:
        return candidates, anywhere
    host = host_of_cable(named, fabric)
    if host >= 0 and posterior.model.lossy:
        # By times of calls alone, one between switches looks much like it.
        leaf = fabric.vertex_name(fabric.n_nodes + int(fabric.node_switch[host]))
        anywhere = anywhere or wording.slow_at_leaf(fabric.vertex_name(host), leaf)
        candidates = named
    elif chosen_by_chance(machine.prepared):
        parallel = with_parallel_links(named, fabric)
        candidates = parallel[:NAMED] if len(parallel) > len(named) else candidates
    return candidates, anywhere


def _slow_anywhere(posterior: Posterior, alike: int, statements: _Statements) -> str:
    """Which links may be slow if none is evident, in words; asks for tests that show it.

    ``alike``: number of cables that the evidence cannot tell apart.
    """
    chance, cables = posterior.slow_somewhere
    cables = max(cables, alike if alike > NAMED else 0)
    machine, slowdowns = posterior.slower_machine
    if machine >= LIKELY:
        statements.pairs = wording.slower_machine(slowdowns)
    elif chance >= LIKELY and cables:
        statements.pairs = wording.SLOW_SOMEWHERE
    else:
        return ""
    return wording.slow_anywhere(cables, slowdowns if machine >= 1.0 - CREDIBLE else ())


def _summary(
    space: HypothesisSpace,
    posterior: Posterior,
    candidates: Sequence[SlowLink],
    statements: _Statements,
) -> EvidenceSummary:
    """What was found, in statements."""
    best = posterior.best
    fabric = space.machines[best.machine].prepared.fabric
    sent = link_totals(space.alone(best.machine, None, with_others=False), "bytes")
    stated = [
        slow
        for slow in slow_links(fabric)
        if sent[slow.link] > 0 or (slow.both and sent[fabric.link_reverse[slow.link]] > 0)
    ]
    whose, shown = space.others.whose, space.others.shown
    busy = _slow_busy_ps(space, best)
    more = more_by_load_ps(busy, posterior.model, best.simulated_ps)
    alternatives = _alternatives(space, posterior, more, _others_busy_ps(space, sent))
    job = _unknown_job(space, posterior)
    evidence = space.evidence
    origin: tuple[Origin, ...] = ("counters" if evidence.counters else "trace", "model")
    # Counters of other links say nothing of these.
    counted = are_counted(evidence, (*stated, *best.slow, *candidates), fabric)
    if job is not None and evidence.counters:
        origin = ("counters", "trace", "model")
        shown = wording.counted_in_long_intervals(shown, job)
    elif job is not None:
        whose, shown = wording.UNKNOWN_SENDERS, wording.scattered_repetitions(job)
    slower = _slow_links((*stated, *best.slow), fabric, sent)
    possible = _slow_links(candidates, fabric, None)
    return EvidenceSummary(
        slow=tuple(link.text for link in slower),
        slow_links=tuple(possible or slower),
        slow_shown_by=(
            _slow_shown_by(space, best, busy if more else 0, alone=not candidates)
            if best.slow
            else wording.STATED_SLOW
            if stated
            else ""
        ),
        others=whose,
        others_shown_by=shown,
        shared_links=shared_links(space.others.traffic, fabric),
        sampled_links=sampled_links(evidence.estimates, fabric, evidence.sampled_calls),
        port_events=port_event_statements(evidence.port_events),
        unknown_job=job,
        alternatives=tuple(alternative for _, alternative in alternatives),
        others_range=_range(posterior),
        others_more_ps=(
            0
            if job is not None
            else _others_more_ps(alternatives, _simulated_ps(space, posterior, best) + more)
        ),
        slow_more_ps=more,
        lossy=is_lossy(evidence, fabric),
        rests_on={
            "slow-link": (
                *(("counters",) if counted else ("trace",)),
                *(("fabric",) if stated and not best.slow else ()),
                "model",
            ),
            "other-traffic": origin,
        },
        candidates=tuple(link.text for link in possible),
        sources=tuple(statements.sources),
        assumed_hosts=statements.assumed_hosts,
        impossible=impossible_slow(evidence, fabric),
    )


def _alternatives(
    space: HypothesisSpace, posterior: Posterior, more_ps: int, busy_ps: int
) -> list[tuple[float, Alternative]]:
    """The hypotheses by probability, with the costs of hidden causes; the best one first.

    Each takes ``more_ps`` longer than its simulation, because of slow links that counters show, and
    those with other traffic no less than ``busy_ps``.
    """
    best = posterior.best
    together = _costs_together(space, posterior)
    out: list[tuple[float, Alternative]] = []
    for weighed in posterior.weighed:
        hypothesis = weighed.hypothesis
        if weighed.probability < NEGLIGIBLE and hypothesis is not best:
            continue
        machine, elapsed = hypothesis.machine, _simulated_ps(space, posterior, hypothesis)
        hidden: dict[str, int] = {}
        unexplained = hypothesis.unexplained
        if not posterior.is_named(hypothesis):
            # One of many places that fit equally well is no more than an unknown cause.
            unexplained = True
        elif (
            posterior.all_links_slow(hypothesis) or hypothesis.slow != space.machines[machine].slow
        ):
            # Slow cables that counters show by themselves are in every alternative.
            hidden["slow-link"] = elapsed - space.alone(machine, hypothesis.bursts).elapsed_ps
        if (evenly := space.machines[machine].evenly) is not None:
            alone, even = (space.alone(name, hypothesis.bursts) for name in (machine, evenly))
            hidden["routing"] = alone.elapsed_ps - even.elapsed_ps
        if hypothesis.job is not None:
            without = space.alone(machine, None, with_others=False).elapsed_ps
            hidden["other-traffic"] = elapsed - without
        elif space.others.traffic is not None:
            without = space.alone(machine, None, with_others=False).elapsed_ps
            beside = space.alone(machine, hypothesis.bursts).elapsed_ps
            hidden["other-traffic"] = (elapsed if hypothesis.otherwise else beside) - without
            if "slow-link" in hidden:
                key = machine, hypothesis.places(posterior.reverse)
                hidden["other-traffic"] += together.get(key, 0)
        concealed = posterior.hidden_among_simulated if hypothesis.unsimulated else 0.0
        elapsed += more_ps + hypothesis.noise_ps
        if "other-traffic" in hidden:
            waiting = more_by_load_ps(busy_ps, posterior.model, elapsed)
            elapsed, hidden["other-traffic"] = elapsed + waiting, hidden["other-traffic"] + waiting
        alternative = Alternative(
            weighed.log_weight, elapsed, hidden, unexplained, concealed, hypothesis.noise_ps
        )
        out.insert(0 if hypothesis is best else len(out), (weighed.probability, alternative))
    return out


def _costs_together(space: HypothesisSpace, posterior: Posterior) -> dict[Hashable, int]:
    """How much more counted traffic costs beside slow cables than without them, ps.

    By machine model and places of the cables. Every cause costs what the run saves without it, so
    that neither of two is charged with what they cost only together.
    """
    out: dict[Hashable, int] = {}
    if space.others.traffic is None:
        return out
    for weighed in posterior.weighed:
        hypothesis = weighed.hypothesis
        machine = space.machines[hypothesis.machine]
        key = hypothesis.machine, hypothesis.places(posterior.reverse)
        added = hypothesis.slow != machine.slow and not hypothesis.otherwise
        if weighed.probability < 1.0 - CREDIBLE or not added or key in out:
            continue
        cables_only = space.simulated(machine.prepared, hypothesis.slow).elapsed_ps
        beside = space.alone(machine.name, hypothesis.bursts).elapsed_ps
        without = space.alone(machine.name, None, with_others=False).elapsed_ps
        out[key] = hypothesis.simulated_ps - cables_only - (beside - without)
    return out


def _simulated_ps(space: HypothesisSpace, posterior: Posterior, hypothesis: Hypothesis) -> int:
    """Simulated time of a hypothesis, ps; without its slow cables where they are not named."""
    if posterior.is_named(hypothesis):
        return hypothesis.simulated_ps
    return space.alone(hypothesis.machine, hypothesis.bursts).elapsed_ps


def _others_more_ps(alternatives: Sequence[tuple[float, Alternative]], simulated_ps: int) -> int:
    """How much more counted traffic of other jobs costs than in the first simulation, ps.

    The cost is the mean over all hypotheses with the same causes, by their probability.

    Args:
        alternatives: The hypotheses, the first one first, by probability.
        simulated_ps: Simulated time of the first one, with what slow links add, ps.
    """
    _, first = alternatives[0]
    if "other-traffic" not in first.hidden_ps:
        return 0
    same = [
        (probability, alternative.hidden_ps["other-traffic"])
        for probability, alternative in alternatives
        if alternative.hidden_ps.keys() == first.hidden_ps.keys()
    ]
    weight = sum(probability for probability, _ in same)
    mean = sum(probability * ps for probability, ps in same) / max(weight, 1e-12)
    return round(mean) - first.hidden_ps["other-traffic"] + first.elapsed_ps - simulated_ps


def _unknown_job(space: HypothesisSpace, posterior: Posterior) -> UnknownJob | None:
    """The unknown job of the best hypothesis, if it has one, with its cost."""
    best = posterior.best
    if best.job is None:
        return None
    alone = space.compare(space.alone(best.machine, None))
    missing = max(space.inside_ps - alone.elapsed_ps, 0)
    tried = [
        hypothesis
        for hypothesis in space.hypotheses
        if hypothesis.job is not None and hypothesis.machine == best.machine
    ]
    costs = [
        min(max(hypothesis.outcome.elapsed_ps - alone.elapsed_ps, 0), missing)
        for hypothesis in tried
    ]
    same = [
        ps
        for ps, hypothesis in zip(costs, tried, strict=True)
        if hypothesis.job and hypothesis.job.bursts == best.job.bursts
    ]
    ps = min(max(best.outcome.elapsed_ps - alone.elapsed_ps, 0), missing)
    return UnknownJob(
        ps,
        min(same),
        missing,
        best.job.load,
        best.outcome.misfits.get("spread") or 0.0,
        alone.misfits.get("spread") or 0.0,
    )


def _range(posterior: Posterior) -> tuple[int, int]:
    """How much less and more time the run may take, depending on the bursts of other traffic."""
    best = posterior.best
    times = [
        weighed.hypothesis.simulated_ps - best.simulated_ps
        for weighed in posterior.credible()
        if weighed.hypothesis.machine == best.machine
        and weighed.hypothesis.slow == best.slow
        and weighed.hypothesis.slower is None
    ]
    return min([0, *times]), max([0, *times])


def _slow_busy_ps(space: HypothesisSpace, best: Hypothesis) -> int:
    """Time that the busiest slow link of a lossy network needed for the bytes that it counted, ps.

    Such networks hash flows to paths, which nothing records: the model spreads them evenly. 0 if
    counters do not show the slow links by themselves.
    """
    counters, machine = space.evidence.counters, space.machines[best.machine]
    if counters is None or not counters.lossy or best.slow != machine.slow:
        return 0
    reverse = machine.prepared.fabric.link_reverse
    busy = [
        counters.sent_bytes[link] * 8000.0 / slow.gbps
        for slow in best.slow
        for link in ((slow.link, reverse[slow.link]) if slow.both else (slow.link,))
    ]
    return round(float(np.nan_to_num(np.array(busy)).max(initial=0.0)))


def _others_busy_ps(space: HypothesisSpace, sent: NDArray[np.float64]) -> int:
    """Time that a link of a lossy network needed for mostly other jobs' bytes and some of ours, ps.

    Its queue delays ours, however much or little the model sends at the same instants.

    Args:
        space: The hypotheses.
        sent: Bytes of our job on each link, shape (L,).
    """
    counters = space.evidence.counters
    if counters is None or not counters.lossy or space.others.traffic is None:
        return 0
    fabric = next(iter(space.machines.values())).prepared.fabric
    shared = (sent > 0) & (counters.sent_bytes >= 2.0 * sent)
    busy = (counters.sent_bytes * 8000.0 / fabric.link_gbps)[shared]
    return round(float(busy.max(initial=0.0)))


def _slow_shown_by(space: HypothesisSpace, best: Hypothesis, busy_ps: int, *, alone: bool) -> str:
    """The evidence for the slow cables, in words.

    ``busy_ps`` is the time that one was busy, if it adds to the cost; else 0.
    """
    if best.slow == space.machines[best.machine].slow:
        return wording.queued_below_rate(busy_ps)
    errors = space.posterior().model.errors
    before = space.compare(space.alone(best.machine, best.bursts)).misfits
    # In units of the usual misfit: kinds of evidence agree with different precision.
    both = [
        (now / errors[kind], (before[kind] or 0.0) / errors[kind])
        for kind, now in best.outcome.misfits.items()
        if now is not None and kind in errors
    ]
    removed = 1.0 - sum(now for now, _ in both) / max(sum(then for _, then in both), 1e-12)
    timed, stalls = (
        any(best.outcome.misfits.get(kind) is not None for kind in kinds)
        for kinds in (("calls", "sends"), ("stalls",))
    )
    return wording.reproduced(max(removed, 0.0), timed=timed, stalls=stalls, alone=alone)


def _slow_links(
    slow: Iterable[SlowLink], fabric: Fabric, sent: NDArray[np.float64] | None
) -> list[SubjectLink]:
    """Slow links with their rates; ``sent`` as in :func:`_slow_link_text`, None for candidates."""
    out = []
    for each in slow:
        name = fabric.link_name(each.link)
        if sent is None:
            text = wording.candidate(name, each.gbps, float(fabric.link_gbps[each.link]))
        else:
            text = _slow_link_text(each, fabric, sent)
        out.append(SubjectLink(link=each.link, name=name, text=text))
    return out


def _slow_link_text(slow: SlowLink, fabric: Fabric, sent: NDArray[np.float64]) -> str:
    """A slow link in words; ``sent``: bytes of the job on each link, shape (L,)."""
    nominal = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    name, rate = fabric.link_name(slow.link), float(nominal[slow.link])
    used = bool(sent[fabric.link_reverse[slow.link]] > 0)
    return wording.slow_link(name, slow.gbps, rate, one_way=not slow.both, other_way_used=used)


def _name_sources(
    statements: _Statements,
    measured: MeasuredRun,
    evidence: NetworkEvidence,
    prepared: PreparedScenario,
) -> None:
    statements.sources.append(wording.traced_calls(measured.tables["calls"].height))
    counters = evidence.counters
    if counters is not None:
        counted = int((~np.isnan(counters.sent_bytes)).sum())
        statements.sources.append(
            wording.counted_links(
                counted, lossy=counters.lossy, stalls=not np.isnan(counters.stall).all()
            )
        )
        statements.sources += counters.notes
    if is_lossy(evidence, prepared.fabric):
        statements.sources.append(wording.DROPS)
    if chosen_by_chance(prepared):
        statements.sources.append(wording.WHOLE_FLOWS)
    if prepared.scenario.engine.flow_seeds:
        statements.sources.append(wording.COUNTED_PATHS)
    if evidence.congested is not None:
        sampled = int((~np.isnan(evidence.congested)).sum())
        statements.sources.append(wording.sampled_links(sampled))
    if evidence.jobs is not None:
        statements.sources.append(wording.listed_jobs(evidence.jobs, evidence.jobs_from))
    statements.sources += evidence.notes


def port_event_statements(findings: pl.DataFrame | None) -> tuple[PortEvents, ...]:
    """A statement for each kind of finding, in their order.

    Args:
        findings: Rows of ``port_events``; None without counters.
    """
    if findings is None:
        return ()
    return tuple(
        PortEvents(
            finding=str(kind),
            statement=ports_counted(rows, during_run=True),
            ports=[
                PortCount(
                    device=row["node_name"],
                    port=row["port"],
                    interface=row["interface"],
                    counters=tuple(row["counters"]),
                    count=row["count"],
                    at_least=row["at_least"],
                    full=tuple(row["full"]),
                    per_second=row["per_second"],
                    paused_share=row["paused_share"],
                )
                for row in rows.iter_rows(named=True)
            ],
        )
        for (kind,), rows in findings.group_by("finding", maintain_order=True)
    )


# --- links shared with another job -------------------------------------------------------------

MIN_SHARE, MAX_LINKS = 0.1, 20
"""Minimum share of a link's bytes, both ours and others', to count as shared; links listed."""


def shared_links(others: OtherTraffic | None, fabric: Fabric) -> tuple[SharedLink, ...]:
    """Links on which both other jobs and ours send much, those with most of their bytes first."""
    if others is None:
        return ()
    links = []
    for (link,), rows in others.links.group_by("link", maintain_order=True):
        share = dict(rows.select("job", "share").rows())
        ours = share.pop(OURS, 0.0)
        if min(ours, 1.0 - ours) < MIN_SHARE:
            continue
        jobs = sorted(share.items(), key=lambda item: -item[1])
        of_others = float(rows.filter(pl.col("job") != OURS)["sent_bytes"].sum())
        error = float(rows["error"].to_numpy().max())
        named = {job: part for job, part in jobs if part >= 2 * error}
        if named:
            shared = SharedLink(
                link=fabric.link_name(int(link)), ours=ours, jobs=named, error=error
            )
            links.append((of_others, shared))
    return tuple(shared for _, shared in sorted(links, key=lambda pair: -pair[0])[:MAX_LINKS])


OUTSIDE_CALLS = "outside of MPI"
"""Where the receiver was when packets arrived while it computed."""

SAMPLED_LINKS = 40
"""Sampled links that a diagnosis names: those with the most congested packets."""


def sampled_links(
    estimates: pl.DataFrame | None, fabric: Fabric, calls: pl.DataFrame | None = None
) -> tuple[SampledLink, ...]:
    """Links with the most congested packets by the samples in real packets.

    Args:
        estimates: Estimates of the sampled links, as ``link_estimates`` returns them; None without
            samples.
        fabric: The fabric, for their names.
        calls: Packets of each link by the call of their receiver, if known.
    """
    if estimates is None:
        return ()
    by_call: dict[int, dict[str, float]] = {}
    for link, call, congested in (
        ()
        if calls is None
        else calls.filter(pl.col("congested") > 0).select("link", "call", "congested").iter_rows()
    ):
        by_call.setdefault(link, {})[call or OUTSIDE_CALLS] = congested
    rows = estimates.filter(pl.col("packets") > 0).sort(
        "congested", "packets", "link", descending=[True, True, False]
    )
    return tuple(
        SampledLink(
            link=fabric.link_name(row["link"]),
            number=row["link"],
            packets=row["packets"],
            congested_fraction=row["fraction"],
            low=row["fraction_low"],
            high=row["fraction_high"],
            calls=by_call.get(row["link"], {}),
        )
        for row in rows.head(SAMPLED_LINKS).iter_rows(named=True)
    )
