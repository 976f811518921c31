"""Table ``links`` as flat arrays, with directions and bundles for congestion trees."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tailback.arrays import Bools, Floats, Ints
from tailback.diagnosis.link_directions import link_directions
from tailback.fabric.topologies.torus import grid_dims
from tailback.identity_cache import PerObject
from tailback.names.ports import link_names, links_by_port
from tailback.run.run import Run
from tailback.scenario.model import FabricSection

FABRIC_TABLES = ("nodes", "switches", "links")

UP, FLAT, DOWN = 1, 0, -1
_DIRECTION = {"up": UP, "flat": FLAT, "down": DOWN}


@dataclass(frozen=True)
class LinkTopology:
    """The directed links of a run, by link number.

    Attributes:
        src: Source vertex (nodes first, then switches), shape (L,).
        dst: Destination vertex, shape (L,).
        tier: Tier of the cable, shape (L,).
        direction: 1 up, 0 flat, -1 down, shape (L,).
        from_node: Injection links, shape (L,).
        to_node: Ejection links, shape (L,).
        rate_gbps: Data rate, shape (L,).
        name: ``l2[swp5] → s1[2]``, length L.
        leaving: The link that leaves each port, by each of its names: ``l2[swp5]``, ``l2[5]``.
        bundle: Number of the bundle each link belongs to, shape (L,); see :func:`_bundles`.
        node_switch: Switch vertex of each node, -1 if none, shape (N,).
        out_start: Links leaving vertex v are ``out_link[out_start[v]:out_start[v + 1]]``.
        out_link: Links sorted by source vertex, shape (L,).
        flat_direction: Direction of links between switches in a network without tiers
            (:func:`.link_directions`), length L; empty for networks with tiers.
    """

    src: Ints
    dst: Ints
    tier: Ints
    direction: Ints
    from_node: Bools
    to_node: Bools
    rate_gbps: Floats
    name: list[str]
    leaving: dict[str, int]
    bundle: Ints
    node_switch: Ints
    out_start: Ints
    out_link: Ints
    flat_direction: list[str] = field(default_factory=list)

    @property
    def n_links(self) -> int:
        """Number of directed links."""
        return len(self.src)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_switch)

    @staticmethod
    def of(run: Run) -> LinkTopology:
        """Read the tables of the fabric; kept for runs that share them."""
        return _topology_of(run.scenario.fabric, *(run.tables[name] for name in FABRIC_TABLES))

    @staticmethod
    def _of(section: FabricSection, *fabric: pl.DataFrame) -> LinkTopology:
        tables = dict(zip(FABRIC_TABLES, fabric, strict=True))
        links = tables["links"].sort("link")
        src = links["src"].cast(pl.Int64).to_numpy()
        dst = links["dst"].cast(pl.Int64).to_numpy()
        direction = (
            links["direction"].replace_strict(_DIRECTION, default=FLAT, return_dtype=pl.Int64)
        ).to_numpy()
        tier = links["tier"].cast(pl.Int64).to_numpy()
        to_node = links["to_node"].to_numpy()
        nodes = tables["nodes"].sort("node")
        switch = nodes["switch"].to_numpy().astype(np.int64)
        vertices = nodes.height + tables["switches"].height
        return LinkTopology(
            src=src,
            dst=dst,
            tier=tier,
            direction=direction,
            from_node=links["from_node"].to_numpy(),
            to_node=to_node,
            rate_gbps=links["rate_gbps"].to_numpy(),
            name=link_names(links),
            leaving=links_by_port(links),
            bundle=_bundles(src, dst, tier, direction, to_node),
            node_switch=np.where(switch < 0, -1, switch + nodes.height),
            out_start=np.concatenate([[0], np.cumsum(np.bincount(src, minlength=vertices))]),
            out_link=np.argsort(src, kind="stable"),
            flat_direction=link_directions(tables, grid_dims(section.topology)),
        )


_topology_of = PerObject(LinkTopology._of)


def _bundles(src: Ints, dst: Ints, tier: Ints, direction: Ints, to_node: Bools) -> Ints:
    """Number the bundles: links among which routing spreads the same traffic.

    These are up-links of a switch to the same tier (adaptive routing may use any of them),
    down-links of the same tier into a switch (which carry the traffic so spread), and parallel
    cables between two switches of the same tier. Each ejection link is its own bundle.
    """
    n = len(src)
    key = np.zeros((n, 4), np.int64)
    key[:, 0], key[:, 3] = direction, tier
    key[:, 1] = np.where(direction == DOWN, -1, src)
    key[:, 2] = np.where(direction == UP, -1, dst)
    key[to_node] = np.column_stack(
        [np.full(n, 2), np.arange(n), np.zeros(n, np.int64), np.zeros(n, np.int64)]
    )[to_node]
    if n == 0:
        return np.zeros(0, np.int64)
    return np.unique(key, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def link_totals(run: Run, column: str) -> Floats:
    """Sum of a column of table ``truth`` over all windows, by link, shape (L,)."""
    sums = run.tables["truth"].group_by("link").agg(pl.col(column).sum())
    out = np.zeros(run.tables["links"].height)
    out[sums["link"].to_numpy()] = sums[column].to_numpy()
    return out
