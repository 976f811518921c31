"""The collector: port counters of a live InfiniBand subnet, in-process and many at once.

``umad`` talks to the device, ``mad`` makes and reads datagrams, ``exchange`` keeps many of them on
the way, ``discovery`` and ``fabric_file`` say what there is to read, ``sweep`` and ``rounds`` are
the two plans, ``segments`` and ``store`` keep what is read, ``session`` runs it all, and ``board``
and ``endpoint`` show it to those who watch.
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
