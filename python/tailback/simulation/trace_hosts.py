"""The hosts that the ranks of a trace ran on, from the trace or its batch job."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tailback.evidence.hosts import Hosts, find_hosts
from tailback.fabric.model import Fabric
from tailback.placement import PlacementProblem
from tailback.scenario import JobSection
from tailback.traffic.readers import timed_reader


def trace_hosts(section: JobSection, fabric: Fabric, n_ranks: int) -> Hosts | None:
    """Host of each rank of a trace, by its name in the fabric.

    None if the scenario states hosts or a placement, if the hosts are not recorded, or if a host is
    not in the fabric.
    """
    stated = section.hosts != "all" or section.placement_file is not None
    if section.trace is None or stated or section.placement != "block":
        return None
    reader = timed_reader(section.trace, section.format)
    system = reader.system_tree(section.trace) if reader else []
    if len(system) != n_ranks:
        return None
    found = find_hosts(system, n_ranks)
    if found is None:
        return None
    known = set(fabric.host_name)
    # Names with and without a domain are treated as the same host if that is unambiguous.
    short = Counter(name.partition(".")[0] for name in fabric.host_name)
    by_short = {n.partition(".")[0]: n for n in fabric.host_name if short[n.partition(".")[0]] == 1}
    names = [name if name in known else by_short.get(name.partition(".")[0], "")
             for name in found.of_rank]  # fmt: skip
    return Hosts(names, found.source) if all(names) else None


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
