"""The k-ary n-tree with peer (horizontal) links: those between switches of one ideal switch."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from tailback.fabric.builders import core, from_arrays
from tailback.fabric.model import Fabric
from tailback.fabric.topologies.topology import LARGEST, TOPOLOGIES, Topology, built
from tailback.scenario.quantities import LinkGbps, TimePs


@TOPOLOGIES.register("modified-k-ary-n-tree")
class ModifiedKaryNTree(Topology):
    """k-ary n-tree with peer links between neighbouring switches (Birk and Zdornov, 2009)."""

    k: int = Field(ge=2, le=LARGEST, description="down links, and uplinks, of a switch")
    n: int = Field(ge=1, le=16, description="levels of switches")
    width: int = Field(
        default=2, ge=0, le=64, description="parallel peer cables from a switch to the next"
    )
    rate: LinkGbps = Field(default=100.0, description="rate of uplink cables")
    delay: TimePs = Field(default=0, description="delay of uplink cables")
    horizontal_rate: LinkGbps = Field(default=100.0, description="rate of peer (horizontal) cables")
    horizontal_delay: TimePs = Field(default=0, description="delay of peer (horizontal) cables")

    @property
    def shape(self) -> tuple[int, int, int]:
        """k, n and width, as the core takes them."""
        return self.k, self.n, self.width

    def counts(self) -> tuple[int, int, int]:
        """Nodes, switches and cables: kⁿ; n·kⁿ⁻¹; n·kⁿ and width·Σ(kⁿ⁻¹ - kⁿ⁻¹⁻ˡ), l = 1 … n-1."""
        nodes, level = self.k**self.n, self.k ** (self.n - 1)
        lines = sum(level - level // self.k**tier for tier in range(1, self.n))
        return nodes, self.n * level, self.n * nodes + self.width * lines

    def _build(self) -> Fabric:
        """The fabric; levels are tiers."""
        rates = [self.host_rate, self.rate, self.horizontal_rate]
        delays = [self.host_delay, self.delay, self.horizontal_delay]
        arrays = built(lambda: core.modified_tree_fabric(self.shape, rates, delays))
        level = self.k ** (self.n - 1)
        digits = len(str(level - 1))
        names = [f"t{tier}-{s:0{digits}d}" for tier in range(self.n) for s in range(level)]
        return from_arrays(arrays, self.kind, names)

    def rules(self) -> dict[str, Callable[[core.Network], core.NetworkRouting]]:
        """Up/down with peer links on the way down (``horizontal``), and without (``up-down``)."""
        return {
            "horizontal": lambda network: core.NetworkRouting.peer_links(network, self.shape),
            **super().rules(),
        }
