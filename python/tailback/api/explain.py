"""From evidence to an explained run: what is added to the expected run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tailback.api import explain_wording as wording
from tailback.api.attempts import Attempt, ExplanationSearch, OtherJobs, Slow, comparisons, is_lossy
from tailback.api.evidence import NetworkEvidence
from tailback.api.shared_links import shared_links
from tailback.api.unknown_hosts import unknown_hosts
from tailback.diagnosis.explanation import SampledLink
from tailback.diagnosis.measured_verdict import EvidenceSummary
from tailback.diagnosis.traffic_bursts import BurstFit
from tailback.diagnosis.waterfall import Progress
from tailback.evidence import MeasuredRun
from tailback.evidence.call_profile import call_profile
from tailback.fabric.degraded import SlowLink
from tailback.fabric.model import Fabric
from tailback.run import Run
from tailback.simulation import PreparedScenario


@dataclass(frozen=True)
class ScenarioWithEvidence:
    """The expected run with everything there is evidence for.

    Attributes:
        prepared: The scenario with slow cables and other traffic.
        found: The findings, in words.
        slow: The slow links.
    """

    prepared: PreparedScenario
    found: EvidenceSummary
    slow: Slow = ()


@dataclass
class _Statements:
    """Statements for the diagnosis, collected on the way."""

    sources: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
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
) -> ScenarioWithEvidence:
    """Add to the expected run what the evidence shows.

    Args:
        prepared: The scenario with the job alone.
        measured: The measured run.
        run: Its expected run.
        evidence: Counters and job list.
        progress: Called with the current step.
        fifo: The same scenario with adapters that send messages one after another, if the scenario
            does not state how they share their link.
        threads: Threads of the engine.
    """
    statements = _Statements()
    _name_sources(statements, measured, evidence, prepared.fabric)
    others = OtherJobs.of(prepared, evidence, run)
    profile = call_profile(measured.tables, prepared.observed.program)
    compared = comparisons(prepared, measured, evidence, run, profile)
    search = ExplanationSearch(others, profile, compared, measured, evidence, progress, threads)
    statements.assumed_hosts = unknown_hosts(prepared, measured)
    if statements.assumed_hosts:
        statements.missing.append(wording.HOSTS)
    attempt = search.best(prepared, fifo)
    if attempt.prepared is fifo:
        statements.sources.append(wording.MESSAGES_IN_ORDER)
    routing = attempt.prepared.scenario.engine.routing
    if routing != prepared.scenario.engine.routing:
        statements.sources.append(wording.ROUTED[routing])
    bursts = attempt.fit.bursts if attempt.fit is not None else None
    prepared = others.add_to(attempt.prepared, bursts)
    no_tables = prepared.scenario.fabric.forwarding is None
    _ask_for_more(statements, evidence, tables=no_tables and any(_candidates(attempt)))
    found = _summary(search, attempt, prepared.fabric, statements)
    return ScenarioWithEvidence(prepared.with_slow_links(attempt.slow), found, attempt.slow)


def _summary(
    search: ExplanationSearch, attempt: Attempt, fabric: Fabric, statements: _Statements
) -> EvidenceSummary:
    """The findings, in words."""
    whose, shown = search.others.whose, search.others.shown
    if attempt.unknown_job is not None:
        whose, shown = wording.UNKNOWN_SENDERS, wording.scattered_repetitions(attempt.unknown_job)
    evidence = search.evidence
    return EvidenceSummary(
        slow=tuple(_slow_link_text(slow, fabric) for slow in attempt.slow),
        slow_shown_by=attempt.slow_shown,
        others=whose,
        others_shown_by=shown,
        shared_links=shared_links(search.others.traffic, fabric),
        sampled_links=_sampled_links(evidence, fabric),
        unknown_job=attempt.unknown_job,
        rival=attempt.rival,
        others_range=_range(attempt.fit),
        lossy=is_lossy(evidence, fabric),
        rests_on={
            "slow-link": ("counters", "model") if evidence.counters else ("trace", "model"),
            "other-traffic": ("counters" if evidence.counters else "trace", "model"),
        },
        candidates=tuple(
            wording.candidate(
                fabric.link_name(slow.link), slow.gbps, float(fabric.link_gbps[slow.link])
            )
            for trial in _candidates(attempt) for slow in trial
        ),
        sources=tuple(statements.sources),
        missing=tuple(statements.missing),
        assumed_hosts=statements.assumed_hosts,
    )  # fmt: skip


SAMPLED_LINKS = 40
"""Sampled links that a diagnosis names: those with the most congested packets."""


def _sampled_links(evidence: NetworkEvidence, fabric: Fabric) -> tuple[SampledLink, ...]:
    if evidence.estimates is None:
        return ()
    rows = evidence.estimates.filter(pl.col("packets") > 0).sort(
        "congested", "packets", "link", descending=[True, True, False]
    )
    return tuple(
        SampledLink(
            link=fabric.link_name(row["link"]), number=row["link"], packets=row["packets"],
            congested_fraction=row["fraction"], low=row["fraction_low"], high=row["fraction_high"],
        )
        for row in rows.head(SAMPLED_LINKS).iter_rows(named=True)
    )  # fmt: skip


def _range(fit: BurstFit | None) -> tuple[int, int]:
    """How much less and more time the run may take, depending on the bursts of other traffic."""
    return (0, 0) if fit is None else (fit.low_ps - fit.elapsed_ps, fit.high_ps - fit.elapsed_ps)


def _candidates(attempt: Attempt) -> list[Slow]:
    """Cables of which one may be slow, if the search could not tell which."""
    cables = attempt.search
    one_named = cables.found is not None and not cables.rivals
    if cables.best is None or one_named or attempt.unknown_job is not None:
        return []
    return [cables.best.cables, *(trial.cables for trial in cables.rivals)]


def _slow_link_text(slow: SlowLink, fabric: Fabric) -> str:
    nominal = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    name, rate = fabric.link_name(slow.link), float(nominal[slow.link])
    return wording.slow_link(name, slow.gbps, rate, one_way=not slow.both)


def _name_sources(
    statements: _Statements, measured: MeasuredRun, evidence: NetworkEvidence, fabric: Fabric
) -> None:
    statements.sources.append(wording.traced_calls(measured.tables["calls"].height))
    counters = evidence.counters
    if counters is not None:
        counted = int((~np.isnan(counters.sent_bytes)).sum())
        statements.sources.append(wording.counted_links(counted, lossy=counters.lossy))
        statements.sources += counters.notes
    if is_lossy(evidence, fabric):
        statements.sources.append(wording.DROPS)
    if evidence.congested is not None:
        sampled = int((~np.isnan(evidence.congested)).sum())
        statements.sources.append(wording.sampled_links(sampled))
    if evidence.jobs is not None:
        statements.sources.append(wording.listed_jobs(len(evidence.jobs)))


def _ask_for_more(statements: _Statements, evidence: NetworkEvidence, *, tables: bool) -> None:
    """Evidence that would settle open questions, with the command that collects it.

    Args:
        statements: Extended by the evidence that is missing.
        evidence: The evidence so far.
        tables: Whether forwarding tables would help.
    """
    if evidence.counters is None:
        statements.missing.append(wording.COUNTERS)
    elif evidence.others is not None and evidence.jobs is None and evidence.others.jobs:
        statements.missing.append(wording.JOB_LIST)
    if tables:
        statements.missing.append(wording.FORWARDING)
