"""Cables that messages may have crossed, and the one that best explains which of them are late.

This needs neither a simulator nor samples: only endpoints and times of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import polars as pl
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tailback.arrays import Bools, Floats, Ints
from tailback.diagnosis.topology import LinkTopology

MAX_PAIRS = 2000
"""Maximum number of node pairs whose paths are examined: half of them those with the largest
delays, half a regular selection of the others."""


class CandidatePaths:
    """Cables that messages may have crossed, and how well each one explains their delays.

    A message may take any shortest path; each of several links at the same distance carries an
    equal share p. If one cable caused the delay x, messages would be late by e = p x: the cable
    with the largest (Σ p e)² / Σ p² leaves the smallest sum of squared residuals. Messages that are
    *not* late count against the cables on their paths.

    Args:
        topology: The links.
        reverses: The opposite link of the same cable, shape (L,).
        used: Links that carry our traffic, shape (L,).
        messages: Messages with the nodes ``src`` and ``dst``, the time each ``took`` and the time
            that was ``expected``.
    """

    def __init__(
        self, topology: LinkTopology, reverses: Ints, used: Bools, messages: pl.DataFrame
    ) -> None:
        self._topology, self._reverses, self._used = topology, reverses, used
        late = pl.col("took") - pl.col("expected")
        pairs = (
            messages.group_by("src", "dst")
            .agg(
                late=late.mean(),
                number=pl.len(),
                took=pl.col("took").mean(),
                expected=pl.col("expected").mean(),
            )
            .sort("late", "src", "dst", descending=[True, False, False])
        )
        if pairs.height > MAX_PAIRS:
            rest = pairs.slice(MAX_PAIRS // 2)
            every = -(-rest.height // (MAX_PAIRS // 2))
            pairs = pl.concat([pairs.head(MAX_PAIRS // 2), rest.gather_every(every)])
        self._pairs = pairs

    def suspects(self, most: int) -> list[tuple[int, float]]:
        """Most likely cables first, each with the rate that the delays suggest."""
        score, share = self._scores
        order = np.argsort(-score, kind="stable")[:most]
        rate = self._topology.rate_gbps
        return [
            (int(i), float(np.clip(share[i], 0.02, 0.9)) * float(rate[i]))
            for i in order
            if score[i] > 0
        ]

    @cached_property
    def explained(self) -> Floats:
        """Share of the squared lateness of node pairs explained by each link's cable, 0–1.

        This assumes that the cable is the only slow one; shape (L,).
        """
        late, number = (self._pairs[c].cast(pl.Float64).to_numpy() for c in ("late", "number"))
        whole = float((number * late**2).sum())
        score = self._scores[0] / whole if whole > 0 else np.zeros(self._topology.n_links)
        cable = np.minimum(np.arange(self._topology.n_links), self._reverses)
        return np.asarray(score[cable], np.float64)

    @cached_property
    def _scores(self) -> tuple[Floats, Floats]:
        """Score of every cable, by its first link, and its apparent share of the nominal rate."""
        t, pairs = self._topology, self._pairs
        cable = np.minimum(np.arange(t.n_links), self._reverses)
        row, link, part = links_on_shortest_paths(t, self._used, pairs.select("src", "dst").rows())
        late, number = pairs["late"].to_numpy(), pairs["number"].to_numpy().astype(np.float64)
        # Per cable: a slow cable is slow in both directions.
        product = np.bincount(cable[link], number[row] * part * late[row], t.n_links)
        square = np.bincount(cable[link], number[row] * part**2, t.n_links)
        score = np.divide(
            np.maximum(product, 0.0) ** 2, square, out=np.zeros(t.n_links), where=square > 0
        )
        ratio = (pairs["expected"] / pairs["took"].clip(lower_bound=1.0)).to_numpy()
        share = np.ones(t.n_links)
        held = late[row] > 0
        np.minimum.at(share, cable[link[held]], ratio[row[held]])
        return score, share


def links_on_shortest_paths(
    topology: LinkTopology, used: Bools, ends: Sequence[tuple[int, int]]
) -> tuple[Ints, Ints, Floats]:
    """Links that messages between pairs of nodes may cross, and what share of them.

    Args:
        topology: The links.
        used: Links that carry our traffic, shape (L,).
        ends: Source and destination of each pair.

    Returns:
        Index of the pair, link, and share of the pair's traffic, shape (M,) each.
    """
    t = topology
    vertices = len(t.out_start) - 1
    graph = csr_array((np.ones(t.n_links), (t.src, t.dst)), shape=(vertices, vertices))
    # Single-homed nodes are one hop from their switch: shortest paths start at few switches.
    single = bool((np.bincount(t.src[t.from_node]) <= 1).all())
    of = t.node_switch if single else np.arange(t.n_nodes)
    starts = sorted({int(of[v]) for pair in ends for v in pair})
    found = dijkstra(graph, indices=starts, unweighted=True)
    at = {v: i for i, v in enumerate(starts)}

    def away(node: int) -> Floats:
        if not single:
            return np.asarray(found[at[node]], np.float64)
        out = found[at[int(of[node])]] + 1.0
        out[node] = 0.0
        return np.asarray(out, np.float64)

    none = np.zeros(0, np.int64)
    rows, links, parts = [none], [none], [np.zeros(0)]
    for number, (a, b) in enumerate(ends):
        # Cables are bidirectional, so distances to b equal those from b.
        out, back = away(int(a)), away(int(b))
        way = np.flatnonzero(used & (out[t.src] + 1 + back[t.dst] == out[int(b)]))
        level = out[t.src[way]].astype(np.int64)
        rows.append(np.full(len(way), number))
        links.append(way)
        parts.append(1.0 / np.bincount(level)[level] if len(way) else np.zeros(0))
    return np.concatenate(rows), np.concatenate(links), np.concatenate(parts)
