"""Readers of port counters: one module per source. All return the same tables.

A reader is a module with ``sniff(path)`` (is this its format?) and ``read(path)``. To add one,
write one module and add one line below.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tailback.io.input_files import is_empty, is_input_file
from tailback.io.manifest import require_unchanged
from tailback.port_counters.readers import (
    collection,
    cxi,
    engine_run,
    ethernet_csv,
    ethtool,
    exposition,
    gnmi,
    ibdiagnet,
    ibqueryerrors,
    influx_line,
    ldms_csv,
    mlxlink,
    opapmaquery,
    perfquery,
    perfquery_rounds,
    prometheus,
    recorded_infiniband,
    sonic,
    sysfs,
    ufm_csv,
)
from tailback.port_counters.readers.engine_run import from_run
from tailback.port_counters.readers.ldms_columns import DIRECTIONS, GEMINI_GBPS
from tailback.port_counters.readers.model import (
    FAR_ENDS,
    CounterData,
    CounterReader,
    united,
    unreadable,
)
from tailback.port_counters.readers.unread import refusal
from tailback.port_counters.schema import CounterError
from tailback.registry import Registry

READERS: Registry[CounterReader] = Registry("counter-source", "sources of port counters")

READERS.register("collection")(collection)
READERS.register("cxi")(cxi)
READERS.register("engine-run")(engine_run)
READERS.register("ethernet-csv")(ethernet_csv)
READERS.register("ethtool")(ethtool)
READERS.register("exposition")(exposition)
READERS.register("gnmi")(gnmi)
READERS.register("ibdiagnet")(ibdiagnet)
READERS.register("ibqueryerrors")(ibqueryerrors)
READERS.register("influx-line")(influx_line)
READERS.register("ldms-csv")(ldms_csv)
READERS.register("mlxlink")(mlxlink)
READERS.register("opapmaquery")(opapmaquery)
READERS.register("perfquery")(perfquery)
READERS.register("perfquery-rounds")(perfquery_rounds)
READERS.register("prometheus")(prometheus)
READERS.register("recorded-infiniband")(recorded_infiniband)
READERS.register("sonic")(sonic)
READERS.register("sysfs")(sysfs)
READERS.register("ufm-csv")(ufm_csv)


def read_counters(
    path: Path, format: str | None = None, *, time_ns: int | None = None
) -> CounterData:
    """Read port counters of one source; see :func:`read_part`."""
    return merged([read_part(path, format, time_ns=time_ns)])


def read_part(path: Path, format: str | None = None, *, time_ns: int | None = None) -> CounterData:
    """Read port counters to be merged with others.

    Args:
        path: A file or folder in one of the formats of :data:`READERS`.
        format: Name of the reader; detected when None.
        time_ns: Time of the reading, for sources without time stamps.

    Raises:
        CounterError: ``path`` does not exist, no reader knows it, or it is damaged.
        TailbackError: ``format`` is not the name of a reader.
    """
    path = Path(path)
    reader = reader_of(path, format)
    require_unchanged(path)
    try:
        return reader.read(path, time_ns=time_ns)
    except OSError as error:  # a file that was deleted meanwhile, or that only root may read
        raise unreadable(Path(error.filename or path), error) from None
    except pl.exceptions.PanicException as error:  # Polars, on a damaged Parquet file
        raise CounterError(f"damaged: {error}", file=path, remedy="collect it again") from None


def reader_of(path: Path, format: str | None = None) -> CounterReader:
    """The reader of a file or folder.

    Args:
        path: A file or folder in one of the formats of :data:`READERS`.
        format: Name of the reader; detected when None.

    Raises:
        CounterError: ``path`` does not exist or is empty, or no reader knows it.
        TailbackError: ``format`` is not the name of a reader.
    """
    try:
        exists = path.exists()
        entry = None
        if exists and format is None:
            entry = next((entry for entry in READERS if entry.part.sniff(path)), None)
    except (OSError, ValueError) as error:
        raise CounterError(
            f"cannot be read: {error}", file=path, remedy="check the path and its permissions"
        ) from None
    if not exists:
        raise CounterError(
            "no such file or folder",
            file=path,
            remedy="check the path, or collect: tailback collect --out FOLDER",
        )
    if is_input_file(path) and is_empty(path):
        raise CounterError(
            "the file is empty",
            file=path,
            remedy="leave it out; the tool that wrote it may have failed",
        )
    if format is None and entry is None:
        raise refusal(path)
    return entry.part if entry is not None else READERS[str(format)]


def read_series(paths: Sequence[Path], format: str | None = None) -> CounterData:
    """Read several sources as one, for example one perfquery output per instant."""
    if not paths:
        raise CounterError("no file to read", remedy="give at least one")
    return merged([read_part(path, format) for path in paths])


def merged(parts: Sequence[CounterData]) -> CounterData:
    """Several sources as one, for example one file per instant."""
    return united(ibqueryerrors.with_unprinted(parts))


__all__ = [
    "DIRECTIONS",
    "FAR_ENDS",
    "GEMINI_GBPS",
    "READERS",
    "CounterData",
    "CounterReader",
    "from_run",
    "merged",
    "read_counters",
    "read_part",
    "read_series",
    "reader_of",
]
