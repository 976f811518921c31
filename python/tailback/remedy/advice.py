"""The recommended remedy of a diagnosis, chosen from the candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailback.diagnosis.cause_wording import NOT_SIMULATED, beside_cost
from tailback.diagnosis.model import (
    MIN_GAIN,
    USER_KINDS,
    Candidate,
    Cause,
    Diagnosis,
    Kind,
    Remedy,
    Saves,
    Status,
)
from tailback.errors import option
from tailback.placement.variant import FILE, RECORDED, HostChoice
from tailback.remedy.proof import (
    current_placement,
    fastest_first,
    gain_of,
    gains_as_stated,
    improvements,
    is_improvement,
    mean_gain,
)
from tailback.run.run import Run
from tailback.units import counted, percent

HOST_ORDER = "by-switch"
"""The placement in the order of hosts, switch by switch."""

_SHIFTED = " (the same nodes, ranks shifted)"


_RECOMPUTED = " (recomputed with default options and the measured congestion)"


_ON_OTHER_HOSTS = {
    HostChoice.FEWEST_SWITCHES: " (on allowed hosts, under few switches)",
    HostChoice.AWAY_FROM_CONGESTION: (
        " (ranks shifted, on allowed hosts that are not under congested switches)"
    ),
    HostChoice.OTHER_SWITCHES: " (on allowed hosts, under other switches)",
    HostChoice.FEWEST_NEIGHBOURS: " (on allowed hosts, under switches with few other jobs)",
    HostChoice.MOST_SWITCHES: " (on allowed hosts, under as many switches as possible)",
}

REMEDY_KIND_OF_CAUSE: dict[Cause, Kind] = {
    "pattern": "pattern",
    "injection": "pattern",
    "placement": "placement",
    "routing": "routing",
    "other-traffic": "placement",
    "slow-link": "repair",
}
"""The kind of remedy that removes each cause. Other kinds may help as well."""

CAUSE_OF_KIND: dict[Kind, Cause] = {
    "pattern": "pattern",
    "placement": "placement",
    "routing": "routing",
    "repair": "slow-link",
}
"""The cause that each kind of remedy removes. Explicit rates and combinations remove several."""

NONE_HELPS: dict[Cause, str] = {
    "routing": "No change of the routing gains more than the run-to-run variation: {} simulated",
    "pattern": "No change of the program gains more than the run-to-run variation: {} simulated",
    "injection": "No change of the program sends the busiest node less: {} simulated",
}
"""What is said if changes that should remove a cause do not; with their number."""

NO_OTHER_PROGRAM = "None of the changes of a program that can be simulated applies to this one."
"""What is said if no change was simulated that removes an overload of nodes."""

SIMULATED_BY_REMOVAL: frozenset[Cause] = frozenset(
    {"other-traffic", "slow-link", "imbalance", "noise"}
)
"""Causes whose advice is to remove them, as a simulation without them does."""

AVOIDED_LINKS_SHOWN = 8
"""Number of links to avoid that a remedy names."""


def recommend(
    run: Run,
    diagnosis: Diagnosis,
    candidates: Sequence[Candidate],
    *,
    files: Mapping[str, str] | None = None,
    commands: Sequence[str] | None = None,
    saves: Saves | None = None,
) -> Remedy | None:
    """Recommend a remedy.

    Args:
        run: The observed run.
        diagnosis: Its diagnosis.
        candidates: The candidates, including the unchanged run under the name of its placement.
        files: Files the caller writes for a recommended placement: name → purpose.
        commands: Commands to run with them.
        saves: Says what a candidate saves; by default, what re-simulation shows.

    Returns:
        The remedy; None if the network is not the problem, or no remedy is known.
    """
    if diagnosis.cause == "not-network" or (diagnosis.cause == "injection" and not candidates):
        return None
    now = current_placement(run)
    before, effective = improvements(candidates, now)
    remedy = None if before is None else _main_remedy(effective, before, diagnosis.cause)
    placement = _placement_of(remedy, candidates) or _quickest(
        [c for c in effective if c.kind == "placement"]
    )
    advice = _advice(diagnosis, candidates, now, effective)
    if before is not None and remedy is None:
        advice += _uncertain_changes(candidates, before)
    if before is not None:
        advice += _harmful_changes(diagnosis.cause, candidates, before)
    avoid = _avoid(diagnosis)
    if remedy is None or before is None:
        if not advice:
            return None
        # Use the simulated reference, as when a candidate helps.
        without_remedy = run.elapsed_ps if before is None else before.elapsed_ps
        return Remedy(
            actions=advice,
            placement="",
            before_ps=without_remedy,
            after_ps=without_remedy,
            gain=0.0,
            candidates=list(candidates),
            files={},
            commands=[],
            avoid=avoid,
        )
    return Remedy(
        actions=_actions(
            remedy,
            placement,
            effective,
            advice,
            REMEDY_KIND_OF_CAUSE.get(diagnosis.cause),
            Gains(before, saves or saves_in_simulation),
        ),
        name=remedy.name,
        parts=remedy.parts or (remedy.name,),
        placement="" if placement is None else placement.name,
        before_ps=before.elapsed_ps,
        after_ps=remedy.elapsed_ps,
        gain=mean_gain(remedy, before),
        removes=CAUSE_OF_KIND.get(remedy.kind),
        candidates=list(candidates),
        files=dict(files or {}),
        commands=list(commands or []),
        avoid=avoid,
    )


def _placement_of(remedy: Candidate | None, candidates: Sequence[Candidate]) -> Candidate | None:
    """The placement that a remedy is, or that a combined one uses."""
    parts = () if remedy is None else remedy.parts or (remedy.name,)
    return next((c for c in candidates if c.name in parts and c.kind == "placement"), None)


def usable_kinds(cause: Cause) -> frozenset[Kind]:
    """Kinds of change to recommend first: what users can apply, or what removes the cause."""
    kind = REMEDY_KIND_OF_CAUSE.get(cause)
    return USER_KINDS if kind is None else USER_KINDS | {kind}


def _main_remedy(
    effective: Sequence[Candidate], before: Candidate, cause: Cause
) -> Candidate | None:
    """The remedy that gains most, of those that users can apply or that remove the cause.

    If none of these helps, it is the best for the operators of the network. Of changes that are
    equally fast within their draws or repetitions, one change comes before a combined one, a change
    that users can apply before one that needs the operators, the kind of the cause before others,
    and ranks in the order of hosts before other placements.
    """
    preferred = [c for c in effective if c.kinds <= usable_kinds(cause)] or list(effective)
    return _simplest_of_fastest(preferred, before, REMEDY_KIND_OF_CAUSE.get(cause))


def _simplest_of_fastest(
    candidates: Sequence[Candidate], before: Candidate, kind: Kind | None
) -> Candidate | None:
    """The simplest of those as fast as the fastest, which comes first; of ``kind`` if possible."""
    return min(
        (c for c in candidates if not _is_faster(candidates[0], c)),
        key=lambda c: (
            len(c.kinds),
            not c.by_users,
            kind not in c.kinds,
            HOST_ORDER not in (c.parts or (c.name,)),
            -mean_gain(c, before),
            c.name,
        ),
        default=None,
    )


def _is_faster(best: Candidate, other: Candidate) -> bool:
    """Whether a candidate is faster than another by more than :data:`MIN_GAIN`."""
    if best.gain is None or other.gain is None:
        return is_improvement(best, other)
    return 1 - best.gain < (1 - MIN_GAIN) * (1 - other.gain)


def _quickest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The first of candidates that are sorted best first."""
    return next(iter(candidates), None)


def _actions(
    remedy: Candidate,
    placement: Candidate | None,
    effective: Sequence[Candidate],
    advice: tuple[str, ...],
    kind_of_cause: Kind | None,
    gains: Gains,
) -> tuple[str, ...]:
    """The actions of a remedy that helps."""
    if remedy.kind == "placement":
        out = [*advice, use_placement(remedy, gains, meanwhile=bool(advice))]
    else:
        by_operators = not (remedy.by_users or kind_of_cause in remedy.kinds)
        change = apply_change(remedy, gains, by_operators=by_operators)
        helps = kind_of_cause in remedy.kinds or remedy.kind == "combined"
        out = [*(() if helps else advice), *change]
        apart = placement is not None and placement.name not in remedy.parts
        if placement is not None and apart and gains.of(placement):
            out.append(use_placement(placement, gains, meanwhile=True))
    repair = next((c for c in effective if c.kind == kind_of_cause == "repair"), None)
    if repair is not None and "repair" not in remedy.kinds and gains.of(repair):
        # Users may gain more by another change, but the cable is what is wrong.
        out.insert(0, operators_could(repair, gains))
    others = [c for c in effective if not c.by_users and _is_faster(c, remedy)]
    best = _simplest_of_fastest(others, gains.before, kind_of_cause)
    if best is not None and remedy.by_users and gains.of(best):
        out.append(operators_could(best, gains))
    return tuple(out) + sensitivity(remedy, gains.before)


def _avoid(diagnosis: Diagnosis) -> list[str]:
    """Links filled by other traffic, or slow ones, if that is the cause."""
    if diagnosis.cause not in ("other-traffic", "slow-link"):
        return []
    if diagnosis.slow_links:
        return diagnosis.slow_links[:AVOIDED_LINKS_SHOWN]
    main_finding = next((f for f in diagnosis.findings if f.cause == diagnosis.cause), None)
    return (
        [link.name for link in main_finding.links[:AVOIDED_LINKS_SHOWN]]
        if main_finding is not None
        else []
    )


def _uncertain_changes(candidates: Sequence[Candidate], before: Candidate) -> tuple[str, ...]:
    """The change that gains most as the scenario states the engine, and loses with other settings.

    No such change is a remedy.
    """
    uncertain = [
        c for c in candidates if gains_as_stated(c, before) and not is_improvement(c, before)
    ]
    best = _quickest(sorted(uncertain, key=fastest_first))
    return () if best is None else (may_help(best, before),)


def _harmful_changes(
    cause: Cause, candidates: Sequence[Candidate], before: Candidate
) -> tuple[str, ...]:
    """Changes that should remove the cause but are proved to make things worse."""
    kind = REMEDY_KIND_OF_CAUSE.get(cause)
    if kind == "placement":
        return ()  # There are many placements. A worse one does not rule out the others.
    worse = [
        c for c in candidates if c.kind == kind and c.proved and mean_gain(c, before) <= -MIN_GAIN
    ]
    return (makes_it_worse(worse, before),) if worse else ()


def _advice(
    diagnosis: Diagnosis, candidates: Sequence[Candidate], now: str, effective: Sequence[Candidate]
) -> tuple[str, ...]:
    """Advice besides the changes that help.

    If changes that should remove the cause were simulated, they are the advice, or do not help.
    Other advice says that it was not simulated.
    """
    cause, kind = diagnosis.cause, REMEDY_KIND_OF_CAUSE.get(diagnosis.cause)
    main_finding = next((finding for finding in diagnosis.findings if finding.cause == cause), None)
    if cause == "undetermined":
        simulated = any(c.proved and c.name != now for c in candidates)
        if not simulated and any(c.status is Status.NO_TIME for c in candidates):
            return (
                f"No change was simulated in the time budget: allow more ({option('budget')}).",
            )
        return () if main_finding is None or effective else (main_finding.advice,)
    if cause == "slow-link" and diagnosis.slow_links:
        if any(c.kind == kind for c in effective):
            return ()
        shown = diagnosis.slow_links[:AVOIDED_LINKS_SHOWN]
        return (check_cables(shown, single=len(diagnosis.slow_links) == 1),)
    tried = [c for c in candidates if c.kind == kind and c.proved and c.name != now]
    if cause == "placement":
        if effective:
            return ()
        if tried:
            return (placements_do_not_help(tried),)
    elif tried and cause in NONE_HELPS:
        if any(c.kind == kind for c in effective):
            return ()
        return (f"{NONE_HELPS[cause].format(counted(len(tried), 'change'))}.",)
    elif cause in ("pattern", "injection") and any(c.kind == kind for c in candidates):
        return (NO_OTHER_PROGRAM,)
    if main_finding is None:
        return ()
    advice = [main_finding.advice]
    removed = any(s.cause == cause and s.removed is not None for s in diagnosis.shares)
    if not (removed and cause in SIMULATED_BY_REMOVAL):
        advice.append(NOT_SIMULATED)
    where = [link.name for link in main_finding.links[:3]] if cause == "other-traffic" else []
    return (*advice, links_to_avoid(where)) if where else tuple(advice)


@dataclass(frozen=True)
class Gains:
    """The unchanged run, and the words for what a candidate saves of its time."""

    before: Candidate
    saves: Saves

    def of(self, candidate: Candidate) -> str:
        """What the candidate saves; empty if nothing is predicted."""
        return self.saves(candidate, self.before)


def saves_in_simulation(candidate: Candidate, before: Candidate) -> str:
    """The gain of a candidate, proved by re-simulation."""
    text = f"{percent(mean_gain(candidate, before))} less time by re-simulation"
    if candidate.gain_low is None or candidate.gain_high is None:
        return text
    low, high = (percent(bound) for bound in (candidate.gain_low, candidate.gain_high))
    if low == high:
        return text
    return f"{text} ({low} to {high} in repetitions and with other engine settings)"


def saves_beside_cause(diagnosis: Diagnosis) -> Saves:
    """The gain of a candidate of a forecast, and whether it is more, or less, than the cause costs.

    Args:
        diagnosis: The forecast, with what is gained without its cause.
    """
    cause = diagnosis.cause
    cost = next((share.removed for share in diagnosis.shares if share.cause == cause), None)

    def saves(candidate: Candidate, before: Candidate) -> str:
        text = saves_in_simulation(candidate, before)
        if not cost or CAUSE_OF_KIND.get(candidate.kind) == cause:
            return text
        return text + beside_cost(mean_gain(candidate, before), cost)

    return saves


def use_placement(candidate: Candidate, gains: Gains, *, meanwhile: bool = False) -> str:
    """Advice to use another placement, or to use it ``meanwhile`` until operators act."""
    start = "Meanwhile use" if meanwhile else "Use"
    return (
        f"{start} placement {_placement(candidate)} instead of {_in_use(gains.before)}: "
        f"{gains.of(candidate)}."
    )


def apply_change(candidate: Candidate, gains: Gains, *, by_operators: bool) -> tuple[str, ...]:
    """Advice to change the program or the network, its gain, and what it assumes."""
    asked = candidate.kind == "repair"  # Its action names the operators.
    whose = "With" if candidate.kinds & USER_KINDS else "For"
    who = f"{whose} the network's operators: " if by_operators and not asked else ""
    assumed = (f"This assumes that {candidate.assumes}.",) if candidate.assumes else ()
    subject = "Repaired, the run" if asked else "This"
    return f"{who}{candidate.action}", f"{subject} takes {gains.of(candidate)}.", *assumed


def sensitivity(candidate: Candidate, before: Candidate) -> tuple[str, ...]:
    """The setting of the engine that lowers the gain most, or turns it into a loss."""
    gain = candidate.sensitive_gain
    if gain is None:
        return ()
    if gain <= 0:
        lost = f"takes {percent(-gain)} more time" if gain < 0 else "saves nothing"
        return (f"This would flip with {candidate.sensitive_to}: the change then {lost}.",)
    less = mean_gain(candidate, before) - gain
    if less < MIN_GAIN:
        return ()
    return (
        f"The gain is most sensitive to settings of the engine: with {candidate.sensitive_to} it "
        f"is {100 * less:.0f} points less.",
    )


def operators_could(candidate: Candidate, gains: Gains) -> str:
    """Advice on a remedy that the operators of the network could apply."""
    if candidate.kind == "repair":
        return f"{candidate.action} Repaired, the run takes {gains.of(candidate)}."
    return f"The network's operators could use {candidate.name}: {gains.of(candidate)}."


def makes_it_worse(candidates: Sequence[Candidate], before: Candidate) -> str:
    """Candidates that take more time."""
    worse = [
        f"{c.name} ({percent(-mean_gain(c, before))} more time by re-simulation)"
        for c in candidates
    ]
    return f"These make it worse: {', '.join(worse)}."


def placements_do_not_help(tried: Sequence[Candidate]) -> str:
    """What is said if no placement gains more than the run-to-run variation."""
    result = (
        "The one placement tried gains no more"
        if len(tried) == 1
        else f"None of the {len(tried)} placements tried gains more"
    )
    variants = [candidate.variant for candidate in tried]
    elsewhere = any(v is not None and v.hosts is not HostChoice.IN_USE for v in variants)
    limit = "" if elsewhere else f". Other hosts were not tried ({option('allow_hosts', 'all')})"
    return f"{result} than the run-to-run variation{limit}."


def check_cables(names: Sequence[str], *, single: bool) -> str:
    """Advice to have slow cables checked and to avoid them."""
    which, them = ("cable", "it") if single else ("cables", "them")
    return (
        f"Ask the operators to check the {which} {'; '.join(names)} (speed, width, error "
        f"counters); avoid {them} until then."
    )


def may_help(candidate: Candidate, before: Candidate) -> str:
    """A change that gains as the scenario states the engine, but loses with other settings."""
    gain = gain_of(candidate, before)
    what = candidate.action or f"Placement {candidate.name}."
    return (
        f"Uncertain: {what} This saves {percent(gain.mean)} by re-simulation, but with other "
        f"engine settings it takes {percent(-gain.low)} more time: calibrate them, or try it."
    )


def links_to_avoid(names: Sequence[str]) -> str:
    """Links that other traffic fills."""
    return f"Links to avoid: {'; '.join(names)}."


def _in_use(before: Candidate) -> str:
    """The placement in use."""
    return {FILE: "that of the rank file", RECORDED: "the recorded one"}.get(
        before.name, before.name
    )


def _placement(candidate: Candidate) -> str:
    """A placement's name, with an explanation of how it was made."""
    variant = candidate.variant
    if variant is None:
        return candidate.name
    if variant.recomputed:
        return candidate.name + _RECOMPUTED
    if variant.hosts is HostChoice.IN_USE:
        return candidate.name + (_SHIFTED if variant.method == "shift" else "")
    return candidate.name + _ON_OTHER_HOSTS[variant.hosts]
