"""Permutations on k-ary n-trees with horizontal links: congestion, and time to complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.fabric import Fabric
from tailback.fabric.builders import from_arrays
from tailback.fabric.core_errors import translate_core_error
from tailback.fluid.paths import FlowPaths


@dataclass(frozen=True)
class KaryTree:
    """A k-ary n-tree (Petrini and Vanneschi, 1997), modified as in Birk and Zdornov (2009).

    Attributes:
        arity: Down ports of a switch, k.
        levels: Levels of switches, n; there are k^n nodes.
        width: Parallel links from a switch to the next of its line, 0 for the plain tree. A line
            joins the switches that are one node of the ideal fat tree; flows move along it in one
            direction only, while they descend.
    """

    arity: int = 16
    levels: int = 3
    width: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """The tree in the form that the core expects."""
        return self.arity, self.levels, self.width

    @property
    def ports(self) -> int:
        """Switch ports in use, both ends of every cable counted."""
        with translate_core_error("the fluid model"):
            return _core.tree_ports(self.shape)[1]

    @property
    def extra_ports(self) -> float:
        """Ports of the horizontal links by those of the plain tree."""
        with translate_core_error("the fluid model"):
            plain, modified = _core.tree_ports(self.shape)
        return modified / plain - 1

    def fabric(self, gbps: float = 100.0, delay_ps: int = 0) -> Fabric:
        """The tree as a fabric, levels as tiers; raises ScenarioError for an impossible shape."""
        with translate_core_error("the fluid model"):
            arrays = _core.tree_fabric(self.shape, gbps, delay_ps)
        n_nodes = arrays["n_nodes"]
        names = [f"n{node:0{len(str(n_nodes - 1))}d}" for node in range(n_nodes)]
        tiers = arrays["switch_tier"]
        per_level = len(tiers) // self.levels
        return from_arrays(
            arrays,
            f"{self.arity}-ary {self.levels}-tree, horizontal width {self.width}",
            [f"s{tier}-{s % per_level}" for s, tier in enumerate(tiers.tolist())],
            host_name=names,
        )


@dataclass(frozen=True)
class TreeRouting:
    """How flows are routed, all of a flow's packets alike.

    Attributes:
        adaptive: By the number of flows on each output as the flow starts; otherwise by default
            ports (oblivious).
        table: Default ports: ``d-mod-k``, or ``random`` for each switch and destination.
        margin: Flows an output must have less than the default port to be preferred, 1 or more.
    """

    adaptive: bool = True
    table: Literal["d-mod-k", "random"] = "d-mod-k"
    margin: int = 1


@dataclass(frozen=True)
class PermutationCongestion:
    """Congestion of flows in R runs: flows on the most used link of their path.

    Attributes:
        max: The highest of any flow, shape (R,).
        mean: The mean over flows, shape (R,).
        mean_links: Mean links of a path, node links included, shape (R,).
    """

    max: NDArray[np.uint32]
    mean: NDArray[np.float64]
    mean_links: NDArray[np.float64]


def permutation_congestion(
    tree: KaryTree,
    routing: TreeRouting,
    runs: int,
    *,
    copies: int = 1,
    first: int = 0,
    seed: int = 1,
) -> PermutationCongestion:
    """Congestion of random permutations; run r is the same permutation on every tree.

    Args:
        tree: The tree.
        routing: How flows are routed; they set up their paths one by one in random order.
        runs: How many permutations (or superpositions).
        copies: Permutations superposed in a run.
        first: Number of the first run.
        seed: Seed of everything.

    Raises:
        ScenarioError: An impossible tree or a margin of 0.
    """
    with translate_core_error("the fluid model"):
        out = _core.tree_permutations(
            tree.shape,
            table=routing.table,
            adaptive=routing.adaptive,
            margin=routing.margin,
            copies=copies,
            first=first,
            runs=runs,
            seed=seed,
        )
    return PermutationCongestion(out["max"], out["mean"], out["mean_links"])


@dataclass(frozen=True)
class SuperposedFlows:
    """Equal flows of superposed permutations, routed.

    Attributes:
        n_links: Links of the tree.
        node: Node that sends each flow, shape (F,).
        paths: Their links.
        link_rank: The order in which every path passes links, shape (n_links,): it ascends along
            each, which is why no deadlock can form.
    """

    n_links: int
    node: NDArray[np.uint32]
    paths: FlowPaths
    link_rank: NDArray[np.uint64]


def superpose_permutations(
    tree: KaryTree, routing: TreeRouting, copies: int, run: int = 0, seed: int = 1
) -> SuperposedFlows:
    """Route ``copies`` random permutations: run ``run`` of :func:`permutation_congestion`.

    Raises:
        ScenarioError: An impossible tree or a margin of 0.
    """
    with translate_core_error("the fluid model"):
        out = _core.tree_paths(
            tree.shape,
            table=routing.table,
            adaptive=routing.adaptive,
            margin=routing.margin,
            copies=copies,
            run=run,
            seed=seed,
        )
    paths = FlowPaths(out["start"], out["link"], out["share"])
    return SuperposedFlows(out["n_links"], out["node"], paths, out["rank"])
