"""Estimates of traffic and congestion from samples, with confidence intervals."""

from tailback.telemetry.estimate import Selection, link_estimates, select
from tailback.telemetry.hashed import (
    CandidateLinks,
    HashedCounts,
    HashedSamples,
    count_links,
)
from tailback.telemetry.packet_ids import packet_ids
from tailback.telemetry.pcap import write_pcap

__all__ = [
    "CandidateLinks",
    "HashedCounts",
    "HashedSamples",
    "Selection",
    "count_links",
    "link_estimates",
    "packet_ids",
    "select",
    "write_pcap",
]
