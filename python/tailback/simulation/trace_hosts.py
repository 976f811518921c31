"""Hosts of the ranks of a trace, in the fabric of a scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailback.errors import option
from tailback.evidence.hosts import Hosts, find_hosts
from tailback.fabric.model import Fabric
from tailback.io.delimited import shown
from tailback.names.hosts import HostNames, spelling_notes
from tailback.placement import PlacementProblem, slots_from_spec
from tailback.scenario.model import JobSection
from tailback.traffic.readers import timed_reader
from tailback.units import counted


def trace_hosts(
    section: JobSection, fabric: Fabric, n_ranks: int, logged: Sequence[str] = ()
) -> Hosts | None:
    """Host of each rank of a trace, by its name in the fabric.

    GPUs that shared a host share one here, although its name is not in the fabric: their ranks and
    rings are made for it. Processes recorded on a laptop are not.

    None if the scenario states hosts or a placement, if the hosts are not recorded, or if a host is
    not in the fabric.

    Args:
        section: The job.
        fabric: The fabric.
        n_ranks: Number of ranks.
        logged: Host of each rank that a trace without times names.
    """
    stated = section.hosts != "all" or section.placement_file is not None
    if section.trace is None or stated or section.placement != "block":
        return None
    if logged:
        system = [[(host, "node")] for host in logged]
    else:
        reader = timed_reader(section.trace, section.format)
        system = reader.system_tree(section.trace) if reader else []
    if len(system) != n_ranks:
        return None
    hosts = find_hosts(system, n_ranks)
    if hosts is None:
        return None
    joined = HostNames(fabric.host_name).joined(hosts.of_rank)
    names = [joined.get(name, name) for name in hosts.of_rank]
    if not set(names) <= set(fabric.host_name):
        return _hosts_alike(logged, fabric) if section.ranks_per_host == 1 else None
    return Hosts(names, hosts.source, tuple(spelling_notes(joined, hosts.source)))


def _hosts_alike(logged: Sequence[str], fabric: Fabric) -> Hosts | None:
    """The first hosts of the fabric, shared by the ranks that shared one when they were recorded.

    None if no ranks shared one, or if the fabric has too few hosts.
    """
    recorded = list(dict.fromkeys(logged))
    hosts, _ = slots_from_spec("all", fabric, 1)
    if not len(hosts) >= len(recorded) < len(logged):
        return None
    names = dict(zip(recorded, (fabric.host_name[host] for host in hosts), strict=False))
    note = (
        f"the fabric has no host {shown(recorded[0])}: ranks that shared a host share one of its "
        f"first hosts; {option('hosts')} names others"
    )
    return Hosts([names[host] for host in logged], "the trace, under other names", (note,))


def other_hosts_notes(logged: Sequence[str], hosts: NDArray[np.uint32]) -> list[str]:
    """A note if ranks share hosts in another way than when they were recorded.

    Args:
        logged: Host of each rank when it was recorded; empty if unknown.
        hosts: Host of each rank in the fabric, shape (R,).
    """
    pairs, used = len(set(zip(logged, hosts.tolist(), strict=False))), len(np.unique(hosts))
    recorded = len(set(logged))
    if not logged or pairs == recorded == used:
        return []
    names = ", ".join(shown(name) for name in list(dict.fromkeys(logged))[:3])
    more = ", …" if recorded > 3 else ""
    return [
        f"the ranks ran on {counted(recorded, 'host')} ({names}{more}), and are placed on {used} "
        "here: what ranks of a host exchange does not enter the network; "
        f"{option('hosts')} and {option('ranks_per_host')} state where they ran"
    ]


def hosts_spec(hosts: Hosts) -> str:
    """The hosts with the ranks on each, in scenario syntax, in the order of their first rank."""
    return ",".join(f"{host}:{count}" for host, count in Counter(hosts.of_rank).items())


def nodes_of(hosts: Hosts, problem: PlacementProblem) -> NDArray[np.uint32]:
    """Node of each rank: the k-th rank of a host takes its k-th slot, shape (R,)."""
    slots: dict[str, list[int]] = {}
    for slot, host in enumerate(problem.slot_host.tolist()):
        slots.setdefault(problem.host_name[host], []).append(slot)
    turn: Counter[str] = Counter()
    out = []
    for host in hosts.of_rank:
        out.append(int(problem.slot_node[slots[host][turn[host]]]))
        turn[host] += 1
    return np.array(out, np.uint32)
