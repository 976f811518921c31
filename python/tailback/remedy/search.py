"""From a diagnosis to a remedy: propose, estimate, prove by packet simulation, recommend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from tailback.evaluate import Change
from tailback.io.progress import Progress
from tailback.remedy.advice import (
    CAUSE_OF_KIND,
    recommend,
    saves_beside_cause,
    usable_kinds,
)
from tailback.remedy.optimiser import Optimiser
from tailback.remedy.proof import (
    current_placement,
    fastest_first,
    gain_of,
    improvements,
    mean_gain,
    with_sensitivity,
)
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.run.run import Run
from tailback.stages import stage
from tailback.units import format_time


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
        """What the best change gains that removes each cause.

        If none helps, the best one that was compared in all draws; of changes of the program, which
        no step of the waterfall simulates, the best one of all.
        """
        before, gains = self.before, dict[Cause, Gain]()
        if before is None:
            return gains
        compared = [c for c in self.candidates if c.proved and c.ensemble]
        compared.sort(key=lambda c: (-mean_gain(c, before), c.name))
        for candidate in (*self.improvements, *compared):
            if candidate.kind in CAUSE_OF_KIND:
                gains.setdefault(CAUSE_OF_KIND[candidate.kind], gain_of(candidate, before))
        if (saved := self.program_gain) is not None:
            gains.setdefault("pattern", Gain(saved, saved, saved))
        return gains

    @property
    def program_gain(self) -> float | None:
        """Share of the time that the best change of the program saves, 0 if none does.

        None if none was tried, or not all for lack of time.
        """
        tried = [c for c in self.candidates if c.kind == "pattern"]
        if self.before is None or not tried or any(c.status is Status.NO_TIME for c in tried):
            return None
        return max([0.0, *(mean_gain(c, self.before) for c in tried if c.proved)])

    @property
    def best(self) -> tuple[str, float]:
        """Name and gain of the change that gains most; no name if none helps."""
        if self.before is None or not self.improvements:
            return "", 0.0
        first = self.improvements[0]
        return first.name, gain_of(first, self.before).mean

    def change(self, remedy: Remedy) -> Change | None:
        """A recommended remedy as a change to simulate; None if it is advice or the run itself."""
        return self.changes.get(remedy.name)


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

    Every kind of remedy makes proposals. The optimiser searches them and their combinations
    (:mod:`tailback.remedy.optimiser`). What it recommends is also simulated with settings of the
    engine that are rarely known.

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
    name = current_placement(run)
    now = Proposal("placement", name, variant=context.variants.get(name))
    optimiser = Optimiser(run, now, context, seeds, progress, usable_kinds(diagnosis.cause))
    candidates: list[Candidate] = []
    if proposals:
        tried = optimiser.search(proposals)
        candidates = sorted(
            (_reject_impossible(c, diagnosis.ideal_ps) for c in tried), key=fastest_first
        )
    changes = {name: proposal.change for name, proposal in optimiser.proposals.items()}
    before, better = improvements(candidates, name)
    search = RemedySearch(None, tuple(candidates), changes, tuple(better), before)
    remedy = recommend_surely(run, diagnosis, search, context, files=files, commands=commands)
    return replace(search, remedy=remedy)


def recommend_surely(
    run: Run,
    diagnosis: Diagnosis,
    search: RemedySearch,
    context: RemedyContext,
    without: frozenset[Kind] = frozenset(),
    **said: Any,
) -> Remedy | None:
    """The remedy of a diagnosis, which names the setting of the engine that would flip it.

    Args:
        run: The observed run.
        diagnosis: Its diagnosis.
        search: What was tried.
        context: How to simulate, and the settings that are rarely known.
        without: Kinds of which no part is recommended.
        said: As ``files``, ``commands`` and ``saves`` of :func:`recommend`.
    """
    tried = [c for c in search.candidates if not c.kinds & without]
    remedy = recommend(run, diagnosis, tried, **said)
    if remedy is None or not remedy.name or not context.settings:
        return remedy
    candidates = [
        with_sensitivity(c, search.changes[c.name], context) if c.name == remedy.name else c
        for c in tried
    ]
    return recommend(run, diagnosis, candidates, **said)


def diagnose_and_cure(
    causes: WeighedCauses, context: RemedyContext, *, is_forecast: bool = True, **options: Any
) -> tuple[Diagnosis, RemedySearch]:
    """The diagnosis of a run and the search for its remedy, whose gains it states.

    Args:
        causes: The evidence of the run, and what each cause costs.
        context: Inputs of the search.
        is_forecast: Whether the causes are those of the verdict. Of a measured run, what a full
            receiver costs is a cost of the program, whether or not another program is known.
        options: As those of :func:`find_remedy`.
    """
    run = causes.evidence.run
    search = find_remedy(run, causes.diagnosis(), context, **options)
    program_gain = search.program_gain if is_forecast else None
    diagnosis = causes.diagnosis(search.gains, search.best, program_gain)
    said = {name: options[name] for name in ("files", "commands") if name in options}
    remedy = recommend_surely(
        run, diagnosis, search, context, saves=saves_beside_cause(diagnosis), **said
    )
    return diagnosis.model_copy(update={"remedy": remedy}), search


def _reject_impossible(candidate: Candidate, ideal_ps: int) -> Candidate:
    """The candidate, not proved if its time is below the ideal time."""
    bounded = candidate.proved and candidate.kinds <= SAME_PROGRAM
    if not bounded or candidate.low_ps >= ideal_ps:
        return candidate
    return Candidate(
        name=candidate.name,
        kind=candidate.kind,
        variant=candidate.variant,
        parts=candidate.parts,
        part_kinds=candidate.part_kinds,
        action=candidate.action,
        assumes=candidate.assumes,
        estimate_ps=candidate.estimate_ps,
        status=Status.IMPLAUSIBLE,
        reason=f"simulated in {format_time(candidate.low_ps)}, less than the ideal "
        f"{format_time(ideal_ps)}: the model does not hold for it",
    )
