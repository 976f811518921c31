"""Types of the compiled module."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from numpy import float64, int32, int64, uint8, uint32, uint64
from numpy.typing import NDArray

from tailback.fluid.programs import RankModel
from tailback.simulation.settings import EngineSettings
from tailback.traffic.program import PlacedProgram

# Start, link and share of the paths of flows.
_Paths: TypeAlias = tuple[NDArray[uint64], NDArray[uint32], NDArray[float64]]

class UnconnectedError(ValueError):
    """There is no path between two places."""

    ends: tuple[str, int, int]
    """Their kind, ``switch`` or ``node``, and their numbers."""

class DeadlockError(ValueError):
    """Buffers wait, or could wait, on one another in a circle."""

class BadProgramError(ValueError):
    """An operation that cannot be, sends without receives, or ranks that wait for ever."""

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
        among: NDArray[uint32] | None = None,
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

class PacketOutcome:
    """What came of a run of the packet engine: figures, and tables as columns by name."""

    packets: int
    packet_hops: int
    vc_refused: int | None
    marked_packets: int | None
    events: int
    end_ps: int
    complete: bool
    window_ps: int
    ranks: dict[str, NDArray[Any]]
    computations: dict[str, NDArray[Any]]
    messages: dict[str, NDArray[Any]]
    samples: dict[str, NDArray[Any]]
    truth: dict[str, NDArray[Any]]
    counters_ps: int
    counters: dict[str, NDArray[Any]]
    queues_ps: int
    queues: dict[str, NDArray[Any]]
    one_in: int
    carried: dict[str, NDArray[Any]]

def simulate(
    network: Network,
    settings: EngineSettings,
    traffic: PlacedProgram,
    *,
    routing: Routing | None = None,
    threads: int = 1,
    watch: Callable[[int, int, int, int], object] | None = None,
) -> PacketOutcome: ...
def read_otf2(library: Path, anchor: Path, threads: int) -> dict[str, Any]: ...

class Routing:
    """A routing rule for one network."""

    @staticmethod
    def of_network(network: Network) -> Routing: ...
    @staticmethod
    def dimension_order(
        network: Network, dims: Sequence[int], tie: str, dateline: bool, detour: bool
    ) -> Routing: ...
    @staticmethod
    def all_to_all(network: Network, dims: Sequence[int], detour: bool) -> Routing: ...
    @staticmethod
    def groups(network: Network, detour: bool, lanes: bool) -> Routing: ...
    @staticmethod
    def sideways(network: Network, counts: tuple[int, int, int]) -> Routing: ...
    @property
    def lanes(self) -> int: ...
    @property
    def detours(self) -> int: ...
    def next(self, switch: int, node: int, via: int, state: int) -> tuple[list[int], int, int]: ...
    def fixed(self, node: int) -> NDArray[uint32]: ...
    def path(self, source: int, node: int, via: int, pick: int) -> list[tuple[int, int]]: ...
    def cycle(self) -> list[tuple[int, int]]: ...
    def as_network(self) -> Network: ...

def pgft_fabric(
    children: Sequence[int],
    parents: Sequence[int],
    cables: Sequence[int],
    gbps: Sequence[float],
    delay_ps: Sequence[int],
    planes: int,
) -> dict[str, Any]: ...
def modified_tree_fabric(
    counts: tuple[int, int, int], gbps: Sequence[float], delay_ps: Sequence[int]
) -> dict[str, Any]: ...
def torus_fabric(
    dimensions: Sequence[tuple[int, bool, int, Sequence[float], int]],
    nodes_per_switch: int,
    node_gbps: float,
    node_delay_ps: int,
) -> dict[str, Any]: ...
def hyperx_fabric(
    dimensions: Sequence[tuple[int, int, float, int]],
    nodes_per_switch: int,
    node_gbps: float,
    node_delay_ps: int,
) -> dict[str, Any]: ...
def dragonfly_fabric(
    counts: tuple[int, int, int, int],
    global_cables: str,
    gbps: Sequence[float],
    delay_ps: Sequence[int],
) -> dict[str, Any]: ...
def dragonfly_plus_fabric(
    counts: tuple[int, int, int, int, int],
    global_cables: str,
    gbps: Sequence[float],
    delay_ps: Sequence[int],
) -> dict[str, Any]: ...
def yellowstone_fabric(counts: Sequence[int], gbps: float, delay_ps: int) -> dict[str, Any]: ...
def with_forwarding(network: Network, forward: NDArray[uint32]) -> Network: ...
def fluid_max_min(
    capacity: NDArray[float64],
    paths: _Paths,
    weight: NDArray[float64],
) -> NDArray[float64]: ...
def fluid_assignment(
    capacity: NDArray[float64],
    paths: _Paths,
    weight: NDArray[float64],
) -> tuple[NDArray[float64], NDArray[float64]]: ...
def fluid_flows(
    capacity: NDArray[float64],
    start_ps: NDArray[uint64],
    bytes: NDArray[uint64],
    weight: NDArray[float64],
    paths: _Paths,
    rates: str,
) -> dict[str, Any]: ...
def fluid_paths(
    network: Network,
    src: NDArray[uint32],
    dst: NDArray[uint32],
    choice: str,
    seed: int,
    routing: Routing | None = None,
) -> dict[str, Any]: ...

class FluidOutcome:
    """What came of a rank program in the fluid model: tables as columns by name, and figures."""

    messages: dict[str, NDArray[Any]]
    ranks: dict[str, NDArray[Any]]
    link_bytes: NDArray[float64]
    link_use: dict[str, NDArray[Any]]
    window_ps: int
    end_ps: int
    settlements: int

def fluid_program(
    network: Network,
    settings: RankModel,
    traffic: PlacedProgram,
    *,
    routing: Routing | None = None,
) -> FluidOutcome: ...
def fluid_protocol(
    capacity: NDArray[float64],
    start_ps: NDArray[uint64],
    bytes: NDArray[uint64],
    paths: _Paths,
    hop_ps: int,
    probe_ps: int,
) -> dict[str, Any]: ...
def fluid_rounds(
    n_links: int,
    paths: _Paths,
    cells: int,
    buffer: int,
    assigned: bool,
) -> NDArray[uint64]: ...
def tree_permutations(
    shape: tuple[int, int, int],
    table: str,
    adaptive: bool,
    margin: int,
    copies: int,
    first: int,
    runs: int,
    seed: int,
) -> dict[str, Any]: ...
def tree_paths(
    shape: tuple[int, int, int],
    table: str,
    adaptive: bool,
    margin: int,
    copies: int,
    run: int,
    seed: int,
) -> dict[str, Any]: ...
def tree_ports(shape: tuple[int, int, int]) -> tuple[int, int]: ...
def tree_fabric(shape: tuple[int, int, int], gbps: float, delay_ps: int) -> dict[str, Any]: ...
def scheme_facts(
    name: str, bits: int = 1, size: int = 4, probability: float = 0.2
) -> tuple[int, int | None, bool]: ...
def run_scheme(
    name: str,
    ids: NDArray[uint32],
    hops: NDArray[uint8],
    links: NDArray[uint32],
    levels: NDArray[uint8],
    seed: int,
    bits: int = 1,
    size: int = 4,
    probability: float = 0.2,
    hash: str = "gf",
    field_bits: int = 24,
) -> dict[str, NDArray[Any]]: ...
def link_hash(
    name: str, ids: NDArray[uint32], links: NDArray[uint32], bits: int, field_bits: int
) -> NDArray[uint8]: ...
def decode(
    ids: NDArray[uint32],
    hashes: NDArray[uint8],
    weights: NDArray[uint8],
    links: NDArray[uint32],
    bits: int,
    field_bits: int,
    how: str,
) -> NDArray[int64]: ...
def decode_published(
    ids: NDArray[uint32], hashes: NDArray[uint8], weights: NDArray[uint8], links: NDArray[uint32]
) -> NDArray[int64]: ...
def decode_classes(
    ids: NDArray[uint32],
    hashes: NDArray[uint8],
    weights: NDArray[uint8],
    class_of_packet: NDArray[uint32],
    class_start: NDArray[uint64],
    class_links: NDArray[uint32],
    links: NDArray[uint32],
    bits: int,
    field_bits: int,
    how: str = "auto",
) -> NDArray[int64]: ...
def random_paths(
    network: Network,
    sources: NDArray[uint32],
    destinations: NDArray[uint32],
    seed: int,
    most_hops: int,
) -> tuple[NDArray[uint8], NDArray[uint32]]: ...
