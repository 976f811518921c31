"""Rates between the ranks of one host, stated by a scenario or assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, ScenarioError, option
from tailback.fabric.model import Fabric
from tailback.placement.hosts import hosts_from_spec
from tailback.scenario.engine import MEMORY_ERROR
from tailback.scenario.model import InHost, Scenario
from tailback.traffic.program import Program
from tailback.units import percent

ACCELERATOR_GBPS = 400.0
"""Assumed rate of an accelerator's port to the others of its host: that of a PCIe 5.0 slot of 16
lanes, less its overhead. NVLink is at least six times as fast, and NCCL's log names it."""

FREE_GBPS = 1e12
"""Rate at which 125 MB take a picosecond, the unit of time: transfers within a host take none."""


def with_in_host_rates(fabric: Fabric, sections: Sequence[InHost]) -> Fabric:
    """The fabric with the rates within its hosts that a scenario states.

    Args:
        fabric: The fabric, with the rates that its own file states.
        sections: Hosts and their rates.

    Raises:
        ScenarioError: A host does not exist, or has two rates.
    """
    if not sections:
        return fabric
    stated = np.full(fabric.n_hosts, np.nan)
    for section in sections:
        place = "[[fabric.in_host]] hosts"
        try:
            hosts = hosts_from_spec(section.hosts, fabric)
        except PlacementError as error:
            raise ScenarioError(error.message, place=place, remedy=error.remedy) from None
        twice = [host for host in hosts if not np.isnan(stated[host])]
        if twice:
            raise ScenarioError(
                f"host {fabric.host_name[twice[0]]!r} has two rates",
                place=place,
                remedy="name each host in one section",
            )
        stated[hosts] = section.rate
    of_fabric = np.full(fabric.n_hosts, np.nan) if fabric.host_gbps is None else fabric.host_gbps
    return replace(fabric, host_gbps=np.where(np.isnan(stated), of_fabric, stated))


def without_in_host_limit(fabric: Fabric) -> Fabric:
    """The fabric with hosts in which transfers take no time but their latency."""
    return replace(fabric, host_gbps=np.full(fabric.n_hosts, FREE_GBPS))


def in_host_rates(fabric: Fabric, node: NDArray[np.uint32], usual: float) -> NDArray[np.float64]:
    """Rate within its host of each rank, Gb/s, shape (R,); empty if all have the usual one.

    Args:
        fabric: The fabric.
        node: Node of each rank, shape (R,).
        usual: Rate in hosts for which the fabric states none, Gb/s.
    """
    if fabric.host_gbps is None:
        return np.zeros(0)
    rate = fabric.host_gbps[fabric.node_host[node]]
    return np.ascontiguousarray(np.where(np.isnan(rate), usual, rate))


def note_on_rates(
    scenario: Scenario, fabric: Fabric, program: Program, node: NDArray[np.uint32]
) -> list[str]:
    """Note on a job's messages within hosts: their bytes, rates and the source of the rates.

    Empty for one rank on each host: such a job sends nothing within a host, wherever it is placed.

    Args:
        scenario: The scenario.
        fabric: The fabric.
        program: The program of the job.
        node: Node of each of its ranks, shape (R,).
    """
    host = fabric.node_host[node]
    if len(np.unique(host)) == len(host):
        return []
    sends = program.sends
    size = program.amount[sends].astype(np.float64)
    local = host[program.op_rank[sends]] == host[program.peer[sends]]
    share = float(size[local].sum()) / max(float(size.sum()), 1.0)
    engine = scenario.engine
    each, together = engine.local_rates("as-is")
    if engine.local_sharing == "ports":
        rates = f"at {each:g} Gb/s a port"
    else:
        rates = f"at up to {each:g} Gb/s each and {together:g} Gb/s together"
    if scenario.fabric.in_host:
        rates += ", or the rate of their [[fabric.in_host]]"
    if engine.local_error is not None:
        source = f"known within a factor of {engine.local_error:.3g}"
    elif not engine.assumes_memory_rate:
        source = "as stated"
    elif engine.local_rate is not None:
        source = f"the latter is assumed; {option('memory_rate')} states it"
    else:
        source = f"assumed; {option('local_rate')} and {option('memory_rate')} state them"
    return [f"within hosts: {percent(share)} of the bytes, {rates} ({source})"]


def with_accelerator_ports(
    scenario: Scenario, programs: Sequence[Program]
) -> tuple[Scenario, list[str]]:
    """The scenario with a port for each accelerator to the others of its host.

    Accelerators exchange messages through their own links, not through the memory of the host. The
    channels of a ring or tree of NCCL run side by side and share the port.

    Args:
        scenario: The scenario. Its own statements take precedence.
        programs: Programs of the jobs that have several ranks in a host.

    Returns:
        The scenario, and a note on the assumptions.
    """
    accelerated = [program for program in programs if program.recompile is not None]
    engine = scenario.engine
    if not accelerated or engine.model_fields_set & {"local_sharing", "memory_rate"}:
        return scenario, []
    changes: dict[str, object] = {"local_sharing": "ports"}
    source = "stated"
    if engine.local_rate is None:
        logged = [program.port_gbps for program in accelerated if program.port_gbps is not None]
        changes["local_rate"] = min(logged, default=ACCELERATOR_GBPS)
        source = "totalBw in NCCL's log"
        if not logged:
            changes["local_error"] = engine.local_error or MEMORY_ERROR
            source = f"assumed: {option('local_rate')} states it"
    engine = engine.model_copy(update=changes)
    note = (
        "within a host, messages share the port of each accelerator, of "
        f"{engine.local_rate:g} Gb/s ({source})"
    )
    return scenario.model_copy(update={"engine": engine}), [note]
