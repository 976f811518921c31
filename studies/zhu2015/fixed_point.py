"""Fixed point of DCQCN's fluid model (Zhu et al., 2015, section 5), from its equations alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tailback.simulation import DcqcnSettings

PACKET_BYTES = 1000
"""Bytes of a packet, by which the model counts rates."""


@dataclass(frozen=True)
class FixedPoint:
    """What does not change any more when some flows share a link.

    Attributes:
        probability: Of a packet to be marked.
        queue_bytes: At the link; beyond ``kmax_bytes`` where the probability exceeds ``pmax``.
        rate_gbps: Of each flow.
    """

    probability: float
    queue_bytes: float
    rate_gbps: float


def fixed_point(flows: int, link_gbps: float, settings: DcqcnSettings) -> FixedPoint:
    """The fixed point of equations 5 to 9 for ``flows`` equal flows on a link, by bisection.

    Args:
        flows: Number of flows, at least two: a single one fills the link without a queue.
        link_gbps: Rate of the link in Gb/s.
        settings: Constants of DCQCN.
    """
    rate = link_gbps * 1e9 / 8 / PACKET_BYTES / flows
    low, high = 1e-12, 0.5
    while high / low > 1 + 1e-12:
        middle = math.sqrt(low * high)
        if _growth(middle, rate, settings) > 0:
            low = middle
        else:
            high = middle
    between = settings.kmax_bytes - settings.kmin_bytes
    queue = settings.kmin_bytes + low / settings.pmax * between
    return FixedPoint(low, queue, link_gbps / flows)


def _growth(probability: float, rate: float, settings: DcqcnSettings) -> float:
    """Change of a flow's current rate (equation 9) with alpha and target rate at rest (7 and 8).

    Args:
        probability: Of a mark.
        rate: Of the flow, packets a second.
        settings: Constants of DCQCN.
    """
    log = math.log1p(-probability)
    interval, timer = settings.cnp_interval_ps * 1e-12, settings.increase_timer_ps * 1e-12
    counter = settings.byte_counter_bytes / PACKET_BYTES
    additive = settings.additive_mbps * 1e6 / 8 / PACKET_BYTES
    notified = -math.expm1(log * interval * rate)
    alpha = -math.expm1(log * settings.alpha_timer_ps * 1e-12 * rate)
    by_counter = probability / math.expm1(-log * counter)
    by_timer = probability / math.expm1(-log * timer * rate)
    late = settings.recovery_steps * log
    steps = math.exp(late * counter) * by_counter + math.exp(late * timer * rate) * by_timer
    ahead = interval * additive * rate * steps / notified
    return ahead / 2 * rate * (by_counter + by_timer) - rate * alpha * notified / (2 * interval)
