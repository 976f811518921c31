"""From a diagnosis to a remedy: propose, estimate, prove by packet simulation, recommend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tailback.budget import fits
from tailback.diagnosis.model import (
    SAME_PROGRAM,
    Candidate,
    Cause,
    Diagnosis,
    Gain,
    Kind,
    Remedy,
    Status,
)
from tailback.diagnosis.verdict import WeighedCauses
from tailback.errors import TailbackError
from tailback.evaluate import Change, Evaluate
from tailback.io.progress import Progress
from tailback.remedy.advice import recommend
from tailback.remedy.proof import (
    current_placement,
    fastest_first,
    gain_of,
    improvements,
    is_improvement,
    not_simulated,
    prove,
    with_gain_intervals,
)
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.remedy.rate_control import worth_proving
from tailback.remedy.screening import MARGIN
from tailback.run.run import Run
from tailback.stages import stage
from tailback.units import format_time, percent

CAUSE_OF_KIND: Mapping[Kind, Cause] = {
    "pattern": "pattern",
    "placement": "placement",
    "routing": "routing",
    "repair": "slow-link",
}
"""The cause that each kind of remedy removes. Explicit rates and combinations remove several."""


@dataclass(frozen=True, eq=False)
class RemedySearch:
    """Result of the search for a remedy.

    Attributes:
        remedy: What to do; None if there is nothing.
        candidates: The candidates, best first.
        changes: Each candidate as a change, by name.
        improvements: The candidates that help, best first.
        before: The unchanged run, simulated as the candidates are; None if it was not.
    """

    remedy: Remedy | None = None
    candidates: tuple[Candidate, ...] = ()
    changes: Mapping[str, Change] = field(default_factory=dict)

    improvements: tuple[Candidate, ...] = ()
    before: Candidate | None = None

    @property
    def gains(self) -> dict[Cause, Gain]:
        """What the best change gains that removes each cause, if it helps."""
        gains: dict[Cause, Gain] = {}
        for candidate in self.improvements:
            if self.before is not None and candidate.kind in CAUSE_OF_KIND:
                gains.setdefault(CAUSE_OF_KIND[candidate.kind], gain_of(candidate, self.before))
        return gains

    @property
    def best(self) -> tuple[str, float]:
        """Name and gain of the change that gains most; no name if none helps."""
        if self.before is None or not self.improvements:
            return "", 0.0
        first = self.improvements[0]
        return first.name, gain_of(first, self.before).mean

    def change(self, remedy: Remedy) -> Change | None:
        """A recommended remedy as a change to simulate; None if it is only advice."""
        if not remedy.name:
            return None
        return combine_changes([self.changes[name] for name in remedy.parts])


@stage("remedies")
def find_remedy(
    run: Run,
    diagnosis: Diagnosis,
    context: RemedyContext,
    *,
    seeds: int = 3,
    progress: Progress | None = None,
    files: Mapping[str, str] | None = None,
    commands: Sequence[str] | None = None,
) -> RemedySearch:
    """Search for a remedy.

    Every kind of remedy makes proposals. The fluid model, if given, excludes slow ones, and the
    packet engine proves the others. The best placement and the best change of the program are also
    proved together.

    Args:
        run: The observed run.
        diagnosis: Its diagnosis.
        context: Inputs of the search.
        seeds: Repetitions of every proof, at least 1.
        progress: Called with the current step and its progress, 0–1.
        files: Files the caller writes for a recommended placement: name → purpose.
        commands: Commands to run with them.
    """
    if diagnosis.cause in ("not-network", "injection"):
        return RemedySearch()
    proposals = [
        proposal
        for entry in REMEDIES
        if context.kinds is None or entry.name in context.kinds
        for proposal in entry.part(run, diagnosis, context)
    ]
    candidates: list[Candidate] = []
    if proposals:
        tried = _try_proposals(run, proposals, context, seeds, progress)
        candidates = sorted(
            (_reject_impossible(c, diagnosis.ideal_ps) for c in tried), key=fastest_first
        )
    remedy = recommend(run, diagnosis, candidates, files=files, commands=commands)
    before, better = improvements(candidates, current_placement(run))
    return RemedySearch(
        remedy,
        tuple(candidates),
        {proposal.name: proposal.change for proposal in proposals},
        tuple(better),
        before,
    )


def diagnose_and_cure(
    causes: WeighedCauses, context: RemedyContext, **options: Any
) -> tuple[Diagnosis, RemedySearch]:
    """The diagnosis of a run and the search for its remedy, whose gains it states.

    Args:
        causes: The evidence of the run, and what each cause costs.
        context: Inputs of the search.
        options: As those of :func:`find_remedy`.
    """
    run = causes.evidence.run
    search = find_remedy(run, causes.diagnosis(), context, **options)
    diagnosis = causes.diagnosis(search.gains, search.best)
    said = {name: options[name] for name in ("files", "commands") if name in options}
    remedy = recommend(run, diagnosis, search.candidates, **said)
    return diagnosis.model_copy(update={"remedy": remedy}), search


def _reject_impossible(candidate: Candidate, ideal_ps: int) -> Candidate:
    """The candidate, not proved if its time is below the ideal time."""
    bounded = candidate.proved and candidate.kind in SAME_PROGRAM
    if not bounded or candidate.low_ps >= ideal_ps:
        return candidate
    return Candidate(
        name=candidate.name,
        kind=candidate.kind,
        variant=candidate.variant,
        action=candidate.action,
        assumes=candidate.assumes,
        estimate_ps=candidate.estimate_ps,
        status=Status.IMPLAUSIBLE,
        reason=f"simulated in {format_time(candidate.low_ps)}, less than the ideal "
        f"{format_time(ideal_ps)}: the model does not hold for it",
    )


def _try_proposals(
    run: Run,
    proposals: list[Proposal],
    context: RemedyContext,
    seeds: int,
    progress: Progress | None,
) -> list[Candidate]:
    """All proposals, proved or with the reason why they are not, best first."""
    name = current_placement(run)
    now = Proposal("placement", name, variant=context.variants.get(name))
    not_applicable = [
        not_simulated(proposal, Status.NOT_APPLICABLE, proposal.not_applicable)
        for proposal in proposals
        if proposal.not_applicable
    ]
    applicable = [now, *(proposal for proposal in proposals if not proposal.not_applicable)]
    estimates = {**_estimates(applicable, context.quick, progress), **context.estimates}
    left_out = _left_out(run, applicable, now, estimates)
    chosen = [
        proposal for proposal in applicable if proposal.name not in {c.name for c in left_out}
    ]
    later = [
        proposal for proposal in chosen if context.floor_ps and proposal.kind == "rate-control"
    ]
    proved = prove(
        [proposal for proposal in chosen if proposal not in later],
        context.evaluate,
        unchanged=now.name,
        estimates=estimates,
        seeds=seeds,
        progress=progress,
    )
    beaten = _beaten_rates(later, proved, context.floor_ps)
    left_out += beaten
    if not beaten and later:
        proved = _prove_further(proved, [now, *later], context.evaluate, {}, seeds, progress)
    combined = _combine_best(proved, now.name, {proposal.name: proposal for proposal in proposals})
    combined_estimates = _estimates(combined, context.quick, progress)
    if combined:
        both = [now, *combined]
        proved = _prove_further(proved, both, context.evaluate, combined_estimates, seeds, progress)
    before = next(
        (candidate for candidate in proved if candidate.name == now.name and candidate.proved), None
    )
    if before is not None:
        changes = {proposal.name: proposal.change for proposal in (*proposals, *combined)}
        proved = with_gain_intervals(run, proved, before, changes, context)
    return [*sorted(proved, key=fastest_first), *left_out, *not_applicable]


def _prove_further(
    proved: Sequence[Candidate],
    proposals: Sequence[Proposal],
    evaluate: Evaluate,
    estimates: Mapping[str, int],
    seeds: int,
    progress: Progress | None,
) -> list[Candidate]:
    """The proved candidates, and those of further proposals. The first one is the unchanged run."""
    name = proposals[0].name
    unchanged = next(candidate for candidate in proved if candidate.name == name)
    more = prove(
        proposals,
        evaluate,
        unchanged=name,
        estimates={**estimates, name: unchanged.estimate_ps},
        seeds=max(seeds, unchanged.repetitions),
        progress=progress,
    )
    return [*(candidate for candidate in proved if candidate.name != name), *more]


def _beaten_rates(
    rates: Sequence[Proposal], proved: Sequence[Candidate], floor_ps: int
) -> list[Candidate]:
    """The rates, if the fastest candidate takes no longer than the run without contention.

    Rates only prevent contention.
    """
    quickest = min(proved, key=fastest_first, default=None)
    if quickest is None or not quickest.proved or quickest.elapsed_ps > floor_ps:
        return []
    reason = (
        f"even without contention the run takes {format_time(floor_ps)}, no less than with "
        f"{quickest.name}"
    )
    return [not_simulated(proposal, Status.RULED_OUT, reason) for proposal in rates]


def _estimates(
    proposals: Sequence[Proposal], quick: Evaluate | None, progress: Progress | None
) -> dict[str, int]:
    """Fluid-model time of the unchanged run and of every proposal except placements.

    Placements were estimated during screening.
    """
    out: dict[str, int] = {}
    if quick is None or not fits():  # What cannot be proved need not be estimated.
        return out
    for number, proposal in enumerate(proposals):
        if number and proposal.kind == "placement":
            continue
        if progress is not None:
            progress(f"estimating {proposal.kind} {proposal.name}", number / len(proposals))
        try:
            out[proposal.name] = quick(proposal.change).elapsed_ps
        except TailbackError:
            continue  # The proof decides and reports the error.
    return out


def _left_out(
    run: Run, proposals: Sequence[Proposal], now: Proposal, estimates: Mapping[str, int]
) -> list[Candidate]:
    """Proposals that are too slow by their estimates, with the reason."""
    out = []
    rates = [
        estimates[i.name] for i in proposals if i.kind == "rate-control" and i.name in estimates
    ]
    for proposal in proposals:
        if proposal.kind == "placement" or proposal.name not in estimates:
            continue
        time = estimates[proposal.name]
        reason = f"the fluid model estimates {format_time(time)}, "
        if proposal.kind == "rate-control":
            if not worth_proving(run.elapsed_ps, time):
                reason += "within its error: full buffers cost little"
            elif time > (1 + MARGIN) * min(rates):
                reason += f"{percent(time / min(rates) - 1)} more than at other rates"
            else:
                continue
        elif now.name in estimates and time > (1 + MARGIN) * estimates[now.name]:
            reason += f"{percent(time / estimates[now.name] - 1)} more than without it"
        else:
            continue
        out.append(not_simulated(proposal, Status.RULED_OUT, reason, time))
    return out


def _combine_best(
    proved: Sequence[Candidate], now: str, proposals: Mapping[str, Proposal]
) -> list[Proposal]:
    """The best placement and the best program change as one proposal, if each helps alone."""
    before = next((c for c in proved if c.name == now and c.proved), None)
    if before is None:
        return []
    best = [
        next(
            (c for c in proved if c.kind == kind and c.name != now and is_improvement(c, before)),
            None,
        )
        for kind in ("placement", "pattern")
    ]
    place, pattern = best
    if place is None or pattern is None:
        return []
    pair = [proposals[place.name], proposals[pattern.name]]
    return [
        Proposal(
            "combined",
            " + ".join(proposal.name for proposal in pair),
            combine_changes([proposal.change for proposal in pair]),
            f"Use placement {place.name}. {pattern.action}",
            pattern.assumes,
            parts=tuple(proposal.name for proposal in pair),
        )
    ]


def combine_changes(changes: Sequence[Change]) -> Change:
    """Combine changes that do not affect the same setting."""
    out = none = Change()
    for change in changes:
        fields = {
            name: value
            for name, value in change.__dict__.items()
            if value is not None and value is not getattr(none, name)
        }
        out = replace(out, **fields)
    return out
