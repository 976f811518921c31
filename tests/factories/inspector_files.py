"""Small files of NCCL Inspector, one for each process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

UTC_US = 1_790_000_000_000_000


def all_reduce(
    number: int, begin_us: float, end_us: float, nbytes: int = 8000, **more: Any
) -> Entry:
    """A sum with the times of its kernel, µs; ``launched_us`` is when its host launched it."""
    launched = more.pop("launched_us", begin_us - 5)
    body: Entry = {
        "coll": "AllReduce",
        "coll_sn": number,
        "coll_msg_size_bytes": nbytes,
        "coll_exec_time_us": end_us - begin_us,
        "coll_timing_source": "kernel_gpu",
        "coll_algo": "RING",
        "coll_proto": "SIMPLE",
        "event_trace_ts": {
            "coll_start_ts": UTC_US + launched,
            "coll_stop_ts": UTC_US + launched + 1,
            "kernel_events": [
                {
                    "channel_id": 0,
                    "kernel_start_ts": UTC_US + begin_us,
                    "kernel_stop_ts": UTC_US + end_us,
                }
            ],
        },
    }
    return {"coll_perf": body | more}


def point_to_point(
    name: str, peer: int, begin_us: float, end_us: float, nbytes: int = 8000
) -> Entry:
    """A send or receive with the times of its kernel, µs."""
    body = {
        key.replace("coll", "p2p"): value
        for key, value in all_reduce(1, begin_us, end_us)["coll_perf"].items()
    }
    return {"p2p_perf": body | {"p2p": name, "p2p_peer": peer, "p2p_msg_size_bytes": nbytes}}


def untimed(entry: Entry) -> Entry:
    """The same without the times of kernels."""
    body = {key: value for key, value in entry["coll_perf"].items() if key != "event_trace_ts"}
    return {"coll_perf": body}


def send_step(number: int, peer: int, network_us: int, size: int = 4000) -> Entry:
    """A network step of collective ``number`` to a rank of its communicator."""
    names = ("proxy_step_start", "send_gpu_wait", "send_peer_wait", "send_wait", "proxy_step_stop")
    times = [UTC_US + offset for offset in (0, 1, 2, 3, 3 + network_us)]
    body: Entry = {
        "record_type": "proxy_step",
        "parent_type": "coll",
        "parent_sn": number,
        "channel_id": 0,
        "peer": peer,
        "direction": "send",
        "trans_size_bytes": size,
        "event_trace_ts": {f"{name}_ts": at for name, at in zip(names, times, strict=True)},
    }
    return {"proxy_trace": body}


def process(
    rank: int,
    n_ranks: int,
    entries: Sequence[Entry],
    *,
    version: str = "v4.3",
    comm: str = "0x9",
    host: str | None = None,
    **stats: int,
) -> str:
    """The file of a process with one communicator; ``stats`` are counts of its marker."""
    header = {"id": comm, "rank": rank, "n_ranks": n_ranks, "nnodes": n_ranks}
    metadata = {
        "inspector_output_format_version": version,
        "dump_timestamp_us": UTC_US + 10_000,
        "hostname": host or f"n{rank}",
        "pid": 100 + rank,
    }
    context = {"header": header, "metadata": metadata}
    if version == "v4.0":
        lines = [context | entry for entry in entries]
    else:
        counts = {"coll_perf": "coll_records", "p2p_perf": "p2p_records"}
        counted = dict.fromkeys((*counts.values(), "proxy_records"), 0)
        for entry in entries:
            counted[counts.get(next(iter(entry)), "proxy_records")] += 1
        lines = [context | {"dump_stats": counted | stats}, *entries]
        if version != "v4.3":
            lines = [lines[0], *(context | entry for entry in entries)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def write(folder: Path, *ranks: Sequence[Entry], **options: Any) -> Path:
    """Write the files of all ranks of a run into a folder."""
    for rank, entries in enumerate(ranks):
        text = process(rank, len(ranks), entries, **options)
        (folder / f"n{rank}-pid{100 + rank}.log").write_text(text)
    return folder


def sample(folder: Path) -> Path:
    """Two ranks with two sums of 8,000 B; the second rank computes 100 µs longer between them."""
    return write(
        folder,
        [all_reduce(1, 0, 50), all_reduce(2, 150, 300)],
        [all_reduce(1, 0, 50), all_reduce(2, 250, 300)],
    )
