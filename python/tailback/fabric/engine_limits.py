"""Rates and delays of links that the packet engine can represent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tailback.errors import FabricError
from tailback.fabric.degraded import MIN_GBPS
from tailback.fabric.edge_list import FASTEST_GBPS
from tailback.fabric.model import Fabric
from tailback.scenario.model import FabricSection
from tailback.units import format_time

LONGEST_DELAY_PS = 2**32 - 1
"""Longest cable delay of the engine, 4.29 ms; ``Cable::MAX_DELAY_PS`` there."""


def require_rates(fabric: Fabric, file: Path | None = None) -> None:
    """Raise FabricError if a link is slower than the engine can simulate, or faster than any is.

    Args:
        fabric: The fabric.
        file: The file it was read from.
    """
    slow = np.flatnonzero(fabric.link_gbps < MIN_GBPS)
    if slow.size:
        link = int(slow[0])
        raise FabricError(
            f"{fabric.link_name(link)} has a rate of {fabric.link_gbps[link]:g} Gb/s; the engine "
            f"simulates {MIN_GBPS:g} Gb/s or more",
            file=file,
            remedy="check the unit of the rates; leave out cables that are down",
        )
    fast = np.flatnonzero(fabric.link_gbps > FASTEST_GBPS)
    if fast.size:
        link = int(fast[0])
        raise FabricError(
            f"{fabric.link_name(link)} has a rate of {fabric.link_gbps[link]:g} Gb/s; no link has "
            f"more than {FASTEST_GBPS:g} Gb/s",
            file=file,
            remedy="check the unit of the rates",
        )


def require_delays(fabric: Fabric, section: FabricSection) -> None:
    """Raise FabricError if a cable delay is longer than the engine can simulate.

    Args:
        fabric: The fabric.
        section: The section of the scenario that describes it.
    """
    late = np.flatnonzero(fabric.link_delay_ps > LONGEST_DELAY_PS)
    if late.size:
        link = int(late[0])
        delay = format_time(float(fabric.link_delay_ps[link]))
        raise FabricError(
            f"{fabric.link_name(link)} has a delay of {delay}; the engine simulates at most "
            f"{format_time(LONGEST_DELAY_PS)}",
            place=_delay_key(section),
            remedy="check the unit: a cable delays about 5 ns per metre",
        )


def _delay_key(section: FabricSection) -> str:
    """The section, and key if there is only one, with delays that are too long."""
    if section.file is not None:
        return "[fabric] cable_delay"
    place, options = "[fabric.topology]", section.topology or {}
    if section.fat_tree is not None:
        place, options = "[fabric.fat_tree]", section.fat_tree.model_dump(exclude_unset=True)
    keys = [key for key in options if "delay" in key]
    return f"{place} {keys[0]}" if len(keys) == 1 else place
