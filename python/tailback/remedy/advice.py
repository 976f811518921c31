"""What to do about a diagnosis, from what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailback.diagnosis.model import Candidate, Cause, Diagnosis, Kind, Remedy
from tailback.remedy.proof import MIN_GAIN, current_placement, is_improvement
from tailback.run import Run
from tailback.units import percent

REMEDY_KIND_OF_CAUSE: dict[Cause, Kind] = {
    "pattern": "pattern", "placement": "placement", "routing": "routing",
    "other-traffic": "placement", "slow-link": "placement",
}  # fmt: skip
"""The kind that takes a cause away; others may help as well."""

USER_KINDS: tuple[Kind, ...] = ("placement", "pattern", "combined")
"""What a user can do without the operators of the network."""

_MEANT = {
    "shift": " (the same nodes, ranks shifted)",
    "shift-keep-off": " (ranks shifted, on allowed hosts that are not under congested leaves)",
}
_AGAIN = " (recomputed with default options and the measured congestion)"
_COMPACT = " (on allowed hosts, under few switches)"

AVOIDED_LINKS_SHOWN = 8
"""Number of links to avoid that are named."""


def recommend(
    run: Run,
    diagnosis: Diagnosis,
    candidates: Sequence[Candidate],
    *,
    files: Mapping[str, str] | None = None,
    commands: Sequence[str] | None = None,
) -> Remedy | None:
    """Say what to do about a diagnosis.

    Args:
        run: The run as observed.
        diagnosis: Its diagnosis.
        candidates: What was tried, things as they are among it under the name of the placement.
        files: Files the caller writes for a recommended placement: name → what it is for.
        commands: Commands to run with them.

    Returns:
        The remedy; None when the network is not the problem, or nothing is known to help.
    """
    if diagnosis.cause in ("not-network", "injection"):
        return None
    now = current_placement(run)
    before = next((c for c in candidates if c.name == now and c.proved), None)
    able = [
        c for c in candidates if before is not None and c.name != now and is_improvement(c, before)
    ]
    cure = _main(able, diagnosis.cause)
    place = _quickest([c for c in able if c.kind == "placement"])
    advice = _advice(diagnosis, candidates, now, helped=cure is not None)
    if before is not None:
        advice = " ".join(filter(None, (advice, _warned(diagnosis.cause, candidates, before))))
    avoid = _avoid(diagnosis)
    if cure is None or before is None:
        if not advice:
            return None
        # Against what was tried like the candidates, as where one of them helps.
        as_it_is = run.elapsed_ps if before is None else before.elapsed_ps
        return Remedy(
            action=advice, placement="", before_ps=as_it_is, after_ps=as_it_is,
            gain=0.0, candidates=list(candidates), files={}, commands=[], avoid=avoid,
        )  # fmt: skip
    return Remedy(
        action=_action(
            cure, place, able, advice, before, REMEDY_KIND_OF_CAUSE.get(diagnosis.cause)
        ),
        name=cure.name,
        parts=cure.parts or (cure.name,),
        placement="" if place is None else place.name,
        before_ps=before.elapsed_ps,
        after_ps=cure.elapsed_ps,
        gain=_gain(cure, before),
        candidates=list(candidates),
        files=dict(files or {}),
        commands=list(commands or []),
        avoid=avoid,
    )


def _main(able: Sequence[Candidate], cause: Cause) -> Candidate | None:
    """Of what helps: two together where they help more, then the cause's own kind, then others.

    What users can do themselves comes before what operators must.
    """
    both = _quickest([c for c in able if c.kind == "combined"])
    single = [c for c in able if c.kind != "combined"]
    if both is not None and all(is_improvement(both, c) for c in single if c.kind in USER_KINDS):
        return both
    return (
        _quickest([c for c in single if c.kind == REMEDY_KIND_OF_CAUSE.get(cause)])
        or _quickest([c for c in single if c.kind in USER_KINDS])
        or _quickest(single)
    )


def _quickest(candidates: Sequence[Candidate]) -> Candidate | None:
    return min(candidates, key=lambda c: (c.elapsed_ps, c.name), default=None)


def _gain(candidate: Candidate, before: Candidate) -> float:
    return 1.0 - candidate.elapsed_ps / before.elapsed_ps


def _action(
    cure: Candidate,
    place: Candidate | None,
    able: Sequence[Candidate],
    advice: str,
    before: Candidate,
    own: Kind | None,
) -> str:
    """The sentences of a remedy that helps."""
    if cure.kind == "placement":
        use = (
            f"se placement {_named(cure, before)} instead of {before.name}: {_said(cure, before)}."
        )
        text = f"{advice} Meanwhile u{use}" if advice else f"U{use}"
    else:
        who = "" if cure.kind in (own, *USER_KINDS) else "For the network's operators: "
        text = f"{who}{cure.action} This takes {_said(cure, before)}."
        if cure.kind not in (own, "combined") and advice:
            text = f"{advice} {text}"
        if cure.assumes:
            text += f" This assumes that {cure.assumes}."
        if place is not None and cure.kind != "combined":
            text += (
                f" Meanwhile use placement {_named(place, before)} instead of {before.name}: "
                f"{_said(place, before)}."
            )
    best = _quickest([c for c in able if c.kind not in USER_KINDS and c is not cure])
    if best is not None and cure.kind in USER_KINDS:
        text += f" The network's operators could use {best.name}: {_said(best, before)}."
    return text


def _said(candidate: Candidate, before: Candidate) -> str:
    return f"{percent(_gain(candidate, before))} less time by re-simulation"


def _named(candidate: Candidate, before: Candidate) -> str:
    meant = _MEANT.get(candidate.name, "")
    if candidate.name == f"{before.name}-again":
        meant = _AGAIN
    elif candidate.name.endswith("-compact"):
        meant = _COMPACT
    return candidate.name + meant


def _avoid(diagnosis: Diagnosis) -> list[str]:
    """Links that others fill, or that are slow, where that is the cause."""
    if diagnosis.cause not in ("other-traffic", "slow-link"):
        return []
    if diagnosis.slow_links:
        return diagnosis.slow_links[:AVOIDED_LINKS_SHOWN]
    own = next((f for f in diagnosis.findings if f.cause == diagnosis.cause), None)
    return [link.name for link in own.links[:AVOIDED_LINKS_SHOWN]] if own is not None else []


def _warned(cause: Cause, candidates: Sequence[Candidate], before: Candidate) -> str:
    """Changes that should remove the cause but are proved to make things worse."""
    kind = REMEDY_KIND_OF_CAUSE.get(cause)
    if kind == "placement":
        return ""  # Placements are many; those that are worse say nothing against others.
    worse = [
        f"{c.name} ({percent(-_gain(c, before))} more time by re-simulation)"
        for c in candidates
        if c.kind == kind and c.proved and _gain(c, before) <= -MIN_GAIN
    ]
    return f"These make it worse: {', '.join(worse)}." if worse else ""


def _advice(
    diagnosis: Diagnosis, candidates: Sequence[Candidate], now: str, *, helped: bool
) -> str:
    """What to do besides changing the placement; empty when that is all there is to do."""
    cause = diagnosis.cause
    own = next((finding for finding in diagnosis.findings if finding.cause == cause), None)
    if cause == "undetermined":
        return "" if own is None or helped else own.advice
    if cause == "placement":
        if helped:
            return ""
        tried = [c for c in candidates if c.kind == "placement" and c.proved and c.name != now]
        if not tried:
            return own.advice if own is not None else "Try other placements of the ranks."
        which = "The one placement" if len(tried) == 1 else f"None of the {len(tried)} placements"
        helps_not = "gains no" if len(tried) == 1 else "gains"
        return (
            f"{which} tried {helps_not} more than repetitions differ by: "
            "request nodes on fewer switches, or send less between them."
        )
    if cause == "slow-link" and diagnosis.slow_links:
        named = "; ".join(diagnosis.slow_links[:AVOIDED_LINKS_SHOWN])
        what = "cable" if len(diagnosis.slow_links) == 1 else "cables"
        return (
            f"Ask the operators to check the {what} {named} (speed, width, error counters); avoid "
            f"{'it' if what == 'cable' else 'them'} until then."
        )
    if own is None:
        return ""
    where = ""
    if cause == "other-traffic" and own.links:
        where = " Links to avoid: " + "; ".join(link.name for link in own.links[:3]) + "."
    return own.advice + where
