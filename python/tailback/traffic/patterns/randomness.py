"""Random numbers that are a function of (seed, stream name, entity), never of a shared generator.

One Philox generator (a counter-based block function, Salmon et al., SC'11) per stream and entity:
the k-th number of rank r is the same whatever the other ranks or the number of messages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def stream_key(seed: int, stream: str) -> int:
    """64-bit key of a named stream."""
    entropy = [seed, int.from_bytes(stream.encode(), "little")]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def entity_generator(seed: int, stream: str, entity: int) -> np.random.Generator:
    """Generator of one entity of a stream."""
    key = np.array([stream_key(seed, stream), entity], np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def other_ranks(seed: int, stream: str, n_ranks: int, messages: int) -> NDArray[np.int64]:
    """A random other rank for every message of every rank.

    Returns:
        Destination of message k of rank r, never r itself, shape (R, messages).
    """
    key = stream_key(seed, stream)
    raw = np.empty((n_ranks, messages), np.uint64)
    for rank in range(n_ranks):
        raw[rank] = np.random.Philox(key=np.array([key, rank], np.uint64)).random_raw(messages)
    # High 32 bits times the range: the bias is below n_ranks / 2^32.
    drawn = ((raw >> np.uint64(32)) * np.uint64(n_ranks - 1) >> np.uint64(32)).astype(np.int64)
    return drawn + (drawn >= np.arange(n_ranks)[:, None])


def derangement(seed: int, stream: str, n_ranks: int) -> NDArray[np.int64]:
    """A random permutation without fixed points, uniform over all of them, shape (R,)."""
    generator = entity_generator(seed, stream, 0)
    while True:  # One permutation in e has no fixed point.
        out = generator.permutation(n_ranks)
        if not (out == np.arange(n_ranks)).any():
            return out
