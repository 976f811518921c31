"""Network steps of senders in NCCL Inspector's proxy traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tailback.errors import TraceError
from tailback.traffic.nccl.recorded import NetworkStep
from tailback.traffic.readers.inspector.records import Record

_SEND_TIMES: Final = ("send_gpu_wait_ts", "send_peer_wait_ts", "send_wait_ts", "proxy_step_stop_ts")


def network_steps(
    records: Sequence[Record], members: Mapping[str, Sequence[int]], damaged: list[TraceError]
) -> list[NetworkStep]:
    """Steps of senders with all of their times.

    Args:
        records: Records of all kinds.
        members: World ranks of each communicator, in its order; -1 where unknown.
        damaged: Gets an error for each record with an impossible value.
    """
    out = []
    for record in records:
        if record.kind == "proxy_trace":
            try:
                out += _steps_of(record, members[record.comm.id])
            except TraceError as error:
                damaged.append(error)
    return out


def _steps_of(record: Record, members: Sequence[int]) -> list[NetworkStep]:
    """The steps of a record; raises TraceError for an impossible value."""
    out = list[NetworkStep]()
    body = record.body
    nested = body.get("steps")
    listed = nested if isinstance(nested, list) else [body]
    if body.get("direction") != "send":
        return out
    peer = record.integer("peer", 0)
    if peer >= len(members):
        raise TraceError(
            f"peer {peer} of a communicator of {len(members)} ranks",
            file=record.file,
            place=f"line {record.line}",
            remedy="keep the files of one run in a folder; copy a damaged file again",
        )
    ends = members[record.comm.rank], members[peer]
    for step in listed:
        times = step.get("event_trace_ts") if isinstance(step, dict) else None
        is_step = body.get("record_type") == "proxy_step" or nested is not None
        if not is_step or not isinstance(times, dict) or -1 in ends:
            continue
        at = [record.integer(key, 0, times) for key in _SEND_TIMES]
        if all(at) and at == sorted(at):
            size = record.integer("trans_size_bytes", 0, step)
            channel = record.integer("channel_id", 0)
            key = (record.comm.id, record.integer("parent_sn", 0))
            begun, ready, granted, done = (t * 1000 for t in at)
            out.append(NetworkStep(*ends, channel, size, begun, ready, granted, done, key))
    return out
