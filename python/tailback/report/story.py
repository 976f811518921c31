"""What follows from the verdict, for the first screen: what to do, root links, call, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from tailback.diagnosis.model import Diagnosis, LinkEvidence
from tailback.report.attribution import CallSite
from tailback.units import percent

SHOWN = 2
"""Links and lines named in a step: the first of the tables further down."""

_CAUSES_IN_RANKS = ("imbalance", "noise", "late-partner")
"""Causes whose subject are ranks, not links."""


_CAUSES_OF_CONGESTION = ("pattern", "placement", "routing", "other-traffic", "capacity")
"""Causes whose findings may name no link, although congestion begins at one."""


@dataclass(frozen=True)
class Item:
    """A part of a step.

    Attributes:
        text: A link, a line of the program or a phase.
        address: Where the page shows it, with the selection; empty for plain text.
    """

    text: str
    address: str = ""


@dataclass(frozen=True)
class Step:
    """One part of the answer below the headline.

    Attributes:
        name: Subject of the step.
        items: Its statements, most important first.
        note: A line below, empty for none.
    """

    name: str
    items: Sequence[Item]
    note: str = ""


def story_of(
    diagnosis: Diagnosis,
    roots: Sequence[LinkEvidence],
    lines: Sequence[CallSite],
    reverses: Mapping[int, int],
) -> list[Step]:
    """What to do, where, in which calls and why, as far as the diagnosis has them.

    Args:
        diagnosis: The diagnosis.
        roots: Root links of the congestion, in the order of the page's table.
        lines: Lines of the program by stall, in the order of the page's table.
        reverses: The other direction of the cable of each link.
    """
    steps = [
        _to_do(diagnosis),
        _place(diagnosis, roots, reverses),
        _program(diagnosis, roots, lines),
        _reason(diagnosis),
    ]
    return [step for step in steps if step is not None]


def _reason(diagnosis: Diagnosis) -> Step | None:
    """The evidence for the cause, and what it rests on."""
    cost = None if diagnosis.explanation is None else diagnosis.explanation.cost(diagnosis.cause)
    if cost is not None and cost.evidence:
        note = f"rests on {', '.join(cost.rests_on)}"
        return Step("Why", [Item(cost.evidence, "#evidence")], note)
    mine = [each for each in diagnosis.findings if each.cause == diagnosis.cause]
    if not mine:
        return None
    share = sum(each.share for each in mine)
    note = f"{percent(share)} of the congested packets" if share > 0 else ""
    return Step("Why", [Item(mine[0].title, "#evidence")], note)


def _place(
    diagnosis: Diagnosis, roots: Sequence[LinkEvidence], reverses: Mapping[int, int]
) -> Step | None:
    """The links at which congestion begins, or the ranks that others wait for."""
    cost = None if diagnosis.explanation is None else diagnosis.explanation.cost(diagnosis.cause)
    if cost is not None and cost.subject:
        if diagnosis.cause in _CAUSES_IN_RANKS:
            return Step("Ranks", [Item(cost.subject, "#cost")])
        items = [Item(link.text, _link_address(link.link)) for link in cost.links]
        items = items or [Item(cost.subject, "#cost")]
        more = "and others, see Time" if len(items) > SHOWN else ""
        note = "these fit best" if cost.one_of_links and not more else more
        if len(cost.links) == 1:
            # A slow cable is named by one direction; the congested one may be the other.
            other = reverses.get(cost.links[0].link)
            items += [
                Item(f"{link.name}, the other direction", _link_address(link.link))
                for link in roots
                if link.link == other
            ]
        return Step("Root links", items[:SHOWN], note)
    mine = {
        link.link
        for each in diagnosis.findings
        if each.cause == diagnosis.cause
        for link in each.links
    }
    shared_links = [link for link in roots if link.link in mine]
    if diagnosis.cause in _CAUSES_OF_CONGESTION:
        shared_links = shared_links or list(roots)
    if not shared_links:
        return None
    items = [Item(link.name, _link_address(link.link)) for link in shared_links[:SHOWN]]
    more = "and others, see Where" if len(shared_links) > SHOWN else ""
    return Step("Root links", items, more)


def _link_address(link: int) -> str:
    return f"#where?{urlencode({'link': link})}"


def _program(
    diagnosis: Diagnosis, roots: Sequence[LinkEvidence], lines: Sequence[CallSite]
) -> Step | None:
    """Phases and calls whose messages congest the links."""
    if lines and roots:
        # One line may congest several groups of links.
        calls = dict.fromkeys(
            Item(line.line, f"#waiting?{urlencode({'phase': line.phase})}") for line in lines
        )
        return Step("Phase and call", list(calls)[:SHOWN])
    phases = [
        phase
        for each in diagnosis.findings
        if each.cause == diagnosis.cause
        for phase in each.phases
    ]
    if not phases:
        return None
    addresses = [f"#when?{urlencode({'phase': phase})}" for phase in phases[:SHOWN]]
    return Step("Phase", [Item(*pair) for pair in zip(phases, addresses, strict=False)])


def _to_do(diagnosis: Diagnosis) -> Step | None:
    """All actions of the remedy and what it saves; without one, the next measurement."""
    remedy, explanation = diagnosis.remedy, diagnosis.explanation
    if remedy is None:
        measurement = None if explanation is None else explanation.next_measurement
        return None if measurement is None else Step("What to do", [Item(measurement.text)])
    note = ""
    if remedy.name and remedy.predicted_gain is None:
        note = f"{remedy.name}: {remedy.gain_range} less time"
    return Step("What to do", [Item(action) for action in remedy.actions], note)
