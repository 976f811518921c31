"""The algorithm, protocol and number of channels with which NCCL runs a collective.

The defaults follow NCCL's own cost model (``src/graph/tuning.cc``, 2.2x): time = latency + bytes /
bandwidth, with the latencies and bandwidth shares given there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Final, Literal

from tailback.scenario.model import NcclSection

Algorithm = Literal["ring", "tree"]
Protocol = Literal["simple", "ll", "ll128"]

MAX_CHANNELS: Final = 64
"""NCCL's MAXCHANNELS."""

CHANNEL_BYTES: Final = 32 * 1024
"""Minimum bytes per channel: NCCL uses fewer channels for smaller collectives."""

BUS_BYTES_PER_US: Final = 24_000.0
"""Assumed default bandwidth between hosts: one adapter of 200 Gb/s per rank."""

# Microseconds; NVLink within a host, the network between hosts.
_BASE: Final = {
    ("tree", "ll"): 6.8,
    ("tree", "ll128"): 14.0,
    ("tree", "simple"): 8.4,
    ("ring", "ll"): 6.6,
    ("ring", "ll128"): 14.0,
    ("ring", "simple"): 8.4,
}
_HOP: Final = {
    ("tree", "ll"): (0.6, 5.0),
    ("tree", "ll128"): (1.25, 8.5),
    ("tree", "simple"): (4.0, 14.0),
    ("ring", "ll"): (0.6, 2.7),
    ("ring", "ll128"): (1.9, 4.0),
    ("ring", "simple"): (3.4, 14.0),
}
_SHARE: Final = {
    ("tree", "ll"): 1 / 3.8,
    ("tree", "ll128"): 0.92 * 0.92,
    ("tree", "simple"): 0.92,
    ("ring", "ll"): 0.5,
    ("ring", "ll128"): 0.92,
    ("ring", "simple"): 1.0,
}

_ONE_WAY: Final = ("AllToAll", "Gather", "Scatter", "SendRecv", "Exchange")
"""Calls that NCCL runs in one way."""


@dataclass(frozen=True)
class Choice:
    """How NCCL runs a collective.

    Attributes:
        algorithm: ``ring``, or ``tree`` (double binary trees between hosts, a chain within each).
        protocol: ``simple``; ``ll`` (a flag with every 4 bytes: twice the bytes); ``ll128`` (a flag
            in every 128 bytes).
        channels: Rings or trees that share the bytes.
        in_turn: Whether sums come down a tree only after all went up: NCCL's threads do both, or
            are split into two groups (``src/device/all_reduce.h``).
    """

    algorithm: Algorithm
    protocol: Protocol
    channels: int
    in_turn: bool = False

    def __str__(self) -> str:
        plural = "" if self.channels == 1 else "s"
        return f"{self.algorithm}, {self.protocol}, {self.channels} channel{plural}"


def applied(section: NcclSection, choice: Choice) -> Choice:
    """``choice`` overridden by the values of a scenario."""
    return Choice(
        section.algorithm or choice.algorithm,
        section.protocol or choice.protocol,
        section.channels or choice.channels,
        choice.in_turn if section.trees is None else section.trees == "in-turn",
    )


def default_choice(
    call: str, nbytes: int, hosts: Sequence[int], channels: int | None = None
) -> Choice:
    """The choice of NCCL's cost model.

    Args:
        call: ``AllReduce`` …
        nbytes: Bytes of the whole buffer.
        hosts: Host of each member.
        channels: Number of channels if known; None takes two, or one per rank of a host.
    """
    n, n_hosts = len(hosts), len(set(hosts))
    most = channels or min(max(2, ceil(n / n_hosts)), MAX_CHANNELS)
    used = channels or max(1, min(most, nbytes // CHANNEL_BYTES))
    algorithms: tuple[Algorithm, ...] = ("ring", "tree") if call == "AllReduce" else ("ring",)
    protocols: tuple[Protocol, ...] = ("simple", "ll", "ll128")
    if call in _ONE_WAY:
        return Choice("ring", "simple", used)
    fastest = min(
        (_time(call, nbytes, n, n_hosts, algorithm, protocol), algorithm, protocol)
        for algorithm in algorithms
        for protocol in protocols
    )
    return Choice(fastest[1], fastest[2], used)


def preferred(
    call: str, nbytes: int, hosts: Sequence[int], choice: Choice
) -> tuple[Choice, float] | None:
    """What NCCL's cost model prefers to a choice, and the share of the time that it expects less.

    None if it prefers that choice, or the call has a single way.

    Args:
        call: ``AllReduce`` …
        nbytes: Bytes of the whole buffer.
        hosts: Host of each member.
        choice: How the call was run.
    """
    better = default_choice(call, nbytes, hosts, choice.channels)
    if (better.algorithm, better.protocol) == (choice.algorithm, choice.protocol):
        return None
    if call in _ONE_WAY:
        return None
    n, n_hosts = len(hosts), len(set(hosts))
    took, takes = (
        _time(call, nbytes, n, n_hosts, each.algorithm, each.protocol) for each in (choice, better)
    )
    return (better, 1.0 - takes / took) if takes < took else None


def _time(
    call: str, nbytes: int, n: int, n_hosts: int, algorithm: Algorithm, protocol: Protocol
) -> float:
    """Time in microseconds by the cost model."""
    intra, inter = _HOP[algorithm, protocol]
    twice = 2 if call == "AllReduce" else 1
    bandwidth = BUS_BYTES_PER_US * _SHARE[algorithm, protocol]
    if algorithm == "tree":
        latency = 2 * ((n / n_hosts - 1) * intra + log2(n_hosts) * inter)
        bandwidth /= 2
    else:
        between = twice * n_hosts if n_hosts > 1 else 0
        latency = max(twice * (n - 1) - between, 0) * intra + between * inter
        bandwidth /= twice * (n - 1) / n
    return _BASE[algorithm, protocol] + latency + nbytes / bandwidth
