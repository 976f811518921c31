"""Types of the compiled module."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy import float64, int32, int64, uint8, uint32, uint64
from numpy.typing import NDArray

class Network:
    """A fabric with its routes, ready to simulate on."""

    def __init__(
        self,
        n_nodes: int,
        switch_tier: NDArray[int32],
        switch_pod: NDArray[int32],
        link_src: NDArray[uint32],
        link_dst: NDArray[uint32],
        link_src_port: NDArray[uint32],
        link_dst_port: NDArray[uint32],
        link_gbps: NDArray[float64],
        link_delay_ps: NDArray[uint64],
        link_reverse: NDArray[uint32],
    ) -> None: ...

def fat_tree(
    hosts_per_leaf: int,
    leaves: int,
    aggregation: int,
    pods: int,
    cores: int,
    leaf_cables: int,
    aggregation_uplinks: int,
    gbps: Sequence[float],
    delay_ps: Sequence[int],
) -> dict[str, Any]: ...
def simulate(
    network: Network,
    settings: str,
    program: tuple[
        NDArray[uint64],
        NDArray[uint8],
        NDArray[int32],
        NDArray[uint64],
        NDArray[int64],
        NDArray[int32],
        NDArray[uint32],
    ],
    placement: tuple[NDArray[uint32], NDArray[uint32], NDArray[uint64]],
    label_observed: Sequence[bool],
    watch: Callable[[int, int, int, int], object] | None = None,
) -> dict[str, Any]: ...
def read_otf2(library: Path, anchor: Path, threads: int) -> dict[str, Any]: ...
