"""The rate that an adapter reaches, and the header of a packet that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailback.calibration.fitted_series import (
    DrawnValue,
    FittedSeries,
    Placed,
    WireBytes,
    fitted_series,
    mean_of,
)
from tailback.calibration.model import Layer, Quantity


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
    found = rate_between_hosts(fitted_series(placed, replace(wire, share=0.0)))
    if found is None:
        return None
    rate, groups = found
    known = [group.route.line_gbps for group in groups if group.route is not None]
    line = min(known) if known else adapter_gbps
    if line is None:
        return AdapterRate(rate, None)
    kinds = {(group.quantity, group.layer, group.route) for group in groups}
    mine = [one for one in placed if (one.series.quantity, one.series.layer, one.route) in kinds]
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
