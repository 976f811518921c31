"""The sentences of a remedy. ``advice`` chooses what is recommended; nothing here changes it."""

from __future__ import annotations

from collections.abc import Sequence

from tailback.diagnosis.model import Candidate
from tailback.units import percent

_EXPLAINED = {
    "shift": " (the same nodes, ranks shifted)",
    "shift-keep-off": " (ranks shifted, on allowed hosts that are not under congested switches)",
}
_RECOMPUTED = " (recomputed with default options and the measured congestion)"
_COMPACT = " (on allowed hosts, under few switches)"


def gain(candidate: Candidate, before: Candidate) -> float:
    """Share of the time that a candidate saves."""
    return 1.0 - candidate.elapsed_ps / before.elapsed_ps


def saves(candidate: Candidate, before: Candidate) -> str:
    """What a candidate gains, as re-simulation proved it."""
    return f"{percent(gain(candidate, before))} less time by re-simulation"


def use_placement(candidate: Candidate, before: Candidate, *, meanwhile: bool = False) -> str:
    """To use another placement; ``meanwhile`` what is better is done by others."""
    start = "Meanwhile use" if meanwhile else "Use"
    return (
        f"{start} placement {_placement(candidate, before)} instead of {before.name}: "
        f"{saves(candidate, before)}."
    )


def apply_change(candidate: Candidate, before: Candidate, *, by_operators: bool) -> str:
    """To make a change of the program or of the network."""
    who = "For the network's operators: " if by_operators else ""
    assumed = f" This assumes that {candidate.assumes}." if candidate.assumes else ""
    return f"{who}{candidate.action} This takes {saves(candidate, before)}.{assumed}"


def operators_could(candidate: Candidate, before: Candidate) -> str:
    """What the operators of the network could do besides."""
    return f"The network's operators could use {candidate.name}: {saves(candidate, before)}."


def makes_it_worse(candidates: Sequence[Candidate], before: Candidate) -> str:
    """Changes that were tried and take more time."""
    worse = [f"{c.name} ({percent(-gain(c, before))} more time by re-simulation)"
             for c in candidates]  # fmt: skip
    return f"These make it worse: {', '.join(worse)}."


def placements_do_not_help(tried: int) -> str:
    """No placement that was tried gains more than the run-to-run variation."""
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
    """To have slow cables checked, and to avoid them."""
    which, them = ("cable", "it") if one else ("cables", "them")
    return (
        f"Ask the operators to check the {which} {'; '.join(names)} (speed, width, error "
        f"counters); avoid {them} until then."
    )


def links_to_avoid(names: Sequence[str]) -> str:
    """Links that others fill."""
    return f"Links to avoid: {'; '.join(names)}."


def _placement(candidate: Candidate, before: Candidate) -> str:
    """A placement's name, with what its name does not say."""
    if candidate.name == f"{before.name}-again":
        return candidate.name + _RECOMPUTED
    if candidate.name.endswith("-compact"):
        return candidate.name + _COMPACT
    return candidate.name + _EXPLAINED.get(candidate.name, "")
