"""Cables of files that say which devices are joined, but not by how many cables.

A batch system's topology is such a file. The cables are assumed: one for every host, and upwards
from a switch as many as below it, divided by the *taper* (1 unless stated), spread evenly over the
switches above it.
"""

from __future__ import annotations

import math
from collections import Counter

from tailback.errors import FabricError, option
from tailback.fabric.ibnetdiscover import Discovery, Kind, PortEnd, clip

MAX_CABLES = 1 << 21
"""More cables than this are a mistake or an attempt to exhaust memory."""


def assume_cables(discovery: Discovery, taper: float | None) -> None:
    """Add the cables of ``discovery.uncounted`` to its ends, with a note on the assumption.

    The order of the devices gives the levels of the switches.

    Args:
        discovery: Content of a file. Its rates stay unknown.
        taper: Cables below a switch for each cable upwards, at least 1; 1 if None.

    Raises:
        FabricError: A switch is above itself, or the cables would be too many.
    """
    if not discovery.uncounted:
        return
    ratio = 1.0 if taper is None else taper
    above: dict[str, list[str]] = {}
    line_of: dict[str, int] = {}
    for lower, upper, line in discovery.uncounted:
        parents = above.setdefault(lower, [])
        if upper not in parents:
            parents.append(upper)
        line_of.setdefault(upper, line)
    order = _order_upwards(discovery, above, line_of)
    for lower in order:
        if discovery.devices[lower].kind is Kind.SWITCH:
            level = discovery.level.setdefault(lower, 0)
            for upper in above.get(lower, []):
                discovery.level[upper] = max(discovery.level.get(upper, 0), level + 1)
    planned = _plan_cables(discovery, above, order, line_of, ratio)
    used: Counter[str] = Counter()
    for lower, uppers in planned:
        for upper in uppers:
            used[lower] += 1
            used[upper] += 1
            low, high, line = used[lower], used[upper], line_of[upper]
            discovery.ends.append(PortEnd(lower, low, upper, high, None, line))
            discovery.ends.append(PortEnd(upper, high, lower, low, None, line))
    discovery.notes.insert(0, _assumption(sum(len(uppers) for _, uppers in planned), ratio))


def _plan_cables(
    discovery: Discovery,
    above: dict[str, list[str]],
    order: list[str],
    line_of: dict[str, int],
    ratio: float,
) -> list[tuple[str, list[str]]]:
    """The upper end of each cable of each device; FabricError if they are too many."""
    below: Counter[str] = Counter()
    planned: list[tuple[str, list[str]]] = []
    total = 0
    for place, lower in enumerate(order):
        parents = above.get(lower, [])
        if not parents:
            continue
        host = discovery.devices[lower].kind is not Kind.SWITCH
        wanted = len(parents) if host else max(len(parents), math.ceil(below[lower] / ratio))
        total += wanted
        if total > MAX_CABLES:
            raise FabricError(
                f"the hosts and switches would have more than {MAX_CABLES:,} cables",
                place=f"line {line_of[parents[0]]}",
                remedy="check the lists of hosts, or give a larger taper",
            )
        # Each switch begins with another one above it, so that the odd cables are spread.
        uppers = [parents[(place + number) % len(parents)] for number in range(wanted)]
        below.update(uppers)
        planned.append((lower, uppers))
    return planned


def _order_upwards(
    discovery: Discovery, above: dict[str, list[str]], line_of: dict[str, int]
) -> list[str]:
    """All devices, each before those above it, and hosts in the order of the file."""
    waiting = Counter(upper for parents in above.values() for upper in parents)
    ready = [key for key in discovery.devices if not waiting[key]]
    for lower in ready:
        for upper in above.get(lower, []):
            waiting[upper] -= 1
            if not waiting[upper]:
                ready.append(upper)
    left = {key for key in discovery.devices if waiting[key] > 0}
    if left:
        # Devices above a loop are left too. A long enough walk down ends within the loop.
        under = {upper: low for low, all_up in above.items() if low in left for upper in all_up}
        key = next(key for key in discovery.devices if key in left)
        for _ in left:
            key = under[key]
        raise FabricError(
            f"{clip(discovery.devices[key].name, 40)} is below itself",
            place=f"line {line_of[key]}",
            remedy="list below a switch only those that are closer to the hosts",
        )
    return ready


def _assumption(total: int, ratio: float) -> str:
    stated = "no taper" if ratio == 1 else f"taper {ratio:g}"
    return (
        f"numbers of cables are not in the file: {total} assumed, one for every host and at every "
        f"switch as many upwards as below ({stated}; set it with "
        f"{option('taper')} or [fabric] taper)"
    )
