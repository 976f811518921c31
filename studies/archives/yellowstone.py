"""Archives of counter readings of any size for benchmarks and tests, marked as synthetic.

The shape is that of the study of Yellowstone (Alali et al., *A Measurement Study of Congestion in
an InfiniBand Network*, III): rounds of 100 readings, 100 ms and a turn-around apart, of random
ports of 738 switches in seven categories. How often and how long ports stall is set to what its
Figures 5 to 7 show; nothing is measured.

An archive is a folder of ``part-NNNNN.parquet`` with the columns of ``counter_readings``, whole
rounds in each part, and ``classes.parquet``. Part n depends on the seed and n alone, so parts may
be made, read and analysed in any order and on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.port_counters import READINGS, conform
from tailback.port_counters.analysis import CLASSES
from tailback.run.run import AtomicDirectory

READINGS_A_ROUND: Final = 100
ROUNDS_A_PART: Final = 10_000
_ROWS_A_GROUP: Final = 125_000
"""Rows of a Parquet row group: small groups keep the memory of a streaming reader small."""
TICK_NS: Final = 22.0
_WAIT_NS: Final = 100_000_000
_ANSWER_NS: Final = (14_000_000, 26_000_000)
_START_NS: Final = 1_456_790_400_000_000_000
"""1 March 2016, 00:00 UTC: the month of the study."""


@dataclass(frozen=True)
class Category:
    """Switches of one kind.

    Attributes:
        name: Name in the study.
        switches: How many there are.
        down_ports: Ports 1 … this one lead down, the rest of the 36 up.
        stalled: Share of 100-ms intervals with a stall, (down, up).
        level: Median stall fraction of such an interval.
    """

    name: str
    switches: int
    down_ports: int
    stalled: tuple[float, float]
    level: float


CATEGORIES: Final = (
    Category("ToR", 252, 18, (0.60, 0.58), 0.006),
    Category("Leaf", 261, 18, (0.42, 0.47), 0.004),
    Category("Spine", 162, 36, (0.04, 0.0), 0.003),
    Category("DAVLeaf", 24, 18, (0.30, 0.30), 0.010),
    Category("DAVSpine", 12, 36, (0.22, 0.0), 0.008),
    Category("GladeLeaf", 15, 18, (0.35, 0.55), 0.025),
    Category("GladeSpine", 12, 36, (0.33, 0.0), 0.025),
)
_PORTS = 36


def classes() -> pl.DataFrame:
    """The class of every port of the synthetic fabric, like ``analysis.classes.classify``."""
    rows = [
        (
            f"{category.name.lower()}{switch:03d}",
            port,
            category.name,
            "down" if port <= category.down_ports else "up",
        )
        for category in CATEGORIES
        for switch in range(category.switches)
        for port in range(1, _PORTS + 1)
    ]
    names, ports, kinds, types = zip(*rows, strict=True)
    return pl.DataFrame(
        {
            "node_name": names,
            "port": ports,
            "link": range(len(rows)),
            "category": kinds,
            "port_type": types,
        },
        schema=CLASSES,
    )


def part(number: int, rounds: int = ROUNDS_A_PART, seed: int = 1) -> pl.DataFrame:
    """Readings of one part: ``rounds`` rounds, numbered from ``number × ROUNDS_A_PART``.

    Args:
        number: Number of the part.
        rounds: Rounds in it, at most ``ROUNDS_A_PART``.
        seed: Seed of the archive.

    Returns:
        ``100 × rounds`` rows of ``counter_readings``.
    """
    random = np.random.default_rng([seed, number])
    kinds = np.repeat(np.arange(len(CATEGORIES)), [c.switches for c in CATEGORIES])
    within = np.concatenate([np.arange(c.switches) for c in CATEGORIES])
    switch = random.integers(0, len(kinds), rounds)
    port = random.integers(1, _PORTS + 1, rounds)
    kind = kinds[switch]
    up = port > np.array([c.down_ports for c in CATEGORIES])[kind]
    shares = np.array([c.stalled for c in CATEGORIES])[kind, up.astype(np.int64)]
    level = np.array([c.level for c in CATEGORIES])[kind]
    answer = random.integers(*_ANSWER_NS, (rounds, READINGS_A_ROUND))
    start = number * ROUNDS_A_PART + np.arange(rounds)
    query = _START_NS + start[:, None] * 2_000_000_000 + _before(answer)
    ticks = _ticks(random, shares, level, query, answer)
    first = number * ROUNDS_A_PART
    names = np.array([c.name.lower() for c in CATEGORIES], object)
    label = [f"{n}{w:03d}" for n, w in zip(names[kind], within[switch], strict=True)]
    each = READINGS_A_ROUND
    frame = pl.DataFrame(
        {
            "time_ns": (query + answer // 2).ravel(),
            "turnaround_ns": answer.ravel(),
            "round": np.repeat(np.arange(first, first + rounds), each),
            "node_guid": np.repeat(0x0002_C903_0000_0000 + switch, each),
            "port": np.repeat(port, each),
            "node_name": pl.Series(label).gather(np.repeat(np.arange(rounds), each)),
            "link": np.repeat(switch * _PORTS + port - 1, each),
            "xmit_wait_ticks": ticks.ravel(),
        }
    ).with_columns(wait_limit=2**32 - 1, tick_ns=TICK_NS, source=pl.lit("synthetic"))
    return conform(READINGS, frame)


def _before(answer: NDArray[np.int64]) -> NDArray[np.int64]:
    """When each query of a round is issued: 100 ms after the answer before, nanoseconds."""
    steps = answer + _WAIT_NS
    return np.asarray(np.cumsum(steps, axis=1) - steps, np.int64)


def _ticks(
    random: np.random.Generator,
    shares: NDArray[np.float64],
    level: NDArray[np.float64],
    query: NDArray[np.int64],
    answer: NDArray[np.int64],
) -> NDArray[np.int64]:
    """PortXmitWait of every reading, shape (rounds, 100).

    A round is quiet, or busy with its own share and level. One busy round in 200 is stalled all the
    time; there an estimated fraction can exceed 1, because the true instants of two readings lie
    anywhere in their turn-arounds.
    """
    rounds, each = query.shape
    busy = random.random(rounds) < np.sqrt(shares)
    share = np.where(busy, np.minimum(np.sqrt(shares) * random.uniform(0.7, 1.3, rounds), 1.0), 0.0)
    own = level * random.lognormal(0.0, 0.9, rounds)
    fraction = np.minimum(own[:, None] * random.lognormal(0.0, 0.5, (rounds, each)), 1.0)
    fraction *= random.random((rounds, each)) < share[:, None]
    fraction[busy & (random.random(rounds) < 0.005)] = 1.0
    instant = query + (answer * random.random((rounds, each))).astype(np.int64)
    length = np.diff(instant, axis=1, prepend=instant[:, :1] - _WAIT_NS)
    return np.asarray(np.cumsum((fraction * length / TICK_NS).astype(np.int64), axis=1), np.int64)


def parts(records: int, seed: int = 1) -> Iterator[pl.DataFrame]:
    """The parts of an archive of ``records`` readings, rounded up to whole rounds."""
    left = -(-records // READINGS_A_ROUND)
    number = 0
    while left > 0:
        yield part(number, min(left, ROUNDS_A_PART), seed)
        left, number = left - ROUNDS_A_PART, number + 1


def write(path: Path, records: int, *, seed: int = 1, force: bool = False) -> Path:
    """Write an archive.

    Args:
        path: Folder to write.
        records: Number of readings.
        seed: The same seed gives the same readings.
        force: Replace an archive or an empty folder.

    Raises:
        RunError: The folder exists or cannot be written.
    """
    with AtomicDirectory(path, force=force) as folder:
        classes().write_parquet(folder / "classes.parquet")
        for number, frame in enumerate(parts(records, seed)):
            frame.write_parquet(folder / f"part-{number:05d}.parquet", row_group_size=_ROWS_A_GROUP)
    return path
