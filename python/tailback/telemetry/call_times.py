"""When the messages of a recording were under way, as calling contexts of captured packets.

Neither verbs nor sockets tell MPI programs the sequence numbers of their packets. But a capture has
the time of each packet, and a recording when each message was posted and complete. A packet between
two hosts belongs to the first of their messages that ends after it, since connections deliver in
order.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from tailback.errors import RunError
from tailback.evidence.measure import MeasuredRun

_COLUMNS = ("source", "destination", "first_ns", "last_ns", "call", "path")


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
