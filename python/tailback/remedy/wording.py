"""The sentences of a remedy. ``advice`` chooses what is recommended; this module only words it."""

from __future__ import annotations

from collections.abc import Sequence

from tailback.diagnosis.model import Candidate
from tailback.placement.variant import FILE, RECORDED, HostChoice
from tailback.units import percent

_SHIFTED = " (the same nodes, ranks shifted)"
_RECOMPUTED = " (recomputed with default options and the measured congestion)"
_ON_OTHER_HOSTS = {
    HostChoice.FEWEST_SWITCHES: " (on allowed hosts, under few switches)",
    HostChoice.AWAY_FROM_CONGESTION: (
        " (ranks shifted, on allowed hosts that are not under congested switches)"
    ),
}


def gain(candidate: Candidate, before: Candidate) -> float:
    """Share of the time that a candidate saves."""
    return 1.0 - candidate.elapsed_ps / before.elapsed_ps


def saves(candidate: Candidate, before: Candidate) -> str:
    """The gain of a candidate, proved by re-simulation."""
    text = f"{percent(gain(candidate, before))} less time by re-simulation"
    if candidate.gain_low is None or candidate.gain_high is None:
        return text
    low, high = (percent(one) for one in (candidate.gain_low, candidate.gain_high))
    if low == high:
        return text
    return f"{text} ({low} to {high}, for the possible rates within hosts)"


def use_placement(candidate: Candidate, before: Candidate, *, meanwhile: bool = False) -> str:
    """Advice to use another placement; ``meanwhile`` until the operators apply a better remedy."""
    start = "Meanwhile use" if meanwhile else "Use"
    return (
        f"{start} placement {_placement(candidate)} instead of {_in_use(before)}: "
        f"{saves(candidate, before)}."
    )


def apply_change(candidate: Candidate, before: Candidate, *, by_operators: bool) -> str:
    """Advice to change the program or the network."""
    who = "For the network's operators: " if by_operators else ""
    assumed = f" This assumes that {candidate.assumes}." if candidate.assumes else ""
    return f"{who}{candidate.action} This takes {saves(candidate, before)}.{assumed}"


def operators_could(candidate: Candidate, before: Candidate) -> str:
    """What the operators of the network could also do."""
    return f"The network's operators could use {candidate.name}: {saves(candidate, before)}."


def makes_it_worse(candidates: Sequence[Candidate], before: Candidate) -> str:
    """Candidates that take more time."""
    worse = [
        f"{c.name} ({percent(-gain(c, before))} more time by re-simulation)" for c in candidates
    ]
    return f"These make it worse: {', '.join(worse)}."


def placements_do_not_help(tried: int) -> str:
    """Advice if no placement gains more than the run-to-run variation."""
    found = (
        "The one placement tried gains no more"
        if tried == 1
        else f"None of the {tried} placements tried gains more"
    )
    return (
        f"{found} than the run-to-run variation: request nodes on fewer switches, or send less "
        "between them."
    )


def check_cables(names: Sequence[str], *, one: bool) -> str:
    """Advice to have slow cables checked and to avoid them."""
    which, them = ("cable", "it") if one else ("cables", "them")
    return (
        f"Ask the operators to check the {which} {'; '.join(names)} (speed, width, error "
        f"counters); avoid {them} until then."
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
