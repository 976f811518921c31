"""Samples in the fields of packet headers with reservoirs of several slots, and of sender's bits.

A packet of l hops brings m = min(n, l) samples in its n slots, each of weight l / m. A link is in
at most one of them, so the variance of the count of a link with N packets is N (l/m − 1) where
slots hold whole links. A slot with a hash adds the noise of its own hash: the formulas of
:mod:`tailback.telemetry.hashed` hold with l / m in place of l and a sample in place of a packet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.errors import RunError
from tailback.scenario.model import TelemetrySection
from tailback.telemetry.packet_ids import coordinated_slot, ids_of


@dataclass(frozen=True)
class HeaderSamples:
    """Samples of packets (or of congested packets) in headers.

    Attributes:
        rows: Rows of table ``packets`` that carry a sample; repeated if it carries several.
        seen: Hash or link number of each.
        weight: Weight of each: the inverse of the probability that this hop's sample arrives.
        hop: Sampled hop, from 0; None if the scheme does not identify it.
        slot: Slot of each; None if there is one slot.
    """

    rows: NDArray[np.intp]
    seen: NDArray[np.uint32]
    weight: Floats
    hop: NDArray[np.int64] | None
    slot: NDArray[np.int64] | None = None

    def take(self, keep: NDArray[np.bool_]) -> HeaderSamples:
        """Some of the samples."""
        hop = None if self.hop is None else self.hop[keep]
        slot = None if self.slot is None else self.slot[keep]
        return HeaderSamples(self.rows[keep], self.seen[keep], self.weight[keep], hop, slot)

    def also_in(self, other: HeaderSamples) -> NDArray[np.bool_]:
        """Whether each sample is one of ``other`` as well: of the same packet and slot."""
        if self.slot is None or other.slot is None:
            return np.isin(self.rows, other.rows)
        n = 1 + int(max(self.slot.max(initial=0), other.slot.max(initial=0)))
        return np.isin(self.rows * n + self.slot, other.rows * n + other.slot)


def field(header: NDArray[np.uint64], start: int, bits: int) -> NDArray[np.uint32]:
    """A field of every header, of at most 32 bits."""
    return np.asarray((header >> np.uint64(start)) & np.uint64((1 << bits) - 1), np.uint32)


def decisions_taken(fields: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Hops that have read a decision from a field of sender's bits: zeros below the sentinel."""
    lowest = fields & (~fields + np.uint32(1))
    # float64 holds powers of two exactly; an empty field has passed no hop.
    taken = np.log2(np.maximum(lowest, 1).astype(np.float64)).astype(np.uint32)
    return np.asarray(np.where(fields > 0, taken, 0), np.uint32)


def counted_hops(telemetry: TelemetrySection, table: pl.DataFrame) -> NDArray[np.uint32]:
    """Hops that the headers of ``single-bit`` or ``compact`` have counted."""
    b, n = telemetry.hash_bits, telemetry.slots
    start = n * (b if telemetry.scheme == "single-bit" else 1 + b)
    fields = field(table["header"].to_numpy(), start, telemetry.count_bits)
    return decisions_taken(fields) if telemetry.randomness == "sender" else fields


def slot_samples(
    telemetry: TelemetrySection, table: pl.DataFrame
) -> tuple[HeaderSamples, HeaderSamples]:
    """Samples of headers with several slots.

    Args:
        telemetry: Section of the scenario.
        table: Rows of table ``packets``.

    Returns:
        What they say about packets and about congested packets.

    Raises:
        RunError: Table ``packets`` lacks the links of slots.
    """
    scheme, n, b = telemetry.scheme, telemetry.slots, telemetry.hash_bits
    header = table["header"].to_numpy()
    if scheme == "full":
        counts = [field(header, start, 8).astype(np.int64) for start in (0, 8)]
        links = _links(table, n)
        return (
            _in_slots(n, counts[0], lambda slot: links[:, slot] - np.uint32(1)),
            _in_slots(n, counts[1], lambda slot: links[:, n + slot] - np.uint32(1)),
        )
    hops = table["hops"].to_numpy() if scheme == "coordinated" else counted_hops(telemetry, table)
    count: Ints = hops.astype(np.int64)
    if scheme == "single-bit":
        start = n * b + telemetry.count_bits
        met = field(header, start + n * b, telemetry.count_bits).astype(np.int64)
        return (
            _in_slots(n, count, lambda slot: field(header, slot * b, b)),
            _in_slots(n, met, lambda slot: field(header, start + slot * b, b)),
        )
    both = _in_slots(n, count, lambda slot: field(header, slot * (1 + b) + 1, b))
    assert both.slot is not None
    if scheme == "coordinated":
        hop = _last_hops(ids_of(table), count, n)[both.rows, both.slot]
        both = HeaderSamples(both.rows, both.seen, both.weight, hop, both.slot)
    flags = np.stack([field(header, slot * (1 + b), 1) for slot in range(n)], axis=1)
    return both, both.take(flags[both.rows, both.slot] > 0)


def _links(table: pl.DataFrame, n: int) -> NDArray[np.uint32]:
    """Links of the slots of every packet, numbered from 1, (P, 2 n)."""
    column = table["links"]
    if column.null_count() or bool((column.list.len() != 2 * n).any()):
        raise RunError(
            f"packets.parquet links: a packet does not have the links of {2 * n} slots",
            remedy="run the scenario again: the table is damaged",
        )
    return np.asarray(column.explode().to_numpy().reshape(-1, 2 * n), np.uint32)


def _in_slots(n: int, count: Ints, seen: Callable[[int], NDArray[np.uint32]]) -> HeaderSamples:
    """The samples of a reservoir of ``n`` slots that ``count`` hops were offered to, by slot."""
    rows = [np.flatnonzero(count > slot) for slot in range(n)]
    every = np.concatenate(rows)
    slot = np.repeat(np.arange(n), [len(part) for part in rows])
    weight = count[every] / np.minimum(count[every], n)
    hashes = np.concatenate([seen(number)[part] for number, part in enumerate(rows)])
    return HeaderSamples(every, hashes, np.asarray(weight, np.float64), None, slot)


def _last_hops(ids: NDArray[np.uint32], hops: Ints, n: int) -> Ints:
    """The hop whose sample each slot of every packet of ``coordinated`` holds, (P, n)."""
    last = np.zeros((len(ids), n), np.int64)
    for hop in range(int(hops.max(initial=0))):
        slot = coordinated_slot(ids, hop, n)
        taken = np.flatnonzero((slot < n) & (hop < hops))
        last[taken, slot[taken]] = hop
    return last
