"""The optimiser: searches single changes and their combinations in models of growing cost.

The first round tries single changes. Every further round adds a change of another kind to the best
so far. Each round narrows its field: the fluid model, coarse packets if messages have enough, and
full packets. A combination is predicted from its parts before it is simulated:

    time(a + b) = fluid(a + b) x error(a) x error(b) / error(unchanged),

with error = packets / fluid, or time(a) x time(b) / time(unchanged), whichever is less. One of more
changes is predicted from those that were simulated without one of them: a is then a combination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tailback.budget import fits
from tailback.diagnosis.model import USER_KINDS, Candidate, Kind, Status
from tailback.diagnosis.waterfall_steps import NON_MINIMAL_RULES
from tailback.errors import TailbackError
from tailback.evaluate import Change, Evaluate, announce
from tailback.io.progress import Progress
from tailback.remedy.placements import propose_placements
from tailback.remedy.proof import (
    fastest_first,
    improvements,
    not_simulated,
    prove,
    with_gain_intervals,
)
from tailback.remedy.proposal import Proposal, RemedyContext
from tailback.remedy.rate_control import worth_proving
from tailback.remedy.screening import MARGIN
from tailback.run.run import Run
from tailback.units import format_time, percent

BEAM = 4
"""Combinations that the next round extends."""

FIELD = 4
"""Combinations that a round proves for each repetition, of those that users can apply and of the
others."""

PROVED_EVENTS, FEWER = 4_000_000, 2
"""Events that their first simulations may take, and how many are proved whatever they take."""

ESTIMATED = 8
"""Times as many combinations are estimated by the fluid model, fastest by their parts first."""

CHEAP_EVENTS = 2_000_000
"""Simulations of fewer events take less than a second: rates are then proved whatever the fluid
model says, which knows no full buffers."""


@dataclass(eq=False)
class Optimiser:
    """Searches for the fastest changes.

    Attributes:
        run: The observed run.
        now: The unchanged run as a proposal.
        context: Inputs of the search.
        seeds: Repetitions of every proof, at least 1.
        progress: Called with the current step and its progress, 0–1.
        usable_kinds: Kinds of change that are recommended before others.
        proposals: The proposals so far, combinations included, by name.
        estimates: Their times by the fluid model, by name.
    """

    run: Run
    now: Proposal
    context: RemedyContext
    seeds: int = 3
    progress: Progress | None = None
    usable_kinds: frozenset[Kind] = USER_KINDS
    proposals: dict[str, Proposal] = field(default_factory=dict)
    estimates: dict[str, int] = field(default_factory=dict)

    def search(self, proposals: Sequence[Proposal]) -> list[Candidate]:
        """All candidates, proved or with the reason why they are not, best first."""
        now, context = self.now, self.context
        unusable = [
            not_simulated(proposal, Status.NOT_APPLICABLE, proposal.not_applicable)
            for proposal in proposals
            if proposal.not_applicable
        ]
        singles = [now, *(proposal for proposal in proposals if not proposal.not_applicable)]
        self.proposals = {proposal.name: proposal for proposal in singles}
        self._estimate(singles)
        self.estimates |= context.estimates
        cheap = int(self.run.summary.get("events", 0)) < CHEAP_EVENTS
        left_out = left_out_by_fluid(
            self.run,
            [p for p in singles if not (cheap and p.kind == "rate-control")],
            now,
            self.estimates,
        )
        slow = {candidate.name for candidate in left_out}
        field = self._most_decisive_first([p for p in singles if p.name not in slow])
        # Rates only prevent contention: they may be too slow even without any.
        late = [p for p in field if context.floor_ps and p.kind == "rate-control"]
        proved = self._prove([proposal for proposal in field if proposal not in late], [])
        beaten = beaten_rates(late, proved, context.floor_ps)
        left_out += beaten
        if late and not beaten:
            proved = self._prove(late, proved)
        proved = self._combine(proved)
        before = self._before(proved)
        if before is not None:
            changes = {name: proposal.change for name, proposal in self.proposals.items()}
            proved = with_gain_intervals(
                self.run, proved, before, changes, context, self.usable_kinds, self.progress
            )
            proved = self._with_placements_alone(proved)
        return [*sorted(proved, key=fastest_first), *left_out, *unusable]

    def _most_decisive_first(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """The proposals in the order in which they are proved, as time may not suffice for all.

        The unchanged run is first, then changes that are recommended before others; of these, the
        fastest of each kind by its estimate comes before further ones.
        """
        estimates, seen = self.estimates, dict[Kind, int]()
        turns = dict[str, int]()
        for proposal in sorted(proposals, key=lambda p: estimates.get(p.name, 0)):
            turns[proposal.name] = seen.get(proposal.kind, 0)
            seen[proposal.kind] = turns[proposal.name] + 1
        return sorted(
            proposals,
            key=lambda p: (p is not self.now, not p.kinds <= self.usable_kinds, turns[p.name]),
        )

    def _before(self, proved: Sequence[Candidate]) -> Candidate | None:
        return improvements(proved, self.now.name)[0]

    def _combine(self, proved: list[Candidate]) -> list[Candidate]:
        """The proved candidates with the combinations that can be faster than all of them."""
        before = self._before(proved)
        if before is None:
            return proved
        slow = self._ruled_out_placements()
        self.proposals |= {proposal.name: proposal for proposal in slow}
        usable = [c.name for c in proved if c.proved and c.name != self.now.name]
        partners = [*(self.proposals[name] for name in usable), *slow]
        beam, seen = partners, set[frozenset[str]]()
        while beam and fits():
            combined = _extend(beam, partners, seen)
            chosen = self._narrow(combined, proved)
            if not chosen:
                break
            names = {proposal.name for proposal in chosen}
            times = self._times(proved)
            proved = self._prove(chosen, proved)
            # Only what is faster than all of its parts is worth another change.
            better = [
                candidate
                for candidate in proved
                if candidate.name in names
                and candidate.proved
                and candidate.elapsed_ps < min(times[part] for part in candidate.parts)
            ]
            beam = [self.proposals[c.name] for c in sorted(better, key=fastest_first)[:BEAM]]
        return proved

    def _with_placements_alone(self, proved: list[Candidate]) -> list[Candidate]:
        """The proved candidates, and placements that were ruled out but are part of good ones."""
        names = {candidate.name for candidate in proved}
        parts = {part for candidate in proved if candidate.ensemble for part in candidate.parts}
        alone = [self.proposals[part] for part in sorted(parts - names)]
        if not alone:
            return proved
        before = [candidate for candidate in proved if candidate.name == self.now.name]
        more = self._prove(alone, before)
        return [*proved, *(candidate for candidate in more if candidate.name != self.now.name)]

    def _ruled_out_placements(self) -> list[Proposal]:
        """Placements that are slow alone, and may be fast with another change."""
        estimates = self.estimates
        if not estimates.get(self.now.name):
            return []
        slow = {name: nodes for name, nodes in self.context.ruled_out.items() if name in estimates}
        return propose_placements(slow, self.context, self.now.name)

    def _times(self, proved: Sequence[Candidate]) -> dict[str, float]:
        """Times by packets; those of placements that were ruled out by the fluid model, scaled."""
        times = {c.name: float(c.elapsed_ps) for c in proved if c.proved}
        estimates, now = self.estimates, self.now.name
        if estimates.get(now):
            scale = times[now] / estimates[now]
            for name in self.context.ruled_out:
                if name in estimates:
                    times.setdefault(name, scale * estimates[name])
        return times

    def _narrow(self, combined: Sequence[Proposal], proved: Sequence[Candidate]) -> list[Proposal]:
        """The combinations to prove: predicted, then halved by coarse packets."""
        time = self._times(proved)
        affordable = PROVED_EVENTS // max(int(self.run.summary.get("events", 0)), 1)
        keep = max(min(FIELD * self.seeds, affordable), FEWER)
        chosen = list[Proposal]()
        for by_users in (True, False):
            group = [p for p in combined if (p.kinds <= USER_KINDS) is by_users]
            # A change by users competes with others that they can apply.
            rivals = [c for c in proved if c.proved and (c.by_users or not by_users)]
            best = min((candidate.elapsed_ps for candidate in rivals), default=0)
            splits = {p.name: self._splits(p, time) for p in group}
            guess = {
                name: min(self._independent(names, time) for names in of_name)
                for name, of_name in splits.items()
            }
            ordered = sorted(group, key=lambda p: (guess[p.name], p.name))
            if self.context.quick is not None:
                ordered = ordered[: ESTIMATED * keep]
                self._estimate([self.now, *ordered])
                guess = {
                    p.name: min(
                        guess[p.name],
                        *(self._corrected(p, names, time) for names in splits[p.name]),
                    )
                    for p in ordered
                }
                ordered = sorted(ordered, key=lambda p: (guess[p.name], p.name))
            ordered = [p for p in ordered if guess[p.name] < (1 + MARGIN) * best]
            if self.context.coarse is not None and len(ordered) > keep:
                ordered = _fastest(ordered[: 2 * keep], self.context.coarse)
            chosen += ordered[:keep]
        return chosen

    def _splits(self, proposal: Proposal, time: Mapping[str, float]) -> list[tuple[str, ...]]:
        """Names of what a combination consists of: a simulated one and another change, or singles.

        Changes may save more together than each alone, as a simulated combination shows.
        """
        simulated = {frozenset(self.proposals[name].parts): name for name in time}
        parts = frozenset(proposal.parts)
        of_two: list[tuple[str, ...]] = [
            (simulated[parts - {part}], part)
            for part in proposal.parts
            if len(parts) > 2 and parts - {part} in simulated
        ]
        return of_two or [proposal.parts]

    def _independent(self, names: Sequence[str], time: Mapping[str, float]) -> float:
        """Time of changes together if each saves the same share as alone."""
        guess = before = time[self.now.name]
        for name in names:
            guess *= time[name] / before
        return guess

    def _corrected(
        self, proposal: Proposal, names: Sequence[str], time: Mapping[str, float]
    ) -> float:
        """Time by the fluid model, corrected by its errors for parts; infinite if unknown."""
        estimates, now = self.estimates, self.now.name
        if proposal.name not in estimates or not estimates.get(now):
            return float("inf")
        guess = estimates[proposal.name] * time[now] / estimates[now]
        for name in names:
            if estimates.get(name):
                guess *= (time[name] / estimates[name]) / (time[now] / estimates[now])
        return guess

    def _prove(self, proposals: Sequence[Proposal], proved: Sequence[Candidate]) -> list[Candidate]:
        """The proved candidates, and those of further proposals."""
        before = next((c for c in proved if c.name == self.now.name), None)
        self.proposals |= {proposal.name: proposal for proposal in proposals}
        more = prove(
            [self.now, *(proposal for proposal in proposals if proposal is not self.now)],
            self.context.evaluate,
            unchanged=self.now.name,
            estimates=self.estimates,
            seeds=self.seeds if before is None else max(self.seeds, before.repetitions),
            progress=self.progress,
        )
        return [*(candidate for candidate in proved if candidate.name != self.now.name), *more]

    def _estimate(self, proposals: Sequence[Proposal]) -> None:
        """Estimate proposals by the fluid model, except placements: screening estimated them."""
        quick = self.context.quick
        if quick is None or not fits():  # What cannot be proved need not be estimated.
            return
        for number, proposal in enumerate(proposals):
            screened = proposal.kind == "placement" and proposal.name != self.now.name
            if screened or proposal.name in self.estimates:
                continue
            if self.progress is not None:
                name = f"estimating {proposal.kind} {proposal.name}"
                self.progress(name, number / len(proposals))
            try:
                self.estimates[proposal.name] = quick(proposal.change).elapsed_ps
            except TailbackError:
                continue  # The proof decides and reports the error.


def _extend(
    beam: Sequence[Proposal], partners: Sequence[Proposal], seen: set[frozenset[str]]
) -> list[Proposal]:
    """New combinations of a member of the beam with a single change of another kind."""
    combined = list[Proposal]()
    for base in beam:
        for other in partners:
            parts = [*base.single, other]
            names = frozenset(part.name for part in parts)
            if other.kind in base.kinds or names in seen or not _fit(parts):
                continue
            seen.add(names)
            combined.append(combine(parts))
    return combined


def _fit(parts: Sequence[Proposal]) -> bool:
    """Whether changes can be made together: routes with detours have no explicit rates."""
    detours = any(part.change.rule in NON_MINIMAL_RULES for part in parts)
    return not (detours and any(part.change.rates is not None for part in parts))


def _fastest(proposals: Sequence[Proposal], evaluate: Evaluate) -> list[Proposal]:
    """The proposals that a model can simulate, fastest first."""
    announce(evaluate, [proposal.change for proposal in proposals])
    times = list[tuple[int, int]]()
    for number, proposal in enumerate(proposals):
        try:
            times.append((evaluate(proposal.change).elapsed_ps, number))
        except TailbackError:
            continue
    return [proposals[number] for _, number in sorted(times)]


def combine(proposals: Sequence[Proposal]) -> Proposal:
    """Several proposals of different kinds as one."""
    order: dict[str, int] = {"placement": 0, "pattern": 1}
    parts = sorted(proposals, key=lambda p: (order.get(p.kind, 2), p.kind, p.name))
    return Proposal(
        "combined",
        " + ".join(part.name for part in parts),
        combine_changes([part.change for part in parts]),
        " ".join(part.action or f"Use placement {part.name}." for part in parts),
        "; ".join(part.assumes for part in parts if part.assumes),
        combines=tuple(parts),
    )


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


def beaten_rates(
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


def left_out_by_fluid(
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
