"""Types of the compiled module."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypeAlias, TypedDict

from numpy import bool_, float64, int32, int64, uint8, uint32, uint64, unsignedinteger
from numpy.typing import NDArray

from tailback.fluid.programs import RankModel
from tailback.simulation.repetition.continued import StepChecks
from tailback.simulation.settings import EngineSettings
from tailback.traffic.program import PlacedProgram, Program

# A column of the narrowest type that holds its numbers.
_Unsigned: TypeAlias = NDArray[unsignedinteger[Any]]
# Start, link and share of the paths of flows.
_Paths: TypeAlias = tuple[NDArray[uint64], NDArray[uint32], NDArray[float64]]

class FabricArrays(TypedDict):
    """A fabric whose links are sorted by source vertex and port: S switches, L links."""

    n_nodes: int
    switch_tier: NDArray[int32]
    switch_pod: NDArray[int32]
    link_src: NDArray[uint32]
    link_dst: NDArray[uint32]
    link_src_port: NDArray[uint32]
    link_dst_port: NDArray[uint32]
    link_gbps: NDArray[float64]
    link_delay_ps: NDArray[uint64]
    link_reverse: NDArray[uint32]

class RankColumns(TypedDict):
    """What each rank did, shape (R,)."""

    finish_ps: NDArray[uint64]
    compute_ps: NDArray[uint64]
    wait_ps: NDArray[uint64]

class ComputationColumns(TypedDict):
    """Intervals of computation, in order of their start."""

    rank: NDArray[uint32]
    start_ps: NDArray[uint64]

class MessageColumns(TypedDict):
    """Messages in the order in which they were posted."""

    label: NDArray[uint32]
    post_ps: NDArray[uint64]
    start_ps: NDArray[uint64]
    arrival_ps: NDArray[uint64]
    packets: NDArray[uint32]
    arrived: NDArray[uint32]
    switch_hops: NDArray[uint32]
    src_rank: NDArray[uint32]
    dst_rank: NDArray[uint32]
    size_bytes: NDArray[uint64]

class SampleColumns(TypedDict):
    """Sums of samples by window, label and link."""

    window: _Unsigned
    label: _Unsigned
    link: _Unsigned
    hop_samples: _Unsigned
    hop_weight: _Unsigned
    hop_variance: _Unsigned
    hop_bytes: _Unsigned
    congested_samples: _Unsigned
    congested_weight: _Unsigned
    congested_variance: _Unsigned

class PassColumns(TypedDict):
    """Packets by step, label and link that could sample them, and those that met congestion."""

    window: _Unsigned
    label: _Unsigned
    link: _Unsigned
    hop_samples: _Unsigned
    congested_samples: _Unsigned

class TruthColumns(TypedDict):
    """Traffic of each link in each window."""

    window: _Unsigned
    link: _Unsigned
    packets: _Unsigned
    bytes: _Unsigned
    observed_packets: _Unsigned
    congested_packets: _Unsigned
    observed_congested_packets: _Unsigned
    busy_ps: _Unsigned
    stall_ps: _Unsigned

class CounterColumns(TypedDict):
    """Port counters at instants at which one has changed."""

    time_ps: _Unsigned
    link: _Unsigned
    data_bytes: _Unsigned
    packets: _Unsigned
    busy_ps: _Unsigned
    stall_ps: _Unsigned
    queue_ps: _Unsigned
    inq_ps: _Unsigned

class QueueColumns(TypedDict):
    """Queues of ports at instants at which one has changed."""

    time_ps: _Unsigned
    link: _Unsigned
    waiting_bytes: _Unsigned
    booked_bytes: _Unsigned
    packets: _Unsigned

class PacketColumns(TypedDict):
    """Packets that arrived with a sample."""

    packet: NDArray[uint64]
    time_ps: NDArray[uint64]
    src_node: NDArray[uint64]
    dst_node: NDArray[uint64]
    label: NDArray[uint64]
    size_bytes: NDArray[uint64]
    hops: NDArray[uint64]
    header: NDArray[uint64]
    sequence: NDArray[uint64]
    queue_pair: NDArray[uint64]
    # Only with reservoirs of several links: shape (packets, 2 × slots).
    links: NotRequired[NDArray[uint32]]

class FluidMessageColumns(TypedDict):
    """Messages of the fluid model in the order in which they were posted."""

    post_ps: NDArray[uint64]
    arrival_ps: NDArray[uint64]
    switches: NDArray[uint32]
    src_rank: NDArray[uint32]
    dst_rank: NDArray[uint32]
    size_bytes: NDArray[uint64]
    label: NDArray[uint32]
    start_ps: NDArray[uint64]

class LinkUseColumns(TypedDict):
    """Traffic of each link in each window of the fluid model."""

    window: NDArray[uint32]
    link: NDArray[uint32]
    bytes: NDArray[uint64]
    busy_ps: NDArray[uint64]

class FlowColumns(TypedDict):
    """When flows ended, shape (F,), and how often rates were set meanwhile."""

    end_ps: NDArray[uint64]
    settlements: int
    rates_set: int

class PathColumns(TypedDict):
    """Paths: links of path p are ``link[start[p]:start[p + 1]]``; no ``share``: the whole flow."""

    start: NDArray[uint64]
    link: NDArray[uint32]
    share: NDArray[float64]

class SuperposedColumns(PathColumns):
    """Paths of superposed permutations."""

    n_links: int
    node: NDArray[uint32]
    rank: NDArray[uint64]

class PermutationColumns(TypedDict):
    """Congestion of R permutations, shape (R,)."""

    max: NDArray[uint32]
    mean: NDArray[float64]
    mean_links: NDArray[float64]

class SchemeColumns(TypedDict):
    """What receivers decode from N samples, shape (N,)."""

    packet: NDArray[uint32]
    congested: NDArray[bool_]
    seen: NDArray[uint32]
    hop: NDArray[uint8]
    weight: NDArray[float64]

class CommunicatorDefinition(TypedDict):
    """A communicator of a trace: its ranks, and the remote group of an inter-communicator."""

    name: str
    members: NDArray[uint32]
    remote: NDArray[uint32] | None
    is_self: bool

class TraceDefinitions(TypedDict):
    """Anchor file and global definitions of an OTF2 archive."""

    ticks_per_second: int
    start: int
    length: int
    realtime_ns: int | None
    n_ranks: int
    processor_times: bool
    system: list[list[tuple[str, str]]]
    locations: list[tuple[int, int]]
    regions: dict[int, str]
    region_lines: dict[int, tuple[str, int]]
    sites: dict[int, tuple[str, int]]
    communicators: dict[int, CommunicatorDefinition]
    cartesian: list[tuple[int, list[int]]]

class CallPathColumns(TypedDict):
    """Call paths of a location: the caller of each, its region and call site."""

    parent: NDArray[uint32]
    region: NDArray[uint32]
    site: NDArray[uint32]

class CallColumns(TypedDict):
    """MPI calls of a location, in order of their start."""

    region: NDArray[uint32]
    enter: NDArray[uint64]
    leave: NDArray[uint64]
    paused: NDArray[Any]
    processor: NDArray[uint64]
    enter_event: NDArray[Any]
    leave_event: NDArray[Any]
    path: NDArray[uint32]

class RecordColumns(TypedDict):
    """Records of messages and requests of a location, in their order."""

    kind: NDArray[uint8]
    time: NDArray[uint64]
    event: NDArray[Any]
    call: NDArray[Any]
    phase: NDArray[Any]
    path: NDArray[uint32]
    peer: NDArray[Any]
    comm: NDArray[Any]
    tag: NDArray[Any]
    bytes: NDArray[Any]
    received: NDArray[Any]
    request: NDArray[Any]
    message: NDArray[Any]
    posted: NDArray[Any]
    probed: NDArray[Any]

class LocationColumns(TypedDict):
    """Events of one location of an OTF2 archive."""

    location: int
    records: int
    enters: int
    leaves: int
    calls: CallColumns
    messages: RecordColumns
    clock_offsets: list[tuple[int, int]]
    paths: CallPathColumns

class CapturedColumns(TypedDict):
    """Packets of captures as columns, and a summary of each file."""

    packets: dict[str, NDArray[Any]]
    addresses: list[str]
    one_in: int
    files: list[CapturedSummary]

class CapturedSummary(TypedDict):
    """One file: its frames, with the number skipped and offset of the first one by reason."""

    frames: int
    packets: int
    skipped: list[tuple[int, int]]
    cut_at: int | None
    times_ns: tuple[int, int] | None

class TraceColumns(TypedDict):
    """An OTF2 archive as columns."""

    creator: str
    definitions: TraceDefinitions
    locations: list[LocationColumns]
    size_texts: dict[int, str] | None

class PostLabelColumns(TypedDict):
    """Labels of the messages of all locations, one location after the other."""

    phase: NDArray[uint32]
    path: NDArray[uint32]
    call: NDArray[Any]
    comm: NDArray[Any]
    tag: NDArray[Any]

class PostTables(TraceColumns):
    """An OTF2 archive whose messages between two ranks became posts."""

    labels: PostLabelColumns
    label_counts: NDArray[Any]
    channels: NDArray[Any]
    regions: dict[int, tuple[int, int, int, int]]
    proc_null: int
    posts: int
    between_ps: int

class UnconnectedError(ValueError):
    """There is no path between two switches or nodes."""

    ends: tuple[str, int, int]
    """Their kind, ``switch`` or ``node``, and their numbers."""

class BadFabricError(ValueError):
    """A fabric that is inconsistent or cannot be routed."""

    parts: list[str | tuple[str, int]]
    """The message: texts, and kind (``node``, ``switch``, ``link``) and number of what it names."""

class DeadlockError(BadFabricError):
    """Buffers wait, or could wait, for each other in a cycle."""

class BadProgramError(ValueError):
    """An invalid operation, sends and receives that do not match, or ranks that wait forever."""

class EngineInputError(ValueError):
    """A setting, count, time or link that the engine cannot run with."""

    place: str | None
    """Table and key of the scenario: ``[engine] buffer``."""
    link: int | None
    """The link concerned."""
    message: str
    """What is wrong, without the place."""
    remedy: str

class Network:
    """A fabric with its routes, ready to simulate on."""

    def __init__(
        self,
        n_nodes: int,
        *,
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
    @property
    def lanes(self) -> int: ...

def fat_tree(
    *,
    hosts_per_leaf: int,
    leaves: int,
    aggregation: int,
    pods: int,
    cores: int,
    leaf_cables: int,
    aggregation_uplinks: int,
    gbps: Sequence[float],
    delay_ps: Sequence[int],
) -> FabricArrays: ...
def receive_labels(program: Program) -> NDArray[uint32]: ...

class PacketOutcome:
    """Result of a run of the packet engine: figures, and tables as columns by name."""

    packets: int
    packet_hops: int
    vc_refused: int | None
    marked_packets: int | None
    notifications: int
    pauses: int
    paused_ps: int
    events: int
    adapters_shared: bool
    end_ps: int
    complete: bool
    window_ps: int
    ranks: RankColumns
    computations: ComputationColumns
    messages: MessageColumns
    samples: SampleColumns
    truth: TruthColumns
    step_truth: TruthColumns
    step_passes: PassColumns
    counters_ps: int
    counters: CounterColumns
    queues_ps: int
    queues: QueueColumns
    one_in: int
    carried: PacketColumns

def simulate(
    network: Network,
    settings: EngineSettings,
    traffic: PlacedProgram,
    *,
    routing: NetworkRouting | None = None,
    threads: int = 1,
    watch: Callable[[int, int, int, int], object] | None = None,
    steps: StepChecks | None = None,
) -> PacketOutcome: ...
def read_captures(paths: Sequence[Path], most: int, tcp: bool) -> CapturedColumns: ...

_Integers: TypeAlias = NDArray[int64]
# Input that cannot be decoded raises a ValueError: kind, row, text, number and limit.
_Decoded: TypeAlias = dict[str, Any]

def dense_numbers(values: _Integers) -> tuple[_Integers, _Integers]: ...
def count_turns(values: _Integers) -> _Integers: ...
def pair_posts(
    n_ranks: int,
    posts: tuple[NDArray[Any], ...],
) -> tuple[_Integers | None, _Integers]: ...
def match_unknown_sources(
    n_ranks: int,
    posts: tuple[NDArray[Any], ...],
    ends: _Integers,
    unused: NDArray[bool_],
) -> _Integers: ...
def assemble_posts(
    n_ranks: int,
    posts: tuple[NDArray[Any], ...],
    completions: tuple[NDArray[Any], ...],
    waits: tuple[NDArray[Any], ...],
    computes: tuple[NDArray[Any], ...],
) -> _Decoded: ...
def compile_graph(
    nodes: tuple[NDArray[uint32], NDArray[uint8], NDArray[int32], NDArray[uint64], NDArray[uint32]],
    streams: tuple[_Integers, NDArray[uint32]],
    required: tuple[NDArray[uint32], NDArray[uint32]],
) -> tuple[_Decoded, list[int], int, int, bool, int]: ...
def read_chakra(
    n_ranks: int, files: Iterable[bytes], calls: Sequence[tuple[int, int]], longest_ps: int
) -> _Decoded: ...
def read_goal(pieces: Iterable[bytes], longest_ps: int, keep_lines: bool) -> _Decoded: ...
def read_goal_binary(data: bytes, longest_ps: int) -> _Decoded: ...
def read_simgrid_ti(
    files: Sequence[bytes], type_bytes: Sequence[int], ps_per_flop: int, longest_ps: int
) -> _Decoded: ...
def read_otf2_definitions(library: Path, anchor: Path) -> TraceColumns: ...
def read_otf2(
    library: Path, anchor: Path, threads: int, progress: Callable[[float], None] | None
) -> TraceColumns: ...
def read_otf2_posts(
    library: Path, anchor: Path, threads: int, progress: Callable[[float], None] | None
) -> tuple[Otf2Posts, PostTables] | None: ...

class Otf2Posts:
    """Sends, receives and computations of an OTF2 trace."""

    def compile(
        self,
        channels: NDArray[uint32],
        labels: NDArray[uint32],
        posts: tuple[NDArray[Any], ...],
        completions: tuple[NDArray[Any], ...],
        scatters: Sequence[int],
    ) -> tuple[_Decoded, list[int], list[int], tuple[int, int, int, int, int, int] | None]: ...

class DumpiReader:
    """Reads the files of all ranks of an SST DUMPI trace, one after the other."""

    def __init__(self, n_ranks: int, longest_ps: int, times: bool = False) -> None: ...
    def file(self, data: bytes) -> None: ...
    def finish(self) -> _Decoded: ...
    def compile(
        self,
        posts: tuple[NDArray[Any], ...],
        completions: tuple[NDArray[Any], ...],
        scatters: Sequence[int],
    ) -> tuple[_Decoded, list[int], list[int], tuple[int, int, int, int, int, int] | None]: ...
    def posts(self) -> tuple[_Decoded, _Decoded]: ...

class NetworkRouting:
    """A routing rule for one network."""

    @staticmethod
    def of_network(network: Network) -> NetworkRouting: ...
    @staticmethod
    def dimension_order(
        network: Network, dims: Sequence[int], tie: str, dateline: bool, detour: bool
    ) -> NetworkRouting: ...
    @staticmethod
    def hyperx(network: Network, dims: Sequence[int], detour: bool) -> NetworkRouting: ...
    @staticmethod
    def dragonfly(network: Network, detour: bool, lanes: bool) -> NetworkRouting: ...
    @staticmethod
    def peer_links(network: Network, counts: tuple[int, int, int]) -> NetworkRouting: ...
    @property
    def lanes(self) -> int: ...
    @property
    def detours(self) -> int: ...
    def next(self, switch: int, node: int, via: int, state: int) -> tuple[list[int], int, int]: ...
    def deterministic_links(self, node: int) -> NDArray[uint32]: ...
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
) -> FabricArrays: ...
def modified_tree_fabric(
    counts: tuple[int, int, int], gbps: Sequence[float], delay_ps: Sequence[int]
) -> FabricArrays: ...
def torus_fabric(
    dimensions: Sequence[tuple[int, bool, int, Sequence[float], int]],
    nodes_per_switch: int,
    node_gbps: float,
    node_delay_ps: int,
) -> FabricArrays: ...
def hyperx_fabric(
    dimensions: Sequence[tuple[int, int, float, int]],
    nodes_per_switch: int,
    node_gbps: float,
    node_delay_ps: int,
) -> FabricArrays: ...
def dragonfly_fabric(
    counts: tuple[int, int, int, int],
    global_cables: str,
    gbps: Sequence[float],
    delay_ps: Sequence[int],
) -> FabricArrays: ...
def dragonfly_plus_fabric(
    counts: tuple[int, int, int, int, int],
    global_cables: str,
    gbps: Sequence[float],
    delay_ps: Sequence[int],
) -> FabricArrays: ...
def yellowstone_fabric(counts: Sequence[int], gbps: float, delay_ps: int) -> FabricArrays: ...
def with_forwarding(
    network: Network, forward: NDArray[uint32], like: Network | None = None
) -> Network: ...
def improve_partition(
    graph: tuple[NDArray[int64], NDArray[int64], NDArray[float64]],
    part: NDArray[int64],
    n_parts: int,
    *,
    limits: tuple[int, int, int],
    group: NDArray[int64] | None = None,
    kind: NDArray[int64] | None = None,
) -> tuple[NDArray[int64], int]: ...
def date_samples(
    at: tuple[NDArray[uint32], NDArray[uint32]],
    pair: NDArray[uint32],
    columns: tuple[list[NDArray[uint64]], list[NDArray[uint64]]],
    record: tuple[tuple[NDArray[uint32], NDArray[uint32]], list[NDArray[uint64]]],
    size: tuple[int, int],
) -> tuple[NDArray[uint32], NDArray[uint32], NDArray[uint32], list[NDArray[uint64]]]: ...
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
    *,
    start_ps: NDArray[uint64],
    bytes: NDArray[uint64],
    weight: NDArray[float64],
    paths: _Paths,
    rates: str,
) -> FlowColumns: ...
def fluid_paths(
    network: Network,
    src: NDArray[uint32],
    dst: NDArray[uint32],
    choice: str,
    seed: int,
    routing: NetworkRouting | None = None,
) -> PathColumns: ...

class FluidOutcome:
    """Result of a rank program in the fluid model: tables as columns by name, and figures."""

    messages: FluidMessageColumns
    ranks: RankColumns
    link_bytes: NDArray[float64]
    link_use: LinkUseColumns
    window_ps: int
    end_ps: int
    settlements: int

def fluid_program(
    network: Network,
    settings: RankModel,
    traffic: PlacedProgram,
    *,
    routing: NetworkRouting | None = None,
) -> FluidOutcome: ...
def fluid_rounds(
    n_links: int,
    paths: _Paths,
    cells: int,
    buffer: int,
    assigned: bool,
) -> NDArray[uint64]: ...
def tree_permutations(
    shape: tuple[int, int, int],
    *,
    table: str,
    adaptive: bool,
    margin: int,
    copies: int,
    first: int,
    runs: int,
    seed: int,
) -> PermutationColumns: ...
def tree_paths(
    shape: tuple[int, int, int],
    *,
    table: str,
    adaptive: bool,
    margin: int,
    copies: int,
    run: int,
    seed: int,
) -> SuperposedColumns: ...
def tree_ports(shape: tuple[int, int, int]) -> tuple[int, int]: ...
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
    *,
    bits: int = 1,
    size: int = 4,
    probability: float = 0.2,
    hash: str = "gf",
    field_bits: int = 24,
) -> SchemeColumns: ...
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
    *,
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
