"""Format-independent results of a benchmark: times or rates by message size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

import numpy as np

from tailback.arrays import Floats
from tailback.errors import TailbackError

DRAWS: Final = 4000
"""Number of draws behind each interval."""

Layer = Literal["mpi", "verbs", "nccl"]
"""Software that a benchmark ran on: MPI, InfiniBand verbs, NCCL."""

Quantity = Literal["latency", "stream"]
"""``latency``: one-way time of one message. ``stream``: time per message with many in flight."""


class CalibrationError(TailbackError):
    """A benchmark's output or a calibration file that cannot be read or used."""


@dataclass(frozen=True)
class Series:
    """Times by message size of one benchmark between the same hosts.

    Attributes:
        quantity: Meaning of the times.
        layer: Software they include.
        size_bytes: Message sizes, shape (P,).
        time_ps: Time of each, shape (P,). For a stream: bytes divided by the rate of one adapter.
        resolution_ps: Step to which the output rounds each time, shape (P,).
        n: Messages or repetitions behind all of them.
        source: Benchmark: ``"osu_latency"``.
        pairs: Pairs of ranks that ran concurrently; 0 if the output does not state it.
        error_ps: Standard error of each time besides rounding, where it is known, shape (P,).
        deviation_ps: Draws of the same errors, shape (P, 4000).
    """

    quantity: Quantity
    layer: Layer
    size_bytes: Floats
    time_ps: Floats
    resolution_ps: Floats
    n: int
    source: str
    pairs: int = 1
    error_ps: Floats | None = None
    deviation_ps: Floats | None = None

    @property
    def errors_ps(self) -> Floats:
        """Known standard error of each time, 0 where none is known, shape (P,)."""
        return np.zeros(len(self.size_bytes)) if self.error_ps is None else self.error_ps


@dataclass
class BenchmarkData:
    """Content of one file.

    Attributes:
        series: Measured series.
        hosts: Host of each rank, if the output has them; else empty.
        devices: Number of each rank's accelerator, in the same order, if the output has them.
        packet_bytes: Payload of a full packet (MTU), if the output states it.
        corrupted: What the benchmark's own check of received data found wrong; empty if nothing.
        notes: What was left out or is irregular.
    """

    series: list[Series] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    packet_bytes: int | None = None
    corrupted: str = ""
    notes: list[str] = field(default_factory=list)


class BenchmarkReader(Protocol):
    """Interface of a module that reads the output of a benchmark."""

    def sniff(self, text: str) -> bool:
        """Whether the start of a file is this benchmark's output."""

    def read(self, text: str, path: Path) -> BenchmarkData:
        """Read the output.

        Args:
            text: All of it.
            path: The file, for errors.

        Raises:
            CalibrationError: The output is cut or damaged; names the line and the value.
        """


def latency(
    layer: Layer, rows: Sequence[tuple[float, float, float]], n: int, source: str, pairs: int = 1
) -> Series:
    """A series of one-way times.

    Args:
        layer: Software they include.
        rows: Size in bytes, time in microseconds and the step it is rounded to, of each point.
        n: Repetitions.
        source: What measured it.
        pairs: Pairs of ranks that measured at once.
    """
    table = np.array(rows, np.float64).reshape(-1, 3)
    return Series(
        "latency", layer, table[:, 0], table[:, 1] * 1e6, table[:, 2] * 1e6, n, source, pairs
    )


def stream(
    layer: Layer, rows: Sequence[tuple[float, float, float]], n: int, source: str, pairs: int = 1
) -> Series:
    """A series of rates, as times per message.

    Args:
        layer: Software they include.
        rows: Size in bytes, rate in bytes per second and the step it is rounded to, of each point.
        n: Repetitions.
        source: What measured it.
        pairs: Pairs of ranks that measured at once.
    """
    table = np.array(rows, np.float64).reshape(-1, 3)
    time = table[:, 0] / table[:, 1] * 1e12
    return Series(
        "stream", layer, table[:, 0], time, time * table[:, 2] / table[:, 1], n, source, pairs
    )
