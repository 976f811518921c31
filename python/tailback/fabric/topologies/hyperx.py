"""HyperX, the flattened butterfly and the full mesh."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Annotated

from pydantic import Field, model_validator

from tailback.fabric.builders import core, from_arrays
from tailback.fabric.model import Fabric
from tailback.fabric.topologies.topology import LARGEST, TOPOLOGIES, Topology, built, one_or_each
from tailback.fabric.topologies.torus import Size, grid_names
from tailback.scenario.quantities import LinkGbps, TimePs


@TOPOLOGIES.register("hyperx")
class HyperX(Topology):
    """HyperX: in every dimension each switch is joined to all others of its line.

    Ahn et al., SC 2009. One dimension is a full mesh.
    """

    dims: list[Size] = Field(
        min_length=1, max_length=8, description="switches along each dimension"
    )
    nodes_per_switch: int = Field(default=1, ge=1, le=LARGEST, description="nodes on each switch")
    rates: list[LinkGbps] = Field(
        default=[100.0], min_length=1, description="rate of cables, one or per dimension"
    )
    cables: list[Annotated[int, Field(ge=1, le=LARGEST)]] = Field(
        default=[1], min_length=1, description="cables between each pair, one or per dimension"
    )
    delay: TimePs = Field(default=0, description="delay of cables between switches")

    @model_validator(mode="after")
    def _per_dimension(self) -> HyperX:
        for name in ("rates", "cables"):
            one_or_each(name, len(getattr(self, name)), len(self.dims))
        return self

    def _dimensions(self) -> list[tuple[int, int, float, int]]:
        n = len(self.dims)
        cables, rates = self.cables * (n // len(self.cables)), self.rates * (n // len(self.rates))
        return [(size, cables[d], rates[d], self.delay) for d, size in enumerate(self.dims)]

    def counts(self) -> tuple[int, int, int]:
        """Nodes, switches and cables: size · (size - 1) / 2 pairs per line."""
        switches = prod(self.dims)
        between = sum(c * switches * (size - 1) // 2 for size, c, _, _ in self._dimensions())
        nodes = switches * self.nodes_per_switch
        return nodes, switches, between + nodes

    def _build(self) -> Fabric:
        """The fabric; all switches are of tier 0."""
        arrays = built(
            lambda: core.hyperx_fabric(
                self._dimensions(), self.nodes_per_switch, self.host_rate, self.host_delay
            )
        )
        return from_arrays(arrays, self.kind, grid_names(list(self.dims)))

    def rules(self) -> dict[str, Callable[[core.Network], core.NetworkRouting]]:
        """Minimal (dimension order), Valiant, and up/down."""

        def order(detour: bool) -> Callable[[core.Network], core.NetworkRouting]:
            return lambda network: core.NetworkRouting.hyperx(network, list(self.dims), detour)

        return {"minimal": order(False), "valiant": order(True), **super().rules()}
