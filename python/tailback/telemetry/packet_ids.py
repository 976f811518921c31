"""Packet ids, which switches and receivers derive from fields of every packet.

A packet sequence number (PSN) counts the packets of one queue pair, so it identifies a packet only
together with the two ends and the queue pair. The id mixes all four with XOR, AND and fixed wiring,
one field a round; no switch multiplies or adds. The receiver's side is here; the switches' side is
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
ID_ROUND = 0x243F6A
HOP_ROUNDS = (0x370734, 0x4A4093, 0x822299, 0xF31D00)
"""Round constants: the hexadecimal digits of π. The first is that of the id, the others those of
:func:`hop_hash`."""


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
    ends = _round(_round(destination & _MASK, ID_ROUND) ^ (source & _MASK), ID_ROUND)
    key = _round(_round(ends ^ (queue_pair & _MASK), ID_ROUND), ID_ROUND)
    midway = _round(_round(key ^ (psn & _MASK), ID_ROUND) ^ key, ID_ROUND)
    return _round(_round(midway, ID_ROUND), ID_ROUND)


def _round_back(y: Ids, constant: int) -> Ids:
    y = y ^ np.uint32(constant)
    y = (y ^ (y << np.uint32(10)) ^ (y << np.uint32(20))) & _MASK
    y = y ^ (y >> np.uint32(7)) ^ (y >> np.uint32(14)) ^ (y >> np.uint32(21))
    p, q = _rotate(y, 8), _rotate(y, 16)
    return np.asarray(y ^ (~(p ^ (~q & y)) & q), np.uint32)


def decision_words(ids: Ids) -> Ids:
    """What :func:`takes_sample` reads: 24 bits of each id's state two rounds before its end."""
    before = _round_back(_round_back(ids & _MASK, ID_ROUND), ID_ROUND)
    x = before ^ (before >> np.uint32(3))
    return np.asarray((x ^ (x << np.uint32(11))) & _MASK, np.uint32)


def takes_sample(ids: Ids, words: Ids, hop: int) -> NDArray[np.bool_]:
    """Whether hop number ``hop`` (from 0) of each packet replaces the sample of ``coordinated``.

    Args:
        ids: Packet ids, shape (P,).
        words: Their :func:`decision_words`, shape (P,).
        hop: Number of the hop.
    """
    if hop == 0:
        return np.ones(len(ids), np.bool_)
    if hop == 1:
        return np.asarray(words >> np.uint32(23) == 0)
    if hop == 2:
        return (words >> np.uint32(5)) & np.uint32(0xFFFF) < 0xFFFF // 3
    if hop == 3:
        return np.asarray((words >> np.uint32(21)) & np.uint32(3) == 0)
    if hop == 4:
        # The word from its least bit: bytes swapped, then the bits of each.
        low = (words & np.uint32(0xFFFF)).astype(np.uint16).byteswap()
        for by, mask in ((4, 0x0F0F), (2, 0x3333), (1, 0x5555)):
            shift, kept = np.uint16(by), np.uint16(mask)
            low = (low & kept) << shift | (low >> shift) & kept
        return low < 0xFFFF // 5
    return hop_hash(ids, hop) * np.uint64(hop + 1) < 1 << ID_BITS


def hop_hash(ids: Ids, hop: int) -> Ids:
    """The hash of (packet id, hop index) that switches and receivers share: 24 bits, shape (P,)."""
    x = (ids & _MASK) ^ np.uint32(hop * 0x010101)
    for constant in HOP_ROUNDS:
        x = _round(x, constant)
    return x


def coordinated_slot(ids: Ids, hop: int, slots: int) -> NDArray[np.int64]:
    """Slot that hop number ``hop`` of each packet takes; ``slots`` or more if it takes none.

    The first hops fill the slots in order, later ones replace one of them with probability
    slots / (hop + 1) (algorithm R of Vitter, 1985, with a shared hash as its random number).
    """
    if hop < slots:
        return np.full(len(ids), hop, np.int64)
    drawn = hop_hash(ids, hop).astype(np.uint64) * np.uint64(hop + 1)
    return (drawn >> np.uint64(ID_BITS)).astype(np.int64)


def ids_of(packets: pl.DataFrame) -> Ids:
    """Ids of the packets in rows of table ``packets``.

    A column ``id`` takes precedence: local ids of a capture need not follow from nodes.

    Raises:
        RunError: The run was written before packets had queue pairs.
    """
    if "id" in packets.columns:
        return packets["id"].to_numpy()
    if packets["queue_pair"].null_count():
        raise RunError(
            "the packets of this run have no queue pair, so their ids are not known",
            place="table packets, column queue_pair",
            remedy="simulate the scenario again",
        )
    lid_offset = np.uint32(1)
    return packet_ids(
        packets["sequence"].to_numpy(),
        packets["src_node"].to_numpy() + lid_offset,
        packets["dst_node"].to_numpy() + lid_offset,
        packets["queue_pair"].to_numpy(),
    )
