"""Yellowstone, in full or reduced size."""

from __future__ import annotations

from pydantic import Field

from tailback.fabric.builders import core, from_arrays
from tailback.fabric.model import Fabric
from tailback.fabric.rates import data_rate_gbps
from tailback.fabric.topologies.topology import LARGEST, TOPOLOGIES, Topology, built
from tailback.scenario.quantities import LinkGbps

FDR_GBPS = data_rate_gbps("4x", "FDR") or 54.0
"""Data rate of a 4x FDR link in gigabits per second."""


@TOPOLOGIES.register("yellowstone")
class Yellowstone(Topology):
    """Yellowstone: 18 hosts per ToR, B-groups of 18 ToRs, 9 directors of 29 leaves and 18 spines.

    Source: Alali et al. (2017), figures 2 and 3. Storage leaves are attached to the 29th leaf of
    every director. The paper gives neither the number of these cables nor of servers:
    ``storage_cables`` and ``servers_per_leaf`` are assumptions within 36 ports. The data analysis
    system, whose size is not given, is left out.
    """

    host_rate: LinkGbps = Field(default=FDR_GBPS, description="rate of every cable (4x FDR)")
    hosts_per_tor: int = Field(default=18, ge=1, le=LARGEST, description="hosts on a ToR")
    tors_per_group: int = Field(default=18, ge=1, le=LARGEST, description="ToRs in a B-group")
    groups: int = Field(
        default=14, ge=1, le=LARGEST, description="B-groups, two leaves of a director each"
    )
    directors: int = Field(default=9, ge=1, le=LARGEST, description="directors")
    leaves: int = Field(
        default=29, ge=3, le=LARGEST, description="leaves of a director, the last for storage"
    )
    spines: int = Field(default=18, ge=1, le=LARGEST, description="spines of a director")
    storage_leaves: int = Field(default=4, ge=0, le=LARGEST, description="storage leaf switches")
    storage_spines: int = Field(default=6, ge=0, le=LARGEST, description="storage spine switches")
    servers_per_leaf: int = Field(
        default=5, ge=0, le=LARGEST, description="servers on a storage leaf"
    )
    storage_cables: int = Field(
        default=2, ge=0, le=LARGEST, description="cables from a storage leaf to each director"
    )

    def counts(self) -> tuple[int, int, int]:
        """Nodes, switches and cables."""
        tors = self.groups * self.tors_per_group
        servers = self.storage_leaves * self.servers_per_leaf
        nodes = tors * self.hosts_per_tor + servers
        directors = self.directors * (self.leaves + self.spines)
        storage = self.storage_leaves * (self.directors * self.storage_cables + self.storage_spines)
        cables = nodes + tors * 2 * self.directors + self.directors * self.leaves * self.spines
        switches = tors + directors + self.storage_leaves + self.storage_spines
        return nodes, switches, cables + storage

    def _build(self) -> Fabric:
        """The fabric: tiers ToR and storage leaf, director leaf and storage spine, spine."""
        counts = [
            self.hosts_per_tor,
            self.tors_per_group,
            self.groups,
            self.directors,
            self.leaves,
            self.spines,
            self.storage_leaves,
            self.storage_spines,
            self.servers_per_leaf,
            self.storage_cables,
        ]
        arrays = built(lambda: core.yellowstone_fabric(counts, self.host_rate, self.host_delay))
        tors = self.groups * self.tors_per_group
        names = [f"tor{tor + 1:03d}" for tor in range(tors)]
        names += [f"storage-leaf{n + 1}" for n in range(self.storage_leaves)]
        names += self._directors("leaf", self.leaves)
        names += [f"storage-spine{n + 1}" for n in range(self.storage_spines)]
        names += self._directors("spine", self.spines)
        hosts = [f"n{host:04d}" for host in range(tors * self.hosts_per_tor)]
        servers = self.storage_leaves * self.servers_per_leaf
        hosts += [f"nsd{server:02d}" for server in range(servers)]
        return from_arrays(arrays, self.kind, names, host_name=hosts)

    def _directors(self, part: str, each: int) -> list[str]:
        """Names with the numbering of the study: leaf 30 is the first of director 2."""
        return [
            f"director{director + 1}-{part}{director * each + n + 1:03d}"
            for director in range(self.directors)
            for n in range(each)
        ]
