"""Telemetry schemes by name: what the header of a packet carries, and how many bits that takes.

The engine's switches implement them (``crates/telemetry/src/scheme``). Receivers are in
:mod:`tailback.telemetry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tailback.registry import Registry

LINK_BITS = 24
"""Bits of a whole link, as many as of a packet id."""

MAX_SLOTS = 8
"""Largest reservoir."""

MAX_HASHED_BITS = 64
"""Header bits of a simulated packet, apart from whole links in several slots."""

WITH_RESERVOIRS = ("full", "single-bit", "compact", "coordinated")
"""Schemes whose reservoirs may have several slots."""


class SchemeSettings(Protocol):
    """Settings that the size of a header depends on."""

    @property
    def scheme(self) -> str:
        """Its name."""

    @property
    def randomness(self) -> str:
        """What decides in a switch."""

    @property
    def stamping(self) -> str | list[str]:
        """Switches that take part."""

    @property
    def header_bits(self) -> int:
        """Bits of the header."""

    @property
    def hash_bits(self) -> int:
        """Bits of the hash of a link."""

    @property
    def count_bits(self) -> int:
        """Bits of a count of hops."""

    @property
    def slots(self) -> int:
        """Slots of a reservoir."""


HeaderBits = Callable[[SchemeSettings], int]

SCHEMES: Registry[HeaderBits] = Registry("scheme", "what switches write into packet headers")


@SCHEMES.register("off")
def _off(_: SchemeSettings) -> int:
    """Nothing."""
    return 0


@SCHEMES.register("full")
def _full(settings: SchemeSettings) -> int:
    """Hops and congested hops as whole links, drawn by reservoirs, and their counts."""
    return 2 * (settings.slots * LINK_BITS + 8)


@SCHEMES.register("single-bit")
def _single_bit(settings: SchemeSettings) -> int:
    """Hashes of hops and of congested hops, one of each in each slot, and their counts."""
    return 2 * (settings.slots * settings.hash_bits + settings.count_bits)


@SCHEMES.register("compact")
def _compact(settings: SchemeSettings) -> int:
    """Hash of one hop in each slot, whether it was congested, and a count of hops."""
    return settings.slots * (1 + settings.hash_bits) + settings.count_bits


@SCHEMES.register("coordinated")
def _coordinated(settings: SchemeSettings) -> int:
    """Hash of the hop that packet id and hop chose, and whether it was congested, in each slot."""
    return settings.slots * (1 + settings.hash_bits)


@SCHEMES.register("xor-digest")
def _xor_digest(settings: SchemeSettings) -> int:
    """XOR of the hashes of hops that acted."""
    return 1 + settings.hash_bits


@SCHEMES.register("csig")
def _csig(_: SchemeSettings) -> int:
    """Compact tag of CSIG: the longest queueing delay on the path, and the locator of its port."""
    return 32


@SCHEMES.register("entropy-ecn")
def _entropy_ecn(_: SchemeSettings) -> int:
    """Nothing new: the ECN mark, and the path by entropy value and known hash of the switches."""
    return 0


@SCHEMES.register("node-marking")
def _node_marking(_: SchemeSettings) -> int:
    """The last link that marked, and whether it was congested."""
    return 1 + LINK_BITS


@SCHEMES.register("edge-marking")
def _edge_marking(_: SchemeSettings) -> int:
    """The last link that marked, whether it was congested, and how many switches ago."""
    return 1 + LINK_BITS + 5


def slots_problem(settings: SchemeSettings) -> tuple[str, str] | None:
    """What the slots of a reservoir do not go with, and a remedy; None if all is well."""
    slots, counted = settings.slots, settings.scheme in ("single-bit", "compact")
    if slots == 1 or settings.scheme == "off":
        return None
    one_slot = "set slots = 1"
    if settings.scheme not in WITH_RESERVOIRS:
        use = f"use {', '.join(WITH_RESERVOIRS)}, or {one_slot}"
        return f"scheme {settings.scheme}, which has no reservoir", use
    if settings.randomness != "ideal":
        return f"randomness {settings.randomness}, which decides about one slot", one_slot
    if settings.scheme == "coordinated" and settings.stamping != "all":
        why = "scheme coordinated where only some switches put samples into packets"
        return why, f"use compact or full, which count the hops that acted, or {one_slot}"
    if counted and slots >= 1 << settings.count_bits:
        why = f"count_bits = {settings.count_bits}, which cannot count that many hops"
        return why, f"set count_bits = {slots.bit_length()} or more, or fewer slots"
    if settings.scheme != "full" and settings.header_bits > MAX_HASHED_BITS:
        why = f"a header of {settings.header_bits} bits; the simulated one has {MAX_HASHED_BITS}"
        return why, "use fewer slots, hash_bits or count_bits"
    return None
