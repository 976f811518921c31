"""The evidence on a measured run as one table: each source is a function that yields its rows.

A kind of evidence that hypotheses predict has a likelihood ratio for each hidden cause: that of the
most probable hypothesis with the cause over the same one without it. Its rows divide the logarithm
in proportion to what they add to the change of the misfit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.diagnosis.cable_search import Outcome
from tailback.diagnosis.evidence_rows import by_weight
from tailback.diagnosis.explanation import EvidenceRow, Source, SubjectKind, SuspectLink, Unit
from tailback.evidence import MeasuredRun
from tailback.evidence.other_traffic import UNKNOWN
from tailback.fabric.degraded import slow_links
from tailback.fabric.model import Fabric
from tailback.fabric.slower_cables import missing_cables
from tailback.inference.changes_over_time import ChangeOverTime
from tailback.inference.comparisons import (
    CallTimes,
    LinkSamples,
    PortBytes,
    PortStalls,
    SendTimes,
)
from tailback.inference.error_model import OBSERVATIONS
from tailback.inference.hypotheses import Hypothesis, Posterior
from tailback.inference.hypothesis_space import HypothesisSpace
from tailback.inference.network_clues import sound_links
from tailback.run.run import Run
from tailback.units import format_time, rate_of_rate

SUMMED_UP: Final[Mapping[str, tuple[str, str, Source]]] = {
    "calls": ("all calls", "call times", "trace"),
    "sends": ("all ranks", "send times", "trace"),
    "steps": ("all connections", "network time of steps", "trace"),
    "spread": ("all ranks", "send spread", "trace"),
    "stalls": ("all links", "stall time", "counters"),
    "bytes": ("links between switches", "bytes sent", "counters"),
    "samples": ("all links", "congestion", "samples"),
}
"""Subject, quantity and source of each kind of evidence that hypotheses predict."""


@dataclass(frozen=True)
class CauseRatio:
    """What the evidence says of a cause, as logarithms of likelihood ratios.

    Attributes:
        of_kind: By kind of evidence, and ``time``.
        parts: By kind, the part of each row of the comparison.
    """

    of_kind: Mapping[str, float]
    parts: Mapping[str, Floats]


@dataclass(frozen=True)
class Evidence:
    """All evidence on a run, and what was concluded from it.

    Attributes:
        space: The hypotheses.
        fabric: The fabric, with the rates of the most probable machine model.
        ratios: What the evidence says of each hidden cause.
        misfits: Misfit of the most probable hypothesis by kind of evidence.
        suspects: Links with evidence against them.
        change: A part of the run in which calls take longer; None if there is none.
    """

    space: HypothesisSpace
    fabric: Fabric
    ratios: Mapping[str, CauseRatio]
    misfits: Mapping[str, float | None]
    suspects: Mapping[int, SuspectLink]
    change: ChangeOverTime | None

    @property
    def measured(self) -> MeasuredRun:
        """The measured run."""
        return self.space.measured

    @property
    def end_ps(self) -> int:
        """End of the run, ps from its start."""
        return self.measured.measured.elapsed_ps

    def of_kind(self, kind: str) -> dict[str, float]:
        """Logarithm of the likelihood ratio of a kind of evidence, by cause."""
        return {
            cause: ratio.of_kind[kind]
            for cause, ratio in self.ratios.items()
            if kind in ratio.of_kind
        }

    def of_rows(self, kind: str, rows: NDArray[np.bool_]) -> dict[str, float]:
        """The part of some rows of a comparison, by cause."""
        return {
            cause: float(ratio.parts[kind][rows].sum())
            for cause, ratio in self.ratios.items()
            if kind in ratio.parts
        }

    def of_link(self, link: int) -> dict[str, str]:
        """What was concluded from evidence against the cable of a link."""
        suspect = self.suspects.get(min(link, int(self.fabric.link_reverse[link])))
        if suspect is None:
            return {}
        said = {
            "named": "for: in the verdict",
            "candidate": f"for: {suspect.reason}",
            "ruled-out": f"rules out: {suspect.reason}",
        }
        return {"slow-link": said[suspect.status]}


def evidence_rows(
    space: HypothesisSpace,
    posterior: Posterior,
    suspects: Iterable[SuspectLink],
    change: ChangeOverTime | None,
) -> list[EvidenceRow]:
    """All rows, the most decisive first.

    Args:
        space: The hypotheses.
        posterior: Their probabilities.
        suspects: Links with evidence against them.
        change: A part of the run in which calls take longer.
    """
    fabric = space.machines[posterior.best.machine].prepared.fabric
    evidence = Evidence(
        space,
        fabric,
        cause_ratios(space, posterior),
        posterior.best.outcome.misfits,
        {min(s.link, int(fabric.link_reverse[s.link])): s for s in suspects},
        change,
    )
    return by_weight(row for rows_of in SOURCES for row in rows_of(evidence))


# --- likelihood ratios -------------------------------------------------------------------------


def cause_ratios(space: HypothesisSpace, posterior: Posterior) -> dict[str, CauseRatio]:
    """What the evidence says of each hidden cause; causes that were not simulated are left out."""
    out = {}
    slow = _most_probable(posterior, lambda hypothesis: bool(hypothesis.slow))
    if slow is not None:
        machine = space.machines[slow.machine]
        scenario = space.others.add_to(machine.prepared, slow.bursts)
        if slow.slow == machine.slow:  # Shown by counters, so every hypothesis has them.
            without = space.simulated(scenario, ())
        else:
            without = space.alone(slow.machine, slow.bursts)
        run = space.simulated(scenario, slow.slow)
        before = space.outcome_of(machine, without)
        out["slow-link"] = _ratio(space, posterior, (slow.outcome, before), (run, without))
    job = _most_probable(posterior, lambda hypothesis: hypothesis.job is not None)
    best = posterior.best
    machine = space.machines[best.machine]
    alone = space.alone(best.machine, None, with_others=False)
    if job is not None:
        of_job = space.machines[job.machine]
        before = space.outcome_of(of_job, space.alone(job.machine, None))
        out["other-traffic"] = _ratio(space, posterior, (job.outcome, before), None)
    elif space.others.traffic is not None:
        beside = space.alone(best.machine, best.bursts)
        outcomes = space.outcome_of(machine, beside), space.outcome_of(machine, alone)
        out["other-traffic"] = _ratio(space, posterior, outcomes, (beside, alone))
    return out


def _most_probable(
    posterior: Posterior, has_cause: Callable[[Hypothesis], bool]
) -> Hypothesis | None:
    """The most probable simulated hypothesis with a cause; None if none was simulated."""
    return next(
        (
            weighed.hypothesis
            for weighed in posterior.weighed
            if has_cause(weighed.hypothesis)
            and weighed.hypothesis.slower is None
            and not (weighed.hypothesis.otherwise or weighed.hypothesis.unexplained)
        ),
        None,
    )


def _ratio(
    space: HypothesisSpace,
    posterior: Posterior,
    outcomes: tuple[Outcome, Outcome],
    runs: tuple[Run, Run] | None,
) -> CauseRatio:
    """The ratio of the first of two predictions over the second, and its rows by two runs."""
    model, (_, without) = posterior.model, outcomes
    usual = model.usual(without)
    parts: dict[str, Floats] = {}
    for comparison in space.compare.each if runs is not None else ():
        both = [comparison.parts(run) for run in runs or ()]
        if both[0] is not None and both[1] is not None and comparison.kind in usual:
            parts[comparison.kind] = divided(both[0], both[1], usual[comparison.kind])
    return CauseRatio(model.log_ratios(*outcomes), parts)


def divided(parts: Floats, parts_without: Floats, usual: float) -> Floats:
    """Logarithm of a likelihood ratio, divided over the rows of a kind of evidence, shape (K,).

    Along the line from one misfit to the other each row counts by its change (Aumann and Shapley
    1974), so that the rows add up to the logarithm of the ratio.

    Args:
        parts: What each row adds to the misfit with the cause, shape (K,).
        parts_without: The same without it, shape (K,).
        usual: Usual misfit of the right hypothesis.
    """
    change = parts - parts_without
    total, before = float(change.sum()), usual + float(parts_without.sum())
    relative = total / before
    slope = math.log1p(relative) / relative if abs(relative) > 1e-9 else 1.0
    return np.asarray(-0.5 * OBSERVATIONS * slope / before * change, np.float64)


# --- sources -----------------------------------------------------------------------------------


def rows_of_run(evidence: Evidence) -> Iterator[EvidenceRow]:
    """The time of the run, and each kind of evidence as a total."""
    measured = evidence.measured.measured
    yield EvidenceRow(
        subject="the run",
        kind="run",
        start_ps=0,
        end_ps=evidence.end_ps,
        quantity="measured time",
        value=float(measured.elapsed_ps),
        unit="ps",
        error=(measured.high_ps - measured.low_ps) / 2.0,
        source="trace",
        log_ratios=evidence.of_kind("time"),
    )
    for kind, (subject, quantity, source) in SUMMED_UP.items():
        ratios, misfit = evidence.of_kind(kind), evidence.misfits.get(kind)
        if ratios and misfit is not None:
            yield EvidenceRow(
                subject=subject,
                kind="run",
                start_ps=0,
                end_ps=evidence.end_ps,
                quantity=f"misfit: {quantity}",
                value=misfit,
                unit="ratio",
                source=source,
                log_ratios=ratios,
            )
    change = evidence.change
    if change is not None:
        yield EvidenceRow(
            subject="all calls",
            kind="run",
            start_ps=round(change.start_ps or 0),
            end_ps=round(evidence.end_ps if change.end_ps is None else change.end_ps),
            quantity="time lost by slower calls",
            value=change.share,
            unit="share",
            error=change.error,
            source="trace",
            says={"unexplained": "for: something began or ended there"},
        )


def rows_of_calls(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Times of calls, over all ranks, and those of sends, by rank."""
    for comparison in evidence.space.compare.each:
        if isinstance(comparison, CallTimes):
            profile, names = comparison.profile, np.array(comparison.profile.name)
            for name in dict.fromkeys(comparison.profile.name):
                rows = names == name
                yield _of_times(
                    evidence, "calls", rows, profile.count, profile.quantiles_ps, name, "call"
                )
        elif isinstance(comparison, SendTimes):
            sends, senders = comparison.profile, comparison.profile.senders
            for rank in np.unique(senders).tolist():
                rows, name = senders == rank, f"rank {rank}"
                yield _of_times(
                    evidence, "sends", rows, sends.count, sends.quantiles_ps, name, "rank"
                )


def _of_times(
    evidence: Evidence,
    kind: str,
    rows: NDArray[np.bool_],
    count: Floats,
    quantiles_ps: Floats,
    name: str,
    subject: SubjectKind,
) -> EvidenceRow:
    """The median time at some sites, a mean over their repetitions."""
    median = quantiles_ps[rows, quantiles_ps.shape[1] // 2]
    weight = count[rows] / max(float(count[rows].sum()), 1.0)
    mean, sites = float((median * weight).sum()), int(rows.sum())
    variance = float(((median - mean) ** 2 * weight).sum()) / max(sites - 1, 1)
    return EvidenceRow(
        subject=name or "no call",
        kind=subject,
        start_ps=0,
        end_ps=evidence.end_ps,
        quantity=SUMMED_UP[kind][1],
        value=mean,
        unit="ps",
        error=math.sqrt(variance) if sites > 1 else None,
        source="trace",
        log_ratios=evidence.of_rows(kind, rows),
    )


def rows_of_waits(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Ranks that others waited for."""
    for late in evidence.measured.measured.latecomers:
        parts = {"imbalance": late.waited_ps - late.noise_ps, "noise": late.noise_ps}
        yield EvidenceRow(
            subject=f"rank {late.rank}",
            kind="rank",
            start_ps=0,
            end_ps=evidence.end_ps,
            quantity="others waited",
            value=float(late.waited_ps),
            unit="ps",
            source="trace",
            says={cause: f"for: {format_time(ps)}" for cause, ps in parts.items() if ps > 0},
        )


def rows_of_counters(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Bytes, stalls and drops of links, and the rates that they served."""
    counters = evidence.space.evidence.counters
    if counters is None:
        return
    for comparison in evidence.space.compare.each:
        if isinstance(comparison, PortStalls):
            yield from _of_ports(evidence, comparison, comparison.stall_ps, "ps")
        elif isinstance(comparison, PortBytes):
            yield from _of_ports(evidence, comparison, comparison.sent_bytes, "B")
    for link in np.flatnonzero(np.nan_to_num(counters.drops) >= 1.0).tolist():
        value = float(counters.drops[link])
        yield _of_link(
            evidence, link, "packets dropped", value, "count", says=evidence.of_link(link)
        )
    slow = counters.findings.filter(counters.findings["finding"] == "degraded").drop_nulls("link")
    for link, start, end, served, low, high in slow.select(
        "link", "start_ns", "end_ns", "served_gbps", "served_low_gbps", "served_high_gbps"
    ).iter_rows():
        yield _of_link(
            evidence,
            link,
            "rate with a queue",
            served,
            "Gb/s",
            error=None if low is None or high is None else (high - low) / (2 * 1.96),
            says=evidence.of_link(link) or {"slow-link": "for: below its rate"},
        ).model_copy(
            update={
                "start_ps": (start - counters.start_ns) * 1000,
                "end_ps": (end - counters.start_ns) * 1000,
            }
        )


def _of_ports(
    evidence: Evidence, comparison: PortStalls | PortBytes, values: Floats, unit: Unit
) -> Iterator[EvidenceRow]:
    """What the ports of a comparison counted; ``values`` of all links, shape (L,)."""
    kind, links = comparison.kind, comparison.links
    for at, link in enumerate(links.tolist()):
        ratios = evidence.of_rows(kind, np.arange(len(links)) == at)
        value = float(values[link])
        yield _of_link(evidence, link, SUMMED_UP[kind][1], value, unit, ratios=ratios)


def rows_of_served_rates(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Rates that links reached, as far as they rule out slower cables."""
    served, prior = evidence.space.evidence.served_gbps, evidence.space.prior()
    if served is None:
        return
    sound = sound_links(evidence.space.evidence, evidence.fabric)
    for link in np.flatnonzero(served > 0).tolist():
        if link in prior.elsewhere or prior.is_suspect(link):
            continue
        nominal = float(evidence.fabric.link_gbps[link])
        if sound[link]:
            said = "rules out: its queue limits nothing"
        else:
            said = f"rules out rates below {rate_of_rate(float(served[link]), nominal)}"
        yield _of_link(
            evidence, link, "rate reached", float(served[link]), "Gb/s", says={"slow-link": said}
        )


def rows_of_queues(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Readings of queues that drop packets, as far as they favour a slow link."""
    prior = evidence.space.prior()
    queues = prior.queues
    if queues is None:
        return
    for link in range(evidence.fabric.n_links):
        slow = None if link in prior.elsewhere else queues.slow_link(link)
        if slow is None:
            continue
        share, ratio = float(queues.queued[link]), queues.log_ratio(slow, link)
        error = math.sqrt(share * (1.0 - share) / float(queues.readings[link]))
        quantity, ratios = "readings with a queue", {"slow-link": ratio}
        yield _of_link(evidence, link, quantity, share, "share", error=error, ratios=ratios)


def rows_of_port_events(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Errors, pauses, discards and falls of speed of ports on the job's paths."""
    events = evidence.space.evidence.link_events
    for row in () if events is None else events.iter_rows(named=True):
        if row["count"]:
            link = int(row["link"])
            quantity = f"{row['finding']} ({', '.join(row['counters'][:2])})"
            yield _of_link(
                evidence,
                link,
                quantity,
                float(row["count"]),
                "count",
                says=evidence.of_link(link),
            )


def rows_of_other_jobs(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Bytes of other jobs, and the job list."""
    others, jobs = evidence.space.evidence.others, evidence.space.evidence.jobs
    simulated = evidence.space.others.traffic is not None
    said = "for: simulated beside ours" if simulated else "against: too little to matter"
    for job in () if others is None else others.jobs:
        yield EvidenceRow(
            subject="unknown senders" if job.job == UNKNOWN else f"job {job.job}",
            kind="job",
            start_ps=0,
            end_ps=evidence.end_ps,
            quantity=f"bytes sent by {len(job.hosts)} hosts",
            value=job.sent_bytes,
            unit="B",
            source="counters",
            says={"other-traffic": said},
        )
    if jobs is not None:
        yield EvidenceRow(
            subject="job list",
            kind="run",
            start_ps=0,
            end_ps=evidence.end_ps,
            quantity="other jobs",
            value=float(len(jobs)),
            unit="count",
            source="jobs",
            says={"other-traffic": "names senders" if jobs else "names no other job"},
        )


def rows_of_samples(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Congested fractions by the samples in packets."""
    estimates = evidence.space.evidence.estimates
    comparison = next((c for c in evidence.space.compare.each if isinstance(c, LinkSamples)), None)
    if estimates is None or comparison is None:
        return
    links = comparison.links
    for link, fraction, low, high in estimates.select(
        "link", "fraction", "fraction_low", "fraction_high"
    ).iter_rows():
        rows = links == link
        yield _of_link(
            evidence,
            int(link),
            "congestion",
            float(fraction),
            "share",
            error=(high - low) / (2 * 1.96),
            source="samples",
            ratios=evidence.of_rows("samples", rows) if rows.any() else {},
        )


def rows_of_fabric(evidence: Evidence) -> Iterator[EvidenceRow]:
    """Cables that the fabric states as slow, and cables that its switches lack."""
    fabric = evidence.fabric
    nominal = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    for slow in slow_links(fabric):
        stated = rate_of_rate(slow.gbps, float(nominal[slow.link]))
        yield _of_link(
            evidence,
            slow.link,
            "stated rate",
            slow.gbps,
            "Gb/s",
            source="fabric",
            says=evidence.of_link(slow.link) or {"slow-link": f"for: {stated}"},
        )
    for switch in missing_cables(fabric):
        yield EvidenceRow(
            subject=fabric.vertex_name(switch.vertex),
            kind="switch",
            start_ps=0,
            end_ps=evidence.end_ps,
            quantity=f"up-links, of {switch.usual} elsewhere",
            value=float(switch.cables),
            unit="count",
            source="fabric",
            says={"capacity": "for: simulated without the missing ones"},
        )


def _of_link(
    evidence: Evidence,
    link: int,
    quantity: str,
    value: float,
    unit: Unit,
    *,
    error: float | None = None,
    source: Source = "counters",
    ratios: Mapping[str, float] | None = None,
    says: Mapping[str, str] | None = None,
) -> EvidenceRow:
    """A row on a link over the time of the run."""
    return EvidenceRow(
        subject=evidence.fabric.link_name(link),
        kind="link",
        start_ps=0,
        end_ps=evidence.end_ps,
        quantity=quantity,
        value=value,
        unit=unit,
        error=error,
        source=source,
        log_ratios=dict(ratios or {}),
        says=dict(says or {}),
    )


SOURCES: Final = (
    rows_of_run,
    rows_of_calls,
    rows_of_counters,
    rows_of_port_events,
    rows_of_other_jobs,
    rows_of_samples,
    rows_of_fabric,
    rows_of_waits,
    rows_of_served_rates,
    rows_of_queues,
)
"""Functions that yield the rows of one source each; rows that decide as much keep this order."""
