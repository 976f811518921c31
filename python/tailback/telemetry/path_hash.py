"""How switches choose among equal paths: hashes of the fields that packets carry.

A switch with n candidates hashes addresses, ports and a seed, and takes one of the n. Whoever knows
the hash knows the path of every packet from its headers (:mod:`tailback.telemetry.packet_paths`).
Candidates are numbered in the order of links. Hashes of switches that are not public are measured:
``paths.csv`` of a folder of contexts lists the path of each flow.
"""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.errors import RunError
from tailback.registry import Registry

ROCE_PORT = 4791
UDP = 17
TCP = 6

_ROUTE_STREAM = np.uint64(0x9E3779B97F4A7C15)
"""The engine's stream of random numbers for the choice of routes."""


@dataclass(frozen=True)
class Flows:
    """Flows: packets with the same addresses, ports and protocol.

    Attributes:
        source: Source node of each, shape (F,).
        destination: Destination node of each.
        entropy: Entropy value, which is the source port of UDP or TCP, 16 bits.
        addresses: IP addresses of source and destination as text, shape (F, 2); None for simulated
            packets, which have none.
        port: Destination port.
        protocol: Protocol above IP.
    """

    source: Ints
    destination: Ints
    entropy: Ints
    addresses: NDArray[np.str_] | None = None
    port: Ints | int = ROCE_PORT
    protocol: Ints | int = UDP

    def __len__(self) -> int:
        """Number of flows."""
        return len(self.source)


PathHash = Callable[[Flows, Ints, int, Ints, int], Ints]
"""Candidate that switches choose: of flows, rows of them, hop from 0, number of candidates of each
row, and the seed."""

PATH_HASHES: Registry[PathHash] = Registry(
    "path-hash", "how switches choose among equal paths (ECMP)"
)


def splitmix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A step of SplitMix64 (Steele, Lea and Flood 2014)."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)), np.uint64)


@PATH_HASHES.register("simulated")
def _simulated(flows: Flows, rows: Ints, hop: int, candidates: Ints, seed: int) -> Ints:
    """The engine's for routing spray: nodes, entropy value and hop."""
    source, destination, entropy = (
        values[rows].astype(np.uint64)
        for values in (flows.source, flows.destination, flows.entropy)
    )
    key = source << np.uint64(40) | destination << np.uint64(16) | entropy
    start = splitmix(np.array([seed], np.uint64) ^ _ROUTE_STREAM)
    word = start + key * np.uint64(0x2545F4914F6CDD1D)
    word = splitmix(word ^ np.uint64(hop) << np.uint64(56))
    index = (word >> np.uint64(32)) * candidates.astype(np.uint64) >> np.uint64(32)
    return np.asarray(index, np.int64)


@PATH_HASHES.register("crc32")
def _crc32(flows: Flows, rows: Ints, hop: int, candidates: Ints, seed: int) -> Ints:
    """CRC-32 of seed, addresses, protocol and ports, modulo the number of candidates."""
    del hop
    tuples = _tuples(flows, rows, "crc32")
    start = zlib.crc32(seed.to_bytes(4))
    values = [zlib.crc32(b"".join(fields), start) for fields in tuples]
    return np.asarray(np.array(values, np.int64) % candidates, np.int64)


@PATH_HASHES.register("linux")
def _linux(flows: Flows, rows: Ints, hop: int, candidates: Ints, seed: int) -> Ints:
    """Linux 6.11 and later with ``fib_multipath_hash_policy`` 1, and its seed.

    SipHash-2-4 of the dissected flow, with addresses and ports each in rising order, and next hops
    of equal weight that divide its upper 31 bits.
    """
    del hop
    messages = [_dissected_flow(*fields) for fields in _tuples(flows, rows, "linux")]
    key = seed << 32 | seed
    upper = np.array([siphash(message, key, key) >> 1 & 0x7FFFFFFF for message in messages])
    # The first candidate whose upper bound, round(2^31 (i + 1) / n) - 1, is not exceeded.
    n = candidates.astype(np.int64)
    choice = (upper * n) >> 31
    return np.asarray(np.minimum(choice + (upper > _upper_bound(choice, n)), n - 1), np.int64)


def _upper_bound(choice: Ints, n: Ints) -> Ints:
    return np.asarray((2 * ((choice + 1) << 31) + n) // (2 * n) - 1, np.int64)


def _dissected_flow(source: bytes, target: bytes, protocol: bytes, *ports: bytes) -> bytes:
    """``struct flow_keys`` of the kernel from ``basic`` on, with the fields of policy 1."""
    # IPv4 addresses and ports as words of a little-endian machine, IPv6 addresses as bytes.
    low, high = sorted((source, target), key=_swapped if len(source) == 4 else None)
    ends = sorted(ports, key=_swapped)
    before_ports = 2 + 1 + 1 + 4 + 8 + 8 + 4  # protocols, tags, two VLANs and a key id
    head = (b"\0\0" + protocol).ljust(before_ports, b"\0")
    body = head + b"".join(ends) + b"\0\0\0\0" + low + high
    return body + bytes(-len(body) % 8)


def _swapped(word: bytes) -> bytes:
    return word[::-1]


def _tuples(flows: Flows, rows: Ints, name: str) -> list[tuple[bytes, ...]]:
    """Source, destination, protocol and ports of each row, as bytes on the wire.

    Raises:
        RunError: The packets have no IP addresses.
    """
    if flows.addresses is None:
        raise RunError(
            f"path hash {name!r} needs IP addresses, which these packets do not have",
            remedy='set [telemetry] path_hash = "simulated", or diagnose a capture of IP packets',
        )
    packed = {text: ipaddress.ip_address(text).packed for text in np.unique(flows.addresses[rows])}
    port, protocol = (
        np.broadcast_to(values, len(flows))[rows] for values in (flows.port, flows.protocol)
    )
    return [
        (
            packed[source],
            packed[target],
            int(above).to_bytes(1),
            int(near).to_bytes(2),
            int(far).to_bytes(2),
        )
        for (source, target), above, near, far in zip(
            flows.addresses[rows], protocol, flows.entropy[rows], port, strict=True
        )
    ]


_WORD = 0xFFFFFFFFFFFFFFFF


def siphash(message: bytes, key_low: int, key_high: int) -> int:
    """SipHash-2-4 (Aumasson and Bernstein 2012)."""
    state = [
        key_low ^ 0x736F6D6570736575,
        key_high ^ 0x646F72616E646F6D,
        key_low ^ 0x6C7967656E657261,
        key_high ^ 0x7465646279746573,
    ]
    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        state[3] ^= word
        _sip_rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xFF
    _sip_rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _sip_rounds(v: list[int], rounds: int) -> None:
    for _ in range(rounds):
        v[0] = (v[0] + v[1]) & _WORD
        v[1] = _rotate(v[1], 13) ^ v[0]
        v[0] = _rotate(v[0], 32)
        v[2] = (v[2] + v[3]) & _WORD
        v[3] = _rotate(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & _WORD
        v[3] = _rotate(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & _WORD
        v[1] = _rotate(v[1], 17) ^ v[2]
        v[2] = _rotate(v[2], 32)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _WORD
