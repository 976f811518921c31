"""Archives of intervals of a Gemini torus for benchmarks and tests, marked as synthetic.

The shape is that of the study of Blue Waters (Jha et al., *Characterizing Supercomputer Traffic
Networks Through Link-Level Analysis*, HPCMASPA 2018, II): 24 × 24 × 24 routers, six directions, a
sample a minute. Utilization falls off exponentially, stall is correlated with it and highest in X,
and occasionally a section of an X ring is congested for some minutes; nothing is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.port_counters import INTERVALS, conform
from tailback.port_counters.readers import DIRECTIONS, GEMINI_GBPS
from tailback.run.run import AtomicDirectory

SHAPE: Final = (24, 24, 24)
MINUTE_NS: Final = 60 * 10**9
_START_NS: Final = 1_483_228_800_000_000_000
"""1 January 2017, 00:00 UTC: the start of the study."""
_UTILIZATION: Final = {"X": 0.016, "Y": 0.011, "Z": 0.022}
_STALL: Final = {"X": 0.030, "Y": 0.015, "Z": 0.012}
_ROWS_A_GROUP: Final = 125_000
_MINUTES_A_PART: Final = 10


def coordinates(shape: tuple[int, int, int] = SHAPE) -> pl.DataFrame:
    """``node_name, x, y, z`` of every router, x fastest."""
    number = np.arange(int(np.prod(shape)))
    x, y, z = number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])
    return pl.DataFrame(
        {"x": x, "y": y, "z": z}, schema={"x": pl.Int32, "y": pl.Int32, "z": pl.Int32}
    ).select(pl.format("({},{},{})", "x", "y", "z").alias("node_name"), "x", "y", "z")


def part(
    first_minute: int, minutes: int, seed: int = 1, shape: tuple[int, int, int] = SHAPE
) -> pl.DataFrame:
    """Intervals of all links of some minutes.

    Args:
        first_minute: Number of the first minute.
        minutes: How many.
        seed: Seed of the archive; a minute depends on it and on its number alone.
        shape: Routers in x, y and z.

    Returns:
        Rows of ``counter_intervals``, minute by minute, router by router, six a router.
    """
    routers = int(np.prod(shape))
    names = coordinates(shape)["node_name"]
    minutes_of_part = [_minute(first_minute + n, seed, shape) for n in range(minutes)]
    used, stall, inner = (np.concatenate([m[i].ravel() for m in minutes_of_part]) for i in range(3))
    each = len(DIRECTIONS)
    router = np.tile(np.repeat(np.arange(routers), each), minutes)
    capacity = np.array([GEMINI_GBPS[d[0]] for d in DIRECTIONS])
    seconds = MINUTE_NS / 1e9
    frame = pl.DataFrame(
        {
            "time_ns": np.repeat(
                _START_NS + (first_minute + 1 + np.arange(minutes)) * MINUTE_NS, routers * each
            ),
            "node_guid": router + 1,
            "port": np.tile(np.arange(each), routers * minutes),
            "node_name": names.gather(router),
            "direction": pl.Series(DIRECTIONS).gather(np.tile(np.arange(each), routers * minutes)),
            "data_bytes": (used * np.tile(capacity, routers * minutes) * 1e9 / 8 * seconds).astype(
                np.uint64
            ),
            "stall_ns": stall * MINUTE_NS,
            "stall_fraction": stall,
            "internal_stall_fraction": inner,
            "utilization": used,
            "capacity_gbps": np.tile(capacity, routers * minutes),
        }
    ).with_columns(interval_ns=MINUTE_NS, source=pl.lit("synthetic"))
    return conform(INTERVALS, frame)


def _minute(
    minute: int, seed: int, shape: tuple[int, int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Utilization and both stall fractions of a minute, shape (routers, 6) each."""
    random = np.random.default_rng([seed, minute])
    size = (int(np.prod(shape)), len(DIRECTIONS))
    axis = [d[0] for d in DIRECTIONS]
    used = np.minimum(random.exponential(np.array([_UTILIZATION[a] for a in axis]), size), 0.9)
    ratio = used / np.array([_UTILIZATION[a] for a in axis])
    level = np.array([_STALL[a] for a in axis])
    stall = np.minimum(level * ratio * random.exponential(1.0, size), 0.75)
    for start, length, ring, depth in _events(minute, seed, shape):
        at = (start + np.arange(length)) % shape[0] + ring * shape[0]
        stall[at, 0] = np.maximum(stall[at, 0], depth * random.uniform(0.85, 1.0, length))
    inner = np.minimum(stall * random.uniform(0.9, 1.5, size), 0.95)
    return used, stall, inner


def _events(
    minute: int, seed: int, shape: tuple[int, int, int]
) -> list[tuple[int, int, int, float]]:
    """Sections of X rings congested in a minute: start, length, ring, depth; they grow and go."""
    out = []
    hour = minute // 60
    random = np.random.default_rng([seed, 1 << 20, hour])
    rings = shape[1] * shape[2]
    for _ in range(int(random.integers(2, 8))):
        begin, last = int(random.integers(0, 50)), int(random.integers(5, 40))
        start, ring = int(random.integers(0, shape[0])), int(random.integers(0, rings))
        depth, most = float(random.uniform(0.45, 0.9)), int(random.integers(2, 10))
        age = minute % 60 - begin
        if 0 <= age < last:
            length = 1 + round((most - 1) * min(age, last - 1 - age) / max(last / 2, 1))
            out.append((start - length // 2, min(length, shape[0]), ring, depth))
    return out


def write(path: Path, minutes: int, *, seed: int = 1, shape: tuple[int, int, int] = SHAPE) -> Path:
    """Write an archive: ``part-NNNNN.parquet`` of ten minutes each, and ``coordinates.parquet``.

    Args:
        path: Folder to write; it must not exist.
        minutes: Number of samples of every link.
        seed: The same seed gives the same intervals.
        shape: Routers in x, y and z.

    Raises:
        RunError: The folder exists or cannot be written.
    """
    with AtomicDirectory(path) as folder:
        coordinates(shape).write_parquet(folder / "coordinates.parquet")
        for number, first in enumerate(range(0, minutes, _MINUTES_A_PART)):
            frame = part(first, min(_MINUTES_A_PART, minutes - first), seed, shape)
            frame.write_parquet(folder / f"part-{number:05d}.parquet", row_group_size=_ROWS_A_GROUP)
    return path
