"""Which bytes of its TCP connections each MPI call wrote.

MPI libraries add headers of their own, split messages and send them late, so message sizes do not
tell which bytes of a connection are whose. The recorder sees what the library writes during each
call instead: a byte belongs to the call that handed it to the system, which for a message that is
too long for the buffers is a later wait. Byte 0 is the first after the SYN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from tailback.recorder.call_sites import CallLocation
from tailback.recorder.rank_files import RankRecord, RankSite
from tailback.traffic.readers.recorded_bytes import BYTE_RANGES
from tailback.units import counted

_RANGE: Final = np.dtype(
    [
        ("stream", np.uint32),
        ("site", np.uint32),
        ("region", np.uint32),
        ("reserved", np.uint32),
        ("first_byte", np.int64),
        ("bytes", np.int64),
    ]
)
"""``struct range`` of ``c/convert.c``."""

_ENDS: Final = ("source_address", "source_port", "destination_address", "destination_port")


def ranges_file(events: Path) -> Path:
    """Where the converter writes the ranges of a file of events."""
    return events.with_suffix(".ranges")


def write_byte_ranges(
    folder: Path,
    ranks: Sequence[RankRecord],
    places: Mapping[RankSite, CallLocation],
    regions: Sequence[str],
    notes: list[str],
) -> None:
    """Write :data:`BYTE_RANGES` of what the converter left; nothing if no connection was recorded.

    Args:
        folder: The recording.
        ranks: What each rank left.
        places: Source location of each call site.
        regions: Names of the MPI calls by number.
        notes: Gets a line for connections that are left out.
    """
    if not any(rank.streams for rank in ranks):
        return
    peers = {ends: rank.rank for rank in ranks for ends in rank.streams.values()}
    parts, lost = [], 0
    for rank in ranks:
        for events in rank.events.values():
            if ranges_file(events).is_file():
                rows = np.fromfile(ranges_file(events), _RANGE)
                if len(rows):
                    parts.append(_named(rows, rank, peers, places, regions))
        lost += len(rank.gaps)
    if lost:
        notes.append(
            f"{counted(lost, 'TCP connection')} without byte ranges: something was written to them "
            "past the C library"
        )
    if parts:
        pl.concat(parts).write_parquet(folder / BYTE_RANGES)


def _named(
    rows: np.ndarray[tuple[int], np.dtype[np.void]],
    rank: RankRecord,
    peers: Mapping[tuple[str, int, str, int], int],
    places: Mapping[RankSite, CallLocation],
    regions: Sequence[str],
) -> pl.DataFrame:
    """Ranges of a rank with the ends of their connections, and their calls."""
    streams = [
        (stream, rank.rank, peers.get((*ends[2:], *ends[:2])), *ends)
        for stream, ends in rank.streams.items()
        if stream not in rank.gaps
    ]
    ends = dict.fromkeys(_ENDS, pl.String) | dict.fromkeys(_ENDS[1::2], pl.UInt16)
    schema = {"stream": pl.UInt32, "rank": pl.UInt32, "peer": pl.UInt32, **ends}
    sites = [(site, places[place].text) for site, place in rank.sites.items()]
    columns = {name: rows[name] for name in ("stream", "site", "region", "first_byte", "bytes")}
    return (
        pl.DataFrame(columns)
        .join(pl.DataFrame(streams, schema, orient="row"), on="stream", maintain_order="left")
        .join(
            pl.DataFrame(sites, {"site": pl.UInt32, "path": pl.String}, orient="row"),
            on="site",
            how="left",
            maintain_order="left",
        )
        .with_columns(
            call=pl.col("region").replace_strict(
                dict(enumerate(regions)), default="", return_dtype=pl.String
            )
        )
        .select("rank", "peer", *_ENDS, "first_byte", "bytes", "call", "path")
    )
