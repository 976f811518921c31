"""Swaps between parts in plain NumPy, step by step: what the compiled search must equal."""

from __future__ import annotations

import itertools
from collections import deque

import numpy as np
from numpy.typing import NDArray

from tailback.placement.graph import Graph, bincount
from tailback.placement.swaps import SearchLimits, SwapSearch

CANDIDATES = 96


class PlainSwaps(SwapSearch):
    """A search whose passes are NumPy's."""

    def __init__(
        self,
        graph: Graph,
        part: NDArray[np.int64],
        n_parts: int,
        **groups: NDArray[np.int64] | None,
    ) -> None:
        super().__init__(graph, part, n_parts, **groups)
        order = np.argsort(self.part, kind="stable")
        bounds = np.searchsorted(self.part[order], np.arange(n_parts + 1))
        self._members = [order[a:b] for a, b in itertools.pairwise(bounds)]
        self._position = np.full(graph.n_vertices, -1, np.int64)
        # Swaps in each part, and those of two parts when they were last tried without success: what
        # an exchange gains depends on the members of its two parts alone.
        self._changes = [0] * n_parts
        self._in_vain: dict[tuple[int, int], tuple[int, int]] = {}

    def run(self, limits: SearchLimits) -> NDArray[np.int64]:
        """Swap until nothing helps or the limits are reached; returns part of each vertex."""
        self._in_vain.clear()  # Another depth may succeed.
        waiting = deque(range(self.n_parts))
        queued = np.ones(self.n_parts, bool)
        looked = np.zeros(self.n_parts, np.int64)
        while waiting:
            part = waiting.popleft()
            queued[part] = False
            looked[part] += 1
            partner = self._improve(part, limits)
            if partner < 0:
                continue
            around = set(self._partners(part)) | set(self._partners(partner)) | {part, partner}
            for other in sorted(around):
                if not queued[other] and looked[other] < limits.rounds:
                    queued[other] = True
                    waiting.append(other)
        return self.part

    def _improve(self, part: int, limits: SearchLimits) -> int:
        """Swap with the first partner that helps; returns it, or -1."""
        for partner in self._partners(part)[: limits.partners]:
            now = (self._changes[part], self._changes[partner])
            if self._in_vain.get((part, partner)) == now:
                continue
            if self._exchange(part, partner, limits.depth):
                return partner
            self._in_vain[part, partner] = now
        return -1

    def _partners(self, part: int) -> list[int]:
        """Parts that ``part`` has edges with, most weight first."""
        _, entry = self.graph.entries(self._members[part])
        other = self.part[self.graph.neighbour[entry]]
        partners, index = np.unique(other, return_inverse=True)
        weight = bincount(index, self.graph.weight[entry], len(partners))
        allowed = partners != part
        if self.group is not None:
            allowed &= self.group[partners] == self.group[part]
        partners, weight = partners[allowed], weight[allowed]
        return [int(p) for p in partners[np.lexsort((partners, -weight))]]

    def _exchange(self, first: int, second: int, depth: int) -> bool:
        """One Kernighan–Lin pass between two parts; True when the cut became smaller."""
        a, gain_a = self._candidates(first, second)
        b, gain_b = self._candidates(second, first)
        if not len(a) or not len(b):
            return False
        between = self._weights(np.concatenate([a, b]))
        n = len(a)
        allowed = np.ones((n, len(b)), bool)
        if self.kind is not None:
            allowed = self.kind[a][:, None] == self.kind[b][None, :]
        chosen: list[tuple[int, int]] = []
        total, best, best_length = 0.0, 0.0, 0
        scale = float(np.abs(gain_a).sum() + np.abs(gain_b).sum()) + 1.0
        for _ in range(min(depth, n, len(b))):
            gain = gain_a[:, None] + gain_b[None, :] - 2.0 * between[:n, n:]
            gain[~allowed] = -np.inf
            i, j = divmod(int(np.argmax(gain)), len(b))
            if gain[i, j] == -np.inf:
                break
            total += float(gain[i, j])
            chosen.append((i, j))
            # 1e-9 of the weights at hand: rounding must not count as progress, or it never ends.
            if total > best + 1e-9 * scale:
                best, best_length = total, len(chosen)
            elif best_length == 0 and depth == 1:
                break
            allowed[i, :] = False
            allowed[:, j] = False
            gain_a += 2.0 * (between[:n, i] - between[:n, n + j])
            gain_b += 2.0 * (between[n:, n + j] - between[n:, i])
        for i, j in chosen[:best_length]:
            self._swap(int(a[i]), int(b[j]))
        return best_length > 0

    def _candidates(self, part: int, partner: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Vertices of ``part`` and what the cut loses when each alone moves to ``partner``."""
        vertices = self._members[part]
        local, entry = self.graph.entries(vertices)
        other = self.part[self.graph.neighbour[entry]]
        sign = (other == partner).astype(np.float64) - (other == part)
        gain = bincount(local, sign * self.graph.weight[entry], len(vertices))
        if len(vertices) > CANDIDATES:
            top = np.sort(np.argsort(-gain, kind="stable")[:CANDIDATES])
            return vertices[top], gain[top]
        return vertices, gain

    def _weights(self, vertices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Dense weights among a few vertices."""
        self._position[vertices] = np.arange(len(vertices))
        local, entry = self.graph.entries(vertices)
        other = self._position[self.graph.neighbour[entry]]
        inside = other >= 0
        dense = np.zeros((len(vertices), len(vertices)))
        dense[local[inside], other[inside]] = self.graph.weight[entry[inside]]
        self._position[vertices] = -1
        return dense

    def _swap(self, u: int, v: int) -> None:
        p, q = int(self.part[u]), int(self.part[v])
        self._members[p] = np.where(self._members[p] == u, v, self._members[p])
        self._members[q] = np.where(self._members[q] == v, u, self._members[q])
        self.part[u], self.part[v] = q, p
        self._changes[p] += 1
        self._changes[q] += 1
        self.swaps += 1
