"""Tori and meshes of one to eight dimensions, and Blue Waters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from tailback.errors import InvalidValueError
from tailback.fabric.builders import core, from_arrays
from tailback.fabric.model import Fabric
from tailback.fabric.topologies.topology import (
    LARGEST,
    TOPOLOGIES,
    Topology,
    built,
    one_or_each,
    parse,
)
from tailback.scenario.quantities import LinkGbps, TimePs

Size = Annotated[int, Field(ge=1, le=65535)]

AXES = "XYZUVWST"
"""Names of the dimensions."""

GBYTE = 8.0
"""Gigabits per second of one gigabyte per second."""


def grid_names(dims: list[int]) -> list[str]:
    """Names of switches by their coordinates, ``r03-00-11``, the first dimension fastest."""
    wide = [len(str(size - 1)) for size in dims]
    return [
        "r" + "-".join(f"{at:0{digits}d}" for at, digits in zip(place, wide, strict=True))
        for place in grid_coordinates(dims).tolist()
    ]


def grid_coordinates(dims: Sequence[int]) -> NDArray[np.int64]:
    """Coordinates of switches, shape (S, D), the first dimension fastest."""
    switch = np.arange(prod(dims))
    return np.stack(np.unravel_index(switch, tuple(dims), order="F"), axis=1).astype(np.int64)


def grid_steps(
    dims: Sequence[int], src: NDArray[np.int64], dst: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Dimension and step, 1 or -1, of each link; dimension -1 where it has none.

    Where a ring has two switches, their one cable is 1 from the first and -1 from the second.

    Args:
        dims: Switches along each dimension.
        src: Source switch of each link, negative for a node, shape (L,).
        dst: Destination switch, negative for a node, shape (L,).
    """
    between = (src >= 0) & (dst >= 0)
    place = grid_coordinates(dims)
    moved = place[np.where(between, dst, 0)] - place[np.where(between, src, 0)]
    dimension = np.argmax(moved != 0, axis=1)
    step = np.take_along_axis(moved, dimension[:, None], axis=1)[:, 0]
    size = np.asarray(dims)[dimension]
    # Wrap-around: from the last position to the first is one step forward.
    step = np.where((abs(step) == size - 1) & (size > 2), -np.sign(step), step)
    return np.where((moved != 0).any(axis=1), dimension, -1), step


def grid_directions(
    dims: Sequence[int], src: NDArray[np.int64], dst: NDArray[np.int64]
) -> list[str]:
    """Direction of each link of :func:`grid_steps`, like ``X+``; "" where it has no step."""
    return [
        f"{AXES[dimension]}{'+' if step > 0 else '-'}" if dimension >= 0 else ""
        for dimension, step in zip(*grid_steps(dims, src, dst), strict=True)
    ]


def grid_dims(topology: dict[str, Any] | None) -> list[int]:
    """Switches along each dimension of a torus or mesh; empty for other networks.

    Args:
        topology: ``[fabric.topology]`` of a scenario.
    """
    grid = None if topology is None else parse(topology)
    return list(grid.dims) if isinstance(grid, Grid) else []


class Grid(Topology):
    """Common options of tori and meshes."""

    dims: list[Size] = Field(
        min_length=1, max_length=8, description="switches along each dimension"
    )
    nodes_per_switch: int = Field(default=1, ge=1, le=LARGEST, description="nodes on each switch")
    rates: list[LinkGbps | list[LinkGbps]] = Field(
        default=[100.0],
        min_length=1,
        description="rate of each dimension, or of its cables from position 0 on, repeated",
    )
    cables: list[Annotated[int, Field(ge=1, le=LARGEST)]] = Field(
        default=[1], min_length=1, description="cables between neighbours, one or per dimension"
    )
    delay: TimePs = Field(default=0, description="delay of cables between switches")
    tie: Literal["positive", "negative", "parity"] = Field(
        default="positive", description="the direction around a ring when both are equally long"
    )

    @abstractmethod
    def wraps(self) -> list[bool]:
        """Whether the ends of each dimension are joined."""

    @field_validator("rates", mode="before")
    @classmethod
    def _some_rate(cls, rates: object) -> object:
        if isinstance(rates, list) and [] in rates:
            raise InvalidValueError(
                f"dimension {rates.index([])} has an empty list of rates",
                "give the rate of its cables, or a list of one or more that is repeated",
            )
        return rates

    @model_validator(mode="after")
    def _per_dimension(self) -> Grid:
        for name in ("rates", "cables"):
            one_or_each(name, len(getattr(self, name)), len(self.dims))
        return self

    def _dimensions(self) -> list[tuple[int, bool, int, list[float], int]]:
        n = len(self.dims)
        rates = [rate if isinstance(rate, list) else [rate] for rate in self.rates]
        return [
            (size, wrap, cables, rate, self.delay)
            for size, wrap, cables, rate in zip(
                self.dims,
                self.wraps(),
                self.cables * (n // len(self.cables)),
                rates * (n // len(rates)),
                strict=True,
            )
        ]

    def counts(self) -> tuple[int, int, int]:
        """Nodes, switches and cables: size pairs of neighbours per ring, one less on a line."""
        switches = prod(self.dims)
        between = sum(
            cables * switches // size * (size if wrap and size > 2 else size - 1)
            for size, wrap, cables, _, _ in self._dimensions()
        )
        nodes = switches * self.nodes_per_switch
        return nodes, switches, between + nodes

    def _build(self) -> Fabric:
        """The fabric; all switches are of tier 0."""
        arrays = built(
            lambda: core.torus_fabric(
                self._dimensions(), self.nodes_per_switch, self.host_rate, self.host_delay
            )
        )
        return from_arrays(arrays, self.kind, grid_names(list(self.dims)))

    def rules(self) -> dict[str, Callable[[core.Network], core.NetworkRouting]]:
        """Dimension order, Valiant's detours over it, and up/down."""

        def order(detour: bool) -> Callable[[core.Network], core.NetworkRouting]:
            return lambda network: core.NetworkRouting.dimension_order(
                network, list(self.dims), self.tie, True, detour
            )

        return {"dimension-order": order(False), "valiant": order(True), **super().rules()}


@TOPOLOGIES.register("torus")
class Torus(Grid):
    """Torus of one to eight dimensions, each with its own width and rates."""

    wrap: list[bool] = Field(
        default=[True], min_length=1, description="joined ends, one for all or per dimension"
    )

    @model_validator(mode="after")
    def _wrap(self) -> Torus:
        one_or_each("wrap", len(self.wrap), len(self.dims))
        return self

    def wraps(self) -> list[bool]:
        """The ``wrap`` option for each dimension."""
        return self.wrap * (len(self.dims) // len(self.wrap))


@TOPOLOGIES.register("mesh")
class Mesh(Grid):
    """Mesh of one to eight dimensions: a torus without the wrap-around cables."""

    def wraps(self) -> list[bool]:
        """No dimension is joined."""
        return [False] * len(self.dims)


@TOPOLOGIES.register("blue-waters")
class BlueWaters(Torus):
    """Blue Waters: 24x24x24 torus, 2 nodes per router, X 9.4, Y 4.7, Z 15 (1/8 at 9.4) GB/s.

    Rates are from Jha et al. (HPCMASPA 2018), section II. The paper does not say which eighth of
    the Z links is slower; here it is every eighth position, where a ring of 24 leaves one of its
    three cages of eight. Nor does it give the rate of injection links: 10.4 GB/s, 16 bits at 5.2
    GT/s, is an assumption that ``host_rate`` changes.
    """

    dims: list[Size] = Field(
        default=[24, 24, 24], min_length=1, max_length=8, description="routers along X, Y, Z"
    )
    nodes_per_switch: int = Field(default=2, ge=1, le=LARGEST, description="nodes on each router")
    rates: list[LinkGbps | list[LinkGbps]] = Field(
        default=[9.4 * GBYTE, 4.7 * GBYTE, [15 * GBYTE] * 7 + [9.4 * GBYTE]],
        min_length=1,
        description="rate of each dimension, or of its cables from position 0 on, repeated",
    )
    host_rate: LinkGbps = Field(default=10.4 * GBYTE, description="rate of host cables")
