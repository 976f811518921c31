"""The engine's settings as a scenario states them.

The dataclasses have the fields of the engine's own structures, which check them. A field that is
None takes the engine's default.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tailback.scenario.engine import (
    AdaptiveSection,
    CongestionControlSection,
    DcqcnSection,
    EngineSection,
    PacingSection,
)
from tailback.scenario.model import Scenario
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
        per: ``packet``, ``message``, ``chunk``, ``flowlet`` or ``flow``.
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


_CALM_MARKING_RATE = 65_535
"""Highest marking rate of annex A10: a switch that creates no victims marks next to nothing."""

_HOLD_PS = 100_000_000
"""A DCMS switch counts as creating victims for 100 µs after the last one."""


@dataclass(frozen=True)
class CongestionSchemeSettings:
    """The congestion control scheme.

    Attributes:
        kind: ``infiniband``, ``dcms``, ``rgbcc`` or ``assignment``.
        calm_marking_rate: Marking rate of DCMS while no victims are created.
        hold_ps: How long DCMS considers a switch as creating victims.
        poll_ps: Period at which a manager of DCMS polls port counters; 0: switches act at once.
        green_bytes: Queue length at which RGBCC lets senders continue.
    """

    kind: str
    calm_marking_rate: int | None = None
    hold_ps: int | None = None
    poll_ps: int | None = None
    green_bytes: int | None = None


@dataclass(frozen=True)
class DcqcnSettings:
    """Constants of DCQCN (Zhu et al., 2015); the defaults are the published ones.

    The paper does not state hyper increase and the least rate. They are those of QCN
    (IEEE8021-CN-MIB). Hyper increase is ten times the additive one.

    Attributes:
        kmin_bytes: Queue above which packets may be marked.
        kmax_bytes: Queue above which every packet is marked.
        pmax: Probability of a mark just below ``kmax_bytes``.
        cnp_interval_ps: Least time between two notifications to one sender.
        g: Weight of the newest observation in alpha.
        alpha_timer_ps: Time without notification after which alpha decays.
        increase_timer_ps: Time between two increases by the timer.
        byte_counter_bytes: Bytes between two increases by the byte counter.
        recovery_steps: Increases that only recover the rate before the last notification.
        additive_mbps: Additive increase of the target rate, Mb/s.
        hyper_mbps: Hyper increase, Mb/s.
        least_mbps: No notification lowers a rate further, Mb/s.
    """

    kmin_bytes: int = 5_000
    kmax_bytes: int = 200_000
    pmax: float = 0.01
    cnp_interval_ps: int = 50_000_000
    g: float = 1 / 256
    alpha_timer_ps: int = 55_000_000
    increase_timer_ps: int = 55_000_000
    byte_counter_bytes: int = 10_000_000
    recovery_steps: int = 5
    additive_mbps: float = 40.0
    hyper_mbps: float = 400.0
    least_mbps: float = 5.0
    kind: str = field(default="dcqcn", init=False)

    @classmethod
    def of(cls, section: DcqcnSection) -> DcqcnSettings:
        """The settings of a scenario's ``[engine.dcqcn]``."""
        return cls(
            kmin_bytes=section.kmin,
            kmax_bytes=section.kmax,
            pmax=section.pmax,
        )


@dataclass(frozen=True)
class FlowControlSettings:
    """How links keep buffers from being overrun.

    Attributes:
        kind: ``credits`` or ``pfc``.
        xoff_bytes: A buffer that holds more pauses its sender (pfc).
        xon_bytes: A buffer that holds no more lets it resume (pfc).
    """

    kind: str = "credits"
    xoff_bytes: int | None = None
    xon_bytes: int | None = None

    @classmethod
    def of(cls, engine: EngineSection) -> FlowControlSettings:
        """The settings of a scenario's ``[engine.flow_control]``."""
        section = engine.flow_control
        if section.kind == "credits":
            return cls()
        xon = section.xon
        if xon is None:
            xon = max(section.xoff - 2 * engine.simulated_packet, 0)
        return cls(section.kind, section.xoff, xon)


@dataclass(frozen=True)
class CongestionSettings:
    """Congestion control: the scheme and the parameters of the InfiniBand specification."""

    scheme: CongestionSchemeSettings | DcqcnSettings
    threshold_bytes: int
    marking_rate: int
    packet_bytes: int
    victims: bool
    increase: int
    limit: int
    timer_ps: int
    table: list[int]

    @classmethod
    def of(
        cls, section: CongestionControlSection, dcqcn: DcqcnSection | None = None
    ) -> CongestionSettings:
        """The settings of a scenario's ``[engine.congestion_control]`` and ``[engine.dcqcn]``."""
        dcms, rgbcc = section.scheme == "dcms", section.scheme == "rgbcc"
        scheme: CongestionSchemeSettings | DcqcnSettings
        if section.scheme == "dcqcn":
            scheme = DcqcnSettings.of(dcqcn or DcqcnSection())
        else:
            scheme = CongestionSchemeSettings(
                section.scheme,
                calm_marking_rate=_CALM_MARKING_RATE if dcms else None,
                hold_ps=_HOLD_PS if dcms else None,
                poll_ps=section.poll if dcms else None,
                green_bytes=section.green if rgbcc else None,
            )
        return cls(
            scheme=scheme,
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
    flow_control: FlowControlSettings = FlowControlSettings()
    switching: str
    switch_delay_ps: int
    routing: str
    path_seed: int | None
    flow_seeds: list[tuple[int, int, int]] = field(default_factory=list)
    queue_pairs: int = 1
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
    overhead_ps: int = 0
    copy_gbps: float = 0.0
    eager_bytes: int
    eager_sends: str
    progress: str
    local_gbps: float
    memory_gbps: float
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
            flow_control=FlowControlSettings.of(engine),
            switching=engine.switching,
            switch_delay_ps=engine.switch_delay,
            routing=engine.routing,
            path_seed=scenario.path_seed if telemetry.scheme == "entropy-ecn" else engine.path_seed,
            flow_seeds=engine.flow_seeds,
            queue_pairs=engine.queue_pairs,
            adaptive=AdaptiveSettings.of(engine.adaptive),
            vc_entries=engine.vc_entries,
            pacing=PacingSettings.of(engine.pacing),
            pacing_offset=engine.pacing.offset,
            detour=detour,
            arbitration=engine.arbitration,
            crossbar_speedup=engine.crossbar_speedup,
            services=engine.services,
            lane_weights=engine.lane_weights,
            congestion_control=(
                None if control is None else CongestionSettings.of(control, engine.dcqcn)
            ),
            injection=engine.injection,
            injection_mbps=round((engine.injection_rate or 0) * 1000),
            send_delay_ps=engine.send_delay,
            overhead_ps=engine.overhead,
            copy_gbps=engine.copy_rate or 0.0,
            eager_bytes=engine.eager,
            eager_sends=engine.eager_sends,
            progress=engine.progress,
            local_gbps=engine.local_gbps,
            memory_gbps=engine.memory_gbps,
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
