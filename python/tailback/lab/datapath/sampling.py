"""The telemetry scheme of a software switch, and the widths of its header fields."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailback.errors import TailbackError, nearest

ENTROPY_ECN = "entropy-ecn"
"""Scheme without a sample in the packet: ECN marks, and paths by a known hash."""

NUMBERS = {"single-bit": 1, "compact": 2, "coordinated": 3, "full": 4, ENTROPY_ECN: 5}
"""Implemented schemes, with their numbers in ``sample.h``."""

HASHED = ("single-bit", "compact", "coordinated")
ONE_RESERVOIR = ("compact", "coordinated")

FIELDS = {4: 16, 6: 20}
"""Bits available in a packet, by IP version: identification field and flow label."""

COUNT_BITS = 3
"""Bits of a hop count: up to 7 hops; a path in a leaf–spine network has 4 links."""

MAX_LINK_BITS = 12
"""Maximum bits of a link number: the receiver's bins are 2^12 words then."""

_DEFAULT_BITS = {"single-bit": 1, "compact": 2, "coordinated": 4}
"""The published scheme (Taffet 2019, §5.2), the one in six bits (§5.7), and one with hashes, for
which few packets suffice.
"""

FIRST_INDEX = 1000
"""Interfaces have index 1000 + number of the link that leaves them."""

INITIAL_TTL = 64
"""Default hop limit of packets in Linux, from which the programs count hops."""

MAX_SUMS = 16384
"""Maximum number of sums of a receiver: one per sender, socket, MPI call, hop and weight."""

CALL_SHIFT = 24
"""Bits of a socket's mark in a key of sums; the MPI call of its process is above them."""

MAX_PROCESSES = 1024
"""Processes with a mark, whose MPI calls are known."""


class SamplingError(TailbackError):
    """A scheme that cannot be applied to real packets."""


@dataclass(frozen=True)
class PacketScheme:
    """A scheme and the number of bits of its hash.

    Attributes:
        scheme: ``single-bit``, ``compact``, ``coordinated``, ``full`` or ``entropy-ecn``.
        hash_bits: Bits per hash, 1 to 5; 0 if packets carry whole links or no sample.
    """

    scheme: str
    hash_bits: int

    @staticmethod
    def parse(text: str) -> PacketScheme:
        """Read ``coordinated`` or ``coordinated:5``.

        Raises:
            SamplingError: There is no such scheme, or it has no such hash.
        """
        name, _, bits = text.partition(":")
        if name not in NUMBERS:
            raise SamplingError(
                f"scheme {name!r} is not built for real packets", remedy=nearest(name, NUMBERS)
            )
        if name not in HASHED:
            if bits:
                raise SamplingError(
                    f"{text!r}: scheme {name!r} has no hash of links", remedy=f"write {name}"
                )
            return PacketScheme(name, 0)
        if bits and not re.fullmatch(r"[1-5]", bits):
            raise SamplingError(
                f"{text!r}: a hash of {bits[:20]!r} bits is not possible",
                remedy=f"write 1 to 5, like {name}:{_DEFAULT_BITS[name]}",
            )
        return PacketScheme(name, int(bits or _DEFAULT_BITS[name]))

    def __str__(self) -> str:
        return f"{self.scheme}:{self.hash_bits}" if self.hash_bits else self.scheme

    @property
    def one_reservoir(self) -> bool:
        """Whether one sampled hop represents both traffic and congestion."""
        return self.scheme in ONE_RESERVOIR

    def sample_bits(self, link_bits: int) -> int:
        """Bits that a sample takes in a packet."""
        if self.scheme == ENTROPY_ECN:
            return 0
        seen = self.hash_bits or link_bits
        counted = seen + COUNT_BITS
        return {"coordinated": 1 + seen, "compact": 1 + counted}.get(self.scheme, 2 * counted)

    def check(self, links: int, ip: int) -> None:
        """Reject a scheme that does not fit into a packet.

        Args:
            links: Number of links of the network.
            ip: IP version.

        Raises:
            SamplingError: The sample has more bits than the field.
        """
        bits, room = self.sample_bits(link_bits(links)), FIELDS[ip]
        if bits > room:
            raise SamplingError(
                f"scheme {str(self)!r} with {links} links takes {bits} bits; IPv{ip} has {room}",
                remedy="use a scheme with hashes like coordinated, fewer links, or ip = 6",
            )

    def defines(self, links: int) -> list[str]:
        """Preprocessor options for the compiler."""
        values = {
            "SCHEME": NUMBERS[self.scheme],
            "HASH_BITS": max(self.hash_bits, 1),
            "COUNT_BITS": COUNT_BITS,
            "LINK_BITS": link_bits(links),
            "INITIAL_TTL": INITIAL_TTL,
            "FIRST_INDEX": FIRST_INDEX,
            "MAX_SUMS": MAX_SUMS,
            "CALL_SHIFT": CALL_SHIFT,
            "MAX_PROCESSES": MAX_PROCESSES,
        }
        return [f"-D{name}={value}" for name, value in values.items()]


def link_bits(links: int) -> int:
    """Bits of a number from 1 to ``links``; raises SamplingError beyond :data:`MAX_LINK_BITS`."""
    bits = links.bit_length()
    if bits > MAX_LINK_BITS:
        raise SamplingError(
            f"{links} links are more than {2**MAX_LINK_BITS - 1}", remedy="use a smaller network"
        )
    return bits


_ID_BITS, _SPREAD, _FIELD_LOW = 24, 0x9E3779, 0x87


def hash_masks(link: int, bits: int) -> list[int]:
    """Masks of the link hash for a port: bit k of the hash is the parity of the id under mask k.

    The hash is id × link × constant in GF(2^24), as in ``crates/telemetry/src/hash/gf.rs``.

    Args:
        link: Number of the link, from 1.
        bits: Bits of a hash.
    """

    def double(a: int) -> int:
        return (a << 1 & 0xFFFFFF) ^ (_FIELD_LOW if a >> 23 else 0)

    product, power = 0, _SPREAD
    for bit in range(_ID_BITS):
        product ^= power if link >> bit & 1 else 0
        power = double(power)
    masks = [0] * bits
    for bit in range(_ID_BITS):
        for k in range(bits):
            masks[k] |= (product >> k & 1) << bit
        product = double(product)
    return masks
