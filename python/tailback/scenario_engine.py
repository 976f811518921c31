"""The engine's part of a scenario: ``[engine]`` and the tables below it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from tailback.errors import InvalidValueError
from tailback.units import RateGbps, SizeBytes, TimePs, exact_bytes

Routing = Literal["adaptive", "random", "deterministic", "vc"]
"""Choice among the candidates of a route."""

Location = Annotated[Path, Strict(False)]
"""A path: text in a file."""


class Section(BaseModel):
    """A table of the scenario file; refuses keys it does not know."""

    # Strict: true is no number, "1" neither, and 1.5 is not cut to 1.
    model_config = ConfigDict(extra="forbid", validate_default=False, strict=True)


_OF_SCHEME = {"dcms": ("calm_marking_rate", "hold"), "rgbcc": ("green",)}
_OF_INDEX = ("increase", "limit", "timer")


class CongestionControlSection(Section):
    """InfiniBand congestion control (annex A10), by its names, or a scheme built on it.

    Off without this table; needs injection per-destination.
    """

    scheme: Literal["infiniband", "dcms", "rgbcc"] = Field(
        default="infiniband",
        description="as specified; a marking rate that changes while victims are created; red and "
        "green lights: [congestion.md](../explanation/congestion.md)",
    )
    threshold: SizeBytes = Field(
        default=32768, description="queue of an output above which packets are marked (FECN)"
    )
    marking_rate: int = Field(
        default=0, ge=0, description="packets that pass unmarked between two marked ones"
    )
    packet: SizeBytes = Field(default=0, description="smaller packets are not marked")
    victims: bool = Field(default=False, description="also mark packets without credit")
    increase: int = Field(
        default=1, ge=1, description="what a notification (BECN) adds to the index"
    )
    limit: int = Field(default=127, ge=1, le=65535, description="highest index into the table")
    timer: TimePs = Field(
        default=153_600_000, gt=0, description="time after which the index falls by one"
    )
    table: list[Annotated[int, Field(ge=0, lt=1 << 16)]] | None = Field(
        default=None, description="pauses in packet times, `shift × 16384 + multiplier`; default "
        "0, 1, 2 … limit",
    )  # fmt: skip
    calm_marking_rate: int = Field(
        default=65535, ge=0, lt=1 << 32, description="marking rate of a switch that creates no "
        "victims (dcms)",
    )  # fmt: skip
    hold: TimePs = Field(
        default=100_000_000, gt=0, description="how long a switch counts as creating victims "
                                               "after the last one (dcms)",
    )  # fmt: skip
    green: SizeBytes = Field(
        default=16384, description="queue at which senders may resume (rgbcc); below threshold"
    )

    @model_validator(mode="after")
    def _lights(self) -> CongestionControlSection:
        if self.scheme == "rgbcc" and self.green >= self.threshold:
            raise InvalidValueError(
                f"green = {exact_bytes(self.green)} is not below threshold = "
                f"{exact_bytes(self.threshold)}",
                "lower green, or raise threshold",
            )
        return self

    @property
    def idle(self) -> list[str]:
        """Options that are not as they are by default, and that the scheme does not look at."""
        of_others = [name for scheme, own in _OF_SCHEME.items() if scheme != self.scheme
                     for name in own]  # fmt: skip
        # Lights stop a sender and let it go: it has no index that rises and falls.
        unread = [*of_others, *(_OF_INDEX if self.scheme == "rgbcc" else ())]
        fields = type(self).model_fields
        return [name for name in unread if getattr(self, name) != fields[name].default]


class PacingSection(Section):
    """Pacing of flows, and their rates; needs injection per-destination."""

    kind: Literal["off", "leaky-bucket", "spaced", "elastic"] = Field(
        default="off", description="how a flow keeps its rate; elastic is recommended"
    )
    depth: SizeBytes = Field(default=65536, description="bytes that a leaky bucket sends at once")
    percent: int = Field(
        default=25,
        ge=1,
        le=100,
        description="share of its interval that a late packet keeps (elastic)",
    )
    rates: Literal["assigned", "max-min"] | None = Field(
        default=None, description="compute a rate for every flow of a job's step: `assigned` ends "
        "first (Birk and Zdornov, 2009), `max-min` leaves no capacity unused: "
        "[congestion.md](../explanation/congestion.md)",
    )  # fmt: skip
    rates_file: Location | None = Field(
        default=None, description="or a table of rates: `src_rank,dst_rank,rate_gbps`, ranks as "
                                  "in table messages; other flows are not paced",
    )  # fmt: skip
    share: float = Field(
        default=1.0, gt=0, le=1, description="fraction of the computed rates that flows use; "
                                             "below 1 helps where buffers hold only a packet or "
                                             "two",
    )  # fmt: skip
    offset: Literal["none", "random", "shift"] = Field(
        default="shift", description="where in its interval a flow begins: at its start, at "
                                     "random, or by the distance from source to destination",
    )  # fmt: skip

    @model_validator(mode="after")
    def _rates(self) -> PacingSection:
        if self.rates is not None and self.rates_file is not None:
            raise InvalidValueError("rates and rates_file are both given", "choose one")
        if self.kind == "off" and (self.rates is not None or self.rates_file is not None):
            raise InvalidValueError("flows have rates but no pacing", 'set kind = "elastic"')
        if self.share != 1 and self.rates is None:
            raise InvalidValueError("share is a part of computed rates", "set rates, or share = 1")
        return self


def _a_turn(weight: int) -> int:
    """Refuse what a subnet manager takes for no turn at all, and the engine for one packet."""
    if weight < 1:
        raise InvalidValueError(
            "a weight of 0 bytes is not allowed",
            "give the bytes a level may send in its turn, "
            "at least a packet (a level without a weight would never send)",
        )
    return weight


class AdaptiveSection(Section):
    """How adaptive routing compares ports, and how often; needs routing adaptive."""

    load: Literal["queue", "queue-and-credit"] = Field(
        default="queue", description="load of a port: time to send the bytes booked and waiting "
                                     "there; or bytes that wait and bytes whose credit has not "
                                     "come back (CODES)",
    )  # fmt: skip
    ties: Literal["random", "lowest", "random-or-lowest"] = Field(
        default="random",
        description="choice among equal ports: the first from a random one on; the lowest; or a "
                    "random one of all ports if none has less, else the lowest (CODES)",
    )  # fmt: skip
    per: Literal["packet", "message", "chunk", "flowlet"] = Field(
        default="packet", description="how long a choice holds: for one packet, a message, a "
                                      "chunk of a message (He et al., 2015), or until the message "
                                      "pauses for longer than gap (Sinha et al., 2004)",
    )  # fmt: skip
    gap: TimePs = Field(default=500_000, description="the pause of per flowlet")
    chunk: SizeBytes = Field(
        default=65536, gt=0, lt=1 << 32,
        description="bytes of a chunk, per chunk; a packet counts to the chunk of its first byte",
    )  # fmt: skip

    @model_validator(mode="after")
    def _gap(self) -> AdaptiveSection:
        for key, per in (("gap", "flowlet"), ("chunk", "chunk")):
            usual = type(self).model_fields[key].default
            # A run that was kept states all keys.
            if self.per != per and getattr(self, key) != usual:
                raise InvalidValueError(
                    f"{key} has no effect with per = {self.per}", f'set per = "{per}"'
                )
        return self


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
        default=0.0, ge=0, le=1000, description="how much faster than its link an input port hands "
        "packets to the crossbar; 0: no limit",
    )  # fmt: skip
    services: int = Field(
        default=1, ge=1, le=8, description="service levels, each with separate virtual lanes"
    )
    lane_weights: list[Annotated[SizeBytes, AfterValidator(_a_turn)]] = Field(
        default_factory=list,
        description="bytes each service level may send before the next one's turn, above 0; none: "
        "no turns",
    )
    injection: Literal["fifo", "round-robin", "per-destination"] = "fifo"
    injection_rate: Annotated[RateGbps, Field(ge=0.001, le=4e6)] | None = Field(
        default=None, description="rate at which an adapter sends, if it is below that of its link",
    )  # fmt: skip
    congestion_control: CongestionControlSection | None = Field(
        default=None, description="congestion control; needs injection per-destination"
    )
    pacing: PacingSection = Field(default_factory=PacingSection)
    send_delay: TimePs = Field(default=1_000_000, description="software latency before a message")
    eager: SizeBytes = Field(default=16384, description="larger messages wait for their receive")
    local_rate: RateGbps = Field(default=400.0, description="between ranks of one host")
    local_delay: TimePs = 500_000

    @model_validator(mode="after")
    def _adaptive(self) -> EngineSection:
        if self.routing != "adaptive" and self.adaptive != AdaptiveSection():
            raise InvalidValueError(
                f"routing is {self.routing}, and [engine.adaptive] is a rule of routing adaptive",
                'set routing = "adaptive", or leave [engine.adaptive] out',
            )
        return self
