"""Small fabrics and programs the placement tests share."""

from __future__ import annotations

import itertools

import numpy as np

from tailback.fabric.model import Fabric
from tailback.traffic.program import Label, Program, ProgramBuilder


def fabric_of(
    host_leaves: list[tuple[int, ...]], leaf_pod: list[int], names: list[str] | None = None
) -> Fabric:
    """A fat tree from the leaves of each host's adapters; one spine a pod, one core on top."""
    node_host = [h for h, leaves in enumerate(host_leaves) for _ in leaves]
    node_leaf = [leaf for leaves in host_leaves for leaf in leaves]
    n, n_leaves, n_pods = len(node_host), len(leaf_pod), max(leaf_pod) + 1
    up = [(node, n + leaf) for node, leaf in enumerate(node_leaf)]
    up += [(n + leaf, n + n_leaves + pod) for leaf, pod in enumerate(leaf_pod)]
    up += [(n + n_leaves + pod, n + n_leaves + n_pods) for pod in range(n_pods)]
    cables = np.array(up, np.uint32)
    count = len(cables)
    hosts = names or [f"node{h:03d}" for h in range(len(host_leaves))]
    pair = np.arange(count, dtype=np.uint32)
    return Fabric(
        name="test",
        node_name=[f"{hosts[h]}/{i}" for i, h in enumerate(node_host)],
        node_host=np.array(node_host, np.uint32),
        host_name=hosts,
        switch_name=[f"s{i}" for i in range(n_leaves + n_pods + 1)],
        switch_tier=np.array([0] * n_leaves + [1] * n_pods + [2], np.int32),
        switch_pod=np.array([*leaf_pod, *range(n_pods), -1], np.int32),
        link_src=np.concatenate([cables[:, 0], cables[:, 1]]),
        link_dst=np.concatenate([cables[:, 1], cables[:, 0]]),
        link_src_port=np.zeros(2 * count, np.uint32),
        link_dst_port=np.zeros(2 * count, np.uint32),
        link_gbps=np.full(2 * count, 100.0),
        link_delay_ps=np.zeros(2 * count, np.uint64),
        link_reverse=np.concatenate([pair + count, pair]),
    )


def stencil(grid: tuple[int, ...], periodic: bool = False, with_grid: bool = True) -> Program:
    """Every rank sends 1 KiB to each face neighbour; ``with_grid`` tells the program its grid."""
    n = int(np.prod(grid))
    builder = ProgramBuilder("stencil", n, grid if with_grid else ())
    label = builder.label(Label("halo", "MPI_Isend"))
    strides = [int(np.prod(grid[:d])) for d in range(len(grid))]
    for rank in range(n):
        at = [rank // stride % extent for stride, extent in zip(strides, grid, strict=True)]
        for d, sign in itertools.product(range(len(grid)), (1, -1)):
            to = list(at)
            to[d] += sign
            if periodic:
                to[d] %= grid[d]
            if 0 <= to[d] < grid[d] and to != at:
                peer = sum(t * s for t, s in zip(to, strides, strict=True))
                builder.isend(rank, peer, 1024, d, label)
    return builder.build()


def pairs(n_ranks: int, sends: list[tuple[int, int, int]]) -> Program:
    """A program of the given (source, destination, bytes)."""
    builder = ProgramBuilder("pairs", n_ranks)
    label = builder.label(Label("all", "MPI_Isend"))
    for source, destination, size in sends:
        builder.isend(source, destination, size, 0, label)
    return builder.build()


def regular(leaves: int, hosts: int, leaves_per_pod: int) -> Fabric:
    """Equal leaves of one-adapter hosts."""
    return fabric_of(
        [(leaf,) for leaf in range(leaves) for _ in range(hosts)],
        [leaf // leaves_per_pod for leaf in range(leaves)],
    )
