"""The links flows take: single paths, or spread over the candidates of a route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailback import _core
from tailback.fabric.core_errors import translate_core_error

Choice = Literal["deterministic", "random", "least-flows", "split", "spread", "pooled"]
"""How a path is chosen: ``deterministic`` D-mod-k; ``random``, once a flow; ``least-flows`` on each
output as the flow starts, as VC routing does (Birk and Zdornov, 2009); ``split``, eight equal
parts by least flows, near per-packet adaptive routing; ``spread``, equal parts over all candidates,
which costs time in proportion to the links of the fabric; ``pooled``, all links of a tree that
serve as one as a single link, which per-packet choice amounts to there (for rank programs)."""


@dataclass(frozen=True)
class FlowPaths:
    """Links of F flows in columns: flow ``f`` uses ``link[start[f]:start[f + 1]]``.

    Attributes:
        start: First use of each flow, shape (F + 1,).
        link: Links in the order a flow passes them, shape (P,).
        share: Fraction of the flow on each, shape (P,); empty means 1 everywhere.
    """

    start: NDArray[np.uint64]
    link: NDArray[np.uint32]
    share: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @staticmethod
    def of(paths: Sequence[Sequence[int]]) -> FlowPaths:
        """Single paths from lists of link numbers."""
        start = np.zeros(len(paths) + 1, np.uint64)
        start[1:] = np.cumsum([len(path) for path in paths], dtype=np.uint64)
        with translate_core_error("the fluid model"):
            link = np.array([link for path in paths for link in path], np.uint32)
        return FlowPaths(start, link)

    @property
    def n_flows(self) -> int:
        """Number of flows."""
        return len(self.start) - 1

    @property
    def columns(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64]]:
        """The columns in the form that the core expects."""
        return (
            np.ascontiguousarray(self.start, np.uint64),
            np.ascontiguousarray(self.link, np.uint32),
            np.ascontiguousarray(self.share, np.float64),
        )

    def link_sum(self, value: ArrayLike, n_links: int) -> NDArray[np.float64]:
        """Sum over flows of ``value``, shape (F,), on each link, shape (n_links,)."""
        each = np.repeat(np.asarray(value, np.float64), np.diff(self.start).astype(np.int64))
        share = self.share if len(self.share) else 1.0
        return np.bincount(self.link, each * share, minlength=n_links).astype(np.float64)


def paths_between(
    network: _core.Network,
    src: ArrayLike,
    dst: ArrayLike,
    choice: Choice,
    seed: int = 1,
    routing: _core.NetworkRouting | None = None,
) -> FlowPaths:
    """Paths between nodes of a fabric, each chosen with all earlier flows in place.

    Args:
        network: The fabric with its routes (``tailback.simulation.execute.network_of``).
        src: Node each flow leaves, shape (F,).
        dst: Node it goes to, shape (F,).
        choice: See :data:`Choice`.
        seed: Seed of random choices and of ties.
        routing: A rule to route by, without its detours; None for the network's own routes.

    Raises:
        FabricError: No path.
        ScenarioError: A node that does not exist, or that would send to itself.
    """
    with translate_core_error("the fluid model"):
        paths = _core.fluid_paths(
            network,
            np.ascontiguousarray(src, np.uint32),
            np.ascontiguousarray(dst, np.uint32),
            choice,
            seed,
            routing,
        )
    return FlowPaths(paths["start"], paths["link"], paths["share"])
