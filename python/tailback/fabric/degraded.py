"""Degraded cables: sets and resets rates below the nominal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tailback.errors import ScenarioError, nearest
from tailback.fabric.model import Fabric
from tailback.names.ports import split_port
from tailback.scenario.model import Degraded, FabricSection

MIN_GBPS = 0.001
"""Minimum rate of a link in the engine, 1 Mb/s; ``Cable::MIN_GBPS`` there."""

MAX_GBPS = 250_000.0
"""Rate at which the smallest packet, 32 bytes, takes a picosecond."""

_PLACE = "[[fabric.degraded]]"


class SlowLink(NamedTuple):
    """A link with less than its nominal rate.

    Attributes:
        link: Number of the link.
        gbps: Its actual rate.
        both: Whether the reverse link of its cable is as slow.
    """

    link: int
    gbps: float
    both: bool = True


def within_engine(slow: Sequence[SlowLink]) -> tuple[SlowLink, ...]:
    """The same links with rates of at least the engine's minimum."""
    return tuple(cable._replace(gbps=max(cable.gbps, MIN_GBPS)) for cable in slow)


def degrade(fabric: Fabric, sections: Sequence[Degraded]) -> Fabric:
    """The fabric with some links slower than nominal; their nominal rates are kept separately.

    Args:
        fabric: The fabric with nominal rates.
        sections: The cables or links and their rates.

    Raises:
        ScenarioError: There is no such port, the rate is not below the nominal one or less than
            the engine can simulate, or a link is given twice.
    """
    if not sections:
        return fabric
    rated = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    rate = fabric.link_gbps.copy()
    port_of: dict[int, str] = {}
    for section in sections:
        key = "cable" if section.cable is not None else "link"
        port = section.cable or section.link or ""
        link = find_link(fabric, port, key)
        links = [link, int(fabric.link_reverse[link])] if key == "cable" else [link]
        before = next((port_of[each] for each in links if each in port_of), None)
        if before is not None:
            raise ScenarioError(
                f"{port!r} is slow already, by {before!r}",
                place=f"{_PLACE} {key}",
                remedy="give each cable once, or each of its directions by link",
            )
        port_of |= dict.fromkeys(links, port)
        nominal = float(rated[links].min())
        if not 0 < section.rate < nominal:
            raise ScenarioError(
                f"{section.rate:g} Gb/s is not a degraded rate of a link of {nominal:g} Gb/s",
                place=f"{_PLACE} rate",
                remedy=f"give a rate above 0 and below {nominal:g} Gb/s",
            )
        if section.rate < MIN_GBPS:
            raise ScenarioError(
                f"{section.rate:g} Gb/s at {port!r} is less than the engine can simulate",
                place=f"{_PLACE} rate",
                remedy=f"give at least {MIN_GBPS:g} Gb/s; a cable that serves nothing is left "
                "out of the fabric",
            )
        rate[links] = section.rate
    return replace(fabric, link_gbps=rate, nominal_gbps=rated)


def with_stated_cables(section: FabricSection, fabric: Fabric) -> FabricSection:
    """The section of a scenario, with the cables that the fabric file states as degraded.

    The diagnosis reads slow links from the scenario. A rate in the scenario takes precedence over
    the rate in the file.
    """
    if fabric.nominal_gbps is None:
        return section
    stated_links: set[int] = set()
    for slowed in section.degraded:
        key = "cable" if slowed.cable is not None else "link"
        link = find_link(fabric, slowed.cable or slowed.link or "", key)
        stated_links |= {link, int(fabric.link_reverse[link])}
    stated = [
        Degraded.model_validate(
            {
                "cable" if slow.both else "link": fabric.port_name(slow.link),
                "rate": f"{slow.gbps} Gb/s",
            }
        )
        for slow in slow_links(fabric)
        if slow.link not in stated_links
    ]
    return section.model_copy(update={"degraded": [*section.degraded, *stated]})


def slow_links(fabric: Fabric) -> list[SlowLink]:
    """The links slower than nominal; the two directions of a cable that are as slow are one."""
    if fabric.nominal_gbps is None:
        return []
    slow = fabric.link_gbps < fabric.nominal_gbps
    out = []
    for link in np.flatnonzero(slow).tolist():
        back = int(fabric.link_reverse[link])
        both = bool(slow[back] and fabric.link_gbps[back] == fabric.link_gbps[link])
        if not (both and back < link):
            out.append(SlowLink(link, float(fabric.link_gbps[link]), both))
    return out


def nominal(fabric: Fabric) -> Fabric:
    """The fabric with every link at its nominal rate; the same object when it is so already."""
    if fabric.nominal_gbps is None:
        return fabric
    return replace(fabric, link_gbps=np.asarray(fabric.nominal_gbps), nominal_gbps=None)


def instant(fabric: Fabric) -> Fabric:
    """The fabric with zero-delay cables at the engine's maximum rate."""
    return replace(
        fabric,
        link_delay_ps=np.zeros_like(fabric.link_delay_ps),
        link_gbps=np.full_like(fabric.link_gbps, MAX_GBPS),
        nominal_gbps=None,
    )


def with_slow_links(fabric: Fabric, slow: Sequence[SlowLink]) -> Fabric:
    """The fabric with slow links, in one or both directions of their cables."""
    rate = fabric.link_gbps.copy()
    for link, gbps, both in slow:
        rate[link] = gbps
        if both:
            rate[int(fabric.link_reverse[link])] = gbps
    nominal = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    return replace(fabric, link_gbps=rate, nominal_gbps=nominal)


def with_limits(fabric: Fabric, limits: Sequence[tuple[int, float]]) -> Fabric:
    """The fabric with some directed links at no more than given rates, Gb/s.

    Not below what the engine can simulate.
    """
    rate = fabric.link_gbps.copy()
    for link, gbps in limits:
        rate[link] = min(rate[link], max(gbps, MIN_GBPS))
    nominal = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    return replace(fabric, link_gbps=rate, nominal_gbps=nominal)


def find_link(fabric: Fabric, text: str, key: str, place: str = "") -> int:
    """The link that leaves a port, ``"leaf3[7]"``.

    Args:
        fabric: The fabric.
        text: Name and number of the port.
        key: Key of a scenario that names it.
        place: Place of the text for errors; by default that key.

    Raises:
        ScenarioError: There is no such port, or no cable at it.
    """
    place = place or f"{_PLACE} {key}"
    named = split_port(text)
    if named is None:
        raise ScenarioError(
            f"{text!r} is not the name of a port",
            place=place,
            remedy='name a node or switch and its port, as reports do: "leaf3[7]"',
        )
    name, port = named
    names = [*fabric.node_name, *fabric.switch_name]
    if name not in names:
        raise ScenarioError(
            f"there is no node or switch {name!r}",
            place=place,
            remedy=nearest(name, names),
        )
    mine = fabric.link_src == names.index(name)
    leaving = sorted(np.flatnonzero(mine).tolist(), key=lambda link: fabric.link_src_port[link])
    by_interface = {fabric.interface(link): link for link in leaving}
    link_at = {str(fabric.link_src_port[link]): link for link in leaving} | by_interface
    if port not in link_at:
        ports = ", ".join([*by_interface][:50])
        raise ScenarioError(
            f"{name!r} has no cable at port {port}",
            place=place,
            remedy=f"ports with a cable: {ports}",
        )
    return int(link_at[port])
