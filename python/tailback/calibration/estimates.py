"""Derives settings of the engine, each with its interval, from series of times.

An uncontended message of ``s`` bytes takes, in the engine's model (docs/explanation/engine.md),

    2 overhead + send_delay + switches × switch_delay + cables + (s + packets × header) × 8 / rate

between hosts, and ``2 overhead + send_delay + local_delay + s × 8 / local_rate`` within one; larger
messages
than ``eager`` wait for a handshake. Each line fitted to times gives an intercept and a slope;
derived settings are computed for some thousand draws of both; the interval contains 95 % of the
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from tailback.arrays import Floats
from tailback.calibration.disagreement import Disagreement, agreeing
from tailback.calibration.fitted_series import (
    SEED,
    DrawnValue,
    FittedSeries,
    Placed,
    WireBytes,
    fitted_series,
    mean_of,
    spread,
)
from tailback.calibration.model import Layer, Quantity
from tailback.errors import option
from tailback.scenario.engine import EngineSection
from tailback.units import format_bytes


@dataclass(frozen=True)
class AdapterRate:
    """The rate that an adapter reaches between hosts.

    Attributes:
        rate: Payload in Gb/s.
        line_gbps: Line rate in the fabric where it was measured; None if unknown.
    """

    rate: DrawnValue
    line_gbps: float | None

    @property
    def header_share(self) -> float:
        """Header as a share of the payload, 0 where it is unknown."""
        return 0.0 if self.line_gbps is None else max(self.line_gbps / self.rate.value - 1, 0.0)


__all__ = ["Estimates", "FittedValue", "Kind", "Placed", "estimate"]

Kind = Literal["time", "size", "rate"]

_MAX_HEADER_SHARE: Final = 0.15
"""A larger share of the payload cannot be headers: the adapter is slower than its link."""


@dataclass(frozen=True)
class FittedValue:
    """One quantity with its 95 % interval.

    Attributes:
        name: Key of ``[engine]``, or name of another measured quantity.
        kind: ``time`` in picoseconds, ``size`` in bytes, ``rate`` in gigabits per second.
        value: Best value.
        low: Lower end of the interval.
        high: Upper end.
        source: The measurements it is derived from.
        n: Messages or repetitions behind it.
    """

    name: str
    kind: Kind
    value: float
    low: float
    high: float
    source: str
    n: int


@dataclass
class Estimates:
    """Results of benchmarks of a machine.

    Attributes:
        engine: Settings of the engine.
        measured: Measured quantities for which the engine has no setting.
        not_identified: Settings that stay at their defaults, and why.
        notes: Notes on the estimates.
        disagreements: Tests that differ between hosts, which are not fitted.
    """

    engine: list[FittedValue] = field(default_factory=list)
    measured: list[FittedValue] = field(default_factory=list)
    not_identified: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)


def estimate(
    placed: Sequence[Placed],
    *,
    packet_bytes: int | None = None,
    adapter_gbps: float | None = None,
    eager: FittedValue | None = None,
    overhead: FittedValue | None = None,
    copy_rate: FittedValue | None = None,
) -> Estimates:
    """Settings of the engine that follow from benchmarks.

    Args:
        placed: Series and where they were measured.
        packet_bytes: Payload of a full packet, where a benchmark reports it.
        adapter_gbps: Line rate of adapters, for benchmarks whose hosts are not known.
        eager: The rendezvous threshold from sends to late receivers, if latencies do not show it.
        overhead: Processor time of a message.
        copy_rate: Rate at which processors copy messages up to the threshold.
    """
    placed, disagreements = agreeing(placed)
    out = Estimates(disagreements=disagreements)
    defaults = EngineSection()
    packet = packet_bytes or defaults.packet
    # Sends that waited are observed directly; a jump in latencies is only inferred.
    eager = eager or _eager(fitted_series(placed))
    wire = WireBytes(packet, threshold=None if eager is None else (eager.low, eager.high + 1))
    rate = adapter_rate(placed, wire, adapter_gbps)
    groups = fitted_series(placed, replace(wire, share=rate.header_share if rate else 0.0))
    if packet_bytes is None:
        out.not_identified["packet"] = "no benchmark reports the MTU (perftest does)"
    else:
        out.engine.append(
            FittedValue("packet", "size", packet_bytes, packet_bytes, packet_bytes, "MTU", 1)
        )
    _fit_header(out, rate, packet)
    send = _fit_delays(out, groups, defaults)
    if eager is not None:
        out.engine.append(eager)
    else:
        latencies = any((g.quantity, g.layer, g.remote) == ("latency", "mpi", True) for g in groups)
        out.not_identified["eager"] = (
            "no jump in MPI's latency shows a handshake"
            if latencies
            else "nothing shows MPI's latency between hosts"
        )
    _local(out, groups, send, defaults)
    if copy_rate is not None:
        out.engine.append(copy_rate)
    if overhead is not None:
        _split_overhead(out, send, overhead)
    _other_quantities(out, groups)
    for disagreement in disagreements:
        for name in _settings_of(disagreement):
            if name in out.not_identified:
                out.not_identified[name] = (
                    f"{disagreement.source} differs between hosts, and nothing else shows it"
                )
    return out


def _settings_of(disagreement: Disagreement) -> tuple[str, ...]:
    """Settings that would follow from a test if its hosts agreed."""
    if disagreement.regime == "rate":
        return ("local_rate",) if disagreement.local else ("header",)
    return ("local_delay",) if disagreement.local else ("send_delay", "switch_delay", "eager")


def _fit_header(out: Estimates, adapter: AdapterRate | None, packet: int) -> None:
    """Overhead per packet, derived from the rate reached."""
    if adapter is None:
        out.not_identified["header"] = (
            "nothing shows a rate between hosts: messages of 64 KiB and more are needed"
        )
        return
    rate, line = adapter.rate, adapter.line_gbps
    out.measured.append(_interval("rate", "rate", rate))
    if line is None:
        out.not_identified["header"] = (
            f"the line rate is not known: give the fabric ({option('fabric')}) and, where rates "
            "differ, hosts"
        )
        return
    share = line / rate.draws - 1
    if np.quantile(share, 0.975) < 0:
        out.not_identified["header"] = (
            f"{rate.value:.4g} Gb/s were reached where the fabric says {line:.4g} Gb/s: the "
            "benchmark used several adapters, or the fabric's rate is wrong"
        )
        return
    drawn = replace(
        rate, value=packet * adapter.header_share, draws=np.maximum(packet * share, 0.0)
    )
    header = _interval("header", "size", drawn)
    out.engine.append(replace(header, source=f"{header.source}, packets of {format_bytes(packet)}"))
    if drawn.value > _MAX_HEADER_SHARE * packet:
        out.notes.append(
            f"adapters reach {rate.value / line:.0%} of the line rate; header = "
            f"{drawn.value:.0f} B models that, and slows links between switches as well"
        )


def _fit_delays(
    out: Estimates, groups: Sequence[FittedSeries], defaults: EngineSection
) -> DrawnValue | None:
    """``switch_delay`` and ``send_delay`` from latencies over several distances."""
    remote = [
        group
        for group in groups
        if group.quantity == "latency"
        and group.route is not None
        and group.route.switches > 0
        and group.intercept() is not None
    ]
    if not any(group.layer == "mpi" for group in remote):
        some = [g for g in groups if (g.quantity, g.layer) == ("latency", "mpi") and g.remote]
        unknown = any(group.route is None for group in some)
        out.not_identified["send_delay"] = (
            f"the hosts of the latency tests are unknown: give the fabric ({option('fabric')}) and "
            f"the hosts ({option('hosts')}, or FILE@HOST,HOST)"
            if unknown
            else "nothing shows MPI's latency between hosts"
        )
    layers = list(dict.fromkeys(group.layer for group in remote))
    reach = {
        layer: {g.route.switches for g in remote if g.layer == layer and g.route}
        for layer in layers
    }
    several_distances = any(len(distances) > 1 for distances in reach.values())
    if not several_distances:
        out.not_identified["switch_delay"] = (
            "latencies over two different numbers of switches are needed"
        )
    if not remote:
        return None
    columns = [[float(group.layer == layer) for layer in layers] for group in remote]
    bases, draws = [], []
    for group, row in zip(remote, columns, strict=True):
        base = group.intercept()
        assert group.route is not None and base is not None
        bases.append(base.value - group.route.cable_ps)
        draws.append(base.draws - group.route.cable_ps)
        row.append(float(group.route.switches))
    n = sum(group.n for group in remote)
    design = np.array(columns)
    coefficients, drawn = _solve_delays(
        design, np.array(bases), np.array(draws), defaults.switch_delay, several_distances
    )
    source = ", ".join(dict.fromkeys(group.source + group.where for group in remote))
    if several_distances:
        delay = DrawnValue(max(coefficients[-1], 0.0), np.maximum(drawn[-1], 0.0), source, n)
        out.engine.append(_interval("switch_delay", "time", delay))
    if "mpi" not in layers:
        return None
    at = layers.index("mpi")
    mine = [group for group in remote if group.layer == "mpi"]
    source = ", ".join(dict.fromkeys(group.source + group.where for group in mine))
    send = DrawnValue(
        max(coefficients[at], 0.0),
        np.maximum(drawn[at], 0.0),
        source,
        sum(group.n for group in mine),
    )
    out.engine.append(_interval("send_delay", "time", send))
    return send


def _split_overhead(out: Estimates, send: DrawnValue | None, overhead: FittedValue) -> None:
    """Processor time of the software latency of a message.

    Sender and receiver spend it, the latter as much as the former, and together at most the whole,
    where that is known.
    """
    if send is None:
        out.engine.append(overhead)
        return
    most = send.value / 2.0
    value, low, high = (min(each, most) for each in (overhead.value, overhead.low, overhead.high))
    out.engine = [setting for setting in out.engine if setting.name != "send_delay"]
    draws = np.maximum(send.draws - 2.0 * value, 0.0)
    delay = replace(send, value=send.value - 2.0 * value, draws=draws)
    out.engine.append(_interval("send_delay", "time", delay))
    out.engine.append(replace(overhead, value=value, low=low, high=high))


def _solve_delays(
    design: Floats, bases: Floats, draws: Floats, default_ps: int, several_distances: bool
) -> tuple[Floats, Floats]:
    """Weighted least squares of latencies: a delay for each layer, and one for each switch.

    Args:
        design: One column per layer, then the number of switches, shape (G, layers + 1).
        bases: Latencies, shape (G,).
        draws: Draws of the latencies, shape (G, draws).
        default_ps: Delay of a switch if the latencies do not determine it.
        several_distances: Whether they determine it.

    Returns:
        Coefficients, shape (layers + 1,), and draws of them.
    """
    sigma = np.maximum(spread(draws), 1.0)
    rng = np.random.default_rng([SEED, 1 << 20])
    if not several_distances:
        # Delay that is not in switches is in software, so its interval includes the range of the
        # switch delay.
        switch = default_ps * rng.uniform(0.5, 1.5, draws.shape[1])
        bases = bases - design[:, -1] * default_ps
        draws = draws - design[:, -1:] * switch
        design = design[:, :-1]
    inverse = np.linalg.pinv(design / sigma[:, None]) / sigma
    coefficients, drawn = inverse @ bases, inverse @ draws
    freedom = len(bases) - design.shape[1]
    if freedom > 0:
        # Birge's ratio: series that disagree by more than their errors widen the interval.
        misfit = float((((bases - design @ coefficients) / sigma) ** 2).sum()) / freedom
        drawn = coefficients[:, None] + (drawn - coefficients[:, None]) * np.sqrt(max(misfit, 1.0))
    if not several_distances:
        coefficients = np.append(coefficients, default_ps)
        drawn = np.vstack([drawn, switch])
    return coefficients, drawn


def _eager(groups: Sequence[FittedSeries]) -> FittedValue | None:
    """The rendezvous threshold: the size at the last upward jump of the latency."""
    best: tuple[float, FittedValue] | None = None
    for group in groups:
        if (group.quantity, group.layer) != ("latency", "mpi") or not group.remote:
            continue
        for number in range(len(group.fit.model.breaks) - 1, -1, -1):
            jump = group.fit.jump(group.draws, number)
            significance = float(np.median(jump) / spread(jump))
            if significance > 2:
                if best is None or significance > best[0]:
                    best = (significance, _bracket(group, number))
                break
    return None if best is None else best[1]


def _bracket(group: FittedSeries, number: int) -> FittedValue:
    """The largest size observed without handshake; any size up to the next is equally possible."""
    size, row = group.size_bytes, group.fit.model.breaks[number]
    first, last = group.fit.plausible[number]
    return FittedValue(
        "eager",
        "size",
        float(size[row - 1]),
        float(size[first - 1]),
        float(size[last]) - 1,
        group.source + group.where,
        group.n,
    )


def _local(
    out: Estimates, groups: Sequence[FittedSeries], send: DrawnValue | None, defaults: EngineSection
) -> None:
    """``local_delay`` and ``local_rate`` from messages within a host."""
    inside = [group for group in groups if not group.remote]
    latencies = [g for g in inside if (g.quantity, g.layer) == ("latency", "mpi")]
    rates = [rate for group in latencies if (rate := group.rate()) is not None]
    rates = rates or [r for g in inside if g.quantity == "stream" if (r := g.rate()) is not None]
    if rates:
        out.engine.append(_interval("local_rate", "rate", mean_of(rates)))
    else:
        out.not_identified["local_rate"] = "nothing shows the time of large messages within a host"
    if not latencies:
        out.not_identified["local_delay"] = "nothing shows MPI's latency within a host"
        return
    bases = [base for group in latencies if (base := group.intercept()) is not None]
    if not bases:
        out.not_identified["local_delay"] = (
            "times within a host scatter too much, or are only those of large messages"
        )
        return
    base = mean_of(bases)
    if send is None:
        send = DrawnValue(defaults.send_delay, np.full(1, float(defaults.send_delay)), "", 0)
        base = replace(base, source=f"{base.source}, with the default send_delay")
    delay = base.value - send.value
    out.engine.append(
        _interval(
            "local_delay",
            "time",
            replace(base, value=max(delay, 0.0), draws=np.maximum(base.draws - send.draws, 0.0)),
        )
    )
    if delay < 0:
        out.notes.append(
            "messages within a host take less than send_delay, which the engine adds to all "
            "messages: local_delay is 0, and the engine overestimates their time"
        )


def _other_quantities(out: Estimates, groups: Sequence[FittedSeries]) -> None:
    """Measured latencies, and the time between small messages of a window.

    The latter is LogGP's gap g plus the window's share of a round trip: an upper limit of g.
    """
    for group in groups:
        base = group.intercept()
        if (group.quantity, group.layer) == ("latency", "mpi") and group.route and base:
            name = f"latency_{group.route.switches:g}_switches".replace(".", "_")
            out.measured.append(_interval(name, "time", base))
    gaps = [
        base
        for group in groups
        if (group.quantity, group.layer) == ("stream", "mpi")
        and group.remote
        and group.size_bytes.min() <= 8
        and (base := group.intercept()) is not None
    ]
    if gaps:
        out.measured.append(_interval("message_interval", "time", mean_of(gaps)))


def _interval(name: str, kind: Kind, drawn: DrawnValue) -> FittedValue:
    low, high = np.quantile(drawn.draws, [0.025, 0.975])
    value = float(drawn.value)
    # Student's tails of few times reach below 0, which no time, size or rate does.
    low = max(min(float(low), value), 0.0)
    return FittedValue(name, kind, value, low, max(float(high), value), drawn.source, drawn.n)


def adapter_rate(
    placed: Sequence[Placed], wire: WireBytes, adapter_gbps: float | None
) -> AdapterRate | None:
    """The rate that an adapter reaches; None where nothing shows it.

    Where the line rate is known, the header of a packet is fitted instead of the time of a byte:
    a message that does not fill its packets has a larger share of headers, so a slope would depend
    on the header that is assumed.

    Args:
        placed: All series, and where they were measured.
        wire: The packet, and MPI's threshold; its share of headers is not used.
        adapter_gbps: Line rate of adapters, for benchmarks whose hosts are not known.
    """
    reached = rate_between_hosts(fitted_series(placed, replace(wire, share=0.0)))
    if reached is None:
        return None
    rate, groups = reached
    line_rates = [group.route.line_gbps for group in groups if group.route is not None]
    line = min(line_rates) if line_rates else adapter_gbps
    if line is None:
        return AdapterRate(rate, None)
    kinds = {(group.quantity, group.layer, group.route) for group in groups}
    mine = [
        member
        for member in placed
        if (member.series.quantity, member.series.layer, member.route) in kinds
    ]
    again = rate_between_hosts(fitted_series(mine, replace(wire, share=0.0), line))
    return AdapterRate(rate if again is None else again[0], line)


def rate_between_hosts(
    groups: Sequence[FittedSeries],
) -> tuple[DrawnValue, list[FittedSeries]] | None:
    """The rate that an adapter reaches, from the most suitable kind of benchmark."""
    order: tuple[tuple[Quantity, Layer], ...] = (
        ("stream", "mpi"),
        ("stream", "verbs"),
        ("latency", "mpi"),
        ("latency", "verbs"),
        ("stream", "nccl"),
    )
    for quantity, layer in order:
        some = [
            (rate, group)
            for group in groups
            if (group.quantity, group.layer) == (quantity, layer)
            and group.remote
            and (rate := group.rate()) is not None
        ]
        if some:
            return mean_of([rate for rate, _ in some]), [group for _, group in some]
    return None
