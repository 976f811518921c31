"""Up/down routes of the reference simulator, from docs/reference/topologies.md alone."""

from __future__ import annotations

from collections import defaultdict

from tailback.fabric import Fabric


class UpDown:
    """Shortest up/down paths of a tree, and which of them D-mod-k takes."""

    def __init__(self, fabric: Fabric) -> None:
        self.first_switch = fabric.n_nodes
        self.src = fabric.link_src.tolist()
        self.dst = fabric.link_dst.tolist()
        self.reverse = fabric.link_reverse.tolist()
        self.tier = fabric.vertex_tier.tolist()
        self.out: dict[int, list[int]] = defaultdict(list)
        for link, src in enumerate(self.src):
            self.out[src].append(link)
        self.leaf = {node: self.dst[self.out[node][0]] for node in range(fabric.n_nodes)}
        self._below: dict[tuple[int, int], int | None] = {}
        self._above: dict[tuple[int, int], int] = {}

    def ups(self, switch: int) -> list[int]:
        """Links to a higher tier."""
        return [k for k in self.out[switch] if self.tier[self.dst[k]] > self.tier[switch]]

    def descent(self, switch: int, leaf: int) -> int | None:
        """Links of the shortest path down to a leaf; None if there is none."""
        if switch == leaf:
            return 0
        if (switch, leaf) not in self._below:
            lengths = [
                1 + way
                for k in self.out[switch]
                if self.first_switch <= self.dst[k]
                and self.tier[self.dst[k]] < self.tier[switch]
                and (way := self.descent(self.dst[k], leaf)) is not None
            ]
            self._below[switch, leaf] = min(lengths, default=None)
        return self._below[switch, leaf]

    def distance(self, switch: int, leaf: int) -> int:
        """Links of a packet's path: down as soon as possible, otherwise up."""
        down = self.descent(switch, leaf)
        if down is not None:
            return down
        if (switch, leaf) not in self._above:
            self._above[switch, leaf] = 1 + min(
                self.distance(self.dst[k], leaf) for k in self.ups(switch)
            )
        return self._above[switch, leaf]

    def candidates(self, switch: int, node: int) -> list[int]:
        """Links a packet to a node may take, in the order of their numbers."""
        leaf = self.leaf[node]
        if switch == leaf:
            return [self.reverse[self.out[node][0]]]
        down = self.descent(switch, leaf)
        if down is not None:
            return [
                k
                for k in self.out[switch]
                if self.first_switch <= self.dst[k]
                and self.tier[self.dst[k]] < self.tier[switch]
                and self.descent(self.dst[k], leaf) == down - 1
            ]
        shortest = self.distance(switch, leaf) - 1
        return [k for k in self.ups(switch) if self.distance(self.dst[k], leaf) == shortest]

    def fixed(self, switch: int, node: int) -> int:
        """The link of D-mod-k: up by the node's number, down the reverse of its way up."""
        links = self.candidates(switch, node)
        if self.descent(switch, self.leaf[node]) is None:
            return self.climb(switch, node, links)
        below = self.leaf[node]
        while True:
            up = self.climb(below, node, self.ups(below))
            if self.reverse[up] in links:
                return self.reverse[up]
            below = self.dst[up]
            if self.tier[below] >= self.tier[switch]:
                return links[node % len(links)]

    def climb(self, switch: int, node: int, links: list[int]) -> int:
        """The cable j / D mod n upwards, cables distributed over the parents in turn."""
        parents: dict[int, list[int]] = defaultdict(list)
        for k in links:
            parents[self.dst[k]].append(k)
        rows = [parents[parent] for parent in sorted(parents)]
        dealt = [
            row[turn] for turn in range(max(map(len, rows))) for row in rows if turn < len(row)
        ]
        product, below = 1, self.leaf[node]
        for _ in range(self.tier[switch]):
            product *= len({self.dst[k] for k in self.ups(below)})
            below = self.dst[self.ups(below)[0]]
        return dealt[node // product % len(dealt)]
