"""Telemetry schemes by name: what the header of a packet carries, and how many bits that takes.

The engine's switches implement them (``crates/telemetry/src/scheme``); receivers are in
:mod:`tailback.telemetry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tailback.registry import Registry

LINK_BITS = 24
"""Bits of a whole link, as many as of a packet id."""


class SchemeSettings(Protocol):
    """Settings that the size of a header depends on."""

    @property
    def hash_bits(self) -> int:
        """Bits of the hash of a link."""

    @property
    def count_bits(self) -> int:
        """Bits of a count of hops."""


HeaderBits = Callable[[SchemeSettings], int]

SCHEMES: Registry[HeaderBits] = Registry("scheme", "what switches write into packet headers")


@SCHEMES.register("off")
def _off(_: SchemeSettings) -> int:
    """Nothing."""
    return 0


@SCHEMES.register("full")
def _full(_: SchemeSettings) -> int:
    """One hop and one congested hop as whole links, drawn by reservoirs, and their counts."""
    return 2 * (LINK_BITS + 8)


@SCHEMES.register("single-bit")
def _single_bit(settings: SchemeSettings) -> int:
    """Hashes of one hop and one congested hop, and their counts."""
    return 2 * (settings.hash_bits + settings.count_bits)


@SCHEMES.register("compact")
def _compact(settings: SchemeSettings) -> int:
    """Hash of one hop, whether it was congested, and a count of hops."""
    return 1 + settings.hash_bits + settings.count_bits


@SCHEMES.register("coordinated")
def _coordinated(settings: SchemeSettings) -> int:
    """Hash of the hop that packet id and hop chose, and whether it was congested."""
    return 1 + settings.hash_bits


@SCHEMES.register("xor-digest")
def _xor_digest(settings: SchemeSettings) -> int:
    """XOR of the hashes of hops that acted."""
    return 1 + settings.hash_bits


@SCHEMES.register("csig")
def _csig(_: SchemeSettings) -> int:
    """Compact tag of CSIG: the longest queueing delay on the path, and the locator of its port."""
    return 32


@SCHEMES.register("node-marking")
def _node_marking(_: SchemeSettings) -> int:
    """The last link that marked, and whether it was congested."""
    return 1 + LINK_BITS


@SCHEMES.register("edge-marking")
def _edge_marking(_: SchemeSettings) -> int:
    """The last link that marked, whether it was congested, and how many switches ago."""
    return 1 + LINK_BITS + 5
