"""Section ``[engine]`` of a scenario and its sub-tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    model_validator,
)

from tailback.errors import InvalidValueError
from tailback.scenario.quantities import RateGbps, SizeBytes, TimePs
from tailback.units import exact_bytes, parse_bytes

Routing = Literal["adaptive", "random", "ecmp", "spray", "deterministic", "vc"]
"""Choice among the candidates of a route."""

FilePath = Annotated[Path, Strict(False)]
"""A path, given as text."""


class Section(BaseModel):
    """A table of the scenario file; refuses keys it does not know."""

    # Strict: neither true nor "1" is a number, and 1.5 is not truncated to 1.
    # Validators are built at first use: most scenarios use few tables.
    model_config = ConfigDict(extra="forbid", validate_default=False, strict=True, defer_build=True)

    reads_field: ClassVar[Callable[[type[Section], str, object], object]]
    """Validates a value for a field of a table (``scenario.field_value``)."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field to a value as a scenario file has it; raises ScenarioError.

        Requirements between fields are checked when the scenario is used. Until then, several can
        be changed one after the other.
        """
        if not name.startswith("_"):
            value = type(self).reads_field(type(self), name, value)
        super().__setattr__(name, value)


_INDEX_OPTIONS = ("increase", "limit", "timer")
_MARK_OPTIONS = ("threshold", "marking_rate", "packet", "victims", *_INDEX_OPTIONS, "table")
_UNREAD_OPTIONS = {
    "rgbcc": _INDEX_OPTIONS,
    "dcqcn": _MARK_OPTIONS,
    "assignment": ("threshold", "packet", "victims", *_INDEX_OPTIONS, "table"),
}
"""Options of InfiniBand that other schemes do not use: RGBCC stops and releases senders and has no
index that rises and falls. DCQCN has its own table.
"""


class CongestionControlSection(Section):
    """InfiniBand congestion control (annex A10, with its names), a scheme built on it, or DCQCN.

    Off without this table; needs injection per-destination.
    """

    scheme: Literal["infiniband", "dcms", "rgbcc", "dcqcn", "assignment"] = Field(
        default="infiniband",
        description="as specified; with a marking rate that changes while victims are created; "
        "with red and green signals to senders; rates that follow ECN marks (its "
        "keys: [engine.dcqcn]); or rates by the weight of links, with a probe every "
        "`marking_rate` + 1 packets: "
        "[congestion.md](../explanation/congestion.md#congestion-control)",
    )
    threshold: SizeBytes = Field(
        default=32768, description="queue of an output above which packets are marked (FECN)"
    )
    marking_rate: int = Field(
        default=0, ge=0, description="number of unmarked packets between two marked ones"
    )
    packet: SizeBytes = Field(default=0, description="smaller packets are not marked")
    victims: bool = Field(default=False, description="also mark packets without credit")
    increase: int = Field(
        default=1, ge=1, description="increase of the index per notification (BECN)"
    )
    limit: int = Field(default=127, ge=1, le=65535, description="highest index into the table")
    timer: TimePs = Field(
        default=153_600_000, gt=0, description="time after which the index falls by one"
    )
    table: list[Annotated[int, Field(ge=0, lt=1 << 16)]] | None = Field(
        default=None,
        description="pauses in packet times, as `shift × 16384 + multiplier`; "
        "default 0, 1, 2 … limit; `[0]`: marks without reaction",
    )
    green: SizeBytes = Field(
        default=16384, description="queue at which senders may resume (rgbcc); below threshold"
    )

    poll: TimePs = Field(
        default=0,
        description="period at which a manager polls port counters (dcms); 0: switches act at once",
    )

    @model_validator(mode="after")
    def _green_below_threshold(self) -> CongestionControlSection:
        if self.scheme == "rgbcc" and self.green >= self.threshold:
            raise InvalidValueError(
                f"green = {exact_bytes(self.green)} is not below threshold = "
                f"{exact_bytes(self.threshold)}",
                "lower green, or raise threshold",
            )
        return self

    @property
    def unused_options(self) -> list[str]:
        """Options that differ from their default although the scheme does not use them."""
        of_others = {"rgbcc": ("poll",), "dcms": ("green",)}.get(self.scheme, ("green", "poll"))
        unread = [*of_others, *_UNREAD_OPTIONS.get(self.scheme, ())]
        fields = type(self).model_fields
        return [name for name in unread if getattr(self, name) != fields[name].default]


class DcqcnSection(Section):
    """Marks of DCQCN (Zhu et al., 2015); needs congestion control of scheme dcqcn.

    The defaults are the published ones, for links of 40 Gb/s. The constants of senders and
    receivers are the published ones, too.
    """

    kmin: SizeBytes = Field(
        default=5_000, description="queue of an output above which packets may be marked (ECN)"
    )
    kmax: SizeBytes = Field(default=200_000, description="queue above which every packet is marked")
    pmax: float = Field(
        default=0.01,
        gt=0,
        le=1,
        description="probability of a mark at `kmax`; from `kmin` on it grows linearly",
    )

    @model_validator(mode="after")
    def _thresholds(self) -> DcqcnSection:
        if self.kmin >= self.kmax:
            raise InvalidValueError(
                f"kmin = {exact_bytes(self.kmin)} is not below kmax = {exact_bytes(self.kmax)}",
                "lower kmin, or raise kmax",
            )
        return self


class FlowControlSection(Section):
    """How buffers keep from being overrun: InfiniBand's credits, or pauses of Ethernet."""

    kind: Literal["credits", "pfc"] = Field(
        default="credits",
        description="a sender has credit for free bytes, or a buffer pauses its sender (PFC, "
        "IEEE 802.1Qbb): [congestion.md](../explanation/congestion.md#ethernet)",
    )
    xoff: SizeBytes = Field(
        default=24_470,
        lt=1 << 32,
        description="a buffer that holds more sends PAUSE (pfc); `buffer` holds the headroom too",
    )
    xon: SizeBytes | None = Field(
        default=None,
        lt=1 << 32,
        description="a buffer that holds no more sends RESUME (pfc); "
        "default: two packets below `xoff`",
    )

    @model_validator(mode="after")
    def _order(self) -> FlowControlSection:
        fields = type(self).model_fields
        if self.kind == "credits" and (self.xoff, self.xon) != (fields["xoff"].default, None):
            raise InvalidValueError(
                "xoff and xon have no effect with kind = credits", 'set kind = "pfc"'
            )
        if self.xon is not None and self.xon > self.xoff:
            raise InvalidValueError(
                f"xon = {exact_bytes(self.xon)} is above xoff = {exact_bytes(self.xoff)}",
                "lower xon, or leave it out",
            )
        return self


class PacingSection(Section):
    """Pacing of flows, and their rates; needs injection per-destination."""

    kind: Literal["off", "leaky-bucket", "spaced", "elastic"] = Field(
        default="off", description="how adapters keep a flow to its rate; elastic is recommended"
    )
    depth: SizeBytes = Field(default=65536, description="bytes that a leaky bucket sends at once")
    percent: int = Field(
        default=25,
        ge=1,
        le=100,
        description="minimum gap before a late packet, per cent of the flow's interval (elastic)",
    )
    rates: Literal["assigned", "max-min"] | None = Field(
        default=None,
        description="compute a rate for every flow of a job's step; `assigned` ends soonest, "
        "`max-min` is fair: "
        "[congestion.md](../explanation/congestion.md#rates-of-flows)",
    )
    rates_file: FilePath | None = Field(
        default=None,
        description="or a CSV of rates: `src_rank,dst_rank,rate_gbps`, ranks as in "
        "table messages; other flows are not paced",
    )
    share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="fraction of the computed rates that flows use; "
        "below 1 helps where buffers hold only a packet or "
        "two",
    )
    offset: Literal["none", "random", "shift"] = Field(
        default="shift",
        description="when in its interval a flow starts: at the beginning, at "
        "random, or by the distance from source to destination",
    )

    @model_validator(mode="after")
    def _rates(self) -> PacingSection:
        if self.rates is not None and self.rates_file is not None:
            raise InvalidValueError("rates and rates_file are both given", "choose one")
        if self.kind == "off" and (self.rates is not None or self.rates_file is not None):
            raise InvalidValueError("flows have rates but no pacing", 'set kind = "elastic"')
        if self.share != 1 and self.rates is None:
            raise InvalidValueError("share is a part of computed rates", "set rates, or share = 1")
        return self


def _positive_weight(weight: int) -> int:
    """Refuse weight 0, which to a subnet manager means no turn, and to the engine one packet."""
    if weight < 1:
        raise InvalidValueError(
            "a weight of 0 bytes is not allowed",
            "give the bytes that a level may send in its turn, "
            "at least one packet (a level of weight 0 would never send)",
        )
    return weight


class AdaptiveSection(Section):
    """How and how often adaptive routing chooses a port; needs routing adaptive."""

    load: Literal["queue", "queue-and-credit"] = Field(
        default="queue",
        description="load of a port: time to send its queued bytes, or these plus bytes whose "
        "credit has not come back (CODES)",
    )
    ties: Literal["random", "lowest", "random-or-lowest"] = Field(
        default="random",
        description="choice among equally loaded ports: the first from a random one on, the "
        "lowest, or a random one if all are equal, else the lowest (CODES)",
    )
    per: Literal["packet", "message", "chunk", "flowlet", "flow"] = Field(
        default="packet",
        description="how long a choice lasts: one packet, a message, a chunk of it (He et al., "
        "2015), until the message pauses for longer than gap (Sinha et al., 2004), or for all of a "
        "flow (rank to rank), by the flows on each port",
    )
    gap: TimePs = Field(default=500_000, description="pause that ends a flowlet")
    chunk: SizeBytes = Field(
        default=65536,
        gt=0,
        lt=1 << 32,
        description="bytes of a chunk; a packet belongs to the chunk of its first byte",
    )

    @model_validator(mode="after")
    def _gap(self) -> AdaptiveSection:
        for key, per in (("gap", "flowlet"), ("chunk", "chunk")):
            usual = type(self).model_fields[key].default
            # The scenario of a stored run states all keys.
            if self.per != per and getattr(self, key) != usual:
                raise InvalidValueError(
                    f"{key} has no effect with per = {self.per}", f'set per = "{per}"'
                )
        return self


MAX_COARSE = 1 << 20
"""Largest coarse packet, bytes."""


def parse_coarse(value: object) -> int | Literal["auto"]:
    """Size of coarse packets: bytes, or ``auto``.

    Raises:
        InvalidValueError: It is neither, or out of range.
    """
    if value == "auto":
        return "auto"
    size = parse_bytes(value)
    if not 0 < size <= MAX_COARSE:
        raise InvalidValueError(
            f"coarse = {exact_bytes(size)} is out of range", "give 1 B to 1 MiB, or auto"
        )
    return size


def _stated_coarse(value: int | Literal["auto"]) -> str:
    return "auto" if value == "auto" else exact_bytes(value)


CoarseSize = Annotated[
    int | Literal["auto"],
    BeforeValidator(parse_coarse),
    PlainSerializer(_stated_coarse, return_type=str),
]
"""Size of coarse packets in a scenario."""

COARSE_BUFFER = 4
"""Coarse packets that a buffer holds at least: with fewer, links wait for credit to return
(docs/measurements/approximations.md)."""


COPY_GBPS = 80.0
"""Assumed rate of a message between ranks of one host: a core keeps 10 to 16 cache lines of 64 B in
flight for about 80 ns each, so that it copies about 10 GB/s (Little's law)."""

MEMORY_GBPS = 400.0
"""Assumed rate that all messages within a host share. STREAM reaches 128 GB/s on two Xeon E5-2699
v4 and 250 GB/s on two EPYC 7601 (AnandTech 2017), counting each byte when read and when written. A
message is copied once (read by the other process) or twice (through a shared segment): 256 to 1000
Gb/s. Hosts with one socket reach half of the former, and hosts with DDR5 more than the latter."""

COPY_ERROR, MEMORY_ERROR = 2.0, 4.0
"""Factors by which the assumed rates of a message and of the memory may be wrong. The latter covers
copies of two on one socket with DDR4, and single copies on two sockets with DDR5."""

MAX_LOCAL_ERROR = 100.0
"""Largest factor by which rates within hosts may be stated to be wrong."""

LocalRates = Literal["low", "as-is", "high"]
"""Rates within hosts: the lowest and the highest that their error allows, or those in between."""


class EngineSection(Section):
    """How switches, cables, adapters and the MPI library behave."""

    packet: SizeBytes = Field(default=4096, gt=0, le=1 << 20)
    header: SizeBytes = Field(
        default=0, le=1 << 16, description="additional bytes of a packet on the wire"
    )
    buffer: SizeBytes = Field(
        default=65536, lt=1 << 32, description="buffer at the far end of each link"
    )
    buffering: Literal["input", "output"] = "input"
    switching: Literal["cut-through", "store-and-forward"] = "cut-through"
    switch_delay: TimePs = 60_000
    routing: Routing = "adaptive"
    path_seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**32,
        description="seed of the hash of routing spray and ecmp; default: that of the scenario",
    )
    flow_seeds: list[tuple[int, int, int]] = Field(
        default_factory=list,
        description="seeds of single flows of routing ecmp, in place of path_seed: source rank, "
        "destination rank and seed",
    )
    queue_pairs: int = Field(
        default=1,
        ge=1,
        le=128,
        description="queue pairs over which packets of a message are spread, of routing ecmp: each "
        "has a path of its own (NCCL_IB_QPS_PER_CONNECTION, with NCCL_IB_SPLIT_DATA_ON_QPS=1)",
    )
    adaptive: AdaptiveSection = Field(default_factory=AdaptiveSection)
    vc_entries: int = Field(
        default=64,
        ge=0,
        le=65536,
        description="entries of a switch for routing vc, one per message",
    )
    arbitration: Literal["fcfs", "round-robin"] = Field(
        default="fcfs",
        description="order of packets at an output: by arrival, or input ports in turn",
    )
    crossbar_speedup: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="how much faster than its link an input passes "
        "packets to the crossbar; 0: no limit",
    )
    services: int = Field(
        default=1, ge=1, le=8, description="service levels, each with separate virtual lanes"
    )
    lane_weights: list[Annotated[SizeBytes, AfterValidator(_positive_weight)]] = Field(
        default_factory=list,
        description="bytes that each service level may send in its turn, above 0; empty: no turns",
    )
    injection: Literal["fifo", "round-robin", "per-destination"] = "fifo"
    injection_rate: Annotated[RateGbps, Field(ge=0.001, le=4e6)] | None = Field(
        default=None,
        description="rate at which adapters send, if below that of their link",
    )
    congestion_control: CongestionControlSection | None = Field(
        default=None, description="congestion control; needs injection per-destination"
    )
    dcqcn: DcqcnSection = Field(default_factory=DcqcnSection)
    flow_control: FlowControlSection = Field(default_factory=FlowControlSection)
    pacing: PacingSection = Field(default_factory=PacingSection)
    send_delay: TimePs = Field(default=1_000_000, description="software latency before a message")
    overhead: TimePs = Field(
        default=0,
        description="time of its processor that a rank spends on each message that it sends or "
        "receives (o of LogGP)",
    )
    copy_rate: RateGbps | None = Field(
        default=None,
        description="rate at which either processor copies messages up to `eager`; "
        "absent: in no time",
    )
    eager: SizeBytes = Field(default=16384, description="larger messages wait for their receive")
    eager_sends: Literal["sent", "copied"] = Field(
        default="sent",
        description="when smaller messages are complete for their sender: when they have left, "
        "or at once, copied to a buffer",
    )
    progress: Literal["always", "calls"] = Field(
        default="always",
        description="when ranks answer the handshake of larger messages: at once, or only in calls",
    )
    local_rate: RateGbps | None = Field(
        default=None, description="rate of a message between ranks of one host; absent: 80 Gb/s"
    )
    memory_rate: RateGbps | None = Field(
        default=None,
        description="rate that all messages within a host share; absent: 400 Gb/s, "
        "or `local_rate` if that is more",
    )
    local_error: float | None = Field(
        default=None,
        ge=1,
        le=MAX_LOCAL_ERROR,
        description="factor by which both rates may be wrong, at which gains are also "
        "simulated; absent: 2 for a rate that is not stated, else 1",
    )
    local_delay: TimePs = 500_000
    local_sharing: Literal["memory", "ports"] = Field(
        default="memory",
        description="what messages within a host share: memory of `memory_rate`, "
        "or the port of each rank, of `local_rate`, to a switch in the host, such as NVSwitch",
    )
    coarse: CoarseSize | None = Field(
        default=None,
        description="simulate messages in packets of this size; less exact and faster: [coarse "
        "packets](../explanation/approximations.md#coarse-packets)",
    )
    skip_repeats: bool = Field(
        default=False,
        description="simulate some of the steps that jobs repeat and extrapolate "
        "the others: [repeated steps](../explanation/approximations.md#repeated-steps)",
    )

    @property
    def local_gbps(self) -> float:
        """Rate of a message between ranks of one host, as stated or assumed."""
        if self.local_rate is not None:
            return self.local_rate
        return COPY_GBPS if self.memory_rate is None else min(COPY_GBPS, self.memory_rate)

    @property
    def memory_gbps(self) -> float:
        """Rate that all messages within a host share, as stated or assumed."""
        stated = self.memory_rate
        return max(MEMORY_GBPS, self.local_gbps) if stated is None else stated

    @property
    def assumes_memory_rate(self) -> bool:
        """Whether messages within a host share memory whose rate nobody stated."""
        return self.local_sharing == "memory" and self.memory_rate is None

    def local_rates(self, bound: LocalRates) -> tuple[float, float]:
        """Rates of a message within a host and of all of them, Gb/s, at a bound of their errors."""
        rates = (self.local_gbps, self.memory_gbps)
        if bound == "as-is":
            return rates
        stated = (self.local_rate, self.memory_rate)
        error = [
            self.local_error or (assumed if rate is None else 1.0)
            for rate, assumed in zip(stated, (COPY_ERROR, MEMORY_ERROR), strict=True)
        ]
        factors = [1 / factor for factor in error] if bound == "low" else error
        each, together = (rate * factor for rate, factor in zip(rates, factors, strict=True))
        # A message alone has all of the memory and no more. Ports share no memory.
        ports = self.local_sharing == "ports"
        return (each if ports else min(each, together), together)

    @property
    def simulated_packet(self) -> int:
        """Largest payload of a simulated packet, bytes; ``auto`` is replaced before a run."""
        return max(self.packet, self.coarse if isinstance(self.coarse, int) else 0)

    @property
    def simulated_buffer(self) -> int:
        """Buffer of a simulated link, bytes: at least :data:`COARSE_BUFFER` coarse packets."""
        if self.simulated_packet == self.packet:
            return self.buffer
        return max(self.buffer, COARSE_BUFFER * self.simulated_packet)

    @model_validator(mode="after")
    def _coarse(self) -> EngineSection:
        for unfit, what in (
            (self.congestion_control is not None, "[engine.congestion_control]"),
            (self.pacing.kind != "off", "[engine.pacing]"),
            (self.flow_control.kind != "credits", "[engine.flow_control]"),
        ):
            if self.coarse is not None and unfit:
                raise InvalidValueError(
                    f"engine.coarse does not go with {what}, which acts on single packets",
                    f"leave {what} or coarse out",
                )
        return self

    @model_validator(mode="after")
    def _local(self) -> EngineSection:
        if self.local_sharing == "ports":
            if self.memory_rate is not None:
                raise InvalidValueError(
                    'engine.memory_rate has no effect with local_sharing = "ports"',
                    "leave one of them out",
                )
            if self.local_rate is None:
                raise InvalidValueError(
                    'engine.local_sharing = "ports" needs the rate of a port',
                    'state it: local_rate = "3600 Gb/s"',
                )
        if self.local_rate and self.memory_rate and self.memory_rate < self.local_rate:
            raise InvalidValueError(
                f"engine.memory_rate is {self.memory_rate:g} Gb/s, less than local_rate, "
                f"{self.local_rate:g} Gb/s: a message alone in its host has all of the memory",
                "give at least local_rate",
            )
        return self

    @model_validator(mode="after")
    def _dcqcn(self) -> EngineSection:
        control = self.congestion_control
        if self.dcqcn != DcqcnSection() and (control is None or control.scheme != "dcqcn"):
            raise InvalidValueError(
                "[engine.dcqcn] has no effect without congestion control of scheme dcqcn",
                'add [engine.congestion_control] with scheme = "dcqcn", or leave it out',
            )
        return self

    @model_validator(mode="after")
    def _adaptive(self) -> EngineSection:
        if self.routing != "adaptive" and self.adaptive != AdaptiveSection():
            raise InvalidValueError(
                f"[engine.adaptive] has no effect with routing = {self.routing}",
                'set routing = "adaptive", or leave [engine.adaptive] out',
            )
        return self
