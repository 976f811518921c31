"""Collisions of few large flows that switches hash to paths (ECMP), in a measured run.

A hash gives each flow, the messages from one rank to another, one of several equal paths. With few
large flows some paths get two or more, and these run at a fraction of the rate while other paths
are idle. The hash is unknown, and so is which flows collided. The engine's own hash, with many
seeds, stands in for it: each seed places the flows in another way. What a placement predicts for
the steps of flows and for the bytes of links follows without a simulation, and the placements that
agree best are simulated as machine models (:mod:`tailback.inference.search`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.budget import fits, leave_out
from tailback.evidence.link_counters import LinkCounters
from tailback.evidence.step_times import StepProfile
from tailback.fabric.model import Fabric
from tailback.inference.hypotheses import FAULT, UNUSUAL, Hypothesis
from tailback.inference.hypothesis_space import HypothesisSpace
from tailback.inference.machine_models import MachineModel, with_hashed_flows
from tailback.inference.network_clues import between_switches, flows_of, routing_is_stated
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.telemetry.candidates import minimal_choices, pair_candidates
from tailback.telemetry.packet_paths import trace_paths
from tailback.telemetry.path_hash import splitmix

SEEDS: Final = 4096
"""Placements of the flows that are compared with the evidence: all of six flows on four paths."""

MOST_FLOWS: Final = 128
"""Flows between switches above which hashing spreads traffic evenly enough."""

HASHES_TRIED: Final = 4
"""Placements that are simulated with each kind of adapters."""

LARGE_BYTES: Final = 64 << 10
"""Mean size of messages from which a flow fills its path for a while."""

CROWDED: Final = 1.25
"""Load of a link over that of its bundle from which flows collide on it."""

_ROUTE_STREAM: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0x2545F4914F6CDD1D)


@dataclass(frozen=True)
class FlowPlacements:
    """Flows between switches, and the links of each for many seeds of the hash.

    Attributes:
        src_rank: Sender of each flow, shape (F,).
        dst_rank: Receiver, shape (F,).
        bytes: Bytes of each flow, shape (F,).
        row: Number of the seed times F plus the flow, an element for each link that it crosses.
        link: That link.
        seeds: The seeds, shape (K,).
        link_gbps: Rate of each link, shape (L,).
        may_meet: Number of pairs of flows that some link may carry together.
    """

    src_rank: Ints
    dst_rank: Ints
    bytes: Floats
    row: Ints
    link: Ints
    seeds: Ints
    link_gbps: Floats
    may_meet: int

    @classmethod
    def of(
        cls,
        prepared: PreparedScenario,
        run: Run,
        seeds: Sequence[int] = range(SEEDS),
        least_bytes: int = LARGE_BYTES,
        most_flows: int = MOST_FLOWS,
        others: pl.DataFrame | None = None,
    ) -> FlowPlacements | None:
        """The placements; None if flows are too many or too small, or have no choice of paths.

        Args:
            prepared: The scenario with the job alone.
            run: A run of it, with its messages.
            seeds: Seeds of the hash.
            least_bytes: Mean size of messages below which a flow is left out.
            most_flows: Number of flows above which there are too many.
            others: Flows of other jobs: ``src, dst`` (ranks), ``src_node, dst_node, bytes``.
        """
        fabric = prepared.fabric
        flows = _flows(prepared, run, least_bytes)
        if others is not None:
            flows = pl.concat([flows.select(others.columns), others])
        if not 2 <= flows.height <= most_flows:
            return None
        src, dst = (flows[name].to_numpy().astype(np.int64) for name in ("src", "dst"))
        here, there = (
            flows[name].to_numpy().astype(np.uint32) for name in ("src_node", "dst_node")
        )
        pairs = pair_candidates(fabric, minimal_choices(fabric), here, there)
        ends = fabric.link_src.astype(np.int64), fabric.link_dst.astype(np.int64)
        n, k = flows.height, len(seeds)
        key = np.tile(src.astype(np.uint64) << np.uint64(32) | dst.astype(np.uint64), k)
        start = np.repeat(splitmix(np.array(seeds, np.uint64) ^ _ROUTE_STREAM), n)

        def hashed(hop: int, rows: Ints, size: Ints) -> Ints:
            word = np.asarray(start[rows] + key[rows] * _MIX, np.uint64)
            word = splitmix(word ^ np.uint64(hop << 56))
            chosen = (word >> np.uint64(32)) * size.astype(np.uint64) >> np.uint64(32)
            return np.asarray(chosen, np.int64)

        paths = trace_paths(pairs, ends, np.tile(here, k), np.tile(there, k), hashed)
        chosen = paths.alternatives > 1
        if not chosen.any():
            return None
        inner = between_switches(fabric)[paths.link]
        return cls(
            src,
            dst,
            flows["bytes"].to_numpy().astype(np.float64),
            paths.row[inner],
            paths.link[inner],
            np.array(seeds, np.int64),
            np.asarray(fabric.link_gbps, np.float64),
            _may_meet(fabric, here, there),
        )

    @property
    def n_flows(self) -> int:
        """Number of flows."""
        return len(self.src_rank)

    def link_bytes(self) -> Floats:
        """Bytes of each link for each seed, shape (K, L)."""
        n_links = len(self.link_gbps)
        at = self.row // self.n_flows * n_links + self.link
        sent = self.bytes[self.row % self.n_flows]
        n_seeds = len(self.seeds)
        total = np.bincount(at, sent, n_seeds * n_links).reshape(n_seeds, n_links)
        return np.asarray(total, np.float64)

    def crowding(self, link_bytes: Floats) -> Floats:
        """Time for a byte of each flow over that of a flow alone, for each seed, shape (K, F).

        A flow takes as long as its fullest link needs for all bytes on it.
        """
        load = link_bytes[self.row // self.n_flows, self.link] / self.link_gbps[self.link]
        alone = self.bytes[self.row % self.n_flows] / self.link_gbps.max()
        out = np.ones(len(self.seeds) * self.n_flows)
        np.maximum.at(out, self.row, load / alone)
        return out.reshape(len(self.seeds), self.n_flows)

    def collisions(self) -> list[tuple[int, Ints]]:
        """Links that two or more flows crowd with the first seed, and these; the fullest first."""
        mine = self.row < self.n_flows
        flow, link = self.row[mine], self.link[mine]
        out = []
        for number in np.unique(link).tolist():
            flows = np.unique(flow[link == number])
            total = float(self.bytes[flows].sum())
            if total >= CROWDED * self.bytes[flows].max():
                out.append((total / self.link_gbps[number], number, flows))
        return [(number, flows) for _, number, flows in sorted(out, key=lambda each: -each[0])]


def has_few_flows(prepared: PreparedScenario, run: Run) -> bool:
    """Whether flows between switches are too few to be spread evenly if each keeps to one path.

    Args:
        prepared: The scenario with the job alone.
        run: A run of it, with its messages.
    """
    flows = flows_of(prepared, run)
    between = int(np.count_nonzero(flows.src_leaf != flows.dst_leaf))
    return 0 < between <= MOST_FLOWS


def likely_seeds(
    placements: FlowPlacements,
    steps: StepProfile | None,
    counters: LinkCounters | None,
    errors: dict[str, float],
    most: int,
) -> list[int]:
    """Seeds with different collisions whose predictions agree best with the evidence, best first.

    Args:
        placements: The flows and their paths.
        steps: Measured times of network steps; None without.
        counters: Counters of links; None without.
        errors: Usual misfit of each kind of evidence.
        most: Number of seeds.
    """
    link_bytes = placements.link_bytes()
    crowding = placements.crowding(link_bytes)
    score = np.zeros(len(placements.seeds))
    if counters is not None and "bytes" in errors:
        counted = ~np.isnan(counters.sent_bytes) & (link_bytes.max(axis=0) > 0)
        score += _log_misfit(link_bytes[:, counted], counters.sent_bytes[counted], errors["bytes"])
    if steps is not None and "steps" in errors:
        seen, mine = _steps_of_flows(placements, steps)
        if len(mine):
            score += _log_misfit(crowding[:, mine], seen, errors["steps"])
    slowest = crowding.max(axis=1)
    score[slowest < CROWDED] = np.inf  # Without a collision it is the run that is known.
    chosen: dict[tuple[float, ...], int] = {}
    for row in np.argsort(score, kind="stable").tolist():
        if np.isinf(score[row]) or len(chosen) == most:
            break
        seen_as = np.round(crowding[row], 1) if score[row] else np.round(slowest[row : row + 1])
        chosen.setdefault(tuple(seen_as.tolist()), int(placements.seeds[row]))
    return list(chosen.values())


def _log_misfit(predicted: Floats, seen: Floats, usual: float) -> Floats:
    """Logarithm of the misfit of each prediction after the best scale, shape (K,)."""
    total = float((seen**2).sum())
    if total <= 0:
        return np.zeros(len(predicted))
    norm = np.maximum((predicted**2).sum(axis=1), 1e-300)
    scale = predicted @ seen / norm
    misfit = ((seen - scale[:, None] * predicted) ** 2).sum(axis=1) / total
    return np.asarray(np.log(usual + misfit), np.float64)


def _steps_of_flows(placements: FlowPlacements, steps: StepProfile) -> tuple[Floats, Ints]:
    """Mean time for a byte of the flows that have network steps, and their numbers."""
    number = {
        pair: k
        for k, pair in enumerate(
            zip(placements.src_rank.tolist(), placements.dst_rank.tolist(), strict=True)
        )
    }
    rows = [
        (row, number[pair])
        for row, pair in enumerate(
            zip(steps.src_rank.tolist(), steps.dst_rank.tolist(), strict=True)
        )
        if pair in number
    ]
    row, flow = np.array(rows, np.int64).reshape(-1, 2).T
    return steps.mean_ps[row], flow


def _flows(prepared: PreparedScenario, run: Run, least_bytes: int) -> pl.DataFrame:
    """Flows of large messages between switches, with their ranks, nodes and bytes."""
    fabric, node = prepared.fabric, prepared.observed.node
    ranks = np.arange(len(node))
    where = pl.DataFrame(
        {"rank": ranks, "node": node, "switch": fabric.node_switch[node]},
        schema_overrides={"rank": pl.Int64, "node": pl.Int64, "switch": pl.Int64},
    )
    messages = run.tables["messages"].select(
        src=pl.col("src_rank").cast(pl.Int64),
        dst=pl.col("dst_rank").cast(pl.Int64),
        size=pl.col("size_bytes").cast(pl.Float64),
    )
    return (
        messages.filter(pl.col("size") > 0)
        .group_by("src", "dst")
        .agg(pl.col("size").sum().alias("bytes"), pl.col("size").mean().alias("mean"))
        .filter(pl.col("mean") >= least_bytes)
        .join(where.rename({"rank": "src", "node": "src_node", "switch": "a"}), on="src")
        .join(where.rename({"rank": "dst", "node": "dst_node", "switch": "b"}), on="dst")
        .filter(pl.col("a") != pl.col("b"))
        .sort("src", "dst")
    )


def _may_meet(fabric: Fabric, src: NDArray[np.uint32], dst: NDArray[np.uint32]) -> int:
    """Number of pairs of flows that leave, or enter, the same switch."""
    total = 0
    for nodes in (src, dst):
        _, count = np.unique(fabric.node_switch[nodes], return_counts=True)
        total += int((count * (count - 1) // 2).sum())
    return max(total, 1)


def add_hashed_flows(
    space: HypothesisSpace, scenarios: Sequence[PreparedScenario], *, stated: bool
) -> None:
    """Add machine models that hash few large flows to paths, on which some collide.

    Only if time is missing where they are spread evenly, and paths are not stated.

    Args:
        space: The hypotheses.
        scenarios: The scenario with the job alone, with each kind of adapters.
        stated: Whether switches are stated to hash flows; otherwise that is unusual.
    """
    first = next(iter(space.machines.values()))
    run = space.alone(first.name, None, with_others=False)
    model = space.posterior().model
    if (
        first.prepared.scenario.engine.flow_seeds
        or routing_is_stated(first.prepared)
        or model.lossy
    ):
        return
    if model.missing_share(run.elapsed_ps) < FAULT:
        return
    placements = FlowPlacements.of(first.prepared, run)
    if placements is None:
        return
    errors = dict(model.errors)
    seeds = likely_seeds(
        placements, space.compare.steps, space.evidence.counters, errors, HASHES_TRIED
    )
    prior = (0.0 if stated else math.log(UNUSUAL)) - math.log(placements.may_meet)
    for prepared, seed in product(scenarios, seeds):
        evenly = MachineModel(prepared, 0.0, ()).name
        if evenly not in space.machines:
            continue
        if not fits(space.simulations_of_machine):
            leave_out("other routing", 0, space.simulations_of_machine)
            continue
        log_prior = space.machines[evenly].log_prior + prior
        space.add_machine(with_hashed_flows(prepared, seed), log_prior, evenly=evenly)


def collisions_of(space: HypothesisSpace, best: Hypothesis) -> str:
    """Flows that a hash puts on one path in the best simulation; empty if it hashes none.

    Their links are named where counters tell parallel links apart.
    """
    machine = space.machines[best.machine]
    seed = machine.prepared.scenario.engine.path_seed
    if machine.evenly is None or seed is None:
        return ""
    run = space.alone(best.machine, None, with_others=False)
    placements = FlowPlacements.of(machine.prepared, run, [seed])
    if placements is None:
        return ""
    fabric, node = machine.prepared.fabric, machine.prepared.observed.node
    hosts = [fabric.host_name[host] for host in fabric.node_host[node].tolist()]
    counted = space.evidence.counters is not None
    texts = []
    for link, flows in placements.collisions():
        pairs = [
            f"{hosts[placements.src_rank[flow]]}–{hosts[placements.dst_rank[flow]]}"
            for flow in flows.tolist()
        ]
        shown = " and ".join(dict.fromkeys(pairs[:4])) + (" …" if len(pairs) > 4 else "")
        where = fabric.link_name(link)
        texts.append(f"{shown} on {where}" if counted else f"{shown} on a link like {where}")
    return "; ".join(dict.fromkeys(texts[:3]))
