"""Permutations on k-ary n-trees with horizontal links: congestion, and rounds to complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.fluid import FlowPaths


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
        return _core.tree_ports(self.shape)[1]

    @property
    def extra_ports(self) -> float:
        """Ports of the horizontal links by those of the plain tree."""
        plain, modified = _core.tree_ports(self.shape)
        return modified / plain - 1


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
    """
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
    """Route ``copies`` random permutations: run ``run`` of :func:`permutation_congestion`."""
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


def rounds_to_completion(
    n_links: int, paths: FlowPaths, cells: int, buffer: int = 8, *, assigned: bool = False
) -> NDArray[np.uint64]:
    """Rounds until the last of ``cells`` cells of each flow has arrived.

    In a round each link moves one cell, if the buffer at its far end has room. Switches have
    virtual output queues and serve their inputs in turn; a node serves its flows in turn. All flows
    are equal and start at once; divide by ``cells`` to compare with ``W``.

    Args:
        n_links: Number of links L.
        paths: Single paths of F flows.
        cells: Cells of each flow.
        buffer: Cells that fit at the far end of each link.
        assigned: Inject a cell of flow f every ``W_f`` rounds at most, as the assignment says.

    Returns:
        Rounds, shape (F,).
    """
    return np.asarray(_core.fluid_rounds(n_links, paths.columns, cells, buffer, assigned))
