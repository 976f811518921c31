"""From a diagnosis to a remedy: propose, estimate, prove by packets, recommend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tailback.diagnosis.model import SAME_PROGRAM, Candidate, Diagnosis, Remedy, Status
from tailback.errors import TailbackError
from tailback.evaluate import Change, Evaluate
from tailback.remedy.advice import recommend
from tailback.remedy.proof import (
    current_placement,
    fastest_first,
    is_improvement,
    not_simulated,
    prove,
)
from tailback.remedy.proposal import REMEDIES, Progress, Proposal, RemedyContext
from tailback.remedy.rate_control import worth_proving
from tailback.remedy.screening import MARGIN
from tailback.run import Run
from tailback.stages import stage
from tailback.units import format_time, percent


@dataclass(frozen=True, eq=False)
class RemedySearch:
    """Result of the search for a remedy.

    Attributes:
        remedy: What to do; None if there is nothing.
        candidates: What was tried, best first.
        changes: Each candidate as a change, by name.
    """

    remedy: Remedy | None = None
    candidates: tuple[Candidate, ...] = ()
    changes: Mapping[str, Change] = field(default_factory=dict)

    def change(self, remedy: Remedy) -> Change | None:
        """A recommended remedy as a change, to simulate; None where it is advice alone."""
        if not remedy.name:
            return None
        return combine_changes([self.changes[name] for name in remedy.parts])


@stage("remedies")
def find_remedy(
    run: Run,
    diagnosis: Diagnosis,
    means: RemedyContext,
    *,
    seeds: int = 3,
    progress: Progress | None = None,
    files: Mapping[str, str] | None = None,
    commands: Sequence[str] | None = None,
) -> RemedySearch:
    """Search for a remedy.

    Every kind of remedy makes proposals; the fluid model, if given, excludes slow ones; the packet
    engine proves the others; the best placement and the best change of the program are also proved
    together.

    Args:
        run: The run as observed.
        diagnosis: Its diagnosis.
        means: What can be tried.
        seeds: Repetitions of every proof, at least 1.
        progress: Called with the current step and its progress, 0–1.
        files: Files the caller writes for a recommended placement: name → purpose.
        commands: Commands to run with them.
    """
    if diagnosis.cause in ("not-network", "injection"):
        return RemedySearch()
    ideas = [
        idea
        for entry in REMEDIES
        if means.kinds is None or entry.name in means.kinds
        for idea in entry.part(run, diagnosis, means)
    ]
    candidates: list[Candidate] = []
    if ideas:
        tried = _tried(run, ideas, means, seeds, progress)
        candidates = sorted((_possible(c, diagnosis.ideal_ps) for c in tried), key=fastest_first)
    remedy = recommend(run, diagnosis, candidates, files=files, commands=commands)
    return RemedySearch(remedy, tuple(candidates), {idea.name: idea.change for idea in ideas})


def _possible(candidate: Candidate, ideal_ps: int) -> Candidate:
    """The candidate; not proved if its time is below the ideal time."""
    bounded = candidate.proved and candidate.kind in SAME_PROGRAM
    if not bounded or candidate.low_ps >= ideal_ps:
        return candidate
    return Candidate(
        name=candidate.name, kind=candidate.kind, variant=candidate.variant,
        action=candidate.action, assumes=candidate.assumes, estimate_ps=candidate.estimate_ps,
        status=Status.IMPLAUSIBLE,
        reason=f"simulated in {format_time(candidate.low_ps)}, less than the ideal "
        f"{format_time(ideal_ps)}: the model does not hold for it",
    )  # fmt: skip


def _tried(
    run: Run, ideas: list[Proposal], means: RemedyContext, seeds: int, progress: Progress | None
) -> list[Candidate]:
    """All proposals, proved or with the reason why not, best first."""
    name = current_placement(run)
    now = Proposal("placement", name, variant=means.variants.get(name))
    refused = [
        not_simulated(idea, Status.NOT_APPLICABLE, idea.not_applicable)
        for idea in ideas
        if idea.not_applicable
    ]
    able = [now, *(idea for idea in ideas if not idea.not_applicable)]
    estimates = {**_estimates(able, means.quick, progress), **means.estimates}
    left_out = _left_out(run, able, now, estimates)
    chosen = [idea for idea in able if idea.name not in {c.name for c in left_out}]
    proved = prove(chosen, means.evaluate, estimates=estimates, seeds=seeds, progress=progress)
    both = _both(proved, now.name, {idea.name: idea for idea in ideas})
    guess = _estimates(both, means.quick, progress)
    proved += prove(both, means.evaluate, estimates=guess, seeds=seeds, progress=progress)
    return [*sorted(proved, key=fastest_first), *left_out, *refused]


def _estimates(
    ideas: Sequence[Proposal], quick: Evaluate | None, progress: Progress | None
) -> dict[str, int]:
    """Time by the fluid model of the unchanged run and of every proposal but placements.

    Placements were estimated when they were chosen.
    """
    out: dict[str, int] = {}
    if quick is None:
        return out
    for number, idea in enumerate(ideas):
        if number and idea.kind == "placement":
            continue
        if progress is not None:
            progress(f"estimating {idea.kind} {idea.name}", number / len(ideas))
        try:
            out[idea.name] = quick(idea.change).elapsed_ps
        except TailbackError:
            continue  # The proof decides and reports the error.
    return out


def _left_out(
    run: Run, ideas: Sequence[Proposal], now: Proposal, estimates: Mapping[str, int]
) -> list[Candidate]:
    """Proposals that are too slow by their estimates, with the reason."""
    out = []
    rates = [estimates[i.name] for i in ideas if i.kind == "rate-control" and i.name in estimates]
    for idea in ideas:
        if idea.kind == "placement" or idea.name not in estimates:
            continue
        time = estimates[idea.name]
        says = f"the fluid model estimates {format_time(time)}, "
        if idea.kind == "rate-control":
            if not worth_proving(run.elapsed_ps, time):
                says += "within its error: full buffers cost little"
            elif time > (1 + MARGIN) * min(rates):
                says += f"{percent(time / min(rates) - 1)} more than at other rates"
            else:
                continue
        elif now.name in estimates and time > (1 + MARGIN) * estimates[now.name]:
            says += f"{percent(time / estimates[now.name] - 1)} more than as it is"
        else:
            continue
        out.append(not_simulated(idea, Status.RULED_OUT, says, time))
    return out


def _both(proved: Sequence[Candidate], now: str, ideas: Mapping[str, Proposal]) -> list[Proposal]:
    """The best placement and change of the program as one proposal, if each helps alone."""
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
    pair = [ideas[place.name], ideas[pattern.name]]
    return [
        Proposal(
            "combined", " + ".join(idea.name for idea in pair),
            combine_changes([idea.change for idea in pair]),
            f"Use placement {place.name}. {pattern.action}", pattern.assumes,
            parts=tuple(idea.name for idea in pair),
        )
    ]  # fmt: skip


def combine_changes(changes: Sequence[Change]) -> Change:
    """Combine changes that do not affect the same setting."""
    out = none = Change()
    for change in changes:
        given = {
            name: value
            for name, value in change.__dict__.items()
            if value is not None and value is not getattr(none, name)
        }
        out = replace(out, **given)
    return out
