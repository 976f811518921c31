"""What counters show of stalls, in sentences."""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.errors import option
from tailback.names.ports import some_ports
from tailback.units import counted, percent

_MEANING: Final = {
    ("Host", "up"): "adapters wait for their switch: back-pressure has reached the senders",
    ("ToR", "down"): "switches wait for hosts: receivers accept data more slowly than it arrives",
    ("Leaf", "down"): "leaves wait for the links below them: look at the ports of the next tier "
    "down",
    ("Spine", "down"): "spines wait for the tier below: the bottleneck is further down",
    ("ToR", "up"): "switches wait for the tier above: the bottleneck is further along the path",
    ("Leaf", "up"): "leaves wait for the tier above: the bottleneck is further along the path",
}


def no_stall_share(untimed: int, ports: int) -> str:
    """No port is known to stall, and no more is known.

    Args:
        untimed: Ports that waited for ticks of unknown length.
        ports: All ports.
    """
    if untimed:
        return (
            f"{untimed} of {counted(ports, 'port')} waited for credit, but the length of their "
            "ticks is unknown, and so is the share of time"
        )
    return f"none of {counted(ports, 'port')} gives its stall as a share of time"


def only_bounds(bounded: int, ports: int) -> str:
    """No port is known to stall, as what is known is less than what may be."""
    return (
        f"the counters of {bounded} of {counted(ports, 'port')} were reset between the readings: "
        "their stall is at least what was counted since, and may be any more"
    )


def only_once(ports: int) -> str:
    """Ports of which nothing is known."""
    return f"no rate of {counted(ports, 'other port')}, read once at most"


def none_stalled(ports: int, threshold: float, worst: float, used: float | None) -> str:
    """No port reaches the threshold.

    Args:
        ports: Ports whose stall is known.
        threshold: Share of time from which a port counts as stalling, 0–1.
        worst: The largest share of time that any of them was stalled, 0–1.
        used: The largest share of its rate that a port used, 0–1; None if unknown.
    """
    text = (
        f"none of {ports} ports was stalled for {_format_threshold(threshold)} of its time; the "
        f"highest is {100 * worst:.2g} %"
    )
    return text if used is None else f"{text}; the busiest used {percent(used)} of its rate"


def ports_waited(
    stalling: int,
    ports: int,
    threshold: float,
    lost_gbps: float,
    capacity_gbps: float,
    *,
    paused: bool = False,
) -> str:
    """How many ports reach the threshold, and how much bandwidth that costs them.

    Args:
        stalling: Ports that reach it.
        ports: Ports whose stall is known.
        threshold: Share of time from which a port counts as stalling, 0–1.
        lost_gbps: Bandwidth that the stalls took from those ports.
        capacity_gbps: Bandwidth of those ports; 0 where it is unknown.
        paused: Whether pause frames stopped all of them, not missing credits.
    """
    waited = "were paused by their far ends" if paused else "waited for credit"
    text = (
        f"{stalling} of {ports} ports {waited} {_format_threshold(threshold)} of their time or more"
    )
    if capacity_gbps:
        text += f", which took {format_rate(lost_gbps)} of their {format_rate(capacity_gbps)} Gb/s"
    return text


def ticks_vary(ports: pl.DataFrame, total: int, threshold: float) -> str:
    """Whether ports reach the threshold depends on the length of their ticks.

    Args:
        ports: The ports that may reach it, the longest stall first.
        total: All ports.
        threshold: Share of time from which a port counts as stalling, 0–1.
    """
    worst = ports.sort("stall_high_fraction", descending=True).row(0, named=True)
    return (
        f"{ports.height} of {counted(total, 'port')} may have waited for credit "
        f"{_format_threshold(threshold)} of their time or more, the longest between "
        f"{percent(worst['stall_fraction'])} and {percent(worst['stall_high_fraction'])}: the "
        "length of their ticks is known within bounds only"
    )


def full_counters(
    full: int, ports: int, others: int, threshold: float, waited_s: float | None
) -> str:
    """Stall counters are full: a lower bound of the wait, and the other ports that stall.

    Args:
        full: Ports whose counter is full.
        ports: All ports.
        others: Further ports that reach the threshold.
        threshold: Share of time from which a port counts as stalling, 0–1.
        waited_s: Seconds that each of the full ones waited at least; None where unknown.
    """
    text = (
        f"the stall counters of {full} of {counted(ports, 'port')} are full: "
        "they waited for credit longer than they can count"
    )
    if waited_s is not None:
        text += f", {waited_s:.3g} s or more since their last reset"
    if others:
        least = _format_threshold(threshold)
        text += f"; {counted(others, 'other')} waited {least} of their time or more"
    return text


def worst_class(category: str, port_type: str, ports: int, *, full: bool, three_tiers: bool) -> str:
    """Which class of ports loses most to stalls, and what a stall there means.

    Args:
        category: Tier of the class; ``Port`` where tiers are unknown.
        port_type: Direction of its ports.
        ports: Number of its ports that stall.
        full: Whether one of them has a full counter.
        three_tiers: Whether hosts attach to top-of-rack switches and not to leaves.
    """
    most = "has most of them" if full else "loses most"
    if category == "Port":
        return (
            ""
            if port_type == "any"
            else (f"{ports} of them in direction {port_type}, which {most}")
        )
    key = (category, port_type)
    if key == ("Leaf", "down") and not three_tiers:
        key = ("ToR", "down")  # in a tree of two tiers the leaves are what hosts attach to
    meaning = _MEANING.get(key)
    text = f"{category} {port_type} {most} ({counted(ports, 'port')})"
    return f"{text}: {meaning}" if meaning else text


def full_note(ports: pl.DataFrame) -> str:
    """These ports have a full stall counter."""
    return (
        "ports whose stall counter is full and no longer counts: "
        f"{ports.height}, such as {some_ports(ports)}; reset it (perfquery -R, mask 0x10000) or "
        "read it more often"
    )


def impossible_note(ports: pl.DataFrame) -> str:
    """A counter of these ports rose faster than time or line rate allows."""
    remedies = []
    if (ports["impossible"] > 0).any():
        remedies.append(f"give {option('tick_ns')} where the tick is unknown")
    if (ports["data_impossible"] > 0).any():
        remedies.append("check the unit of the rates of the links")
    return (
        "ports with a counter that rose faster than possible, left out: "
        f"{ports.height}, such as {some_ports(ports)}; {', '.join(remedies)}, or check what else "
        "writes to the counters"
    )


def speed_note(ports: pl.DataFrame) -> str:
    """These ports changed speed."""
    return f"ports that changed speed: {ports.height}, such as {some_ports(ports)}"


def _format_threshold(threshold: float) -> str:
    return f"{100 * threshold:g} %"


def format_rate(gbps: float) -> str:
    """A rate in Gb/s, without its unit."""
    return f"{gbps:.3g}" if gbps < 1000 else f"{gbps:,.0f}"
