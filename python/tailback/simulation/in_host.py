"""Rates between the ranks of one host, which may differ from host to host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, ScenarioError
from tailback.fabric.model import Fabric
from tailback.placement.hosts import hosts_from_spec
from tailback.scenario import InHost, Scenario
from tailback.traffic.program import Program

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
    given = np.full(fabric.n_hosts, np.nan)
    for section in sections:
        place = "[[fabric.in_host]] hosts"
        try:
            hosts = hosts_from_spec(section.hosts, fabric)
        except PlacementError as error:
            raise ScenarioError(error.message, place=place, remedy=error.remedy) from None
        twice = [host for host in hosts if not np.isnan(given[host])]
        if twice:
            raise ScenarioError(
                f"host {fabric.host_name[twice[0]]!r} has two rates", place=place,
                remedy="name each host in one section",
            )  # fmt: skip
        given[hosts] = section.rate
    own = np.full(fabric.n_hosts, np.nan) if fabric.host_gbps is None else fabric.host_gbps
    return replace(fabric, host_gbps=np.where(np.isnan(given), own, given))


def without_in_host_limit(fabric: Fabric) -> Fabric:
    """The fabric with hosts in which transfers take no time but their latency."""
    return replace(fabric, host_gbps=np.full(fabric.n_hosts, FREE_GBPS))


def in_host_rates(
    fabric: Fabric, node: NDArray[np.uint32], usual: float
) -> NDArray[np.float64]:  # fmt: skip
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


def with_accelerator_ports(
    scenario: Scenario, programs: Sequence[Program]
) -> tuple[Scenario, list[str]]:
    """The scenario with a port for each accelerator to the others of its host.

    The channels of a ring or tree of NCCL run side by side, so each would have the whole rate if
    messages within a host shared nothing.

    Args:
        scenario: The scenario; what it states is kept.
        programs: Programs of the jobs that have several ranks in a host.

    Returns:
        The scenario, and a note of what is assumed.
    """
    accelerated = [program for program in programs if program.recompile is not None]
    engine = scenario.engine
    if not accelerated or "local_sharing" in engine.model_fields_set:
        return scenario, []
    changes: dict[str, object] = {"local_sharing": "ports"}
    source = "[engine] local_rate"
    logged = [program.port_gbps for program in accelerated if program.port_gbps is not None]
    if logged and "local_rate" not in engine.model_fields_set:
        changes["local_rate"] = min(logged)
        source = "totalBw in NCCL's log"
    engine = engine.model_copy(update=changes)
    note = (f"within a host, messages share the port of each accelerator, of "
            f"{engine.local_rate:g} Gb/s ({source})")  # fmt: skip
    return scenario.model_copy(update={"engine": engine}), [note]
