"""The collector: reads the port counters of a live InfiniBand subnet, with many requests in flight.

``umad`` accesses the device, ``mad`` encodes and decodes datagrams, ``exchange`` keeps many of them
in flight, ``discovery`` and ``fabric_file`` list the ports, ``sweep`` reads
them, ``segments``, ``journal`` and ``store`` save the readings, ``session`` runs it all, and
``metrics_board`` and ``endpoint`` publish metrics.
"""

from __future__ import annotations

from tailback.collector.endpoint import Endpoint
from tailback.collector.exchange import MadExchange
from tailback.collector.metrics_board import MetricsBoard
from tailback.collector.session import CollectorSession, CollectorSettings, SessionSummary
from tailback.collector.store import Collection
from tailback.collector.umad import MadPort, UmadPort

__all__ = [
    "Collection",
    "CollectorSession",
    "CollectorSettings",
    "Endpoint",
    "MadExchange",
    "MadPort",
    "MetricsBoard",
    "SessionSummary",
    "UmadPort",
]
