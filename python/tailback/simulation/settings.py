"""The engine's settings as a scenario states them.

The dataclasses have the fields of the engine's own structures, which check them; a field that is
None takes the engine's default.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tailback.scenario import Scenario
from tailback.scenario_engine import AdaptiveSection, CongestionControlSection, PacingSection
from tailback.simulation.probes import ProbeSettings, probes_of


@dataclass(frozen=True)
class PacingSettings:
    """How flows that have a rate are paced.

    Attributes:
        kind: ``off``, ``leaky-bucket``, ``spaced`` or ``elastic``.
        depth_bytes: Burst size of a leaky bucket.
        percent: Minimum gap after a late packet, in per cent of the interval (elastic).
    """

    kind: str = "off"
    depth_bytes: int | None = None
    percent: int | None = None

    @classmethod
    def of(cls, section: PacingSection) -> PacingSettings:
        """The settings of a scenario's ``[engine.pacing]``."""
        return cls(
            section.kind,
            depth_bytes=section.depth if section.kind == "leaky-bucket" else None,
            percent=section.percent if section.kind == "elastic" else None,
        )


@dataclass(frozen=True)
class AdaptiveSettings:
    """How adaptive routing compares ports.

    Attributes:
        load: ``queue`` or ``queue-and-credit``.
        ties: ``random`` or ``lowest``.
        per: ``packet``, ``message``, ``chunk`` or ``flowlet``.
        gap_ps: Pause after which a message chooses a new path (flowlet).
        chunk_bytes: Bytes of a message that keep to one path (chunk).
    """

    load: str = "queue"
    ties: str = "random"
    per: str = "packet"
    gap_ps: int = 0
    chunk_bytes: int = 0

    @classmethod
    def of(cls, section: AdaptiveSection) -> AdaptiveSettings:
        """The settings of a scenario's ``[engine.adaptive]``."""
        gap = section.gap if section.per == "flowlet" else 0
        chunk = section.chunk if section.per == "chunk" else 0
        return cls(section.load, section.ties, section.per, gap, chunk)


@dataclass(frozen=True)
class CongestionSchemeSettings:
    """The congestion control scheme.

    Attributes:
        kind: ``infiniband``, ``dcms`` or ``rgbcc``.
        calm_marking_rate: Marking rate of DCMS while no victims are created.
        hold_ps: How long DCMS considers a switch as creating victims.
        green_bytes: Queue length at which RGBCC lets senders continue.
    """

    kind: str
    calm_marking_rate: int | None = None
    hold_ps: int | None = None
    green_bytes: int | None = None


@dataclass(frozen=True)
class CongestionSettings:
    """Congestion control: the scheme and the parameters of the InfiniBand specification."""

    scheme: CongestionSchemeSettings
    threshold_bytes: int
    marking_rate: int
    packet_bytes: int
    victims: bool
    increase: int
    limit: int
    timer_ps: int
    table: list[int]

    @classmethod
    def of(cls, section: CongestionControlSection) -> CongestionSettings:
        """The settings of a scenario's ``[engine.congestion_control]``."""
        dcms, rgbcc = section.scheme == "dcms", section.scheme == "rgbcc"
        return cls(
            scheme=CongestionSchemeSettings(
                section.scheme,
                calm_marking_rate=section.calm_marking_rate if dcms else None,
                hold_ps=section.hold if dcms else None,
                green_bytes=section.green if rgbcc else None,
            ),
            threshold_bytes=section.threshold,
            marking_rate=section.marking_rate,
            packet_bytes=section.packet,
            victims=section.victims,
            increase=section.increase,
            limit=section.limit,
            timer_ps=section.timer,
            table=section.table or list(range(min(section.limit, (1 << 14) - 1) + 1)),
        )


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """All parameters of a run except fabric and traffic (docs/reference/scenario.md)."""

    seed: int
    packet_bytes: int
    header_bytes: int
    buffer_bytes: int
    buffering: str
    switching: str
    switch_delay_ps: int
    routing: str
    adaptive: AdaptiveSettings = AdaptiveSettings()
    vc_entries: int
    pacing: PacingSettings
    pacing_offset: str
    detour: str
    arbitration: str
    crossbar_speedup: float
    services: int
    lane_weights: list[int]
    congestion_control: CongestionSettings | None
    injection: str
    injection_mbps: int
    send_delay_ps: int
    eager_bytes: int
    local_gbps: float
    local_delay_ps: int
    local_ports: bool
    contention: bool = True
    measure: bool
    rule: str
    rule_bytes: int
    when: str
    count_injection: bool
    one_in: int
    header_loss: float
    windows: int
    record_computation: bool = False
    stamping: tuple[bool, ...] = ()
    probes: ProbeSettings = field(default_factory=ProbeSettings)

    @classmethod
    def of(cls, scenario: Scenario, *, detour: str = "never") -> EngineSettings:
        """The settings of a scenario; ``detour`` comes from its routing rule."""
        engine, telemetry = scenario.engine, scenario.telemetry
        control = engine.congestion_control
        return cls(
            seed=scenario.seed,
            packet_bytes=engine.simulated_packet,
            header_bytes=scenario.packet_header_bytes * engine.simulated_packet // engine.packet,
            buffer_bytes=engine.simulated_buffer,
            buffering=engine.buffering,
            switching=engine.switching,
            switch_delay_ps=engine.switch_delay,
            routing=engine.routing,
            adaptive=AdaptiveSettings.of(engine.adaptive),
            vc_entries=engine.vc_entries,
            pacing=PacingSettings.of(engine.pacing),
            pacing_offset=engine.pacing.offset,
            detour=detour,
            arbitration=engine.arbitration,
            crossbar_speedup=engine.crossbar_speedup,
            services=engine.services,
            lane_weights=engine.lane_weights,
            congestion_control=None if control is None else CongestionSettings.of(control),
            injection=engine.injection,
            injection_mbps=round((engine.injection_rate or 0) * 1000),
            send_delay_ps=engine.send_delay,
            eager_bytes=engine.eager,
            local_gbps=engine.local_rate,
            local_delay_ps=engine.local_delay,
            local_ports=engine.local_sharing == "ports",
            measure=telemetry.scheme != "off",
            rule=telemetry.rule,
            rule_bytes=telemetry.rule_bytes,
            when=telemetry.when,
            count_injection=telemetry.count_injection,
            one_in=telemetry.one_in,
            header_loss=telemetry.header_loss,
            windows=telemetry.windows,
            probes=probes_of(scenario),
        )
