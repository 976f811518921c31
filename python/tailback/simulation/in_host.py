"""Rates between the ranks of one host, which may differ from host to host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, ScenarioError
from tailback.fabric.model import Fabric
from tailback.placement.hosts import hosts_from_spec
from tailback.scenario import InHost

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
