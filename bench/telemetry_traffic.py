"""Packets of known paths on three networks, for the accuracy of telemetry (`telemetry_accuracy`).

Every packet takes a path of its own, drawn at random among those its routing allows, as per-packet
adaptive routing does: up/down on the Tapered network, minimal ones on the torus and the dragonfly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measuring.fat_tree_stages import Stage, fat_tree_stages
from tailback import _core
from tailback.fabric import Fabric, in_port_order
from tailback.fabric.builders import PRESETS, fat_tree, network_of
from tailback.fabric.topologies import build
from tailback.telemetry import CandidateLinks
from tailback.telemetry.candidates import (
    ForwardingChoices,
    PairCandidates,
    minimal_choices,
    pair_candidates,
)

FIELD_BITS = 24
NETWORKS = ("tapered", "torus", "dragonfly")
PATTERNS = ("uniform", "skewed")
FIXED = 400
"""Packets whose ends and path two fifths of the skewed traffic share."""

Rows = NDArray[np.intp]
Plan = list[tuple[Rows, CandidateLinks]]


@dataclass(frozen=True)
class Traffic:
    """Packets with their paths, and what the links really carried.

    Attributes:
        source: Node of each packet, shape (P,).
        destination: Node of each packet.
        ids: Packet ids.
        hops: Links of each path after the injection link.
        links: The same links in rows, shape (P, most hops).
        truth: Packets that crossed each link, shape (L,).
        tiers: Links of each tier.
        stages: Given packets and the hop each tells of (None: unknown), the rows that may tell of
            each stage with their candidates.
        most_hops: Links of the longest path.
    """

    source: NDArray[np.uint32]
    destination: NDArray[np.uint32]
    ids: NDArray[np.uint32]
    hops: NDArray[np.uint8]
    links: NDArray[np.uint32]
    truth: NDArray[np.float64]
    tiers: dict[str, Rows]
    stages: Callable[[NDArray[np.uint32], NDArray[np.uint8] | None], Plan]
    most_hops: int

    @property
    def n_links(self) -> int:
        """Links of the network."""
        return len(self.truth)

    def population(self) -> list[CandidateLinks]:
        """Candidates of all packets at each stage."""
        return [part for _, part in self.stages(np.arange(len(self.ids), dtype=np.uint32), None)]


def make_fabric(network: str) -> Fabric:
    """One of :data:`NETWORKS`."""
    if network == "tapered":
        return fat_tree(PRESETS["tapered"])
    options = {
        "torus": {"kind": "torus", "dims": [4, 4, 4], "nodes_per_switch": 4},
        "dragonfly": {
            "kind": "dragonfly",
            "nodes_per_router": 3,
            "routers": 6,
            "global_ports": 3,
            "groups": 19,
        },
    }
    return in_port_order(build(options[network]))


def make_traffic(network: str, pattern: str, packets: int, seed: int) -> Traffic:
    """Random packets between random nodes, or two fifths of them on a few fixed paths."""
    fabric = make_fabric(network)
    random = np.random.default_rng(seed)
    ends = random.integers(0, fabric.n_nodes, (2, packets), dtype=np.uint32)
    if network == "tapered":
        hops, links = tree_paths(fabric, ends, seed)
    else:
        choices = minimal_choices(fabric)
        hops, links = drawn_paths(fabric, choices, ends, random)
    if pattern == "skewed":
        fixed = random.integers(0, FIXED, 2 * packets // 5)
        where = random.permutation(packets)
        rows, models = where[FIXED : FIXED + len(fixed)], where[:FIXED][fixed]
        ends[:, rows], hops[rows], links[rows] = ends[:, models], hops[models], links[models]
    passed = np.arange(links.shape[1]) < hops[:, None]
    truth = np.bincount(links[passed], minlength=fabric.n_links).astype(np.float64)
    # Senders start their sequence numbers at random: 24 bits, as in InfiniBand.
    ids = random.integers(0, 1 << FIELD_BITS, packets, dtype=np.uint32)
    if network == "tapered":
        stages = fat_tree_stages(fabric)
        tiers = {stage.name: stage.links.astype(np.intp) for stage in stages}
        plan = tree_plan(stages, ends, hops)
    else:
        pairs = pair_candidates(fabric, choices, ends[0], ends[1])
        tiers, plan = flat_tiers(fabric, network), pair_plan(pairs, ends, hops)
    return Traffic(ends[0], ends[1], ids, hops, links, truth, tiers, plan, links.shape[1])


def tree_paths(
    fabric: Fabric, ends: NDArray[np.uint32], seed: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Up/down paths of five links at most."""
    network = network_of(fabric)
    hops, links = _core.random_paths(network, ends[0], ends[1], seed, 5)
    return hops, links.reshape(-1, 5)


def drawn_paths(
    fabric: Fabric,
    choices: ForwardingChoices,
    ends: NDArray[np.uint32],
    random: np.random.Generator,
) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Paths drawn link by link: every choice of a switch is equally likely."""
    n, s = fabric.n_nodes, fabric.n_switches
    at = fabric.node_switch[ends[0]].astype(np.int64)
    goal = fabric.node_switch[ends[1]].astype(np.int64)
    columns, hops = [], np.zeros(len(at), np.uint8)
    ejection = np.zeros(n, np.int64)
    last = np.flatnonzero(fabric.link_dst < n)
    ejection[fabric.link_dst[last]] = last
    finished = np.zeros(len(at), bool)
    while not finished.all():
        row = goal * s + at
        width = choices.start[row + 1] - choices.start[row]
        pick = choices.start[row] + (random.random(len(at)) * width).astype(np.int64)
        inner = choices.links[np.minimum(pick, len(choices.links) - 1)]
        link = np.where(at == goal, ejection[ends[1]], inner)
        columns.append(np.where(finished, 0, link))
        hops += ~finished
        finished |= at == goal
        at = np.where(finished, goal, fabric.link_dst[link].astype(np.int64) - n)
    return hops, np.stack(columns, axis=1).astype(np.uint32)


def tree_plan(
    stages: list[Stage], ends: NDArray[np.uint32], hops: NDArray[np.uint8]
) -> Callable[[NDArray[np.uint32], NDArray[np.uint8] | None], Plan]:
    """Candidates stage by stage of a fat tree."""

    def plan(packet: NDArray[np.uint32], known_hop: NDArray[np.uint8] | None) -> Plan:
        out = []
        for stage in stages:
            at = stage.hop_of(hops[packet])
            rows = np.flatnonzero(at >= 0 if known_hop is None else at == known_hop)
            chosen = packet[rows]
            out.append((rows, stage.candidates(ends[0, chosen], ends[1, chosen])))
        return out

    return plan


def pair_plan(
    pairs: PairCandidates, ends: NDArray[np.uint32], hops: NDArray[np.uint8]
) -> Callable[[NDArray[np.uint32], NDArray[np.uint8] | None], Plan]:
    """Candidates hop by hop of pairs of switches, and the ejection links."""

    def plan(packet: NDArray[np.uint32], known_hop: NDArray[np.uint8] | None) -> Plan:
        source, destination = ends[0, packet], ends[1, packet]
        out = []
        for hop in range(len(pairs.hops)):
            rows = np.arange(len(packet)) if known_hop is None else np.flatnonzero(known_hop == hop)
            inner, part = pairs.stage(hop, source[rows], destination[rows])
            out.append((rows[inner], part))
        last = hops[packet] - 1
        rows = np.arange(len(packet)) if known_hop is None else np.flatnonzero(known_hop == last)
        out.append((rows, pairs.last(destination[rows])))
        return out

    return plan


def flat_tiers(fabric: Fabric, network: str) -> dict[str, Rows]:
    """Links between switches by the tiers that they join, and links to hosts."""
    n = fabric.n_nodes
    inner = (fabric.link_src >= n) & (fabric.link_dst >= n)
    host = np.flatnonzero(fabric.link_dst < n)
    if network == "torus":
        return {"switch to switch": np.flatnonzero(inner), "host": host}
    group = (np.arange(fabric.n_switches)) // 6
    across = np.zeros(fabric.n_links, bool)
    across[inner] = group[fabric.link_src[inner] - n] != group[fabric.link_dst[inner] - n]
    return {
        "within a group": np.flatnonzero(inner & ~across),
        "between groups": np.flatnonzero(across),
        "host": host,
    }
