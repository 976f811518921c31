"""The placements worth trying for a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.api.congestion import sampled_fractions
from tailback.arrays import Floats, Ints
from tailback.errors import PlacementError, TailbackError
from tailback.fabric.readers import connected_components
from tailback.placement import (
    PLACEMENTS,
    PlacementProblem,
    fewest_neighbours,
    fewest_switches,
    leaf_of_hosts,
    place,
    problem_for,
    restrict_to_used,
    switch_congestion,
)
from tailback.placement.variant import FILE, HostChoice, PlacementVariant
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.stages import stage

DEFAULT_METHODS = (
    "block",
    "by-switch",
    "round-robin",
    "rcm",
    "metis",
    "incremental",
    "tile",
    "tile2",
    "shift",
)
"""All placements except those that need a file or are random."""

ON_OTHER_HOSTS = ("block", "metis", "tile")
"""Placements that are tried on every choice of allowed hosts."""

CONGESTED_FRACTION = 0.1
"""Congested fraction of a leaf's links from which its hosts should be avoided: the same as for a
congested link (docs/explanation/verdict.md)."""


def default_methods(prepared: PreparedScenario) -> tuple[str, ...]:
    """Placements to evaluate by default: the job's own file first, if it has one."""
    has_file = prepared.observed.section.placement_file is not None
    return (FILE, *DEFAULT_METHODS) if has_file else DEFAULT_METHODS


def require_placements(option: str, names: Sequence[str]) -> None:
    """Raise a TailbackError that names the option if a name is not a placement."""
    for name in names:
        try:
            PLACEMENTS[name]
        except TailbackError as error:
            error.place = f"{option} {name}"
            raise


@stage("placements")
def make_candidates(
    prepared: PreparedScenario,
    names: Sequence[str],
    run: Run | None,
    progress: Callable[[str, float], None],
    fraction: Floats | None = None,
) -> tuple[
    dict[PlacementVariant, NDArray[np.uint32]], list[tuple[PlacementVariant, PlacementError]]
]:
    """Node of each rank under each placement, and why some could not be computed.

    All keep the hosts of the job and the number of ranks on each. If more hosts are allowed
    (``prepare(…, allow_hosts)``), every placement is also computed on the same number of those.

    With ``run``, the incremental placement (Taffet, 2019, section 4.2.2) and the shifted one use
    the congestion measured in it; or else ``fraction``, that of each link, shape (L,). The
    placement in use is kept, and its method also yields a recomputed variant. Placements equal to
    an earlier one are left out.
    """
    job = prepared.observed
    made: dict[PlacementVariant, NDArray[np.uint32]] = {}
    errors: list[tuple[PlacementVariant, PlacementError]] = []
    if run is not None:
        fraction = sampled_fractions(run)
    congestion = None if fraction is None else switch_congestion(prepared.fabric, fraction)
    problems, connected = _problems(prepared, congestion), _Connected.of(prepared)
    if job.hosts_recorded:
        # Not computed by any method: taken from the trace.
        made[PlacementVariant(job.placement_name)] = job.node
    for number, name in enumerate(names):
        progress(f"placing: {name}", number / len(names))
        used = name == job.placement_name
        stated = job.section.placement_options if used else {}
        for variant in _variants(name, problems, run is not None and used):
            plain = variant == PlacementVariant(name)
            problem = problems[variant.hosts]
            options = dict(stated) if plain else {}
            try:
                node = job.node if used and plain else place(name, problem, options)
                job.footprint.check(prepared.fabric, variant.name, node)
                if connected.why_not(node):
                    node = _place_whole_hosts(name, problem, prepared, options)
                    job.footprint.check(prepared.fabric, variant.name, node)
                connected.check(node)
            except PlacementError as error:
                errors.append((variant, error))
                continue
            if not any(np.array_equal(node, other) for other in made.values()):
                made[variant] = node
    return made, errors


@dataclass(frozen=True)
class _Connected:
    """Which nodes have paths between them: planes may be separate copies of a fabric.

    Attributes:
        part: Part of each node, shape (N,).
        host: Host of each node, shape (N,).
        src: Sender of each pair of ranks that exchange messages, shape (P,).
        dst: Receiver, shape (P,).
    """

    part: Ints
    host: Ints
    src: Ints
    dst: Ints

    @classmethod
    def of(cls, prepared: PreparedScenario) -> _Connected:
        fabric = prepared.fabric
        part = np.zeros(fabric.n_nodes, np.int64)
        for number, vertices in enumerate(connected_components(fabric)):
            part[vertices[vertices < fabric.n_nodes]] = number
        src, dst, _ = prepared.observed.program.traffic_matrix()
        return cls(part, fabric.node_host.astype(np.int64), src, dst)

    def why_not(self, node: NDArray[np.uint32]) -> str:
        """Which ranks that exchange messages have no path between them; empty if all have one."""
        src, dst = node[self.src], node[self.dst]
        apart = (self.part[src] != self.part[dst]) & (self.host[src] != self.host[dst])
        if not apart.any():
            return ""
        first = int(np.flatnonzero(apart)[0])
        return (
            f"ranks {self.src[first]} and {self.dst[first]} exchange messages, and would have "
            "adapters in parts of the fabric without a path between them"
        )

    def check(self, node: NDArray[np.uint32]) -> None:
        """Raise PlacementError if ranks that exchange messages have no path between them."""
        if why := self.why_not(node):
            raise PlacementError(
                why, remedy="use a placement that moves whole hosts, such as by-switch"
            )


def _place_whole_hosts(
    name: str, problem: PlacementProblem, prepared: PreparedScenario, options: dict[str, object]
) -> NDArray[np.uint32]:
    """Node of each rank if ranks that share a host stay together, each with its adapter.

    Ranks of accelerators keep the adapter in the same place of the host, and so rail and plane.
    """
    job, fabric = prepared.observed, prepared.fabric
    adapters = fabric.host_nodes()
    host = fabric.node_host[job.node].astype(np.int64)
    place_in_host = np.array(
        [adapters[at].index(node) for at, node in zip(host, job.node.tolist(), strict=True)]
    )
    _, first, group = np.unique(host, return_index=True, return_inverse=True)
    # Groups are numbered by their first ranks, as ranks are.
    turn = np.argsort(np.argsort(first))
    group = turn[group]
    src, dst, size = problem.traffic
    apart = group[src] != group[dst]
    pairs = (group[src] * len(first) + group[dst])[apart]
    between, pair = np.unique(pairs, return_inverse=True)
    total = np.bincount(pair, size[apart].astype(np.float64), len(between))
    slots = np.sort(np.unique(problem.slot_host, return_index=True)[1])
    hosts = replace(
        problem,
        n_ranks=len(first),
        slot_node=problem.slot_node[slots],
        slot_switch=problem.slot_switch[slots],
        slot_pod=problem.slot_pod[slots],
        slot_host=problem.slot_host[slots],
        traffic=(between // len(first), between % len(first), total.astype(np.uint64)),
        grid=(),
    )
    chosen = fabric.node_host[place(name, hosts, options)].astype(np.int64)
    try:
        node = [adapters[chosen[g]][at] for g, at in zip(group, place_in_host, strict=True)]
    except IndexError:
        raise PlacementError(
            "hosts with different numbers of adapters cannot take one another's ranks",
            remedy="name the hosts of the job that have equally many",
        ) from None
    return np.array(node, np.uint32)


def _problems(
    prepared: PreparedScenario, congestion: NDArray[np.float64] | None
) -> dict[HostChoice, PlacementProblem]:
    """The placement problem for each distinct choice of hosts."""
    job, fabric = prepared.observed, prepared.fabric
    ranks, allowed = job.footprint.ranks, job.footprint.allowed
    out: dict[HostChoice, PlacementProblem] = {}
    if set(ranks) <= set(allowed):
        out[HostChoice.IN_USE] = replace(
            restrict_to_used(job.problem, job.node), congestion=congestion
        )
    if not job.footprint.widened:
        return out
    hot = np.zeros(fabric.n_switches, bool)
    if congestion is not None:
        hot = congestion >= CONGESTED_FRACTION
    chosen: dict[HostChoice, list[int]] = {}
    leaf = np.array(leaf_of_hosts(fabric, allowed), np.int64)
    if congestion is not None and hot[leaf].any():
        # Drop hosts under the most congested leaves, as many as the job can spare.
        worst = np.where(hot[leaf], congestion[leaf], 0.0)
        spare = len(allowed) - len(ranks)
        dropped = set(np.argsort(-worst, kind="stable")[:spare].tolist()) & set(
            np.flatnonzero(worst > 0).tolist()
        )
        uncongested = [host for at, host in enumerate(allowed) if at not in dropped]
        kept_hosts = [host for host in uncongested if host in ranks]
        added = [host for host in uncongested if host not in ranks][: len(ranks) - len(kept_hosts)]
        kept = {*kept_hosts, *added}
        chosen[HostChoice.AWAY_FROM_CONGESTION] = [host for host in uncongested if host in kept]
    count = len(ranks)
    chosen[HostChoice.FEWEST_SWITCHES] = fewest_switches(fabric, allowed, count, hot)
    used = set(leaf_of_hosts(fabric, ranks))
    elsewhere = [host for host, at in zip(allowed, leaf.tolist(), strict=True) if at not in used]
    if len(elsewhere) >= count:
        chosen[HostChoice.OTHER_SWITCHES] = fewest_switches(fabric, elsewhere, count, hot)
    near = _neighbours(prepared)
    if near:
        chosen[HostChoice.FEWEST_NEIGHBOURS] = fewest_neighbours(fabric, allowed, count, near)
    chosen[HostChoice.MOST_SWITCHES] = fewest_neighbours(fabric, allowed, count, near, spread=True)
    taken = [set(ranks)]
    for choice, hosts in chosen.items():
        if set(hosts) not in taken:
            taken.append(set(hosts))
            out[choice] = problem_for(
                fabric, job.program, hosts, list(ranks.values()), prepared.scenario.seed, congestion
            )
    return out


def _neighbours(prepared: PreparedScenario) -> Counter[int]:
    """Hosts of other jobs under each leaf switch."""
    fabric, ours = prepared.fabric, prepared.observed
    others = {
        host
        for job in prepared.jobs
        if job is not ours
        for host in fabric.node_host[job.node].astype(np.int64).tolist()
    }
    return Counter(leaf_of_hosts(fabric, sorted(others - set(ours.footprint.ranks))))


def _variants(
    method: str, problems: Iterable[HostChoice], recompute: bool
) -> Iterator[PlacementVariant]:
    """Variants of one method: on the hosts in use, and on each other choice of hosts.

    A file names its hosts, and only shifts avoid congestion. On choices that are further apart in
    the network, placements that keep neighbours together are enough.
    """
    for hosts in problems:
        if hosts is HostChoice.IN_USE:
            yield PlacementVariant(method)
            if recompute and method != FILE:
                yield PlacementVariant(method, recomputed=True)
        elif (
            method == "shift"
            or (hosts is HostChoice.FEWEST_SWITCHES and method != FILE)
            or (hosts is not HostChoice.AWAY_FROM_CONGESTION and method in ON_OTHER_HOSTS)
        ):
            yield PlacementVariant(method, hosts)
