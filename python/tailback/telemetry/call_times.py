"""What captured packets have to do with the messages of a recording: rows of calling contexts.

A recording with byte ranges says which bytes of a TCP connection each call wrote, and sequence
numbers of packets tell their bytes. Without, as with verbs, which tell MPI programs no sequence
numbers, a capture still has the time of each packet, and a recording when each message was posted
and complete. A packet between two hosts belongs to the first of their messages that ends after it,
since connections deliver in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import polars as pl

from tailback.errors import RunError
from tailback.evidence.measure import MeasuredRun
from tailback.placement.rank_hosts import rank_hosts
from tailback.traffic.readers.recorded_bytes import BYTE_RANGES, recorded_bytes

_COLUMNS: Final = ("source", "destination", "first_ns", "last_ns", "call", "path")
_BYTE_COLUMNS: Final = (
    "source",
    "destination",
    "source_port",
    "destination_port",
    "first_byte",
    "bytes",
    "call",
    "path",
)


def call_bytes(recording: Path) -> pl.DataFrame | None:
    """Bytes of TCP connections between hosts, and the calls that wrote them, as rows of contexts.

    Args:
        recording: A folder of ``tailback record``.

    Returns:
        ``source, destination, source_port, destination_port, first_byte, bytes, call, path``:
        hosts, of the destination null if the other end was not recorded. None without byte ranges.

    Raises:
        RunError: The file of byte ranges is damaged, or has no connection between hosts.
        PlacementError: The file of hosts is damaged.
    """
    ranges = recorded_bytes(recording, RunError)
    if ranges is None:
        return None
    hosts = rank_hosts(recording / "rank_host.csv")
    host_of = dict(enumerate(hosts))
    table = ranges.with_columns(
        pl.col(rank).replace_strict(host_of, default=None, return_dtype=pl.String).alias(name)
        for name, rank in (("source", "rank"), ("destination", "peer"))
    )
    table = table.filter(pl.col("source").ne_missing(pl.col("destination")))
    if not table.height:
        raise RunError(
            "no byte range is of a connection between two hosts",
            file=recording / BYTE_RANGES,
            remedy="record the program on several hosts, and with TCP between them",
        )
    return table.select(_BYTE_COLUMNS)


def call_times(run: MeasuredRun, side: Literal["sender", "receiver"]) -> pl.DataFrame:
    """Messages between hosts as rows of a file of contexts.

    Args:
        run: The recording.
        side: Whether the call is the one that posted the send, or in which the receive was over.

    Returns:
        ``source, destination, first_ns, last_ns, call, path``, in order of time: UTC in nanoseconds
        since 1970 from the call of the send until the receive was over.

    Raises:
        RunError: The recording lacks the date, the hosts or the ends of messages.
    """
    hosts = run.tables["hosts"].select("rank", "host")
    if run.origin_unix_ns is None:
        raise RunError(
            "the recording has no date, so its times are not those of a capture",
            remedy="record with 'tailback record', or state PSNs in the contexts",
        )
    if not hosts.height or hosts["host"].null_count():
        raise RunError(
            "the recording does not tell the host of each rank",
            remedy="record with 'tailback record', which writes rank_host.csv",
        )
    of_call = "send_call" if side == "sender" else "recv_done_call"
    ends = {"source": "src_rank", "destination": "dst_rank"}
    # Column "source" of the table says whether a row was measured.
    table = (
        run.tables["transfers"]
        .drop("source")
        .filter(pl.col("recv_done_ps").is_not_null(), pl.col(of_call).is_not_null())
    )
    for name, rank in ends.items():
        table = table.join(hosts.rename({"rank": rank, "host": name}), on=rank)
    calls = run.tables["calls"].select("path", call="name", number="call")
    table = table.filter(pl.col("source") != pl.col("destination")).join(
        calls, left_on=of_call, right_on="number"
    )
    if not table.height:
        raise RunError(
            "no message between two hosts has a recorded end",
            remedy="record with 'tailback record', which records when receives are over",
        )
    times = {"first_ns": "send_enter_ps", "last_ns": "recv_done_ps"}
    utc = {
        name: (pl.col(of) / 1000).round().cast(pl.Int64) + run.origin_unix_ns
        for name, of in times.items()
    }
    return table.with_columns(**utc).select(_COLUMNS).sort("first_ns", "source", "destination")
