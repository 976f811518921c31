"""Packet ids: what switches and receivers derive from the fields that every packet has.

A packet sequence number (PSN) counts the packets of one queue pair, so it identifies a packet only
together with the two ends and the queue pair. The id mixes all four with XOR, AND and fixed wiring;
no switch multiplies or adds. The receiver's side is here; the switches' side is
``crates/telemetry/src/packet_id.rs``, and tests compare the two.

The link hash is linear in the *id*, which is all that decoding by transform needs. The id is
deliberately not linear in the PSN; docs/explanation/telemetry.md says why.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.errors import RunError

ID_BITS = 24
"""Bits of a packet id, and of a packet sequence number."""

Ids = NDArray[np.uint32]

_MASK = np.uint32((1 << ID_BITS) - 1)
ROUND_CONSTANTS = (0x243F6A, 0x885A30, 0x8D3131, 0x98A2E0, 0x370734, 0x4A4093, 0x822299, 0xF31D00)
"""Round constants: the hexadecimal digits of π."""


def _rotate(value: Ids, by: int) -> Ids:
    rotated = (value << np.uint32(by)) | (value >> np.uint32(ID_BITS - by))
    return np.asarray(rotated & _MASK, np.uint32)


def _round(x: Ids, constant: int) -> Ids:
    x = x ^ (~_rotate(x, 8) & _rotate(x, 16))
    x ^= x >> np.uint32(7)
    return np.asarray((x ^ (x << np.uint32(10))) & _MASK ^ np.uint32(constant), np.uint32)


def packet_ids(psn: Ids, source: Ids, destination: Ids, queue_pair: Ids) -> Ids:
    """Ids of packets, 24 bits.

    A flow (source, destination and queue pair) uses every id once before its PSNs wrap. Ids of
    different flows coincide as random numbers do: of N packets, N² / 2^25 pairs.

    Args:
        psn: Packet sequence numbers; all arguments have shape (P,) and are taken modulo 2^24.
        source: Local id of each sender.
        destination: Local id of each receiver.
        queue_pair: Queue pair of each: the receiver's for connections, the sender's for datagrams.
    """
    source, destination, pair = source & _MASK, destination & _MASK, queue_pair & _MASK
    x = (psn & _MASK) ^ _rotate(source, 8) ^ _rotate(destination, 16) ^ _rotate(pair, 12)
    x = _round(_round(x, ROUND_CONSTANTS[0]), ROUND_CONSTANTS[1])
    x = x ^ _rotate(destination, 8) ^ _rotate(source, 16) ^ pair
    return _round(_round(x, ROUND_CONSTANTS[2]), ROUND_CONSTANTS[3])


def hop_hash(ids: Ids, hop: int) -> Ids:
    """The hash of (packet id, hop index) that switches and receivers share: 24 bits, shape (P,)."""
    x = (ids & _MASK) ^ np.uint32(hop * 0x010101)
    for constant in ROUND_CONSTANTS[4:]:
        x = _round(x, constant)
    return x


def ids_of(packets: pl.DataFrame) -> Ids:
    """Ids of the packets in rows of table ``packets``.

    Where it has a column ``id``, those: local ids of a capture need not follow from nodes.

    Raises:
        RunError: The run was written before packets had queue pairs.
    """
    if "id" in packets.columns:
        return packets["id"].to_numpy()
    if packets["queue_pair"].null_count():
        raise RunError(
            "the packets of this run have no queue pair, so their ids are not known",
            place="table packets, column queue_pair",
            remedy="the run was written by an earlier version; simulate it again",
        )
    one = np.uint32(1)
    return packet_ids(
        packets["sequence"].to_numpy(),
        packets["src_node"].to_numpy() + one,
        packets["dst_node"].to_numpy() + one,
        packets["queue_pair"].to_numpy(),
    )
