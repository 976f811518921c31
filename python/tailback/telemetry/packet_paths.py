"""Paths of packets, switch by switch, given what each switch chooses among its candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.telemetry.candidates import PairCandidates

Choice = Callable[[int, Ints, Ints], Ints]
"""Index of the candidate taken: of hop, rows, and number of candidates of each row."""


@dataclass(frozen=True)
class Paths:
    """Links of paths without injection links, an element for each link of each path.

    Attributes:
        row: The path.
        link: The link.
        alternatives: Candidates among which the switch chose.
    """

    row: Ints
    link: Ints
    alternatives: Ints


def trace_paths(
    pairs: PairCandidates,
    link_ends: tuple[Ints, Ints],
    source: NDArray[np.uint32],
    destination: NDArray[np.uint32],
    choice: Choice,
) -> Paths:
    """Follow the candidates of pairs of nodes, hop by hop, by the choice of each switch.

    Args:
        pairs: Candidates of the pairs of switches.
        link_ends: Vertices at both ends of each link, (L,) each: nodes, then switches.
        source: Source node of each path, shape (P,).
        destination: Destination node of each path.
        choice: What a switch takes. Candidates are in the order of links.
    """
    begin, end = link_ends
    pair = pairs.of(source, destination)
    at = len(pairs.ejection) + pairs.node_switch[source]
    rows = [np.arange(len(pair))]
    link, alternatives = [pairs.ejection[destination].astype(np.int64)], [np.ones(len(pair), int)]
    for hop, (first, candidates) in enumerate(pairs.routes or pairs.hops):
        start = first.astype(np.int64)
        some = np.flatnonzero(pairs.length[pair] > hop + 1)
        size = np.diff(start)[pair[some]]
        row = np.repeat(np.arange(len(some)), size)
        entry = np.arange(len(row)) + np.repeat(start[pair[some]] - (np.cumsum(size) - size), size)
        leaves = begin[candidates[entry]] == at[some][row]
        row, entry = row[leaves], entry[leaves]
        size = np.bincount(row, minlength=len(some))
        pick = np.cumsum(size) - size + choice(hop, some, size)
        rows.append(some)
        link.append(candidates[entry[pick]].astype(np.int64))
        alternatives.append(size)
        at[some] = end[link[-1]]
    return Paths(np.concatenate(rows), np.concatenate(link), np.concatenate(alternatives))
