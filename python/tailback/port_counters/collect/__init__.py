"""The collector: reads the port counters of a live InfiniBand subnet, with many requests in flight.

``umad`` accesses the device, ``mad`` encodes and decodes datagrams, ``exchange`` keeps many of them
in flight, ``discovery`` and ``fabric_file`` list the ports, ``sweep`` and ``rounds`` are the two
plans, ``segments``, ``journal`` and ``store`` save the readings, ``session`` runs it all, and
``metrics_board`` and ``endpoint`` publish metrics.
"""

from __future__ import annotations

from tailback.port_counters.collect.endpoint import Endpoint
from tailback.port_counters.collect.exchange import MadExchange
from tailback.port_counters.collect.metrics_board import MetricsBoard
from tailback.port_counters.collect.rounds import RoundPlan
from tailback.port_counters.collect.session import (
    CollectorSession,
    CollectorSettings,
    SessionSummary,
)
from tailback.port_counters.collect.store import Collection
from tailback.port_counters.collect.umad import MadPort, UmadPort

__all__ = [
    "Collection",
    "CollectorSession",
    "CollectorSettings",
    "Endpoint",
    "MadExchange",
    "MadPort",
    "MetricsBoard",
    "RoundPlan",
    "SessionSummary",
    "UmadPort",
]
