"""Variants of a placement: its method, its hosts, and whether it was recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray


class HostChoice(StrEnum):
    """Hosts on which a placement is made."""

    IN_USE = "in-use"
    """The hosts that the job runs on."""
    FEWEST_SWITCHES = "fewest-switches"
    """As many of the allowed hosts, under the fewest switches."""
    AWAY_FROM_CONGESTION = "away-from-congestion"
    """As many of the allowed hosts, none under a congested leaf where that is possible."""
    OTHER_SWITCHES = "other-switches"
    """As many of the allowed hosts, under the fewest leaves of those that the job does not use."""
    FEWEST_NEIGHBOURS = "fewest-neighbours"
    """As many of the allowed hosts, under the leaves with the fewest hosts of other jobs."""
    MOST_SWITCHES = "most-switches"
    """As many of the allowed hosts, evenly under as many leaves as possible."""


SUFFIXES: Final = {
    HostChoice.IN_USE: "",
    HostChoice.FEWEST_SWITCHES: "-compact",
    HostChoice.AWAY_FROM_CONGESTION: "-keep-off",
    HostChoice.OTHER_SWITCHES: "-elsewhere",
    HostChoice.FEWEST_NEIGHBOURS: "-quiet",
    HostChoice.MOST_SWITCHES: "-spread",
}
"""Suffix of a placement's name for each choice of hosts."""

RECOMPUTED_SUFFIX: Final = "-again"
"""Suffix of a placement's name if it is the one in use, recomputed."""


FILE: Final = "file"
"""Name of a placement from a rank file."""

RECORDED: Final = "recorded"
"""Name of a placement from a trace."""


@dataclass(frozen=True)
class PlacementVariant:
    """One placement that is worth trying.

    Attributes:
        method: Its name in ``tailback list placement``, or ``recorded``.
        hosts: Hosts on which it is made.
        recomputed: Whether it is the method in use, recomputed with its default options and the
            measured congestion.
    """

    method: str
    hosts: HostChoice = HostChoice.IN_USE
    recomputed: bool = False

    @property
    def name(self) -> str:
        """Its name in reports, tables and file names."""
        end = RECOMPUTED_SUFFIX if self.recomputed else ""
        return f"{self.method}{SUFFIXES[self.hosts]}{end}"


def nodes_by_name(
    made: Mapping[PlacementVariant, NDArray[np.uint32]],
) -> dict[str, NDArray[np.uint32]]:
    """Node of each rank, shape (R,), by the name of the placement."""
    return {variant.name: node for variant, node in made.items()}
