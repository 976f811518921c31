"""Which bytes of its TCP connections each MPI call of a recording wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from tailback.errors import TailbackError
from tailback.io.parquet import read_table

BYTE_RANGES: Final = "byte_ranges.parquet"
"""File of a recording: ``rank, peer`` (null unless it was recorded), ``source_address, source_port,
destination_address, destination_port, first_byte, bytes, call, path``."""


def recorded_bytes(folder: Path, error: type[TailbackError]) -> pl.DataFrame | None:
    """The rows of :data:`BYTE_RANGES`; None if the recording has none.

    Args:
        folder: A recording.
        error: What to raise if the file is damaged.
    """
    file = folder / BYTE_RANGES
    return read_table(file, error=error) if file.is_file() else None
