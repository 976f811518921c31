"""Series of the same kind and distance, with lines fitted through their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tailback.arrays import Floats
from tailback.calibration.model import Layer, Quantity, Series
from tailback.calibration.piecewise import MIN_POINTS, fit
from tailback.calibration.piecewise_fit import LineRate, PiecewiseFit
from tailback.calibration.routes import Route

SEED: Final = 20_251
"""Of the draws, so that the same files give the same intervals."""

MIN_STREAM_BYTES: Final = 1 << 16
"""A slope counts as a rate only if sizes reach this value."""

SMALL_BYTES: Final = 256
"""Without a slope, messages up to this size are assumed to take as long as empty ones."""

_MAX_RELATIVE_ERROR: Final = 0.25
"""Relative standard error above which a slope does not count as a rate, nor an intercept as a
latency."""


@dataclass(frozen=True)
class Placed:
    """A series and where it was measured.

    Attributes:
        series: The series.
        route: Distance between its ends; None if unknown.
        hosts: The hosts of its ranks, each once, in their order; empty if unknown, and of a trace.
    """

    series: Series
    route: Route | None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class DrawnValue:
    """A quantity.

    Attributes:
        value: Its best value.
        draws: Draws of it, shape (4000,).
        source: The measurements it is derived from.
        n: Messages or repetitions behind it.
    """

    value: float
    draws: Floats
    source: str
    n: int


@dataclass(frozen=True)
class FittedSeries:
    """Series of one kind between places equally far apart, and the lines through them.

    Attributes:
        quantity: Meaning of the times.
        layer: Software they include.
        route: Distance; None if unknown.
        source: Benchmark.
        n: Messages or repetitions.
        size_bytes: Message sizes in order, shape (P,).
        fit: Lines through times by bytes on the wire.
        draws: Draws of its coefficients, shape (4000, C).
        least: Time of the smallest message in ps: value and draws.
        byte: Time per byte of large messages in ps: value and draws.
    """

    quantity: Quantity
    layer: Layer
    route: Route | None
    source: str
    n: int
    size_bytes: Floats
    fit: PiecewiseFit
    draws: Floats
    least: tuple[float, Floats]
    byte: tuple[float, Floats]

    @property
    def where(self) -> str:
        """Distance in words."""
        if self.route is None:
            return ""
        if self.route.switches == 0:
            return " within a host"
        return f" over {self.route.switches:g} switch{'es' if self.route.switches > 1 else ''}"

    @property
    def remote(self) -> bool:
        """Whether it was measured between hosts, also assumed if the hosts are unknown."""
        return self.route is None or self.route.switches > 0

    def intercept(self) -> DrawnValue | None:
        """Time of an empty message; None if it cannot be derived from the sizes."""
        # From the smallest message to an empty one at the rate of large ones, if that is known.
        value = self.least[0] - self.fit.size[0] * self.byte[0]
        draws = self.least[1] - self.fit.size[0] * self.byte[1]
        only_large = (
            len(np.unique(self.fit.size)) < MIN_POINTS and self.size_bytes.max() > SMALL_BYTES
        )
        if only_large or not value > 0 or spread(draws) > _MAX_RELATIVE_ERROR * value:
            return None
        return DrawnValue(value, draws, self.source + self.where, self.n)

    def rate(self) -> DrawnValue | None:
        """Rate of the largest messages in Gb/s; None if it cannot be derived from the sizes."""
        slope, draws = self.byte
        if (
            slope <= 0
            or self.fit.size.max() < MIN_STREAM_BYTES
            or spread(draws) > _MAX_RELATIVE_ERROR * slope
        ):
            return None
        draws = np.maximum(draws, slope * 1e-3)
        return DrawnValue(8000 / slope, 8000 / draws, self.source + self.where, self.n)


@dataclass(frozen=True)
class WireBytes:
    """What is known of the bytes that a message puts on the wire, and of MPI's protocols.

    Attributes:
        packet: Payload of a full packet in bytes.
        share: Header of a packet, as a share of the payload of a full one.
        threshold: Sizes between which MPI changes to rendezvous; None if unknown.
    """

    packet: int = 1
    share: float = 0.0
    threshold: tuple[float, float] | None = None

    def of(self, size: Floats) -> Floats:
        """Bytes of messages between hosts, scaled so that a slope is the time of a payload byte.

        Messages that do not fill their packets have a larger share of headers.
        """
        packets = np.maximum(np.ceil(size / self.packet), 1)
        return np.asarray((size + packets * self.packet * self.share) / (1 + self.share))


def fitted_series(
    placed: Sequence[Placed], wire: WireBytes | None = None, line_gbps: float | None = None
) -> list[FittedSeries]:
    """Combine series of the same quantity and distance, and fit their lines.

    Args:
        placed: The series.
        wire: Headers and protocols, as far as they are known.
        line_gbps: Line rate, to fit the headers of packets instead of assuming them.
    """
    wire = wire or WireBytes()
    by: dict[tuple[object, ...], list[Placed]] = {}
    for member in placed:
        s = member.series
        by.setdefault((s.quantity, s.layer, s.source, _slope_key(member, wire)), []).append(member)
    out = []
    for number, members in enumerate(by.values()):
        out += _fit_series(members, wire, line_gbps, [SEED, number])
    return out


def _slope_key(member: Placed, wire: WireBytes) -> object:
    """Series for which this is equal have lines with the same slopes.

    A trace has messages of only some sizes at each distance, so its distances are fitted together.
    Benchmarks measure all sizes, and each distance shows its own lines. The handshake takes longer
    over a longer distance, so its threshold must be known first.
    """
    remote = member.route is not None and member.route.switches > 0
    if remote and member.series.error_ps is not None and wire.threshold is not None:
        assert member.route is not None
        return member.route.line_gbps
    return member.route


def _fit_series(
    members: Sequence[Placed], wire: WireBytes, line_gbps: float | None, seed: list[int]
) -> list[FittedSeries]:
    """Fit lines to series with the same slopes; one result for each distance."""
    routes = list(dict.fromkeys(member.route for member in members))
    first, remote = members[0].series, routes[0] is None or routes[0].switches > 0
    size = np.concatenate([member.series.size_bytes for member in members])
    rate = None if line_gbps is None or not remote else LineRate(8000 / line_gbps, wire.packet)
    on_wire, change = size, None
    if remote and rate is None:
        on_wire = wire.of(size)
    # Messages of a window share the time of their handshakes. Their jump is too small to be found,
    # and yet large enough to bias the slope. A trace may have too few sizes to show it.
    shown = first.quantity == "stream" or first.error_ps is not None
    if remote and wire.threshold is not None and first.layer == "mpi" and shown:
        ends = np.array(wire.threshold)
        low, high = (wire.of(ends) if rate is None else ends).tolist()
        change = (low, high)
    place = np.concatenate(
        [np.full(len(member.series.size_bytes), routes.index(member.route)) for member in members]
    )
    deviation = _join_deviations(members)
    # Nothing within a host delays a message but the noise, which these errors include. Between
    # hosts, others' traffic does, and its model is coarse.
    complete = deviation is not None and not remote
    lines = fit(
        on_wire,
        np.concatenate([member.series.time_ps for member in members]),
        np.concatenate([member.series.resolution_ps for member in members]),
        np.concatenate([member.series.errors_ps for member in members]),
        change,
        rate,
        place if len(routes) > 1 else None,
        deviation,
        complete,
    )
    out = []
    for number, route in enumerate(routes):
        # Equal generators, so that errors of the slopes are the same at all distances.
        rng = np.random.default_rng(seed)
        out.append(
            FittedSeries(
                first.quantity,
                first.layer,
                route,
                first.source,
                sum(member.series.n for member in members if member.route == route),
                np.sort(size),
                lines,
                lines.draws(rng),
                lines.least_time(rng, number),
                lines.byte_time(rng),
            )
        )
    return out


def _join_deviations(members: Sequence[Placed]) -> Floats | None:
    """Draws of the known errors of all times, if they are known as such."""
    some = [member.series.deviation_ps for member in members]
    deviations = [deviation for deviation in some if deviation is not None]
    return np.concatenate(deviations) if len(deviations) == len(some) else None


def mean_of(some: Sequence[DrawnValue]) -> DrawnValue:
    """Mean weighted by inverse variance, widened where they disagree (Birge's ratio)."""
    if len(some) == 1:
        return some[0]
    values = np.array([drawn.value for drawn in some])
    sigma = np.maximum([spread(drawn.draws) for drawn in some], 1e-9 * np.abs(values).max())
    weight = sigma**-2 / (sigma**-2).sum()
    value = float(weight @ values)
    misfit = float((((values - value) / sigma) ** 2).sum()) / (len(some) - 1)
    draws = weight @ np.stack([drawn.draws for drawn in some])
    draws = value + (draws - value) * np.sqrt(max(misfit, 1.0))
    source = ", ".join(dict.fromkeys(drawn.source for drawn in some))
    return DrawnValue(value, draws, source, sum(drawn.n for drawn in some))


def spread(draws: Floats) -> Any:
    """Half the width of the central 68 % of the draws, along the last axis; robust to outliers."""
    low, high = np.quantile(draws, [0.159, 0.841], axis=-1)
    return (high - low) / 2
